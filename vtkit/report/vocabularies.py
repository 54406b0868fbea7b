"""The vocabularies of a run as a page shows them: overlap, where the new rows came from, languages, fragmentation."""

from collections.abc import Callable, Sequence

from vtkit.report.blocks import Bar, Block, Foreign, Inline, Paragraph, Section, Strong, Table, Token
from vtkit.report.data import Number, ReportData
from vtkit.report.wording import amount, count_and_share, is_number, p_value, score, share
from vtkit.settings.transfer import ROW_ORIGINS
from vtkit.transfer.result import Probed
from vtkit.vocabulary.composition import LANGUAGES
from vtkit.vocabulary.profiles import TextMetrics, VocabularyAnalysis, VocabularyProfile

OVERLAP_RULES = {
    "exact": "equal tokens",
    "symbol": "equal symbols or digits",
    "special": "special tokens of the same role",
    "fuzzy": "equal but for case or word-start mark",
}


def vocabulary_section(report: ReportData) -> Section | None:
    """Overlap of both vocabularies, where the new rows came from, and the languages of the tokens."""
    overlap, analysis = report.vocabulary, report.vocabularies
    blocks: list[Block] = []
    if overlap is not None:
        sizes = (
            f"The new vocabulary has {amount(overlap.target_size)} tokens, the source model's "
            f"{amount(overlap.source_size)}; {share(overlap.overlap_share)} of the new tokens are in both."
        )
        blocks.append(Paragraph(sizes))
        if overlap.probed:
            blocks.append(Paragraph(_probed(overlap.probed)))
        total = sum(overlap.methods.values())
        rows = []
        for name, count in overlap.methods.items():
            label, meaning = ROW_ORIGINS.get(name, (name, ""))
            if name == "overlap":
                counts = [
                    f"{amount(n)} {OVERLAP_RULES.get(rule, rule)}" for rule, n in overlap.overlap.items() if n > 0
                ]
                meaning += f" ({', '.join(counts)})" if counts else ""
            rows.append((label, amount(count), Bar(share(count / total), count / total), meaning))
        if total > 0:
            columns = ("rows from", "tokens", "share", "what they are")
            title = "Where the embeddings of the new vocabulary come from"
            blocks.append(Table(title, columns, rows, frozenset({3})))
    if analysis is not None:
        blocks += _languages(analysis)
    return Section("vocabulary", "Vocabulary", tuple(blocks)) if blocks else None


def _probed(probed: Sequence[Probed]) -> str:
    rule, *others = probed
    taken = next(method.name for method in probed if method.taken)
    compared = ", ".join(f"{other.name} {score(other.reciprocal_rank)} (p {p_value(other.p)})" for other in others)
    return (
        "The method auto compared its rule with close alternatives by how well spans of target texts find their own "
        "text (mean reciprocal rank): "
        f"rule {score(rule.reciprocal_rank)}, {compared}. Chosen: {taken}."
    )


def profiles(analysis: VocabularyAnalysis) -> dict[str, VocabularyProfile]:
    """Name of each vocabulary on the page -> its profile, the source's first."""
    source = {} if analysis.source is None else {"source vocabulary": analysis.source}
    return source | {"new vocabulary" if source else "vocabulary": analysis.target}


def token_kinds(analysis: VocabularyAnalysis) -> dict[str, tuple[int, ...]]:
    """Language, or what else a token is -> how many tokens of each of :func:`profiles` are: languages by their largest
    share first, then the scripts of no language asked for, the undecided, and tokens without letters."""
    found = list(profiles(analysis).values())
    codes = {code for profile in found for code in profile.languages}
    largest = {code: max(profile.languages.get(code, 0) / max(profile.size, 1) for profile in found) for code in codes}
    ordered = sorted(codes, key=lambda code: (-largest[code], code))
    kinds = {LANGUAGES.get(code, code): tuple(profile.languages.get(code, 0) for profile in found) for code in ordered}
    kinds["other scripts"] = tuple(sum(profile.other_scripts.values()) for profile in found)
    kinds["undecided"] = tuple(profile.undecided for profile in found)
    kinds["no letters"] = tuple(profile.no_letters for profile in found)
    return {kind: counts for kind, counts in kinds.items() if any(counts)}


def _languages(analysis: VocabularyAnalysis) -> list[Block]:
    found = profiles(analysis)
    sizes = [profile.size for profile in found.values()]
    rows: list[tuple[Inline, ...]] = [
        (kind, *map(count_and_share, counts, sizes)) for kind, counts in token_kinds(analysis).items()
    ]
    rows.append((Strong("all tokens"), *(Strong(amount(size)) for size in sizes)))
    named = [LANGUAGES.get(code, code) for code in analysis.languages]
    note = (
        f"Told apart: {', '.join(named)}. A script that only one of them is written in decides, so every token in "
        "Latin letters counts as English where no other language with these letters is among them."
        if not analysis.shared_scripts.get("Latin")
        else f"Told apart: {', '.join(named)}. A script that only one of them is written in decides."
    )
    for script, codes in analysis.shared_scripts.items():
        both = " and ".join(LANGUAGES.get(code, code) for code in codes)
        note += (
            f" Characters that {both} share count as Japanese where the run's language is Japanese, else as Chinese."
            if script == "Han"
            else f" {script} words of {both} are told apart by a statistical detector; pieces and short words are "
            "undecided."
        )
    for name, profile in found.items():
        most = [f"{script} {amount(n)}" for script, n in profile.other_scripts.items()]
        shown = most[:SCRIPTS_SHOWN] + (["…"] if len(most) > SCRIPTS_SHOWN else [])
        note += f" Other scripts of the {name}: {', '.join(shown)}." if most else ""
    return [Table("Tokens by language", ("language", *found), rows), Paragraph(note, quiet=True)]


SCRIPTS_SHOWN = 5  # scripts of no language asked for that are named

FRAGMENTATION: tuple[tuple[str, Callable[[TextMetrics], Number], Callable[[Number], str]], ...] = (
    ("tokens per word", lambda metrics: metrics.tokens_per_word, lambda value: f"{value:.2f}"),
    ("words split", lambda metrics: metrics.split_words, share),
    ("tokens per text", lambda metrics: metrics.tokens_per_text, amount),
    ("[UNK] among the tokens", lambda metrics: metrics.unknown_tokens, share),
    ("words with [UNK], or without any token", lambda metrics: metrics.unknown_words, share),
    ("texts with a split word", lambda metrics: metrics.texts_with_split_word, share),
    ("texts with [UNK]", lambda metrics: metrics.texts_with_unknown, share),
)
"""Rows of the table of fragmentation: label, value and form. Of documents and of queries; "text" stands for either."""


def fragmentation_section(report: ReportData) -> Section | None:
    """How both vocabularies cut documents and queries, and the words that cost most."""
    analysis = report.vocabularies
    if analysis is None:
        return None
    found = profiles(analysis)
    blocks: list[Block] = []
    sides = {
        "document": [profile.documents for profile in found.values()],
        "query": [profile.queries for profile in found.values()],
    }
    plural = {"document": "documents", "query": "queries"}
    for side, metrics in sides.items():
        known = [of for of in metrics if of is not None]
        if not known:
            continue
        sample = analysis.documents if side == "document" else analysis.queries
        rows = [
            (label.replace("texts", plural[side]).replace("text", side), *(form(value(of)) for of in known))
            for label, value, form in FRAGMENTATION
            if any(is_number(value(of)) for of in known)
        ]
        measured = f"{plural[side]}: {amount(sample.texts)}"
        if sample.texts < sample.of:
            measured += f" of {amount(sample.of)}, sampled"
        if sample.shortened:
            measured += f", {amount(sample.shortened)} of them cut to their beginning"
        caption = f"How the {plural[side]} are cut ({measured}; {amount(known[0].words)} words)"
        blocks.append(Table(caption, ("", *found), rows))
    for name, profile in found.items():
        if profile.worst_words:
            words = [
                (Foreign(word.word), amount(word.occurrences), tuple(map(Token, word.pieces)))
                for word in profile.worst_words
            ]
            title = f"Words that cost the {name} most extra tokens"
            blocks.append(Table(title, ("word", "occurrences", "cut into"), words, frozenset({2}), own_texts=True))
    if not blocks:
        return None
    note = (
        "Special tokens around a text are not counted. A word is what stands between white space without the "
        "punctuation around it; in Chinese, Japanese, Thai, Lao, Khmer and Burmese, a word of ICU's dictionaries."
    )
    return Section("fragmentation", "Fragmentation", (*blocks, Paragraph(note, quiet=True)), folded=True)


COVERAGE = {  # field of Coverage -> its row, and how its numbers are written
    "words_split": ("words split", share),
    "queries_split": ("queries with a split word", share),
    "tokens_per_word": ("tokens a word", amount),
    "own_tokens_met": ("query tokens active in relevant documents", share),
    "own_tokens_met_elsewhere": ("query tokens active in any document", share),
    "score_by_own_tokens": ("score by the query's own tokens", share),
}

COVERAGE_NOTES = {
    "query tokens active in any document": "The nearer to the row above, the less they tell documents apart.",
    "score by the query's own tokens": "Of relevant documents; the rest is expansion.",
}


def coverage_section(report: ReportData) -> Section | None:
    """How queries and relevant documents meet on the vocabulary, before and after."""
    if not report.coverage:
        return None
    rows = []
    for name, (title, form) in COVERAGE.items():
        values = [getattr(found, name) for found in report.coverage.values()]
        rows.append((title, *("–" if value is None else form(value) for value in values)))
    table = Table("The first queries of the first set", ("", *report.coverage), rows, notes=COVERAGE_NOTES)
    return Section("coverage", "How queries and documents meet", (table,), folded=True)


def neighbours_section(report: ReportData) -> Section | None:
    """A few new tokens with what their rows were mixed from."""
    if not report.neighbours:
        return None
    rows = []
    for entry in report.neighbours:
        sources = (Token(token, f"{weight:.2f}", min(1.0, max(0.0, weight))) for token, weight in entry.sources)
        label = ROW_ORIGINS.get(entry.method, (entry.method, ""))[0]
        rows.append((Token(entry.token), label, tuple(sources) or "–"))
    title = "New tokens, and the source tokens their rows were mixed from"
    table = Table(title, ("new token", "by", "source tokens and weights"), rows, frozenset({1, 2}))
    return Section("neighbours", "What the new tokens were made of", (table,), folded=True)

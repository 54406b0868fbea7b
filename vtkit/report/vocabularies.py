"""The vocabularies of a run as a page shows them: overlap, origins of the new rows, languages, fragmentation."""

from collections.abc import Callable, Mapping, Sequence

from vtkit.evaluation.analyses.coverage import Coverage
from vtkit.report.blocks import Bar, Block, Cell, Foreign, Paragraph, Section, Strong, Table, Token, table_of
from vtkit.report.data import ReportData
from vtkit.report.plots import stacked_bars
from vtkit.report.wording import amount, count_and_share, p_value, score, share
from vtkit.settings.transfer import ROW_ORIGINS
from vtkit.vocabulary.composition import LANGUAGES
from vtkit.vocabulary.profiles import TextMetrics, VocabularyAnalysis, VocabularyProfile

SHOWN = 10  # languages (and scripts) with a row and a colour of their own; the rest is one row

OVERLAP_RULES = {
    "exact": "equal tokens",
    "symbol": "equal symbols or digits",
    "special": "special tokens of the same role",
    "fuzzy": "equal but for case or word-start mark",
}


def vocabulary_section(report: ReportData) -> Section | None:
    """Overlap of both vocabularies, origins of the new rows, and the languages of the tokens."""
    overlap, analysis = report.vocabulary, report.vocabularies
    blocks: list[Block] = []
    if overlap is not None:
        sizes = (
            f"The new vocabulary has {amount(overlap.target_size)} tokens, the source model's "
            f"{amount(overlap.source_size)}; {share(overlap.overlap_share)} of the new tokens are in both."
        )
        blocks.append(Paragraph(sizes))
        if overlap.probed:
            rule, *others = overlap.probed
            taken = next(method.name for method in overlap.probed if method.taken)
            compared = [f"{other.name} {score(other.reciprocal_rank)} (p {p_value(other.p)})" for other in others]
            said = (
                "The method auto compared its rule with close alternatives by how well spans of target texts find "
                f"their own text (mean reciprocal rank): rule {score(rule.reciprocal_rank)}, {', '.join(compared)}. "
                f"Chosen: {taken}."
            )
            blocks.append(Paragraph(said))
        total = sum(overlap.methods.values())
        rows = []
        for name, count in overlap.methods.items():
            label, meaning = ROW_ORIGINS.get(name, (name, ""))
            if name == "overlap":
                counts = [f"{amount(n)} {OVERLAP_RULES.get(rule, rule)}" for rule, n in overlap.overlap.items() if n]
                meaning += f" ({', '.join(counts)})" if counts else ""
            rows.append((label, amount(count), Bar(share(count / total), share=count / total), meaning))
        if total > 0:
            columns = ("rows from", "tokens", "share", "what they are")
            blocks.append(Table("Where the embeddings of the new vocabulary come from", columns, rows, frozenset({3})))
    if analysis is not None:
        blocks += _languages(analysis)
    return Section("vocabulary", "Vocabulary", blocks) if blocks else None


def profiles(analysis: VocabularyAnalysis) -> dict[str, VocabularyProfile]:
    """Name of each vocabulary on the page -> its profile, the source's first."""
    source = {} if analysis.source is None else {"source vocabulary": analysis.source}
    return source | {"new vocabulary" if source else "vocabulary": analysis.target}


def most_frequent(
    counts: Sequence[Mapping[str, int]], sizes: Sequence[int], labels: Mapping[str, str], others: str
) -> dict[str, list[int]]:
    """Label -> the counts of a name in each vocabulary, for the :data:`SHOWN` names with the largest share of any
    vocabulary; one label stands for all ``others``."""
    largest = {
        name: max(of.get(name, 0) / max(size, 1) for of, size in zip(counts, sizes, strict=True))
        for name in dict.fromkeys(name for of in counts for name in of)
    }
    names = sorted(largest, key=lambda name: (-largest[name], name))
    rows = {labels.get(name, name): [of.get(name, 0) for of in counts] for name in names[:SHOWN]}
    if rest := names[SHOWN:]:
        rows[f"{len(rest)} other {others}"] = [sum(of.get(name, 0) for name in rest) for of in counts]
    return rows


def _languages(analysis: VocabularyAnalysis) -> list[Block]:
    vocabularies = profiles(analysis)
    of_each = [*vocabularies.values()]
    sizes = [profile.size for profile in of_each]
    languages = most_frequent([profile.languages for profile in of_each], sizes, LANGUAGES, "languages")
    greys = {
        "other scripts": [sum(profile.other_scripts.values()) for profile in of_each],
        "undecided": [profile.undecided for profile in of_each],
        "no letters": [profile.no_letters for profile in of_each],
    }
    rows: list[tuple[Cell, ...]] = [
        (kind, *map(count_and_share, counts, sizes)) for kind, counts in (languages | greys).items() if any(counts)
    ]
    rows.append((Strong("all tokens"), *(Strong(amount(size)) for size in sizes)))
    remainders = len(greys) + (len(languages) > SHOWN)
    chart = stacked_bars("Tokens by language", [*vocabularies], languages | greys, remainders)
    named = ", ".join(LANGUAGES.get(code, code) for code in analysis.languages)
    notes = [f"Told apart: {named}. A script that only one of them is written in decides."]
    if not analysis.shared_scripts.get("Latin"):
        notes.append("So every token in Latin letters counts as English where no other language has them.")
    for script, codes in analysis.shared_scripts.items():
        both = " and ".join(LANGUAGES.get(code, code) for code in codes)
        if script == "Han":
            notes.append(f"Characters that {both} share count as Japanese in Japanese runs, else as Chinese.")
        else:
            notes.append(
                f"{script} words of {both} are told apart by a detector; pieces and short words are undecided."
            )
    for name, profile in vocabularies.items():
        scripts = [f"{script} {amount(n)}" for script, n in profile.other_scripts.items()]
        scripts[SCRIPTS_SHOWN:] = ["…"] if len(scripts) > SCRIPTS_SHOWN else []
        notes += [f"Other scripts of the {name}: {', '.join(scripts)}."] if scripts else []
    return [Table("Tokens by language", ("language", *vocabularies), rows), Paragraph(" ".join(notes), "quiet"), chart]


SCRIPTS_SHOWN = 5  # scripts of no language asked for that are named

FRAGMENTATION: dict[str, Callable[[TextMetrics], str]] = {
    "tokens per word": lambda metrics: f"{metrics.tokens_per_word:.2f}",
    "words split": lambda metrics: share(metrics.split_words),
    "tokens per text": lambda metrics: amount(metrics.tokens_per_text),
    "[UNK] among the tokens": lambda metrics: share(metrics.unknown_tokens),
    "words with [UNK], or without any token": lambda metrics: share(metrics.unknown_words),
}
OF_QUERIES: dict[str, Callable[[TextMetrics], str]] = {  # known of queries only
    "queries with a split word": lambda metrics: share(metrics.texts_with_split_word),
    "queries with [UNK]": lambda metrics: share(metrics.texts_with_unknown),
}


def fragmentation_section(report: ReportData) -> Section | None:
    """How both vocabularies cut documents and queries, and the words that cost most."""
    analysis = report.vocabularies
    if analysis is None:
        return None
    vocabularies = profiles(analysis)
    blocks: list[Block] = []
    for texts, sample, further in (("documents", analysis.documents, {}), ("queries", analysis.queries, OF_QUERIES)):
        cut = {name: metrics for name, each in vocabularies.items() if (metrics := getattr(each, texts)) is not None}
        if not cut:
            continue
        measured = f"{texts}: {amount(sample.texts)}"
        if sample.texts < sample.of:
            measured += f" of {amount(sample.of)}, sampled"
        if sample.shortened:
            measured += f", {amount(sample.shortened)} of them cut to their beginning"
        words = amount(next(iter(cut.values())).words)
        blocks.append(table_of(f"How the {texts} are cut ({measured}; {words} words)", cut, FRAGMENTATION | further))
    for name, profile in vocabularies.items():
        worst = [
            (Foreign(word.word), amount(word.occurrences), tuple(map(Token, word.pieces)))
            for word in profile.worst_words
        ]
        title = f"Words that cost the {name} most extra tokens"
        if worst:
            blocks.append(Table(title, ("word", "occurrences", "cut into"), worst, frozenset({2}), own_texts=True))
    if not blocks:
        return None
    note = (
        "Special tokens around a text are not counted. A word is what stands between white space without the "
        "punctuation around it; in Chinese, Japanese, Thai, Lao, Khmer and Burmese, a word of ICU's dictionaries."
    )
    return Section("fragmentation", "Fragmentation", [*blocks, Paragraph(note, "quiet")], folded=True)


COVERAGE: dict[str, Callable[[Coverage], str]] = {
    "words split": lambda coverage: share(coverage.words_split),
    "queries with a split word": lambda coverage: share(coverage.queries_split),
    "tokens a word": lambda coverage: amount(coverage.tokens_per_word),
    "query tokens active in relevant documents": lambda coverage: share(coverage.own_tokens_met),
    "query tokens active in any document": lambda coverage: share(coverage.own_tokens_met_elsewhere),
    "score by the query's own tokens": lambda coverage: share(coverage.score_by_own_tokens),
}

COVERAGE_NOTES = {
    "query tokens active in any document": "The nearer to the row above, the less they tell documents apart.",
    "score by the query's own tokens": "Of relevant documents; the rest is expansion.",
}


def coverage_section(report: ReportData) -> Section | None:
    """How queries and relevant documents meet on the vocabulary, before and after."""
    if not report.coverage:
        return None
    table = table_of("The first queries of the first set", report.coverage, COVERAGE, notes=COVERAGE_NOTES)
    return Section("coverage", "How queries and documents meet", [table], folded=True)


def neighbours_section(report: ReportData) -> Section | None:
    """A few new tokens with the source tokens their rows were mixed from."""
    if not report.neighbours:
        return None
    rows = []
    for entry in report.neighbours:
        sources = (Token(token, f"{weight:.2f}", min(1.0, max(0.0, weight))) for token, weight in entry.sources)
        label = ROW_ORIGINS.get(entry.method, (entry.method, ""))[0]
        rows.append((Token(entry.token), label, tuple(sources) or "–"))
    title = "New tokens, and the source tokens their rows were mixed from"
    table = Table(title, ("new token", "by", "source tokens and weights"), rows, frozenset({1, 2}))
    return Section("neighbours", "What the new tokens were made of", [table], folded=True)

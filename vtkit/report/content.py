"""What a report says, before it is HTML or Markdown: sections made of a few kinds of blocks.

Both pages are rendered from these blocks, so that neither can say what the other does not. Nothing is
escaped here; a renderer escapes every string, whichever block it stands in. A part of the report without
data gives no section.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from vtkit.evaluation.measures.masked_predictions import HeldOutPredictions
from vtkit.inspect.composition import LANGUAGES
from vtkit.inspect.profiles import TextMetrics, VocabularyAnalysis, VocabularyProfile
from vtkit.report.data import Number, ReportData, SetResults, WeightedToken
from vtkit.report.verdict import row_label
from vtkit.report.wording import amount, count_and_share, duration, is_number, p_value, score, share, shorten, whole
from vtkit.settings.transfer import ROW_ORIGINS
from vtkit.transfer.result import Probed

OVERLAP_RULES = {
    "exact": "equal tokens",
    "symbol": "equal symbols or digits",
    "special": "special tokens of the same role",
    "fuzzy": "equal but for case or word-start mark",
}

TOKENS_SHOWN = 24
"""Tokens of the example query, and of each result, that are shown; the rest is summed up in one number."""


# Inline pieces: a cell or a paragraph is a sequence of them.


@dataclass(frozen=True)
class Token:
    """A token of a vocabulary, with its weight where it has one; ``strength`` (0 to 1) shades it."""

    text: str
    weight: str = ""
    strength: float = 0.0


@dataclass(frozen=True)
class Foreign:
    """Words of the collection (not of this program): in the report's language, maybe right to left."""

    text: str


@dataclass(frozen=True)
class Strong:
    """Words that stand out."""

    text: str


@dataclass(frozen=True)
class Bar:
    """A number, with a bar of that share (0 to 1) of the cell behind it where there is a page to draw on."""

    text: str
    share: float


Inline = str | Token | Foreign | Strong | Bar
Inlines = tuple[Inline, ...]


# Blocks


@dataclass(frozen=True)
class Paragraph:
    """Running words; ``quiet`` for explanations of what stands above."""

    parts: Inlines
    quiet: bool = False
    own_texts: bool = False
    """Whether it quotes the user's texts or paths, which do not travel with the model."""


@dataclass(frozen=True)
class Table:
    """Rows under a caption; the first column names the row."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Inlines, ...], ...]
    words: frozenset[int] = frozenset()
    """Columns beside the first that hold words, set to the left; all others hold numbers, set to the right."""

    own_texts: bool = False
    """As in :class:`Paragraph`."""


@dataclass(frozen=True)
class Hit:
    """One result of the example search."""

    rank: str
    score: str
    identifier: str
    title: str
    text: str
    tokens: Inlines


@dataclass(frozen=True)
class Folded:
    """Verbatim text behind a line that opens it."""

    summary: str
    text: str
    syntax: str


@dataclass(frozen=True)
class Command:
    """A line for a shell."""

    text: str


Block = Paragraph | Table | Hit | Folded | Command


@dataclass(frozen=True)
class Section:
    """A part of the page; ``key`` is its anchor."""

    key: str
    title: str
    blocks: tuple[Block, ...]


# Sections


def sections(report: ReportData) -> list[Section]:
    """The sections of the page, in reading order; those without data are not there."""
    made = [
        _results(report),
        _example(report),
        _vocabulary(report),
        _fragmentation(report),
        _neighbours(report),
        _training(report),
        _calibration(report),
        _gates(report),
        _sparsity(report),
        _cost(report),
        _reproduction(report),
    ]
    return [section for section in made if section is not None]


def _results(report: ReportData) -> Section | None:
    tables = [table for results in report.results if (table := _results_table(results)) is not None]
    if not tables:
        return None
    notes = ["Bold: the best of the column. Dimensions: mean number of weights above zero."]
    columns = {column for table in tables for column in table.columns}
    if "FLOPS" in columns:
        notes.append("FLOPS: dimensions that a random query and a random document are expected to share.")
    if "p" in columns:
        notes.append(
            "p: two-sided paired randomisation test of the first measure against the better BM25, corrected for the "
            "rows of a table (Holm)."
        )
    notes += _query_encoders(report)
    if any(row.peer for results in report.results for row in results.rows):
        notes.append("Dense: an embedder that could be used instead, searched exactly, as its own settings have it.")
    notes += _analysers(report)
    notes += [
        f"{results.set}, {row_label(row)}: {row.agreement.words()}."
        for results in report.results
        for row in results.rows
        if row.agreement is not None
    ]
    notes += [
        f"The encoder reads the first {amount(results.document_length)} tokens of a document (index.document_length), "
        f"which are not all of {share(results.share_cut)} of the documents of {results.set}; BM25 reads all."
        for results in report.results
        if is_number(results.share_cut) and results.share_cut >= 0.01
    ]
    weights = [table for results in report.results if (table := _weights_table(results)) is not None]
    return Section("results", "Results", (*tables, Paragraph((" ".join(notes),), quiet=True), *weights))


def _query_encoders(report: ReportData) -> list[str]:
    """What encodes queries, of the models whose encoder of documents does not."""
    rows = {row_label(row): row.query_encoder for results in report.results for row in results.rows}
    return [f"Queries of {label} are encoded by {words}." for label, words in rows.items() if words is not None]


def _weights_table(results: SetResults) -> Table | None:
    """What the weight of the sum with BM25 was chosen from."""
    for row in results.rows:
        balance = row.balance
        if balance is not None and balance.curve and not row.peer:
            cells: list[tuple[Inline, ...]] = [
                (Strong(score(value)) if weight == balance.weight else score(value),) for weight, value in balance.curve
            ]
            caption = (
                f"{results.label}: {results.measures[0]} of the sum with BM25 on {amount(balance.queries)} other "
                "judged queries, by the weight of the encoder"
            )
            weights = [f"{weight:.1f}" for weight, _ in balance.curve]
            return Table(caption, ("weight", *weights), (((results.measures[0],), *cells),))
    return None


def _analysers(report: ReportData) -> list[str]:
    """What each row of BM25 searches with, said once."""
    said = {}
    for results in report.results:
        for row in results.rows:
            if row.analyser is not None:
                said[row.model] = f"{row.model}: {row.analyser}, k1 {row.k1}, b {row.b}."
            if row.balance is not None:
                weighs = f"the encoder weighs {row.balance.weight:g} ({row.balance.words})"
                if row.index:
                    said[f"{row.label} {results.set}"] = f"{row.label} on {results.set}: {weighs}."
                    continue
                whose = f" of {row.label.removesuffix(' + BM25')}" if row.peer else ""
                said[f"sum {results.set}{whose}"] = (
                    f"The sum with BM25{whose} on {results.set}: both scores divided by their deviation, "
                    f"{weighs}, BM25 the rest."
                )
    return list(said.values())


def _results_table(results: SetResults) -> Table | None:
    rows, measures = results.rows, results.measures
    if not rows or not measures:
        return None
    best: dict[str, float] = {}
    for row in rows:
        for name, value in row.measures.items():
            if is_number(value):
                best[name] = max(value, best.get(name, value))
    columns: list[tuple[str, list[Number], Callable[[Number], str]]] = [
        ("query dims", [row.query_dimensions for row in rows], amount),
        ("doc dims", [row.document_dimensions for row in rows], amount),
        ("FLOPS", [row.flops for row in rows], amount),
        ("p", [row.p_value_vs_bm25 for row in rows], p_value),
    ]
    columns = [column for column in columns if any(map(is_number, column[1]))]
    cells = []
    for position, row in enumerate(rows):
        values = [row.measures.get(name) for name in measures]
        shown: list[Inline] = [
            Strong(score(value)) if is_number(value) and value == best.get(name) else score(value)
            for name, value in zip(measures, values, strict=True)
        ]
        shown += [form(numbers[position]) for _, numbers, form in columns]
        cells.append(((row_label(row),), *((piece,) for piece in shown)))
    counts = {"queries": results.queries, "documents": results.documents}
    said = ", ".join(f"{amount(count)} {name}" for name, count in counts.items() if count is not None)
    caption = f"{results.label} ({said})" if said else results.label
    return Table(caption, ("model", *measures, *(title for title, _, _ in columns)), tuple(cells))


def _example(report: ReportData) -> Section | None:
    example = report.example
    if example is None or not example.query:
        return None
    blocks: list[Block] = [Paragraph(("Query: ", Foreign(example.query)))]
    if example.tokens:
        blocks.append(Paragraph(("It is searched as ", *_weighted(example.tokens, None))))
    for result in example.results:
        blocks.append(
            Hit(
                rank=amount(result.rank),
                score=amount(result.score),
                identifier=result.id,
                title=result.title,
                text=shorten(result.text),
                tokens=_weighted(result.tokens, result.score),
            )
        )
    if example.results:
        words = "Under each result: the tokens that made its score, and what each added to it."
        blocks.append(Paragraph((words,), quiet=True))
    else:
        blocks.append(Paragraph(("Nothing was found: no document shares a token with it.",)))
    return Section("example", "An example search", tuple(blocks))


def _weighted(pairs: Iterable[WeightedToken], total: Number) -> Inlines:
    """Tokens with their weights, heaviest first; what is left of ``total`` (default: their sum) beyond them, last."""
    weighted = sorted(((token, weight) for token, weight in pairs if is_number(weight)), key=lambda pair: -pair[1])
    shown, others = weighted[:TOKENS_SHOWN], weighted[TOKENS_SHOWN:]
    heaviest = max((abs(weight) for _, weight in shown), default=0.0)
    parts: list[Inline] = [
        Token(token, f"{weight:.2f}", abs(weight) / heaviest if heaviest else 0.0) for token, weight in shown
    ]
    left = total - sum(weight for _, weight in shown) if is_number(total) else sum(weight for _, weight in others)
    if shown and left >= 0.005:
        parts.append(f"and {left:.2f} from {f'{len(others)} ' if others else ''}others")
    return tuple(parts)


def _vocabulary(report: ReportData) -> Section | None:
    overlap, analysis = report.vocabulary, report.vocabularies
    blocks: list[Block] = []
    if overlap is not None:
        sizes = (
            f"The new vocabulary has {amount(overlap.target_size)} tokens, that of the source model "
            f"{amount(overlap.source_size)}. {share(overlap.overlap_share)} of the new tokens are in both."
        )
        blocks.append(Paragraph((sizes,)))
        if overlap.probed:
            blocks.append(Paragraph((_probed(overlap.probed),)))
        total = sum(overlap.methods.values())
        rows = []
        for name, count in overlap.methods.items():
            label, meaning = ROW_ORIGINS.get(name, (name, ""))
            if name == "overlap":
                meaning += _overlap_rules(overlap.overlap)
            rows.append(((label,), (amount(count),), (Bar(share(count / total), count / total),), (meaning,)))
        if total > 0:
            columns = ("rows from", "tokens", "share", "what they are")
            title = "Where the embeddings of the new vocabulary come from"
            blocks.append(Table(title, columns, tuple(rows), frozenset({3})))
    if analysis is not None:
        blocks += _languages(analysis)
    return Section("vocabulary", "Vocabulary", tuple(blocks)) if blocks else None


def _probed(probed: Sequence[Probed]) -> str:
    rule, *others = probed
    taken = next(one.name for one in probed if one.taken)
    compared = ", ".join(f"{one.name} {score(one.reciprocal_rank)} (p {p_value(one.p)})" for one in others)
    return (
        "The method auto compared its rule with what comes close to it, by how well spans of target texts find the "
        "texts they were cut out of (mean reciprocal rank): "
        f"rule {score(rule.reciprocal_rank)}, {compared}. Taken: {taken}."
    )


def _overlap_rules(overlap: Mapping[str, int]) -> str:
    counts = [f"{amount(n)} {OVERLAP_RULES.get(rule, rule)}" for rule, n in overlap.items() if n > 0]
    return f" ({', '.join(counts)})" if counts else ""


def profiles(analysis: VocabularyAnalysis) -> dict[str, VocabularyProfile]:
    """What each vocabulary is called on the page -> its profile, the source's first."""
    source = {} if analysis.source is None else {"source vocabulary": analysis.source}
    return source | {"new vocabulary" if source else "vocabulary": analysis.target}


def token_kinds(analysis: VocabularyAnalysis) -> dict[str, tuple[int, ...]]:
    """Language, or what else a token is -> how many tokens of each vocabulary (in the order of :func:`profiles`) are.

    Languages by their largest share first; then the scripts of no language asked for, the undecided, and tokens
    without letters.
    """
    found = list(profiles(analysis).values())
    codes = {code for one in found for code in one.languages}
    largest = {code: max(one.languages.get(code, 0) / max(one.size, 1) for one in found) for code in codes}
    ordered = sorted(codes, key=lambda code: (-largest[code], code))
    kinds = {LANGUAGES.get(code, code): tuple(one.languages.get(code, 0) for one in found) for code in ordered}
    kinds["other scripts"] = tuple(sum(one.other_scripts.values()) for one in found)
    kinds["undecided"] = tuple(one.undecided for one in found)
    kinds["no letters"] = tuple(one.no_letters for one in found)
    return {kind: counts for kind, counts in kinds.items() if any(counts)}


def _languages(analysis: VocabularyAnalysis) -> list[Block]:
    found = profiles(analysis)
    rows: list[tuple[Inlines, ...]] = [
        ((kind,), *((count_and_share(n, one.size),) for n, one in zip(counts, found.values(), strict=True)))
        for kind, counts in token_kinds(analysis).items()
    ]
    rows.append(((Strong("all tokens"),), *((Strong(amount(one.size)),) for one in found.values())))
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
    other = [_other_scripts(name, one) for name, one in found.items() if one.other_scripts]
    blocks: list[Block] = [Table("Tokens by language", ("language", *found), tuple(rows))]
    return [*blocks, Paragraph((" ".join([note, *other]),), quiet=True)]


def _other_scripts(name: str, one: VocabularyProfile) -> str:
    most = ", ".join(f"{script} {amount(count)}" for script, count in list(one.other_scripts.items())[:SCRIPTS_SHOWN])
    return f"Other scripts of the {name}: {most}{', …' if len(one.other_scripts) > SCRIPTS_SHOWN else ''}."


SCRIPTS_SHOWN = 5
"""Scripts of no language asked for that are named."""

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


def _fragmentation(report: ReportData) -> Section | None:
    analysis = report.vocabularies
    if analysis is None:
        return None
    found = profiles(analysis)
    blocks: list[Block] = []
    sides = {
        "document": [one.documents for one in found.values()],
        "query": [one.queries for one in found.values()],
    }
    plural = {"document": "documents", "query": "queries"}
    for side, metrics in sides.items():
        known = [one for one in metrics if one is not None]
        if not known:
            continue
        sample = analysis.documents if side == "document" else analysis.queries
        rows = tuple(
            (
                (label.replace("texts", plural[side]).replace("text", side),),
                *((form(value(one)),) for one in known),
            )
            for label, value, form in FRAGMENTATION
            if any(is_number(value(one)) for one in known)
        )
        measured = f"{plural[side]}: {amount(sample.texts)}"
        if sample.texts < sample.of:
            measured += f" of {amount(sample.of)}, sampled"
        if sample.shortened:
            measured += f", {amount(sample.shortened)} of them cut to their beginning"
        caption = f"How the {plural[side]} are cut ({measured}; {amount(known[0].words)} words)"
        blocks.append(Table(caption, ("", *found), rows))
    for name, one in found.items():
        if one.worst_words:
            words = tuple(
                ((Foreign(word.word),), (amount(word.occurrences),), tuple(Token(piece) for piece in word.pieces))
                for word in one.worst_words
            )
            title = f"Words that cost the {name} most extra tokens"
            blocks.append(Table(title, ("word", "occurrences", "cut into"), words, frozenset({2}), own_texts=True))
    if not blocks:
        return None
    note = (
        "Special tokens around a text are not counted. A word is what stands between white space without the "
        "punctuation around it; in Chinese, Japanese, Thai, Lao, Khmer and Burmese, a word of ICU's dictionaries."
    )
    return Section("fragmentation", "Fragmentation", (*blocks, Paragraph((note,), quiet=True)))


def _neighbours(report: ReportData) -> Section | None:
    if not report.neighbours:
        return None
    rows = []
    for entry in report.neighbours:
        sources: list[Inline] = [
            Token(token, f"{weight:.2f}", min(1.0, max(0.0, weight))) for token, weight in entry.sources
        ]
        label = ROW_ORIGINS.get(entry.method, (entry.method, ""))[0]
        rows.append(((Token(entry.token),), (label,), tuple(sources) or ("–",)))
    table = Table(
        "New tokens, and the source tokens their rows were mixed from",
        ("new token", "by", "source tokens and weights"),
        tuple(rows),
        frozenset({1, 2}),
    )
    return Section("neighbours", "What the new tokens were made of", (table,))


CURVES = {
    ("adapt", "loss"): ("adaptation", "loss", score),
    ("expand", "loss"): ("document expansion", "loss", score),
    ("finetune", "loss"): ("fine-tuning", "loss", score),
    ("finetune", "contrastive"): ("fine-tuning", "contrastive part of the loss", score),
    ("finetune", "query_dimensions"): ("fine-tuning", "active dimensions a query", amount),
    ("finetune", "document_dimensions"): ("fine-tuning", "active dimensions a document", amount),
    ("finetune", "query_flops"): ("fine-tuning", "FLOPS penalty of queries", amount),
    ("finetune", "document_flops"): ("fine-tuning", "FLOPS penalty of documents", amount),
    ("finetune", "query_lambda"): ("fine-tuning", "λ of queries", amount),
    ("finetune", "document_lambda"): ("fine-tuning", "λ of documents", amount),
    ("adapt", "query_lambda"): ("adaptation", "λ of queries", amount),
    ("adapt", "document_lambda"): ("adaptation", "λ of documents", amount),
    ("finetune", "margin_mse"): ("fine-tuning", "MarginMSE", score),
    ("finetune", "kl"): ("fine-tuning", "divergence from the teacher, own documents", score),
    ("finetune", "listwise"): ("fine-tuning", "divergence from the teacher, all documents", score),
}
"""Stage, quantity and form of the curves that have other words than their names."""

_TRAININGS = {"adapt": "adaptation", "expand": "document expansion", "finetune": "fine-tuning"}


def curve(report: ReportData, stage: str, name: str) -> tuple[list[float], list[float]]:
    """Steps and values of one training curve, without points that are missing or not finite."""
    recorded = report.curves.get(stage, {})
    steps, values = recorded.get("steps", ()), recorded.get(name, ())
    points = [(s, v) for s, v in zip(steps, values, strict=False) if is_number(s) and is_number(v)]
    return [float(s) for s, _ in points], [float(v) for _, v in points]


UNICOIL = "The encoder is uniCOIL's: each token of a text has one weight, in its own dimension, and no other has any."


def expanded(words: float) -> str:
    """What the encoder reads, where that is not the documents as they are."""
    return (
        f"It was trained on documents that a model had expanded (TILDE), by {words:.1f} words on average, and those "
        "of the index are expanded too."
    )


def _training(report: ReportData) -> Section | None:
    rows = []
    others = {
        (stage, name): (_TRAININGS.get(stage, stage), name.replace("_", " "), score)
        for stage, curves in report.curves.items()
        for name in curves
        if name != "steps" and (stage, name) not in CURVES
    }
    for (stage, name), (label, quantity, form) in (CURVES | others).items():
        steps, values = curve(report, stage, name)
        if values:
            numbers = (whole(steps[-1]), form(values[0]), form(values[-1]))
            rows.append(((label,), (quantity,), *((number,) for number in numbers)))
    blocks: list[Block] = []
    if rows:
        columns = ("stage", "quantity", "steps", "first", "last")
        blocks.append(Table("First and last values logged", columns, tuple(rows), frozenset({1})))
    if report.kind == "unicoil":
        blocks.append(Paragraph((UNICOIL,)))
    if report.words_added is not None:
        blocks.append(Paragraph((expanded(report.words_added),)))
    if report.query_encoder is not None:
        blocks.append(Paragraph((f"Queries are encoded by {report.query_encoder}.",)))
    if report.activation is not None:
        blocks.append(Paragraph((f"Fine-tuning made weights of logits x as {report.activation}.",)))
    if report.trainings > 1:
        seeds = "" if report.seed is None else f", with the seeds {report.seed} to {report.seed + report.trainings - 1}"
        blocks.append(Paragraph((f"The weights are the mean of {report.trainings} fine-tunings{seeds}.",)))
    for stage, trainings in report.validated.items():
        for number, found in enumerate(trainings, 1):
            name = _TRAININGS.get(stage, stage) + (f", training {number}" if len(trainings) > 1 else "")
            points = tuple(
                ((whole(step),), (score(value),)) for step, value in zip(found.steps, found.values, strict=True)
            )
            blocks.append(Paragraph((f"Validation of {name}: {found.words()}",)))
            blocks.append(Table(f"Validations of {name}", ("step", found.metric), points))
    if is_number(report.mean_value):
        metric = report.validated["finetune"][0].metric
        blocks.append(Paragraph((f"The mean of the weights has {metric} {score(report.mean_value)} there.",)))
    if report.held_out is not None:
        blocks.append(_held_out(report.held_out))
    return Section("training", "Training", tuple(blocks)) if blocks else None


def _held_out(found: HeldOutPredictions) -> Table:
    """Prediction of masked tokens, by whether their rows came from the source."""
    groups = (
        ("all", found.before.all, found.after.all),
        ("shared with the source", found.before.overlapping, found.after.overlapping),
        ("new", found.before.new, found.after.new),
    )
    rows = tuple(
        (
            (label,), (whole(before.tokens),), (share(before.accuracy),), (share(after.accuracy),),
            (f"{before.bits_per_byte:.2f}",), (f"{after.bits_per_byte:.2f}",),
        )
        for label, before, after in groups
        if before is not None and after is not None
    )  # fmt: skip
    columns = ("tokens", "masked", "accuracy before", "after", "bits per byte before", "after")
    return Table(f"Masked tokens of {whole(found.texts)} texts held out of adaptation", columns, rows)


COUNTED = {"token": "(position, token) logits", "pooled": "dimensions after max-pooling"}
"""What the two definitions of activation count."""

FOLDED = {"max": "with the largest of their weights", "sum": "with the sum of their weights"}
"""What folding makes of the weights of case variants."""

TOWARDS = {
    "document-frequency": "towards activation rates that follow their document frequencies",
    "held": "up, so that texts activate the tokens that they hold",
}
"""What single tokens were moved for."""


def _calibration(report: ReportData) -> Section | None:
    done = report.calibration
    if done is None:
        return None
    counted = COUNTED[done.definition]
    said = [f"All logits were divided by {score(done.head_scale)}."] if is_number(done.head_scale) else []
    if done.tokens is not None:
        said.append(
            f"The decoder bias of {whole(done.tokens.tokens)} tokens was moved by {score(done.tokens.mean)} on "
            f"average, {TOWARDS[done.by]}."
        )
    if done.target is not None or done.shift or not is_number(done.shift):
        shift = done.shift
        moved = f"{'raised' if shift < 0 else 'lowered'} by {score(abs(shift))}" if is_number(shift) else "shifted"
        aim = "" if done.target is None else f", so that {share(done.target)} of the {counted} are above zero"
        said.append(f"The decoder bias of every token was {moved}{aim}.")
    if done.fold is not None:
        said.append(f"Tokens equal up to case and word-start mark share one dimension, {FOLDED[done.fold]}.")
    moments = {"before": done.before, "after": done.after, "after, on texts held out": done.held_out}
    rows = tuple(((label,), (share(shares.token),), (share(shares.pooled),)) for label, shares in moments.items())
    blocks: list[Block] = [Paragraph((" ".join(said),))] if said else []
    blocks.append(Table("Share above zero", ("", *(f"of {counted}" for counted in COUNTED.values())), rows))
    before, after = done.probe.get("before"), done.probe.get("after")
    if before is not None and after is not None:
        figures: tuple[tuple[str, Callable[[Number], str], Number, Number], ...] = (
            ("active dimensions of a text's beginning", whole, before.query_dimensions, after.query_dimensions),
            ("active dimensions of a text", whole, before.document_dimensions, after.document_dimensions),
            ("score spread, relative to the mean score", score, before.spread, after.spread),
            ("tied among the best ten scores", share, before.tied, after.tied),
        )
        cells = tuple(((label,), (form(first),), (form(second),)) for label, form, first, second in figures)
        blocks.append(Table("Probe texts held out", ("", "before", "after"), cells))
    return Section("calibration", "Calibration", tuple(blocks))


def _gates(report: ReportData) -> Section | None:
    if not report.gates:
        return None
    rows = tuple(
        ((gate.gate,), (gate.stage,), (gate.finding,), (" ".join([gate.seen, gate.advice]).strip(),))
        for gate in report.gates
    )
    table = Table("Figures that tell whether a stage can have worked", ("gate", "after", "finding", "seen"), rows,
                  frozenset({1, 2, 3}))  # fmt: skip
    return Section("gates", "Gates", (table,))


def _sparsity(report: ReportData) -> Section | None:
    sparsity = report.sparsity
    if sparsity is None:
        return None
    said = f"{share(sparsity.dead_dimensions)} of the vocabulary's dimensions are dead: no document activates them."
    blocks: list[Block] = [Paragraph((said,))]
    frequencies = sparsity.document_frequencies
    if frequencies is not None:
        said = (
            f"Of the others, the most used is active in {share(frequencies.largest)} of the documents, "
            f"the middle one in {share(frequencies.median)}."
        )
        blocks.append(Paragraph((said,)))
    counts, edges = histogram(report)
    if counts:
        half, seen, bin = sum(counts) / 2, 0.0, 0
        while seen + counts[bin] < half:
            seen += counts[bin]
            bin += 1
        said = (
            f"Of {amount(sum(counts))} documents the middle one has {whole(edges[bin])} to {whole(edges[bin + 1])} "
            f"active dimensions; all lie between {whole(edges[0])} and {whole(edges[-1])}."
        )
        blocks.append(Paragraph((said,)))
    return Section("sparsity", "Sparsity", tuple(blocks))


def histogram(report: ReportData) -> tuple[list[int], list[float]]:
    """Counts and edges (one more) of documents by active dimensions; both empty where there are none."""
    recorded = report.sparsity.documents_histogram if report.sparsity is not None else None
    if recorded is None:
        return [], []
    counts, edges = list(recorded.counts), list(recorded.edges)
    if len(edges) != len(counts) + 1 or not all(map(is_number, edges)) or sum(counts) <= 0:
        return [], []
    return counts, edges


def _cost(report: ReportData) -> Section | None:
    seconds = {stage: spent for stage, spent in report.seconds.items() if is_number(spent)}
    total = sum(seconds.values())
    if total <= 0:
        return None
    rows: list[tuple[Inlines, ...]] = [
        ((stage,), (duration(spent),), (Bar(share(spent / total), spent / total),)) for stage, spent in seconds.items()
    ]
    rows.append(((Strong("total"),), (Strong(duration(total)),), ("",)))
    return Section("cost", "Cost", (Table("Time of each stage", ("stage", "time", "share"), tuple(rows)),))


def _reproduction(report: ReportData) -> Section | None:
    blocks: list[Block] = []
    if report.command:
        blocks.append(Command(shlex.join(report.command)))
        said = ["In the folder where it was run, with the versions below installed. What is done is not repeated."]
        files = [need.name for need in report.needs if need.local]
        hub = [need.name for need in report.needs if not need.local]
        if files:
            said.append(f"These files and folders must be there: {', '.join(dict.fromkeys(files))}.")
        if hub:
            names = ", ".join(dict.fromkeys(hub))
            said.append(f"From the Hugging Face hub (with --download where they are not in its local cache): {names}.")
        blocks.append(Paragraph((" ".join(said),), own_texts=True))
    sentences = [f"Seed {report.seed}."] if report.seed is not None else []
    if report.versions:
        sentences.append(f"{', '.join(f'{name} {version}' for name, version in report.versions.items())}.")
    if sentences:
        blocks.append(Paragraph((" ".join(sentences),)))
    if report.recipe_toml:
        blocks.append(Folded("The resolved recipe", report.recipe_toml, "toml"))
    return Section("reproduction", "To run it again", tuple(blocks)) if blocks else None

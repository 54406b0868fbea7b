"""What a report says, before it is HTML or Markdown: sections made of a few kinds of blocks.

Both pages are rendered from these blocks, so that neither can say what the other does not. Nothing is
escaped here; a renderer escapes every string, whichever block it stands in. A part of the report without
data gives no section.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vtkit.report.verdict import Report, measures_of, stage_label
from vtkit.report.wording import amount, duration, is_number, p_value, score, share, shorten, whole

ROW_ORIGINS = {
    "overlap": ("overlap", "the row of the same token in the source vocabulary"),
    "parallel": ("parallel text", "source rows mixed by translation probabilities"),
    "cooccurrence": ("co-occurrence", "source rows mixed by the parallel sentences in which both tokens occur"),
    "pieces": ("pieces", "mean of the shorter target tokens with evidence that the token is made of"),
    "subtoken": ("subtokens", "mean of the pieces the source tokenizer cuts the token into"),
    "sembridge": ("embedder", "source rows mixed by similarity in an embedder's space"),
    "semantic": ("semantic", "rows of shared tokens mixed by similarity in the target model's embeddings"),
    "focus": ("word vectors", "rows of shared tokens mixed by similarity of static word vectors"),
    "ofa": ("word vectors", "source rows mixed by similarity of multilingual word vectors"),
    "wechsel": ("word vectors", "source rows mixed by similarity of word vectors aligned with a dictionary"),
    "reassigned": (
        "reassigned",
        "the row of a source word that stands for nothing else: the meaning is not the token's",
    ),
    "mean": ("mean", "mean of all source rows: nothing better was known"),
    "random": ("random", "random numbers"),
    "univariate": ("random", "random numbers with the moments of the source's entries"),
    "multivariate": ("random", "random numbers with the moments of each of the source's dimensions"),
    "masked": ("masked", "never active: tokens that stand for no text, or that nothing is known about"),
}
"""For each method of transfer: its name on the page, and what a row made by it is."""

OVERLAP_RULES = {
    "exact": "equal tokens",
    "symbol": "equal symbols or digits",
    "special": "special tokens of the same role",
    "fuzzy": "equal but for case or word-start mark",
    "raw": "equal strings",
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


@dataclass(frozen=True)
class Table:
    """Rows under a caption; the first column names the row."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Inlines, ...], ...]
    words: frozenset[int] = frozenset()
    """Columns beside the first that hold words, set to the left; all others hold numbers, set to the right."""


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


Block = Paragraph | Table | Hit | Folded


@dataclass(frozen=True)
class Section:
    """A part of the page; ``key`` is its anchor."""

    key: str
    title: str
    blocks: tuple[Block, ...]


# Sections


def sections(report: Report) -> list[Section]:
    """The sections of the page, in reading order; those without data are not there."""
    made = [
        _results(report),
        _example(report),
        _vocabulary(report),
        _neighbours(report),
        _training(report),
        _calibration(report),
        _gates(report),
        _sparsity(report),
        _cost(report),
        _reproduction(report),
    ]
    return [section for section in made if section is not None]


def _results(report: Report) -> Section | None:
    tables = [table for results in report.get("results") or () if (table := _results_table(results)) is not None]
    if not tables:
        return None
    notes = ["Bold: the best of the column. Dimensions: mean number of weights above zero."]
    columns = {column for table in tables for column in table.columns}
    if "FLOPS" in columns:
        notes.append("FLOPS: dimensions that a random query and a random document are expected to share.")
    if "p" in columns:
        notes.append("p: two-sided paired randomisation test of the first measure against BM25.")
    return Section("results", "Results", (*tables, Paragraph((" ".join(notes),), quiet=True)))


def _results_table(results: Mapping[str, Any]) -> Table | None:
    rows = results.get("rows") or ()
    measures = measures_of(results)
    if not rows or not measures:
        return None
    best: dict[str, float] = {}
    for row in rows:
        for name, value in (row.get("measures") or {}).items():
            if is_number(value):
                best[name] = max(value, best.get(name, value))
    extra = [
        ("query dims", "query_dimensions", amount),
        ("doc dims", "document_dimensions", amount),
        ("FLOPS", "flops", amount),
        ("p", "p_value_vs_bm25", p_value),
    ]
    extra = [column for column in extra if any(is_number(row.get(column[1])) for row in rows)]
    cells = []
    for row in rows:
        values = [(row.get("measures") or {}).get(name) for name in measures]
        shown: list[Inline] = [
            Strong(score(value)) if is_number(value) and value == best.get(name) else score(value)
            for name, value in zip(measures, values, strict=True)
        ]
        shown += [form(row.get(key)) for _, key, form in extra]
        cells.append(((stage_label(row["model"]),), *((piece,) for piece in shown)))
    counts = [f"{amount(results[key])} {key}" for key in ("queries", "documents") if is_number(results.get(key))]
    caption = f"{results['set']} ({', '.join(counts)})" if counts else results["set"]
    return Table(caption, ("model", *measures, *(title for title, _, _ in extra)), tuple(cells))


def _example(report: Report) -> Section | None:
    example = report.get("example")
    if not example or not example.get("query"):
        return None
    blocks: list[Block] = [Paragraph(("Query: ", Foreign(example["query"])))]
    if example.get("tokens"):
        blocks.append(Paragraph(("It is searched as ", *_weighted(example["tokens"], None))))
    for result in example.get("results") or ():
        blocks.append(
            Hit(
                rank=amount(result.get("rank")),
                score=amount(result.get("score")),
                identifier=str(result.get("id", "")),
                title=result.get("title") or "",
                text=shorten(result.get("text") or ""),
                tokens=_weighted(result.get("tokens") or (), result.get("score")),
            )
        )
    if example.get("results"):
        words = "Under each result: the tokens that made its score, and what each added to it."
        blocks.append(Paragraph((words,), quiet=True))
    else:
        blocks.append(Paragraph(("Nothing was found: no document shares a token with it.",)))
    return Section("example", "An example search", tuple(blocks))


def _weighted(pairs: Iterable[Sequence[Any]], total: Any) -> Inlines:
    """Tokens with their weights, heaviest first; what is left of ``total`` (default: their sum) beyond them, last."""
    weighted = sorted(((token, weight) for token, weight in pairs if is_number(weight)), key=lambda pair: -pair[1])
    shown, rest = weighted[:TOKENS_SHOWN], weighted[TOKENS_SHOWN:]
    heaviest = max((abs(weight) for _, weight in shown), default=0.0)
    parts: list[Inline] = [
        Token(token, f"{weight:.2f}", abs(weight) / heaviest if heaviest else 0.0) for token, weight in shown
    ]
    left = total - sum(weight for _, weight in shown) if is_number(total) else sum(weight for _, weight in rest)
    if shown and left >= 0.005:
        parts.append(f"and {left:.2f} from {f'{len(rest)} ' if rest else ''}others")
    return tuple(parts)


def _vocabulary(report: Report) -> Section | None:
    vocabulary = report.get("vocabulary")
    if not vocabulary:
        return None
    source, target = vocabulary.get("source_size"), vocabulary.get("target_size")
    sizes = f"The new vocabulary has {amount(target)} tokens, that of the source model {amount(source)}. "
    known = f"{share(vocabulary.get('overlap_share'))} of the new tokens are in both."
    blocks: list[Block] = [Paragraph((sizes + known,))]
    methods = {name: count for name, count in (vocabulary.get("methods") or {}).items() if is_number(count)}
    total = sum(methods.values())
    if total > 0:
        rows = []
        for name, count in methods.items():
            label, meaning = ROW_ORIGINS.get(name, (name, ""))
            if name == "overlap":
                meaning += _overlap_rules(vocabulary.get("overlap") or {})
            rows.append(((label,), (amount(count),), (Bar(share(count / total), count / total),), (meaning,)))
        columns = ("rows from", "tokens", "share", "what they are")
        blocks.append(
            Table("Where the embeddings of the new vocabulary come from", columns, tuple(rows), frozenset({3}))
        )
    return Section("vocabulary", "Vocabulary", tuple(blocks))


def _overlap_rules(overlap: Mapping[str, Any]) -> str:
    counts = [f"{amount(n)} {OVERLAP_RULES.get(rule, rule)}" for rule, n in overlap.items() if is_number(n) and n > 0]
    return f" ({', '.join(counts)})" if counts else ""


def _neighbours(report: Report) -> Section | None:
    neighbours = report.get("neighbours")
    if not neighbours:
        return None
    rows = []
    for entry in neighbours:
        sources: list[Inline] = [
            Token(token, f"{weight:.2f}", min(1.0, max(0.0, weight))) for token, weight in entry.get("sources") or ()
        ]
        label = ROW_ORIGINS.get(entry.get("method", ""), (entry.get("method", ""), ""))[0]
        rows.append(((Token(entry["token"]),), (label,), tuple(sources) or ("–",)))
    table = Table(
        "New tokens, and the source tokens their rows were mixed from",
        ("new token", "by", "source tokens and weights"),
        tuple(rows),
        frozenset({1, 2}),
    )
    return Section("neighbours", "What the new tokens were made of", (table,))


CURVES = {
    ("adapt", "loss"): ("MLM adaptation", "loss", score),
    ("finetune", "loss"): ("fine-tuning", "loss", score),
    ("finetune", "contrastive"): ("fine-tuning", "contrastive part of the loss", score),
    ("finetune", "query_dimensions"): ("fine-tuning", "active dimensions a query", amount),
    ("finetune", "document_dimensions"): ("fine-tuning", "active dimensions a document", amount),
    ("finetune", "flops_penalty"): ("fine-tuning", "FLOPS penalty", amount),
    ("finetune", "query_flops"): ("fine-tuning", "FLOPS penalty of queries", amount),
    ("finetune", "document_flops"): ("fine-tuning", "FLOPS penalty of documents", amount),
}


def curve(report: Report, stage: str, name: str) -> tuple[list[float], list[float]]:
    """Steps and values of one training curve, without points that are missing or not finite."""
    recorded = ((report.get("curves") or {}).get(stage)) or {}
    steps, values = recorded.get("steps") or (), recorded.get(name) or ()
    points = [(s, v) for s, v in zip(steps, values, strict=False) if is_number(s) and is_number(v)]
    return [float(s) for s, _ in points], [float(v) for _, v in points]


def _training(report: Report) -> Section | None:
    rows = []
    for (stage, name), (label, quantity, form) in CURVES.items():
        steps, values = curve(report, stage, name)
        if values:
            numbers = (whole(steps[-1]), form(values[0]), form(values[-1]))
            rows.append(((label,), (quantity,), *((number,) for number in numbers)))
    if not rows:
        return None
    columns = ("stage", "quantity", "steps", "first", "last")
    return Section(
        "training", "Training", (Table("First and last values logged", columns, tuple(rows), frozenset({1})),)
    )


COUNTED = {"token": "(position, token) logits", "pooled": "dimensions after max-pooling"}
"""What the two definitions of activation count."""

FOLDED = {"max": "with the largest of their weights", "sum": "with the sum of their weights"}
"""What folding makes of the weights of twins."""

PROBED = {
    "query_dimensions": ("active dimensions of a text's beginning", whole),
    "document_dimensions": ("active dimensions of a text", whole),
    "spread": ("score spread, relative to the mean score", score),
    "tied": ("tied among the best ten scores", share),
}
"""Figures of the probe texts: how they are called, and their form."""


def _calibration(report: Report) -> Section | None:
    calibration = report.get("calibration")
    if not calibration:
        return None
    # "activations" where the report does not say which of the two definitions was aimed at
    counted = COUNTED.get(calibration.get("definition", ""), "activations")
    shift, target, scale = (calibration.get(name) for name in ("shift", "target", "head_scale"))
    said = [f"All logits were divided by {score(scale)}."] if is_number(scale) else []
    if target is not None or shift or not is_number(shift):
        moved = f"{'raised' if shift < 0 else 'lowered'} by {score(abs(shift))}" if is_number(shift) else "shifted"
        aim = "" if target is None else f", so that {share(target)} of the {counted} are above zero"
        said.append(f"The decoder bias of every token was {moved}{aim}.")
    if calibration.get("fold") in FOLDED:
        said.append(f"Tokens equal up to case and word-start mark share one dimension, {FOLDED[calibration['fold']]}.")
    moments = {"before": "before", "after": "after", "held_out": "after, on texts held out"}
    rows = tuple(
        ((label,), (share(calibration[key].get("token")),), (share(calibration[key].get("pooled")),))
        for key, label in moments.items()
        if calibration.get(key)
    )
    blocks: list[Block] = [Paragraph((" ".join(said),))] if said else []
    if rows:
        columns = ("", *(f"of {counted}" for counted in COUNTED.values()))
        blocks.append(Table("Share above zero", columns, rows))
    probe = calibration.get("probe") or {}
    if probe.get("before") and probe.get("after"):
        figures = tuple(
            ((label,), *((form(probe[moment].get(name)),) for moment in ("before", "after")))
            for name, (label, form) in PROBED.items()
        )
        blocks.append(Table("Probe texts held out", ("", "before", "after"), figures))
    return Section("calibration", "Calibration", tuple(blocks))


def _gates(report: Report) -> Section | None:
    gates = report.get("gates")
    if not gates:
        return None
    rows = tuple(
        ((gate["gate"],), (gate["stage"],), (gate["finding"],), (" ".join([gate["seen"], gate["advice"]]).strip(),))
        for gate in gates
    )
    table = Table("Figures that tell whether a stage can have worked", ("gate", "after", "finding", "seen"), rows,
                  frozenset({1, 2, 3}))  # fmt: skip
    return Section("gates", "Gates", (table,))


def _sparsity(report: Report) -> Section | None:
    sparsity = report.get("sparsity")
    if not sparsity:
        return None
    blocks: list[Block] = []
    if is_number(sparsity.get("dead_dimensions")):
        said = (
            f"{share(sparsity['dead_dimensions'])} of the vocabulary's dimensions are dead: no document activates them."
        )
        blocks.append(Paragraph((said,)))
    frequencies = sparsity.get("document_frequencies") or {}
    if is_number(frequencies.get("largest")) and is_number(frequencies.get("median")):
        said = (
            f"Of the others, the most used is active in {share(frequencies['largest'])} of the documents, "
            f"the middle one in {share(frequencies['median'])}."
        )
        blocks.append(Paragraph((said,)))
    counts, edges = histogram(report)
    if counts:
        half, seen, place = sum(counts) / 2, 0.0, 0
        while seen + counts[place] < half:
            seen += counts[place]
            place += 1
        said = (
            f"Of {amount(sum(counts))} documents the middle one has {whole(edges[place])} to {whole(edges[place + 1])} "
            f"active dimensions; all lie between {whole(edges[0])} and {whole(edges[-1])}."
        )
        blocks.append(Paragraph((said,)))
    return Section("sparsity", "Sparsity", tuple(blocks)) if blocks else None


def histogram(report: Report) -> tuple[list[int], list[float]]:
    """Counts and edges (one more) of documents by active dimensions; both empty where there are none."""
    recorded = (report.get("sparsity") or {}).get("documents_histogram") or {}
    counts, edges = list(recorded.get("counts") or ()), list(recorded.get("edges") or ())
    if len(edges) != len(counts) + 1 or not all(map(is_number, [*counts, *edges])) or sum(counts) <= 0:
        return [], []
    return [int(count) for count in counts], [float(edge) for edge in edges]


def _cost(report: Report) -> Section | None:
    seconds = {stage: spent for stage, spent in (report.get("seconds") or {}).items() if is_number(spent)}
    total = sum(seconds.values())
    if total <= 0:
        return None
    rows: list[tuple[Inlines, ...]] = [
        ((stage,), (duration(spent),), (Bar(share(spent / total), spent / total),)) for stage, spent in seconds.items()
    ]
    rows.append(((Strong("total"),), (Strong(duration(total)),), ("",)))
    return Section("cost", "Cost", (Table("Time of each stage", ("stage", "time", "share"), tuple(rows)),))


def _reproduction(report: Report) -> Section | None:
    blocks: list[Block] = []
    facts = [f"Seed {report['seed']}."] if is_number(report.get("seed")) else []
    versions = report.get("versions") or {}
    if versions:
        facts.append(f"{', '.join(f'{name} {version}' for name, version in versions.items())}.")
    if facts:
        blocks.append(Paragraph((" ".join(facts),)))
    if report.get("recipe_toml"):
        blocks.append(Folded("The resolved recipe", report["recipe_toml"], "toml"))
    return Section("reproduction", "To run it again", tuple(blocks)) if blocks else None

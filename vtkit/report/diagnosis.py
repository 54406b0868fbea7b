"""What to do next, by rules on the figures of a run (docs/evaluation.md, "What to do next").

Each rule is a function of the report that returns its advice, or nothing. They are asked in the order of what matters
most: a run that should not have been made comes before one that could be a little better.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from vtkit.report.blocks import Code, Inlines, Token
from vtkit.report.data import ReportData, Row
from vtkit.report.verdict import Standing, recommendation, related, standings
from vtkit.report.wording import amount, is_number, score, share, visible
from vtkit.search.measures.significance import CHANCE

NO_EVIDENCE = ("pieces", "reassigned", "mean", "overlap_mean", "random", "univariate", "multivariate", "masked")
"""What made the row of a token that no method had evidence for."""

WITHOUT_EVIDENCE = 0.3  # from this share of the new tokens on, missing evidence is worth a word
CUT = 0.1  # from this share of the documents on, it matters that the encoder does not read their ends
DENSE = 1000  # active dimensions a document from which on vectors are dense; SPLADE models have 100 to 400
SHARED = 0.25  # below this share of a query's dimensions in its relevant documents, the two hardly share a language
UNREAD = 0.05  # from this share of query words with [UNK] on, the vocabulary does not fit the queries
FEW_QUERIES = 50  # fewer judged queries than this hardly tell a difference from chance


@dataclass(frozen=True)
class Advice:
    """The finding of one rule, with advice."""

    rule: str
    text: Inlines


def diagnose(report: ReportData) -> list[Advice]:
    """The advice of every rule that applies, and the warnings of the run; if there are none, what to do with a run
    that worked."""
    found = [Advice(name, text) for name, rule in RULES.items() if (text := rule(report))]
    found += [Advice("warning", (f"Warning: {visible(warning)}",)) for warning in report.warnings]
    if found or not standings(report):
        return found
    harmful = recommendation(report)
    if harmful is None or harmful.harmful:
        return found
    return [
        Advice("search", ("Nothing needs attention. Try queries of your own:", Code('vtkit search RUN "your query"')))
    ]


def _better_source(report: ReportData) -> Inlines:
    pairs = [(standing.value(standing.source), standing.value(standing.final)) for standing in standings(report)]
    values = [(source, final) for source, final in pairs if source is not None and final is not None]
    p = report.source_p_value
    if not values or not is_number(p) or p >= CHANCE:
        return ()
    source, final = (sum(side) / len(values) for side in zip(*values, strict=True))
    if source <= final:
        return ()
    said = f"({score(source)} against {score(final)}, p {related(p)})"
    return (f"The source model is better without the transfer {said}: keep it.",)


def _better_embedder(report: ReportData) -> Inlines:
    advice = recommendation(report)
    if advice is None or advice.better is None:
        return ()
    said = f"{advice.better.label} is better than the index to be used: {advice.better.words}. Search with it"
    if not report.to_try:
        return (f"{said}.",)
    settings = (part for setting in report.to_try for part in (" or ", Code(setting)))
    return (f"{said}, or try", *islice(settings, 1, None), ".")


def _adds_nothing(report: ReportData) -> Inlines:
    compared = [standing for standing in standings(report) if standing.bm25 is not None]
    if not compared or any(_gains(standing, standing.deployed) for standing in compared):
        return ()
    first = compared[0]
    if first.hybrid is not None and first.deployed is not first.hybrid and _gains(first, first.hybrid):
        return ("Alone the encoder does not beat BM25, but their sum does: set", Code('index.lexical = "bm25"'), ".")
    improve = (
        "adapt it on your own documents (", Code("[adapt]"), "), or fine-tune it on your own queries and documents (",
        Code("[finetune]"), ").",
    )  # fmt: skip
    advice = recommendation(report)
    if advice is not None and advice.harmful:
        return ("BM25 is better. Search with BM25 until the encoder is improved:", *improve)
    return ("The difference from BM25 may be chance. Judge more queries; or improve the encoder:", *improve)


def _no_evidence(report: ReportData) -> Inlines:
    methods = {} if report.vocabulary is None else report.vocabulary.methods
    without = sum(count for method, count in methods.items() if method in NO_EVIDENCE)
    if not without or without < WITHOUT_EVIDENCE * sum(methods.values()):
        return ()
    said = f"{share(without / sum(methods.values()))} of the new tokens have no evidence of their meaning: add "
    pairs = "sentence pairs or dictionary entries to", Code("transfer.parallel.files")
    if not report.without_evidence:
        return (said + pairs[0], pairs[1], ".")
    return (said + pairs[0], pairs[1], "that hold words such as", *map(Token, report.without_evidence), ".")


def _cut(report: ReportData) -> Inlines:
    for results in report.results:
        if is_number(results.share_cut) and results.share_cut >= CUT:
            length = amount(results.document_length)
            return (
                f"{share(results.share_cut)} of the documents of {results.set} are cut at {length} tokens: raise",
                Code("index.document_length"),
                "as far as the encoder reads, or split the documents.",
            )
    return ()


def _dense(report: ReportData) -> Inlines:
    dimensions = next((standing.final.document_dimensions for standing in standings(report)), None)
    if not is_number(dimensions) or dimensions < DENSE:
        return ()
    return (
        f"Vectors are dense: a document activates {amount(dimensions)} dimensions. Lower",
        Code("calibrate.target_activation"),
        ", set",
        Code("[finetune.target_active]"),
        ", or keep the largest weights only (",
        Code("index.top_dimensions"),
        ").",
    )


def _few_shared(report: ReportData) -> Inlines:
    shared = report.query_tokens_shared
    if not is_number(shared) or shared >= SHARED:
        return ()
    return (
        f"Queries and documents share few tokens: a relevant document activates {share(shared)} of its query's "
        "dimensions on average. Check that both are in one language and casing; adaptation on crops of the documents (",
        Code('adapt.objective = "crop"'),
        ") brings them together.",
    )


def _unread(report: ReportData) -> Inlines:
    target = None if report.vocabularies is None else report.vocabularies.target
    if target is None or target.queries is None or target.queries.unknown_words < UNREAD:
        return ()
    return (
        f"The new vocabulary cannot read {share(target.queries.unknown_words)} of the words of the queries. Choose one "
        "that covers their characters, or train one on your documents (",
        Code('vocabulary.kind = "trained"'),
        ").",
    )


def _few_queries(report: ReportData) -> Inlines:
    counts = [results.queries for results in report.results if results.queries is not None]
    if not counts or max(counts) >= FEW_QUERIES:
        return ()
    return (f"Only {max(counts)} queries are judged, too few to tell most differences from chance: judge more.",)


RULES: dict[str, Callable[[ReportData], Inlines]] = {  # name of each rule -> the rule
    "better source": _better_source,
    "better embedder": _better_embedder,
    "adds nothing": _adds_nothing,
    "no evidence": _no_evidence,
    "unread words": _unread,
    "few shared tokens": _few_shared,
    "cut documents": _cut,
    "dense vectors": _dense,
    "few queries": _few_queries,
}


def _gains(standing: Standing, row: Row) -> bool:
    """Whether ``row`` is better than BM25 beyond chance."""
    value, bm25, p = standing.value(row), standing.value(standing.bm25), row.p_value_vs_bm25
    return value is not None and bm25 is not None and value > bm25 and is_number(p) and p < CHANCE

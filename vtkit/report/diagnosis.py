"""Advice on what to do next, by rules on the figures of a run (docs/evaluation.md, "What to do next").

The rules are asked in the order of what matters most: a run that should not have been made comes before one that could
be a little better.
"""

from collections.abc import Iterator

from vtkit.evaluation.results import SetResults, SystemResult
from vtkit.report.blocks import Code, Inlines, Token
from vtkit.report.data import ReportData
from vtkit.report.verdict import recommendation, related
from vtkit.report.wording import amount, is_number, score, share, visible
from vtkit.search.measures.significance import CHANCE

NO_EVIDENCE = ("pieces", "reassigned", "mean", "overlap_mean", "random", "univariate", "multivariate", "masked")
"""Origins of rows of tokens that no method had evidence for."""

WITHOUT_EVIDENCE = 0.3  # from this share of the new tokens on, missing evidence is worth a word
CUT = 0.1  # from this share of the documents on, it matters that the encoder does not read their ends
DENSE = 1000  # active dimensions a document from which on vectors are dense; SPLADE models have 100 to 400
SHARED = 0.25  # below this share of a query's dimensions in its relevant documents, the two hardly share a language
UNREAD = 0.05  # from this share of query words with [UNK] on, the vocabulary does not fit the queries
FEW_QUERIES = 50  # fewer judged queries than this hardly tell a difference from chance

IMPROVE = (
    "adapt it on your own documents (`[adapt]`), or fine-tune it on your own queries and documents (`[finetune]`)."
)


def diagnose(report: ReportData) -> list[tuple[str, Inlines]]:
    """The rules that apply, each with its advice, and the warnings of the run; without any, advice for a
    run that worked."""
    advice = [*_rules(report), *(("warning", (f"Warning: {visible(warning)}",)) for warning in report.warnings)]
    deploy = recommendation(report)
    if not advice and deploy is not None and not deploy.harmful:
        advice.append(
            ("search", _said('Nothing needs attention. Try queries of your own: `vtkit search RUN "your query"`'))
        )
    return advice


def _said(text: str) -> Inlines:
    """A sentence in which settings and commands stand between backticks."""
    return tuple(Code(part) if number % 2 else part.strip() for number, part in enumerate(text.split("`")) if part)


def _rules(report: ReportData) -> Iterator[tuple[str, Inlines]]:
    """The rules that apply, by name, each with its advice."""
    deploy, p = recommendation(report), report.source_p_value
    pairs = [(source, of.value(of.final) or 0) for of in report.judged if (source := of.value(of.source)) is not None]
    if pairs and is_number(p) and p < CHANCE:
        source, final = (sum(side) / len(pairs) for side in zip(*pairs, strict=True))
        if source > final:
            values = f"{score(source)} against {score(final)}, p {related(p)}"
            yield "better source", (f"The source model is better without the transfer ({values}): keep it.",)

    if deploy is not None and deploy.better is not None:
        found = f"{deploy.better.label} is better than the index to be used: {deploy.better.words}. Search with it"
        settings = " or ".join(f"`{setting}`" for setting in report.to_try)
        tries = _said(f", or try {settings}.") if settings else (".",)
        yield "better embedder", (found, *tries)

    improve = "name another embedder (`source.model`)." if report.units else IMPROVE
    compared = [of for of in report.judged if of.bm25 is not None]
    if compared and not any(_gains(of, of.planned) for of in compared):
        first = compared[0]
        if first.planned is not first.hybrid and _gains(first, first.hybrid):
            advice = 'Alone the encoder does not beat BM25, but their sum does: set `index.lexical = "bm25"`.'
        elif deploy is not None and deploy.harmful:
            advice = f"BM25 is better. Search with BM25 until the encoder is improved: {improve}"
        else:
            advice = f"The difference from BM25 may be chance. Judge more queries; or improve the encoder: {improve}"
        yield "adds nothing", _said(advice)

    methods = {} if report.vocabulary is None else report.vocabulary.methods
    without = sum(count for method, count in methods.items() if method in NO_EVIDENCE)
    if without and without >= WITHOUT_EVIDENCE * sum(methods.values()):
        missing = f"{share(without / sum(methods.values()))} of the new tokens have no evidence of their meaning: add "
        entries = _said(f"{missing}sentence pairs or dictionary entries to `transfer.parallel.files`")
        words: Inlines = tuple(map(Token, report.without_evidence))
        yield "no evidence", (*entries, *(("that hold words such as", *words) if words else ()), ".")

    target = None if report.vocabularies is None else report.vocabularies.target.queries
    if target is not None and target.unknown_words >= UNREAD:
        advice = (
            f"The new vocabulary cannot read {share(target.unknown_words)} of the words of the queries. Choose one "
            'that covers their characters, or train one on your documents (`vocabulary.kind = "trained"`).'
        )
        yield "unread words", _said(advice)

    shared = report.query_tokens_shared
    if is_number(shared) and shared < SHARED:
        advice = (
            f"Queries and documents share few tokens: a relevant document activates {share(shared)} of its query's "
            "dimensions on average. Check that both are in one language and casing; adaptation on crops of the "
            'documents (`adapt.objective = "crop"`) brings them together.'
        )
        yield "few shared tokens", _said(advice)

    for of in [of for of in report.results if is_number(of.share_cut) and of.share_cut >= CUT][:1]:
        cut = (
            f"{share(of.share_cut)} of the {of.unit} of {of.set} are cut at {amount(of.document_length)} tokens: raise"
        )
        instead = "cut documents into passages (`index.passages`)" if of.passages is None else "shorten these"
        further = _said(f"`index.document_length` as far as the encoder reads, or {instead}.")
        yield "cut documents", (cut, *further)

    dimensions = next((of.final.document_dimensions for of in report.judged if of.final is not None), None)
    if is_number(dimensions) and dimensions >= DENSE and not report.units:  # units are many by design
        dense = f"Vectors are dense: a document activates {amount(dimensions)} dimensions. Lower "
        fewer = "`calibrate.target_activation`, set `[finetune.target_active]`, or keep the largest weights only "
        yield "dense vectors", _said(f"{dense}{fewer}(`index.top_dimensions`).")

    most = max((of.queries for of in report.results if of.queries is not None), default=FEW_QUERIES)
    if most < FEW_QUERIES:
        few = f"Only {most} queries are judged, too few to tell most differences from chance: judge more."
        yield "few queries", (few,)


def _gains(of: SetResults, row: SystemResult | None) -> bool:
    """Report whether ``row`` is better than BM25 beyond chance."""
    value, bm25, p = of.value(row), of.value(of.bm25), None if row is None else row.p_value_vs_bm25
    return value is not None and bm25 is not None and value > bm25 and is_number(p) and p < CHANCE

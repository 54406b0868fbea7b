"""Whether a transfer, or training without judgements, has kept an encoder's retrieval: probe pairs out of the corpus.

A probe pair is a span of a text and the text without it, so that finding one by the other takes more than repeating its
words. No judgement is needed, and none of a collection's queries is read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from sentence_transformers import SparseEncoder

from vtkit.data.retrieval import Document, Query, RetrievalSet
from vtkit.data.sampling import draw
from vtkit.data.trec import Run, to_run
from vtkit.encoder.documents import Dimensions, as_indexed
from vtkit.encoder.sides import encode_side
from vtkit.evaluation.balance import (
    ENCODER_WEIGHT,
    RATIO_WEIGHTS,
    RATIOS,
    TELLING,
    WEIGHTS,
    ProbedWeight,
    deviation,
    weighted_sum,
)
from vtkit.evaluation.gates.result import Seen
from vtkit.evaluation.systems import System
from vtkit.search.bm25 import Bm25
from vtkit.search.measures.significance import CHANCE, paired_randomization
from vtkit.search.passages import Passages, row_contents
from vtkit.search.sharded_encoding import kept_vectors
from vtkit.settings.analysers import Analysis
from vtkit.settings.index import IndexSection
from vtkit.system.errors import DataError
from vtkit.system.runtime import fastest_precision
from vtkit.training.crops import SHORTEST_TEXT, joined, query_span, units
from vtkit.training.validation import ValidationSet

QUERY_WORDS = 16  # longest span; at most half of the text
FEWEST_PAIRS = 20  # with fewer pairs nothing is said: a difference could not be told from chance


@dataclass(frozen=True)
class Probe:
    """Probe pairs: the i-th query is a span that was cut out of the i-th document."""

    queries: list[str]
    documents: list[str]


def probe_of(texts: Sequence[str], pairs: int, seed: int) -> Probe:
    """Up to ``pairs`` probe pairs, each from another text of at least twice four words."""
    queries, documents = [], []
    for number, text in enumerate(dict.fromkeys(texts)):
        words = units(text)
        if len(words) < 2 * SHORTEST_TEXT:
            continue
        draw = np.random.default_rng([seed, 6, number])
        span = query_span(words, SHORTEST_TEXT, QUERY_WORDS, draw)
        queries.append(joined(words[span], text))
        documents.append(joined([*words[: span.start], *words[span.stop :]], text))
        if len(queries) == pairs:
            break
    return Probe(queries, documents)


def probe_validation_set(texts: Sequence[str], pairs: int, seed: int) -> ValidationSet:
    """Up to ``pairs`` probe pairs, as judged queries to validate a training with."""
    probe = probe_of(texts, pairs, seed)
    if len(probe.queries) < FEWEST_PAIRS:
        raise DataError(
            f"validation: only {len(probe.queries)} texts of data are different and long enough to make a "
            f"probe pair of, and {FEWEST_PAIRS} are needed. Give more text, or a share as validation.queries."
        )
    grades = [{number: 1} for number in range(len(probe.queries))]
    return ValidationSet(probe.queries, probe.documents, grades, "RR", "probe pairs")


def reciprocal_ranks(encoder: SparseEncoder, probe: Probe, max_length: int) -> np.ndarray:
    """Reciprocal rank of each query's own document in the probe, (pairs,), documents as an index has them by default.
    Half of the documents with the same score stand before it."""
    precision, index, said = fastest_precision(), IndexSection(), "encoding probe texts"
    mass = Dimensions.of(encoder).mass(index)
    documents = kept_vectors(encoder, probe.documents, max_length, None, precision, said, mass=mass)
    queries = encode_side(
        encoder, probe.queries, "query", max_length, precision=precision, description="encoding probe queries"
    )
    scores = (queries @ as_indexed(encoder, documents, probe.documents, index).T).toarray()
    own = scores.diagonal()[:, None]
    ranks = 1 + (scores > own).sum(axis=1) + ((scores == own).sum(axis=1) - 1) / 2
    return np.asarray(1 / ranks)


KNOWS = 0.5
"""Mean reciprocal rank of spans by an encoder over that by BM25, below which a dense source is taken not to know the
language: multilingual embedders have .6 and more, English ones on Arabic or Hindi less than .3 (docs/transfer.md)."""

COMPARED = {
    "before": (
        'Adaptation has made retrieval worse. Change adapt.objective ("auto" chooses one that trains retrieval), lower '
        "adapt.learning_rate, or remove [adapt]."
    ),
    "by the source": (
        "Without further training, the source finds more than the moved encoder. Train after the transfer ([adapt], "
        "[finetune]) and compare with the source (evaluate.models), or keep the source's vocabulary "
        "(vocabulary.tokenizer) and train that."
    ),
    "by the source's own masked-language-model head": (
        "Keep the source's own head: remove [source.head] and [source.units]."
    ),
    "by BM25": (
        "The embedder may not know the language of these texts. Name one that does as source.model (multilingual-e5, "
        "bge-m3, gte-multilingual); this one is unlikely to improve on BM25."
    ),
}
"""What an encoder is compared with -> what to change where the encoder finds less."""


def retrieval_gate(against: str, first: np.ndarray, second: np.ndarray) -> Seen:
    """Whether an encoder finds its own documents as well as what it is compared with, by :func:`reciprocal_ranks`.

    Adaptation that makes retrieval worse beyond chance is a failure. The others only warn, beyond chance, because
    training can change them. Less than :data:`KNOWS` of BM25 is a warning.

    Args:
        against: a key of :data:`COMPARED`.
        first: ranks of what the encoder is compared with.
        second: ranks of the encoder.
    """
    means = float(first.mean()), float(second.mean())
    p = paired_randomization(dict(enumerate(second)), dict(enumerate(first)))
    seen = (
        f"spans of {len(first)} texts find their own text with a mean reciprocal rank of {means[1]:.3f}, "
        f"{means[0]:.3f} {against} (p = {p:.3f})"
    )
    least = KNOWS * means[0] if against == "by BM25" else means[0]
    if means[1] >= least or (against != "before" and p >= CHANCE):
        return "pass", seen, ""
    return "fail" if against == "before" and p < CHANCE else "warn", seen, COMPARED[against]


def bm25_run(probe: Probe, language: str, analysis: Analysis) -> Run:
    """All documents of a probe by BM25, queries and documents called by :func:`names_of`."""
    names = names_of(probe)
    return to_run(names, names, *Bm25.build(probe.documents, language, analysis).search(probe.queries, len(names)))


def names_of(probe: Probe) -> list[str]:
    """The numbers of probe pairs, as runs name queries and documents."""
    return [str(number) for number in range(len(probe.queries))]


def own_reciprocal_ranks(run: Run, names: Sequence[str]) -> np.ndarray:
    """Reciprocal rank of the document that has its query's name, (queries,): the mean over the ranks that it could have
    among documents of its score, so that ties broken by chance gain nothing; 0 if it is not found."""
    ranks = np.zeros(len(names))
    for number, name in enumerate(names):
        scores = dict(run.get(name, ()))
        if name in scores:
            values, own = np.fromiter(scores.values(), float), scores[name]
            above, tied = int((values > own).sum()), int((values == own).sum())
            ranks[number] = (1 / np.arange(above + 1, above + tied + 1)).mean()
    return ranks


PAIRS = 500  # probe pairs at most: with 300 a difference of .01 was not told from chance (docs/log.md)


def probed_by_spans(
    collection: RetrievalSet,
    system_over: Callable[[RetrievalSet], System],
    seed: int,
    language: str,
    index: IndexSection,
) -> ProbedWeight | None:
    """:func:`probed_weight` of ``system_over`` the documents of a probe, by spans of those of ``collection``; if
    ``index`` cuts these into passages, a random one of each document stands for it, as long as what an index
    compares."""
    drawn = draw(map(str, range(len(collection.documents))), PAIRS, seed)
    documents = [collection.documents[int(number)] for number in drawn]
    passages = Passages.of(documents, index.passages)
    contents = row_contents(documents, passages)
    if passages is not None:
        choose = np.random.default_rng([seed, 7])
        rows = [int(choose.choice(passages.rows_of(number))) for number in range(len(documents))]
        contents = [contents[row] for row in rows]
    probe = probe_of(contents, PAIRS, seed)
    if not probe.queries:
        return None
    without = [Document(str(number), "", text) for number, text in enumerate(probe.documents)]
    spans = [Query(str(number), text) for number, text in enumerate(probe.queries)]
    asked = RetrievalSet(f"spans of {collection.name}", without, spans, {})
    run = system_over(asked).rank(asked, len(probe.documents)).run
    return probed_weight(probe, run, language, index.bm25_analyser)


def probed_weight(probe: Probe, encoder: Run, language: str, analysis: Analysis) -> ProbedWeight | None:
    """Choose the encoder's weight beside BM25. Both search for the documents that spans were taken from, and
    :data:`RATIOS` turns the ratio of their results into a weight.

    The weight at which the sum finds *spans* best is no guide, since spans repeat the words of their documents and so
    favour BM25. How far an encoder lies behind BM25 on them tells one that helps from one that does not. An encoder
    that adds nothing to BM25 on spans at any weight has the smallest of :data:`RATIO_WEIGHTS`. If spans tell no
    documents apart, no encoder has more than :data:`ENCODER_WEIGHT`.

    Args:
        encoder: what it finds for the queries of ``probe`` among its documents, all called by their numbers.
        language, analysis: of BM25.

    Returns:
        None where there are too few pairs to tell.
    """
    count = len(probe.queries)
    if count < FEWEST_PAIRS:
        return None
    names, bm25 = names_of(probe), bm25_run(probe, language, analysis)
    deviations = deviation(encoder), deviation(bm25)
    alone = own_reciprocal_ranks(bm25, names)
    curve = []
    for weight in WEIGHTS:
        both = own_reciprocal_ranks(weighted_sum(encoder, bm25, count, weight, deviations), names)
        p = paired_randomization(dict(enumerate(both)), dict(enumerate(alone)))
        curve.append((weight, float(both.mean()), p))
    ratio = curve[-1][1] / max(curve[0][1], 1e-9) if any(found > curve[0][1] for _, found, _ in curve[1:]) else 0.0
    noise = max(curve[0][1], curve[-1][1]) < float(np.mean(1 / np.arange(1, count + 1))) + TELLING
    weight = ENCODER_WEIGHT if noise and ratio > RATIOS[0] else round(float(np.interp(ratio, RATIOS, RATIO_WEIGHTS)), 2)
    return ProbedWeight(weight, tuple(curve), count, language, noise)

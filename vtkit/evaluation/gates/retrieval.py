"""Whether a transfer, or training without judgements, has kept an encoder's retrieval, by snippets of the corpus
(:class:`vtkit.data.synthetic_queries.SnippetPairs`). No judgement is needed, and no query of a collection is read."""

from dataclasses import replace

import numpy as np
from sentence_transformers import SparseEncoder

from vtkit.data.synthetic_queries import SnippetPairs
from vtkit.encoder.documents import as_indexed
from vtkit.encoder.sides import encode_side
from vtkit.evaluation.gates.result import Seen
from vtkit.search.measures.significance import CHANCE, paired_randomization
from vtkit.search.sharded_encoding import EncodeTexts, kept_vectors
from vtkit.settings.index import IndexSection
from vtkit.system.runtime import fastest_precision


def reciprocal_ranks(encoder: SparseEncoder, pairs: SnippetPairs, max_length: int) -> np.ndarray:
    """Reciprocal rank of each snippet's own document, (pairs,), documents as an index has them by default. Half of the
    documents with the same score stand before it."""
    precision, index, said = fastest_precision(), IndexSection(), "encoding snippets"
    work = replace(EncodeTexts.of(encoder, index), max_length=max_length, precision=precision)
    documents = kept_vectors(work, pairs.documents, said)
    queries = encode_side(encoder, pairs.queries, "query", max_length, precision=precision, description=said)
    scores = (queries @ as_indexed(encoder, documents, pairs.documents, index).T).toarray()
    own = scores.diagonal()[:, None]
    ranks = 1 + (scores > own).sum(axis=1) + ((scores == own).sum(axis=1) - 1) / 2
    return np.asarray(1 / ranks)


KNOWS = 0.5
"""Mean reciprocal rank of snippets by an encoder over that by BM25, below which a dense source is taken not to know the
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
        f"snippets of {len(first)} texts find their own text with a mean reciprocal rank of {means[1]:.3f}, "
        f"{means[0]:.3f} {against} (p = {p:.3f})"
    )
    least = KNOWS * means[0] if against == "by BM25" else means[0]
    if means[1] >= least or (against != "before" and p >= CHANCE):
        return "pass", seen, ""
    return "fail" if against == "before" and p < CHANCE else "warn", seen, COMPARED[against]

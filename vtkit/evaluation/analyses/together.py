"""All analyses of one encoder on one collection: what is encoded and searched once for all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from transformers import PreTrainedTokenizerFast

from vtkit.data.retrieval import RetrievalSet
from vtkit.data.sequences import Ragged
from vtkit.encoder.asymmetric import output_tokenizer, query_table, writes_units
from vtkit.encoder.folding import folded_dimensions
from vtkit.encoder.sides import encode_side
from vtkit.encoder.truncation import first_tokens
from vtkit.evaluation.analyses.activation import Activation, activation
from vtkit.evaluation.analyses.case_confusion import CaseConfusion, case_confusion
from vtkit.evaluation.analyses.coarse_graining import CoarseGraining, coarse_graining, features
from vtkit.evaluation.analyses.coverage import Coverage, coverage
from vtkit.evaluation.analyses.rsj import RETRIEVED, RsjGap, rsj_gap
from vtkit.search.bm25 import Bm25
from vtkit.search.engine import index_in_memory
from vtkit.system.results import Result
from vtkit.system.runtime import fastest_precision
from vtkit.vocabulary.casing import fold_map
from vtkit.vocabulary.forms import whole_encodings
from vtkit.vocabulary.tokenizer_file import TokenizerFile

LONGEST_QUERY = 64


@dataclass(frozen=True)
class Analyses(Result):
    """Analyses of one encoder on one collection. Latent units name no tokens, so they have only ``rsj``."""

    queries: int
    documents: int
    rsj: RsjGap
    coverage: Coverage | None = None
    activation: Activation | None = None
    coarse_graining: CoarseGraining | None = None
    case_confusion: CaseConfusion | None = None  # none too where queries are looked up in a table


@dataclass(frozen=True)
class Sample:
    """The part of a collection that is looked at, and its words: the same for every encoder. CAI's words are Lucene's,
    stemmed and without stop words; these are as they stand."""

    documents: list[str]
    queries: list[str]
    relevant: list[NDArray[np.int64]]  # numbers of the relevant documents of each query
    presence: sp.csc_matrix  # which document holds which term, (documents, terms), 1 where it does
    terms: list[NDArray[np.int64]]  # the distinct terms of each query
    seed: int


def sample_of(
    collection: RetrievalSet, language: str, *, documents: int = 5000, queries: int = 500, seed: int = 42
) -> Sample:
    """Draw queries and documents.

    Args:
        documents: at most so many: all relevant ones of the queries, and others at random.
        queries: at most so many, at random.
        language: of the words that RSJ weights are about.
    """
    asked = collection.sample(queries, seed)
    kept, relevant = _some_documents(asked, documents, seed)
    texts, questions = [asked.contents[number] for number in kept], [query.text for query in asked.queries]
    bm25 = Bm25.build(texts, language, "words")
    presence = (bm25.index.by_document() > 0).astype(np.float64)
    return Sample(texts, questions, relevant, sp.csc_matrix(presence), _rows(bm25.terms.count(questions)), seed)


def analyse(encoder: SparseEncoder, sample: Sample, *, max_length: int = 256) -> Analyses:
    """Encode a sample of a collection and look at the vectors.

    Args:
        max_length: tokens of a document; queries have :data:`LONGEST_QUERY`.
    """
    texts, questions, relevant, seed = sample.documents, sample.queries, sample.relevant, sample.seed
    precision = fastest_precision()
    document_vectors = encode_side(encoder, texts, "document", max_length, precision=precision, description="documents")
    query_vectors = encode_side(encoder, questions, "query", LONGEST_QUERY, precision=precision, description="queries")
    ids = index_in_memory(document_vectors).search(query_vectors, RETRIEVED)[0].astype(np.int64)
    gap = rsj_gap(sample.presence, sample.terms, relevant, [row[row >= 0] for row in ids])
    if writes_units(encoder):
        return Analyses(len(questions), len(texts), gap)
    tokenizer, width = output_tokenizer(encoder), document_vectors.shape[1]
    folded_to = folded_dimensions(encoder)
    fold = np.arange(width) if folded_to is None else folded_to
    own = _rows(_tokens(tokenizer, questions, LONGEST_QUERY, fold))
    judged = [(query, number) for query, numbers in enumerate(relevant) for number in numbers]
    paired, matched = (np.array(side, dtype=np.int64) for side in zip(*judged, strict=True)) if judged else ([], [])
    chance = np.random.default_rng(seed).integers(len(texts), size=len(judged))
    pairs = features(
        query_vectors[np.concatenate([paired, paired])], document_vectors[np.concatenate([matched, chance])]
    )
    words = [tokens_of_words(tokenizer, question) for question in questions]
    return Analyses(
        len(questions),
        len(texts),
        gap,
        coverage(words, own, query_vectors, document_vectors, relevant),
        activation(_tokens(tokenizer, texts, max_length, fold), document_vectors),
        coarse_graining(pairs, fold_map(tokenizer, width), seed),
        None if query_table(encoder) is not None else case_confusion(encoder, questions, LONGEST_QUERY),
    )


def _some_documents(asked: RetrievalSet, most: int, seed: int) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
    """Numbers of the documents that are looked at, and for each query the places of its relevant ones among them."""
    judged = [
        [number for number, grade in asked.by_number(asked.qrels, query.id).items() if grade > 0]
        for query in asked.queries
    ]
    needed = np.unique(np.array([number for numbers in judged for number in numbers], dtype=np.int64))
    others = np.setdiff1d(np.arange(len(asked.documents)), needed)
    more = np.random.default_rng(seed).permutation(others)[: max(0, most - len(needed))]
    kept = np.sort(np.concatenate([needed, more]))
    return kept, [np.searchsorted(kept, np.array(sorted(numbers), dtype=np.int64)) for numbers in judged]


def _tokens(
    tokenizer: PreTrainedTokenizerFast, texts: Sequence[str], max_length: int, fold: NDArray[np.int64]
) -> sp.csr_matrix:
    """Which text holds which token, as dimensions of the vectors, (texts, vocabulary); special tokens left out."""
    special = set(tokenizer.all_special_ids)
    read = first_tokens(tokenizer, texts, max_length)["input_ids"]
    rows = Ragged.of(np.unique(fold[[token for token in ids if token not in special]]) for ids in read)
    return sp.csr_matrix((np.ones(len(rows.values)), rows.values, rows.starts), shape=(len(texts), len(fold)))


def tokens_of_words(tokenizer: PreTrainedTokenizerFast | TokenizerFile, text: str) -> list[int]:
    """The number of tokens of each word of ``text``."""
    from vtkit.vocabulary.words import word_spans

    spans = list(word_spans(text, "cut"))
    starts = [start for start, end in whole_encodings(tokenizer, [text], offsets=True)[0].offsets]
    return [sum(begin <= start < end for start in starts) for begin, end in spans]


def _rows(matrix: sp.csr_matrix) -> list[NDArray[np.int64]]:
    return [matrix.indices[begin:end].astype(np.int64) for begin, end in pairwise(matrix.indptr)]

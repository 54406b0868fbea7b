"""The distance between the words of two corpora: the yardstick of the CAI paper, and the words typical of each."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vtkit.data.spelling import preparation
from vtkit.data.word_counts import count_chunks
from vtkit.system.errors import DataError
from vtkit.vocabulary.words import KANA_SHARE, Punctuation, script_of_text, words

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

WIDE, NEAR = 0.327, 0.475
"""Weighted Jaccard similarity of SCIDOCS and of Robust04 to MS MARCO (CAI paper, table 8). The paper adapts to SCIDOCS
and the four BEIR sets that are farther away; Robust04 is the second nearest."""

ONE_SCRIPT = 0.5
"""Corpora that share less of their scripts than this are in languages that share no words but names and numerals."""

ONE_LANGUAGE = 0.17
"""Share of what sampling leaves, below which two corpora are taken to be in different languages. Measured: at most 0.13
between languages of one script (MIRACL's questions in Spanish and French; English and German 0.08), at least 0.21
within English (the same questions against biomedical abstracts; 20 texts of each 0.33)."""

FREQUENT = 10_000  # words whose scripts are looked at

SAMPLED_AS_SIMILAR = 0.9
"""A similarity of this share of what mere sampling leaves is put down to the size of the corpora."""


@dataclass(frozen=True)
class TypicalWord:
    """A word that one corpus has more of than the other."""

    word: str
    z: float  # log-odds ratio over its standard deviation (log_odds)
    here: int  # occurrences in the corpus it is typical of
    there: int  # occurrences in the other


@dataclass(frozen=True)
class CorpusWords:
    """The words of one corpus, compared with another one."""

    texts: int
    words: int
    distinct: int
    unknown_words: int  # occurrences of words that the other corpus has not
    unknown_distinct: int  # words that the other corpus has not
    unknown_share: float  # share of the word occurrences that are unknown to the other corpus
    typical: list[TypicalWord]


@dataclass(frozen=True)
class Gap:
    """The distance between the words of two corpora."""

    similarity: float  # weighted Jaccard similarity, 0 (no common word) to 1 (equal frequencies)
    sampled: float  # what it would be if the smaller corpus were words sampled from the larger
    shared_scripts: float  # how much of the words is written in the same scripts, 0 to 1
    first: CorpusWords
    second: CorpusWords

    @property
    def comparable(self) -> bool:
        """Whether the similarity is about domains at all: both corpora are in one language, as far as words tell."""
        return self.shared_scripts >= ONE_SCRIPT and self.similarity >= ONE_LANGUAGE * self.sampled


def measure_gap(
    first: Iterable[str],
    second: Iterable[str],
    *,
    language: str | None = None,
    punctuation: Punctuation = "keep",
    top: int = 20,
    seed: int = 0,
) -> Gap:
    """Compare the frequencies of words (:mod:`vtkit.vocabulary.words`) in two corpora, each read once and prepared as
    for BM25 (:func:`vtkit.data.spelling.preparation`): in one Unicode form and lower-case, without soft hyphens.

    Args:
        first: texts of the corpus that the model comes from.
        second: texts of the corpus it is to serve.
        language: code of the language, where case or spelling depends on it (``tr``, ``fa``).
        punctuation: whether punctuation inside a white-space word ends it.
        seed: of the sample behind :attr:`Gap.sampled`.
    """
    prepare, counted = preparation(language or ""), []
    for ordinal, texts in (("first", first), ("second", second)):
        chunks, counts = count_chunks(texts), Counter[str]()
        for chunk, count in sorted(chunks.words().items()):
            for word in words(prepare(chunk), punctuation):
                counts[word] += count
        if not counts:
            raise DataError(f"The {ordinal} corpus has no words.")
        counted.append((chunks.texts, counts))
    (first_texts, first_counts), (second_texts, second_counts) = counted
    vocabulary = sorted(first_counts.keys() | second_counts.keys())
    a, b = (np.array([counts[word] for word in vocabulary], dtype=np.int64) for _, counts in counted)
    larger, smaller = (a, b) if a.sum() >= b.sum() else (b, a)
    drawn = np.random.default_rng(seed).multinomial(int(smaller.sum()), larger / larger.sum())
    scripts, others = _scripts(first_counts), _scripts(second_counts)

    z = log_odds(a, b)
    order = np.lexsort((np.arange(len(z)), -z))

    def side(texts: int, own: Integers, other: Integers, z: Floats, order: Integers) -> CorpusWords:
        unknown = (own > 0) & (other == 0)
        return CorpusWords(
            texts=texts,
            words=int(own.sum()),
            distinct=int((own > 0).sum()),
            unknown_words=int(own[unknown].sum()),
            unknown_distinct=int(unknown.sum()),
            unknown_share=float(own[unknown].sum() / own.sum()),
            typical=[
                TypicalWord(vocabulary[n], float(z[n]), int(own[n]), int(other[n])) for n in order[:top] if z[n] > 0
            ],
        )

    return Gap(
        similarity=weighted_jaccard(a, b),
        sampled=weighted_jaccard(larger, drawn),
        shared_scripts=sum(min(share, others.get(script, 0.0)) for script, share in scripts.items()),
        first=side(first_texts, a, b, z, order),
        second=side(second_texts, b, a, -z, order[::-1]),
    )


def weighted_jaccard(a: Integers, b: Integers) -> float:
    """``J(A, B) = sum_t min(A_t, B_t) / sum_t max(A_t, B_t)`` over relative word frequencies (Thakur et al., 2021,
    arXiv:2104.08663; CAI paper, equation 20). ``a`` and ``b`` are occurrences of each word in a corpus, (words,)."""
    shares, others = a / a.sum(), b / b.sum()
    return float(np.minimum(shares, others).sum() / np.maximum(shares, others).sum())


def log_odds(a: Integers, b: Integers) -> Floats:
    """The z-score of each word's log-odds ratio between two corpora, with an informative Dirichlet prior.

    Monroe, Colaresi and Quinn (2008, doi:10.1093/pan/mpn018), equations 16, 20 and 22::

        d_w = log (a_w + p_w)/(n_a + p - a_w - p_w) - log (b_w + p_w)/(n_b + p - b_w - p_w)
        z_w = d_w / sqrt(1/(a_w + p_w) + 1/(b_w + p_w))

    The prior ``p_w`` is the word's count in both corpora together, so that rare words need much evidence and words
    frequent in both count by their difference.

    Returns:
        (words,), positive for words typical of ``a``.
    """
    prior = (a + b).astype(np.float64)
    first, second = a + prior, b + prior
    rest, other_rest = first.sum() - first, second.sum() - second
    with np.errstate(divide="ignore", invalid="ignore"):  # a single word has no odds
        difference = np.log(first / rest) - np.log(second / other_rest)
        scores: Floats = np.nan_to_num(difference, nan=0.0) / np.sqrt(1 / first + 1 / second)
    return scores


def advice(gap: Gap) -> str:
    """Advice on vocabulary expansion by the similarity, from the figures of the CAI paper."""
    similarity = gap.similarity
    if similarity >= SAMPLED_AS_SIMILAR * gap.sampled:
        return (
            f"The corpora are as similar as samples of one corpus would be at this size ({gap.sampled:.3f}): there is "
            "no gap that a new vocabulary could close."
        )
    if not gap.comparable:
        reason = (
            f"are written in different scripts (they share {gap.shared_scripts:.0%} of them)"
            if gap.shared_scripts < ONE_SCRIPT
            else f"share next to no words ({similarity:.3f}, where samples of one corpus would have {gap.sampled:.3f})"
        )
        return (
            f"The corpora {reason}, as two languages do. The measure tells domains of one language apart and says "
            "nothing here. For another language, look at `vtkit inspect-vocab` and `vtkit fragmentation` with a "
            "tokenizer of that language, and move to its vocabulary ([transfer] with parallel text, a dictionary or "
            "an embedder)."
        )
    if similarity <= WIDE:
        return (
            "The gap is as wide as from MS MARCO to the five BEIR sets that the CAI paper adapts to (0.273 SciFact to "
            "0.327 SCIDOCS). There AdaLM (expansion and MLM training) raised SPLADE from 0.462 to 0.491 nDCG@10 on "
            "average, MLM training alone to 0.476, and expansion without it did nothing (0.462): expand, and train "
            "on text of the second corpus."
        )
    if similarity < NEAR:
        return (
            "The gap is that from MS MARCO to the middle of BEIR (between SCIDOCS, 0.327, and Robust04, 0.475); the "
            "CAI paper adapts across wider ones only. Expand where `vtkit fragmentation` shows that many words of the "
            "second corpus are split; otherwise MLM training on its text comes first."
        )
    return (
        "The corpora are as near to each other as Robust04 (0.475) and Natural Questions (0.523) are to MS MARCO. The "
        "CAI paper adapts to nothing so near, and an expanded vocabulary has little to add."
    )


def _scripts(counts: Counter[str]) -> dict[str, float]:
    """Script -> share of the occurrences; numerals have none. Kanji among kana are Japanese, not Han."""
    occurrences: Counter[str] = Counter()
    for word, count in counts.most_common(FREQUENT):
        occurrences[script_of_text(word)] += count
    occurrences.pop("none", None)
    if occurrences["Japanese"] > KANA_SHARE * occurrences["Han"]:
        occurrences["Japanese"] += occurrences.pop("Han", 0)
    return {script: count / occurrences.total() for script, count in occurrences.items() if count}

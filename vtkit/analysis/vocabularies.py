"""The old and the new vocabulary of a run side by side: their languages, and how they cut up the run's own texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vtkit.analysis.composition import LANGUAGES, LANGUAGES_OF_SCRIPT, SEMBRIDGE, compose
from vtkit.analysis.fragmentation import measure_fragmentation
from vtkit.analysis.meter import Counts, QueryCounts
from vtkit.results import Result

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

WORST_WORDS = 10
"""Words listed for each vocabulary that cost it most extra tokens."""


@dataclass(frozen=True)
class Sample(Result):
    """Which texts a figure was measured on."""

    texts: int
    of: int
    """Texts there are."""

    shortened: int
    """Texts of which only the beginning was read."""


@dataclass(frozen=True)
class TextMetrics(Result):
    """What a tokenizer makes of some texts; shares are from 0 to 1, special tokens around a text are not counted."""

    words: int
    tokens_per_word: float
    """Tokens that hold a part of a word, over words."""

    split_words: float
    """Share of words that are more than one token."""

    tokens_per_text: float
    unknown_tokens: float
    """Share of tokens that are the unknown token."""

    unknown_words: float
    """Share of words with the unknown token in them, or without any token."""

    texts_with_split_word: float | None = None
    texts_with_unknown: float | None = None
    """These two are known of queries only."""


@dataclass(frozen=True)
class SplitWord(Result):
    """A word of the documents, and the tokens it costs."""

    word: str
    occurrences: int
    pieces: tuple[str, ...]


@dataclass(frozen=True)
class VocabularyProfile(Result):
    """One vocabulary: what its tokens are, and what it makes of the run's texts."""

    size: int
    languages: dict[str, int]
    """Tokens by the language they were told to be in, most first (ISO 639-1 code)."""

    undecided: int
    """Tokens that several of the languages asked for may claim."""

    other_scripts: dict[str, int]
    """Tokens in scripts that none of the languages asked for is written in, most first."""

    no_letters: int
    """Digits, punctuation, symbols, special and unused tokens."""

    documents: TextMetrics | None
    queries: TextMetrics | None
    worst_words: tuple[SplitWord, ...]
    """Of the documents; the words with most extra tokens over all their occurrences."""


@dataclass(frozen=True)
class VocabularyAnalysis(Result):
    """Both vocabularies of a run. ``source`` is None where the encoder was made from nothing."""

    languages: tuple[str, ...]
    """The languages that were told apart."""

    documents: Sample
    queries: Sample
    source: VocabularyProfile | None
    target: VocabularyProfile

    @property
    def shared_scripts(self) -> dict[str, tuple[str, ...]]:
        """Scripts that several of :attr:`languages` are written in: their tokens are told apart word by word."""
        found = {
            script: tuple(code for code in codes if code in self.languages)
            for script, codes in LANGUAGES_OF_SCRIPT.items()
        }
        return {script: codes for script, codes in found.items() if len(codes) > 1}


def languages_told_apart(language: str) -> tuple[str, ...]:
    """The languages of the SemBridge paper's figure, which their scripts tell apart, and ``language``.

    So at most two languages share a script, and a statistical detector is asked about these two only: that takes
    seconds where all languages would take a gigabyte.
    """
    code = {"no": "nb"}.get(language, language)
    return tuple(dict.fromkeys((*SEMBRIDGE, code))) if code in LANGUAGES else SEMBRIDGE


def analyse_vocabularies(
    source: PreTrainedTokenizerFast | None,
    target: PreTrainedTokenizerFast,
    documents: Sequence[str],
    queries: Sequence[str],
    language: str,
) -> tuple[VocabularyProfile | None, VocabularyProfile]:
    """Profile both vocabularies on the same texts.

    Args:
        documents: texts searched in; without any, only the vocabularies themselves are looked at.
        queries: texts searched for.
        language: ISO 639 code of the language searched in (:func:`languages_told_apart`).

    Returns:
        The profile of ``source`` (None without one) and of ``target``.
    """
    tokenizers = {"target": target} | ({"source": source} if source is not None else {})
    texts = [text for text in documents if text.strip()]
    asked = [text for text in queries if text.strip()]
    # Without documents the queries are read as such, and what they say of documents is not reported.
    measured = (
        measure_fragmentation(texts or asked, tokenizers, queries=asked, top=WORST_WORDS) if texts or asked else ()
    )
    metrics: dict[str, tuple[TextMetrics | None, TextMetrics | None, tuple[SplitWord, ...]]] = {}
    for one in measured:
        metrics[one.name] = (
            _metrics(one.total) if texts else None,
            _metrics(one.queries) if one.queries is not None and asked else None,
            tuple(SplitWord(word.word, word.occurrences, tuple(word.pieces)) for word in one.words) if texts else (),
        )
    profiles = {
        name: _profile(tokenizer, language, *metrics.get(name, (None, None, ())))
        for name, tokenizer in tokenizers.items()
    }
    return profiles.get("source"), profiles["target"]


def _profile(
    tokenizer: PreTrainedTokenizerFast,
    language: str,
    documents: TextMetrics | None,
    queries: TextMetrics | None,
    worst: tuple[SplitWord, ...],
) -> VocabularyProfile:
    composition = compose(tokenizer, languages_told_apart(language), "ja" if language == "ja" else "zh")
    return VocabularyProfile(
        size=len(composition.labels),
        languages=composition.counts("language"),
        undecided=_sum(composition.counts("undecided")),
        other_scripts=composition.counts("other"),
        no_letters=_sum(composition.counts("etc")),
        documents=documents,
        queries=queries,
        worst_words=worst,
    )


def _metrics(counts: Counts) -> TextMetrics:
    return TextMetrics(
        words=counts.words,
        tokens_per_word=counts.tokens_per_word,
        split_words=counts.split_share,
        tokens_per_text=counts.tokens_per_text,
        unknown_tokens=counts.unknown_rate,
        unknown_words=(counts.unknown_words + counts.lost_words) / counts.words if counts.words else 0.0,
        texts_with_split_word=counts.split_text_share if isinstance(counts, QueryCounts) else None,
        texts_with_unknown=counts.unknown_text_share if isinstance(counts, QueryCounts) else None,
    )


def _sum(counts: Mapping[str, int]) -> int:
    return sum(counts.values())

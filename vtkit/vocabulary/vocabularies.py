"""The old and the new vocabulary of a run side by side: their languages, and how they cut up the run's own texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vtkit.vocabulary.composition import LANGUAGES, SEMBRIDGE, compose
from vtkit.vocabulary.fragmentation import Counts, Fragmentation, QueryCounts, measure_fragmentation
from vtkit.vocabulary.profiles import SplitWord, TextMetrics, VocabularyProfile

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

WORST_WORDS = 10  # words listed for each vocabulary that cost it most extra tokens


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
    searched_for = [text for text in queries if text.strip()]
    measured: dict[str, Fragmentation] = {}
    if texts or searched_for:
        # Without documents the queries are read as such, and what they say of documents is not reported.
        found = measure_fragmentation(texts or searched_for, tokenizers, queries=searched_for, top=WORST_WORDS)
        measured = {fragmentation.name: fragmentation for fragmentation in found}
    profiles = {
        name: _profile(tokenizer, language, measured.get(name), bool(texts)) for name, tokenizer in tokenizers.items()
    }
    return profiles.get("source"), profiles["target"]


def _profile(
    tokenizer: PreTrainedTokenizerFast, language: str, measured: Fragmentation | None, of_documents: bool
) -> VocabularyProfile:
    total, queries = (measured.total, measured.queries) if measured is not None else (None, None)
    words = measured.words if measured is not None and of_documents else []
    composition = compose(tokenizer, languages_told_apart(language), "ja" if language == "ja" else "zh")
    return VocabularyProfile(
        size=len(composition.labels),
        languages=composition.counts("language"),
        undecided=sum(composition.counts("undecided").values()),
        other_scripts=composition.counts("other"),
        no_letters=sum(composition.counts("etc").values()),
        documents=_metrics(total) if total is not None and of_documents else None,
        queries=_metrics(queries) if queries is not None else None,
        worst_words=tuple(SplitWord(word.word, word.occurrences, tuple(word.pieces)) for word in words),
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

"""The old and the new vocabulary of a run side by side: their languages, and how they cut up the run's own texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vtkit.vocabulary.composition import LANGUAGES, SEMBRIDGE, compose
from vtkit.vocabulary.forms import tokens
from vtkit.vocabulary.fragmentation import Counts, Fragmentation, QueryCounts, measure_fragmentation
from vtkit.vocabulary.profiles import SplitWord, TextMetrics, VocabularyProfile

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

WORST_WORDS = 10  # words listed for each vocabulary that cost it most extra tokens


def languages_told_apart(language: str) -> tuple[str, ...]:
    """The languages of the SemBridge paper's figure, which their scripts tell apart, and those of ``language``.

    So few languages share a script, and a statistical detector is asked about these only: that takes seconds where all
    languages would take a gigabyte.
    """
    codes = [{"no": "nb"}.get(code, code) for code in language.split(",")]
    return tuple(dict.fromkeys((*SEMBRIDGE, *(code for code in codes if code in LANGUAGES))))


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
        language: ISO 639 code of the language searched in, or several (:func:`languages_told_apart`).

    Returns:
        The profile of ``source`` (None without one) and of ``target``.
    """
    texts, asked = ([text for text in some if text.strip()] for some in (documents, queries))
    tokenizers = {"target": target} | ({"source": source} if source is not None else {})
    measured: list[Fragmentation | None] = [None] * len(tokenizers)
    if texts or asked:
        # Without documents the queries are read as such, and what they say of documents is not reported.
        measured = [*measure_fragmentation(texts or asked, tokenizers, queries=asked, top=WORST_WORDS)]
    profiles = {}
    for (name, tokenizer), cuts in zip(tokenizers.items(), measured, strict=True):
        composition = compose(tokenizer, languages_told_apart(language), "ja" if language == "ja" else "zh")
        of_documents = cuts if texts else None
        profiles[name] = VocabularyProfile(
            size=len(tokens(tokenizer)),
            languages=composition.language,
            undecided=sum(composition.undecided.values()),
            other_scripts=composition.other,
            no_letters=sum(composition.etc.values()),
            documents=_metrics(of_documents.total) if of_documents else None,
            queries=_metrics(cuts.queries) if cuts and cuts.queries else None,
            worst_words=tuple(
                SplitWord(word.word, word.occurrences, tuple(word.pieces))
                for word in (of_documents.words if of_documents else ())
            ),
        )
    return profiles.get("source"), profiles["target"]


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

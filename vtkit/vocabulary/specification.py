"""A tokenizer made from what a specification, or the [vocabulary] of a recipe, says: trained, or expanded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vtkit.data.document_files import read_corpora
from vtkit.settings.casing import CasingSection
from vtkit.settings.vocabulary import ExpandedVocabulary, TrainedVocabulary
from vtkit.vocabulary.statistics import CorpusCounts, ExpansionStats

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True)
class Built:
    """A tokenizer, and what is to be said of how it was made."""

    tokenizer: PreTrainedTokenizerFast
    corpus: CorpusCounts | None = None  # what a trained one was trained on
    expansion: ExpansionStats | None = None  # how an expanded one came to its size
    added: tuple[str, ...] = ()  # the tokens that an expanded one has behind its base's, most frequent first


def build(
    vocabulary: TrainedVocabulary | ExpandedVocabulary, casing: CasingSection, texts: Iterable[str] | None = None
) -> Built:
    """Train or expand a vocabulary on ``texts``, by default what the corpora of ``vocabulary`` hold."""
    texts = read_corpora(vocabulary.corpus) if texts is None else texts
    if isinstance(vocabulary, TrainedVocabulary):
        from vtkit.vocabulary.trained import train

        return Built(*train(texts, vocabulary, casing))
    from vtkit.vocabulary.existing import load_tokenizer
    from vtkit.vocabulary.expanded import expand_vocabulary

    return expand_vocabulary(load_tokenizer(vocabulary.tokenizer, require_roles=True), texts, vocabulary, casing)

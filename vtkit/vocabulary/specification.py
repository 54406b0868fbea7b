"""A tokenizer made from what a specification, or the [vocabulary] of a recipe, says: trained, or expanded."""

from __future__ import annotations

from collections.abc import Iterable

from vtkit.data.document_files import read_corpora
from vtkit.settings.casing import CasingSection
from vtkit.settings.vocabulary import ExpandedVocabulary, TrainedVocabulary
from vtkit.vocabulary.statistics import Built


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

"""The methods by name: what [transfer] of a recipe asks for, as one mixture and one bias."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, assert_never, get_args

import numpy as np
from numpy.typing import NDArray

from vtkit.errors import DataError
from vtkit.recipe.sections import Method, TransferSection
from vtkit.transfer.bias import (
    copy_overlap_bias,
    has_text,
    log_frequency,
    masked,
    model_prior,
    ordinary_rows,
    zero_bias,
    zscore_bias,
)
from vtkit.transfer.borrowed import with_borrowed
from vtkit.transfer.entmax import Sparsity
from vtkit.transfer.in_order import in_order
from vtkit.transfer.mixture import METHODS, Mixture, Rest, with_rest
from vtkit.transfer.pieces import with_pieces
from vtkit.vocabulary.alignment import Alignment

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

ALPHA, SPARSEMAX = 4.0, 2.0
"""α of entmax where the recipe names none: SemBridge's, and that of the vocabulary-transfer paper and of FOCUS."""

Texts = Callable[[], Iterator[str]]
"""Opens the stream of target texts that a method trains on."""

Counts = Callable[[], NDArray[np.integer] | None]
"""How often each target token occurs in target text, (target vocabulary,); None where there is no text."""


def mixture_of(
    section: TransferSection,
    source: PreTrainedTokenizerFast,
    target: PreTrainedTokenizerFast,
    alignment: Alignment,
    source_rows: int,
    texts: Texts,
    counts: Counts,
    seed: int,
) -> Mixture:
    """The rows of the target vocabulary by the method, or the list of methods, of ``section``.

    Args:
        source_rows: rows of the source's embedding matrix; may exceed its tokenizer's size (a padded vocabulary).
        texts: target texts, for ``focus``.
        counts: asked for where rows are borrowed.
        seed: of what a method draws.
    """

    def by(method: Method) -> Mixture:
        return _mixture(method, section, source, target, alignment, source_rows, texts, seed)

    methods = section.methods
    mixture = by(methods[0]) if len(methods) == 1 else in_order([(method, by(method)) for method in methods])
    if section.borrows:
        return with_borrowed(mixture, source, target, counts())
    match section.rest:
        case "auto" | "borrowed":
            return mixture
        case "pieces":
            return with_pieces(mixture, target)
        case _:
            return with_rest(mixture, section.rest) if methods[-1] not in get_args(Rest) else mixture


def bias_of(
    section: TransferSection,
    source: PreTrainedTokenizerFast,
    target: PreTrainedTokenizerFast,
    alignment: Alignment,
    mixture: Mixture,
    source_bias: NDArray[np.floating],
    counts: Counts,
) -> NDArray[np.float32]:
    """The decoder bias of the target vocabulary by ``section.bias``; tokens that the mixture masks are masked.

    Args:
        counts: asked for by ``zscore`` without a model.

    Raises:
        DataError: there is no text to count tokens in.
    """
    match section.bias.method:
        case "mixture":
            bias = mixture.bias(source_bias, ordinary_rows(source, source_bias))
        case "copy-overlap":
            bias = copy_overlap_bias(alignment, source_bias, ordinary_rows(source, source_bias))
        case "zero":
            bias = zero_bias(alignment.target_size)
        case "zscore":
            name = section.bias.model
            prior = model_prior(name, target) if name is not None else log_frequency(_counted(counts))
            made = has_text(target, len(prior)) & (mixture.methods != METHODS.index("masked"))
            bias = zscore_bias(source_bias, prior, ordinary_rows(source, source_bias), made)
        case _:
            assert_never(section.bias.method)
    return masked(bias, mixture)


def _counted(counts: Counts) -> NDArray[np.integer]:
    found = counts()
    if found is None:
        raise DataError(
            "transfer.bias.method zscore counts the target tokens on text, and the recipe names none. Give "
            'transfer.bias.corpus or transfer.bias.model, or set transfer.bias.method to "mixture".'
        )
    return found


def _mixture(
    method: Method,
    section: TransferSection,
    source: PreTrainedTokenizerFast,
    target: PreTrainedTokenizerFast,
    alignment: Alignment,
    source_rows: int,
    texts: Texts,
    seed: int,
) -> Mixture:
    """One method's mixture, tokens without evidence as its authors have them."""
    tokenizers = (source, target)
    alpha = section.alpha or (SPARSEMAX if method in ("semantic", "focus") else ALPHA)
    sparsity = Sparsity(alpha, section.keep, section.entropy)
    match method:
        case "auto":
            from vtkit.transfer.auto import auto_mixture

            named: tuple[tuple[Method, object], ...] = (
                ("parallel", section.parallel),
                ("sembridge", section.embedder),
            )
            bridges = [
                (name, _mixture(name, section, source, target, alignment, source_rows, texts, seed))
                for name, bridge in named
                if bridge
            ]
            return auto_mixture(source, target, alignment, source_rows, bridges)
        case "parallel":
            from vtkit.transfer.parallel import pairs_in, read_bitext, translation_mixture

            bitext = read_bitext(source, target, pairs_in(section.parallel))
            if section.estimator == "cooccurrence":
                from vtkit.transfer.cooccurrence import cooccurrence_mixture

                return cooccurrence_mixture(bitext, alignment, source_rows, sparsity, section.min_probability)
            return translation_mixture(
                bitext, alignment, source_rows, section.iterations, section.agreement, section.min_probability
            )
        case "sembridge":
            from vtkit.transfer.sembridge import sembridge_mixture

            assert section.embedder is not None
            return sembridge_mixture(
                section.embedder, *tokenizers, alignment, source_rows, sparsity, section.pooling, section.prompt
            )
        case "semantic":
            from vtkit.transfer.semantic import semantic_mixture

            assert section.target_embeddings is not None
            return semantic_mixture(section.target_embeddings, *tokenizers, alignment, source_rows, sparsity)
        case "focus":
            from vtkit.transfer.focus import focus_mixture

            given = section.vectors
            return focus_mixture(
                *tokenizers,
                alignment,
                source_rows,
                vectors=None if given is None else Path(given),
                texts=texts() if given is None else None,
                vector_size=section.vector_size,
                sparsity=sparsity,
                seed=seed,
            )
        case "ofa":
            from vtkit.transfer.ofa import ofa_mixture

            assert section.vectors is not None
            return ofa_mixture(
                *tokenizers,
                alignment,
                source_rows,
                vectors=Path(section.vectors),
                neighbours=section.neighbours,
                temperature=section.temperature,
                rank=section.rank,
            )
        case "wechsel":
            from vtkit.transfer.wechsel import wechsel_mixture

            assert section.vectors is not None
            assert section.source_vectors is not None
            return wechsel_mixture(
                *tokenizers,
                alignment,
                source_rows,
                vectors=Path(section.vectors),
                source_vectors=Path(section.source_vectors),
                dictionary=[Path(name) for name in section.dictionary],
                neighbours=section.neighbours,
                temperature=section.temperature,
            )
        case "subtoken":
            from vtkit.transfer.subtoken import subtoken_mixture

            return subtoken_mixture(*tokenizers, alignment, source_rows)
        case "mean":
            from vtkit.transfer.mean import mean_mixture

            return mean_mixture(alignment, source_rows)
        case "random":
            from vtkit.transfer.random import random_mixture

            return random_mixture(alignment, source_rows)
        case "random_all":
            from vtkit.transfer.noise import random_all_mixture

            return random_all_mixture(alignment, source_rows)
        case "univariate":
            from vtkit.transfer.noise import univariate_mixture

            return univariate_mixture(alignment, source_rows)
        case "multivariate":
            from vtkit.transfer.noise import multivariate_mixture

            return multivariate_mixture(alignment, source_rows)
        case _:
            assert_never(method)

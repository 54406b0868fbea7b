"""The methods by name: what [transfer] of a recipe asks for, as one mixture and one bias."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import assert_never, get_args

import numpy as np
from numpy.typing import NDArray

from vtkit.errors import DataError
from vtkit.recipe.sections import Method, TransferSection
from vtkit.transfer.combination.back_off import back_off
from vtkit.transfer.combination.pieces import with_pieces
from vtkit.transfer.combination.reassigned import with_reassigned
from vtkit.transfer.mixture import Fallback, Mixture, with_fallback
from vtkit.transfer.surgery.bias import (
    copy_overlap_bias,
    has_text,
    log_frequency,
    masked,
    model_prior,
    ordinary_rows,
    zero_bias,
    zscore_bias,
)
from vtkit.vocabulary.pair import VocabularyPair

ALPHA, SPARSEMAX = 4.0, 2.0
"""α of entmax where the recipe names none: SemBridge's, and that of the vocabulary-transfer paper and of FOCUS."""

Texts = Callable[[], Iterator[str]]
"""Opens the stream of target texts that a method trains on."""

Counts = Callable[[], NDArray[np.integer] | None]
"""How often each target token occurs in target text, (target vocabulary,); None where there is no text."""


def mixture_of(
    section: TransferSection,
    pair: VocabularyPair,
    texts: Texts,
    counts: Counts,
    seed: int,
) -> Mixture:
    """The rows of the target vocabulary by the method, or the list of methods, of ``section``.

    Args:
        texts: target texts, for ``focus``.
        counts: asked for where rows are reassigned.
        seed: of what a method draws.
    """

    def by(method: Method) -> Mixture:
        return _mixture(method, section, pair, texts, seed)

    methods = section.methods
    mixture = by(methods[0]) if len(methods) == 1 else back_off([(method, by(method)) for method in methods])
    if section.reassigns:
        return with_reassigned(mixture, pair, counts())
    match section.fallback:
        case "auto" | "reassigned":
            return mixture
        case "pieces":
            return with_pieces(mixture, pair.target)
        case _:
            return with_fallback(mixture, section.fallback) if methods[-1] not in get_args(Fallback) else mixture


def bias_of(
    section: TransferSection,
    pair: VocabularyPair,
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
            bias = mixture.bias(source_bias, ordinary_rows(pair.source, source_bias))
        case "copy-overlap":
            bias = copy_overlap_bias(pair.overlap, source_bias, ordinary_rows(pair.source, source_bias))
        case "zero":
            bias = zero_bias(pair.overlap.target_size)
        case "zscore":
            name = section.bias.model
            prior = model_prior(name, pair.target) if name is not None else log_frequency(_counted(counts))
            made = has_text(pair.target, len(prior)) & (mixture.methods != "masked")
            bias = zscore_bias(source_bias, prior, ordinary_rows(pair.source, source_bias), made)
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
    pair: VocabularyPair,
    texts: Texts,
    seed: int,
) -> Mixture:
    """One method's mixture, tokens without evidence as its authors have them."""
    alpha = section.alpha or (SPARSEMAX if method in ("semantic", "focus") else ALPHA)
    match method:
        case "auto":
            from vtkit.transfer.methods.auto import auto_mixture

            named: tuple[tuple[Method, object], ...] = (
                ("parallel", section.parallel),
                ("sembridge", section.embedder),
            )
            bridges = [(name, _mixture(name, section, pair, texts, seed)) for name, bridge in named if bridge]
            return auto_mixture(pair, bridges)
        case "parallel":
            from vtkit.transfer.methods.parallel import pairs_in, read_bitext, translation_mixture

            bitext = read_bitext(pair, pairs_in(section.parallel))
            if section.estimator == "cooccurrence":
                from vtkit.transfer.methods.cooccurrence import cooccurrence_mixture

                return cooccurrence_mixture(bitext, pair, alpha, section.min_probability)
            return translation_mixture(bitext, pair, section.iterations, section.agreement, section.min_probability)
        case "sembridge":
            from vtkit.transfer.methods.sembridge import sembridge_mixture

            assert section.embedder is not None
            return sembridge_mixture(pair, section.embedder, alpha, section.pooling, section.prompt)
        case "semantic":
            from vtkit.transfer.methods.semantic import semantic_mixture

            assert section.target_embeddings is not None
            return semantic_mixture(pair, section.target_embeddings, alpha)
        case "focus":
            from vtkit.transfer.methods.focus import focus_mixture

            given = section.vectors
            return focus_mixture(
                pair,
                vectors=None if given is None else Path(given),
                texts=texts() if given is None else None,
                vector_size=section.vector_size,
                alpha=alpha,
                seed=seed,
            )
        case "ofa":
            from vtkit.transfer.methods.ofa import ofa_mixture

            assert section.vectors is not None
            return ofa_mixture(
                pair,
                vectors=Path(section.vectors),
                neighbours=section.neighbours,
                temperature=section.temperature,
                rank=section.rank,
            )
        case "wechsel":
            from vtkit.transfer.methods.wechsel import wechsel_mixture

            assert section.vectors is not None
            assert section.source_vectors is not None
            return wechsel_mixture(
                pair,
                vectors=Path(section.vectors),
                source_vectors=Path(section.source_vectors),
                dictionary=[Path(name) for name in section.dictionary],
                neighbours=section.neighbours,
                temperature=section.temperature,
            )
        case "subtoken":
            from vtkit.transfer.methods.subtoken import subtoken_mixture

            return subtoken_mixture(pair)
        case "mean":
            from vtkit.transfer.methods.mean import mean_mixture

            return mean_mixture(pair)
        case "random":
            from vtkit.transfer.methods.random import random_mixture

            return random_mixture(pair)
        case "random_all":
            from vtkit.transfer.methods.random_all import random_all_mixture

            return random_all_mixture(pair)
        case "univariate":
            from vtkit.transfer.methods.univariate import univariate_mixture

            return univariate_mixture(pair)
        case "multivariate":
            from vtkit.transfer.methods.multivariate import multivariate_mixture

            return multivariate_mixture(pair)
        case _:
            assert_never(method)

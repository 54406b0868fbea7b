"""The methods by name: what [transfer] of a recipe asks for, as one mixture and one bias."""

from collections.abc import Callable
from importlib import import_module
from typing import assert_never, get_args

import numpy as np
from numpy.typing import NDArray

from vtkit.settings.transfer import BASELINES, AutoTransfer, Fallback, MethodSettings, TransferSection
from vtkit.system.errors import DataError
from vtkit.transfer.combination import back_off, with_pieces, with_reassigned
from vtkit.transfer.methods.auto import auto_mixture
from vtkit.transfer.mixture import Mixture, Texts, mixture_of_parts, with_fallback
from vtkit.transfer.surgery.bias import (
    has_text,
    log_frequency,
    masked,
    model_prior,
    ordinary_rows,
    zscore_bias,
)
from vtkit.vocabulary.pair import VocabularyPair

Counts = Callable[[], NDArray[np.integer] | None]
"""How often each target token occurs in target text, (target vocabulary,); None where there is no text."""


def mixture_of(section: TransferSection, pair: VocabularyPair, texts: Texts, counts: Counts, seed: int) -> Mixture:
    """The rows of the target vocabulary by the method, or the list of methods, of ``section``; ``counts`` are asked for
    where rows are reassigned."""
    methods = section.methods
    mixtures = [(settings.name, _mixture(settings, section, pair, texts, seed)) for settings in section.asked]
    mixture = mixtures[0][1] if len(mixtures) == 1 else back_off(mixtures)
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
    section: TransferSection, pair: VocabularyPair, mixture: Mixture, source_bias: NDArray[np.floating], counts: Counts
) -> NDArray[np.float32]:
    """The decoder bias of the target vocabulary by ``section.bias``, which asks for ``counts`` with ``zscore`` and no
    model; tokens that the mixture masks are masked."""
    match section.bias.method:
        case "mixture":
            bias = mixture.bias(source_bias, ordinary_rows(pair.source, source_bias))
        case "copy-overlap":
            bias = mixture_of_parts(pair).bias(source_bias, ordinary_rows(pair.source, source_bias))
        case "zero":
            bias = np.zeros(pair.overlap.target_size, dtype=np.float32)
        case "zscore":
            if section.bias.model is not None:
                prior = model_prior(section.bias.model, pair.target)
            elif (token_counts := counts()) is not None:
                prior = log_frequency(token_counts)
            else:
                raise DataError(
                    'bias.method = "zscore" counts the target tokens in text, and there is none. Give bias.corpus or '
                    'bias.model, or set bias.method to "mixture".'
                )
            ordinary = has_text(pair.target, len(prior)) & (mixture.methods != "masked")
            bias = zscore_bias(source_bias, prior, ordinary_rows(pair.source, source_bias), ordinary)
        case _:
            assert_never(section.bias.method)
    return masked(bias, mixture)


def _mixture(
    settings: MethodSettings, section: TransferSection, pair: VocabularyPair, texts: Texts, seed: int
) -> Mixture:
    """One method's mixture, tokens without evidence as its authors have them: that of the file in
    :mod:`vtkit.transfer.methods` that has the method's name, or of ``baselines.py``."""
    if isinstance(settings, AutoTransfer):
        given = [method for kind in settings.uses if not (method := section.settings_of(kind)).missing]
        return auto_mixture(pair, {method.name: _mixture(method, section, pair, texts, seed) for method in given})
    file = "baselines" if settings.name in BASELINES else settings.name
    mixture: Mixture = import_module(f"vtkit.transfer.methods.{file}").mixture(pair, settings, texts, seed)
    return mixture

"""The methods by name: what [transfer] of a recipe asks for, as one mixture and one bias."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import assert_never, cast, get_args

import numpy as np
from numpy.typing import NDArray

from vtkit.settings.transfer import (
    AnyMethod,
    AutoTransfer,
    Fallback,
    FocusTransfer,
    MeanTransfer,
    MultivariateTransfer,
    OfaTransfer,
    OverlapMeanTransfer,
    ParallelTransfer,
    RandomAllTransfer,
    RandomTransfer,
    SemanticTransfer,
    SembridgeTransfer,
    SubtokenTransfer,
    TransferSection,
    UnivariateTransfer,
    WechselTransfer,
)
from vtkit.system.errors import DataError
from vtkit.transfer.combination import back_off, with_pieces, with_reassigned
from vtkit.transfer.mixture import Mixture, with_fallback
from vtkit.transfer.surgery.bias import (
    copy_overlap_bias,
    has_text,
    log_frequency,
    masked,
    model_prior,
    ordinary_rows,
    zscore_bias,
)
from vtkit.vocabulary.pair import VocabularyPair

Texts = Callable[[], Iterator[str]]  # opens the stream of target texts that a method trains on

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
            bias = copy_overlap_bias(pair.overlap, source_bias, ordinary_rows(pair.source, source_bias))
        case "zero":
            bias = np.zeros(pair.overlap.target_size, dtype=np.float32)
        case "zscore":
            name = section.bias.model
            prior = model_prior(name, pair.target) if name is not None else log_frequency(_counted(counts))
            ordinary = has_text(pair.target, len(prior)) & (mixture.methods != "masked")
            bias = zscore_bias(source_bias, prior, ordinary_rows(pair.source, source_bias), ordinary)
        case _:
            assert_never(section.bias.method)
    return masked(bias, mixture)


def _counted(counts: Counts) -> NDArray[np.integer]:
    token_counts = counts()
    if token_counts is None:
        raise DataError(
            '{bias.method} = "zscore" counts the target tokens in text, and there is none. Give {bias.corpus} or '
            '{bias.model}, or set {bias.method} to "mixture".',
            "bias.method",
            "bias.corpus",
            "bias.model",
        )
    return token_counts


def _mixture(settings: AnyMethod, section: TransferSection, pair: VocabularyPair, texts: Texts, seed: int) -> Mixture:
    """One method's mixture, tokens without evidence as its authors have them."""
    match settings:
        case AutoTransfer():
            from vtkit.transfer.methods.auto import auto_mixture

            both: tuple[AnyMethod, ...] = (
                section.settings_of(ParallelTransfer),
                section.settings_of(SembridgeTransfer),
            )
            given = [method for method in both if not method.missing]
            return auto_mixture(pair, [(method.name, _mixture(method, section, pair, texts, seed)) for method in given])
        case ParallelTransfer():
            from vtkit.transfer.methods.bitext import pairs_in, read_bitext
            from vtkit.transfer.methods.parallel import translation_mixture

            bitext = read_bitext(pair, pairs_in(settings.files, pair.source.tokenizer, pair.target.tokenizer))
            if settings.estimator == "cooccurrence":
                from vtkit.transfer.methods.cooccurrence import cooccurrence_mixture

                return cooccurrence_mixture(bitext, pair, min_probability=settings.min_probability)
            return translation_mixture(bitext, pair, min_probability=settings.min_probability)
        case SembridgeTransfer():
            from vtkit.transfer.embedders import embed
            from vtkit.transfer.methods.sembridge import similarity_mixture

            assert settings.embedder is not None
            return similarity_mixture(pair, partial(embed, name=settings.embedder), settings.alpha)
        case SemanticTransfer():
            from vtkit.transfer.methods.semantic import load_table, table_mixture

            name = settings.target_embeddings
            assert name is not None
            return table_mixture(pair, load_table(name), settings.alpha, name)
        case FocusTransfer():
            from vtkit.transfer.methods.focus import focus_mixture

            return focus_mixture(
                pair,
                vectors=None if settings.vectors is None else Path(settings.vectors),
                texts=texts() if settings.vectors is None else None,
                seed=seed,
            )
        case OfaTransfer():
            from vtkit.transfer.methods.ofa import ofa_mixture

            assert settings.vectors is not None
            return ofa_mixture(pair, Path(settings.vectors))
        case WechselTransfer():
            from vtkit.transfer.methods.wechsel import wechsel_mixture

            assert settings.vectors is not None
            assert settings.source_vectors is not None
            return wechsel_mixture(
                pair,
                vectors=Path(settings.vectors),
                source_vectors=Path(settings.source_vectors),
                dictionary=[Path(name) for name in settings.dictionary],
            )
        case SubtokenTransfer():
            from vtkit.transfer.methods.baselines import subtoken_mixture

            return subtoken_mixture(pair)
        case RandomAllTransfer():
            from vtkit.transfer.methods.baselines import random_all_mixture

            return random_all_mixture(pair)
        case MeanTransfer() | OverlapMeanTransfer() | RandomTransfer() | UnivariateTransfer() | MultivariateTransfer():
            from vtkit.transfer.methods.baselines import baseline_mixture

            return baseline_mixture(pair, cast(Fallback, settings.name))
        case _:
            assert_never(settings)

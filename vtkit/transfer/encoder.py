"""An encoder moved onto another vocabulary: mixture, bias, graft and output casing, one after another."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from transformers import PreTrainedTokenizerFast

from vtkit.encoder.families import mlm_head
from vtkit.encoder.folding import apply_output_casing
from vtkit.settings.casing import CasingSection
from vtkit.settings.transfer import TransferSection
from vtkit.system import console
from vtkit.transfer.dispatch import Counts, bias_of, mixture_of
from vtkit.transfer.mixture import Mixture, Texts
from vtkit.transfer.result import MovedRows, Probed, TransferResult, sample_neighbours
from vtkit.transfer.surgery.graft import graft_encoder
from vtkit.transfer.surgery.head_only import graft_encoder_head
from vtkit.vocabulary.pair import VocabularyPair, pair_of

SAMPLED_NEIGHBOURS = 40  # new tokens whose sources are shown


@dataclass(frozen=True, eq=False)
class Transfer:
    """An encoder on its new vocabulary, and what its rows were made of."""

    encoder: SparseEncoder
    pair: VocabularyPair
    mixture: Mixture
    bias: NDArray[np.float32]  # of the decoder, before output casing masks any, (target vocabulary,)
    masked_dimensions: int  # dimensions that output casing keeps from ever being active
    seed: int
    probed: tuple[Probed, ...] = ()  # what `auto` chose from

    def result(self) -> TransferResult:
        """Sizes, overlap by class, tokens by method, and the sources of a sample of new tokens."""
        moved = MovedRows(
            source_size=len(self.pair.source),
            overlap={kind: count for kind, count in self.pair.overlap.counts.items() if kind != "new"},
            overlap_share=self.pair.overlap.share,
            methods=self.mixture.counts(),
            neighbours=sample_neighbours(self.mixture, self.pair, SAMPLED_NEIGHBOURS, self.seed),
            probed=self.probed,
        )
        return TransferResult(len(self.pair.target), self.masked_dimensions, moved)


def move_encoder(
    source: SparseEncoder,
    target: PreTrainedTokenizerFast,
    section: TransferSection,
    *,
    counts: Counts,
    method_texts: Texts,
    casing: CasingSection,
    seed: int,
    work: Path,
) -> Transfer:
    """``source``, which is not changed, on the vocabulary of ``target``, as [transfer] asks for.

    Args:
        target: its cased tokens have been renamed where the casing says so.
        counts: how often each target token occurs in target text; asked for where bias or reassigned rows need them.
        method_texts: texts that word vectors are trained on; opened where a method needs them.
        casing: its output part; :mod:`vtkit.vocabulary.casing` has the rest.
        work: a folder that the model is written to on its way, to be removed afterwards.
    """

    rows = mlm_head(source[0].auto_model).decoder.out_features
    pair = pair_of(source.tokenizer, target, section.overlap, rows)
    if pair.source.tokens == pair.target.tokens:
        console.warn(
            "The target vocabulary is the source's own, so there is nothing to transfer: its rows are copied, and only "
            'the bias is set. vocabulary.kind "source" keeps the bias too. If another vocabulary was meant, name it in '
            "vocabulary.tokenizer."
        )
    mixture = mixture_of(section, pair, method_texts, counts, seed)
    graft = graft_encoder if section.scope == "full" else graft_encoder_head
    encoder = graft(
        source, target, mixture, lambda biases: bias_of(section, pair, mixture, biases, counts), work, seed=seed
    )
    bias = mlm_head(encoder[0].auto_model).decoder.bias.detach().numpy()[: len(target)].copy()
    masked = apply_output_casing(encoder, casing.output)
    return Transfer(encoder, pair, mixture, bias, masked, seed)

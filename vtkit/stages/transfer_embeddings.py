"""Stage ``transfer``: the source encoder with the rows and the bias of the new vocabulary; or a new encoder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoTokenizer

from vtkit import console
from vtkit.encoder.checkpoint import assemble, load_encoder, save_encoder, scratch_model
from vtkit.encoder.families import mlm_head
from vtkit.encoder.folding import apply_output_casing
from vtkit.encoder.model_folder import SAFELY
from vtkit.recipe.sections import Recipe
from vtkit.stages.texts import bias_corpus, draw, focus_corpus, read_texts
from vtkit.transfer.bias import count_tokens
from vtkit.transfer.gates import Moved, encoder_gates, show_gates, stop_at_hopeless, vocabulary_gates
from vtkit.transfer.graft import graft_encoder
from vtkit.transfer.head_only import graft_encoder_head
from vtkit.transfer.methods import bias_of, mixture_of
from vtkit.transfer.provenance import PROVENANCE, origins, sample_neighbours, write_provenance
from vtkit.vocabulary.alignment import align, tokens
from vtkit.vocabulary.casing import map_cased

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SAMPLED_NEIGHBOURS = 40
"""New tokens shown in the report."""

PROBED_TEXTS = 10_000
"""The gates' probe texts are drawn from so many of the first texts of the corpus."""


def transfer_embeddings(recipe: Recipe, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Fill ``out/model`` with the source encoder on the new vocabulary and ``out/provenance.parquet`` with
    one row for each token: the source tokens it was made from, their weights, and its bias.

    Reads ``inputs["vocabulary"]/tokenizer`` and the source, ``inputs["source"]/model`` where that is another recipe.
    """
    target = AutoTokenizer.from_pretrained(inputs["vocabulary"] / "tokenizer", **SAFELY)
    if recipe.casing.output == "map":
        target = map_cased(target).tokenizer
    torch.manual_seed(recipe.recipe.seed)
    if recipe.source.scratch is not None:
        return _scratch(recipe, target, out)

    section = recipe.transfer
    assert section is not None
    source = load_encoder(str(inputs["source"] / "model") if "source" in inputs else str(recipe.source.model))
    alignment = align(source.tokenizer, target, section.overlap)
    if tokens(source.tokenizer) == tokens(target):
        console.warn(
            "The target vocabulary is the source's own, so there is nothing to transfer: its rows are copied, and only "
            "the bias is set. Name another vocabulary.tokenizer if another was meant."
        )
    probes = draw(islice(read_texts(bias_corpus(recipe), recipe), PROBED_TEXTS), recipe.gates.texts, recipe.recipe.seed)
    gates = vocabulary_gates(recipe.gates, source.tokenizer, target, alignment, probes)
    stop_at_hopeless(gates)

    @cache
    def counts() -> NDArray[np.int64] | None:
        corpus = bias_corpus(recipe)
        return count_tokens(target, read_texts(corpus, recipe)) if corpus else None

    mixture = mixture_of(
        section,
        source.tokenizer,
        target,
        alignment,
        mlm_head(source[0].auto_model).decoder.out_features,
        lambda: read_texts(focus_corpus(recipe), recipe),
        counts,
        recipe.recipe.seed,
    )
    work = out / "work"
    graft = graft_encoder if section.scope == "full" else graft_encoder_head
    encoder = graft(
        source,
        target,
        mixture,
        lambda biases: bias_of(section, source.tokenizer, target, alignment, mixture, biases, counts),
        work,
        seed=recipe.recipe.seed,
        pad_to=section.pad_to,
    )
    bias = mlm_head(encoder[0].auto_model).decoder.bias.detach().numpy()[: len(target)].copy()
    masked = apply_output_casing(encoder, recipe.casing.output, recipe.casing.fold)
    gates += encoder_gates(
        recipe.gates,
        "transfer",
        encoder,
        probes,
        Moved(source, alignment, mixture, section.bias.method),
        more_follows=recipe.adapt is not None or recipe.calibrate is not None,
    )
    show_gates(gates)
    stop_at_hopeless(gates)
    save_encoder(encoder, out / "model")
    shutil.rmtree(work)
    write_provenance(out / PROVENANCE, origins(mixture, bias, source.tokenizer, target))
    return {
        "source_size": len(source.tokenizer),
        "target_size": len(target),
        "overlap": {kind: count for kind, count in alignment.counts.items() if kind != "new"},
        "overlap_share": alignment.share,
        "masked_dimensions": masked,
        "methods": mixture.counts(),
        "neighbours": sample_neighbours(mixture, source.tokenizer, target, SAMPLED_NEIGHBOURS, recipe.recipe.seed),
        "gates": [gate.facts() for gate in gates],
    }


def _scratch(recipe: Recipe, target: PreTrainedTokenizerFast, out: Path) -> dict[str, Any]:
    """A new encoder without any training behind it, in ``out/model``."""
    assert recipe.source.scratch is not None
    model = scratch_model(recipe.source.scratch, target)
    encoder = assemble(model, target, out / "work")
    masked = apply_output_casing(encoder, recipe.casing.output, recipe.casing.fold)
    save_encoder(encoder, out / "model")
    shutil.rmtree(out / "work")
    parameters = sum(p.numel() for p in model.parameters())
    return {"target_size": len(target), "parameters": parameters, "masked_dimensions": masked}

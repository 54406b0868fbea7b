"""Stage ``transfer``: the source encoder with the rows and the bias of the new vocabulary; or a new encoder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from vtkit import console
from vtkit.encoder.checkpoint import assemble, load_encoder, save_encoder, scratch_model
from vtkit.encoder.families import mlm_head
from vtkit.encoder.folding import apply_output_casing
from vtkit.errors import DataError
from vtkit.recipe.sections import Recipe
from vtkit.stages.texts import bias_corpus, focus_corpus, read_texts
from vtkit.transfer.graft import graft
from vtkit.transfer.methods import bias_of, mixture_of
from vtkit.transfer.provenance import PROVENANCE, origins, sample_neighbours, write_provenance
from vtkit.vocabulary.alignment import align, tokens
from vtkit.vocabulary.casing import map_cased

SAMPLED_NEIGHBOURS = 40
"""New tokens shown in the report."""


def transfer_embeddings(recipe: Recipe, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Fill ``out/model`` with the source encoder on the new vocabulary and ``out/provenance.parquet`` with
    one row for each token: the source tokens it was made from, their weights, and its bias.

    Reads ``inputs["vocabulary"]/tokenizer`` and the source, ``inputs["source"]/model`` where that is another recipe.
    """
    target = AutoTokenizer.from_pretrained(inputs["vocabulary"] / "tokenizer", local_files_only=True)
    if recipe.casing.output == "map":
        target = map_cased(target).tokenizer
    torch.manual_seed(recipe.recipe.seed)
    work = out / "work"
    if recipe.source.scratch is not None:
        model = scratch_model(recipe.source.scratch, target)
        encoder = assemble(model, target, work)
        masked = apply_output_casing(encoder, recipe.casing.output, recipe.casing.fold)
        save_encoder(encoder, out / "model")
        shutil.rmtree(work)
        parameters = sum(p.numel() for p in model.parameters())
        return {"target_size": len(target), "parameters": parameters, "masked_dimensions": masked}

    section = recipe.transfer
    assert section is not None
    if section.bias.method == "zscore" and section.bias.model is None and not bias_corpus(recipe):
        raise DataError(
            "transfer.bias.method zscore counts the target tokens on text, and the recipe names none. Give "
            'transfer.bias.corpus or transfer.bias.model, or set transfer.bias.method to "mixture".'
        )
    source = load_encoder(str(inputs["source"] / "model") if "source" in inputs else str(recipe.source.model))
    head = mlm_head(source[0].auto_model)
    if head.decoder.bias is None:
        raise DataError(
            f"{recipe.source.model}: its masked-language-model head has no bias, which carries the token priors "
            "and the calibration. For ModernBERT, set decoder_bias to true in the source's config.json."
        )
    alignment = align(source.tokenizer, target, section.overlap)
    if tokens(source.tokenizer) == tokens(target):
        console.warn(
            "The target vocabulary is the source's own, so there is nothing to transfer: its rows are copied, and only "
            "the bias is set. Name another vocabulary.tokenizer if another was meant."
        )
    mixture = mixture_of(
        section,
        source.tokenizer,
        target,
        alignment,
        head.embeddings.num_embeddings,
        lambda: read_texts(focus_corpus(recipe), recipe),
        recipe.recipe.seed,
    )
    source_bias = head.decoder.bias.detach().numpy()
    rows = mixture.rows(head.embeddings.weight.detach().numpy(), seed=recipe.recipe.seed)
    output_rows = None if head.tied else mixture.rows(head.decoder.weight.detach().numpy(), seed=recipe.recipe.seed)
    bias = bias_of(section, target, alignment, mixture, source_bias, lambda: read_texts(bias_corpus(recipe), recipe))

    pooling = source[1]
    grafted = graft(
        source[0].auto_model,
        target,
        torch.from_numpy(rows),
        torch.from_numpy(bias),
        None if output_rows is None else torch.from_numpy(output_rows),
    )
    encoder = assemble(grafted, target, work, pooling.pooling_strategy, pooling.activation_function)
    masked = apply_output_casing(encoder, recipe.casing.output, recipe.casing.fold)
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
    }

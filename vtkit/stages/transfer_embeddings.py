"""Stage ``transfer``: the source encoder with the rows and the bias of the new vocabulary; or a new encoder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, assert_never

import numpy as np
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from vtkit.encoder.checkpoint import assemble, load_encoder, save_encoder, scratch_model
from vtkit.encoder.families import mlm_head
from vtkit.errors import DataError
from vtkit.recipe.sections import Recipe, TransferSection
from vtkit.stages.texts import bias_corpus, read_texts
from vtkit.transfer.bias import count_tokens, log_frequency, zscore_bias
from vtkit.transfer.graft import graft
from vtkit.transfer.mixture import Mixture
from vtkit.transfer.provenance import sample_neighbours, write_provenance
from vtkit.vocabulary.alignment import Alignment, align

SAMPLED_NEIGHBOURS = 40
"""New tokens shown in the report."""


def transfer_embeddings(recipe: Recipe, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Fill ``out/model`` with the source encoder on the new vocabulary and ``out/provenance.parquet`` with
    one row for each new token: the source tokens it was made from, and their weights.

    Reads ``inputs["vocabulary"]/tokenizer`` and the source, ``inputs["source"]/model`` where that is another recipe.
    """
    target = AutoTokenizer.from_pretrained(inputs["vocabulary"] / "tokenizer", local_files_only=True)
    torch.manual_seed(recipe.recipe.seed)
    work = out / "work"
    if recipe.source.scratch is not None:
        model = scratch_model(recipe.source.scratch, target)
        save_encoder(assemble(model, target, work), out / "model")
        shutil.rmtree(work)
        return {"target_size": len(target), "parameters": sum(p.numel() for p in model.parameters())}

    section = recipe.transfer
    assert section is not None
    if section.bias.method == "zscore" and not bias_corpus(recipe):
        raise DataError(
            "transfer.bias.method zscore counts the target tokens on text, and the recipe names none. Give "
            'transfer.bias.corpus, or set transfer.bias.method to "mixture".'
        )
    source = load_encoder(str(inputs["source"] / "model") if "source" in inputs else str(recipe.source.model))
    head = mlm_head(source[0].auto_model)
    if head.decoder.bias is None:
        raise DataError(
            f"{recipe.source.model}: its masked-language-model head has no bias, which carries the token priors "
            "and the calibration. For ModernBERT, set decoder_bias to true in the source's config.json."
        )
    alignment = align(source.tokenizer, target, section.overlap)
    mixture = _mixture(section, source.tokenizer, target, alignment, head.embeddings.num_embeddings)
    source_bias = head.decoder.bias.detach().numpy()
    rows = mixture.rows(head.embeddings.weight.detach().numpy(), seed=recipe.recipe.seed)
    output_rows = None if head.tied else mixture.rows(head.decoder.weight.detach().numpy(), seed=recipe.recipe.seed)
    bias = _bias(recipe, section, target, mixture, source_bias)

    pooling = source[1]
    grafted = graft(
        source[0].auto_model,
        target,
        torch.from_numpy(rows),
        torch.from_numpy(bias),
        None if output_rows is None else torch.from_numpy(output_rows),
    )
    encoder = assemble(grafted, target, work, pooling.pooling_strategy, pooling.activation_function)
    save_encoder(encoder, out / "model")
    shutil.rmtree(work)
    write_provenance(out / "provenance.parquet", mixture, source.tokenizer, target)
    return {
        "source_size": len(source.tokenizer),
        "target_size": len(target),
        "overlap": {kind: count for kind, count in alignment.counts.items() if kind != "new"},
        "overlap_share": alignment.share,
        "methods": mixture.counts(),
        "neighbours": sample_neighbours(mixture, source.tokenizer, target, SAMPLED_NEIGHBOURS, recipe.recipe.seed),
    }


def _mixture(
    section: TransferSection,
    source: PreTrainedTokenizerFast,
    target: PreTrainedTokenizerFast,
    alignment: Alignment,
    source_rows: int,
) -> Mixture:
    """The transfer method's weights; ``source_rows`` may exceed the source tokenizer's size (a padded vocabulary)."""
    match section.method:
        case "parallel":
            from vtkit.transfer.parallel import parallel_mixture

            return parallel_mixture(
                section.parallel, source, target, alignment, source_rows, section.iterations, section.min_probability
            )
        case "sembridge":
            from vtkit.transfer.sembridge import sembridge_mixture

            assert section.embedder is not None
            return sembridge_mixture(section.embedder, source, target, alignment, source_rows, section.alpha)
        case "subtoken":
            from vtkit.transfer.subtoken import subtoken_mixture

            return subtoken_mixture(source, target, alignment, source_rows)
        case "mean":
            from vtkit.transfer.mean import mean_mixture

            return mean_mixture(alignment, source_rows)
        case "random":
            from vtkit.transfer.random import random_mixture

            return random_mixture(alignment, source_rows)
        case _:
            assert_never(section.method)


def _bias(
    recipe: Recipe, section: TransferSection, target: PreTrainedTokenizerFast, mixture: Mixture, source: np.ndarray
) -> np.ndarray:
    match section.bias.method:
        case "mixture":
            return mixture.bias(source)
        case "zscore":
            counts = count_tokens(target, read_texts(bias_corpus(recipe), recipe))
            return zscore_bias(source, log_frequency(counts))
        case _:
            assert_never(section.bias.method)

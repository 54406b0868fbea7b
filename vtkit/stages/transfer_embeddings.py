"""Stage ``transfer``: the source encoder with the rows and the bias of the new vocabulary; or a new encoder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any, assert_never

import numpy as np
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from vtkit.data.parallel import read_pairs
from vtkit.encoder.checkpoint import assemble, load_encoder, save_encoder, scratch_model
from vtkit.encoder.families import mlm_head
from vtkit.errors import DataError
from vtkit.recipe.sections import Recipe, TransferSection
from vtkit.stages.texts import bias_corpus, read_texts
from vtkit.transfer.bias import count_tokens, log_frequency, zscore_bias
from vtkit.transfer.graft import graft
from vtkit.transfer.mixture import Mixture
from vtkit.transfer.provenance import Origin, origins, write_provenance
from vtkit.vocabulary.alignment import Alignment, align, tokens

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
    source = load_encoder(str(inputs["source"] / "model") if "source" in inputs else str(recipe.source.model))
    head = mlm_head(source[0].auto_model)
    if head.decoder.bias is None:
        raise DataError(
            f"{recipe.source.model}: its masked-language-model head has no bias, which carries the token priors and the "
            "calibration. For ModernBERT, set decoder_bias to true in the source's config.json."
        )
    alignment = align(source.tokenizer, target, section.overlap)
    mixture = _mixture(section, source.tokenizer, target, alignment)
    # a source may have more rows than its tokenizer has tokens: the padding of its vocabulary
    embeddings, output, source_bias = (
        tensor.detach().numpy()[: alignment.source_size]
        for tensor in (head.embeddings.weight, head.decoder.weight, head.decoder.bias)
    )
    rows = mixture.rows(embeddings, seed=recipe.recipe.seed)
    output_rows = None if head.tied else mixture.rows(output, seed=recipe.recipe.seed)
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
    names = tokens(target), tokens(source.tokenizer)
    write_provenance(out / "provenance.parquet", mixture, *names)
    return {
        "source_size": len(source.tokenizer),
        "target_size": len(target),
        "overlap": {kind: count for kind, count in alignment.counts().items() if kind != "new"},
        "overlap_share": alignment.share,
        "methods": mixture.counts(),
        "neighbours": _neighbours(list(origins(mixture, *names)), recipe.recipe.seed),
    }


def _mixture(
    section: TransferSection, source: PreTrainedTokenizerFast, target: PreTrainedTokenizerFast, alignment: Alignment
) -> Mixture:
    match section.method:
        case "parallel":
            from vtkit.transfer.parallel import parallel_mixture

            pairs = chain.from_iterable(read_pairs(path) for path in section.parallel)
            return parallel_mixture(source, target, alignment, pairs, section.iterations, section.min_probability)
        case "sembridge":
            from vtkit.transfer.sembridge import load_embedder, sembridge_mixture

            assert section.embedder is not None
            return sembridge_mixture(source, target, alignment, load_embedder(section.embedder), section.alpha)
        case "subtoken":
            from vtkit.transfer.subtoken import subtoken_mixture

            return subtoken_mixture(source, target, alignment)
        case "mean":
            from vtkit.transfer.mean import mean_mixture

            return mean_mixture(alignment)
        case "random":
            from vtkit.transfer.random import random_mixture

            return random_mixture(alignment)
        case _:
            assert_never(section.method)


def _bias(
    recipe: Recipe, section: TransferSection, target: PreTrainedTokenizerFast, mixture: Mixture, source: np.ndarray
) -> np.ndarray:
    match section.bias.method:
        case "mixture":
            return mixture.bias(source)
        case "zscore":
            counts = count_tokens(target, read_texts(bias_corpus(recipe), "train"))
            return zscore_bias(source, log_frequency(counts))
        case _:
            assert_never(section.bias.method)


def _neighbours(made: list[Origin], seed: int) -> list[dict[str, Any]]:
    """Some new tokens with what they were made from, every method that was used among them, for the report."""
    by_method: dict[str, list[Origin]] = {}
    for origin in made:
        by_method.setdefault(origin.method, []).append(origin)
    generator = np.random.default_rng(seed)
    sample = []
    for origins_of_method in by_method.values():
        share = len(origins_of_method) / len(made)
        wanted = min(len(origins_of_method), max(3, round(share * SAMPLED_NEIGHBOURS)))
        chosen = generator.choice(len(origins_of_method), size=wanted, replace=False)
        sample += [origins_of_method[i] for i in sorted(chosen.tolist())]
    return [
        {
            "token": origin.token,
            "method": origin.method,
            "sources": [[name, weight] for name, weight in zip(origin.sources, origin.weights, strict=True)][:6],
        }
        for origin in sample
    ]

"""Stage ``transfer``: the source encoder with the rows and the bias of the new vocabulary; or a new encoder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtkit import console
from vtkit.recipe.sections import Recipe
from vtkit.stages.stage import Corpus, Stage, View
from vtkit.stages.texts import bias_corpus, focus_corpus, read_texts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from sentence_transformers import SparseEncoder
    from transformers import PreTrainedTokenizerFast

SAMPLED_NEIGHBOURS = 40
"""New tokens shown in the report."""


def transfer_embeddings(recipe: View, inputs: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """Fill ``out/model`` with the source encoder on the new vocabulary and ``out/provenance.parquet`` with
    one row for each token: the source tokens it was made from, their weights, and its bias.

    Reads ``inputs["vocabulary"]/tokenizer`` and the source, ``inputs["source"]/model`` where that is another recipe.
    """
    import torch

    from vtkit.encoder.checkpoint import save_encoder
    from vtkit.encoder.families import mlm_head
    from vtkit.encoder.folding import apply_output_casing
    from vtkit.transfer.dispatch import bias_of, mixture_of
    from vtkit.transfer.provenance import PROVENANCE, origins, sample_neighbours, write_provenance
    from vtkit.transfer.surgery.bias import count_tokens
    from vtkit.transfer.surgery.graft import graft_encoder
    from vtkit.transfer.surgery.head_only import graft_encoder_head
    from vtkit.vocabulary.pair import pair_of

    target = target_tokenizer(recipe, inputs)
    torch.manual_seed(recipe.recipe.seed)
    if recipe.source.scratch is not None:
        return _scratch(recipe, target, out)

    section = recipe.transfer
    assert section is not None
    source = source_encoder(recipe, inputs)
    rows = mlm_head(source[0].auto_model).decoder.out_features
    pair = pair_of(source.tokenizer, target, section.overlap, rows)
    if pair.source.tokens == pair.target.tokens:
        console.warn(
            "The target vocabulary is the source's own, so there is nothing to transfer: its rows are copied, and only "
            "the bias is set. Name another vocabulary.tokenizer if another was meant."
        )

    @cache
    def counts() -> NDArray[np.int64] | None:
        corpus = recipe.corpora("transfer.bias.corpus")
        return count_tokens(target, read_texts(corpus)) if corpus else None

    mixture = mixture_of(
        section,
        pair,
        lambda: read_texts(recipe.corpora("transfer.corpus")),
        counts,
        recipe.recipe.seed,
    )
    work = out / "work"
    graft = graft_encoder if section.scope == "full" else graft_encoder_head
    encoder = graft(
        source,
        target,
        mixture,
        lambda biases: bias_of(section, pair, mixture, biases, counts),
        work,
        seed=recipe.recipe.seed,
        pad_to=section.pad_to,
    )
    bias = mlm_head(encoder[0].auto_model).decoder.bias.detach().numpy()[: len(target)].copy()
    masked = apply_output_casing(encoder, recipe.casing.output, recipe.casing.fold)
    save_encoder(encoder, out / "model")
    shutil.rmtree(work)
    write_provenance(out / PROVENANCE, origins(mixture, bias, pair))
    return {
        "source_size": len(source.tokenizer),
        "target_size": len(target),
        "overlap": {kind: count for kind, count in pair.overlap.counts.items() if kind != "new"},
        "overlap_share": pair.overlap.share,
        "masked_dimensions": masked,
        "methods": mixture.counts(),
        "rank": mixture.rank,
        "neighbours": sample_neighbours(mixture, pair, SAMPLED_NEIGHBOURS, recipe.recipe.seed),
    }


def target_tokenizer(recipe: View, inputs: Mapping[str, Path]) -> PreTrainedTokenizerFast:
    """The vocabulary that is moved to, cased tokens renamed where ``casing.output`` says so."""
    from transformers import AutoTokenizer

    from vtkit.encoder.model_folder import SAFELY
    from vtkit.vocabulary.casing import map_cased

    target: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(inputs["vocabulary"] / "tokenizer", **SAFELY)
    return map_cased(target).tokenizer if recipe.casing.output == "map" else target


def source_encoder(recipe: View, inputs: Mapping[str, Path]) -> SparseEncoder:
    """The encoder that is moved: another recipe's, or the one that ``source.model`` names."""
    from vtkit.encoder.checkpoint import load_encoder

    return load_encoder(str(inputs["source"] / "model") if "source" in inputs else str(recipe.source.model))


def _scratch(recipe: View, target: PreTrainedTokenizerFast, out: Path) -> dict[str, Any]:
    """A new encoder without any training behind it, in ``out/model``."""
    from vtkit.encoder.checkpoint import assemble, save_encoder
    from vtkit.encoder.folding import apply_output_casing
    from vtkit.encoder.scratch import scratch_model

    assert recipe.source.scratch is not None
    model = scratch_model(recipe.source.scratch, target)
    encoder = assemble(model, target, out / "work")
    masked = apply_output_casing(encoder, recipe.casing.output, recipe.casing.fold)
    save_encoder(encoder, out / "model")
    shutil.rmtree(out / "work")
    parameters = sum(p.numel() for p in model.parameters())
    return {"target_size": len(target), "parameters": parameters, "masked_dimensions": masked}


def _counted(recipe: Recipe) -> tuple[Corpus, ...]:
    """Texts whose tokens are counted, where the bias or reassigned rows need that."""
    return bias_corpus(recipe) if recipe.transfer is not None and recipe.transfer.counts_tokens else ()


def _trained_on(recipe: Recipe) -> tuple[Corpus, ...]:
    """Texts that word vectors are trained on, where a method has none of its own."""
    section = recipe.transfer
    return focus_corpus(recipe) if section and "focus" in section.methods and section.vectors is None else ()


TRANSFER = Stage(
    "transfer",
    version=7,
    reads=("source", "transfer", "casing.output", "casing.fold"),
    corpora={"transfer.bias.corpus": _counted, "transfer.corpus": _trained_on},
    function=transfer_embeddings,
    label="after transfer",
)

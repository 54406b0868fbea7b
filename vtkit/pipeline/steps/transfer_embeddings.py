"""Stage ``transfer``: the source encoder with the rows and the bias of the new vocabulary, or as it is on its own,
whole or trimmed; or a new encoder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.data.sampling import drawn
from vtkit.pipeline.stage import Corpus, Stage, View
from vtkit.pipeline.steps.probed_transfer import transfer
from vtkit.pipeline.steps.source import source_encoder
from vtkit.pipeline.steps.texts import bias_corpus, head_corpus, read_texts
from vtkit.pipeline.store import CHECKPOINTS
from vtkit.settings.recipe import Recipe
from vtkit.settings.source import HEAD_STEPS
from vtkit.settings.transfer import ParallelTransfer
from vtkit.system import console
from vtkit.transfer.result import TransferResult

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def transfer_embeddings(recipe: View, inputs: Mapping[str, Path], out: Path) -> TransferResult:
    """Fill ``out/model`` with the source encoder on the new vocabulary and, where that is not its own,
    ``out/provenance.parquet`` with one row for each token: the source tokens it was made from, their weights, its bias;
    with parallel text, ``out/bridge`` with the translations that queries in the source's language go by.

    Reads ``inputs["vocabulary"]/tokenizer`` and the source, ``inputs["source"]/model`` where that is another recipe.
    """
    import torch

    from vtkit.encoder.checkpoint import save_encoder
    from vtkit.encoder.kinds import kind_of, of_kind
    from vtkit.transfer.provenance import PROVENANCE, origins, write_provenance
    from vtkit.transfer.query_bridge import FOLDER, write_bridge

    target = target_tokenizer(recipe, inputs)
    torch.manual_seed(recipe.recipe.seed)
    section = recipe.transfer
    if section is None:
        return _unmoved(recipe, inputs, target, out)

    moved = transfer(recipe, section, source_encoder(recipe, inputs), target, out / "work")
    encoder = of_kind(moved.encoder, recipe.source.kind)
    save_encoder(encoder, out / "model")
    shutil.rmtree(out / "work")
    write_provenance(out / PROVENANCE, origins(moved.mixture, moved.bias, moved.pair))
    files = [file for used in section.used if isinstance(used, ParallelTransfer) for file in used.files]
    if files:
        write_bridge(out / FOLDER, files, moved.pair)
    return replace(moved.result(), kind=kind_of(encoder))


def target_tokenizer(recipe: View, inputs: Mapping[str, Path]) -> PreTrainedTokenizerFast:
    """The vocabulary that is moved to, cased tokens renamed where ``casing.output`` says so."""
    from transformers import AutoTokenizer

    from vtkit.encoder.model_folder import SAFELY
    from vtkit.vocabulary.casing import map_cased

    target: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(inputs["vocabulary"] / "tokenizer", **SAFELY)
    return map_cased(target)[0] if recipe.casing.output == "map" else target


def _unmoved(recipe: View, inputs: Mapping[str, Path], target: PreTrainedTokenizerFast, out: Path) -> TransferResult:
    """The source as it is, on its own vocabulary or on what ``target`` keeps of it, in ``out/model``; or a new encoder
    without any training behind it."""
    from vtkit.encoder.checkpoint import as_sparse_encoder, load_with_new_head, save_encoder
    from vtkit.encoder.dense import token_projection
    from vtkit.encoder.fitted_head import fit_head
    from vtkit.encoder.folding import apply_output_casing
    from vtkit.encoder.kinds import kind_of, of_kind
    from vtkit.encoder.scratch import scratch_model
    from vtkit.transfer.latent_units import fit_units
    from vtkit.transfer.surgery.graft import trim_encoder

    source = recipe.source
    if source.scratch is not None:
        encoder = as_sparse_encoder(scratch_model(source.scratch, target), target, out / "work")
        shutil.rmtree(out / "work")
    elif source.fitted:
        encoder = load_with_new_head(str(source.model), source.layers)
    else:
        encoder = source_encoder(recipe, inputs)
    before = parameters = sum(weight.numel() for weight in encoder.parameters())
    if len(target) < len(encoder.tokenizer):
        encoder = trim_encoder(encoder, target, out / "work")
        shutil.rmtree(out / "work", ignore_errors=True)
        parameters = sum(weight.numel() for weight in encoder.parameters())
        console.say(
            f"  {parameters / 1e6:.1f} of {before / 1e6:.1f} million parameters are kept, {4e-6 * parameters:,.0f} of "
            f"{4e-6 * before:,.0f} MB"
        )
    read = rebuilt = None
    if source.fitted:
        texts = drawn(read_texts(recipe.corpora("source.corpus")), source.texts, recipe.recipe.seed)
    seed, folder = recipe.recipe.seed, out / CHECKPOINTS
    activation = None if source.head is None else source.head.activation
    if source.units is not None:
        projection = token_projection(str(source.model), "source.model")
        encoder, rebuilt, read = fit_units(
            encoder, texts, source.units, seed, folder, activation, source.steps, projection
        )
        console.say(f"  {rebuilt.words}")
    elif activation is not None:
        read = fit_head(encoder, texts, activation, seed, folder, source.steps or HEAD_STEPS)
    if read is not None:
        console.say(
            f"  the head reads {read.read_back:.1%} of held-out tokens back ({read.by_ridge:.1%} in closed form)"
        )
    masked = apply_output_casing(encoder, recipe.casing.output)
    encoder = of_kind(encoder, source.kind)
    save_encoder(encoder, out / "model")
    result = TransferResult(len(target), masked, parameters=parameters, head=read, units=rebuilt, kind=kind_of(encoder))
    return result if source.scratch is not None else replace(result, source_parameters=before)


def _target_texts(recipe: Recipe) -> tuple[Corpus, ...]:
    """Texts of the target language, where the bias, reassigned rows or word vectors need them."""
    return bias_corpus(recipe) if recipe.transfer is not None and recipe.transfer.reads_texts else ()


def _draws(recipe: Recipe) -> bool:
    """Report whether the weights depend on random numbers: they are new, fitted to drawn texts, or made by a method
    that draws."""
    fitted = recipe.source.scratch is not None or recipe.source.fitted
    return fitted or (recipe.transfer is not None and recipe.transfer.draws)


TRANSFER = Stage(
    "transfer",
    version=24,
    reads=("source", "transfer", "casing.output"),
    corpora={"transfer.bias.corpus": _target_texts, "source.corpus": head_corpus},
    function=transfer_embeddings,
    draws=_draws,
    label="after transfer",
    publishes={"bridge": "bridge"},
)

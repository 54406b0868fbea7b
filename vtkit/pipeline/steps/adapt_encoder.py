"""Stage ``adapt``: training in the new vocabulary without judgements."""

from __future__ import annotations

import random
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.data.sampling import drawn
from vtkit.data.sequences import Lazy
from vtkit.pipeline.stage import Stage, View
from vtkit.pipeline.steps.source import starts_untrained
from vtkit.pipeline.steps.texts import adaptation_corpus, read_texts
from vtkit.pipeline.store import CHECKPOINTS
from vtkit.search.measures.masked_predictions import HeldOutPredictions
from vtkit.settings.recipe import Recipe
from vtkit.settings.transfer import ParallelTransfer
from vtkit.system import console
from vtkit.system.results import Result

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder

HELD_OUT = 200  # texts that masked-language-model training does not see, a tenth at most, to measure it on


@dataclass(frozen=True)
class AdaptResult(Result):
    """Results of adaptation: its data, and how the training went."""

    objectives: tuple[str, ...]
    reason: str  # why these, where the recipe left it open; else empty
    texts: int
    pairs: int
    curve: Mapping[str, Sequence[float]]  # `steps`, and the values of each curve at these
    held_out: HeldOutPredictions | None = None  # of masked tokens, where the objective predicts them


def adapt_encoder(recipe: View, inputs: Mapping[str, Path], out: Path) -> AdaptResult:
    """Fill ``out/model`` with the adapted encoder.

    Reads ``inputs["model"]/model``; for which tokens are new, ``inputs["transfer"]/provenance.parquet`` (a scratch
    source has none); for ``align`` the source encoder, ``inputs["source"]/model`` where that is another recipe's.
    """
    from vtkit.encoder.asymmetric import refuse_query_side
    from vtkit.encoder.checkpoint import load_encoder, save_encoder
    from vtkit.encoder.sides import rank_by_dot_products
    from vtkit.system import distributed
    from vtkit.training import reporting

    encoder = load_encoder(str(inputs["model"] / "model"))
    refuse_query_side(encoder, "adapt")
    objectives, reason = chosen_objectives(recipe)
    if reason:
        console.say(f"  objective {' and '.join(objectives)}: {reason}")
    if objectives in (("mlm",), ("sap",)):
        texts, curve, held_out = _predict(recipe, inputs, out, encoder, objectives[0])
        result = AdaptResult(objectives, reason, texts, 0, curve, held_out)
    else:
        rank_by_dot_products(encoder)
        result = AdaptResult(objectives, reason, *_train_vectors(recipe, inputs, out, encoder, objectives))
    if distributed.is_main():
        save_encoder(encoder, out / "model")
        reporting.keep(out / CHECKPOINTS, out)
    return result


def chosen_objectives(recipe: View) -> tuple[tuple[str, ...], str]:
    """The objectives of the recipe, with the reason if ``auto`` chose them."""
    section = recipe.adapt
    if section.objective != "auto":
        return section.objectives, ""
    if recipe.source.fitted:
        return ("distill",), "the source is a dense embedder, which teaches together with BM25"
    if starts_untrained(recipe):
        return ("mlm",), "the source is a masked language model, which has not learned to retrieve yet"
    if _pair_files(recipe):
        return ("align", "crop"), "there is parallel text, and a corpus"
    return ("crop",), "there is a corpus, and no parallel text"


def _pair_files(recipe: View) -> tuple[str, ...]:
    """Files of sentence pairs that the transfer learns from; none if it does not."""
    transfer = recipe.transfer
    if transfer is None or "transfer.parallel.files" not in transfer.settings_read:
        return ()
    return transfer.settings_of(ParallelTransfer).files


def _predict(
    recipe: View, inputs: Mapping[str, Path], out: Path, encoder: SparseEncoder, objective: str
) -> tuple[int, Mapping[str, Sequence[float]], HeldOutPredictions | None]:
    """Train by predicting masked tokens, or towards the vectors of a teacher; return the number of texts and what
    :func:`vtkit.training.mlm.adapt` does."""
    import numpy as np

    from vtkit.training.mlm import adapt
    from vtkit.training.resuming import TrainingRun
    from vtkit.transfer.provenance import PROVENANCE, read_new_ids

    section, seed = recipe.adapt, recipe.recipe.seed
    # the bias of a masked language model already holds the frequencies
    frequencies = objective == "mlm" and not starts_untrained(recipe)
    section = section.model_copy(update={"objective": objective})
    wanted = section.steps * section.batch_size
    texts = drawn(read_texts(recipe.corpora("adapt.corpus")), wanted + HELD_OUT, seed, out)
    texts, held_out = _held_out(texts, 0 if objective == "sap" else HELD_OUT, seed)
    new_ids = read_new_ids(inputs["transfer"] / PROVENANCE) if "transfer" in inputs else np.empty(0, dtype=np.int64)
    run = TrainingRun(seed=seed, folder=out / CHECKPOINTS, report_to=recipe.report.training)
    return len(texts), *adapt(encoder, texts, new_ids, section, run, held_out=held_out, frequencies=frequencies)


def _held_out(texts: Sequence[str], most: int, seed: int) -> tuple[Sequence[str], list[str]]:
    """The texts that are trained on, and up to ``most`` different ones that are held out. With all their copies, the
    held-out texts are a tenth at most."""
    copies, first = Counter[int](), dict[int, int]()
    for number, text in enumerate(texts):
        copies[hash(text)] += 1
        first.setdefault(hash(text), number)
    held_out, room = list[str](), len(texts) // 10
    for key in random.Random(seed).sample(list(first), len(first)):
        if copies[key] <= room and len(held_out) < most:
            held_out.append(texts[first[key]])
            room -= copies[key]
    unseen = set(held_out)
    left = array("q", (number for number, text in enumerate(texts) if text not in unseen))
    return Lazy(len(left), lambda number: texts[left[number]]), held_out


def _train_vectors(
    recipe: View, inputs: Mapping[str, Path], out: Path, encoder: SparseEncoder, objectives: Sequence[str]
) -> tuple[int, int, Mapping[str, Sequence[float]]]:
    """Train the sparse vectors themselves; return the number of texts and of pairs, and the curves."""
    from vtkit.data.synthetic_queries import SHORTEST_TEXT
    from vtkit.pipeline.steps.source import source_encoder
    from vtkit.training.adapt import QUERY_LENGTH, adapt_vectors
    from vtkit.training.query_generator import load_generator
    from vtkit.training.resuming import TrainingRun
    from vtkit.training.teachers import Teacher, load_teacher
    from vtkit.transfer.methods.bitext import pairs_in

    section, seed = recipe.adapt, recipe.recipe.seed
    most = section.steps * section.batch_size
    texts = drawn(read_texts(recipe.corpora("adapt.corpus")), most, seed, out)
    alignment, aligned = None, 0
    if "align" in objectives:
        source = source_encoder(recipe, inputs)
        distinct = list(dict.fromkeys(pairs_in(_pair_files(recipe), source.tokenizer, encoder.tokenizer)))
        sentences = [pair for pair in distinct if len(pair[0].split()) >= SHORTEST_TEXT]
        pairs = sentences if len(sentences) > 1 else distinct  # entries of dictionaries share no words with one another
        pairs = pairs or [(text, text) for text in dict.fromkeys(texts)]
        alignment, aligned = (source, pairs), len(pairs)
    teachers, generator = list[Teacher](), None
    if "distill" in objectives:
        if section.distill.queries not in ("crops", "openings"):
            generator = load_generator(section.distill.queries, section.max_length)
        embedder = () if not recipe.source.fitted else (str(recipe.source.model),)
        names, lengths = section.teachers or embedder, (QUERY_LENGTH, section.max_length)
        teachers = [load_teacher(name, lengths, "adapt.teachers") for name in names]
    language = recipe.recipe.language if "distill" in objectives else ""
    run = TrainingRun(seed=seed, folder=out / CHECKPOINTS, language=language, report_to=recipe.report.training)
    section = section.model_copy(update={"objective": objectives})
    curve = adapt_vectors(encoder, texts, section, run, alignment=alignment, teachers=teachers, generator=generator)
    return len(texts), aligned, curve


def adaptation_stage(recipe: Recipe) -> Stage[AdaptResult]:
    """The stage as the adaptation of ``recipe`` needs it: with the source, the transfer and the language where its
    objective may train the vectors."""
    section = recipe.adapt
    assert section is not None
    more: tuple[str, ...] = ()
    if section.objective == "mlm":
        more = ("source",)
    elif not set(section.objectives) <= {"mlm", "sap"}:
        more = ("source", "transfer")
    if "distill" in section.objectives or recipe.source.fitted:
        more = (*more, "recipe.language")
    return ADAPT.reading(*more)


ADAPT = Stage(
    "adapt",
    version=13,
    reads=("adapt", "report.training"),
    corpora={"adapt.corpus": adaptation_corpus},
    function=adapt_encoder,
    publishes={"curves": "curves/adapt"},
    trains=True,
    label="after adaptation",
    draws=True,
)

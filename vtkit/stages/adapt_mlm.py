"""Stage ``adapt``: masked-language-model training in the new vocabulary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vtkit.artifacts import CHECKPOINTS
from vtkit.results import Result
from vtkit.stages.stage import Stage, View
from vtkit.stages.texts import adaptation_corpus, draw, read_texts


@dataclass(frozen=True)
class AdaptResult(Result):
    """What adaptation was trained on, and how it went."""

    texts: int
    curve: Mapping[str, Sequence[float]]
    """``steps``, and the values of each curve at these."""


def adapt_mlm(recipe: View, inputs: Mapping[str, Path], out: Path) -> AdaptResult:
    """Fill ``out/model`` with the adapted encoder.

    Reads ``inputs["model"]/model`` and, for which tokens are new, ``inputs["transfer"]/provenance.parquet``
    (a scratch source has none).
    """
    import numpy as np

    from vtkit.encoder.asymmetric import refuse_query_side
    from vtkit.encoder.checkpoint import load_encoder, save_encoder
    from vtkit.training.mlm import adapt
    from vtkit.transfer.provenance import PROVENANCE, read_new_ids

    section, seed = recipe.adapt, recipe.recipe.seed
    assert section is not None
    encoder = load_encoder(str(inputs["model"] / "model"))
    texts = draw(read_texts(recipe.corpora("adapt.corpus")), section.steps * section.batch_size, seed)
    new_ids = read_new_ids(inputs["transfer"] / PROVENANCE) if "transfer" in inputs else np.empty(0, dtype=np.int64)
    refuse_query_side(encoder, "adapt")
    teacher = None if section.teacher is None else load_encoder(section.teacher)
    curve = adapt(encoder, texts, new_ids, section, seed, out / CHECKPOINTS, teacher)
    save_encoder(encoder, out / "model")
    return AdaptResult(len(texts), curve)


ADAPT = Stage(
    "adapt",
    version=2,
    reads=("adapt",),
    corpora={"adapt.corpus": adaptation_corpus},
    function=adapt_mlm,
    label="after MLM adaptation",
)

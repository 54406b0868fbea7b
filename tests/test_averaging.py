"""Several trainings: the mean of their weights, and rounds that mine negatives with the encoder of the one before."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fine_tuning import DATA, HELD_OUT, TRAINED_ON, section
from sentence_transformers import SparseEncoder
from tiny import (
    add_training_queries,
    collection,
    encoder,
    interrupted_at,
    same,
    scratch_recipe,
    tokenizer,
    weights,
    write_collection,
)

from vtkit.encoder.asymmetric import query_table
from vtkit.encoder.sides import encode_side
from vtkit.pipeline.run import run
from vtkit.pipeline.steps.finetune_encoder import FinetuneResult
from vtkit.pipeline.store import result_of
from vtkit.search.exact import ExactIndex
from vtkit.system.runtime import fastest_precision
from vtkit.training import sparse_trainer
from vtkit.training.finetune import finetune
from vtkit.training.query_table import with_query_encoder
from vtkit.training.resuming import TrainingRun
from vtkit.training.validation import Validation, validation_set

MINED: dict[str, Any] = {"rankings": ["bm25", "encoder"]}
SHORT: dict[str, Any] = {"steps": 7, "checkpoint_every": 3, "hard_negatives": 1, "mining": MINED}


def tuned(
    folder: Path, seed: int = 5, validation: Validation | None = None, **changes: Any
) -> tuple[SparseEncoder, dict[str, list[float]]]:
    wanted = section(**{**SHORT, **changes})
    ours = with_query_encoder(encoder(folder), wanted, [document.contents for document in DATA.documents])
    data = DATA if validation is None else TRAINED_ON
    return ours, finetune(
        ours, data, wanted, TrainingRun(seed=seed, folder=folder / "checkpoints", language="en", validation=validation)
    )


def validation() -> Validation:
    judged = validation_set(HELD_OUT, "held-out queries", 1)
    return replace(judged, every=2)


@pytest.mark.parametrize("query_encoder", ["shared", "learned"])
def test_the_weights_are_the_mean_of_those_of_single_trainings(tmp_path: Path, query_encoder: str) -> None:
    changes = {"query_encoder": query_encoder}
    single = [tuned(tmp_path / str(seed), seed, **changes) for seed in (5, 6)]
    ours, curves = tuned(tmp_path / "ours", 5, trainings=2, **changes)
    found, of = weights(ours), [weights(each) for each, _ in single]
    for name, value in found.items():
        mean = torch.stack([each[name].double() for each in of]).mean(dim=0)
        torch.testing.assert_close(value, mean.to(value.dtype), rtol=1e-6, atol=0)
    assert not same(found, of[0])
    if query_encoder == "learned":
        tables = [query_table(each) for each in (ours, *(each for each, _ in single))]
        table, *others = [None if each is None else each.weight.detach() for each in tables]
        torch.testing.assert_close(table, torch.stack(others).mean(dim=0), rtol=1e-6, atol=1e-7)
        assert not torch.equal(table, others[0])
    assert curves["loss"] == [value for _, each in single for value in each["loss"]]
    assert curves["steps"] == [step + 6 * place for place, (_, each) in enumerate(single) for step in each["steps"]]


def interrupted_in_the_second_training(step: int) -> type:
    """A progress that raises KeyboardInterrupt at a step of the second training it shows."""

    class Second(interrupted_at(step)):
        trainings = 0

        def __init__(self, *arguments: Any) -> None:
            Second.trainings += 1
            super().__init__(*arguments)

        def on_step_end(self, *arguments: Any, **others: Any) -> None:
            if Second.trainings == 2:
                super().on_step_end(*arguments, **others)

    return Second


@pytest.mark.parametrize(("step", "changes"), [(5, {"trainings": 2}), (2, {"mining": {"rounds": 2}})])
def test_an_interrupted_run_ends_the_same(
    step: int, changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed, again = (validation() if "trainings" in changes else None for _ in range(2))
    wanted, curves = tuned(tmp_path / "undisturbed", validation=undisturbed, **changes)
    monkeypatch.setattr(sparse_trainer, "Progress", interrupted_in_the_second_training(step))
    with pytest.raises(KeyboardInterrupt):
        tuned(tmp_path / "again", validation=undisturbed and validation(), **changes)
    monkeypatch.undo()
    found, curves_again = tuned(tmp_path / "again", validation=again, **changes)
    assert curves_again == curves
    assert same(weights(found), weights(wanted))
    if again is not None and undisturbed is not None:
        assert again.validated == undisturbed.validated
        assert len(again.validated) == 2


def ranked_by_hand(trained: SparseEncoder, file: Path) -> Path:
    """A TREC run of what ``trained`` ranks, by exact search."""
    precision = fastest_precision()
    queries = encode_side(trained, [query.text for query in DATA.queries], "query", 64, precision=precision)
    documents = encode_side(trained, DATA.contents, "document", 128, precision=precision)
    lines = []
    ranked = ExactIndex.build(documents).search(queries, len(DATA.documents))[0]
    for query, row in zip(DATA.queries, ranked, strict=True):
        best = [DATA.documents[number].id for number in row if number >= 0]
        lines += [f"{query.id} Q0 {document} {rank} {1 / rank} own" for rank, document in enumerate(best, 1)]
    file.write_text("\n".join(lines) + "\n", "utf-8")
    return file


@pytest.mark.parametrize("query_encoder", ["shared", "learned"])
def test_the_second_round_learns_from_negatives_of_the_first_rounds_encoder(tmp_path: Path, query_encoder: str) -> None:
    changes: dict[str, Any] = {"query_encoder": query_encoder}
    first, _ = tuned(tmp_path / "first", mining={}, **changes)
    run_file = ranked_by_hand(first, tmp_path / "first.trec")
    by_hand, curves = tuned(tmp_path / "hand", mining={"files": [str(run_file)]}, **changes)
    ours, of_ours = tuned(tmp_path / "ours", mining={"rounds": 2}, **changes)
    assert same(weights(ours), weights(by_hand))
    assert of_ours == curves
    assert not same(weights(ours), weights(first))


def test_a_recipe_says_what_the_mean_has(tmp_path: Path) -> None:
    tokenizer().save_pretrained(str(tmp_path / "target"))
    judged = collection(48, seed=4)
    add_training_queries(write_collection(tmp_path / "collection", judged), judged)
    qrels = tmp_path / "collection" / "qrels"
    (qrels / "dev.tsv").write_text((qrels / "train.tsv").read_text("utf-8"), "utf-8")
    recipe = tmp_path / "averaged.toml"
    recipe.write_text(
        scratch_recipe(
            "averaged",
            '[report]\ntraining = ["tensorboard"]\n[finetune]\ndata = "./collection"\nsteps = 4\nbatch_size = 6\n'
            'ramp = 0.5\ntrainings = 2\nvalidation = {queries = "dev", every = 2}\n'
            '[evaluate]\nsets = ["./collection"]\nmodels = ["finetune"]\nbm25 = false\n',
        ),
        "utf-8",
    )
    folder = run(recipe, ("recipe.seed=3",), runs=tmp_path / "runs", threads=1)
    (made,) = (tmp_path / "runs" / "artifacts").glob("finetune-*")
    found = result_of(made, FinetuneResult)
    assert found.trainings == len(found.validated) == 2
    assert found.validated[0] != found.validated[1]
    assert found.mean_value is not None
    assert sorted(path.name for path in (made / "curves").iterdir()) == ["training-1", "training-2"]
    page = (folder / "report.md").read_text("utf-8")
    assert "The weights are the mean of 2 fine-tunings, with the seeds 3 to 4." in page
    assert "Validation of fine-tuning, training 2:" in page
    assert f"The averaged weights reach nDCG@10 {found.mean_value:.3f} in validation." in page

"""Models whose files state no usable limit of length, one above their positions, or no padding token: all are used, and
give the vectors of the model whose files state both."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from vtkit.encoder.checkpoint import load_encoder, load_source_tokenizer, load_with_new_head
from vtkit.encoder.dense import encode_dense, load_dense
from vtkit.encoder.fitted_head import token_states
from vtkit.encoder.sides import encode_side
from vtkit.training.teachers import Asked, load_teacher
from vtkit.transfer.embedders import embed

POSITIONS = 48  # of tiny encoders
TEXTS = [" ".join(tiny.WORDS * 3), "river stone", "a falcon"]

Change = Callable[[dict[str, Any]], object]
FAULTS: dict[str, list[tuple[str, Change]]] = {
    "a limit above the positions": [
        ("tokenizer_config.json", lambda settings: settings.update(model_max_length=512)),
        ("sentence_bert_config.json", lambda settings: settings.update(max_seq_length=512)),
    ],
    "no limit": [("tokenizer_config.json", lambda settings: settings.update(model_max_length=10**30))],
    "a limit of nothing": [("tokenizer_config.json", lambda settings: settings.update(model_max_length=0))],
    "no padding token": [
        ("tokenizer_config.json", lambda settings: settings.pop("pad_token")),
        ("tokenizer.json", lambda content: content.update(padding=None)),
    ],
    "no padding token, and a model without one": [
        ("tokenizer_config.json", lambda settings: settings.pop("pad_token")),
        ("config.json", lambda settings: settings.update(pad_token_id=None)),
    ],
}


CASES = [(kind, fault) for kind in ("bert", "roberta") for fault in FAULTS]
CASES.remove(
    ("roberta", "no padding token, and a model without one")
)  # it counts positions from the padding token's id


@pytest.fixture(params=CASES, ids=" with ".join)
def two_folders(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    """A masked language model, and a copy with the fault."""
    kind, fault = request.param
    sound = tmp_path / "sound"
    encoder = tiny.encoder(tmp_path / "work", kind)
    encoder[0].auto_model.save_pretrained(sound)
    encoder.tokenizer.save_pretrained(str(sound))
    (sound / "sentence_bert_config.json").write_text(json.dumps({"do_lower_case": False}))
    faulty = Path(shutil.copytree(sound, tmp_path / "faulty"))
    for name, change in FAULTS[fault]:
        content = json.loads((faulty / name).read_text())
        change(content)
        (faulty / name).write_text(json.dumps(content))
    return sound, faulty


def test_an_embedder_gives_the_vectors_of_the_one_with_sound_files(
    two_folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VTKIT_CACHE", str(tmp_path / "cache"))
    wanted, found = (
        encode_dense(load_dense(str(folder), "evaluate.peers"), TEXTS, "document") for folder in two_folders
    )
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    wanted, found = (embed(TEXTS, str(folder)) for folder in two_folders)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_a_source_gives_the_weights_and_the_states_of_the_one_with_sound_files(
    two_folders: tuple[Path, Path], tmp_path: Path
) -> None:
    wanted, found = (load_encoder(str(folder)) for folder in two_folders)
    assert found.max_seq_length == wanted.max_seq_length == POSITIONS
    vectors = [encode_side(encoder, TEXTS, "document", 512).toarray() for encoder in (found, wanted)]
    np.testing.assert_allclose(*vectors, atol=1e-5)
    states = [
        token_states(load_with_new_head(str(folder)), TEXTS, tmp_path / f"states-{folder.name}")
        for folder in two_folders
    ]
    np.testing.assert_allclose(states[1].states, states[0].states, atol=5e-3)
    assert load_source_tokenizer(str(two_folders[1])).pad_token is not None


@pytest.mark.parametrize("fault", FAULTS)
def test_a_cross_encoder_gives_the_scores_of_the_one_with_sound_files(fault: str, tmp_path: Path) -> None:
    sound = tiny.cross_encoder(tmp_path / "sound")
    faulty = Path(shutil.copytree(sound, tmp_path / "faulty"))
    for name, change in FAULTS[fault]:
        if (faulty / name).is_file():
            content = json.loads((faulty / name).read_text())
            change(content)
            (faulty / name).write_text(json.dumps(content))
    step = Asked(["river", "stone oak"], [*TEXTS, "apple"], [0, 1, 2, 3], 2)
    wanted, found = (load_teacher(str(folder), (16, 24), "teacher").scores([step]) for folder in (sound, faulty))
    np.testing.assert_allclose(found, wanted, atol=1e-5)

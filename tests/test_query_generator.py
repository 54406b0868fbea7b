"""Queries that a model writes: sampled anew for each document, kept, repeatable, and what adaptation does with them."""

import json
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from tiny import bare, encoder, texts, tokenizer
from transformers import T5Config, T5ForConditionalGeneration

from vtkit.settings.adapt import AdaptSection
from vtkit.system.errors import DataError
from vtkit.training.adapt import adapt_vectors
from vtkit.training.query_generator import QUERIES_FOLDER, TEXTS_AT_ONCE, QueryGenerator, load_generator

TEXTS = texts(40, seed=3, words=(8, 20))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A T5 with random weights over the tests' words."""
    made = tmp_path_factory.mktemp("generator")
    words = tokenizer()
    torch.manual_seed(1)
    config = T5Config(
        vocab_size=len(words), d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2,
        pad_token_id=words.pad_token_id, eos_token_id=words.sep_token_id, decoder_start_token_id=words.pad_token_id,
    )  # fmt: skip
    T5ForConditionalGeneration(config).save_pretrained(made)
    words.save_pretrained(str(made))
    return str(made)


def generator(folder: str) -> QueryGenerator:
    return load_generator(folder, 24)


def test_queries_are_kept_repeatable_and_others_for_another_seed(folder: str, tmp_path: Path) -> None:
    ours = generator(folder)
    first = ours.queries(TEXTS, 4, tmp_path / "a")
    assert all(1 <= len(queries) <= 3 and len(set(queries)) == len(queries) for queries in first)
    assert len(list((tmp_path / "a" / QUERIES_FOLDER).iterdir())) == -(-len(TEXTS) // TEXTS_AT_ONCE)
    state = torch.get_rng_state()
    assert ours.queries(TEXTS, 4, tmp_path / "b") == first
    assert torch.equal(torch.get_rng_state(), state)  # training's random numbers are not touched
    assert ours.queries(TEXTS, 5, tmp_path / "c") != first


def test_a_killed_run_writes_none_again(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = generator(folder)
    whole = ours.queries(TEXTS, 4, tmp_path)
    kept = sorted((tmp_path / QUERIES_FOLDER).iterdir())
    kept[1].write_bytes(kept[1].read_bytes()[:50])
    before = [file.stat().st_mtime_ns for file in kept]
    assert ours.queries(TEXTS, 4, tmp_path) == whole
    after = [file.stat().st_mtime_ns for file in kept]
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, True]
    assert ours.queries(TEXTS[1:], 4, tmp_path)[0] != whole[0]  # files of other texts are not taken for these


def test_texts_without_a_query_are_counted_and_none_at_all_is_an_error(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = generator(folder)
    ours.queries(TEXTS[:2], 4, tmp_path)
    (file,) = (tmp_path / QUERIES_FOLDER).iterdir()
    kept = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps([[], kept[1]]))
    assert ours.queries(TEXTS[:2], 4, tmp_path)[0] == []
    assert "writes no query for 1 of 2 texts" in capsys.readouterr().err
    file.write_text(json.dumps([[], []]))
    with pytest.raises(DataError, match="writes only blank queries"):
        ours.queries(TEXTS[:2], 4, tmp_path)


def test_adaptation_learns_with_them(folder: str, tmp_path: Path) -> None:
    settings = {"queries": folder}
    section = AdaptSection(objective="distill", steps=6, batch_size=6, max_length=24, distill=settings)
    ours = encoder(tmp_path)
    made = {"generator": generator(folder)}
    curves = adapt_vectors(ours, ("distill",), TEXTS, section, "en", 5, tmp_path / "checkpoints", **made)
    assert curves["distillation"][-1] > 0


def test_what_is_no_generator_is_refused(folder: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"query generator .* is not a sequence-to-sequence model such as T5"):
        generator(str(bare(tmp_path / "bert")))
    with pytest.raises(DataError, match=r"query generator .*: there is no such folder"):
        generator(str(tmp_path / "nowhere"))
    with pytest.raises(ValidationError, match=r"distill\.queries names the model that writes them"):
        AdaptSection(distill={"queries": "generated"})

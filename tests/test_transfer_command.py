"""``vtkit transfer`` and ``vtkit provenance``, as a user calls them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from command_line import invoke, succeeds
from sentence_transformers import SparseEncoder

from vtkit.encoder.asymmetric import dimension_names
from vtkit.encoder.checkpoint import load_encoder, save_encoder
from vtkit.encoder.families import mlm_head
from vtkit.settings.vocabulary import TrainedVocabulary
from vtkit.vocabulary.trained import train

NEW = ("강", "숲", "돌", "##에서", "rivers")
TARGET = (*tiny.ROLES.values(), *"abc", "##s", "river", "forest", *NEW)
PAIRS = ["river\t강", "river\t강", "forest\t숲", "forest\t숲", "river forest\t강 숲"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("transfer")
    save_encoder(tiny.encoder(place), place / "source")
    tiny.tokenizer(TARGET).save_pretrained(str(place / "target"))
    (place / "pairs.tsv").write_text("\n".join(PAIRS) + "\n", encoding="utf-8")
    (place / "corpus.txt").write_text("강 river\n강 숲\n강에서 돌\n" * 20, encoding="utf-8")
    return place


def called(*arguments: object) -> str:
    return succeeds(*arguments).stdout


def transferred(folder: Path, out: str, *options: object, target: str = "target") -> Path:
    called("transfer", folder / "source", folder / target, *options, "-o", folder / out)
    return folder / out


def refused(*arguments: object) -> str:
    result = invoke(*arguments)
    assert result.exit_code != 0
    return f"{result.output}{result.exception}"


@pytest.fixture(scope="module")
def moved(folder: Path) -> Path:
    out = folder / "moved"
    given = ("--parallel", folder / "pairs.tsv", "--corpus", folder / "corpus.txt")
    printed = called("transfer", folder / "source", folder / "target", *given, "-o", out)
    assert f"{len(TARGET)} tokens, {len(TARGET) - len(NEW)} of them shared" in printed
    assert "parallel" in printed
    return out


def test_the_model_is_the_source_on_the_new_vocabulary_and_loads_without_vtkit(folder: Path, moved: Path) -> None:
    source, target = load_encoder(str(folder / "source")), SparseEncoder(str(moved / "model"), device="cpu")
    assert target.encode(["river 강"]).to_dense().shape == (1, len(TARGET))
    rows, old = (mlm_head(model[0].auto_model).embeddings.weight for model in (target, source))
    assert torch.equal(rows[TARGET.index("river")], old[tiny.TOKENS.index("river")])
    assert torch.equal(rows[TARGET.index("강")], old[tiny.TOKENS.index("river")])
    assert sorted(path.name for path in moved.iterdir()) == ["model", "provenance.parquet"]


def test_the_bias_follows_the_corpus_and_without_one_the_mixture(folder: Path, moved: Path) -> None:
    bias = mlm_head(load_encoder(str(moved / "model"))[0].auto_model).decoder.bias
    assert bias[TARGET.index("강")] > bias[TARGET.index("숲")] > bias[TARGET.index("forest")]
    out = transferred(folder, "mixed", "-m", "mean")
    bias = mlm_head(load_encoder(str(out / "model"))[0].auto_model).decoder.bias
    old = mlm_head(load_encoder(str(folder / "source"))[0].auto_model).decoder.bias
    assert bias[TARGET.index("river")] == old[tiny.TOKENS.index("river")]
    words = old[len(tiny.ROLES) :]  # the mean is over tokens that stand for text
    assert bias[TARGET.index("강")].item() == pytest.approx(words.mean().item(), abs=1e-6)


def test_where_a_token_comes_from_and_where_one_went(moved: Path) -> None:
    found: dict[str, Any] = json.loads(called("provenance", str(moved), "강", "강에서", "-s", "river", "--json"))
    (origin,) = found["tokens"]["강"][str(moved)]
    assert (origin["method"], origin["sources"]) == ("parallel", [["river", 1.0]])
    assert [part["token"] for part in found["tokens"]["강에서"][str(moved)]] == ["강", "##에서"]
    assert ["river", 1.0, "overlap"] in found["source"]["river"][str(moved)]
    assert ["강", 1.0, "parallel"] in found["source"]["river"][str(moved)]
    assert ["rivers", 0.5, "subtoken"] in found["source"]["river"][str(moved)]
    shown = called("provenance", str(moved), "숲")
    assert "숲" in shown
    assert "forest 1.00" in shown


def test_words_of_a_byte_level_vocabulary_are_looked_up_and_shown_as_text(folder: Path) -> None:
    section = TrainedVocabulary(kind="trained", corpus=("x",), algorithm="bpe", size=282)
    train(["강 숲 river forest 한강"] * 20, section)[0].save_pretrained(str(folder / "bytes"))
    out = transferred(folder, "moved bytes", "--parallel", folder / "pairs.tsv", target="bytes")
    found = json.loads(called("provenance", str(out), "강", "-s", "river", "--json"))
    assert [token["token"] for token in found["tokens"]["강"][str(out)]] == ["Ġ강", "강"]  # in front, and within 한강
    assert found["tokens"]["강"][str(out)][0]["sources"] == [["river", 1.0]]
    assert ["Ġ강", 1.0, "parallel"] in found["source"]["river"][str(out)]
    (origin,) = json.loads(called("provenance", str(out), "Ġ강", "--json"))["tokens"]["Ġ강"][str(out)]
    assert origin["method"] == "parallel"
    back = folder / "moved back"
    called("transfer", out / "model", folder / "target", "-m", "subtoken", "-o", back)
    (taker, *_) = json.loads(called("provenance", str(back), "-s", "강", "--json"))["source"]["강"][str(back)]
    assert taker == ["강", 1.0, "overlap"]


def test_several_transfers_stand_side_by_side(folder: Path, moved: Path) -> None:
    out = transferred(folder, "pieces", "-m", "subtoken", "-m", "random")
    shown = called("provenance", str(moved), "rivers", "강", "--beside", str(out))
    lines = [line.split() for line in shown.splitlines()]
    assert [line[:2] for line in lines if line[0] == "강" and len(line) > 1] == [["강", "parallel"], ["강", "random"]]
    assert [line[:2] for line in lines if line[0] == "rivers" and len(line) > 1] == [["rivers", "subtoken"]] * 2


def test_head_only_keeps_what_is_read_and_names_what_is_written(folder: Path) -> None:
    scope = ("--set", "transfer.scope=head-only")
    out = transferred(folder, "headonly", "--parallel", folder / "pairs.tsv", *scope)
    encoder, source = load_encoder(str(out / "model")), load_encoder(str(folder / "source"))
    assert encoder.tokenizer.get_vocab() == source.tokenizer.get_vocab()
    assert [name for name in dimension_names(encoder) if name] == list(TARGET)
    (origin,) = json.loads(called("provenance", str(out), "강", "--json"))["tokens"]["강"][str(out)]
    assert origin["sources"] == [["river", 1.0]]
    plain = SparseEncoder(str(out / "model"), device="cpu").encode(["river stone"]).to_dense().numpy()
    written = dict(zip(dimension_names(encoder), plain[0], strict=True))
    assert written["강"] == pytest.approx(written["river"], abs=1.0)  # one row, and biases of the same mixture
    assert np.count_nonzero(plain[0, len(TARGET) :]) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-m", "parallel"), "method parallel needs transfer.parallel.files"),
        (("-m", "subtokn"), "Did you mean"),
        (("--parallel", "/nowhere/pairs.tsv"), "/nowhere/pairs.tsv"),
        (("--set", "evaluate.max_queries=3"), "evaluate"),
    ],
)
def test_what_users_get_wrong_is_said_and_nothing_is_written(
    folder: Path, arguments: tuple[str, ...], words: str
) -> None:
    out = folder / "above" / "refused"
    assert words in refused("transfer", folder / "source", folder / "target", *arguments, "-o", out)
    assert not out.exists()
    assert not out.parent.exists()  # no folder that was made on the way is left


def test_nothing_is_overwritten_and_unknown_tokens_are_said(folder: Path, moved: Path) -> None:
    assert "already exists" in refused("transfer", folder / "source", folder / "target", "-o", moved)
    assert "no token was made from" in refused("provenance", moved, "-s", "nonsense")
    assert "needs a token" in refused("provenance", moved)
    assert "no provenance.parquet" in refused("provenance", folder / "source", "강")

"""``auto`` decided by a probe: what comes close to its rule, which of them is taken, and what a user sees of it."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import invoke
from sentence_transformers import SparseEncoder
from tiny import LETTERS, ROLES, WORDS, encoder, tokenizer

from vtkit.encoder.checkpoint import save_encoder
from vtkit.pipeline.steps.probed_transfer import probed_transfer
from vtkit.settings.casing import CasingSection
from vtkit.settings.transfer import TransferSection
from vtkit.transfer.encoder import Transfer, move_encoder
from vtkit.transfer.methods.auto import alternatives

TARGET = (*ROLES.values(), *LETTERS, *(f"x{word}" for word in WORDS))
"""Every word is new: a translation of one of the source's."""


def of_few_words(seed: int) -> str:
    """A text that says the same few words again and again, so that a span of it is like the rest."""
    words = random.Random(seed).sample(WORDS, 6)
    return " ".join(f"x{word}" for word in random.Random(-seed).choices(words, k=24))


TEXTS = [of_few_words(seed) for seed in range(120)]
RIGHT, WRONG = {"method": "parallel"}, {"method": "mean"}  # which makes all words one


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> SparseEncoder:
    """An encoder that weighs the tokens it reads."""
    made = encoder(tmp_path_factory.mktemp("source"))
    model = made[0].auto_model
    with torch.no_grad():
        for layer in model.bert.encoder.layer:
            layer.attention.output.dense.weight.zero_()
            layer.output.dense.weight.zero_()
        transform = model.cls.predictions.transform.dense
        transform.weight.copy_(4 * torch.eye(len(transform.weight)))
    return made


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    file.write_text("".join(f"{word}\tx{word}\n" for word in WORDS) * 2, encoding="utf-8")
    return str(file)


def auto(pairs: str, **changes: Any) -> TransferSection:
    return TransferSection.model_validate(
        {"method": "auto", "parallel": {"files": [pairs]}, "bias": {"method": "mixture"}, **changes}
    )


def chosen(source: SparseEncoder, section: TransferSection, rule: Any, other: Any, place: Path) -> Transfer:
    """What is taken where the rule's rows are made by ``rule``, and those of the other estimator by ``other``."""

    def move(asked: TransferSection, work: Path) -> Transfer:
        made = TransferSection.model_validate(
            {**asked.model_dump(exclude_unset=True), **(rule if asked.parallel.estimator == "ibm1" else other)}
        )
        return move_encoder(
            source, tokenizer(TARGET), made, counts=lambda: None, method_texts=lambda: iter(()),
            casing=CasingSection(), seed=1, work=work,
        )  # fmt: skip

    return probed_transfer(move, section, lambda count: TEXTS[:count], 1, place)


def test_what_comes_close_to_the_rule(pairs: str) -> None:
    assert list(alternatives(auto(pairs))) == ["parallel.estimator = cooccurrence"]
    other = auto(pairs, parallel={"files": [pairs], "estimator": "cooccurrence"})
    (found,) = alternatives(other).values()
    assert found.parallel == other.parallel.model_copy(update={"estimator": "ibm1"})
    both = auto(pairs, sembridge={"embedder": "some/embedder"})
    found = alternatives(both)["without the embedder"]
    assert found.sembridge.embedder is None
    assert (found.methods, found.parallel) == (("auto",), both.parallel)
    (pieces,) = alternatives(TransferSection(method="auto")).values()
    assert (pieces.methods, pieces.reassigns) == (("subtoken",), True)
    assert not alternatives(auto(pairs, method="parallel"))


@pytest.mark.parametrize(
    ("rule", "other", "taken", "method"),
    [(RIGHT, WRONG, 0, "parallel"), (WRONG, RIGHT, 1, "cooccurrence"), (RIGHT, RIGHT, 0, "parallel")],
)
def test_what_finds_more_is_taken_and_a_tie_stays_with_the_rule(
    rule: Any, other: Any, taken: int, method: str, source: SparseEncoder, pairs: str, tmp_path: Path
) -> None:
    moved = chosen(source, auto(pairs), rule, other, tmp_path)
    assert [each.taken for each in moved.probed] == [taken == 0, taken == 1]
    first, second = moved.probed
    assert first.p is None
    assert second.p is not None
    assert second.p == 1.0 if rule == other else second.p < 0.05
    assert rule == other or moved.probed[taken].reciprocal_rank > 3 * moved.probed[1 - taken].reciprocal_rank
    assert set(moved.mixture.methods[-len(WORDS) :]) == {method}
    assert moved.result().moved.probed == moved.probed


def test_too_few_texts_say_nothing(
    source: SparseEncoder, pairs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("vtkit.pipeline.steps.probed_transfer.PAIRS", 3)
    moved = chosen(source, auto(pairs), WRONG, RIGHT, tmp_path)
    assert moved.probed == ()
    assert "the texts give only 3 probe pairs" in capsys.readouterr().err


def test_a_user_is_told(source: SparseEncoder, pairs: str, tmp_path: Path) -> None:
    save_encoder(source, tmp_path / "source")
    tokenizer(TARGET).save_pretrained(str(tmp_path / "target"))
    (tmp_path / "corpus.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    names = ("source", "target", "corpus.txt")
    model, target, corpus = (str(tmp_path / name) for name in names)
    said = ("transfer", model, target, "--parallel", pairs, "--corpus", corpus, "--json")
    done = invoke(*said, "-o", str(tmp_path / "moved"))
    assert done.exit_code == 0, done.output
    probed = json.loads(done.stdout)["moved"]["probed"]
    assert [one["name"] for one in probed] == ["rule", "parallel.estimator = cooccurrence"]
    assert sum(one["taken"] for one in probed) == 1
    assert "mean reciprocal rank over 120 probe pairs: rule 0." in done.stderr

"""The gate after adaptation: snippets, their ranks, and what stops a run."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import succeeds
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import SparseEncoder
from tiny import LETTERS, ROLES, WORDS, encoder, texts, tokenizer

from vtkit.data.synthetic_queries import FEWEST_PAIRS, SnippetPairs, snippet_pairs
from vtkit.encoder.checkpoint import save_encoder
from vtkit.encoder.sides import encode_side
from vtkit.evaluation.fusion_queries import bm25_run
from vtkit.evaluation.gates.retrieval import reciprocal_ranks, retrieval_gate
from vtkit.pipeline.plan import STAGES
from vtkit.pipeline.run import run
from vtkit.pipeline.steps.adapt_encoder import chosen_objectives
from vtkit.pipeline.steps.probed_transfer import probed_transfer
from vtkit.pipeline.steps.run_gates import CHECK_ADAPTATION
from vtkit.recipe.write import resolved_toml
from vtkit.settings.casing import CasingSection
from vtkit.settings.recipe import Recipe
from vtkit.settings.transfer import TransferSection
from vtkit.system.errors import CollapseError
from vtkit.transfer.encoder import Transfer, move_encoder
from vtkit.transfer.methods.auto import alternatives

TEXTS = texts(60, seed=11, words=(8, 30))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=40), max_size=12), st.integers(0, 99))
def test_a_snippet_pair_is_a_text_in_two_parts(words: list[list[str]], seed: int) -> None:
    corpus = [" ".join(text) for text in words]
    pairs = snippet_pairs(corpus, 5, seed)
    long_enough = [text for text in dict.fromkeys(corpus) if len(text.split()) >= 8]
    assert len(pairs.queries) == len(pairs.documents) == min(5, len(long_enough))
    for query, rest, text in zip(pairs.queries, pairs.documents, long_enough, strict=False):
        assert sorted(query.split() + rest.split()) == sorted(text.split())
        assert f" {query} " in f" {text} "
        assert 4 <= len(query.split()) <= min(16, len(text.split()) // 2)


def test_ranks_are_those_of_the_scores(tmp_path: Path) -> None:
    ours, pairs = encoder(tmp_path), snippet_pairs(TEXTS, 30, 1)
    found = reciprocal_ranks(ours, pairs, 24)
    scores = encode_side(ours, pairs.queries, "query", 24) @ encode_side(ours, pairs.documents, "document", 24).T
    for number, row in enumerate(scores.toarray()):
        best_first = np.sort(row)[::-1]
        places = 1 + np.flatnonzero(np.isclose(best_first, row[number], rtol=2e-2))  # bf16 where the processor has it
        assert places.min() - 0.5 <= 1 / found[number] <= places.max() + 0.5


RANKS = np.tile([1.0, 0.5, 0.5, 0.25], 50)


@pytest.mark.parametrize(
    ("against", "divided", "finding", "seen", "advice"),
    [
        ("before", 2, "fail", ("of 200 texts", "0.281, 0.562 before", "p = 0.000"), "adapt.objective"),
        ("by the source", 2, "warn", ("of 200 texts", "0.281, 0.562 by the source", "p = 0.000"), "evaluate.models"),
        ("by BM25", 4, "warn", ("of 200 texts", "0.141, 0.562 by BM25"), "source.model"),
    ],
)
def test_a_gate_stops_or_warns_with_both_figures_where_less_is_found_beyond_chance(
    against: str, divided: int, finding: str, seen: tuple[str, ...], advice: str
) -> None:
    found = retrieval_gate(against, RANKS, RANKS / divided)
    assert found[0] == finding
    assert all(part in found[1] for part in seen)
    assert advice in found[2]
    for first in (RANKS, RANKS / 2):
        assert retrieval_gate(against, first, RANKS)[0] == "pass"


def test_what_may_be_chance_and_half_of_bm25_stop_nothing() -> None:
    by_chance = RANKS.copy()
    by_chance[:3] = 0.4, 0.4, 0.6
    assert retrieval_gate("before", RANKS, by_chance)[0] == "warn"
    assert retrieval_gate("by the source", RANKS, by_chance)[::2] == ("pass", "")
    assert retrieval_gate("by BM25", RANKS, RANKS / 2)[0] == "pass"
    assert retrieval_gate("by BM25", RANKS[:2], RANKS[:2] / 4)[0] == "pass"


def test_ranks_by_bm25_by_hand() -> None:
    pairs = SnippetPairs(["red fox", "blue", "green", "grey"], ["a red fox", "no sea", "green leaf", "green tree"])
    assert pairs.reciprocal_ranks(bm25_run(pairs, "en", "words")).tolist() == [1.0, 0.0, 0.75, 0.0]


def recipe(folder: Path, **changes: object) -> Recipe:
    return Recipe.model_validate(
        {
            "recipe": {"name": "probe", "language": "en"},
            "source": {"model": str(folder / "source")},
            "vocabulary": {"kind": "existing", "tokenizer": str(folder / "source")},
            "transfer": {"method": "mean"},
            "adapt": {"corpus": (str(folder / "corpus.txt"),)},
            **changes,
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two models: one that tells texts of different words apart, and the same without its decoder's rows."""
    (tmp_path / "corpus.txt").write_text("\n".join(" ".join([word] * 10) for word in WORDS[:40]), "utf-8")
    good, bad = encoder(tmp_path / "a"), encoder(tmp_path / "b")
    with torch.no_grad():
        bad[0].auto_model.get_output_embeddings().weight.zero_()
        bad[0].auto_model.get_output_embeddings().bias.fill_(1.0)
    for model, name in ((good, "before"), (bad, "after")):
        save_encoder(model, tmp_path / name / "model")
    save_encoder(good, tmp_path / "source")
    return tmp_path


def test_a_run_that_lost_its_retrieval_is_stopped_with_both_figures(folder: Path) -> None:
    view = CHECK_ADAPTATION.view(recipe(folder))
    inputs = {"model": folder / "before", "adapt": folder / "after"}
    with pytest.raises(CollapseError, match=r"gate retrieval after adapt: snippets of 40 texts .* before \(p = 0\.0.*"):
        CHECK_ADAPTATION.function(view, inputs, folder / "out")
    warned = CHECK_ADAPTATION.view(recipe(folder, gates={"warn": ("retrieval",)}))
    (found,) = CHECK_ADAPTATION.function(warned, inputs, folder / "out")
    assert (found.gate, found.stage, found.finding, found.level) == ("retrieval", "adapt", "fail", "warn")
    swapped = {"model": folder / "after", "adapt": folder / "before"}
    assert CHECK_ADAPTATION.function(view, swapped, folder / "out")[0].finding == "pass"


def test_encoders_that_never_learned_to_retrieve_and_tiny_corpora_are_not_looked_at(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    inputs = {"model": folder / "before", "adapt": folder / "after"}
    (folder / "source" / "modules.json").rename(folder / "modules.json")
    assert CHECK_ADAPTATION.function(CHECK_ADAPTATION.view(recipe(folder)), inputs, folder / "out") == []
    (folder / "modules.json").rename(folder / "source" / "modules.json")
    (folder / "corpus.txt").write_text("\n".join(TEXTS[: FEWEST_PAIRS - 1]), "utf-8")
    assert CHECK_ADAPTATION.function(CHECK_ADAPTATION.view(recipe(folder)), inputs, folder / "out") == []
    assert "gate retrieval after adapt: skipped" in capfd.readouterr().err


@pytest.mark.parametrize("level", ["fail", "off"])
def test_a_transfer_that_finds_less_than_its_source_is_said(
    level: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The target cuts every word into two tokens that the source has not, so that all rows are one mean."""
    halves = dict.fromkeys(part for word in WORDS for part in (word[:2], f"##{word[2:]}"))
    tokenizer((*ROLES.values(), "a", *halves)).save_pretrained(str(folder / "target"))
    gates = {"warn": ("overlap", "unicode", "ties", "dimensions", "activation", "neighbours")}
    asked = recipe(
        folder,
        vocabulary={"kind": "existing", "tokenizer": str(folder / "target")},
        transfer={"method": "mean", "bias": {"method": "mixture", "corpus": (str(folder / "corpus.txt"),)}},
        adapt=None,
        gates=gates | ({"off": ("retrieval",)} if level == "off" else {}),
    )
    (folder / "probe.toml").write_text(resolved_toml(asked), "utf-8")
    run(folder / "probe.toml", runs=folder / "runs", until="transfer", threads=1)
    said = "gate retrieval after transfer: warn; snippets of 40 texts" in capfd.readouterr().err
    assert said == (level == "fail")


def test_auto_chooses_by_the_source_and_the_data(folder: Path) -> None:
    (adapt,) = [stage for stage in STAGES if stage.name == "adapt"]
    adapt = adapt.reading("source", "transfer")

    def chosen(**changes: object) -> tuple[str, ...]:
        objectives, reason = chosen_objectives(adapt.view(recipe(folder, **changes)))
        assert reason
        return objectives

    parallel = {"method": "parallel", "parallel": {"files": ("/pairs.tsv",)}}
    assert chosen() == ("crop",)
    assert chosen(transfer=parallel) == ("align", "crop")
    assert chosen(transfer={**parallel, "method": "mean"}) == ("crop",)  # files that the method does not read
    (folder / "source" / "modules.json").unlink()
    assert chosen(transfer=parallel) == ("mlm",)
    named = {"corpus": (str(folder / "corpus.txt"),), "objective": "crop"}
    assert chosen_objectives(adapt.view(recipe(folder, adapt=named))) == (("crop",), "")


# ``auto`` decided by a probe: what comes close to its rule, which of them is taken, and what a user sees of it.


TARGET = (*ROLES.values(), *LETTERS, *(f"x{word}" for word in WORDS))
"""Every word is new: a translation of one of the source's."""


def of_few_words(seed: int) -> str:
    """A text that says the same few words again and again, so that a span of it is like the rest."""
    words = random.Random(seed).sample(WORDS, 6)
    return " ".join(f"x{word}" for word in random.Random(-seed).choices(words, k=24))


SHORT_TEXTS = [of_few_words(seed) for seed in range(120)]
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

    return probed_transfer(move, section, lambda count: SHORT_TEXTS[:count], 1, place)


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
    assert "the texts give only 3 snippets" in capsys.readouterr().err


def test_a_user_is_told(source: SparseEncoder, pairs: str, tmp_path: Path) -> None:
    save_encoder(source, tmp_path / "source")
    tokenizer(TARGET).save_pretrained(str(tmp_path / "target"))
    (tmp_path / "corpus.txt").write_text("\n".join(SHORT_TEXTS), encoding="utf-8")
    names = ("source", "target", "corpus.txt")
    model, target, corpus = (str(tmp_path / name) for name in names)
    said = ("transfer", model, target, "--parallel", pairs, "--corpus", corpus, "--json")
    done = succeeds(*said, "-o", str(tmp_path / "moved"))
    probed = json.loads(done.stdout)["moved"]["probed"]
    assert [one["name"] for one in probed] == ["rule", "parallel.estimator = cooccurrence"]
    assert sum(one["taken"] for one in probed) == 1
    assert "mean reciprocal rank over 120 snippets: rule 0." in done.stderr

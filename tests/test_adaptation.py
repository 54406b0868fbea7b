"""Masked-language-model adaptation: it learns, leaves frozen weights alone, repeats, and survives interruptions."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from sentence_transformers import SparseEncoder
from tiny import ARCHITECTURES, TOKENS, bare, encoder, same, texts, tokenizer, weights
from transformers import T5Config, T5ForConditionalGeneration, TrainerState

import vtkit
from vtkit.data.sequences import Ragged
from vtkit.encoder.checkpoint import save_encoder
from vtkit.encoder.families import mlm_head
from vtkit.encoder.masked import MASKED_BIAS, mask_dimensions, masked_dimensions
from vtkit.pipeline.steps.adapt_encoder import HELD_OUT, _held_out
from vtkit.search.measures.masked_predictions import Predictions, grouped_predictions
from vtkit.settings.adapt import AdaptSection
from vtkit.system.errors import CollapseError, DataError
from vtkit.training import masking, mlm, resuming
from vtkit.training.adapt import adapt_vectors
from vtkit.training.gates import Gate
from vtkit.training.masking import IGNORED
from vtkit.training.mlm import adapt, masked_loss
from vtkit.training.query_generator import QUERIES_FOLDER, TEXTS_AT_ONCE, QueryGenerator, load_generator
from vtkit.training.resuming import COMPLETE, TrainingRun, fixed_order, last_complete_checkpoint

TEXTS = texts(80, seed=11)
NEW = np.arange(60, 90)


def section(**settings: Any) -> AdaptSection:
    wanted = {"corpus": ("unused",), "steps": 23, "batch_size": 4, "max_length": 24, "learning_rate": 5e-3}
    return AdaptSection(**{**wanted, "checkpoint_every": 10, **settings})


def trained(folder: Path, seed: int = 5, **settings: Any) -> tuple[SparseEncoder, dict[str, list[float]]]:
    """An encoder adapted with checkpoints in ``folder/checkpoints``, and its curve."""
    ours = encoder(folder)
    return ours, adapt(ours, TEXTS, NEW, section(**settings), TrainingRun(seed=seed, folder=folder / "checkpoints"))[0]


@pytest.mark.bf16
@pytest.mark.parametrize("train", ["embeddings", "all"])
def test_the_loss_falls(train: str, tmp_path: Path) -> None:
    ours, few_words = encoder(tmp_path), [text for text in texts(3, seed=1, words=(2, 3)) for _ in range(20)]
    settings = section(train=train, steps=80, learning_rate=1e-2, checkpoint_every=40)
    found = adapt(ours, few_words, NEW, settings, TrainingRun(seed=5, folder=tmp_path / "checkpoints"))[0]
    assert found["steps"] == [*range(10, 90, 10)]
    assert found["loss"][-1] < 0.8 * found["loss"][0]
    assert not ours[0].auto_model.training
    assert all(parameter.requires_grad for parameter in ours[0].auto_model.parameters())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("tied", [True, False])
def test_with_a_frozen_transformer_only_the_head_changes(architecture: str, tied: bool, tmp_path: Path) -> None:
    ours = encoder(tmp_path, architecture, tied=tied)
    before = {name: tensor.detach().clone() for name, tensor in ours[0].auto_model.named_parameters()}
    adapt(ours, TEXTS, NEW, section(steps=4), TrainingRun(seed=1, folder=tmp_path / "checkpoints"))
    head = mlm_head(ours[0].auto_model)
    learning = {id(head.embeddings.weight), id(head.decoder.weight), id(head.decoder.bias)}
    assert len(learning) == (2 if tied else 3)
    for name, parameter in ours[0].auto_model.named_parameters():
        changed = not torch.equal(parameter, before[name])
        assert changed == (id(parameter) in learning), name


def test_with_everything_learning_the_transformer_changes_too(tmp_path: Path) -> None:
    ours = encoder(tmp_path)
    before = weights(ours)
    adapt(ours, TEXTS, NEW, section(steps=4, train="all"), TrainingRun(seed=1, folder=tmp_path / "checkpoints"))
    after = weights(ours)
    layers = [name for name in before if "encoder.layer" in name]
    # the bias of the keys shifts all scores of a softmax alike and has no gradient but rounding
    assert all(not torch.equal(before[name], after[name]) for name in layers if "key.bias" not in name)


@pytest.mark.bf16
def test_the_same_seed_gives_the_same_weights_however_often_checkpoints_are_written(tmp_path: Path) -> None:
    first, first_curve = trained(tmp_path / "a")
    second, second_curve = trained(tmp_path / "b", checkpoint_every=1000)
    other, _ = trained(tmp_path / "c", seed=6)
    assert same(weights(first), weights(second))
    assert first_curve == second_curve
    assert not same(weights(first), weights(other))


def masked_batch(reader: Any, weights: torch.Tensor) -> dict[str, torch.Tensor]:
    """Of the first four texts, half of the tokens masked, always the same ones."""
    ids = Ragged.of(reader(TEXTS[:4])["input_ids"])
    batches = masking.MaskedBatches(ids, [np.arange(4)], weights, torch.arange(5), 4, 0, 0.5, 9)
    assert all(torch.equal(value, batches[0][name]) for name, value in batches[0].items())
    return batches[0]


def loss_of(model: Any, batch: dict[str, torch.Tensor]) -> float:
    trainer = object.__new__(mlm._MaskedTrainer)
    trainer.model, trainer.gate, trainer.state = model, Gate("adaptation"), TrainerState()
    return float(trainer.compute_loss(model, batch).item())


def test_the_first_loss_is_the_cross_entropy_of_the_masked_positions(tmp_path: Path) -> None:
    ours = encoder(tmp_path, dropout=0.0)
    batch = masked_batch(ours.tokenizer, torch.ones(len(TOKENS)))
    reference = ours[0].auto_model(**batch).loss.item()  # the library's own, over all logits
    assert loss_of(ours[0].auto_model, batch) == pytest.approx(reference, rel=1e-5)


def test_masked_dimensions_are_not_in_the_softmax(tmp_path: Path) -> None:
    ours = encoder(tmp_path, dropout=0.0)
    model, hidden = ours[0].auto_model, torch.arange(40, 70)
    batch = masked_batch(ours.tokenizer, torch.ones(len(TOKENS)).index_fill(0, hidden, 0))
    mask_dimensions(model, hidden.tolist())
    with torch.no_grad():
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        model.get_output_embeddings().weight[hidden] *= 1e6  # even where the logit outweighs the bias
    predicted = batch["labels"] != IGNORED
    others = np.setdiff1d(np.arange(len(TOKENS)), hidden)
    places = torch.from_numpy(np.searchsorted(others, batch["labels"][predicted].numpy()))
    wanted = torch.nn.functional.cross_entropy(logits[predicted][:, others], places).item()
    embedded = torch.nn.Embedding.from_pretrained(model.get_input_embeddings().weight.detach().clone())
    with torch.no_grad():
        embedded.weight[hidden] /= 1e6
        model.set_input_embeddings(embedded)
    assert loss_of(model, batch) == pytest.approx(wanted, rel=1e-4)


def test_the_unigram_prior_by_hand() -> None:
    """Four tokens, the last a special one: counts 3, 1 and 0."""
    prior = mlm.unigram_prior(Ragged.of([[0, 1, 3], [0, 0, IGNORED]]), 4, torch.tensor([3]))
    assert prior.exp().tolist() == pytest.approx([0.75, 0.25, 0, 0])


def test_with_a_unigram_prior_tokens_that_never_occur_are_not_moved(tmp_path: Path) -> None:
    words = [f"apple {word} apple amber" for word in ("anchor", "basin", "birch") for _ in range(10)]
    ours = encoder(tmp_path, tied=False)  # tied rows move as inputs too: masking puts random tokens in
    head = mlm_head(ours[0].auto_model)
    before = head.decoder.weight.detach().clone(), head.decoder.bias.detach().clone()
    found = adapt(
        ours, words, NEW, section(steps=20), TrainingRun(seed=5, folder=tmp_path / "checkpoints"), frequencies=True
    )[0]
    occurring = sorted({token for text in words for token in ours.tokenizer(text)["input_ids"]})
    rest = np.setdiff1d(np.arange(len(TOKENS)), occurring)
    assert torch.equal(head.decoder.bias[rest], before[1][rest])
    shrunk = head.decoder.weight.detach()[rest] / before[0][rest]  # weight decay, which all rows have
    torch.testing.assert_close(shrunk, torch.full_like(shrunk, float(shrunk[0, 0])))
    assert not torch.equal(head.decoder.bias, before[1])
    plain = adapt(
        encoder(tmp_path / "plain", tied=False),
        words,
        NEW,
        section(steps=10),
        TrainingRun(seed=5, folder=tmp_path / "plain"),
    )[0]
    assert found["loss"][0] < 0.8 * plain["loss"][0]  # the prior is known from the first step


def test_grouped_predictions_by_hand() -> None:
    ln = np.log([1 / 2, 1 / 4, 1 / 16])  # 1, 2 and 4 bits
    found = grouped_predictions(ln, np.array([True, False, False]), np.array([1, 2, 1]), np.array([False, False, True]))
    assert found == {
        "all": Predictions(3, pytest.approx(1 / 3), pytest.approx(7 / 4)),
        "overlapping": Predictions(2, 0.5, pytest.approx(1.0)),
        "new": Predictions(1, 0.0, pytest.approx(4.0)),
    }
    nothing = np.empty(0)
    assert grouped_predictions(nothing, nothing.astype(bool), nothing.astype(int), nothing.astype(bool)) is None


@pytest.mark.parametrize("frequencies", [False, True])
def test_held_out_predictions_are_those_of_all_logits(frequencies: bool, tmp_path: Path) -> None:
    ours, unseen = encoder(tmp_path), texts(20, seed=12)
    _, found = adapt(
        ours,
        TEXTS,
        NEW,
        section(steps=30),
        TrainingRun(seed=5, folder=tmp_path / "checkpoints"),
        held_out=unseen,
        frequencies=frequencies,
    )
    assert found.texts == 20
    assert found.after["all"].bits_per_byte < found.before["all"].bits_per_byte
    # the same masks, read off whole logits
    model, tokenizer = ours[0].auto_model.eval(), ours.tokenizer
    read = masking.tokenized(tokenizer, None, unseen, 24, sizes=True)
    batches = masking.MaskedBatches(
        read.token_ids, np.array_split(np.argsort([len(ids) for ids in read.token_ids], kind="stable"), [16]),
        torch.ones(len(TOKENS)), torch.tensor(sorted(tokenizer.all_special_ids)), tokenizer.mask_token_id,
        tokenizer.pad_token_id, 0.3, 5,
    )  # fmt: skip
    bits, right, size = 0.0, 0, 0
    labels = masking.tokenized(tokenizer, None, TEXTS, 24).token_ids
    added = mlm.unigram_prior(labels, len(TOKENS), batches.special_ids, unseen=1) if frequencies else 0.0
    for number in range(2):
        batch = batches[number]
        with torch.no_grad():
            logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits + added
        for row, of_text in enumerate(batches.batches[number]):
            for place, label in enumerate(batch["labels"][row].tolist()):
                if label != IGNORED:
                    shares = logits[row, place].double().softmax(dim=0)
                    bits -= float(shares[label].log2())
                    right += int(shares.argmax()) == label
                    size += read.sizes[of_text][place]
    after = found.after["all"]
    assert after.bits_per_byte == pytest.approx(bits / size, rel=1e-4)
    assert after.accuracy == pytest.approx(right / after.tokens)
    groups = [group.tokens for group in (found.after["overlapping"], found.after["new"]) if group]
    assert sum(groups) == after.tokens


@pytest.mark.parametrize(
    ("lines", "held_out", "left"),
    [
        (["maple"] * 40, 0, 40),
        ([f"sentence {n % 10}" for n in range(200)], 1, 180),
        ([line for n in range(300) for line in (f"line {n}", "all rights reserved")], 60, 540),
        ([f"line {n}" for n in range(5000)], 200, 4800),
    ],
)
def test_a_tenth_at_most_is_held_out_whatever_is_repeated(lines: list[str], held_out: int, left: int) -> None:
    trained_on, apart = _held_out(lines, HELD_OUT, 7)
    assert (len(apart), len(trained_on)) == (held_out, left)
    assert len(set(apart)) == len(apart)
    assert not set(apart) & set(trained_on)
    assert (list(trained_on), apart) == (list(_held_out(lines, HELD_OUT, 7)[0]), apart)


def test_what_is_held_out_changes_no_weight(tmp_path: Path) -> None:
    plain, measured = encoder(tmp_path), encoder(tmp_path)
    assert adapt(plain, TEXTS, NEW, section(), TrainingRun(seed=5, folder=tmp_path / "plain"))[1] is None
    adapt(
        measured, TEXTS, NEW, section(), TrainingRun(seed=5, folder=tmp_path / "measured"), held_out=texts(20, seed=12)
    )
    assert same(weights(measured), weights(plain))


def test_weights_that_are_not_finite_stop_the_run_at_once(tmp_path: Path) -> None:
    ours = encoder(tmp_path)
    with torch.no_grad():
        mlm_head(ours[0].auto_model).decoder.bias[70] = torch.nan
    with pytest.raises(CollapseError, match=r"adaptation step 0: the loss is nan\. Lower learning_rate"):
        adapt(ours, TEXTS, NEW, section(), TrainingRun(seed=1, folder=tmp_path / "checkpoints"))


def test_a_loss_far_above_that_of_guessing_stops_the_run(tmp_path: Path) -> None:
    ours = encoder(tmp_path)
    with torch.no_grad():  # logits so large that no step of a permitted size brings them back
        mlm_head(ours[0].auto_model).decoder.weight.mul_(1000.0)
    with pytest.raises(CollapseError, match=r"adaptation step \d+: the loss is [\d,.]+, .*Lower learning_rate"):
        adapt(ours, TEXTS, NEW, section(), TrainingRun(seed=1, folder=tmp_path / "checkpoints"))


@pytest.mark.bf16
@pytest.mark.parametrize("tied", [True, False])
def test_masked_dimensions_are_no_labels_and_stay_masked(tied: bool, tmp_path: Path) -> None:
    """A third of the tokens is masked: the loss is that of a model which has the other tokens only."""
    ours = encoder(tmp_path, tied=tied)
    model, hidden = ours[0].auto_model, np.arange(40, 70)
    mask_dimensions(model, hidden)
    head = mlm_head(model)
    rows = head.decoder.weight.detach()[hidden].clone()
    found = adapt(ours, TEXTS, NEW, section(), TrainingRun(seed=5, folder=tmp_path / "checkpoints"))[0]
    assert max(found["loss"]) < 2 * np.log(len(TOKENS) - len(hidden))
    assert torch.nonzero(masked_dimensions(model)).flatten().tolist() == hidden.tolist()
    assert (head.decoder.bias[hidden] == MASKED_BIAS).all()
    if not tied:  # no gradient: only the weight decay of all rows
        directions = torch.nn.functional.cosine_similarity(rows, head.decoder.weight.detach()[hidden])
        torch.testing.assert_close(directions, torch.ones(len(hidden)))


def test_texts_in_which_nothing_can_be_predicted_are_an_error(tmp_path: Path) -> None:
    ours = encoder(tmp_path)
    before = weights(ours)
    nothing = adapt(ours, TEXTS, NEW, section(mask_rate=1e-9), TrainingRun(seed=1, folder=tmp_path / "rate"))[0]["loss"]
    assert nothing == [0.0, 0.0]  # batches without a masked token are passed over
    assert same(weights(ours), before)
    with pytest.raises(DataError, match=r"2 texts in corpus.* 4 tokens"):
        adapt(ours, ["river", ""], NEW, section(), TrainingRun(seed=1, folder=tmp_path / "short"))
    mask_dimensions(ours[0].auto_model, np.arange(5, len(TOKENS)))
    with pytest.raises(DataError, match=r"masked dimension.*casing\.output"):
        adapt(ours, TEXTS, NEW, section(), TrainingRun(seed=1, folder=tmp_path / "masked"))


def test_the_loss_gate_waits_for_some_batches_in_a_row() -> None:
    gate = Gate("training", guessing=3.0)
    for value in (*[5.0] * 20, *[31.0] * 9, 29.0, *[31.0] * 9):
        gate(1, torch.tensor(value))
    with pytest.raises(CollapseError, match=r"step 7: the loss is 31\.0, and was above 30\.0 for 10 batches \(5\.0 in"):
        gate(7, torch.tensor(31.0))
    relative = Gate("training")  # no figure for guessing: a hundred times the first batches
    for value in (*[0.1] * 5, *[4.0] * 5, *[204.0] * 30, *[206.0] * 9):
        relative(1, torch.tensor(value))
    with pytest.raises(CollapseError, match=r"above 205\.0"):
        relative(1, torch.tensor(206.0))


def test_checkpoints_without_the_mark_are_removed_and_the_newest_complete_one_is_found(tmp_path: Path) -> None:
    assert last_complete_checkpoint(tmp_path) is None
    for step, complete in ((9, True), (10, True), (100, False)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if complete:
            (tmp_path / f"checkpoint-{step}" / COMPLETE).touch()
    assert last_complete_checkpoint(tmp_path) == tmp_path / "checkpoint-10"
    assert not (tmp_path / "checkpoint-100").exists()


def test_the_order_of_texts_goes_through_all_of_them_before_any_comes_again() -> None:
    order = fixed_order(7, 24, seed=3)
    assert len(order) == 24
    for start in (0, 7, 14):
        assert sorted(order[start : start + 7]) == list(range(7))
    assert not np.array_equal(order[:7], order[7:14])
    assert np.array_equal(order, fixed_order(7, 24, seed=3))
    assert not np.array_equal(order, fixed_order(7, 24, seed=4))


def test_every_text_of_the_order_is_in_exactly_one_batch() -> None:
    order, lengths = fixed_order(200, 150, seed=1), np.arange(200) % 40
    batches = masking.similar_lengths_together(order, lengths, 4, seed=1)
    assert sorted(np.concatenate(batches)) == sorted(order)
    assert [len(batch) for batch in batches].count(4) == 37

    def padding(groups: list[np.ndarray]) -> int:
        return sum(max(lengths[i] for i in group) - lengths[n] for group in groups for n in group)

    assert padding(batches) < 0.2 * padding(np.array_split(order, 38))


@pytest.mark.parametrize("bytes_held", [1, 2**20])
def test_the_masked_loss_and_gradients_are_of_all_logits(bytes_held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlm, "LOGITS_BYTES", bytes_held)  # one position at a time, and all of them
    generator = torch.Generator().manual_seed(3)
    decoder, hidden = torch.nn.Linear(16, 300), torch.randn(37, 16, generator=generator)
    masked = torch.zeros(300, dtype=torch.bool)
    masked[::3] = True
    with torch.no_grad():
        decoder.bias[masked] = MASKED_BIAS
        decoder.weight[masked] *= 1e4  # so that their logits would be the largest
    labels = 3 * torch.randint(0, 100, (37,), generator=generator) + 1

    def gradients(loss: Any) -> list[torch.Tensor]:
        given = hidden.clone().requires_grad_()
        decoder.zero_grad()
        value = loss(given)
        (2 * value).backward()
        return [value.detach(), given.grad, decoder.weight.grad.clone(), decoder.bias.grad.clone()]

    def whole(given: torch.Tensor) -> torch.Tensor:
        logits = torch.nn.functional.linear(given, decoder.weight, decoder.bias).masked_fill(masked, -torch.inf)
        return torch.nn.functional.cross_entropy(logits, labels)

    found = gradients(lambda given: masked_loss(given, labels, decoder, masked))
    for mine, its in zip(found, gradients(whole), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-4, atol=1e-7)
    assert not found[2][masked].any()
    assert not found[3][masked].any()


@pytest.mark.parametrize("objective", ["mlm", "sap"])
def test_a_batch_in_parts_gives_its_weights(objective: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resuming, "bf16_is_fast", lambda: False)
    parts = []
    original = masking.parts
    monkeypatch.setattr(mlm, "parts", lambda batch: parts.append(len(original(batch))) or original(batch))
    settings: dict[str, Any] = {"train": "all", "steps": 3, "batch_size": 16, "learning_rate": 1e-3, "max_length": 24}
    teacher = encoder(tmp_path / "teacher", dropout=0.0) if objective == "sap" else None
    if teacher is not None:
        settings |= {"objective": "sap", "teachers": [str(tmp_path / "taught")]}
        with torch.no_grad():
            teacher[0].auto_model.get_output_embeddings().weight.mul_(1.5)
        save_encoder(teacher, tmp_path / "taught")
    changes = []
    for tokens in (10**6, 40):
        monkeypatch.setattr(masking, "TOKENS_A_PART", tokens)
        ours = encoder(tmp_path / str(tokens), dropout=0.0)
        before = weights(ours)
        adapt(ours, TEXTS, NEW, section(**settings), TrainingRun(seed=5, folder=tmp_path / f"checkpoints-{tokens}"))
        after = weights(ours)
        changes.append(torch.cat([(after[name] - before[name]).flatten() for name in sorted(before)]))
    assert parts[:3] == [1, 1, 1]
    assert min(parts[3:]) > 3
    once, summed = changes
    assert once.norm() > 0.1
    assert (once - summed).norm() < 0.02 * once.norm()


# Queries that a model writes: sampled anew for each document, kept, repeatable, and what adaptation does with them.


PASSAGES = texts(40, seed=3, words=(8, 20))


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
    first = ours.queries(PASSAGES, 4, tmp_path / "a")
    assert all(1 <= len(queries) <= 3 and len(set(queries)) == len(queries) for queries in first)
    assert len(list((tmp_path / "a" / QUERIES_FOLDER).iterdir())) == -(-len(PASSAGES) // TEXTS_AT_ONCE)
    state = torch.get_rng_state()
    assert ours.queries(PASSAGES, 4, tmp_path / "b") == first
    assert torch.equal(torch.get_rng_state(), state)  # training's random numbers are not touched
    assert ours.queries(PASSAGES, 5, tmp_path / "c") != first
    with vtkit.executed_by(executor="processes", workers=2):
        assert ours.queries(PASSAGES, 4, tmp_path / "d") == first


def test_a_killed_run_writes_none_again(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = generator(folder)
    whole = ours.queries(PASSAGES, 4, tmp_path)
    kept = sorted((tmp_path / QUERIES_FOLDER).iterdir())
    kept[1].write_bytes(kept[1].read_bytes()[:50])
    before = [file.stat().st_mtime_ns for file in kept]
    assert ours.queries(PASSAGES, 4, tmp_path) == whole
    after = [file.stat().st_mtime_ns for file in kept]
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, True]
    assert ours.queries(PASSAGES[1:], 4, tmp_path)[0] != whole[0]  # files of other texts are not taken for these


def test_texts_without_a_query_are_counted_and_none_at_all_is_an_error(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = generator(folder)
    ours.queries(PASSAGES[:2], 4, tmp_path)
    (file,) = (tmp_path / QUERIES_FOLDER).iterdir()
    kept = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps([[], kept[1]]))
    assert ours.queries(PASSAGES[:2], 4, tmp_path)[0] == []
    assert "writes no query for 1 of 2 texts" in capsys.readouterr().err
    file.write_text(json.dumps([[], []]))
    with pytest.raises(DataError, match="writes only blank queries"):
        ours.queries(PASSAGES[:2], 4, tmp_path)


def test_adaptation_learns_with_them(folder: str, tmp_path: Path) -> None:
    settings = {"queries": folder}
    section = AdaptSection(objective="distill", steps=6, batch_size=6, max_length=24, distill=settings)
    ours = encoder(tmp_path)
    made = {"generator": generator(folder)}
    curves = adapt_vectors(
        ours, PASSAGES, section, TrainingRun(seed=5, folder=tmp_path / "checkpoints", language="en"), **made
    )
    assert curves["listwise"][-1] > 0


def test_what_is_no_generator_is_refused(folder: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"query generator .* is not a sequence-to-sequence model such as T5"):
        generator(str(bare(tmp_path / "bert")))
    with pytest.raises(DataError, match=r"query generator .*: there is no such folder"):
        generator(str(tmp_path / "nowhere"))
    with pytest.raises(ValidationError, match=r"distill\.queries names the model that writes them"):
        AdaptSection(distill={"queries": "generated"})

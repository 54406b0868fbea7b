"""Documents expanded by TILDE: the loss, Borda's count, which tokens are added, how they are read, and training."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from sentence_transformers import SparseEncoder
from tiny import ROLES, TOKENS, WORDS, collection, encoder, texts, tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from vocabularies import merging_bytes

from vtkit.encoder.asymmetric import with_sides
from vtkit.encoder.masked import mask_dimensions
from vtkit.settings.expand_documents import ExpandDocumentsSection
from vtkit.settings.recipe import Recipe
from vtkit.system.errors import DataError
from vtkit.training.document_expansion import expansions, tilde
from vtkit.training.document_expansion.expansions import (
    addable_words,
    expanded_set,
    expansion_words,
    listed_stop_words,
    load_expansions,
    with_words,
    write_expansions,
)
from vtkit.training.document_expansion.tilde import (
    LikeliestTokens,
    aggregated_pairs,
    counted_tokens,
    likelihood_loss,
    train_tilde,
)
from vtkit.training.resuming import TrainingRun
from vtkit.vocabulary.existing import wrap

# Borda's count


def test_borda_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three systems: document 5 has 3 + 2 + 0 points, 1 has 2 + 3 + 1, 7 has 1 + 0 + 3, and 9 has 0 + 1 + 2."""
    monkeypatch.setattr(tilde, "RANKING_DEPTH", 3)

    def counted(*rankings: list[int]) -> list[int]:
        return [document for _, document in aggregated_pairs([[ranking] for ranking in rankings], 1)]

    assert counted([5, 1, 7], [1, 5, 9], [7, 9, 1]) == [1, 5, 7, 9]
    assert counted([1, 2, 3], [2, 3, 1]) == [2, 1, 3]  # 5, 4 and 3 points
    assert counted([4, 3], [3, 4]) == [3, 4]  # as many points, as high: the lower number
    assert counted([8, 2, 4], [4, 6, 8]) == [4, 8, 2, 6]  # 4 and 8 have four points each
    assert counted([2, -1], [-1, -1]) == [2]  # -1 is no document
    assert counted([1, 2, 3], [9]) == [1, 9, 2, 3]  # 9 has 3 points too, and a higher number
    assert counted([]) == []
    monkeypatch.setattr(tilde, "POSITIVES", 1)
    assert aggregated_pairs([[[5, 1], [2, 3]], [[1, 5], [3]]], 2) == [(0, 1), (1, 3)]


# the loss


def test_the_loss_by_hand() -> None:
    logits = torch.tensor([[0.0, 2.0, -1.0, 5.0]])
    terms = torch.tensor([[0.0, 1.0, 0.0, 1.0]])
    counted = torch.tensor([True, True, True, False])

    def sigma(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    wanted = -math.log(1 - sigma(0)) - math.log(sigma(2)) - math.log(1 - sigma(-1))
    assert float(likelihood_loss(logits, terms, counted)) == pytest.approx(wanted)
    assert float(likelihood_loss(logits.repeat(3, 1), terms.repeat(3, 1), counted)) == pytest.approx(wanted)


def section(**changes: Any) -> ExpandDocumentsSection:
    return ExpandDocumentsSection(**{"steps": 12, "batch_size": 6, **changes})


def nothing_stops(model: SparseEncoder) -> torch.Tensor:
    return counted_tokens(model, np.zeros(len(TOKENS), dtype=bool))


@pytest.mark.bf16
def test_a_step_minimises_the_likelihood_of_either_text_given_the_other(tmp_path: Path) -> None:
    ours = encoder(tmp_path, dropout=0.0)
    mask_dimensions(ours[0].auto_model, [TOKENS.index("oak")])
    pairs = [("river stone", "oak fern river fern"), ("heron", "lagoon reef [SEP] 7"), ("otter marsh", "")]
    counted = nothing_stops(ours)
    total = 0.0
    for pair in pairs:
        for read, other in (pair, pair[::-1]):
            ids = ours.tokenizer(read)["input_ids"]
            with torch.no_grad():
                logits = ours[0].auto_model(input_ids=torch.tensor([ids])).logits[0, 0]
            there = set(ours.tokenizer(other)["input_ids"])
            for number, logit in enumerate(logits.tolist()):
                if number > 4 and TOKENS[number] != "oak":  # neither special tokens nor masked ones
                    probability = 1 / (1 + math.exp(-logit))
                    total -= math.log(probability if number in there else 1 - probability)
    run = TrainingRun(seed=0, folder=tmp_path / "checkpoints")
    found = train_tilde(ours, pairs, section(steps=1, batch_size=3), counted, run)
    assert found["loss"][0] == pytest.approx(total / 6, rel=2e-3)  # bf16, where it is fast


PARTNER = dict(zip(WORDS, [*WORDS[7:], *WORDS[:7]], strict=True))


def pairs_of(count: int, seed: int) -> list[tuple[str, str]]:
    """Queries that have no word of their documents: each word's partner instead."""
    documents = texts(count, seed, (3, 5))
    return [(" ".join(PARTNER[word] for word in text.split()[:2]), text) for text in documents]


def trained(folder: Path, pairs: list[tuple[str, str]], **changes: Any) -> tuple[SparseEncoder, dict[str, list[float]]]:
    ours = encoder(folder)
    run = TrainingRun(seed=3, folder=folder / "checkpoints")
    return ours, train_tilde(ours, pairs, section(**changes), nothing_stops(ours), run)


@pytest.mark.bf16
def test_documents_are_expanded_by_words_of_their_queries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansions, "LIKELIEST", 12)
    pairs = pairs_of(120, 1)

    def found(model: SparseEncoder, name: str) -> float:
        words = expansion_words(model, [text for _, text in pairs], section(), "en", tmp_path / name)
        together = list(zip(pairs, words, strict=True))
        assert all(not set(added) & set(text.split()) and len(added) <= 12 for (_, text), added in together)
        return float(np.mean([bool(set(query.split()) & set(added)) for (query, _), added in together]))

    before = found(encoder(tmp_path / "before"), "untrained")
    monkeypatch.setattr(ExpandDocumentsSection, "learning_rate", 5e-3)
    ours, curve = trained(tmp_path, pairs, steps=150, batch_size=16)
    assert curve["loss"][-1] < 0.5 * curve["loss"][0]
    assert found(ours, "trained") > max(0.7, before + 0.3)


def test_the_likeliest_tokens_are_those_at_the_first_position_whatever_stands_beside_a_text(tmp_path: Path) -> None:
    ours, asked = encoder(tmp_path), ["river oak", "", "stone fern marsh heron reef", "fern"]
    for found, text in zip(LikeliestTokens(ours, 9, 48)(asked)["tokens"], asked, strict=True):
        with torch.no_grad():
            logits = ours[0].auto_model(**ours.tokenizer([text], return_tensors="pt")).logits[0, 0]
        assert found.tolist() == logits.topk(9).indices.tolist(), text
    whole = with_sides(ours, ours, output=tokenizer())  # what is read must be what is written
    with pytest.raises(DataError, match="another vocabulary"):
        LikeliestTokens(whole, 3, 48)(["river"])


# which tokens


def addable(made: Any, stops: str = "") -> set[str]:
    unwanted = np.zeros(len(made), dtype=bool)
    for word in stops.split():
        unwanted[made.convert_tokens_to_ids(word)] = True
    return set(addable_words(made, np.zeros(len(made), dtype=bool), unwanted).values())


def test_pieces_marks_special_tokens_and_stop_words_are_not_added() -> None:
    made = tokenizer((*TOKENS, "the", "##ing", "2024", ".", "--", "[unused7]"))
    assert addable(made, "the oak") == ({*WORDS, *"abcdefghijklmnopqrstuvwxyz", "2024"} - {"oak"})
    stops = listed_stop_words(made, "en")
    assert [made.convert_ids_to_tokens(int(number)) for number in np.flatnonzero(stops)] == ["a", "the"]
    assert not listed_stop_words(made, "ko").any()


BPE = merging_bytes(
    *(("r", "i"), ("v", "e"), ("ve", "r"), ("Ġ", "ri"), ("ri", "ver"), ("Ġri", "ver"), ("Ġ", "o")), lowercase=False
)


def unigram() -> Any:
    pieces = [*[(role, 0.0) for role in ROLES.values()], ("▁river", -2.0), ("▁ri", -4.0), ("ver", -4.0), ("▁", -6.0)]
    pieces += [(letter, -8.0) for letter in "abcdefghijklmnopqrstuvwxyz"]
    backend = Tokenizer(models.Unigram(pieces, 1))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    return wrap(backend, ROLES, "of the test")


@pytest.mark.parametrize("made", [BPE, unigram()], ids=["bpe", "unigram"])
def test_in_every_family_a_word_is_read_back_as_its_token(made: Any) -> None:
    found = addable_words(made, np.zeros(len(made), dtype=bool), np.zeros(len(made), dtype=bool))
    assert {"river", "ri"} <= set(found.values())
    for number, word in found.items():
        assert made(f"ver {word}", add_special_tokens=False)["input_ids"][-1] == number
        assert made.convert_ids_to_tokens(number)[0] in "Ġ▁"
    assert made.convert_tokens_to_ids("ver") not in found


def test_frequent_tokens_and_those_of_the_text_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansions, "COMMON", 0.5)
    ours = encoder(tmp_path)
    documents = ["river oak", "river fern", "river reef", "marsh"]
    english = expansion_words(ours, documents, section(), "en", tmp_path / "english")
    assert "river" in english[3]  # English has a list of stop words, which alone are left out, as in the paper
    words = expansion_words(ours, documents, section(), "cy", tmp_path / "tokens")
    assert "river" not in words[3]
    assert {"oak", "fern", "reef"} <= set(words[3])
    (kept,) = (tmp_path / "tokens" / "tokens").iterdir()
    np.save(kept, np.load(kept)[:, ::-1])  # what an interrupted run left is used
    assert expansion_words(ours, documents, section(), "cy", tmp_path / "tokens") == [each[::-1] for each in words]
    first = LikeliestTokens(ours, len(TOKENS), 128)(documents)["tokens"]
    allowed = addable(tokenizer()) - {"river", "marsh"}
    assert words[3] == [TOKENS[n] for n in first[3] if TOKENS[n] in allowed]
    few = expansion_words(ours, documents, section(keep=2), "cy", tmp_path / "few")
    assert few[3] == words[3][:2]


# how they are read


@given(st.lists(st.sampled_from(WORDS), max_size=30), st.lists(st.sampled_from(WORDS), max_size=30), st.integers(4, 40))
def test_a_text_keeps_half_of_what_is_read_and_words_the_rest(text: list[str], words: list[str], length: int) -> None:
    made = tokenizer()
    (found,) = with_words([" ".join(text)], [words], made, length)
    read = made(found, truncation=True, max_length=length, add_special_tokens=True)["input_ids"]
    said = [TOKENS[number] for number in read if number > 4]
    kept = words[: (length - 2) // 2]
    room = length - 2 - len(kept)
    assert said == ([*text[:room], *kept] if words else text[: length - 2])


def test_expansions_are_found_again_by_their_texts(tmp_path: Path) -> None:
    data = collection(5)
    contents = [document.contents for document in data.documents]
    write_expansions(tmp_path, contents, [[f"w{n}", "oak"] for n in range(5)])
    found = expanded_set(data, load_expansions(tmp_path), tokenizer(), 48)
    assert [document.contents for document in found.documents] == [f"{c} w{n} oak" for n, c in enumerate(contents)]
    assert found.qrels == data.qrels
    assert [document.id for document in found.documents] == [document.id for document in data.documents]


# settings


def test_faults_of_settings_are_told_at_once() -> None:
    base: dict[str, Any] = {
        "recipe": {"name": "r"}, "source": {"model": "m"}, "vocabulary": {"kind": "existing", "tokenizer": "t"},
        "transfer": {"method": "subtoken", "scope": "head-only"}, "expand_documents": {},
    }  # fmt: skip
    with pytest.raises(ValidationError, match=r'add \[finetune\].*scope "head-only" does not read'):
        Recipe.model_validate(base)
    Recipe.model_validate({**base, "expand_documents": {"method": "none"}})

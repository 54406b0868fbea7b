"""Cased tokens, case variants and lower-case names: by hand in every family, on real vocabularies, by the command."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import invoke, succeeds
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sentence_transformers import SparseEncoder
from support import refused
from tiny import CASED, encoder, model, texts, tokenizer
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from vocabularies import XLM_ROLES, byte_level, sentencepiece, wordpiece

from vtkit.encoder.checkpoint import as_sparse_encoder, load_encoder, save_encoder
from vtkit.encoder.encoding import encode
from vtkit.encoder.families import mlm_head
from vtkit.encoder.folding import apply_output_casing, fold_map_of, fold_vectors, fold_weights, folds, set_folding
from vtkit.encoder.masked import MASKED_BIAS, masked_dimensions
from vtkit.settings.casing import CasingSection
from vtkit.system.errors import DataError
from vtkit.vocabulary.casing import (
    canonical_classes,
    cased_ids,
    cased_only,
    count_casing,
    fold_map,
    lower_case_names,
    lowered,
    map_cased,
)
from vtkit.vocabulary.existing import load_tokenizer, special_roles, with_casing, wrap
from vtkit.vocabulary.forms import tokens


def names(tokenizer: PreTrainedTokenizerFast, ids: object) -> list[str]:
    listed = tokens(tokenizer)
    return [listed[number] for number in ids]


def merging(merges: list[tuple[str, str]], *, lower: bool = True) -> PreTrainedTokenizerFast:
    """A byte-level BPE whose vocabulary is the letters of its merges and what they make, in this order."""
    letters = dict.fromkeys(letter for pair in merges for letter in "".join(pair))
    vocabulary = [*XLM_ROLES.values(), *letters, *(a + b for a, b in merges)]
    assert len(set(vocabulary)) == len(vocabulary)
    backend = Tokenizer(models.BPE({token: n for n, token in enumerate(vocabulary)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    backend.decoder = decoders.ByteLevel()
    if lower:
        backend.normalizer = normalizers.Lowercase()
    return wrap(backend, XLM_ROLES, "of the test")


def test_a_cased_token_has_a_character_that_lower_casing_changes() -> None:
    tokenizer = wordpiece("the", "The", "##R", "eBay", "Ünder", "ℝ", "2", "가", "ǅ", "[unused1]", "##x")
    assert names(tokenizer, cased_ids(tokenizer)) == ["The", "##R", "eBay", "Ünder", "ǅ"]


def test_byte_level_and_sentencepiece_tokens_are_read_before_they_are_judged() -> None:
    # Ġ, Ł and Ã are upper-case letters by which byte-level vocabularies write bytes; ▁ is the mark of a word start
    byte = byte_level("Ġthe", "ĠThe", "Ã¶", "Ãĸ", "Ġ", "A¢")
    assert names(byte, cased_ids(byte)) == ["ĠThe", "Ãĸ", "A¢"]
    pieces = sentencepiece("▁the", "▁The", "X", "▁")
    assert names(pieces, cased_ids(pieces)) == ["▁The", "X"]


@given(st.text(st.characters(min_codepoint=32, max_codepoint=0x52F)))  # Latin, Greek, Cyrillic
def test_lower_case_is_that_of_the_tokenizers_library(text: str) -> None:
    assert lowered(text) == normalizers.Lowercase().normalize_str(text)
    assert lowered("ΟΔΟΣ") == "οδοσ"  # Python's own lower() ends in another letter


def test_case_variants_are_equal_up_to_case_and_word_start_mark() -> None:
    tokenizer = wordpiece("The", "##the", "the", "THE", "##ING", "Ing", "paris", "!", "##!", "[unused1]", "Ä", "a")
    classes = [names(tokenizer, ids) for ids in canonical_classes(tokenizer)]
    # the lower-case word start leads; without one the lower-case continuation, then the cased word start
    assert classes == [["the", "##the", "The", "THE"], ["Ing", "##ING"], ["!", "##!"]]
    byte = byte_level("ing", "ĠIng", "Ing", "Ġ")
    assert [names(byte, ids) for ids in canonical_classes(byte)] == [["ing", "ĠIng", "Ing"]]


def test_the_fold_map_sends_every_token_to_its_class_and_leaves_the_others() -> None:
    tokenizer = wordpiece("The", "the", "##the", "x")
    assert fold_map(tokenizer).tolist() == [0, 1, 2, 3, 4, 6, 6, 6, 8]
    assert fold_map(tokenizer, 16).tolist() == [0, 1, 2, 3, 4, 6, 6, 6, *range(8, 16)]


@given(st.lists(st.sampled_from(["a", "A", "##a", "##A", "b", "B", "##b", "Ab", "##aB"]), unique=True))
def test_folding_is_done_in_one_step_and_never_crosses_classes(words: list[str]) -> None:
    tokenizer = wordpiece(*words)
    folded_to = fold_map(tokenizer)
    assert (folded_to[folded_to] == folded_to).all()
    for one, first in enumerate(words, 5):
        for other, second in enumerate(words, 5):
            same = first.removeprefix("##").lower() == second.removeprefix("##").lower()
            assert (folded_to[one] == folded_to[other]) == same
    assert len(set(folded_to.tolist())) == count_casing(tokenizer).folded


def test_only_tokens_without_a_lower_case_form_take_a_free_name() -> None:
    tokenizer = wordpiece("Paris", "The", "the", "USA", "Usa", "##S", "##s", "x", "X")
    assert names(tokenizer, cased_only(tokenizer)) == ["Paris", "USA", "Usa"]
    assert lower_case_names(tokenizer) == {5: ("Paris", "paris"), 8: ("USA", "usa")}
    counts = count_casing(tokenizer)
    assert (counts.cased, counts.with_lower_case, counts.cased_only, counts.free_names) == (6, 3, 3, 2)


def test_a_word_start_and_a_continuation_are_different_names() -> None:
    whole = wordpiece("the", "The")
    assert map_cased(whole)[0] is whole  # no name is free
    assert lower_case_names(wordpiece("Par", "##par"))[5] == ("Par", "par")
    assert lower_case_names(byte_level("ĠPar", "par", "Ã©Ãī")) == {5: ("ĠPar", "Ġpar"), 7: ("Ã©Ãī", "Ã©Ã©")}
    assert lower_case_names(byte_level("A¢")) == {}  # ends inside a character: cased only, but it has no whole name


def test_lower_cased_text_reaches_a_renamed_wordpiece_or_unigram_token() -> None:
    for own, text, wanted in (
        (wordpiece("Paris", "##X", "p", "a"), "PARIS paXX", "paris"),
        (sentencepiece("▁Paris", "▁", "p", "a"), "PARIS", "▁paris"),
    ):
        mapped, _, unreached = map_cased(with_casing(own, CasingSection(input="lowercase")))
        assert unreached == ()
        assert mapped.tokenize(text)[0] == wanted
        assert special_roles(mapped) == special_roles(own)
        assert len(mapped) == len(own)
        assert mapped("paris")["input_ids"][0] == special_roles(own)["cls"]


def test_cased_tokens_take_the_names_that_their_own_tokenizer_makes() -> None:
    """Turkish: of I comes a dotless i, of İ a dotted one."""
    cased = wordpiece("Isparta", "İzmir", "ı", "I", "izmir")
    assert set(lower_case_names(cased).values()) >= {("Isparta", "isparta")}
    turkish = with_casing(cased, CasingSection(input="lowercase", language="tr"))
    assert {names for names in lower_case_names(turkish).values() if len(names[0]) > 1} == {("Isparta", "ısparta")}
    classes = [[tokens(turkish)[number] for number in ids] for ids in canonical_classes(turkish)]
    assert sorted(classes) == [["izmir", "İzmir"], ["ı", "I"]]
    assert map_cased(turkish)[0].tokenize("ISPARTA Isparta") == ["ısparta"] * 2


def test_a_renamed_bpe_token_is_reached_through_a_merge_of_its_lower_case_pieces() -> None:
    tokenizer = merging([("a", "r"), ("p", "ar"), ("i", "s"), ("P", "ar"), ("Par", "is"), ("Ġ", "Par"), ("ĠPar", "is")])
    # inside a word, where no whole pre-token is compared: x + paris
    mapped, renamed, unreached = map_cased(tokenizer)
    assert {now for _, now in renamed.values()} == {"paris", "Ġpar", "Ġparis"} | {
        lowered(letter) for letter in "P" if lowered(letter) not in tokens(tokenizer)
    }
    assert unreached == ()
    assert tokenizer.tokenize("Paris") == ["Ġ", "par", "is"]
    assert mapped.tokenize("Paris") == ["Ġparis"]
    assert mapped.tokenize("ppParis")[-1] == "paris"


@pytest.mark.parametrize("name", ["bert-base-cased-unilm", "ModernBERT-base"])
def test_a_real_vocabulary_reads_lower_case_by_its_renamed_tokens(name: str, shared: Path, tmp_path: Path) -> None:
    original = with_casing(load_tokenizer(str(shared / "vocab" / name)), CasingSection(input="lowercase"))
    mapped, renamed, unreached = map_cased(original)
    assert unreached == ()
    mapped.save_pretrained(str(tmp_path))
    loaded = AutoTokenizer.from_pretrained(str(tmp_path), local_files_only=True)
    text = "PARIS and the Netherlands met in Japan in 2024, over croissants."
    words = [token.lstrip("Ġ") for token in loaded.tokenize(text)]
    assert {"paris", "netherlands", "japan"} <= set(words)
    assert not {"paris", "netherlands", "japan"} & {token.lstrip("Ġ") for token in original.tokenize(text)}
    # what has no new name in it is read as before
    plain = "the weather over the western sea turned cold, and rain fell on 27 islands."
    assert loaded(plain)["input_ids"] == original(plain)["input_ids"]
    # the ids have not moved
    before, now = tokens(original), tokens(loaded)
    assert {n for n in range(len(before)) if before[n] != now[n]} == set(renamed)


def run(*arguments: object) -> str:
    return succeeds("casing", *arguments).stdout


def test_the_command_counts_and_lists(tmp_path: Path) -> None:
    wordpiece("The", "the", "##the", "Paris", "e\x1bvil", "E\x1bVIL").save_pretrained(str(tmp_path / "t"))
    lines = run(tmp_path / "t").splitlines()
    assert lines[0].endswith(": 11 tokens (wordpiece)")
    assert any(line.split()[:2] == ["cased", "3"] for line in lines)
    assert any("Paris → paris" in line for line in lines)
    assert run(tmp_path / "t", "--list", "cased") == "5\tThe\n8\tParis\n10\tE\ufffdVIL\n"
    assert run(tmp_path / "t", "--list", "cased-only") == "8\tParis\tparis\n"
    assert run(tmp_path / "t", "--list", "variants") == "6\tthe\t7\t##the\t5\tThe\n9\te\ufffdvil\t10\tE\ufffdVIL\n"
    assert json.loads(run(tmp_path / "t", "--json"))["cased_only"] == 1
    (first, _) = json.loads(run(tmp_path / "t", "--list", "variants", "--json"))
    assert (first["id"], [variant["id"] for variant in first["variants"]]) == (6, [7, 5])


def test_the_command_writes_a_mapped_tokenizer_and_never_over_another(tmp_path: Path) -> None:
    wordpiece("Paris", "p", "in").save_pretrained(str(tmp_path / "t"))
    out = tmp_path / "mapped"
    assert "renamed tokens: 1" in run(tmp_path / "t", "--apply", "map", "--input", "lowercase", "--out", out)
    assert AutoTokenizer.from_pretrained(str(out), local_files_only=True).tokenize("PARIS") == ["paris"]
    given = ["casing", str(tmp_path / "t"), "--input", "lowercase", "--out", str(out)]
    assert "already exists" in str(invoke(*given).exception)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mapped", "t"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--apply", "mask", "--out", "new"], "--apply mask"),
        (["--apply", "map", "--out", "new"], 'input = "lowercase"'),
        (["--apply", "map", "--input", "lowercase"], "with --out"),
        (["--out", "new"], "with --apply or --input"),
        (["--input", "lowercase", "--list", "cased", "--out", "new"], "give one of them"),
    ],
)
def test_the_command_says_what_does_not_go_together(arguments: list[str], message: str, tmp_path: Path) -> None:
    wordpiece("Paris").save_pretrained(str(tmp_path / "t"))
    assert message in str(invoke("casing", tmp_path / "t", *arguments).exception)
    assert not Path("new").exists()


# Masked and folded dimensions: by hand, against a plain loop, and through models saved and loaded without vtkit.


TEXTS = [*texts(8, seed=5), "River river RIVER", "Oslo", "a A"]


def cased_encoder(folder: Path, architecture: str = "bert", **settings: object) -> SparseEncoder:
    return encoder(folder, architecture, tokens=CASED, **settings)


def looped(vectors: np.ndarray, folded_to: np.ndarray) -> np.ndarray:
    folded = np.zeros_like(vectors)
    for row in range(len(vectors)):
        for column in range(len(folded_to)):
            value, to = vectors[row, column], folded_to[column]
            folded[row, to] = max(folded[row, to], value)
    return folded


@given(st.integers(0, 4), st.data())
def test_folding_is_the_plain_loop(count: int, data: st.DataObject) -> None:
    vectors = np.array(
        data.draw(st.lists(st.lists(st.sampled_from([0, 0.5, 1, 2]), min_size=6, max_size=6), min_size=count,
                           max_size=count)), dtype=np.float32).reshape(count, 6)  # fmt: skip
    folded_to = np.array([0, 0, 2, 0, 4, 4])
    wanted = looped(vectors, folded_to)
    found = fold_vectors(sparse.csr_matrix(vectors), folded_to)
    assert found.has_sorted_indices
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found.toarray(), wanted)
    np.testing.assert_array_equal(fold_vectors(found, folded_to).toarray(), wanted)
    batch = fold_weights(torch.from_numpy(vectors), torch.from_numpy(folded_to))
    np.testing.assert_array_equal(batch.numpy(), wanted)
    refused(ValueError, "6 dimensions and a fold map of 5", fold_vectors, found, folded_to[:5])


def test_an_encoder_that_says_so_is_encoded_folded_wherever_it_has_been_saved(tmp_path: Path) -> None:
    ours = cased_encoder(tmp_path)
    plain = encode(ours, TEXTS, 48)
    set_folding(ours, True)
    save_encoder(ours, tmp_path / "model")
    loaded = load_encoder(str(tmp_path / "model"))
    assert folds(loaded)
    wanted = fold_vectors(plain, fold_map(tokenizer(CASED)))
    np.testing.assert_allclose(encode(loaded, TEXTS, 48).toarray(), wanted.toarray(), atol=1e-6)
    assert encode(loaded, TEXTS, 48).nnz < plain.nnz
    # what sentence-transformers gives is not folded, and can be
    library = loaded.encode(TEXTS, convert_to_sparse_tensor=False).numpy()
    np.testing.assert_allclose(library, plain.toarray(), atol=1e-5)
    set_folding(loaded, False)
    np.testing.assert_allclose(encode(loaded, TEXTS, 48).toarray(), plain.toarray(), atol=1e-6)


def test_only_so_many_dimensions_are_kept_after_folding(tmp_path: Path) -> None:
    ours = cased_encoder(tmp_path)
    set_folding(ours, True)
    whole, kept = encode(ours, TEXTS, 48), encode(ours, TEXTS, 48, top_dimensions=5)
    for row in range(len(TEXTS)):
        np.testing.assert_array_equal(np.sort(kept[row].data), np.sort(whole[row].data)[-5:])
    apply_output_casing(ours, "all")  # takes the folding back
    assert not folds(ours)
    assert not masked_dimensions(ours[0].auto_model).any()
    ours[0].auto_model.config.vtkit_fold = "mean"
    refused(DataError, r"config\.json .*'mean'", encode, ours, TEXTS, 48)


def test_the_rows_that_fill_a_vocabulary_up_are_folded_onto_themselves(tmp_path: Path) -> None:
    padded = model(tokens=(*CASED, *(f"[unused{n}]" for n in range(8))))
    ours = as_sparse_encoder(padded, tokenizer(CASED), tmp_path / "padded")
    assert fold_map_of(ours)[len(CASED) :].tolist() == list(range(len(CASED), len(CASED) + 8))
    set_folding(ours, True)
    assert encode(ours, TEXTS, 48).shape == (len(TEXTS), len(CASED) + 8)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("architecture", ["bert", "distilbert", "roberta", "modernbert"])
def test_a_masked_dimension_is_never_active_others_as_before(architecture: str, tied: bool, tmp_path: Path) -> None:
    ours = cased_encoder(tmp_path, architecture, tied=tied)
    ids = cased_ids(ours.tokenizer)
    assert [CASED[number] for number in ids] == ["River", "RIVER", "Oslo"]
    wanted = encode(ours, TEXTS, 48).toarray()
    assert wanted[:, ids].any()
    wanted[:, ids] = 0
    assert apply_output_casing(ours, "mask") == 3
    bias = mlm_head(ours[0].auto_model).decoder.bias
    assert (bias[ids] == MASKED_BIAS).all()
    assert torch.isfinite(bias.half()).all()
    save_encoder(ours, tmp_path / "model")
    loaded = load_encoder(str(tmp_path / "model"))
    assert np.flatnonzero(masked_dimensions(loaded[0].auto_model)).tolist() == ids.tolist()
    np.testing.assert_array_equal(encode(loaded, TEXTS, 48).toarray(), encode(ours, TEXTS, 48).toarray())
    np.testing.assert_allclose(encode(loaded, TEXTS, 48).toarray(), wanted, atol=1e-5)
    library = loaded.encode(TEXTS, convert_to_sparse_tensor=False).numpy()
    np.testing.assert_allclose(library, wanted, atol=1e-5)


def test_a_mapped_model_reads_and_writes_the_lower_case_name(tmp_path: Path) -> None:
    before = cased_encoder(tmp_path)
    mapped = map_cased(with_casing(tokenizer(CASED), CasingSection(input="lowercase")))[0]
    ours = as_sparse_encoder(before[0].auto_model, mapped, tmp_path / "mapped")
    assert apply_output_casing(ours, "map") == 2  # River and RIVER, beside river; oslo is no longer cased
    save_encoder(ours, tmp_path / "model")
    plain = SparseEncoder(str(tmp_path / "model"), device="cpu")
    found = plain.encode(["OSLO River"], convert_to_sparse_tensor=False)[0].numpy()
    assert mapped.convert_tokens_to_ids("oslo") == CASED.index("Oslo")
    reads = before[0].auto_model(torch.tensor([[*tokenizer(CASED)("Oslo river")["input_ids"]]])).logits[0]
    weights = torch.log1p(torch.relu(reads.amax(dim=0)))
    weights[[CASED.index("River"), CASED.index("RIVER")]] = 0
    np.testing.assert_allclose(found, weights.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("policy", ["mask", "map", "fold"])
def test_the_command_writes_a_model_with_the_policy(policy: str, tmp_path: Path) -> None:
    ours = cased_encoder(tmp_path)
    ours.max_seq_length = 20
    save_encoder(ours, tmp_path / "model")
    out = tmp_path / "changed"
    result = succeeds("casing", tmp_path / "model", "--apply", policy, "--input", "lowercase", "--out", out, "--json")
    facts = json.loads(result.stdout)
    changed = load_encoder(str(out))
    assert changed.max_seq_length == 20
    assert changed.tokenizer("RIVER")["input_ids"] == changed.tokenizer("river")["input_ids"]
    lower = "oslo river " + TEXTS[0]
    np.testing.assert_array_equal(
        encode(changed, [lower.upper()], 48).toarray(), encode(changed, [lower], 48).toarray()
    )
    if policy == "fold":
        assert folds(changed)
        assert facts["fold"] == "max"
        assert facts["dimensions_after_folding"] == len(set(fold_map(tokenizer(CASED)).tolist()))
    else:
        masked = int(masked_dimensions(changed[0].auto_model).sum())
        assert facts["masked_dimensions"] == masked == {"mask": 3, "map": 2}[policy]
    if policy == "map":
        assert facts["renamed_tokens"] == 1
        assert changed.tokenizer.tokenize("OSLO") == ["oslo"]

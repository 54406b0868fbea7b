"""Semantic initialisation: equal to the dense formula, and every kind of table that a target vocabulary may have."""

import json
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from entmax import entmax_bisect, sparsemax
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding, Transformer
from test_overlap import byte_level, wordpiece
from transformers import PreTrainedTokenizerFast

from vtkit.system.errors import DataError
from vtkit.transfer.methods.semantic import Table, load_table, table_mixture
from vtkit.vocabulary.existing import load_tokenizer
from vtkit.vocabulary.forms import Vocabulary, tokens
from vtkit.vocabulary.pair import pair_of

SOURCE = wordpiece("river", "apple", "stone", "the", ".")
TARGET = wordpiece("brook", "apple", "river", "##s", ".", "stone", "[unused3]", "pebble")
PAIR = pair_of(SOURCE, TARGET)


def vectors(tokenizer: PreTrainedTokenizerFast, width: int = 6, seed: int = 1) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(len(tokenizer), width)).astype(np.float32)


def save_static(folder: Path, tokenizer: PreTrainedTokenizerFast, tensors: dict[str, torch.Tensor]) -> str:
    folder.mkdir()
    tokenizer.save_pretrained(str(folder))
    save_file(tensors, folder / "model.safetensors")
    return str(folder)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0, 4.0])
def test_rows_are_those_of_the_dense_formula(alpha: float) -> None:
    table = vectors(TARGET)
    pair = pair_of(SOURCE, TARGET, source_rows=len(SOURCE) + 3)
    mixture = table_mixture(pair, Table(Vocabulary(TARGET), table), alpha)
    known, wanted = tokens(SOURCE), tokens(TARGET)
    new = [wanted.index(token) for token in ("brook", "##s", "pebble")]
    anchors = [wanted.index(token) for token in ("apple", "river", ".", "stone")]  # shared, and no special tokens
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    scores = torch.from_numpy((unit[new] @ unit[anchors].T).astype(np.float64))
    expected = scores.softmax(1) if alpha == 1 else entmax_bisect(scores, alpha, dim=1, n_iter=100)
    if alpha == 2:
        assert torch.allclose(expected, sparsemax(scores, dim=1))
    embeddings = np.random.default_rng(2).normal(size=(len(SOURCE) + 3, 4)).astype(np.float32)
    sources = [known.index(wanted[number]) for number in anchors]
    assert mixture.rows(embeddings)[new] == pytest.approx(expected.numpy() @ embeddings[sources], abs=1e-5)
    assert mixture.counts() == {"overlap": 9, "semantic": 3, "mean": 1}


def test_two_shared_tokens_that_are_one_source_token_add_up() -> None:
    target = wordpiece("##.", ".", "brook")  # both are the source's "." by the rule of symbols
    table = vectors(target)
    table[-3:] = table[-1]
    mixture = table_mixture(pair_of(SOURCE, target), Table(Vocabulary(target), table), 4.0)
    assert mixture.sources(len(target) - 1) == [(tokens(SOURCE).index("."), 1.0)]


def test_a_table_over_part_of_the_vocabulary_is_evidence_for_that_part(capsys: pytest.CaptureFixture[str]) -> None:
    part = wordpiece("pebble", "river", "apple", "brook", "else")
    table = vectors(part)
    table[tokens(part).index("brook")] = 0  # a row of zeros says nothing
    mixture = table_mixture(PAIR, Table(Vocabulary(part), table), 4.0, "part")
    assert mixture.counts() == {"overlap": 9, "semantic": 1, "mean": 3}
    assert mixture.methods[tokens(TARGET).index("pebble")] == "semantic"
    sources = {tokens(SOURCE)[number] for number, _ in mixture.sources(tokens(TARGET).index("pebble"))}
    assert sources <= {"river", "apple"}
    assert "part have no vector for 2 of the 3 new tokens" in " ".join(capsys.readouterr().err.split())


def test_a_table_of_another_family_is_matched_by_what_tokens_stand_for() -> None:
    other = byte_level("Ġbrook", "Ġriver", "s", "Ġstone")
    mixture = table_mixture(PAIR, Table(Vocabulary(other), vectors(other)), 4.0)
    names = dict(zip(tokens(TARGET), mixture.methods, strict=True))
    assert names["brook"] == names["##s"] == "semantic"
    assert names["pebble"] == "mean"


def test_a_table_over_another_vocabulary_or_with_nan_is_refused() -> None:
    foreign = wordpiece("강", "사과", "돌", "의")
    with pytest.raises(DataError, match=r"\(9 tokens\).* vectors for 0 of the 7 .* none of the new tokens"):
        table_mixture(PAIR, Table(Vocabulary(foreign), vectors(foreign)))
    nothing_shared = wordpiece("brook", "pebble")
    with pytest.raises(DataError, match="none of the tokens that both vocabularies share"):
        table_mixture(PAIR, Table(Vocabulary(nothing_shared), vectors(nothing_shared)))
    table = vectors(TARGET)
    table[2, 3] = np.nan
    with pytest.raises(DataError, match=r"1 of 13 vectors are not finite"):
        table_mixture(PAIR, Table(Vocabulary(TARGET), table))
    mixture = table_mixture(pair_of(SOURCE, SOURCE), Table(Vocabulary(SOURCE), vectors(SOURCE)))
    assert mixture.counts() == {"overlap": len(SOURCE)}  # without new tokens none is needed


def test_the_input_embeddings_of_any_model_are_a_table(tmp_path: Path) -> None:
    masked = tiny.model(seed=5)
    for name, model in (("masked", masked), ("plain", masked.base_model)):
        model.save_pretrained(tmp_path / name)
        tiny.tokenizer().save_pretrained(str(tmp_path / name))
    sentence = SentenceTransformer(modules=[Transformer(str(tmp_path / "plain")), Pooling(32)], device="cpu")
    sentence.save(str(tmp_path / "sentence"))
    tiny.encoder(tmp_path, seed=5).save(str(tmp_path / "sparse"))
    expected = masked.get_input_embeddings().weight.detach().numpy()
    for name in ("masked", "plain", "sentence", "sparse"):
        table = load_table(str(tmp_path / name))
        assert np.array_equal(table.vectors, expected)
        assert tokens(table.vocabulary.tokenizer) == list(tiny.TOKENS)


def test_static_tables_are_read(tmp_path: Path) -> None:
    tokenizer = tiny.tokenizer()
    table = torch.from_numpy(vectors(tokenizer, 8))
    static = StaticEmbedding(tokenizer, embedding_weights=table)
    SentenceTransformer(modules=[static], device="cpu").save(str(tmp_path / "static"))
    assert np.array_equal(load_table(str(tmp_path / "static")).vectors, table.numpy())
    # model2vec: rows that tokens share, and half precision
    mapping = torch.arange(len(tokenizer)) // 2
    half = save_static(tmp_path / "model2vec", tokenizer, {"embeddings": table.half(), "mapping": mapping})
    (Path(half) / "config.json").write_text('{"model_type": "model2vec"}')
    assert np.array_equal(load_table(half).vectors, table.half().float().numpy()[mapping.numpy()])
    alone = save_static(tmp_path / "alone", tokenizer, {"table": table})
    assert np.array_equal(load_table(alone).vectors, table.numpy())
    mixture = table_mixture(pair_of(SOURCE, tokenizer), load_table(alone), 2.0)
    assert mixture.counts()["semantic"] == len(tokenizer) - mixture.counts()["overlap"]


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    tokenizer = tiny.tokenizer()
    size = len(tokenizer)
    short, flat, matrix = torch.zeros(size - 3, 4), torch.zeros(size), torch.zeros(size, 4)
    wrong = {
        "short": ({"embeddings": short}, rf"has {size} tokens and the table the shape \({size - 3}, 4\)"),
        "flat": ({"embeddings": flat}, rf"the shape \({size},\)"),
        "two": ({"a": matrix, "b": matrix.clone()}, r"should hold one matrix .* holds a \("),
        "mapped": ({"embeddings": torch.zeros(5, 4), "mapping": torch.arange(size)}, "maps tokens to rows"),
    }
    for name, (tensors, message) in wrong.items():
        with pytest.raises(DataError, match=message):
            load_table(save_static(tmp_path / name, tokenizer, tensors))
    file = tmp_path / "short" / "model.safetensors"
    file.write_bytes(b"half")
    with pytest.raises(DataError, match="cannot be read as safetensors"):
        load_table(str(tmp_path / "short"))
    file.unlink()
    for name, said in (
        (str(tmp_path / "short"), "holds neither a transformers model"),
        (str(tmp_path / "nowhere"), "there is no such folder"),
        ("nobody/no-such-model", "Run again with --download"),
    ):
        with pytest.raises(DataError, match=said):
            load_table(name)


def test_a_model_without_its_embeddings_is_refused(tmp_path: Path) -> None:
    folder = tiny.bare(tmp_path / "model")
    file, config = folder / "model.safetensors", folder / "config.json"
    lacking = {name: tensor for name, tensor in load_file(file).items() if "word_embeddings" not in name}
    save_file(lacking, file, {"format": "pt"})
    with pytest.raises(DataError, match=r"its weights lack 1 of the tensors .*word_embeddings"):
        load_table(str(folder))
    file.unlink()
    with pytest.raises(DataError, match="holds no weights"):
        load_table(str(folder))
    config.write_text(json.dumps(json.loads(config.read_text()) | {"model_type": "no-such-type"}))
    with pytest.raises(DataError, match="which the installed transformers does not have"):
        load_table(str(folder))


def test_a_real_table_finds_words_of_like_meaning(shared: Path) -> None:
    source = load_tokenizer(str(shared / "vocab" / "ModernBERT-base"))
    target = load_tokenizer(str(shared / "vocab" / "bert-base-uncased"))
    pair = pair_of(source, target)
    table = str(shared / "models" / "all-MiniLM-L6-v2")  # over the vocabulary of bert-base-uncased
    mixture = table_mixture(pair, load_table(table))
    assert mixture.counts() == {"overlap": 17_216, "semantic": 12_312, "mean": 994}  # 994 are [unusedN]
    known = tokens(source)
    found = {known[number].strip("Ġ").lower() for number, _ in mixture.sources(tokens(target).index("encyclopedia"))}
    assert len(found) == 3
    assert "dictionary" in found or "wikipedia" in found

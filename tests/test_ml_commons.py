"""The query table as a tokenizer model of ML Commons: text and vector give the same scores, whatever the tokens."""

import io
import json
import zipfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import tiny
from hypothesis import given
from hypothesis import strategies as st
from opensearch_server import nine_bits
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from vtkit.deploy.ml_commons import MOST_TOKENS, query_model
from vtkit.search.java import cast_to, java_class
from vtkit.search.opensearch import LARGEST_WEIGHT
from vtkit.system.errors import DataError
from vtkit.vocabulary.existing import wrap

LENGTH = 12
CORPUS = [
    "The quick.brown fox; e.g. 3.14 and U.S.A. - don't",
    'quotes " and \\ and <0x0A> and ▁ and ## and Ġ',
    "대한민국의 수도는 서울이다. 서울특별시",
    "tabs\tand\nnew lines \x07 and \u200d joiners 👩‍🚀 é e\u0301",
    "[CLS] [SEP] [UNK] [PAD] t12 . .. ... weights.t3",
]
TEXTS = (*CORPUS, "the fox", "zzz 龍", "[PAD]", ".", " fox fox  fox", "long " * 40 + "quick", "E.G. THE Quick")


def tokenizer_of(model: Any, pre_tokenizer: Any, decoder: Any, trainer: Any, normalizer: Any = None) -> Tokenizer:
    made = Tokenizer(model)
    made.pre_tokenizer, made.decoder = pre_tokenizer, decoder
    if normalizer is not None:
        made.normalizer = normalizer
    made.train_from_iterator(CORPUS * 3, trainer)
    made.add_tokens([AddedToken("U.S.A.", normalized=False), AddedToken("[unused1]", normalized=False)])
    return made


FAMILIES = ("WordPiece", "byte-level", "SentencePiece")


@cache
def family(name: str) -> PreTrainedTokenizerFast:
    given: dict[str, Any] = {"special_tokens": list(tiny.ROLES.values()), "show_progress": False}
    if name == "WordPiece":
        trainer = trainers.WordPieceTrainer(vocab_size=220, **given)
        parts = models.WordPiece({}, unk_token="[UNK]"), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
        made = tokenizer_of(*parts, trainer, normalizers.BertNormalizer())
    elif name == "byte-level":
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=340, initial_alphabet=alphabet, **given)
        made = tokenizer_of(
            models.BPE(), pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel(), trainer
        )
    else:
        trainer = trainers.UnigramTrainer(vocab_size=200, unk_token="[UNK]", **given)
        parts = models.Unigram(), pre_tokenizers.Metaspace(), decoders.Metaspace()
        made = tokenizer_of(*parts, trainer, normalizers.NFKC())
    return wrap(made, tiny.ROLES, "of the test")


def table(tokenizer: PreTrainedTokenizerFast, seed: int = 1) -> np.ndarray:
    """Random weights; a fifth of the tokens, and the special ones, weigh nothing."""
    draw = np.random.default_rng(seed)
    weights = draw.uniform(0.1, 8, len(tokenizer)).astype("f4") * (draw.random(len(tokenizer)) < 0.8)
    weights[tokenizer.all_special_ids] = 0
    return weights


def looked_up(tokenizer: PreTrainedTokenizerFast, weights: np.ndarray, texts: Sequence[str]) -> sp.csr_matrix:
    """Vectors by their definition: the weight of each distinct token among the first ones."""
    vectors = sp.lil_matrix((len(texts), len(weights)), dtype=np.float32)
    for row, text in enumerate(texts):
        for token in set(tokenizer(text, add_special_tokens=False)["input_ids"][:LENGTH]):
            vectors[row, token] = weights[token]
    found = vectors.tocsr()
    found.eliminate_zeros()
    return found


def names_of(tokenizer: PreTrainedTokenizerFast, weights: np.ndarray) -> list[str | None]:
    """The feature of each dimension: its token; None if no query has a weight for it."""
    tokens = tokenizer.convert_ids_to_tokens(range(len(weights)))
    return [token if weight else None for token, weight in zip(tokens, weights, strict=True)]


def read(model: bytes) -> tuple[dict[str, Any], dict[str, float]]:
    """``tokenizer.json`` and ``idf.json`` of a model."""
    with zipfile.ZipFile(io.BytesIO(model)) as archive:
        assert {entry.date_time[0] for entry in archive.infolist()} == {1980}  # equal tables make equal zips
        return json.loads(archive.read("tokenizer.json")), json.loads(archive.read("idf.json").decode("ascii"))


def tokenized(model: bytes, text: str) -> dict[str, float]:
    """The weights that SPARSE_TOKENIZE gives the distinct tokens of ``text``, each decoded by itself."""
    parts, idf = read(model)
    tokenizer = Tokenizer.from_str(json.dumps(parts))
    tokenizer.enable_truncation(min(MOST_TOKENS, tokenizer.truncation["max_length"]))
    tokenizer.enable_padding()
    found: dict[str, float] = {}
    for number in dict.fromkeys(tokenizer.encode(text).ids):
        token = tokenizer.decode([number], skip_special_tokens=True)
        assert token not in found
        if token:
            found[token] = float(np.float32(idf.get(token, 1.0)))
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_a_text_has_the_weights_of_its_vector(name: str) -> None:
    tokenizer = family(name)
    weights = table(tokenizer)
    model, names = query_model(tokenizer, weights, LENGTH), names_of(tokenizer, weights)
    for query, vector in zip(TEXTS, looked_up(tokenizer, weights, TEXTS), strict=True):
        told = tokenized(model, query)
        assert {token: weight for token, weight in told.items() if token in names} == {
            names[term]: float(weight) for term, weight in zip(vector.indices, vector.data, strict=True)
        }
        assert all(weight < 1e-30 for token, weight in told.items() if token not in names)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_model_cuts_text_as_the_tokenizer_does_and_calls_every_token_by_its_own_name(name: str) -> None:
    tokenizer = family(name)
    weights = table(tokenizer)
    parts, idf = read(query_model(tokenizer, weights, LENGTH))
    found = Tokenizer.from_str(json.dumps(parts))
    for query in TEXTS:
        assert found.encode(query).ids == tokenizer(query, add_special_tokens=False)["input_ids"][:LENGTH]
    names = [found.decode([number], skip_special_tokens=True) for number in range(len(weights))]
    named = [token for token in names_of(tokenizer, weights) if token is not None]
    assert [token for token, weight in zip(names, weights, strict=True) if weight] == named
    vocabulary = tokenizer.get_vocab()
    assert all(idf[token] == pytest.approx(weights[number], abs=1e-30) for token, number in vocabulary.items())
    if name == "byte-level":
        assert all(isinstance(merge, str) for merge in parts["model"]["merges"])


@pytest.mark.parametrize("name", FAMILIES)
def test_the_libraries_that_opensearch_is_made_of_give_these_scores_too(tmp_path: Path, name: str) -> None:
    """No server, but what ML Commons and neural-search call: DJL tokenizes and decodes, Lucene keeps and scores."""
    tokenizer = family(name)
    weights = table(tokenizer)
    vectors, names = looked_up(tokenizer, weights, TEXTS), names_of(tokenizer, weights)
    documents = sp.random(12, len(weights), 0.3, format="csr", random_state=1, dtype=np.float32)
    with zipfile.ZipFile(io.BytesIO(query_model(tokenizer, weights, LENGTH))) as archive:
        archive.extractall(tmp_path)
    tokenized_by_djl = djl(tmp_path)
    searched = lucene([features(documents, row, names) for row in range(documents.shape[0])])
    cut = documents.copy()
    cut.data = np.array([nine_bits(weight) for weight in documents.data])
    for query, wanted in zip(TEXTS, (vectors @ cut.T).toarray(), strict=True):
        found = searched(tokenized_by_djl(query))
        assert found == pytest.approx({number: score for number, score in enumerate(wanted) if score}, rel=1e-5)
    for weight in (0.0, LARGEST_WEIGHT * 1.01):
        with pytest.raises(Exception, match=r"weight must be in \(0, 64\.0\]"):
            searched({"the": weight})
    searched({"the": LARGEST_WEIGHT, "fox": 2.0**-126})


def features(documents: sp.csr_matrix, row: int, names: Sequence[str | None]) -> dict[str, float]:
    of = documents[row]
    return {str(names[term]): float(weight) for term, weight in zip(of.indices, of.data, strict=True) if names[term]}


def djl(folder: Path) -> Callable[[str], dict[str, float]]:
    """A query as SPARSE_TOKENIZE of ML Commons encodes it, by the library that it calls."""
    for name, value in {"OPT_OUT_TRACKING": "true", "ai.djl.offline": "true", "DJL_CACHE_DIR": str(folder)}.items():
        java_class("java.lang.System").setProperty(name, value)
    builder = java_class("ai.djl.huggingface.tokenizers.HuggingFaceTokenizer").builder().optPadding(True)
    file = java_class("java.io.File")(str(folder / "tokenizer.json"))
    tokenizer = builder.optTokenizerPath(file.toPath()).build()
    idf = json.loads((folder / "idf.json").read_text("ascii"))

    def encode(query: str) -> dict[str, float]:
        tokens = [tokenizer.decode([number], True) for number in dict.fromkeys(tokenizer.encode(query).getIds())]
        assert len(set(filter(None, tokens))) == len(list(filter(None, tokens)))
        return {token: idf.get(token, 1.0) for token in tokens if token}

    return encode


def lucene(documents: Sequence[dict[str, float]]) -> Callable[[dict[str, float]], dict[int, float]]:
    """Document number -> score of a query, in an index with a field as ``rank_features`` writes it."""
    package = "org.apache.lucene."
    feature_field = java_class(f"{package}document.FeatureField")
    directory = java_class(f"{package}store.ByteBuffersDirectory")()
    writer = java_class(f"{package}index.IndexWriter")(directory, java_class(f"{package}index.IndexWriterConfig")())
    for document in documents:
        written = java_class(f"{package}document.Document")()
        for name, weight in document.items():
            written.add(feature_field("weights", name, weight))
        writer.addDocument(written)
    writer.close()
    reader = java_class(f"{package}index.DirectoryReader").open(directory)
    searcher = java_class(f"{package}search.IndexSearcher")(cast_to(f"{package}index.IndexReader", reader))
    should = java_class(f"{package}search.BooleanClause$Occur").SHOULD

    def search(query: dict[str, float]) -> dict[int, float]:
        asked = java_class(f"{package}search.BooleanQuery$Builder")()
        for name, weight in query.items():
            asked.add(feature_field.newLinearQuery("weights", name, weight), should)
        hits = searcher.search(asked.build(), len(documents)).scoreDocs
        return {hit.doc: hit.score for hit in hits}

    return search


@given(st.lists(st.text(min_size=1, max_size=6), min_size=3, max_size=20, unique=True), st.integers(0, 99))
def test_whatever_tokens_are_called_they_are_features_of_that_name(tokens: list[str], seed: int) -> None:
    """Quotes, dots, control characters, spaces: a name is the token, and its weight is found by it."""
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys([*tiny.ROLES.values(), *tokens]))}
    tokenizer = wrap(Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]")), tiny.ROLES, "of the test")
    weights = np.random.default_rng(seed).uniform(0.1, 9, len(vocabulary)).astype("f4")
    weights[: len(tiny.ROLES)] = 0
    model = query_model(tokenizer, weights, LENGTH)
    for token, number in vocabulary.items():
        assert tokenized(model, token) == ({} if token in tiny.ROLES.values() else {token: float(weights[number])})


def test_a_weighted_special_token_is_asked_for_too() -> None:
    """Tables of other libraries may weigh [UNK], which ML Commons leaves out as long as it is a special token."""
    model = query_model(tiny.tokenizer(), np.ones(len(tiny.TOKENS), dtype=np.float32), LENGTH)
    assert tokenized(model, "oak 7 [SEP]") == {"oak": 1.0, "[UNK]": 1.0, "[SEP]": 1.0}


@pytest.mark.parametrize("weight", [-1.0, LARGEST_WEIGHT * 1.01, float("nan")])
def test_weights_that_lucene_refuses_are_refused(weight: float) -> None:
    weights = np.ones(len(tiny.TOKENS), dtype=np.float32)
    weights[9] = weight
    with pytest.raises(DataError, match="OpenSearch accepts only 0 to 64"):
        query_model(tiny.tokenizer(), weights, LENGTH)

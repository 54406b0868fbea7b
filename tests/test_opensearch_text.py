"""Queries as text in OpenSearch: its tokenizer model and vtkit's vectors give the same scores, whatever the tokens."""

import io
import json
import zipfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest
import scipy.sparse as sp
import tiny
from hypothesis import given
from hypothesis import strategies as st
from opensearch_server import Cluster, finish, nine_bits, running, tokenized
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from vtkit import encode_texts, index_vectors
from vtkit.encoder.checkpoint import save_encoder
from vtkit.encoder.folding import set_folding
from vtkit.encoder.query_tables import binary_weights, with_query_table
from vtkit.evaluation.judging import EvaluateResult
from vtkit.pipeline.folder import open_run
from vtkit.pipeline.run import run
from vtkit.pipeline.search import open_searcher
from vtkit.pipeline.stage import Chain
from vtkit.pipeline.steps.deploy_index import DEPLOY
from vtkit.pipeline.store import result_of
from vtkit.recipe.load import load_recipe
from vtkit.search import opensearch_text
from vtkit.search.engine import build_index, reach_engine
from vtkit.search.java import cast_to, java_class
from vtkit.search.opensearch import OpenSearchRanker, build_opensearch
from vtkit.search.opensearch_text import LARGEST_WEIGHT, TextQueries, of_table, text_queries
from vtkit.settings.engines import OpenSearchSettings
from vtkit.settings.index import IndexSection
from vtkit.system.errors import DataError, RecipeError, VtkitError
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


def as_text(tokenizer: PreTrainedTokenizerFast, weights: np.ndarray, texts: Sequence[str] = TEXTS) -> TextQueries:
    return of_table(tokenizer, weights, LENGTH, tuple(texts))


def asked(url: str, **changes: Any) -> IndexSection:
    return IndexSection(engine="opensearch", url=url, opensearch=OpenSearchSettings(query="text", **changes))


def some_documents(width: int, count: int = 30) -> sp.csr_matrix:
    return sp.random(count, width, 0.3, format="csr", random_state=1, dtype=np.float32)


def sent(server: Any, what: str) -> list[bytes]:
    """The bodies of the requests in whose line ``what`` stands."""
    return [body for line, body in server.bodies if what in line]


@pytest.mark.parametrize("name", FAMILIES)
def test_the_score_of_a_text_is_the_dot_product_with_its_vector(tmp_path: Path, name: str) -> None:
    """The server tokenizes by itself, decodes every id and looks it up; features keep 9 bits of a weight."""
    tokenizer = family(name)
    weights = table(tokenizer)
    text = as_text(tokenizer, weights)
    vectors = looked_up(tokenizer, weights, TEXTS)
    documents = some_documents(len(weights))
    cut = documents.copy()
    cut.data = np.array([nine_bits(weight) for weight in documents.data])
    with running() as server:
        build_opensearch(documents, tmp_path, asked(server.url), text)
        ranker = OpenSearchRanker.open(tmp_path, asked(server.url))
        compared = 0
        for query, wanted in zip(text.texts, (vectors @ cut.T).toarray(), strict=True):
            ids, scores = ranker.rank_text(query)
            assert scores == pytest.approx(np.sort(wanted[wanted > 0])[::-1][:10], rel=1e-5)
            assert wanted[ids] == pytest.approx(scores, rel=1e-5)
            compared += len(ids)
        assert compared > 60
        (model,) = server.cluster.models
        for row, query in enumerate(text.texts):  # the vector itself, feature by feature
            vector = {text.features[term]: float(vectors[row, term]) for term in vectors[row].indices}
            told = tokenized(server.cluster, model, query)
            assert {token: weight for token, weight in told.items() if token in text.features} == vector
            assert all(weight < 1e-30 for token, weight in told.items() if token not in text.features)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_model_cuts_text_as_the_tokenizer_does_and_calls_every_token_by_its_own_name(name: str) -> None:
    tokenizer = family(name)
    weights = table(tokenizer)
    text = as_text(tokenizer, weights)
    with zipfile.ZipFile(io.BytesIO(text.model)) as archive:
        assert {entry.date_time[0] for entry in archive.infolist()} == {1980}  # equal tables make equal zips
        parts, idf = (json.loads(archive.read(file)) for file in ("tokenizer.json", "idf.json"))
    found = Tokenizer.from_str(json.dumps(parts))
    for query in TEXTS:
        assert found.encode(query).ids == tokenizer(query, add_special_tokens=False)["input_ids"][:LENGTH]
    names = [found.decode([number], skip_special_tokens=True) for number in range(len(weights))]
    assert [name for name, weight in zip(names, weights, strict=True) if weight] == [
        name for name in text.features if name is not None
    ]
    vocabulary = tokenizer.get_vocab()
    assert all(idf[token] == pytest.approx(weights[number], abs=1e-30) for token, number in vocabulary.items())
    if name == "byte-level":
        assert all(isinstance(merge, str) for merge in parts["model"]["merges"])


@pytest.mark.parametrize("name", FAMILIES)
def test_the_libraries_that_opensearch_is_made_of_give_these_scores_too(tmp_path: Path, name: str) -> None:
    """No server, but what ML Commons and neural-search call: DJL tokenizes and decodes, Lucene keeps and scores."""
    tokenizer = family(name)
    weights = table(tokenizer)
    text, vectors = as_text(tokenizer, weights), looked_up(tokenizer, weights, TEXTS)
    documents = some_documents(len(weights), 12)
    with zipfile.ZipFile(io.BytesIO(text.model)) as archive:
        archive.extractall(tmp_path)
    tokenized_by_djl = djl(tmp_path)
    searched = lucene([features(documents, row, text.features) for row in range(documents.shape[0])])
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
    """Quotes, dots, control characters, spaces: a name is the token, and the server finds its weight by it."""
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys([*tiny.ROLES.values(), *tokens]))}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer = wrap(backend, tiny.ROLES, "of the test")
    weights = np.random.default_rng(seed).uniform(0.1, 9, len(vocabulary)).astype("f4")
    weights[: len(tiny.ROLES)] = 0
    text = as_text(tokenizer, weights, tokens)
    cluster = Cluster(models={"m": {"chunks": {0: text.model}, "total_chunks": 1, "model_state": "DEPLOYING"}})
    cluster.models["m"]["model_content_hash_value"] = text.digest
    finish(cluster, {"model_id": "m"})
    for token, number in vocabulary.items():
        told = tokenized(cluster, "m", token)
        assert told == ({} if token in tiny.ROLES.values() else {text.features[number]: float(weights[number])})
        assert text.features[number] == (None if token in tiny.ROLES.values() else token)


def test_what_is_sent_is_what_opensearch_documents(tmp_path: Path) -> None:
    tokenizer = family("WordPiece")
    text = as_text(tokenizer, table(tokenizer))
    with running() as server:
        build_opensearch(some_documents(len(tokenizer)), tmp_path, asked(server.url, two_phase=0.4), text)
        (index,) = server.indices
        first = {line: number for number, (line, _) in reversed(list(enumerate(server.bodies)))}
        (waiting,) = {line for line in first if line.startswith("GET /_plugins/_ml/tasks/")}
        model = "/_plugins/_ml/models/model-0"
        order = ["POST /_plugins/_ml/models/_register_meta", f"POST {model}/upload_chunk/0", f"POST {model}/_deploy",
                 waiting, f"PUT /_search/pipeline/{index}", f"PUT /{index}", f"POST /{index}/_bulk",
                 f"POST /{index}/_refresh", f"POST /{index}/_msearch"]  # fmt: skip
        assert sorted(order, key=first.__getitem__) == order
        meta = json.loads(sent(server, "_register_meta")[0])
        assert meta == json.loads((tmp_path / "model.json").read_text())
        assert (meta["function_name"], meta["model_format"]) == ("SPARSE_TOKENIZE", "TORCH_SCRIPT")
        assert meta["total_chunks"] == 1
        assert sent(server, "upload_chunk") == [text.model] == [(tmp_path / "model.zip").read_bytes()]
        enricher = {"neural_query_enricher": {"default_model_id": "model-0"}}
        phases = {"enabled": True, "two_phase_parameter": {"prune_ratio": 0.4}}
        two = [enricher, {"neural_sparse_two_phase_processor": phases}]
        pipelines = {"pipeline.json": (index, [enricher]), "two-phase.json": (f"{index}-two-phase", two)}
        for file, (name, processors) in pipelines.items():
            assert server.cluster.pipelines[name]["request_processors"] == processors
            assert json.loads((tmp_path / file).read_text()) == server.cluster.pipelines[name]
        created = json.loads(sent(server, f"PUT /{index}")[0])
        assert created == json.loads((tmp_path / "mapping.json").read_text())
        assert created["settings"]["index"]["search.default_pipeline"] == index
        (query,) = {body for body in sent(server, f"/{index}/_search") if b"the fox" in body and b"quick" not in body}
        assert json.loads(query)["query"] == {"neural_sparse": {"weights": {"query_text": "the fox"}}}


def test_equal_tables_are_registered_once_and_one_that_is_not_deployed_is_deployed(tmp_path: Path) -> None:
    tokenizer = family("SentencePiece")
    text = as_text(tokenizer, table(tokenizer))
    tokenizer.save_pretrained(str(tmp_path / "saved"))
    loaded = PreTrainedTokenizerFast.from_pretrained(str(tmp_path / "saved"))
    assert as_text(loaded, table(tokenizer)).digest == text.digest
    with running() as server:

        def build(seed: int, which: TextQueries = text) -> None:
            folder = tmp_path / f"{len(server.bodies)}"
            folder.mkdir()
            documents = sp.random(9, len(tokenizer), 0.4, format="csr", random_state=seed, dtype=np.float32)
            build_opensearch(documents, folder, asked(server.url), which)

        build(1)
        build(2)
        assert (len(server.cluster.models), len(server.indices)) == (1, 2)
        assert len(sent(server, "_deploy")) == 1
        server.cluster.models["model-0"]["model_state"] = "UNDEPLOYED"  # as after a restart
        build(2)
        assert (len(server.cluster.models), len(sent(server, "_deploy")), len(sent(server, "_bulk"))) == (1, 2, 2)
        server.cluster.models["model-0"]["model_state"] = "DEPLOYING"  # by another process
        build(2)
        assert (len(server.cluster.models), len(sent(server, "_deploy"))) == (1, 2)
        server.cluster.models["model-0"]["model_state"] = "REGISTERING"  # half sent, by one that was killed
        build(1)
        assert len(server.cluster.models) == 2
        build(1, as_text(tokenizer, table(tokenizer, seed=2)))
        assert (len(server.cluster.models), len(server.indices)) == (3, 3)  # another table is another index, too


def test_a_large_model_is_sent_in_chunks_and_files_that_are_cut_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opensearch_text, "_CHUNK_BYTES", 1000)
    tokenizer = family("byte-level")
    text = as_text(tokenizer, table(tokenizer))
    with running() as server:
        build_opensearch(some_documents(len(tokenizer)), tmp_path, asked(server.url), text)
        chunks = sent(server, "upload_chunk")
        assert len(chunks) == -(-len(text.model) // 1000) > 3
        assert b"".join(chunks) == text.model
        for name in ("opensearch.json", "features.json"):
            whole = (tmp_path / name).read_bytes()
            (tmp_path / name).write_bytes(whole[: len(whole) // 2])
            with pytest.raises(DataError, match=r"damaged|missing"):
                OpenSearchRanker.open(tmp_path, asked(server.url))
            (tmp_path / name).write_bytes(whole)
        OpenSearchRanker.open(tmp_path, asked(server.url)).client.close()


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ({"has_plugins": False}, r"no handler found.*ML Commons and neural-search.*or set it to 'neural_sparse'"),
        ({"local_files": False}, r"plugins\.ml_commons\.allow_registering_model_via_local_file = true"),
        ({"ml_nodes": False}, r"a node with the role ml.*only_run_on_ml_node = false"),
        ({"deployment_error": "native memory exhausted"}, r"cannot deploy .*model-0 \(FAILED\): native memory"),
        ({"polls": -1}, r"still REGISTERING after 0\.3 seconds"),
        ({"two_phase": False}, r"two_phase needs the plugin neural-search, 2\.15"),
    ],
)
def test_what_a_cluster_refuses_is_said_with_the_way_out(
    tmp_path: Path, cluster: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opensearch_text, "DEPLOYMENT_TIMEOUT", 0.3 if "polls" in cluster else 20)
    tokenizer = family("WordPiece")
    with running() as server:
        for name, value in cluster.items():
            setattr(server.cluster, name, value)
        settings = asked(server.url, two_phase=0.4)
        with pytest.raises(DataError, match=said):
            build_opensearch(some_documents(len(tokenizer)), tmp_path, settings, as_text(tokenizer, table(tokenizer)))
        assert server.indices == {}
        assert not (tmp_path / "opensearch.json").exists()


def test_a_cluster_without_models_is_found_out_before_anything_is_computed(capfd: pytest.CaptureFixture[str]) -> None:
    with running() as server:
        made = asked(server.url)
        reach_engine(made)
        assert "".join(capfd.readouterr()) == ""
        server.cluster.local_files = False
        reach_engine(made)
        said = " ".join("".join(capfd.readouterr()).split())
        assert "plugins.ml_commons.allow_registering_model_via_local_file = true" in said
        server.cluster.has_plugins = False
        with pytest.raises(DataError, match="needs the plugins ML Commons and neural-search"):
            reach_engine(made)
        reach_engine(IndexSection(engine="opensearch", url=server.url))  # which needs none of it


def test_a_cluster_that_encodes_otherwise_is_found_out(tmp_path: Path) -> None:
    """Here one that gives a token another weight, as another tokenizer's version could give another token."""
    tokenizer = family("WordPiece")
    text, documents = as_text(tokenizer, table(tokenizer)), some_documents(len(tokenizer))
    with running() as server:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
        build_opensearch(documents, tmp_path / "one", asked(server.url), text)
        server.cluster.models["model-0"]["idf"] = {}
        with pytest.raises(DataError, match=r"encodes queries differently from vtkit: the best score for .* is \d"):
            build_opensearch(documents, tmp_path / "two", asked(server.url), text)
        assert not (tmp_path / "two" / "opensearch.json").exists()


def test_two_phases_are_another_pipeline_and_their_cost_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tokenizer = family("byte-level")
    text, documents = as_text(tokenizer, table(tokenizer)), some_documents(len(tokenizer), 300)
    with running() as server:
        build_opensearch(documents, tmp_path, asked(server.url, two_phase=0.8), text)
        said = " ".join("".join(capfd.readouterr()).split())
        assert f"{len(text.texts)} queries as text" in said
        assert "in two phases against exact: overlap@10 0." in said
        ranker = OpenSearchRanker.open(tmp_path, asked(server.url))
        fast, exact = (
            [ranker.rank_text(query, **how)[0].tolist() for query in text.texts]
            for how in ({"search_pipeline": f"{ranker.index}-two-phase"}, {})
        )
        assert exact != fast


# encoders


def test_encoders_whose_queries_are_more_than_a_table_are_refused(tmp_path: Path) -> None:
    plain = tiny.encoder(tmp_path)
    with pytest.raises(RecipeError, match=r"need the model.*query_encoder of \[finetune\]"):
        text_queries(plain, ["oak"], 48)
    ours = with_query_table(plain, binary_weights(plain), frozen=True)
    assert text_queries(ours, ["oak", "", " \n", "oak", "fern"], 48).texts == ("oak", "fern")
    ours.prompts["query"] = "query: "
    with pytest.raises(RecipeError, match="puts 'query: ' before every query"):
        text_queries(ours, ["oak"], 48)
    ours.prompts["query"] = ""
    set_folding(ours, True)
    with pytest.raises(RecipeError, match="folds its vectors"):
        text_queries(ours, ["oak"], 48)
    set_folding(ours, False)
    for weight in (-1.0, LARGEST_WEIGHT + 1, np.nan):
        table_ = np.full(len(tiny.TOKENS), weight, dtype=np.float32)
        with pytest.raises(DataError, match="accepts only 0 to 64"):
            text_queries(with_query_table(plain, table_, frozen=True), ["oak"], 48)
    made = asked("http://127.0.0.1:9")
    with pytest.raises(ValueError, match="needs the query table"):
        build_index(made, some_documents(9), tmp_path / "index")


def test_a_weighted_special_token_is_asked_for_too(tmp_path: Path) -> None:
    """Tables of other libraries may weigh [UNK], which ML Commons leaves out as long as it is a special token."""
    tokenizer = tiny.tokenizer()
    weights = np.ones(len(tiny.TOKENS), dtype=np.float32)
    text = as_text(tokenizer, weights, ["oak 7", "[SEP] fern"])
    assert text.features[tiny.TOKENS.index("[UNK]")] == "[UNK]"
    with running() as server:
        build_opensearch(some_documents(len(weights)), tmp_path, asked(server.url), text)
        assert tokenized(server.cluster, "model-0", "oak 7 [SEP]") == {"oak": 1.0, "[UNK]": 1.0, "[SEP]": 1.0}


# recipes

RECIPE = """
[recipe]
name = "text"
language = "en"
[source]
model = "./encoder"
[vocabulary]
kind = "existing"
tokenizer = "./encoder"
[transfer]
method = "subtoken"
[finetune]
data = "collection"
steps = 3
batch_size = 4
query_encoder = "idf"
[index]
engine = "opensearch"
url = "http://localhost:9200"
opensearch.query = "text"
[evaluate]
sets = ["collection"]
models = ["finetune"]
bm25 = false
"""


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["index.lexical=bm25"], 'terms of a lexical part, which are not tokens.*Set lexical to "none"'),
        (["finetune.query_encoder=shared"], 'set finetune.query_encoder to "binary", "idf" or "learned"'),
        (["casing.output=fold"], 'set casing.output to "all", "mask" or "map"'),
        (["index.opensearch.query=rank_feature", "index.opensearch.two_phase=0.4"], "two_phase is a pipeline for text"),
        (["index.opensearch.two_phase=1"], "two_phase"),
    ],
)
def test_recipes_that_cannot_be_asked_by_text_are_refused(tmp_path: Path, settings: list[str], said: str) -> None:
    (tmp_path / "text.toml").write_text(RECIPE, encoding="utf-8")
    with pytest.raises(RecipeError, match=said):
        load_recipe(tmp_path / "text.toml", settings)
    if not settings[0].startswith("index.opensearch"):  # nothing is wrong with it in another engine
        load_recipe(tmp_path / "text.toml", [*settings, "index.engine=lucene"])


def test_a_whole_run_ends_in_an_index_that_is_asked_by_text(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The request of an application finds what vtkit finds."""
    save_encoder(tiny.encoder(tmp_path / "work"), tmp_path / "encoder")
    found = tiny.collection(24)
    tiny.write_collection(tmp_path / "collection", found)
    tiny.add_training_queries(tmp_path / "collection", found)
    (tmp_path / "text.toml").write_text(RECIPE, encoding="utf-8")
    with running() as server:
        wanted = (f"index.url={server.url}", "index.opensearch.two_phase=0.4")
        folder = run(tmp_path / "text.toml", wanted, runs=tmp_path / "runs", until="evaluate", threads=1)
        said = " ".join("".join(capfd.readouterr()).split())
        assert "opensearch: 16 queries as text give the scores of their vectors" in said
        compared = result_of(open_run(folder).steps["evaluate:deployed"], EvaluateResult).sets["collection"].agreement
        assert compared.overlap > 0.9
        (index,) = server.indices
        ours = next(open_searcher(folder, model=None, collection=None).search(["amber river"], 5)).results
        body = {"query": {"neural_sparse": {"weights": {"query_text": "amber river"}}}, "size": 5}
        request = Request(f"{server.url}/{index}/_search", json.dumps(body).encode(), method="POST")
        with urlopen(request) as response:
            hits = json.load(response)["hits"]["hits"]
        assert [hit["_score"] for hit in hits] == pytest.approx([result.score for result in ours])
        assert {f"d{hit['_id']}" for hit in hits} == {result.id for result in ours}


def test_how_long_queries_are_matters_where_the_cluster_cuts_them_and_a_scratch_source_has_no_table(
    tmp_path: Path,
) -> None:
    path = tmp_path / "text.toml"
    path.write_text(RECIPE, encoding="utf-8")
    for query, counts in (("text", True), ("neural_sparse", False)):
        recipe = load_recipe(path, [f"index.opensearch.query={query}"]).recipe
        chain = Chain({}, of_source=False, models=["finetune"], steps={"finetune": "f", "encode:queries": "q"})
        (wired,) = DEPLOY.wire(recipe, chain)
        assert ("index.query_length" in wired.stage.settings(recipe)) == counts
    scratch = ["source.scratch.layers=2", "transfer=none"]
    load_recipe(path, scratch)
    with pytest.raises(RecipeError, match="a scratch source's queries go through the model"):
        load_recipe(path, [*scratch, "finetune.query_encoder=source"])
    load_recipe(path, [*scratch, "finetune.query_encoder=source", 'calibrate.query_encoder="idf"'])


def test_an_index_outside_of_runs_is_asked_by_text(tmp_path: Path) -> None:
    plain = tiny.encoder(tmp_path / "work")
    save_encoder(with_query_table(plain, binary_weights(plain), frozen=True), tmp_path / "encoder")
    save_encoder(plain, tmp_path / "plain")
    (tmp_path / "texts.txt").write_text("\n".join(tiny.texts(20)), encoding="utf-8")
    for model in ("encoder", "plain"):
        encode_texts(str(tmp_path / model), str(tmp_path / "texts.txt"), tmp_path / f"{model}-vectors")
    with running() as server:
        settings = {"engine": "opensearch", "url": server.url, "opensearch": {"query": "text"}}
        index_vectors(tmp_path / "encoder-vectors", tmp_path / "index", **settings)
        assert len(sent(server, "_search")) > 16
        assert next(open_searcher(tmp_path / "index", model=None, collection=None).search(["river"], 3)).results
        with pytest.raises(VtkitError, match="need the model"):
            index_vectors(tmp_path / "plain-vectors", tmp_path / "other", **settings)
        documents = tmp_path / "encoder-vectors" / "documents.jsonl"
        documents.write_text(documents.read_text().replace('"text"', '"txt"'))
        with pytest.raises(VtkitError, match=r"documents\.jsonl: 20 problems"):
            index_vectors(tmp_path / "encoder-vectors", tmp_path / "other", **settings)
        assert not (tmp_path / "other").exists()

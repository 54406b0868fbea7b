"""Both sides of an encoder: static query tables, cut and folded like any vector, and prompts."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.modules import Router, SparseStaticEmbedding
from tiny import TOKENS, add_training_queries, collection, encoder, finished_run, texts, tokenizer

from vtkit.encoder.asymmetric import WholeEncoder
from vtkit.encoder.checkpoint import load_encoder
from vtkit.encoder.folding import fold_map_of, fold_vectors, set_folding
from vtkit.encoder.sides import encode_side
from vtkit.pipeline.run import run
from vtkit.pipeline.search import open_searcher
from vtkit.search.stored_vectors import read_vectors
from vtkit.system.errors import DataError

TEXTS = [*texts(4), "", "river river river", "a ba ab"]
TABLE = torch.linspace(0.1, 2.0, len(TOKENS))


@pytest.fixture
def asymmetric(tmp_path: Path) -> WholeEncoder:
    """Queries by a table, documents by a transformer, and a prompt for each."""
    document = encoder(tmp_path)
    router = Router.for_query_document(
        [SparseStaticEmbedding(tokenizer(), TABLE, frozen=True)], [document[0], document[1]]
    )
    plain = SparseEncoder(modules=[router], device="cpu", prompts={"query": "oak ", "document": "pine "})
    plain.save(str(tmp_path / "model"), create_model_card=False)
    loaded = load_encoder(str(tmp_path / "model"))
    assert isinstance(loaded, WholeEncoder)
    return loaded


def test_a_query_weighs_its_distinct_tokens_as_the_table_says(asymmetric: WholeEncoder) -> None:
    vectors = encode_side(asymmetric, ["river river stone"], "query", 48)
    wanted = {TOKENS.index(word): float(TABLE[TOKENS.index(word)]) for word in ("oak", "river", "stone")}  # oak: prompt
    assert dict(zip(vectors.indices.tolist(), vectors.data.tolist(), strict=True)) == wanted
    assert encode_side(asymmetric, [], "query", 48).shape == (0, len(TOKENS))


@pytest.mark.parametrize("side", ["query", "document"])
def test_both_sides_are_folded_where_the_model_says_so(side: str, asymmetric: WholeEncoder) -> None:
    plain = encode_side(asymmetric, TEXTS, side, 48)
    set_folding(asymmetric, True)
    folded = encode_side(asymmetric, TEXTS, side, 48)
    wanted = fold_vectors(plain, fold_map_of(asymmetric))
    np.testing.assert_allclose(folded.toarray(), wanted.toarray(), rtol=1e-5, atol=1e-6)
    assert not np.array_equal(folded.toarray(), plain.toarray())


def test_only_the_largest_weights_are_kept_and_the_models_own_limit_holds(asymmetric: WholeEncoder) -> None:
    whole = encode_side(asymmetric, TEXTS, "query", 48).toarray()
    cut = encode_side(asymmetric, TEXTS, "query", 48, top_dimensions=2).toarray()
    for row, kept in zip(whole, cut, strict=True):
        assert sorted(kept[kept > 0]) == sorted(sorted(row[row > 0])[-2:])
    asymmetric.query_side.max_active_dims = 1
    limited = encode_side(asymmetric, TEXTS, "query", 48, top_dimensions=2)
    assert np.diff(limited.indptr).max() == 1


def test_a_run_keeps_the_largest_weights_of_queries_where_it_is_told_to(tmp_path: Path) -> None:
    folder = finished_run(tmp_path, collection(30))
    whole = open_searcher(folder, model=None, collection=None).explain("river stone otter", "d3").query_tokens
    run(tmp_path / "tiny.toml", ("index.query_top_dimensions=2",), runs=folder.parent, threads=1)
    searcher = open_searcher(folder, model=None, collection=None)
    assert searcher.explain("river stone otter", "d3").query_tokens == whole[:2]
    encoded = sorted((folder.parent / "artifacts").glob("encode-queries-*"), key=lambda path: path.stat().st_mtime)
    counts = [np.diff(read_vectors(path / "collection" / "judged").indptr) for path in encoded]
    assert len(counts) == 2
    assert counts[0].min() > 2
    assert set(counts[1]) == {2}


def test_an_encoder_that_ranks_by_the_cosine_does_so_everywhere_until_it_is_trained_by_dot_products(
    tmp_path: Path,
) -> None:
    found = collection(40)
    finished_run(tmp_path, found)
    path, recipe = tmp_path / "encoder" / "config_sentence_transformers.json", tmp_path / "tiny.toml"
    settings = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(settings | {"similarity_fn_name": "cosine"}), "utf-8")
    done = run(recipe, runs=tmp_path / "again", threads=1)
    library, searcher = SparseEncoder(str(done / "model")), open_searcher(done, model=None, collection=None)
    assert library.similarity_fn_name == "cosine"
    queries, documents = [query.text for query in found.queries], [each.text for each in found.documents]
    sides = (library.encode_query, queries), (library.encode_document, documents)
    vectors = [encode(some, convert_to_sparse_tensor=False) for encode, some in sides]
    scores = library.similarity(*vectors).numpy()
    for row, results in enumerate(searcher.search(queries, 10)):
        best = np.sort(scores[row])[::-1]
        own = [scores[row][int(result.id.removeprefix("d"))] for result in results.results]
        np.testing.assert_allclose(own, best[: len(own)], rtol=1e-5)
        np.testing.assert_allclose([result.score for result in results.results], own, rtol=1e-5)
    by_dot_products = (vectors[0] @ vectors[1].T).numpy()
    assert (by_dot_products.argmax(axis=1) != scores.argmax(axis=1)).any()
    add_training_queries(tmp_path / "collection", found)
    finetune = '[finetune]\ndata = "collection"\nsplit = "train"\nsteps = 2\n'
    recipe.write_text(recipe.read_text("utf-8") + finetune, "utf-8")
    tuned = run(recipe, runs=tmp_path / "again", until="finetune")
    assert load_encoder(str(tuned / "model")).similarity_fn_name == "dot"
    path.write_text(json.dumps(settings | {"similarity_fn_name": "euclidean"}), "utf-8")
    with pytest.raises(DataError, match="ranks by euclidean distance"):
        load_encoder(str(tmp_path / "encoder"))

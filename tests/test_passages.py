"""Passages: where documents are cut, and that they rank as their best passages do."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import tiny
from hypothesis import given
from hypothesis import strategies as st
from opensearch_server import opensearch_server

from vtkit.api import encode_texts, index_vectors
from vtkit.data.collections import load_retrieval
from vtkit.data.retrieval import Document
from vtkit.data.trec import read_trec
from vtkit.encoder.checkpoint import save_encoder
from vtkit.evaluation.results import RUN_FILE
from vtkit.pipeline.folder import open_run
from vtkit.pipeline.search import open_searcher
from vtkit.search.engine import build_index, open_index
from vtkit.search.exact import ExactIndex
from vtkit.search.passages import Passages, best_documents, row_contents, spans_of
from vtkit.settings.engines import Engine, missing_packages
from vtkit.settings.index import IndexSection, PassagesSection
from vtkit.system.errors import DataError, RecipeError

PIECES = ["a", "bb ", "cc. ", "Dd", "? ", "\n", "你好", "。", "สวัสดีครับ", " ", "😀 "]


@given(st.lists(st.sampled_from(PIECES), max_size=120), st.integers(1, 9), st.data())
def test_passages_cover_the_text_in_order_and_are_no_longer_than_asked(
    pieces: list[str], words: int, data: st.DataObject
) -> None:
    text, overlap = "".join(pieces), data.draw(st.integers(0, words - 1))
    spans = spans_of(text, words, overlap)
    ends = [0, *(end for _, end in spans)]
    assert all(not text[end:first].strip() for end, (first, _) in zip(ends, spans, strict=False))
    assert not text[ends[-1] :].strip()
    for (first, end), (following, further) in pairwise(spans):
        assert first < following
        assert end < further
        assert len(text[following:end].split()) <= overlap
    assert all(len(text[first:end].split()) <= words for first, end in spans)
    assert spans == [(0, len(text))] or len(spans) > 1


def test_passages_by_eye() -> None:
    def cut(text: str, words: int, overlap: int) -> list[str]:
        return [text[first:end] for first, end in spans_of(text, words, overlap)]

    assert cut("One two. Three four five. Six seven.", 5, 3) == [
        "One two. Three four five.",
        "Three four five. Six seven.",
    ]
    assert cut("One two. Three four five. Six seven.", 5, 2) == ["One two. Three four five.", "Six seven."]
    assert cut("a b c d e f g", 4, 1) == ["a b c d", "d e f g"]  # a sentence that is too long
    assert cut("我喜欢苹果。你喜欢香蕉。", 4, 0) == ["我喜欢苹果。", "你喜欢香蕉。"]  # words are ICU's
    assert cut("कमल खिला। जल बहा।", 2, 0) == ["कमल खिला।", "जल बहा।"]
    assert cut(" Short. \n", 5, 2) == [" Short. \n"]  # unchanged


def test_documents_of_one_passage_each_have_none() -> None:
    settings = PassagesSection(words=3, overlap=1)
    short = [Document("a", "T", "one two"), Document("b", "", "")]
    assert Passages.of(short, settings) is None
    assert Passages.of([], settings) is None
    assert Passages.of([Document("a", "", "one two three four")], None) is None
    long = [*short, Document("c", "A title", "one two three four", {"year": 1999})]
    passages = Passages.of(long, settings)
    assert passages is not None
    assert passages.documents.tolist() == [0, 1, 2, 2]
    rows = list(row_contents(long, passages))
    assert rows == ["T one two", "", "A title one two three", "A title three four"]
    joined = Passages.joined([(None, 2), (passages, 3)])
    assert joined is not None
    assert joined.documents.tolist() == [0, 1, 2, 3, 4, 4]
    assert list(row_contents([*short, *long], joined)) == ["T one two", "", *rows]


@st.composite
def collections(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, Passages, np.ndarray]:
    """Queries, passages, what these belong to, and the documents that pass. Small whole numbers make many ties."""
    counts = draw(st.lists(st.integers(1, 9), min_size=1, max_size=12))
    passages = Passages(np.array([(n, i, i + 1) for n, c in enumerate(counts) for i in range(c)], dtype=np.int32))
    vector = st.lists(st.integers(0, 2), min_size=4, max_size=4)
    rows = draw(st.lists(vector, min_size=sum(counts), max_size=sum(counts)))
    queries = draw(st.lists(vector, min_size=1, max_size=4))
    passing = draw(st.lists(st.booleans(), min_size=len(counts), max_size=len(counts)))
    return np.array(queries), np.array(rows), passages, np.array(passing)


def brute_force(
    queries: np.ndarray, rows: np.ndarray, passages: Passages, depth: int, passing: np.ndarray | None = None
) -> list[list[tuple[int, float]]]:
    """The definition: the largest score of each document's passages, by score down and document number up."""
    scores = queries @ rows.T
    documents = range(passages.document_count)
    best = [[max(row[passages.documents == number]) for number in documents] for row in scores]
    kept = [number for number in documents if passing is None or passing[number]]
    return [
        sorted(((n, float(row[n])) for n in kept if row[n] > 0), key=lambda x: (-x[1], x[0]))[:depth] for row in best
    ]


def ranked(ids: np.ndarray, scores: np.ndarray) -> list[list[tuple[int, float]]]:
    pairs = zip(ids.tolist(), scores.tolist(), strict=True)
    return [[(n, s) for n, s in zip(*row, strict=True) if n >= 0] for row in pairs]


@given(collections(), st.integers(1, 15))
def test_documents_rank_by_their_best_passages_also_with_ties_and_conditions(
    collection: tuple[np.ndarray, np.ndarray, Passages, np.ndarray], depth: int
) -> None:
    queries, rows, passages, passing = collection
    index = ExactIndex.build(sp.csr_matrix(rows, dtype=np.float32), passages).postings
    asked = sp.csr_matrix(queries, dtype=np.float32)
    assert ranked(*index.search(asked, depth)) == brute_force(queries, rows, passages, depth)
    assert ranked(*index.search(asked, depth, passing)) == brute_force(queries, rows, passages, depth, passing)
    rows_alone = ExactIndex.build(sp.csr_matrix(rows, dtype=np.float32)).search
    narrow = best_documents(rows_alone, asked, depth, passages.documents, 1)  # widened again and again
    assert ranked(*narrow) == brute_force(queries, rows, passages, depth)
    for number in range(passages.document_count):
        shared = index.explain(asked[:1], number)
        best = (queries[0] @ rows[passages.documents == number].T).argmax() + passages.rows_of(number)[0]
        assert shared.row == best  # of equal passages the first


@pytest.mark.parametrize("engine", ["exact", "lucene", "seismic", "opensearch"])
def test_engines_rank_documents_and_an_index_is_opened_with_its_passages(tmp_path: Path, engine: Engine) -> None:
    with opensearch_server() as url:
        _test_engine(tmp_path, IndexSection(engine=engine, url=url if engine == "opensearch" else None))


def _test_engine(tmp_path: Path, settings: IndexSection) -> None:
    engine = settings.engine
    if missing := missing_packages(engine):
        pytest.skip(f"{missing} is not installed")
    generator = np.random.default_rng(0)
    counts = generator.integers(1, 30, 60)
    passages = Passages(np.array([(n, i, i + 1) for n, c in enumerate(counts) for i in range(c)], dtype=np.int32))
    rows = np.round(generator.random((len(passages), 20)) * 255) * (generator.random((len(passages), 20)) < 0.3)
    rows[0, 0] = 255  # so that Lucene's steps are whole numbers
    queries = (generator.random((5, 20)) < 0.4).astype(float)
    build_index(settings, sp.csr_matrix(rows, dtype=np.float32), tmp_path / "postings", passages)
    index = open_index(settings, tmp_path / "postings")
    found = ranked(*index.search(sp.csr_matrix(queries, dtype=np.float32), 10))
    expected = brute_force(queries, rows, passages, 10)
    if engine != "seismic":  # which may keep others that tie
        assert found == expected
    assert [[score for _, score in row] for row in found] == [[score for _, score in row] for row in expected]
    assert index.postings.ranked == 60


def test_passages_that_are_gone_or_of_another_index_are_told(tmp_path: Path) -> None:
    passages = Passages(np.array([(0, 0, 1), (0, 1, 2), (1, 0, 1)], dtype=np.int32))
    build_index(IndexSection(), sp.csr_matrix(np.eye(3, dtype=np.float32)), tmp_path / "postings", passages)
    file = tmp_path / "postings" / "passages.npy"
    whole = file.read_bytes()
    file.unlink()
    with pytest.raises(DataError, match=re.escape("passages.npy")):
        open_index(IndexSection(), tmp_path / "postings")
    file.write_bytes(whole)
    for wrong in ([(0, 0, 1), (1, 1, 2)], [(0, 0, 1), (2, 1, 2), (1, 0, 1)], [(1, 0, 1), (1, 1, 2), (1, 0, 1)]):
        np.save(file, np.array(wrong, dtype=np.int32))
        with pytest.raises(DataError, match=re.escape("passages.npy")):
            open_index(IndexSection(), tmp_path / "postings")


def test_a_run_judges_searches_and_explains_documents_by_their_best_passages(tmp_path: Path) -> None:
    """A run over documents with fields, which are cut into passages, in one index with BM25's terms."""
    found = tiny.collection(60, seed=7)
    documents = [replace(each, title="cedar", fields={"year": 1990 + n}) for n, each in enumerate(found.documents)]
    more = '[index]\nlexical = "bm25"\npassages = { words = 4, overlap = 1 }\n'
    finished = tiny.finished_run(tmp_path, replace(found, documents=documents), more=more)
    searcher = open_searcher(finished, model=None, collection=None)
    postings, documents = searcher.index.postings, [searcher.documents[n] for n in range(60)]
    passages = postings.passages
    assert passages is not None
    assert len(passages) > 120
    assert list(row_contents(documents, Passages.of(documents, PassagesSection(words=4, overlap=1)))) == [
        f"cedar {passages.text(row, documents[number])}" for row, number in enumerate(passages.documents.tolist())
    ]
    collection = load_retrieval(str(finished.parent.parent / "collection"), "test")
    asked = [query.text for query in collection.queries]
    vectors, rows = searcher.encode(asked).toarray(), postings.by_document().toarray()
    run = read_trec(open_run(finished).steps["evaluate:deployed"] / "collection" / RUN_FILE)
    early = np.array([document.fields["year"] < 2020 for document in documents])
    limited = searcher.search(asked, 10, where="year < 2020")
    for row, (query, some) in enumerate(zip(collection.queries, limited, strict=True)):
        scores = np.array([(rows[list(passages.rows_of(n))] @ vectors[row]).max() for n in range(60)])
        judged = dict(run[query.id])
        assert set(judged) == {documents[n].id for n in np.flatnonzero(scores > 0)}
        for number in np.flatnonzero(scores > 0):
            assert judged[documents[number].id] == pytest.approx(scores[number], rel=1e-4)
        wanted = np.sort(scores[early & (scores > 0)])[::-1][:10]
        np.testing.assert_allclose([result.score for result in some.results], wanted, rtol=1e-4)
        best = some.results[0]
        number = int(best.id.removeprefix("d"))
        texts = [passages.text(each, documents[number]) for each in passages.rows_of(number)]
        assert best.passage in texts
        assert best.text == documents[number].text
    explained = searcher.explain(asked[0], "d0")
    assert explained.passage is not None
    assert explained.passage in documents[0].text
    assert explained.score == pytest.approx(dict(run["q0"])["d0"], rel=1e-4)
    assert f"60 documents of collection are cut into {len(passages)} passages" in (finished / "report.md").read_text()


def test_documents_that_are_short_make_the_same_index_byte_for_byte(tmp_path: Path) -> None:
    save_encoder(tiny.encoder(tmp_path), tmp_path / "model")
    tiny.write_collection(tmp_path / "short", tiny.collection(30))
    for name, passages in (("whole", None), ("cut", {"words": 20, "overlap": 5})):
        encode_texts(tmp_path / "model", tmp_path / "short", tmp_path / f"{name}-vectors", passages=passages)
        index_vectors(tmp_path / f"{name}-vectors", tmp_path / name, language="en", lexical="bm25")
    files = {path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*") if path.is_file()}
    assert files == {path.relative_to(tmp_path / "cut") for path in (tmp_path / "cut").rglob("*") if path.is_file()}
    for file in files:  # records have the setting
        same = (tmp_path / "whole" / file).read_bytes() == (tmp_path / "cut" / file).read_bytes()
        assert same or file.suffix == ".json", file


def test_passages_are_cut_when_documents_are_encoded(tmp_path: Path) -> None:
    save_encoder(tiny.encoder(tmp_path), tmp_path / "model")
    tiny.write_collection(tmp_path / "collection", tiny.collection(30))
    encoded = encode_texts(
        tmp_path / "model", tmp_path / "collection", tmp_path / "vectors", passages={"words": 4, "overlap": 1}
    )
    assert encoded.texts > 60
    with pytest.raises(RecipeError, match=r"index\.passages is applied when documents are encoded"):
        index_vectors(tmp_path / "vectors", tmp_path / "index", passages={"words": 4, "overlap": 1})
    assert index_vectors(tmp_path / "vectors", tmp_path / "index").documents == 30
    (tmp_path / "vectors" / "passages.npy").unlink()
    with pytest.raises(DataError):
        index_vectors(tmp_path / "vectors", tmp_path / "again")

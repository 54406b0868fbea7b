"""Where hard negatives come from: judgements, BM25, the encoder, other models, files of rankings."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny
from command_line import invoke, succeeds
from fine_tuning import judged
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from sentence_transformers.util import mine_hard_negatives
from support import put
from tiny import add_training_queries, bare, collection, encoder, finished_run

import vtkit
from vtkit.commands.recipe import check_recipe
from vtkit.data.rankings import read_rankings, with_scores
from vtkit.data.retrieval import Document, Query, RetrievalSet
from vtkit.data.sources import public_collection
from vtkit.data.trec import read_trec
from vtkit.encoder.sides import encode_side
from vtkit.evaluation.fusion_queries import fusion_queries
from vtkit.evaluation.systems import Bm25System, RunSystem
from vtkit.pipeline.steps.finetune_encoder import FINETUNE
from vtkit.pipeline.steps.texts import unevaluated
from vtkit.recipe.load import load_recipe
from vtkit.search.bm25 import Bm25
from vtkit.settings.finetune import FinetuneSection
from vtkit.system.errors import DataError
from vtkit.training.finetune import finetune
from vtkit.training.negatives import REMOVED, Ranked, negative_pools, system_rankings, without_false_negatives
from vtkit.training.pairs import judged_pairs
from vtkit.training.resuming import TrainingRun
from vtkit.training.validation import validation_set

DATA = collection(30, seed=4)


def section(**changes: Any) -> FinetuneSection:
    wanted = {"data": "unused", "steps": 4, "batch_size": 4, "hard_negatives": 1, "checkpoint_every": 2}
    return FinetuneSection(**{**wanted, **changes})


def ranked(wanted: FinetuneSection, own: Any, bm25: Any, folder: Path, depth: int, read: Any = None) -> list[Any]:
    lengths = wanted.query_length, wanted.document_length
    queries, setting = [query.text for query in DATA.queries], "finetune.mining"
    asked = Ranked(queries, DATA.contents, lengths, depth)
    mined = system_rankings(wanted.mining.rankings, asked, bm25, folder, setting, own, read)
    return [*mined, *(ranking for file in wanted.mining.files for ranking in read_rankings(file, DATA))]


def as_lists(rows: Iterable[Any]) -> list[list[int]]:
    return [np.asarray(row).tolist() for row in rows]


def pools(data: RetrievalSet, rankings: Sequence[Sequence[Sequence[int]]], **mining: Any) -> list[list[int]]:
    wanted = section(mining=mining)
    return as_lists(negative_pools(data, judged_pairs(data), wanted, lambda depth: rankings))


def test_judged_negatives_come_first_and_rankings_take_turns() -> None:
    data = judged([{0: 1, 5: 0, 6: -1}, {1: 1}], 8)
    found = pools(data, [[[7, 3, 2], [1, 4, 3, 2]]], depth=2)
    assert found == [[5, 6], [4, 3]]  # nothing is mined for a query with judged ones
    assert pools(judged([{0}], 9), [[[0, 1, 2, 3]], [[4, 2, 5, 6]]], depth=2) == [[1, 4, 2]]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.permutations(range(12)), min_size=1, max_size=3), st.integers(1, 12), st.data())
def test_no_relevant_document_is_a_negative_whoever_found_it(
    rankings: list[list[int]], depth: int, draw: st.DataObject
) -> None:
    relevant = draw.draw(st.sets(st.integers(0, 11), min_size=1, max_size=6))
    data = judged([relevant], 12)
    (pool,) = pools(data, [[ranking] for ranking in rankings], depth=depth)
    assert not relevant & set(pool)
    assert len(set(pool)) == len(pool) >= min(depth, 12 - len(relevant))


def test_only_scored_negatives_where_the_data_bring_scores() -> None:
    data = judged([{0: 1, 5: 0, 6: 0}], 8)
    data.scores["q0"] = {"d0": 2.0, "d6": 1.0}
    found = negative_pools(data, judged_pairs(data), section(), lambda depth: [[[3]]], scored_only=True)
    assert as_lists(found) == [[6]]


@pytest.mark.parametrize(
    "mining",
    [{"range_min": 3}, {"absolute_margin": 0.05}, {"relative_margin": 0.02}, {"relative_margin": 0.0},
     {"range_min": 2, "absolute_margin": 0.01, "relative_margin": 0.05}],
)  # fmt: skip
def test_a_rank_floor_and_margins_leave_what_sentence_transformers_mines(
    tmp_path: Path, mining: dict[str, Any]
) -> None:
    """All candidates of each query, of which some have two relevant documents; what a margin leaves nothing of gets
    another document, which no margin removed."""
    name, asked, contents, depth = str(tiny.dense(tmp_path / "dense")), DATA.queries, list(DATA.contents), 12
    relevant = {q.id: [n, n + 1] if n % 4 == 0 else [n] for n, q in enumerate(asked)}
    data = replace(DATA, qrels={query: {f"d{n}": 1 for n in numbers} for query, numbers in relevant.items()})
    pairs = [(q.text, contents[int(d[1:])]) for q in asked for d in data.qrels[q.id]]
    columns = dict(zip(("query", "answer"), map(list, zip(*pairs, strict=True)), strict=True))
    theirs = mine_hard_negatives(
        datasets.Dataset.from_dict(columns), SentenceTransformer(name, device="cpu"), corpus=contents,
        range_max=depth, num_negatives=depth - mining.get("range_min", 0), verbose=False, **mining,
    )  # fmt: skip
    wanted: dict[str, set[int]] = {}
    for row in theirs:
        wanted.setdefault(row["query"], set()).add(contents.index(row["negative"]))
    section_, known = section(mining={"rankings": [name], "depth": depth, **mining}), judged_pairs(data)
    removed: list[int] = []
    clear = partial(without_false_negatives, known.relevant, section_.mining)
    ranked = Ranked([q.text for q in asked], contents, (64, 128), depth + 2, clear)
    ranking = system_rankings([name], ranked, bm25, tmp_path, "finetune.mining")
    found = as_lists(negative_pools(data, known, section_, lambda most: ranking, removed=removed.append))
    ours = {query.text: set(pool) for query, pool in zip(asked, found, strict=True)}
    assert {query: pool for query, pool in ours.items() if query in wanted} == wanted
    assert all(len(pool) == 1 for query, pool in ours.items() if query not in wanted)
    close = [{REMOVED - each for each in row if each <= REMOVED} for row in ranking[0].tolist()]
    assert removed == [len(of) for of in close]
    assert not any(of & set(pool) for of, pool in zip(close, found, strict=True))
    assert (sum(removed) > 0) == (mining.keys() > {"range_min"} or "range_min" not in mining)


def test_a_margin_needs_scores_and_a_floor_leaves_documents() -> None:
    for mining, said in (
        ({"files": ["mined.jsonl"], "relative_margin": 0.05}, r"mining\.files lack the scores"),
        ({"range_min": 50}, r"mining\.range_min leaves out all documents"),
        ({"absolute_margin": -1}, "greater than or equal to 0"),
    ):
        with pytest.raises(ValidationError, match=said):
            section(mining=mining)


def bm25() -> Bm25:
    return Bm25.build((document.contents for document in DATA.documents), "en")


def dense(folder: Path) -> str:
    bare(folder / "plain")
    embedder = Transformer(str(folder / "plain"), max_seq_length=24)
    modules = [embedder, Pooling(embedder.get_embedding_dimension(), "mean")]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "dense"))
    return str(folder / "dense")


def test_the_encoder_and_a_dense_model_rank_as_their_own_scores_do(tmp_path: Path) -> None:
    ours, name = encoder(tmp_path), dense(tmp_path)
    wanted = section(mining={"rankings": ["encoder", name]})
    own, theirs = ranked(wanted, ours, bm25, tmp_path / "kept", 5)
    queries, documents = [q.text for q in DATA.queries], [d.contents for d in DATA.documents]
    lengths = wanted.query_length, wanted.document_length
    scores = encode_side(ours, queries, "query", lengths[0]) @ encode_side(ours, documents, "document", lengths[1]).T
    scores = scores.toarray()
    for row, ranking in enumerate(own):
        best = np.sort(scores[row])[::-1][: len(ranking)]
        assert np.allclose(scores[row, [n for n in ranking if n >= 0]], best[: sum(n >= 0 for n in ranking)], atol=0.05)
    embedder = SentenceTransformer(name, device="cpu")
    near = np.asarray(embedder.similarity(embedder.encode_query(queries), embedder.encode_document(documents)))
    for row, ranking in enumerate(theirs):
        assert np.allclose(near[row, list(ranking)], np.sort(near[row])[::-1][:5], atol=0.02)


def test_the_encoder_ranks_what_it_reads(tmp_path: Path) -> None:
    """Expanded documents, here those of their neighbours in the list, are what it is trained on."""
    wanted = section(mining={"rankings": ["encoder"]})
    contents = [document.contents for document in DATA.documents]
    (plain,) = ranked(wanted, encoder(tmp_path), bm25, tmp_path / "plain", 5)
    moved = [*contents[1:], contents[0]]
    (read,) = ranked(wanted, encoder(tmp_path), bm25, tmp_path / "read", 5, moved)
    there = [[(number - 1) % len(contents) for number in ranking if number >= 0] for ranking in plain]
    assert [sorted(n for n in ranking if n >= 0) for ranking in read] == [sorted(ranking) for ranking in there]


def test_rankings_of_models_are_kept(tmp_path: Path) -> None:
    wanted = section(mining={"rankings": ["encoder"]})
    first = ranked(wanted, encoder(tmp_path), bm25, tmp_path / "kept", 5)
    kept = tmp_path / "kept" / "encoder.npy"
    np.save(kept, np.load(kept)[:, ::-1])
    assert ranked(wanted, encoder(tmp_path), bm25, tmp_path / "kept", 5)[0][0].tolist() == (first[0][0][::-1].tolist())
    kept.write_bytes(kept.read_bytes()[:40])  # half written
    assert ranked(wanted, encoder(tmp_path), bm25, tmp_path / "kept", 5)[0].tolist() == first[0].tolist()


# files of rankings


def test_a_file_of_rankings_by_eye(tmp_path: Path) -> None:
    data = judged([{0}, {1}], 5)
    rows = [
        {"qid": "q0", "pos": ["d0"], "neg": {"bm25": ["d3", "gone"], "dense": ["d2"]}},
        {"qid": "another", "neg": {"bm25": ["d3"]}},
        {"qid": "q1", "neg": {"dense": ["d4", "d0"]}},
    ]
    file = put(tmp_path / "negatives.jsonl", rows)
    assert [as_lists(ranking) for ranking in read_rankings(file, data)] == [[[3], []], [[2], [4, 0]]]
    assert pools(data, read_rankings(file, data), depth=2)[0][:2] == [3, 2]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ({"neg": []}, "line 1: query_id or query-id or qid is missing"),
        ({"qid": "q0", "neg": {"bm25": [1.5]}}, "line 1: the id of the query or of a document is missing"),
        ({"qid": "q0"}, "line 1: negative_id or negative_ids or neg_ids or neg is missing"),
        ('"q0"', "line 1: is not a JSON object but a string"),
        ({"qid": "nobody", "neg": ["d1"]}, "has no negatives for any of the 1 queries of the training data"),
    ],
)
def test_a_useless_file_of_rankings_is_told(tmp_path: Path, line: object, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        read_rankings(put(tmp_path / "x.jsonl", [line]), judged([{0}], 2))


def table(path: Path, **columns: list[Any]) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        # sentence-transformers/msmarco-scores-ms-marco-MiniLM-L6-v2, configurations list and pair
        ("x.parquet", [{"query_id": "q0", "corpus_id": ["d2", "d0"], "score": [-1.0, 5.5]}]),
        ("x.parquet", [{"query_id": "q0", "corpus_id": d, "score": score} for d, score in (("d2", -1.0), ("d0", 5.5))]),
        # lightonai/ms-marco-en-bge
        ("x.parquet", [{"query_id": "q0", "document_ids": ["d2", "d0"], "scores": [-1.0, 5.5]}]),
        # ColBERT
        ("x.jsonl", [["q0", ["d0", 5.5], ["d2", -1.0]]]),
        # a TREC run
        ("x.res", "q0 Q0 d0 1 5.5 t\nq0 Q0 d2 2 -1 t\n"),
    ],
)
def test_the_same_scores_in_each_layout_by_eye(tmp_path: Path, name: str, content: str | list[Any]) -> None:
    data = judged([{0}, {1}], 5)
    path = put(tmp_path / name, content)
    found = with_scores(data, [path])
    assert found.scores == {"q0": {"d0": 5.5, "d2": -1.0}}
    assert found.qrels == {"q0": {"d0": 1, "d2": 0}}, "what is scored and not judged is a negative"
    assert [query.id for query in found.queries] == ["q0"], "a query without scores teaches nothing"
    assert as_lists(read_rankings(path, data)[0]) == [[0, 2], []], "and as a ranking the best come first"


def test_triplets_of_ids_with_margins(tmp_path: Path) -> None:
    """sentence-transformers/msmarco, configuration bert-ensemble-margin-mse; ids may be numbers."""
    data = judged([{0}], 5)
    columns = {"query_id": ["q0"] * 2, "positive_id": ["d0"] * 2, "negative_id": ["d3", "d1"], "score": [4.0, 7.0]}
    path = table(tmp_path / "x.parquet", **columns)
    assert with_scores(data, [path]).scores == {"q0": {"d0": 0.0, "d3": -4.0, "d1": -7.0}}
    assert as_lists(read_rankings(path, data)[0]) == [[0, 3, 1]]


def test_scores_of_what_is_not_there_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = judged([{0, 4}, {1}, {2}], 5)
    path = put(tmp_path / "x.jsonl", [["q0", ["d0", 2.0], ["gone", 1.0]], ["q1", ["d0", 3.0]], ["other", ["d0", 1.0]]])
    found = with_scores(data, [path])
    assert found.qrels == {"q0": {"d0": 1}}
    assert found.scores == {"q0": {"d0": 2.0}}
    said = capsys.readouterr().err
    assert "left out: 2 queries have no scored relevant document" in said
    assert "left out: 2 relevant documents have no score" in said
    assert "left out: 1 scores belong to documents that the collection does not have" in said


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("x.pkl.gz", "", r"is a pickle, which can run code .*msmarco-scores-ms-marco-MiniLM-L6-v2"),
        ("x.csv", "q0,d0", r"has an unknown format\. Rankings and scores are a \.jsonl"),
        ("x.jsonl", '["q0", ["d0", "high"]]\n["q0", ["d0", NaN]]\n', r"2 problems\n  line 1: a score is missing, NaN"),
        ("x.jsonl", '{"qid": "q0", "neg": ["d1"]}\n', r"has no scores, .*mining\.files"),
        ("x.jsonl", '["q0", ["d1", 1.0]]\n', r"no relevant document has a score"),
        ("x.run", "q0 Q0 d0 1 0.5\n", r"line 1: is not query, Q0, document, rank, score and tag"),
        ("x.run", "other Q0 d0 1 0.5 t\n", r"has no scores for any of the 1 queries"),
    ],
)
def test_a_useless_file_of_scores_is_told(tmp_path: Path, name: str, content: str, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        with_scores(judged([{0}], 2), [put(tmp_path / name, content)])


# training


def test_scores_of_the_data_teach_alone_unless_others_are_named(tmp_path: Path) -> None:
    data = judged([{q: 1, q + 4: 0, q + 8: 0} for q in range(4)], 12)
    data.scores.update({f"q{q}": {f"d{q}": 3.0, f"d{q + 4}": 1.0, f"d{q + 8}": -1.0} for q in range(4)})
    settings = {"loss": "margin_mse", "hard_negatives": 2, "learning_rate": 1e-3}
    one = finetune(
        encoder(tmp_path / "a"),
        data,
        section(**settings),
        TrainingRun(seed=3, folder=tmp_path / "a" / "checkpoints", language="en"),
    )
    data.scores["q0"]["d0"] = 40.0
    other = finetune(
        encoder(tmp_path / "b"),
        data,
        section(**settings),
        TrainingRun(seed=3, folder=tmp_path / "b" / "checkpoints", language="en"),
    )
    assert other["margin_mse"][0] > one["margin_mse"][0] + 10  # margins of 40 instead of 2 and 4
    del data.scores["q0"]["d0"]
    with pytest.raises(DataError, match="scores that are infinite, missing or NaN"):
        finetune(
            encoder(tmp_path / "c"),
            data,
            section(**settings),
            TrainingRun(seed=3, folder=tmp_path / "c" / "checkpoints", language="en"),
        )


def run_of(folder: Path, finetune: str) -> list[str]:
    """The arguments that run the tiny recipe in ``folder`` with this [finetune], which ends it."""
    finished_run(folder, DATA)
    add_training_queries(folder / "collection", DATA)
    recipe = folder / "tiny.toml"
    short = "[finetune]\nsteps = 4\nbatch_size = 4\nhard_negatives = 1\nlearning_rate = 1e-3\n"
    recipe.write_text(recipe.read_text("utf-8") + short + finetune, "utf-8")
    return ["run", str(recipe), "--runs", str(folder / "runs"), "--threads", "1"]


def result_of(folder: Path) -> Any:
    (manifest,) = (folder / "runs" / "artifacts").glob("finetune-*/manifest.json")
    return json.loads(manifest.read_text("utf-8"))["result"]


def test_a_file_of_scored_tuples_through_the_command_line(tmp_path: Path) -> None:
    """One file is all that training needs: its texts are what adaptation and calibration would read, its negatives and
    scores what fine-tuning learns."""
    queries, documents = (
        [f"{query.text} maple" for query in DATA.queries],
        [document.contents for document in DATA.documents],
    )
    rows = [
        {"query": text, "positive": documents[n], "negative": documents[n - 1], "scores": [4.0, -1.0]}
        for n, text in enumerate(queries)
    ]
    put(tmp_path / "train.jsonl", rows)
    arguments = run_of(tmp_path, 'data = "train.jsonl"\nloss = "margin_mse"\n[calibrate]\n')
    done = succeeds(*arguments)
    result = result_of(tmp_path)
    assert (result["queries"], result["documents"]) == (len(set(queries)), len(set(documents)))
    assert result["curve"]["margin_mse"][0] > 0

    put(tmp_path / "train.jsonl", [*rows[:-1], {**rows[-1], "scores": [1.0, 2.0, 3.0]}])
    done = invoke(*arguments)
    assert done.exit_code == 1
    assert re.search(r"finetune\.data: .*line 30: has 3 scores for 2 documents", str(done.exception))
    done = invoke(*arguments, "--set", f'evaluate.sets=["{tmp_path}/train.jsonl"]')
    assert re.search(r"evaluate\.sets: .* is a file, not the folder of a collection", str(done.exception))


def test_rankings_are_read_before_anything_runs(tmp_path: Path) -> None:
    put(tmp_path / "mined.jsonl", [{"qid": "tq0", "neg": {"theirs": ["d3"]}}, {"qid": 1.5}])
    more = 'data = "./collection"\nmining = {rankings = [], files = ["mined.jsonl"]}\n'
    arguments = run_of(tmp_path, more)
    done = invoke(*arguments)
    assert done.exit_code == 1
    assert re.search(r"finetune\.mining\.files: .*line 2: negative_id or", str(done.exception))
    put(tmp_path / "mined.jsonl", [{"qid": "tq0", "neg": {"theirs": ["d3"]}}])
    assert "negatives of theirs for 1 queries" in succeeds(*arguments).output


def test_scores_by_ids_through_the_command_line(tmp_path: Path) -> None:
    """A collection for the texts, a parquet file for the scores; the negatives are the scored documents."""
    more = 'data = "./collection"\nscores = ["scores.parquet"]\nloss = "margin_mse"\n'
    arguments = run_of(tmp_path, more)
    scored = {
        f"t{query}": [next(name for name, grade in grades.items() if grade > 0),
                next(document.id for document in DATA.documents if document.id not in grades)]
        for query, grades in DATA.qrels.items()
    }  # fmt: skip
    scores = [*([3.0, 1.0] for _ in scored), [1.0]]
    scored_ids = [*scored.values(), ["d0"]]
    table(tmp_path / "scores.parquet", query_id=[*scored, "unknown"], corpus_id=scored_ids, score=scores)
    done = succeeds(*arguments)
    assert f"scores of {2 * len(scored)} documents for {len(scored)} queries" in done.output
    assert result_of(tmp_path)["curve"]["margin_mse"][0] > 0
    done = invoke(*arguments, "--set", f'finetune.scores=["{tmp_path}/collection/queries.jsonl"]')
    assert done.exit_code == 1
    assert re.search(
        r"finetune\.scores: (.|\n)*line 1 and 59 more: query_id or query-id or qid is missing", str(done.exception)
    )


# A query that is itself a document, as in ArguAna and Quora, is neither its own result nor its own negative.


def arguments(queries: int = 20) -> RetrievalSet:
    """Documents of which the first are queries too, each with a counter-argument of half its words."""
    texts = tiny.texts(queries, seed=3, words=(10, 12))
    own = [Document(f"a{n}", "", text) for n, text in enumerate(texts)]
    counter = [Document(f"c{n}", "", " ".join(text.split()[:5])) for n, text in enumerate(texts)]
    asked = [Query(document.id, document.text) for document in own]
    return RetrievalSet("arguments", [*own, *counter], asked, {f"a{n}": {f"c{n}": 1} for n in range(queries)})


PLAIN = arguments()
OWN = replace(PLAIN, own_documents=True)


def test_only_the_named_collections_have_it() -> None:
    names = ("beir:arguana", "beir:quora", "nanobeir:arguana", "nanobeir:quora")
    for name in (*names, "ir_datasets:beir/quora/test", "beir:scifact", "nanobeir:nq", "ir_datasets:beir/fiqa/dev"):
        public = public_collection(name) or pytest.fail(name)
        assert public.own_documents == ("quora" in name or "arguana" in name)


def test_rankings_of_bm25_and_of_run_files_leave_it_out_only_if_asked() -> None:
    bm25 = Bm25System.over(PLAIN, "en", "full")
    ranked = {data.own_documents: bm25.rank(data, 50).run for data in (PLAIN, OWN)}
    for query in PLAIN.queries:
        assert ranked[False][query.id][0][0] == query.id
        assert ranked[True][query.id] == ranked[False][query.id][1:]
    for depth in (1, 3):  # it is left out before the list is cut
        assert bm25.rank(OWN, depth).run == {query: results[:depth] for query, results in ranked[True].items()}
        assert RunSystem(ranked[False]).rank(OWN, depth).run == bm25.rank(OWN, depth).run
    assert RunSystem(ranked[False]).rank(OWN, 50).run == ranked[True]
    assert RunSystem(ranked[False]).rank(PLAIN, 50).run == ranked[False]


def test_it_is_no_hard_negative_and_no_result_of_a_validation(tmp_path: Path) -> None:
    section = FinetuneSection(data="x", hard_negatives=2, batch_size=2, steps=1)
    texts, bm25 = [query.text for query in PLAIN.queries], Bm25.build(PLAIN.contents, "en")

    def with_themselves(data: RetrievalSet) -> int:
        judged = judged_pairs(data)
        pools = negative_pools(data, judged, section, lambda depth: [bm25.search(texts, depth)[0]])
        own = data.numbers_of([query.id for query in data.queries]).tolist()
        return sum(own[row] in pools[row].tolist() for row in range(len(own)))

    assert (with_themselves(PLAIN), with_themselves(OWN)) == (20, 0)
    encoder = tiny.encoder(tmp_path)
    few = arguments(6)
    sets = (validation_set(data, "made", 1) for data in (few, replace(few, own_documents=True)))
    plain, own = (data.value(encoder, 24, 24) for data in sets)
    assert plain < own


def test_snippets_that_choose_a_weight_have_no_documents_of_their_own() -> None:
    assert not fusion_queries(OWN, None, seed=1).asked.own_documents


def test_a_command_and_a_recipe_say_that_ids_coincide_and_leave_them_out_if_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "arguments"
    tiny.write_collection(place, PLAIN)
    said = {}
    for told in (False, True):
        options = ["--language", "en", "--out", tmp_path / str(told), *["--ignore-identical-ids"] * told]
        said[told] = " ".join(succeeds("evaluate", "bm25", "--on", place, *options).output.split())
        (run,) = (read_trec(path) for path in (tmp_path / str(told)).rglob("run.trec*"))
        assert sum(query in [name for name, _ in results] for query, results in run.items()) == 20 * (not told)
    assert "20 of 20 queries of arguments are documents of the same id, and find themselves" in said[False]
    assert "find themselves" not in said[True]
    found = [
        vtkit.evaluate("bm25", place, language="en", ignore_identical_ids=told).sets[0].rows[0]
        for told in (False, True)
    ]
    assert [row.measures["RR@10"] for row in found] == pytest.approx([0.5, 1], abs=0.1)

    tiny.bare(tmp_path / "model")
    tiny.add_training_queries(place, PLAIN)
    (tmp_path / "own.toml").write_text(
        '[recipe]\nname = "own"\nlanguage = "en"\n[source]\nmodel = "./model"\n[vocabulary]\nkind = "source"\n'
        '[finetune]\ndata = "./arguments"\n[evaluate]\nsets = ["./arguments"]\nignore_identical_ids = true\n'
    )
    recipe = load_recipe(tmp_path / "own.toml").recipe
    assert unevaluated(FINETUNE.view(recipe), "train", "train").own_documents
    check_recipe(tmp_path / "own.toml", ["evaluate.ignore_identical_ids=false"], data=True)
    assert "20 of 20 queries of arguments are documents of the same id" in " ".join(capsys.readouterr().err.split())

"""A query that is itself a document, as in ArguAna and Quora, is neither its own result nor its own negative."""

from dataclasses import replace
from pathlib import Path

import pytest
import tiny
from command_line import invoke

import vtkit
from vtkit.commands.recipe import check_recipe
from vtkit.data.collections import public_collection
from vtkit.data.retrieval import Document, Query, RetrievalSet
from vtkit.data.trec import read_trec
from vtkit.evaluation.balancing import balancing_queries
from vtkit.evaluation.systems import Bm25System, RunSystem
from vtkit.pipeline.steps.finetune_encoder import FINETUNE
from vtkit.pipeline.steps.texts import unevaluated
from vtkit.recipe.load import load_recipe
from vtkit.search.bm25 import Bm25
from vtkit.settings.finetune import FinetuneSection
from vtkit.training.negatives import negative_pools
from vtkit.training.pairs import judged_pairs
from vtkit.training.validation import validation_set


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
    ranked = {data.own_documents: bm25.rank(data, 30).run for data in (PLAIN, OWN)}
    for query in PLAIN.queries:
        assert ranked[False][query.id][0][0] == query.id
        assert ranked[True][query.id] == ranked[False][query.id][1:]
    assert RunSystem(ranked[False]).rank(OWN, 30).run == ranked[True]
    assert RunSystem(ranked[False]).rank(PLAIN, 30).run == ranked[False]


def test_it_is_no_hard_negative_and_no_result_of_a_validation(tmp_path: Path) -> None:
    section = FinetuneSection(data="x", hard_negatives=2, batch_size=2, steps=1)
    texts, bm25 = [query.text for query in PLAIN.queries], Bm25.build(PLAIN.contents, "en")

    def with_themselves(data: RetrievalSet) -> int:
        judged = judged_pairs(data)
        pools = negative_pools(data, judged, section, lambda depth: [bm25.search(texts, depth)[0]])
        return sum(data.numbers[query.id] in pools[row].tolist() for row, query in enumerate(data.queries))

    assert (with_themselves(PLAIN), with_themselves(OWN)) == (20, 0)
    encoder = tiny.encoder(tmp_path)
    few = arguments(6)
    sets = (validation_set(data, "made", 1) for data in (few, replace(few, own_documents=True)))
    plain, own = (data.value(encoder, 24, 24) for data in sets)
    assert plain < own


def test_spans_that_balance_have_no_documents_of_their_own() -> None:
    assert not balancing_queries(OWN, None, seed=1).asked.own_documents


def test_a_command_and_a_recipe_say_that_ids_coincide_and_leave_them_out_if_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "arguments"
    tiny.write_collection(place, PLAIN)
    said = {}
    for told in (False, True):
        options = ["--language", "en", "--out", tmp_path / str(told), *["--ignore-identical-ids"] * told]
        done = invoke("evaluate", "bm25", "--on", place, *options)
        assert done.exit_code == 0, done.output
        said[told] = " ".join(done.output.split())
        (run,) = (read_trec(path) for path in (tmp_path / str(told)).rglob("run.trec*"))
        assert sum(query in [name for name, _ in results] for query, results in run.items()) == 20 * (not told)
    assert "20 of 20 queries of arguments are documents of the same id, and find themselves" in said[False]
    assert "find themselves" not in said[True]
    found = [vtkit.evaluate("bm25", place, language="en", ignore_identical_ids=told).cells[0] for told in (False, True)]
    assert [cell.evaluated.measures["RR@10"] for cell in found] == pytest.approx([0.5, 1], abs=0.1)

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

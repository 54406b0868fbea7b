"""Collections that change: documents are added, replaced, deleted and merged, and the index equals one built anew."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

import vtkit
from vtkit.data.document_files import write_documents
from vtkit.data.documents import Document
from vtkit.encoder.asymmetric import WholeEncoder
from vtkit.encoder.checkpoint import save_encoder
from vtkit.pipeline.search import open_searcher
from vtkit.search.changes import add, delete, merge
from vtkit.search.index_info import RECORD, IndexRecord
from vtkit.search.results import Found
from vtkit.search.segments import State, generation_of

TEXTS = tiny.texts(400, seed=3, words=(3, 25))
QUERIES = [*tiny.texts(12, seed=9, words=(2, 5)), TEXTS[5], "amber"]
KINDS: dict[str, dict[str, Any]] = {
    "units": {"lexical": "bm25"},
    "tokens": {"lexical": "bm25", "own_tokens": True, "document_weighting": "geng", "top_dimensions": 20},
    "plain": {},
}
"""Kind of an encoder and settings of its index: the rule of units with BM25, documents weighted by the tokens that
they hold, and vectors as they are."""


def document(name: str, version: int) -> Document:
    """A version of the document with this id; every fifth has no fields."""
    text = TEXTS[(hash_of(name) + 17 * version) % len(TEXTS)]
    return Document(
        name, "", text, {"year": 1990 + hash_of(name) % 30, "version": version} if hash_of(name) % 5 else {}
    )


def hash_of(name: str) -> int:
    return sum(map(ord, name))


@pytest.fixture(scope="session")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    folder = tmp_path_factory.mktemp("encoders")
    tokens = tiny.encoder(folder / "made")
    units = WholeEncoder(modules=list(tokens), device="cpu")
    names = {f"{unit}: {token}": unit for unit, token in enumerate(tiny.TOKENS)}
    units.output_tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(names, unk_token="0")))
    save_encoder(tokens, folder / "tokens")
    save_encoder(units, folder / "units")
    return {"units": folder / "units", "tokens": folder / "tokens", "plain": folder / "tokens"}


def built(folder: Path, model: Path, documents: Sequence[Document], settings: Mapping[str, Any]) -> Path:
    """An index of ``documents``."""
    folder.mkdir(parents=True)
    write_documents(documents, folder / "documents.jsonl")
    vtkit.encode_texts(model, folder / "documents.jsonl", folder / "vectors", max_length=24)
    vtkit.index_vectors(folder / "vectors", folder / "index", language="en", **settings)
    return folder / "index"


def assert_equals_an_index_built_anew(
    index: Path, anew: Path, model: Path, documents: Sequence[Document], settings: Mapping[str, Any]
) -> None:
    """The same documents, types of fields, ranking and scores, with the same balance of encoder and BM25."""
    fresh = built(anew, model, documents, settings)
    ours, theirs = (IndexRecord.load(generation_of(folder)) for folder in (index, fresh))
    assert ours.fields is not None
    assert theirs.fields is not None
    assert ours.fields.kinds == theirs.fields.kinds
    if theirs.lexical is not None:
        assert ours.lexical is not None
        assert ours.lexical.terms == theirs.lexical.terms
        assert ours.lexical.document_scale == pytest.approx(theirs.lexical.document_scale, rel=1e-5)
        balanced = replace(
            theirs.lexical, encoder_factor=ours.lexical.encoder_factor, term_factor=ours.lexical.term_factor
        )
        replace(theirs, lexical=balanced).to_file(generation_of(fresh) / RECORD)
    one, other = (open_searcher(folder, model=None, collection=None) for folder in (index, fresh))
    assert one.names == other.names
    assert [one.documents[number] for number in range(len(one.documents))] == list(documents)
    np.testing.assert_allclose(
        one.index.postings.by_document().toarray(), other.index.postings.by_document().toarray(), rtol=1e-5, atol=1e-6
    )
    for where in (None, "year >= 2005"):
        found, wanted = (list(searcher.search(QUERIES, 10, where=where)) for searcher in (one, other))
        for mine, right in zip(found, wanted, strict=True):
            assert [result.score for result in mine.results] == pytest.approx(
                [r.score for r in right.results], rel=1e-5
            )
            pairs = zip(mine.results, right.results, strict=True)
            assert all(a.id == b.id or a.score == pytest.approx(b.score, rel=1e-5) for a, b in pairs)


def ranked(found: Found) -> list[set[str]]:
    """The ids in their order; those whose scores are as good as equal stand together, without the last such group."""
    groups: list[set[str]] = []
    last = np.inf
    for result in found.results:
        if result.score < last * (1 - 1e-5):
            groups.append(set())
        groups[-1].add(result.id)
        last = result.score
    return groups[:-1]


@pytest.mark.parametrize("kind", KINDS)
def test_additions_replacements_and_deletions_equal_an_index_built_anew(
    kind: str, encoders: Mapping[str, Path], tmp_path: Path
) -> None:
    model, settings = encoders[kind], KINDS[kind]
    first = [document(f"d{number}", 0) for number in range(60)]
    index = built(tmp_path / "one", model, first, settings)
    assert_equals_an_index_built_anew(index, tmp_path / "same", model, first, settings)
    changed = add(index, [document("d3", 1), document("d60", 0), document("d61", 0)])
    assert (changed.added, changed.replaced, changed.documents, changed.segments) == (2, 1, 62, 2)
    assert delete(index, ["d7", "d60", "nothing"]).deleted == 2
    left = [each for each in first if each.id not in ("d3", "d7")] + [document("d3", 1), document("d61", 0)]
    assert_equals_an_index_built_anew(index, tmp_path / "anew", model, left, settings)
    before = sorted(path.name for path in (index / "segments").iterdir())
    assert merge(index).segments == 1
    assert State.load(index).segments[0].deleted == ()
    assert before != sorted(path.name for path in (index / "segments").iterdir())
    assert_equals_an_index_built_anew(index, tmp_path / "merged", model, left, settings)

"""Document weighting by inverse document frequency."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from tiny import TOKENS, encoder, write_collection
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from vocabularies import wordpiece

from vtkit.data.retrieval import Document, Query, RetrievalSet
from vtkit.encoder.asymmetric import WholeEncoder, width_of
from vtkit.encoder.checkpoint import save_encoder
from vtkit.encoder.documents import as_indexed, document_frequencies, idf_weights, pruned, weighted
from vtkit.encoder.folding import fold_map_of, set_folding
from vtkit.encoder.sides import encode_side
from vtkit.pipeline.steps.encode_corpus import ENCODE
from vtkit.pipeline.steps.index_corpus import INDEX
from vtkit.pipeline.store import MANIFEST
from vtkit.search.exact import ExactIndex
from vtkit.search.segments import generation_of
from vtkit.settings.index import IndexSection
from vtkit.settings.recipe import Recipe
from vtkit.system.checksums import write_record
from vtkit.vocabulary.forms import tokens


@pytest.fixture(scope="module")
def units_encoder(tmp_path_factory: pytest.TempPathFactory) -> WholeEncoder:
    """An encoder whose dimensions are no tokens, so that their frequencies are counted in the vectors."""
    whole = WholeEncoder(modules=list(encoder(tmp_path_factory.mktemp("units"))), device="cpu")
    words = Tokenizer(models.WordLevel({f"{unit}": unit for unit in range(40)}, unk_token="0"))
    whole.output_tokenizer = PreTrainedTokenizerFast(tokenizer_object=words)
    return whole


TOKENIZER = wordpiece("river", "school", "##s", "moon")


def test_frequencies_count_texts_not_occurrences_and_read_to_the_end() -> None:
    texts = ["river river school", "schools " + "river " * 2000, ""]
    found, count = document_frequencies(TOKENIZER, texts, len(TOKENIZER) + 3)
    of = dict(zip(tokens(TOKENIZER), found.tolist(), strict=False))
    assert count == 3
    expected = {"river": 2, "school": 2, "##s": 1, "moon": 0, "[CLS]": 0}
    assert {name: of[name] for name in expected} == expected
    assert len(found) == len(TOKENIZER) + 3


def test_whole_texts_count_whatever_the_tokenizer_was_asked_before() -> None:
    """Loaded models are asked to cut texts, and their files say so."""
    asked = wordpiece("river", "school", "##s", "moon")
    asked(["river", "river school moon"], truncation=True, max_length=3, padding=True)
    found, _ = document_frequencies(asked, ["river school schools moon", "river"], len(asked))
    assert found[asked.convert_tokens_to_ids(["river", "school", "moon", "[PAD]"])].tolist() == [2, 1, 1, 0]


def test_with_folding_a_document_counts_if_it_holds_any_case_variant(tmp_path: Path) -> None:
    """Figures by eye: `river` is in 3 documents under one of its spellings, twice under two of them."""
    names = (*TOKENS[:40], "River", "RIVER", *TOKENS[42:])
    ours = encoder(tmp_path / "work", tokens=names)
    set_folding(ours, True)
    texts = ["River stone", "river RIVER River", "RIVER river", "stone"]
    found, count = document_frequencies(ours.tokenizer, texts, len(names), fold_map_of(ours))
    of = dict(zip(names, found.tolist(), strict=True))
    assert count == 4
    assert [of[name] for name in ("river", "River", "RIVER", "stone")] == [3, 0, 0, 2]
    lowered = [text.lower() for text in texts]
    assert document_frequencies(ours.tokenizer, lowered, len(names))[0][names.index("river")] == 3


def test_the_index_weights_folded_documents_by_folded_frequencies(tmp_path: Path) -> None:
    """The same postings as from hand-made weights: ln(N / N_t), N_t over all case variants of t."""
    names = (*TOKENS[:40], "River", "RIVER", *TOKENS[42:])
    ours = encoder(tmp_path / "work", tokens=names)
    set_folding(ours, True)
    save_encoder(ours, tmp_path / "model" / "model")
    contents = ["River stone", "river RIVER reef", "oak reef", "stone oak"]
    documents = [Document(f"d{n}", "", text) for n, text in enumerate(contents)]
    write_collection(tmp_path / "set", RetrievalSet("set", documents, [Query("q", "river")], {"q": {"d0": 1}}))
    recipe = Recipe.model_validate(
        {
            "recipe": {"name": "r", "language": "en"},
            "source": {"model": str(tmp_path / "model" / "model")},
            "vocabulary": {"kind": "existing", "tokenizer": "unused"},
            "transfer": {"method": "mean"},
            "index": {"document_weighting": "cai-paper"},
            "evaluate": {"sets": [str(tmp_path / "set")]},
        }
    )
    inputs = {"model": tmp_path / "model"}
    result = ENCODE.function(ENCODE.view(recipe), inputs, tmp_path / "vectors")
    write_record(tmp_path / "vectors" / MANIFEST, {"result": {name: of.to_json() for name, of in result.items()}}, ())
    INDEX.function(INDEX.view(recipe), inputs | {"vectors": tmp_path / "vectors"}, tmp_path / "out")
    (folder,) = (tmp_path / "out").iterdir()
    index = ExactIndex.load(generation_of(folder) / "postings")
    plain = encode_side(ours, contents, "document", recipe.index.document_length).toarray()
    held = index.by_document().toarray()
    assert not held[:, [names.index("River"), names.index("RIVER")]].any()
    river = held[:, names.index("river")]
    wanted = plain[:, names.index("river")] * math.log(4 / 2)
    assert river == pytest.approx(wanted, rel=1e-3)
    assert river.any()


def test_the_weights_are_those_of_the_equations() -> None:
    held = np.array([0, 1, 2, 4])
    assert idf_weights(held, 4, "none").tolist() == [1, 1, 1, 1]
    assert idf_weights(held, 4, "cai-paper") == pytest.approx([1, math.log(4), math.log(2), 0])
    assert idf_weights(held, 4, "cai-code") == pytest.approx([1, math.log(4) ** 0.5, math.log(2) ** 0.5, 0])
    geng = [math.log(1 + (4 - n + 0.5) / (n + 0.5)) for n in held]
    assert idf_weights(held, 4, "geng") == pytest.approx(geng)

    for weighting in ("cai-paper", "cai-code", "geng"):  # rarer tokens weigh no less
        weights = idf_weights(np.arange(1, 51), 50, weighting)
        assert (np.diff(weights) <= 1e-6).all()
        assert (weights >= 0).all()
    assert weighted(sparse.csr_matrix([[1.0, 2.0]]), np.array([0, 3], dtype=np.float32)).nnz == 1


@given(st.integers(1, 12), st.integers(0, 1000))
def test_the_largest_weighted_entries_of_a_document_are_kept(units_encoder: WholeEncoder, top: int, seed: int) -> None:
    """Of so many candidates as are encoded for them, and the same as by sorting each row."""
    width = width_of(units_encoder)
    index = IndexSection(top_dimensions=top, document_weighting="geng", mass=1, length=0)
    vectors = sparse.random(15, width, 0.2, format="csr", dtype=np.float32, rng=np.random.default_rng(seed))
    candidates = pruned(vectors, index.candidate_dimensions)[0]
    found = as_indexed(units_encoder, candidates, [], index)
    expected = idf_weights(np.bincount(candidates.indices, minlength=width), 15, "geng")
    for row, kept in zip((candidates.toarray() * expected), found.toarray(), strict=True):
        assert sorted(kept[kept > 0]) == pytest.approx(sorted(row[row > 0])[-top:])

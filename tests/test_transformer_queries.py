"""A query encoded with transformers alone has the vector that the whole encoder gives it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny

from vtkit.api import encode_texts, index_vectors
from vtkit.encoder.checkpoint import as_sparse_encoder, load_encoder, save_encoder
from vtkit.encoder.folding import set_folding
from vtkit.encoder.sides import encode_side
from vtkit.encoder.transformer_queries import TransformerQueries
from vtkit.vocabulary.tokenizer_file import tokenizer_digest

ARCHITECTURES = ("bert", "distilbert", "roberta", "modernbert")
QUERIES = [*tiny.texts(20), "", "one"]


def change(file: Path, **settings: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **settings}), encoding="utf-8")


@pytest.mark.parametrize(("pooling", "activation"), [("max", "relu"), ("max", "log1p_relu"), ("sum", "relu")])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_vectors_are_those_of_the_whole_encoder(
    architecture: str, pooling: str, activation: str, tmp_path: Path
) -> None:
    model = tiny.model(architecture)
    made = as_sparse_encoder(model, tiny.tokenizer(), tmp_path / "work", pooling, activation)
    made.prompts["query"] = "query "
    save_encoder(made, tmp_path / "model")
    whole = load_encoder(str(tmp_path / "model"))
    light = TransformerQueries.load(str(tmp_path / "model"), tokenizer_digest(whole.tokenizer))
    for length in (5, 64):
        expected = encode_side(whole, QUERIES, "query", length)
        assert expected.nnz
        found = light.encode(QUERIES, length)
        assert found.shape == expected.shape
        assert np.allclose(found.toarray(), expected.toarray(), atol=1e-6)


def test_what_a_query_side_alone_cannot_do_is_left_to_the_whole_encoder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    encoder = tiny.encoder(tmp_path / "work")
    digest = tokenizer_digest(encoder.tokenizer)

    def loads() -> bool:
        return TransformerQueries.load(str(folder), digest) is not None

    save_encoder(encoder, folder)
    assert loads()
    change(folder / "config_sentence_transformers.json", max_active_dims=3)
    assert not loads()
    set_folding(encoder, True)
    save_encoder(encoder, tmp_path / "folded")
    assert TransformerQueries.load(str(tmp_path / "folded"), digest) is None


def test_a_search_neither_imports_sentence_transformers_nor_looks_for_garbage_in_libraries(tmp_path: Path) -> None:
    save_encoder(tiny.encoder(tmp_path / "work"), tmp_path / "model")
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(tiny.texts(10)), encoding="utf-8")
    encode_texts(str(tmp_path / "model"), texts, tmp_path / "vectors")
    index_vectors(tmp_path / "vectors", tmp_path / "index")
    script = (
        "import gc, sys; from vtkit.cli import main; sys.argv = ['vtkit', 'search', 'index', 'one']\n"
        "passes = []; gc.callbacks.append(lambda phase, found: passes.append(found['generation']))\n"
        "try: main()\nexcept SystemExit as ended: assert not ended.code\n"
        "assert 'sentence_transformers' not in sys.modules\n"
        "assert gc.isenabled() and len(gc.get_objects()) < gc.get_freeze_count()\n"
        "assert 2 not in passes"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

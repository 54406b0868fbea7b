"""Query encoders: static tables by hand, what plain sentence-transformers makes of them, training, and whole runs."""

import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import command_line
import numpy as np
import pytest
import torch
from command_line import python, succeeds
from fine_tuning import DATA, section
from pydantic import ValidationError
from sentence_transformers import SparseEncoder
from sentence_transformers.sentence_transformer.modules import Transformer
from sentence_transformers.sparse_encoder.modules import Router, SparseStaticEmbedding
from tiny import (
    ROLES,
    TOKENS,
    add_training_queries,
    collection,
    encoder,
    finished_run,
    same,
    shuffled,
    texts,
    tokenizer,
    weights,
    write_collection,
)
from tokenizers import Tokenizer, models

from vtkit.data.trec import read_trec
from vtkit.encoder.asymmetric import WholeEncoder, query_table, with_sides
from vtkit.encoder.casing import change_encoder
from vtkit.encoder.checkpoint import load_encoder, save_encoder
from vtkit.encoder.encoding import encode
from vtkit.encoder.folding import fold_map_of, fold_vectors, set_folding
from vtkit.encoder.masked import mask_dimensions
from vtkit.encoder.query_tables import (
    binary_weights,
    filled_up,
    idf_query_weights,
    query_encoder_of,
    with_query_table,
    with_static_queries,
)
from vtkit.encoder.sides import encode_side
from vtkit.pipeline.run import run
from vtkit.pipeline.search import open_searcher
from vtkit.search.stored_vectors import read_vectors
from vtkit.settings.casing import CasingSection
from vtkit.settings.finetune import QUERY_ENCODERS
from vtkit.system.errors import DataError
from vtkit.training.finetune import finetune, objective_terms
from vtkit.training.query_table import QueryTable, with_query_encoder
from vtkit.training.resuming import TrainingRun
from vtkit.vocabulary.existing import wrap

DOCUMENTS = [document.contents for document in DATA.documents]


def entries(vectors: Any, row: int = 0) -> dict[str, float]:
    """Token -> weight."""
    return {TOKENS[j]: round(float(w), 5) for j, w in zip(vectors[row].indices, vectors[row].data, strict=True)}


def table_of(model: SparseEncoder) -> SparseStaticEmbedding:
    found = query_table(model)
    assert found is not None
    return found


# definitions


def test_a_binary_query_is_the_set_of_its_tokens(tmp_path: Path) -> None:
    ours = with_query_table(encoder(tmp_path), binary_weights(encoder(tmp_path)), frozen=True)
    vectors = encode_side(ours, ["river stone river", "oak 7 [SEP]", ""], "query", 48)
    assert entries(vectors, 0) == {"river": 1.0, "stone": 1.0}
    assert entries(vectors, 1) == {"oak": 1.0}  # neither [UNK] nor a special token that a query spells
    assert vectors[2].nnz == 0


def test_idf_weights_by_hand(tmp_path: Path) -> None:
    ours = encoder(tmp_path)
    found = idf_query_weights(ours, ["river oak", "river river stone", "stone oak oak", "river"])

    def idf(held: int) -> float:
        return math.log(1 + (4 - held + 0.5) / (held + 0.5))

    for token, held in (("river", 3), ("oak", 2), ("stone", 2), ("fjord", 0)):
        assert found[TOKENS.index(token)] == pytest.approx(idf(held)), token
    assert not found[:5].any()  # special tokens
    vectors = encode_side(with_query_table(ours, found, frozen=True), ["oak river river"], "query", 48)
    assert entries(vectors) == {"river": round(idf(3), 5), "oak": round(idf(2), 5)}


def test_masked_dimensions_stay_zero_on_the_query_side(tmp_path: Path) -> None:
    ours = encoder(tmp_path)
    mask_dimensions(ours[0].auto_model, [TOKENS.index("river")])
    for made in (binary_weights(ours), idf_query_weights(ours, DOCUMENTS)):
        assert made[TOKENS.index("river")] == 0
        assert made[TOKENS.index("stone")] > 0


# without training


@pytest.mark.parametrize("kind", ["binary", "idf"])
def test_the_command_gives_queries_a_table_and_leaves_documents_alone(tmp_path: Path, kind: str) -> None:
    ours = encoder(tmp_path)
    save_encoder(ours, tmp_path / "model")
    (tmp_path / "documents.txt").write_text("\n".join(DOCUMENTS), "utf-8")
    command = ["calibrate", str(tmp_path / "model"), "--corpus", str(tmp_path / "documents.txt")]
    command += ["--query-encoder", kind, "--out", str(tmp_path / "made")]
    assert f"logits are left as they are, queries by a static table ({kind})" in succeeds(*command).output
    wanted = binary_weights(ours) if kind == "binary" else idf_query_weights(ours, DOCUMENTS)
    made = load_encoder(str(tmp_path / "made"))
    np.testing.assert_array_equal(table_of(made).weight.detach().numpy(), wanted)
    assert same(weights(made), weights(ours))
    plain = SparseEncoder(str(tmp_path / "made"), device="cpu")
    query = plain.encode_query(["river stone river"]).to_dense()[0]
    assert {TOKENS[j]: round(float(query[j]), 5) for j in torch.nonzero(query).flatten()} == {
        name: round(float(wanted[TOKENS.index(name)]), 5) for name in ("river", "stone")
    }


RECIPE = """
[recipe]
name = "table"
language = "en"
[source]
model = "./source"
[vocabulary]
kind = "existing"
tokenizer = "./source"
[transfer]
method = "mean"
bias.method = "mixture"
[evaluate]
sets = ["./collection"]
"""
CALIBRATE = '[calibrate]\nquery_encoder = "idf"\n'
FINETUNE = '[finetune]\ndata = "./collection"\nsteps = 3\nbatch_size = 6\n'


def test_a_recipe_gives_queries_a_table_without_training_and_fine_tuning_keeps_it(tmp_path: Path) -> None:
    ours = encoder(tmp_path)
    save_encoder(ours, tmp_path / "source")
    add_training_queries(write_collection(tmp_path / "collection", DATA), DATA)
    for finetune_section in ("", FINETUNE):
        (tmp_path / "recipe.toml").write_text(f"{RECIPE}bm25 = false\n{CALIBRATE}{finetune_section}", "utf-8")
        folder = run(tmp_path / "recipe.toml", runs=tmp_path / "runs", threads=1)
        made = load_encoder(str(folder / "model"))
        np.testing.assert_array_equal(table_of(made).weight.detach().numpy(), idf_query_weights(ours, DOCUMENTS))
        assert same(weights(made), weights(ours)) is not bool(finetune_section)
        assert "static table of inverse document frequencies" in (folder / "report.md").read_text("utf-8")


def test_a_table_is_put_in_place_after_fine_tuning_and_judged_beside_the_encoder_of_queries(tmp_path: Path) -> None:
    """SPLADE-Doc as CAI has it: trained with encoded queries, searched with a table, documents encoded once."""
    save_encoder(encoder(tmp_path), tmp_path / "source")
    add_training_queries(write_collection(tmp_path / "collection", DATA), DATA)
    runs = tmp_path / "runs"
    for kind in ("binary", "idf"):
        text = f'{RECIPE}models = ["finetune", "query-table"]\n{FINETUNE}[index]\nquery_encoder = "{kind}"\n'
        (tmp_path / "recipe.toml").write_text(text, "utf-8")
        succeeds("run", str(tmp_path / "recipe.toml"), "--runs", str(runs), "--threads", "1")
        folder = runs / "table"
        steps = json.loads((folder / "run.json").read_text("utf-8"))["steps"]
        assert "encode:finetune" in steps
        assert "encode:query-table" not in steps
        paths = (runs / "artifacts" / steps["finetune"] / "model", folder / "model")
        trained, made = (load_encoder(str(path)) for path in paths)
        assert query_encoder_of(trained) is None
        assert same(weights(made), weights(trained))
        expected = binary_weights(trained) if kind == "binary" else idf_query_weights(trained, DOCUMENTS)
        np.testing.assert_array_equal(table_of(made).weight.detach().numpy(), expected)
        queries, documents = [query.text for query in DATA.queries], encode_side(trained, DOCUMENTS, "document", 256)
        found = read_trec(folder / "trec" / "collection" / "query-table.trec.gz")
        scores = (encode_side(made, queries, "query", 64) @ documents.T).toarray()
        for query, row in zip(DATA.queries, scores, strict=True):
            assert found[query.id][0][1] == pytest.approx(row.max(), rel=1e-3)
        assert read_trec(folder / "trec" / "collection" / "finetune.trec.gz") != found
        page = (folder / "report.md").read_text("utf-8")
        what = "every token weighs 1" if kind == "binary" else "inverse document frequencies"
        assert all(part in page for part in ("with queries by a table", "after fine-tuning", what))


CASED = (*TOKENS[:-2], "River", "STONE")


def test_a_casing_policy_masks_the_table_too(tmp_path: Path) -> None:
    ours = encoder(tmp_path, tokens=CASED)
    ours = with_query_table(ours, binary_weights(ours), frozen=True)
    assert encode_side(ours, ["River STONE oak"], "query", 48).nnz == 3
    change_encoder(ours, CasingSection(output="mask"))
    assert encode_side(ours, ["River STONE oak"], "query", 48).nnz == 1
    save_encoder(ours, tmp_path / "model")
    plain = SparseEncoder(str(tmp_path / "model"), device="cpu")
    assert int((plain.encode_query("River STONE oak").to_dense() > 0).sum()) == 1


def test_case_variants_weigh_what_their_folded_dimension_does(tmp_path: Path) -> None:
    ours = encoder(tmp_path, tokens=CASED)
    set_folding(ours, True)
    found = idf_query_weights(ours, ["River river", "river", "oak", "STONE", "stone"])
    assert found[CASED.index("River")] == found[CASED.index("river")] == pytest.approx(math.log(1 + 3.5 / 2.5))
    vectors = encode_side(with_query_table(ours, found, frozen=True), ["River stone"], "query", 48)
    folded_to = fold_map_of(ours)
    assert set(vectors.indices) == {folded_to[CASED.index("river")], folded_to[CASED.index("stone")]}


# what is saved

LIBRARY_ALONE = """
import json, sys
import torch
from sentence_transformers import SparseEncoder
folder, given, out = sys.argv[1:]
queries, documents = json.load(open(given))
encoder = SparseEncoder(folder, device="cpu")
torch.save((encoder.encode_query(queries, convert_to_sparse_tensor=False),
            encoder.encode_document(documents, convert_to_sparse_tensor=False)), out)
assert not any(name.split(".")[0] == "vtkit" for name in sys.modules)
"""


def test_a_process_without_vtkit_gives_the_same_vectors(tmp_path: Path) -> None:
    plain = encoder(tmp_path)
    plain.prompts = {"query": "oak ", "document": "pine "}
    ours = with_query_encoder(plain, section(query_encoder="idf"), DOCUMENTS)
    save_encoder(ours, tmp_path / "model")
    queries, documents = ["river river stone", "fjord 7", "", *texts(3)], texts(4, seed=2)
    (tmp_path / "given.json").write_text(json.dumps([queries, documents]))
    files = [tmp_path / name for name in ("model", "given.json", "out.pt")]
    python("-c", LIBRARY_ALONE, *files, cwd=tmp_path, without=("PYTHONPATH",), HF_HUB_OFFLINE="1")
    theirs = torch.load(tmp_path / "out.pt", weights_only=True)
    for side, given, wanted in (("query", queries, theirs[0]), ("document", documents, theirs[1])):
        found = encode_side(ours, given, side, 48).toarray()
        np.testing.assert_allclose(found, wanted.numpy(), atol=1e-5, err_msg=side)
    assert TOKENS.index("oak") not in encode_side(ours, ["river"], "query", 48).indices  # the prompt is kept out
    again = load_encoder(str(tmp_path / "model"))
    assert torch.equal(table_of(again).weight, table_of(ours).weight)
    assert query_encoder_of(again) == "a static table, a weight for each token"


def test_a_model_with_more_rows_than_tokens_has_a_table_of_its_size(tmp_path: Path) -> None:
    """The library loads a table of the tokenizer's size only."""
    ours = encoder(tmp_path)
    model = ours[0].auto_model
    model.resize_token_embeddings(len(TOKENS) + 9)
    with torch.no_grad():
        model.get_output_embeddings().bias[len(TOKENS) :] = -1e4
    ours = with_query_table(ours, binary_weights(ours), frozen=True)
    save_encoder(ours, tmp_path / "model")
    plain = SparseEncoder(str(tmp_path / "model"), device="cpu")
    query, document = plain.encode_query("river stone"), plain.encode_document("river stone oak")
    assert query.shape == document.shape == (len(TOKENS) + 9,)
    assert sorted(query.coalesce().indices()[0].tolist()) == sorted(map(TOKENS.index, ("river", "stone")))
    assert encode_side(ours, ["[unused150] river"], "query", 48).nnz <= 1 + len("unused150") + 2


def test_fillers_never_take_a_name_that_is_there_and_gaps_are_refused() -> None:
    named = tokenizer((*TOKENS, f"[unused{len(TOKENS) + 2}]"))
    assert sorted(filled_up(named, len(TOKENS) + 5).get_vocab().values()) == list(range(len(TOKENS) + 5))
    gaps = {token: number + 3 * (number > 50) for number, token in enumerate(TOKENS)}
    holed = wrap(Tokenizer(models.WordPiece(gaps, unk_token="[UNK]")), ROLES, "of the test")
    with pytest.raises(DataError, match=r"numbers without gaps"):
        filled_up(holed, len(TOKENS) + 3)


def test_a_head_only_encoder_cuts_its_queries_by_the_output_vocabulary(tmp_path: Path) -> None:
    plain = encoder(tmp_path)
    names = shuffled(3)
    whole = with_sides(plain, plain, output=tokenizer(names))
    ours = with_query_encoder(whole, section(query_encoder="binary"), [])
    assert encode_side(ours, ["river"], "query", 48).indices.tolist() == [names.index("river")]
    save_encoder(ours, tmp_path / "model")
    again = load_encoder(str(tmp_path / "model"))
    assert isinstance(again, WholeEncoder)
    assert again.output_tokenizer is not None
    assert encode_side(again, ["river"], "query", 48).indices.tolist() == [names.index("river")]


# the choice


def test_the_query_encoder_is_chosen_whatever_was_there_before(tmp_path: Path) -> None:
    plain = encoder(tmp_path)
    idf = with_query_encoder(plain, section(query_encoder="idf"), DOCUMENTS)
    assert with_query_encoder(plain, section(), DOCUMENTS) is plain
    assert with_query_encoder(idf, section(), []) is idf
    shared = with_query_encoder(idf, section(query_encoder="shared"), [])
    assert query_encoder_of(shared) is None
    np.testing.assert_array_equal(
        encode_side(shared, ["river"], "query", 48).toarray(), encode(plain, ["river"], 48).toarray()
    )
    assert with_query_encoder(plain, section(query_encoder="shared"), []) is plain
    binary = with_query_encoder(idf, section(query_encoder="binary"), [])
    assert query_encoder_of(binary) == "a static table in which every token weighs 1"
    learned = with_query_encoder(idf, section(query_encoder="learned"), [])  # starts from the table that is there
    assert torch.equal(table_of(learned).weight, table_of(idf).weight)
    assert [table_of(one).frozen for one in (idf, binary, learned)] == [True, True, False]


def test_a_transformer_of_its_own_for_queries_is_kept_by_nothing_and_replaced_by_a_table(tmp_path: Path) -> None:
    plain, other = encoder(tmp_path / "a"), encoder(tmp_path / "b", seed=1)
    whole = with_sides(plain, plain, other)
    with pytest.raises(DataError, match=r'separate one.*Set query_encoder to "shared"'):
        with_query_encoder(whole, section(), [])
    assert isinstance(whole.query_side, SparseEncoder)
    assert isinstance(whole.query_side[0], Transformer)
    assert query_encoder_of(whole) == "an encoder of their own"
    assert query_encoder_of(with_query_encoder(whole, section(query_encoder="binary"), [])) is not None


@pytest.mark.parametrize(
    ("activation", "saturate"), [("log1p", np.log1p), ("log1p_log1p", lambda x: np.log1p(np.log1p(x)))]
)
def test_the_activation_is_what_the_recipe_says(activation: str, saturate: Any, tmp_path: Path) -> None:
    other = {"log1p": "log1p_relu", "log1p_log1p": "relu"}[activation]
    ours = encoder(tmp_path, activation=other)
    before = encode(ours, DOCUMENTS[:5], 48).toarray()
    logits = np.expm1(np.expm1(before)) if other == "log1p_relu" else np.expm1(before)
    assert with_query_encoder(ours, section(), []) is ours
    np.testing.assert_array_equal(encode(ours, DOCUMENTS[:5], 48).toarray(), before)
    ours = with_query_encoder(ours, section(activation=activation), [])
    save_encoder(ours, tmp_path / "model")
    found = SparseEncoder(str(tmp_path / "model"), device="cpu").encode_document(
        DOCUMENTS[:5], convert_to_sparse_tensor=False
    )
    np.testing.assert_allclose(found.numpy(), saturate(logits), atol=1e-4)


# training


def trained(folder: Path, kind: str, seed: int = 5, **changes: Any) -> tuple[SparseEncoder, dict[str, list[float]]]:
    wanted = section(query_encoder=kind, **changes)
    model = with_query_encoder(encoder(folder), wanted, DOCUMENTS)
    curves = finetune(model, DATA, wanted, TrainingRun(seed=seed, folder=folder / "checkpoints", language="en"))
    return model, curves


@pytest.mark.bf16
@pytest.mark.parametrize("kind", ["binary", "idf", "learned"])
def test_documents_learn_to_be_found_by_the_table(kind: str, tmp_path: Path) -> None:
    def found_first(model: SparseEncoder) -> float:
        queries = encode_side(model, [query.text for query in DATA.queries], "query", 48)
        documents = encode_side(model, DOCUMENTS, "document", 48)
        return float(np.mean((queries @ documents.T).toarray().argmax(axis=1) == np.arange(48)))

    before = found_first(with_query_encoder(encoder(tmp_path / "b"), section(query_encoder=kind), DOCUMENTS))
    model, curves = trained(tmp_path, kind, steps=120)
    start = binary_weights(model) if kind == "binary" else idf_query_weights(model, DOCUMENTS)
    table = table_of(model).weight.detach().numpy()
    assert np.array_equal(table, start) == (kind != "learned")
    assert found_first(model) > max(0.4, before)
    assert ("query_flops" in curves) == (kind == "learned")  # nothing makes a fixed table's queries sparser
    distinct = [len({*query.text.split()}) for query in DATA.queries]
    assert curves["query_dimensions"][-1] == pytest.approx(np.mean(distinct), abs=0.3)
    assert table_of(model).weight.grad is None


def test_a_learned_table_is_never_negative_and_special_tokens_and_masked_dimensions_weigh_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "vtkit.training.sparse_trainer.TABLE_LEARNING_RATE", 0.5
    )  # steps so large that weights would fall below 0
    ours = encoder(tmp_path)
    river = TOKENS.index("river")
    mask_dimensions(ours[0].auto_model, [river])
    wanted = section(query_encoder="learned", steps=20, query_lambda=0.3, ramp=0.1,
                     query_penalty="l1")  # fmt: skip
    ours = with_query_encoder(ours, wanted, DOCUMENTS)
    asked = [query.text for query in DATA.queries]
    before = encode_side(ours, asked, "query", 48).nnz
    finetune(ours, DATA, wanted, TrainingRun(seed=5, folder=tmp_path / "checkpoints", language="en"))
    weight = table_of(ours).weight.detach()
    assert float(weight.min()) == 0.0
    assert not weight[[*range(5), river]].any()
    assert encode_side(ours, asked, "query", 48).nnz < 0.9 * before  # weights at 0 leave queries sparser


def test_a_step_of_the_table_is_adams(tmp_path: Path) -> None:
    """The trainer leaves gradients beside the model's: two steps must be those of AdamW with each step's own."""
    ours = with_query_encoder(encoder(tmp_path), section(query_encoder="learned"), DOCUMENTS)
    table = QueryTable(table_of(ours), ours, trained=True)
    start = table.lookup.weight.detach().clone()
    seen: list[torch.Tensor] = []
    after_step = QueryTable.on_optimizer_step

    def watched(self: QueryTable, *given: Any, **others: Any) -> None:
        gradient = self.lookup.weight.grad
        seen.append(gradient.clone())
        after_step(self, *given, **others)

    patched = pytest.MonkeyPatch()
    patched.setattr(QueryTable, "on_optimizer_step", watched)
    wanted = section(query_encoder="learned", steps=3, warmup=0.0)
    finetune(ours, DATA, wanted, TrainingRun(seed=5, folder=tmp_path / "checkpoints", language="en"))
    patched.undo()
    by_hand = torch.nn.Parameter(start.clone())
    optimiser = torch.optim.AdamW([by_hand], lr=1e-2, weight_decay=0.0)
    for step, gradient in enumerate(seen):
        optimiser.param_groups[0]["lr"] = 1e-2 * (3 - step) / 3
        by_hand.grad = gradient
        optimiser.step()
        with torch.no_grad():
            by_hand.clamp_(min=torch.zeros(()), max=table.highest)
    assert len(seen) == 3
    torch.testing.assert_close(table.lookup.weight.detach(), by_hand.detach(), rtol=1e-6, atol=1e-6)
    assert not torch.equal(by_hand.detach(), start)


def test_a_fixed_table_is_not_trained_and_has_no_penalty(tmp_path: Path) -> None:
    for kind in QUERY_ENCODERS:
        wanted = section(query_encoder=kind)
        terms = objective_terms(wanted, 10, with_query_encoder(encoder(tmp_path), wanted, DOCUMENTS))
        trained = kind in ("source", "shared", "learned")
        assert ("query_flops" in {term.name for term in terms}) == trained, kind
        assert {"finetune.query_encoder", "finetune.activation", "finetune.document_lambda"} <= wanted.settings_read
        assert ({"finetune.query_penalty", "finetune.query_lambda"} <= wanted.settings_read) == trained, kind
    idf = with_query_encoder(encoder(tmp_path), section(query_encoder="idf"), DOCUMENTS)
    assert "query_flops" not in {term.name for term in objective_terms(section(), 10, idf)}
    with pytest.raises(DataError, match="no documents"):
        with_static_queries(encoder(tmp_path), "idf", [])
    assert query_encoder_of(with_static_queries(encoder(tmp_path), "binary", [])) is not None


# settings


def test_active_dimensions_of_a_fixed_table_cannot_be_asked_for(tmp_path: Path) -> None:
    for kind in ("binary", "idf"):
        with pytest.raises(ValidationError, match=f"with query_encoder {kind} a query always has one dimension for"):
            section(query_encoder=kind, target_active={"query": 20})
        assert section(query_encoder=kind, target_active={"document": 20}).target("document") == 20
    idf = with_query_encoder(encoder(tmp_path), section(query_encoder="idf"), DOCUMENTS)
    with pytest.raises(DataError, match=r'static table, which is not trained.*"learned" or "shared"'):
        with_query_encoder(idf, section(target_active={"query": 20}), [])


# whole runs


def cli(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "COLUMNS": "200", "HF_HUB_OFFLINE": "1"}
    return command_line.call(folder, arguments, os.environ | environment)


def test_a_whole_run_trains_indexes_evaluates_and_searches_by_its_table(tmp_path: Path) -> None:
    save_encoder(encoder(tmp_path / "work"), tmp_path / "source")
    add_training_queries(write_collection(tmp_path / "collection", DATA), DATA)
    training = '[finetune]\ndata = "collection"\nsteps = 10\nbatch_size = 6\nquery_encoder = "learned"\n'
    text = f'{RECIPE}measures = ["RR@10"]\n{training}activation = "log1p_log1p"\n'
    (tmp_path / "table.toml").write_text(text, "utf-8")
    ran = cli(tmp_path, "run", "table.toml")
    assert ran.returncode == 0, ran.stderr
    made = tmp_path / "runs" / "table"
    plain = SparseEncoder(str(made / "model"), device="cpu")
    query = plain.encode_query("river stone river").coalesce()
    names = plain.tokenizer.convert_ids_to_tokens(query.indices()[0].tolist())
    assert sorted(names) == ["river", "stone"]
    assert [module.activation_function for module in plain[0].sub_modules["document"][1:]] == ["log1p_relu"]

    report = json.loads((made / "report.json").read_text("utf-8"))
    words = report["query_encoder"]
    assert "trained with the encoder of documents" in words
    assert report["activation"] == "log(1 + log(1 + ReLU(x)))"
    rows = {row["system"]: row["query_encoder"] for row in report["results"][0]["rows"]}
    assert (rows["finetune"], rows["transfer"], rows["BM25"]) == (words, None, None)
    for page in ("report.md", "model/README.md"):
        assert f"Queries are encoded by {words}." in (made / page).read_text("utf-8")

    searched = cli(tmp_path, "search", "runs/table", "river stone river", "--json")
    assert searched.returncode == 0, searched.stderr
    assert {token for token, _ in json.loads(searched.stdout)["tokens"]} == {"river", "stone"}


# Both sides of an encoder: static query tables, cut and folded like any vector, and prompts.


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
    counts = [np.diff(read_vectors(path / "collection").indptr) for path in encoded]
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

"""uniCOIL encoders: the equation, what is saved, moved and trained, what is refused, and a whole run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import succeeds
from fine_tuning import DATA, section
from pydantic import ValidationError
from sentence_transformers import SparseEncoder
from tiny import (
    ARCHITECTURES,
    TOKENS,
    WORDS,
    encoder,
    finished_run,
    shuffled,
    texts,
    tokenizer,
    unicoil,
)

from vtkit.encoder.casing import change_encoder
from vtkit.encoder.checkpoint import as_sparse_encoder, load_encoder, save_encoder
from vtkit.encoder.encoding import encode
from vtkit.encoder.kinds import as_splade, as_unicoil
from vtkit.encoder.masked import mask_dimensions
from vtkit.encoder.sides import encode_side
from vtkit.encoder.unicoil import is_unicoil
from vtkit.evaluation.gates.encoder import vector_gates
from vtkit.pipeline.folder import open_run
from vtkit.pipeline.steps.calibrate_head import calibrate_encoder
from vtkit.search.exact import ExactIndex
from vtkit.search.segments import generation_of
from vtkit.settings.calibrate import CalibrateSection
from vtkit.settings.casing import CasingSection
from vtkit.settings.finetune import FinetuneSection
from vtkit.settings.gates import GatesSection
from vtkit.settings.recipe import Recipe
from vtkit.system.errors import DataError
from vtkit.training.document_expansion import expansions
from vtkit.training.document_expansion.expansions import digest, load_expansions
from vtkit.training.finetune import finetune
from vtkit.training.query_table import with_query_encoder
from vtkit.training.resuming import TrainingRun
from vtkit.transfer.surgery.graft import graft

DOCUMENTS = [document.contents for document in DATA.documents]


def entries(vectors: Any, row: int = 0) -> dict[str, float]:
    """Token -> weight."""
    return {TOKENS[j]: float(w) for j, w in zip(vectors[row].indices, vectors[row].data, strict=True)}


def by_hand(model: SparseEncoder, text: str) -> dict[str, torch.Tensor]:
    """ReLU(v · h_i + c) of each token i of one text, its largest for each word; token by token, with its gradient."""
    ids = [2, *model.tokenizer(text, add_special_tokens=False)["input_ids"], 3]  # [CLS] ... [SEP]
    states = model[0].auto_model.base_model(input_ids=torch.tensor([ids])).last_hidden_state[0]
    layer, found = model[1].linear, dict[str, torch.Tensor]()
    for number, state in zip(ids, states, strict=True):
        weight = (layer.weight[0] @ state + layer.bias[0]).clamp(min=0)
        if number > 4 and weight.item() > 0:
            before = found.get(TOKENS[number])
            found[TOKENS[number]] = weight if before is None or bool(weight > before) else before
    return found


# the equation


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_term_weighs_what_its_heaviest_occurrence_does(architecture: str, tmp_path: Path) -> None:
    ours = unicoil(tmp_path, architecture)
    given_texts = ["river stone river oak river", "oak", "", "stone 7 [SEP] fjord otter lagoon heron"]
    found = encode(ours, given_texts, 48)  # padded to the longest: padding weighs nothing
    for row, text in enumerate(given_texts):
        wanted = {token: weight.item() for token, weight in by_hand(ours, text).items()}
        assert entries(found, row) == pytest.approx(wanted, abs=1e-5), text
    assert found[0].nnz + found[3].nnz > 0


def test_the_gradient_is_that_of_the_heaviest_occurrence(tmp_path: Path) -> None:
    ours = unicoil(tmp_path)
    text = "river stone river oak river lagoon heron"
    features = ours.tokenizer([text], return_tensors="pt", return_token_type_ids=False)
    ours(dict(features))["sentence_embedding"].square().sum().backward()
    found = {name: parameter.grad.clone() for name, parameter in ours.named_parameters() if parameter.grad is not None}
    ours.zero_grad()
    torch.stack(list(by_hand(ours, text).values())).square().sum().backward()
    for name, parameter in ours.named_parameters():
        assert (parameter.grad is None) == (name not in found), name
        if parameter.grad is not None:
            torch.testing.assert_close(found[name], parameter.grad, rtol=1e-4, atol=1e-5)
    assert "1.linear.weight" in found
    assert not any("predictions" in name for name in found)  # the head has no part in it


def test_before_it_is_trained_a_score_is_the_number_of_shared_terms(tmp_path: Path) -> None:
    ours = as_unicoil(encoder(tmp_path))
    queries = encode_side(ours, ["river stone oak river", "heron"], "query", 48)
    documents = encode_side(ours, ["stone river [CLS] river", "oak", "fjord"], "document", 48)
    np.testing.assert_array_equal((queries @ documents.T).toarray(), [[2, 1, 0], [0, 0, 0]])


def test_masked_and_cased_dimensions_weigh_nothing(tmp_path: Path) -> None:
    tokens = (*TOKENS[:-1], "River")
    model = encoder(tmp_path, tokens=tokens)
    mask_dimensions(model[0].auto_model, [tokens.index("oak")])
    ours = as_unicoil(model)
    assert encode(ours, ["River oak stone"], 48).indices.tolist() == sorted(map(tokens.index, ("stone", "River")))
    change_encoder(ours, CasingSection(output="mask"))
    assert encode(ours, ["River oak stone"], 48).indices.tolist() == [tokens.index("stone")]
    folded = as_unicoil(encoder(tmp_path / "folded", tokens=tokens))
    change_encoder(folded, CasingSection(output="fold"))
    assert encode(folded, ["River river stone"], 48).nnz == 2


def test_ties_of_shared_terms_do_not_stop_a_run(tmp_path: Path) -> None:
    ours, splade = (
        vector_gates(GatesSection(), model, ["oak reef"] * 10, more_follows=False)
        for model in (as_unicoil(encoder(tmp_path)), encoder(tmp_path / "b"))
    )
    assert (ours["ties"]()[0], splade["ties"]()[0]) == ("warn", "fail")
    assert "activation" not in ours


# what is saved


def test_the_library_loads_the_folder_with_vtkit_beside_it(tmp_path: Path) -> None:
    ours = unicoil(tmp_path)
    ours.prompts = {"query": "oak ", "document": "pine "}
    save_encoder(ours, tmp_path / "model")
    queries, documents = ["river river stone", "", *texts(3)], texts(4, seed=2)
    plain = SparseEncoder(str(tmp_path / "model"), device="cpu", trust_remote_code=True)
    again = load_encoder(str(tmp_path / "model"))
    for side, found in (("query", queries), ("document", documents)):
        wanted = encode_side(ours, found, side, 48).toarray()
        read = getattr(plain, f"encode_{side}")(found, convert_to_sparse_tensor=False)
        np.testing.assert_allclose(read.numpy(), wanted, atol=1e-5)
        np.testing.assert_array_equal(encode_side(again, found, side, 48).toarray(), wanted)
    with pytest.raises(ValueError, match="trust_remote_code"):
        SparseEncoder(str(tmp_path / "model"), device="cpu")


def test_queries_may_have_a_table_beside_it(tmp_path: Path) -> None:
    """TILDEv2: a binary query, and documents whose tokens are weighed."""
    section = FinetuneSection(data="unused", query_encoder="binary")
    ours = with_query_encoder(unicoil(tmp_path), section, [])
    save_encoder(ours, tmp_path / "model")
    again = load_encoder(str(tmp_path / "model"))
    assert is_unicoil(again)
    assert entries(encode_side(again, ["river stone river"], "query", 48)) == {"river": 1.0, "stone": 1.0}
    np.testing.assert_array_equal(
        encode_side(again, DOCUMENTS, "document", 48).toarray(), encode_side(ours, DOCUMENTS, "document", 48).toarray()
    )


def test_no_other_class_of_vtkit_is_loaded_by_name(tmp_path: Path) -> None:
    save_encoder(unicoil(tmp_path), tmp_path / "model")
    path = tmp_path / "model" / "modules.json"
    path.write_text(path.read_text().replace("vtkit.encoder.unicoil.UnicoilPooling", "vtkit.encoder.unicoil.Module"))
    with pytest.raises(DataError, match=r"names code that comes with the model .*unicoil\.Module"):
        load_encoder(str(tmp_path / "model"))
    save_encoder(unicoil(tmp_path / "b"), tmp_path / "damaged")
    (tmp_path / "damaged" / "1_UnicoilPooling" / "config.json").write_text('{"width": 3, "embedding_dimension": 9}')
    with pytest.raises(DataError, match="cannot be loaded as a sparse encoder"):
        load_encoder(str(tmp_path / "damaged"))


def test_one_kind_is_made_of_the_other(tmp_path: Path) -> None:
    plain = encoder(tmp_path)
    wanted = encode(plain, DOCUMENTS[:4], 48).toarray()
    ours = as_unicoil(plain)
    assert as_unicoil(ours) is ours
    assert encode(ours, DOCUMENTS[:4], 48).nnz < np.count_nonzero(wanted)
    np.testing.assert_array_equal(encode(as_splade(ours), DOCUMENTS[:4], 48).toarray(), wanted)
    np.testing.assert_array_equal(encode(plain, DOCUMENTS[:4], 48).toarray(), wanted)


def test_a_new_vocabulary_takes_the_layer_along(tmp_path: Path) -> None:
    ours = unicoil(tmp_path)
    target = tokenizer(shuffled(1))
    order = [TOKENS.index(token) for token in shuffled(1)]
    old = ours[0].auto_model
    rows, bias = old.get_input_embeddings().weight[order], old.get_output_embeddings().bias[order]
    moved = as_sparse_encoder(graft(old, target, rows.detach(), bias.detach()), target, tmp_path / "moved", like=ours)
    found, wanted = (encode(model, DOCUMENTS, 48).toarray() for model in (moved, ours))
    np.testing.assert_allclose(found, wanted[:, order], atol=1e-5)


# training


@pytest.mark.bf16
def test_fine_tuning_teaches_which_tokens_count(tmp_path: Path) -> None:
    """Every query holds a word of its document and ten words that say nothing."""
    noise = WORDS[:10]
    data = replace(DATA, queries=[replace(query, text=f"{query.text} {' '.join(noise)}") for query in DATA.queries])
    ours = as_unicoil(encoder(tmp_path))
    before = encode(ours, ["river " + " ".join(noise)], 48)
    finetune(
        ours,
        data,
        section(steps=60, query_penalty=[], document_penalty=[]),
        TrainingRun(seed=5, folder=tmp_path / "checkpoints", language="en"),
    )
    after = encode(ours, ["river " + " ".join(noise)], 48)

    def share(vectors: Any) -> float:
        found = entries(vectors)
        return sum(weight for token, weight in found.items() if token in noise) / sum(found.values())

    assert share(after) < 0.97 * share(before)


# what is refused


def recipe(**changes: Any) -> dict[str, Any]:
    wanted: dict[str, Any] = {
        "recipe": {"name": "tiny"},
        "source": {"model": "m", "kind": "unicoil"},
        "vocabulary": {"kind": "existing", "tokenizer": "t"},
        "transfer": {"method": "subtoken"},
        "finetune": {"data": "d"},
    }
    return {**wanted, **changes}


def test_settings_of_logits_are_refused_all_at_once() -> None:
    Recipe.model_validate(recipe())
    refused = recipe(calibrate={}, transfer={"method": "subtoken", "scope": "head-only"},
                     finetune={"data": "d", "activation": "log1p"}, adapt={"objective": ["align", "crop"]})  # fmt: skip
    with pytest.raises(ValidationError) as error:
        Recipe.model_validate(refused)
    for setting in ("remove [calibrate]", "transfer.scope", "finetune.activation"):
        assert setting in str(error.value), setting
    refused["source"] = {"model": "m"}
    Recipe.model_validate(refused)


def test_a_source_that_is_one_already_is_refused_where_logits_are_asked_for(tmp_path: Path) -> None:
    ours = unicoil(tmp_path)
    with pytest.raises(DataError, match=r"\[calibrate\] works on the logits.*source\.kind"):
        calibrate_encoder(ours, DOCUMENTS, CalibrateSection(), 1)
    with pytest.raises(DataError, match=r"activation works on the logits"):
        with_query_encoder(ours, section(activation="log1p"), [])
    whole = with_query_encoder(encoder(tmp_path / "b"), section(query_encoder="binary"), [])
    with pytest.raises(DataError, match="reads the vocabulary that it writes"):
        as_unicoil(whole)


# whole runs


def vtkit(*arguments: str) -> str:
    """What the command prints, run in this process."""
    return succeeds(*arguments).stdout


def test_a_whole_run_ends_in_a_unicoil_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansions, "COMMON", 1.0)  # of so few documents every word is common
    data = tmp_path / "collection"
    more = (
        '[adapt]\nobjective = "mlm"\nsteps = 5\nbatch_size = 4\n'
        '[expand_documents]\nmethod = "tilde-aug"\nsteps = 6\nbatch_size = 4\nkeep = 3\n'
        '[finetune]\ndata = "collection"\nsteps = 10\nbatch_size = 6\n'
    )
    folder = finished_run(tmp_path, DATA, more=more, source='kind = "unicoil"\n')
    assert is_unicoil(load_encoder(str(folder / "model")))
    card = (folder / "model" / "README.md").read_text("utf-8")
    assert 'SparseEncoder("path/to/this/folder", trust_remote_code=True)' in card
    report = json.loads((folder / "report.json").read_text("utf-8"))
    rows = {row["system"]: row["measures"]["RR@10"] for row in report["results"][0]["rows"]}
    assert rows["finetune"] > 0.8

    explained = json.loads(vtkit("explain", folder, DATA.queries[0].text, "d0", "--json"))
    assert {token for token, *_ in explained["tokens"]} == set(DATA.queries[0].text.split())
    words = load_expansions(open_run(folder).steps["expand:documents"])
    assert len(words) == len(set(DOCUMENTS))
    assert {len(added) for added in words.values()} == {3}
    index = ExactIndex.load(generation_of(folder / "index" / "collection") / "postings")
    assert index.info.postings == sum(len({*text.split(), *words[digest(text)]}) for text in DOCUMENTS)
    assert report["words_added"] == 3.0
    vtkit(
        "expand-documents",
        folder / "expander",
        tmp_path / "collection",
        "--out",
        tmp_path / "expanded",
        "--set",
        "keep=2",
    )
    written = (tmp_path / "expanded" / "corpus.jsonl").read_text("utf-8").splitlines()
    assert [len(json.loads(line)["text"].split()) for line in written] == [len(text.split()) + 2 for text in DOCUMENTS]
    vtkit("encode", folder / "model", data, "--out", tmp_path / "vectors")
    vtkit("index", tmp_path / "vectors", "--out", tmp_path / "index")
    assert "d0" in vtkit("search", tmp_path / "index", DATA.queries[0].text)

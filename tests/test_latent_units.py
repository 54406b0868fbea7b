"""Latent units: a sparse autoencoder on token states, saved as a head that plain sentence-transformers reads."""

import ast
import json
import math
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from command_line import invoke, succeeds
from safetensors.torch import load_file, save_file
from sentence_transformers import MultiVectorEncoder, SparseEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from support import refused

from vtkit.encoder.asymmetric import WholeEncoder, dimension_names, named, writes_units
from vtkit.encoder.checkpoint import load_encoder, load_with_new_head, save_encoder
from vtkit.encoder.dense import load_dense, token_projection
from vtkit.encoder.families import mlm_head
from vtkit.encoder.fitted import UnitsFit
from vtkit.encoder.fitted_head import Head as FittedHead
from vtkit.encoder.fitted_head import token_states
from vtkit.encoder.masked import MASKED_BIAS
from vtkit.pipeline.folder import open_run, report_of
from vtkit.pipeline.run import run
from vtkit.pipeline.search import open_searcher
from vtkit.search.measures.effectiveness import evaluate
from vtkit.search.stored_vectors import read_vectors
from vtkit.settings.source import Units
from vtkit.system.errors import DataError, RecipeError
from vtkit.training.gates import Gate
from vtkit.training.objective import UNIT_SCALE, Objective, Term
from vtkit.transfer import latent_units
from vtkit.transfer.latent_units import Autoencoder, _rows_of_words, fit_units
from vtkit.transfer.unit_names import unit_names, words_of

TEXTS = tiny.texts(300, seed=1)
SECTION = Units(size=64, active=4)


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a transformer without a head."""
    return tiny.embedder(tmp_path_factory.mktemp("embedder") / "model")


@pytest.fixture(scope="module")
def learned(embedder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[WholeEncoder, UnitsFit]:
    """An encoder that writes units."""
    return fit_units(
        load_with_new_head(str(embedder)), TEXTS, SECTION, 0, tmp_path_factory.mktemp("states"), steps=250
    )[:2]


def test_the_autoencoder_keeps_the_k_largest_units() -> None:
    sae = Autoencoder(torch.zeros(3), torch.eye(3).repeat(2, 1)[:4], 2)
    found, places = sae(torch.tensor([[3.0, 2.0, -1.0]]))
    assert sorted(places[0].tolist()) == [0, 3]
    assert found.tolist() == [[6.0, 0.0, 0.0]]


def test_states_and_gradients_are_those_of_the_equation() -> None:
    """x̂ = Dᵀ top_k(ReLU(E (x − c) + b)) + c, with the products of all units."""
    torch.manual_seed(0)
    sae, states = Autoencoder(torch.randn(6), torch.randn(40, 6), 5), torch.randn(20, 6)
    with torch.no_grad():
        sae.bias.normal_(std=0.1)
        sae.decoder.normal_()
    units = (sae.encoder @ (states - sae.centre).T).T.add(sae.bias).relu()
    kept = torch.where(units >= units.topk(5, dim=1).values[:, -1:], units, 0)
    wanted, found = kept @ sae.decoder + sae.centre, sae(states)[0]
    torch.testing.assert_close(found, wanted)
    gradients = [
        torch.autograd.grad((each - states).square().sum(), list(sae.parameters())) for each in (found, wanted)
    ]
    torch.testing.assert_close(*gradients)


@pytest.mark.bf16
def test_few_units_rebuild_most_of_a_state(learned: tuple[WholeEncoder, UnitsFit]) -> None:
    _, fit = learned
    assert fit.unexplained < 0.35
    assert fit.dead < 16
    assert fit.tokens > 1000


def test_the_variance_left_over_is_that_of_texts_of_all_lengths(
    embedder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short texts of one word, whose states are nearly equal, stand between long ones of many."""
    texts = [text for two in range(0, 200, 2) for text in (*TEXTS[two : two + 2], *["maple"] * 5)]

    def left_over(looked_at: int) -> float:
        monkeypatch.setattr(latent_units, "LOOKED_AT", looked_at)
        encoder = load_with_new_head(str(embedder))
        return fit_units(encoder, texts, SECTION, 0, tmp_path / str(looked_at), steps=60)[1].unexplained

    few, every = left_over(50), left_over(10**6)
    assert few == pytest.approx(every, rel=0.3)


def test_a_unit_fires_as_often_as_it_is_among_the_k(
    learned: tuple[WholeEncoder, UnitsFit], embedder: Path, tmp_path: Path
) -> None:
    encoder, _ = learned
    states = token_states(load_with_new_head(str(embedder)), TEXTS, tmp_path / "states")
    head = FittedHead(encoder[0].auto_model)
    found, _ = states.batch(np.flatnonzero(~states.held_out))
    with torch.no_grad():
        fires = (head.logits(found)[:, :64] > 0).float().sum(1)
    assert float(fires.mean()) == pytest.approx(SECTION.active, rel=0.1)


def test_plain_sentence_transformers_gives_the_same_vectors(
    learned: tuple[WholeEncoder, UnitsFit], tmp_path: Path
) -> None:
    encoder, _ = learned
    save_encoder(encoder, tmp_path / "model")
    found = SparseEncoder(str(tmp_path / "model"), device="cpu").encode_document(TEXTS[:20])
    again = load_encoder(str(tmp_path / "model"))
    torch.testing.assert_close(found.to_dense(), again.encode_document(TEXTS[:20]).to_dense())
    assert writes_units(again)
    assert float((found.to_dense() > 0).sum(1).float().mean()) > SECTION.active
    assert float(found.to_dense()[:, 64:].sum()) == 0.0


def test_losses_see_weights_of_units_at_the_size_of_tokens(learned: tuple[WholeEncoder, UnitsFit]) -> None:
    model = learned[0]
    terms = [Term("scores", lambda batch: batch.scores.sum(), lambda step: 1.0)]
    loss = Objective(model.eval(), terms, step=lambda: 3, gate=Gate("fine-tuning", vocabulary=64, ramp_ends=6))
    features = [model.tokenizer(TEXTS[part], padding=True, return_tensors="pt") for part in (slice(4), slice(4, 8))]
    (total,) = loss(features).values()
    queries, documents = (model.encode(TEXTS[part]).to_dense() for part in (slice(4), slice(4, 8)))
    assert total.item() == pytest.approx(UNIT_SCALE**2 * (queries @ documents.t()).sum().item(), rel=1e-4)


def test_units_are_named_by_what_fires_them(learned: tuple[WholeEncoder, UnitsFit]) -> None:
    encoder, _ = learned
    names = dimension_names(encoder)
    right = 0
    for word in tiny.WORDS[:20]:
        vector = encoder.encode_document([f"{word} {word}"]).to_dense()[0]
        right += any(word in re.findall("[a-z]+", names[unit]) for unit in vector.topk(3).indices.tolist())
    assert right >= 10
    assert all(name.partition(":")[0] == str(number) for number, name in enumerate(names[:64]))
    assert named(["7", "8:a", "7"]).convert_ids_to_tokens([0, 1, 2]) == ["7", "8:a", "7'"]


def test_names_are_the_words_of_the_definition(
    learned: tuple[WholeEncoder, UnitsFit], embedder: Path, tmp_path: Path
) -> None:
    texts = [f"{text}, The {word}!" for text, word in zip(TEXTS, tiny.WORDS * 9, strict=False)]
    states = token_states(load_with_new_head(str(embedder)), texts, tmp_path / "states")
    for token, (text, end) in zip(states.ids.tolist(), states.places.tolist(), strict=True):
        spelled = learned[0].tokenizer.convert_ids_to_tokens(token).removeprefix("##")
        assert texts[text][:end].lower().endswith(spelled) or spelled == "[UNK]"
    decoder, head = mlm_head(learned[0][0].auto_model).decoder, FittedHead(learned[0][0].auto_model)
    rows, bias = decoder.weight[:64].detach(), decoder.bias[:64].detach()
    words, of_token, common = words_of(states.places, texts)
    with torch.no_grad():
        fired = torch.nn.functional.linear(head.output(states.batch(np.arange(len(states.ids)))[0]), rows, bias).relu()
    for unit, name in enumerate(unit_names(head, rows, bias, states, texts, 0)):
        by_word = np.bincount(of_token, weights=fired[:, unit].numpy(), minlength=len(words))
        share, of_all = by_word / by_word.sum(), np.bincount(of_token, minlength=len(words)) / len(of_token)
        in_brackets = share[common].sum() >= 0.5
        named = {word: share[n] * math.log(share[n] / of_all[n]) for n, word in enumerate(words) if share[n] > 0}
        named = {word: gain for word, gain in named.items() if not common[words.index(word)]}
        if in_brackets:
            named = dict(zip(words[1:], share[1:], strict=True))
        wanted = [word for word in sorted(named, key=lambda word: -named[word])[:3] if named[word] > 0]
        shown = " ".join(wanted)
        assert name == (f"{unit}:({shown})" if in_brackets else f"{unit}:{shown}")


def test_words_are_common_if_they_are_frequent_and_spread_by_chance() -> None:
    draw = random.Random(0)
    texts = []
    for number in range(200):
        rest = [f"rare{draw.randrange(10**6)}" for _ in range(draw.choice([3, 20]))]
        spread = ["The"] * sum(draw.random() < 0.1 for _ in rest)
        texts.append(" ".join([*rest, *spread, *["fjord"] * (6 if number % 20 == 0 else 0)]))
    everywhere = np.array([[number, 1] for number in range(200)])
    words, _, common = words_of(everywhere, texts)
    assert [words[number] for number in np.flatnonzero(common)] == ["", "the"]
    assert "fjord" in words


@pytest.mark.parametrize(
    ("text", "end", "word"),
    [
        ("Wild-type p53, again", 4, "wild-type"),
        ("Wild-type p53, again", 14, ""),
        ("我们使用Python编程", 4, "使用"),
        ("我们使用Python编程", 10, "python"),
        ("ผลคะแนนของฉัน", 7, "คะแนน"),
        ("x" * 3000 + " word", 3005, ""),
    ],
)
def test_a_token_belongs_to_the_word_that_it_ends_in(text: str, end: int, word: str) -> None:
    words, (number,), _ = words_of(np.array([[0, end]]), [text])
    assert words[number] == word


def test_rows_of_words_give_the_logits_of_their_own_head() -> None:
    torch.manual_seed(0)
    states, embeddings, bias = torch.randn(50, 6), torch.randn(9, 6), torch.randn(9)
    bias[4] = MASKED_BIAS
    outputs = states @ torch.randn(6, 6) + torch.randn(6)
    rows, moved = _rows_of_words(states, outputs, embeddings, bias)
    ordinary = torch.arange(9) != 4
    wanted = outputs @ embeddings.T + bias
    torch.testing.assert_close((states @ rows.T + moved)[:, ordinary], wanted[:, ordinary], atol=1e-4, rtol=1e-4)
    assert moved[4] == MASKED_BIAS


def test_words_stand_behind_units(learned: tuple[WholeEncoder, UnitsFit], embedder: Path, tmp_path: Path) -> None:
    made, _, read = fit_units(load_with_new_head(str(embedder)), TEXTS, SECTION, 0, tmp_path / "states", 0.03, 250)
    assert read.read_back > 0.6
    save_encoder(made, tmp_path / "model")
    found = SparseEncoder(str(tmp_path / "model"), device="cpu").encode_document(TEXTS[:20]).to_dense()
    units = learned[0].encode_document(TEXTS[:20]).to_dense()
    torch.testing.assert_close(found[:, :64], units[:, :64], atol=1e-4, rtol=1e-3)
    names = dimension_names(load_encoder(str(tmp_path / "model")))
    assert names[64 : 64 + len(made.tokenizer)] == made.tokenizer.convert_ids_to_tokens(range(len(made.tokenizer)))
    own = [made.tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS[:20]]
    held = [float((row[64:][sorted(set(ids))] > 0).float().mean()) for row, ids in zip(found, own, strict=True)]
    assert np.mean(held) > 0.5
    assert float((found[:, 64:] > 0).float().mean()) < 0.5


def test_the_same_seed_gives_the_same_units(embedder: Path, tmp_path: Path) -> None:
    section = Units(size=32, active=4)

    def fitted(seed: int, place: str, texts: list[str] = TEXTS) -> dict[str, torch.Tensor]:
        head = load_with_new_head(str(embedder))
        return tiny.weights(fit_units(head, texts, section, seed, tmp_path / place, steps=20)[0])

    made = [fitted(seed, str(number)) for number, seed in enumerate((3, 3, 4))]
    assert tiny.same(made[0], made[1])
    assert not tiny.same(made[0], made[2])
    refused(DataError, "at least 1000 tokens", fitted, 0, "states", TEXTS[:20])


def late_interaction(folder: Path, transformer: Path, *layers: Dense) -> Path:
    """A multi-vector encoder in ``folder`` that projects the states of ``transformer`` by ``layers``."""
    ends = MultiVectorMask(), Normalize(module_input_name="token_embeddings")
    modules = [Transformer(str(transformer)), *layers, *ends]
    MultiVectorEncoder(modules=modules, device="cpu").save(str(folder))
    return folder


def projecting(rows: torch.Tensor, activation: torch.nn.Module | None = None) -> Dense:
    return Dense(rows.shape[1], len(rows), False, activation, rows, module_input_name="token_embeddings")


@pytest.mark.parametrize("layout", ["sentence-transformers", "pylate", "colbert"])
def test_projected_states_have_the_dot_products_of_token_vectors(embedder: Path, tmp_path: Path, layout: str) -> None:
    torch.manual_seed(0)
    layers = [projecting(torch.randn(8, 32))]
    folder = late_interaction(tmp_path / "model", embedder, *layers)
    if layout == "pylate":
        for name, before, after in (
            ("modules.json", r"sentence_transformers[\w.]*\.Dense", "pylate.models.Dense.Dense"),
            ("config_sentence_transformers.json", "MultiVectorEncoder", "ColBERT"),
        ):
            (folder / name).write_text(re.sub(before, after, (folder / name).read_text()))
    elif layout == "colbert":
        folder = tmp_path / "colbert"
        shutil.copytree(embedder, folder)
        weights = {f"bert.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
        weights["linear.weight"] = layers[0].linear.weight.detach()
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        config = json.loads((folder / "config.json").read_text()) | {"architectures": ["HF_ColBERT"]}
        (folder / "config.json").write_text(json.dumps(config))
    text = TEXTS[0]
    encoder = load_with_new_head(str(folder))
    with torch.no_grad():
        states = encoder[0].auto_model.base_model(**encoder.tokenizer(text, return_tensors="pt")).last_hidden_state[0]
    projected = torch.nn.functional.normalize(states @ token_projection(str(folder), "source.model").T)
    library = load_dense(str(folder), "peer", multi_vector=True)
    (vectors,) = library.encode_document([text], prompt="", convert_to_numpy=True)  # Stanford's models mark each text
    np.testing.assert_allclose((projected @ projected.T).numpy(), vectors @ vectors.T, atol=1e-4)
    refused(DataError, "multi-vector encoder", load_dense, str(folder), "transfer.embedder")


def test_a_rotation_of_token_states_gives_the_embedders_units(
    learned: tuple[WholeEncoder, UnitsFit], embedder: Path, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    layers = [projecting(torch.linalg.qr(torch.randn(32, 32)).Q) for _ in range(2)]
    folder = str(late_interaction(tmp_path / "model", embedder, *layers))
    projection = token_projection(folder, "source.model")
    torch.testing.assert_close(projection, torch.eye(32), atol=1e-5, rtol=0)
    _, fit, _ = fit_units(
        load_with_new_head(folder), TEXTS, SECTION, 0, tmp_path / "states", steps=250, projection=projection
    )
    assert fit.unexplained == pytest.approx(learned[1].unexplained, rel=0.1)
    assert token_projection(str(embedder), "source.model") is None
    bent = late_interaction(tmp_path / "bent", embedder, projecting(torch.randn(8, 32), torch.nn.Tanh()))
    refused(DataError, "projects token states by Tanh", token_projection, str(bent), "source.model")


@pytest.fixture(scope="module")
def dictionary(learned: tuple[WholeEncoder, UnitsFit], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an encoder that writes units."""
    folder = tmp_path_factory.mktemp("dictionary") / "model"
    save_encoder(learned[0], folder)
    return folder


def test_units_of_a_dictionary_are_named_by_other_texts(
    learned: tuple[WholeEncoder, UnitsFit], dictionary: Path, embedder: Path, tmp_path: Path
) -> None:
    section, others = Units(dictionary=str(dictionary)), ["maple otter, otter"] * 3
    made, fit, _ = fit_units(load_with_new_head(str(embedder)), others, section, 0, tmp_path / "states")
    vectors = [each.encode_document(TEXTS[:20]).to_dense() for each in (learned[0], made)]
    torch.testing.assert_close(vectors[1], vectors[0])
    assert fit == UnitsFit(64, 3, fit.tokens, None, learned[1].dead, 0)
    named = {word for name in dimension_names(made)[:64] for word in re.findall("[a-z]+", name)}
    assert named <= {"maple", "otter"}
    fires = (made.encode_document(others).to_dense() > 0).any(0)
    assert all(fires[n] for n, name in enumerate(dimension_names(made)[:64]) if ":" in name)


def test_words_stand_behind_units_of_a_dictionary(dictionary: Path, embedder: Path, tmp_path: Path) -> None:
    section = Units(dictionary=str(dictionary))
    made, _, _ = fit_units(load_with_new_head(str(embedder)), TEXTS, section, 0, tmp_path / "states", 0.03, 50)
    save_encoder(made, tmp_path / "words")
    again, _, _ = fit_units(
        load_with_new_head(str(embedder)), TEXTS, Units(dictionary=str(tmp_path / "words")), 0, tmp_path / "states"
    )
    assert len(dimension_names(again)) - dimension_names(again).count("") == 64, "tokens are not taken over"


def test_a_dictionary_that_does_not_fit_is_refused(dictionary: Path, embedder: Path, tmp_path: Path) -> None:
    save_encoder(tiny.encoder(tmp_path / "work"), tmp_path / "words")

    def refused(changed: bool, name: Path) -> str:
        encoder = load_with_new_head(str(embedder))
        if changed:
            with torch.no_grad():
                encoder[0].auto_model.base_model.encoder.layer[1].output.dense.weight[0, 0] += 1e-4
        with pytest.raises(DataError) as error:
            fit_units(encoder, TEXTS, Units(dictionary=str(name)), 0, tmp_path / "states")
        return str(error.value)

    assert "encoder.layer.1.output.dense.weight differ" in refused(True, dictionary)
    assert "its dimensions are not latent units" in refused(False, tmp_path / "words")
    assert "no trained masked-language-model head" in refused(False, embedder)


RECIPE = """\
[recipe]
name = "units"
[source]
model = "{model}"
corpus = ["text.txt"]
steps = 100
[source.units]
size = 64
active = 4
[vocabulary]
kind = "trimmed"
[index]
lexical = "bm25"
document_weighting = "cai-paper"
[evaluate]
sets = ["./collection"]
measures = ["nDCG@10"]
"""


@pytest.fixture
def recipe(tmp_path: Path, embedder: Path) -> Path:
    """A recipe, its text and its collection."""
    (tmp_path / "units.toml").write_text(RECIPE.format(model=embedder))
    clustered = [" ".join([word] * 30) for word in tiny.WORDS[:24] for _ in range(2)]
    (tmp_path / "text.txt").write_text("\n".join([*tiny.texts(300), *clustered]))
    tiny.write_collection(tmp_path / "collection", tiny.collection(40))
    return tmp_path / "units.toml"


def test_words_units_and_bm25_are_one_index(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe.write_text(recipe.read_text() + "[source.head]\nactivation = 0.03\n")
    made = run(recipe, runs=recipe.parent / "runs")
    shown = capsys.readouterr().err
    assert "64 units explain" in shown
    assert "gate read_back after transfer: pass" in shown
    page = (made / "report.md").read_text("utf-8")
    assert "after vocabulary" in page
    assert "64 units explain" in page
    encoder = load_encoder(str(made / "model"))
    bias = mlm_head(encoder[0].auto_model).decoder.bias.detach()
    can_be_active = [
        bool(name) and name not in tiny.ROLES.values() and float(bias[number]) > MASKED_BIAS / 2
        for number, name in enumerate(dimension_names(encoder))
    ]
    dead = open_searcher(made, model="transfer", collection=None).index.info.document_frequencies == 0
    assert report_of(made).sparsity.dead_dimensions == pytest.approx(dead[can_be_active].mean())
    assert dead[can_be_active].mean() < dead.mean(), "special tokens, which never are active, are not dead"
    stored = sum(read_vectors(folder).nnz for folder in (made.parent / "artifacts").glob("encode-transfer-*/*/vectors"))
    kept = open_searcher(made, model="transfer", collection=None).index.info.postings
    left_out = report_of(made).sparsity.left_out
    assert 1 - kept / stored < left_out < 0.5, "some were not kept when documents were encoded"
    assert re.search(r"left out of documents \| [1-9]\d? % of their weights", page)
    found = succeeds("explain", str(made), tiny.collection(40).documents[1].text, "d1")
    shared = re.findall(r"(?:\d\.\d+ +){3}(\S.*)", found.output)
    for kind in (r"theme [a-z]+ \(\d+\)", r"theme \(.*\) \(\d+\)", r"bm25:.+", r"(##)?[a-z]+"):
        assert any(re.fullmatch(kind, name) for name in shared), found.output
    other = recipe.with_name("other.toml")
    other.write_text(
        recipe.read_text()
        .replace('name = "units"', 'name = "other"')
        .replace("size = 64\nactive = 4\n", f'dictionary = "{made / "model"}"\n')
    )
    again = run(other, runs=recipe.parent / "runs", until="transfer")
    reused = load_encoder(str(open_run(again).steps["transfer"] / "model"))
    vectors = [each.encode_document(TEXTS[:20]).to_dense()[:, :64] for each in (encoder, reused)]
    torch.testing.assert_close(vectors[1], vectors[0])
    reasons_leave_out_units_of_common_words(made)
    a_unit_lists_the_texts_it_weighs_most_in(made)
    # the code in the model card, and vtkit's own decode, name the dimensions
    card = (made / "model" / "README.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", card, re.S)
    words = tiny.collection(40).documents[1].text
    code = code.replace("path/to/this/folder", str(made / "model")).replace("what is searched for", words)
    capsys.readouterr()
    exec(compile(code, "card", "exec"), {})
    printed = capsys.readouterr().out.splitlines()[-1]
    assert "model.decode(" not in code
    wanted = encoder.decode(encoder.encode_query([words]), top_k=10)[0]
    assert [name for name, _ in ast.literal_eval(printed)] == [name for name, _ in wanted]
    assert {name for name, _ in wanted} <= set(dimension_names(encoder))
    assert any(re.fullmatch(r"\d+:.+", name) for name, _ in wanted)


def test_units_of_a_multi_vector_encoder_stand_beside_it(recipe: Path, embedder: Path) -> None:
    torch.manual_seed(0)
    folder = late_interaction(recipe.parent / "late", embedder, projecting(torch.randn(16, 32)))
    recipe.write_text(recipe.read_text().replace(str(embedder), str(folder)))
    made = run(recipe, runs=recipe.parent / "runs")
    collection, library = tiny.collection(40), MultiVectorEncoder(str(folder), device="cpu")
    queries, documents = [query.text for query in collection.queries], list(collection.contents)
    scores = library.similarity(library.encode_query(queries), library.encode_document(documents))
    order = np.argsort(-scores.numpy(), axis=1, kind="stable")[:, :10]
    best = [
        (query.id, [(collection.documents[number].id, 1 / (1 + place)) for place, number in enumerate(row.tolist())])
        for query, row in zip(collection.queries, order, strict=True)
    ]
    wanted = evaluate(dict(best), collection.qrels, ["nDCG@10"])["nDCG@10"]
    (peer,) = [row for row in report_of(made).results[0].rows if row.role == "peer"]
    assert peer.measures["nDCG@10"] == pytest.approx(wanted)
    assert peer.search_cost.index_bytes == sum(
        vectors.nbytes for vectors in map(np.asarray, library.encode_document(documents))
    )


def reasons_leave_out_units_of_common_words(made: Path) -> None:
    found = succeeds("search", str(made), tiny.collection(40).documents[1].text, "--why", "--json")
    answer = json.loads(found.stdout)
    best = answer["results"][0]
    named = [name for pairs in (answer["tokens"], best["tokens"]) for name, _ in pairs]
    named += [name for _, _, _, _, tokens, _ in best["words"] for name, _ in tokens]
    assert any(re.fullmatch(r"\d+:[a-z].*", name) for name in named)
    assert not any(":(" in name for name in named)
    assert sum(score for _, score, *_ in best["words"]) == pytest.approx(best["score"], abs=0.01), (
        "they count all the same"
    )
    shown = invoke("search", str(made), tiny.collection(40).documents[1].text, "--why").stdout
    assert ":(" not in shown
    assert "encoder" in shown


def a_unit_lists_the_texts_it_weighs_most_in(made: Path) -> None:
    searcher = open_searcher(made, model=None, collection=None)
    weights = searcher.index.postings.by_document()
    unit = int(np.diff(weights.tocsc().indptr)[:64].argmax())
    column = weights[:, [unit]].toarray().ravel()
    name = searcher.names[unit]
    for asked in (str(unit), name):
        answer = json.loads(succeeds("search", str(made), "--unit", asked, "--json").stdout)
        assert answer["tokens"] == [[name, 1.0]]
        assert [result["score"] for result in answer["results"]] == pytest.approx(sorted(column)[::-1][:10], rel=1e-5)
    missing = invoke("search", str(made), "--unit", "64:")
    assert missing.exit_code == 1
    assert "no token or unit '64:'" in str(missing.exception)
    assert isinstance(invoke("search", str(made), "river", "--unit", "1").exception, RecipeError)


@pytest.mark.parametrize(
    ("added", "said"),
    [
        ('[calibrate]\ntokens = "document-frequency"\n', "remove calibrate.tokens"),
        ("[source.units]\nactive = 64\n", "active must be less than size"),
        ("[source.units]\ndictionary = './no-model'\n", "the dictionary has its units: remove size"),
    ],
)
def test_what_does_not_go_with_units_is_refused(recipe: Path, added: str, said: str) -> None:
    text = recipe.read_text()
    section, _, _ = added.partition("\n")
    if section in text:  # a table is given once
        text, added = text.replace("active = 4\n", added.removeprefix(f"{section}\n")), ""
    recipe.write_text(text + added)
    refused(RecipeError, said, run, recipe, runs=recipe.parent / "runs")


@pytest.mark.parametrize("section", ["units", "head"])
def test_adaptation_is_taught_by_the_embedder(recipe: Path, section: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = recipe.read_text() + '[adapt]\nsteps = 2\nbatch_size = 4\ntrain = "head"\n'
    if section == "head":
        text = text.replace("[source.units]", "[source.head]").replace("size = 64\nactive = 4\n", "")
    recipe.write_text(text)
    made = run(recipe, runs=recipe.parent / "runs", until="adapt")
    assert "objective distill: the source is a dense embedder" in capsys.readouterr().err
    steps = open_run(made).steps
    before, after = (tiny.weights(load_encoder(str(steps[step] / "model"))) for step in ("transfer", "adapt"))
    learned = {name for name in after if not torch.equal(before[name], after[name])}
    assert "cls.predictions.bias" in learned
    assert not [name for name in learned if name.startswith("bert.")]

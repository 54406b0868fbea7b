"""A head fitted to an embedder that has none: ridge, softmax, threshold and scale, and the recipe around them."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from command_line import invoke, succeeds
from sentence_transformers import SentenceTransformer, SparseEncoder
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding, Transformer
from transformers import AutoModel

from vtkit.encoder import fitted_head
from vtkit.encoder.checkpoint import load_encoder, load_with_new_head, save_encoder
from vtkit.encoder.families import mlm_head
from vtkit.encoder.fitted import HeadFit
from vtkit.encoder.fitted_head import Head as FittedHead
from vtkit.encoder.fitted_head import _ridge, fit_head, token_states
from vtkit.encoder.masked import masked_dimensions
from vtkit.evaluation.gates.encoder import read_back_gate
from vtkit.evaluation.gates.retrieval import retrieval_gate
from vtkit.pipeline.run import run
from vtkit.system.errors import DataError, RecipeError

TEXTS = tiny.texts(300, seed=1)


@pytest.fixture
def embedder(tmp_path: Path) -> Callable[..., Path]:
    """Makes a folder of a dense embedder of an architecture, without any head."""

    def make(architecture: str = "bert", place: str = "") -> Path:
        folder = tmp_path / f"embedder-{architecture}{place}"
        transformer = Transformer(str(tiny.embedder(folder / "body", architecture)))
        SentenceTransformer(
            modules=[transformer, Pooling(transformer.get_embedding_dimension(), "mean")],
            prompts={"query": "query: ", "document": "passage: "},
            device="cpu",
        ).save(str(folder / "embedder"))
        return folder / "embedder"

    return make


@pytest.mark.bf16
@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_the_head_reads_tokens_back_and_the_library_loads_it(
    embedder: Callable[..., Path], tmp_path: Path, architecture: str
) -> None:
    folder = embedder(architecture)
    encoder = load_with_new_head(str(folder))
    before = {name: values.clone() for name, values in encoder[0].auto_model.base_model.state_dict().items()}
    fit = fit_head(encoder, TEXTS, 0.03, 0, tmp_path / "states", 150)
    assert fit.read_back > 0.6
    assert fit.tokens > 1000
    assert fit.positive == pytest.approx(0.03, rel=0.1)
    after = encoder[0].auto_model.base_model.state_dict()
    assert all(torch.equal(before[name], values) for name, values in after.items())
    assert masked_dimensions(encoder[0].auto_model)[encoder.tokenizer.all_special_ids].all()
    save_encoder(encoder, tmp_path / "model")
    texts = TEXTS[:20]
    found = SparseEncoder(str(tmp_path / "model"), device="cpu").encode_document(texts, convert_to_sparse_tensor=False)
    torch.testing.assert_close(found, load_encoder(str(tmp_path / "model")).encode_document(texts).to_dense())
    own = [encoder.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    shares = [float((row[sorted(set(ids))] > 0).float().mean()) for row, ids in zip(found, own, strict=True)]
    assert np.mean(shares) > 0.5


def test_the_closed_form_is_the_ridge_regression(embedder: Callable[..., Path], tmp_path: Path) -> None:
    encoder = load_with_new_head(str(embedder()))
    states = token_states(encoder, TEXTS, tmp_path / "states")
    head = FittedHead(encoder[0].auto_model)
    rows = np.flatnonzero(~states.held_out)
    _ridge(head, states, rows)
    x = states.states[rows].astype(np.float64)
    x -= x.mean(0)
    embeddings = mlm_head(encoder[0].auto_model).embeddings.weight.detach().double().numpy()
    y = (embeddings - embeddings.mean(0))[states.ids[rows]]
    y -= y.mean(0)
    penalty = fitted_head.RIDGE * np.mean((x**2).sum(0)) * np.eye(x.shape[1])
    wanted = np.linalg.solve(x.T @ x + penalty, x.T @ y).T
    found = head.map.weight.detach().double().numpy()
    scale = (found * wanted).sum() / (wanted**2).sum()
    np.testing.assert_allclose(found, scale * wanted, rtol=1e-3, atol=1e-4 * np.abs(found).max())
    given = head.map(torch.from_numpy(states.states[rows]).float()).detach().numpy()
    assert given.mean() == pytest.approx(fitted_head.LINEAR[0], abs=0.02)
    assert given.std() == pytest.approx(fitted_head.LINEAR[1], rel=0.1)


def test_states_are_those_of_the_embedder(embedder: Callable[..., Path], tmp_path: Path) -> None:
    folder = embedder()
    encoder = load_with_new_head(str(folder))
    texts = TEXTS[:100]
    states = token_states(encoder, texts, tmp_path / "states")
    model, tokenizer = AutoModel.from_pretrained(folder), encoder.tokenizer
    for number in (0, 7, 99):
        with torch.no_grad():
            wanted = model(**tokenizer(texts[number], return_tensors="pt")).last_hidden_state[0, 1:-1].numpy()
        np.testing.assert_allclose(states.states[states.places[:, 0] == number], wanted, atol=2e-2)  # in bf16
    assert (np.diff(states.places[:, 0]) >= 0).all()
    assert 0.05 < states.held_out.mean() < 0.15


def test_the_same_seed_gives_the_same_head(embedder: Callable[..., Path], tmp_path: Path) -> None:
    made = []
    for number, seed in enumerate((3, 3, 4)):
        torch.manual_seed(number)
        encoder = load_with_new_head(str(embedder()))
        fit_head(encoder, TEXTS, 0.0015, seed, tmp_path / f"states{number}", 5)
        made.append(tiny.weights(encoder))
    assert tiny.same(made[0], made[1])
    assert not tiny.same(made[0], made[2])


def test_what_cannot_be_fitted_is_refused(embedder: Callable[..., Path], tmp_path: Path) -> None:
    folder = embedder()
    layers = AutoModel.from_pretrained(folder).config.num_hidden_layers
    assert load_with_new_head(str(folder), 1)[0].auto_model.config.num_hidden_layers == 1
    with pytest.raises(DataError, match=f"{layers} layers"):
        load_with_new_head(str(folder), layers + 1)
    with pytest.raises(DataError, match="at least 20 texts"):
        fit_head(load_with_new_head(str(folder)), TEXTS[:19], 0.0015, 0, tmp_path / "states")
    model = AutoModel.from_pretrained(folder)
    with torch.no_grad():
        model.get_input_embeddings().weight[3, 3] = float("nan")
    model.save_pretrained(folder)
    with pytest.raises(DataError, match="not finite"):
        load_with_new_head(str(folder))


RECIPE = """\
[recipe]
name = "dense"
[source]
model = "{model}"
corpus = ["text.txt"]
steps = 60
[source.head]
[vocabulary]
kind = "trimmed"
[calibrate]
tokens = "document-frequency"
query_encoder = "idf"
[index]
lexical = "bm25"
[evaluate]
sets = ["./collection"]
measures = ["nDCG@10"]
models = ["source", "transfer", "calibrate"]
[gates]
{gates}
"""


@pytest.fixture
def recipe(tmp_path: Path, embedder: Callable[..., Path]) -> Path:
    """A recipe, its embedder, its text and its collection."""
    (tmp_path / "dense.toml").write_text(RECIPE.format(model=embedder(), gates=""))
    (tmp_path / "text.txt").write_text("\n".join(tiny.texts(300)))
    tiny.write_collection(tmp_path / "collection", tiny.collection(40))
    return tmp_path / "dense.toml"


def test_its_recipe_runs_to_the_report_beside_the_embedder(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = run(recipe, runs=recipe.parent / "runs")
    shown = capsys.readouterr().err
    assert "gate read_back after transfer: pass" in shown
    assert "gate retrieval after transfer: pass" in shown
    report = (made / "report.md").read_text("utf-8")
    assert "after calibration" in report
    assert "embedder" in report
    assert "source model" not in report


def test_a_source_with_a_head_of_its_own_is_compared_with_it(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = tiny.encoder(recipe.parent / "masked")
    bare[0].auto_model.save_pretrained(recipe.parent / "own")
    bare.tokenizer.save_pretrained(recipe.parent / "own")
    embedder = next(recipe.parent.glob("embedder-*/embedder"))
    recipe.write_text(recipe.read_text().replace(str(embedder), str(recipe.parent / "own")))
    run(recipe, runs=recipe.parent / "runs", until="transfer")
    assert "by the source's own masked-language-model head" in " ".join(capsys.readouterr().err.split())


def test_the_gates_by_how_much_is_read_back() -> None:
    for read_back, finding in ((0.1, "fail"), (0.3, "warn"), (0.7, "pass")):
        assert read_back_gate(HeadFit(300, 4000, 0.1, read_back, 0.001))[0] == finding
    for own, finding in ((0.9, "warn"), (0.5, "pass"), (0.1, "pass")):  # beside a head of the source's own
        assert (
            retrieval_gate("by the source's own masked-language-model head", np.full(100, own), np.full(100, 0.5))[0]
            == finding
        )


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('kind = "trimmed"', 'kind = "existing"\ntokenizer = "./x"\n[transfer]\nmethod = "mean"', "own tokens"),
        ("[calibrate]", '[adapt]\nobjective = "mlm"\n[calibrate]', "the source is dense"),
        ("[source.head]\n", "", "fit one with"),
        ("text.txt", "unread.txt", "hardly any tokens that the source knows"),
    ],
)
def test_what_does_not_go_together_is_said(recipe: Path, before: str, after: str, said: str) -> None:
    (recipe.parent / "unread.txt").write_text("\n".join(f"{number:04} слово" for number in range(300)))
    recipe.write_text(recipe.read_text().replace(before, after))
    with pytest.raises((RecipeError, DataError), match=said):
        run(recipe, runs=recipe.parent / "runs", until="transfer")


@pytest.mark.parametrize("section", ["[source.head]\n", ""])
def test_a_static_embedder_is_no_source_but_can_be_evaluated_beside_it(recipe: Path, section: str) -> None:
    static, plain = recipe.parent / "static", recipe.read_text()
    tokenizer = tiny.tokenizer(tiny.TOKENS).backend_tokenizer
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=16)]).save(str(static))
    embedder = next(recipe.parent.glob("embedder-*/embedder"))
    recipe.write_text(plain.replace(str(embedder), "./static").replace("[source.head]\n", section))
    refused = invoke("recipe", "check", str(recipe)).exception
    assert isinstance(refused, RecipeError)
    assert re.search(r"source\.model: .*no transformer to start from: it is made of StaticEmbedding", str(refused))
    recipe.write_text(plain.replace("[gates]", 'peers = ["./static"]\n[gates]'))
    succeeds("recipe", "check", str(recipe))

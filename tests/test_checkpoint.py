"""Encoders on disk: what can be a source and what is refused, new encoders, and models where vtkit is not installed."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from scipy.sparse import csr_matrix
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.modules import Router, SparseStaticEmbedding
from support import refused
from tiny import ARCHITECTURES, ROLES, TOKENS, bare, dense, encoder, model, shuffled, texts, tokenizer
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import Whitespace
from transformers import GPT2Config, GPT2LMHeadModel

from vtkit.encoder.asymmetric import WholeEncoder
from vtkit.encoder.checkpoint import (
    as_sparse_encoder,
    load_encoder,
    load_source_tokenizer,
    load_with_new_head,
    save_encoder,
)
from vtkit.encoder.dense import load_dense
from vtkit.encoder.encoding import encode
from vtkit.encoder.families import mlm_head
from vtkit.encoder.scratch import scratch_model
from vtkit.encoder.sides import encode_side
from vtkit.recipe.checks import check_names
from vtkit.recipe.load import load_recipe
from vtkit.settings.source import Scratch
from vtkit.system.errors import DataError, RecipeError
from vtkit.transfer.mixture import Mixture, all_made_by
from vtkit.transfer.surgery.graft import graft_encoder
from vtkit.vocabulary.existing import load_tokenizer, wrap

TEXTS = [*texts(6), "", "Ünknown 字 river", " ".join(["willow"] * 60)]


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_any_masked_language_model_is_a_source_and_cuts_long_texts(architecture: str, tmp_path: Path) -> None:
    model(architecture, shuffled(6, pad=5)).save_pretrained(tmp_path)
    tokenizer(shuffled(6, pad=5)).save_pretrained(str(tmp_path))
    source = load_encoder(str(tmp_path))
    assert source.max_seq_length == 48
    assert (source[1].pooling_strategy, source[1].activation_function) == ("max", "relu")
    assert encode(source, [" ".join(["river"] * 300)], 1000).nnz > 0


@pytest.mark.parametrize("bare", [True, False])
def test_the_tokenizer_of_a_source_is_read_without_its_weights(bare: bool, tmp_path: Path) -> None:
    if bare:
        model(tokens=shuffled(6)).save_pretrained(tmp_path)
        tokenizer(shuffled(6)).save_pretrained(str(tmp_path))
    else:
        save_encoder(encoder(tmp_path / "made"), tmp_path)
    whole = load_encoder(str(tmp_path)).tokenizer
    for weights in tmp_path.rglob("*.safetensors"):
        save_file({"nothing": np.zeros(1)}, weights)
    found = load_source_tokenizer(str(tmp_path))
    assert found.backend_tokenizer.to_str() == whole.backend_tokenizer.to_str()
    assert found.special_tokens_map == whole.special_tokens_map


def test_whoever_may_read_the_files_of_a_saved_encoder_may_read_its_weights(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        save_encoder(encoder(tmp_path / "made"), tmp_path / "model")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "model").rglob("*") if path.is_file()} == {0o640}


def change(path: Path, **settings: object) -> None:
    content = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    path.write_text(json.dumps(content | settings), "utf-8")


@pytest.mark.parametrize("kind", ["sparse", "bare", "head"])
def test_a_source_whose_modules_lower_case_texts_is_read_so(kind: str, tmp_path: Path) -> None:
    folder, load = tmp_path / "model", load_encoder
    if kind == "sparse":
        save_encoder(encoder(tmp_path / "work"), folder)
    elif kind == "bare":
        bare(folder)
    else:
        dense(folder)
        load = load_with_new_head
    change(folder / "sentence_bert_config.json", do_lower_case=True)
    wanted = tokenizer()(["apple river"])["input_ids"]
    assert load_source_tokenizer(str(folder))(["Apple RIVER"])["input_ids"] == wanted
    assert load(str(folder)).tokenizer(["Apple RIVER"])["input_ids"] == wanted


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_the_weights_of_a_text_do_not_depend_on_its_batch_though_files_pad_on_the_left(
    architecture: str, tmp_path: Path
) -> None:
    save_encoder(encoder(tmp_path / "work", architecture), tmp_path / "model")
    change(tmp_path / "model" / "tokenizer_config.json", padding_side="left")
    source = load_encoder(str(tmp_path / "model"))
    together, alone = encode(source, TEXTS, 48), [encode(source, [text], 48) for text in TEXTS]
    assert np.abs(together.toarray() - np.vstack([row.toarray() for row in alone])).max() < 1e-4
    library = source.encode_document(TEXTS, convert_to_sparse_tensor=False).numpy()
    assert np.abs(together.toarray() - library).max() < 1e-4
    save_encoder(source, tmp_path / "saved")
    assert SparseEncoder(str(tmp_path / "saved"), device="cpu").tokenizer.padding_side == "right"


def causal(folder: Path) -> None:
    GPT2LMHeadModel(GPT2Config(vocab_size=120, n_embd=32, n_layer=1, n_head=2)).save_pretrained(folder)


def other_modules(folder: Path) -> None:
    table = SparseStaticEmbedding(tokenizer=tokenizer(), weight=torch.ones(len(TOKENS)))
    SparseEncoder(modules=[table], device="cpu").save(str(folder), create_model_card=False)


def other_ways(folder: Path) -> None:
    ours = encoder(folder / "work")
    router = Router.for_query_document(
        [ours[0], ours[1]], [SparseStaticEmbedding(tokenizer(), torch.ones(len(TOKENS)))]
    )
    SparseEncoder(modules=[router], device="cpu").save(str(folder), create_model_card=False)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: model().base_model.save_pretrained(folder), r"head: its weights lack cls\.predictions"),
        (causal, "is a gpt2 model, an architecture without a masked-language-model head"),
        (other_modules, "is made of SparseStaticEmbedding"),
        (other_ways, "SparseStaticEmbedding for documents and Transformer, SpladePooling for queries"),
    ],
    ids=["no head", "causal", "other modules", "other ways"],
)
def test_what_is_no_source_is_refused_by_its_parts(make: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    make(tmp_path)
    tokenizer().save_pretrained(str(tmp_path))
    refused(DataError, message, load_encoder, str(tmp_path))


def test_a_damaged_router_is_an_error_that_names_its_file(tmp_path: Path) -> None:
    router, _ = routed(tmp_path, "model")
    (router / "router_config.json").write_text("{}")
    refused(DataError, r"router_config\.json is missing or damaged", load_encoder, str(router))


def test_saving_inside_the_streaming_block_is_refused(tmp_path: Path) -> None:
    from vtkit.encoder.kernels.sparse_head import streaming

    ours = encoder(tmp_path)
    with streaming(ours), pytest.raises(TypeError, match="after the streaming block"):
        save_encoder(ours, tmp_path / "model")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_new_encoder_has_the_shape_that_is_asked_for_and_repeats_with_the_seed(architecture: str) -> None:
    section = Scratch(architecture=architecture, layers=3, hidden=24, heads=2, feed_forward=40, max_length=30)
    made = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        made.append(scratch_model(section, tokenizer(shuffled(8))))
    first, again, other = (network.state_dict() for network in made)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)
    head = mlm_head(made[0])
    assert head.tied
    assert head.embeddings.weight.shape == (len(TOKENS), 24)
    assert made[0].config.num_hidden_layers == 3
    assert made[0].config.pad_token_id == shuffled(8).index("[PAD]")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_new_encoder_begins_as_a_lexical_matcher(architecture: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    section = Scratch(architecture=architecture, layers=2, hidden=96, heads=2, feed_forward=96, max_length=40)
    ours = as_sparse_encoder(scratch_model(section, tokenizer()), tokenizer(), tmp_path)
    assert ours.max_seq_length == 40
    ids = ours.tokenizer(TEXTS[0], return_tensors="pt")
    with torch.no_grad():
        logits = ours[0].auto_model(**ids).logits[0]
    share = (logits.argmax(dim=1) == ids["input_ids"][0]).float().mean()
    assert share > 0.7


PROMPTS = {"query": "river ", "document": "oak "}


def routed(folder: Path, query: str) -> tuple[Path, Router]:
    """An encoder whose queries go through a table, a model of their own or the documents', as the library writes it."""
    document = encoder(folder / "document", activation="log1p_relu")
    other = encoder(folder / "query", seed=1, activation="log1p_relu")
    ways = {
        "table": [SparseStaticEmbedding(tokenizer(), torch.linspace(0.1, 2.0, len(TOKENS)), frozen=True)],
        "model": [other[0], other[1]],
        "same": [document[0], document[1]],
    }
    router = Router.for_query_document(ways[query], [document[0], document[1]], default_route="document")
    plain = SparseEncoder(modules=[router], device="cpu", prompts=PROMPTS, max_active_dims=30)
    plain.save(str(folder / "model"), create_model_card=False)
    return folder / "model", router


@pytest.mark.parametrize("query", ["table", "model", "same"])
def test_an_asymmetric_encoder_encodes_both_sides_as_the_library_does(query: str, tmp_path: Path) -> None:
    folder, _ = routed(tmp_path, query)
    ours = load_encoder(str(folder))
    assert isinstance(ours, WholeEncoder)
    assert (ours.query_side is None) == (query == "same")
    save_encoder(ours, tmp_path / "again")
    for path in (folder, tmp_path / "again"):
        plain = SparseEncoder(str(path), device="cpu")
        assert plain.prompts == PROMPTS
        assert plain.max_active_dims == 30
        for side, library in (("query", plain.encode_query), ("document", plain.encode_document)):
            wanted = library(TEXTS, convert_to_sparse_tensor=False).numpy()
            found = encode_side(ours, TEXTS, side, 1000).toarray()
            np.testing.assert_allclose(found, wanted, atol=1e-5, err_msg=side)
            assert (wanted > 0).sum(axis=1).max() <= 30


def mixed(tokens: tuple[str, ...], seed: int = 3) -> Mixture:
    """Every token of ``tokens`` is its source token, but words are two source tokens each."""
    draw = np.random.default_rng(seed)
    weights = np.zeros((len(tokens), len(TOKENS)), dtype=np.float32)
    methods = all_made_by("overlap", len(tokens))
    for row, token in enumerate(tokens):
        weights[row, TOKENS.index(token)] = 1.0
        if token.isalpha() and len(token) > 1:
            weights[row] /= 2
            weights[row, draw.integers(5, len(TOKENS))] += 0.5
            methods[row] = "subtoken"
    return Mixture(csr_matrix(weights), methods)


@pytest.mark.parametrize("query", ["table", "model"])
def test_a_transfer_moves_both_sides_of_an_asymmetric_encoder(query: str, tmp_path: Path) -> None:
    folder, _ = routed(tmp_path, query)
    source = load_encoder(str(folder))
    assert isinstance(source, WholeEncoder)
    tokens = shuffled(9)
    mixture = mixed(tokens)
    made = graft_encoder(source, tokenizer(tokens), mixture, mixture.bias, tmp_path / "work")
    save_encoder(made, tmp_path / "moved")
    plain = SparseEncoder(str(tmp_path / "moved"), device="cpu")
    assert (plain.prompts, plain.max_active_dims) == (PROMPTS, 30)
    router = plain[0]
    assert router.default_route == "document"
    assert [module.activation_function for module in router.sub_modules["document"][1:]] == ["log1p_relu"]
    weights = mixture.weights.toarray()
    for name, module in (("document", source[0]), ("query", source.query_side[0])):
        new = router.sub_modules[name][0]
        if isinstance(module, SparseStaticEmbedding):
            np.testing.assert_allclose(new.weight.detach(), weights @ module.weight.detach().numpy(), rtol=1e-6)
            assert new.frozen
        else:
            rows = weights @ mlm_head(module.auto_model).embeddings.weight.detach().numpy()
            np.testing.assert_allclose(mlm_head(new.auto_model).embeddings.weight.detach(), rows, rtol=1e-5, atol=1e-6)
    for side, library in (("query", plain.encode_query), ("document", plain.encode_document)):
        wanted = library(TEXTS, convert_to_sparse_tensor=False).numpy()
        np.testing.assert_allclose(encode_side(made, TEXTS, side, 1000).toarray(), wanted, atol=1e-5)


def test_a_transfer_carries_settings_over(tmp_path: Path) -> None:
    first = encoder(tmp_path / "first", pooling="sum", activation="log1p_relu")
    first.prompts, first.default_prompt_name, first.max_active_dims = {"query": "a", "document": "b"}, "document", 17
    first.similarity_fn_name, first.max_seq_length = "cosine", 20
    save_encoder(first, tmp_path / "source")
    source = load_encoder(str(tmp_path / "source"))
    mixture = mixed(shuffled(2))
    save_encoder(
        graft_encoder(source, tokenizer(shuffled(2)), mixture, mixture.bias, tmp_path / "work"), tmp_path / "model"
    )
    plain = SparseEncoder(str(tmp_path / "model"), device="cpu")
    assert (plain[1].pooling_strategy, plain[1].activation_function) == ("sum", "log1p_relu")
    assert (plain.prompts, plain.default_prompt_name) == ({"query": "a", "document": "b"}, "document")
    assert (plain.max_active_dims, plain.similarity_fn_name, plain.max_seq_length) == (17, "cosine", 20)


def test_saved_dropout_of_a_source_is_off_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "year", "a", "b", "ab", "abab"]
    backend = Tokenizer(
        BPE({w: n for n, w in enumerate(words)}, [("a", "b"), ("ab", "ab")], unk_token="[UNK]", dropout=0.5)
    )
    backend.pre_tokenizer = Whitespace()
    model(tokens=tuple(words)).save_pretrained(tmp_path)
    wrap(backend, ROLES, "of the test").save_pretrained(str(tmp_path))
    for load in (load_encoder, load_source_tokenizer):
        found = load(str(tmp_path))
        read = getattr(found, "tokenizer", found)(["abab " * 30], add_special_tokens=False)["input_ids"]
        assert read == [[10] * 30]
        assert "BPE dropout of 0.5" in capsys.readouterr().err


def folder_of_class(folder: Path, kind: str, *, lone: bool) -> Path:
    """A masked language model whose tokenizer names the class ``kind``, in a tokenizer.json or a lone vocab.txt."""
    save_encoder(encoder(folder / "work"), folder / "model")
    model = folder / "model"
    change(model / "tokenizer_config.json", tokenizer_class=kind)
    if lone:
        (model / "tokenizer.json").unlink()
        (model / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS), encoding="utf-8")
    return model


@pytest.mark.parametrize("load", [load_encoder, load_source_tokenizer, load_with_new_head, load_dense])
def test_a_tokenizer_that_is_not_fast_is_refused_by_every_loader(load: Callable[..., object], tmp_path: Path) -> None:
    folder = folder_of_class(tmp_path, "BertJapaneseTokenizer", lone=True)
    if load in (load_with_new_head, load_dense):  # which take embedders: a transformer alone
        for file in ("modules.json", "config_sentence_transformers.json"):
            (folder / file).unlink()
    with pytest.raises(DataError, match=r"BertJapaneseTokenizer, is not a fast one\. Name a model with"):
        load(str(folder), *(["embedder"] if load is load_dense else []))


def test_the_check_of_a_recipe_names_a_source_whose_tokenizer_is_not_fast(tmp_path: Path) -> None:
    model, path = folder_of_class(tmp_path, "BertJapaneseTokenizer", lone=True), tmp_path / "slow.toml"
    text = f'[recipe]\nname = "slow"\n[source]\nmodel = "{model}"\n[vocabulary]\nkind = "source"\n'
    loaded = load_recipe(path, text=text)
    with pytest.raises(RecipeError, match=r"source\.model: .*BertJapaneseTokenizer, is not a fast one"):
        check_names(loaded.recipe, path=path, places=loaded.places)


def test_a_class_that_makes_letters_of_a_wordpiece_file_is_refused_and_the_remedy_helps(tmp_path: Path) -> None:
    model = folder_of_class(tmp_path, "RobertaTokenizer", lone=False)
    with pytest.raises(DataError, match=r'RobertaTokenizer, cuts .* than .*tokenizer\.json\. Write "tokenizer_class"'):
        load_encoder(str(model))
    assert load_tokenizer(model).tokenize("river stone") == ["river", "stone"]  # a file counts as it stands
    change(model / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    assert load_encoder(str(model)).tokenizer.tokenize("river stone") == ["river", "stone"]

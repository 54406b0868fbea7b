"""Encoders, texts and collections small enough to be made anew by every test."""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer, SparseEncoder
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForMaskedLM,
    BertConfig,
    BertForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from vtkit.data.retrieval import Document, Query, RetrievalSet
from vtkit.encoder.checkpoint import as_sparse_encoder, save_encoder
from vtkit.encoder.kinds import as_unicoil
from vtkit.encoder.scratch import scratch_model
from vtkit.pipeline.run import run
from vtkit.settings.source import Scratch
from vtkit.training.resuming import Progress
from vtkit.vocabulary.existing import Role, wrap

# Only on the processor do two runs agree bit for bit.
os.environ["CUDA_VISIBLE_DEVICES"] = ""

ROLES: dict[Role, str] = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
_TEXT = """
    apple amber anchor basin birch bridge canyon cedar clover copper delta desert dune ember falcon fern fjord
    forest garden glacier granite harbor heron hollow island ivory jasmine juniper kernel lagoon lantern maple marsh
    meadow mirror nectar oak olive orchard otter pebble pine plateau prairie quarry raven reef river saffron sparrow
    spruce stone summit thistle timber tundra valley violet walnut willow winter yarrow zephyr
"""
WORDS = _TEXT.split()
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOKENS = (*ROLES.values(), *LETTERS, *(f"##{letter}" for letter in LETTERS), *WORDS)
"""The vocabulary in its usual order: special tokens, letters, words; ``[PAD]`` is 0."""

ARCHITECTURES = ("bert", "distilbert", "roberta", "modernbert")


def tokenizer(tokens: tuple[str, ...] = TOKENS) -> PreTrainedTokenizerFast:
    """A WordPiece tokenizer with ``tokens`` as its vocabulary, in this order."""
    backend = Tokenizer(models.WordPiece({token: n for n, token in enumerate(tokens)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return wrap(backend, ROLES, "of the test")


def shuffled(seed: int, pad: int | None = None) -> tuple[str, ...]:
    """The tokens in another order, ``[PAD]`` at ``pad`` where that is given."""
    order = list(TOKENS)
    random.Random(seed).shuffle(order)
    if pad is not None:
        order.remove("[PAD]")
        order.insert(pad, "[PAD]")
    return tuple(order)


def model(
    architecture: str = "bert",
    tokens: tuple[str, ...] = TOKENS,
    *,
    tied: bool = True,
    seed: int = 0,
    max_length: int = 48,
    dropout: float = 0.1,
) -> PreTrainedModel:
    """A masked language model of two layers whose weights are random and large enough to tell tokens apart."""
    torch.manual_seed(seed)
    shape: dict[str, Any] = {"architecture": architecture, "max_length": max_length}
    section = Scratch(layers=2, hidden=32, heads=2, feed_forward=48, **shape)
    made = scratch_model(section, tokenizer(tokens), dropout)
    if not tied:
        made.config.tie_word_embeddings = False
        made = AutoModelForMaskedLM.from_config(made.config)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0.0, 0.25 if len(parameter) == len(tokens) else 0.1)
        made.get_output_embeddings().bias.normal_(-1.0, 0.5)
    return made.eval()


SCRATCH = """
[source.scratch]
layers = 2
hidden = 32
heads = 2
feed_forward = 48
"""
"""The source of recipes that begin with a model of this size, of random weights."""


def scratch_recipe(name: str, *sections: str) -> str:
    """A recipe that begins with a model of random weights over the tokenizer ``./target``."""
    head = f'[recipe]\nname = "{name}"\nlanguage = "en"\n'
    return "".join([head, SCRATCH, '[vocabulary]\nkind = "existing"\ntokenizer = "./target"\n', *sections])


def encoder(folder: Path, architecture: str = "bert", **settings: Any) -> SparseEncoder:
    """A sparse encoder over :func:`model`, computing on one thread; ``folder`` is where it is written on the way."""
    torch.set_num_threads(1)
    pooling, activation = settings.pop("pooling", "max"), settings.pop("activation", "relu")
    tokens = settings.get("tokens", TOKENS)
    return as_sparse_encoder(
        model(architecture, **settings), tokenizer(tokens), folder / "assembled", pooling, activation
    )


def embedder(folder: Path, architecture: str = "bert") -> Path:
    """The transformer of :func:`encoder` without a head, with its tokenizer, in ``folder``."""
    whole = encoder(folder.with_name(f"{folder.name}-work"), architecture)
    whole[0].auto_model.base_model.save_pretrained(folder)
    whole.tokenizer.save_pretrained(str(folder))
    return folder


def body(folder: Path) -> Path:
    """The transformer of :func:`model` alone, with its tokenizer, in ``folder``."""
    model().base_model.save_pretrained(folder)
    tokenizer().save_pretrained(str(folder))
    return folder


def dense(folder: Path, pooling: str = "mean", **settings: Any) -> Path:
    """A dense embedder of unit vectors in ``folder``."""
    modules = [Transformer(str(body(folder.with_name(f"{folder.name}-body")))), Pooling(32, pooling), Normalize()]
    SentenceTransformer(modules=modules, device="cpu", **settings).save(str(folder))
    return folder


def cross_encoder(folder: Path, labels: int = 1) -> Path:
    """A cross-encoder, or a classifier of several labels, in ``folder``."""
    settings = BertConfig.from_pretrained(body(folder), num_labels=labels)
    torch.manual_seed(0)
    BertForSequenceClassification(settings).save_pretrained(folder)
    return folder


def bare(folder: Path) -> Path:
    """A bare masked language model with its tokenizer, in ``folder``."""
    model().save_pretrained(folder)
    tokenizer().save_pretrained(str(folder))
    return folder


def texts(count: int, seed: int = 0, words: tuple[int, int] = (3, 20)) -> list[str]:
    """Sentences of random words."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(*words))) for _ in range(count)]


def collection(count: int, seed: int = 0) -> RetrievalSet:
    """``count`` documents, each with one query made of words of its own."""
    draw = random.Random(seed)
    documents = [Document(f"d{n}", "", text) for n, text in enumerate(texts(count, seed, (6, 10)))]
    queries = [Query(f"q{n}", " ".join(draw.sample(documents[n].text.split(), 3))) for n in range(count)]
    return RetrievalSet("tiny", documents, queries, {f"q{n}": {f"d{n}": 1} for n in range(count)})


def corpus_line(document: Document) -> dict[str, Any]:
    """A line of a BEIR corpus."""
    line = {"_id": document.id, "title": document.title, "text": document.text}
    return line | ({"metadata": document.fields} if document.fields else {})


def write_collection(folder: Path, found: RetrievalSet) -> Path:
    """``found`` as a BEIR folder, its judgements as those of the test split."""
    (folder / "qrels").mkdir(parents=True)
    for name, entries in (
        ("corpus", [corpus_line(each) for each in found.documents]),
        ("queries", [{"_id": each.id, "text": each.text} for each in found.queries]),
    ):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries), "utf-8")
    rows = [
        f"{query}\t{document}\t{grade}" for query, judged in found.qrels.items() for document, grade in judged.items()
    ]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n", "utf-8")
    return folder


def add_training_queries(folder: Path, found: RetrievalSet) -> None:
    """Training queries for the folder of ``found``: each of its queries with a word more, and the same judgements."""
    training = [Query(f"t{query.id}", f"{query.text} maple") for query in found.queries]
    with (folder / "queries.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({"_id": query.id, "text": query.text}) + "\n" for query in training)
    rows = [f"t{query}\t{document}\t{grade}" for query, of in found.qrels.items() for document, grade in of.items()]
    text = "\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n"
    (folder / "qrels" / "train.tsv").write_text(text, encoding="utf-8")


def finished_run(
    folder: Path,
    found: RetrievalSet,
    name: str = "tiny",
    collection: str = "collection",
    more: str = "",
    language: str = "en",
    tokens: tuple[str, ...] = shuffled(1),
    source: str = "",
    transfer: str = 'method = "subtoken"\n',
) -> Path:
    """The folder of a run of ``folder/NAME.toml``: a tiny encoder moved to ``tokens``, its own in another order, and
    its index of ``found`` (``folder/COLLECTION``), which has training queries too; ``more`` sections as they are, and
    more settings of the ``source`` and the ``transfer``."""
    save_encoder(encoder(folder / "work"), folder / "encoder")
    tokenizer(tokens).save_pretrained(str(folder / "target"))
    write_collection(folder / collection, found)
    if more:
        add_training_queries(folder / collection, found)
    recipe = folder / f"{name}.toml"
    recipe.write_text(
        f'[recipe]\nname = "{name}"\nlanguage = "{language}"\n[source]\nmodel = "./encoder"\n{source}'
        f'[vocabulary]\nkind = "existing"\ntokenizer = "./target"\n[transfer]\n{transfer}'
        f'{more}[evaluate]\nsets = ["{collection}"]\n',
        "utf-8",
    )
    return run(recipe, runs=folder / "runs", threads=1)


def interrupted_at(step: int, error: type[BaseException] = KeyboardInterrupt) -> type[Progress]:
    """vtkit's training callback, but with Ctrl-C pressed at the end of ``step``, or the first one after it."""

    class Interrupted(Progress):
        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            super().on_step_end(args, state, control, **rest)
            if state.global_step >= step:
                raise error

    return Interrupted


def leave_half_a_checkpoint(folder: Path, step: int) -> None:
    """What a kill in the middle of saving leaves: a newer checkpoint with half its files, one of them cut short."""
    complete = [mark.parent for mark in folder.rglob("checkpoint-*/vtkit-complete")]
    newest = max(complete, key=lambda checkpoint: (checkpoint.stat().st_mtime_ns, checkpoint.name))
    half = newest.with_name(f"checkpoint-{step}")
    shutil.copytree(newest, half, dirs_exist_ok=True)
    (half / "vtkit-complete").unlink()
    (half / "trainer_state.json").unlink()
    (half / "optimizer.pt").write_bytes(b"half")


def resumed(
    folder: Path, module: Any, train: Callable[[Path], tuple[SparseEncoder, Any]], *steps: int
) -> tuple[SparseEncoder, Any]:
    """What ``train`` gives in a subfolder, which is what it gives where it was interrupted at each of ``steps`` with
    half a checkpoint left, and, without another step, where it is called again in the end."""
    wanted, curves = train(folder / "whole")
    with pytest.MonkeyPatch.context() as patch:
        for step in steps:
            patch.setattr(module, "Progress", interrupted_at(step))
            with pytest.raises(KeyboardInterrupt):
                train(folder / "again")
            leave_half_a_checkpoint(folder / "again" / "checkpoints", step)
        for progress in (Progress, interrupted_at(0, AssertionError)):
            patch.setattr(module, "Progress", progress)
            found, found_curves = train(folder / "again")
            assert found_curves == curves
            assert same(dict(found.named_parameters()), dict(wanted.named_parameters()))
    return wanted, curves


def weights(encoder: SparseEncoder) -> dict[str, torch.Tensor]:
    """A copy of every weight."""
    return {name: tensor.detach().cpu().clone() for name, tensor in encoder[0].auto_model.state_dict().items()}


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    """Whether two sets of weights are equal bit for bit."""
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


CASED = (*TOKENS[:40], "River", "RIVER", "Oslo", *TOKENS[43:])
"""The tokens of the tests, three of them in upper case; "river" is one of the others, "oslo" is none."""


def unicoil(folder: Path, architecture: str = "bert", **settings: Any) -> SparseEncoder:
    """A uniCOIL encoder whose layer is random, so that its weights differ from token to token."""
    made = as_unicoil(encoder(folder, architecture, **settings))
    torch.manual_seed(7)
    torch.nn.init.normal_(made[1].linear.weight, 0, 0.3)
    return made

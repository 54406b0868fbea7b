"""Mutated collections, corpora, parallel text, models, tokenizers: a message before anything long, or a good end."""

import gzip
import json
import random
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Findings, copy, vtkit

RANDOM_CASES = 60
"""Beside the named ones: random damage to random files."""

COLLECTION = Path("data/elements-ko")


@dataclass(frozen=True)
class Mutation:
    """One thing that is wrong with what a recipe names."""

    name: str
    apply: Callable[[Path], None]
    refused: bool = True
    """Whether it must end in a message; otherwise a run that ends is right too."""

    settings: tuple[str, ...] = ()


def _rewrite(place: str | Path, change: Callable[[str], str]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / place
        path.write_bytes(change(path.read_text("utf-8")).encode("utf-8", errors="surrogatepass"))

    return apply


def _bytes(place: str | Path, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / place
        path.write_bytes(change(path.read_bytes()))

    return apply


def _json(place: str, change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def text(old: str) -> str:
        value = json.loads(old)
        changed = change(value)
        return json.dumps(value if changed is None else changed, ensure_ascii=False)

    return _rewrite(place, text)


def _first_line(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: change(text.split("\n", 1)[0]) + "\n" + text.split("\n", 1)[1]


def _field(name: str, value: object) -> Callable[[str], str]:
    return _first_line(lambda line: json.dumps({**json.loads(line), name: value}))


def _gz_cut(folder: Path) -> None:
    path = folder / COLLECTION / "corpus.jsonl"
    path.with_suffix(".jsonl.gz").write_bytes(gzip.compress(path.read_bytes())[:-200])
    path.unlink()


def _grades(value: str) -> Callable[[str], str]:
    return lambda text: "\n".join(
        row if number == 0 else "\t".join([*row.split("\t")[:2], value]) for number, row in enumerate(text.splitlines())
    )


def collections() -> list[Mutation]:
    """What can be wrong with a BEIR folder, its judgements, a corpus and a file of pairs."""
    corpus, queries = COLLECTION / "corpus.jsonl", COLLECTION / "queries.jsonl"
    test, train = COLLECTION / "qrels/test.tsv", COLLECTION / "qrels/train.tsv"
    pairs = Path("data/parallel-en-ko.tsv")
    listed = [
        ("a test qrel names an absent document", _rewrite(test, lambda t: t + "q1\tabsent\t1\n")),
        ("a test qrel names an absent query", _rewrite(test, lambda t: t + f"absent\t{t.split(chr(9))[3]}\t1\n")),
        ("a train qrel names an absent document", _rewrite(train, lambda t: t + "q1\tabsent\t1\n")),
        ("a grade that is no number", _rewrite(test, _grades("good"))),
        ("grades of nan", _rewrite(test, _grades("nan"))),
        ("all grades zero", _rewrite(test, _grades("0"))),
        ("all training grades zero", _rewrite(train, _grades("0"))),
        ("an empty test file", _rewrite(test, lambda t: "")),
        ("an empty train file", _rewrite(train, lambda t: "")),
        ("only a header", _rewrite(test, lambda t: t.splitlines()[0] + "\n")),
        ("an empty corpus", _rewrite(corpus, lambda t: "")),
        ("an empty query file", _rewrite(queries, lambda t: "")),
        ("a document twice", _rewrite(corpus, lambda t: t + t.splitlines()[0] + "\n")),
        ("a query twice", _rewrite(queries, lambda t: t + t.splitlines()[0] + "\n")),
        ("a document id with a space", _rewrite(corpus, _field("_id", "a b"))),
        ("a document id with a tab", _rewrite(corpus, _field("_id", "a\tb"))),
        ("an empty document id", _rewrite(corpus, _field("_id", ""))),
        ("a document without id", _rewrite(corpus, _first_line(lambda line: '{"text": "금"}'))),
        ("a document without text", _rewrite(corpus, _first_line(lambda line: '{"_id": "x"}'))),
        ("a text that is a number", _rewrite(corpus, _field("text", 5))),
        ("a query that is a list", _rewrite(queries, _field("text", ["a"]))),
        ("a line that is no JSON", _rewrite(corpus, _first_line(lambda line: line[:-5]))),
        ("a line that is a list", _rewrite(corpus, _first_line(lambda line: "[1]"))),
        ("a corpus that is no UTF-8", _bytes(corpus, lambda raw: raw.replace("금".encode(), b"\xff\xfe"))),
        ("queries that are no UTF-8", _bytes(queries, lambda raw: raw[:-10] + b"\xc3\x28" + raw[-10:])),
        ("a truncated gzip file", _gz_cut),
        ("no qrels folder", lambda folder: shutil.rmtree(folder / COLLECTION / "qrels")),
        ("no queries file", lambda folder: (folder / queries).unlink()),
        ("no corpus file", lambda folder: (folder / corpus).unlink()),
        ("a folder in place of a file", lambda folder: ((folder / queries).unlink(), (folder / queries).mkdir())),
        ("pairs of one column", _rewrite(pairs, lambda t: t.replace("\t", " "))),
        ("empty pairs", _rewrite(pairs, lambda t: "")),
        (
            "pairs with empty sides",
            _rewrite(pairs, lambda t: "\n".join(x.split("\t")[0] + "\t" for x in t.split("\n"))),
        ),
        ("pairs that are no UTF-8", _bytes(pairs, lambda raw: b"\xff" + raw)),
    ]
    harmless = [
        ("CRLF in the judgements", _rewrite(test, lambda t: t.replace("\n", "\r\n"))),
        ("a byte order mark in the queries", _rewrite(queries, lambda t: "\ufeff" + t)),
        ("a text that is empty", _rewrite(corpus, _field("text", ""))),
        ("a title with control characters", _rewrite(corpus, _field("title", "\x1b[31mred\u202e"))),
        ("a text of 5 MB", _rewrite(corpus, _field("text", "금은 " * 800_000))),
        ("NUL in a text", _rewrite(corpus, _field("text", "a\x00b"))),
        ("a lone surrogate in a text", _rewrite(corpus, lambda t: t.replace('"text": "', '"text": "\\ud800', 1))),
        (
            "negative grades",
            _rewrite(test, lambda t: f"{_grades('1')(t)}\n{t.splitlines()[1].rsplit(chr(9), 1)[0]}\t-1\n"),
        ),
        ("queries without text", _rewrite(queries, _field("text", " "))),
    ]
    return [Mutation(name, apply) for name, apply in listed] + [
        Mutation(name, apply, False) for name, apply in harmless
    ]


def _tensors(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        from safetensors.torch import load_file, save_file

        path = folder / "model" / "model.safetensors"
        tensors = load_file(path)
        change(tensors)
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata={"format": "pt"})

    return apply


def _every(change: Callable[[Any], Any], part: str) -> Callable[[dict[str, Any]], None]:
    def apply(tensors: dict[str, Any]) -> None:
        for name in [name for name in tensors if part in name]:
            value = change(tensors[name])
            if value is None:
                del tensors[name]
            else:
                tensors[name] = value

    return apply


def _pickled(folder: Path) -> None:
    import torch
    from safetensors.torch import load_file

    path = folder / "model" / "model.safetensors"
    torch.save(load_file(path), folder / "model" / "pytorch_model.bin")
    path.unlink()


def _own_code(folder: Path) -> None:
    (folder / "model" / "own.py").write_text("open('RAN', 'w')\nclass Config: pass\nclass Model: pass\n")
    classes = {"AutoConfig": "own.Config", "AutoModelForMaskedLM": "own.Model"}
    _json("model/config.json", lambda c: {**c, "model_type": "own", "auto_map": classes})(folder)


def _header(raw: bytes) -> bytes:
    return struct.pack("<Q", 10**12) + raw[8:]


def _without_unk(value: dict[str, Any]) -> None:
    value["model"]["vocab"].pop("[UNK]")
    value["added_tokens"] = [token for token in value["added_tokens"] if token["content"] != "[UNK]"]


def models() -> list[Mutation]:
    """What can be wrong with a model folder, which is the recipe's source."""
    config, weights, tokenizer = "model/config.json", "model/model.safetensors", "model/tokenizer.json"
    modules, tokenizer_config = "model/modules.json", "model/tokenizer_config.json"

    def own_tokenizer(value: dict[str, Any]) -> None:
        value.update(tokenizer_class="Own", auto_map={"AutoTokenizer": ["own.T", None]})

    listed = [
        ("config is no JSON", _rewrite(config, lambda t: t[:-3])),
        ("config is empty", _rewrite(config, lambda t: "{}")),
        ("config is a list", _rewrite(config, lambda t: "[]")),
        ("unknown model_type", _json(config, lambda c: c.update(model_type="nothing"))),
        ("code of its own", _own_code),
        ("vocab_size off", _json(config, lambda c: c.update(vocab_size=c["vocab_size"] + 7))),
        ("vocab_size negative", _json(config, lambda c: c.update(vocab_size=-1))),
        ("hidden_size off", _json(config, lambda c: c.update(hidden_size=c["hidden_size"] * 2))),
        ("hidden_size a string", _json(config, lambda c: c.update(hidden_size="wide"))),
        ("more layers than weights", _json(config, lambda c: c.update(num_hidden_layers=4))),
        ("no config", lambda folder: (folder / config).unlink()),
        ("weights truncated", _bytes(weights, lambda raw: raw[: len(raw) // 2])),
        ("weights empty", _bytes(weights, lambda raw: b"")),
        ("weights' header absurd", _bytes(weights, _header)),
        ("no weights", lambda folder: (folder / weights).unlink()),
        ("weights in a pickle", _pickled),
        ("a body tensor is missing", _tensors(_every(lambda t: None, "layer.0.output.dense.weight"))),
        ("the head is missing", _tensors(_every(lambda t: None, "cls."))),
        ("NaN in the embeddings", _tensors(_every(lambda t: t * float("nan"), "word_embeddings"))),
        ("infinite weights", _tensors(_every(lambda t: t / 0.0, "attention.self.query.weight"))),
        ("fewer rows than tokens", _tensors(_every(lambda t: t[:-9].clone(), "word_embeddings"))),
        ("tokenizer is no JSON", _rewrite(tokenizer, lambda t: t[:-9])),
        ("tokenizer empty", _rewrite(tokenizer, lambda t: "{}")),
        ("tokenizer without tokens", _json(tokenizer, lambda v: v["model"].update(vocab={}))),
        ("tokenizer without [UNK]", _json(tokenizer, _without_unk)),
        ("a gap in the ids", _json(tokenizer, lambda v: v["model"]["vocab"].update({"gap": 90_000}))),
        ("ids that are strings", _json(tokenizer, lambda v: v["model"]["vocab"].update({"금": "x"}))),
        ("a negative id", _json(tokenizer, lambda v: v["model"]["vocab"].update({"zz1": -1}))),
        ("no tokenizer", lambda folder: (folder / tokenizer).unlink()),
    ]
    harmless = [
        ("modules.json names other code", _rewrite(modules, lambda t: t.replace("sentence_transformers", "own"))),
        ("modules.json is no JSON", _rewrite(modules, lambda t: "[")),
        ("pooling's config is empty", _rewrite("model/1_SpladePooling/config.json", lambda t: "{}")),
        ("tokenizer_config is no JSON", _rewrite(tokenizer_config, lambda t: "{")),
        ("tokenizer_config asks for own code", _json(tokenizer_config, own_tokenizer)),
        ("two tokens of one id", _json(tokenizer, lambda v: v["model"]["vocab"].update({"zz1": 50, "zz2": 50}))),
        ("a huge embedding", _tensors(_every(lambda t: t * 1e30, "word_embeddings"))),
    ]  # fmt: skip
    settings = ("source.recipe=none", "source.model=model")
    return [Mutation(name, apply, True, settings) for name, apply in listed] + [
        Mutation(name, apply, False, settings) for name, apply in harmless
    ]


def vocabularies() -> list[Mutation]:
    """What can be wrong with the target's tokenizer, or with what it is to be trained on."""
    settings = {"kind": "existing", "tokenizer": "model", "corpus": "none", "size": "none"}
    existing = tuple(f"vocabulary.{name}={value}" for name, value in settings.items())
    named = {mutation.name: mutation for mutation in models()}
    tokenizers = [mutation for name, mutation in named.items() if "tokenizer" in name or "id" in name.split()]
    listed = [Mutation(f"target: {m.name}", m.apply, False, existing) for m in tokenizers]
    listed += [
        Mutation("a size that the corpus cannot fill", lambda folder: None, False, ("vocabulary.size=200000",)),
        Mutation("a size below the alphabet", lambda folder: None, False, ("vocabulary.size=100",)),
        Mutation("a corpus that is a folder", lambda folder: (folder / "e.txt").mkdir(), True, _corpus("vocabulary")),
    ]
    in_5_mb = "금" * 1_700_000
    for name, text, refused in (
        ("of empty lines", "\n \n", True), ("of one word", "a\n", True), ("of one letter in 5 MB", in_5_mb, False),
    ):  # fmt: skip
        listed.append(Mutation(f"a corpus {name}", _written(text), refused, _corpus("vocabulary")))
    listed.append(Mutation("adaptation on punctuation", _written("!!\n?\n" * 50), False, _corpus("adapt")))
    return listed


def _written(text: str) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        (folder / "e.txt").write_text(text, "utf-8")

    return apply


def _corpus(section: str) -> tuple[str, ...]:
    return (f'{section}.corpus=["e.txt"]',)


def damaged(draw: random.Random) -> Mutation:
    """Random bytes of a random file of the collection or the model changed, cut out or repeated."""
    places = [
        COLLECTION / "corpus.jsonl", COLLECTION / "queries.jsonl", COLLECTION / "qrels/test.tsv",
        COLLECTION / "qrels/train.tsv", Path("data/parallel-en-ko.tsv"), Path("model/config.json"),
        Path("model/tokenizer.json"), Path("model/model.safetensors"), Path("model/modules.json"),
    ]  # fmt: skip
    place = draw.choice(places)
    seed = draw.randrange(2**32)

    def change(raw: bytes) -> bytes:
        chance = random.Random(seed)
        value = bytearray(raw)
        for _ in range(chance.randint(1, 5)):
            at = chance.randrange(max(len(value), 1))
            match chance.randrange(3):
                case 0 if value:
                    value[at] = chance.randrange(256)
                case 1:
                    del value[at : at + chance.randint(1, 50)]
                case _:
                    value[at:at] = bytes(chance.randrange(256) for _ in range(chance.randint(1, 8)))
        return bytes(value)

    settings = ("source.recipe=none", "source.model=model") if place.parts[0] == "model" else ()
    return Mutation(f"random damage {seed} to {place}", _bytes(place, change), False, settings)


def soak(finished: Path, draw: random.Random) -> Findings:
    """Each mutation in a copy of a finished run, by ``vtkit run``: nothing is trained before it is refused."""
    found = Findings("inputs", finished.parent / "inputs.log")
    base = copy(finished, finished.parent / "inputs")
    model = next((base / "runs" / "artifacts").glob("calibrate-*/model"))  # of the English source
    for candidate in (base / "runs" / "artifacts").glob("calibrate-*/model"):
        if json.loads((candidate / "config.json").read_text("utf-8"))["vocab_size"] == 1200:
            model = candidate
    shutil.copytree(model, base / "model")
    mutations = [*collections(), *models(), *vocabularies(), *(damaged(draw) for _ in range(RANDOM_CASES))]
    for mutation in mutations:
        folder = copy(base, base.parent / "mutated")
        before = {path.name for path in (folder / "runs" / "artifacts").iterdir()}
        mutation.apply(folder)
        arguments = [part for setting in mutation.settings for part in ("--set", setting)]
        done = vtkit(folder, "run", "korean.toml", *arguments, stdin=b"y\n" * 50)
        good = found.note(mutation.name, done, (1, 2) if mutation.refused else (0, 1, 2))
        paths = (folder / "runs" / "artifacts").iterdir()
        made = {path.name.split("-")[0] for path in paths if path.name not in before}
        if good and mutation.refused and made & {"adapt", "finetune"}:
            found.fail(f"{mutation.name}: refused only after training ({', '.join(sorted(made))}): {done.message}")
        if (folder / "RAN").exists():
            found.fail(f"{mutation.name}: the folder's own code ran")
    return found

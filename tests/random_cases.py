"""Random recipes, corpora and models, and the commands that read them, each made again by its number (``make soak``).

A case writes its files into a folder of its own and returns command lines. Half of what it draws is sound, so that the
code behind the first check is reached as well. :func:`write_material` writes the models and the files that all cases
share.
"""

import csv
import gzip
import io
import json
import os
import random
import shutil
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import docx
import numpy as np
import pyarrow
import pyarrow.parquet
import tiny
import torch
from safetensors.torch import save_file

import vtkit
from vtkit.encoder.checkpoint import save_encoder
from vtkit.encoder.kinds import as_unicoil
from vtkit.encoder.query_tables import with_static_queries
from vtkit.recipe.reference import json_schema
from vtkit.recipe.write import toml_value

Draw = random.Random
Command = list[str]

MODELS = ("bert", "distilbert", "roberta", "modernbert", "static", "unicoil", "dense", "cross", "pickled")

TEXTS = (
    *("", " ", "maple otter", "forest " * 400, "a", "0", "-1", "none", "true", "auto", "en", "zh", "MAPLE"),
    *("a" * 20_000, "\u0000", "\u202egnp.exe", "\u200b", "\ufeff", "\ufffd", "e\u0301" * 50, "\u0130\u0131"),
    *("\U0010ffff", "\x1b[31mred", "a\nb", "a\tb", "\\", '"', "'", "%s%n{}", "<script>", "../..", "~", "*", "["),
    *("\u0bcd\u0b95", "\u0e01\u0e33", "한국어 문서", "日本語の文書", "вода", "ماء", "पानी", "1e999", "nan", "inf"),
    *("\u2028", "\x85", "{x", "$HOME", "\U0001f469\u200d\U0001f680"),
)
NUMBERS = (
    *(0, 1, -1, 2, 3, 7, 64, 255, 256, 257, 1000, 30_522, 2**15, 2**24, 2**31 - 1, 2**31, 2**32, 2**53),
    *(2**63 - 1, 2**63, 2**64, 10**18, 10**100, -(2**31), -(2**63), 0.0, -0.0, 0.5, 1e-300, 1e300, -1.5, 1.0),
    *(0.999999, float("inf"), float("-inf"), float("nan")),
)


def write_material(folder: Path) -> Path:
    """The models of :data:`MODELS`, a tokenizer, a BEIR collection, an index, and files that are no files."""
    folder.mkdir(parents=True)
    plain = tiny.collection(30)
    fields = [{"year": 2000 + n, "tags": ["a", "b"], "source": f"s{n % 3}", "open": n % 2 == 0} for n in range(30)]
    documents = [replace(each, fields=of) for each, of in zip(plain.documents, fields, strict=True)]
    found = replace(plain, documents=documents)
    for architecture in tiny.ARCHITECTURES:
        save_encoder(tiny.encoder(folder / "made", architecture), folder / architecture)
    save_encoder(with_static_queries(tiny.encoder(folder / "made"), "binary", ()), folder / "static")
    save_encoder(as_unicoil(tiny.encoder(folder / "made")), folder / "unicoil")
    tiny.dense(folder / "dense")
    tiny.cross_encoder(folder / "cross")
    shutil.copytree(tiny.bare(folder / "bare"), folder / "pickled")
    (folder / "pickled" / "model.safetensors").unlink()
    torch.save(tiny.model().state_dict(), folder / "pickled" / "pytorch_model.bin")
    tiny.tokenizer(tiny.shuffled(1)).save_pretrained(str(folder / "target"))
    tiny.write_collection(folder / "beir", found)
    tiny.add_training_queries(folder / "beir", found)
    (folder / "texts.txt").write_text("\n".join(tiny.texts(30)), "utf-8")
    (folder / "pairs.tsv").write_text("".join(f"{each}\t{each}\n" for each in tiny.texts(60, words=(1, 4))), "utf-8")
    (folder / "run.trec").write_text("".join(f"q{n} Q0 d{n} 1 {n}.5 x\n" for n in range(30)), "utf-8")
    vtkit.encode_texts(folder / "bert", folder / "beir", folder / "vectors")
    vtkit.index_vectors(folder / "vectors", folder / "index", language="en", lexical="bm25")
    (folder / "empty").touch()
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "circle").symlink_to("circle")
    (folder / "dangling").symlink_to("nowhere")
    for left in ("made", "dense-body"):
        shutil.rmtree(folder / left, ignore_errors=True)
    return folder


def a_path(draw: Draw, material: Path) -> str:
    """A path of any kind, mostly of something that is there."""
    there = sorted(path.name for path in material.iterdir())
    devices = (
        "/dev/null",
        "/dev/zero",
        "/proc/self/mem",
        "/dev",
        ".",
        "absent/file.jsonl",
        "/absent",
        "a\0b",
        "x" * 300,
    )
    return str(material / draw.choice(there)) if draw.random() < 0.8 else draw.choice(devices)


def anything(draw: Draw, material: Path, depth: int = 0) -> Any:
    """A value of any type."""
    match draw.randrange(8 if depth < 3 else 5):
        case 0 | 1:
            return draw.choice(NUMBERS)
        case 2:
            return draw.choice(TEXTS)
        case 3:
            return draw.random() < 0.5
        case 4:
            return a_path(draw, material)
        case 5:
            return [anything(draw, material, depth + 1) for _ in range(draw.choice((0, 1, 2, 5)))]
        case 6:
            return [draw.choice((draw.choice(TEXTS), a_path(draw, material))) for _ in range(draw.choice((1, 2, 50)))]
        case _:
            return {draw.choice(TEXTS): anything(draw, material, depth + 1) for _ in range(draw.choice((0, 1, 3)))}


# --- recipes


def _of_schema(draw: Draw, schema: Mapping[str, Any], whole: Mapping[str, Any], material: Path) -> Any:
    """A value as JSON Schema describes it, or sometimes another one."""
    if draw.random() < 0.06:
        return anything(draw, material)
    if "$ref" in schema:
        return _of_schema(draw, whole["$defs"][schema["$ref"].rpartition("/")[2]], whole, material)
    if "anyOf" in schema:
        return _of_schema(draw, draw.choice(schema["anyOf"]), whole, material)
    for fixed in ("const", "default"):
        if fixed in schema and draw.random() < 0.5:
            return schema[fixed]
    if "enum" in schema:
        return draw.choice(schema["enum"])
    match schema.get("type"):
        case "integer" | "number":
            bounds = [schema[name] for name in ("minimum", "maximum", "exclusiveMinimum") if name in schema]
            return draw.choice([*bounds, *NUMBERS, 1, 2, 8, 0.5, draw.random()])
        case "boolean":
            return draw.random() < 0.5
        case "string":
            return draw.choice((a_path(draw, material), a_path(draw, material), draw.choice(TEXTS)))
        case "array":
            inner = schema.get("items", {})
            return [_of_schema(draw, inner, whole, material) for _ in range(draw.choice((0, 1, 1, 2, 5)))]
        case "object":
            inner = schema.get("properties", {})
            kept = draw.sample(sorted(inner), draw.randint(0, min(5, len(inner))))
            made = {name: _of_schema(draw, inner[name], whole, material) for name in kept}
            return made | ({draw.choice(TEXTS): anything(draw, material)} if draw.random() < 0.05 else {})
        case _:
            return anything(draw, material)


_SCHEMA = json_schema()
_SECTIONS = {name: schema for name, schema in _SCHEMA["properties"].items() if name != "extends"}


def _sound_recipe(draw: Draw, material: Path) -> dict[str, Any]:
    """A recipe that would run."""
    m = str(material)
    vocabulary: list[dict[str, Any]] = [
        {"kind": "existing", "tokenizer": f"{m}/target"},
        {"kind": "trained", "corpus": [f"{m}/texts.txt"], "size": 300},
        {"kind": "expanded", "tokenizer": f"{m}/bert", "corpus": [f"{m}/texts.txt"], "size": 300},
    ]
    transfer: list[dict[str, Any]] = [
        {"method": "auto"}, {"method": "subtoken"}, {"method": "random"}, {"method": "overlap_mean"},
        {"method": "parallel", "parallel": {"files": [f"{m}/pairs.tsv"]}},
        {"method": "sembridge", "sembridge": {"embedder": f"{m}/dense"}},
    ]  # fmt: skip
    scratch = {"scratch": {"layers": 1, "hidden": 32, "heads": 2, "feed_forward": 48}}
    units = {"model": f"{m}/dense", "texts": 30, "units": {"size": 64}}
    trimmed = {"kind": "trimmed", "corpus": [f"{m}/texts.txt"]}
    model = {"model": f"{m}/{draw.choice(MODELS[:4])}"}
    made: list[dict[str, Any]] = [
        *[{"source": model, "vocabulary": draw.choice(vocabulary), "transfer": draw.choice(transfer)}] * 3,
        {"source": model, "vocabulary": {"kind": "source"}},
        {"source": scratch, "vocabulary": draw.choice(vocabulary[:2])},
        {"source": units, "vocabulary": trimmed},
    ]
    recipe = {
        "recipe": {"name": "random", "language": "en"},
        **draw.choice(made),
        "casing": {"input": "lowercase"},
        "adapt": {"corpus": [f"{m}/texts.txt"], "steps": 2, "batch_size": 2},
        "calibrate": {"target_activation": 0.1},
        "finetune": {"data": f"{m}/beir", "steps": 2, "batch_size": 2},
        "index": {"document_length": 32},
        "evaluate": {"sets": [f"{m}/beir"]},
        "sweep": {"values": {"recipe.seed": [1, 2]}},
    }
    kept = dict.fromkeys(("recipe", "source", "vocabulary", "transfer", "evaluate"), 1.0)
    return {name: value for name, value in recipe.items() if draw.random() < kept.get(name, 0.4)}


def _as_toml(recipe: Mapping[str, Any]) -> str:
    top = [f"{name} = {toml_value(value)}" for name, value in recipe.items() if not isinstance(value, dict)]
    tables = [
        "\n".join([f"[{name}]", *(f"{toml_value(key)} = {toml_value(each)}" for key, each in value.items())])
        for name, value in recipe.items()
        if isinstance(value, dict)
    ]
    return "\n".join([*top, *tables]) + "\n"


def recipe_case(draw: Draw, material: Path, folder: Path) -> Command:
    """A recipe, perhaps with others that it extends, and settings beside it, through what ends without training."""
    plain = draw.random() < 0.4

    def one(name: str) -> None:
        recipe = _sound_recipe(draw, material) if plain or draw.random() < 0.7 else {}
        for _ in range(draw.choice((0, 0, 0, 1) if plain else (0, 1, 1, 2, 4, 12)) or (not recipe)):
            section = draw.choice(sorted(_SECTIONS))
            made = _of_schema(draw, _SECTIONS[section], _SCHEMA, material)
            before = recipe.get(section)
            both = isinstance(made, dict) and isinstance(before, dict) and draw.random() < 0.7
            recipe[section] = {**before, **made} if both else made  # type: ignore[dict-item]
        odd = ("recipe.toml", ["."]) if not plain else ()
        extended = draw.choice((None, None, None, "other.toml", ["other.toml", "third.toml"], *odd))
        if name == "recipe.toml" and extended:
            recipe = {"extends": extended, **recipe}
        raw = _as_toml(recipe).encode("utf-8", "surrogatepass")
        (folder / name).write_bytes(damaged(draw, raw) if not plain and draw.random() < 0.08 else raw)

    for name in ("recipe.toml", "other.toml", "third.toml"):
        one(name)
    given = []
    for _ in range(draw.choice((0, 0, 0, 1) if plain else (0, 0, 1, 2))):
        section = draw.choice(sorted(_SECTIONS))
        inner = _SCHEMA["$defs"].get(str(_SECTIONS[section].get("$ref", "")).rpartition("/")[2], {}).get("properties")
        setting = draw.choice(sorted(inner)) if inner else draw.choice(TEXTS)
        schema = {} if draw.random() < 0.5 else (inner or {}).get(setting, {})
        value = _of_schema(draw, schema, _SCHEMA, material)
        written = value if isinstance(value, str) and draw.random() < 0.5 else toml_value(value)
        given += ["--set", f"{section}.{setting}={written}".replace("\0", "")]
    checked = ["recipe", "check", "recipe.toml", *given]
    return draw.choice(
        [
            checked,
            [*checked, "--data"],
            ["recipe", "show", "recipe.toml", *given],
            ["run", "recipe.toml", "--dry-run", *given],
            ["sweep", "recipe.toml", "--dry-run", *given],
        ]
    )


# --- bytes


def damaged(draw: Draw, raw: bytes) -> bytes:
    """``raw`` with a few bytes changed, cut, doubled, moved or put in."""
    out = bytearray(raw)
    for _ in range(draw.choice((1, 1, 2, 8))):
        place = draw.randrange(len(out) + 1)
        match draw.randrange(7):
            case 0 if place < len(out):
                out[place] ^= 1 << draw.randrange(8)
            case 1:
                del out[place:]
            case 2:
                del out[place : place + draw.choice((1, 2, 16, 200))]
            case 3:
                out[place:place] = out[place : place + draw.choice((1, 16, 300))] * draw.choice((1, 2, 50))
            case 4:
                out[place:place] = draw.choice(
                    (b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\xc0\x80", b"\xed\xa0\x80", b"\r", b"\n")
                )
            case 5:
                out[place:place] = draw.choice(TEXTS).encode("utf-8", "surrogatepass")[:5000]
            case 6 if len(out) > 8:
                place = min(place, len(out) - 8)
                out[place : place + 8] = struct.pack("<q", draw.choice((-1, 0, 2**31, 2**62, -(2**62))))
    return bytes(out)


def altered(draw: Draw, value: Any, material: Path, changes: int = 1) -> Any:
    """JSON with some of its values, anywhere, in another form: extremes, other types, gone, doubled."""
    value = json.loads(json.dumps(value))
    places: list[tuple[Any, Any]] = []

    def walk(found: Any) -> None:
        for key in found if isinstance(found, dict) else range(len(found)):
            places.append((found, key))
            if isinstance(found[key], dict | list):
                walk(found[key])

    if not isinstance(value, dict | list) or not value:
        return anything(draw, material)
    walk(value)
    for _ in range(changes):
        holder, key = draw.choice(places)
        try:
            match draw.randrange(6):
                case 0 if isinstance(holder, dict):
                    del holder[key]
                case 1 if isinstance(holder, list):
                    holder.append(holder[key])
                case 2 if isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
                    holder[key] = draw.choice(NUMBERS)
                case 3 if isinstance(holder[key], str):
                    holder[key] = draw.choice(TEXTS)
                case 4 if isinstance(holder, dict):
                    holder[draw.choice(TEXTS)] = holder[key]
                case _:
                    holder[key] = anything(draw, material)
        except (KeyError, IndexError):  # an earlier change took it
            pass
    return value


# --- corpora


def _rows(draw: Draw) -> list[dict[str, Any]]:
    names = draw.choice(
        (
            *(("_id", "text"), ("id", "title", "text"), ("query-id", "corpus-id", "score"), ("text",)),
            ("url", "body"),
            *(
                ("query", "positive", "negative"),
                ("query", "pos", "neg", "scores"),
                ("a", "b"),
                ("id", "vector", "year"),
            ),
            ("qid", "pid", "rank", "score"),
        )
    )
    plain = draw.random() < 0.5

    def cell(name: str, number: int) -> Any:
        if not plain and draw.random() < 0.15:
            return draw.choice((draw.choice(TEXTS), draw.choice(NUMBERS), None, True, ["a", "b"], {"a": 1}, []))
        if name in ("_id", "id", "corpus-id", "pid"):
            return f"d{number % 30}"
        if name in ("query-id", "qid"):
            return f"q{number % 30}"
        if name in ("score", "rank", "year", "scores"):
            return number
        return " ".join(draw.choices(tiny.WORDS, k=6))

    return [{name: cell(name, number) for name in names} for number in range(draw.choice((0, 1, 3, 20)))]


def _write_table(draw: Draw, rows: list[dict[str, Any]], path: Path) -> None:
    if path.suffix == ".parquet":
        columns = {name: [row[name] for row in rows] for name in rows[0]} if rows else {"text": []}
        try:
            table = pyarrow.table(columns)
        except (pyarrow.ArrowException, OverflowError):
            table = pyarrow.table({name: [str(value) for value in column] for name, column in columns.items()})
        pyarrow.parquet.write_table(table, path)
        return
    form = path.suffixes[0]
    if form == ".jsonl":
        text = "".join(json.dumps(row, ensure_ascii=draw.random() < 0.5) + "\n" for row in rows)
    elif form in (".csv", ".tsv"):
        written = io.StringIO()
        table_writer = csv.writer(written, delimiter="," if form == ".csv" else "\t")
        if draw.random() < 0.8 and rows:
            table_writer.writerow(rows[0])
        table_writer.writerows([str(value) for value in row.values()] for row in rows)
        text = written.getvalue()
    elif form == ".trec":
        text = "".join(f"q{n % 30} Q0 d{draw.randrange(40)} {n} {draw.choice(NUMBERS)} x\n" for n in range(40))
    else:
        text = "\n".join(" ".join(str(value) for value in row.values()) for row in rows)
    raw = text.encode("utf-8", "surrogatepass")
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)


def _pdf(text: str) -> bytes:
    """A page with ``text``."""
    stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode("ascii", "replace")
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    out, places = bytearray(b"%PDF-1.4\n"), []
    for number, each in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    start = len(out)
    out += b"xref\n0 6\n0000000000 65535 f \n" + b"".join(b"%010d 00000 n \n" % place for place in places)
    return bytes(out + b"trailer<</Size 6/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % start)


def _write_document(draw: Draw, path: Path) -> None:
    words = " ".join(draw.choices(tiny.WORDS, k=12))
    match path.suffix:
        case ".html":
            nested = "<div>" * draw.choice((1, 1, 5000))
            path.write_text(
                f"<html><title>{words}</title>{nested}<p>{words}<script>x</script><table><tr><td>{words}", "utf-8"
            )
        case ".pdf":
            path.write_bytes(_pdf(words))
        case ".docx":
            made = docx.Document()
            made.add_heading(words)
            made.add_paragraph(words)
            made.add_table(2, 2).cell(0, 0).text = words
            made.save(str(path))
        case _:
            path.write_text(f"# {words}\n\n{words} {draw.choice(TEXTS)}\n", "utf-8", errors="surrogatepass")


_TABLES = ("a.jsonl", "a.jsonl.gz", "a.csv", "a.tsv", "a.tsv.gz", "a.parquet", "a.txt", "a.txt.gz", "a.trec", "a.zst")
_DOCUMENTS = (".txt", ".md", ".html", ".pdf", ".docx", ".rst")


def corpus_case(draw: Draw, material: Path, folder: Path) -> Command:
    """A corpus of some kind, half of them damaged, through the commands that read corpora."""
    m, bert, target = str(material), str(material / "bert"), str(material / "target")
    kind = draw.choice(("table", "table", "folder", "file", "beir", "beir", "vectors", "index"))
    corpus = folder / "corpus"
    if kind == "table":
        corpus = folder / draw.choice(_TABLES)
        _write_table(draw, _rows(draw), corpus)
    elif kind == "folder":
        corpus.mkdir()
        for number in range(draw.choice((0, 1, 4))):
            _write_document(draw, corpus / f"{number}{draw.choice(_DOCUMENTS)}")
        if draw.random() < 0.3:
            (corpus / "pipe.txt").symlink_to(a_path(draw, material).replace("\0", "")[:200] or "x")
    elif kind == "file":
        corpus = folder / f"a{draw.choice(_DOCUMENTS)}"
        _write_document(draw, corpus)
    else:
        shutil.copytree(material / kind, corpus)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    if files and draw.random() < 0.75:
        path = draw.choice(files)
        raw = path.read_bytes()
        if path.suffix == ".gz" and draw.random() < 0.5:
            raw = gzip.compress(damaged(draw, gzip.decompress(raw)))
        elif path.suffix == ".jsonl" and draw.random() < 0.5:
            lines = raw.splitlines()
            if lines:
                number = draw.randrange(len(lines))
                lines[number] = json.dumps(altered(draw, json.loads(lines[number]), material)).encode()
            raw = b"\n".join(lines)
        elif path.suffix == ".json" and draw.random() < 0.6:
            raw = json.dumps(altered(draw, json.loads(raw), material, draw.choice((1, 3)))).encode()
        elif path.suffix == ".npy" and draw.random() < 0.3:
            written = io.BytesIO()
            np.save(written, np.array(draw.choice((1.5, [1], [[2**40]], [-1.0], [float("nan")], [True], ["a"], []))))
            raw = written.getvalue()
        else:
            raw = damaged(draw, raw)
        path.write_bytes(raw)
    elif files and draw.random() < 0.2:
        draw.choice(files).unlink()
    name = str(corpus)
    if kind == "vectors":
        commands = [["index", name, "--out", "out"], ["check", name]]
    elif kind == "index":
        commands = [
            ["search", name, "maple otter", *draw.choice(([], ["--why"], ["--json"]))],
            ["explain", name, "maple", "d1"],
            ["check", name],
            ["add", name, f"{m}/texts.txt"],
            ["merge", name],
            ["delete", name, "d1"],
            ["export", name, "--for", draw.choice(("elasticsearch", "postgres", "vespa")), "--out", "out"],
        ]
    else:
        recipe = folder / "recipe.toml"
        setting = draw.choice(
            (
                *("finetune.data", "adapt.corpus", "vocabulary.corpus", "transfer.parallel.files", "evaluate.sets"),
                *("finetune.negatives", "finetune.scores", "evaluate.validation", "calibrate.corpus"),
            )
        )
        parallel = {"method": "parallel", "parallel": {"files": [f"{m}/pairs.tsv"]}}
        recipe.write_text(_as_toml(_sound_recipe(draw, material) | {"transfer": parallel}), "utf-8")
        value = toml_value([name] if setting.endswith(("corpus", "files", "sets", "negatives", "scores")) else name)
        wechsel = ["--vectors", name, "--source-vectors", name, "--dictionary", f"{m}/pairs.tsv", "--method", "wechsel"]
        collection = name if kind == "beir" else f"{m}/beir"
        commands = [
            ["fragmentation", name, "-t", target, *draw.choice(([], ["--by-language"]))],
            ["fragmentation", name, "-t", target, "--encoding-errors", "replace"],
            ["inspect-vocab", target, "--corpus", name],
            ["encode", bert, name, "--out", "out", *draw.choice(([], [], ["--queries"], ["--passages", "5"]))],
            ["search", f"{m}/index", "--batch", name],
            ["gap", name, f"{m}/texts.txt"],
            ["expand", target, name, "--out", "out"],
            ["transfer", bert, target, "--parallel", name, "--method", "parallel", "--out", "out"],
            ["transfer", bert, target, *wechsel, "--out", "out"],
            ["evaluate", name if corpus.suffix == ".trec" else f"{m}/run.trec", "bm25", "--on", collection],
            ["recipe", "check", "recipe.toml", "--data", "--set", f"{setting}={value}"],
            ["add", "index", name],
            ["export", f"{m}/index", "--for", "qdrant", "--queries", name, "--out", "out"],
        ]
    chosen = draw.choice(commands)
    if chosen[0] == "add" and chosen[1] == "index":
        shutil.copytree(material / "index", folder / "index")
    return chosen


# --- models


def model_case(draw: Draw, material: Path, folder: Path) -> Command:
    """A model with a part of a file altered, through the commands that open models."""
    m, kind = str(material), draw.choice(MODELS)
    model = Path(shutil.copytree(material / kind, folder / "model"))
    files = [path for path in sorted(model.rglob("*")) if path.is_file()]
    chosen = [path for path in files if path.suffix == ".json"] if draw.random() < 0.75 else files
    for path in draw.sample(chosen, min(len(chosen), draw.choice((1, 1, 1, 2)))):
        raw = path.read_bytes()
        if path.suffix == ".json" and draw.random() < 0.9:
            content = json.loads(raw)
            if path.name == "config.json" and isinstance(content, dict) and draw.random() < 0.3:
                nested = draw.choice(
                    ("text_config", "vision_config", "encoder", "sub_configs", "id2label", "rope_scaling")
                )
                inner = {key: value for key, value in content.items() if draw.random() < 0.5}
                content = {**content, nested: altered(draw, inner, material, 2)}
                kinds = (content.get("model_type"), "gemma3", "clip", "t5", "vision-text-dual-encoder")
                content["model_type"] = draw.choice(kinds)
            if path.name == "config.json" and draw.random() < 0.5:
                numbers = sorted(key for key, value in content.items() if type(value) in (int, float))
                content |= {draw.choice(numbers or ["x"]): draw.choice(NUMBERS)}
            else:
                content = altered(draw, content, material, draw.choice((1, 1, 2, 5)))
            raw = json.dumps(content).encode()
        elif path.suffix == ".safetensors" and draw.random() < 0.7:
            size = int.from_bytes(raw[:8], "little")
            header = altered(draw, json.loads(raw[8 : 8 + size]), material, draw.choice((1, 2)))
            written = json.dumps(header).encode()
            raw = struct.pack("<Q", len(written)) + written + raw[8 + size :]
            if draw.random() < 0.3:
                save_file({"a": torch.full((3, 3), draw.choice((0.0, -1.0, float("nan"))))}, path)
                raw = path.read_bytes()
        else:
            raw = damaged(draw, raw)
        path.write_bytes(raw)
    if draw.random() < 0.05:
        draw.choice(files).unlink()
    name, target, texts = "model", f"{m}/target", f"{m}/texts.txt"
    return draw.choice(
        (
            *[["encode", name, texts, "--out", "out"]] * 4,
            ["encode", name, f"{m}/beir", "--queries", "--out", "out"],
            ["inspect-vocab", name, "--corpus", texts],
            ["overlap", name, target],
            ["fragmentation", texts, "-t", name],
            *[["transfer", name, target, "--out", "out", "--method", "subtoken"]] * 2,
            ["transfer", f"{m}/bert", name, "--out", "out", "--method", "subtoken"],
            ["transfer", f"{m}/bert", target, "--out", "out", "--method", "sembridge", "--embedder", name],
            ["casing", name],
            ["calibrate", name, "--corpus", texts, "--target", "0.1", "--out", "out"],
            ["expand", name, texts, "--out", "out"],
            ["evaluate", name, "--on", f"{m}/beir", "--max-queries", "3"],
            ["evaluate", "bm25", "--on", f"{m}/beir", "--rerank", name, "--rerank-depth", "2", "--max-queries", "3"],
            ["export", name, "--for", "onnx", "--out", "out"],
            ["doctor"],
        )
    )


# --- requests


_PATHS = ("/search", "/search", "/embed_sparse", "/embed_sparse", "/health", "/info", "/metrics", "/", "/page.js", "/x")
_METHODS = {"/search": ("GET", "POST"), "/embed_sparse": ("POST",)}
_CONDITIONS = (
    *("year > 2010", "'a' in tags", "source = 's1' and open", "yaer > 1", "year >", "1 = 1", "year / 0 > 1"),
    *("(" * 900, "not " * 200 + "open", "source like '%" * 20, "year in (select 1)", "year::int > 1", "year = 'x'"),
    *("repeat('a', 1000000000) = source", "regexp_matches(source, '(a+)+$')", "len(tags) > 0", "tags[1] = 'a'"),
    *("year > 99999999999999999999999", "exists(from read_text('/etc/passwd'))", "; drop table x"),
    *("source = '" + "a" * 3000 + "'", "date_trunc('x', year) = 1"),
)
_HEADERS = ("Content-Type", "Content-Length", "Host", "Expect", "Connection", "Content-Encoding", "X")
_HEADER_VALUES = (*map(str, NUMBERS), "text/plain", "100-continue", "gzip", "close", "[::1]", "a" * 9000, "")


def request_case(draw: Draw, material: Path) -> list[bytes]:
    """A request to ``vtkit serve`` as it goes over the wire, in the pieces in which it is sent; perhaps half of it."""
    plain = draw.random() < 0.4

    def words() -> str:
        return " ".join(draw.choices(tiny.WORDS, k=3))

    def text() -> Any:
        return words() if plain else draw.choice((draw.choice(TEXTS), words(), draw.choice(_CONDITIONS)))

    def value(name: str) -> Any:
        if not plain and draw.random() < 0.15:
            return anything(draw, material)
        ids = [draw.choice((0, 1, 5, 50)) for _ in range(3)]
        sound, odd = {
            "top": ((1, 5, 10, 100), (9_900, 0, -1, *NUMBERS)),
            "offset": ((0, 1, 20), (9_900, -1, *NUMBERS)),
            "where": (_CONDITIONS[:3], _CONDITIONS),
            "fields": (([], ["year"], ["year", "tags"]), (["yaer"], ["year"] * 3000, "year")),
            "why": ((True, False), (None, "yes", 1)),
            "truncate": ((True, False, None), ("yes", 1)),
            "run": (("index",), ("bert", "", None, "../index")),
            "unit": (("maple", "0"), ("99999", -1, "")),
            "queries": (([words() for _ in range(draw.choice((1, 2, 32)))],), ([text()], [text()] * 33, text(), [])),
            "inputs": (
                ([text() for _ in range(draw.choice((1, 2, 32)))], text(), ids, [ids]),
                ([2**31, 1], [107, 108], [2**32 - 1], [-1], [], [[]], [text()] * 33),
            ),
            "prompt_name": (("query", "document", None), ("passage", "")),
        }.get(name, ((text(),), (text(),)))
        return draw.choice(sound if plain or draw.random() < 0.5 else odd)

    path = draw.choice(_PATHS)
    taken = _METHODS.get(path, ("GET", "GET", "HEAD"))
    method = draw.choice(taken if draw.random() < 0.94 else ("HEAD", "PUT", "OPTIONS", "POST", "get", "X" * 50))
    settings = ("top", "offset", "where", "fields", "why", "run")
    usual = {
        "/search": ("queries" if method == "POST" else draw.choice(("q", "q", "unit")), *settings),
        "/embed_sparse": ("inputs", "truncate", "prompt_name"),
    }.get(path, ())
    chosen = [*usual[:1], *(name for name in usual[1:] if draw.random() < 0.4)]
    if not plain:
        others = ("q", "unit", "queries", "inputs", "truncate", "prompt_name", *settings)
        chosen += draw.sample(others, draw.choice((0, 0, 1, 3)))
    given = {name: value(name) for name in chosen}
    target, body = path, b""
    if method == "POST":
        body = json.dumps(given, ensure_ascii=draw.random() < 0.5).encode("utf-8", "surrogatepass")
        if not plain and draw.random() < 0.2:
            body = draw.choice(
                (damaged(draw, body), b"[" * 50_000, b"", b"null", b'{"inputs":' * 3000, gzip.compress(body))
            )
    elif given:
        asked = {name: each if isinstance(each, str) else json.dumps(each) for name, each in given.items()}
        if isinstance(given.get("fields"), list):  # a parameter for each
            asked["fields"] = given["fields"]
        target += "?" + urlencode(asked, doseq=True, errors="surrogatepass")
    headers = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": str(len(body))}
    for _ in range(0 if plain else draw.choice((0, 0, 0, 1, 2))):
        headers[draw.choice(_HEADERS)] = draw.choice(_HEADER_VALUES)
    chunked = method == "POST" and draw.random() < 0.2
    if chunked:
        del headers["Content-Length"]
        odd = ("chunked", "chunked, chunked", "gzip", "identity")
        headers["Transfer-Encoding"] = "chunked" if plain else draw.choice(odd)
        size = max(draw.choice((1, 7, 1000)), len(body) // 200)
        parts = [body[start : start + size] for start in range(0, len(body), size)]
        body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
        body += b"0\r\n\r\n" if plain else draw.choice((b"0\r\n\r\n", b"", b"zz\r\n"))
    head = "".join(f"{name}: {each}\r\n" for name, each in headers.items())
    raw = f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode("utf-8", "surrogatepass") + body
    if not plain and draw.random() < 0.1:
        raw = damaged(draw, raw)
    if not plain and draw.random() < 0.1:
        raw = raw[: draw.randrange(len(raw) + 1)]
    cuts = sorted(draw.randrange(len(raw) + 1) for _ in range(draw.choice((0, 0, 1, 3))))
    return [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]


CASES: dict[str, Callable[[Draw, Path, Path], Command]] = {
    "recipes": recipe_case,
    "corpora": corpus_case,
    "models": model_case,
}

"""Digests of transfers by every method on two pairs of real vocabularies: what a change of the code changed.

A line for each transfer: which tokens each method made, the source tokens and weights of every row, the embeddings and
the decoder bias. Run it before and after a change and compare the two.

    VTKIT_DATA=FOLDER python tests/benchmarks/output_digests.py [--methods auto,ofa] > digests.txt

The folder holds ``models/`` (minilm-splade-en, all-MiniLM-L6-v2), ``vocab/`` (kobigbird, ModernBERT-base) and ``data/``
(parallel/, text/). Word vectors are made of the texts: a word is the sum of random vectors of the lines it occurs in.
"""

import argparse
import gzip
import hashlib
import os
import sys
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from vtkit.cli import app
from vtkit.data.parallel import read_pairs
from vtkit.encoder.checkpoint import load_encoder
from vtkit.encoder.families import mlm_head
from vtkit.transfer.provenance import Origin, read_provenance
from vtkit.vocabulary.existing import load_tokenizer

LINES = 20_000
WIDTH = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", help="Only these, separated by commas.")
    parser.add_argument("--pairs", default="korean,english", help="Only these.")
    arguments = parser.parse_args()
    wanted = arguments.methods
    data = Path(os.environ["VTKIT_DATA"])
    with tempfile.TemporaryDirectory() as folder:
        for pair, (target, options) in _pairs(data, Path(folder)).items():
            for number, (method, given) in enumerate(options.items()):
                if pair not in arguments.pairs or (wanted and method.split()[0] not in wanted.split(",")):
                    continue
                out = Path(folder) / f"{pair}-{number}"
                source = str(data / "models" / "minilm-splade-en")
                command = ["transfer", source, str(target), "--out", str(out), *given]
                gates = ["overlap", "identity", "neighbours", "activation", "dimensions", "ties", "unicode"]
                command += ["--set", f"gates.off={gates}"]
                sys.stdout, screen = sys.stderr, sys.stdout
                app(command, standalone_mode=False)
                sys.stdout = screen
                print(f"{pair:<8} {method:<28} {_digests(out)}", flush=True)


def _pairs(data: Path, folder: Path) -> dict[str, tuple[Path, dict[str, list[str]]]]:
    """For each pair its target tokenizer, and the options of each transfer."""
    korean = _unpacked(data / "data" / "text" / "klue-sentences-ko.txt.gz", folder / "ko.txt")
    english = _unpacked(data / "data" / "text" / "chem-preprints-en.txt.gz", folder / "en.txt")
    translations = data / "data" / "parallel" / "pud-en-ko.tsv.gz"
    pairs = list(read_pairs(translations))
    sentences = english.read_text("utf-8").splitlines()[:2000]
    copies = folder / "en-en.tsv"
    copies.write_text("".join(f"{line[:300]}\t{line[:300]}\n" for line in sentences), "utf-8")
    _vectors(folder / "ko.vec", (word for _, word in pairs))
    _vectors(folder / "en.vec", (word for word, _ in pairs))
    _vectors(folder / "both.vec", (f"{first} {second}" for first, second in pairs))
    _vectors(folder / "chem.vec", sentences)
    words = sorted({word for line in sentences for word in line.split() if "\t" not in word})
    same = folder / "same.tsv"
    same.write_text("".join(f"{word}\t{word}\n" for word in words), "utf-8")

    vocabularies = {"korean": data / "vocab" / "kobigbird", "english": data / "vocab" / "ModernBERT-base"}
    for name, vocabulary in vocabularies.items():
        _table(folder / f"{name}-table", vocabulary)

    def options(
        pair: str, parallel: Path, corpus: Path, both: Path, source_vectors: Path, vectors: Path, dictionary: Path
    ) -> dict[str, list[str]]:
        embedder = str(data / "models" / "all-MiniLM-L6-v2")
        bridges = {
            "parallel": ["--parallel", str(parallel), "--corpus", str(corpus)],
            "sembridge": ["--embedder", embedder],
            "semantic": ["--target-embeddings", str(folder / f"{pair}-table")],
            "focus": ["--corpus", str(corpus)],
            "ofa": ["--vectors", str(both)],
            "wechsel": [
                "--vectors", str(vectors), "--source-vectors", str(source_vectors), "--dictionary", str(dictionary),
            ],
        }  # fmt: skip
        found = {name: ["-m", name, *given] for name, given in bridges.items()}
        for name in ("subtoken", "mean", "random", "random_all", "univariate", "multivariate"):
            found[name] = ["-m", name]
        cooccurrence = ["--set", "transfer.parallel.estimator=cooccurrence"]
        return {
            "auto parallel": ["-m", "auto", *bridges["parallel"]],
            "auto both": ["-m", "auto", *bridges["parallel"], *bridges["sembridge"]],
            "auto alone": ["-m", "auto"],
            **found,
            "parallel cooccurrence": [*found["parallel"], *cooccurrence],
            "parallel,subtoken,mean": [*found["parallel"], "-m", "subtoken", "-m", "mean"],
            "subtoken pieces": ["-m", "subtoken", "--set", "transfer.fallback=pieces"],
            "ofa masked": [*found["ofa"], "--set", "transfer.fallback=masked"],
            "mean reassigned fuzzy": [
                *found["mean"], "--set", "transfer.fallback=reassigned", "--set", "transfer.overlap=fuzzy",
            ],
            "subtoken head-only": ["-m", "subtoken", "--set", "transfer.scope=head-only"],
        }  # fmt: skip

    both, english_words, korean_words, chemistry = (folder / f"{name}.vec" for name in ("both", "en", "ko", "chem"))
    dictionary = data / "data" / "parallel" / "dict-wiktionary-en-ko.tsv.gz"
    to_korean = options("korean", translations, korean, both, english_words, korean_words, dictionary)
    within = options("english", copies, english, chemistry, english_words, chemistry, same)
    return {"korean": (vocabularies["korean"], to_korean), "english": (vocabularies["english"], within)}


def _unpacked(path: Path, to: Path) -> Path:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        to.write_text("".join(islice(lines, LINES)), "utf-8")
    return to


def _table(folder: Path, vocabulary: Path) -> None:
    """A static table over the vocabulary, as the model that owns it would have one."""
    tokenizer = load_tokenizer(str(vocabulary))
    tokenizer.save_pretrained(str(folder))
    rows = np.random.default_rng(1).standard_normal((len(tokenizer), WIDTH), dtype=np.float32)
    save_file({"embedding.weight": rows}, folder / "model.safetensors")
    (folder / "config.json").write_text("{}", encoding="utf-8")


def _vectors(path: Path, lines: Iterable[str]) -> None:
    """Word vectors in word2vec's text format, the most frequent words first."""
    sums: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(WIDTH))
    counts: dict[str, int] = defaultdict(int)
    for line in lines:
        of_line = np.random.default_rng(zlib.crc32(line.encode())).standard_normal(WIDTH)
        for word in line.split():
            sums[word] += of_line
            counts[word] += 1
    ranked = sorted(sums, key=lambda word: (-counts[word], word))
    rows = (f"{word} {' '.join(f'{value:.4f}' for value in sums[word])}\n" for word in ranked)
    path.write_text(f"{len(ranked)} {WIDTH}\n{''.join(rows)}", "utf-8")


def _digests(folder: Path) -> str:
    rows = read_provenance(folder / "provenance.parquet")
    encoder = load_encoder(str(folder / "model"))
    head = mlm_head(encoder[0].auto_model)
    names: dict[str, int] = {}
    numbers = [names.setdefault(row.method, len(names)) for row in rows]  # whatever the methods are called
    return " ".join(
        f"{what} {_digest(values)}"
        for what, values in {
            "methods": np.array(numbers, dtype=np.int64),
            "sources": _flat(rows, lambda row: row.source_ids, np.int64),
            "weights": _flat(rows, lambda row: row.weights, np.float32),
            "rows": head.decoder.weight.detach().numpy(),
            "bias": head.decoder.bias.detach().numpy(),
        }.items()
    )


def _flat(rows: list[Origin], values: Callable[[Origin], Iterable[float]], kind: type) -> np.ndarray:
    return np.array([value for row in rows for value in (*values(row), -1)], dtype=kind)


def _digest(values: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16]


if __name__ == "__main__":
    main()

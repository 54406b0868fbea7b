"""Texts to sparse vectors, with onnxruntime, tokenizers and numpy alone.

python encode.py "a query"                 prints a vector a line: {"dimension": weight, ...}
python encode.py --document "a document"
python encode.py --quantised "a query"     with the network in 8 bits
python encode.py --check                   compares with the vectors of replay.jsonl

From Python: Encoder().queries(["a query"]), Encoder().documents(["a document"]): a dict for each text.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
Vector = dict[int, float]
Results = list[tuple[str, float]]

TEXTS_AT_ONCE = 16


@cache
def opened(path: Path) -> Any:
    """A file of this folder as values, a table, a tokenizer or a network, read once."""
    if not path.is_file():
        sys.exit(f"This export has no {path.relative_to(HERE)}; README.md says what it has, and why.")
    if path.suffix == ".npy":
        return np.load(path, allow_pickle=False)
    if path.suffix == ".onnx":
        import onnxruntime

        return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    if path.name == "tokenizer.json":
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(path))
    return json.loads(path.read_text("utf-8"))


@cache
def query_table(tokenizer: Path) -> dict[int, float]:
    """The weight of each token of queries that need no network."""
    return {opened(tokenizer).token_to_id(token): weight for token, weight in opened(HERE / "idf.json").items()}


@cache
def lexical_terms(language: str, analysis: Any, first: int) -> tuple[Callable[[str], list[str]], dict[str, int]]:
    """The function that cuts queries into BM25's terms, and the dimension of each term, from ``first`` on."""
    try:
        from vtkit.search.analysers import analyser
    except ImportError:
        sys.exit(
            "This index has BM25's terms beside the encoder's, and vtkit's analyser cuts queries into them.\n"
            "Install vtkit from its wheel or source folder (pip install PATH), or encode with vtkit serve."
        )
    numbers = {term: first + n for n, term in enumerate(opened(HERE / "terms.json"))}
    return analyser(language, analysis).of_query, numbers


class Encoder:
    """Encodes queries and documents as the index was made; files are read when a side is first asked for."""

    def __init__(self, quantised: bool = False) -> None:
        self.settings: dict[str, Any] = opened(HERE / "settings.json")
        self.file = "model_quantized.onnx" if quantised else "model.onnx"

    def documents(self, texts: Sequence[str]) -> list[Vector]:
        """The vector of each document."""
        side, path = self.settings["document"], HERE / "length.json"
        length = opened(path) if path.is_file() else {"mass": 1.0, "b": 0.0, "mean_sum": 1.0}
        vectors = self._scaled(self._network("document", texts))
        vectors = [{n: w ** length.get("power", 1.0) for n, w in each.items()} for each in vectors]
        vectors = [largest(each, side["candidates"], length["mass"]) for each in vectors]
        path = HERE / "own_tokens.npy"
        if path.is_file():
            vectors = [self._raised(each, text, opened(path)) for each, text in zip(vectors, texts, strict=True)]
        path = HERE / "document_weights.npy"
        if path.is_file():
            factors = opened(path)
            vectors = [{n: w * float(factors[n]) for n, w in each.items() if factors[n]} for each in vectors]
        return [_shortened(each, side["top_dimensions"], length["b"], length["mean_sum"]) for each in vectors]

    def queries(self, texts: Sequence[str]) -> list[Vector]:
        """The vector of each query; one without letters, digits or signs has none."""
        side = self.settings["query"]
        vectors = self._scaled(self._table(texts) if side["table"] else self._network("query", texts))
        vectors = [largest(vector, side["top_dimensions"]) for vector in vectors]
        if self.settings["lexical"] is not None:
            vectors = [
                {n: w * self.settings["lexical"]["encoder_factor"] for n, w in vector.items()} | self._terms(text)
                for text, vector in zip(texts, vectors, strict=True)
            ]
        return [
            {}
            if all(unicodedata.category(letter)[0] in "ZC" for letter in text)
            else {n: w for n, w in vector.items() if w}
            for text, vector in zip(texts, vectors, strict=True)
        ]

    def _scaled(self, vectors: list[Vector]) -> list[Vector]:
        """Vectors of the length 1, if the encoder ranks by the cosine."""
        if not self.settings["cosine"]:
            return vectors
        lengths = [sum(weight * weight for weight in vector.values()) ** 0.5 for vector in vectors]
        return [{n: w / length for n, w in each.items()} for each, length in zip(vectors, lengths, strict=True)]

    def _network(self, name: str, texts: Sequence[str]) -> list[Vector]:
        side = self.settings[name]
        tokenizer = self._tokenizer(side, padded=True)
        session = opened(HERE / side["network"] / self.file)
        inputs = {each.name for each in session.get_inputs()}
        vectors = []
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            encodings = tokenizer.encode_batch([side["prompt"] + text for text in texts[start : start + TEXTS_AT_ONCE]])
            ids = np.asarray([encoding.ids for encoding in encodings], dtype=np.int64)
            mask = np.asarray([encoding.attention_mask for encoding in encodings], dtype=np.int64)
            given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            (weights,) = session.run(["weights"], {key: value for key, value in given.items() if key in inputs})
            for row in weights:
                active = np.flatnonzero(row > 0)
                vectors.append(dict(zip(active.tolist(), row[active].tolist(), strict=True)))
        return vectors

    def _table(self, texts: Sequence[str]) -> list[Vector]:
        side = self.settings["query"]
        tokenizer, folded_to = self._tokenizer(side, padded=False), side["folded_to"]
        table = query_table(HERE / side["folder"] / "tokenizer.json")
        vectors = []
        for text in texts:
            vector: Vector = {}
            for number in sorted(set(tokenizer.encode(side["prompt"] + text, add_special_tokens=False).ids)):
                place, weight = int(folded_to.get(str(number), number)), table[number]
                vector[place] = max(vector.get(place, 0.0), weight)
            vectors.append(largest(vector, side["active"]) if side["active"] is not None else vector)
        return vectors

    def _raised(self, vector: Vector, text: str, rises: Any) -> Vector:
        """As the documents of the index: the tokens of the whole text have more weight."""
        own, folded_to = HERE / "output_tokenizer" / "tokenizer.json", self.settings["query"]["folded_to"]
        names = opened(own if own.is_file() else HERE / "tokenizer.json")
        names.no_truncation()
        names.no_padding()
        ids = set(names.encode(text, add_special_tokens=False).ids)
        for number in {int(folded_to.get(str(number), number)) for number in ids}:
            if rises[number]:
                vector[number] = vector.get(number, 0.0) + float(rises[number])
        return dict(sorted(vector.items()))

    def _terms(self, text: str) -> Vector:
        """BM25's terms of a query, behind the dimensions of the encoder."""
        lexical = self.settings["lexical"]
        cut, numbers = lexical_terms(lexical["language"], lexical["analysis"], lexical["first"])
        vector: Vector = {}
        for term in cut(text):
            if term in numbers:
                vector[numbers[term]] = vector.get(numbers[term], 0.0) + lexical["term_factor"]
        return vector

    def _tokenizer(self, side: dict[str, Any], padded: bool) -> Any:
        tokenizer = opened(HERE / side["folder"] / "tokenizer.json")
        tokenizer.enable_truncation(side["max_length"], direction=side["truncation_side"])
        tokenizer.no_padding()
        if padded:
            tokenizer.enable_padding(pad_id=side["pad_id"], pad_token=side["pad_token"])
        return tokenizer


def largest(vector: Vector, count: int | None, mass: float = 1.0) -> Vector:
    """The largest weights of a vector, at most so many, and no more than hold the share ``mass`` of the sum; of equal
    ones the lower dimensions."""
    if mass == 1 and (count is None or len(vector) <= count):
        return vector
    total, held, kept = sum(vector.values()), 0.0, {}
    for number, weight in sorted(vector.items(), key=lambda entry: (-entry[1], entry[0]))[:count]:
        if mass < 1 and held >= mass * total:
            break
        held, kept[number] = held + weight, weight
    return kept


def _shortened(vector: Vector, count: int | None, b: float, mean_sum: float) -> Vector:
    """As the documents of the index: the largest weights, divided by the document's length."""
    divisor = 1 - b + b * sum(vector.values()) / mean_sum
    return {number: weight / divisor for number, weight in sorted(largest(vector, count).items())}


def replayed() -> Iterator[dict[str, Any]]:
    """Queries with their vectors and the results that exact search has for them."""
    with (HERE / "replay.jsonl").open(encoding="utf-8") as file:
        for line in file:
            entry = json.loads(line)
            yield entry | {"vector": {int(number): weight for number, weight in entry["vector"].items()}}


def replay(search: Callable[[Vector, int], Results], close: float = 1e-3) -> None:
    """Search for every query of replay.jsonl, and print how many results are as expected: among the expected ones, or
    with a score that differs from their last by at most the share ``close`` of it."""
    same = wanted = queries = 0
    for entry in replayed():
        expected = [(each["id"], each["score"]) for each in entry["results"]]
        found = search(entry["vector"], len(expected))[: len(expected)] if expected else []
        ids, last = {identity for identity, _ in expected}, expected[-1][1] if expected else 0.0
        same += sum(identity in ids or abs(score - last) <= close * abs(last) for identity, score in found)
        wanted, queries = wanted + len(expected), queries + 1
    print(f"{queries} queries: {same} of {wanted} results as expected ({same / max(wanted, 1):.2%})")


def index_main(
    load: Callable[[], None],
    search: Callable[[Vector, int], Results],
    close: float = 1e-3,
    hybrid: Callable[[str, Vector, int], Results] | None = None,
) -> None:
    """The command line of index.py: load, search "a query", replay, or ``hybrid`` "a query" if the export has it;
    without any weight a query finds nothing."""

    def found(vector: Vector, top: int) -> Results:
        return search(vector, top) if vector else []

    match sys.argv[1:]:
        case ["load"] | ["load", "--replace"]:
            load()
        case ["replay"]:
            replay(found, close)
        case ["search" | "hybrid" as form, query] if form == "search" or hybrid is not None:
            vector = Encoder().queries([query])[0]
            results = hybrid(query, vector, 10) if hybrid is not None and form == "hybrid" else found(vector, 10)
            for rank, (identity, score) in enumerate(results, 1):
                print(f"{rank:3}  {score:9.4f}  {identity}")
        case _:
            sys.exit('usage: python index.py load, python index.py search "a query", or python index.py replay')


def check(encoder: Encoder) -> None:
    """Compare the queries of replay.jsonl, encoded here, with their vectors there."""
    entries = list(replayed())
    worst = 0.0
    for entry, own in zip(entries, encoder.queries([each["query"] for each in entries]), strict=True):
        for number in own.keys() | entry["vector"].keys():
            worst = max(worst, abs(own.get(number, 0.0) - entry["vector"].get(number, 0.0)))
    print(f"{len(entries)} queries: weights differ by {worst:.2g} at most")


def main() -> None:
    """The command line."""
    arguments = sys.argv[1:]
    document, quantised = "--document" in arguments, "--quantised" in arguments
    encoder = Encoder(quantised)
    if "--check" in arguments:
        check(encoder)
        return
    texts = [each for each in arguments if each not in ("--document", "--quantised")]
    for vector in encoder.documents(texts) if document else encoder.queries(texts):
        print(json.dumps(vector))


if __name__ == "__main__":
    main()

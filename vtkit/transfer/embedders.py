"""Embedders that know the words of both vocabularies, and the cache of what they have embedded. Every batch has the
same number of texts of the same length, so that the vector of a text is the same to the bit whatever it is embedded
with."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vtkit.data.text import digest
from vtkit.encoder.dense import configuration_folder, load_dense, refuse_other_kinds
from vtkit.system import console
from vtkit.system.errors import DataError
from vtkit.system.outputs import held, write_atomically
from vtkit.system.runtime import CACHE_VARIABLE, user_cache

CACHE_FORMAT = 1

SETTING = "embedder"  # what messages call an embedder by

BATCH = 128
TEXTS_A_SHARD = 1024  # texts embedded between two files of the cache: what a kill can cost


class Embedder:
    """The embedder of a folder or a hub id: a sentence-transformers model, whose prompts are not used, or a bare
    transformers model, which gets mean pooling. It is loaded when there is a text that the cache does not hold."""

    def __init__(self, name: str) -> None:
        from vtkit.system.runtime import bf16_is_fast

        self.name = name
        self.half = bf16_is_fast()
        self.folder = configuration_folder(name, SETTING)
        refuse_other_kinds(name, self.folder, SETTING)

    @cached_property
    def identity(self) -> Mapping[str, Any]:
        """All that a vector depends on beside the text."""
        content = digest(self.folder) if Path(self.name).is_dir() else f"{self.name}@{self.folder.name}"
        return {
            "format": CACHE_FORMAT,
            "model": content,
            "pooling": "model",
            "prompt": "",
            "precision": "bfloat16" if self.half else "float32",
        }

    def encode(self, texts: Sequence[str]) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
        """Batches of ``texts``, shortest first, with their vectors, (texts, width).

        Raises:
            DataError: the model cannot be loaded, or gives something else than finite vectors of one width.
        """
        import torch

        for batch in _batches(texts, self._lengths(texts)):
            filled = batch + [batch[-1]] * (BATCH - len(batch))
            half = torch.autocast(self._model.device.type, dtype=torch.bfloat16) if self.half else nullcontext()
            with half:
                vectors = self._model.encode(
                    filled, prompt="", batch_size=BATCH, show_progress_bar=False, convert_to_numpy=True
                )
            vectors = np.asarray(vectors)
            if vectors.ndim != 2 or len(vectors) != BATCH:
                raise DataError(
                    f"{SETTING} = {self.name} gives values of the shape {vectors.shape[1:]} for a text, not one "
                    "vector. Name a dense embedder."
                )
            yield batch, _finite(vectors[: len(batch)].astype(np.float32), batch)

    def _lengths(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text; the same for all where the model does not read them one after the other."""
        from sentence_transformers.sentence_transformer.modules import Transformer

        if not isinstance(self._model[0], Transformer):
            return [0] * len(texts)
        encoded = self._model.tokenizer(list(texts))["input_ids"]
        longest = self._model.max_seq_length or max(map(len, encoded), default=0)
        return [min(len(ids), longest) for ids in encoded]

    @cached_property
    def _model(self) -> Any:
        from vtkit.system.runtime import fastest_device

        return load_dense(self.name, SETTING).to(fastest_device())


def embed(texts: Sequence[str], embedder: Any) -> NDArray[np.float32]:
    """A unit vector for each text, (texts, width); equal texts are embedded once, and cached ones not at all. Anything
    else than an :class:`Embedder` with sentence-transformers' ``encode`` will do, and is not cached."""
    distinct = sorted(set(texts), key=lambda text: (len(text), text))
    if isinstance(embedder, Embedder):
        known = _cached(distinct, embedder)
    else:
        vectors = np.asarray(embedder.encode(distinct, batch_size=BATCH, show_progress_bar=False), dtype=np.float32)
        known = dict(zip(distinct, _finite(vectors, distinct), strict=True))
    units = np.stack([known[text] for text in texts]) if texts else np.empty((0, 0), dtype=np.float32)
    units /= np.maximum(np.linalg.norm(units, axis=1, keepdims=True), 1e-12)
    return units


class Cache:
    """The vectors of one embedder by text, in files that are written once and named by the digest of their content; one
    that differs is a miss and is removed. Any number of processes may read and write."""

    def __init__(self, identity: Mapping[str, Any]) -> None:
        self.identity = identity
        key = hashlib.sha256(json.dumps(dict(identity), sort_keys=True).encode()).hexdigest()
        self.folder = user_cache("embeddings") / key[:32]

    def prepare(self, name: str) -> bool:
        """Make the folder, with a note of what it holds; False, with a warning, where that is not possible."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self.folder / "embedder.json", json.dumps({"name": name, **self.identity}, indent=1))
        except OSError as error:
            console.warn(
                f"Embeddings are not kept: {self.folder} cannot be written ({error.strerror or error}). "
                f"Set {CACHE_VARIABLE} to a folder that can be written."
            )
            return False
        return True

    def read(self, texts: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """The vectors of those of ``texts`` that are there."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        wanted, vectors_of = set(texts), {}
        for path in sorted(self.folder.glob("*.safetensors")):
            try:
                content = path.read_bytes()
                if hashlib.sha256(content).hexdigest()[:32] != path.stem:
                    raise ValueError("it was changed or cut short")
                shard = load(content)
                kept = json.loads(shard["texts"].tobytes())
                vectors = shard["vectors"]
                vectors_of.update({text: vectors[n].copy() for n, text in enumerate(kept) if text in wanted})
            except FileNotFoundError:
                continue
            except (OSError, ValueError, KeyError, SafetensorError) as error:
                console.warn(f"{path} is damaged and is left out ({error}); its texts are embedded again.")
                path.unlink(missing_ok=True)
        return vectors_of

    def write(self, vectors: Mapping[str, NDArray[np.float32]]) -> None:
        """One more file; it appears whole or not at all."""
        from safetensors.numpy import save

        texts = np.frombuffer(json.dumps(list(vectors)).encode(), dtype=np.uint8)
        content = save({"texts": texts, "vectors": np.stack(list(vectors.values()))})
        path = self.folder / f"{hashlib.sha256(content).hexdigest()[:32]}.safetensors"
        try:
            write_atomically(path, content)
        except OSError as error:
            console.warn(f"{len(vectors)} embeddings are not kept: {path.parent} ({error.strerror or error}).")


def _cached(texts: Sequence[str], embedder: Embedder) -> dict[str, NDArray[np.float32]]:
    """Vectors from the cache, and the missing ones embedded, once whatever other processes embed with the same."""
    cache = Cache(embedder.identity)
    known = cache.read(texts)
    missing = [text for text in texts if text not in known]
    if not missing:
        return known
    if not cache.prepare(embedder.name):
        return known | _embedded(missing, embedder, None)
    with held(cache.folder / "embedding.lock", f"the table of embeddings by {embedder.name}"):
        known |= cache.read(missing)
        return known | _embedded([text for text in missing if text not in known], embedder, cache)


def _embedded(texts: Sequence[str], embedder: Embedder, cache: Cache | None) -> dict[str, NDArray[np.float32]]:
    written, unwritten = dict[str, NDArray[np.float32]](), dict[str, NDArray[np.float32]]()
    with console.progress("token texts embedded", total=len(texts)) as bar:
        for batch, vectors in embedder.encode(texts) if texts else ():
            unwritten.update(zip(batch, vectors, strict=True))
            bar.advance(len(batch))
            if cache is not None and len(unwritten) >= TEXTS_A_SHARD:
                cache.write(unwritten)
                written.update(unwritten)
                unwritten = {}
    if cache is not None and unwritten:
        cache.write(unwritten)
    return {**written, **unwritten}


def _batches(texts: Sequence[str], lengths: Sequence[int]) -> Iterator[list[str]]:
    """Texts of equal length, at most ``BATCH`` of them, shortest first."""
    by_length: dict[int, list[str]] = {}
    for text, length in zip(texts, lengths, strict=True):
        by_length.setdefault(length, []).append(text)
    for length in sorted(by_length):
        alike = by_length[length]
        for begin in range(0, len(alike), BATCH):
            yield alike[begin : begin + BATCH]


def _finite(vectors: NDArray[np.float32], texts: Sequence[str]) -> NDArray[np.float32]:
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        example = console.one_line(texts[bad[0]], 40)
        raise DataError(
            f"The embedder gives vectors that are not finite numbers (NaN or infinite), for {example!r} among others. "
            "Its weights are damaged, or too large for this precision."
        )
    return vectors

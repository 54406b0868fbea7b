"""Unit vectors of texts by an embedder that knows the words of both vocabularies, kept in the user's cache. Every batch
has the same number of texts of the same length, so that the vector of a text is the same to the bit whatever it is
embedded with."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache, partial
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vtkit.data.text import batches, digest
from vtkit.encoder.dense import configuration_folder, load_dense, refuse_other_kinds
from vtkit.system import console
from vtkit.system.errors import DataError
from vtkit.system.outputs import kept_array
from vtkit.system.runtime import CACHE_VARIABLE, bf16_is_fast, fastest_device, user_cache
from vtkit.transfer.word_space import unit

SETTING = "embedder"  # what messages call an embedder by

BATCH = 128


def embed(texts: Sequence[str], name: str) -> NDArray[np.float32]:
    """A unit vector for each text, (texts, width), by the sentence-transformers model ``name``, a folder or a hub id;
    a bare transformers model gets mean pooling. Prompts are not used.

    The cache has a file for each model and set of texts.

    Raises:
        DataError: the model cannot be loaded, or gives something else than finite vectors of one width.
    """
    folder = configuration_folder(name, SETTING)
    refuse_other_kinds(name, folder, SETTING)
    half, distinct = bf16_is_fast(), sorted(set(texts), key=lambda text: (len(text), text))
    model = digest(folder) if Path(name).is_dir() else f"{name}@{folder.name}"
    key = hashlib.sha256(json.dumps([model, "bfloat16" if half else "float32", distinct]).encode()).hexdigest()
    embedded, kept_in = cache(partial(_embedded, distinct, name, half)), user_cache("embeddings")
    try:
        kept_in.mkdir(parents=True, exist_ok=True)
        vectors = kept_array(kept_in / f"{key[:32]}.npy", embedded, lambda kept: len(kept) == len(distinct))
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        console.warn(
            f"Embeddings are not kept: {kept_in} cannot be written ({error.strerror}). Set {CACHE_VARIABLE} to a "
            "folder that can be written."
        )
        vectors = embedded()
    place = {text: row for row, text in enumerate(distinct)}
    return unit(vectors[[place[text] for text in texts]])


def _embedded(texts: Sequence[str], name: str, half: bool) -> NDArray[np.float32]:
    """The vectors as the model gives them, (texts, width)."""
    import torch
    from sentence_transformers.sentence_transformer.modules import Transformer

    model = load_dense(name, SETTING).to(fastest_device())
    lengths = [0] * len(texts)  # the same for all if the model does not read tokens one after the other
    if isinstance(model[0], Transformer):
        tokens = [len(ids) for ids in model.tokenizer(list(texts))["input_ids"]]
        lengths = [min(length, model.max_seq_length or length) for length in tokens]
    order = sorted(range(len(texts)), key=lengths.__getitem__)
    same = ([texts[row] for row in rows] for _, rows in groupby(order, lengths.__getitem__))
    alike = (batch for some in same for batch in batches(some, BATCH))
    parts = []
    products = torch.autocast(model.device.type, dtype=torch.bfloat16) if half else nullcontext()
    with products:
        for batch in console.tracked(alike, "token texts embedded", len(texts), len):
            filled = batch + [batch[-1]] * (BATCH - len(batch))
            vectors = np.asarray(
                model.encode(filled, prompt="", batch_size=BATCH, show_progress_bar=False), dtype=np.float32
            )
            if vectors.ndim != 2 or len(vectors) != BATCH:
                raise DataError(
                    f"{SETTING} = {name} gives values of the shape {vectors.shape[1:]} for a text, not one vector. "
                    "Name a dense embedder."
                )
            finite = np.isfinite(vectors).all(axis=1)
            if not finite.all():
                example = console.one_line(filled[int(finite.argmin())], 40)
                raise DataError(
                    f"The embedder gives vectors that are not finite numbers (NaN or infinite), for {example!r} among "
                    "others. Its weights are damaged, or too large for this precision."
                )
            parts.append(vectors[: len(batch)])
    ordered = np.concatenate(parts)
    whole = np.empty_like(ordered)
    whole[order] = ordered
    return whole

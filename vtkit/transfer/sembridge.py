"""New tokens as mixtures of the source tokens that an embedder finds closest in meaning (SemBridge).

The embedder must know both languages; within one language any sentence embedder will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vtkit import console
from vtkit.errors import DataError
from vtkit.transfer.entmax import entmax_rows
from vtkit.transfer.mixture import Mixture, Part, assemble
from vtkit.vocabulary.alignment import Alignment, surface_and_start

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

TEXTS_AT_ONCE = 1024
"""Token texts embedded between two steps of the progress display."""

BATCH = 128


def sembridge_mixture(
    embedder: str,
    source: PreTrainedTokenizerFast,
    target: PreTrainedTokenizerFast,
    alignment: Alignment,
    source_rows: int,
    alpha: float = 4.0,
) -> Mixture:
    """:func:`similarity_mixture` by the embedder of that name, a folder or a hub id."""
    return similarity_mixture(load_embedder(embedder), source, target, alignment, source_rows, alpha)


def similarity_mixture(
    embedder: Any,
    source: PreTrainedTokenizerFast,
    target: PreTrainedTokenizerFast,
    alignment: Alignment,
    source_rows: int,
    alpha: float = 4.0,
) -> Mixture:
    """Each new token as ``Σ_s α-entmax(cos(B(t), B(s))) E_s`` over the tokens ``s`` of the source vocabulary.

    ``B`` embeds the text a token stands for, without the mark of its family. The authors' code embeds
    ``decode(id)``, which leaves ``##`` in the text of WordPiece tokens, and takes part of the specials as text. Here
    special tokens, fillers and broken bytes take no part; new tokens of that kind become the mean of all rows.

    Args:
        embedder: a SentenceTransformer (see :func:`load_embedder`), or anything with its ``encode``.
        source_rows: rows of the source's embedding matrix.
        alpha: the paper has 4, the authors' code 2.5 as its default.
    """
    anchors = [(number, text) for number, text in enumerate(_texts(source)) if text]
    texts = _texts(target)
    wanted = [number for number in alignment.new_ids.tolist() if texts[number]]
    if not wanted or not anchors:
        return assemble(alignment, source_rows)
    vectors = embed([*(text for _, text in anchors), *(texts[number] for number in wanted)], embedder)
    weights = entmax_rows(vectors[len(anchors) :], vectors[: len(anchors)], alpha)
    # The columns so far count anchors; as source ids they stay in ascending order.
    weights.indices = np.array([number for number, _ in anchors], dtype=weights.indices.dtype)[weights.indices]
    weights.resize(len(wanted), source_rows)
    return assemble(alignment, source_rows, [Part("sembridge", np.array(wanted, dtype=np.int64), weights)])


def embed(texts: Sequence[str], embedder: Any) -> NDArray[np.float32]:
    """A unit vector for each text, (texts, width); equal texts are embedded once."""
    distinct = sorted(set(texts), key=lambda text: (len(text), text))  # texts of one batch are padded to the longest
    vectors = []
    with console.progress("token texts embedded", total=len(distinct)) as bar:
        for begin in range(0, len(distinct), TEXTS_AT_ONCE):
            batch = distinct[begin : begin + TEXTS_AT_ONCE]
            vectors.append(np.asarray(embedder.encode(batch, batch_size=BATCH, show_progress_bar=False)))
            bar.advance(len(batch))
    stacked = np.concatenate(vectors).astype(np.float32)
    if not np.isfinite(stacked).all():
        raise DataError("The embedder gives vectors that are not finite numbers for some tokens.")
    stacked /= np.maximum(np.linalg.norm(stacked, axis=1, keepdims=True), 1e-12)
    place = {text: number for number, text in enumerate(distinct)}
    return stacked[[place[text] for text in texts]]


def load_embedder(name: str) -> Any:
    """The SentenceTransformer of a folder or a hub id, in single precision; fetched only where downloads are allowed.

    Raises:
        DataError: there is no such model, or it needs code of its own.
    """
    from sentence_transformers import SentenceTransformer

    from vtkit.data.hub import downloads_allowed

    online = downloads_allowed() and not Path(name).is_dir()
    try:
        return SentenceTransformer(name, local_files_only=not online).float().eval()
    except (OSError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        way_out = "" if online or Path(name).is_dir() else " Downloads are off; allow them with --download."
        raise DataError(f"transfer.embedder = {name} cannot be loaded: {reason}{way_out}") from error


def _texts(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """The text of each id without surrounding space; empty for ids that stand for none."""
    return [surface.strip() for surface, _ in surface_and_start(tokenizer)]

"""Where each new token came from, as a table of one row a token: ``provenance.parquet``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vtkit.errors import DataError
from vtkit.transfer.mixture import METHODS, Mixture
from vtkit.vocabulary.alignment import surface_and_start, tokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True)
class Origin:
    """What one new token was made of."""

    target_id: int
    token: str
    method: str
    """One of :data:`vtkit.transfer.mixture.METHODS`."""

    sources: tuple[str, ...]
    """Source tokens, heaviest first; none for ``mean`` and ``random``."""

    source_ids: tuple[int, ...]
    weights: tuple[float, ...]


def origins(mixture: Mixture, source: PreTrainedTokenizerFast, target: PreTrainedTokenizerFast) -> Iterator[Origin]:
    """The origin of each new token of ``mixture``, by ascending id."""
    source_tokens, target_tokens = tokens(source), tokens(target)
    for target_id in new_ids(mixture).tolist():
        pairs = mixture.sources(target_id)
        yield Origin(
            target_id,
            target_tokens[target_id],
            METHODS[mixture.methods[target_id]],
            tuple(source_tokens[source_id] for source_id, _ in pairs),
            tuple(source_id for source_id, _ in pairs),
            tuple(weight for _, weight in pairs),
        )


def sample_neighbours(
    mixture: Mixture, source: PreTrainedTokenizerFast, target: PreTrainedTokenizerFast, count: int = 24, seed: int = 0
) -> list[dict[str, Any]]:
    """A few new tokens for a person to look at: ``{"token", "method", "sources": [[token, weight], ...]}`` each.

    They are drawn with ``seed`` from the words of two letters or more that have sources, because single characters
    and word endings say little to the eye; from all new tokens that have sources where there are no such words.
    """
    having = new_ids(mixture)
    having = having[np.diff(mixture.weights.indptr)[having] > 0]
    surfaces = surface_and_start(target)
    words = [n for n in having.tolist() if surfaces[n][1] and len(surfaces[n][0]) > 1 and surfaces[n][0].isalpha()]
    pool = np.array(words or having.tolist(), dtype=np.int64)
    drawn = np.sort(np.random.default_rng(seed).choice(pool, min(count, len(pool)), replace=False))
    source_tokens, target_tokens = tokens(source), tokens(target)
    return [
        {
            "token": target_tokens[number],
            "method": METHODS[mixture.methods[number]],
            "sources": [[source_tokens[source_id], round(weight, 4)] for source_id, weight in mixture.sources(number)],
        }
        for number in drawn.tolist()
    ]


def new_ids(mixture: Mixture) -> NDArray[np.int64]:
    """Target ids that do not overlap, ascending."""
    return np.flatnonzero(mixture.methods != METHODS.index("overlap"))


def write_provenance(
    path: Path, mixture: Mixture, source: PreTrainedTokenizerFast, target: PreTrainedTokenizerFast
) -> None:
    """Write the origins of all new tokens."""
    import pyarrow
    import pyarrow.parquet

    rows = list(origins(mixture, source, target))
    columns = {
        "target_id": pyarrow.array([row.target_id for row in rows], pyarrow.int32()),
        "token": pyarrow.array([row.token for row in rows], pyarrow.string()),
        "method": pyarrow.array([row.method for row in rows], pyarrow.string()),
        "sources": pyarrow.array([row.sources for row in rows], pyarrow.list_(pyarrow.string())),
        "source_ids": pyarrow.array([row.source_ids for row in rows], pyarrow.list_(pyarrow.int32())),
        "weights": pyarrow.array([row.weights for row in rows], pyarrow.list_(pyarrow.float32())),
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def read_new_ids(path: Path) -> NDArray[np.int64]:
    """The target ids of all new tokens, ascending, without reading the rest of the table.

    Raises:
        DataError: the file is missing or is not such a table.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path, columns=["target_id"])
        return np.asarray(table["target_id"].to_numpy(), dtype=np.int64)
    except (OSError, KeyError, pyarrow.ArrowException) as error:
        raise DataError(f"{path} is not a table of token origins that vtkit wrote: {error}") from error


def read_provenance(path: Path) -> list[Origin]:
    """The origins of all new tokens, by ascending id.

    Raises:
        DataError: the file is missing or is not such a table.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path).to_pylist()
        return [
            Origin(
                row["target_id"],
                row["token"],
                row["method"],
                tuple(row["sources"]),
                tuple(row["source_ids"]),
                tuple(row["weights"]),
            )
            for row in table
        ]
    except (OSError, KeyError, pyarrow.ArrowException) as error:
        raise DataError(f"{path} is not a table of token origins that vtkit wrote: {error}") from error

"""Where each token came from, as a table of one row a token: ``provenance.parquet``."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vtkit.system.errors import DataError
from vtkit.transfer.mixture import Mixture
from vtkit.vocabulary.forms import Vocabulary
from vtkit.vocabulary.pair import VocabularyPair

PROVENANCE = "provenance.parquet"  # name of the table beside a transferred model


@dataclass(frozen=True)
class Origin:
    """The sources of one token's embedding."""

    target_id: int
    token: str  # as a person reads it (vtkit.vocabulary.notation.Notation.legible); so are the source tokens
    method: str  # what made its row (vtkit.transfer.mixture.Mixture.methods)
    sources: tuple[str, ...]
    """Source tokens, heaviest first; none for rows of no evidence (``mean``, ``random`` and their like)."""

    source_ids: tuple[int, ...]
    weights: tuple[float, ...]
    bias: float  # decoder bias that the transfer gave it


def origins(mixture: Mixture, bias: NDArray[np.floating], pair: VocabularyPair) -> Iterator[Origin]:
    """The origin of each target token, by ascending id."""
    source_tokens, target_tokens = pair.source.legible, pair.target.legible
    for target_id, method in enumerate(mixture.methods.tolist()):
        pairs = mixture.sources(target_id)
        yield Origin(
            target_id,
            target_tokens[target_id],
            method,
            tuple(source_tokens[source_id] if source_id < len(source_tokens) else "" for source_id, _ in pairs),
            tuple(source_id for source_id, _ in pairs),
            tuple(weight for _, weight in pairs),
            float(bias[target_id]),
        )


def write_provenance(path: Path, rows: Iterable[Origin]) -> None:
    """Write the origins of all tokens."""
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema(
        {
            "target_id": pyarrow.int32(),
            "token": pyarrow.string(),
            "method": pyarrow.string(),
            "sources": pyarrow.list_(pyarrow.string()),
            "source_ids": pyarrow.list_(pyarrow.int32()),
            "weights": pyarrow.list_(pyarrow.float32()),
            "bias": pyarrow.float32(),
        }
    )
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([vars(row) for row in rows], schema), path)


def read_new_ids(path: Path) -> NDArray[np.int64]:
    """The target ids of all tokens that do not overlap, ascending, without reading the rest of the table."""
    rows = _read_columns(path, ["target_id", "method"]).to_pylist()
    return np.array([row["target_id"] for row in rows if row["method"] != "overlap"], dtype=np.int64)


def read_provenance(path: Path) -> list[Origin]:
    """The origins of all tokens, by ascending id."""
    names = [field.name for field in fields(Origin)]
    listed = ("sources", "source_ids", "weights")
    rows: list[dict[str, Any]] = _read_columns(path, names).to_pylist()
    return [Origin(**(row | {name: tuple(row[name]) for name in listed})) for row in rows]


def output_vocabulary(transfer: Path) -> Vocabulary:
    """The vocabulary of the tokens, by the model beside the table in the folder of a transfer."""
    from vtkit.vocabulary.existing import load_tokenizer

    own = transfer / "model" / "output_tokenizer"  # of head-only transfer
    return Vocabulary(load_tokenizer(own if own.is_dir() else transfer / "model"))


def read_mixture(path: Path, source_rows: int) -> Mixture:
    """The mixture that a transfer made its rows by, over ``source_rows`` rows of the source's embedding matrix."""
    from scipy.sparse import csr_matrix

    table = read_provenance(path)
    starts = np.cumsum([0, *(len(origin.source_ids) for origin in table)])
    ids = np.fromiter((number for origin in table for number in origin.source_ids), dtype=np.int32)
    weights = np.fromiter((weight for origin in table for weight in origin.weights), dtype=np.float32)
    methods = np.array([origin.method for origin in table], dtype=np.dtypes.StringDType())
    mixed = csr_matrix((weights, ids, starts), shape=(len(methods), source_rows))
    mixed.sort_indices()
    return Mixture(mixed, methods)


def _read_columns(path: Path, columns: list[str]) -> Any:
    import pyarrow
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_table(path, columns=columns)
    except (OSError, KeyError, pyarrow.ArrowException) as error:
        raise DataError(f"{path} is not a table of token origins that vtkit wrote: {error}") from error

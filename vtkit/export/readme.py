"""The README of an export: the files in the folder, and the commands that lead to the first result."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vtkit import __version__
from vtkit.encoder.query_tables import query_encoder_of
from vtkit.export.network import LEAST_COSINE, QUANTISED, TOLERANCE

if TYPE_CHECKING:
    from vtkit.export.documents import Collection
    from vtkit.export.portable import Portable, Source
    from vtkit.export.result import Export


class Section(NamedTuple):
    """A heading and the Markdown below it."""

    title: str
    text: str


def readme(
    source: Source, portable: Portable, collection: Collection | None, exported: Export, sections: list[Section]
) -> str:
    """``README.md``."""
    own = [Section("The model", _model(source, portable)), Section("Queries", _queries(source))]
    own.append(Section("Does it rank as it should?", _replay(source, collection, exported)))
    own.append(Section("Files", _files(source, portable, collection)))
    parts = [f"# {source.name} for {exported.target}\n\n{_head(collection, exported)}"]
    return "\n\n".join([*parts, *(f"## {title}\n\n{text.strip()}" for title, text in [*sections, *own])]) + "\n"


def load_and_search(variable: str, address: str, index: str) -> str:
    """The commands for an engine with bulk requests over HTTP, with Python and without.

    Args:
        variable: environment variable with the server's address.
        address: a comment on the address.
        index: name of the index.
    """
    return f"""```bash
pip install onnxruntime tokenizers numpy
export {variable}=http://localhost:9200{address}
python index.py load
python index.py search "a query"
```

Without Python:

```bash
curl -X PUT ${variable}/{index} -H 'Content-Type: application/json' -d @mapping.json
for part in bulk/*.ndjson; do
  curl -X POST ${variable}/{index}/_bulk -H 'Content-Type: application/x-ndjson' --data-binary @$part
done
```"""


def _head(collection: Collection | None, exported: Export) -> str:
    what = "A learned sparse encoder"
    if collection is not None:
        what += f" and its index of {exported.documents:,} documents with {exported.dimensions:,} dimensions"
    return f"{what}, exported by vtkit {__version__}. You need vtkit only if a section says so."


def _model(source: Source, portable: Portable) -> str:
    checked = portable.checked
    quantised = (
        f"`{QUANTISED}` has 8-bit weights. It is a quarter of the size, and faster on most processors; the mean cosine "
        f"of its vectors with the exact ones is {checked.quantised_cosine:.3f}."
        if checked.quantised_cosine is not None
        else f"There is no 8-bit file: the mean cosine of its vectors with the exact ones was below {LEAST_COSINE:g}."
    )
    elsewhere = (
        "Engines that pool the logits themselves, `max_i log(1 + ReLU(logit_i))`, get the same weights."
        if portable.pools_elsewhere
        else "**Engines that pool the logits themselves get different weights**, because this encoder sums over "
        "positions, adds up case variants, or keeps only its largest weights. Read `weights` instead."
    )
    return f"""
`model.onnx` takes `input_ids` and `attention_mask` (and `token_type_ids`, zeros, where it has that input), and gives
`weights` (batch, dimensions), the finished vector, and `logits` (batch, tokens, dimensions). On {
        checked.texts
    } texts its
weights differ from the encoder's own by {checked.largest_difference:.1g} at most (allowed: {TOLERANCE:g}). {quantised}
{elsewhere} Casing, masked and folded dimensions, and calibration are part of the network.

The folder itself is the encoder for sentence-transformers 5.1 and newer:

```python
from sentence_transformers import SparseEncoder
encoder = SparseEncoder(".")
```
"""


def _queries(source: Source) -> str:
    kind = query_encoder_of(source.encoder)
    if kind is None:
        how = "The same network encodes queries and documents."
    elif "table" in kind:
        how = "Queries need no network: each distinct token has its weight in `idf.json` (a static table)."
    else:
        how = "Queries have their own network, in `query/`."
    if source.lexical:
        how += (
            " BM25's terms (`terms.json`) are further dimensions behind the encoder's, so one search ranks by both. "
            "vtkit's analyser cuts text into these terms, so encoding a query needs `pip install vtkit` here, or "
            "`vtkit serve` beside the engine."
        )
    return f"""
{how} Texts are cut at {source.query_length} tokens (queries) and {source.document_length} (documents).

```bash
pip install onnxruntime tokenizers numpy
python encode.py "a query"               # its vector; also: from encode import Encoder
python encode.py --document "a document"
python encode.py --check                 # encode the queries of replay.jsonl and compare with their vectors
```
"""


def _replay(source: Source, collection: Collection | None, exported: Export) -> str:
    if collection is None:
        return f"`replay.jsonl` has {exported.queries} queries with their vectors: `python encode.py --check`."
    kept = ""
    if exported.results_kept is not None:
        kept = (
            " The vectors are rounded or pruned for this engine, and the expected results are those of these vectors: "
            f"exact search with them finds {exported.results_kept:.2%} of the original index's first ten results."
        )
    return f"""
`replay.jsonl` has {exported.queries} queries with their vectors and the first ten results of exact search.{kept}

```bash
python index.py replay
```
"""


def _files(source: Source, portable: Portable, collection: Collection | None) -> str:
    left_out = ""
    if collection is not None and collection.found < len(collection):
        left_out = (
            f" {len(collection) - collection.found:,} documents without weights are left out: no search can find them."
        )
    return (
        "`settings.json` has the settings of `encode.py`, `export.json` the measured figures. The other files at the "
        f"top level belong to the encoder.{left_out}"
    )

"""The README of an export: what is in the folder, and the commands from there to the first result."""

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


def code(text: str, language: str = "") -> str:
    """A block of code."""
    return f"```{language}\n{text.strip()}\n```"


def load_and_search(variable: str, address: str, index: str) -> str:
    """The commands for an engine that takes bulk requests over HTTP, with Python and without.

    Args:
        variable: of the environment, which holds the server's address.
        address: what may stand in it, as a comment.
        index: what the index is called.
    """
    python = f"""
pip install onnxruntime tokenizers numpy
export {variable}=http://localhost:9200{address}
python index.py load
python index.py search "a query"
"""
    requests = f"""
curl -X PUT ${variable}/{index} -H 'Content-Type: application/json' -d @mapping.json
for part in bulk/*.ndjson; do
  curl -X POST ${variable}/{index}/_bulk -H 'Content-Type: application/x-ndjson' --data-binary @$part
done
"""
    return f"""{code(python, "bash")}

Without Python:

{code(requests, "bash")}"""


def _head(collection: Collection | None, exported: Export) -> str:
    what = "A learned sparse encoder"
    if collection is not None:
        what += f" and its index of {exported.documents:,} documents over {exported.dimensions:,} dimensions"
    return f"{what}, exported by vtkit {__version__}. vtkit is not needed here, unless a section says so."


def _model(source: Source, portable: Portable) -> str:
    checked = portable.checked
    quantised = (
        f"`{QUANTISED}` has 8-bit weights: a quarter of the size and faster on most processors; its vectors have a "
        f"mean cosine of {checked.quantised_cosine:.3f} with the exact ones."
        if checked.quantised_cosine is not None
        else f"There is no 8-bit file: its vectors had a mean cosine below {LEAST_COSINE:g} with the exact ones."
    )
    elsewhere = (
        "An engine that pools the logits itself, `max_i log(1 + ReLU(logit_i))`, gets the same weights."
        if portable.pools_elsewhere
        else "**An engine that pools the logits itself gets other weights**, because this encoder sums over positions, "
        "adds case variants up, or keeps its largest weights only. Read `weights` instead."
    )
    return f"""
`model.onnx` takes `input_ids` and `attention_mask` (and `token_type_ids`, zeros, where it has that input), and gives
`weights` (batch, dimensions), the finished vector, and `logits` (batch, tokens, dimensions). On {
        checked.texts
    } texts its
weights differ from the encoder's own by {checked.largest_difference:.1g} at most (allowed: {TOLERANCE:g}). {quantised}
{elsewhere} Casing, masked and folded dimensions and calibration are inside.

The folder itself is the encoder for sentence-transformers 5.1 and newer:

{
        code(
            '''
from sentence_transformers import SparseEncoder
encoder = SparseEncoder(".")
''',
            "python",
        )
    }
"""


def _queries(source: Source) -> str:
    kind = query_encoder_of(source.encoder)
    if kind is None:
        how = "Queries are encoded by the same network as documents."
    elif "table" in kind:
        how = "Queries need no network: each distinct token has its weight in `idf.json` (a static table)."
    else:
        how = "Queries have a network of their own, in `query/`."
    if source.lexical:
        how += (
            " Behind the encoder's dimensions come BM25's terms (`terms.json`), so that one search ranks by both. Text "
            "is cut into these terms by vtkit's analyser, so encoding a query needs `pip install vtkit` here, or "
            "`vtkit serve` beside the engine."
        )
    return f"""
{how} Texts are cut at {source.query_length} tokens (queries) and {source.document_length} (documents).

{
        code(
            '''
pip install onnxruntime tokenizers numpy
python encode.py "a query"               # its vector; also: from encode import Encoder
python encode.py --document "a document"
python encode.py --check                 # the queries of replay.jsonl, encoded here, beside their vectors there
''',
            "bash",
        )
    }
"""


def _replay(source: Source, collection: Collection | None, exported: Export) -> str:
    if collection is None:
        return f"`replay.jsonl` has {exported.queries} queries with their vectors: `python encode.py --check`."
    kept = ""
    if exported.results_kept is not None:
        kept = (
            f" The vectors here are rounded or cut for this engine: exact search finds {exported.results_kept:.2%} of "
            "the first ten results of the index they come from with them, and the expected results are theirs."
        )
    return f"""
`replay.jsonl` has {exported.queries} queries with their vectors and the first ten results of exact search.{kept}

{code("python index.py replay", "bash")}
"""


def _files(source: Source, portable: Portable, collection: Collection | None) -> str:
    left_out = ""
    if collection is not None and collection.found < len(collection):
        left_out = (
            f" {len(collection) - collection.found:,} documents without any weight are left out: nothing finds them."
        )
    return (
        "`settings.json` says how texts are cut and weighed, `export.json` what was measured; the other files at the "
        f"root are the encoder's.{left_out}"
    )

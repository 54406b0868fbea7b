"""Target ``opensearch``: the vectors exactly (``rank_features``) and approximately (``sparse_vector``, SEISMIC), and
the model for ML Commons: an encoder of texts, and for a query table a tokenizer model beside it.

SEISMIC takes dimensions by number and folds them modulo 32,768 (neural-search issue 1926), and rounds weights to 256
steps below a ceiling. So ``seismic.json`` gives every dimension that is used a number of its own, as long as they are
no more, and the ceilings are those of this index.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np
from torch import Tensor

from vtkit.encoder.asymmetric import WholeEncoder, query_table
from vtkit.encoder.families import as_array
from vtkit.encoder.folding import folding
from vtkit.export.documents import Collection
from vtkit.export.features import FIELD, numbered, text_properties, token_names, write_bulk
from vtkit.export.network import InputNames, TermWeights, check_torchscript, write_torchscript
from vtkit.export.readme import Section, code, load_and_search
from vtkit.search.opensearch_text import MOST_TOKENS, of_table, tokenizer_parts

if TYPE_CHECKING:
    import scipy.sparse as sp

    from vtkit.export.portable import Portable, Source

SEISMIC_DIMENSIONS = 32_768
"""Dimensions that SEISMIC tells apart."""

DOCUMENT_CEILING, QUERY_CEILING = 3.0, 16.0
"""Weights up to which SEISMIC counts by default; larger ones become these."""

_CHUNK = 10_000_000


def write_for_opensearch(
    source: Source, portable: Portable, collection: Collection | None, folder: Path
) -> list[Section]:
    """Write ``mapping.json``, ``bulk/``, the files of SEISMIC, and the models with what registers them."""
    table = query_table(source.encoder)
    names = token_names(source.encoder)
    own = isinstance(source.encoder, WholeEncoder) and source.encoder.output_tokenizer is not None
    side = source.encoder.query_side if isinstance(source.encoder, WholeEncoder) else None
    why = (
        "the index has BM25's terms beside the encoder's" if source.lexical
        else "it reads one vocabulary and writes another" if own
        else "a prompt stands before its texts" if portable.prompts
        else "its queries have a network of their own" if side is not None and table is None
        else "its table's vectors are folded" if table is not None and folding(source.encoder) is not None
        else "two of its tokens have one name" if names is None
        else None
    )  # fmt: skip
    sections = []
    if collection is not None:
        mapping = {
            "settings": {"index": {"number_of_shards": 1}},
            "mappings": {
                "_source": {"excludes": [FIELD]},
                "properties": text_properties() | {FIELD: {"type": "rank_features"}},
            },
        }
        (folder / "mapping.json").write_text(json.dumps(mapping, indent=1), encoding="utf-8")
        write_bulk(collection, folder, numbered(collection.dimensions) if why or names is None else names)
        sections += [
            Section("First result", _first(source.identifier)),
            Section("Approximate search (SEISMIC)", _seismic(collection, source.query_vectors(), folder)),
        ]
    if why is not None:
        return [*sections, Section("The model in OpenSearch", _NOT.format(why=why))]
    _write_models(source, folder)
    return [*sections, Section("The model in OpenSearch", _MODELS if table is None else _MODELS_WITH_TABLE)]


def by_name(ids: Tensor, mask: Tensor) -> tuple[dict[str, Tensor]]:
    """What ML Commons gives a model."""
    return ({"input_ids": ids, "attention_mask": mask},)


def _write_models(source: Source, folder: Path) -> None:
    encoder = source.encoder
    if not (folder / "encoder.zip").exists():
        traced = folder / "model.pt"
        write_torchscript(InputNames(TermWeights(encoder)), encoder, traced, by_name)
        texts, length = source.texts(), source.document_length
        check_torchscript(encoder, traced, by_name, lambda found: found["output"], texts, length)
        weights = np.ones(int(encoder[0].auto_model.config.vocab_size), dtype=np.float32)
        parts = tokenizer_parts(encoder.tokenizer, weights, min(source.document_length, MOST_TOKENS))
        parts["post_processor"] = json.loads(encoder.tokenizer.backend_tokenizer.to_str())["post_processor"]
        files = {"model.pt": traced.read_bytes(), "tokenizer.json": json.dumps(parts).encode("ascii")}
        _write_zip(folder / "encoder.zip", files)
        traced.unlink()
    _register(folder / "encoder.zip", f"{source.identifier}-encoder", "SPARSE_ENCODING")
    table = query_table(encoder)
    if table is not None:
        length = min(source.query_length, MOST_TOKENS, table.tokenizer.model_max_length)
        (folder / "queries.zip").write_bytes(of_table(table.tokenizer, as_array(table.weight), length, ()).model)
        _register(folder / "queries.zip", f"{source.identifier}-queries", "SPARSE_TOKENIZE")


def _register(path: Path, name: str, function: str) -> None:
    """``NAME.json`` beside a zip: the body that registers it."""
    content = path.read_bytes()
    meta = {
        "name": name,
        "version": "1",
        "description": "exported by vtkit",
        "function_name": function,
        "model_format": "TORCH_SCRIPT",
        "model_content_size_in_bytes": len(content),
        "model_content_hash_value": hashlib.sha256(content).hexdigest(),
        "total_chunks": -(-len(content) // _CHUNK),
    }
    path.with_suffix(".json").write_text(json.dumps(meta, indent=1), encoding="utf-8")


def _write_zip(path: Path, files: dict[str, bytes]) -> None:
    """A zip without dates, whole or not at all."""
    fresh = path.with_name(f"{path.name}.partial")
    with ZipFile(fresh, "w") as archive:
        for name, content in files.items():
            archive.writestr(ZipInfo(name), content, compress_type=ZIP_DEFLATED)
    fresh.rename(path)


def _seismic(collection: Collection, queries: sp.csr_matrix, folder: Path) -> str:
    """Write ``mapping-seismic.json`` and ``seismic.json``, where SEISMIC can hold the index; what to know of it."""
    used = np.flatnonzero(np.diff(collection.postings.starts))
    largest = collection.largest_weight, float(queries.data.max(initial=0.0))
    ceilings = [math.ceil(weight * 1.05 * 100) / 100 for weight in largest]
    if len(used) > SEISMIC_DIMENSIONS:
        shares = np.bincount(used % SEISMIC_DIMENSIONS, minlength=SEISMIC_DIMENSIONS)
        collide = int(shares[shares > 1].sum())
        return (
            f"**Not possible with this index.** Its documents use {len(used):,} dimensions, and SEISMIC folds numbers "
            f"modulo {SEISMIC_DIMENSIONS:,}, so that {collide:,} of them would share one with another (neural-search "
            "issue 1926). Use the exact field, or move the encoder to a vocabulary trimmed to the tokens of the "
            "collection, and leave BM25's terms to a field of OpenSearch's own."
        )
    places = {int(dimension): number for number, dimension in enumerate(used)}
    (folder / "seismic.json").write_text(json.dumps(places), encoding="utf-8")
    method = {
        "name": "seismic",
        "parameters": {"quantization_ceiling_ingest": ceilings[0], "quantization_ceiling_search": ceilings[1]},
    }
    mapping = {
        "settings": {"index": {"sparse": True, "number_of_shards": 1}},
        "mappings": {
            "_source": {"excludes": [FIELD]},
            "properties": text_properties() | {FIELD: {"type": "sparse_vector", "method": method}},
        },
    }
    (folder / "mapping-seismic.json").write_text(json.dumps(mapping, indent=1), encoding="utf-8")
    return f"""
OpenSearch 3.3 and newer, and worth it above a million documents a segment (below, `approximate_threshold` keeps it
exact):

{
        code(
            '''
SEISMIC=1 python index.py load
SEISMIC=1 python index.py search "a query"
''',
            "bash",
        )
    }

What would break it, and what is done: numbers of dimensions fold modulo {SEISMIC_DIMENSIONS:,}, so the {
        len(used):,} that are
used are numbered anew (`seismic.json`; `index.py` renames on the way). Weights above {
        DOCUMENT_CEILING:g} of documents and
{QUERY_CEILING:g} of queries would be cut; the largest here are {largest[0]:.2f} and {
        largest[1]:.2f}, and the mapping's ceilings
are set above them. A weight is one of 256 steps below its ceiling. Two-phase search does not go with it.
"""


def _first(name: str) -> str:
    commands = load_and_search(
        "OPENSEARCH", "          # user:password in the address, where they are asked for", name.replace("_", "-")
    )
    return f"""
{commands}

A query is `{{"neural_sparse": {{"weights": {{"query_tokens": {{...}}}}}}}}`, its dimensions called as in
`dimensions.json`. Weights are kept with 9 significant bits (0.4 %), and query weights may be at most 64: `index.py`
divides larger ones. These files follow OpenSearch's documentation and were not tried on a server by vtkit's makers.
"""


_NOT = """
The model itself cannot run in OpenSearch: {why}. Encode queries outside, with `encode.py`.
"""

_DEPLOY = f"""
{
    code(
        '''
python index.py models
''',
        "bash",
    )
}

registers and deploys them in chunks (`plugins.ml_commons.allow_registering_model_via_local_file` must be true, and
`only_run_on_ml_node` false where there is no such node), and makes an ingest pipeline that encodes the field `text`
and a search pipeline that encodes `query_text`, both called as the index is. Do not query with the analyser
`bert-uncased`, the default: it cuts text with another vocabulary.
"""

_MODELS = f"""
`encoder.zip` encodes documents and queries (bi-encoder): TorchScript with its pooling inside, `output` (batch,
dimensions).

{_DEPLOY}
"""

_MODELS_WITH_TABLE = f"""
`encoder.zip` encodes documents, and `queries.zip` looks queries up in the table (doc-only): a SPARSE_TOKENIZE model of
`tokenizer.json` and `idf.json`. Every token has its weight there, since OpenSearch takes a missing one for 1.

{_DEPLOY}
"""

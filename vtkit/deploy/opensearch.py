"""Target ``opensearch``: the vectors exactly (``rank_features``) and approximately (``sparse_vector``, SEISMIC), and
the models for ML Commons. SEISMIC folds numbers of dimensions modulo 32,768 (neural-search issue 1926) and rounds
weights to 256 steps below a ceiling, so ``seismic.json`` numbers the used dimensions, and the ceilings fit this index.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from vtkit.deploy.documents import Collection
from vtkit.deploy.features import (
    lucene_target,
    model_stays_outside,
    token_names,
    write_bulk,
    write_hybrid,
    write_mapping,
)
from vtkit.deploy.ml_commons import MOST_TOKENS, query_model, register, tokenizer_parts, write_zip
from vtkit.deploy.network import write_torchscript
from vtkit.deploy.portable import Source
from vtkit.deploy.target import Facts
from vtkit.encoder.asymmetric import query_side, query_table
from vtkit.encoder.documents import pruned
from vtkit.encoder.families import as_array
from vtkit.encoder.folding import folds
from vtkit.search.opensearch import MOST_CLAUSES

SEISMIC_DIMENSIONS = 32_768  # dimensions that SEISMIC can distinguish
DOCUMENT_CEILING, QUERY_CEILING = 3.0, 16.0  # SEISMIC's default ceilings; larger weights are cut to them


def write(source: Source, collection: Collection | None, folder: Path) -> Facts:
    """Write ``mapping.json``, ``bulk/``, the files of SEISMIC, and the models with what registers them."""
    table = query_table(source.encoder)
    names = token_names(source.encoder)
    why = model_stays_outside(
        source, names,
        (query_side(source.encoder) is not None and table is None, "its queries have their own network"),
        (table is not None and folds(source.encoder), "its table's vectors are folded"),
    )  # fmt: skip
    queries = source.query_vectors()
    kept = np.asarray(pruned(queries, MOST_CLAUSES)[0].sum(axis=1)).ravel()
    shares = kept / np.maximum(np.asarray(queries.sum(axis=1)).ravel(), 1e-9)
    long = queries.getnnz(axis=1) > MOST_CLAUSES
    facts: Facts = {"why": why, "most_clauses": MOST_CLAUSES, "long": int(long.sum())}
    facts["lost"] = float(1 - shares[long].min(initial=1.0))
    if collection is not None:
        facts |= write_hybrid(source, folder, _sum)
        analyser, columns = facts.get("analyser"), collection.columns
        write_mapping(folder / "mapping.json", columns, {"type": "rank_features"}, {"number_of_shards": 1}, analyser)
        write_bulk(collection, folder, None if why else names)
        facts["seismic"] = _seismic(collection, queries, folder, analyser)
    if why is None:
        _write_models(source, folder)
    return facts


def by_name(ids: Tensor, mask: Tensor) -> tuple[dict[str, Tensor]]:
    """ML Commons' input of a model."""
    return ({"input_ids": ids, "attention_mask": mask},)


def _write_models(source: Source, folder: Path) -> None:
    encoder = source.encoder
    traced = folder / "model.pt"
    write_torchscript(encoder, traced, by_name, source.texts(), source.document_length)
    weights = np.ones(int(encoder[0].auto_model.config.vocab_size), dtype=np.float32)
    parts = tokenizer_parts(encoder.tokenizer, weights, min(source.document_length, MOST_TOKENS))
    parts["post_processor"] = json.loads(encoder.tokenizer.backend_tokenizer.to_str())["post_processor"]
    files = {"model.pt": traced.read_bytes(), "tokenizer.json": json.dumps(parts).encode("ascii")}
    write_zip(folder / "encoder.zip", files)
    traced.unlink()
    register(folder / "encoder.zip", f"{source.identifier}-encoder", "SPARSE_ENCODING")
    table = query_table(encoder)
    if table is not None:
        length = min(source.query_length, MOST_TOKENS, table.tokenizer.model_max_length)
        (folder / "queries.zip").write_bytes(query_model(table.tokenizer, as_array(table.weight), length))
        register(folder / "queries.zip", f"{source.identifier}-queries", "SPARSE_TOKENIZE")


def _sum(weights: Mapping[str, float]) -> dict[str, Any]:
    """The search pipeline that adds the encoder's scores and BM25's, each scaled to 0 to 1 within a query."""
    combination = {"technique": "arithmetic_mean", "parameters": {"weights": list(weights.values())}}
    processor = {"normalization": {"technique": "min_max"}, "combination": combination}
    return {"phase_results_processors": [{"normalization-processor": processor}]}


def _seismic(collection: Collection, queries: sp.csr_matrix, folder: Path, analyser: str | None) -> Facts:
    """Write ``mapping-seismic.json`` and ``seismic.json`` if SEISMIC can hold the index."""
    used = np.flatnonzero(collection.vectors.getnnz(axis=0))
    largest = float(collection.vectors.data.max(initial=0.0)), float(queries.data.max(initial=0.0))
    ceilings = [math.ceil(weight * 1.05 * 100) / 100 for weight in largest]
    facts = {"used": len(used), "most": SEISMIC_DIMENSIONS, "largest": largest, "collide": 0}
    facts["ceilings"] = DOCUMENT_CEILING, QUERY_CEILING
    if len(used) > SEISMIC_DIMENSIONS:
        shares = np.bincount(used % SEISMIC_DIMENSIONS, minlength=SEISMIC_DIMENSIONS)
        return facts | {"collide": int(shares[shares > 1].sum())}
    places = {int(dimension): number for number, dimension in enumerate(used)}
    (folder / "seismic.json").write_text(json.dumps(places), encoding="utf-8")
    limits = {"quantization_ceiling_ingest": ceilings[0], "quantization_ceiling_search": ceilings[1]}
    field = {"type": "sparse_vector", "method": {"name": "seismic", "parameters": limits}}
    write_mapping(
        folder / "mapping-seismic.json", collection.columns, field, {"sparse": True, "number_of_shards": 1}, analyser
    )
    return facts


TARGET = lucene_target(name="opensearch", write=write, registers_models=True)

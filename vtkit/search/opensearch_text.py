"""Queries as plain text for engine ``opensearch``: the cluster looks them up in an inference-free encoder's table.

ML Commons, a plugin of OpenSearch, has models of the kind SPARSE_TOKENIZE: a zip of ``tokenizer.json`` and
``idf.json``. It decodes the tokens of a query one by one; what that gives is the feature that is asked for, and the key
of its weight. The tokenizer written here has no decoder, so that a token decodes to itself: names are as different as
the tokens are, and keep their ``##``, ``Ġ`` and ``▁``. The documents' features are called the same.

A search pipeline names the model, so that an application sends nothing but text. What it finds is compared with what
vtkit's own query vectors find before an index is used.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray

from vtkit.evaluation.measures.agreement import DEPTH
from vtkit.search.opensearch_client import advice, answers
from vtkit.settings.engines import OpenSearchSettings
from vtkit.system import console
from vtkit.system.errors import DataError, RecipeError

if TYPE_CHECKING:
    import scipy.sparse as sp
    from sentence_transformers import SparseEncoder
    from transformers import PreTrainedTokenizerFast

MOST_TOKENS = 512
"""Tokens of a query that ML Commons reads, whatever its tokenizer says."""

LARGEST_WEIGHT = 64.0
"""The largest weight of a query that Lucene takes."""

QUERIES_TRIED = 16
"""Queries whose results for the text are compared with those for the vector."""

FROM_FILES = "plugins.ml_commons.allow_registering_model_via_local_file"
"""The cluster's setting that lets models be registered."""

MODEL, MODEL_META, PIPELINE, TWO_PHASE = "model.zip", "model.json", "pipeline.json", "two-phase.json"
"""Files of what is sent, beside those of the index."""

_LEAST_WEIGHT = 2.0**-126  # zero is refused; the features of such tokens are in no document
_CHUNK_BYTES = 10_000_000  # ML Commons takes no larger ones
_CLOSE = 1e-4  # sums of the same products in another order


@dataclass(frozen=True)
class TextQueries:
    """A query table as OpenSearch takes it, and queries to try it on."""

    features: tuple[str | None, ...]
    """What each dimension is called; None for those that no query has a weight in, (vocabulary,)."""

    model: bytes
    """The zip of the tokenizer model: equal tables give equal bytes."""

    texts: tuple[str, ...]
    """Some queries, ..."""

    vectors: sp.csr_matrix
    """... and what vtkit encodes them as, (texts, vocabulary)."""

    @property
    def digest(self) -> str:
        """SHA-256 of the model, by which ML Commons knows it."""
        return hashlib.sha256(self.model).hexdigest()


def text_queries(encoder: SparseEncoder, texts: Sequence[str], length: int) -> TextQueries:
    """The query table of ``encoder``, for a cluster that is to encode queries.

    Args:
        encoder: as :func:`vtkit.encoder.checkpoint.load_encoder` gives it.
        texts: queries; the first :data:`QUERIES_TRIED` that are not blank are kept.
        length: tokens a query is cut at, no more than :data:`MOST_TOKENS`.

    Raises:
        RecipeError: queries need the model, or more than a table.
        DataError: the table has weights that Lucene does not take.
    """
    from vtkit.data.queries import is_blank
    from vtkit.encoder.asymmetric import WholeEncoder, query_table
    from vtkit.encoder.families import as_array
    from vtkit.encoder.folding import folding
    from vtkit.encoder.sides import prompt_of

    table = query_table(encoder)
    if table is None:
        raise RecipeError(
            "index.opensearch.text_queries: the queries of this encoder need the model, which the cluster does not "
            'have. Set finetune.query_encoder to "binary", "idf" or "learned", or calibrate.query_encoder to "binary" '
            'or "idf", which make a table of weights, or index.opensearch.text_queries to false.'
        )
    side = encoder.query_side if isinstance(encoder, WholeEncoder) else None
    needs = {
        f"puts {prompt_of(encoder, 'query')!r} before every query": prompt_of(encoder, "query") != "",
        "folds its vectors (casing.output)": folding(encoder) is not None,
        "keeps only the largest weights of a query (max_active_dims)": bool(side and side.max_active_dims),
    }
    if any(needs.values()):
        what = " and ".join(need for need, needed in needs.items() if needed)
        raise RecipeError(
            f"index.opensearch.text_queries: the encoder {what}, and a tokenizer model of OpenSearch cannot. Set "
            "index.opensearch.text_queries to false, or take another encoder."
        )
    limit = min(length, MOST_TOKENS, table.tokenizer.model_max_length)
    tried = tuple(dict.fromkeys(text for text in texts if not is_blank(text)))[:QUERIES_TRIED]
    return of_table(table.tokenizer, as_array(table.weight), limit, tried)


def of_table(
    tokenizer: PreTrainedTokenizerFast, weights: NDArray[np.float32], length: int, texts: tuple[str, ...]
) -> TextQueries:
    """The table of ``weights``, (vocabulary,), one for each token of ``tokenizer``; others as of
    :func:`text_queries`.

    Raises:
        DataError: a weight is below zero or above :data:`LARGEST_WEIGHT`.
    """
    from vtkit.encoder.static_queries import looked_up

    if not ((weights >= 0) & (weights <= LARGEST_WEIGHT)).all():
        raise DataError(
            f"index.opensearch.text_queries: query weights are from {weights.min():.4g} to {weights.max():.4g}, and "
            f"OpenSearch takes none below 0 or above {LARGEST_WEIGHT:g}. Set it to false, or train the table anew."
        )
    names = [tokenizer.backend_tokenizer.id_to_token(number) for number in range(len(weights))]
    features = tuple(name if name and weight > 0 else None for name, weight in zip(names, weights, strict=True))
    idf = {name: max(float(weight), _LEAST_WEIGHT) for name, weight in zip(names, weights, strict=True) if name}
    parts = tokenizer_parts(tokenizer, weights, length)
    # in ASCII: ML Commons reads idf.json in whatever encoding its machine has
    files = {name: json.dumps(value).encode("ascii") for name, value in (("tokenizer.json", parts), ("idf.json", idf))}
    return TextQueries(features, _zipped(files), texts, looked_up(tokenizer, weights, texts, length))


def tokenizer_parts(tokenizer: PreTrainedTokenizerFast, weights: NDArray[np.float32], length: int) -> dict[str, Any]:
    """``tokenizer.json`` for ML Commons, which adds special tokens, decodes and leaves special tokens out.

    There is no decoder and no post-processor; of the added tokens those without a weight are special ones, which
    changes nothing in how text is cut.
    """
    parts: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    parts |= {
        "decoder": None,
        "post_processor": None,
        "padding": None,
        "truncation": {"direction": "Right", "max_length": length, "strategy": "LongestFirst", "stride": 0},
    }
    for token in parts["added_tokens"]:
        token["special"] = not weights[token["id"]]
    merges = parts["model"].get("merges")
    if merges and not any(" " in part for pair in merges for part in pair):
        parts["model"]["merges"] = [" ".join(pair) for pair in merges]  # as the tokenizers of OpenSearch 2 write them
    return parts


def reach_models(client: Any, settings: OpenSearchSettings) -> None:
    """Nothing, if the cluster can have models; a warning where it takes none from files.

    Raises:
        DataError: it has no ML Commons.
    """
    import opensearchpy

    with answers(settings):
        with suppress(opensearchpy.NotFoundError):  # the cluster never had a model
            client.ml.search_models(body={"query": {"match_none": {}}, "size": 0})
        try:
            found = client.cluster.get_settings(include_defaults=True, flat_settings=True)
        except opensearchpy.AuthorizationException:  # not everybody may read them
            return
        allowed = {**found["defaults"], **found["persistent"], **found["transient"]}.get(FROM_FILES)
    if str(allowed) == "false":
        console.warn(
            f"OpenSearch at {settings.url} takes no models from files, so the query table cannot be registered "
            f"unless it is there already.{advice(FROM_FILES)}"
        )


def deployed_model(client: Any, model: bytes, settings: OpenSearchSettings, folder: Path) -> str:
    """The id of ``model`` on the cluster, where it answers; it is registered if nobody did yet.

    Writes the zip and what it is registered with into ``folder``.

    Raises:
        DataError: the cluster does not take it, or deploying it fails or does not end in time.
    """
    digest = hashlib.sha256(model).hexdigest()
    chunks = [model[start : start + _CHUNK_BYTES] for start in range(0, len(model), _CHUNK_BYTES)]
    meta = {
        "name": f"vtkit-{digest[:24]}",
        "version": "1",
        "description": "query table of an inference-free sparse encoder",
        "function_name": "SPARSE_TOKENIZE",
        "model_format": "TORCH_SCRIPT",
        "model_content_size_in_bytes": len(model),
        "model_content_hash_value": digest,
        "total_chunks": len(chunks),
    }
    (folder / MODEL).write_bytes(model)
    (folder / MODEL_META).write_text(json.dumps(meta, indent=1), encoding="utf-8")
    waits = _Patience(settings)
    with answers(settings):
        identity, state = _registered(client, digest)
        if identity is None:
            identity = str(client.ml.register_model_meta(body=meta)["model_id"])
            for number, chunk in enumerate(chunks):
                client.ml.upload_chunk(model_id=identity, chunk_number=number, body=chunk)
        if state in (None, "DEPLOYING"):  # of another process, or the last chunk is still being put with the others
            state = waits.until(lambda: _state(client, identity), ("REGISTERING", "DEPLOYING"))
        if state != "DEPLOYED":
            task = client.ml.deploy_model(model_id=identity)["task_id"]
            ended = waits.until(lambda: _task(client, task), ("CREATED", "RUNNING"))
            if ended != "COMPLETED":
                said = str(client.ml.get_task(task_id=task).get("error"))
                raise DataError(
                    f"OpenSearch at {settings.url} cannot deploy the tokenizer model {identity} ({ended}): "
                    f"{said[:300]}.{advice(said)}"
                )
    return identity


def pipelines(client: Any, index: str, model: str, settings: OpenSearchSettings, folder: Path) -> None:
    """Create the search pipelines: one of the name of ``index``, its default, and ``index`` + ``-two-phase``.

    The first gives text its model. The second also splits a query in two, where ``settings`` ask for it.
    """
    enricher: dict[str, Any] = {"neural_query_enricher": {"default_model_id": model}}
    wanted = {PIPELINE: (index, [enricher])}
    if settings.two_phase is not None:
        split = {"enabled": True, "two_phase_parameter": {"prune_ratio": settings.two_phase}}
        wanted[TWO_PHASE] = (two_phase_of(index), [enricher, {"neural_sparse_two_phase_processor": split}])
    for file, (name, processors) in wanted.items():
        body = {"description": f"queries of {index} as text", "request_processors": processors}
        (folder / file).write_text(json.dumps(body, indent=1), encoding="utf-8")
        with answers(settings):
            client.search_pipeline.put(id=name, body=body)


def two_phase_of(index: str) -> str:
    """The name of the pipeline that answers in two phases."""
    return f"{index}-two-phase"


def text_query(text: str, field: str) -> dict[str, Any]:
    """The request of an application."""
    return {
        "query": {"neural_sparse": {field: {"query_text": text}}},
        "size": DEPTH,
        "_source": False,
        "track_total_hits": False,
    }


def same_scores(text: NDArray[np.float32], vector: NDArray[np.float32]) -> bool:
    """Whether a query as text and as vector was answered with the same scores, best first."""
    return text.shape == vector.shape and bool(np.allclose(text, vector, rtol=_CLOSE, atol=0))


def _registered(client: Any, digest: str) -> tuple[str | None, str | None]:
    """The model of this content and its state, one that is deployed if there is; those half sent do not count."""
    import opensearchpy

    query = {
        "query": {
            "bool": {
                "filter": [{"term": {"model_content_hash_value": digest}}],
                "must_not": [{"exists": {"field": "chunk_number"}}],
            }
        },
        "size": 100,
    }
    try:
        hits = client.ml.search_models(body=query)["hits"]["hits"]
    except opensearchpy.NotFoundError:  # the cluster never had a model
        return None, None
    states = {
        str(hit["_id"]): str(hit["_source"].get("model_state"))
        for hit in hits
        if hit["_source"].get("model_content_hash_value") == digest
    }
    whole = {identity: state for identity, state in states.items() if state != "REGISTERING"}
    best = sorted(whole, key=lambda identity: (whole[identity] != "DEPLOYED", identity))
    return (best[0], whole[best[0]]) if best else (None, None)


def _state(client: Any, model: str) -> str:
    return str(client.ml.get_model(model_id=model)["model_state"])


def _task(client: Any, task: str) -> str:
    return str(client.ml.get_task(task_id=task)["state"])


class _Patience:
    """Waits for the cluster, all in all as long as ``index.opensearch.deployment_timeout`` says."""

    def __init__(self, settings: OpenSearchSettings) -> None:
        self._settings, self._end = settings, time.monotonic() + settings.deployment_timeout

    def until(self, state: Callable[[], str], others: Sequence[str]) -> str:
        """The first state that is none of ``others``.

        Raises:
            DataError: there is none in time.
        """
        pause = 0.05
        while (found := state()) in others:
            if time.monotonic() + pause > self._end:
                raise DataError(
                    f"OpenSearch at {self._settings.url}: the tokenizer model is not deployed after "
                    f"{self._settings.deployment_timeout:g} seconds, but {found}. Raise "
                    "index.opensearch.deployment_timeout, or look into the cluster's log."
                )
            time.sleep(pause)
            pause = min(2.0, 2 * pause)
        return found


def _zipped(files: dict[str, bytes]) -> bytes:
    """A zip without dates."""
    buffer = BytesIO()
    with ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(ZipInfo(name), content, compress_type=ZIP_DEFLATED)
    return buffer.getvalue()

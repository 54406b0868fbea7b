"""Queries as plain text for engine ``opensearch``: a tokenizer model of ML Commons looks up their weights in the table
of an inference-free encoder.

ML Commons decodes the tokens of a query one by one; the decoded token is the name of the feature and the key of its
weight. The tokenizer written here has no decoder, so that names are as distinct as the tokens.
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
from vtkit.settings.index import IndexSection
from vtkit.system import console
from vtkit.system.errors import DataError, RecipeError

if TYPE_CHECKING:
    import scipy.sparse as sp
    from sentence_transformers import SparseEncoder
    from transformers import PreTrainedTokenizerFast

MOST_TOKENS = 512  # tokens of a query that ML Commons reads, whatever limit its tokenizer has
LARGEST_WEIGHT = 64.0  # the largest query weight that Lucene accepts
QUERIES_TRIED = 16  # queries that are tried as text and as vector

FROM_FILES = "plugins.ml_commons.allow_registering_model_via_local_file"
"""The cluster's setting that lets models be registered."""

MODEL, MODEL_META, PIPELINE, TWO_PHASE = "model.zip", "model.json", "pipeline.json", "two-phase.json"
"""Files that are sent, beside those of the index."""

DEPLOYMENT_TIMEOUT = 300.0  # seconds that deploying a tokenizer model may take
_LEAST_WEIGHT = 2.0**-126  # zero is refused; the features of such tokens are in no document
_CHUNK_BYTES = 10_000_000  # the largest that ML Commons accepts
_CLOSE = 1e-4  # sums of the same products in another order


@dataclass(frozen=True)
class TextQueries:
    """A query table as OpenSearch takes it, and queries to try it on."""

    features: tuple[str | None, ...]  # name of each dimension; None if it has no weight in any query, (vocabulary,)
    model: bytes  # the zip of the tokenizer model: equal tables give equal bytes
    texts: tuple[str, ...]  # queries to try it on
    vectors: sp.csr_matrix  # vtkit's vectors of these queries, (texts, vocabulary)

    @property
    def digest(self) -> str:
        """SHA-256 of the model, by which ML Commons identifies it."""
        return hashlib.sha256(self.model).hexdigest()


def text_queries(encoder: SparseEncoder, texts: Sequence[str], length: int) -> TextQueries:
    """The query table of ``encoder``, for a cluster that is to encode queries.

    Args:
        texts: queries to try it on; the first :data:`QUERIES_TRIED` that are not blank are kept.
        length: tokens at which a query is cut, no more than :data:`MOST_TOKENS`.

    Raises:
        RecipeError: queries need the model, or more than a table.
        DataError: the table has weights that Lucene does not accept.
    """
    from vtkit.data.document_files import is_blank
    from vtkit.encoder.asymmetric import WholeEncoder, query_table
    from vtkit.encoder.families import as_array
    from vtkit.encoder.folding import folds
    from vtkit.encoder.sides import prompt_of

    table = query_table(encoder)
    if table is None:
        raise RecipeError(
            'index.opensearch.query = "text": queries of this encoder need the model, which the cluster does not have. '
            "Give the encoder a static query table (query_encoder of [finetune] or [calibrate]), or set "
            'index.opensearch.query to "neural_sparse".'
        )
    side = encoder.query_side if isinstance(encoder, WholeEncoder) else None
    needs = {
        f"puts {prompt_of(encoder, 'query')!r} before every query": prompt_of(encoder, "query") != "",
        "folds its vectors": folds(encoder),
        "keeps only the largest weights of a query (max_active_dims)": bool(side and side.max_active_dims),
    }
    if any(needs.values()):
        what = " and ".join(need for need, needed in needs.items() if needed)
        raise RecipeError(
            f'index.opensearch.query = "text": the encoder {what}, which tokenizer models of OpenSearch cannot do. Set '
            'index.opensearch.query to "neural_sparse", or use another encoder.'
        )
    limit = min(length, MOST_TOKENS, table.tokenizer.model_max_length)
    tried = tuple(dict.fromkeys(text for text in texts if not is_blank(text)))[:QUERIES_TRIED]
    return of_table(table.tokenizer, as_array(table.weight), limit, tried)


def of_table(
    tokenizer: PreTrainedTokenizerFast, weights: NDArray[np.float32], length: int, texts: tuple[str, ...]
) -> TextQueries:
    """The table of ``weights``, (vocabulary,), of the tokens of ``tokenizer``; other arguments as in
    :func:`text_queries`."""
    from vtkit.encoder.static_queries import looked_up

    if not ((weights >= 0) & (weights <= LARGEST_WEIGHT)).all():
        raise DataError(
            f'index.opensearch.query = "text": query weights range from {weights.min():.4g} to {weights.max():.4g}, '
            f"but OpenSearch accepts only 0 to {LARGEST_WEIGHT:g}. Set it to 'neural_sparse', or train the table again."
        )
    names = [tokenizer.backend_tokenizer.id_to_token(number) for number in range(len(weights))]
    features = tuple(name if name and weight > 0 else None for name, weight in zip(names, weights, strict=True))
    idf = {name: max(float(weight), _LEAST_WEIGHT) for name, weight in zip(names, weights, strict=True) if name}
    parts = tokenizer_parts(tokenizer, weights, length)
    # in ASCII: ML Commons reads idf.json in its machine's default encoding
    files = {name: json.dumps(value).encode("ascii") for name, value in (("tokenizer.json", parts), ("idf.json", idf))}
    model = BytesIO()
    write_zip(model, files)
    return TextQueries(features, model.getvalue(), texts, looked_up(tokenizer, weights, texts, length))


def tokenizer_parts(tokenizer: PreTrainedTokenizerFast, weights: NDArray[np.float32], length: int) -> dict[str, Any]:
    """``tokenizer.json`` for ML Commons, without decoder and post-processor. Added tokens without a weight become
    special tokens, which ML Commons drops and which does not change how text is cut."""
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


def reach_models(client: Any, settings: IndexSection) -> None:
    """Check that the cluster can hold models; warn if it accepts none from files."""
    import opensearchpy

    with answers(settings):
        with suppress(opensearchpy.NotFoundError):  # the cluster never had a model
            client.ml.search_models(body={"query": {"match_none": {}}, "size": 0})
        try:
            cluster = client.cluster.get_settings(include_defaults=True, flat_settings=True)
        except opensearchpy.AuthorizationException:  # not every user may read them
            return
        allowed = {**cluster["defaults"], **cluster["persistent"], **cluster["transient"]}.get(FROM_FILES)
    if str(allowed) == "false":
        console.warn(
            f"OpenSearch at {settings.url} accepts no models from files, so the query table cannot be registered, "
            f"unless the cluster already has it.{advice(FROM_FILES)}"
        )


def deployed_model(client: Any, model: bytes, settings: IndexSection, folder: Path) -> str:
    """The id of ``model`` on the cluster, deployed, and registered unless the cluster has it. The zip and the request
    that registers it are written into ``folder``."""
    digest = hashlib.sha256(model).hexdigest()
    name = f"vtkit-{digest[:24]}"
    meta = registration(model, name, "SPARSE_TOKENIZE", "query table of an inference-free sparse encoder")
    (folder / MODEL).write_bytes(model)
    (folder / MODEL_META).write_text(json.dumps(meta, indent=1), encoding="utf-8")
    end = time.monotonic() + DEPLOYMENT_TIMEOUT
    with answers(settings):
        identity, state = _registered(client, digest)
        if identity is None:
            identity = str(client.ml.register_model_meta(body=meta)["model_id"])
            for number, start in enumerate(range(0, len(model), _CHUNK_BYTES)):
                chunk = model[start : start + _CHUNK_BYTES]
                client.ml.upload_chunk(model_id=identity, chunk_number=number, body=chunk)
        if state in (None, "DEPLOYING"):  # another process deploys it, or the chunks are still being joined
            state = _awaited(
                lambda: str(client.ml.get_model(model_id=identity)["model_state"]),
                ("REGISTERING", "DEPLOYING"), settings, end,
            )  # fmt: skip
        if state != "DEPLOYED":
            task = client.ml.deploy_model(model_id=identity)["task_id"]
            ended = _awaited(
                lambda: str(client.ml.get_task(task_id=task)["state"]), ("CREATED", "RUNNING"), settings, end
            )
            if ended != "COMPLETED":
                said = str(client.ml.get_task(task_id=task).get("error"))
                raise DataError(
                    f"OpenSearch at {settings.url} cannot deploy the tokenizer model {identity} ({ended}): "
                    f"{said[:300]}.{advice(said)}"
                )
    return identity


def pipelines(client: Any, index: str, model: str, settings: IndexSection, folder: Path) -> None:
    """Create the search pipelines: ``index``, the default of the index of that name, which names the model of text
    queries, and, if ``settings`` ask for it, ``index`` + ``-two-phase``, which also splits a query in two."""
    enricher: dict[str, Any] = {"neural_query_enricher": {"default_model_id": model}}
    wanted = {PIPELINE: (index, [enricher])}
    if settings.opensearch.two_phase is not None:
        split = {"enabled": True, "two_phase_parameter": {"prune_ratio": settings.opensearch.two_phase}}
        wanted[TWO_PHASE] = (two_phase_of(index), [enricher, {"neural_sparse_two_phase_processor": split}])
    for file, (name, processors) in wanted.items():
        body = {"description": f"queries of {index} as text", "request_processors": processors}
        (folder / file).write_text(json.dumps(body, indent=1), encoding="utf-8")
        with answers(settings):
            client.search_pipeline.put(id=name, body=body)


def two_phase_of(index: str) -> str:
    """The name of the two-phase pipeline."""
    return f"{index}-two-phase"


def text_query(text: str, field: str) -> dict[str, Any]:
    """An application's request."""
    return {
        "query": {"neural_sparse": {field: {"query_text": text}}},
        "size": DEPTH,
        "_source": False,
        "track_total_hits": False,
    }


def same_scores(text: NDArray[np.float32], vector: NDArray[np.float32]) -> bool:
    """Whether a query has the same scores, best first, as text and as vector."""
    return text.shape == vector.shape and bool(np.allclose(text, vector, rtol=_CLOSE, atol=0))


def _registered(client: Any, digest: str) -> tuple[str | None, str | None]:
    """The id and the state of the model with this content, preferably a deployed one; incomplete ones do not count."""
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


def _awaited(state: Callable[[], str], passing: Sequence[str], settings: IndexSection, end: float) -> str:
    """The first state that is not one of ``passing``."""
    pause = 0.05
    while (reached := state()) in passing:
        if time.monotonic() + pause > end:
            raise DataError(
                f"OpenSearch at {settings.url}: the tokenizer model is still {reached} after "
                f"{DEPLOYMENT_TIMEOUT:g} seconds. See the cluster's log, and run it again."
            )
        time.sleep(pause)
        pause = min(2.0, 2 * pause)
    return reached


def registration(model: bytes, name: str, function: str, description: str) -> dict[str, Any]:
    """The request body that registers a model of ML Commons of the kind ``function`` (``SPARSE_TOKENIZE``,
    ``SPARSE_ENCODING``)."""
    return {
        "name": name,
        "version": "1",
        "description": description,
        "function_name": function,
        "model_format": "TORCH_SCRIPT",
        "model_content_size_in_bytes": len(model),
        "model_content_hash_value": hashlib.sha256(model).hexdigest(),
        "total_chunks": -(-len(model) // _CHUNK_BYTES),
    }


def write_zip(file: Path | BytesIO, files: dict[str, bytes]) -> None:
    """A zip without dates: equal contents give equal bytes."""
    with ZipFile(file, "w") as archive:
        for name, content in files.items():
            archive.writestr(ZipInfo(name), content, compress_type=ZIP_DEFLATED)

"""The routes of the service: vectors (``/embed_sparse``) in the format of text-embeddings-inference, searches
(``/search``), information and health, described by ``/openapi.json``. It is read-only, and answers contain no more of a
document than title, snippet, passage and fields."""

import asyncio
import json
import time
import traceback
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from fastapi import FastAPI, Query
from fastapi.exceptions import RequestValidationError
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from pydantic import BaseModel, ConfigDict, Field, StrictBool, field_validator
from scipy import sparse
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send
from typing_extensions import TypedDict

from vtkit.data.document_files import is_blank
from vtkit.deploy.batching import Batcher
from vtkit.deploy.limits import ErrorType, Limits, Refusal
from vtkit.deploy.served import Answer as Computed
from vtkit.deploy.served import Encoding, Kind, Searching, Served, Text, tokens_of
from vtkit.deploy.snippets import snippet
from vtkit.encoder.sides import Side
from vtkit.search.fields import MOST_CHARACTERS, ConditionError, unknown_field
from vtkit.search.results import Found, Weighted
from vtkit.system import console
from vtkit.system.errors import DataError, VtkitError, machine_failure
from vtkit.system.version import __version__

LOCAL = ("127.0.0.1", "localhost", "::1")
"""Names of a server that listens on this machine only. Requests to other names are refused there: otherwise any page in
a local browser could read the documents through its own name for this address (DNS rebinding)."""

MOST_RESULTS = 100  # results of one search
LAST_OFFSET = 9_900  # of a page
QUERY_CHARACTERS = 10_000  # of a search

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128)

COMPUTED = ("/embed_sparse", "/search")  # routes whose requests in progress are limited

PAGE = {"/": "page.html", "/page.js": "page.js"}  # files of the search page
DOCS = {"/docs": "docs.html", "/docs.js": "docs.js", "/page.css": "page.css"}  # of the page that describes the routes

HEADERS = {  # headers of every answer: a page shows the content of documents and never executes it
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

TokenId = Annotated[int, Field(strict=True, ge=0, lt=2**32)]
Item = TypeVar("Item")
NotEmpty = Annotated[Item, Field(min_length=1)]
Ids = NotEmpty[list[TokenId]]
# A string with a constraint is checked to be Unicode: half of a surrogate pair is refused with 422.


class EmbedRequest(BaseModel):
    """Texts to encode."""

    model_config = ConfigDict(cache_strings=False, use_attribute_docstrings=True)

    inputs: list[Annotated[str, Field(min_length=0)] | Ids]
    """Texts, or their token ids; a single one may stand without a list."""

    truncate: StrictBool | None = None
    """Whether longer texts are cut; null: as the server was started."""

    prompt_name: Side | None = None
    """The side of the encoder; null: documents."""

    truncation_direction: Literal["right", "Right"] = "Right"

    @field_validator(
        "inputs",
        mode="before",
        json_schema_input_type=Annotated[str, Field(min_length=1)]
        | Annotated[list[str | Ids], Field(min_length=1)]
        | Ids,
    )
    @classmethod
    def _as_list(cls, inputs: Any) -> Any:
        if inputs in ("", []):
            raise Refusal(400, "`inputs` cannot be empty", "Empty")
        ids = isinstance(inputs, list) and bool(inputs) and all(type(number) is int for number in inputs)
        return [inputs] if isinstance(inputs, str) or ids else inputs


class Settings(BaseModel):
    """The settings of a search."""

    model_config = ConfigDict(cache_strings=False, use_attribute_docstrings=True)

    run: str | None = None
    """The run or index to search; null: the first."""

    top: int = Field(10, ge=1, le=MOST_RESULTS)
    """Maximum number of results."""

    offset: int = Field(0, ge=0, le=LAST_OFFSET)
    """Number of results to leave out before these; `next` of an answer is that of the next page."""

    where: str | None = Field(None, max_length=MOST_CHARACTERS)
    """A condition on the documents' fields, such as `year >= 2020 and source in ('a', 'b')`."""

    fields: list[Annotated[str, Field(min_length=0)]] | None = None
    """The fields to return; null: all."""

    why: bool = False
    """Return what each word of the query adds to each score."""


class Parameters(Settings):
    """A search for one query."""

    q: str = Field("", max_length=QUERY_CHARACTERS)
    """The query."""

    unit: str | None = Field(None, max_length=QUERY_CHARACTERS)
    """Instead of a query: the name of a token or latent unit, or a unit's number, for the documents in which it weighs
    most."""


PARAMETERS: dict[str, Collection[str]] = {
    "/search": Parameters.model_fields,
    "/": ("q", "where", "run", "beside", "top", "unit"),
}
"""Parameters in the address of GET, by path; all other requests have none."""


class Queries(Settings):
    """A search for several queries."""

    model_config = ConfigDict(strict=True, extra="forbid")

    queries: list[Annotated[str, Field(max_length=QUERY_CHARACTERS)]] = Field(min_length=1)
    """The queries."""


class TokenWeight(TypedDict):
    """A token and its weight, or its part of a score."""

    token: str
    weight: float


class WordWeight(TypedDict):
    """The share of a query word in a score: by the encoder's tokens, and by BM25's terms."""

    word: str
    score: float
    encoder: float
    bm25: float
    tokens: list[TokenWeight]
    terms: list[TokenWeight]


class Hit(TypedDict):
    """A document that was found."""

    rank: int
    id: str
    title: str
    snippet: str
    parts: list[str]  # the snippet, cut so that every second part is a word that found the document
    passage: str | None  # the part of the text that found it; null if documents are not cut into passages
    score: float
    tokens: list[TokenWeight]
    special_tokens: list[TokenWeight]
    words: list[WordWeight]
    fields: dict[str, Any]


class Answer(TypedDict):
    """The results of a query; `next` is the offset of the next page, null if this one is not full."""

    run: str
    query: str
    warnings: list[str]
    tokens: list[TokenWeight]
    special_tokens: list[TokenWeight]
    results: list[Hit]
    next: int | None


class Answers(TypedDict):
    """The results of several queries."""

    answers: list[Answer]


class Entry(TypedDict):
    """A dimension of a vector and its weight."""

    index: int
    value: float


class Failure(TypedDict):
    """An error of a request, or of the server."""

    error: str
    error_type: ErrorType


class Service:
    """The routes as an ASGI application, with metrics."""

    def __init__(self, served: Served, limits: Limits) -> None:
        self.served, self.limits = served, limits
        self.under_way = 0
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter("vtkit_requests", "Requests answered.", ["route", "status"], registry=registry)
        self.seconds = Histogram(
            "vtkit_request_seconds", "Time from head to end of answer.", ["route"], buckets=SECONDS, registry=registry
        )
        self.batches = Histogram(
            "vtkit_batch_requests", "Requests computed together.", ["kind"], buckets=REQUESTS, registry=registry
        )
        self.batcher: Batcher[Kind, Sequence[Text], Computed] = Batcher(
            served.compute,
            limits.batch_tokens,
            lambda kind, requests: self.batches.labels(getattr(kind, "side", "search")).observe(requests),
        )
        under_way = Gauge("vtkit_requests_under_way", "Requests not answered yet.", registry=registry)
        under_way.set_function(lambda: self.under_way)
        hosts = [*LOCAL, "[::1]"] if limits.host in LOCAL else ["*"]
        refusals = (HTTPException, Refusal, RequestValidationError, ClientDisconnect, VtkitError, Exception)
        self.app = FastAPI(
            title="vtkit serve",
            summary="Sparse vectors and searches",
            version=__version__,
            docs_url=None,  # these pages would load scripts from elsewhere; docs.html does not
            redoc_url=None,
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts)],
            exception_handlers=dict.fromkeys(refusals, self._failed),
            generate_unique_id_function=lambda route: route.name,
        )
        add = self.app.add_api_route
        for path, endpoint, model, statuses in (
            ("/embed_sparse", self.embed_sparse, list[list[Entry]], (400, 408, 413, 415, 422, 424, 429, 503)),
            ("/search", self.search, Answer, (400, 404, 422, 424, 429, 503)),
            ("/search", self.search_several, Answers, (400, 404, 408, 413, 415, 422, 424, 429, 503)),
            ("/info", self.info, dict[str, Any], (422,)),
        ):
            answers: dict[int | str, dict[str, Any]] = {status: {"model": Failure} for status in statuses}
            method = "GET" if endpoint in (self.search, self.info) else "POST"
            add(path, endpoint, methods=[method], responses={200: {"model": model}, **answers})
        failed: dict[int | str, dict[str, Any]] = {422: {"model": Failure}}
        add("/health", self.health, response_class=Response, responses={**failed, 503: {"model": Failure}})
        add("/metrics", self.metrics, response_class=PlainTextResponse, responses=failed)
        for path in {**DOCS, **(PAGE if served.searchers else {})}:
            add(path, _page, include_in_schema=False)
        self.methods: dict[str, list[str]] = {}  # of each path
        for route in self.app.routes:
            assert isinstance(route, Route)
            self.methods.setdefault(route.path, []).extend(route.methods or ())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, status = time.monotonic(), 499  # the client closed the connection before the answer
        counted = ExitStack()

        async def send_noted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            counted.close()  # clients may take their time to read the answer
            await send(message)

        try:
            self._check_parameters(Request(scope))
            asked = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope  # the server sends no body
            if scope["path"] in COMPUTED:
                counted.enter_context(self._counted())
                if scope["method"] == "POST":
                    receive = _received(await self._body(Request(scope, receive)), receive)
            await self.app(asked, receive, send_noted)
        except (Refusal, ClientDisconnect) as error:
            await (await self._failed(Request(scope), error))(scope, receive, send_noted)
        finally:
            counted.close()
            route = scope["path"] if scope["path"] in self.methods else "other"
            self.requests.labels(route, str(status)).inc()
            self.seconds.labels(route).observe(time.monotonic() - started)

    def _check_parameters(self, request: Request) -> None:
        """Refuse parameters of the address that the path does not have: a condition that is misspelt or given twice
        would be left out in silence."""
        path, given = request.scope["path"], [name for name, _ in request.query_params.multi_items()]
        known = PARAMETERS.get(path, ()) if request.method != "POST" else ()
        for name in given if path in self.methods else ():
            if name not in known or (name != "fields" and given.count(name) > 1):
                said = f"takes {', '.join(known)}, each once" if known else "takes no parameters in its address"
                raise Refusal(422, f"{name}: {path} {said}")

    async def embed_sparse(self, request: Request, asked: EmbedRequest) -> Response:
        """The vectors of one or several texts."""
        truncate = self.limits.truncate if asked.truncate is None else asked.truncate
        kind = Encoding(asked.prompt_name or "document", truncate)
        vectors = await self._answer(request, kind, asked.inputs, self.served.longest(kind.side))
        return StreamingResponse(_rows(vectors), media_type="application/json")

    async def search(self, request: Request, asked: Annotated[Parameters, Query()]) -> Response:
        """The results of one query in one run."""
        name, query = ("q", asked.q) if asked.unit is None else ("unit", asked.unit)
        if name == "unit" and asked.q:
            raise Refusal(422, "`unit` stands in place of `q`. Give one of them.")
        (answer,) = await self._searched(request, asked, name, [query])
        return _json(answer)

    async def search_several(self, request: Request, asked: Queries) -> Response:
        """Search one run for several queries, and return the results of each."""
        return _json({"answers": await self._searched(request, asked, "queries", asked.queries)})

    async def _searched(
        self, request: Request, asked: Settings, name: str, queries: Sequence[str]
    ) -> list[dict[str, Any]]:
        """An :class:`Answer` to each of ``queries``, which the request has under ``name``."""
        searchers = self.served.searchers
        if not searchers:
            raise Refusal(404, "this server has a model but no run, so there is nothing to search")
        if any(map(is_blank, queries)):
            raise Refusal(400, f"`{name}` cannot be empty", "Empty")
        run = asked.run or next(iter(searchers))
        if run not in searchers:
            raise Refusal(404, f"`run` must be {' or '.join(searchers)}")
        kinds = searchers[run].kinds
        for field in asked.fields or ():
            if field not in kinds:
                raise Refusal(422, f"`fields`: {unknown_field(field, kinds)}")
        if name == "unit" and searchers[run].dimension(queries[0]) is None:
            raise Refusal(404, f"`unit`: the index has no token or unit {queries[0]!r}")
        kind = Searching(run, asked.top, asked.offset, asked.where, asked.why, name == "unit")
        found = await self._answer(request, kind, queries, searchers[run].query_length)
        return [_answer(each, asked, run) for each in found]

    async def info(self) -> Response:
        """The model, the runs and the limits."""
        searchers = self.served.searchers
        return _json(
            {
                "model_id": self.served.name,
                "model_sha": None,
                "model_dtype": "bfloat16" if self.served.precision == "bf16" else "float32",
                "served_model_name": self.served.name,
                "model_type": {"embedding": {"pooling": "splade"}},
                "max_concurrent_requests": self.limits.requests,
                "max_input_length": self.served.longest("document"),
                "max_batch_tokens": self.limits.batch_tokens,
                "max_batch_requests": None,
                "max_client_batch_size": self.limits.texts,
                "auto_truncate": self.limits.truncate,
                "tokenization_workers": 1,
                "version": __version__,
                "sha": None,
                "docker_label": None,
                "max_query_length": self.served.longest("query"),
                "runs": {name: len(searcher.documents) for name, searcher in searchers.items()},
                "fields": {name: dict(searcher.kinds) for name, searcher in searchers.items()},
            }
        )

    async def health(self) -> Response:
        """Whether the documents are those that were opened."""
        try:
            for searcher in self.served.searchers.values():
                searcher.documents.check_unchanged()
        except DataError as error:
            raise Refusal(503, str(error), "Unhealthy") from error
        return Response()

    async def metrics(self) -> Response:
        """For Prometheus."""
        return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Limit the requests in progress."""
        if self.under_way >= self.limits.requests:
            raise Refusal(429, f"{self.limits.requests} requests are in progress. Try again.", "Overloaded")
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1

    async def _body(self, request: Request) -> bytes:
        """The body of a request; Refusal if it is no JSON, too large, or too slow."""
        kind, most = request.headers.get("content-type", "").partition(";")[0].strip().lower(), self.limits.body_bytes
        if kind != "application/json" and not kind.endswith("+json"):
            raise Refusal(415, "the body must be JSON: Content-Type: application/json")
        length, body = request.headers.get("content-length", "0"), bytearray()
        try:
            async with asyncio.timeout(self.limits.seconds):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > most or int(length) > most:
                        raise Refusal(413, f"the body must have at most {most:,} bytes. Send fewer or shorter texts.")
        except TimeoutError:
            raise Refusal(408, f"the body did not arrive within {self.limits.seconds:g} seconds") from None
        return bytes(body)

    async def _answer(self, request: Request, kind: Kind, texts: Sequence[Text], longest: int) -> Any:
        """The computed answer to a request, of whose texts ``longest`` tokens are read; Refusal if it takes too long,
        ClientDisconnect if the client has gone."""
        if len(texts) > self.limits.texts:
            raise Refusal(422, f"batch size {len(texts)} > maximum allowed batch size {self.limits.texts}")
        computed = self.batcher.submit(kind, texts, tokens_of(texts, longest))
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            async with asyncio.timeout(self.limits.seconds):
                await asyncio.wait((computed, gone), return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            said = f"the request took longer than {self.limits.seconds:g} seconds. Try again, with less text."
            raise Refusal(503, said, "Overloaded") from None
        finally:
            gone.cancel()
            if not computed.done():
                computed.cancel()
        if computed.cancelled():
            raise ClientDisconnect
        return computed.result()

    async def _failed(self, request: Request, error: Exception) -> Response:
        """The answer to a request that failed; failures that are not the client's are also reported on the server."""
        path = request.scope["path"]
        headers: Mapping[str, str] | None = None
        match error:
            case ClientDisconnect():
                return Response(status_code=499)
            case Refusal(status=status, kind=kind):
                said, headers = str(error), {"connection": "close"} if status == 408 else None
            case ConditionError():
                status, kind, said = 422, "Validation", f"`where`: {error}"
            case RequestValidationError():
                first = error.errors()[0]
                invalid = first["type"] == "json_invalid"
                status, kind = 400 if invalid else 422, "Validation"
                said = "Invalid JSON" if invalid else ": ".join(map(str, (*first["loc"][1:], first["msg"])))
            case HTTPException(status_code=400):
                status, kind, said = 400, "Validation", "Invalid JSON"
            case HTTPException(status_code=405):
                status, kind, methods = 405, "Validation", self.methods[path]
                said, headers = f"{path} needs the method {' or '.join(methods)}", {"allow": ", ".join(methods)}
            case HTTPException(status_code=status):
                kind, said = "Validation", f"there is no such path. There are {', '.join(self.methods)}"
            case _ if (failure := error if isinstance(error, VtkitError) else machine_failure(error)) is not None:
                console.warn(f"a request failed: {failure}")
                status, kind, said = 424, "Backend", str(failure)
            case _:
                console.fail(f"this is a bug in vtkit, please report it:\n{''.join(traceback.format_exception(error))}")
                status, kind, said = 500, "Backend", f"a bug in vtkit: {type(error).__name__}"
        return _json({"error": said, "error_type": kind}, status, headers)


async def _rows(vectors: sparse.csr_matrix) -> AsyncIterator[bytes]:
    """The JSON of vectors, one at a time, at the speed at which the client reads."""
    for number, (start, end) in enumerate(zip(vectors.indptr[:-1], vectors.indptr[1:], strict=True)):
        weights = map(str, vectors.data[start:end].astype(np.float32))  # the shortest decimals that read back the same
        values = zip(vectors.indices[start:end].tolist(), weights, strict=True)
        row = ",".join(f'{{"index":{index},"value":{value}}}' for index, value in values)
        yield f"{',' if number else '['}[{row}]{']' if number == vectors.shape[0] - 1 else ''}".encode()


def _weights_by_name(tokens: Weighted) -> list[dict[str, Any]]:
    return [{"token": token, "weight": weight} for token, weight in tokens]


def _answer(found: Found, asked: Settings, run: str) -> dict[str, Any]:
    """An :class:`Answer`; of each document's text, only a snippet."""
    results = [
        {
            "rank": result.rank,
            "id": result.id,
            "title": result.title,
            "snippet": "".join(parts := snippet(result.shown, result.places)),
            "parts": parts,
            "passage": result.passage,
            "score": result.score,
            "tokens": _weights_by_name(result.tokens),
            "special_tokens": _weights_by_name(result.special_tokens),
            "words": [
                word._asdict() | {"tokens": _weights_by_name(word.tokens), "terms": _weights_by_name(word.terms)}
                for word in result.words
            ],
            "fields": {
                name: value for name, value in result.fields.items() if asked.fields is None or name in asked.fields
            },
        }
        for result in found.results
    ]
    following = asked.offset + asked.top
    return {
        "run": run,
        "query": found.query,
        "warnings": list(found.warnings),
        "tokens": _weights_by_name(found.tokens),
        "special_tokens": _weights_by_name(found.special_tokens),
        "results": results,
        "next": following if len(results) == asked.top and following <= LAST_OFFSET else None,
    }


def _received(body: bytes, receive: Receive) -> Receive:
    """A body that was received already, then ``receive``."""
    messages: list[Message] = [{"type": "http.request", "body": body}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _page(request: Request) -> Response:
    return FileResponse(Path(__file__).parent / "page" / {**DOCS, **PAGE}[request.scope["path"]])


def _json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    text = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
    return Response(text, status, headers, "application/json")

"""The routes of the service: vectors (``/embed_sparse``), searches (``/search``), information and health, in the format
of text-embeddings-inference. It is read-only, and answers contain no more of a document than a snippet."""

import asyncio
import json
import re
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from typing import Any, TypeVar

import numpy as np
from pydantic_core import from_json
from scipy import sparse
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from vtkit.data.document_files import is_blank
from vtkit.deploy.batching import Batcher
from vtkit.deploy.limits import MOST_RESULTS, Limits, Refusal, empty, invalid, overloaded
from vtkit.deploy.metrics import MEDIA_TYPE, Metrics
from vtkit.deploy.served import Answer, Encoding, Kind, Searching, Served, Text, Work
from vtkit.deploy.snippets import snippet
from vtkit.search.results import Found, Weighted
from vtkit.system import console
from vtkit.system.errors import DataError, VtkitError, machine_failure
from vtkit.system.version import __version__

T = TypeVar("T")

LOCAL = ("127.0.0.1", "localhost", "::1")  # names of a server that listens on this machine only

PAGE = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}

HEADERS = {  # headers of every answer: a page shows the content of documents and never executes it
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class Service:
    """The routes as an ASGI application, with metrics and headers. On a local ``host``, requests to other names are
    refused: otherwise any page in a local browser could read the documents through its own name for this address (DNS
    rebinding)."""

    def __init__(self, served: Served, limits: Limits, host: str) -> None:
        self.served, self.limits, self.hosts = served, limits, LOCAL if host in LOCAL else None
        self.under_way = 0
        self.metrics = Metrics(lambda: len(self.batcher), lambda: self.under_way)
        self.batcher: Batcher[Kind, Work, Answer] = Batcher(served.compute, limits.batch_tokens, self._note_batch)
        self.computing: asyncio.Task[None] | None = None
        self.routes: dict[str, tuple[str, Callable[[Request], Awaitable[Response]]]] = {
            "/embed_sparse": ("POST", self._limited(self.embed_sparse)),
            "/search": ("GET", self._limited(self.search)),
            "/info": ("GET", self.info),
            "/health": ("GET", self.health),
            "/metrics": ("GET", self.measured),
        }
        if served.searchers:
            self.routes |= dict.fromkeys(PAGE, ("GET", _page))
        self.app = Starlette(
            routes=[Route(path, function, methods=[method]) for path, (method, function) in self.routes.items()],
            exception_handlers={Refusal: _refused, HTTPException: self._unknown},
            lifespan=self._computing,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.monotonic(), 499  # the client closed the connection before the answer

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in HEADERS.items())]
            await send(message)

        host = re.sub(r":\d*$", "", Headers(scope=scope).get("host", "")).strip("[]").lower()  # without the port
        if self.hosts is not None and host not in self.hosts:
            refusal = invalid(
                f"this server answers requests to {', '.join(self.hosts)} only. Start it with another --host to reach "
                "it from elsewhere, or let its proxy send the host name localhost.",
                421,
            )
            await _json(refusal.to_json(), refusal.status)(scope, receive, send_noted)
        else:
            try:
                await self.app(scope, receive, send_noted)
            except Exception as error:
                _failed(error)  # reports it on the server; the connection is closed
                raise
        route = scope["path"] if scope["path"] in self.routes else "other"
        self.metrics.answered(route, status, time.monotonic() - started)

    @asynccontextmanager
    async def _computing(self, _: Starlette) -> AsyncIterator[None]:
        self.computing = asyncio.create_task(self.batcher.run())
        yield
        self.computing.cancel()
        with suppress(asyncio.CancelledError):
            await self.computing

    def _note_batch(self, kind: Kind, requests: int, seconds: float) -> None:
        self.metrics.computed("search" if isinstance(kind, Searching) else kind.side, requests, seconds)

    def _limited(
        self, answer: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Limit the requests in progress, and turn every failure into an answer."""

        async def answered(request: Request) -> Response:
            if self.under_way >= self.limits.requests:
                raise overloaded(f"{self.limits.requests} requests are in progress. Try again.")
            self.under_way += 1
            try:
                return await answer(request)
            except ClientDisconnect:
                return Response(status_code=499)
            except (Refusal, HTTPException):
                raise
            except Exception as error:
                raise _failed(error) from error
            finally:
                self.under_way -= 1

        return answered

    async def embed_sparse(self, request: Request) -> Response:
        """The vectors of one or several texts."""
        texts, side, truncate = _wanted(await self._body(request), self.limits)
        work = Work(texts, self.limits.truncate if truncate is None else truncate)
        vectors = await self._answer(request, Encoding(side), work, work.tokens(self.served.longest(side)))
        return StreamingResponse(_rows(vectors), media_type="application/json")

    async def search(self, request: Request) -> Response:
        """The results of one query in one run."""
        given = request.query_params
        query, run, top, why = given.get("q", ""), given.get("run"), given.get("top", "10"), given.get("why", "0")
        searchers = self.served.searchers
        if not searchers:
            raise invalid("this server has a model but no run, so there is nothing to search", 404)
        if is_blank(query):
            raise empty("q")
        if len(query) > self.limits.query_characters:
            raise invalid(f"`q` must have at most {self.limits.query_characters:,} characters, not {len(query):,}")
        if run is not None and run not in searchers:
            raise invalid(f"`run` must be {' or '.join(searchers)}", 404)
        if not (top.isascii() and top.isdigit() and len(top) < 10 and 1 <= int(top) <= MOST_RESULTS):
            raise invalid(f"`top` must be a number from 1 to {MOST_RESULTS}")
        if why not in ("0", "1"):
            raise invalid("`why` must be 0 or 1")
        name = run or next(iter(searchers))
        work = Work([query])
        cost = work.tokens(searchers[name].query_length)
        return _json(_found_json(name, await self._answer(request, Searching(name, int(top), why == "1"), work, cost)))

    async def info(self, _: Request) -> Response:
        """The model, the runs and the limits."""
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
                "runs": {name: len(searcher.documents) for name, searcher in self.served.searchers.items()},
            }
        )

    async def health(self, _: Request) -> Response:
        """Whether requests are being computed, over the documents that were opened."""
        if self.computing is None or self.computing.done():
            raise Refusal(503, "Unhealthy", "unhealthy")
        try:
            for searcher in self.served.searchers.values():
                searcher.documents.check_unchanged()
        except DataError as error:
            raise Refusal(503, "Unhealthy", str(error)) from error
        return Response()

    async def measured(self, _: Request) -> Response:
        """For Prometheus."""
        return Response(self.metrics.text(), media_type=MEDIA_TYPE)

    async def _body(self, request: Request) -> Any:
        """The JSON of a request; Refusal where it is not JSON, too large, or too slow."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json" and not kind.endswith("+json"):
            raise invalid("the body must be JSON: Content-Type: application/json", 415)
        length, most = request.headers.get("content-length", ""), self.limits.body_bytes
        too_large = invalid(f"the body must have at most {most:,} bytes. Send fewer or shorter texts.", 413)
        if length.isdigit() and (len(length) > 18 or int(length) > most):
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.seconds):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > most:
                        raise too_large
        except TimeoutError:
            raise invalid(f"the body did not arrive within {self.limits.seconds:g} seconds", 408) from None
        try:
            return from_json(bytes(body), cache_strings=False)
        except ValueError as error:
            raise invalid(f"the body is not valid JSON: {error}", 400) from None

    async def _answer(self, request: Request, kind: Kind, work: Work, cost: int) -> Any:
        """The computed answer to a request; Refusal if it takes too long, ClientDisconnect if the client has gone."""
        computed = asyncio.ensure_future(self.batcher.submit(kind, work, cost))
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            waited = {computed, gone}
            done, _ = await asyncio.wait(waited, timeout=self.limits.seconds, return_when=asyncio.FIRST_COMPLETED)
            if computed in done:
                return computed.result()
            if gone in done:
                raise ClientDisconnect
            raise overloaded(
                f"the request took longer than {self.limits.seconds:g} seconds. Try again, with less text.", 503
            )
        finally:
            computed.cancel()
            gone.cancel()

    async def _unknown(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.scope["path"]
        if error.status_code == 405 and path in self.routes:
            return _json(invalid(f"{path} needs the method {self.routes[path][0]}").to_json(), 405, error.headers)
        known = ", ".join(self.routes)
        return _json(invalid(f"there is no such path. There are {known}").to_json(), error.status_code)


def _wanted(body: Any, limits: Limits) -> tuple[list[Text], Any, bool | None]:
    """The texts, their side, and whether to cut them (None if the request does not say); Refusal of an invalid
    request."""
    if not isinstance(body, dict) or "inputs" not in body:
        raise invalid('the body must be an object with `inputs`, such as {"inputs": "a text"}')
    inputs, truncate, prompt = body["inputs"], body.get("truncate"), body.get("prompt_name")
    if truncate is not None and not isinstance(truncate, bool):
        raise invalid("`truncate` must be true or false")
    if prompt not in (None, "query", "document"):
        raise invalid('`prompt_name` must be "query" or "document"')
    if str(body.get("truncation_direction", "right")).lower() != "right":
        raise invalid('`truncation_direction` must be "Right": texts are cut at their end')
    if inputs in ("", []):
        raise empty("inputs")
    if isinstance(inputs, str) or _are_ids(inputs):
        inputs = [inputs]
    if not isinstance(inputs, list):
        raise invalid("`inputs` must be a text, a list of texts, or token ids")
    if len(inputs) > limits.texts:
        raise invalid(f"batch size {len(inputs)} > maximum allowed batch size {limits.texts}")
    for number, text in enumerate(inputs):
        if not isinstance(text, str) and not _are_ids(text):
            raise invalid(f"`inputs` must be a text, a list of texts, or token ids: entry {number} is neither")
    return inputs, prompt or "document", truncate


def _are_ids(value: Any) -> bool:
    return (
        isinstance(value, list) and bool(value) and all(type(number) is int and 0 <= number < 2**32 for number in value)
    )


async def _rows(vectors: sparse.csr_matrix) -> AsyncIterator[bytes]:
    """The JSON of vectors, one at a time, at the speed at which the client reads."""
    for number, (start, end) in enumerate(zip(vectors.indptr[:-1], vectors.indptr[1:], strict=True)):
        weights = map(str, vectors.data[start:end].astype(np.float32))  # the shortest decimals that read back the same
        values = zip(vectors.indices[start:end].tolist(), weights, strict=True)
        row = ",".join(f'{{"index":{index},"value":{value}}}' for index, value in values)
        yield f"{',' if number else '['}[{row}]{']' if number == vectors.shape[0] - 1 else ''}".encode()


def _found_json(run: str, found: Found) -> dict[str, Any]:
    def named(tokens: Weighted) -> list[dict[str, Any]]:
        return [{"token": token, "weight": weight} for token, weight in tokens]

    return {
        "run": run,
        "query": found.query,
        "warnings": found.warnings,
        "tokens": named(found.tokens),
        "special_tokens": named(found.special_tokens),
        "results": [
            {
                "rank": result.rank,
                "id": result.id,
                "title": result.title,
                "snippet": snippet(
                    result.text, zip(result.texts, (weight for _, weight in result.tokens), strict=True)
                ),
                "score": result.score,
                "tokens": [
                    {**token, "text": text} for token, text in zip(named(result.tokens), result.texts, strict=True)
                ],
                "special_tokens": named(result.special_tokens),
                "words": [
                    {**part._asdict(), "tokens": named(part.tokens), "terms": named(part.terms)}
                    for part in result.words
                ],
            }
            for result in found.results
        ],
    }


def _failed(error: Exception) -> Refusal:
    """The client's answer to an error, which is also reported on the server."""
    known = error if isinstance(error, VtkitError) else machine_failure(error)
    if known is not None:
        console.warn(f"a request failed: {known}")
        return Refusal(424, "Backend", str(known))
    console.fail("this is a bug in vtkit, please report it:\n" + "".join(traceback.format_exception(error)))
    return Refusal(500, "Backend", f"a bug in vtkit: {type(error).__name__}")


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _page(request: Request) -> Response:
    name, media_type = PAGE[request.scope["path"]]
    return Response(files("vtkit.deploy").joinpath("page", name).read_bytes(), media_type=media_type)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    headers = {"connection": "close"} if error.status == 408 else None
    return _json(error.to_json(), error.status, headers)


def _json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    text = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
    return Response(text, status, headers, "application/json")

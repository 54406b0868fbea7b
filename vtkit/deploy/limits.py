"""Address and limits of a server, beyond which it refuses requests, so that memory stays bounded; and refusals."""

from typing import Annotated, Literal

from pydantic import Field

from vtkit.settings.types import PositiveInt, Section


class Limits(Section):
    """Address and limits; defaults are those of text-embeddings-inference, if it has the same limit."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 lets other machines in."""

    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """Port; 0 takes any free one."""

    truncate: bool = True
    """Cut longer texts, as by default, or refuse them, unless a request says otherwise."""

    texts: PositiveInt = 32
    """Maximum number of texts in a request."""

    batch_tokens: Annotated[int, Field(ge=1)] = 16_384
    """Approximate number of waiting tokens to encode together."""

    body_bytes: Annotated[int, Field(ge=1)] = 2_000_000
    """Maximum size of a request in bytes."""

    requests: PositiveInt = 128
    """Maximum number of simultaneous requests; more are refused."""

    seconds: Annotated[float, Field(ge=0.1)] = 30.0
    """Seconds to receive a request, and again to answer it."""


ErrorType = Literal["Backend", "Empty", "Overloaded", "Unhealthy", "Validation"]


class Refusal(Exception):
    """The refusal of a request, with the status of HTTP and the type of text-embeddings-inference."""

    def __init__(self, status: int, message: str, kind: ErrorType = "Validation") -> None:
        super().__init__(message)
        self.status, self.kind = status, kind

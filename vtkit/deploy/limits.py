"""Limits of a server's requests, beyond which it refuses, so that memory stays bounded; and refusals."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Limits:
    """The limits; defaults are those of text-embeddings-inference, if it has the same limit."""

    truncate: bool = True  # whether long texts are cut unless a request says otherwise; else they are refused
    texts: int = 32  # texts per request
    body_bytes: int = 2_000_000  # per request
    requests: int = 128  # in progress at the same time; others are told to try again
    batch_tokens: int = 16_384  # approximate tokens of the waiting requests that are encoded together
    seconds: float = 30.0  # for receiving a request, and again for answering it


ErrorType = Literal["Backend", "Empty", "Overloaded", "Unhealthy", "Validation"]


class Refusal(Exception):
    """The refusal of a request, with the status of HTTP and the type of text-embeddings-inference."""

    def __init__(self, status: int, message: str, kind: ErrorType = "Validation") -> None:
        super().__init__(message)
        self.status, self.kind = status, kind

"""Limits of a server's requests, beyond which it refuses, so that memory stays bounded; and refusals, in the format of
text-embeddings-inference: ``{"error": …, "error_type": …}``."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

MOST_RESULTS = 100  # results of one search


@dataclass(frozen=True)
class Limits:
    """The limits; defaults are those of text-embeddings-inference, if it has the same limit."""

    truncate: bool = True  # whether long texts are cut unless a request says otherwise; else they are refused
    texts: int = 32  # texts per request
    body_bytes: int = 2_000_000  # per request
    query_characters: int = 10_000  # per search
    requests: int = 128  # in progress at the same time; others are told to try again
    batch_tokens: int = 16_384  # approximate tokens of the waiting requests that are encoded together
    seconds: float = 30.0  # for receiving a request, and again for answering it


ErrorType: TypeAlias = Literal["Backend", "Empty", "Overloaded", "Tokenizer", "Unhealthy", "Validation"]


class Refusal(Exception):
    """The refusal of a request."""

    def __init__(self, status: int, kind: ErrorType, message: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message

    def to_json(self) -> dict[str, str]:
        """The body of the answer."""
        return {"error": self.message, "error_type": self.kind}


def invalid(message: str, status: int = 422) -> Refusal:
    """An invalid request."""
    return Refusal(status, "Validation", message)


def empty(name: str) -> Refusal:
    """A request without input."""
    return Refusal(400, "Empty", f"`{name}` cannot be empty")


def overloaded(message: str, status: int = 429) -> Refusal:
    """A request to a busy server."""
    return Refusal(status, "Overloaded", message)

"""Refusals of requests, in the format of text-embeddings-inference: ``{"error": …, "error_type": …}``."""

from __future__ import annotations

from typing import Literal, TypeAlias

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

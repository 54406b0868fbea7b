"""Answers to requests that cannot be met, as text-embeddings-inference has them: ``{"error": …, "error_type": …}``."""

from __future__ import annotations

from typing import Literal, TypeAlias

ErrorType: TypeAlias = Literal["Backend", "Empty", "Overloaded", "Tokenizer", "Unhealthy", "Validation"]


class Refusal(Exception):
    """Why a request is not met."""

    def __init__(self, status: int, kind: ErrorType, message: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message

    def to_json(self) -> dict[str, str]:
        """The body of the answer."""
        return {"error": self.message, "error_type": self.kind}


def invalid(message: str, status: int = 422) -> Refusal:
    """A request that is not as it should be."""
    return Refusal(status, "Validation", message)


def empty(name: str) -> Refusal:
    """A request without anything to work on."""
    return Refusal(400, "Empty", f"`{name}` cannot be empty")


def overloaded(message: str, status: int = 429) -> Refusal:
    """A request that comes when there is too much to do."""
    return Refusal(status, "Overloaded", message)

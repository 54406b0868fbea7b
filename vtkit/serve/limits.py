"""What a server takes and for how long: beyond these limits it answers with a refusal, so that memory stays bounded."""

from __future__ import annotations

from dataclasses import dataclass

MOST_RESULTS = 100
"""Results of one search."""


@dataclass(frozen=True)
class Limits:
    """The defaults are those of text-embeddings-inference where it has the same limit."""

    truncate: bool = True
    """Whether texts longer than the model reads are cut where a request does not say; else they are refused."""

    texts: int = 32
    """Texts of one request."""

    body_bytes: int = 2_000_000
    """Of one request."""

    query_characters: int = 10_000
    """Of a search."""

    requests: int = 128
    """Under way at once; further ones are told to come again."""

    batch_tokens: int = 16_384
    """Of waiting requests that are encoded together, about."""

    seconds: float = 30.0
    """To receive a request, and again to answer it."""

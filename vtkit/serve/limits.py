"""Limits of a server's requests; beyond them it refuses, so that memory stays bounded."""

from __future__ import annotations

from dataclasses import dataclass

MOST_RESULTS = 100  # results of one search


@dataclass(frozen=True)
class Limits:
    """The limits; defaults are those of text-embeddings-inference, if it has the same limit."""

    truncate: bool = True
    """Whether texts longer than the model's limit are cut unless a request says otherwise; else they are refused."""

    texts: int = 32  # texts per request
    body_bytes: int = 2_000_000  # per request
    query_characters: int = 10_000  # per search
    requests: int = 128  # in progress at the same time; others are told to try again
    batch_tokens: int = 16_384  # approximate tokens of the waiting requests that are encoded together
    seconds: float = 30.0  # for receiving a request, and again for answering it

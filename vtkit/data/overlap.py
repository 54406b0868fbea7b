"""Queries that a model is trained or chosen on and queries that it is judged on, compared by their texts: on queries
that it has seen, a model looks better than it is."""

import unicodedata
from collections.abc import Set
from functools import cache
from pathlib import Path

import regex

from vtkit.data import hub
from vtkit.data.collections import queries_of
from vtkit.data.retrieval import RetrievalSet
from vtkit.data.sources import hub_repositories, is_public
from vtkit.settings.named import is_local, local_path
from vtkit.system import console
from vtkit.system.errors import DataError

WHOLE = 0.9  # of the evaluated queries: with more of them in the training data, training is refused

_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+")


def query_key(text: str) -> str:
    """The words of a query in NFKC and case-folded, without punctuation, by which equal queries are recognised."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(_WORD.findall(folded)) or folded.strip()


def query_keys(name: str, split: str) -> Set[str]:
    """The keys of the judged queries of a collection, or of a file of training data; empty if it cannot be read here
    and now: it is damaged, has no such judgements, or has not been fetched yet."""
    path = Path(local_path(name) or "")
    if is_local(name):
        files = path.rglob("*") if path.is_dir() else [path]
        stamp = tuple((str(file), file.stat().st_mtime_ns) for file in files if file.is_file())
    elif is_public(name) and all(hub.in_cache(each.id, "dataset", each.revision) for each in hub_repositories(name)):
        stamp = ()
    else:
        return frozenset()
    return _keys(name, split, stamp)


def own_documents_doubt(data: RetrievalSet, setting: str) -> str | None:
    """A warning if queries are documents of the collection under the same id, which names the ``setting`` that leaves
    these documents out; None if they are left out already. Ids that coincide by chance are printed, and are no
    reason for a warning."""
    if data.own_documents:
        return None
    numbers = data.numbers_of([query.id for query in data.queries]).tolist()
    both = [(query, number) for query, number in zip(data.queries, numbers, strict=True) if number >= 0]
    same = sum(query_key(query.text) in query_key(data.contents[number]) for query, number in both)
    counted = f"{same or len(both):,} of {len(data.queries):,} queries of {data.name}"
    if same:
        what = "are documents of the same id, and find themselves"
        return f"{counted} {what}. Set {setting} to leave a query's own document out of its results and negatives"
    if both:
        console.say(f"{counted} have the id of a document by chance")
    return None


@cache
def _keys(name: str, split: str, stamp: tuple[tuple[str, int], ...]) -> Set[str]:
    try:
        return frozenset(query_key(query.text) for query in queries_of(name, split))
    except DataError:  # which the check of this collection reports
        return frozenset()

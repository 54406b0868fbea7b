"""What a public collection is to vtkit: a record, from which its names, splits, repositories and loading derive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vtkit.data.retrieval import RetrievalSet
from vtkit.errors import DataError


@dataclass(frozen=True)
class PublicCollection:
    """A judged collection of the Hugging Face hub in one or more languages, named ``NAME:LANGUAGE`` in recipes."""

    name: str
    title: str
    """As its authors write it, for messages."""

    languages: tuple[str, ...]
    """As names end: two or three letters."""

    example: str
    """The language that messages take for an example."""

    splits: tuple[str, ...]
    """The judgements that are published; the first are those it is judged on where a recipe does not say."""

    repositories: tuple[str, ...]
    """Ids of the datasets of the hub that it lies in."""

    read: Callable[[str, str, Path | None], RetrievalSet]
    """Language, split and folder (None for the hub's cache or, where downloads are allowed, the hub) -> the collection.

    Reads with the readers of :mod:`vtkit.data.retrieval`, gathers all problems, and raises one DataError.
    """

    layout: Callable[[Path], Mapping[str, Sequence[str]]] | None = None
    """The languages whose files lie in a folder in a layout of the collection's own, each with the splits there; None
    where a recipe cannot name such a folder."""

    def load(self, language: str, split: str | None = None, root: str | Path | None = None) -> RetrievalSet:
        """The collection in ``language`` under the judgements ``split``.

        Args:
            language: one of :attr:`languages`; in a folder, any that is there.
            split: name of the judgements; None for the first of :attr:`splits`.
            root: a folder with the files of its repositories; None for the hub's cache and, where downloads are
                allowed, the hub.

        Raises:
            DataError: a language or split that is not there, or files that are missing or damaged (all problems at
                once).
        """
        if root is None:
            self.check_language(language)
        return self.read(language, split or self.splits[0], None if root is None else Path(root))

    def check_language(self, language: str) -> None:
        """Raise DataError unless the collection has ``language``."""
        if language not in self.languages:
            raise DataError(f"{self.title} has no language {language!r}. It has: {', '.join(self.languages)}.")

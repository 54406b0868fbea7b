"""Judged collections by name: a folder of the user's, or a public collection of the hub."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from vtkit.data.problems import Problems
from vtkit.data.public.miracl import MIRACL
from vtkit.data.public.record import PublicCollection
from vtkit.data.public.webfaq import WEBFAQ
from vtkit.data.retrieval import RetrievalSet, load_beir, read_judgements, splits_in
from vtkit.data.text import find_file
from vtkit.data.training_files import is_training_data, load_training_data
from vtkit.errors import DataError

PUBLIC: tuple[PublicCollection, ...] = (MIRACL, WEBFAQ)
"""All public collections."""

_FORMS = (
    "a folder in BEIR layout (corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv)",
    *(f"a folder in {each.title}'s layout" for each in PUBLIC if each.layout is not None),
    *(f'"{each.name}:LANGUAGE" such as "{each.name}:{each.example}"' for each in PUBLIC),
)
FORMS = f"Name {', '.join(_FORMS[:-1])}, or {_FORMS[-1]}."
_NAMED = re.compile(rf"({'|'.join(re.escape(collection.name) for collection in PUBLIC)}):([A-Za-z]{{2,3}})")


def public_collection(name: str) -> tuple[PublicCollection, str] | None:
    """The public collection and the language that ``name`` stands for, such as ``miracl:ko``; None for a folder."""
    named = _NAMED.fullmatch(name)
    return next((each, named[2]) for each in PUBLIC if each.name == named[1]) if named else None


def own_layout(folder: str | Path) -> tuple[PublicCollection, Mapping[str, Sequence[str]]] | None:
    """The public collection in whose own layout ``folder`` is, with its languages and their splits; None for others."""
    if not os.path.isdir(folder):  # unlike Path.is_dir, no error over a name that is too long
        return None
    for collection in PUBLIC:
        if collection.layout is not None and (found := collection.layout(Path(folder))):
            return collection, found
    return None


def load_retrieval(name: str | Path, split: str) -> RetrievalSet:
    """The collection called ``name`` under the judgements ``split``.

    Args:
        name: a folder in BEIR's layout or in that of a public collection (the latter of exactly one language), or
            ``NAME:LANGUAGE`` of one of :data:`PUBLIC`, which comes from the hub's cache or, where downloads are
            allowed, from the hub; or training data without splits (:mod:`vtkit.data.training_files`).
        split: name of the judgements, such as ``test``.

    Raises:
        DataError: an unknown name, or a collection that is not there or damaged.
    """
    if is_training_data(name):
        return load_training_data(name)
    public = public_collection(str(name))
    if public:
        collection, language = public
        return collection.load(language, split)
    folder = Path(name)
    if not folder.is_dir():
        raise DataError(f"{name}: there is no such collection or folder. {FORMS}")
    own = own_layout(folder)
    if own is None:
        return load_beir(folder, split)
    collection, languages = own
    if len(languages) > 1:
        raise DataError(
            f"{folder}: holds {collection.title} in {len(languages)} languages ({', '.join(languages)}). "
            "Give a folder with one."
        )
    (language,) = languages
    return collection.load(language, split, folder)


def judgements(name: str, split: str) -> Mapping[str, Mapping[str, int]]:
    """Query id -> document id -> grade, of a collection under ``split``; of a folder in BEIR's layout nothing else is
    read."""
    if public_collection(name) or own_layout(name):
        return load_retrieval(name, split).qrels
    path = find_file(Path(name) / "qrels", f"{split}.tsv")
    return {} if path is None else read_judgements(path, Problems())


def default_split(name: str) -> str:
    """The judgements a collection is judged on where the recipe does not say: a public collection's first, else
    "test"."""
    found = public_collection(name) or own_layout(name)
    return found[0].splits[0] if found else "test"


def splits_of(name: str) -> Sequence[str]:
    """The judgements that a collection has: those published of a public one, those found in a folder."""
    public = public_collection(name)
    if public:
        return public[0].splits
    own = own_layout(name)
    return sorted({split for splits in own[1].values() for split in splits}) if own else splits_in(Path(name) / "qrels")


def hub_repositories(name: str) -> tuple[str, ...]:
    """The datasets of the hub that a public collection lies in; none for a folder.

    Raises:
        DataError: a language the collection does not have.
    """
    public = public_collection(name)
    if not public:
        return ()
    collection, language = public
    collection.check_language(language)
    return collection.repositories

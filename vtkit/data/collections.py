"""Judged collections by name: a folder of the user's, or a public collection of the hub."""

from __future__ import annotations

import re
from pathlib import Path

from vtkit.data.hub import RepositoryKind
from vtkit.data.retrieval import LAYOUT, RetrievalSet, load_beir
from vtkit.errors import DataError

FORMS = (
    "Name a folder in BEIR layout (corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv), a folder in MIRACL's layout, "
    '"miracl:LANGUAGE" such as "miracl:ko", or "webfaq:LANGUAGE" such as "webfaq:kor".'
)
_NAMED = re.compile(r"(miracl|webfaq):([A-Za-z]{2,3})")


def is_collection(name: str) -> bool:
    """Whether ``name`` is of the form of a public collection, such as ``miracl:ko``, rather than a folder."""
    return _NAMED.fullmatch(name) is not None


def load_retrieval(name: str | Path, split: str) -> RetrievalSet:
    """The collection called ``name`` under the judgements ``split``.

    Args:
        name: a folder in BEIR's or MIRACL's layout (the latter of exactly one language), ``miracl:LANGUAGE`` or
            ``webfaq:LANGUAGE``. The latter two come from the hub's cache, or, where downloads are allowed,
            from the hub.
        split: name of the judgements, such as ``test``.

    Raises:
        DataError: an unknown name, or a collection that is not there or damaged.
    """
    named = _NAMED.fullmatch(str(name))
    if named:
        from vtkit.data.miracl import load_miracl
        from vtkit.data.webfaq import load_webfaq

        collection, language = named.groups()
        return load_miracl(None, language, split) if collection == "miracl" else load_webfaq(language, split)
    folder = Path(name)
    if not folder.is_dir():
        if folder.is_file():
            raise DataError(f"{folder}: is a file, but a collection is a folder. {LAYOUT}")
        raise DataError(f"{name}: there is no such collection or folder. {FORMS}")
    from vtkit.data.miracl import languages_in, load_miracl

    languages = languages_in(folder)
    if not languages:
        return load_beir(folder, split)
    if len(languages) > 1:
        raise DataError(
            f"{folder}: holds MIRACL in {len(languages)} languages ({', '.join(languages)}). Give a folder with one."
        )
    return load_miracl(folder, languages[0], split)


def default_split(name: str) -> str:
    """The judgements a collection is judged on where the recipe does not say: MIRACL's "dev", "test" of all others."""
    if is_collection(name):
        return "dev" if name.startswith("miracl:") else "test"
    from vtkit.data.miracl import languages_in

    return "dev" if languages_in(name) else "test"


def hub_repositories(name: str) -> list[tuple[str, RepositoryKind]]:
    """Id and kind of the hub's repositories that a named collection lies in; none for a folder.

    Raises:
        DataError: a language the collection does not have.
    """
    named = _NAMED.fullmatch(name)
    if not named:
        return []
    from vtkit.data import miracl, webfaq

    collection, language = named.groups()
    if collection == "miracl":
        miracl.check_language(language)
        return [(miracl.TOPICS, "dataset"), (miracl.CORPUS, "dataset")]
    webfaq.check_language(language)
    return [(webfaq.REPOSITORY, "dataset")]

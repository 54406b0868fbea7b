"""Judged collections by name: a user's folder, a public collection of the hub, or one of ir_datasets."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from vtkit.data import hub, irds
from vtkit.data.parts import PARTS, Part, Parts, Source, chosen, find_parts, head_patterns, splits_there
from vtkit.data.problems import Problems
from vtkit.data.public import PUBLIC, PublicCollection, Repository, Subset
from vtkit.data.retrieval import (
    Document,
    Query,
    RetrievalSet,
    checked_collection,
    read_documents,
    read_judgements,
    read_queries,
)
from vtkit.data.rows import conversion
from vtkit.data.training_files import is_training_data, load_training_data
from vtkit.system import console
from vtkit.system.errors import DataError

LAYOUT = (
    "A collection's folder has a README.md whose head names the files of its configurations, or corpus.jsonl, "
    "queries.jsonl and qrels/SPLIT.tsv (each may be .jsonl, .tsv or .parquet, compressed, or a folder of such files)."
)
_NAMES = ", ".join(f'"{each.name}{":" * bool(each.example)}{each.example}"' for each in PUBLIC)
FORMS = (
    "Name a folder (FOLDER:CONFIGURATION where it holds several collections), a public collection "
    f'({_NAMES}), or an id of ir_datasets: "{irds.PREFIX}beir/scifact/test".'
)

_FETCHED_BY_NAME = ("corpus*", "queries*", "query*", "qrels*", "data/*")
"""Patterns of the files of a repository whose README does not name them."""


def public_collection(name: str) -> tuple[PublicCollection, str] | None:
    """The public collection and the subset called ``name``, such as ``miracl:ko``; None for a folder."""
    public, _, subset = name.partition(":")
    if record := irds.collection_called(name):
        return record, subset
    return next(((each, subset) for each in PUBLIC if each.name == public), None)


def folder_and_config(name: str | Path) -> tuple[Path, str | None] | None:
    """The folder and the configuration (after a colon) of a name; None if there is no such folder."""
    name = str(name)
    if os.path.isdir(name):  # unlike Path.is_dir, no error if the name is too long
        return Path(name), None
    folder, colon, config = name.rpartition(":")
    return (Path(folder), config) if colon and folder and os.path.isdir(folder) else None


def is_collection(name: str | Path) -> bool:
    """Whether ``name`` is a folder, perhaps with a configuration, or the name of a public collection."""
    return folder_and_config(name) is not None or public_collection(str(name)) is not None


def load_retrieval(name: str | Path, split: str) -> RetrievalSet:
    """The collection called ``name`` under the judgements ``split``.

    Args:
        name: a folder (:data:`LAYOUT`), followed by ``:CONFIGURATION`` if it holds several collections; a public
            collection (:data:`vtkit.data.public.PUBLIC`); or training data (:mod:`vtkit.data.training_files`).
    """
    if is_training_data(name):
        return load_training_data(name)
    place = _find(str(name), split, PARTS)
    files = {part: place.parts.files(part, split) for part in PARTS}
    problems = Problems()
    documents = read_documents(files["corpus"], problems)
    queries = read_queries(files["queries"], problems)
    qrels = read_judgements(files["qrels"], problems)
    not_comparable = [place.sampled] if place.sampled else []
    if place.published and not problems.found:
        qrels, lost = _known(qrels, documents, {query.id for query in queries})
        if lost is not None:
            console.warn(f"{place.name}: {lost}")
            not_comparable.append(lost)
    collection = checked_collection(
        place.name,
        documents,
        queries,
        qrels,
        problems,
        corpus=files["corpus"][0] if len(files["corpus"]) == 1 else files["corpus"][0].parent,
        queries_file=files["queries"][0],
        judgements_file=files["qrels"][0],
    )
    public = public_collection(str(name)) if place.published else None
    own_documents = public is not None and public[0].subsets[public[1]].own_documents
    return replace(collection, not_comparable=tuple(not_comparable), own_documents=own_documents)


def files_of(name: str, part: Part) -> list[Path]:
    """The files of one part of a collection, with its default judgements."""
    split = default_split(name)
    return _find(name, split, (part,)).parts.files(part, split)


def judgements(name: str, split: str) -> Mapping[str, Mapping[str, int]]:
    """Query id -> document id -> grade, of a collection's judgements ``split``; nothing else is read. Empty if there
    are none."""
    if split not in splits_of(name):
        return {}
    return read_judgements(_find(name, split, ("qrels",)).parts.files("qrels", split), Problems())


def queries_of(name: str, split: str) -> list[Query]:
    """The queries of a collection that the judgements ``split`` judge, or of training data; documents are read only
    where a file holds both."""
    if is_training_data(name):
        return load_training_data(name).queries
    parts, problems = _find(name, split, ("queries", "qrels")).parts, Problems()
    judged = read_judgements(parts.files("qrels", split), problems)
    return [query for query in read_queries(parts.files("queries", split), problems) if query.id in judged]


def default_split(name: str) -> str:
    """The default judgements of a collection: a public collection's first; in a folder "test", else "dev", else its
    first."""
    splits = splits_of(name)
    if public_collection(name) and splits:
        return splits[0]
    return next((split for split in ("test", "dev", *splits) if split in splits), "test")


def splits_of(name: str) -> Sequence[str]:
    """The judgements of a collection: published ones of a public collection, files of a folder."""
    place, public = folder_and_config(name), public_collection(name)
    if place is not None:
        parts = _configurations(place[0])
        parts_of_name = parts.get(place[1] or "") or (next(iter(parts.values())) if len(parts) == 1 else None)
        return sorted(parts_of_name.splits["qrels"]) if parts_of_name is not None else ()
    return public[0].subsets[public[1]].splits if public and public[1] in public[0].subsets else ()


def folder_fault(name: str, *needed: Part) -> str | None:
    """The reason why the collection ``name`` lacks the parts ``needed``, judging by file names; None if it has them."""
    try:
        _find(name, "", needed)
    except DataError as error:
        return str(error)
    return None


def hub_repositories(name: str) -> tuple[Repository, ...]:
    """The hub's data sets of a public collection; none for a folder."""
    if folder_and_config(name) is not None:
        return ()
    public = public_collection(name)
    if public is None:
        raise DataError(_unknown(name))
    return _group(_subset(*public))


@dataclass(frozen=True)
class _Found:
    name: str
    parts: Parts
    where: str
    advice: str
    published: bool = False  # whether its authors published it in this form, which a user cannot correct
    sampled: str | None = None


def _find(name: str, split: str, needed: Sequence[Part]) -> _Found:
    place, public = folder_and_config(name), public_collection(name)
    if place is not None:
        folder, config = place
        parts = _chosen(folder, config)
        called = "-".join(filter(None, [folder.resolve().name, config]))
        located = _Found(called, parts, name, LAYOUT)
    elif public is not None:
        located = _fetched(*public, split, needed)
    else:
        raise DataError(_unknown(name))
    sources = {
        "corpus": "the corpus is missing",
        "queries": "the queries are missing",
        "qrels": f"the judgements {split!r} are missing ({splits_there(located.parts)})",
    }
    complaints = [sources[part] for part in needed if not located.parts.files(part, split)]
    if complaints:
        if place is not None and "qrels" not in needed and (advice := conversion(place[0])):
            raise DataError(f"{name} is not a collection but a folder of .txt files.{advice}")
        raise DataError(f"{located.where}: {'; '.join(complaints)}. {located.advice}")
    return located


def _configurations(folder: Path) -> dict[str, Parts]:
    """The collections in a folder; judgements may be in a folder beside it, as in repositories of BEIR and C-MTEB:
    ``scifact`` and ``scifact-qrels``."""
    if not folder.resolve().name:
        return {}  # the root of a file system
    beside = folder.absolute().with_name(f"{folder.absolute().name}-qrels")
    return find_parts([Source(folder), *([Source(beside, ("qrels",))] if beside.is_dir() else [])])


def _chosen(folder: Path, config: str | None) -> Parts:
    parts = _configurations(folder)
    if config is not None:
        if config in parts:
            return parts[config]
        raise DataError(f"{folder}: has no collection {config!r}.{_meant_of(config, parts)}")
    if len(parts) > 1 and "" not in parts:
        listed = ", ".join(sorted(parts))
        raise DataError(
            f"{folder}: has {len(parts)} collections ({listed}). Name one of them, for example {folder}:{min(parts)}"
        )
    return parts.get("") or next(iter(parts.values()), Parts())


def _fetched(public: PublicCollection, name: str, split: str, needed: Sequence[Part]) -> _Found:
    subset = _subset(public, name)
    if public.name == "ir_datasets":
        (parts,) = find_parts([Source(irds.folder_of(name))]).values() or (Parts(),)
        return _Found(name.replace("/", "-"), parts, irds.PREFIX + name, "Name an id that has them.", published=True)
    first = _group(subset)
    groups = [first, *(group for group in subset.sources if group != first)]
    sources: list[Source] = []
    for group in groups:
        try:
            sources = [
                Source(_folder_of(repository, subset.config, split, needed), repository.parts)
                for repository in group
                if set(repository.parts) & set(needed)
            ]
            break
        except hub.GatedRepository:  # another group may have the same files without terms
            if group == groups[-1]:
                raise
    by_config = find_parts(sources)
    where = " and ".join(
        f"{repository.id}{f' at {repository.revision}' if repository.revision else ''}" for repository in group
    )
    parts = by_config.get(subset.config) or (Parts() if subset.config else next(iter(by_config.values()), Parts()))
    advice = "Run again with --download, or name a folder that holds the files."
    called = "-".join(filter(None, [public.name, name]))
    return _Found(called, parts, f"{where} of the Hugging Face hub", advice, published=True, sampled=public.sampled)


def _folder_of(repository: Repository, config: str, split: str, needed: Sequence[Part]) -> Path:
    wanted = [part for part in repository.parts if part in needed]
    patterns = [pattern.format(config=config) for part, pattern in repository.files.items() if part in wanted]
    if not patterns:
        head = head_patterns(hub.fetch(repository.id, ["README.md"], revision=repository.revision) / "README.md")
        named = [pattern for part in wanted for pattern in chosen(head.get((config, part), {}), part, split)]
        patterns = named or list(_FETCHED_BY_NAME)
    return hub.fetch(repository.id, ["README.md", *patterns], revision=repository.revision)


def _group(subset: Subset) -> tuple[Repository, ...]:
    """The repositories of a subset: those in the cache, else the first."""
    cached = (
        group
        for group in subset.sources
        if all(hub.in_cache(repository.id, "dataset", repository.revision) for repository in group)
    )
    return next(cached, subset.sources[0])


def _subset(public: PublicCollection, name: str) -> Subset:
    if name in public.subsets:
        return public.subsets[name]
    what = f"has no subset {name!r}" if name else "needs the name of a subset"
    raise DataError(f"{public.title} {what}.{_meant_of(name, public.subsets)}")


def _unknown(name: str) -> str:
    near = get_close_matches(name, [subset for public in PUBLIC for subset in public.names], n=1, cutoff=0.7)
    return f"{name}: there is no such collection or folder.{_meant(near)} {FORMS}"


def _meant_of(name: str, names: Mapping[str, object]) -> str:
    near = get_close_matches(name, list(names), n=1, cutoff=0.7)
    listed = ", ".join(sorted(filter(None, names)))
    return f"{_meant(near)} It has: {listed}." if listed else ""


def _meant(near: Sequence[str]) -> str:
    return f" Did you mean {near[0]!r}?" if near else ""


def _known(
    qrels: Mapping[str, Mapping[str, int]], documents: Sequence[Document], queries: set[str]
) -> tuple[Mapping[str, Mapping[str, int]], str | None]:
    """The judgements of existing documents and queries, and a count of the others, if any."""
    absent = {document for judged in qrels.values() for document in judged}
    absent.difference_update(document.id for document in documents)
    gone = [query for query in qrels if query not in queries]
    if not absent and not gone:
        return qrels, None
    kept = {
        query: known
        for query, judged in qrels.items()
        if query in queries and (known := {name: grade for name, grade in judged.items() if name not in absent})
    }
    whole, left = (sum(map(len, judgements.values())) for judgements in (qrels, kept))
    return kept, (
        f"{whole - left:,} of {whole:,} judgements left out: {len(gone):,} queries and {len(absent):,} documents are "
        "not in the collection"
    )

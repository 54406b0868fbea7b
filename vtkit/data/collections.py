"""Judged collections by name: a user's folder, a public collection of the hub, or one of ir_datasets."""

import os
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain, compress
from pathlib import Path

from vtkit.data import hub, irds
from vtkit.data.parts import PARTS, Part, Parts, chosen, find_parts, head_patterns
from vtkit.data.problems import Problems
from vtkit.data.public import PUBLIC, PublicCollection, Repository
from vtkit.data.retrieval import Document, Query, RetrievalSet, read_documents, read_judgements, read_queries
from vtkit.data.training_files import is_training_data, load_training_data
from vtkit.system import console
from vtkit.system.checksums import records_in
from vtkit.system.errors import DataError

LAYOUT = (
    "A collection's folder has a README.md whose head names the files of its configurations, or corpus.jsonl, "
    "queries.jsonl and qrels/SPLIT.tsv (each may be .jsonl, .csv, .tsv or .parquet, compressed, or a folder of such "
    "files)."
)
FORMS = (
    "Name a folder (FOLDER:CONFIGURATION where it holds several collections), a public collection "
    f"({', '.join({name.partition(':')[0]: name for name in PUBLIC}.values())}), or an id of ir_datasets: "
    f"{irds.PREFIX}beir/scifact/test."
)

_FETCHED_BY_NAME = ("corpus*", "queries*", "query*", "qrels*", "data/*")
"""Patterns of the files of a repository whose README does not name them."""


def public_collection(name: str) -> PublicCollection | None:
    """The public collection called ``name``, such as ``miracl:ko``, or that of ir_datasets; None for other names."""
    return PUBLIC.get(name) or irds.collection_called(name)


def is_public(name: str) -> bool:
    """Whether ``name`` is meant as that of a public collection, though it may have no such subset."""
    return bool(public_collection(name) or _subsets(name))


def folder_and_config(name: str | Path) -> tuple[Path, str | None] | None:
    """The folder and the configuration (after a colon) of a name; None if there is no such folder."""
    name = str(name)
    if os.path.isdir(name):  # unlike Path.is_dir, no error if the name is too long
        return Path(name), None
    folder, colon, config = name.rpartition(":")
    return (Path(folder), config) if colon and folder and os.path.isdir(folder) else None


def is_collection(name: str | Path) -> bool:
    """Whether ``name`` is a folder, perhaps with a configuration, or the name of a public collection."""
    return folder_and_config(name) is not None or is_public(str(name))


def collection_in(folder: Path, files: Set[Path]) -> set[Path] | None:
    """The parts of the collection that documents given as ``folder`` are, if all three are there, else an empty set;
    None if it is no collection.

    It is one if its README names a corpus, if it holds corpus, queries and judgements, or if vtkit made it with a
    corpus. A corpus with queries or judgements alone, or in a folder below, may have its name by chance: nothing else
    may then be among the ``files``.
    """
    with suppress(DataError):
        if any("corpus" in parts for parts in head_patterns(folder / "README.md").values()):
            return set()
    configurations = find_parts({folder: PARTS}, heads=False)
    of_parts = {*chain(*(chain(*splits.values()) for parts in configurations.values() for splits in parts.values()))}
    if len(top := configurations.get("", {})) == len(PARTS):
        return of_parts
    judged = any("qrels" in path.relative_to(folder).as_posix() for path in files)
    whole = any("corpus" in parts and (judged or "queries" in parts) for parts in configurations.values())
    return set() if ("corpus" in top and records_in(folder)) or (whole and files <= of_parts) else None


def load_retrieval(name: str | Path, split: str) -> RetrievalSet:
    """The collection called ``name`` under the judgements ``split``.

    Args:
        name: a folder (:data:`LAYOUT`), followed by ``:CONFIGURATION`` if it holds several collections; a public
            collection (:data:`vtkit.data.public.PUBLIC`); or training data (:mod:`vtkit.data.training_files`).
    """
    if is_training_data(name):
        return load_training_data(name)
    place = _find(str(name), split, PARTS)
    files = {part: chosen(place.parts, part, split) for part in PARTS}
    problems = Problems()
    documents = read_documents(files["corpus"], problems)
    queries = read_queries(files["queries"], problems)
    qrels = read_judgements(files["qrels"], problems)
    public, lost, ids = place.public, "", {query.id for query in queries}
    if public is not None and not problems.found:
        qrels, lost = _known(qrels, documents, ids)
        if lost:
            console.warn(f"{place.name}: {lost}")
    judged = [query for query in queries if query.id in qrels]
    reasons = tuple(filter(None, [public.sampled if public is not None else "", lost]))
    own = public is not None and public.own_documents
    collection = RetrievalSet(place.name, documents, judged, qrels, not_comparable=reasons, own_documents=own)
    _check(collection, ids, files, problems)
    return collection


def files_of(name: str, part: Part) -> list[Path]:
    """The files of one part of a collection, with its default judgements."""
    split = default_split(name)
    return chosen(_find(name, split, (part,)).parts, part, split)


def judgements(name: str, split: str) -> Mapping[str, Mapping[str, int]]:
    """Query id -> document id -> grade, of a collection's judgements ``split``; nothing else is read. Empty if there
    are none."""
    if split not in splits_of(name):
        return {}
    return read_judgements(chosen(_find(name, split, ("qrels",)).parts, "qrels", split), Problems())


def queries_of(name: str, split: str) -> list[Query]:
    """The queries of a collection that the judgements ``split`` judge, or of training data; documents are read only
    where a file holds both."""
    if is_training_data(name):
        return load_training_data(name).queries
    parts, problems = _find(name, split, ("queries", "qrels")).parts, Problems()
    judged = read_judgements(chosen(parts, "qrels", split), problems)
    return [query for query in read_queries(chosen(parts, "queries", split), problems) if query.id in judged]


def default_split(name: str) -> str:
    """The default judgements of a collection: a public collection's first; in a folder "test", else "dev", else its
    first."""
    splits = splits_of(name)
    preferred = () if public_collection(name) else ("test", "dev")
    return next((split for split in (*preferred, *splits) if split in splits), "test")


def splits_of(name: str) -> Sequence[str]:
    """The judgements of a collection: published ones of a public collection, files of a folder."""
    if (place := folder_and_config(name)) is None:
        public = public_collection(name)
        return () if public is None else public.splits
    parts = _configurations(place[0])
    parts_of_name = parts.get(place[1] or "") or (next(iter(parts.values())) if len(parts) == 1 else {})
    return sorted(parts_of_name.get("qrels", {}))


def folder_fault(name: str, *needed: Part) -> str | None:
    """The reason why the collection ``name`` lacks the parts ``needed``, judging by file names; None if it has them."""
    try:
        _find(name, "", needed)
    except DataError as error:
        return str(error)
    return None


def hub_repositories(name: str) -> Sequence[Repository]:
    """The hub's data sets of a public collection; none for a folder."""
    return () if folder_and_config(name) is not None else _public(name).repositories


@dataclass(frozen=True)
class _Place:
    """The parts of a collection, and their place in words."""

    name: str
    parts: Parts[Path]
    where: str  # for messages
    advice: str  # if parts are missing
    public: PublicCollection | None = None  # published by its authors in this form, which a user cannot correct


def _find(name: str, split: str, needed: Sequence[Part]) -> _Place:
    if (folder := folder_and_config(name)) is not None:
        called = "-".join(filter(None, [folder[0].resolve().name, folder[1]]))
        place = _Place(called, _chosen(*folder), name, LAYOUT)
    else:
        place = _fetched(_public(name), split, needed)
    splits = ", ".join(sorted(place.parts.get("qrels", {})))
    there = f"splits there: {splits}" if splits else "there are no judgements at all"
    sources = {
        "corpus": "the corpus is missing",
        "queries": "the queries are missing",
        "qrels": f"the judgements {split!r} are missing ({there})",
    }
    complaints = [sources[part] for part in needed if not chosen(place.parts, part, split)]
    if complaints:
        raise DataError(f"{place.where}: {'; '.join(complaints)}. {place.advice}")
    return place


def _configurations(folder: Path) -> dict[str, Parts[Path]]:
    """The collections in a folder; judgements may be in a folder beside it, as in repositories of BEIR and C-MTEB:
    ``scifact`` and ``scifact-qrels``."""
    if not folder.resolve().name:
        return {}  # the root of a file system
    beside = folder.absolute().with_name(f"{folder.absolute().name}-qrels")
    return find_parts({folder: PARTS} | ({beside: ["qrels"]} if beside.is_dir() else {}))


def _chosen(folder: Path, config: str | None) -> Parts[Path]:
    parts = _configurations(folder)
    if config is not None:
        if config in parts:
            return parts[config]
        raise DataError(f"{folder}: has no collection {config!r}.{_meant(config, parts)}")
    if len(parts) > 1 and "" not in parts:
        listed = ", ".join(sorted(parts))
        raise DataError(
            f"{folder}: has {len(parts)} collections ({listed}). Name one of them, for example {folder}:{min(parts)}"
        )
    return parts.get("") or next(iter(parts.values()), {})


def _fetched(public: PublicCollection, split: str, needed: Sequence[Part]) -> _Place:
    if public.name.startswith(irds.PREFIX):
        identity = public.name.removeprefix(irds.PREFIX)
        (parts,) = find_parts({irds.folder_of(identity): PARTS}).values() or ({},)
        return _Place(identity.replace("/", "-"), parts, public.name, "Name an id that has them.", public)
    wanted = [repository for repository in public.repositories if set(repository.parts) & set(needed)]
    by_config = find_parts({_folder_of(each, public.config, split, needed): each.parts for each in wanted})
    parts = by_config.get(public.config) or ({} if public.config else next(iter(by_config.values()), {}))
    where = " and ".join(" at ".join(filter(None, [each.id, each.revision])) for each in public.repositories)
    advice = "Run again with --download, or name a folder that holds the files."
    return _Place(public.name.replace(":", "-"), parts, f"{where} of the Hugging Face hub", advice, public)


def _folder_of(repository: Repository, config: str, split: str, needed: Sequence[Part]) -> Path:
    wanted = [part for part in repository.parts if part in needed]
    patterns = [pattern.format(config=config) for part, pattern in repository.files.items() if part in wanted]
    if not patterns:
        head = head_patterns(hub.fetch(repository.id, ["README.md"], revision=repository.revision) / "README.md")
        named = [pattern for part in wanted for pattern in chosen(head.get(config, {}), part, split)]
        patterns = named or list(_FETCHED_BY_NAME)
    return hub.fetch(repository.id, ["README.md", *patterns], revision=repository.revision)


def _subsets(name: str) -> dict[str, PublicCollection]:
    """The subsets of the public collection that ``name`` begins with."""
    kind = name.partition(":")[0]
    return {full.partition(":")[2]: public for full, public in PUBLIC.items() if full.partition(":")[0] == kind}


def _public(name: str) -> PublicCollection:
    if public := public_collection(name):
        return public
    if subsets := _subsets(name):
        subset = name.partition(":")[2]
        what = f"has no subset {subset!r}" if subset else "needs the name of a subset"
        raise DataError(f"{next(iter(subsets.values())).title} {what}.{_meant(subset, subsets)}")
    raise DataError(f"{name}: there is no such collection or folder.{_meant(name, PUBLIC, listed=False)} {FORMS}")


def _meant(name: str, names: Iterable[str], *, listed: bool = True) -> str:
    """The closest of ``names``, and all of them if they are to be ``listed``."""
    near = get_close_matches(name, list(names), n=1, cutoff=0.7)
    said = f" Did you mean {near[0]!r}?" if near else ""
    return f"{said} It has: {', '.join(sorted(filter(None, names)))}." if listed and any(names) else said


def _check(
    collection: RetrievalSet, queries: Set[str], files: Mapping[Part, Sequence[Path]], problems: Problems
) -> None:
    """Raise the ``problems`` of reading the ``files`` of a collection, or those of its parts with each other."""
    corpus = files["corpus"][0] if len(files["corpus"]) == 1 else files["corpus"][0].parent
    queries_file, judgements_file = files["queries"][0], files["qrels"][0]
    if not problems.found:  # damaged lines would appear again as missing ids
        if not collection.documents:
            problems.add(corpus, "holds no documents")
        elif not any(document.contents for document in collection.documents):
            problems.add(corpus, "holds no text: title and text of every document are empty")
        if not queries:
            problems.add(queries_file, "holds no queries")
        if not collection.qrels:
            problems.add(judgements_file, "holds no judgements")
        elif all(grade <= 0 for judged in collection.qrels.values() for grade in judged.values()):
            problems.add(judgements_file, "judges no document relevant: every grade is 0 or below")
    problems.stop_if_any()
    for query in collection.qrels:
        if query not in queries:
            problems.add(judgements_file, f"query {query!r} is not in {queries_file.name}")
    for query in [query for query in collection.qrels if -1 in collection.by_number(collection.qrels, query)]:
        names = list(collection.qrels[query])
        for name in compress(names, collection.numbers_of(names) < 0):
            problems.add(judgements_file, f"document {name!r} (query {query!r}) is not in {corpus.name}")
    problems.stop_if_any()


def _known(
    qrels: Mapping[str, Mapping[str, int]], documents: Sequence[Document], queries: set[str]
) -> tuple[Mapping[str, Mapping[str, int]], str]:
    """The judgements of existing documents and queries, and a count of the others in words, if there are any."""
    absent = {document for judged in qrels.values() for document in judged}
    absent.difference_update(document.id for document in documents)
    gone = [query for query in qrels if query not in queries]
    if not absent and not gone:
        return qrels, ""
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

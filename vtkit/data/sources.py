"""The one way in: what a name stands for, the files to read, and what is left out.

A name is a file, a folder of files, a folder that is a collection (``FOLDER:CONFIGURATION`` if it holds several), a
public collection of the hub, an id of ir_datasets, a data set (``datasets:...``), or ``-`` for standard input.
"""

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Literal

from vtkit.data import hub, irds
from vtkit.data.parts import PARTS, Part, Parts, chosen, find_parts, head_patterns, list_files
from vtkit.data.public import PUBLIC, PublicCollection, Repository
from vtkit.data.rows import ending_of, form_of, is_header
from vtkit.data.streaming import PREFIX
from vtkit.data.text import read_lines
from vtkit.data.text_files import FORMS, READERS
from vtkit.system import console
from vtkit.system.checksums import records_in
from vtkit.system.errors import DataError

DOCUMENT_FORMS = (
    f"a folder of {' and '.join(', '.join(form.endings[0] for form in FORMS).rsplit(', ', 1))} files, a document each; "
    "a table with a line of names (.csv, .tsv, .jsonl, .parquet), or .txt with one text per line, each plain, .gz or "
    ".zst; a collection (a folder with corpus.jsonl, or a public name such as miracl:ko); or a data set, "
    "datasets:NAME:CONFIG:SPLIT"
)
CORPUS_FORMS = f"{DOCUMENT_FORMS}:COLUMN"
QUERY_FORMS = (
    ".csv, .tsv, .jsonl or .parquet with columns id and text, .tsv with id and text, or .txt with a query a line; each "
    "plain, .gz or .zst"
)
LAYOUT = (
    "A collection's folder has a README.md whose head names the files of its configurations, or corpus.jsonl, "
    "queries.jsonl and qrels/SPLIT.tsv (each may be .jsonl, .csv, .tsv or .parquet, compressed, or a folder of such "
    "files)."
)
_EXAMPLES = {name.partition(":")[0]: name for name in PUBLIC}  # one subset of each public collection
COLLECTION_FORMS = (
    "Name a folder (FOLDER:CONFIGURATION where it holds several collections), a public collection "
    f"({', '.join(_EXAMPLES.values())}), or an id of ir_datasets: {irds.PREFIX}beir/scifact/test."
)

_PAGES = re.compile(r"(readme|licen[cs]e|copying|notice|citation|changelog)(?![a-z])", re.IGNORECASE)
"""Names of pages about a folder of tables, which are not its documents."""

_FETCHED_BY_NAME = ("corpus*", "queries*", "query*", "qrels*", "data/*")
"""Patterns of the files of a repository whose README does not name them."""


@dataclass(frozen=True)
class Source:
    """The kind and the files of what a name stands for."""

    name: str  # as it was given
    kind: Literal["tables", "texts", "lines", "dataset"]
    """Each row is a document, each file, each line, or each row of a data set."""

    parts: Parts[Path] = field(default_factory=dict)  # of a collection; documents without one are a corpus
    split: str = ""  # of the judgements
    title: str = ""  # of a collection, as folders of results are called
    public: PublicCollection | None = None  # published by its authors in this form, which a user cannot correct
    left_out: str = ""  # what is read of a folder, and the number of its other files, by kind; "" if all are read

    def files(self, part: Part = "corpus") -> list[Path]:
        """The files of a part; of documents that are no collection, all files."""
        return chosen(self.parts, part, self.split)


def source_of(name: str | Path, *needed: Part, split: str | None = None, corpus: bool = False) -> Source:
    """Find out what ``name`` stands for; a warning says what is left out.

    Args:
        needed: parts that a collection must have. Queries alone may also be a table, or lines of text. Without any,
            ``name`` stands for documents, perhaps those of a folder of files: its texts, or its tables if it has no
            texts but pages such as a README and a licence.
        split: the judgements; None: the default ones.
        corpus: only the texts of the documents are needed, and a .tsv without a line of names is refused: nothing shows
            which of its columns is text in the language.

    Raises:
        DataError: there is no such thing, it has an unknown format, or lacks parts; judging by the names of files.
    """
    name, plain = str(name), needed in ((), ("queries",))  # or else a collection
    wanted = f"Queries are {QUERY_FORMS}." if needed else f"Documents are {DOCUMENT_FORMS}."
    wanted = f"A corpus is {CORPUS_FORMS}." if corpus else wanted
    if plain and os.path.exists(name) and not os.path.isdir(name):
        path, form = Path(name), form_of(Path(name))
        if not ending_of(path) and form not in (("", ".txt") if needed else ("", *READERS)):
            raise DataError(f"{path} has an unknown format. {wanted}")
        if corpus and form == ".tsv" and not is_header(next(read_lines(path, "replace"), "").split("\t")):
            unpack = {".gz": "gzip -dc {} | cut -f2", ".zst": "zstd -dc {} | cut -f2"}
            cut = unpack.get(path.suffix.lower(), "cut -f2 {}").format(shlex.quote(name))
            command = f"{cut} > {shlex.quote(path.name.partition('.')[0])}.txt"
            raise DataError(
                f"{path} has columns, but a corpus has one text per line. Write the column in the corpus's language to "
                f"its own file (the second: {command}) and name that file."
            )
        kind: Literal["tables", "texts"] = "tables" if ending_of(path) else "texts"
        return Source(name, "lines" if form in ("", ".txt") else kind, {(*needed, "corpus")[0]: {"": [path]}})
    if name == "-" and needed == ("queries",):
        return Source(name, "lines")
    if name.startswith(PREFIX) and not needed:
        return Source(name, "dataset")
    if plain and not is_collection(name):
        raise DataError(f"{name}: there is no such file or folder. {wanted}")
    if not needed and os.path.isdir(name):
        source = _documents_in(name)
        if source.left_out:
            console.once(console.warn, f"{name}: {source.left_out}")
        if not source.files():
            raise DataError(f"{name}: holds no text. {wanted}")
        return source
    return _collection(name, needed or ("corpus",), default_split(name) if split is None else split)


def fault_of(name: str, *needed: Part, corpus: bool = False) -> str | None:
    """The reason why :func:`source_of` refuses a name; None if it does not."""
    try:
        source_of(name, *needed, corpus=corpus)
    except DataError as error:
        return str(error)
    return None


def folder_and_config(name: str | Path) -> tuple[Path, str | None] | None:
    """The folder and the configuration (after a colon) of a name; None if there is no such folder."""
    name = str(name)
    if os.path.isdir(name):  # unlike Path.is_dir, no error if the name is too long
        return Path(name), None
    folder, colon, config = name.rpartition(":")
    return (Path(folder), config) if colon and folder and os.path.isdir(folder) else None


def public_collection(name: str) -> PublicCollection | None:
    """The public collection called ``name``, such as ``miracl:ko``, or that of ir_datasets; None for other names."""
    return PUBLIC.get(name) or irds.collection_called(name)


def is_public(name: str) -> bool:
    """Whether ``name`` is meant as that of a public collection, though it may have no such subset."""
    return name.partition(":")[0] in _EXAMPLES or name.startswith(irds.PREFIX)


def is_collection(name: str | Path) -> bool:
    """Whether ``name`` is a folder, perhaps with a configuration, or the name of a public collection."""
    return folder_and_config(name) is not None or is_public(str(name))


def splits_of(name: str) -> Sequence[str]:
    """The judgements of a collection: published ones of a public collection, files of a folder."""
    if (folder := folder_and_config(name)) is None:
        public = public_collection(name)
        return () if public is None else public.splits
    with suppress(DataError):
        return sorted(_parts_in(*folder).get("qrels", {}))
    return ()


def default_split(name: str) -> str:
    """The default judgements of a collection: a public collection's first; in a folder "test", else "dev", else its
    first."""
    splits = splits_of(name)
    preferred = () if public_collection(name) else ("test", "dev")
    return next((split for split in (*preferred, *splits) if split in splits), "test")


def hub_repositories(name: str) -> Sequence[Repository]:
    """The hub's data sets of a public collection; none for a folder."""
    return () if folder_and_config(name) is not None else _public(name).repositories


def _documents_in(name: str) -> Source:
    """The documents in a folder, or the corpus of the collection that it is."""
    folder = Path(name)
    texts, tables, others = list_files(folder)
    pages = {path for path in texts if _PAGES.match(path.name)}
    parts = _collection_in(folder, {*texts, *tables} - pages)
    if parts is not None:
        source, said = _collection(name, ("corpus",), default_split(name)), "the corpus of a collection is read"
    elif tables and len(pages) == len(texts):
        source, said = Source(name, "tables", {"corpus": {"": tables}}), "tables are read, a document per row"
    else:
        source, said = Source(name, "texts", {"corpus": {"": texts}}), "texts are read, a document per file"
        said += "; tables are read alone" if tables else ""
    files = source.files()
    unread = {*texts, *tables} - {*files}
    if others or not unread <= (parts or set()):  # a whole collection and nothing else needs no word
        others.update(map(form_of, sorted(unread)))
    once = {os.path.realpath(path): path for path in sorted(files, key=Path.is_symlink, reverse=True)}
    others += Counter({"link to another of the files": len(files) - len(once)})
    counted = ", ".join(f"{number:,} {kind}" for kind, number in others.most_common())
    read = [path for path in files if once[os.path.realpath(path)] == path]
    left_out = f"{said}. Not read: {counted}" if others else ""
    return replace(source, parts={"corpus": {"": read}}, left_out=left_out)


def _collection_in(folder: Path, files: Set[Path]) -> set[Path] | None:
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


def _collection(name: str, needed: Sequence[Part], split: str) -> Source:
    """A collection with the parts ``needed``."""
    public, where, advice = None, name, LAYOUT
    if (folder := folder_and_config(name)) is not None:
        title, parts = "-".join(filter(None, [folder[0].resolve().name, folder[1]])), _parts_in(*folder)
    else:
        public = _public(name)
        title, parts = re.sub("[:/]", "-", name.removeprefix(irds.PREFIX)), _fetched(public, split, needed)
        where, advice = name, "Name an id that has them."
        if at := " and ".join(" at ".join(filter(None, [each.id, each.revision])) for each in public.repositories):
            where = f"{at} of the Hugging Face hub"
            advice = "Run again with --download, or name a folder that holds the files."
    splits = ", ".join(sorted(parts.get("qrels", {})))
    there = f"splits there: {splits}" if splits else "there are no judgements at all"
    complaints = {
        "corpus": "the corpus is missing",
        "queries": "the queries are missing",
        "qrels": f"the judgements {split!r} are missing ({there})",
    }
    if missing := [complaints[part] for part in needed if not chosen(parts, part, split)]:
        raise DataError(f"{where}: {'; '.join(missing)}. {advice}")
    return Source(name, "tables", parts, split, title, public)


def _parts_in(folder: Path, config: str | None) -> Parts[Path]:
    """The files of a collection in a folder; judgements may be in a folder beside it, as in repositories of BEIR and
    C-MTEB: ``scifact`` and ``scifact-qrels``."""
    name = folder.resolve().name  # "" of the root of a file system
    beside = folder.absolute().parent / f"{folder.absolute().name}-qrels"
    by_config = find_parts({folder: PARTS} | ({beside: ["qrels"]} if beside.is_dir() else {})) if name else {}
    if config is not None and config not in by_config:
        raise DataError(f"{folder}: has no collection {config!r}.{_meant(config, by_config)}")
    if config is None and len(by_config) > 1 and "" not in by_config:
        raise DataError(
            f"{folder}: has {len(by_config)} collections ({', '.join(sorted(by_config))}). Name one of them, for "
            f"example {folder}:{min(by_config)}"
        )
    return by_config.get(config or "") or next(iter(by_config.values()), {})


def _fetched(public: PublicCollection, split: str, needed: Sequence[Part]) -> Parts[Path]:
    """The files of a public collection, which are fetched if downloads are allowed."""
    wanted = [repository for repository in public.repositories if {*repository.parts} & {*needed}]
    folders = {_folder_of(each, public.config, split, needed): each.parts for each in wanted}
    by_config = find_parts(folders or {irds.folder_of(public): PARTS})
    return by_config.get(public.config) or ({} if public.config else next(iter(by_config.values()), {}))


def _folder_of(repository: Repository, config: str, split: str, needed: Sequence[Part]) -> Path:
    wanted = [part for part in repository.parts if part in needed]
    patterns = [pattern.format(config=config) for part, pattern in repository.files.items() if part in wanted]
    if not patterns:
        head = head_patterns(hub.fetch(repository.id, ["README.md"], revision=repository.revision) / "README.md")
        named = [pattern for part in wanted for pattern in chosen(head.get(config, {}), part, split)]
        patterns = named or list(_FETCHED_BY_NAME)
    return hub.fetch(repository.id, ["README.md", *patterns], revision=repository.revision)


def _public(name: str) -> PublicCollection:
    if public := public_collection(name):
        return public
    kind, _, subset = name.partition(":")
    if kind in _EXAMPLES:
        subsets = [full.partition(":")[2] for full in PUBLIC if full.partition(":")[0] == kind]
        what = f"has no subset {subset!r}" if subset else "needs the name of a subset"
        raise DataError(f"{PUBLIC[_EXAMPLES[kind]].title} {what}.{_meant(subset, subsets)}")
    raise DataError(
        f"{name}: there is no such collection or folder.{_meant(name, PUBLIC, listed=False)} {COLLECTION_FORMS}"
    )


def _meant(name: str, names: Iterable[str], *, listed: bool = True) -> str:
    """The closest of ``names``, and all of them if they are to be ``listed``."""
    near = get_close_matches(name, list(names), n=1, cutoff=0.7)
    said = f" Did you mean {near[0]!r}?" if near else ""
    return f"{said} It has: {', '.join(sorted(filter(None, names)))}." if listed and any(names) else said

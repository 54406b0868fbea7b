"""What lies in a folder: documents, tables, and the files of a collection's parts (corpus, queries, qrels), by
configuration and split, as the head of a README names them, else by the names of files and folders."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from vtkit.data.rows import ENDINGS, ending_of, form_of
from vtkit.data.text_files import READERS
from vtkit.system import console
from vtkit.system.checksums import records_in
from vtkit.system.errors import DataError

T = TypeVar("T", Path, str)
Part = Literal["corpus", "queries", "qrels"]
PARTS: tuple[Part, ...] = get_args(Part)

_ROLES: Mapping[str, Part] = {
    "corpus": "corpus",
    "queries": "queries",
    "query": "queries",
    "qrels": "qrels",
    "default": "qrels",
}
"""End of a configuration's name on the hub -> its part."""

_CONFIG = r"(?:data/)?(?:(?!(?:corpus|docs|query|queries|qrels)[-/])(?P<config>[\w.]+(?:-[\w.]+)*?)[-/])?"
_SPLIT = r"(?P<split>[A-Za-z][\w.]*(?:-[A-Za-z][\w.]*)*?)"
_SHARD = r"(?:[-_./]?\d+(?:[-_]of[-_]\d+)?(?:-[0-9a-f]{16})?)?"

_FORMS: tuple[tuple[Part, str], ...] = (
    # MIRACL
    ("corpus", r"(?:miracl-corpus/)?miracl-corpus-v1\.0-(?P<config>[a-z]+)/docs-\d+"),
    ("queries", r"miracl-v1\.0-(?P<config>[a-z]+)/topics/topics\.miracl-v1\.0-[a-z]+-(?P<split>[\w-]+)"),
    ("qrels", r"miracl-v1\.0-(?P<config>[a-z]+)/qrels/qrels\.miracl-v1\.0-[a-z]+-(?P<split>[\w-]+)"),
    # mMARCO
    ("corpus", r"data/google/collections/(?P<config>[a-z]+)_collection"),
    ("queries", r"data/google/queries/(?:train|dev)/(?P<config>[a-z]+)_queries\.(?P<split>[a-z.]+)"),
    ("qrels", r"data/qrels\.(?P<split>[a-z.]+)"),
    # BEIR, C-MTEB, and others
    ("corpus", rf"{_CONFIG}(?:corpus|docs)(?:[-/.]{_SPLIT})?{_SHARD}"),
    ("queries", rf"{_CONFIG}(?:queries|query)(?:[-/.]{_SPLIT})?{_SHARD}"),
    ("qrels", rf"{_CONFIG}qrels(?:[-/.]{_SPLIT})?{_SHARD}"),
    ("qrels", rf"data/{_SPLIT}{_SHARD}"),
)
"""Paths of files within the folder, without their ending; the first match gives the part."""


_SAME_SPLIT = {"dev": "validation", "validation": "dev"}


Parts = dict[Part, dict[str, list[T]]]
"""The files of a collection, or their patterns: part -> split -> files; files without a split are under ""."""


def find_parts(folders: Mapping[Path, Sequence[Part]], *, heads: bool = True) -> dict[str, Parts[Path]]:
    """Find the files of a collection that lies in one or several folders.

    Args:
        folders: folder -> the parts to read from it. Where that is judgements alone, each file in the folder itself
            holds judgements and is named after its split.
        heads: whether the head of a README decides where it names files; else only a look is taken, without warnings,
            and files that differ in their endings alone all belong to their part.

    Returns:
        Configuration -> its parts; "" is a configuration without a name.
    """
    by_config: dict[str, Parts[Path]] = {}
    for folder, wanted in folders.items():
        declared = [
            (part, config, split, path)
            for config, parts in (head_patterns(folder / "README.md") if heads else {}).items()
            for part, splits in parts.items()
            for split, patterns in splits.items()
            for path in {*chain(*map(folder.glob, patterns))}
            if path.is_file() and ending_of(path)
        ]
        for part, config, split, path in declared or _named_files(folder, list(wanted) == ["qrels"]):
            if part in wanted:
                by_config.setdefault(config, {}).setdefault(part, {}).setdefault(split, []).append(path)
    for splits in chain(*map(dict.values, by_config.values())) if heads else ():
        splits.update({split: _one_of_each(files) for split, files in splits.items()})
    shared = by_config.get("", {})
    if any(by_config) and not {"corpus", "queries"} <= shared.keys():
        by_config.pop("", None)
    return {config: shared | parts for config, parts in by_config.items()}


def list_files(folder: Path) -> tuple[list[Path], list[Path], Counter[str]]:
    """The documents and the tables (:mod:`vtkit.data.rows`) below ``folder``, sorted, and the number of other entries
    by kind.

    Links to folders are not followed, since they may lead in a circle; neither hidden files are read, nor the folders
    below that vtkit made.
    """
    documents: list[Path] = []
    tables: list[Path] = []
    others: Counter[str] = Counter()
    for place, folders, names in os.walk(folder, onerror=lambda error: others.update([f"unreadable folder ({error})"])):
        for path in [Path(place, name) for name in folders]:
            hidden, link = path.name.startswith("."), path.is_symlink()
            if hidden or link or records_in(path):
                folders.remove(path.name)
                others["hidden folder" if hidden else "link to a folder" if link else "folder that vtkit made"] += 1
        for path in [Path(place, name) for name in names]:
            if path.name.startswith("."):
                others["hidden file"] += 1
            elif form_of(path) in READERS:
                documents.append(path)
            elif ending_of(path) and form_of(path) != ".json":  # of which a folder may have any
                tables.append(path)
            else:
                others[path.suffix.lower() or "file without an ending"] += 1
    return sorted(documents), sorted(tables, key=lambda path: (len(str(path)), path)), others


def head_patterns(readme: Path) -> dict[str, Parts[str]]:
    """Configuration -> the patterns of its files in the head of a README; empty without such a head.

    Raises:
        DataError: the head has ``configs``, but cannot be read, or names files elsewhere.
    """
    from huggingface_hub import metadata_load

    if not readme.is_file():
        return {}
    try:
        head = metadata_load(readme) or {}
        patterns_of: dict[str, Parts[str]] = {}
        for entry in head.get("configs") or ():
            config, _, role = str(entry["config_name"]).rpartition("-")
            if role in _ROLES:
                for split, patterns in _splits(entry):
                    # C-MTEB's corpora and queries are splits of the only configuration
                    part = _ROLES.get(split, _ROLES[role]) if role == "default" else _ROLES[role]
                    patterns_of.setdefault(config, {}).setdefault(part, {})[split] = patterns
        return patterns_of
    except Exception as error:  # YAML's errors have no closer common base with the rest
        if not re.search(rb"^configs\b", readme.read_bytes(), re.MULTILINE):
            return {}  # of a page that has nothing to do with collections
        raise DataError(
            f"{readme}: its head does not name the files of the corpus, the queries and the judgements "
            f"({type(error).__name__}: {error})."
        ) from error


def chosen(parts: Parts[T], part: Part, split: str) -> list[T]:
    """The files, or patterns of files, of ``part`` for ``split``; all of a corpus or queries without such a split."""
    splits = parts.get(part, {})
    for called in (split, _SAME_SPLIT.get(split, split)):
        if called in splits:
            return list(splits[called])
    if part == "qrels":
        return []
    return list(splits[""]) if "" in splits else [entry for entries in splits.values() for entry in entries]


def _splits(entry: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Split and patterns of a configuration: ``data_files`` in all forms that the hub supports."""
    files = entry.get("data_files", f"{entry.get('data_dir', '.')}/*")
    if isinstance(files, str) or all(isinstance(file, str) for file in files):
        files = [{"split": "train", "path": files}]
    for file in files:
        patterns = [file["path"]] if isinstance(file["path"], str) else list(file["path"])
        for pattern in patterns:
            if not pattern or Path(pattern).is_absolute() or ".." in Path(pattern).parts:
                raise ValueError(f"{pattern!r} is outside of the repository")
        yield str(file["split"]), patterns


def _named_files(folder: Path, only_qrels: bool) -> Iterator[tuple[Part, str, str, Path]]:
    """Part, configuration, split and path of each table whose name says them."""
    for path in list_files(folder)[1]:
        stem = path.relative_to(folder).as_posix().removesuffix(ending_of(path) or "")
        stem = f"qrels/{stem}" if only_qrels and "/" not in stem else stem
        matches = ((part, match) for part, form in _FORMS if (match := re.fullmatch(form, stem)))
        for part, match in islice(matches, 1):
            groups = match.groupdict()
            yield part, groups.get("config") or "", groups.get("split") or "", path


def _one_of_each(files: Iterable[Path]) -> list[Path]:
    """The ``files`` in the order of their names; if several differ only in their endings, the first ending counts, and
    the others are said to be ignored."""
    stems: dict[str, list[Path]] = {}
    for ending in ENDINGS:
        for path in (path for path in files if ending_of(path) == ending):
            stems.setdefault(str(path)[: -len(ending)], []).append(path)
    for path, *others in stems.values():
        if others:
            names = " and ".join(other.name for other in others)
            console.once(console.warn, f"{path} is read; {names} beside it is ignored. Remove the outdated file.")
    return [stems[stem][0] for stem in sorted(stems, key=lambda stem: (len(stem), stem))]

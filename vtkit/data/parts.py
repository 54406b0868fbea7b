"""The files of a collection's parts (corpus, queries, qrels) in a folder, by configuration and split: as the head of a
README names them, else by the names of files and folders."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from vtkit.data.rows import ENDINGS, ending_of
from vtkit.data.text_files import list_files
from vtkit.system import console
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
    parts_by_name: dict[str, Parts[Path]] = {}
    for folder, wanted in folders.items():
        said = [*_said_by_head(folder)] if heads else []
        for part, config, split, path in said or _named(folder, list(wanted) == ["qrels"], warns=heads):
            if part in wanted:
                parts_by_name.setdefault(config, {}).setdefault(part, {}).setdefault(split, []).append(path)
    shared = parts_by_name.get("", {})
    if any(parts_by_name) and not {"corpus", "queries"} <= shared.keys():
        parts_by_name.pop("", None)
    return {config: shared | parts for config, parts in parts_by_name.items()}


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


_File = tuple[Part, str, str, Path]  # part, configuration, split and path


def _said_by_head(folder: Path) -> Iterator[_File]:
    for config, parts in head_patterns(folder / "README.md").items():
        for part, split, patterns in ((part, *entry) for part, splits in parts.items() for entry in splits.items()):
            files = sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})
            yield from ((part, config, split, path) for path, *_ in _by_ending(files))


def _named(folder: Path, only_qrels: bool, *, warns: bool) -> Iterator[_File]:
    for path, *others in _by_ending(list_files(folder)[1]):
        name = path.relative_to(folder).as_posix()
        stem = name.removesuffix(ending_of(path) or "")
        stem = f"qrels/{stem}" if only_qrels and "/" not in stem else stem
        matches = ((part, match) for part, form in _FORMS if (match := re.fullmatch(form, stem)))
        for part, match in islice(matches, 1):
            if others and warns:
                names = " and ".join(other.name for other in others)
                said = f"{path} is read; {names} beside it is ignored. Remove the outdated file."
                console.once(console.warn, said)
            groups = match.groupdict()
            for file in [path] if warns else [path, *others]:
                yield part, groups.get("config") or "", groups.get("split") or "", file


def _by_ending(files: Iterable[Path]) -> list[list[Path]]:
    """Groups of files that differ only in their ending, in the order of the endings: the first is read."""
    stems = [(str(path)[: -len(ending)], ENDINGS.index(ending), path) for path in files if (ending := ending_of(path))]
    stems.sort(key=lambda each: (len(each[0]), *each))
    return [[path for *_, path in group] for _, group in groupby(stems, key=itemgetter(0))]

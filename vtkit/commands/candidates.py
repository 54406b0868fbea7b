"""Tokenizers of a command: their short names in tables, and those of runs and of the hub's cache if none is named."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from os.path import getmtime
from pathlib import Path
from typing import NamedTuple

from vtkit.data import hub
from vtkit.system import console
from vtkit.system.errors import VtkitError

TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")


class Candidate(NamedTuple):
    """A tokenizer that a command could read."""

    name: str  # a folder, a file or a hub id, for the command line
    what: str  # its origin, in words

    @property
    def is_there(self) -> bool:
        """Whether it is available: a path, or a hub id in the cache or to be fetched."""
        on_hub = not self.name.startswith((".", "/", "~")) and self.name.count("/") <= 1
        return Path(self.name).exists() or (on_hub and (hub.downloads_allowed() or hub.in_cache(self.name)))


TO_TRY = (  # if there is no other
    Candidate("opensearch-project/opensearch-neural-sparse-encoding-doc-v2-distill", "BERT's, English in lower case"),
    Candidate("answerdotai/ModernBERT-base", "English with its case"),
    Candidate("FacebookAI/xlm-roberta-base", "a hundred languages"),
)


def list_candidates(candidates: Sequence[Candidate], command: str) -> None:
    """Print ``command`` with each of ``candidates``, or with each of :data:`TO_TRY` if there are none."""
    if candidates:
        console.write("No tokenizer is named. Found here:")
    else:
        console.write("No tokenizer was found in the runs of this folder or in the hub's cache. Three to begin with:")
    for each in candidates or TO_TRY:
        name = shlex.quote(each.name) + (" --download" if each in TO_TRY else "")
        console.write(f"  {command} {name}   # {each.what}")
    console.write("You can also name a folder, a file (tokenizer.json, vocab.txt, SentencePiece .model) or a hub id.")


def short_names(names: Sequence[str]) -> list[str]:
    """The last part of each name (for a file, with its folder), or the whole name if that is not unique."""
    short = []
    for name in names:
        path = Path(name)
        parts = path.absolute().parts if path.exists() else path.parts
        short.append("/".join(parts[-2:] if path.is_file() else parts[-1:]) or name)
    whole = [last if short.count(last) == 1 else name for last, name in zip(short, names, strict=True)]
    return [
        name if whole.count(name) == 1 else f"{name} ({whole[: place + 1].count(name)})"
        for place, name in enumerate(whole)
    ]


def of_run(folder: Path) -> list[Candidate]:
    """The source's vocabulary and the new one of a run."""
    from vtkit.pipeline.folder import open_run

    run = open_run(folder)
    candidates = [Candidate(run.models["source"], f"source of {folder}")] if "source" in run.models else []
    if (folder / "model").is_dir():
        return [*candidates, Candidate(str(folder / "model"), f"final model of {folder}")]
    if "vocabulary" in run.steps:
        candidates.append(Candidate(str(run.steps["vocabulary"] / "tokenizer"), f"vocabulary of {folder}"))
    return candidates


def of_recipe(path: Path) -> list[Candidate]:
    """The source's vocabulary and the new one of a recipe, if they exist before it has run."""
    from vtkit.recipe.load import load_recipe
    from vtkit.settings.vocabulary import ExistingVocabulary, ExpandedVocabulary

    recipe = load_recipe(path).recipe
    finished = Path("runs") / recipe.recipe.name
    if (finished / "run.json").is_file():
        return of_run(finished)
    source, vocabulary = recipe.source, recipe.vocabulary
    candidates = [Candidate(source.model, f"source of {path}")] if source.model is not None else []
    candidates += of_recipe(Path(source.recipe))[-1:] if source.recipe is not None else []
    if isinstance(vocabulary, ExistingVocabulary | ExpandedVocabulary):
        candidates.append(Candidate(vocabulary.tokenizer, f"vocabulary of {path}"))
    return candidates


def all_candidates() -> list[Candidate]:
    """The vocabularies of the runs in the current folder or in its ``runs``, and those in the hub's cache; of each the
    newest first."""
    runs = {*Path().glob("run.json"), *Path().glob("*/run.json"), *Path("runs").glob("*/run.json")}
    patterns = (f"models--*/snapshots/*/{file}" for file in TOKENIZER_FILES)
    cached = {file.parent for pattern in patterns for file in hub.cache_folder().glob(pattern)}
    candidates: list[Candidate] = []

    for run in sorted(runs, key=getmtime, reverse=True):
        try:
            candidates += of_run(run.parent)
        except VtkitError as error:
            console.warn(f"{run.parent} is ignored: {error}")
    for folder in sorted(cached, key=getmtime, reverse=True):
        name = folder.parents[1].name.removeprefix("models--").replace("--", "/")
        candidates.append(Candidate(name, "in the hub's cache"))
    by_name: dict[str, Candidate] = {}
    for each in candidates:
        by_name.setdefault(each.name, each)
    return [each for each in by_name.values() if each.is_there]

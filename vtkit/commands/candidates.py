"""Tokenizers that a command looks at: what they are called in print, and which there are where none is named."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vtkit.data import hub
from vtkit.system import console
from vtkit.system.errors import VtkitError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")

MOST_FOLDERS = 1000  # folders beside and below that are looked into


class Candidate(NamedTuple):
    """A tokenizer that could be looked at."""

    name: str  # what to call it on the command line: a folder, a file or a hub id
    what: str  # where it is from, in words

    @property
    def is_there(self) -> bool:
        """Whether it can be had: a path, or a hub id in the cache or to be fetched."""
        on_hub = not self.name.startswith((".", "/", "~")) and self.name.count("/") <= 1
        return Path(self.name).exists() or (on_hub and (hub.downloads_allowed() or hub.in_cache(self.name)))


TO_TRY = (  # where nothing is at hand
    Candidate("opensearch-project/opensearch-neural-sparse-encoding-doc-v2-distill", "BERT's, English in lower case"),
    Candidate("answerdotai/ModernBERT-base", "English with its case"),
    Candidate("FacebookAI/xlm-roberta-base", "a hundred languages"),
)


def advise(command: str, flag: str = "") -> None:
    """Print what to try where nothing is at hand: ``command`` with each of :data:`TO_TRY`."""
    console.write("No tokenizer was found in this folder, its runs, or the hub's cache. Three to begin with:")
    for each in TO_TRY:
        console.write(f"  {command} {flag}{each.name} --download   # {each.what}")
    console.write("You can also name a folder, a file (tokenizer.json, vocab.txt, SentencePiece .model) or a hub id.")


def load(name: str) -> PreTrainedTokenizerFast:
    """The tokenizer called ``name``; roles may be missing, since nothing is trained."""
    from vtkit.vocabulary.existing import load_tokenizer

    return load_tokenizer(name, require_roles=False)


def short_names(names: Sequence[str]) -> list[str]:
    """The last part of each name (for a file, with its folder), or the whole where that is not unique."""
    short = []
    for name in names:
        path = Path(name)
        parts = path.absolute().parts if path.exists() else path.parts
        short.append("/".join(parts[-2:] if path.is_file() else parts[-1:]) or name)
    whole = [
        short_name if short.count(short_name) == 1 else name for short_name, name in zip(short, names, strict=True)
    ]
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
    """The source's vocabulary and the new one of a recipe, as far as they are there without running it."""
    from vtkit.recipe.load import load_recipe
    from vtkit.settings.vocabulary import ExistingVocabulary, ExpandedVocabulary

    recipe = load_recipe(path, []).recipe
    finished = Path("runs") / recipe.recipe.name
    if (finished / "run.json").is_file():
        return of_run(finished)
    candidates = []
    if recipe.source.model is not None:
        candidates.append(Candidate(str(recipe.source.model), f"source of {path}"))
    elif recipe.source.recipe is not None:
        candidates += of_recipe(Path(recipe.source.recipe))[-1:]
    vocabulary = recipe.vocabulary
    if isinstance(vocabulary, ExistingVocabulary | ExpandedVocabulary) and not vocabulary.tokenizer.endswith(".toml"):
        candidates.append(Candidate(str(vocabulary.tokenizer), f"vocabulary of {path}"))
    return candidates


def runs_here() -> list[Path]:
    """Folders of runs in the current folder or in its ``runs``, the newest first."""
    files = [*Path().glob("run.json"), *Path().glob("*/run.json"), *Path("runs").glob("*/run.json")]
    return [file.parent for file in sorted(set(files), key=lambda file: -file.stat().st_mtime)]


def recipes_here() -> list[Path]:
    """Recipes in the current folder or in its ``recipes``."""
    return [path for path in sorted([*Path().glob("*.toml"), *Path("recipes").glob("*.toml")]) if _is_recipe(path)]


def tokenizers_here() -> list[Candidate]:
    """Tokenizers in the current folder, and in the folders of it and of its ``tokenizers``."""
    folders = [Path(), *_folders(Path()), *_folders(Path("tokenizers"))]
    candidates = []
    for folder in folders[:MOST_FOLDERS]:
        files = [file for pattern in TOKENIZER_FILES for file in sorted(folder.glob(pattern))]
        if files:
            candidates.append(Candidate(str(files[0] if folder == Path() else folder), "in this folder"))
    return candidates


def cached() -> list[Candidate]:
    """Models and tokenizers in the hub's cache, the newest first."""
    snapshots = [
        snapshot
        for snapshot in hub.cache_folder().glob("models--*/snapshots/*")
        if any(True for pattern in TOKENIZER_FILES for _ in snapshot.glob(pattern))
    ]
    snapshots.sort(key=lambda snapshot: -snapshot.stat().st_mtime)
    names = (snapshot.parents[1].name.removeprefix("models--").replace("--", "/") for snapshot in snapshots)
    return [Candidate(name, "in the hub's cache") for name in dict.fromkeys(names)]


def to_compare() -> list[Candidate]:
    """Vocabularies to compare when none is named: those of the newest run or of the one recipe here, and those beside
    it; otherwise cached ones."""
    runs, recipes = runs_here()[:1], recipes_here()
    named = _readable(of_run, runs) if runs else _readable(of_recipe, recipes) if len(recipes) == 1 else []
    candidates = [*named, *tokenizers_here()[:4]]
    return list(dict.fromkeys(each for each in candidates if each.is_there)) or cached()[:3]


def all_candidates() -> list[Candidate]:
    """Everything that could be looked at from the current folder, each once."""
    of_both = _readable(of_run, runs_here()) + _readable(of_recipe, recipes_here())
    by_name: dict[str, Candidate] = {}
    for each in [*of_both, *tokenizers_here(), *cached()]:
        by_name.setdefault(each.name, each)
    return list(by_name.values())


def _readable(look: Callable[[Path], list[Candidate]], paths: Sequence[Path]) -> list[Candidate]:
    """The candidates that ``look`` finds. A run or recipe that only happens to lie here and cannot be read adds
    none."""
    candidates: list[Candidate] = []
    for path in paths:
        try:
            candidates += look(path)
        except VtkitError as error:
            console.warn(f"{path} is ignored: {error}")
    return candidates


def _folders(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (path for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith("."))


def _is_recipe(path: Path) -> bool:
    try:
        return "recipe" in tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return False

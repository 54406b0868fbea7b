"""A first recipe from a few answers, with comments that say what to change next."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from vtkit.data.hub import fetch, located
from vtkit.data.sources import default_split
from vtkit.recipe.load import resolve_name
from vtkit.recipe.problems import plain
from vtkit.recipe.write import toml_value, wrapped
from vtkit.settings.named import is_local
from vtkit.system.errors import RecipeError, VtkitError
from vtkit.system.runtime import bf16_is_fast
from vtkit.system.templates import templates_of


def new_recipe(
    *,
    name: str | None,
    language: str | None,
    source: str | None = None,
    source_language: str = "en",
    lowercase: bool = True,
    tokenizer: str | None = None,
    corpus: Sequence[str] = (),
    parallel: Sequence[str] = (),
    embedder: str | None = None,
    train: str | None = None,
    evaluate: Sequence[str] = (),
    documents: str | None = None,
    trimmed: bool = True,
    passages: int | None = None,
) -> str:
    """The text of a recipe; names stand in it as they are given, so paths are relative to where it is saved.

    If the source's language is among those of the texts, the encoder keeps its own vocabulary, which training serves
    better than new tokens do (docs/recipes.md); else it moves onto the tokenizer's, or onto one trained on the corpus.
    Without a source it starts from ``embedder``, to which a head is fitted; beside a source, an embedder is another
    bridge, and a teacher. Without a corpus the encoder is adapted to the documents of ``train`` or ``evaluate``, if at
    all. ``documents`` are indexed if nothing is evaluated; by default those of a single corpus. Unless ``trimmed``, an
    embedder keeps its vocabulary. Documents are indexed as ``passages`` of so many words, if that is given.
    """
    own = tokenizer is None and source_language in (language or "").split(",")
    texts = [*corpus, *([] if corpus else dict.fromkeys(each for each in (train, *evaluate) if each))]
    needed: dict[str, object] = {"--name": name, "--language": language, "--source (or --embedder)": source or embedder}
    if source is None and embedder is not None:
        needed["--corpus"] = texts
    else:
        needed["--tokenizer (or --corpus, to train one)"] = (source and own) or tokenizer or corpus
    if missing := [option for option, given in needed.items() if not given]:
        raise RecipeError(f"The recipe needs also: {', '.join(missing)}")
    splits = {default_split(name) for name in evaluate}
    moved = [tokenizer, *parallel] if source else []
    needs = [source, *moved, embedder, train, *corpus, *evaluate]
    template = templates_of("vtkit.recipe").get_template("new.toml")
    return template.render(
        name=name,
        language=language,
        source=source,
        own=own,
        lowercase=lowercase,
        tokenizer=tokenizer,
        corpus=corpus,
        texts=texts,
        parallel=parallel,
        embedder=embedder,
        train=train,
        evaluate=evaluate,
        trimmed=trimmed,
        passages=passages,
        bf16=source is None and bf16_is_fast(),  # which imports torch
        documents=documents or (corpus[0] if len(corpus) == 1 else None),
        split=splits.pop() if len(splits) == 1 else "test",
        needs=dict.fromkeys(need for need in needs if need),
        plain=plain,
        toml=toml_value,
        listed=wrapped,
    )


def reads_lower_case(source: str) -> bool:
    """Report whether a source folds its input to lower case, as the published sparse encoders do. Where its tokenizer
    is not here to be asked, it is taken for one of them."""
    folder = Path(located(source))
    try:
        folder = folder if folder.is_dir() else fetch(source, ("tokenizer.json",), "model")
        normalizer = json.dumps(json.loads((folder / "tokenizer.json").read_text("utf-8"))["normalizer"])
    except (VtkitError, OSError, ValueError, TypeError, KeyError):
        return True
    return '"type": "Lowercase"' in normalizer or '"lowercase": true' in normalizer


def as_written_in(folder: Path, name: str, what: str) -> str:
    """``name``, given relative to the current folder, as a recipe in ``folder`` has to write it; ``what`` as in
    :class:`~vtkit.settings.types.Names`."""
    resolved = resolve_name(name, what, Path.cwd())
    if not is_local(resolved) or name.startswith(("/", "~")):
        return name
    relative = os.path.relpath(resolved, folder)
    return relative if relative == ".." or relative.startswith("../") else f"./{relative}"

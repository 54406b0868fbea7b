"""A first recipe from a few answers, with comments that say what to change next."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from vtkit.data.hub import fetch, located
from vtkit.data.sources import default_split
from vtkit.recipe.load import resolve_name
from vtkit.recipe.problems import plain
from vtkit.recipe.write import toml_value, wrapped
from vtkit.settings.named import find_mark, is_local
from vtkit.settings.types import CorpusName, ModelName, PairsName, RetrievalName, Section, TokenizerName
from vtkit.system.errors import RecipeError, VtkitError
from vtkit.system.runtime import bf16_is_fast
from vtkit.system.templates import templates_of


class NewRecipe(Section):
    """The answers that a first recipe is written from."""

    name: str | None = None
    """Name of the run: letters, digits, dots, hyphens."""

    language: str | None = None
    """ISO 639 code of the language, or several: en,ko. `vtkit build` detects it by default."""

    source: ModelName | None = None
    """Sparse encoder to start from: hub id or folder. Of another language it needs `parallel` or `embedder`. Default:
    `embedder` alone."""

    source_language: str = "en"
    """ISO 639 code of the encoder's language."""

    tokenizer: TokenizerName | None = None
    """Tokenizer whose vocabulary to use. Default: the source's own in its language, one trained on the corpus in
    another."""

    corpus: tuple[CorpusName, ...] = ()
    """Text of the language or domain: .txt, .jsonl, BEIR folder. Repeatable."""

    parallel: tuple[PairsName, ...] = ()
    """Parallel text: two tab-separated columns, source first. Repeatable."""

    embedder: ModelName | None = None
    """Dense embedder that knows the language, to start from. With `source`: one that knows both languages, in place of
    parallel text."""

    train: RetrievalName | None = None
    """Collection with judged queries to fine-tune on."""

    evaluate: tuple[RetrievalName, ...] = ()
    """Collection to evaluate the run on. Repeatable."""

    def written_in(self, folder: Path) -> NewRecipe:
        """These answers with names, given relative to the current folder, as a recipe in ``folder`` writes them."""
        written: dict[str, Any] = {}
        for name, field in NewRecipe.model_fields.items():
            mark, value = find_mark(field.metadata, field.annotation), getattr(self, name)
            if mark is not None and isinstance(value, tuple):
                written[name] = tuple(as_written_in(folder, entry, mark.what) for entry in value)
            elif mark is not None and value is not None:
                written[name] = as_written_in(folder, value, mark.what)
        return self.model_copy(update=written)


def new_recipe(
    answers: NewRecipe,
    folder: Path,
    *,
    documents: str | None = None,
    trimmed: bool = True,
    passages: int | None = None,
) -> str:
    """The text of a recipe in ``folder``.

    If the source's language is among those of the texts, the encoder keeps its own vocabulary, which training serves
    better than new tokens do (docs/recipes.md); else it moves onto the tokenizer's, or onto one trained on the corpus.
    Without a source it starts from the embedder, to which units are fitted; beside a source, an embedder is another
    bridge, and a teacher. Without a corpus the encoder is adapted to the documents of ``train`` or ``evaluate``, if at
    all. ``documents`` are indexed if nothing is evaluated; by default those of a single corpus. Unless ``trimmed``, an
    embedder keeps its vocabulary. Documents are indexed as ``passages`` of so many words, if that is given.
    """
    given = answers.written_in(folder)
    own = given.tokenizer is None and given.source_language in (given.language or "").split(",")
    collections = dict.fromkeys(each for each in (given.train, *given.evaluate) if each)
    texts = given.corpus or tuple(collections)
    needed: dict[str, object] = {
        "--name": given.name,
        "--language": given.language,
        "--source (or --embedder)": given.source or given.embedder,
    }
    if given.source is None and given.embedder is not None:
        needed["--corpus"] = texts
    else:
        needed["--tokenizer (or --corpus, to train one)"] = (given.source and own) or given.tokenizer or given.corpus
    if missing := [option for option, answer in needed.items() if not answer]:
        raise RecipeError(f"The recipe needs also: {', '.join(missing)}")
    splits = {default_split(name) for name in given.evaluate}
    moved = [given.tokenizer, *given.parallel] if given.source else []
    needs = [given.source, *moved, given.embedder, given.train, *given.corpus, *given.evaluate]
    template = templates_of("vtkit.recipe").get_template("new.toml")
    return template.render(
        **dict(given),
        own=own,
        lowercase=answers.source is not None and reads_lower_case(answers.source),
        texts=texts,
        trimmed=trimmed,
        passages=passages,
        bf16=given.source is None and bf16_is_fast(),  # which imports torch
        documents=documents or (given.corpus[0] if len(given.corpus) == 1 else None),
        split=splits.pop() if len(splits) == 1 else "test",
        needs=dict.fromkeys(need for need in needs if need),
        plain=plain,
        toml=toml_value,
        listed=wrapped,
    )


def reads_lower_case(source: str) -> bool:
    """Report whether a source folds its input to lower case, as the published sparse encoders do. Where its tokenizer
    is not here to be asked, it is taken for one of them."""
    try:
        folder = Path(located(source))
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

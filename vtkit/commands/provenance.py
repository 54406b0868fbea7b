"""``vtkit provenance``: the source tokens of a row, and the rows made of a source token."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from vtkit.commands.options import argument, option
from vtkit.system import console
from vtkit.system.errors import VtkitError

if TYPE_CHECKING:
    from vtkit.transfer.provenance import Origin
    from vtkit.vocabulary.forms import Vocabulary

MOST_TAKERS = 20  # tokens listed for a source token, unless --top says otherwise
SHOWN_SOURCES = 5

WHOLE = 0.99  # recorded weights that sum to less are the heaviest of a softmax only


def provenance(
    run: Annotated[Path, argument("Folder of a run, or one written by `vtkit transfer`.", "RUN")],
    words: Annotated[
        list[str] | None, argument("Tokens or words; words are looked up by their text, or split into tokens.", "TOKEN")
    ] = None,
    source: Annotated[
        list[str] | None,
        option("Show which tokens this source token or word went into. Repeatable.", "TOKEN", "--source", "-s"),
    ] = None,
    beside: Annotated[
        list[Path] | None, option("Another run to show beside it. Repeatable.", "RUN", "--beside", "-b")
    ] = None,
    top: Annotated[int, option("Number of tokens to list for a source token.", min=1)] = MOST_TAKERS,
) -> None:
    """Show the source tokens that a token's row was made of.

    Beside them stand their weights, the method and the bias. With --source, shows the target tokens that a source token
    is part of, heaviest first. With --beside, shows several transfers of the same words side by side.
    """
    from vtkit.transfer.provenance import PROVENANCE, output_vocabulary, read_provenance

    if not words and not source:
        raise VtkitError("vtkit provenance needs a token to look up: vtkit provenance RUN 집, or --source house.")
    transfers = {str(folder): _folder(folder) for folder in [run, *(beside or [])]}
    tables = {name: read_provenance(folder / PROVENANCE) for name, folder in transfers.items()}
    found: dict[str, Any] = {word: {} for word in words or []}
    for name, table in tables.items() if words else ():
        vocabulary = output_vocabulary(transfers[name])
        for word, by_run in found.items():
            by_run[name] = [_as_json(table[number]) for number in _ids(word, vocabulary)]
    reverse = {word: {name: _of_source(word, table, top) for name, table in tables.items()} for word in source or []}
    if console.answered({"tokens": found, "source": reverse}):
        return
    for word, by_run in found.items():
        _show_word(word, by_run)
    for word, by_run in reverse.items():
        console.write(f"source token {console.one_line(word, 60)}")
        for name, takers in by_run.items():
            if len(by_run) > 1:
                console.write(f"  {name}")
            for token, weight, method in takers:
                console.write(f"    {weight:.2f}  {console.one_line(token, 24):<16} {method}")


def _folder(folder: Path) -> Path:
    """The folder of a run's transfer, with its ``provenance.parquet`` and its ``model``."""
    from vtkit.pipeline.folder import is_run_folder, open_run
    from vtkit.transfer.provenance import PROVENANCE

    if is_run_folder(folder):
        steps = open_run(folder).steps
        if "transfer" not in steps:
            raise VtkitError(
                f"{folder} has no transfer: its recipe has not run to that stage, or the folder was moved without "
                "the folder artifacts beside it."
            )
        folder = steps["transfer"]
    if not (folder / PROVENANCE).is_file():
        raise VtkitError(
            f"{folder} has no {PROVENANCE}: name the folder of a run whose source is an encoder, or a folder "
            "that vtkit transfer wrote."
        )
    return folder


def _ids(word: str, vocabulary: Vocabulary) -> list[int]:
    """The tokens with the text ``word``, those that start a word first; else the token that is written so (``##s``);
    else the tokens that the vocabulary cuts the word into behind other text."""
    from vtkit.vocabulary.forms import whole_encodings

    surfaces = vocabulary.surfaces
    called = sorted((not starts, number) for number, (surface, starts) in enumerate(surfaces) if surface == word)
    if called:
        return [number for _, number in called]
    for written in (vocabulary.tokens, vocabulary.legible):
        if word in written:
            return [written.index(word)]
    (encoding,) = whole_encodings(vocabulary.tokenizer, [f"a {word}"], offsets=True)
    read = zip(encoding.ids, encoding.offsets, strict=True)
    return [number for number, (start, end) in read if end > 2 and (start >= 2 or surfaces[number][0].strip())]


def _as_json(origin: Origin) -> dict[str, Any]:
    return {
        "token": origin.token,
        "id": origin.target_id,
        "method": origin.method,
        "bias": round(origin.bias, 4),
        "sources": [[token, round(weight, 4)] for token, weight in zip(origin.sources, origin.weights, strict=True)],
    }


def _of_source(word: str, table: list[Origin], top: int) -> list[list[Any]]:
    """Tokens that ``word`` as a source token, with or without its mark of word starts, is part of, with weights."""
    from vtkit.vocabulary.notation import BYTE_LEVEL, SENTENCEPIECE, WORDPIECE, Canonical

    marked = ((notation, f"{mark}{word}") for notation in (BYTE_LEVEL, SENTENCEPIECE) for mark in ("", " "))
    names = {notation.legible(notation.written(text)) for notation, text in marked}
    takers = [
        (weight, origin)
        for origin in table
        for token, weight in zip(origin.sources, origin.weights, strict=True)
        if token in names
    ]
    if not takers:
        continued = WORDPIECE.write(Canonical(False, word))
        hint = f" The source writes it {continued}." if any(continued in origin.sources for origin in table) else ""
        raise VtkitError(f"no token was made from the source token {word!r}.{hint}")
    takers.sort(key=lambda pair: (-pair[0], pair[1].target_id))
    return [[origin.token, round(weight, 4), origin.method] for weight, origin in takers[:top]]


def _show_word(word: str, by_run: dict[str, list[dict[str, Any]]]) -> None:
    console.write(console.one_line(word, 60))
    for name, origins in by_run.items():
        if len(by_run) > 1:
            console.write(f"  {name}")
        if not origins:
            console.write("    the vocabulary reads this as nothing")
        for origin in origins:
            token, method = console.one_line(origin["token"], 24), origin["method"]
            heaviest = origin["sources"][:SHOWN_SOURCES]
            sources = "  ".join(f"{console.one_line(source, 24)} {weight:.2f}" for source, weight in heaviest)
            console.write(f"    {token:<16} {method:<12} bias {origin['bias']:+.2f}   {sources or 'no source token'}")
            share = sum(weight for _, weight in origin["sources"])
            if 0 < share < WHOLE:
                console.write(f"    the rest of its weight, {1 - share:.1%}, is spread over all other source tokens")

"""``vtkit search`` and ``vtkit explain``: the results of a run's index, and the tokens behind a score."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from vtkit.commands.options import CollectionOption, SearchedArgument, WhereOption, argument, grouped, option
from vtkit.data.document_files import is_blank, read_query_file, standard_input
from vtkit.data.sources import QUERY_FORMS
from vtkit.search.results import NO_WORD, readable
from vtkit.system import console
from vtkit.system.errors import RecipeError, VtkitError
from vtkit.system.runtime import kept_for_good

if TYPE_CHECKING:
    from vtkit.search.results import Explanation, Found, SharedToken, Weighted, WordShare
    from vtkit.search.searcher import Searcher

ModelOption = Annotated[
    str | None,
    option(
        "Use another stage's model: source, transfer, adapt, calibrate or finetune. Default: the final one.",
        "STAGE",
        "--model",
    ),
]
QueryLanguageOption = Annotated[
    str | None,
    option(
        "Language of the queries, if it is that of the source (en). A run whose transfer had parallel text translates "
        "them.",
        "CODE",
        "--query-language",
    ),
]

HINT = "Ctrl-D ends the search. :top N changes the number of results, :explain RANK shows the tokens of a score."


def sought(
    query: Annotated[str | None, argument("What to search for. Default: prompt for queries.", "QUERY")] = None,
    batch: Annotated[
        str | None,
        option(
            f"Search for many queries ({QUERY_FORMS}; - for standard input) and print "
            "a TREC run, or with --json an object a line.",
            "FILE",
        ),
    ] = None,
    unit: Annotated[
        str | None,
        option("Instead of a query: the documents in which a token or latent unit weighs most.", "NAME_OR_NUMBER"),
    ] = None,
) -> tuple[str | None, str | None, str | None]:
    """The query, the file of queries, or the unit to search for; none of them: queries are prompted for."""
    if sum(given is not None for given in (query, batch, unit)) > 1:
        raise RecipeError("Give a query, a file of them with --batch, or a --unit.")
    if query is not None and is_blank(query):
        raise RecipeError("The query is empty: there is nothing to search for.")
    return query, batch, unit


def index_of(
    model: ModelOption = None, collection: CollectionOption = None, query_language: QueryLanguageOption = None
) -> dict[str, str | None]:
    """Which index of a run, and the language of its queries, as :func:`vtkit.pipeline.search.open_searcher` has it."""
    return {"model": model, "collection": collection, "query_language": query_language}


@grouped("asked", sought)
@grouped("index", index_of)
def search(
    run: SearchedArgument,
    asked: tuple[str | None, str | None, str | None],
    index: dict[str, str | None],
    top: Annotated[int, option("How many results.", None, "--top", "-k", min=1)] = 10,
    offset: Annotated[int, option("Leave out so many results before these.", None, "--offset", min=0)] = 0,
    where: WhereOption = None,
    why: Annotated[
        bool, option("Show what each word of the query adds to each score, and by which tokens.", None, "--why")
    ] = False,
) -> None:
    """Search the index of a run or of a folder.

    Without a query, the command prompts for queries, or reads one per line from standard input. Loading takes seconds,
    a search milliseconds.
    """
    query, batch, unit = asked
    if why and batch is not None and not console.in_json:
        raise RecipeError("--why with --batch: a TREC run has no room for reasons. Add --json, or leave out --why.")
    queries = read_query_file(batch) if batch is not None else []
    if batch is not None and not queries:
        raise VtkitError(f"{batch} has no query.")
    searcher = _opened(run, **index)
    find = partial(searcher.search, skip=offset, where=where, why=why)
    if batch is not None:
        answers = find([each.text for each in queries], top)
        _print_batch(zip([each.id for each in queries], answers, strict=True), run.absolute().name, offset + 1)
    elif query is not None:
        _print_found(next(find([query], top)), why, offset)
    elif unit is not None:
        _print_found(searcher.texts_of(unit, top, skip=offset, where=where), True, offset)
    else:
        _prompt(searcher, find, top, offset, why)


def explain(
    run: SearchedArgument,
    query: Annotated[str, argument("The query.", "QUERY")],
    document_id: Annotated[str, argument("Id of the document.", "DOC_ID")],
    model: ModelOption = None,
    collection: CollectionOption = None,
) -> None:
    """Explain a document's score for a query.

    Shows each shared token with both weights and their product.
    """
    if is_blank(query):
        raise RecipeError("The query is empty: there is nothing to search for.")
    _print_explanation(_opened(run, model=model, collection=collection).explain(query, document_id))


def _opened(run: Path, **index: Any) -> Searcher:
    with kept_for_good():
        from vtkit.pipeline.search import open_searcher

        return open_searcher(run, **index)


def shown_tokens(pairs: Weighted) -> str:
    """Tokens with their weights, on one line."""
    return "  ".join(f"{console.one_line(readable(str(token)), 40)} {weight:.2f}" for token, weight in pairs)


def _prompt(searcher: Searcher, find: Callable[..., Iterator[Found]], top: int, offset: int, why: bool) -> None:
    answer: Found | None = None
    for line in _asked(len(searcher.documents)):
        command, _, argument = line.partition(" ")
        number = int(argument) if argument.isascii() and argument.isdigit() and len(argument) < 10 else 0
        if command == ":top" and number:
            top = number
        elif command == ":explain" and answer and 0 < number - offset <= len(answer.results):
            _print_explanation(searcher.explain(answer.query, answer.results[number - offset - 1].id))
        elif command in (":top", ":explain"):
            console.say(f"{command} needs a number{', the rank of a result above' if command == ':explain' else ''}.")
        else:
            answer = next(find([line], top))
            _print_found(answer, why, offset)


def _asked(documents: int) -> Iterator[str]:
    """Queries typed at the prompt, or the lines of standard input; blank lines are passed over."""
    if not sys.stdin.isatty():
        yield from (line.strip() for line in standard_input() if not is_blank(line))
        return
    with suppress(ImportError):
        import readline  # noqa: F401  # not on Windows; input() then has no history

    console.say(f"{documents:,} documents. {HINT}")
    with suppress(EOFError):
        while True:
            line = input("\nquery> ").strip()
            if not console.is_utf8(line):
                console.say("The query is not UTF-8. Set the terminal and the locale to UTF-8.")
            elif is_blank(line):
                console.say("The query is empty: there is nothing to search for.")
            else:
                yield line
    console.write()


def _warn(answer: Found) -> None:
    for warning in answer.warnings:
        console.warn(warning)


def _print_found(answer: Found, why: bool, offset: int) -> None:
    _warn(answer)
    if console.answered(answer):
        return
    if why:
        console.write(f"query tokens: {shown_tokens(answer.tokens)}\n")
    for result in answer.results:
        identity, title = console.one_line(result.id), console.one_line(result.title, 60)
        console.write(f"{result.rank:>3}  {result.score:.3f}  {identity}  {title}".rstrip())
        console.write(f"     {console.one_line(result.shown, 160)}")
        if result.fields:
            console.write(f"     {'  '.join(map(_field, result.fields.items()))}")
        for word in result.words:
            console.write(f"     {_word(word)}")
    if not answer.results:
        further = "further " if offset else ""
        console.write(f"nothing found: no {further}document that was searched shares a term with the query")


def _field(item: tuple[str, Any]) -> str:
    """A field's name and value, as far as a line has room for several."""
    name, value = item
    shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return f"{console.one_line(name, 40)}: {console.one_line(shown, 80)}"


def _word(part: WordShare) -> str:
    """The share of a word in a score, with the encoder's tokens and BM25's terms that it comes from."""
    sides = (("encoder", part.encoder, part.tokens), ("BM25", part.bm25, part.terms))
    said = "; ".join(
        f"{name} {score:.2f}{': ' if tokens else ''}{shown_tokens(tokens)}"
        for name, score, tokens in sides
        if score or tokens
    )
    return f"{part.score:6.2f}  {console.one_line(part.word, 40) or NO_WORD}  [{said}]"


def _print_batch(answers: Iterable[tuple[str, Found]], tag: str, first: int) -> None:
    from vtkit.data.trec import trec_lines

    for identity, answer in answers:
        _warn(answer)
        if console.answered({"id": identity, **vars(answer)}, indent=None):
            continue
        results = [(result.id, result.score) for result in answer.results]
        for line in trec_lines({identity: results}, "_".join(tag.split()) or "vtkit", first):
            console.write(line, exact=True)


def _print_explanation(explanation: Explanation) -> None:
    if console.answered(explanation):
        return
    console.write(f"{console.one_line(explanation.id)}  {console.one_line(explanation.title, 60)}".rstrip())
    console.write(console.one_line(explanation.passage or explanation.text, 240))
    rank = f"rank {explanation.rank}" if explanation.rank is not None else "not found: no shared term"
    console.write(f"score {explanation.score:.4f}, {rank}\n")
    for word in explanation.words:
        console.write(_word(word))
    console.write()
    console.write(f"{'query':>8} {'document':>9} {'product':>8}  token")
    _print_products(explanation.tokens)
    if explanation.special_tokens:
        console.write(
            "special tokens: they stand for no word, but the model gives them weights that count in the score"
        )
        _print_products(explanation.special_tokens)
    console.write(f"\nquery tokens: {shown_tokens(explanation.query_tokens)}")


def _print_products(rows: Iterable[SharedToken]) -> None:
    for token, query_weight, document_weight, product in rows:
        shown = console.one_line(readable(token), 60)
        console.write(f"{query_weight:8.3f} {document_weight:9.3f} {product:8.3f}  {shown}")

"""``vtkit fragmentation``: how tokenizers cut up a corpus, side by side."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from vtkit.commands.candidates import list_candidates, short_names
from vtkit.commands.corpora import (
    CORPUS_HELP,
    EncodingErrorsOption,
    LanguageOption,
    PunctuationOption,
    name_of,
    texts_of,
)
from vtkit.commands.options import argument, grouped, option
from vtkit.data.text import Invalid
from vtkit.system import console
from vtkit.system.errors import RecipeError, VtkitError

if TYPE_CHECKING:
    from vtkit.vocabulary.fragmentation import Fragmentation, QueryCounts

SMALL_GROUP = 0.001  # languages with less than this share of the words are summed up in one row


def named_tokenizers(
    tokenizers: Annotated[
        list[str] | None,
        option(
            "Folder, file (tokenizer.json, vocab.txt, SentencePiece .model) or hub id. May be repeated. Default: three "
            "of the runs in this folder and of the hub's cache, the newest first.",
            "TOKENIZER",
            "--tokenizer",
            "-t",
        ),
    ] = None,
    recipe: Annotated[Path | None, option("Compare its source and target vocabularies.", "RECIPE")] = None,
    run: Annotated[Path | None, option("Compare its source and target vocabularies.", "RUN")] = None,
) -> list[str]:
    """The tokenizers that are named, and those of a recipe and of a run; else the newest ones here, perhaps none."""
    from vtkit.commands.candidates import all_candidates, of_recipe, of_run

    given = tokenizers or []
    candidates = [*(of_recipe(recipe) if recipe is not None else []), *(of_run(run) if run is not None else [])]
    if not given and recipe is None and run is None:
        candidates = all_candidates()[:3]
        if not candidates:
            return []
        console.say("No tokenizer is named. Name tokenizers with -t (folder, file or hub id), --recipe or --run.")
    for each in candidates:
        if each.is_there:
            console.say(f"taking {each.name} ({each.what})")
        else:
            console.warn(
                f"{each.name} ({each.what}) is left out: it is not here; --download fetches what is on the hub."
            )
    named = list(dict.fromkeys([*given, *(each.name for each in candidates if each.is_there)]))
    if not named:
        raise VtkitError(
            "There is no tokenizer to compare yet: the run makes it. Run the recipe, or name a tokenizer with -t."
        )
    return named


def groups_of(
    language: LanguageOption = None,
    by_language: Annotated[
        bool, option("Detect the language of each text (lingua) if its script has several.", None, "--by-language")
    ] = False,
) -> Callable[[str], str]:
    """The group, a language or a script, under which a text is counted."""
    from vtkit.vocabulary.fragmentation import language_groups
    from vtkit.vocabulary.words import script_of_text

    if by_language and language is not None:
        raise RecipeError(
            "--language means that all texts are in one language, --by-language that they are not: give one of them."
        )
    if by_language:
        return language_groups()
    return script_of_text if language is None else lambda text: language


@grouped("group_of", groups_of)
@grouped("named", named_tokenizers)
def fragmentation(
    corpus: Annotated[str, argument(CORPUS_HELP, "CORPUS")],
    named: list[str],
    group_of: Callable[[str], str],
    queries: Annotated[
        str | None,
        option("Queries: a BEIR folder, or a corpus of them. Default: those of CORPUS if it is a BEIR folder.", "PATH"),
    ] = None,
    punctuation: PunctuationOption = "keep",
    top: Annotated[int, option("Number of words and unknown characters to list.", min=0)] = 10,
    encoding_errors: EncodingErrorsOption = "strict",
) -> None:
    """Measure how tokenizers split a corpus.

    Shows tokens per word, split words, and unknown and lost characters. The numbers are those of tokenizing every text,
    without the special tokens around it; of a corpus of more than ten million characters a sample is read, and the
    result says so.
    """
    from vtkit.vocabulary.existing import load_tokenizer
    from vtkit.vocabulary.fragmentation import measure_fragmentation
    from vtkit.vocabulary.words import RULE

    if not named:
        if not console.answered({"tokenizers": []}):
            list_candidates([], f"vtkit fragmentation {shlex.quote(corpus)} -t")
        return
    loaded = dict(zip(short_names(named), map(load_tokenizer, named), strict=True))
    texts = console.tracked(texts_of(corpus, encoding_errors), "texts read")
    asked = _queries(corpus, queries, encoding_errors)
    results = measure_fragmentation(texts, loaded, queries=asked, punctuation=punctuation, group_of=group_of, top=top)
    measured = {"corpus": name_of(corpus), "word": RULE, "punctuation": punctuation}
    if console.answered({**measured, "tokenizers": [_as_json(result) for result in results]}):
        return
    total = results[0].total
    groups = ", ".join(f"{name} {counts.texts:,}" for name, counts in results[0].groups.items())
    console.write(f"{name_of(corpus)}: {total.texts:,} texts ({groups}), {total.words:,} words")
    read, characters = results[0].characters_read, results[0].characters
    if read < characters:
        console.write(
            f"a sample of {read:,} of {characters:,} characters, from texts and pieces of long texts (seed 0)"
        )
    console.write(f"words: {RULE}")
    if punctuation == "cut":
        console.write("       punctuation inside a white-space word ends it")
    console.write("")
    rows = [[result.name, *(figure(result) for figure in _FIGURES.values())] for result in results]
    console.write_table(["tokenizer", *_FIGURES], rows)
    queries_of = {result.name: result.queries for result in results if result.queries is not None}
    if queries_of:
        console.write("")
        rows = [[name, *(figure(counts) for figure in _OF_QUERIES.values())] for name, counts in queries_of.items()]
        console.write_table([f"{next(iter(queries_of.values())).texts:,} queries", *_OF_QUERIES], rows)
    if len(results[0].groups) > 1:
        console.write("")
        _print_groups(results)
    for result in results:
        _print_details(result)


_FIGURES: dict[str, Callable[[Fragmentation], str]] = {
    "tokens/word": lambda result: f"{result.total.tokens_per_word:.3f}",
    "words split": lambda result: f"{result.total.split_share:.1%}",
    "words unknown": lambda result: _percent(result.total.unknown_words, result.total.words),
    "words lost": lambda result: _percent(result.total.lost_words, result.total.words),
    "tokens/text": lambda result: f"{result.total.tokens_per_text:.1f}",
    "unknown tokens": lambda result: _percent(result.total.unknown_tokens, result.total.tokens),
    "entropy": lambda result: f"{result.entropy_bits:.2f} bits",
    "tokens used": lambda result: f"{result.distinct_tokens:,}",
}
_OF_QUERIES: dict[str, Callable[[QueryCounts], str]] = {
    "tokens/word": lambda counts: f"{counts.tokens_per_word:.3f}",
    "words split": lambda counts: f"{counts.split_share:.1%}",
    "tokens/query": lambda counts: f"{counts.tokens_per_text:.1f}",
    "with a split word": lambda counts: f"{counts.split_text_share:.1%}",
    "with unknown": lambda counts: _percent(counts.unknown_texts, counts.texts),
}


def _print_groups(results: list[Fragmentation]) -> None:
    """Tokens a word, and share of words split, of each language."""
    from vtkit.vocabulary.fragmentation import Counts, summed

    large = [name for name, counts in results[0].groups.items() if counts.words >= SMALL_GROUP * results[0].total.words]
    groups = {name: [result.groups[name] for result in results] for name in large}
    if len(large) < len(results[0].groups):
        small = [[astuple(of) for name, of in result.groups.items() if name not in large] for result in results]
        groups["others"] = [Counts(*summed(rows)) for rows in small]
    rows = [
        [name, *(f"{each.tokens_per_word:.3f} {each.split_share:6.1%}" for each in counts)]
        for name, counts in groups.items()
    ]
    console.write_table(["tokens/word, words split", *(result.name for result in results)], rows)


def _print_details(result: Fragmentation) -> None:
    if result.words:
        console.write("")
        rows = []
        for word in result.words:
            pieces = console.one_line(" ".join(console.one_line(piece, 30) for piece in word.pieces), 60)
            shown = f"  {console.one_line(word.word, 30)} → {pieces}"
            rows.append([shown, f"{word.occurrences:,}", f"{word.extra_tokens:,}"])
        console.write_table([f"{result.name}: words that cost most extra tokens", "occurrences", "extra tokens"], rows)
    if result.unknown_characters:
        console.write("")
        rows = [[f"  {_character(character)}", f"{tokens:,}"] for character, tokens in result.unknown_characters]
        console.write_table([f"{result.name}: characters behind unknown tokens", "tokens"], rows)
    if result.losses:
        console.write(f"\n{result.name}: what the normalizer does beyond case (share of the script's characters)")
        for loss in result.losses:
            kinds = ", ".join(f"{kind} {_percent(count, loss.characters)}" for kind, count in loss.counts.items())
            examples = "  ".join(f"{_character(before)} → {_visible(after)}" for before, after in loss.examples[:3])
            console.write(f"  {loss.script}: {kinds}   {examples}")


def _character(character: str) -> str:
    if not character:
        return "no single character (a word too long, or a character known at the beginning of a word only)"
    return f"{_visible(character)} U+{ord(character):04X}".lstrip()


def _visible(text: str) -> str:
    """``text`` made visible: combining marks on a circle, empty text as a word."""
    import unicodedata

    if not text:
        return "nothing"
    shown = console.one_line(text, 20)
    return f"◌{shown}" if unicodedata.category(text[0]).startswith("M") else shown


def _as_json(result: Fragmentation) -> dict[str, Any]:
    facts = vars(result) | {
        "total": result.total.as_dict(),
        "groups": {name: counts.as_dict() for name, counts in result.groups.items()},
        "queries": None if result.queries is None else result.queries.as_dict(),
        "words": [word._asdict() for word in result.words],
        "unknown_characters": [
            {"character": character, "code_point": f"U+{ord(character):04X}" if character else None, "tokens": tokens}
            for character, tokens in result.unknown_characters
        ],
        "normalizer_losses": [loss._asdict() for loss in result.losses],
    }
    del facts["losses"]
    return facts


def _queries(corpus: str, queries: str | None, invalid: Invalid) -> Iterator[str] | None:
    """The texts of the given queries, else of the queries of a collection."""
    from vtkit.data.document_files import read_queries_as_documents
    from vtkit.data.sources import fault_of, is_collection

    name = corpus if queries is None else queries
    if not is_collection(name) or (Path(name).is_dir() and fault_of(name, "queries")):
        return None if queries is None else texts_of(queries, invalid)
    return (query.text for query in read_queries_as_documents(name))


def _percent(part: int, whole: int) -> str:
    """A share in per cent; shares that would round to zero differ from zero."""
    share = part / whole if whole else 0.0
    return "-" if not part else f"{share:.2%}" if share >= 0.00005 else "<0.01%"

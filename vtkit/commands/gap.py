"""``vtkit gap``: how far apart the words of two corpora are."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from vtkit.commands.corpora import (
    CORPUS_HELP,
    EncodingErrorsOption,
    LanguageOption,
    PunctuationOption,
    name_of,
    texts_of,
)
from vtkit.commands.options import argument, option
from vtkit.system import console
from vtkit.system.errors import RecipeError


def gap(
    first: Annotated[str, argument(f"The corpus that the model was fine-tuned on. {CORPUS_HELP}", "CORPUS_A")],
    second: Annotated[str, argument("The corpus it will search.", "CORPUS_B")],
    language: LanguageOption = None,
    punctuation: PunctuationOption = "keep",
    top: Annotated[int, option("Number of typical words to list for each corpus.", min=0)] = 20,
    encoding_errors: EncodingErrorsOption = "strict",
) -> None:
    """Measure how different the words of two corpora are.

    The result says what that means for expanding a vocabulary. The measure is the weighted Jaccard similarity of word
    frequencies; the thresholds come from the CAI paper's comparison of MS MARCO with BEIR.
    """
    from vtkit.vocabulary.corpus_gap import advice, measure_gap
    from vtkit.vocabulary.words import RULE

    if first == second == "-":
        raise RecipeError("Only one corpus can come from standard input.")
    read = [texts_of(corpus, encoding_errors) for corpus in (first, second)]
    difference = measure_gap(*read, language=language, punctuation=punctuation, top=top)
    names = [name_of(first), name_of(second)]
    report = asdict(difference) | {
        "comparable": difference.comparable,
        "advice": advice(difference),
        "first": {"name": names[0], **asdict(difference.first)},
        "second": {"name": names[1], **asdict(difference.second)},
        "word": RULE,
        "punctuation": punctuation,
    }
    if console.answered(report):
        return
    console.write(f"weighted Jaccard similarity {difference.similarity:.3f}")
    console.write(f"  {difference.sampled:.3f} if the smaller corpus were words sampled from the larger")
    console.write(f"\n{advice(difference)}\n")
    corpora = (difference.first, difference.second)
    figures = {
        "texts": [f"{corpus.texts:,}" for corpus in corpora],
        "words": [f"{corpus.words:,}" for corpus in corpora],
        "distinct words": [f"{corpus.distinct:,}" for corpus in corpora],
        "distinct words missing from the other": [f"{each.unknown_distinct / each.distinct:.1%}" for each in corpora],
        "occurrences of these": [f"{corpus.unknown_share:.1%}" for corpus in corpora],
    }
    console.write_table(["", *names], [[figure, *values] for figure, values in figures.items()])
    for name, corpus in zip(names, corpora, strict=True):
        if corpus.typical:
            console.write(f"\ntypical of {name} (z-score; occurrences there, in the other)")
            rows = [
                [f"  {console.one_line(w.word, 40)}", f"{w.z:.1f}", f"{w.here:,}", f"{w.there:,}"]
                for w in corpus.typical
            ]
            console.write_table(["  word", "z", "here", "there"], rows)
    console.write(f"\nWords, lower-cased: {RULE}.")

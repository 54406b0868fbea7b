"""The report of ``vtkit inspect-vocab``: the tables of the terminal, and an HTML page with the same and charts."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from vtkit.report.blocks import Chart, Paragraph, Section, Table
from vtkit.report.plots import stacked_bars
from vtkit.report.vocabularies import SHOWN, most_frequent
from vtkit.report.wording import count_and_share
from vtkit.system.console import one_line
from vtkit.vocabulary.composition import LANGUAGES, Sort
from vtkit.vocabulary.inspection import InspectedVocabulary, Inspection

TOKEN_WIDTH = 30  # characters of a token that are shown
LENGTHS = ((1, 1), (2, 2), (3, 3), (4, 4), (5, 6), (7, 9), (10, 14), (15, None))  # in characters, from and to

REMAINDERS: dict[Sort, str] = {"undecided": "undecided", "other": "other scripts", "etc": "ETC (no letters)"}
"""Tokens in none of the languages asked for, as the table names them; no such language is written in other scripts."""

NAMED = {"mixed": "several scripts", "Other": "rarer scripts", "Japanese": "kana with Han", "Korean": "Hangul and Han"}

MAKE_UP: dict[str, Callable[[InspectedVocabulary], int]] = {
    "with an upper-case letter": lambda vocabulary: vocabulary.casing["cased"],
    "lower case only": lambda vocabulary: vocabulary.casing["lower_case"],
    "letters without case": lambda vocabulary: vocabulary.casing["script_without_case"],
    "with a digit": lambda vocabulary: vocabulary.digits,
    "punctuation only": lambda vocabulary: vocabulary.punctuation,
    "unused fillers": lambda vocabulary: vocabulary.unused,
    "duplicates after normalisation": lambda vocabulary: vocabulary.duplicates["count"],
    "never made by itself": lambda vocabulary: vocabulary.unreachable["count"],
}


def sections(report: Inspection) -> list[Section]:
    """The tokenizers in words, and the tables, each with its chart and the sentences to read it by."""
    vocabularies = report.vocabularies
    names = [vocabulary.name for vocabulary in vocabularies]
    sizes = [vocabulary.size for vocabulary in vocabularies]

    def section(title: str, rows: Sequence[Sequence[str]], *further: str | Chart, caption: str = "") -> Section:
        table = Table(f"{title}: {caption or 'tokens, and their share of the vocabulary'}", ("", *names), rows)
        blocks = (each if isinstance(each, Chart) else Paragraph(each, "quiet") for each in further)
        return Section(title.lower().replace(" ", "-"), title, [table, *blocks])

    def shares(counts: Mapping[str, Sequence[int]]) -> list[list[str]]:
        return [[label, *map(count_and_share, of, sizes)] for label, of in counts.items()]

    def chart(title: str, counts: Mapping[str, Sequence[int]], greys: int = 0, *, ordered: bool = False) -> Chart:
        return stacked_bars(f"Tokens by {title}", names, counts, greys, ordered=ordered)

    languages, scripts = _counts(vocabularies, "language"), _counts(vocabularies, "scripts")
    lengths = _lengths(vocabularies)
    compositions = [vars(vocabulary.composition) for vocabulary in vocabularies]
    greys = {label: [sum(of[sort].values()) for of in compositions] for sort, label in REMAINDERS.items()}
    all_scripts = scripts | {"no letters": greys[REMAINDERS["etc"]]}
    rows = shares(languages)
    for sort, label in REMAINDERS.items():
        parts = shares(_counts(vocabularies, sort))
        if parts:
            rows += [*shares({label: greys[label]}), *([f"· {part}", *cells] for part, *cells in parts)]
    by_language = chart("language", languages | greys, len(greys) + (len(languages) > SHOWN))
    by_length = chart("length in characters", lengths, ordered=True)
    extremes = [
        [length, *(f"{vocabulary.characters[length]:,.4g}" for vocabulary in vocabularies)]
        for length in ("mean", "median", "longest")
    ]
    make_up = shares({label: [*map(count, vocabularies)] for label, count in MAKE_UP.items()})
    continuing = [count_and_share(n["count"], max(n["of"], 1)) for n in (each.continuations for each in vocabularies)]
    make_up.insert(3, ["continues a word (of those with letters)", *continuing])
    made = [
        *(_described(vocabulary, number) for number, vocabulary in enumerate(vocabularies, start=1)),
        section("Languages", rows, *_language_notes(vocabularies), by_language),
        section("Scripts", shares(all_scripts), chart("script", all_scripts, 1 + (len(scripts) > SHOWN))),
        section("Characters of a token", extremes + shares(lengths), by_length),
        section("Make-up", make_up, *_waste_notes(vocabularies)),
    ]
    if report.overlap:
        caption = "Tokens of the vocabulary on top that the one at the left knows"
        rows = [
            [f"from {source}", *(f"{cell['count']:,} ({100 * cell['share']:.2f} %)" for cell in row)]
            for source, row in zip(names, report.overlap["matrix"], strict=True)
        ]
        note = (
            f"{caption}, by the rule “{report.overlap['mode']}” (docs/vocabulary.md), and their share of the "
            "vocabulary on top. Fillers are never known."
        )
        made.append(section("Overlap", rows, note, caption=caption))
    if report.corpus:
        rows = [
            ["tokens that occur", *(f"{use['used']:,} ({100 * use['share']:.2f} %)" for use in report.corpus)],
            ["tokens that make up 90 % of the text", *(f"{use['nine_tenths']:,}" for use in report.corpus)],
            ["tokens the text is cut into", *(f"{use['occurrences']:,}" for use in report.corpus)],
        ]
        made.append(
            section("Use in the corpus", rows, f"{report.corpus[0]['texts']:,} texts were read.", caption="Tokens")
        )
    return made


def _described(vocabulary: InspectedVocabulary, number: int) -> Section:
    roles = [f"{role} {token_shown(entry['token'])} ({entry['id']})" for role, entry in vocabulary.special.items()]
    others = vocabulary.other_special
    shown = ", ".join(map(token_shown, others[:5])) + (f" and {len(others) - 5} more" if len(others) > 5 else "")
    name = vocabulary.name
    lines = [
        f"{name}: {vocabulary.size:,} tokens, {vocabulary.algorithm}",
        f"normalizer: {'; '.join(vocabulary.normalizer) or 'none'}",
        f"special tokens: {', '.join(roles) or 'none'}{f'; without a role: {shown}' if others else ''}",
    ]
    return Section(f"vocabulary-{number}", name, [*map(Paragraph, lines)])


def token_shown(token: str) -> str:
    """A token on one line: spaces drawn, control characters removed, and cut if it is long."""
    return one_line(token.replace(" ", "␣"), TOKEN_WIDTH)


def _counts(vocabularies: Sequence[InspectedVocabulary], sort: Sort) -> dict[str, list[int]]:
    """Language, script or kind -> the tokens of each vocabulary under ``sort``, the most frequent names first."""
    labels, others = (LANGUAGES, "languages") if sort == "language" else (NAMED, "scripts")
    counts = [getattr(vocabulary.composition, sort) for vocabulary in vocabularies]
    return most_frequent(counts, [vocabulary.size for vocabulary in vocabularies], labels, others)


def _lengths(vocabularies: Sequence[InspectedVocabulary]) -> dict[str, list[int]]:
    """Length in characters -> the tokens of each vocabulary."""
    return {
        f"{low}" if low == high else f"{low}–{high}" if high else f"{low} or more": [
            sum(n for length, n in each.characters["histogram"].items() if low <= int(length) <= (high or int(length)))
            for each in vocabularies
        ]
        for low, high in LENGTHS
    }


def _language_notes(vocabularies: Sequence[InspectedVocabulary]) -> Iterator[str]:
    for vocabulary in vocabularies:
        name, composition = vocabulary.name, vocabulary.composition
        reasons = [f"{why} {count:,}" for why, count in composition.undecided_because.items()]
        if reasons:
            yield f"{name}, undecided because a token: {', '.join(reasons)}."
        for script, shares in composition.estimated_shares.items():
            largest = [*shares.items()][:4]
            shown = ", ".join(f"{LANGUAGES.get(code, code)} {100 * share:.1f} %" for code, share in largest)
            yield f"{name}, estimated make-up of all whole {script} words, settled or not: {shown}."
        han = composition.han_characters
        if han:
            yield (
                f"{name}, Han tokens by national character sets: Chinese only {han['zh']:,}, Japanese only "
                f"{han['ja']:,}, shared {han['shared']:,} (counted as --han says)."
            )


def _waste_notes(vocabularies: Sequence[InspectedVocabulary]) -> Iterator[str]:
    for vocabulary in vocabularies:
        name = vocabulary.name
        if vocabulary.duplicates["count"]:
            pairs = ", ".join(" = ".join(map(token_shown, pair)) for pair in vocabulary.duplicates["examples"])
            yield f"{name}, duplicates: {pairs}."
        if vocabulary.unreachable["count"]:
            shown = "  ".join(map(token_shown, vocabulary.unreachable["examples"]))
            yield f"{name}, never made: {shown}"

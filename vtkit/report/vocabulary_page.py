"""What ``vtkit inspect-vocab`` shows: the tables of the terminal, the charts, and both as one HTML page."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from vtkit.report import blocks, pages
from vtkit.report.blocks import Page, Paragraph, Section
from vtkit.report.plots import StackedBars, stacked_bars
from vtkit.system.console import one_line
from vtkit.vocabulary.composition import ETC, LANGUAGES
from vtkit.vocabulary.inspection import CorpusUse, InspectedVocabulary, Inspection, OverlapMatrix, Sort

SHOWN_LANGUAGES = 12  # languages (and scripts) with a row of their own; the rest is one row
DRAWN_LANGUAGES = 9  # languages (and scripts) with a colour of their own
TOKEN_WIDTH = 30  # characters of a token that are shown
LENGTHS = ((1, 1), (2, 2), (3, 3), (4, 4), (5, 6), (7, 9), (10, 14), (15, None))  # in characters, from and to

REMAINDERS: dict[Sort, str] = {"undecided": "undecided", "other": "other scripts", "etc": "ETC (no letters)"}
"""What is in no language asked for, in the words of the table. The other scripts are written in none of them."""

SCRIPTS = {
    "mixed": "several scripts",
    "Other": "rarer scripts",
    "Japanese": "kana with Han",
    "Korean": "Hangul and Han",
}


class Table(NamedTuple):
    """One table: a column of labels and one for each vocabulary, and sentences to read it by."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    notes: list[str]
    caption: str = "Tokens, and their share of the vocabulary"


def tables(report: Inspection) -> list[Table]:
    """The report of ``vtkit inspect-vocab`` as tables."""
    vocabularies = report.vocabularies
    columns = [_plain(vocabulary.name) for vocabulary in vocabularies]
    scripts = _rows_of("scripts", vocabularies, "other scripts", SCRIPTS)
    made = [
        Table("Languages", columns, _language_rows(vocabularies), _language_notes(vocabularies)),
        Table("Scripts", columns, [*scripts, _row("no letters", vocabularies, _count_of("etc"))], []),
        Table("Characters of a token", columns, _length_rows(vocabularies), []),
        Table("Make-up", columns, _make_up_rows(vocabularies), _waste_notes(vocabularies)),
    ]
    if report.overlap:
        made.append(_overlap_table(report.overlap, columns))
    if report.corpus:
        made.append(_corpus_table(report.corpus, columns))
    return made


def descriptions(report: Inspection) -> list[tuple[str, list[str]]]:
    """For each vocabulary its name, and what its tokenizer is, in lines."""
    described = []
    for vocabulary in report.vocabularies:
        roles = [f"{role} {token_shown(entry.token)} ({entry.id})" for role, entry in vocabulary.special.items()]
        others = vocabulary.other_special
        shown = ", ".join(map(token_shown, others[:5])) + (f" and {len(others) - 5} more" if len(others) > 5 else "")
        lines = [
            f"{vocabulary.size:,} tokens, {vocabulary.algorithm}",
            f"normalizer: {_plain('; '.join(vocabulary.normalizer)) or 'none'}",
            f"special tokens: {', '.join(roles) or 'none'}{f'; without a role: {shown}' if others else ''}",
        ]
        described.append((_plain(vocabulary.name), lines))
    return described


def charts(report: Inspection) -> list[StackedBars]:
    """Languages, scripts and lengths of the tokens as stacked bars."""
    vocabularies = report.vocabularies
    names = {vocabulary.name: _plain(vocabulary.name) for vocabulary in vocabularies}
    drawn = []
    sorts: tuple[tuple[str, Sort], ...] = (("Tokens by language", "language"), ("Tokens by script", "scripts"))
    for title, key in sorts:
        top = _top(vocabularies, key, DRAWN_LANGUAGES)
        remainders = [f"other {'languages' if key == 'language' else 'scripts'}"]
        remainders += ["undecided", "other scripts"] if key == "language" else []
        rows = {}
        for vocabulary in vocabularies:
            counts = vocabulary.composition.counts(key)
            values = [counts.get(name, 0) for name in top] + [sum(counts.values()) - sum(counts.get(n, 0) for n in top)]
            if key == "language":
                values += [sum(vocabulary.composition.counts(sort).values()) for sort in ("undecided", "other")]
            values.append(sum(vocabulary.composition.etc.values()))
            rows[names[vocabulary.name]] = [value / vocabulary.size for value in values]
        drawn.append(_without_empty(title, rows, [LANGUAGES.get(name, name) for name in top], [*remainders, "ETC"]))
    lengths = {}
    for vocabulary in vocabularies:
        by_length = [_of_length(vocabulary, low, high) for low, high in LENGTHS]
        lengths[names[vocabulary.name]] = [count / max(sum(by_length), 1) for count in by_length]
    last = _without_empty("Tokens by length in characters", lengths, [*map(_length_words, LENGTHS)], [])
    return [*drawn, replace(last, ordered=True)]


def html_page(report: Inspection) -> str:
    """The report as one self-contained HTML page."""
    described = [
        Section(f"vocabulary-{number}", name, tuple(map(Paragraph, lines)))
        for number, (name, lines) in enumerate(descriptions(report), start=1)
    ]
    drawn = [stacked_bars(f"chart-{number}", bars) for number, bars in enumerate(charts(report), start=1)]
    listed = []
    for number, table in enumerate(tables(report), start=1):
        # a row that is a part of the one above has a dot before it
        rows = [[row[0].replace("  ", "· ", 1) if row[0].startswith("  ") else row[0], *row[1:]] for row in table.rows]
        notes = (Paragraph(note, quiet=True) for note in table.notes)
        block = blocks.Table(table.caption, ("", *table.columns), rows)
        listed.append(Section(f"table-{number}", table.title, (block, *notes)))
    side_by_side = Section("charts", "Side by side", ())
    sections = (*described, side_by_side, *listed)
    return pages.html_page(
        Page("What the vocabularies are made of", "vtkit inspect-vocab", sections), {"charts": drawn}
    )


def token_shown(token: str) -> str:
    """A token on one line: spaces drawn, characters that act on the line taken out, cut where it is long."""
    return one_line(token.replace(" ", "␣"), TOKEN_WIDTH)


def count_and_share(count: int, of: int) -> str:
    """``8,329 (27.29 %)``; nothing for none."""
    return f"{count:,} ({100 * count / of:.2f} %)" if count else "–"


def _language_rows(vocabularies: Sequence[InspectedVocabulary]) -> list[list[str]]:
    rows = _rows_of("language", vocabularies, "other languages", LANGUAGES)
    for sort, words in REMAINDERS.items():
        parts = _rows_of(sort, vocabularies, "more scripts", SCRIPTS)
        if parts:
            rows.append(_row(words, vocabularies, _count_of(sort)))
            rows += [[f"  {label}", *cells] for label, *cells in parts]
    return rows


def _rows_of(
    key: Sort, vocabularies: Sequence[InspectedVocabulary], others: str, words: Mapping[str, str]
) -> list[list[str]]:
    """A row for each of the most frequent names under ``key`` (in ``words``, where they have other ones), and one for
    all others."""
    names = {name for vocabulary in vocabularies for name in vocabulary.composition.counts(key)}
    shown = [*filter(names.__contains__, ETC)] if key == "etc" else _top(vocabularies, key, SHOWN_LANGUAGES)
    rows = [_row(words.get(name, name), vocabularies, _count_of(key, {name})) for name in shown]
    rest = names - set(shown)
    return [*rows, _row(f"{len(rest)} {others}", vocabularies, _count_of(key, rest))] if rest else rows


def _language_notes(vocabularies: Sequence[InspectedVocabulary]) -> list[str]:
    notes = []
    for vocabulary in vocabularies:
        name, composition = _plain(vocabulary.name), vocabulary.composition
        reasons = [f"{why} {count:,}" for why, count in composition.undecided_because.items()]
        if reasons:
            notes.append(f"{name}, undecided because a token: {', '.join(reasons)}.")
        for script, shares in composition.estimated_shares.items():
            shown = ", ".join(
                f"{LANGUAGES.get(code, code)} {100 * share:.1f} %" for code, share in [*shares.items()][:4]
            )
            notes.append(f"{name}, estimated make-up of all whole {script} words, settled or not: {shown}.")
        han = composition.han_characters
        if han:
            notes.append(
                f"{name}, Han tokens by national character sets: Chinese only {han['zh']:,}, Japanese only "
                f"{han['ja']:,}, shared {han['shared']:,} (counted as --han says)."
            )
    return notes


def _length_rows(vocabularies: Sequence[InspectedVocabulary]) -> list[list[str]]:
    rows = [
        [length, *(f"{getattr(vocabulary.characters, length):,.4g}" for vocabulary in vocabularies)]
        for length in ("mean", "median", "longest")
    ]
    for low, high in LENGTHS:
        label = _length_words((low, high))
        rows.append(_row(label, vocabularies, lambda vocabulary, low=low, high=high: _of_length(vocabulary, low, high)))  # type: ignore[misc]
    return rows


def _of_length(vocabulary: InspectedVocabulary, low: int, high: int | None) -> int:
    """Tokens of ``low`` to ``high`` characters."""
    histogram = vocabulary.characters.histogram
    return sum(count for length, count in histogram.items() if low <= int(length) <= (high or int(length)))


def _length_words(bounds: tuple[int, int | None]) -> str:
    low, high = bounds
    return f"{low}" if low == high else f"{low}–{high}" if high else f"{low} or more"


MAKE_UP: dict[str, Callable[[InspectedVocabulary], int]] = {
    "with an upper-case letter": lambda vocabulary: vocabulary.casing.cased,
    "lower case only": lambda vocabulary: vocabulary.casing.lower_case,
    "letters without case": lambda vocabulary: vocabulary.casing.script_without_case,
    "with a digit": lambda vocabulary: vocabulary.digits,
    "punctuation only": lambda vocabulary: vocabulary.punctuation,
    "unused fillers": lambda vocabulary: vocabulary.unused,
    "duplicates after normalisation": lambda vocabulary: vocabulary.duplicates.count,
    "never made by itself": lambda vocabulary: vocabulary.unreachable.count,
}


def _make_up_rows(vocabularies: Sequence[InspectedVocabulary]) -> list[list[str]]:
    rows = [_row(words, vocabularies, count) for words, count in MAKE_UP.items()]
    continuing = [
        count_and_share(vocabulary.continuations.count, max(vocabulary.continuations.of, 1))
        for vocabulary in vocabularies
    ]
    return [*rows[:3], ["continues a word (of those with letters)", *continuing], *rows[3:]]


def _waste_notes(vocabularies: Sequence[InspectedVocabulary]) -> list[str]:
    notes = []
    for vocabulary in vocabularies:
        name = _plain(vocabulary.name)
        if vocabulary.duplicates.count:
            pairs = ", ".join(" = ".join(map(token_shown, pair)) for pair in vocabulary.duplicates.examples)
            notes.append(f"{name}, duplicates: {pairs}.")
        if vocabulary.unreachable.count:
            shown = "  ".join(map(token_shown, vocabulary.unreachable.examples))
            notes.append(f"{name}, never made: {shown}")
    return notes


def _overlap_table(overlap: OverlapMatrix, columns: list[str]) -> Table:
    rows = [
        [f"from {source}", *(f"{cell.count:,} ({100 * cell.share:.2f} %)" for cell in row)]
        for source, row in zip(columns, overlap.matrix, strict=True)
    ]
    note = (
        f"Tokens of the vocabulary on top that the one at the left knows, by the rule “{overlap.mode}” "
        "(docs/vocabulary.md), and their share of the vocabulary on top. Fillers are never known."
    )
    return Table("Overlap", columns, rows, [note], "Tokens of the vocabulary on top that the one at the left knows")


def _corpus_table(corpus: Sequence[CorpusUse], columns: list[str]) -> Table:
    rows = [
        ["tokens that occur", *(f"{use.used:,} ({100 * use.share:.2f} %)" for use in corpus)],
        ["tokens that make up 90 % of the text", *(f"{use.nine_tenths:,}" for use in corpus)],
        ["tokens the text is cut into", *(f"{use.occurrences:,}" for use in corpus)],
    ]
    return Table("Use in the corpus", columns, rows, [f"{corpus[0].texts:,} texts were read."], "Tokens")


def _row(
    label: str, vocabularies: Iterable[InspectedVocabulary], count: Callable[[InspectedVocabulary], int]
) -> list[str]:
    return [label, *(count_and_share(count(vocabulary), vocabulary.size) for vocabulary in vocabularies)]


def _count_of(key: Sort, names: Container[str] | None = None) -> Callable[[InspectedVocabulary], int]:
    """How many tokens a vocabulary has under ``key``, all or those of ``names``."""
    return lambda vocabulary: sum(
        count for name, count in vocabulary.composition.counts(key).items() if names is None or name in names
    )


def _top(vocabularies: Sequence[InspectedVocabulary], key: Sort, most: int) -> list[str]:
    """Names under ``key``, the largest share that any vocabulary has of one first."""
    shares: dict[str, float] = {}
    for vocabulary in vocabularies:
        for name, count in vocabulary.composition.counts(key).items():
            shares[name] = max(shares.get(name, 0.0), count / vocabulary.size)
    return sorted(shares, key=lambda name: (-shares[name], name))[:most]


def _without_empty(title: str, rows: dict[str, list[float]], parts: list[str], remainders: list[str]) -> StackedBars:
    names = [*parts, *remainders]
    kept = [position for position in range(len(names)) if any(values[position] > 0 for values in rows.values())]
    return StackedBars(
        title,
        {label: [values[position] for position in kept] for label, values in rows.items()},
        [names[position] for position in kept],
        sum(position >= len(parts) for position in kept),
    )


def _plain(text: str) -> str:
    return one_line(text, 200)

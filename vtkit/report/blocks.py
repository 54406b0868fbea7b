"""The parts of a page, before it is HTML or Markdown, so that both say the same. Nothing is
escaped here: the templates escape every string, whichever block it stands in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from matplotlib.figure import FigureBase

    from vtkit.report.data import ExampleResult

T = TypeVar("T")
Style = Literal["", "quiet", "heading", "command", "recipe"]  # quiet: an explanation of what stands above
Kind = Literal["token", "foreign", "strong", "code", "bar"]


@dataclass(frozen=True)
class Piece:
    """Words of a sentence or a cell that look different from those around them."""

    kind: Kind
    text: str
    weight: str = ""  # of a token
    share: float = 0.0  # from 0 to 1: the shade of a token, the length of a bar


Token = partial(Piece, "token")  # a token of a vocabulary
Foreign = partial(Piece, "foreign")  # words of the collection: in the report's language, maybe right to left
Strong = partial(Piece, "strong")
Code = partial(Piece, "code")  # a setting or a command
Bar = partial(Piece, "bar")  # a number; HTML draws a bar beside it

Inlines = tuple[str | Piece, ...]
Cell = str | Piece | Inlines


def pieces(cell: Cell) -> Inlines:
    """The parts of a cell or a paragraph."""
    return cell if isinstance(cell, tuple) else (cell,)


def plain_text(cell: Cell) -> str:
    """The words of a cell or a paragraph, as a terminal shows them."""
    return " ".join(part if isinstance(part, str) else f"{part.text} {part.weight}".strip() for part in pieces(cell))


@dataclass(frozen=True)
class Paragraph:
    """Running words."""

    parts: Cell
    style: Style = ""
    own_texts: bool = False  # whether it quotes the user's texts or paths, which do not travel with the model


@dataclass(frozen=True)
class Table:
    """Rows under a caption; the first column names the row."""

    caption: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]
    words: frozenset[int] = frozenset()  # columns beside the first that are words, set left; numbers are set right
    own_texts: bool = False  # as in Paragraph
    notes: Mapping[str, str] = field(default_factory=dict)
    """Column, or name of a row -> its explanation: behind a button on a page, below the table in Markdown."""


def table_of(
    caption: str, systems: Mapping[str, T], figures: Mapping[str, Callable[[T], Cell]], **options: Any
) -> Table:
    """A column for each system, a row for each figure; ``options`` are those of :class:`Table`."""
    rows = [(name, *map(figure, systems.values())) for name, figure in figures.items()]
    return Table(caption, ("", *systems), rows, **options)


@dataclass(frozen=True)
class Hit:
    """One result of an example search, and the words of the query with their parts of its score."""

    result: ExampleResult
    words: Inlines


@dataclass(frozen=True)
class Chart:
    """A drawing, with the same in words for readers who do not see it. Markdown leaves it out."""

    caption: str
    description: str
    inches: float  # its height
    draw: Callable[[FigureBase], None]


Block = Paragraph | Table | Hit | Chart


@dataclass(frozen=True)
class Section:
    """A part of a page; ``key`` is its anchor. Its charts stand together at the end."""

    key: str
    title: str
    blocks: Sequence[Block]
    folded: bool = False  # whether a page shows its title only until it is opened


@dataclass(frozen=True)
class Page:
    """A page; the fields stand in reading order."""

    title: str
    kicker: str  # the line above the title
    sections: Sequence[Section]
    notice: str = ""
    about: str = ""
    headline: str = ""  # the verdict in one line
    harmful: bool = False  # whether the headline is a warning
    figures: Sequence[tuple[str, str]] = ()  # values with their labels; the first is shown large
    advice: Sequence[Inlines] = ()  # what to do next
    summary: str = ""
    language: str = "en"  # of the words and tokens that are not this program's own

"""The parts of a page, before it is HTML or Markdown, so that neither can say what the other does not. Nothing is
escaped here: the templates escape every string, whichever block it stands in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# Inline pieces: a cell or a paragraph is a sequence of them.


@dataclass(frozen=True)
class Token:
    """A token of a vocabulary, with its weight if it has one; ``strength`` (0 to 1) shades it."""

    text: str
    weight: str = ""
    strength: float = 0.0


@dataclass(frozen=True)
class Words:
    """A piece that is nothing but words."""

    text: str


class Foreign(Words):
    """Words of the collection (not of this program): in the report's language, maybe right to left."""


class Strong(Words):
    """Words that stand out."""


class Code(Words):
    """A setting or a command inside a sentence."""


@dataclass(frozen=True)
class Bar:
    """A number, with a bar of that share (0 to 1) of the cell behind it where there is a page to draw on."""

    text: str
    share: float


Inline = str | Token | Foreign | Strong | Bar | Code
Inlines = tuple[Inline, ...]
Cell = Inline | Inlines


def _inlines(cell: Cell) -> Inlines:
    return cell if isinstance(cell, tuple) else (cell,)


def plain_text(cell: Cell) -> str:
    """The words of a cell or a paragraph, as a terminal shows them."""
    return " ".join(part if isinstance(part, str) else part.text for part in _inlines(cell))


# Blocks


@dataclass(frozen=True)
class Paragraph:
    """Running words; ``quiet`` for explanations of what stands above."""

    parts: Cell  # kept as Inlines
    quiet: bool = False
    own_texts: bool = False  # whether it quotes the user's texts or paths, which do not travel with the model

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", _inlines(self.parts))


@dataclass(frozen=True)
class Table:
    """Rows under a caption; the first column names the row."""

    caption: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]  # kept as tuples of Inlines
    words: frozenset[int] = frozenset()  # columns beside the first that are words, set left; numbers are set right
    own_texts: bool = False  # as in Paragraph
    notes: Mapping[str, str] = field(default_factory=dict)
    """Column, or name of a row -> its explanation: behind a button on a page, below the table in Markdown."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(tuple(map(_inlines, row)) for row in self.rows))


@dataclass(frozen=True)
class Hit:
    """One result of an example search."""

    rank: str
    score: str
    identifier: str
    title: str
    text: str
    tokens: Inlines
    relevant: bool = False  # whether it is judged to be relevant


@dataclass(frozen=True)
class Folded:
    """Verbatim text behind a line that opens it."""

    summary: str
    text: str
    syntax: str


class Command(Words):
    """A line for a shell."""


class Heading(Words):
    """A heading inside a section."""


Block = Paragraph | Table | Hit | Folded | Command | Heading


@dataclass(frozen=True)
class Section:
    """A part of a page; ``key`` is its anchor."""

    key: str
    title: str
    blocks: tuple[Block, ...]
    folded: bool = False  # whether a page shows its title only until it is opened


@dataclass(frozen=True)
class KeyFigure:
    """A number at the head of a page."""

    value: str
    label: str


@dataclass(frozen=True)
class Page:
    """A page: what a reader wants first stands first."""

    title: str
    kicker: str  # the line above the title
    sections: tuple[Section, ...]
    notice: str = ""
    about: str = ""
    headline: str = ""  # the verdict in one line
    harmful: bool = False  # whether the headline is a warning
    figures: tuple[KeyFigure, ...] = ()  # the first of them large
    advice: tuple[Inlines, ...] = ()  # what to do next
    summary: str = ""
    language: str = "en"  # of the words and tokens that are not this program's own

"""Words and numbers as the report writes them: text made visible (not escaped), counts, shares, times."""

import math
import unicodedata
from typing import Any, TypeGuard

import regex

TEXT_SHOWN = 280  # characters of a document's text shown in the example search


_HIDDEN = regex.compile(
    r"(?<=[\p{L}\p{M}\p{S}])[\u200c\u200d](?=[\p{L}\p{M}\p{S}])(*SKIP)(*FAIL)|"
    r"[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Noncharacter_Code_Point}]"
)
"""Characters that act on the page around them. Between letters, marks and symbols (of composed
emoji), U+200C and U+200D are kept."""

_SPACE = regex.compile(r"\s")


def visible(text: str) -> str:
    """``text`` without characters that act on the page around it: they become ``⟨U+202E⟩``, white space one space."""
    return _named(_HIDDEN, " ".join(text.split()))


def visible_token(text: str) -> str:
    """As :func:`visible`, for one token: every space counts, so it is drawn (``␣``), and others are named."""
    return _named(_HIDDEN, _named(_SPACE, text.replace(" ", "␣"))) or "(empty)"


def visible_lines(text: str) -> str:
    """As :func:`visible`, for verbatim text: line ends stay, a tab becomes four spaces."""
    return "\n".join(_named(_HIDDEN, line.replace("\t", "    ")) for line in text.splitlines())


def _named(pattern: Any, text: str) -> str:
    return str(pattern.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text))


def shorten(text: str, length: int = TEXT_SHOWN) -> str:
    """The beginning of ``text``, about ``length`` characters, not ending inside a word or before a mark."""
    text = " ".join(text.split())
    if len(text) <= length:
        return text
    cut = text[:length]
    if " " in cut[length * 3 // 4 :]:
        return cut.rsplit(" ", 1)[0] + " …"
    while cut and unicodedata.category(text[len(cut)]).startswith("M"):
        cut = cut[:-1]
    return cut + "…"


def is_number(value: object) -> TypeGuard[float]:
    """Report whether ``value`` is a finite number; a measure that could not be taken is None or not a number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def score(value: Any) -> str:
    """An effectiveness measure or a loss: three decimals."""
    return f"{value:.3f}".replace("-", "−") if is_number(value) else "–"


def amount(value: Any) -> str:
    """A count, or a mean of counts: one decimal below 100 if it is no whole number, three figures below one."""
    if not is_number(value):
        return "–"
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.3g}"


def share(value: Any) -> str:
    """A share of one, in per cent."""
    if not is_number(value):
        return "–"
    per_cent = 100 * value
    if per_cent in (0, 100) or 10 <= per_cent < 99:
        return f"{per_cent:.0f} %"
    if 99 <= per_cent < 100:
        return f"{min(per_cent, 99.9):.1f} %"  # never rounded to all
    return "< 0.01 %" if 0 < per_cent < 0.01 else f"{per_cent:,.2g} %" if per_cent < 10 else f"{per_cent:,.0f} %"


def count_and_share(count: int, of: int) -> str:
    """``8,329 (27.29 %)``; nothing for none."""
    return f"{count:,} ({100 * count / of:.2f} %)" if count else "–"


def p_value(value: Any) -> str:
    """A p value; below 0.001, which some thousand rounds cannot measure, it is a bound."""
    if not is_number(value):
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def duration(seconds: Any) -> str:
    """A time, in the largest two units that matter."""
    if not is_number(seconds):
        return "–"
    if seconds < 10:
        return f"{seconds:.1f} s"
    hours, rest = divmod(round(seconds), 3600)
    if hours:
        return f"{hours} h {rest // 60:02d} min"
    return f"{rest // 60} min {rest % 60:02d} s" if rest >= 60 else f"{rest} s"

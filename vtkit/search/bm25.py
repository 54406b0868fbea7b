"""BM25 in the form of Lucene, and the analysers that cut text into its terms.

For a fixed collection BM25 is a dot product, impacts of the document with counts of the query's terms, so the
search itself is that of :mod:`vtkit.search.exact`.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy.sparse as sp

from vtkit.search.exact import ExactIndex, Ids, Scores

Analyser = Callable[[str], list[str]]

# Scripts written without spaces, in runs of which every two neighbouring characters are a term.
_IDEOGRAPHS = "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_IDEOGRAPHS += "\U00020000-\U000323af"
_KANA = "\u3041-\u3096\u3099-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
_SOUTH_EAST_ASIA = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e80-\u0eff\u1000-\u104f\u1780-\u17d3\uaa60-\uaa7f"
_UNSPACED = _IDEOGRAPHS + _KANA + _SOUTH_EAST_ASIA
# The scripts of the second plane, in two ranges: the hundreds they are made of would be tried at every space.
_FURTHER_SCRIPTS = "\U00010000-\U0001ceff\U0001e000-\U0001eeff"
_FIRST_UNSPACED = "\u0e01"


def analyser(language: str) -> Analyser:
    """The function that cuts text of a language (ISO 639) into BM25's terms.

    All text is brought to NFKC and lower case. Words are runs of letters, digits and combining marks. Runs of
    Han, Kana, Thai, Lao, Khmer and Burmese, which have no spaces, become overlapping pairs of characters.
    Korean words are kept and their pairs of syllables added, because particles stick to the words. There is no
    stemming and no list of stop words.
    """
    prepare = _preparation(language)
    runs, unspaced = _patterns()
    pairs_of_words = language in ("ko", "kor")

    def terms(text: str) -> list[str]:
        text = prepare(text)
        found: list[str] = runs.findall(text)
        if text.isascii():
            return found
        cut: list[str] = []
        for run in found:
            if run[0] >= _FIRST_UNSPACED and unspaced.match(run):
                cut.extend(_pairs(run))
                continue
            cut.append(run)
            if pairs_of_words and len(run) > 2 and "\uac00" <= run[0] <= "\ud7a3":
                cut.extend(_pairs(run))
        return cut

    return terms


@dataclass(frozen=True)
class Bm25:
    """A collection's BM25 impacts: ln(1 + (N − df + ½)/(df + ½)) · tf/(tf + k1·(1 − b + b·length/mean length)).

    Lucene's form (no factor k1 + 1, lengths not rounded), k1 0.9 and b 0.4 by default as in the papers'
    baselines. A term that the query repeats counts as often as it stands there.
    """

    index: ExactIndex
    terms: dict[str, int]
    """Term -> its dimension in the index."""

    language: str

    @classmethod
    def build(cls, texts: Iterable[str], language: str, k1: float = 0.9, b: float = 0.4) -> Bm25:
        """Count ``texts`` and turn the counts into impacts; document numbers are places in ``texts``."""
        cut = analyser(language)
        terms: dict[str, int] = {}
        starts, columns, counts, lengths = array("q", [0]), array("i"), array("f"), array("q")
        for text in texts:
            counted = Counter(cut(text))
            columns.extend(terms.setdefault(term, len(terms)) for term in counted)
            counts.extend(counted.values())
            starts.append(len(columns))
            lengths.append(counted.total())
        matrix = sp.csr_matrix(
            (_numbers(counts, np.float32), _numbers(columns, np.int32), _numbers(starts, np.int64)),
            shape=(len(lengths), len(terms)),
        )
        matrix.data = _impacts(matrix, _numbers(lengths, np.float64), k1, b)
        return cls(ExactIndex.build(matrix), terms, language)

    def search(self, texts: Sequence[str], depth: int) -> tuple[Ids, Scores]:
        """Document numbers and scores of the best ``depth`` documents, as :meth:`ExactIndex.search` returns them."""
        cut = analyser(self.language)
        starts, columns, counts = array("q", [0]), array("i"), array("f")
        for text in texts:
            counted = Counter(term for term in cut(text) if term in self.terms)
            columns.extend(self.terms[term] for term in counted)
            counts.extend(counted.values())
            starts.append(len(columns))
        queries = sp.csr_matrix(
            (_numbers(counts, np.float32), _numbers(columns, np.int32), _numbers(starts, np.int64)),
            shape=(len(texts), len(self.terms)),
        )
        return self.index.search(queries, depth)


def _impacts(counts: sp.csr_matrix, lengths: np.ndarray, k1: float, b: float) -> np.ndarray:
    """The impact of each stored count, (postings,) float32."""
    documents = counts.shape[0]
    frequency = np.bincount(counts.indices, minlength=counts.shape[1])
    idf = np.log1p((documents - frequency + 0.5) / (frequency + 0.5))
    mean_length = lengths.mean() if lengths.sum() else 1.0
    normalisation = np.repeat(k1 * (1 - b + b * lengths / mean_length), np.diff(counts.indptr))
    impacts: np.ndarray = (idf[counts.indices] * counts.data / (counts.data + normalisation)).astype(np.float32)
    return impacts


def _numbers(values: array[int] | array[float], dtype: type) -> np.ndarray:
    return np.asarray(values).astype(dtype, copy=False)


def _pairs(run: str) -> list[str]:
    return [run] if len(run) < 3 else [run[at : at + 2] for at in range(len(run) - 1)]


def _preparation(language: str) -> Callable[[str], str]:
    """What is done to a text before it is cut."""
    unwritten: dict[int, str | None] = dict.fromkeys(_characters("Cf"))  # joiners, soft hyphens, marks of direction
    unwritten |= dict.fromkeys(range(0xFE00, 0xFE10))  # variation selectors, which follow emoji
    if language in ("fa", "fas", "per"):
        unwritten[0x200C] = " "  # Persian sets parts of words apart with the non-joiner
    if language in ("ar", "ara", "fa", "fas", "per", "ur", "urd"):
        unwritten |= dict.fromkeys([0x640, 0x670, *range(0x64B, 0x660)])  # tatweel and vowel signs, mostly left out
        unwritten |= dict.fromkeys(map(ord, "أإآٱ"), "ا") | {ord("ى"): "ي", ord("ة"): "ه"}
    table = str.maketrans(unwritten)
    dotless = str.maketrans({"I": "ı", "İ": "i"}) if language in ("tr", "tur", "az", "aze") else None

    def prepare(text: str) -> str:
        text = unicodedata.normalize("NFKC", text)
        if dotless:
            text = text.translate(dotless)
        return text.lower().translate(table)

    return prepare


@cache
def _characters(*categories: str) -> tuple[int, ...]:
    """Code points of the first plane whose general category begins with one of ``categories``."""
    return tuple(code for code in range(0x10000) if unicodedata.category(chr(code)).startswith(categories))


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Words and runs of unspaced scripts together, and what is a character of an unspaced script.

    Python's ``\\w`` would not do for words: it lacks combining marks, which Indic vowels are.
    """
    unspaced = re.compile(f"[{_UNSPACED}]")
    letters = [code for code in _characters("L", "N", "M") if not unspaced.match(chr(code))]
    return re.compile(f"[{_UNSPACED}]+|[{_ranges(letters)}{_FURTHER_SCRIPTS}]+"), unspaced


def _ranges(codes: list[int]) -> str:
    """The inside of a character class that holds exactly ``codes``, which ascend."""
    starts = [code for code, before in zip(codes, [-2, *codes], strict=False) if code != before + 1]
    ends = [code for code, after in zip(codes, [*codes[1:], -2], strict=True) if code != after - 1]
    return "".join(f"\\U{start:08x}-\\U{end:08x}" for start, end in zip(starts, ends, strict=True))

"""The analysers that cut text into BM25's terms. The script of a run of characters decides how it is cut, so a Korean
text with English names is searchable by both; the language adds the stemmer and a few conventions of spelling."""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from vtkit.data.spelling import preparation
from vtkit.data.unspaced import IDEOGRAPHS, KANA
from vtkit.settings.analysers import LUCENE, Analysis, known_as, refused
from vtkit.system.errors import RecipeError

_STEMMED_AS = {"nb": "no", "nob": "no", "per": "fa"}  # codes that Snowball does not know itself

PIECE = 4  # characters of a piece of a word, including its edges
K1 = 0.9  # BM25's k1, the saturation of term frequency; 0.6 and 1.2 change nDCG@10 by at most 0.006 (docs/log.md)

B_FULL, B_PLAIN = 0.75, 0.4
"""BM25's b, the length normalisation; plain words have the value of the papers' baselines. 0.75 instead of 0.4 changes
nDCG@10 by 0.026 in Arabic, 0.006 in Japanese, 0.002 in English, -0.003 in Chinese and -0.007 in Korean."""

_ENGLISH = """
a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was
will with
"""
STOP_WORDS = dict.fromkeys(("en", "eng"), frozenset(_ENGLISH.split()))
"""Lucene's list. It has no effect on questions, and helps with queries of several sentences."""

# Scripts written without spaces. Of Han and Kana every character and every two neighbours are terms, of the scripts of
# South-East Asia every three.
_SOUTH_EAST_ASIA = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e80-\u0eff\u1000-\u104f\u1780-\u17d3\uaa60-\uaa7f"
# The scripts of the second plane, in two ranges: the hundreds they are made of would be tried at every space.
_FURTHER_SCRIPTS = "\U00010000-\U0001ceff\U0001e000-\U0001eeff"
_FIRST_UNSPACED = "\u0e01"
# Flags, and pictures without the tones of their skin; what makes the names C++, C# and LGBTQ+ others than C and LGBTQ.
_PICTURE = "[\U0001f1e6-\U0001f1ff]{2}|[\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001f3fa\U0001f400-\U0001faff]"
_ENDING = r"(?:\+{2,}|[+#](?!\w))"
_HANGUL = re.compile("[\uac00-\ud7a3]")

_UNSPACED_LANGUAGES = {
    "ja jpn zh zho chi": "characters and pairs of characters",
    "th tha lo lao km khm my mya bur": "threes of characters",
    "ko kor": "pairs of syllables with the edges of the word",
}
"""Codes of languages without spaces, and of Korean -> how their words are cut, for the description."""

MARK = "/"  # between the language and the rest of a term, if a collection has several; no term contains it otherwise


@dataclass(frozen=True)
class Analyser:
    """Cuts text into terms, in two steps: the second is done once for each distinct word of a collection."""

    runs: Callable[[str], list[str]]  # document -> its words, and its runs of unspaced scripts
    terms: Callable[[str], list[str]]  # one such run -> its terms
    description: str  # of the terms, for the report
    b: float  # BM25's b for such terms
    query_runs: Callable[[str], list[str]] | None = None  # query -> its runs, if they are others than a document's
    made_from: tuple[str, Analysis] = ("", "full")  # by which another process makes it

    def __reduce__(self) -> tuple[Callable[..., "Analyser"], tuple[str, Analysis]]:
        return analyser, self.made_from

    def __call__(self, document: str) -> list[str]:
        return [term for run in self.runs(document) for term in self.terms(run)]

    def of_query(self, query: str) -> list[str]:
        """The terms of a query."""
        return [term for run in (self.query_runs or self.runs)(query) for term in self.terms(run)]


def analyser(language: str, analysis: Analysis = "full") -> Analyser:
    """:func:`_analyser`, which other processes can make too."""
    return replace(_analyser(language, analysis), made_from=(language, analysis))


def _analyser(language: str, analysis: Analysis) -> Analyser:
    """The analyser of a language (ISO 639), or of several, separated by commas (:func:`_of_several`). All text is
    prepared (:func:`vtkit.data.spelling.preparation`); words are runs of letters, digits and combining marks.

    - ``full`` (chosen on training queries, docs/log.md): the word itself, its Snowball stem (marked ``*``) if there
      is an algorithm, and its pieces of four characters, including the edges ``<`` and ``>``: *Häuser* → ``häuser``,
      ``haus*``, ``<häu``, ``häus``, ``äuse``, ``user``, ``ser>``. Hangul words become pairs of syllables, including the
      edges; Han and Kana become characters and pairs; Thai, Lao, Khmer and Burmese become threes. An emoji is a term,
      and a word with ``+`` or ``#`` behind it is one beside its word's: *C++* → ``c``, ``c*``, ``<c>``, ``c++``.
    - ``morphemes``: also the dictionary forms of content morphemes of Hangul in Korean and of Han and Kana in Japanese
      (:mod:`vtkit.search.morphology`): 수도는 → ``<수``, ``수도``, ``도는``, ``는>`` and ``수도``.
    - ``lucene``: the terms of Lucene's own analyser of the language, from pyserini's jar.
    - ``words``: unchanged words, and pairs of characters in scripts without spaces.

    Raises:
        RecipeError: the language has no such analyser.
        MissingExtra: the package that ``analysis`` needs is not installed.
        MachineError: Java cannot be started.
    """
    if (why := refused(analysis, language)) is not None:
        raise RecipeError(f"BM25's analyser {why}")
    if "," in language:
        return _of_several(language, analysis)
    known = known_as(analysis, language)
    assert known is not None
    if analysis == "lucene":
        cut, description = _lucene_analyser(known)
        return Analyser(cut, lambda term: [term], description, B_PLAIN)
    prepare = preparation(language)
    pattern, south_east_asia, ideographs = _patterns(signs=analysis != "words")

    def runs(text: str) -> list[str]:
        return pattern.findall(prepare(text))

    if analysis == "words":
        unspaced = re.compile(f"[{_SOUTH_EAST_ASIA}{IDEOGRAPHS}{KANA}]").match
        description = "words as they stand, pairs of characters in scripts without spaces"
        return Analyser(runs, lambda run: _grams(run, 2) if unspaced(run) else [run], description, B_PLAIN)

    stem, picture = _stemmer(language), re.compile(_PICTURE)
    unwanted = STOP_WORDS.get(language, frozenset())

    def terms(run: str) -> list[str]:
        if run in unwanted:
            return []
        if (word := run.rstrip("+#")) != run:
            return [*terms(word), run]
        if run[0] >= _FIRST_UNSPACED:
            if picture.match(run):
                return [run]
            if ideographs.match(run):
                return [*run, *_grams(run, 2)] if len(run) > 1 else [run]
            if south_east_asia.match(run):
                return _grams(run, 3)
        if not run.isascii() and _HANGUL.search(run):
            return _grams(f"<{run}>", 2)
        stems = [f"{stem(run)}*"] if stem is not None else []
        return [run, *stems, *_grams(f"<{run}>", PIECE)]

    if analysis == "full":
        return Analyser(runs, terms, _description(language), B_FULL)

    from vtkit.search.morphology import morphemes, morphology_name

    content, native = morphemes(known), _HANGUL.search if known == "ko" else ideographs.match

    description = f"{_description(language)}, and the dictionary forms of content morphemes ({morphology_name(known)})"
    return Analyser(runs, lambda run: [*terms(run), *content(run)] if native(run) else terms(run), description, B_FULL)


def _of_several(languages: str, analysis: Analysis) -> Analyser:
    """The analyser of a collection in several languages. A document has the terms of its own language, and a query
    those of every language; each is marked with the language (``en/house``), which has statistics of its own. So the
    score of a document is what it would be among the documents of its language alone.

    Query words that are stop words of one of the languages are left out: the few documents of another language that
    quote them would rank high. Languages that ``morphemes`` does not know have ``full``.
    """
    from vtkit.search.languages import language_of_text

    language_of = language_of_text(languages)
    each = {code: analyser(code, analysis if known_as(analysis, code) else "full") for code in languages.split(",")}
    stopped = analysis in ("full", "morphemes")
    unwanted = frozenset[str]().union(*(STOP_WORDS.get(code, ()) for code in each if stopped))

    def runs(text: str) -> list[str]:
        code = language_of(text)
        return [f"{code}{MARK}{run}" for run in each[code].runs(text)]

    def query_runs(text: str) -> list[str]:
        return [f"{code}{MARK}{run}" for code in each for run in each[code].runs(text) if run not in unwanted]

    def terms(marked: str) -> list[str]:
        code, _, run = marked.partition(MARK)
        return [f"{code}{MARK}{term}" for term in each[code].terms(run)]

    cuts = "; ".join(dict.fromkeys(cut.description for cut in each.values()))
    description = f"each document by its language ({', '.join(each)}): {cuts}"
    return Analyser(runs, terms, description, next(iter(each.values())).b, query_runs)


def _lucene_analyser(language: str) -> tuple[Callable[[str], list[str]], str]:
    """A function that cuts a text as Lucene's analyser of ``language`` does, with its default stop words, and its name.
    All tokens at a position count in the length of a document; Lucene counts the position once."""
    from vtkit.search.java import cast_to, java_class

    string = java_class("java.lang.String")
    line_break = cast_to("java.lang.CharSequence", string("\n"))
    analyse = java_class("io.anserini.analysis.AnalyzerUtils").analyze
    analyser = java_class(f"org.apache.lucene.analysis.{LUCENE[language]}")()
    release = java_class("org.apache.lucene.util.Version").LATEST.toString()

    def tokens(text: str) -> list[str]:
        whole = text.encode("utf-8", "replace").decode("utf-8")  # Java has no half surrogates
        joined: str = string.join(line_break, cast_to("java.lang.Iterable", analyse(analyser, whole)))
        return joined.split("\n") if joined else []

    return tokens, f"tokens of Lucene {release}'s {LUCENE[language].rpartition('.')[2]}"


def _description(language: str) -> str:
    for codes, cut in _UNSPACED_LANGUAGES.items():
        if language in codes.split():
            return cut
    stems = ", their stems (Snowball)" if _stemmer(language) is not None else ""
    return f"words{stems} and their pieces of {PIECE} characters with the edges of the word"


def _stemmer(language: str) -> Callable[[str], str] | None:
    """Snowball's stemmer. In Arabic, English, German, Hindi and Russian, stems beside words and pieces add 0.002 to
    0.03 nDCG@10 (docs/log.md)."""
    import Stemmer

    try:
        stem: Callable[[str], str] = Stemmer.Stemmer(_STEMMED_AS.get(language, language)).stemWord
    except KeyError:
        return None
    return stem


def _grams(run: str, length: int) -> list[str]:
    return [run[at : at + length] for at in range(max(1, len(run) - length + 1))]


@cache
def _patterns(signs: bool) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    r"""Words and runs of unspaced scripts together, with ``signs`` pictures and words' endings too; a character of
    South-East Asia; a Han or Kana character. Python's own pattern of words does not match combining marks, which Indic
    vowels are."""
    south_east_asia, ideographs = re.compile(f"[{_SOUTH_EAST_ASIA}]"), re.compile(f"[{IDEOGRAPHS}{KANA}]")
    unspaced = re.compile(f"[{_SOUTH_EAST_ASIA}{IDEOGRAPHS}{KANA}]")
    letters = [n for n in range(0x10000) if unicodedata.category(chr(n))[0] in "LNM" and not unspaced.match(chr(n))]
    starts = [code for code, before in zip(letters, [-2, *letters], strict=False) if code != before + 1]
    ends = [code for code, after in zip(letters, [*letters[1:], -2], strict=True) if code != after - 1]
    ranges = "".join(f"\\U{start:08x}-\\U{end:08x}" for start, end in zip(starts, ends, strict=True))
    words = f"[{ranges}{_FURTHER_SCRIPTS}]+" + (f"{_ENDING}?|{_PICTURE}" if signs else "")
    return (re.compile(f"[{IDEOGRAPHS}{KANA}]+|[{_SOUTH_EAST_ASIA}]+|{words}"), south_east_asia, ideographs)

"""Profiles of the vocabularies of a run, as plain values: made by :mod:`vtkit.vocabulary.vocabularies`."""

from dataclasses import dataclass

from vtkit.system.results import Result


@dataclass(frozen=True)
class Sample(Result):
    """Which texts a figure was measured on."""

    texts: int
    of: int  # texts there are
    shortened: int  # texts of which only the beginning was read


@dataclass(frozen=True)
class TextMetrics(Result):
    """Statistics of the tokens of some texts. Shares are from 0 to 1; special tokens around a text are not counted."""

    words: int
    tokens_per_word: float  # tokens that hold a part of a word, over words
    split_words: float  # share of words that are more than one token
    tokens_per_text: float
    unknown_tokens: float  # share of tokens that are the unknown token
    unknown_words: float  # share of words with the unknown token in them, or without any token
    texts_with_split_word: float | None = None
    texts_with_unknown: float | None = None  # these two are known of queries only


@dataclass(frozen=True)
class SplitWord(Result):
    """A word of the documents, and the tokens it costs."""

    word: str
    occurrences: int
    pieces: tuple[str, ...]


@dataclass(frozen=True)
class VocabularyProfile(Result):
    """One vocabulary: what its tokens are, and what it makes of the run's texts."""

    size: int
    languages: dict[str, int]  # tokens by the language they were told to be in, most first (ISO 639-1 code)
    undecided: int  # tokens that several of the languages asked for may claim
    other_scripts: dict[str, int]  # tokens in scripts that none of the languages asked for is written in, most first
    no_letters: int  # digits, punctuation, symbols, special and unused tokens
    documents: TextMetrics | None
    queries: TextMetrics | None
    worst_words: tuple[SplitWord, ...]  # of the documents; the words with most extra tokens over all their occurrences


@dataclass(frozen=True)
class VocabularyAnalysis(Result):
    """Both vocabularies of a run. ``source`` is None where the encoder was made from nothing."""

    languages: tuple[str, ...]  # the languages that were told apart
    documents: Sample
    queries: Sample
    source: VocabularyProfile | None
    target: VocabularyProfile

    @property
    def shared_scripts(self) -> dict[str, tuple[str, ...]]:
        """Scripts that several of :attr:`languages` are written in: their tokens are told apart word by word."""
        from vtkit.vocabulary.composition import LANGUAGES_OF_SCRIPT  # which reads tokenizers

        codes_of = {
            script: tuple(code for code in codes if code in self.languages)
            for script, codes in LANGUAGES_OF_SCRIPT.items()
        }
        return {script: codes for script, codes in codes_of.items() if len(codes) > 1}

"""How tokenizers cut up a corpus: tokens a word, words split, unknown and lost characters, several side by side.

A corpus of up to :data:`SAMPLE_CHARACTERS` characters is tokenized text by text. Of a larger one a sample is, drawn
with a seed while it is read, so that memory and time stay bounded; what was read of how much is part of the result.
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from tokenizers import Encoding, Tokenizer

from vtkit.data.text import batches
from vtkit.data.word_counts import pieces
from vtkit.system.errors import DataError
from vtkit.vocabulary.composition import LANGUAGES, LANGUAGES_OF_SCRIPT
from vtkit.vocabulary.existing import special_roles
from vtkit.vocabulary.forms import Vocabulary
from vtkit.vocabulary.normalization import ScriptLoss, normalizer_losses
from vtkit.vocabulary.words import Punctuation, script_of_text, word_spans

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Span = tuple[int, int]  # where a word begins and ends, in characters

SAMPLE_CHARACTERS = 10_000_000
"""Characters that are tokenized of a corpus. The share of split words is then known to about 0.1 %."""

PIECE_CHARACTERS = 100_000  # a longer text is cut in front of white space into pieces of about this length
LONGEST_WORD = 1_000_000  # characters without white space; what is longer is no text of words
LANGUAGE_CHARACTERS = 200  # characters of a text that its language is read from


class Ratio:
    """A count over another one of the same counts, 0.0 if that is 0."""

    def __init__(self, part: str, whole: str) -> None:
        self.part, self.whole = part, whole

    def __get__(self, counts: Counts, owner: type[Counts]) -> float:
        whole = getattr(counts, self.whole)
        return getattr(counts, self.part) / whole if whole else 0.0


@dataclass
class Counts:
    """Counts of the tokens that one tokenizer makes of some texts. Counts of several sets of texts add up."""

    RATIOS: ClassVar[tuple[str, ...]] = (
        *("tokens_per_word", "split_share", "tokens_per_text", "unknown_rate", "unknown_word_share"),
    )
    texts: int = 0
    words: int = 0
    tokens: int = 0  # tokens, without the special tokens around a text
    word_tokens: int = 0  # tokens that hold a part of a word: not punctuation on its own, not a bare word-start mark
    split_words: int = 0  # words of more than one token
    unknown_words: int = 0  # words with the unknown token in them
    lost_words: int = 0  # words of no token at all
    unknown_tokens: int = 0

    tokens_per_word: ClassVar = Ratio("word_tokens", "words")  # below 1 if tokens hold several words
    split_share: ClassVar = Ratio("split_words", "words")
    tokens_per_text: ClassVar = Ratio("tokens", "texts")
    unknown_rate: ClassVar = Ratio("unknown_tokens", "tokens")
    unknown_word_share: ClassVar = Ratio("unknown_words", "words")

    def add(self, other: Counts) -> None:
        for each in fields(other):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def as_dict(self) -> dict[str, int | float]:
        return {name: getattr(self, name) for name in (*(each.name for each in fields(self)), *self.RATIOS)}


@dataclass
class QueryCounts(Counts):
    """Counts of texts that were also told apart."""

    RATIOS: ClassVar[tuple[str, ...]] = (*Counts.RATIOS, "split_text_share", "unknown_text_share")
    split_texts: int = 0  # texts with a split word
    unknown_texts: int = 0  # texts with the unknown token

    split_text_share: ClassVar = Ratio("split_texts", "texts")
    unknown_text_share: ClassVar = Ratio("unknown_texts", "texts")


class FragmentedWord(NamedTuple):
    """A word that costs many tokens."""

    word: str
    occurrences: int
    extra_tokens: int  # tokens beyond the first of each occurrence, over all occurrences
    pieces: list[str]
    """Its tokens behind a space. Byte-level tokens are read as text, with bytes that are no whole character as
    ``<E0>``; other tokens are as the vocabulary writes them."""


class UnknownCharacter(NamedTuple):
    """A character behind unknown tokens."""

    character: str
    """Empty where no single character is to blame: the word is longer than the tokenizer takes, or a character is
    known at the beginning of a word only."""

    tokens: int  # unknown tokens with this character in them


@dataclass(frozen=True)
class Fragmentation:
    """Fragmentation of a corpus, or of a sample of it, by one tokenizer."""

    name: str
    characters_read: int
    characters: int  # of the whole corpus; more than `characters_read` if it was sampled
    total: Counts
    groups: dict[str, Counts]  # by language or script of the text, most words first
    entropy_bits: float  # unigram entropy of the tokens, `-sum_t p(t) log2 p(t)`
    distinct_tokens: int  # tokens of the vocabulary that occur
    words: list[FragmentedWord]  # the words with most extra tokens
    unknown_characters: list[UnknownCharacter]
    losses: list[ScriptLoss]
    queries: QueryCounts | None


def measure_fragmentation(
    texts: Iterable[str],
    tokenizers: Mapping[str, PreTrainedTokenizerFast],
    *,
    queries: Iterable[str] | None = None,
    punctuation: Punctuation = "keep",
    group_of: Callable[[str], str] = script_of_text,
    top: int = 20,
    most_characters: int = SAMPLE_CHARACTERS,
    seed: int = 0,
) -> list[Fragmentation]:
    """Measure each of ``tokenizers`` on ``texts``, read once.

    White space around a text does not count, nor does a text of nothing else. Up to ``most_characters`` the numbers
    are those of tokenizing every text; a text of more than :data:`PIECE_CHARACTERS` is tokenized in pieces,
    which may make a token of difference at a cut with tokenizers that look across white space.

    Args:
        tokenizers: by the name to report them under.
        queries: texts that are also told apart by whether one of their words is split.
        punctuation: whether punctuation inside a white-space word ends it (:mod:`vtkit.vocabulary.words`).
        group_of: the group, a language or a script, under which a text is counted.
        top: entries in the lists of words and of unknown characters.
        most_characters: of a larger corpus, a sample of about this size is tokenized.
        seed: of the sample.
    """
    sample = _Sample(texts, most_characters, seed)
    if not sample.pieces:
        raise DataError("There is no text in the corpus.")
    meters = [_Meter(name, tokenizer) for name, tokenizer in tokenizers.items()]
    characters: Counter[str] = Counter()
    occurrences: Counter[str] = Counter()
    in_order = iter(sample.pieces)
    for batch in batches(piece.text for piece in sample.pieces):
        words = [list(word_spans(text, punctuation)) for text in batch]
        for text, spans in zip(batch, words, strict=True):
            characters.update(text)
            occurrences.update(text[start:end] for start, end in spans)
        groups = [(group_of(text), next(in_order).begins) for text in batch]
        for meter in meters:
            meter.measure(batch, words, groups)
    for batch in batches(_stripped(queries or ())):
        words = [list(word_spans(text, punctuation)) for text in batch]
        for meter in meters:
            meter.measure_queries(batch, words)
    return [meter.report(occurrences, characters, sample, top) for meter in meters]


def language_groups() -> Callable[[str], str]:
    """Groups texts by language: that of their script where it has only one, else what lingua says of their opening."""
    from lingua import LanguageDetectorBuilder

    detector = LanguageDetectorBuilder.from_all_languages().build()

    def group(text: str) -> str:
        script = script_of_text(text)
        languages = LANGUAGES_OF_SCRIPT.get(script, ()) if script != "Han" else ("zh",)
        if len(languages) == 1:
            return LANGUAGES[languages[0]]
        detected = detector.detect_language_of(text[:LANGUAGE_CHARACTERS]) if languages else None
        return str(detected.name).capitalize() if detected is not None else f"{script} script"

    return group


class _Piece(NamedTuple):
    priority: float  # random; the sample keeps the largest
    number: int
    text: str
    begins: bool  # whether a text begins with it


class _Sample:
    """Pieces of a corpus in their order: all, or so many characters of them by chance."""

    def __init__(self, texts: Iterable[str], most_characters: int, seed: int) -> None:
        self.characters = self.characters_read = 0
        generator = random.Random(seed)
        kept: list[_Piece] = []
        for number, (text, begins) in enumerate(_pieces(texts)):
            heapq.heappush(kept, _Piece(generator.random(), number, text, begins))
            self.characters += len(text)
            self.characters_read += len(text)
            while self.characters_read > most_characters and len(kept) > 1:
                self.characters_read -= len(heapq.heappop(kept).text)
        self.pieces = sorted(kept, key=lambda piece: piece.number)


def _stripped(texts: Iterable[str]) -> Iterator[str]:
    return (text for text in map(str.strip, texts) if text)


def _pieces(texts: Iterable[str]) -> Iterator[tuple[str, bool]]:
    for text in _stripped(texts):
        for position, piece in enumerate(pieces(text, PIECE_CHARACTERS)):
            if len(piece) > LONGEST_WORD:
                raise DataError(
                    f"The corpus has about {len(piece):,} characters without white space, beginning {piece[:40]!r}: "
                    "this does not look like text. Is it the right file? If it is text, break it into lines."
                )
            yield piece, position == 0


class _Meter:
    def __init__(self, name: str, tokenizer: PreTrainedTokenizerFast) -> None:
        self.name = name
        self.backend: Tokenizer = tokenizer.backend_tokenizer
        vocabulary = Vocabulary(tokenizer)
        self.marks = {
            number
            for number, token in enumerate(vocabulary.tokens)
            if token and not vocabulary.notation.read(token).surface.strip(" ")
        }
        self.unknown = special_roles(tokenizer).get("unk", -1)
        self.groups: dict[str, Counts] = {}
        self.queries: QueryCounts | None = None
        self.token_counts: Counter[int] = Counter()
        self.extra_tokens: Counter[str] = Counter()
        self.unknown_characters: Counter[str] = Counter()
        self._legible = vocabulary.legible
        self._is_unknown: dict[str, bool] = {}

    def measure(self, texts: Sequence[str], words: Sequence[list[Span]], groups: Sequence[tuple[str, bool]]) -> None:
        """Add texts of the corpus: each, its words, its group and whether it is the beginning of one."""
        for text, spans, (group, begins), encoding in zip(texts, words, groups, self._encoded(texts), strict=True):
            counts, pieces = self._counts(spans, encoding)
            counts.texts = int(begins)
            self.groups.setdefault(group, Counts()).add(counts)
            self.token_counts.update(encoding.ids)
            for (start, end), count in zip(spans, pieces, strict=True):
                if count > 1:
                    self.extra_tokens[text[start:end]] += count - 1
            for number, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
                if number == self.unknown:
                    self.unknown_characters.update(self._to_blame(text[start:end]) or [""])

    def measure_queries(self, texts: Sequence[str], words: Sequence[list[Span]]) -> None:
        """Add queries: each, and its words."""
        self.queries = self.queries or QueryCounts()
        for spans, encoding in zip(words, self._encoded(texts), strict=True):
            counts, _ = self._counts(spans, encoding)
            counts.texts = 1
            self.queries.add(
                QueryCounts(**vars(counts), split_texts=counts.split_words > 0, unknown_texts=counts.unknown_tokens > 0)
            )

    def _encoded(self, texts: Sequence[str]) -> list[Encoding]:
        encodings: list[Encoding] = self.backend.encode_batch(list(texts), add_special_tokens=False)
        return encodings

    def _counts(self, spans: list[Span], encoding: Encoding) -> tuple[Counts, list[int]]:
        """The counts of a text, and how many tokens hold a part of each word, (words,)."""
        begins, ends = [begin for begin, _ in spans], [end for _, end in spans]
        pieces, word_tokens = [0] * len(spans), 0
        unknown_words: set[int] = set()
        for number, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            held = range(bisect_right(ends, start), bisect_left(begins, end))
            if not held or end <= start or number in self.marks:
                continue
            word_tokens += 1
            for word in held:
                pieces[word] += 1
            if number == self.unknown:
                unknown_words.update(held)
        counts = Counts(
            words=len(spans),
            tokens=len(encoding.ids),
            word_tokens=word_tokens,
            split_words=sum(count > 1 for count in pieces),
            unknown_words=len(unknown_words),
            lost_words=pieces.count(0),
            unknown_tokens=encoding.ids.count(self.unknown),
        )
        return counts, pieces

    def report(self, occurrences: Counter[str], characters: Counter[str], sample: _Sample, top: int) -> Fragmentation:
        """All that was counted, lists cut at ``top`` entries."""
        total = Counts()
        for counts in self.groups.values():
            total.add(counts)
        shares = np.array(list(self.token_counts.values())) / max(1, total.tokens)
        most_extra = sorted(self.extra_tokens.items(), key=lambda item: (-item[1], item[0]))[:top]
        unknown = sorted(self.unknown_characters.items(), key=lambda item: (-item[1], item[0]))[:top]
        return Fragmentation(
            name=self.name,
            characters_read=sample.characters_read,
            characters=sample.characters,
            total=total,
            groups=dict(sorted(self.groups.items(), key=lambda item: (-item[1].words, item[0]))),
            entropy_bits=abs(float(shares @ np.log2(shares))),
            distinct_tokens=len(shares),
            words=[FragmentedWord(word, occurrences[word], extra, self._pieces(word)) for word, extra in most_extra],
            unknown_characters=[UnknownCharacter(*entry) for entry in unknown],
            losses=normalizer_losses(self.backend, characters),
            queries=self.queries,
        )

    def _pieces(self, word: str) -> list[str]:
        encoding = self.backend.encode(f"a {word}", add_special_tokens=False)
        tokens = zip(encoding.ids, encoding.offsets, strict=True)
        return [self._legible[number] for number, (_, end) in tokens if end > 2 and number not in self.marks]

    def _to_blame(self, text: str) -> list[str]:
        """The characters of ``text`` that are unknown on their own."""
        characters = sorted(set(text))
        for character in characters:
            if character not in self._is_unknown:
                ids = self.backend.encode(character, add_special_tokens=False).ids
                self._is_unknown[character] = self.unknown in ids
        return [character for character in characters if self._is_unknown[character]]

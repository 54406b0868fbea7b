"""How tokenizers cut up a corpus: tokens a word, words split, unknown and lost characters, several side by side.

A corpus is not tokenized text by text. Tokenizers that never look across white space (:func:`cuts_at_white_space`)
need each distinct chunk (a word with its punctuation and the white space before it) only once, weighted by how often
it occurs; the result is the same to the last token. Chunks are joined into longer texts before they are tokenized,
because a tokenizer reads one long text faster than many short ones. Other tokenizers, and the few texts with
characters that tokenizers treat in ways of their own, are tokenized as they stand.
"""

from __future__ import annotations

import json
import re
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache, cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import regex
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, pre_tokenizers

from vtkit.analysis.composition import LANGUAGES, LANGUAGES_OF_SCRIPT
from vtkit.analysis.words import Punctuation, script_of, script_of_text, word_spans
from vtkit.data.word_counts import count_chunks
from vtkit.errors import DataError
from vtkit.vocabulary.alignment import canonical
from vtkit.vocabulary.alignment import tokens as tokens_of
from vtkit.vocabulary.existing import special_roles

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Integers = NDArray[np.int64]

PAGE_CHARACTERS = 1_000_000
"""Characters that are tokenized at a time."""

CHUNKS_A_TEXT = 64
"""Chunks that are joined to one text before it is tokenized."""

LONGEST_TEXT = 20_000_000
"""Characters of a text that is tokenized as it stands; a longer one would take gigabytes."""

LONGEST_CHUNK = 1_000_000
"""Characters without white space; what is longer is no text of words."""

VERIFIED_CHARACTERS = 200_000
"""Characters at the beginning of the corpus on which chunks and whole texts must give the same counts."""

WHITE_SPACE = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
"""Every character that ends a chunk."""

LANGUAGE_CHARACTERS = 200
"""Characters of a text that its language is read from."""

LOSSES = ("dropped", "stripped", "decomposed", "replaced")
"""What a normalizer does to a character beyond its case: it leaves nothing; takes marks off a letter (é becomes e);
takes it apart into parts that are canonically equal (a Hangul syllable becomes jamo); or puts another in its place."""


@dataclass
class Counts:
    """What one tokenizer makes of some texts. Counts of several sets of texts add up."""

    RATIOS: ClassVar[tuple[str, ...]] = (
        "tokens_per_word",
        "split_share",
        "tokens_per_text",
        "unknown_rate",
        "unknown_word_share",
    )

    texts: int = 0
    words: int = 0

    tokens: int = 0
    """Tokens, without the special tokens around a text."""

    word_tokens: int = 0
    """Tokens that hold a part of a word: not punctuation on its own, not a bare word-start mark."""

    split_words: int = 0
    """Words of more than one token."""

    unknown_words: int = 0
    """Words with the unknown token in them."""

    lost_words: int = 0
    """Words of no token at all."""

    unknown_tokens: int = 0

    def add(self, other: Counts) -> None:
        """Add ``other``, field by field."""
        for each in fields(other):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def as_dict(self) -> dict[str, int | float]:
        """Every count and every ratio, by name."""
        return {name: getattr(self, name) for name in (*(each.name for each in fields(self)), *self.RATIOS)}

    @property
    def tokens_per_word(self) -> float:
        """Tokens that hold a part of a word, over words. Below 1 where tokens hold several (Chinese characters)."""
        return _ratio(self.word_tokens, self.words)

    @property
    def split_share(self) -> float:
        """Share of words that are more than one token."""
        return _ratio(self.split_words, self.words)

    @property
    def tokens_per_text(self) -> float:
        """Tokens over texts."""
        return _ratio(self.tokens, self.texts)

    @property
    def unknown_rate(self) -> float:
        """Share of tokens that are the unknown token."""
        return _ratio(self.unknown_tokens, self.tokens)

    @property
    def unknown_word_share(self) -> float:
        """Share of words with the unknown token in them."""
        return _ratio(self.unknown_words, self.words)


@dataclass
class QueryCounts(Counts):
    """Counts of texts that were also told apart."""

    RATIOS: ClassVar[tuple[str, ...]] = (*Counts.RATIOS, "split_text_share", "unknown_text_share")

    split_texts: int = 0
    """Texts with a split word."""

    unknown_texts: int = 0
    """Texts with the unknown token."""

    @property
    def split_text_share(self) -> float:
        """Share of texts with a split word."""
        return _ratio(self.split_texts, self.texts)

    @property
    def unknown_text_share(self) -> float:
        """Share of texts with the unknown token."""
        return _ratio(self.unknown_texts, self.texts)


class FragmentedWord(NamedTuple):
    """A word that costs many tokens."""

    word: str
    occurrences: int

    extra_tokens: int
    """Tokens beyond the first of each occurrence, over all occurrences."""

    pieces: list[str]
    """Its tokens behind a space. Byte-level tokens are read as text, with bytes that are no whole character as
    ``<E0>``; other tokens are as the vocabulary writes them."""


class UnknownCharacter(NamedTuple):
    """A character behind unknown tokens."""

    character: str
    """Empty where no single character is to blame: the word is longer than the tokenizer takes, or a character is
    known at the beginning of a word only."""

    tokens: int
    """Unknown tokens with this character in them."""


class ScriptLoss(NamedTuple):
    """What a normalizer does to the characters of one script, in occurrences (see :data:`LOSSES`)."""

    script: str
    characters: int
    """Occurrences of characters of this script in the corpus."""

    counts: dict[str, int]
    """Occurrences by kind of loss."""

    examples: list[tuple[str, str]]
    """The most frequent of the characters, before and after."""


@dataclass(frozen=True)
class Fragmentation:
    """What one tokenizer makes of a corpus."""

    name: str
    by_chunks: bool
    """Whether distinct chunks were tokenized; otherwise whole texts were."""

    total: Counts
    groups: dict[str, Counts]
    """By language or script of the text, most words first."""

    entropy_bits: float
    """Unigram entropy of the tokens, ``-sum_t p(t) log2 p(t)``."""

    distinct_tokens: int
    """Tokens of the vocabulary that occur."""

    words: list[FragmentedWord]
    """The words with most extra tokens."""

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
) -> list[Fragmentation]:
    """Measure each of ``tokenizers`` on ``texts``, read once, with the numbers that tokenizing every text gives.

    White space around a text does not count, nor does a text of nothing else. Memory grows with the distinct words of
    the corpus, not with its texts.

    Args:
        texts: the corpus, one document each.
        tokenizers: by the name to report them under.
        queries: texts that are also told apart by whether one of their words is split.
        punctuation: whether punctuation inside a white-space word ends it (:mod:`vtkit.analysis.words`).
        group_of: the group, a language or a script, under which a text is counted.
        top: entries in the lists of words and of unknown characters.

    Raises:
        DataError: there is no text, or one too long without white space.
    """
    meters = [Meter(name, tokenizer) for name, tokenizer in tokenizers.items()]
    corpus = _Corpus(meters, punctuation)
    corpus.read(texts, group_of)
    if queries is not None:
        for batch in _batches((query, 1) for query in _not_blank(queries)):
            page = _page_of_texts(batch, corpus.word_ids, punctuation)
            for meter in meters:
                meter.measure_queries(page)
    words = list(corpus.word_ids)
    return [meter.report(words, corpus.word_counts, corpus.character_counts, corpus.texts, top) for meter in meters]


def language_groups() -> Callable[[str], str]:
    """Groups texts by language: that of their script where it has only one, else what lingua says of their opening."""
    from lingua import LanguageDetectorBuilder

    detector = LanguageDetectorBuilder.from_all_languages().build()

    def group(text: str) -> str:
        script = script_of_text(text)
        languages = LANGUAGES_OF_SCRIPT.get(script, ()) if script != "Han" else ("zh",)
        if len(languages) == 1:
            return LANGUAGES[languages[0]]
        found = detector.detect_language_of(text[:LANGUAGE_CHARACTERS]) if languages else None
        return str(found.name).capitalize() if found is not None else f"{script} script"

    return group


def cuts_at_white_space(backend: Tokenizer) -> bool:
    """Whether the layout of a tokenizer is known never to make a token, nor a choice, across white space.

    Such are normalizers that work on single characters, on clusters of a letter with its marks, or on white space,
    with the pre-tokenizers of BERT, of words, of GPT-2's byte-level rule or of SentencePiece's mark, or a split by a
    pattern that can match white space at the beginning of a match only (as vtkit's own vocabularies have).
    """
    layout = json.loads(backend.to_str())
    steps = _steps(layout["pre_tokenizer"], "pretokenizers")
    border = next((number for number, step in enumerate(steps) if _splits_at_white_space(step)), None)
    if border is None or layout["model"].get("dropout"):
        return False
    if any(step["type"] not in ("Digits", "Punctuation") for step in steps[:border]):
        return False
    return all(_minds_white_space(step) for step in _steps(layout["normalizer"], "normalizers"))


class Meter:
    """One tokenizer with all that is counted of it."""

    def __init__(self, name: str, tokenizer: PreTrainedTokenizerFast) -> None:
        self.name = name
        self.backend: Tokenizer = tokenizer.backend_tokenizer
        self.by_chunks = cuts_at_white_space(self.backend)
        vocabulary = tokens_of(tokenizer)
        layout = json.loads(self.backend.to_str())
        self.is_byte_level = '"ByteLevel"' in json.dumps(layout["pre_tokenizer"])
        mark = "Ġ" if self.is_byte_level else "▁"
        self.is_mark = np.array([token != "" and not token.strip(f"{mark} ") for token in vocabulary], dtype=bool)
        self.unknown = special_roles(tokenizer).get("unk", -1)
        self.groups: dict[str, Counts] = {}
        self.queries: QueryCounts | None = None
        self.token_counts = np.zeros(len(vocabulary), dtype=np.int64)
        self.extra_tokens = np.zeros(0, dtype=np.int64)
        self.unknown_characters: Counter[str] = Counter()
        self._is_unknown: dict[str, bool] = {}

    @cached_property
    def closed_spaces(self) -> str:
        """White space at which this tokenizer does not begin a new piece."""
        return "".join(space for space in WHITE_SPACE if not _breaks_at(space, self.backend))

    def count(self, page: Page) -> tuple[Counts, Tokens]:
        """Tokenize a page. Its texts are not counted."""
        ids, starts, ends = self._tokenize(page)
        # By its last character: the first may be white space that a normalizer joined to what was before it.
        weights = page.weights[page.units_at(np.maximum(starts, ends - 1))]
        first = np.searchsorted(page.word_ends, starts, "right")
        behind = np.searchsorted(page.word_starts, ends, "left")
        in_word = (behind > first) & (ends > starts) & ~self.is_mark[ids]
        unknown = ids == self.unknown
        pieces = _coverage(first[in_word], behind[in_word], len(page.word_starts))
        spoiled = _coverage(first[in_word & unknown], behind[in_word & unknown], len(page.word_starts))
        counts = Counts(
            words=int(page.word_weights.sum()),
            tokens=int(weights.sum()),
            word_tokens=int(weights[in_word].sum()),
            split_words=int(page.word_weights[pieces > 1].sum()),
            unknown_words=int(page.word_weights[spoiled > 0].sum()),
            lost_words=int(page.word_weights[pieces == 0].sum()),
            unknown_tokens=int(weights[unknown].sum()),
        )
        return counts, Tokens(ids, starts, ends, weights, pieces)

    def measure(self, page: Page, group: str) -> None:
        """Add a page of the corpus to ``group``."""
        counts, tokens = self.count(page)
        self.groups.setdefault(group, Counts()).add(counts)
        self.token_counts += _sums(tokens.ids, tokens.weights, len(self.token_counts))
        if len(page.word_ids):
            self.extra_tokens = _padded(self.extra_tokens, int(page.word_ids.max()) + 1)
            extra = np.maximum(tokens.pieces - 1, 0) * page.word_weights
            self.extra_tokens += _sums(page.word_ids, extra, len(self.extra_tokens))
        unknown = np.flatnonzero((tokens.ids == self.unknown) & (tokens.weights > 0))
        text = "".join(page.texts) if len(unknown) else ""
        for number in unknown:
            for character in self._to_blame(text[tokens.starts[number] : tokens.ends[number]]) or ("",):
                self.unknown_characters[character] += int(tokens.weights[number])

    def measure_queries(self, page: Page) -> None:
        """Add a page of queries, each a unit of its own."""
        counts, tokens = self.count(page)
        split = page.units_at(page.word_starts[tokens.pieces > 1])
        unknown = page.units_at(tokens.starts[tokens.ids == self.unknown])
        self.queries = self.queries or QueryCounts()
        self.queries.add(counts)
        self.queries.texts += int(page.weights.sum())
        self.queries.split_texts += int(page.weights[np.unique(split)].sum())
        self.queries.unknown_texts += int(page.weights[np.unique(unknown)].sum())

    def report(
        self, words: list[str], word_counts: Integers, character_counts: Integers, texts: Mapping[str, int], top: int
    ) -> Fragmentation:
        """All that was counted, lists cut at ``top`` entries.

        Args:
            words: the word of each id, (words,).
            word_counts: occurrences of each, (words,).
            character_counts: occurrences of each code point, (0x110000,).
            texts: texts of each group.
        """
        total = Counts()
        for group, number in texts.items():
            self.groups.setdefault(group, Counts()).texts = number
            total.add(self.groups[group])
        shares = self.token_counts[self.token_counts > 0] / max(1, total.tokens)
        return Fragmentation(
            name=self.name,
            by_chunks=self.by_chunks,
            total=total,
            groups=dict(sorted(self.groups.items(), key=lambda item: (-item[1].words, item[0]))),
            entropy_bits=abs(float(shares @ np.log2(shares))),
            distinct_tokens=len(shares),
            words=[
                FragmentedWord(words[number], int(word_counts[number]), extra, self._pieces(words[number]))
                for number, extra in self._most_extra(words, top)
            ],
            unknown_characters=[
                UnknownCharacter(*entry)
                for entry in sorted(self.unknown_characters.items(), key=lambda item: (-item[1], item[0]))[:top]
            ],
            losses=normalizer_losses(self.backend, character_counts),
            queries=self.queries,
        )

    def _tokenize(self, page: Page) -> tuple[Integers, Integers, Integers]:
        """Ids of the page's tokens, and where each begins and ends; (tokens,) each."""
        encodings = self.backend.encode_batch(page.texts, add_special_tokens=False)
        lengths = [len(encoding) for encoding in encodings]
        ids = np.fromiter(chain.from_iterable(e.ids for e in encodings), dtype=np.int64, count=sum(lengths))
        offsets = chain.from_iterable(chain.from_iterable(e.offsets) for e in encodings)
        spans = np.fromiter(offsets, dtype=np.int64, count=2 * sum(lengths)).reshape(-1, 2)
        spans += np.repeat(page.text_starts, lengths)[:, None]
        return ids, np.ascontiguousarray(spans[:, 0]), np.ascontiguousarray(spans[:, 1])

    def _most_extra(self, words: list[str], top: int) -> list[tuple[int, int]]:
        """Numbers of the words with most extra tokens, and these; equals in the order of the words."""
        extra = self.extra_tokens
        least = max(1, int(np.partition(extra, -top)[-top])) if 0 < top < len(extra) else 1
        found = sorted((-int(extra[number]), words[number], int(number)) for number in np.flatnonzero(extra >= least))
        return [(number, -negative) for negative, _, number in found[:top]]

    def _pieces(self, word: str) -> list[str]:
        encoding = self.backend.encode(f"a {word}", add_special_tokens=False)
        found = zip(encoding.ids, encoding.tokens, encoding.offsets, strict=True)
        pieces = [token for number, token, (_, end) in found if end > 2 and not self.is_mark[number]]
        return [_as_text(piece) for piece in pieces] if self.is_byte_level else pieces

    def _to_blame(self, text: str) -> list[str]:
        """The characters of ``text`` that are unknown on their own."""
        characters = sorted(set(text))
        for character in characters:
            if character not in self._is_unknown:
                ids = self.backend.encode(character, add_special_tokens=False).ids
                self._is_unknown[character] = self.unknown in ids
        return [character for character in characters if self._is_unknown[character]]


class Page(NamedTuple):
    """Texts that are tokenized together. Positions are characters of all of them, one after the other."""

    texts: list[str]
    text_starts: Integers
    unit_starts: Integers
    """Where the units of counting begin: chunks, or whole texts."""

    weights: Integers
    """Occurrences of each unit; 0 for one that only stands before others."""

    word_starts: Integers
    word_ends: Integers
    word_ids: Integers
    word_weights: Integers

    def units_at(self, positions: Integers) -> Integers:
        """The unit that each position lies in."""
        return np.searchsorted(self.unit_starts, positions, "right") - 1

    def characters(self) -> tuple[Integers, Integers]:
        """Every code point of the page, and its occurrences."""
        codes = np.frombuffer("".join(self.texts).encode("utf-32-le"), dtype="<u4").astype(np.int64)
        return codes, np.repeat(self.weights, np.diff(self.unit_starts, append=len(codes)))


class Tokens(NamedTuple):
    """The tokens of a page."""

    ids: Integers
    starts: Integers
    ends: Integers
    weights: Integers
    pieces: Integers
    """Tokens of each word of the page, (words,)."""


def normalizer_losses(backend: Tokenizer, character_counts: Integers) -> list[ScriptLoss]:
    """What the normalizer does to the characters of a corpus, one by one, by script; most losses first.

    Args:
        character_counts: occurrences of each code point, (0x110000,).
    """
    if backend.normalizer is None:
        return []
    normalize = backend.normalizer.normalize_str
    characters: Counter[str] = Counter()
    counts: dict[str, Counter[str]] = {}
    lost: dict[str, list[tuple[int, str, str]]] = {}
    for code in np.flatnonzero(character_counts):
        character, count = chr(code), int(character_counts[code])
        if character.isspace():
            continue
        script = script_of(character)
        characters[script] += count
        after = normalize(character).strip(" ▁") if character != "▁" else character
        kind = _loss(character, after)
        if kind:
            counts.setdefault(script, Counter())[kind] += count
            lost.setdefault(script, []).append((-count, character, after))
    found = [
        ScriptLoss(
            script,
            characters[script],
            {kind: kinds[kind] for kind in LOSSES if kinds[kind]},
            [(before, after) for _, before, after in sorted(lost[script])[:5]],
        )
        for script, kinds in counts.items()
    ]
    return sorted(found, key=lambda loss: (-sum(loss.counts.values()), loss.script))


class _Corpus:
    """A corpus on its way through the meters, and what of it does not depend on a tokenizer."""

    def __init__(self, meters: list[Meter], punctuation: Punctuation) -> None:
        self.meters, self.punctuation = meters, punctuation
        self.word_ids: dict[str, int] = {}
        self.word_counts = np.zeros(0, dtype=np.int64)
        self.character_counts = np.zeros(0x110000, dtype=np.int64)
        self.texts: Counter[str] = Counter()

    def read(self, texts: Iterable[str], group_of: Callable[[str], str]) -> None:
        """Measure ``texts``: the first group as they come, the others from temporary files."""
        stripped = _not_blank(texts)
        beginning = list(_up_to(VERIFIED_CHARACTERS, stripped))
        if not beginning:
            raise DataError("There is no text in the corpus.")
        self._verify(beginning)
        self.is_odd = odd_texts([meter for meter in self.meters if meter.by_chunks])
        first = group_of(beginning[0])
        others: dict[str, _Spool] = {}

        def of_first_group() -> Iterator[str]:
            for text in chain(beginning, stripped):
                group = group_of(text)
                if group == first:
                    yield text
                else:
                    others.setdefault(group, _Spool()).write(text)

        self._read_group(first, of_first_group())
        for group, spool in others.items():
            self._read_group(group, spool)

    def _read_group(self, group: str, texts: Iterable[str]) -> None:
        by_chunks = [meter for meter in self.meters if meter.by_chunks]
        others = [meter for meter in self.meters if not meter.by_chunks]
        odd, whole = _Batch(), _Batch()

        def plain() -> Iterator[str]:
            for text in texts:
                self.texts[group] += 1
                if others and whole.add(text):
                    self._measure(whole.page(self.word_ids, self.punctuation), group, others, not by_chunks)
                if not by_chunks:
                    continue
                if not self.is_odd(text):
                    yield text
                elif odd.add(text):
                    self._measure(odd.page(self.word_ids, self.punctuation), group, by_chunks, True)

        counts = count_chunks(plain())
        if by_chunks:
            for page in _pages_of_chunks(counts, self.word_ids, self.punctuation):
                self._measure(page, group, by_chunks, True)
        if odd.texts:
            self._measure(odd.page(self.word_ids, self.punctuation), group, by_chunks, True)
        if whole.texts:
            self._measure(whole.page(self.word_ids, self.punctuation), group, others, not by_chunks)

    def _measure(self, page: Page, group: str, meters: list[Meter], observe: bool) -> None:
        """Give ``page`` to ``meters``; ``observe`` where its words and characters have not been counted yet."""
        for meter in meters:
            meter.measure(page, group)
        if observe:
            self.word_counts = _padded(self.word_counts, len(self.word_ids))
            self.word_counts += _sums(page.word_ids, page.word_weights, len(self.word_counts))
            self.character_counts += _sums(*page.characters(), len(self.character_counts))

    def _verify(self, texts: list[str]) -> None:
        """Take whole texts after all for tokenizers whose chunks are not cut up as the texts are."""
        by_chunks = [meter for meter in self.meters if meter.by_chunks]
        is_odd = odd_texts(by_chunks)
        plain = [text for text in texts if not is_odd(text)]
        ids: dict[str, int] = {}
        chunks = list(_pages_of_chunks(count_chunks(plain), ids, self.punctuation))
        whole = [_page_of_texts(batch, ids, self.punctuation) for batch in _batches((text, 1) for text in plain)]
        for meter in by_chunks:
            found = []
            for pages in (chunks, whole):
                total, each = Counts(), np.zeros_like(meter.token_counts)
                for page in pages:
                    counts, tokens = meter.count(page)
                    total.add(counts)
                    each += _sums(tokens.ids, tokens.weights, len(each))
                found.append((total, each.tolist()))
            meter.by_chunks = found[0] == found[1]


class _Batch:
    """Distinct whole texts, until there are enough to be tokenized."""

    def __init__(self) -> None:
        self.texts: Counter[str] = Counter()
        self.characters = 0

    def add(self, text: str) -> bool:
        """Whether the batch is full with ``text`` in it."""
        if len(text) > LONGEST_TEXT:
            raise DataError(
                f"The corpus has a text of {len(text)} characters, beginning {text[:40]!r}, that must be tokenized as "
                f"a whole, and {LONGEST_TEXT} is the most that fits into memory. Break it into lines."
            )
        self.characters += len(text) if text not in self.texts else 0
        self.texts[text] += 1
        return self.characters >= PAGE_CHARACTERS

    def page(self, word_ids: dict[str, int], punctuation: Punctuation) -> Page:
        """The texts as a page; the batch is empty afterwards."""
        page = _page_of_texts(list(self.texts.items()), word_ids, punctuation)
        self.texts, self.characters = Counter(), 0
        return page


class _Spool:
    """Texts put by in a temporary file, to be read once."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n")  # noqa: SIM115

    def write(self, text: str) -> None:
        self.file.write(f"{len(text)}\n{text}")

    def __iter__(self) -> Iterator[str]:
        with self.file as file:
            file.seek(0)
            while length := file.readline():
                yield file.read(int(length))


def _pages_of_chunks(
    counts: Iterable[tuple[str, int]], word_ids: dict[str, int], punctuation: Punctuation
) -> Iterator[Page]:
    """Chunks in texts as a tokenizer would meet them: behind other text where white space comes first."""
    texts: list[list[str]] = []
    weights: list[int] = []
    characters = 0
    for chunk, count in counts:
        if len(chunk) > LONGEST_CHUNK:
            raise DataError(
                f"The corpus has {len(chunk)} characters without white space, beginning {chunk.strip()[:40]!r}: no "
                "text of words. Is it the right file? If it is text, break it into lines."
            )
        if not chunk[0].isspace():
            texts.append([])
        elif not texts or len(texts[-1]) > CHUNKS_A_TEXT:
            texts.append(["a"])
            weights.append(0)
        texts[-1].append(chunk)
        weights.append(count)
        characters += len(chunk)
        if characters >= PAGE_CHARACTERS:
            yield _page(texts, weights, word_ids, punctuation)
            texts, weights, characters = [], [], 0
    if texts:
        yield _page(texts, weights, word_ids, punctuation)


def _page_of_texts(texts: list[tuple[str, int]], word_ids: dict[str, int], punctuation: Punctuation) -> Page:
    return _page([[text] for text, _ in texts], [count for _, count in texts], word_ids, punctuation)


def _page(texts: list[list[str]], weights: list[int], word_ids: dict[str, int], punctuation: Punctuation) -> Page:
    """A page of ``texts``, each a list of units; ``weights`` of all units."""
    joined = ["".join(units) for units in texts]
    text_starts = _starts(map(len, joined))
    unit_starts = _starts(map(len, chain.from_iterable(texts)))
    spans: list[tuple[int, int]] = []
    ids: list[int] = []
    for text, start in zip(joined, text_starts.tolist(), strict=True):
        for begin, end in word_spans(text, punctuation):
            spans.append((start + begin, start + end))
            ids.append(word_ids.setdefault(text[begin:end], len(word_ids)))
    bounds = np.array(spans, dtype=np.int64).reshape(-1, 2)
    counts = np.array(weights, dtype=np.int64)
    word_units = np.searchsorted(unit_starts, bounds[:, 0], "right") - 1
    return Page(
        texts=joined,
        text_starts=text_starts,
        unit_starts=unit_starts,
        weights=counts,
        word_starts=np.ascontiguousarray(bounds[:, 0]),
        word_ends=np.ascontiguousarray(bounds[:, 1]),
        word_ids=np.array(ids, dtype=np.int64),
        word_weights=counts[word_units],
    )


def odd_texts(meters: list[Meter]) -> Callable[[str], bool]:
    """Tells the texts that must be tokenized whole by tokenizers which otherwise cut at white space.

    Such are texts with white space or control characters that one of the tokenizers does not cut at, with invisible
    characters at the edge of a chunk (a normalizer may leave nothing of the chunk), or with an added token in them
    (which may take the white space beside it).
    """
    closed = "".join({space for meter in meters for space in meter.closed_spaces})
    ends = rf"|[{re.escape(closed)}]" if closed else ""
    hidden = regex.compile(rf"(?V1)[\p{{Cc}}--[\t\n\r]]|(?<!\S)[\p{{C}}--\s]|[\p{{C}}--\s](?!\S){ends}")
    added = [token for meter in meters for token in meter.backend.get_added_tokens_decoder().values()]
    spelled = {token.content.lower() for token in added if token.content.strip()}
    special = re.compile("|".join(map(re.escape, sorted(spelled)))) if spelled else None

    def is_odd(text: str) -> bool:
        if special is not None and special.search(text.lower()):
            return True
        return not text.isprintable() and hidden.search(text) is not None

    return is_odd


def _breaks_at(space: str, backend: Tokenizer) -> bool:
    """Whether a tokenizer begins a new piece with white space that begins with, or holds, the character ``space``."""
    for before in ("a", "7", ".", "中", "한"):
        for gap in (space, f"{space} ", f" {space}", space * 2):
            for behind in ("b", "."):
                encoding = backend.encode(f"{before}{gap}{behind}", add_special_tokens=False)
                found = list(zip(encoding.word_ids, encoding.offsets, strict=True))
                left = {word for word, (start, end) in found if start < 1 and end > start}
                right = {word for word, (start, end) in found if end > 1 + len(gap)}
                if left & right or any(end > 1 for word, (_, end) in found if word in left):
                    return False
    return True


def _steps(part: dict[str, Any] | None, inside: str) -> list[dict[str, Any]]:
    """The steps of a normalizer or pre-tokenizer, sequences taken apart."""
    if part is None:
        return []
    if part["type"] == "Sequence":
        return [step for inner in part[inside] for step in _steps(inner, inside)]
    return [part]


def _splits_at_white_space(step: dict[str, Any]) -> bool:
    """Whether a pre-tokenizer leaves no piece that has white space behind other characters."""
    match step["type"]:
        case "BertPreTokenizer" | "Whitespace" | "WhitespaceSplit":
            return True
        case "ByteLevel":
            return bool(step["use_regex"])
        case "Metaspace":
            return bool(step.get("split", True))
        case "Split":
            pattern = step["pattern"].get("Regex")
            if pattern is None or not _spaces_only_first(pattern):
                return False
            if step["invert"]:
                return str(step["behavior"]) == "Removed"
            return str(step["behavior"]) == "Isolated" and _matches_everything(pattern)
        case _:
            return False


def _minds_white_space(step: dict[str, Any]) -> bool:
    """Whether what a normalizer does to a chunk does not depend on the chunks beside it."""
    match step["type"]:
        case "Replace":
            pattern = step["pattern"].get("Regex")
            if pattern is None:
                literal = str(step["pattern"]["String"])
                return literal == " " or not any(map(str.isspace, literal))
            return pattern in (r"\s", r"\s+", " +", " {2,}") or _spaces_only_first(pattern)
        case kind:
            simple = ("BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip", "Prepend")
            return kind in (*simple, "Nmt", "Precompiled")


_CLASS = re.compile(r"\[(?:\\.|[^\]\\])*\]")
_PROPERTY = re.compile(r"\\p\{(\w+)\}")
_SPACED_PROPERTIES = (
    "C",
    "Cc",
    "Cn",
    "Z",
    "Zs",
    "Zl",
    "Zp",
    "Common",
    "Zyyy",
    "Any",
    "Assigned",
    "Space",
    "White_Space",
)


def _spaces_only_first(pattern: str) -> bool:
    """Whether no match of a pattern can hold white space but one space as its first character; False where unsure."""

    def without_space(part: str) -> bool:
        rest = _PROPERTY.sub("", part).replace(r"\x{300}-\x{36F}", "")
        spaced = any(name in _SPACED_PROPERTIES for name in _PROPERTY.findall(part))
        return not spaced and re.search(r"\s|\\(?![-\[\](){}|^$.*+?/])", rest) is None

    for part in _CLASS.findall(pattern):
        if not part.startswith(r"[^\s") and (part.startswith("[^") or not without_space(part[1:-1])):
            return False
    for alternative in _CLASS.sub("", pattern).split("|"):
        rest = re.sub(r"\(\?!\\s\)\\p\{\w+\}|\\S", "", alternative.removeprefix(" ?"))
        if "." in rest or "(" in rest or not without_space(rest):
            return False
    return True


@cache
def _matches_everything(pattern: str) -> bool:
    """Whether every character that is not white space is matched, with a space before it."""
    everything = (chr(code) for code in range(0x20000) if not 0xD800 <= code < 0xE000)
    text = "".join(f"  {character}" for character in everything if not character.isspace())
    pieces = pre_tokenizers.Split(Regex(pattern), behavior="isolated").pre_tokenize_str(text)
    return all(len(piece) <= 2 for piece, _ in pieces)


def _loss(before: str, after: str) -> str | None:
    """The kind of loss, one of :data:`LOSSES`, between a character and its normalized form; None for case."""
    if not after:
        return "dropped"
    if after.casefold() == before.casefold():
        return None
    if _nfc(after) == _nfc(before):
        return "decomposed"
    letters = "".join(c for c in unicodedata.normalize("NFD", before) if not unicodedata.category(c).startswith("M"))
    return "stripped" if letters and _nfc(letters) == _nfc(after) else "replaced"


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text.casefold())


def _not_blank(texts: Iterable[str]) -> Iterator[str]:
    return (text for text in (text.strip() for text in texts) if text)


def _up_to(characters: int, texts: Iterator[str]) -> Iterator[str]:
    """The first texts, until they have so many characters."""
    for text in texts:
        yield text
        characters -= len(text)
        if characters <= 0:
            return


def _batches(texts: Iterable[tuple[str, int]]) -> Iterator[list[tuple[str, int]]]:
    batch: list[tuple[str, int]] = []
    characters = 0
    for text in texts:
        batch.append(text)
        characters += len(text[0])
        if characters >= PAGE_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _starts(lengths: Iterable[int]) -> Integers:
    ends = np.cumsum(np.fromiter(lengths, dtype=np.int64))
    return np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1]])


def _coverage(first: Integers, behind: Integers, number: int) -> Integers:
    """How many of the ranges ``first`` to ``behind`` (not included) each of ``number`` places lies in."""
    changes = np.bincount(first, minlength=number + 1) - np.bincount(behind, minlength=number + 1)
    return np.cumsum(changes)[:number]


def _sums(numbers: Integers, weights: Integers, size: int) -> Integers:
    """The sum of the weights of each number below ``size``; exact up to 2^53."""
    return np.bincount(numbers, weights=weights, minlength=size).astype(np.int64)


def _padded(values: Integers, size: int) -> Integers:
    return np.pad(values, (0, max(0, size - len(values))))


def _as_text(token: str) -> str:
    """A byte-level token as it can be read."""
    form = canonical(token, "byte-level")
    surface = "".join(f"<{ord(c) - 0xDC00:02X}>" if 0xDC80 <= ord(c) < 0xDD00 else c for c in form.surface)
    return f"Ġ{surface}" if form.starts_word else surface


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0

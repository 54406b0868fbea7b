"""How tokenizers cut up a corpus: tokens a word, words split, unknown and lost characters, several side by side.

A corpus is not tokenized text by text. Tokenizers that never look across white space (vtkit.inspect.white_space)
need each distinct chunk (a word with its punctuation and the white space before it) only once, weighted by how often
it occurs; the result is the same to the last token. Those that are known to take chunks apart in any case (BERT's
punctuation, GPT-2's letters, digits and punctuation) need each distinct part only once a page. Chunks and parts are
joined into longer texts before they are tokenized, because a tokenizer reads one long text faster than many short ones.
Other tokenizers, and the few texts with characters that tokenizers treat in ways of their own, are tokenized as they
stand.
"""

from __future__ import annotations

import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from vtkit.data.word_counts import count_chunks
from vtkit.errors import DataError
from vtkit.inspect.composition import LANGUAGES, LANGUAGES_OF_SCRIPT
from vtkit.inspect.meter import Counts, Fragmentation, Meter
from vtkit.inspect.text_pages import PAGE_CHARACTERS, Page, batches, padded, page_of_texts, pages_of_chunks, sums
from vtkit.inspect.white_space import odd_texts
from vtkit.inspect.words import Punctuation, script_of_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

LONGEST_TEXT = 20_000_000
"""Characters of a text that is tokenized as it stands; a longer one would take gigabytes."""

VERIFIED_CHARACTERS = 100_000
"""Characters at the beginning of the corpus on which chunks and whole texts must give the same counts."""

THREADS = 2
"""One counts while the other tokenizes; tokenizers have threads of their own."""

PAGES_AT_WORK = 2
"""Pages that the meters may have at a time, so that none of them waits for the slowest at the end of every page."""

LANGUAGE_CHARACTERS = 200
"""Characters of a text that its language is read from."""


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
        punctuation: whether punctuation inside a white-space word ends it (:mod:`vtkit.inspect.words`).
        group_of: the group, a language or a script, under which a text is counted.
        top: entries in the lists of words and of unknown characters.

    Raises:
        DataError: there is no text, or one too long without white space.
    """
    meters = [Meter(name, tokenizer) for name, tokenizer in tokenizers.items()]
    corpus = _Corpus(meters, punctuation)
    corpus.read(texts, group_of)
    if queries is not None:
        for batch in batches((query, 1) for query in _not_blank(queries)):
            page = page_of_texts(batch, corpus.word_ids, punctuation)
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


class _Corpus:
    """A corpus on its way through the meters, and what of it does not depend on a tokenizer."""

    def __init__(self, meters: list[Meter], punctuation: Punctuation) -> None:
        self.meters, self.punctuation = meters, punctuation
        self.patterns = {meter.part for meter in meters if meter.by_chunks and meter.part is not None}
        self.word_ids: dict[str, int] = {}
        self.word_counts = np.zeros(0, dtype=np.int64)
        self.character_counts = np.zeros(0x110000, dtype=np.int64)
        self.texts: Counter[str] = Counter()
        self._at_work: deque[list[Future[None]]] = deque()

    def read(self, texts: Iterable[str], group_of: Callable[[str], str]) -> None:
        """Measure ``texts``: the first group as they come, the others from temporary files."""
        stripped = _not_blank(texts)
        beginning = list(_up_to(VERIFIED_CHARACTERS, stripped))
        if not beginning:
            raise DataError("There is no text in the corpus.")
        self.is_odd = odd_texts([meter.backend for meter in self.meters if meter.by_chunks])
        self._verify([text[:VERIFIED_CHARACTERS] for text in beginning])
        first = group_of(beginning[0])
        others: dict[str, _Spool] = {}

        def of_first_group() -> Iterator[str]:
            for text in chain(beginning, stripped):
                group = group_of(text)
                if group == first:
                    yield text
                else:
                    others.setdefault(group, _Spool()).write(text)

        with ThreadPoolExecutor(THREADS) as self.threads:
            self._read_group(first, of_first_group())
            for group, spool in others.items():
                self._read_group(group, spool)
            self._wait()

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
            for page in pages_of_chunks(counts, self.word_ids, self.punctuation, self.patterns):
                self._measure(page, group, by_chunks, True)
        if odd.texts:
            self._measure(odd.page(self.word_ids, self.punctuation), group, by_chunks, True)
        if whole.texts:
            self._measure(whole.page(self.word_ids, self.punctuation), group, others, not by_chunks)

    def _measure(self, page: Page, group: str, meters: list[Meter], observe: bool) -> None:
        """Give ``page`` to ``meters``; ``observe`` where its words and characters have not been counted yet."""
        self._wait(PAGES_AT_WORK - 1)
        self._at_work.append([self.threads.submit(meter.measure, page, group) for meter in meters])
        if observe:
            self.word_counts = padded(self.word_counts, len(self.word_ids))
            self.word_counts += sums(page.word_ids, page.word_weights, len(self.word_counts))
            self.character_counts += sums(*page.characters(), len(self.character_counts))

    def _wait(self, pages: int = 0) -> None:
        """Until the meters have no more than ``pages`` at work."""
        while len(self._at_work) > pages:
            for work in self._at_work.popleft():
                work.result()

    def _verify(self, texts: list[str]) -> None:
        """Take whole texts after all for tokenizers whose chunks are not cut up as the texts are."""
        plain = [text for text in texts if not self.is_odd(text)]
        ids: dict[str, int] = {}
        chunks = list(pages_of_chunks(count_chunks(plain), ids, self.punctuation, self.patterns))
        whole = [page_of_texts(batch, ids, self.punctuation) for batch in batches((text, 1) for text in plain)]
        for meter in self.meters:
            if not meter.by_chunks:
                continue
            found = []
            for pages in (chunks, whole):
                total, each = Counts(), np.zeros_like(meter.token_counts)
                for page in pages:
                    counts, tokens = meter.count(page)
                    total.add(counts)
                    each += sums(tokens.ids, tokens.weights, len(each))
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
        page = page_of_texts(list(self.texts.items()), word_ids, punctuation)
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


def _not_blank(texts: Iterable[str]) -> Iterator[str]:
    return (text for text in (text.strip() for text in texts) if text)


def _up_to(characters: int, texts: Iterator[str]) -> Iterator[str]:
    """The first texts, until they have so many characters."""
    for text in texts:
        yield text
        characters -= len(text)
        if characters <= 0:
            return

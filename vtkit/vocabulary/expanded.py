"""An existing vocabulary and the most frequent new tokens of a corpus: AdaLM's expansion (Algorithm 1 of Iida and
Okazaki 2022, "CAI"), token for token, with the corpus read once and one training for all increments."""

from __future__ import annotations

import json
import math
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers

from vtkit.data.word_counts import CHUNK, SPACES, count_chunks, make_room
from vtkit.settings.casing import CasingSection
from vtkit.settings.vocabulary import ExpandedVocabulary
from vtkit.system import console
from vtkit.system.errors import DataError
from vtkit.vocabulary.existing import with_casing, wrapped_like
from vtkit.vocabulary.merging import LEAST_OCCURRENCES, merge, merge_wordpiece
from vtkit.vocabulary.notation import BYTE_LEVEL, WORDPIECE, Notation
from vtkit.vocabulary.statistics import Built, ExpansionStats, Increment, say_if_smaller

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Reason = Literal["exhausted", "entropy-gain", "first-gain", "size"]

WHY: dict[Reason, str] = {
    "exhausted": "the corpus has no further tokens to add",
    "entropy-gain": "the last increment raised the unigram entropy by less than the threshold",
    "first-gain": "the last increment raised the unigram entropy by too little of what the first did",
    "size": "the wanted size is reached",
}
"""The reasons in words."""

SPECIAL_TOKENS = 5  # places of a learned vocabulary that special tokens take
FIRST_INCREMENTS = 8  # increments that the first training is large enough for; each further one is for twice as many

_TEXTS_CHECKED = 200
_WORDS_AT_ONCE = 50_000  # words that are held as a list

_WORDS_A_ROW = 5_000  # words that a thread cuts at a time


def expand_vocabulary(
    base: PreTrainedTokenizerFast,
    texts: Iterable[str],
    section: ExpandedVocabulary,
    casing: CasingSection | None = None,
) -> Built:
    """Add to ``base`` the tokens that ``texts`` need most (AdaLM; Algorithm 1 of the CAI paper).

    For i = 1, 2, …: a lower-cased vocabulary of |V₀| + i·ΔV tokens is learned on the corpus, the corpus is cut with it,
    and its most frequent tokens that V₀ lacks are added to V₀ until there are |V₀| + i·ΔV. The result is the vocabulary
    of the first i that

    - cannot be filled (with every rule: the corpus is exhausted),
    - raises I(C) by less than ε of its magnitude (``entropy-gain``), or by less than ε of what the first increment
      raised it by (``first-gain``), or
    - has ``section.size`` tokens.

    Words are those that the base's own normalizer and pre-tokenizer make; WordPiece learns WordPiece, byte-level BPE
    byte-level BPE (:func:`_fitting`). What the paper leaves open: all characters of the corpus are in the learned
    vocabulary, five of its places are special tokens', equally frequent tokens are added in code-point order, and
    tokens that occur less than :data:`LEAST_OCCURRENCES` times are not added.

    Args:
        base: its tokens keep their ids, and its normalizer, pre-tokenizer and special tokens stay.
        texts: the corpus; read once, as a stream, in any order.
        casing: ``input = "lowercase"`` makes the base lower-case its input first. New tokens are lower-case in any
            case.

    Raises:
        DataError: a base that is neither WordPiece nor byte-level BPE, or joins words across white space; a size not
            above the base's; a corpus without words, or with nothing to add.
    """
    casing = casing or CasingSection()
    base = with_casing(base, casing)
    notation = _expandable(base, section.tokenizer)
    if section.size is not None and section.size <= len(base):
        raise DataError(
            f"size = {section.size} cannot be reached by adding tokens: the tokenizer {section.tokenizer} "
            f"has {len(base)} already. Give a larger size, or none."
        )
    corpus = _read_corpus(base, texts, section, casing.language)
    learned: _Learned | None = None
    counts = corpus.token_counts(base.backend_tokenizer.model, len(base))
    curve = [corpus.increment(counts, [])]
    stopped: Reason | None = None
    with console.progress("increments of the vocabulary") as bar:
        while stopped is None:
            wanted = min(len(base) + len(curve) * section.increment, section.size or sys.maxsize)
            if learned is None or not (learned.complete or len(learned.tokens) + SPECIAL_TOKENS >= wanted):
                # For 8, 16, 32, … increments.
                ahead = len(base) + max(FIRST_INCREMENTS, 1 << (len(curve) - 1).bit_length()) * section.increment
                learned = _learn(base, corpus.lowered, notation, min(ahead, section.size or ahead))
            added, extended = _extended(base.backend_tokenizer, corpus, learned, wanted)
            counts = corpus.token_counts(extended.model, len(base) + len(added))
            curve.append(corpus.increment(counts, curve))
            stopped = _reason_to_stop(curve, wanted, section)
            bar.advance(words=f"{curve[-1].size} tokens")
    if not added:
        raise DataError(
            f"The corpus has nothing to add to {section.tokenizer}: all that occurs at least {LEAST_OCCURRENCES} times "
            'is there already, or is digits and marks. Use the tokenizer as it is (kind = "existing"), or give more '
            "text."
        )
    if section.size is not None:
        say_if_smaller(len(base) + len(added), section.size, len(base))
    unused = int((counts[len(base) :] == 0).sum())
    stats = ExpansionStats(len(base), len(added), unused, stopped, WHY[stopped], tuple(curve))
    return Built(wrapped_like(extended, base), expansion=stats, added=tuple(added))


@dataclass(frozen=True)
class _Corpus:
    """Word counts of a corpus, enough to tokenize it with any model."""

    words: Counter[str]  # every word as the tokenizer hands it to its model, with its count
    lowered: Counter[str]  # the same of the lower-cased corpus
    fixed: Counter[int]  # ids that the tokenizer finds before it looks for words (its added tokens), with their counts
    spaced_words: int  # words between white space

    def token_counts(self, model: models.Model, size: int) -> NDArray[np.int64]:
        """How often each of the ``size`` tokens of ``model`` is made, (vocabulary,)."""
        counts = _cut(model, self.words, size)
        for number, count in self.fixed.items():
            counts[number] += count
        return counts

    def increment(self, counts: NDArray[np.int64], earlier: Sequence[Increment]) -> Increment:
        """The increment whose tokens occur ``counts`` times, (vocabulary,); ``earlier`` begins with the base's."""
        size, tokens = len(counts), int(counts.sum())
        entropy = math.fsum(count * math.log(count / tokens) for count in counts[counts > 0].tolist())
        added, gain, share = 0, None, None
        if earlier:
            added, risen = size - earlier[0].size, entropy - earlier[-1].entropy
            first = risen if len(earlier) == 1 else earlier[1].entropy - earlier[0].entropy
            gain = risen / -earlier[-1].entropy if earlier[-1].entropy else 0.0
            share = risen / first if first else None
        return Increment(size, added, tokens, tokens / self.spaced_words, entropy, gain, share)


@dataclass(frozen=True)
class _Learned:
    """Merges learned from the corpus; :meth:`model` returns any smaller vocabulary."""

    notation: Notation
    tokens: list[str]  # in the order they were learned, the alphabet first
    alphabet: int
    merges: list[tuple[str, str]]  # in order; for BPE
    addable: set[str]  # tokens that the base lacks, but for those without a letter
    whole_words: set[str]  # tokens that are a word of the corpus
    complete: bool  # whether the corpus has nothing more to learn

    def model(self, size: int, base: Any) -> models.Model:
        """The learned vocabulary of ``size`` tokens, special tokens included, ready to cut words as ``base`` does."""
        kept = max(size - SPECIAL_TOKENS, self.alphabet)
        vocabulary = {token: number for number, token in enumerate(dict.fromkeys(self.tokens[:kept]))}
        if self.notation.byte_level:
            merges = self.merges
            if kept < len(self.tokens):  # up to the merge that makes the last token
                made = [*self.tokens[: self.alphabet], *(left + right for left, right in merges)]
                merges = merges[: made.index(self.tokens[kept - 1]) + 1 - self.alphabet]
            return models.BPE(vocabulary, merges)
        vocabulary.setdefault(base.unk_token, len(vocabulary))
        return models.WordPiece(
            vocabulary,
            unk_token=base.unk_token,
            max_input_chars_per_word=base.max_input_chars_per_word,
            continuing_subword_prefix=self.notation.prefix,
        )


def _expandable(base: PreTrainedTokenizerFast, name: str) -> Notation:
    kind = json.loads(base.backend_tokenizer.to_str())["model"].get("type")
    notation = Notation.of(base.backend_tokenizer)
    if kind == "WordPiece" and notation.starts == "prefix" and not notation.byte_level:
        return notation
    if kind == "BPE" and notation.byte_level and not (notation.prefix or notation.suffix):
        return notation
    said = {"BPE": "BPE of characters", "WordPiece": "WordPiece of another kind"}
    raise DataError(
        f"The tokenizer {name} cannot be expanded: it is {said.get(kind, kind)}, and tokens "
        f"are added to WordPiece ({WORDPIECE.prefix} continues a word) and byte-level BPE ({BYTE_LEVEL.written(' ')} "
        "starts one) vocabularies only. Choose "
        'such a tokenizer, or train a vocabulary on the corpus (kind = "trained").'
    )


def _read_corpus(
    base: PreTrainedTokenizerFast, texts: Iterable[str], section: ExpandedVocabulary, language: str | None
) -> _Corpus:
    folded = with_casing(base, CasingSection(input="lowercase", language=language))
    cut, cut_lowered = _cutter(base), _cutter(folded)
    texts = iter(texts)
    first = list(islice(texts, _TEXTS_CHECKED))
    spaced = [text for text in first if len(CHUNK.findall(text)) > 1]
    joined = [
        text for text in spaced if cut(text) != [w for chunk in CHUNK.findall(text) for w in _chunk_words(cut, chunk)]
    ]
    if 2 * len(joined) > len(spaced):
        raise DataError(
            f"The tokenizer {section.tokenizer} cannot be expanded: its words reach across white space, so they cannot "
            'be counted one by one. Choose one that cuts at white space, or train a vocabulary (kind = "trained").'
        )
    folds = cut("A É") == cut("a é") or cut("A É") == cut("a e")
    words, fixed = Counter[str](), Counter[int]()
    lowered = words if folds else Counter[str]()
    spaced_words = 0
    for number, (chunk, count) in enumerate(sorted(count_chunks(chain(first, texts)).counts.items()), 1):
        spaced_words += 0 if chunk.isspace() else count
        for word in _chunk_words(cut, chunk):
            if isinstance(word, int):
                fixed[word] += count
            else:
                words[word] += count
        for word in [] if folds else _chunk_words(cut_lowered, chunk):
            if isinstance(word, str):
                lowered[word] += count
        if number % _WORDS_AT_ONCE == 0:
            make_room(words)
            make_room(lowered)
    if not folds:
        console.warn(
            f"{section.tokenizer} keeps upper case, and the tokens added to it are lower-case, as AdaLM's are: words "
            'that the corpus writes with capitals stay in pieces. Set casing.input = "lowercase" to fold them.'
        )
    if not words or not spaced_words:
        raise DataError("The corpus has no words to expand a vocabulary with: its texts are empty.")
    return _Corpus(words, lowered, fixed, spaced_words)


def _cutter(tokenizer: PreTrainedTokenizerFast) -> Callable[[str], list[str | int]]:
    """The tokenizer's work before its model: a text becomes words, and ids of added tokens; special tokens are text."""
    backend = tokenizer.backend_tokenizer
    normalize = backend.normalizer.normalize_str if backend.normalizer is not None else str
    pre_tokenizer = backend.pre_tokenizer or pre_tokenizers.Sequence([])
    added = {each.content: number for number, each in tokenizer.added_tokens_decoder.items() if not each.special}
    longest_first = sorted(added, key=lambda content: (-len(content), content))
    added_token = re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")

    def cut(text: str) -> list[str | int]:
        words: list[str | int] = []
        for part in filter(None, added_token.split(normalize(text))):
            words += [added[part]] if part in added else [word for word, _ in pre_tokenizer.pre_tokenize_str(part)]
        return words

    return cut


def _chunk_words(cut: Callable[[str], list[str | int]], chunk: str) -> list[str | int]:
    """The words of a chunk where it stands: behind another word, unless there is no white space in front of it."""
    return cut(f"x{chunk}")[1:] if SPACES.match(chunk) else cut(chunk)


def _cut(model: models.Model, words: Counter[str], size: int) -> NDArray[np.int64]:
    """How often each token occurs when ``model`` cuts ``words``, (size,)."""
    backend = Tokenizer(model)
    counts = np.zeros(size, dtype=np.int64)
    rest = iter(words.items())
    while block := list(islice(rest, _WORDS_AT_ONCE)):
        rows = [block[start : start + _WORDS_A_ROW] for start in range(0, len(block), _WORDS_A_ROW)]  # cut side by side
        listed = [[word for word, _ in row] for row in rows]
        encodings = backend.encode_batch(listed, is_pretokenized=True, add_special_tokens=False)
        for row, encoding in zip(rows, encodings, strict=True):
            weights = np.array([count for _, count in row], dtype=np.int64)
            np.add.at(counts, np.array(encoding.ids), weights[np.array(encoding.word_ids)])
    return counts


def _learn(base: PreTrainedTokenizerFast, words: Counter[str], notation: Notation, size: int) -> _Learned:
    merges: list[tuple[str, str]] = []
    if notation.byte_level:
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokens, merges = merge(sorted(words.items()), size - SPECIAL_TOKENS, alphabet, spaced=True)
        characters = len(alphabet)
    else:
        alphabet = sorted(set().union(*words))
        tokens, characters = merge_wordpiece(
            sorted(words.items()), size - SPECIAL_TOKENS, alphabet, alphabet, notation.prefix, given=False
        )
    new = set(tokens) - base.get_vocab().keys()
    return _Learned(
        notation=notation,
        tokens=tokens,
        alphabet=characters,
        merges=merges,
        # A token needs a letter, or a letter's own sign.
        addable={
            token for token in new if any(unicodedata.category(c)[0] in "LM" for c in notation.read(token).surface)
        },
        whole_words=new & words.keys(),
        complete=len(tokens) + SPECIAL_TOKENS < size,
    )


def _extended(base: Tokenizer, corpus: _Corpus, learned: _Learned, size: int) -> tuple[list[str], Tokenizer]:
    """The tokens that fill ``base`` up to ``size``, and ``base`` with them. Its own added tokens are in its model's
    vocabulary too, to keep their ids.

    The candidates are the tokens that the learned vocabulary of ``size`` tokens makes of the corpus, the most frequent
    first. WordPiece can be taught any. BPE makes a token only through merges, after its own: what it cuts in two gets
    the merge of these two; what it cuts in more is taken if it is a word, since words are looked up first
    (``ignore_merges``).
    """
    model = learned.model(size, base.model)
    ids = Tokenizer(model).get_vocab()
    counts = _cut(model, corpus.lowered, len(ids))
    frequent = (token for token in learned.addable & ids.keys() if counts[ids[token]] >= LEAST_OCCURRENCES)
    vocabulary = base.get_vocab(with_added_tokens=True)
    room = size - len(vocabulary)
    added: list[str] = []
    merges: list[list[str]] = []
    for token in sorted(frequent, key=lambda token: (-counts[ids[token]], token)):
        if len(added) == room:
            break
        pieces = [piece.value for piece in base.model.tokenize(token)] if learned.notation.byte_level else []
        joined = len(pieces) == 2 and "".join(pieces) == token
        if joined or not pieces or token in learned.whole_words:
            added.append(token)
        if joined:
            merges.append(pieces)
    layout = json.loads(base.to_str())
    layout["model"]["vocab"] = vocabulary | {token: number for number, token in enumerate(added, len(vocabulary))}
    if learned.notation.byte_level:
        layout["model"]["merges"] += merges
        layout["model"]["ignore_merges"] = True
    return added, Tokenizer.from_str(json.dumps(layout))


def _reason_to_stop(curve: Sequence[Increment], wanted: int, section: ExpandedVocabulary) -> Reason | None:
    """Which rule, if any, makes the last increment the result; ``wanted`` is the size it was to have."""
    if curve[-1].size < wanted:
        return "exhausted"
    if section.stop != "exhausted":
        assert section.epsilon is not None  # the section has that of the rule
        full = -curve[-2].entropy if section.stop == "entropy-gain" else curve[1].entropy - curve[0].entropy
        if curve[-1].entropy - curve[-2].entropy < section.epsilon * full:
            return section.stop
    return "size" if curve[-1].size == section.size else None

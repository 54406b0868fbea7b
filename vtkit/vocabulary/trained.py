"""Vocabularies learned from a corpus: WordPiece, BPE and Unigram, the same bytes from run to run.

Texts are read once, as a stream, and each different word is cut once. WordPiece and BPE merge with the BPE trainer of
``tokenizers`` (its WordPiece trainer differs between runs), Unigram is trained by SentencePiece on one thread over
sorted words. In scripts without spaces a token has one form, without the mark of a beginning, and is learned from words
that ICU's dictionaries find; the tokenizer itself needs no dictionary.
"""

from __future__ import annotations

import math
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from vtkit.data.spelling import FOLDED, lowered
from vtkit.data.unspaced import BEHIND, RUN, UNSPACED, begins_unspaced, count_unspaced, cut_runs
from vtkit.data.word_counts import ChunkCounts, count_chunks, make_room
from vtkit.settings.casing import CasingSection
from vtkit.settings.vocabulary import TrainedVocabulary
from vtkit.system.errors import DataError
from vtkit.vocabulary.existing import Role, lowercase_steps, wrap
from vtkit.vocabulary.merging import LEAST_OCCURRENCES, merge, merge_wordpiece
from vtkit.vocabulary.notation import BYTE_LEVEL, SENTENCEPIECE, WORDPIECE
from vtkit.vocabulary.statistics import CorpusCounts, say_if_smaller

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CHARACTER_COVERAGE = 0.9995
"""Share of the characters of the corpus that the alphabet must cover; the rarest ones beyond become unknown."""

SMALL_ALPHABET = 500
"""Up to this size an alphabet takes in rarer characters too, so that an English vocabulary has its Greek letters."""

LONGEST_WORD = 400  # characters of a word that WordPiece still cuts up; longer ones are unknown. BERT's limit is 100

SPECIAL_TOKENS: dict[Role, str] = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
"""The special tokens, whose ids are 0 to 4."""

UNKNOWN = SPECIAL_TOKENS["unk"]  # the tokens of `byte_fallback`

SPACED_SCRIPTS = (
    *("Latin", "Greek", "Cyrillic", "Armenian", "Hebrew", "Arabic", "Devanagari", "Bengali", "Gurmukhi", "Gujarati"),
    *("Oriya", "Tamil", "Telugu", "Kannada", "Malayalam", "Sinhala", "Tibetan", "Georgian", "Ethiopic", "Mongolian"),
    "Hangul",
)
UNSPACED_SCRIPTS = ("Thai", "Lao", "Myanmar", "Khmer", "Han")
"""Scripts that ``split = "scripts"`` keeps apart, beside Hiragana and Katakana."""

OF_SCRIPT = r"\p{{{0}}}[\p{{{0}}}\p{{M}}]*"  # a run of one script with its combining marks

UNSPACED_RUNS = (
    *map(OF_SCRIPT.format, UNSPACED_SCRIPTS),
    r"\p{Hiragana}[\p{Hiragana}\p{M}]*",
    r"[\p{Katakana}ー][\p{Katakana}\p{M}ー]*",
)
SCRIPT_RUNS = (
    *map(OF_SCRIPT.format, SPACED_SCRIPTS),
    *UNSPACED_RUNS,
    r"\p{N}+",
    r"[\p{L}\p{M}]+",
    r"[^\s\p{L}\p{M}\p{N}]",
)
"""Runs of one script, runs of digits, and every other character on its own."""

RUNS = {
    "words": (r"[\p{L}\p{M}\p{N}]+", r"[^\s\p{L}\p{M}\p{N}]"),
    "scripts": SCRIPT_RUNS,
    "bert": (r"[^\s\p{P}$+<=>^`|~]+", r"[\p{P}$+<=>^`|~]"),
    "whitespace": (r"[^\s]+",),
}
"""The texts that may be one token, for each value of ``split``."""

UNSPACED_SHARE = 0.05
"""From this share of characters of scripts without spaces on, WordPiece marks the beginnings of words (``▁``), as the
other algorithms do, instead of their continuations (``##``), which such scripts cannot tell apart."""

LONGEST_RUN = 200
"""Characters of such scripts that WordPiece cuts up at a time: a sentence without any space takes time and, beyond
:data:`LONGEST_WORD`, would be unknown."""

_CHECKED_EVERY = 200_000


def train(
    texts: Iterable[str], section: TrainedVocabulary, casing: CasingSection | None = None
) -> tuple[PreTrainedTokenizerFast, CorpusCounts]:
    """Learn a vocabulary of up to ``section.size`` tokens from ``texts``; a small corpus gives fewer.

    What happens to a text before it is cut into tokens is part of the tokenizer, lower-casing too where ``casing`` says
    so. WordPiece keeps its ``##`` for corpora with less than :data:`UNSPACED_SHARE` of scripts without spaces. The same
    texts in the same order give a byte-identical ``tokenizer.json``; for WordPiece and BPE a smaller vocabulary is the
    beginning of a larger one. Memory does not grow with the corpus (:data:`~vtkit.data.word_counts.MOST`).

    Returns:
        A tokenizer with :data:`SPECIAL_TOKENS` as ids 0 to 4, and what it was learned from.

    Raises:
        DataError: no words in the texts; a size that does not even hold the alphabet; or nothing to learn but
            characters.
    """
    casing = casing or CasingSection()
    chunks = count_chunks(texts)
    unspaced = sum(count * count_unspaced(text) for text, count in chunks.counts.items())
    characters = sum(count * len(text) for text, count in chunks.counts.items())
    marks_starts = section.algorithm != "wordpiece" or unspaced / max(1, characters) >= UNSPACED_SHARE
    backend = _pipeline(section, casing, marks_starts)
    words = _count_words(chunks, backend, section, casing, marks_starts)
    if not words:
        raise DataError("The corpus has no words to learn a vocabulary from: its texts are empty.")
    if section.algorithm == "unigram":
        backend.model = _unigram(words, section)
    else:
        backend.model = _merged(words, section, backend, marks_starts)
    backend.add_special_tokens(list(SPECIAL_TOKENS.values()))
    tokenizer: PreTrainedTokenizerFast = wrap(backend, SPECIAL_TOKENS, "trained from the corpus")
    say_if_smaller(len(tokenizer), section.size)
    return tokenizer, CorpusCounts(
        texts=chunks.texts, characters=chunks.characters, words=words.total(), distinct_words=len(words)
    )


def _pipeline(section: TrainedVocabulary, casing: CasingSection, marks_starts: bool) -> Tokenizer:
    """Everything of the tokenizer but its vocabulary; ``marks_starts`` where tokens show that they begin a word (``▁``
    or ``Ġ``), instead of that they continue one."""
    runs = RUNS[section.split]
    steps = _steps(section, casing, marks_starts)
    if not marks_starts:
        backend = Tokenizer(models.WordPiece({UNKNOWN: 0}, unk_token=UNKNOWN))
        backend.pre_tokenizer = pre_tokenizers.Split(Regex("|".join(runs)), behavior="removed", invert=True)
        backend.decoder = decoders.WordPiece(prefix=WORDPIECE.prefix)
    else:
        # The first word gets the space that every other word has, so that it is the same token.
        steps.append(normalizers.Prepend(" "))
        cut = _cut_with_spaces(runs, section)
        if section.algorithm == "bpe":
            backend = Tokenizer(models.BPE())
            marked: Any = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
            backend.decoder = decoders.ByteLevel()
        else:
            backend = Tokenizer(models.Unigram())
            marked = pre_tokenizers.Metaspace(SENTENCEPIECE.space, prepend_scheme="never", split=False)
            backend.decoder = decoders.Metaspace(SENTENCEPIECE.space, prepend_scheme="always")
        backend.pre_tokenizer = pre_tokenizers.Sequence([cut, marked])
    backend.normalizer = normalizers.Sequence(steps)
    return backend


def _cut_with_spaces(runs: Sequence[str], section: TrainedVocabulary) -> Any:
    """Each run with the space in front of it; runs of scripts without spaces are on their own, and without it."""
    unspaced = [*(run for run in runs if run in UNSPACED_RUNS), RUN]
    if section.algorithm == "wordpiece":
        unspaced = [run.replace("*", f"{{0,{LONGEST_RUN - 1}}}") for run in unspaced]
    spaced = []
    for run in (run for run in runs if run not in UNSPACED_RUNS):
        inside, _, times = run.partition("]")
        if inside.startswith("[^"):  # ends in front of characters of scripts without spaces
            run = f"{inside}{UNSPACED}]{times}"
        elif inside.startswith("[\\"):
            run = f"{inside}&&[^{UNSPACED}]]{times}"
        spaced.append(f" ?{run}")
    return pre_tokenizers.Split(Regex("|".join([*unspaced, *spaced])), behavior="removed", invert=True)


def _steps(section: TrainedVocabulary, casing: CasingSection, marks_starts: bool) -> list[Any]:
    """The normalizer, but for the space in front of the first word."""
    steps: list[Any] = [normalizers.NFKC()]
    if section.clean == "format":
        steps.append(normalizers.Replace(Regex(r"[\p{Cf}\p{Co}\p{Cs}]|(?!\s)\p{Cc}"), ""))
    if section.clean == "bert":
        steps.append(normalizers.BertNormalizer(handle_chinese_chars=False, strip_accents=False, lowercase=False))
    if section.strip_accents:
        steps += [normalizers.NFD(), normalizers.Replace(Regex(r"[\x{300}-\x{36F}]"), ""), normalizers.NFKC()]
    if section.fold_spelling:
        for letter in dict.fromkeys(FOLDED.values()):
            variants = "".join(variant for variant, becomes in FOLDED.items() if becomes == letter)
            steps.append(normalizers.Replace(Regex(f"[{variants}]"), letter))
    steps += lowercase_steps(casing)
    if marks_starts:
        steps.append(normalizers.Replace(Regex(BEHIND), " "))
    return [*steps, normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]


def _count_words(
    chunks: ChunkCounts, backend: Tokenizer, section: TrainedVocabulary, casing: CasingSection, marks_starts: bool
) -> Counter[str]:
    """How often each word (as the pre-tokenizer leaves it, and cut where ICU finds words) occurs. Each different chunk
    between white space, across which neither looks, is cut once."""
    words: Counter[str] = Counter()
    normalize = normalizers.Sequence(_steps(section, casing, marks_starts)).normalize_str
    mark = " " if marks_starts else ""
    written = (BYTE_LEVEL if section.algorithm == "bpe" else SENTENCEPIECE).written(mark)
    for number, (chunk, count) in enumerate(sorted(chunks.words().items()), 1):
        cased = lowered(chunk, casing.language) if casing.input == "lowercase" else chunk
        # most words: nothing happens to them but lower-casing, which in Turkish gives I a letter of two bytes
        if (chunk + cased).isascii() and (chunk.isalpha() if section.split == "scripts" else chunk.isalnum()):
            words[written + cased] += count
        elif text := normalize(chunk):
            for part in cut_runs(mark + text) if marks_starts else [text]:
                for word, _ in backend.pre_tokenizer.pre_tokenize_str(part):
                    words[word] += count
        if number % _CHECKED_EVERY == 0:
            make_room(words)
    return words


def _alphabet(words: Counter[str]) -> set[str]:
    """The most frequent characters: as many as cover the wanted share of the corpus, and beyond that, in a small
    alphabet, all that occur often enough. On ties the lower code point comes first."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    needed = math.ceil(CHARACTER_COVERAGE * counts.total())
    kept: set[str] = set()
    for character, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if needed <= 0 and (len(kept) >= SMALL_ALPHABET or count < LEAST_OCCURRENCES):
            break
        kept.add(character)
        needed -= count
    return kept


def _merged(words: Counter[str], section: TrainedVocabulary, backend: Tokenizer, marks_starts: bool) -> models.Model:
    """GPT-2's byte-level BPE, whose alphabet is the 256 bytes, so that no text is unknown; or BERT's WordPiece, whose
    longest match is over tokens that mark the beginnings of words or their continuations. Characters that can stand
    inside words are in the alphabet of WordPiece in both forms, so that no new word is unknown."""
    size, inside = section.size - len(SPECIAL_TOKENS), list[str]()
    merges: list[tuple[str, str]] = []
    if section.algorithm == "bpe":
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    elif marks_starts:
        alphabet = sorted(_alphabet(words) | {SENTENCEPIECE.space})
    else:
        alphabet = sorted(_alphabet(words))
        if section.split in ("words", "scripts"):
            inside = [c for c in alphabet if c.isalnum() or unicodedata.category(c).startswith("M")]
        else:
            cut, normalize = backend.pre_tokenizer.pre_tokenize_str, backend.normalizer.normalize_str
            inside = [c for c in alphabet if len(cut(normalize(c + c))) == 1]
    characters = len(alphabet) + len(inside)
    _check_alphabet(characters, section)
    known = set(alphabet)
    known_words = ((word, count) for word, count in sorted(words.items()) if known.issuperset(word))
    if marks_starts:
        tokens, merges = merge(known_words, size, alphabet, only=True)
    else:
        tokens, _ = merge_wordpiece(known_words, size, alphabet, inside, WORDPIECE.prefix, given=True)
    if len(tokens) == characters < size:
        raise _too_small(characters, section)
    # Tokens of one spelling are one: "###" as a word and a "#" that continues one, and special tokens that texts hold.
    ids = {token: number for number, token in enumerate(dict.fromkeys([*SPECIAL_TOKENS.values(), *tokens]))}
    if section.algorithm == "bpe":
        return models.BPE(ids, merges)
    if marks_starts:
        # WordPiece takes a word with one unknown character for unknown, and a run without spaces may be a sentence: cut
        # around the unknown characters of such scripts.
        unspaced = "".join(filter(begins_unspaced, alphabet))
        unlisted = f"[{UNSPACED}&&[^{unspaced}]]" if unspaced else f"[{UNSPACED}]"
        apart = pre_tokenizers.Split(Regex(unlisted), behavior="isolated")
        backend.pre_tokenizer = pre_tokenizers.Sequence([apart, backend.pre_tokenizer])
    own = {"unk_token": UNKNOWN, "continuing_subword_prefix": "" if marks_starts else WORDPIECE.prefix}
    return models.WordPiece(ids, max_input_chars_per_word=LONGEST_WORD, **own)


def _unigram(words: Counter[str], section: TrainedVocabulary) -> models.Unigram:
    """SentencePiece's unigram language model over the counted words."""
    import sentencepiece

    known = _alphabet(words) | {SENTENCEPIECE.space}
    _check_alphabet(len(known), section)
    size = section.size - len(SPECIAL_TOKENS)
    with tempfile.TemporaryDirectory() as folder:
        counted, prefix = Path(folder, "words.tsv"), Path(folder, "vocabulary")
        with counted.open("w", encoding="utf-8") as file:
            file.writelines(f"{word}\t{n}\n" for word, n in sorted(words.items()) if known.issuperset(word))
        try:
            sentencepiece.SentencePieceTrainer.train(
                input=str(counted),
                input_format="tsv",
                model_prefix=str(prefix),
                model_type="unigram",
                vocab_size=size + 1,
                hard_vocab_limit=False,
                character_coverage=1.0,
                normalization_rule_name="identity",
                add_dummy_prefix=False,
                remove_extra_whitespaces=False,
                allow_whitespace_only_pieces=False,
                split_by_unicode_script=False,
                split_by_number=False,
                bos_id=-1,
                eos_id=-1,
                pad_id=-1,
                unk_id=0,
                num_threads=1,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise DataError(f"SentencePiece cannot train on the corpus: {error}") from error
        processor = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")
        pieces = [(processor.id_to_piece(n), processor.get_score(n)) for n in range(1, processor.get_piece_size())]
    if all(len(piece.removeprefix(SENTENCEPIECE.space)) <= 1 for piece, _ in pieces) and len(pieces) < size:
        raise _too_small(len(pieces), section)
    scores = dict(pieces) | dict.fromkeys(SPECIAL_TOKENS.values(), 0.0)
    listed = [(token, scores[token]) for token in dict.fromkeys([*SPECIAL_TOKENS.values(), *scores])]
    return models.Unigram(listed, unk_id=list(SPECIAL_TOKENS).index("unk"), byte_fallback=False)


def _check_alphabet(characters: int, section: TrainedVocabulary) -> None:
    smallest = characters + len(SPECIAL_TOKENS)
    if section.size < smallest:
        raise DataError(
            f"size = {section.size} is too small for this corpus: its alphabet (256 bytes with algorithm = "
            f'"bpe") and the special tokens alone are {smallest} tokens. Set it well above that.'
        )


def _too_small(characters: int, section: TrainedVocabulary) -> DataError:
    often = "" if section.algorithm == "unigram" else f" {LEAST_OCCURRENCES} times"
    return DataError(
        f"The corpus is too small to learn a vocabulary from: beyond its {characters} characters "
        f"nothing occurs in it{often}. Give more text."
    )

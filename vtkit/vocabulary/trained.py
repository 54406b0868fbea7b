"""Vocabularies learned from a corpus: WordPiece, byte-level BPE and Unigram, the same bytes from run to run.

Texts are read once, as a stream; what is kept is how often each word occurs. The trainers themselves are libraries',
chosen and fed so that nothing depends on hash order or threads: WordPiece and BPE merge with the BPE trainer of
``tokenizers`` (its WordPiece trainer numbers continuing characters in hash order, and so differs between runs), and
Unigram is trained by SentencePiece on one thread over the words in sorted order.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from vtkit import console
from vtkit.errors import DataError
from vtkit.recipe.sections import CasingSection, TrainedVocabulary
from vtkit.vocabulary.existing import Role, wrap

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SPECIAL_TOKENS: dict[Role, str] = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
"""The first ids of every trained vocabulary, in this order."""

CHARACTER_COVERAGE = 0.9995
"""Share of the characters of the corpus that the alphabet must cover; the rarest ones beyond become unknown."""

SMALL_ALPHABET = 500
"""Up to this size an alphabet takes in rarer characters too, so that an English vocabulary has its Greek letters."""

LONGEST_WORD = 400
"""Characters of a word that WordPiece still cuts up; longer ones are unknown. BERT's limit is 100."""

SCRIPTS = (
    *("Latin", "Greek", "Cyrillic", "Armenian", "Hebrew", "Arabic", "Devanagari", "Bengali", "Gurmukhi", "Gujarati"),
    *("Oriya", "Tamil", "Telugu", "Kannada", "Malayalam", "Sinhala", "Thai", "Lao", "Tibetan", "Myanmar", "Georgian"),
    *("Ethiopic", "Khmer", "Mongolian", "Hangul", "Han"),
)
"""Scripts that ``split = "scripts"`` keeps apart, beside Hiragana and Katakana."""

WORDS = (r"[\p{L}\p{M}\p{N}]+", r"[^\s\p{L}\p{M}\p{N}]")
"""Runs of letters, marks and digits; and every other character on its own."""

SCRIPT_RUNS = (
    *(rf"\p{{{script}}}[\p{{{script}}}\p{{M}}]*" for script in SCRIPTS),
    r"\p{Hiragana}[\p{Hiragana}\p{M}]*",
    r"[\p{Katakana}ー][\p{Katakana}\p{M}ー]*",
    r"\p{N}+",
    r"[\p{L}\p{M}]+",
    r"[^\s\p{L}\p{M}\p{N}]",
)
"""Runs of one script with their combining marks, runs of digits, and every other character on its own."""

_PRIVATE = 0xF0000
"""Continuing characters are trained as private-use code points from here on."""

_REPEATS_AT_ONCE = 10_000


def train_vocabulary(
    texts: Iterable[str], section: TrainedVocabulary, casing: CasingSection | None = None
) -> PreTrainedTokenizerFast:
    """Learn a vocabulary of exactly ``section.size`` tokens from ``texts``.

    Text is brought to Unicode form NFKC without control characters, and to lower case where ``casing`` says so;
    accents stay. These steps are part of the tokenizer. The same texts in the same order give a byte-identical
    ``tokenizer.json``; for WordPiece and BPE a smaller vocabulary is the beginning of a larger one.

    Returns:
        A tokenizer with the roles of :data:`SPECIAL_TOKENS` as ids 0 to 4.

    Raises:
        DataError: no words in the texts; a size that does not even hold the alphabet; or a corpus too small to
            fill the size.
    """
    lowercase = casing is not None and casing.input == "lowercase"
    backend = _pipeline(section, lowercase)
    words = _count_words(texts, backend)
    if not words:
        raise DataError("The corpus of [vocabulary] has no words to learn a vocabulary from: its texts are empty.")
    match section.algorithm:
        case "wordpiece":
            backend.model = _wordpiece(words, section)
        case "bpe":
            backend.model = _byte_level_bpe(words, section)
        case "unigram":
            backend.model = _unigram(words, section)
    backend.add_special_tokens(list(SPECIAL_TOKENS.values()))
    tokenizer: PreTrainedTokenizerFast = wrap(backend, SPECIAL_TOKENS, "trained from the corpus")
    return tokenizer


def _pipeline(section: TrainedVocabulary, lowercase: bool) -> Tokenizer:
    """Everything of the tokenizer but its vocabulary: what happens to text before it is cut into tokens."""
    runs = SCRIPT_RUNS if section.split == "scripts" else WORDS
    steps: list[Any] = [normalizers.NFKC(), normalizers.Replace(Regex(r"[\p{Cf}\p{Co}\p{Cs}]|(?!\s)\p{Cc}"), "")]
    if lowercase:
        steps.append(normalizers.Lowercase())
    steps += [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    if section.algorithm == "wordpiece":
        backend = Tokenizer(models.WordPiece({SPECIAL_TOKENS["unk"]: 0}, unk_token=SPECIAL_TOKENS["unk"]))
        backend.pre_tokenizer = pre_tokenizers.Split(Regex("|".join(runs)), behavior="removed", invert=True)
        backend.decoder = decoders.WordPiece(prefix="##")
    else:
        # The first word gets the space that every other word has, so that it is the same token.
        steps.append(normalizers.Prepend(" "))
        cut = pre_tokenizers.Split(Regex("|".join(f" ?{run}" for run in runs)), behavior="isolated")
        if section.algorithm == "bpe":
            backend = Tokenizer(models.BPE())
            backend.pre_tokenizer = pre_tokenizers.Sequence(
                [cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
            )
            backend.decoder = decoders.ByteLevel()
        else:
            backend = Tokenizer(models.Unigram())
            backend.pre_tokenizer = pre_tokenizers.Sequence(
                [cut, pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="never", split=False)]
            )
            backend.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    backend.normalizer = normalizers.Sequence(steps)
    return backend


def _count_words(texts: Iterable[str], backend: Tokenizer) -> dict[str, int]:
    """How often each word (as the pre-tokenizer leaves it) occurs, in sorted order."""
    normalize, cut = backend.normalizer.normalize_str, backend.pre_tokenizer.pre_tokenize_str
    counts: Counter[str] = Counter()
    with console.progress("texts read for the vocabulary") as bar:
        for text in texts:
            counts.update([word for word, _ in cut(normalize(text))])
            bar.advance()
    return dict(sorted(counts.items()))


def _alphabet(words: dict[str, int], section: TrainedVocabulary) -> set[str]:
    """The most frequent characters: as many as cover the wanted share of the corpus, and beyond that, in a small
    alphabet, all that occur often enough. On ties the lower code point comes first."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    needed = math.ceil(CHARACTER_COVERAGE * counts.total())
    kept: set[str] = set()
    for character, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if needed <= 0 and (len(kept) >= SMALL_ALPHABET or count < section.min_frequency):
            break
        kept.add(character)
        needed -= count
    return kept


def _wordpiece(words: dict[str, int], section: TrainedVocabulary) -> models.WordPiece:
    """BERT's WordPiece: merges by frequency, over characters that know whether they continue a word.

    To keep ``b`` and ``##b`` apart while merging, continuing characters are private-use code points. Characters
    that can stand inside words are in the alphabet in both forms, so that no new word is unknown for its order.
    """
    kept = sorted(_alphabet(words, section))
    inside = [character for character in kept if character.isalnum() or _is_mark(character)]
    continuing = {character: chr(_PRIVATE + number) for number, character in enumerate(inside)}
    plain = {private: character for character, private in continuing.items()}
    known, table = set(kept), str.maketrans(continuing)
    mapped = {word[0] + word[1:].translate(table): count for word, count in words.items() if known.issuperset(word)}
    merged, _ = _merge(mapped, [*kept, *plain], section)
    vocabulary = {token: number for number, token in enumerate(SPECIAL_TOKENS.values())}
    for token in merged:
        text = "".join(plain.get(character, character) for character in token)
        vocabulary[f"##{text}" if token[0] in plain else text] = len(vocabulary)
    return models.WordPiece(
        vocabulary,
        unk_token=SPECIAL_TOKENS["unk"],
        max_input_chars_per_word=LONGEST_WORD,
        continuing_subword_prefix="##",
    )


def _byte_level_bpe(words: dict[str, int], section: TrainedVocabulary) -> models.BPE:
    """GPT-2's byte-level BPE; its alphabet is the 256 bytes, so that no text is unknown."""
    merged, merges = _merge(words, sorted(pre_tokenizers.ByteLevel.alphabet()), section)
    vocabulary = {token: number for number, token in enumerate([*SPECIAL_TOKENS.values(), *merged])}
    return models.BPE(vocabulary, merges)


def _merge(
    words: dict[str, int], alphabet: list[str], section: TrainedVocabulary
) -> tuple[list[str], list[tuple[str, str]]]:
    """The tokens that byte-pair merging over counted words gives, alphabet first, and the merges in order."""
    size = section.size - len(SPECIAL_TOKENS)
    _check_alphabet(len(alphabet), section)
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=section.min_frequency,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    backend.train_from_iterator(_repeated(words), trainer)
    learned = backend.get_vocab()
    if len(learned) < size:
        raise _too_small(len(learned) + len(SPECIAL_TOKENS), section)
    merges = json.loads(backend.to_str())["model"]["merges"]
    return sorted(learned, key=learned.__getitem__), [(left, right) for left, right in merges]


def _repeated(words: dict[str, int]) -> Iterator[str]:
    """Every word as often as it occurs: the trainer takes text, not counts."""
    for word, count in words.items():
        while count > 0:
            repeats = min(count, _REPEATS_AT_ONCE)
            yield " ".join([word] * repeats)
            count -= repeats


def _unigram(words: dict[str, int], section: TrainedVocabulary) -> models.Unigram:
    """SentencePiece's unigram language model over the counted words."""
    import sentencepiece

    known = _alphabet(words, section) | {"▁"}
    _check_alphabet(len(known), section)
    size = section.size - len(SPECIAL_TOKENS)
    with tempfile.TemporaryDirectory() as folder:
        counted, prefix = Path(folder, "words.tsv"), Path(folder, "vocabulary")
        with counted.open("w", encoding="utf-8") as file:
            for word, count in words.items():
                if known.issuperset(word):
                    file.write(f"{word}\t{count}\n")
        try:
            sentencepiece.SentencePieceTrainer.train(
                input=str(counted),
                input_format="tsv",
                model_prefix=str(prefix),
                model_type="unigram",
                vocab_size=size + 1,
                character_coverage=1.0,
                normalization_rule_name="identity",
                add_dummy_prefix=False,
                remove_extra_whitespaces=False,
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
            fits = re.search(r"<= (\d+)", str(error))
            if fits is None:
                raise DataError(f"SentencePiece cannot train on the corpus of [vocabulary]: {error}") from error
            raise _too_small(int(fits[1]) - 1 + len(SPECIAL_TOKENS), section) from error
        processor = sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")
        pieces = [(processor.id_to_piece(n), processor.get_score(n)) for n in range(1, processor.get_piece_size())]
    specials = [(token, 0.0) for token in SPECIAL_TOKENS.values()]
    return models.Unigram(specials + pieces, unk_id=list(SPECIAL_TOKENS).index("unk"), byte_fallback=False)


def _check_alphabet(characters: int, section: TrainedVocabulary) -> None:
    smallest = characters + len(SPECIAL_TOKENS)
    if section.size < smallest:
        raise DataError(
            f"vocabulary.size = {section.size} is too small for this corpus: its alphabet and the special tokens alone "
            f'are {smallest} tokens. Set it well above that, or choose algorithm = "bpe" (an alphabet of 256 bytes).'
        )


def _too_small(reached: int, section: TrainedVocabulary) -> DataError:
    return DataError(
        f"The corpus cannot fill a vocabulary of {section.size} tokens with {section.algorithm}: it gives {reached}. "
        "Lower vocabulary.size, give more text, or lower vocabulary.min_frequency (WordPiece and BPE)."
    )


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")

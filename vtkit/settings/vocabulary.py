"""[vocabulary] of a recipe: a class for each kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from vtkit.settings.types import CorpusName, PositiveInt, Section, Share, TokenizerName


class SourceVocabulary(Section):
    """[vocabulary] kind = "source": the source's own vocabulary. Nothing is transferred, and the encoder stays the same
    bit for bit until a later stage trains it."""

    kind: Literal["source"]


class TrimmedVocabulary(Section):
    """[vocabulary] kind = "trimmed": the source's own vocabulary without the tokens that texts of the language do not
    need. Their rows are removed from the model, which computes the same as before for texts whose tokens are kept
    (docs/vocabulary.md#trim-a-vocabulary)."""

    kind: Literal["trimmed"]

    corpus: tuple[CorpusName, ...] = ()
    """Texts whose tokens are kept: text and jsonl files (plain, .gz or .zst), collections, datasets. Name as much text
    of the language as possible. Default: ``adapt.corpus``, else the fine-tuning documents, else the evaluation
    documents."""

    size: Annotated[int, Field(ge=100, le=1_000_000)] | None = None
    """Most tokens to keep, the most frequent ones; special tokens, bytes and single characters count. Default: all that
    occur."""


class ExistingVocabulary(Section):
    """[vocabulary] kind = "existing": the vocabulary of an existing tokenizer."""

    kind: Literal["existing"]

    tokenizer: TokenizerName
    """Hub id, folder, or file (tokenizer.json, vocab.txt or a SentencePiece .model); or a specification, a .toml file
    with [vocabulary] and [casing] that says how to build it. Settings beside this one override those of the
    specification."""


class TrainedVocabulary(Section):
    """[vocabulary] kind = "trained": a vocabulary learned from a corpus. Texts are normalised to NFKC, which also
    replaces ligatures, full-width letters and superscripts by plain characters."""

    kind: Literal["trained"]

    corpus: Annotated[tuple[CorpusName, ...], Field(min_length=1)]
    """Text to learn from: text and jsonl files (plain, .gz or .zst), collections, or
    ``datasets:NAME:CONFIG:SPLIT:COLUMN``, a column of a dataset of the hub or of a folder."""

    size: Annotated[int, Field(ge=100, le=300_000)] = 30_000
    """Most tokens of the vocabulary, special tokens included; a small corpus gives fewer."""

    algorithm: Literal["wordpiece", "bpe", "unigram"] = "wordpiece"
    """WordPiece (``##`` continues a word), BPE (byte-level, ``Ġ`` starts a word; no text is unknown), or Unigram (``▁``
    starts a word). Tokens of scripts without spaces have no mark; if at least a twentieth of the corpus is in such
    scripts, WordPiece marks the beginnings of other words with ``▁``."""

    strip_accents: bool = False
    """Remove accents from letters (the combining marks U+0300 to U+036F: é becomes e, й becomes и). The signs of other
    scripts belong to their letters and stay."""

    fold_spelling: bool = False
    """Unify letters that writers use interchangeably, and drop signs that most omit, as search engines do: Arabic
    tatweel and vowel signs, the forms of alef, yeh and teh marbuta; Hebrew points; the nukta and chandrabindu of
    Devanagari. Other scripts are unchanged."""

    clean: Literal["format", "bert", "none"] = "format"
    """Characters to drop. ``format``: control, format and private-use characters. ``bert``: what BERT drops, which is
    these, U+FFFD, unassigned characters and form feeds. ``none``: nothing."""

    split: Literal["words", "scripts", "bert", "whitespace"] = "words"
    """Boundaries that no token crosses. ``words``: white space, and every character that is not a letter, mark or
    digit. ``scripts``: also the borders between scripts, with Hiragana, Katakana and Han apart (for Japanese and mixed
    text). ``bert``: white space and punctuation. ``whitespace``: white space only."""


EPSILON = {"entropy-gain": 0.01, "first-gain": 0.1}  # where the recipe gives none: ε₁, the first ε₂ of the paper


class ExpandedVocabulary(Section):
    """[vocabulary] kind = "expanded": an existing vocabulary and the most frequent new tokens of a corpus (AdaLM)."""

    kind: Literal["expanded"]

    tokenizer: TokenizerName
    """The tokenizer to expand, WordPiece or byte-level BPE: hub id, folder or file. Its token ids do not change."""

    corpus: Annotated[tuple[CorpusName, ...], Field(min_length=1)]
    """Text of the domain: text files (plain or .gz), jsonl files, collections."""

    increment: PositiveInt = 3000
    """Tokens to add in each step."""

    stop: Literal["exhausted", "entropy-gain", "first-gain"] = "exhausted"
    """When to stop growing. ``exhausted``: when the corpus has no further tokens. ``entropy-gain``: when the unigram
    entropy gained less than ``epsilon`` of itself. ``first-gain``: when it gained less than ``epsilon`` of the first
    gain."""

    epsilon: Share | None = None
    """Threshold of ``stop``. Default: 0.01 for ``entropy-gain``, 0.1 for ``first-gain`` (the paper also has 0.05)."""

    size: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Most tokens, those of ``tokenizer`` included; a small corpus gives fewer. Default: no limit but ``stop``."""

    @model_validator(mode="before")
    @classmethod
    def _epsilon_of_the_rule(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("epsilon") is None and values.get("stop") in EPSILON:
            return {**values, "epsilon": EPSILON[values["stop"]]}
        return values

    def _faults(self) -> Iterator[str]:
        if self.epsilon is not None and self.stop == "exhausted":
            yield 'epsilon belongs to stop = "entropy-gain" or "first-gain"; stop = "exhausted" has none'


VocabularySection = Annotated[
    SourceVocabulary | TrimmedVocabulary | ExistingVocabulary | TrainedVocabulary | ExpandedVocabulary,
    Field(discriminator="kind"),
]

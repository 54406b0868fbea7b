"""[vocabulary] of a recipe: a class for each kind."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from vtkit.settings.types import CorpusName, PositiveInt, Section, Share, TokenizerName


class SourceVocabulary(Section):
    """[vocabulary] kind = "source": the source's own vocabulary. Nothing is transferred, so that the encoder stays as
    it is, bit for bit, until a later stage trains it."""

    kind: Literal["source"]


class TrimmedVocabulary(Section):
    """[vocabulary] kind = "trimmed": the source's own vocabulary without the tokens that texts of the language do not
    need. Their rows leave the model, and what it computes of texts whose tokens are kept stays the same
    (docs/vocabulary.md#trim-a-vocabulary)."""

    kind: Literal["trimmed"]

    corpus: tuple[CorpusName, ...] = ()
    """Texts whose tokens are kept: text and jsonl files (plain, .gz or .zst), collections, datasets. Name all the text
    of the language that there is. Default: ``adapt.corpus``, else the fine-tuning documents, else the evaluation
    documents."""

    size: Annotated[int, Field(ge=100, le=1_000_000)] | None = None
    """Most tokens, special tokens, bytes and single characters included: the most frequent ones. Default: all that
    occur."""


class ExistingVocabulary(Section):
    """[vocabulary] kind = "existing": the vocabulary of an existing tokenizer."""

    kind: Literal["existing"]

    tokenizer: TokenizerName
    """Hub id, folder, or file (tokenizer.json, vocab.txt or a SentencePiece .model); or a specification, a .toml
    file with [vocabulary] and [casing] that says how to build it; settings beside this one override those in it."""


class TrainedVocabulary(Section):
    """[vocabulary] kind = "trained": a vocabulary learned from a corpus."""

    kind: Literal["trained"]

    corpus: Annotated[tuple[CorpusName, ...], Field(min_length=1)]
    """Text to learn from: text and jsonl files (plain, .gz or .zst), collections, or
    ``datasets:NAME:CONFIG:SPLIT:COLUMN``, a column of a dataset of the hub or of a folder."""

    size: Annotated[int, Field(ge=100, le=300_000)] = 30_000
    """Most tokens of the vocabulary, special tokens included; a small corpus gives fewer."""

    algorithm: Literal["wordpiece", "bpe", "unigram"] = "wordpiece"
    """WordPiece (``##`` continues a word), BPE (byte-level, ``Ġ`` starts a word; no text is unknown), or Unigram
    (``▁`` starts one). Tokens of scripts without spaces have neither mark; where a twentieth of the corpus is written
    in such scripts, WordPiece marks the beginnings of the other words with ``▁``."""

    unicode: Literal["NFKC", "NFC", "none"] = "NFKC"
    """Unicode form that text is brought to. NFKC also makes ligatures, full-width letters and superscripts plain."""

    strip_accents: bool = False
    """Take accents off letters (the combining marks U+0300 to U+036F, so é becomes e and й becomes и); the signs of
    other scripts, which belong to their letters, stay."""

    fold_spelling: bool = False
    """Make one of letters that writers use for each other, and drop signs that most leave out, as search engines do:
    Arabic tatweel and vowel signs, the forms of alef, yeh and teh marbuta; Hebrew points; the nukta and chandrabindu of
    Devanagari. Text of other scripts stays as it is."""

    clean: Literal["format", "bert", "none"] = "format"
    """What is dropped. ``format``: control, format and private-use characters. ``bert``: what BERT drops, which are
    these, U+FFFD and unassigned characters, form feeds too. ``none``: nothing."""

    split: Literal["words", "scripts", "bert", "whitespace"] = "words"
    """What no token can cross. ``words``: white space, and every character that is no letter, mark or
    digit is on its own. ``scripts``: the borders between scripts too, Hiragana, Katakana and Han apart (for Japanese
    and mixed text). ``bert``: white space and punctuation. ``whitespace``: nothing but white space."""


EPSILON = {"entropy-gain": 0.01, "first-gain": 0.1}
"""Threshold of each rule that ends an expansion where the recipe gives none: ε₁ and the first ε₂ of the paper."""


class ExpandedVocabulary(Section):
    """[vocabulary] kind = "expanded": an existing vocabulary and the most frequent new tokens of a corpus (AdaLM)."""

    kind: Literal["expanded"]

    tokenizer: TokenizerName
    """The tokenizer to expand, WordPiece or byte-level BPE: hub id, folder or file. Its ids stay as they are."""

    corpus: Annotated[tuple[CorpusName, ...], Field(min_length=1)]
    """Text of the domain: text files (plain or .gz), jsonl files, collections."""

    increment: PositiveInt = 3000
    """Tokens by which the wanted size grows from one step to the next."""

    stop: Literal["exhausted", "entropy-gain", "first-gain"] = "exhausted"
    """When to stop growing. ``exhausted``: the corpus has no further tokens. ``entropy-gain``: the unigram entropy
    gained less than ``epsilon`` of itself. ``first-gain``: it gained less than ``epsilon`` of its first gain."""

    epsilon: Share | None = None
    """Threshold of the rule. Default: 0.01 for ``entropy-gain``, 0.1 for ``first-gain`` (the paper also has 0.05)."""

    size: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Most tokens, those of ``tokenizer`` included; a small corpus gives fewer. Default: only ``stop`` ends it."""

    @model_validator(mode="before")
    @classmethod
    def _epsilon_of_the_rule(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("epsilon") is None and values.get("stop") in EPSILON:
            return {**values, "epsilon": EPSILON[values["stop"]]}
        return values

    @model_validator(mode="after")
    def _epsilon_has_a_rule(self) -> ExpandedVocabulary:
        if self.epsilon is not None and self.stop == "exhausted":
            raise ValueError('epsilon belongs to stop = "entropy-gain" or "first-gain"; stop = "exhausted" has none')
        return self


VocabularySection = Annotated[
    SourceVocabulary | TrimmedVocabulary | ExistingVocabulary | TrainedVocabulary | ExpandedVocabulary,
    Field(discriminator="kind"),
]

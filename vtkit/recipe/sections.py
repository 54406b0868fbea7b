"""Every setting of a recipe, in pipeline order, with its meaning, its unit and its default.

A recipe is one TOML file; each class here is one of its tables, but for those of [transfer], [expand] and [finetune],
which have files of their own. Unknown keys are errors and values never change once loaded. A setting that names
something outside the recipe carries a :class:`Names` mark, by which the loader resolves relative paths, the runner
digests contents, and the pre-flight check finds what is not available. This module imports neither torch nor
transformers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from vtkit.recipe.analysers import Analysis
from vtkit.recipe.engines import Engine, MilvusSettings, OpenSearchSettings, SeismicSettings
from vtkit.recipe.expand import ExpandSection
from vtkit.recipe.finetune import SIDES, FinetuneSection, Reporter, TargetActive, ValidationSettings
from vtkit.recipe.transfer import TransferSection
from vtkit.recipe.types import (
    CorpusName,
    LearningRate,
    ModelName,
    Names,
    NonNegativeFloat,
    Occurrences,
    PairsName,
    PositiveFloat,
    PositiveInt,
    Ramp,
    RecipeName,
    RetrievalName,
    Section,
    Share,
    Steps,
    TokenizerName,
    TokenSpelling,
)

STORE = "artifacts"
"""Folder, beside those of the runs, of their stage outputs."""

GateLevel = Literal["fail", "warn", "off"]

DocumentWeighting = Literal["none", "cai-paper", "cai-code", "geng"]
"""What the dimensions of documents are multiplied by (``vtkit/encoder/idf.py``)."""

Lexical = Literal["none", "bm25"]


class RecipeSection(Section):
    """[recipe]: what this recipe is called."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    """Name of the run's folder: letters, digits, dots, hyphens and underscores."""

    seed: Annotated[int, Field(ge=0, lt=2**32)] = 42
    """Seed of everything random in the recipe."""

    language: Annotated[str, Field(pattern=r"^[a-z]{2,3}$")] = "en"
    """ISO 639 code of the language searched in; decides how BM25 cuts text into terms."""

    about: str = ""
    """One or two sentences for the report: what the recipe is for."""

    @field_validator("name")
    @classmethod
    def _no_name_of_the_store(cls, name: str) -> str:
        # some file systems take ARTIFACTS, or artifacts with a dot behind it, for the same folder
        if name.lower().rstrip(".") == STORE:
            raise ValueError(f"{name} is the folder of stage outputs that all runs share: choose another name")
        return name


class Scratch(Section):
    """[source.scratch]: a new encoder, trained from nothing (the corpus-specific vocabularies paper)."""

    architecture: Literal["bert", "distilbert", "roberta", "modernbert"] = "bert"
    """Family of the encoder."""

    layers: PositiveInt = 6
    """Transformer layers."""

    hidden: PositiveInt = 384
    """Width of the hidden states and of the embeddings."""

    heads: PositiveInt = 6
    """Attention heads; must divide ``hidden``."""

    feed_forward: PositiveInt = 1536
    """Width of the feed-forward layers."""

    max_length: PositiveInt = 512
    """Longest input, in tokens."""

    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Dropout probability while training."""

    @model_validator(mode="after")
    def _heads_divide_hidden(self) -> Scratch:
        if self.hidden % self.heads:
            raise ValueError(f"heads must divide hidden, but {self.hidden} is not a multiple of {self.heads}")
        return self


class Head(Section):
    """[source.head]: ``source.model`` is a dense embedder or another encoder without a trained masked-language-model
    head, and this head is fitted: it reads each token's own name back from the state that the encoder has of it
    (docs/from_embedder.md). No judgement, no translation and no training of the transformer."""

    corpus: tuple[CorpusName, ...] = ()
    """Texts whose states it is fitted on, as many different ones of the language as there are. Default: what a
    trimmed vocabulary is counted on, else ``adapt.corpus``, the fine-tuning or the evaluation documents."""

    texts: Annotated[int, Field(ge=20, le=100_000_000)] = 6000
    """Texts drawn from the corpus. Their states are kept on disk while the head is fitted: about 50 kB a text."""

    max_length: PositiveInt = 64
    """Tokens that these texts are cut at."""

    layers: PositiveInt | None = None
    """Read the states of this layer; those above it leave the model. Default: the last."""

    steps: Steps = 400
    """Steps after the start in closed form (ridge regression)."""

    positions: Annotated[int, Field(ge=16, le=1_000_000)] = 512
    """Tokens a step."""

    learning_rate: LearningRate = 1e-3
    """Of AdamW; it falls to 0 along a cosine."""

    activation: Annotated[float, Field(gt=0, lt=1)] = 0.0015
    """Share of the weights of a token that are positive in the end, over the vocabulary."""


class Units(Section):
    """[source.units]: ``source.model`` is a dense embedder, and its new dimensions are no words but latent units: a
    sparse autoencoder learns to rebuild the states of tokens from few of so many (docs/from_embedder.md). What is read
    is the embedder's own vocabulary, whole or trimmed."""

    corpus: tuple[CorpusName, ...] = ()
    """Texts whose states they are learned from; as of [source.head]."""

    size: Annotated[int, Field(ge=16, le=1_000_000)] = 4096
    """Units."""

    active: Annotated[int, Field(ge=1, le=1000)] = 16
    """Units that rebuild a token's state."""

    texts: Annotated[int, Field(ge=20, le=100_000_000)] = 6000
    """Texts drawn from the corpus. Their states are kept on disk meanwhile: about 50 kB a text."""

    max_length: PositiveInt = 64
    """Tokens that these texts are cut at."""

    layers: PositiveInt | None = None
    """Read the states of this layer; those above it leave the model. Default: the last."""

    steps: PositiveInt = 700
    """Optimiser steps."""

    positions: Annotated[int, Field(ge=16, le=1_000_000)] = 1024
    """Tokens a step."""

    learning_rate: LearningRate = 1e-3
    """Of AdamW; it rises for a twentieth of the steps and falls to 0 along a cosine."""

    @model_validator(mode="after")
    def _few_are_active(self) -> Units:
        if self.active >= self.size:
            raise ValueError(f"active must be less than size: {self.active} of {self.size} units would all be active")
        return self


class SourceSection(Section):
    """[source]: the encoder to start from. Give exactly one of model, recipe and scratch."""

    model: ModelName | None = None
    """Hub id or folder of a SparseEncoder or of any masked-language model; with ``head``, of a dense embedder."""

    recipe: RecipeName | None = None
    """Another recipe, whose final model is the source; it is run first if it is not done yet."""

    scratch: Scratch | None = None
    """Architecture of a new, untrained encoder."""

    head: Head | None = None
    """Fit a head to ``model``, a dense embedder."""

    units: Units | None = None
    """Learn latent units from the states of ``model``, a dense embedder."""

    kind: Literal["splade", "unicoil"] | None = None
    """What the encoder becomes. ``splade``: a text's weights are the largest logits of its tokens, for all tokens of
    the vocabulary. ``unicoil``: each token of a text has one weight, in its own dimension, and the head's logits have
    none (docs/training.md). Default: as ``model`` or ``recipe`` has it, and ``splade`` for a masked-language model."""

    @property
    def fitted(self) -> Head | Units | None:
        """What is fitted to a dense ``model``."""
        return self.head or self.units

    @model_validator(mode="after")
    def _exactly_one(self) -> SourceSection:
        given = [name for name in ("model", "recipe", "scratch") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of model, recipe and scratch, not {' and '.join(given) or 'none'}")
        if self.fitted is not None and self.model is None:
            raise ValueError("[source.head] and [source.units] are fitted to a model: name it with source.model")
        if self.head is not None and self.units is not None:
            raise ValueError("give [source.head], whose dimensions are tokens, or [source.units], not both")
        return self


class SourceVocabulary(Section):
    """[vocabulary] kind = "source": the source's own vocabulary. Nothing is transferred, so that the encoder stays as
    it is, bit for bit, until a later stage trains it."""

    kind: Literal["source"]


class TrimmedVocabulary(Section):
    """[vocabulary] kind = "trimmed": the source's own vocabulary without the tokens that texts of the language do not
    need. Their rows leave the model, and what it computes of texts whose tokens are kept stays the same
    (docs/trimming.md)."""

    kind: Literal["trimmed"]

    corpus: tuple[CorpusName, ...] = ()
    """Texts whose tokens are kept: text and jsonl files (plain, .gz or .zst), collections, datasets. Name all the text
    of the language that there is. Default: ``adapt.corpus``, else the fine-tuning documents, else the evaluation
    documents."""

    size: Annotated[int, Field(ge=100, le=1_000_000)] | None = None
    """Most tokens, special tokens, bytes and single characters included: the most frequent ones. Default: all that
    occur ``min_frequency`` times."""

    min_frequency: Occurrences = 1
    """A token must occur at least this often in the corpus."""


class ExistingVocabulary(Section):
    """[vocabulary] kind = "existing": the vocabulary of an existing tokenizer."""

    kind: Literal["existing"]

    tokenizer: TokenizerName
    """Hub id, folder, or file (tokenizer.json, vocab.txt or a SentencePiece .model); or a specification, a .toml
    file with [vocabulary] and [casing] that says how to build it; settings beside this one override those in it."""


class SpecialTokens(Section):
    """[vocabulary.special_tokens]: how a trained vocabulary spells its special tokens, which have its first ids."""

    pad: TokenSpelling = "[PAD]"
    """Token, without white space, that fills texts up to the length of a batch."""

    unk: TokenSpelling = "[UNK]"
    """Token, without white space, that stands for what the vocabulary cannot write."""

    cls: TokenSpelling = "[CLS]"
    """Token, without white space, that begins a text."""

    sep: TokenSpelling = "[SEP]"
    """Token, without white space, that ends a text."""

    mask: TokenSpelling = "[MASK]"
    """Token, without white space, that hides others while a masked-language model is trained."""

    @model_validator(mode="after")
    def _all_different(self) -> SpecialTokens:
        if len(set(self.model_dump().values())) < 5:
            raise ValueError("special_tokens must be five different tokens")
        return self


class TrainedVocabulary(Section):
    """[vocabulary] kind = "trained": a vocabulary learned from a corpus."""

    kind: Literal["trained"]

    corpus: Annotated[tuple[CorpusName, ...], Field(min_length=1)]
    """Text to learn from: text and jsonl files (plain, .gz or .zst), collections, or
    ``datasets:NAME:CONFIG:SPLIT:COLUMN``, a column of a dataset of the hub or of a folder."""

    size: Annotated[int, Field(ge=100, le=300_000)] = 30_000
    """Most tokens of the vocabulary, special tokens included; a small corpus gives fewer."""

    algorithm: Literal["wordpiece", "bpe", "unigram"] = "wordpiece"
    """WordPiece (``##`` continues a word), BPE (byte-level, ``Ġ`` starts a word; see ``alphabet``), or Unigram
    (``▁`` starts one). Tokens of scripts without spaces have neither mark; where a twentieth of the corpus is written
    in such scripts, WordPiece marks the beginnings of the other words with ``▁``."""

    alphabet: Literal["bytes", "characters"] = "bytes"
    """What BPE starts from: the 256 bytes (no text is unknown), or the characters of the corpus (``▁`` starts a
    word)."""

    byte_fallback: bool = False
    """Spell characters outside the alphabet in 256 byte tokens, ``<0x00>`` and so on, instead of the unknown token
    (Unigram, and BPE over characters)."""

    alphabet_limit: PositiveInt | None = None
    """Most characters that the alphabet keeps, the most frequent ones. Default: as many as cover 99.95 % of the
    corpus. Byte-level BPE has its 256 bytes."""

    min_frequency: Occurrences = 2
    """A token must occur at least this often in the corpus (WordPiece and BPE)."""

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

    cjk_spacing: bool = False
    """Each Han character is a word of its own, as in BERT."""

    whitespace: Literal["collapse", "keep"] = "collapse"
    """``collapse``: every run of white space counts as one space, and none at the ends of a text. ``keep``: white
    space stays as it is, and runs of it are tokens (BPE, Unigram)."""

    split: Literal["words", "scripts", "bert", "whitespace"] = "words"
    """What no token can cross. ``words``: white space, and every character that is no letter, mark or
    digit is on its own. ``scripts``: the borders between scripts too, Hiragana, Katakana and Han apart (for Japanese
    and mixed text). ``bert``: white space and punctuation. ``whitespace``: nothing but white space."""

    split_digits: bool = False
    """Each digit is a token of its own."""

    special_tokens: SpecialTokens = SpecialTokens()

    invalid_utf8: Literal["strict", "replace"] = "strict"
    """What becomes of bytes in the corpus that are not UTF-8: an error with their number and the place of the first,
    or U+FFFD and a warning."""

    @model_validator(mode="after")
    def _byte_fallback_has_its_algorithm(self) -> TrainedVocabulary:
        if self.byte_fallback and self.algorithm == "wordpiece":
            raise ValueError('vocabulary.byte_fallback needs algorithm = "unigram", or "bpe" over characters')
        if self.byte_fallback and self.algorithm == "bpe" and self.alphabet == "bytes":
            raise ValueError('vocabulary.byte_fallback is for alphabet = "characters": bytes have no fallback')
        return self


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

    counting: Literal["paper", "code"] = "paper"
    """What may be added, and what entropy counts. ``paper``: all but tokens made of digits and marks only. ``code``,
    as the authors' script has it: only tokens that start a word, and not with a digit or mark; entropy counts the
    special tokens around each text too (docs/expansion.md)."""

    min_frequency: Occurrences = 2
    """A new token must occur at least this often in the corpus."""

    invalid_utf8: Literal["strict", "replace"] = "strict"
    """What becomes of bytes in the corpus that are not UTF-8: an error with their number and the place of the first,
    or U+FFFD and a warning."""

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


class CasingSection(Section):
    """[casing]: what happens to upper case, in texts and in vectors (docs/casing.md)."""

    input: Literal["keep", "lowercase"] = "keep"
    """``lowercase`` folds the input to lower case, accents untouched; ``keep`` leaves the tokenizer as it is. Written
    into the saved tokenizer, so it holds wherever it is loaded."""

    output: Literal["all", "mask", "map", "fold"] = "all"
    """``all``: cased tokens are dimensions like others. ``mask``: they are never active. ``map``: those without a
    lower-case token beside them take its name, the others are masked. ``fold``: tokens equal up to case and word-start
    mark share one dimension, in vectors made with vtkit."""

    fold: Literal["max", "sum"] = "max"
    """How ``fold`` combines the weights of tokens that share a dimension."""

    @property
    def settings_read(self) -> set[str]:
        """Dotted paths of the settings that have an effect."""
        return {"casing.input", "casing.output"} | ({"casing.fold"} if self.output == "fold" else set())

    @model_validator(mode="after")
    def _mapped_tokens_can_be_reached(self) -> CasingSection:
        if self.output == "map" and self.input != "lowercase":
            raise ValueError('output = "map" gives tokens lower-case names, and needs input = "lowercase"')
        return self


Objective = Literal["crop", "align", "distill"]
"""Objectives of adaptation that train the sparse vectors themselves."""


class CropSection(Section):
    """[adapt.crop]: two spans of one document are a query and what it should find. Lengths are in words, or in
    pairs of characters in scripts without spaces."""

    query_words: PositiveInt = 16
    """Longest query; at most half of the document."""

    shortest: PositiveInt = 5
    """Shortest query."""

    document_words: PositiveInt = 80
    """Longest document span."""


class AlignSection(Section):
    """[adapt.align]: the encoder reads the target side of parallel text and learns the scores that the frozen source
    encoder gives the sentences of the source side."""

    files: tuple[PairsName, ...] = ()
    """Tab-separated sentence pairs, source language first. Default: ``transfer.parallel.files``; without any, both
    encoders read texts of the corpus (for domains)."""

    temperature: PositiveFloat = 4.0
    """Divides the scores inside the softmax of the score distributions."""

    squared: NonNegativeFloat = 0.01
    """Weight of the mean squared difference of scores beside the divergence of their distributions."""


class GeneratorSection(Section):
    """[adapt.distill.generator]: a sequence-to-sequence model that writes queries of documents (docT5query, GPL)."""

    model: ModelName | None = None
    """Hub id or folder, such as ``doc2query/msmarco-t5-base-v1`` or one of the mT5 models for other languages."""

    prompt: str = ""
    """Put before each document; what the model was trained with, such as ``"text2query: "``."""

    queries: Annotated[int, Field(ge=1, le=100)] = 3
    """Queries a document."""

    top_k: Annotated[int, Field(ge=1, le=1_000_000)] = 25
    """Each token is sampled from so many of the likeliest."""

    top_p: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Among these from the fewest that have this probability together."""


class DistillSection(Section):
    """[adapt.distill]: a teacher's scores of queries and documents of the corpus."""

    teachers: tuple[ModelName, ...] = ()
    """Hub ids or folders of dense or sparse sentence-transformers models or cross-encoders. Of several teachers the
    mean counts, each score in standard deviations of that teacher's scores of the query. Default: BM25 alone; with it
    the embedder that a head or units were fitted to ([source.head], [source.units])."""

    bm25: bool | None = None
    """BM25 over the corpus is a teacher too. Default: unless a cross-encoder teaches."""

    loss: Literal["listwise", "margin_mse"] | None = None
    """``margin_mse``: the squared error of the margins between a query's first candidate and its others against the
    teacher's margins (GPL, arXiv:2112.07577). ``listwise``: the divergence from the teacher's distribution over all
    documents of the batch that it was asked about. Default: ``margin_mse`` where a cross-encoder teaches, which is
    asked about a query's own candidates only, ``listwise`` elsewhere."""

    scale: PositiveFloat | None = None
    """``margin_mse``: factor on the teacher's scores; default as in [finetune.margin_mse]."""

    queries: Literal["crops", "openings", "generated"] = "crops"
    """``crops``: spans of documents, as in [adapt.crop]. ``openings``: their titles or first sentences, which are
    then removed from the documents. ``generated``: what ``generator`` writes of the documents."""

    generator: GeneratorSection = GeneratorSection()

    query_corpus: tuple[CorpusName, ...] = ()
    """Queries without judgements, such as those of a search log, instead of ``queries``."""

    candidates: Annotated[int, Field(ge=1, le=1000)] = 2
    """Documents a query: its own and further ones sampled from those that BM25 and ``mining`` find; all of them for
    ``query_corpus``."""

    mining: tuple[ModelName, ...] = ()
    """Dense or sparse models whose best documents are candidates too, beside BM25's (GPL mines with two)."""

    depth: Annotated[int, Field(ge=1, le=10_000)] = 50
    """Candidates are sampled from so many of each ranking."""

    temperature: PositiveFloat = 0.25
    """``listwise``: divides the teacher's scores, in standard deviations of its scores of a query, inside its
    softmax."""

    contrastive: NonNegativeFloat | None = None
    """Weight of InfoNCE with the query's own document beside the loss; ``query_corpus`` has no such document. Default:
    0.5 beside ``listwise``, 0 beside ``margin_mse``."""

    @property
    def generates(self) -> bool:
        """Whether its queries are written by a model."""
        return self.queries == "generated" and not self.query_corpus


class AdaptValidation(ValidationSettings):
    """[adapt.validation]: the encoder is judged while it is trained, on probe pairs made of texts of the corpus that
    are not trained on, a tenth of it at most; training stops when it gets no better, and ends with the best weights.
    For ``crop``, ``align`` and ``distill``."""


class AdaptSection(Section):
    """[adapt]: training in the new vocabulary without judgements."""

    objective: Literal["auto", "mlm", "sap"] | Objective | Annotated[tuple[Objective, ...], Field(min_length=1)] = (
        "auto"
    )
    """What is learned. ``crop``: to find a document by a span of it. ``align``: the source encoder's scores of
    sentences, on parallel text. ``distill``: a teacher's scores. A list of these trains on all of them at each step.
    ``mlm``: to predict masked tokens; for masked language models, since an encoder that has learned retrieval loses
    it. ``sap``: a teacher's vectors over the same output vocabulary (squared error on the dimensions where either is
    positive; MILCO). ``auto``: chosen by the kind of source and the text given (docs/adaptation.md)."""

    corpus: tuple[CorpusName, ...] = ()
    """Text of the language or domain searched in. Default: the fine-tuning documents, else the evaluation documents."""

    train: Literal["embeddings", "all"] | None = None
    """``embeddings``: the transformer is frozen and only embeddings, decoder and its bias learn (the
    vocabulary-transfer paper). ``all``: everything learns (AdaLM; a scratch source). Default: ``embeddings`` for
    ``mlm`` and ``sap``, ``all`` for the others."""

    steps: Steps = 400
    """Optimiser steps."""

    batch_size: Annotated[int, Field(ge=2, le=1_000_000)] = 32
    """Texts, pairs or queries a step, of each objective."""

    texts_at_once: PositiveInt | None = None
    """``crop``, ``align``, ``distill``: texts of a step whose activations are held at a time, as in ``[finetune]``."""

    max_length: PositiveInt = 128
    """Tokens a text is cut at."""

    flops: NonNegativeFloat = 1e-3
    """``crop``, ``align``, ``distill``: λ of the FLOPS penalties on queries and documents once the ramp is over."""

    target_active: TargetActive | None = None
    """``crop``, ``align``, ``distill``: active dimensions of queries and documents to end with, as in ``{query = 30,
    document = 150}``, instead of ``flops``: λ is found while training, and ``ramp`` is the share of the steps in which
    the aim is approached."""

    ramp: Ramp = 0.33
    """Share of the steps over which the penalties rise quadratically."""

    labels: Literal["tokens", "emlm"] | None = None
    """``mlm``: what a masked position is to be predicted as. ``tokens``: the token that stood there. ``emlm``: the
    token of the output vocabulary that overlaps the masked span first, for an encoder whose output vocabulary is not
    its input vocabulary (``transfer.scope`` "head-only"; ESPLADE). Default: ``emlm`` there, ``tokens`` elsewhere."""

    teacher: ModelName | None = None
    """``sap``: hub id or folder of a sparse encoder over the target's output vocabulary."""

    mask_rate: Share = 0.3
    """``mlm``: expected share of the tokens of each text that is masked."""

    new_token_weight: PositiveFloat = 2.0
    """``mlm``: how many times likelier a new token is masked than one shared with the source (λ of the paper)."""

    prior: Literal["none", "unigram"] | None = None
    """``mlm``: ``unigram`` adds the log frequency of each token in the corpus to its logit inside the softmax, so that
    what is merely common is not written into rows and bias, which a sparse encoder takes for term weights (logit
    adjustment, arXiv:2007.07314). Default: ``unigram`` for encoders that have learned to retrieve, ``none`` for masked
    language models, whose bias holds the frequencies already."""

    held_out: Annotated[int, Field(ge=0, le=100_000)] = 200
    """``mlm``: texts that are not trained on, a tenth of the corpus at most; on these the accuracy of masked tokens and
    the bits per byte are measured, before and after."""

    learning_rate: LearningRate = 1e-4
    """Peak of the cosine schedule."""

    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the steps over which the learning rate rises."""

    weight_decay: NonNegativeFloat = 0.01
    """AdamW weight decay."""

    checkpoint_every: Steps = 200
    """Steps between checkpoints; a killed run continues from the last."""

    report_to: tuple[Reporter, ...] = ()
    """Programs that show the curves while training goes on: ``tensorboard``, ``wandb`` (offline without --download)."""

    validation: AdaptValidation | None = None
    crop: CropSection = CropSection()
    align: AlignSection = AlignSection()
    distill: DistillSection = DistillSection()

    @property
    def objectives(self) -> tuple[str, ...]:
        """The objectives that it names; ``auto`` is one of these."""
        return self.objective if isinstance(self.objective, tuple) else (self.objective,)

    @property
    def settings_read(self) -> set[str]:
        """Dotted paths of the settings that its objectives read; the others have no effect."""
        own = set(type(self).model_fields) - {"crop", "align", "distill"}
        masked = {"labels", "mask_rate", "new_token_weight", "prior", "held_out"}
        sparse = {"flops", "ramp", "target_active", "texts_at_once", "validation"}
        objectives = set(self.objectives)
        tables: set[str] = set()
        if "auto" in objectives:
            objectives |= {"mlm", "crop", "align"}
        if not objectives & {"mlm"}:
            own -= masked
        if not objectives & {"sap"}:
            own -= {"teacher"}
        if not objectives & {"crop", "align", "distill"}:
            own -= sparse
        else:
            if self.target_active is not None:
                tables |= {f"target_active.{side}" for side in SIDES}
            if self.validation is not None:
                tables |= {f"validation.{setting}" for setting in AdaptValidation.model_fields}
        for name, kind in (("crop", CropSection), ("align", AlignSection), ("distill", DistillSection)):
            crops = name == "crop" and "distill" in objectives and not self.distill.query_corpus
            if name in objectives or crops:
                tables |= {f"{name}.{setting}" for setting in kind.model_fields}
        if "distill" in objectives and self.distill.generates:
            tables |= {f"distill.generator.{setting}" for setting in GeneratorSection.model_fields}
        return {f"adapt.{name}" for name in own | tables}

    @model_validator(mode="after")
    def _objective_has_its_teacher(self) -> AdaptSection:
        if (self.objective == "sap") != (self.teacher is not None):
            raise ValueError('objective "sap" and the setting teacher belong together: give both or neither')
        if self.validation is not None and set(self.objectives) <= {"mlm", "sap"}:
            raise ValueError('validation is for the objectives "crop", "align" and "distill"; mlm has held_out')
        if self.objective not in ("auto", "mlm") and self.labels is not None:
            raise ValueError('labels are for the objective "mlm": the others mask nothing')
        if len(set(self.objectives)) < len(self.objectives):
            raise ValueError("an objective is listed twice")
        if {"crop", "distill"} <= set(self.objectives):
            raise ValueError('"distill" learns from spans too (distill.contrastive): leave "crop" out of the list')
        if not self.distill.teachers and self.distill.bm25 is False:
            raise ValueError("distill.bm25 = false leaves no teacher: name one in distill.teachers")
        if self.distill.loss == "margin_mse" and self.distill.candidates < 2:
            raise ValueError("distill.loss margin_mse compares candidates: set distill.candidates to 2 or more")
        if self.distill.queries == "generated" and self.distill.generator.model is None:
            raise ValueError('distill.queries = "generated" takes a model that writes them: distill.generator.model')
        if self.crop.shortest > self.crop.query_words:
            raise ValueError("crop.shortest is more than crop.query_words")
        return self


StaticQueryEncoder = Literal["binary", "idf"]
"""Of the query encoders of :mod:`vtkit.recipe.finetune` those that need no training."""


class CalibrateSection(Section):
    """[calibrate]: what is done to the encoder without training: logits are rescaled, shifted, shifted by token, and
    folded, in this order, and queries get a static table (docs/calibration.md)."""

    target_activation: Share | None = None
    """Share of activations above zero after the shift. The shift is solved for on probe texts. Default: 0.35, unless
    ``head_scale``, ``shift``, ``tokens``, ``fold`` or ``query_encoder`` is given."""

    definition: Literal["token", "pooled"] = "token"
    """What is counted: (position, token) logits, or vocabulary dimensions after max-pooling."""

    head_scale: PositiveFloat | None = None
    """Divide all logits by this (8 or 16 for heads like ModernBERT's), before anything else."""

    shift: Annotated[float, Field(ge=-1e6, le=1e6)] | None = None
    """Lower the decoder bias by this much, the paper's c. With a ``target_activation`` it has no effect."""

    tokens: Literal["document-frequency", "held"] | None = None
    """``document-frequency``: shift each token's bias so that the token is active in texts about as often as the
    square root of its document frequency in ``corpus`` says; before ``target_activation``.
    ``held``: raise each token's bias until the token is active in almost all texts of ``corpus`` that hold it; after
    ``target_activation``. For queries by a static table (``query_encoder``)."""

    token_strength: Annotated[float, Field(gt=0, le=1)] = 0.5
    """``document-frequency``: how far each token goes; 1 is all the way."""

    token_bound: PositiveFloat = 1.0
    """``document-frequency``: largest shift of a token, in logits."""

    fold: Literal["max", "sum"] | None = None
    """Let tokens equal up to case and word-start mark share one dimension, in vectors made with vtkit."""

    query_encoder: StaticQueryEncoder | None = None
    """What encodes queries from then on: a static table, as in ``finetune.query_encoder``. ``binary``: every token
    weighs 1. ``idf``: inverse document frequencies in ``corpus``. Default: what encodes them already."""

    corpus: tuple[CorpusName, ...] = ()
    """Probe texts. Default: the adaptation corpus, else the fine-tuning or the evaluation documents."""

    texts: Annotated[int, Field(ge=8, le=1_000_000)] = 512
    """Probe texts sampled; half of them solve for the shift, the other half check it and fill the table."""

    max_length: PositiveInt = 128
    """Tokens a probe text is cut at."""

    @model_validator(mode="before")
    @classmethod
    def _target_where_nothing_is_said(cls, values: Any) -> Any:
        methods = ("target_activation", "head_scale", "shift", "tokens", "fold", "query_encoder")
        if isinstance(values, dict) and all(values.get(name) is None for name in methods):
            return {**values, "target_activation": 0.35}
        return values

    @model_validator(mode="after")
    def _held_tokens_have_no_strength(self) -> CalibrateSection:
        if self.tokens == "held" and (self.token_strength, self.token_bound) != (0.5, 1.0):
            raise ValueError(
                'token_strength and token_bound have no effect on tokens = "held". Remove them, or set tokens to '
                '"document-frequency"'
            )
        return self


class GatesSection(Section):
    """[gates]: figures checked after transfer, adaptation and calibration (docs/gates.md). Where a gate fails, ``fail``
    stops the run and ``warn`` continues; ``off`` skips the check."""

    overlap: GateLevel = "fail"
    """Share of the target vocabulary that overlaps, compared with other pairs of vocabularies in these scripts."""

    identity: GateLevel = "fail"
    """Shared tokens have their source rows bit for bit, and their bias where ``transfer.bias`` keeps it."""

    neighbours: GateLevel = "fail"
    """How new rows lie among source rows, and whether they can be told apart."""

    activation: GateLevel = "fail"
    """Share of positive activations on probe texts; NaN and infinity."""

    dimensions: GateLevel = "fail"
    """Active dimensions of probe texts: neither dead nor dense."""

    ties: GateLevel = "fail"
    """Share of probe queries' best scores that another text has too."""

    read_back: GateLevel = "fail"
    """How many tokens a fitted head reads back, of texts that it was not fitted on."""

    trimmed: GateLevel = "warn"
    """Share of the tokens of held-out texts that trimming took away."""

    unicode: GateLevel = "fail"
    """[UNK] share of the target corpus, the scripts behind it, and what the normalizer loses."""

    retrieval: GateLevel = "fail"
    """Whether the adapted encoder finds texts by spans of them as well as the encoder it was trained from. After the
    transfer: whether the source as it is finds more, which is a warning at most."""

    texts: Annotated[int, Field(ge=8, le=1_000_000)] = 64
    """Probe texts."""

    pairs: Annotated[int, Field(ge=20, le=1_000_000)] = 300
    """Probe pairs of the gate ``retrieval``."""

    max_length: PositiveInt = 128
    """Tokens a probe text is cut at."""


class IndexSection(Section):
    """[index]: how documents are encoded and searched."""

    engine: Engine = "exact"
    """What searches. ``exact``: every document that shares a term is scored, in process, no approximation.
    ``lucene``: Lucene's index of impacts, in process. ``seismic``: approximate, in process. ``milvus``: a Milvus
    database, embedded or a cluster. ``opensearch``: an OpenSearch cluster. All but ``exact`` are extras to install, and
    are compared with ``exact`` in the evaluation (docs/engines.md)."""

    quantisation_bits: Annotated[int, Field(ge=2, le=16)] = 8
    """``lucene``: document weights become whole numbers of so many bits, in equal steps up to the largest."""

    query_encoder: StaticQueryEncoder | None = None
    """Static table that encodes the queries of the final model, after whatever it was trained with, so that no model
    runs for a query (SPLADE-Doc of the CAI paper). ``binary``: every token weighs 1. ``idf``: inverse document
    frequencies in the evaluation documents, else in those of ``finetune.data``. The model as it was trained is judged
    beside it. Default: as the model encodes them."""

    query_length: PositiveInt = 64
    """Tokens a query is cut at."""

    document_length: PositiveInt = 256
    """Tokens a document is cut at."""

    top_dimensions: PositiveInt | None = None
    """Keep only so many of the largest weights of a document. Default: all."""

    query_top_dimensions: PositiveInt | None = None
    """Keep only so many of the largest weights of a query, of its static table's or of the encoder's. Default: all."""

    keep: Annotated[float, Field(gt=0, le=1)] | None = None
    """Keep only the largest weights of a document that together hold this share of its vector's sum: 0.9 removes many
    small weights that hardly change a score, and makes the index smaller. What it removed is printed. Default: all."""

    document_weighting: DocumentWeighting = "none"
    """Multiply each dimension of the documents by its token's inverse document frequency. ``cai-paper``: ln(N/N_t), 1
    for tokens of no document. ``cai-code``: its square root, as the authors' code has it. ``geng``:
    ln(1 + (N − N_t + ½)/(N_t + ½)). Counted on the whole texts of each evaluation set (docs/evaluation.md)."""

    bm25_analyser: Analysis = "full"
    """What cuts text into the terms of the BM25 that everything is compared and summed with (docs/data.md). ``full``:
    words, their stems and pieces of words; needs no package, and knows every language. ``morphemes``: the same and the
    morphemes of Korean or Japanese words (``pip install "vtkit[morphology]"``). ``lucene``: Lucene's own
    analyser of the language (``pip install "vtkit[lucene]"``). ``words``: words as they stand. Fine-tuning and
    adaptation find their negatives with ``full``."""

    lexical: Lexical = "none"
    """``bm25``: index BM25's impacts beside the final model's weights, as further dimensions of the same vectors, so
    that the sum with BM25 is one index and one query. Training queries, or else the documents, decide how much each of
    the two weighs (docs/evaluation.md)."""

    precision: Literal["float32", "bf16"] = "float32"
    """Of the encoder's matrix products, for documents and judged queries. ``bf16`` is several times faster on GPUs
    and processors that have it, and moves weights by about one part in a hundred."""

    seismic: SeismicSettings = SeismicSettings()
    milvus: MilvusSettings = MilvusSettings()
    opensearch: OpenSearchSettings = OpenSearchSettings()

    @property
    def settings_read(self) -> set[str]:
        """Dotted paths of the settings that have an effect: of the engines' own only those of the one named."""
        tables = {"seismic", "milvus", "opensearch"}
        own = set(type(self).model_fields) - tables - (set() if self.engine == "lucene" else {"quantisation_bits"})
        if self.engine in tables:
            own |= {f"{self.engine}.{name}" for name in type(getattr(self, self.engine)).model_fields}
        return {f"index.{name}" for name in own}

    @property
    def takes_text(self) -> bool:
        """Whether the engine encodes queries itself."""
        return self.engine == "opensearch" and self.opensearch.text_queries

    @model_validator(mode="after")
    def _a_server_has_an_address(self) -> IndexSection:
        if self.engine == "opensearch" and self.opensearch.url is None:
            raise ValueError('engine = "opensearch" needs the address of a server: opensearch.url')
        if self.takes_text and self.lexical != "none":
            raise ValueError(
                "opensearch.text_queries: the terms of a lexical part are no tokens, so that text alone cannot ask for "
                'them. Set lexical to "none", or opensearch.text_queries to false'
            )
        if self.takes_text and self.query_top_dimensions is not None:
            raise ValueError(
                "opensearch.text_queries: OpenSearch keeps every token of a query. Remove query_top_dimensions, or set "
                "opensearch.text_queries to false"
            )
        return self


_LISTED = {"sets": "collection", "weightings": "weighting", "lexical": "lexical part", "peers": "peer"}
"""List of [evaluate] -> what stands in it."""


class EvaluateSection(Section):
    """[evaluate]: what the run is judged on, before and after each stage that changes the model."""

    sets: Annotated[tuple[RetrievalName, ...], Field(min_length=1)]
    """Folders of collections, or names such as "miracl:ko" and "ir_datasets:beir/scifact/test" (docs/data.md)."""

    split: str | None = None
    """Which judgements to use (``qrels/SPLIT.tsv``). Default: a public collection's first, else "test"."""

    measures: Annotated[tuple[str, ...], Field(min_length=1)] = ("nDCG@10", "R@100", "RR@10")
    """ir_measures names."""

    depth: Annotated[int, Field(ge=10, le=10_000)] = 1000
    """Results a query."""

    max_queries: Occurrences | None = None
    """Judge only so many queries, sampled with the seed. Default: all."""

    models: Annotated[
        tuple[Literal["source", "transfer", "adapt", "calibrate", "finetune", "query-table"], ...], Field(min_length=1)
    ] = ("source", "transfer", "adapt", "calibrate", "finetune", "query-table")
    """Which stages' models to judge; those the recipe does not build are skipped."""

    bm25: bool = True
    """Judge BM25 too, with ``index.bm25_analyser`` and over plain words, and its sum with the final model
    (docs/evaluation.md)."""

    weightings: tuple[DocumentWeighting, ...] = ()
    """Judge the final model under these ``index.document_weighting`` too; nothing is encoded again."""

    lexical: tuple[Lexical, ...] = ()
    """Judge the final model with these ``index.lexical`` too, each under each weighting."""

    peers: tuple[ModelName, ...] = ()
    """Dense embedders (folders or hub ids of sentence-transformers models) that could be used instead, judged beside
    the encoders. Each encodes with its own prompts and up to its own length, is searched exactly, and is summed
    with BM25 too."""

    @field_validator("sets", "weightings", "lexical", "peers")
    @classmethod
    def _nothing_twice(cls, listed: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        names: dict[str, str] = {}
        for name in listed:
            same = os.path.realpath(name) if info.field_name in ("sets", "peers") and is_local(name) else name
            if same in names:
                other = "" if names[same] == name else f" (also called {names[same]})"
                what = _LISTED[str(info.field_name)]
                raise ValueError(f"{name} is listed twice{other}: each {what} is judged once")
            names[same] = name
        return listed


class ReportSection(Section):
    """[report]: the pages written at the end."""

    formats: Annotated[tuple[Literal["md", "json", "html"], ...], Field(min_length=1)] = ("md", "json", "html")
    """``report.md``, ``report.json``, and a self-contained ``report.html``."""

    example_query: str | None = None
    """A query shown at the end of the run and in the report, with what it finds. Default: the first one judged."""


class Recipe(Section):
    """A whole recipe. The sections casing to report may be left out; a stage without a section is not run."""

    recipe: RecipeSection
    source: SourceSection
    vocabulary: VocabularySection
    casing: CasingSection = CasingSection()
    transfer: TransferSection | None = None
    adapt: AdaptSection | None = None
    calibrate: CalibrateSection | None = None
    gates: GatesSection = GatesSection()
    expand: ExpandSection | None = None
    finetune: FinetuneSection | None = None
    index: IndexSection = IndexSection()
    evaluate: EvaluateSection | None = None
    report: ReportSection = ReportSection()

    _command: tuple[str, ...] = PrivateAttr(default=())

    @property
    def command(self) -> tuple[str, ...]:
        """The command line that it is run by, word by word; empty where there is none."""
        return self._command

    @property
    def expands(self) -> bool:
        """Whether documents are expanded."""
        return self.expand is not None and self.expand.expands

    def run_by(self, *command: str) -> None:
        """Note the command line that it is run by."""
        self._command = command

    @model_validator(mode="after")
    def _source_and_transfer_agree(self) -> Recipe:
        faults = list(self._faults())
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def _faults(self) -> Iterator[str]:
        if self.source.scratch is not None and self.transfer is not None:
            yield "a scratch source has no embeddings to transfer: remove [transfer] or name a model"
        own = isinstance(self.vocabulary, SourceVocabulary | TrimmedVocabulary)
        has_documents = self.finetune is not None or self.evaluate is not None
        adapts_on_text = self.adapt is not None and bool(self.adapt.corpus)
        trimmed_on = isinstance(self.vocabulary, TrimmedVocabulary) and bool(self.vocabulary.corpus)
        if own and self.source.scratch is not None:
            yield 'a scratch source has no vocabulary of its own: set vocabulary.kind to "existing" or "trained"'
        elif own and self.transfer is not None:
            yield "the source's own vocabulary needs no transfer: remove [transfer] (--set transfer=none)"
        elif own and (self.casing.input == "lowercase" or self.casing.output == "map"):
            yield (
                "the source's own vocabulary stays as it is: remove [casing], or name the source's tokenizer with "
                'vocabulary.kind "existing"'
            )
        if self.source.fitted is not None:
            if not own:
                yield (
                    'a fitted head writes the source\'s own tokens: set vocabulary.kind to "trimmed" or "source". For '
                    "another vocabulary, name that recipe with source.recipe in a second one that has [transfer]"
                )
            if not (self.source.fitted.corpus or trimmed_on or adapts_on_text or has_documents):
                yield "[source.head] or [source.units] has no corpus, and no other section has texts to use"
            if self.source.kind == "unicoil":
                yield 'a fitted head has weights for the whole vocabulary: remove source.kind "unicoil"'
            if self.source.units is not None:
                yield from (f"latent units are no tokens: {fault}" for fault in self._not_for_units())
            learned = set(self.adapt.objectives) & {"mlm", "sap", "align"} if self.adapt is not None else set()
            if learned:
                yield (
                    f"adapt.objective {' and '.join(sorted(learned))} learns from a sparse source, and the source is "
                    'dense: set it to "distill" or "crop"'
                )
        if self.source.scratch is None and self.transfer is None and not own:
            yield "[transfer] is missing: say where the embeddings of new tokens come from"
        if self.adapt is not None and not adapts_on_text and not has_documents:
            yield "adapt.corpus is missing, and no [finetune] or [evaluate] has documents to use"
        if isinstance(self.vocabulary, TrimmedVocabulary) and not (trimmed_on or adapts_on_text or has_documents):
            yield "vocabulary.corpus is missing, and no [adapt], [finetune] or [evaluate] has texts to use"
        if self.calibrate is not None and not (self.calibrate.corpus or adapts_on_text or has_documents):
            yield "calibrate.corpus is missing, and no [adapt], [finetune] or [evaluate] has texts to use"
        if self.expands:
            if self.finetune is None:
                yield "[expand] learns from the queries of finetune.data: add [finetune]"
            if self.transfer is not None and self.transfer.scope == "head-only":
                yield '[expand] adds tokens that are read, and transfer.scope "head-only" writes others: set "full"'
        if self.index.query_encoder == "idf" and not has_documents:
            yield "index.query_encoder counts tokens in documents, and there are none: add [evaluate] or [finetune]"
        if self.index.takes_text:
            yield from (f"index.opensearch.text_queries: {fault}" for fault in self._not_for_text())
        if self.source.kind == "unicoil":
            yield from (f'with source.kind "unicoil" {fault}' for fault in self._not_for_unicoil())

    def _not_for_text(self) -> Iterator[str]:
        """Settings by which queries are more than what a table says."""
        tables = '"binary", "idf" or "learned"'
        calibrated = self.calibrate is not None and self.calibrate.query_encoder is not None
        tuned = self.finetune is not None and self.finetune.query_encoder != "source"
        if self.index.query_encoder is not None:
            pass  # a table, whatever the model was trained with
        elif self.finetune is not None and self.finetune.query_encoder == "shared":
            yield f"queries go through the model: set finetune.query_encoder to {tables}"
        elif self.source.scratch is not None and not (tuned or calibrated):
            yield f"a scratch source's queries go through the model: set finetune.query_encoder to {tables}"
        if self.casing.output == "fold":
            yield 'OpenSearch does not fold: set casing.output to "all", "mask" or "map"'

    def _not_for_units(self) -> Iterator[str]:
        """Settings that count output tokens in texts."""
        if self.calibrate is not None and (self.calibrate.tokens or self.calibrate.query_encoder):
            yield "remove calibrate.tokens and calibrate.query_encoder"
        if self.index.query_encoder is not None:
            yield "remove index.query_encoder"
        if self.finetune is not None and self.finetune.query_encoder != "shared":
            yield 'set finetune.query_encoder to "shared"'
        if self.casing.output != "all":
            yield 'set casing.output to "all"'

    def _not_for_unicoil(self) -> Iterator[str]:
        """Settings that say something of logits of the whole vocabulary."""
        if self.calibrate is not None:
            yield "no token has a bias to calibrate: remove [calibrate]"
        if self.index.query_encoder is not None:
            yield "the model weighs the tokens of queries: remove index.query_encoder"
        if self.transfer is not None and self.transfer.scope == "head-only":
            yield 'what is read is what is written: set transfer.scope to "full"'
        if self.finetune is not None and self.finetune.activation != "source":
            yield "weights are no logarithms of logits: remove finetune.activation"
        if self.adapt is not None and "sap" in self.adapt.objectives:
            yield 'vectors cannot become those of a teacher ("sap"): set adapt.objective to another'


class Specification(Section):
    """How to build a tokenizer: a TOML file of its own, which a recipe names as its tokenizer."""

    vocabulary: Annotated[TrainedVocabulary | ExpandedVocabulary, Field(discriminator="kind")]
    casing: CasingSection = CasingSection()


@dataclass(frozen=True)
class Named:
    """One thing outside the recipe that a setting names."""

    setting: str
    """Dotted path of the setting, such as ``transfer.parallel.files``."""

    what: str
    """Kind, as in :class:`Names`."""

    value: str
    """An absolute path, a hub id, or the name of a public collection."""

    listed: bool
    """Whether the setting is a list."""


def named_things(section: BaseModel, prefix: str = "") -> Iterator[Named]:
    """Everything outside the recipe that ``section`` names, in the order of the settings."""
    marks = _marks(type(section))
    for name in type(section).model_fields:
        value: Any = getattr(section, name)
        path = f"{prefix}{name}"
        if isinstance(value, BaseModel):
            yield from named_things(value, f"{path}.")
            continue
        mark = marks.get(name)
        if mark is None or value is None:
            continue
        for entry in value if isinstance(value, tuple) else (value,):
            yield Named(path, mark.what, str(entry), isinstance(value, tuple))


@cache
def _marks(kind: type[BaseModel]) -> dict[str, Names]:
    """Field -> its mark, of those that have one."""
    found = {name: find_mark(field.metadata, field.annotation) for name, field in kind.model_fields.items()}
    return {name: mark for name, mark in found.items() if mark is not None}


def find_mark(metadata: list[Any], annotation: Any) -> Names | None:
    """The :class:`Names` mark on a field, wherever in ``tuple[Annotated[str, mark], ...] | None`` it stands."""
    for entry in metadata:
        if isinstance(entry, Names):
            return entry
    for entry in getattr(annotation, "__metadata__", ()):
        if isinstance(entry, Names):
            return entry
    for inner in getattr(annotation, "__args__", ()):
        found = find_mark([], inner)
        if found is not None:
            return found
    return None


def local_path(value: str) -> str | None:
    """The path that a named thing lies at (the loader makes every path absolute); None for a name of the hub."""
    path = value.removeprefix("datasets:").partition(":")[0] if value.startswith("datasets:") else value
    folder = path.rpartition(":")[0]
    if folder and not os.path.exists(path) and os.path.isdir(folder):
        path = folder  # FOLDER:CONFIGURATION
    return path if Path(path).is_absolute() else None


def is_local(value: str) -> bool:
    """Whether a named thing is a path rather than a hub name."""
    return local_path(value) is not None

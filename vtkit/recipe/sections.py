"""Every setting of a recipe, in pipeline order, with its meaning, its unit and its default.

A recipe is one TOML file; each class here is one of its tables. Unknown keys are errors and values never
change once loaded. A setting that names something outside the recipe carries a :class:`Names` mark, by
which the loader resolves relative paths, the runner digests contents, and the pre-flight check finds what
cannot be had. This module imports neither torch nor transformers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


@dataclass(frozen=True)
class Names:
    """Marks a setting that names something outside the recipe.

    ``model`` and ``tokenizer`` are a hub id or a folder (for a tokenizer also a file), ``retrieval`` a
    BEIR or MIRACL folder or the name of a public collection, ``corpus`` a text file, a jsonl file or a
    BEIR folder, ``pairs`` a file of two tab-separated columns, ``recipe`` another recipe.
    """

    what: Literal["model", "tokenizer", "retrieval", "corpus", "pairs", "recipe"]


ModelName = Annotated[str, Names("model")]
TokenizerName = Annotated[str, Names("tokenizer")]
RetrievalName = Annotated[str, Names("retrieval")]
CorpusName = Annotated[str, Names("corpus")]
PairsName = Annotated[str, Names("pairs")]
RecipeName = Annotated[str, Names("recipe")]

Share = Annotated[float, Field(gt=0, lt=1)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
PositiveInt = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A recipe table: unknown keys are errors, values never change once loaded."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


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


class SourceSection(Section):
    """[source]: the encoder to start from. Give exactly one of model, recipe and scratch."""

    model: ModelName | None = None
    """Hub id or folder of a SparseEncoder or of any masked-language model."""

    recipe: RecipeName | None = None
    """Another recipe, whose final model is the source; it is run first where it is not done yet."""

    scratch: Scratch | None = None
    """Architecture of a new encoder without any training behind it."""

    @model_validator(mode="after")
    def _exactly_one(self) -> SourceSection:
        given = [name for name in ("model", "recipe", "scratch") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of model, recipe and scratch, not {' and '.join(given) or 'none'}")
        return self


class ExistingVocabulary(Section):
    """[vocabulary] kind = "existing": the vocabulary of a tokenizer that is there already."""

    kind: Literal["existing"]

    tokenizer: TokenizerName
    """Hub id, folder, or file (tokenizer.json, vocab.txt or a SentencePiece .model)."""


class TrainedVocabulary(Section):
    """[vocabulary] kind = "trained": a vocabulary learned from a corpus."""

    kind: Literal["trained"]

    corpus: Annotated[tuple[CorpusName, ...], Field(min_length=1)]
    """Text to learn from: text files (plain or .gz), jsonl files, BEIR folders."""

    size: Annotated[int, Field(ge=100, le=300_000)] = 30_000
    """Tokens of the vocabulary, special tokens included."""

    algorithm: Literal["wordpiece", "bpe", "unigram"] = "wordpiece"
    """WordPiece (``##`` continues a word), byte-level BPE (``Ġ`` starts one), or Unigram (``▁`` starts one)."""

    split: Literal["words", "scripts"] = "words"
    """Where a token can never reach across: white space and punctuation ("words"), and in addition the
    borders between scripts, Hiragana, Katakana and Han apart ("scripts", for Japanese and mixed text)."""

    min_frequency: PositiveInt = 2
    """A token must occur at least this often in the corpus (WordPiece and BPE)."""


VocabularySection = Annotated[ExistingVocabulary | TrainedVocabulary, Field(discriminator="kind")]


class CasingSection(Section):
    """[casing]: what happens to upper case. Written into the saved tokenizer, so it holds wherever it is loaded."""

    input: Literal["keep", "lowercase"] = "keep"
    """``lowercase`` folds the input to lower case, accents untouched; ``keep`` leaves the tokenizer as it is."""


class BiasSection(Section):
    """[transfer.bias]: the decoder bias of the new vocabulary (plain resizing leaves it misaligned)."""

    method: Literal["zscore", "mixture"] = "zscore"
    """``zscore``: the smoothed log frequency of each target token, brought to the mean and deviation of
    the source bias (Prior-Aware Distribution Alignment of the vocabulary-transfer paper, with corpus
    frequencies for the target prior). ``mixture``: the source biases, mixed as the embeddings are."""

    corpus: tuple[CorpusName, ...] = ()
    """Text in the target vocabulary's language to count frequencies on (``zscore``). Default: the
    adaptation corpus, else the fine-tuning documents, else the evaluation documents."""


class TransferSection(Section):
    """[transfer]: where the embeddings of new tokens come from. Settings of other methods may stay in the
    recipe; they are ignored, so that one --set changes the method."""

    method: Literal["parallel", "sembridge", "subtoken", "mean", "random"]
    """``parallel``: translation probabilities learned from parallel text. ``sembridge``: nearest source
    tokens in the space of an embedder. ``subtoken``: mean of the source tokenizer's pieces. ``mean``:
    mean of all source rows. ``random``: normal noise of the source's initialisation range (0.02)."""

    overlap: Literal["exact+symbols", "exact", "fuzzy", "raw"] = "exact+symbols"
    """Which target tokens count as already known (docs/overlap.md)."""

    parallel: tuple[PairsName, ...] = ()
    """``parallel``: files of two tab-separated columns, source language first; sentences, dictionaries, any mix."""

    iterations: PositiveInt = 8
    """``parallel``: rounds of expectation maximisation."""

    min_probability: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """``parallel``: translations less probable than this are dropped and the rest renormalised."""

    embedder: ModelName | None = None
    """``sembridge``: hub id or folder of a sentence-transformers model that knows both languages."""

    alpha: Annotated[float, Field(ge=1)] = 4.0
    """``sembridge``: α of the entmax that turns similarities into weights; 2 is sparsemax, larger is sparser."""

    bias: BiasSection = BiasSection()

    @model_validator(mode="after")
    def _method_has_its_bridge(self) -> TransferSection:
        if self.method == "parallel" and not self.parallel:
            raise ValueError("method parallel needs the setting parallel, a list of tab-separated files")
        if self.method == "sembridge" and self.embedder is None:
            raise ValueError("method sembridge needs the setting embedder, a sentence-transformers model")
        return self


class AdaptSection(Section):
    """[adapt]: masked-language-model training in the new vocabulary."""

    corpus: tuple[CorpusName, ...] = ()
    """Text of the language or domain searched in. Default: the fine-tuning documents, else the evaluation documents."""

    train: Literal["embeddings", "all"] = "embeddings"
    """``embeddings``: the transformer is frozen and only embeddings, decoder and its bias learn (the
    vocabulary-transfer paper). ``all``: everything learns (AdaLM; a scratch source)."""

    steps: PositiveInt = 1000
    """Optimiser steps."""

    batch_size: PositiveInt = 32
    """Texts a step."""

    max_length: PositiveInt = 128
    """Tokens a text is cut at."""

    mask_rate: Share = 0.3
    """Expected share of the tokens of each text that is masked."""

    new_token_weight: PositiveFloat = 2.0
    """How many times likelier a new token is masked than one shared with the source (λ of the paper)."""

    learning_rate: PositiveFloat = 3e-4
    """Peak of the cosine schedule."""

    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the steps over which the learning rate rises."""

    weight_decay: NonNegativeFloat = 0.01
    """AdamW weight decay."""

    checkpoint_every: PositiveInt = 200
    """Steps between checkpoints; a killed run goes on from the last."""


class CalibrateSection(Section):
    """[calibrate]: shift of the decoder bias so that a wanted share of activations is positive."""

    target_activation: Share = 0.35
    """Share of activations above zero after the shift. The shift is solved for on probe texts."""

    definition: Literal["token", "pooled"] = "token"
    """What is counted: (position, token) logits, or vocabulary dimensions after max-pooling."""

    corpus: tuple[CorpusName, ...] = ()
    """Probe texts. Default: the adaptation corpus, else the fine-tuning or the evaluation documents."""

    texts: Annotated[int, Field(ge=8)] = 512
    """Probe texts drawn; half of them solve for the shift, the other half check it."""

    max_length: PositiveInt = 128
    """Tokens a probe text is cut at."""


class FinetuneSection(Section):
    """[finetune]: contrastive training of the sparse vectors on queries with relevant documents."""

    data: RetrievalName
    """BEIR folder, or name of a public collection, with judged queries."""

    split: str = "train"
    """Which judgements to train on (``qrels/SPLIT.tsv``)."""

    epochs: PositiveFloat = 3.0
    """Passes over the pairs; ``steps`` overrides it."""

    steps: PositiveInt | None = None
    """Optimiser steps, instead of epochs."""

    batch_size: Annotated[int, Field(ge=2)] = 32
    """Pairs a step; each query's negatives are the other documents of the step."""

    hard_negatives: Annotated[int, Field(ge=0)] = 0
    """Further negatives a query, drawn from the top BM25 results that are not judged relevant."""

    query_length: PositiveInt = 64
    """Tokens a query is cut at."""

    document_length: PositiveInt = 128
    """Tokens a document is cut at."""

    learning_rate: PositiveFloat = 2e-5
    """Peak learning rate; it rises over ``warmup`` and falls linearly to zero."""

    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Share of the steps over which the learning rate rises."""

    weight_decay: NonNegativeFloat = 0.01
    """AdamW weight decay."""

    scale: PositiveFloat = 1.0
    """Factor on the scores inside InfoNCE (the inverse of its temperature)."""

    query_flops: NonNegativeFloat = 3e-4
    """λ_q, strength of the FLOPS penalty on queries once the ramp is over."""

    document_flops: NonNegativeFloat = 1e-4
    """λ_d, strength of the FLOPS penalty on documents once the ramp is over."""

    ramp: Annotated[float, Field(gt=0, le=1)] = 0.33
    """Share of the steps over which both penalties rise quadratically."""

    checkpoint_every: PositiveInt = 100
    """Steps between checkpoints; a killed run goes on from the last."""


class IndexSection(Section):
    """[index]: how documents are encoded and searched."""

    engine: Literal["exact"] = "exact"
    """``exact``: every document that shares a term is scored, in process, no approximation."""

    query_length: PositiveInt = 64
    """Tokens a query is cut at."""

    document_length: PositiveInt = 256
    """Tokens a document is cut at."""

    top_dimensions: PositiveInt | None = None
    """Keep only so many of the largest weights of a document. Default: all."""


class EvaluateSection(Section):
    """[evaluate]: what the run is judged on, before and after each stage that changes the model."""

    sets: Annotated[tuple[RetrievalName, ...], Field(min_length=1)]
    """BEIR folders, MIRACL folders, or names such as "miracl:ko"."""

    split: str | None = None
    """Which judgements to use (``qrels/SPLIT.tsv``). Default: "dev" of MIRACL, "test" of all others."""

    measures: Annotated[tuple[str, ...], Field(min_length=1)] = ("nDCG@10", "R@100", "RR@10")
    """ir_measures names."""

    depth: Annotated[int, Field(ge=10, le=10_000)] = 1000
    """Results a query."""

    max_queries: PositiveInt | None = None
    """Judge only so many queries, drawn with the seed. Default: all."""

    models: Annotated[
        tuple[Literal["source", "transfer", "adapt", "calibrate", "finetune"], ...], Field(min_length=1)
    ] = ("source", "transfer", "adapt", "calibrate", "finetune")
    """Which stages' models to judge; those the recipe does not build are passed over."""

    bm25: bool = True
    """Judge BM25 (k1 0.9, b 0.4) beside the encoders, and the sum of its scores with the final model's."""


class ReportSection(Section):
    """[report]: the pages written at the end."""

    formats: Annotated[tuple[Literal["md", "json", "html"], ...], Field(min_length=1)] = ("md", "json", "html")
    """``report.md``, ``report.json``, and a self-contained ``report.html``."""

    example_query: str | None = None
    """A query shown at the end of the run and in the report, with what it finds. Default: the first one judged."""


class Recipe(Section):
    """A whole recipe. The sections casing to report may be left out; what has no section is not run."""

    recipe: RecipeSection
    source: SourceSection
    vocabulary: VocabularySection
    casing: CasingSection = CasingSection()
    transfer: TransferSection | None = None
    adapt: AdaptSection | None = None
    calibrate: CalibrateSection | None = None
    finetune: FinetuneSection | None = None
    index: IndexSection = IndexSection()
    evaluate: EvaluateSection | None = None
    report: ReportSection = ReportSection()

    @model_validator(mode="after")
    def _source_and_transfer_agree(self) -> Recipe:
        if self.source.scratch is not None and self.transfer is not None:
            raise ValueError("a scratch source has no embeddings to transfer: remove [transfer] or name a model")
        if self.source.scratch is None and self.transfer is None:
            raise ValueError("[transfer] is missing: say where the embeddings of new tokens come from")
        has_documents = self.finetune is not None or self.evaluate is not None
        adapts_on_text = self.adapt is not None and bool(self.adapt.corpus)
        if self.adapt is not None and not adapts_on_text and not has_documents:
            raise ValueError("adapt.corpus is missing, and no [finetune] or [evaluate] has documents to use")
        if self.calibrate is not None and not (self.calibrate.corpus or adapts_on_text or has_documents):
            raise ValueError("calibrate.corpus is missing, and no [adapt], [finetune] or [evaluate] has texts to use")
        return self


@dataclass(frozen=True)
class Named:
    """One thing outside the recipe that a setting names."""

    setting: str
    """Dotted path of the setting, such as ``transfer.parallel``."""

    what: str
    """Kind, as in :class:`Names`."""

    value: str
    """An absolute path, a hub id, or the name of a public collection."""

    listed: bool
    """Whether the setting is a list."""


def named_things(section: BaseModel, prefix: str = "") -> Iterator[Named]:
    """Everything outside the recipe that ``section`` names, in the order of the settings."""
    for name, field in type(section).model_fields.items():
        value: Any = getattr(section, name)
        path = f"{prefix}{name}"
        if isinstance(value, BaseModel):
            yield from named_things(value, f"{path}.")
            continue
        mark = find_mark(field.metadata, field.annotation)
        if mark is None or value is None:
            continue
        for entry in value if isinstance(value, tuple) else (value,):
            yield Named(path, mark.what, str(entry), isinstance(value, tuple))


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


def is_local(value: str) -> bool:
    """Whether a named thing is a path (the loader makes every path absolute) rather than a hub name."""
    return Path(value).is_absolute()

"""[transfer] of a recipe: the settings of each method in a class of its own, methods without any, and what all share.

:data:`METHODS` is the one list of methods: their names, tables, help, what they need and what reports call their rows
are read off its classes.
"""
# ruff: noqa: RUF012 (the base says that these are class variables)

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeVar

from pydantic import Field, create_model

from vtkit.settings.named import find_mark
from vtkit.settings.types import CorpusName, ModelName, PairsName, Section, VectorsName

Alpha = Annotated[float, Field(ge=1, le=1000)]

OverlapMode = Literal["exact+symbols", "exact", "fuzzy"]


class MethodSettings(Section):
    """Settings that all methods share. A method with settings has the table [transfer.NAME], all of them optional, so
    that tables of other methods may stay in a recipe."""

    name: ClassVar[str]
    """As ``transfer.method`` names it."""

    needs: ClassVar[Mapping[str, str]] = {}
    """Settings that the method cannot do without -> what they name."""

    uses: ClassVar[tuple[type[MethodSettings], ...]] = ()
    """Methods whose settings it reads besides its own."""

    origins: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """For each method that its rows may carry in the provenance: a name for reports, and what such a row is."""

    reassigns: ClassVar[bool] = False
    """Whether ``fallback = "auto"`` reassigns rows to the tokens that it has no evidence for."""

    bridges: ClassVar[bool] = False
    """Whether it knows which tokens of two languages mean the same, given all that it needs."""

    draws: ClassVar[bool] = False
    """Whether its rows depend on the seed."""

    makes_every_row: ClassVar[bool] = False
    """Whether it leaves no token to a method behind it."""

    @property
    def missing(self) -> list[str]:
        """The settings that it needs and has not."""
        return [setting for setting in self.needs if not getattr(self, setting)]

    @classmethod
    def summary(cls) -> str:
        """The origin of its rows: the first sentence of the docstring."""
        text = re.sub(r"^\[[\w.]+\]: ", "", " ".join(inspect.cleandoc(cls.__doc__ or "").split()))
        sentence = text.split(". ")[0].rstrip(".")
        return sentence[:1].lower() + sentence[1:]


class ParallelTransfer(MethodSettings):
    """[transfer.parallel]: translation probabilities learned from parallel text."""

    name = "parallel"
    bridges = True
    needs = {"files": "tab-separated files of sentence pairs or dictionaries"}
    origins = {
        "parallel": ("parallel text", "source rows mixed by translation probabilities"),
        "cooccurrence": ("co-occurrence", "source rows mixed by the parallel sentences in which both tokens occur"),
    }
    reassigns = True

    files: tuple[PairsName, ...] = ()
    """Files with two tab-separated columns, source language first: sentences, dictionaries, or both."""

    estimator: Literal["ibm1", "cooccurrence"] = "ibm1"
    """``ibm1``: translation probabilities of IBM model 1. ``cooccurrence``: nearest source tokens by the sentence pairs
    in which both tokens occur."""

    min_probability: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Translations less probable than this are dropped, and the others renormalised."""


class SembridgeTransfer(MethodSettings):
    """[transfer.sembridge]: nearest source tokens in the space of an embedder."""

    name = "sembridge"
    bridges = True
    needs = {"embedder": "a sentence-transformers model that knows both languages"}
    origins = {"sembridge": ("embedder", "source rows mixed by similarity in an embedder's space")}

    embedder: ModelName | None = None
    """Hub id or folder of a sentence-transformers or transformers model that knows both languages."""

    alpha: Alpha = 4.0
    """α of the entmax that turns similarities into weights: 1 is softmax, 2 sparsemax, larger is sparser. The
    SemBridge paper uses 4, its authors' code 2.5. Embedders with similarities close to each other, such as E5,
    need 16 to 32."""


class AutoTransfer(MethodSettings):
    """For each token the method with the best evidence, with the settings of [transfer.parallel] and
    [transfer.sembridge] (docs/transfer.md)."""

    name = "auto"
    draws = True
    uses = (ParallelTransfer, SembridgeTransfer)
    reassigns = True
    makes_every_row = True


class SemanticTransfer(MethodSettings):
    """[transfer.semantic]: nearest shared tokens in the space of the model that owns the target vocabulary."""

    name = "semantic"
    bridges = True
    needs = {"target_embeddings": "a masked-language model or a folder with a static table"}
    origins = {"semantic": ("semantic", "rows of shared tokens mixed by similarity in the target model's embeddings")}

    target_embeddings: ModelName | None = None
    """The masked-language model (or a folder with a static table) that owns the target vocabulary."""

    alpha: Alpha = 2.0
    """α of the entmax that turns similarities into weights: 1 is softmax, larger is sparser. The vocabulary-transfer
    paper uses 2, sparsemax."""


class FocusTransfer(MethodSettings):
    """[transfer.focus]: nearest shared tokens in static vectors of target tokens (FOCUS, arXiv:2305.14481)."""

    name = "focus"
    draws = True
    origins = {"focus": ("word vectors", "rows of shared tokens mixed by similarity of static word vectors")}

    vectors: VectorsName | None = None
    """Static word vectors of the target language, word2vec text or binary format. Default: trained on the text of
    ``bias.corpus``."""


class OfaTransfer(MethodSettings):
    """[transfer.ofa]: nearest source tokens in one space of word vectors for both languages (OFA, arXiv:2311.08849)."""

    name = "ofa"
    draws = True
    bridges = True
    needs = {"vectors": "static word vectors that cover both languages"}
    origins = {"ofa": ("word vectors", "source rows mixed by similarity of multilingual word vectors")}

    vectors: VectorsName | None = None
    """Static word vectors of both languages, word2vec text or binary format."""


class WechselTransfer(MethodSettings):
    """[transfer.wechsel]: nearest source tokens in two spaces of word vectors, aligned by a dictionary (WECHSEL,
    arXiv:2112.06598)."""

    name = "wechsel"
    draws = True
    bridges = True
    needs = {
        "vectors": "static word vectors of the target language",
        "source_vectors": "those of the source language",
        "dictionary": "a list of tab-separated files",
    }
    origins = {"wechsel": ("word vectors", "source rows mixed by similarity of word vectors aligned with a dictionary")}

    vectors: VectorsName | None = None
    """Static word vectors of the target language, word2vec text or binary format."""

    source_vectors: VectorsName | None = None
    """Static word vectors of the source language."""

    dictionary: tuple[PairsName, ...] = ()
    """Bilingual dictionary: files with two tab-separated columns, source language first."""


BASELINES = {
    "subtoken": "mean of the source tokenizer's pieces",
    "mean": "mean of all source rows",
    "overlap_mean": "mean of the overlapping tokens' source rows (the vocabulary transfer paper's Mean-Init)",
    "random": "normal noise of the source's initialisation range (0.02)",
    "random_all": "normal noise as in ``random``, for shared tokens too",
    "univariate": "normal noise with the moments of the source's entries, all together",
    "multivariate": "normal noise with the moments of the source's entries, each dimension's own",
}
"""Methods without settings -> the origin of their rows; their work is in ``transfer/methods/baselines.py``."""


METHODS: dict[str, type[MethodSettings]] = {  # in the order of help texts
    kind.name: kind
    for kind in (
        AutoTransfer,
        ParallelTransfer,
        SembridgeTransfer,
        SemanticTransfer,
        FocusTransfer,
        OfaTransfer,
        WechselTransfer,
    )
}
for _name, _origin in BASELINES.items():
    _noise = _name in ("random", "random_all", "univariate", "multivariate")
    _words = {"name": _name, "__doc__": _origin, "draws": _noise, "makes_every_row": _name == "random_all"}
    METHODS[_name] = type(_name, (MethodSettings,), _words)

ARGUMENTS: dict[str, list[tuple[str, str]]] = {}
"""What a method can be given without a recipe -> the settings it stands for, each by method and name: everything that
names a file or model, under the setting's name; the files of a method under the method's."""
for _kind in METHODS.values():
    for _setting, _field in _kind.model_fields.items():
        if find_mark(_field.metadata, _field.annotation) is not None:
            _called = _kind.name if _setting == "files" else _setting
            ARGUMENTS.setdefault(_called, []).append((_kind.name, _setting))

ROW_ORIGINS: dict[str, tuple[str, str]] = {
    "overlap": ("overlap", "the row of the same token in the source vocabulary"),
    **{row: words for kind in METHODS.values() for row, words in kind.origins.items()},
    "subtoken": ("subtokens", "mean of the pieces the source tokenizer cuts the token into"),
    "mean": ("mean", "mean of all source rows, for want of evidence"),
    "overlap_mean": ("mean of the overlap", "mean of the overlapping tokens, for want of evidence"),
    "random": ("random", "random numbers"),
    "univariate": ("random", "random numbers with the moments of the source's entries"),
    "multivariate": ("random", "random numbers with the moments of each of the source's dimensions"),
    "pieces": ("pieces", "mean of the shorter target tokens with evidence that the token is made of"),
    "reassigned": (
        "reassigned",
        "the row of a source word that stands for nothing else: the meaning is not the token's",
    ),
    "masked": ("masked", "never active: tokens that stand for no text, or that nothing is known about"),
}
"""What made a row, as the provenance says it -> its name in reports, and what such a row is."""

if TYPE_CHECKING:
    MethodName = str
    _MethodTables = Section
else:
    MethodName = Literal[tuple(METHODS)]
    _MethodTables = create_model(
        "_MethodTables",
        __base__=Section,
        __module__=__name__,
        **{name: (kind, kind()) for name, kind in METHODS.items() if kind.model_fields},
    )


Fallback = Literal["mean", "overlap_mean", "random", "univariate", "multivariate", "masked"]
"""Rows that no source token in particular has a part in."""


class BiasSection(Section):
    """[transfer.bias]: the decoder bias of the new vocabulary (plain resizing leaves it misaligned)."""

    method: Literal["zscore", "mixture", "copy-overlap", "zero"] = "zscore"
    """``zscore``: a prior over the target tokens, rescaled to the mean and deviation of the source bias (Prior-Aware
    Distribution Alignment of the vocabulary-transfer paper). ``mixture``: the source biases, mixed like the embeddings.
    ``copy-overlap``: shared tokens keep their bias, new ones get the mean. ``zero``: none."""

    model: ModelName | None = None
    """``zscore``: the masked-language model that owns the target vocabulary; its bias is the prior. Default: the
    smoothed log frequencies of the target tokens in ``corpus``."""

    corpus: tuple[CorpusName, ...] = ()
    """Text in the target vocabulary's language, to count token frequencies (``zscore``, reassigned rows) and to train
    the word vectors of ``focus``. Default: the adaptation corpus, else the fine-tuning documents, else the evaluation
    documents."""


Kind = TypeVar("Kind", bound=MethodSettings)


class TransferSection(_MethodTables):
    """[transfer]: where the embeddings of new tokens come from. The settings of a method stand in a table of its name;
    tables of other methods may stay in the recipe and are ignored, so that a single --set can change the method."""

    method: MethodName | Annotated[tuple[MethodName, ...], Field(min_length=1)] = Field(
        description=" ".join(f"``{name}``: {kind.summary()}." for name, kind in METHODS.items())
        + " A list of methods: the first with evidence for a token makes its row."
    )

    overlap: OverlapMode = "exact+symbols"
    """Which target tokens count as known to the source (docs/vocabulary.md#overlap-of-two-vocabularies)."""

    fallback: Literal["auto", "reassigned", "pieces", Fallback] = "auto"
    """The row of a token without evidence. ``reassigned``: the row of a source word that stands for nothing else, so
    that the token stays distinct from all others. ``pieces``: the mean of the target tokens that its text is made of,
    if there are any. ``masked``: never active. The others as under ``method``. ``auto``: ``reassigned`` for
    ``parallel`` and ``auto``, for other methods as in their papers."""

    scope: Literal["full", "head-only"] = "full"
    """``head-only``: only the output vocabulary is replaced; the source's tokenizer and input embeddings stay
    (ESPLADE)."""

    bias: BiasSection = BiasSection()

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods in the order they are asked."""
        return self.method if isinstance(self.method, tuple) else (self.method,)

    @property
    def asked(self) -> tuple[MethodSettings, ...]:
        """The settings of the methods, in the order they are asked."""
        return tuple(self.settings_of(METHODS[name]) for name in self.methods)

    def settings_of(self, kind: type[Kind]) -> Kind:
        """The table of a method; its defaults where it has no settings."""
        settings = getattr(self, kind.name) if kind.model_fields else kind()
        assert isinstance(settings, kind)
        return settings

    @property
    def used(self) -> tuple[MethodSettings, ...]:
        """The settings of the methods, and of those that they make use of."""
        asked = (METHODS[name] for name in self.methods)
        kinds = dict.fromkeys(kind for own in asked for kind in (own, *own.uses))
        return tuple(self.settings_of(kind) for kind in kinds)

    @property
    def bridged(self) -> bool:
        """Whether any of the methods knows which tokens of two languages mean the same."""
        kinds = [METHODS[name] for name in self.methods]
        given = (self.settings_of(kind) for own in kinds for kind in own.uses)
        return any(kind.bridges for kind in kinds) or any(used.bridges and not used.missing for used in given)

    @property
    def draws(self) -> bool:
        """Whether any row depends on the seed."""
        noise = self.fallback in ("random", "univariate", "multivariate")
        return noise or any(METHODS[name].draws for name in self.methods)

    @property
    def reassigns(self) -> bool:
        """Whether tokens without evidence get the rows of source words."""
        return self.fallback == "reassigned" or (self.fallback == "auto" and METHODS[self.methods[-1]].reassigns)

    @property
    def reads_texts(self) -> bool:
        """Whether target texts are read: to count tokens for the bias or for the rows that are reassigned, or to train
        the word vectors of ``focus``."""
        trains = any(isinstance(settings, FocusTransfer) and settings.vectors is None for settings in self.used)
        return trains or self.reassigns or (self.bias.method == "zscore" and self.bias.model is None)

    @property
    def settings_read(self) -> set[str]:
        """Dotted paths of the settings that the methods and the bias read; the others have no effect. The corpora
        that are counted and trained on are among them only where this section names them itself."""
        names = {"method", "overlap", "fallback", "scope", "bias.method"}
        names |= {f"{settings.name}.{setting}" for settings in self.used for setting in type(settings).model_fields}
        if self.bias.method == "zscore" and self.bias.model is not None:
            names |= {"bias.model"}
        if self.reads_texts:
            names |= {"bias.corpus"}
        return {f"transfer.{name}" for name in names}

    def _faults(self) -> Iterator[str]:
        for name in dict.fromkeys(self.methods):
            settings = self.settings_of(METHODS[name])
            lacking = [f"transfer.{name}.{setting} ({settings.needs[setting]})" for setting in settings.missing]
            if lacking:
                yield f"method {name} needs {' and '.join(lacking)}"
        if len(set(self.methods)) < len(self.methods):
            yield "a method is listed twice"
        whole = [name for name, kind in METHODS.items() if kind.makes_every_row]
        if len(self.methods) > 1 and not set(whole).isdisjoint(self.methods):
            yield f"{' and '.join(whole)} make every row, and cannot stand in a list of methods"

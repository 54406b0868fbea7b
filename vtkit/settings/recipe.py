"""A whole recipe: its sections in pipeline order, and what must hold between them; [recipe], [sweep] and [report].

Unknown keys are errors and values never change once loaded. A setting that names something outside the recipe carries
a :class:`~vtkit.settings.types.Names` mark, by which the loader resolves relative paths, the runner digests contents,
and the pre-flight check finds what is not available. Nothing here imports torch or transformers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, field_validator

from vtkit.settings.adapt import AdaptSection
from vtkit.settings.calibrate import CalibrateSection
from vtkit.settings.casing import CasingSection
from vtkit.settings.evaluate import EvaluateSection
from vtkit.settings.expand_documents import ExpandDocumentsSection
from vtkit.settings.finetune import FinetuneSection
from vtkit.settings.gates import GatesSection
from vtkit.settings.index import IndexSection
from vtkit.settings.run import RunSection
from vtkit.settings.source import SourceSection
from vtkit.settings.transfer import TransferSection
from vtkit.settings.types import SEED, LanguageCodes, Section, Seed
from vtkit.settings.vocabulary import (
    ExpandedVocabulary,
    SourceVocabulary,
    TrainedVocabulary,
    TrimmedVocabulary,
    VocabularySection,
)

STORE = "artifacts"  # folder, beside those of the runs, of their stage outputs
SEEDS = "recipe.seed"  # of the settings with values the one over which means are taken
AXES = ("rows", "columns")


class RecipeSection(Section):
    """[recipe]: what this recipe is called."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    """Name of the run's folder: letters, digits, dots, hyphens and underscores."""

    seed: Seed = SEED
    """Seed of everything random on the way to the model. Checks and evaluation draw the same samples for every seed."""

    language: LanguageCodes = "en"
    """ISO 639 code of the language to search in; determines how BM25 splits text into terms. Several languages are
    separated by commas: ``"en,hi,ko"``."""

    about: str = ""
    """One or two sentences for the report about the purpose of the recipe."""

    @field_validator("name")
    @classmethod
    def _no_name_of_the_store(cls, name: str) -> str:
        # some file systems take ARTIFACTS, or artifacts with a dot behind it, for the same folder
        if name.lower().rstrip(".") == STORE:
            raise ValueError(f"{name} is the folder that all runs share for stage outputs: choose another name")
        return name


class SweepSection(Section):
    """[sweep]: a grid of runs for `vtkit sweep`: every combination of row, column, value and seed (docs/recipes.md)."""

    values: Mapping[str, Annotated[tuple[Any, ...], Field(min_length=1)]] = {}
    """Setting -> its values: `"transfer.sembridge.alpha" = [1.0, 2.0, 4.0]`. Figures are averaged over the values of
    `"recipe.seed"`. The value "none" removes a setting or a section."""

    rows: Mapping[str, Mapping[str, Any]] = {}
    """[sweep.rows.NAME]: settings that change together, one row of the table for each name; an empty table is the
    recipe as it is."""

    columns: Mapping[str, Mapping[str, Any]] = {}
    """[sweep.columns.NAME]: the same for columns of the table, such as languages. Rows are compared within a column."""

    baseline: str = ""
    """Row to test the others against, by its name in the table, or "BM25". Default: the first row."""

    @property
    def seeds(self) -> tuple[Any, ...]:
        """The values of ``recipe.seed``; none where only the recipe's own is used."""
        return self.values.get(SEEDS, ())

    def _faults(self) -> Iterator[str]:
        for setting, given in self.values.items():
            if len(set(map(repr, given))) < len(given):
                yield f"{setting}: a value is given twice"
        named = {**self.rows, **self.columns}
        if any("recipe.name" in settings for settings in (self.values, *named.values())):
            yield "recipe.name: cells are named by their values"
        if "" in named:
            yield "rows and columns need names"
        if any(setting.partition(".")[0] == "sweep" for each in (self.values, *named.values()) for setting in each):
            yield "a sweep cannot vary itself: take settings of [sweep] out of its values, rows and columns"
        if not (self.values or self.rows or self.columns):
            yield "nothing varies: give values, rows or columns"


Reporter = Literal["tensorboard", "wandb"]


class ReportSection(Section):
    """[report]: the pages written at the end, and what is shown meanwhile."""

    example_query: str | None = None
    """Query whose results are shown at the end of the run and in the report. Default: the first evaluated one."""

    training: tuple[Reporter, ...] = ()
    """Programs that show the curves during training: ``tensorboard``, ``wandb`` (offline without --download)."""


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
    expand_documents: ExpandDocumentsSection | None = None
    finetune: FinetuneSection | None = None
    index: IndexSection = IndexSection()
    evaluate: EvaluateSection | None = None
    sweep: SweepSection | None = None
    report: ReportSection = ReportSection()
    run: RunSection = RunSection()

    _command: tuple[str, ...] = PrivateAttr(default=())

    @property
    def input_casing(self) -> CasingSection:
        """The casing of the vocabulary's input, in the recipe's language unless [casing] names another or it has
        several."""
        if self.casing.input == "keep":
            return CasingSection()
        language = self.casing.language or self.recipe.language
        return CasingSection(input=self.casing.input, language=None if "," in language else language)

    @property
    def command(self) -> tuple[str, ...]:
        """The command line that it is run by, word by word; empty where there is none."""
        return self._command

    @property
    def expands(self) -> bool:
        """Whether documents are expanded."""
        return self.expand_documents is not None and self.expand_documents.method != "none"

    def run_by(self, *command: str) -> None:
        """Note the command line that it is run by."""
        self._command = command

    def _faults(self) -> Iterator[str]:
        if self.source.scratch is not None and self.transfer is not None:
            yield "a scratch source has no embeddings to transfer: remove [transfer], or name a model in source.model"
        sets = 0 if self.evaluate is None else len(self.evaluate.sets)
        if self.index.alias is not None and sets > 1:
            yield f"index.alias names one index, but evaluate.sets has {sets}: give each a recipe of its own"
        if self.index.passages is not None and self.expands:
            yield "documents are expanded as wholes, not as passages: remove index.passages or [expand_documents]"
        own = isinstance(self.vocabulary, SourceVocabulary | TrimmedVocabulary)
        has_documents = self.finetune is not None or self.evaluate is not None or self.index.documents is not None
        if self.evaluate is not None and self.index.documents is not None:
            yield "the documents of evaluate.sets are indexed: remove index.documents, or [evaluate]"
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
        if self.source.fitted:
            if not own:
                yield (
                    'a fitted head has the source\'s own tokens: set vocabulary.kind to "trimmed" or "source". For '
                    "another vocabulary, add a second recipe with [transfer], and name this one in its source.recipe"
                )
            if not (self.source.corpus or trimmed_on or adapts_on_text or has_documents):
                yield "[source.head] or [source.units] needs a corpus: no other section has texts either"
            if self.source.kind == "unicoil":
                yield 'a fitted head weighs the whole vocabulary: remove source.kind "unicoil"'
            if self.source.units is not None:
                yield from (f"latent units are not tokens: {fault}" for fault in self._not_for_units())
            if learned := set(self.adapt.objectives) & {"mlm", "sap", "align"} if self.adapt is not None else set():
                yield (
                    f"adapt.objective {' and '.join(sorted(learned))} learns from a sparse source, and the source is "
                    'dense: set it to "distill" or "crop"'
                )
        if self.source.scratch is None and self.transfer is None and not own:
            yield "[transfer] is missing: it says where the embeddings of new tokens come from"
        if self.adapt is not None and not adapts_on_text and not has_documents:
            yield "adapt.corpus is missing, and no [finetune], [evaluate] or [index] has documents to use"
        if isinstance(self.vocabulary, TrimmedVocabulary) and not (trimmed_on or adapts_on_text or has_documents):
            yield "vocabulary.corpus is missing, and no [adapt], [finetune], [evaluate] or [index] has texts to use"
        if self.calibrate is not None and not (self.calibrate.corpus or adapts_on_text or has_documents):
            yield "calibrate.corpus is missing, and no [adapt], [finetune], [evaluate] or [index] has texts to use"
        if self.expands:
            if self.finetune is None:
                yield "[expand_documents] learns from the queries of finetune.data: add [finetune]"
            if self.transfer is not None and self.transfer.scope == "head-only":
                yield (
                    '[expand_documents] adds output tokens to texts, which transfer.scope "head-only" does not read: '
                    'set "full"'
                )
        if self.index.query_encoder == "idf" and not has_documents:
            yield "index.query_encoder counts tokens in documents: add [evaluate], [finetune] or index.documents"
        if self.source.kind == "unicoil":
            yield from (f'with source.kind "unicoil" {fault}' for fault in self._not_for_unicoil())

    def _not_for_units(self) -> Iterator[str]:
        """Settings that count output tokens in texts."""
        if self.calibrate is not None and (self.calibrate.tokens or self.calibrate.query_encoder):
            yield "remove calibrate.tokens and calibrate.query_encoder"
        if self.index.query_encoder is not None:
            yield "remove index.query_encoder"
        if self.index.own_tokens:
            yield "remove index.own_tokens"
        if self.finetune is not None and self.finetune.query_encoder != "shared":
            yield 'set finetune.query_encoder to "shared"'
        if self.casing.output != "all":
            yield 'set casing.output to "all"'

    def _not_for_unicoil(self) -> Iterator[str]:
        """Settings that say something of logits of the whole vocabulary."""
        if self.calibrate is not None:
            yield "tokens have no bias to calibrate: remove [calibrate]"
        if self.index.query_encoder is not None:
            yield "the model weighs the tokens of queries: remove index.query_encoder"
        if self.index.own_tokens:
            yield "documents have weights for the tokens that they hold only: remove index.own_tokens"
        if self.transfer is not None and self.transfer.scope == "head-only":
            yield 'input and output vocabulary are the same: set transfer.scope to "full"'
        if self.finetune is not None and self.finetune.activation != "source":
            yield "weights do not come from logits: remove finetune.activation"
        if self.adapt is not None and "sap" in self.adapt.objectives:
            yield 'vectors cannot become those of a teacher ("sap"): set adapt.objective to another'


class Specification(Section):
    """How to build a tokenizer: a TOML file of its own, which a recipe names as its tokenizer."""

    vocabulary: Annotated[TrainedVocabulary | ExpandedVocabulary, Field(discriminator="kind")]
    casing: CasingSection = CasingSection()

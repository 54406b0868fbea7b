"""vtkit moves a learned sparse retrieval encoder onto the vocabulary its user needs.

The public names, each loaded when it is first asked for: ``import vtkit`` loads the version alone (docs/python.md).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vtkit.system.version import __version__ as __version__

_NAMES_OF_MODULE = {
    "vocabulary.corpus_gap": ("Gap",),
    "vocabulary.inspection": ("InspectedVocabulary",),
    "vocabulary.fragmentation": ("Fragmentation",),
    "evaluation.comparison": ("Comparison",),
    "api": (
        *("build_tokenizer", "calibrate_encoder", "change_casing", "change_tokenizer_casing", "corpus_gap", "encode"),
        *("encode_texts", "evaluate", "expand_documents", "index_vectors"),
        *("expand_tokenizer", "export_for", "fragmentation", "inspect_vocabulary"),
        *("load_encoder", "load_recipe", "load_tokenizer", "open_run", "overlap", "report_of", "run_recipe"),
        *("save_encoder", "save_tokenizer", "search_run", "train_tokenizer", "transfer_encoder"),
        *("with_static_queries",),
    ),
    "data.corpora": ("read_corpus",),
    "encoder.asymmetric": ("dimension_names",),
    "encoder.calibrated": ("Calibration",),
    "encoder.casing": ("CasingChange",),
    "deploy.result": ("Export",),
    "system.errors": ("CollapseError", "DataError", "MachineError", "MissingExtra", "RecipeError", "VtkitError"),
    "settings.recipe": ("Recipe",),
    "report.data": ("ReportData",),
    "pipeline.folder": ("RunFolder",),
    "search.bm25": ("Bm25",),
    "search.exact": ("ExactIndex",),
    "search.folders": ("Encoding", "IndexFolder"),
    "search.results": ("SearchResult",),
    "transfer.encoder": ("Transfer",),
    "vocabulary.casing": ("CasingCounts", "count_casing"),
    "vocabulary.expanded": ("Expansion",),
    "vocabulary.overlap": ("Overlap",),
    "vocabulary.pair": ("VocabularyPair",),
    "vocabulary.specification": ("Built",),
}
_MODULES = {name: f"vtkit.{module}" for module, names in _NAMES_OF_MODULE.items() for name in names}

if TYPE_CHECKING:  # each name under its own, which exports it
    from vtkit.api import build_tokenizer as build_tokenizer
    from vtkit.api import calibrate_encoder as calibrate_encoder
    from vtkit.api import change_casing as change_casing
    from vtkit.api import change_tokenizer_casing as change_tokenizer_casing
    from vtkit.api import corpus_gap as corpus_gap
    from vtkit.api import encode as encode
    from vtkit.api import encode_texts as encode_texts
    from vtkit.api import evaluate as evaluate
    from vtkit.api import expand_documents as expand_documents
    from vtkit.api import expand_tokenizer as expand_tokenizer
    from vtkit.api import export_for as export_for
    from vtkit.api import fragmentation as fragmentation
    from vtkit.api import index_vectors as index_vectors
    from vtkit.api import inspect_vocabulary as inspect_vocabulary
    from vtkit.api import load_encoder as load_encoder
    from vtkit.api import load_recipe as load_recipe
    from vtkit.api import load_tokenizer as load_tokenizer
    from vtkit.api import open_run as open_run
    from vtkit.api import overlap as overlap
    from vtkit.api import report_of as report_of
    from vtkit.api import run_recipe as run_recipe
    from vtkit.api import save_encoder as save_encoder
    from vtkit.api import save_tokenizer as save_tokenizer
    from vtkit.api import search_run as search_run
    from vtkit.api import train_tokenizer as train_tokenizer
    from vtkit.api import transfer_encoder as transfer_encoder
    from vtkit.api import with_static_queries as with_static_queries
    from vtkit.data.corpora import read_corpus as read_corpus
    from vtkit.deploy.result import Export as Export
    from vtkit.encoder.asymmetric import dimension_names as dimension_names
    from vtkit.encoder.calibrated import Calibration as Calibration
    from vtkit.encoder.casing import CasingChange as CasingChange
    from vtkit.evaluation.comparison import Comparison as Comparison
    from vtkit.pipeline.folder import RunFolder as RunFolder
    from vtkit.report.data import ReportData as ReportData
    from vtkit.search.bm25 import Bm25 as Bm25
    from vtkit.search.exact import ExactIndex as ExactIndex
    from vtkit.search.folders import Encoding as Encoding
    from vtkit.search.folders import IndexFolder as IndexFolder
    from vtkit.search.results import SearchResult as SearchResult
    from vtkit.settings.recipe import Recipe as Recipe
    from vtkit.system.errors import CollapseError as CollapseError
    from vtkit.system.errors import DataError as DataError
    from vtkit.system.errors import MachineError as MachineError
    from vtkit.system.errors import MissingExtra as MissingExtra
    from vtkit.system.errors import RecipeError as RecipeError
    from vtkit.system.errors import VtkitError as VtkitError
    from vtkit.transfer.encoder import Transfer as Transfer
    from vtkit.vocabulary.casing import CasingCounts as CasingCounts
    from vtkit.vocabulary.casing import count_casing as count_casing
    from vtkit.vocabulary.corpus_gap import Gap as Gap
    from vtkit.vocabulary.expanded import Expansion as Expansion
    from vtkit.vocabulary.fragmentation import Fragmentation as Fragmentation
    from vtkit.vocabulary.inspection import InspectedVocabulary as InspectedVocabulary
    from vtkit.vocabulary.overlap import Overlap as Overlap
    from vtkit.vocabulary.pair import VocabularyPair as VocabularyPair
    from vtkit.vocabulary.specification import Built as Built
else:
    __all__ = ["__version__", *sorted(_MODULES)]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'vtkit' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})

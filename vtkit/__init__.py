"""vtkit moves a learned sparse retrieval encoder onto the vocabulary its user needs.

The public names, each loaded when it is first asked for: ``import vtkit`` itself loads nothing (docs/python.md).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vtkit.api import (
        build_tokenizer,
        calibrate_encoder,
        change_casing,
        change_tokenizer_casing,
        corpus_gap,
        encode,
        encode_texts,
        evaluate,
        expand_documents,
        expand_tokenizer,
        export_for,
        fragmentation,
        index_vectors,
        inspect_vocabulary,
        load_encoder,
        load_recipe,
        load_tokenizer,
        open_run,
        overlap,
        report_of,
        run_recipe,
        save_encoder,
        save_tokenizer,
        search_run,
        train_tokenizer,
        transfer_encoder,
        with_static_queries,
    )
    from vtkit.data.corpora import read_corpus
    from vtkit.encoder.asymmetric import dimension_names
    from vtkit.encoder.calibrated import Calibration
    from vtkit.encoder.casing import CasingChange
    from vtkit.evaluation.comparison import Comparison
    from vtkit.export.result import Export
    from vtkit.inspect.corpus_gap import Gap
    from vtkit.inspect.fragmentation import Fragmentation
    from vtkit.inspect.inspection import InspectedVocabulary
    from vtkit.pipeline.folder import RunFolder
    from vtkit.report.data import ReportData
    from vtkit.search.bm25 import Bm25
    from vtkit.search.exact import ExactIndex
    from vtkit.search.folders import Encoding, IndexFolder
    from vtkit.search.results import SearchResult
    from vtkit.settings.recipe import Recipe
    from vtkit.system.errors import CollapseError, DataError, MachineError, MissingExtra, RecipeError, VtkitError
    from vtkit.transfer.encoder import Transfer
    from vtkit.vocabulary.casing import CasingCounts, count_casing
    from vtkit.vocabulary.expanded import Expansion
    from vtkit.vocabulary.overlap import Overlap
    from vtkit.vocabulary.pair import VocabularyPair
    from vtkit.vocabulary.specification import Built

__version__ = "0.1.0"

_NAMES_OF_MODULE = {
    "inspect.corpus_gap": ("Gap",),
    "inspect.inspection": ("InspectedVocabulary",),
    "inspect.fragmentation": ("Fragmentation",),
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
    "export.result": ("Export",),
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

__all__ = [
    "Bm25",
    "Built",
    "Calibration",
    "CasingChange",
    "CasingCounts",
    "CollapseError",
    "Comparison",
    "DataError",
    "Encoding",
    "ExactIndex",
    "Expansion",
    "Export",
    "Fragmentation",
    "Gap",
    "IndexFolder",
    "InspectedVocabulary",
    "MachineError",
    "MissingExtra",
    "Overlap",
    "Recipe",
    "RecipeError",
    "ReportData",
    "RunFolder",
    "SearchResult",
    "Transfer",
    "VocabularyPair",
    "VtkitError",
    "__version__",
    "build_tokenizer",
    "calibrate_encoder",
    "change_casing",
    "change_tokenizer_casing",
    "corpus_gap",
    "count_casing",
    "dimension_names",
    "encode",
    "encode_texts",
    "evaluate",
    "expand_documents",
    "expand_tokenizer",
    "export_for",
    "fragmentation",
    "index_vectors",
    "inspect_vocabulary",
    "load_encoder",
    "load_recipe",
    "load_tokenizer",
    "open_run",
    "overlap",
    "read_corpus",
    "report_of",
    "run_recipe",
    "save_encoder",
    "save_tokenizer",
    "search_run",
    "train_tokenizer",
    "transfer_encoder",
    "with_static_queries",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'vtkit' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

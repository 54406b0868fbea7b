"""Stages ``expand``, in which a masked language model learns which tokens the queries of a document have (TILDE), and
``expand:documents``: the words that every document of the recipe is expanded by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.pipeline.stage import Corpus, Stage, View
from vtkit.pipeline.steps.texts import EVALUATED, collection_of, evaluated_in_training, evaluation_sets, unevaluated
from vtkit.pipeline.store import CHECKPOINTS
from vtkit.settings.finetune import BM25
from vtkit.system import console
from vtkit.system.results import Result

if TYPE_CHECKING:
    from vtkit.data.retrieval import RetrievalSet


def expand_documents(recipe: View, inputs: Mapping[str, Path], out: Path) -> float:
    """Fill ``out/expansions.jsonl`` with the words that the model of ``inputs["expand"]`` adds to the documents of
    fine-tuning and evaluation; returns their number a document, on average."""
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.system.runtime import fastest_device
    from vtkit.training.document_expansion.expansions import expansion_words, write_expansions

    section = recipe.expand_documents
    corpora = (*recipe.corpora("finetune.data"), *recipe.corpora("evaluate.sets"))
    texts = list(
        dict.fromkeys(document.contents for corpus in corpora for document in collection_of(corpus).whole.documents)
    )
    encoder = load_encoder(str(inputs["expand"] / "model"), fastest_device())
    words = expansion_words(encoder, texts, section, recipe.recipe.language, out / CHECKPOINTS)
    write_expansions(out, texts, words)
    mean = sum(map(len, words)) / max(len(words), 1)
    console.say(f"  {len(texts):,} documents are expanded by {mean:.1f} words on average")
    return mean


EXPAND_DOCUMENTS = Stage(
    "expand:documents",
    version=5,
    reads=("expand_documents.method", "expand_documents.keep", "recipe.language"),
    corpora={
        "finetune.data": lambda recipe: (Corpus(tuning.data, tuning.split),) if (tuning := recipe.finetune) else (),
        "evaluate.sets": evaluation_sets,
    },
    function=expand_documents,
)


@dataclass(frozen=True)
class ExpanderResult(Result):
    """Results of training the model that expands documents: its data, and how the training went."""

    judged: int  # pairs of a query and a document that is relevant to it
    aggregated: int  # further pairs, of documents that several rankings together put first
    curve: Mapping[str, Sequence[float]]  # `steps` and `loss`


def train_expander(recipe: View, inputs: Mapping[str, Path], out: Path) -> ExpanderResult:
    """Fill ``out/model`` with the masked language model of ``inputs["model"]``, trained on the queries of
    ``finetune.data`` (but for those that fine-tuning holds out to validate on)."""
    from vtkit.encoder.checkpoint import load_encoder, save_encoder
    from vtkit.encoder.kinds import as_splade
    from vtkit.system import distributed
    from vtkit.training.document_expansion.expansions import listed_stop_words
    from vtkit.training.document_expansion.tilde import counted_tokens, train_tilde
    from vtkit.training.pairs import judged_pairs
    from vtkit.training.resuming import TrainingRun
    from vtkit.training.validation import held_out_queries

    section, tuning, seed = recipe.expand_documents, recipe.finetune, recipe.recipe.seed
    data = unevaluated(recipe, tuning.split, "train")
    if tuning.validation is not None and tuning.validation.share is not None:
        data, _ = held_out_queries(data, tuning.validation.share, seed)
    encoder = load_encoder(str(inputs["model"] / "model"))
    judged = [(query, document) for query, document in judged_pairs(data).pairs.tolist()]
    further = _aggregated(recipe, data, out) if section.method == "tilde-aug" else []
    pairs = list(dict.fromkeys([*judged, *further]))
    if further:
        console.say(f"  {len(pairs) - len(judged)} pairs from the top of the rankings, in addition to the judged ones")
    encoder = as_splade(encoder)
    texts = [(data.queries[query].text, data.documents[document].contents) for query, document in pairs]
    counted = counted_tokens(encoder, listed_stop_words(encoder.tokenizer, recipe.recipe.language))
    curve = train_tilde(encoder, texts, section, counted, TrainingRun(seed=seed, folder=out / CHECKPOINTS))
    if distributed.is_main():
        save_encoder(encoder, out / "model")
    return ExpanderResult(len(judged), len(pairs) - len(judged), curve)


def _aggregated(recipe: View, data: RetrievalSet, out: Path) -> list[tuple[int, int]]:
    """Query and document for the documents that the rankings of the recipe together put first."""
    from vtkit.data.document_files import is_blank
    from vtkit.search.bm25 import Bm25
    from vtkit.training.document_expansion.tilde import DOCUMENT_LENGTH, QUERY_LENGTH, RANKING_DEPTH, aggregated_pairs
    from vtkit.training.negatives import RANKINGS_FOLDER, Ranked, system_rankings

    section = recipe.expand_documents
    queries, contents = [query.text for query in data.queries], data.contents
    ranked, folder = Ranked(queries, contents, (QUERY_LENGTH, DOCUMENT_LENGTH), RANKING_DEPTH), out / CHECKPOINTS
    bm25 = partial(Bm25.build, contents, recipe.recipe.language, folder=folder / "bm25")
    systems, label = (BM25, *section.rankings), "expand_documents.rankings"
    rankings = system_rankings(systems, ranked, bm25, folder / RANKINGS_FOLDER, label)
    pairs = aggregated_pairs(rankings, len(data.queries))
    blank = {row for row, query in enumerate(data.queries) if is_blank(query.text)}
    return [(query, document) for query, document in pairs if query not in blank and contents[document].strip()]


EXPAND = Stage(
    "expand",
    version=4,
    reads=(
        *(f"expand_documents.{name}" for name in ("method", "rankings", "steps", "batch_size")),
        *("recipe.language", "finetune.data", "finetune.split", "finetune.validation.queries"),
        "evaluate.ignore_identical_ids",
    ),
    corpora={EVALUATED: evaluated_in_training},
    function=train_expander,
    publishes={"model": "expander"},
    trains=True,
    draws=True,
)

"""Stage ``expand:documents``: the words that every document of the recipe is expanded by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from vtkit.pipeline.stage import Chain, Corpus, Stage, View, Wired
from vtkit.pipeline.steps.encode_corpus import opened
from vtkit.pipeline.steps.texts import evaluation_sets
from vtkit.pipeline.store import CHECKPOINTS
from vtkit.settings.recipe import Recipe
from vtkit.system import console
from vtkit.system.results import Result


@dataclass(frozen=True)
class ExpandedDocuments(Result):
    """What documents are expanded by."""

    documents: int  # those of the same text count once
    words: float  # added to a document, on average


def expand_documents(recipe: View, inputs: Mapping[str, Path], out: Path) -> ExpandedDocuments:
    """Fill ``out/expansions.jsonl`` with what the model of ``inputs["expand"]`` adds to the documents that fine-tuning
    and the evaluation read."""
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.system.runtime import fastest_device
    from vtkit.training.document_expansion.expansions import expansion_words, write_expansions

    section = recipe.expand
    assert section is not None
    corpora = (*recipe.corpora("finetune.data"), *recipe.corpora("evaluate.sets"))
    texts = list(dict.fromkeys(document.contents for corpus in corpora for document in opened(corpus).documents))
    encoder = load_encoder(str(inputs["expand"] / "model"), fastest_device())
    words = expansion_words(encoder, texts, section, recipe.recipe.language, out / CHECKPOINTS)
    write_expansions(out, texts, words)
    mean = sum(map(len, words)) / max(len(words), 1)
    console.say(f"  {len(texts):,} documents are expanded by {mean:.1f} words on average")
    return ExpandedDocuments(len(texts), mean)


def _tuned_on(recipe: Recipe) -> tuple[Corpus, ...]:
    """The documents of finetune.data."""
    section = recipe.finetune
    return () if section is None else (Corpus(section.data, section.split),)


def _wired(recipe: Recipe, chain: Chain) -> Iterator[Wired]:
    if recipe.expands:
        yield Wired(EXPAND_DOCUMENTS, {"expand": chain.steps["expand"]})


EXPAND_DOCUMENTS = Stage(
    "expand:documents",
    version=2,
    reads=("expand.method", "expand.tokens", "expand.keep", "recipe.language"),
    corpora={"finetune.data": _tuned_on, "evaluate.sets": evaluation_sets},
    function=expand_documents,
    wire=_wired,
)

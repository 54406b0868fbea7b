"""Stage ``encode``: the documents of every evaluation set as sparse vectors on disk."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from vtkit.pipeline.stage import Stage, View
from vtkit.pipeline.steps.texts import collection_of, indexed_sets
from vtkit.pipeline.store import CHECKPOINTS
from vtkit.system import console
from vtkit.system.results import Result

SETS = {"evaluate.sets": indexed_sets}


@dataclass(frozen=True)
class EncodedSet(Result):
    """The documents of one evaluation set as vectors."""

    share_cut: float = 0.0  # share of the documents, or their passages, of which the encoder does not read the end
    passages: int | None = None  # number of passages; None: documents are not cut into these
    query_encoder: str | None = None  # of the queries that are to find them; None where that of documents is


def encode_corpus(recipe: View, inputs: Mapping[str, Path], out: Path) -> dict[str, EncodedSet]:
    """Fill ``out/SET`` with a folder of vectors, as ``vtkit encode`` writes it, for every set of the recipe.

    The encoder is ``inputs["model"]/model``, or the source as it is where there is no such input. Where there is
    ``inputs["expansions"]`` it reads expanded documents.
    """
    from vtkit.encoder.checkpoint import load_encoder
    from vtkit.encoder.query_tables import query_encoder_of
    from vtkit.encoder.sides import prompt_of
    from vtkit.encoder.truncation import share_cut
    from vtkit.search.folders import write_encoding
    from vtkit.search.passages import Passages, row_contents
    from vtkit.search.sharded_encoding import EncodeTexts, encode_to_disk
    from vtkit.search.stored_vectors import VECTORS
    from vtkit.system.runtime import fastest_device
    from vtkit.training.document_expansion.expansions import digest, load_expansions, with_words

    encoder = load_encoder(model_name(recipe, inputs), fastest_device())
    expansions = load_expansions(inputs["expansions"]) if "expansions" in inputs else None
    sets: dict[str, EncodedSet] = {}
    for corpus in recipe.corpora("evaluate.sets"):
        collection, folder = collection_of(corpus).whole, str(corpus.folder)
        passages = Passages.of(collection.documents, recipe.index.passages)
        texts = list(row_contents(collection.documents, passages))
        length = min(recipe.index.document_length, encoder.max_seq_length or recipe.index.document_length)
        if expansions is not None:
            words = [expansions[digest(text)] for text in texts]
            texts = with_words(texts, words, encoder.tokenizer, length, prompt_of(encoder, "document"))
        cut = share_cut(encoder.tokenizer, texts, length, prompt_of(encoder, "document"))
        if cut:
            what = "documents" if passages is None else "passages"
            console.say(f"  {cut:.0%} of the {what} of {folder} are cut at {length} tokens (index.document_length)")
        work = replace(EncodeTexts.of(encoder, recipe.index), max_length=length)
        done, removed = encode_to_disk(
            work, texts, out / folder / VECTORS, out / CHECKPOINTS / folder,
            made_from={},  # the names of both folders say it
            description=f"encoding the documents of {folder}",
        )  # fmt: skip
        if taken_over := sum(shard.taken_over for shard in done):
            console.say(f"  {folder}: {taken_over} parts had been encoded before")
        removed.say(folder)
        if passages is not None:
            console.say(f"  {folder}: {len(passages):,} passages of {len(collection.documents):,} documents")
        write_encoding(out / folder, work, removed, collection.documents, passages, texts=len(texts), model=None)
        sets[folder] = EncodedSet(cut, None if passages is None else len(passages), query_encoder_of(encoder))
    return sets


def model_name(recipe: View, inputs: Mapping[str, Path]) -> str:
    """Folder of the model a step works with, or the source's own name."""
    if "model" in inputs:
        return str(inputs["model"] / "model")
    assert recipe.source.model is not None
    return recipe.source.model


ENCODE = Stage(
    "encode",
    version=9,
    reads=("index.document_length", "index.top_dimensions", "index.mass", "index.precision", "index.passages"),
    corpora=SETS,
    function=encode_corpus,
)

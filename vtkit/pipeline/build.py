"""``vtkit build``: documents to an index beside BM25 in a folder of its own, without a recipe and without
judgements."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median

from vtkit.data.document_files import read_document_file, write_documents
from vtkit.data.executors import executed_by
from vtkit.data.hub import located
from vtkit.data.retrieval import Document, RetrievalSet
from vtkit.data.rows import RECOGNISED, Columns
from vtkit.data.synthetic_queries import joined, random_snippets, units
from vtkit.encoder.checkpoint import as_sparse_encoder, load_encoder, save_encoder
from vtkit.encoder.families import mlm_head
from vtkit.encoder.masked import MASKED_BIAS
from vtkit.encoder.scratch import scratch_model
from vtkit.encoder.truncation import TEXTS_LOOKED_AT, share_cut
from vtkit.evaluation.fusion import FusionWeight
from vtkit.evaluation.systems import Bm25System
from vtkit.pipeline.folder import open_run
from vtkit.pipeline.run import run
from vtkit.pipeline.search import searched
from vtkit.pipeline.steps.build_vocabulary import VocabularyResult
from vtkit.pipeline.steps.encode_corpus import EncodedSet
from vtkit.pipeline.steps.fusion import FUSION
from vtkit.pipeline.store import result_of
from vtkit.recipe.load import load_recipe
from vtkit.recipe.new import NewRecipe, new_recipe
from vtkit.report.data import ExampleResult
from vtkit.search.drift import BUILT, UNTRIMMED
from vtkit.search.folders import copy_index, encode_folder, index_folder
from vtkit.search.index_info import RECORD
from vtkit.search.languages import languages_of
from vtkit.search.passages import Passages, row_contents
from vtkit.search.searcher import Searcher
from vtkit.search.segments import Manifest
from vtkit.search.sharded_encoding import EncodeTexts
from vtkit.settings.index import IndexSection, PassagesSection
from vtkit.settings.source import Scratch
from vtkit.settings.types import SEED
from vtkit.system import console
from vtkit.system.checksums import records_in, write_record
from vtkit.system.errors import DataError, RecipeError
from vtkit.system.outputs import refuse_existing, replaced, write_atomically
from vtkit.system.results import Result
from vtkit.transfer import latent_units
from vtkit.vocabulary.existing import load_tokenizer
from vtkit.vocabulary.forms import whole_ids

RECIPE, CORPUS, TEXTS, RUNS = "recipe.toml", "corpus.jsonl", "texts.txt", "runs"
"""In the folder: the recipe, the documents as they were read, pieces of them to learn from, and the run."""

BEGUN = "build.json"  # record of a build, written before anything else into its folder

PIECE_WORDS = 40  # of a piece: the states of so many tokens are learned from (vtkit.settings.source.STATES_LENGTH)

TRIMMED = 2000
"""Pieces from which on a vocabulary is trimmed to theirs; of fewer, new text loses percents of its tokens."""

ENOUGH = 1.25
"""Tokens of documents for one that units need at least: a tenth of the texts is held out, and long words are cut."""

EXAMPLES = 10  # queries that are shown
CUT = 0.05  # share of cut documents from which on their passages are indexed
PASSAGE_WORDS = (200, 100, 50)  # the first number is taken with which no more passages are cut


@dataclass(frozen=True)
class BuiltIndex(Result):
    """Facts about an index that need no judgements."""

    documents: int
    language: str
    weight: float | None  # of the encoder beside BM25; None without BM25
    fusion: str  # how the weight was found, in words
    passages: int | None  # number of passages that the documents are indexed as; None: whole
    share_cut: float  # share of the documents, or passages, whose end the encoder does not read
    length: int  # tokens at which they are cut
    lost_tokens: float | None  # share of the tokens of other texts that a trimmed vocabulary lacks
    index_bytes: int
    seconds: float  # of the whole build
    query_ms: float  # median time of a query
    examples: tuple[tuple[str, ExampleResult], ...]  # snippets of documents, asked as queries, and their first results


def build_index(
    documents: str,
    out: Path,
    answers: NewRecipe,
    *,
    columns: Columns = RECOGNISED,
    settings: Sequence[str] = (),
    threads: int | None = None,
) -> BuiltIndex:
    """Index ``documents`` in the folder ``out``, which :func:`~vtkit.pipeline.search.searched` opens: the recipe is
    written into it and run. A build that was interrupted continues.

    Args:
        answers: what the recipe starts from; without a language, that of the documents is detected.
        columns: of a table of documents.
        settings: override those of the recipe.

    Raises:
        RecipeError: ``out`` exists and holds no unfinished build, or the language cannot be detected.
        VtkitError: documents or models cannot be read, or a stage stops the run.
    """
    begun = time.monotonic()
    if (out / RECORD).exists() or out / BEGUN not in records_in(out):
        refuse_existing(out)
    read = read_document_file(documents, columns)
    if not any(document.contents.strip() for document in read):
        raise DataError(f"{documents}: none of its {len(read):,} documents has a text. Name its column with --text.")
    language, source = answers.language, answers.source
    language = language or languages_of(RetrievalSet(out.name, read, [], {}).contents)
    if language is None:
        raise RecipeError("The documents do not show their language. Give it with --language.")
    folder = out.absolute()
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.name).strip("-._") or "index"
    pieces = [*islice((piece for document in read for piece in _pieces(document.contents)), TRIMMED)]
    corpus = (os.path.relpath(folder / (TEXTS if source is None else CORPUS)),)
    answers = answers.model_copy(update={"name": name, "language": language, "corpus": corpus})
    recipe_of = partial(new_recipe, answers, folder, documents=f"./{CORPUS}", trimmed=len(pieces) >= TRIMMED)
    text = recipe_of()
    recipe = load_recipe(out / RECIPE, list(settings), text=text).recipe
    model = located(str(answers.embedder or source))
    tokens = sum(map(len, whole_ids(load_tokenizer(model), pieces)))
    alone = source is None and tokens < ENOUGH * latent_units.FEWEST_TOKENS
    wanted = not alone and recipe.index.passages is None and "index.passages=none" not in settings
    if wanted and (words := _passage_words(model, read, recipe.index)):
        text = recipe_of(passages=words)
    out.mkdir(parents=True, exist_ok=True)
    write_record(out / BEGUN, {"documents": documents}, ())
    with replaced(out / CORPUS) as fresh:
        write_documents(read, fresh)
    if not alone:
        write_atomically(out / RECIPE, text)
        if source is None:
            with replaced(out / TEXTS) as fresh, fresh.open("w", encoding="utf-8") as file:
                file.writelines(f"{piece}\n" for document in read for piece in _pieces(document.contents))
        finished = open_run(run(out / RECIPE, tuple(settings), runs=out / RUNS, threads=threads))
        home, manifest = searched(finished.folder, model=None, collection=None)
        (step,) = (step for step in finished.steps if step.startswith("encode:"))
        encoding = result_of(finished.steps[step], dict[str, EncodedSet])[CORPUS]
        trimmed = result_of(finished.steps["vocabulary"], VocabularyResult).trimmed
        weight, chosen = None, ""
        if FUSION.name in finished.steps:
            fusion = result_of(finished.steps[FUSION.name], dict[str, FusionWeight])[CORPUS]
            weight, chosen = fusion.weight, fusion.words
    else:
        chosen = f"the documents' {tokens:,} tokens are too few to learn latent terms from"
        console.say(f"BM25 ranks alone: {chosen}. With more documents, build again into a new folder")
        home, index = out / RUNS / "index", recipe.index.model_copy(update={"passages": None})
        with executed_by(recipe.run):
            manifest = _bm25_alone(read, out / RUNS, model, language, index)
        encoding, weight, trimmed = EncodedSet(), 0.0, None
    if trimmed is not None and recipe.source.model is not None:
        load_tokenizer(recipe.source.model).backend_tokenizer.save(str(out / UNTRIMMED))
    copy_index(home, manifest, out)  # from here on it is an index
    searcher = Searcher.load(*searched(out, model=None, collection=None))
    snippets = random_snippets([document.contents for document in read], EXAMPLES, SEED)
    examples, times = [], []
    for query in snippets[:1] + snippets:  # the first time, code is compiled
        asked = time.perf_counter()
        first = next(searcher.search([query], 1)).results
        times.append(1000 * (time.perf_counter() - asked))
        examples += [(query, ExampleResult(1, found.score, found.id, found.title, found.shown)) for found in first]
    built = BuiltIndex(
        documents=len(read),
        language=language,
        weight=weight,
        fusion=chosen,
        passages=encoding.passages,
        share_cut=encoding.share_cut,
        length=manifest.index.document_length,
        lost_tokens=None if trimmed is None else trimmed.lost,
        index_bytes=sum(path.stat().st_size for path in searcher.documents.path.parent.rglob("*") if path.is_file()),
        seconds=time.monotonic() - begun,
        query_ms=float(median(times[1:] or [0.0])),
        examples=tuple(examples[1:]),
    )
    built.to_file(out / BUILT)
    return built


def _passage_words(model: str, documents: Sequence[Document], index: IndexSection) -> int | None:
    """The words of passages of ``documents`` that the encoder reads to their ends; None if it does so with documents,
    but for a share of :data:`CUT`, which is said."""
    tokenizer, length = load_tokenizer(model), index.document_length
    some = documents[:: -(-len(documents) // TEXTS_LOOKED_AT) or 1]
    share = share_cut(tokenizer, row_contents(some, None), length)
    if share <= CUT:
        return None
    for words in PASSAGE_WORDS:
        cut = Passages.of(some, PassagesSection(words=words, overlap=words // 4))
        if share_cut(tokenizer, row_contents(some, cut), length) <= CUT:
            break
    console.say(
        f"{share:.0%} of the documents have more than {length} tokens: passages of up to {words} words are indexed "
        "(index.passages in the recipe; --set index.passages=none leaves it out)"
    )
    return words


def _bm25_alone(documents: Sequence[Document], work: Path, model: str, language: str, index: IndexSection) -> Manifest:
    """Fill ``work/index`` with an index in which BM25 ranks alone, and ``work/model`` with its model. The vectors have
    one weight, at a special token of the embedder's tokenizer, and that of queries does not count."""
    shutil.rmtree(work, ignore_errors=True)
    tokenizer = load_tokenizer(model)
    plain = scratch_model(Scratch(layers=1, hidden=8, heads=1, feed_forward=8), tokenizer)
    bias = mlm_head(plain).decoder.bias.detach().fill_(MASKED_BIAS)
    bias[tokenizer.all_special_ids[0]] = 10.0
    save_encoder(as_sparse_encoder(plain, tokenizer, work / "scratch"), work / "model")
    encoder, vectors = load_encoder(str(work / "model")), work / CORPUS
    encoding = EncodeTexts(encoder, side="document", max_length=8)
    encode_folder(encoding, str(work / "model"), documents, vectors, work / "shards", language=language)
    bm25 = Bm25System.over(RetrievalSet("the documents", documents, [], {}), language, index.bm25_analyser).bm25
    made = index_folder(vectors, work / "index", index, encoder, documents, (bm25, 0.0, (1.0, 1.0)))
    return made.searched_by(str(work / "model"), index)


def _pieces(text: str) -> Iterator[str]:
    """``text`` in pieces of :data:`PIECE_WORDS` words, a line each."""
    words = units(text)
    for start in range(0, len(words), PIECE_WORDS):
        yield joined(words[start : start + PIECE_WORDS], text)

"""The texts that a stage reads if the recipe leaves it open, and samples of them."""

import os
from collections.abc import Container, Iterable, Iterator, Sequence, Set
from dataclasses import replace
from functools import partial
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

from vtkit.data.collections import judgements, load_retrieval
from vtkit.data.document_files import read_corpora
from vtkit.data.overlap import query_key, query_keys
from vtkit.data.retrieval import RetrievalSet
from vtkit.data.sampling import draw
from vtkit.data.sources import default_split, splits_of
from vtkit.data.training_files import is_training_data
from vtkit.evaluation.collection import Collection
from vtkit.pipeline.stage import Corpus, View
from vtkit.recipe.load import load_recipe
from vtkit.settings.named import is_local
from vtkit.settings.recipe import Recipe
from vtkit.settings.vocabulary import TrimmedVocabulary
from vtkit.system import console
from vtkit.system.errors import DataError

EVALUATED = "evaluated queries that finetune.data holds"
PROBED_TEXTS = 10_000  # first texts of a corpus from which probe texts are sampled


_last_opened: list[Collection] = []


def collection_of(corpus: Corpus) -> Collection:
    """The collection that a stage reads. The last one is kept, so that the stages of a run read it once."""
    asked = corpus.name, corpus.split, str(corpus.folder)
    if [(each.name, each.split, each.folder) for each in _last_opened] != [asked]:
        forget_collections()
        _last_opened.append(Collection(*asked))
    return _last_opened[0]


def forget_collections() -> None:
    """Read collections anew, as at the beginning of a run: files may have changed."""
    _last_opened.clear()


def texts_of(settings: tuple[str, ...], recipe: Recipe) -> tuple[Corpus, ...]:
    """The texts that a recipe names by the first of ``settings`` that it gives. If it gives none of them, these are the
    texts of adapt.corpus, else the documents of fine-tuning, else those that are indexed."""
    for setting in (*settings, "adapt.corpus", "finetune.data", "evaluate.sets", "index.documents"):
        names = _given(recipe, setting)
        if names:
            return corpora_of(recipe, (names,) if isinstance(names, str) else names)
    return ()


def _given(recipe: Recipe, setting: str) -> Any:
    """The value of a setting; None where its section is left out or has no such setting."""
    value: Any = recipe
    for name in setting.split("."):
        value = getattr(value, name, None)
    return value


# Processes that train together send these to each other, so that they must be picklable.
adaptation_corpus = partial(texts_of, ())
trimming_corpus = partial(texts_of, ("vocabulary.corpus",))  # texts whose tokens a trimmed vocabulary keeps
calibration_corpus = partial(texts_of, ("calibrate.corpus",))
bias_corpus = partial(texts_of, ("transfer.bias.corpus",))  # texts for the target prior


def head_corpus(recipe: Recipe) -> tuple[Corpus, ...]:
    """Texts whose states a head or units are fitted on: source.corpus, else the texts that trim the vocabulary."""
    return texts_of(("source.corpus", "vocabulary.corpus"), recipe) if recipe.source.fitted else ()


def used_where_left_open(recipe: Recipe) -> dict[str, Any]:
    """The values that stages use for settings that the recipe leaves open, by dotted name."""
    used: dict[str, Any] = {}
    transfer = recipe.transfer
    read = {
        "transfer.bias.corpus": transfer is not None and "transfer.bias.corpus" in transfer.settings_read,
        "source.corpus": recipe.source.fitted,
        "vocabulary.corpus": isinstance(recipe.vocabulary, TrimmedVocabulary),
        "adapt.corpus": recipe.adapt is not None,
        "calibrate.corpus": recipe.calibrate is not None,
    }
    for setting, is_read in read.items():
        instead = ("vocabulary.corpus",) if setting == "source.corpus" else ()
        if is_read and not _given(recipe, setting) and (corpora := texts_of(instead, recipe)):
            used[setting] = [corpus.name for corpus in corpora]
    if transfer is not None and transfer.fallback == "auto" and transfer.reassigns:
        used["transfer.fallback"] = "reassigned"
    if recipe.evaluate is not None and recipe.evaluate.split is None:
        used["evaluate.split"] = {corpus.name: corpus.split for corpus in evaluation_sets(recipe)}
    return used


def evaluation_sets(recipe: Recipe) -> tuple[Corpus, ...]:
    """The collections a recipe is judged on, each with a folder name of its own: the last part of its path, or its
    name without colons."""
    if recipe.evaluate is None:
        return ()
    sets: list[Corpus] = []
    for name in recipe.evaluate.sets:
        folder = distinct(Path(name).name.replace(":", "-"), [corpus.folder for corpus in sets])
        sets.append(Corpus(name, recipe.evaluate.split or default_split(name), folder))
    return tuple(sets)


def indexed_sets(recipe: Recipe) -> tuple[Corpus, ...]:
    """The collections a recipe is judged on, or its index.documents."""
    if recipe.evaluate is None and recipe.index.documents is not None:
        return (Corpus(recipe.index.documents, None, Path(recipe.index.documents).name.replace(":", "-")),)
    return evaluation_sets(recipe)


def distinct(name: str, taken: Container[str | None]) -> str:
    """``name``, ``name-2`` and so on: the first name not already ``taken``."""
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(each for each in names if each not in taken)


def training_queries(recipe: Recipe) -> tuple[Corpus, ...]:
    """The evaluation sets in folders that have queries to choose the weight of the sum with BM25, under those: their
    training queries, else their dev queries.

    Not those that the set is judged on, nor those that the encoder was fine-tuned on (:func:`_same_queries`), by this
    recipe or by one that its source comes from: on queries that it was trained on a model looks better than it is, and
    would get too large a weight.
    """
    return queries_beside(recipe, tuned_collections(recipe))


def queries_beside(recipe: Recipe, tuned: Sequence[Corpus] = ()) -> tuple[Corpus, ...]:
    """For each evaluation set, the first other split whose queries are not those of ``tuned``."""
    beside: list[Corpus] = []
    for corpus in evaluation_sets(recipe) if recipe.evaluate is not None and recipe.evaluate.bm25 else ():
        splits = [split for split in ("train", "dev") if split != corpus.split] if is_local(corpus.name) else []
        others = (replace(corpus, split=split) for split in splits if split in splits_of(corpus.name))
        unseen = (other for other in others if not any(_same_queries(each, other) for each in tuned))
        beside += [*islice(unseen, 1)]
    return tuple(beside)


def with_sources(recipe: Recipe) -> Iterator[Recipe]:
    """``recipe``, the recipe that its source comes from, the one that this one's comes from, and so on."""
    yield recipe
    while recipe.source.recipe is not None:
        recipe = load_recipe(Path(recipe.source.recipe)).recipe
        yield recipe


def tuned_collections(recipe: Recipe) -> tuple[Corpus, ...]:
    """The collections in folders, and the files, that the encoder was fine-tuned on, by this recipe or by one that its
    source comes from, each with its split."""
    tuned = ((each.finetune.data, each.finetune.split) for each in with_sources(recipe) if each.finetune is not None)
    return tuple(
        Corpus(name, split)
        for name, split in tuned
        if is_local(name) and (is_training_data(name) or split in splits_of(name))
    )


def trained_documents(tuned: Iterable[Corpus], name: str, collection: RetrievalSet) -> Set[str]:
    """Ids of the documents of ``collection``, in the folder ``name``, that are relevant to queries that were fine-tuned
    on; in files of training data they are recognised by their texts."""
    trained = set[str]()
    for each in tuned:
        split = str(each.split)
        if is_training_data(each.name):
            data = load_retrieval(each.name, split)
            relevant = {name for judged in data.qrels.values() for name, grade in judged.items() if grade > 0}
            texts = {document.contents.strip() for document in data.documents if document.id in relevant}
            trained |= {document.id for document in collection.documents if document.contents.strip() in texts}
        elif os.path.realpath(each.name) == os.path.realpath(name):
            judged = judgements(each.name, split).values()
            trained |= {document for grades in judged for document, grade in grades.items() if grade > 0}
    return trained


def evaluated_in_training(recipe: Recipe) -> tuple[Corpus, ...]:
    """The evaluation sets that share queries with those that fine-tuning trains or validates on. No other set changes
    how a model is trained."""
    tuning = recipe.finetune
    if tuning is None:
        return ()
    splits = {tuning.split, tuning.validation.split if tuning.validation is not None else None} - {None}
    seen = frozenset[str]().union(*(query_keys(tuning.data, str(split)) for split in splits))
    return tuple(corpus for corpus in evaluation_sets(recipe) if seen & query_keys(corpus.name, str(corpus.split)))


def unevaluated(recipe: View, split: str, purpose: str) -> RetrievalSet:
    """``finetune.data`` under the judgements ``split``, without queries that are evaluated, which are counted."""
    data = load_retrieval(recipe.finetune.data, split)
    if recipe.evaluate is not None and recipe.evaluate.ignore_identical_ids:
        data = replace(data, own_documents=True)
    sets = recipe.corpora(EVALUATED)
    evaluated = frozenset[str]().union(*(query_keys(corpus.name, str(corpus.split)) for corpus in sets))
    shared = {query.id: query.text for query in data.queries if query_key(query.text) in evaluated}
    if not shared:
        return data
    names = " and ".join(str(corpus.folder) for corpus in sets)
    first = console.one_line(next(iter(shared.values())), 60)
    console.warn(
        f"  {len(shared):,} of {len(data.queries):,} queries to {purpose} on are evaluated in {names}, and left out, "
        f'the first "{first}"'
    )
    left = data.under([query for query in data.queries if query.id not in shared])
    if not left.queries:
        raise DataError(f"Every query to {purpose} on is evaluated in {names}. Name other queries in data.")
    return left


def _same_queries(tuned: Corpus, corpus: Corpus) -> bool:
    """Whether queries of ``corpus``, a collection and its split, are in ``tuned``: some in the same folder; elsewhere
    most of their texts, or of their ids, as in translations of a collection."""
    (own, split), (other, tuned_split) = ((each.name, str(each.split)) for each in (corpus, tuned))
    texts, asked = query_keys(own, split), judgements(own, split).keys()
    if 2 * len(texts & query_keys(other, tuned_split)) > len(texts):
        return True
    shared = len(asked & judgements(other, tuned_split).keys())
    return shared > 0 if os.path.realpath(other) == os.path.realpath(own) else 2 * shared > len(asked)


def read_texts(corpora: Iterable[Corpus]) -> Iterator[str]:
    """Texts of corpora, and of the documents in files of training data."""
    for corpus in corpora:
        if corpus.split is None:
            yield from read_corpora([corpus.name])
        else:
            yield from (document.contents for document in load_retrieval(corpus.name, corpus.split).documents)


def probe_texts(corpora: Iterable[Corpus], count: int, seed: int) -> list[str]:
    """``count`` of the first :data:`PROBED_TEXTS` texts: a check takes seconds, however long the corpus is."""
    return draw(islice(read_texts(corpora), PROBED_TEXTS), count, seed)


def corpora_of(recipe: Recipe, names: Iterable[str]) -> tuple[Corpus, ...]:
    """Named texts; training data stand for the documents of their collection."""

    tuning = recipe.finetune
    return tuple(
        Corpus(name, tuning.split if tuning is not None and name == tuning.data and is_training_data(name) else None)
        for name in names
    )

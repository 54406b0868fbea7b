"""Judged collections by name: documents, queries and judgements, read from what :mod:`vtkit.data.sources` finds."""

from collections.abc import Mapping, Sequence, Set
from itertools import compress
from pathlib import Path

from vtkit.data.document_files import documents_of, queries_in
from vtkit.data.judgements import read_judgements
from vtkit.data.parts import PARTS
from vtkit.data.problems import Problems
from vtkit.data.retrieval import Document, Query, RetrievalSet
from vtkit.data.sources import Source, source_of, splits_of
from vtkit.data.training_files import is_training_data, load_training_data
from vtkit.system import console


def load_retrieval(name: str | Path, split: str) -> RetrievalSet:
    """The collection called ``name`` under the judgements ``split``.

    Args:
        name: a folder (:data:`vtkit.data.sources.LAYOUT`), followed by ``:CONFIGURATION`` if it holds several
            collections; a public collection (:data:`vtkit.data.public.PUBLIC`); or training data
            (:mod:`vtkit.data.training_files`).
    """
    if is_training_data(name):
        return load_training_data(name)
    source, problems = source_of(name, *PARTS, split=split), Problems()
    documents = documents_of(source, problems)
    queries = queries_in(source, problems)
    qrels = read_judgements(source.files("qrels"), problems)
    public, lost, ids = source.public, "", {query.id for query in queries}
    if public is not None and not problems.found:
        qrels, lost = _known(qrels, documents, ids)
        if lost:
            console.warn(f"{source.title}: {lost}")
    judged = [query for query in queries if query.id in qrels]
    reasons = tuple(filter(None, [public.sampled if public is not None else "", lost]))
    own = public is not None and public.own_documents
    collection = RetrievalSet(source.title, documents, judged, qrels, not_comparable=reasons, own_documents=own)
    _check_parts(collection, ids, source, problems)
    return collection


def judgements(name: str, split: str) -> Mapping[str, Mapping[str, int]]:
    """Query id -> document id -> grade, of a collection's judgements ``split``; nothing else is read. Empty if there
    are none."""
    if split not in splits_of(name):
        return {}
    return read_judgements(source_of(name, "qrels", split=split).files("qrels"), Problems())


def queries_of(name: str, split: str) -> list[Query]:
    """The queries of a collection that the judgements ``split`` judge, or of training data; documents are read only
    where a file holds both."""
    if is_training_data(name):
        return load_training_data(name).queries
    source, problems = source_of(name, "queries", "qrels", split=split), Problems()
    judged = read_judgements(source.files("qrels"), problems)
    return [query for query in queries_in(source, problems) if query.id in judged]


def _check_parts(collection: RetrievalSet, queries: Set[str], source: Source, problems: Problems) -> None:
    """Raise the ``problems`` of reading a collection, or those of its parts with each other."""
    corpus, *others = source.files()
    corpus = corpus.parent if others else corpus
    queries_file, judgements_file = source.files("queries")[0], source.files("qrels")[0]
    if not problems.found:  # damaged lines would appear again as missing ids
        if not collection.documents:
            problems.add(corpus, "holds no documents")
        elif not any(document.contents for document in collection.documents):
            problems.add(corpus, "holds no text: title and text of every document are empty")
        if not queries:
            problems.add(queries_file, "holds no queries")
        if not collection.qrels:
            problems.add(judgements_file, "holds no judgements")
        elif all(grade <= 0 for judged in collection.qrels.values() for grade in judged.values()):
            problems.add(judgements_file, "judges no document relevant: every grade is 0 or below")
    problems.stop_if_any()
    for query in collection.qrels:
        if query not in queries:
            problems.add(judgements_file, f"query {query!r} is not in {queries_file.name}")
    for query in [query for query in collection.qrels if -1 in collection.by_number(collection.qrels, query)]:
        names = list(collection.qrels[query])
        for name in compress(names, collection.numbers_of(names) < 0):
            problems.add(judgements_file, f"document {name!r} (query {query!r}) is not in {corpus.name}")
    problems.stop_if_any()


def _known(
    qrels: Mapping[str, Mapping[str, int]], documents: Sequence[Document], queries: set[str]
) -> tuple[Mapping[str, Mapping[str, int]], str]:
    """The judgements of existing documents and queries, and a count of the others in words, if there are any."""
    absent = {document for judged in qrels.values() for document in judged}
    absent.difference_update(document.id for document in documents)
    gone = [query for query in qrels if query not in queries]
    if not absent and not gone:
        return qrels, ""
    kept = {
        query: known
        for query, judged in qrels.items()
        if query in queries and (known := {name: grade for name, grade in judged.items() if name not in absent})
    }
    whole, left = (sum(map(len, judgements.values())) for judgements in (qrels, kept))
    return kept, (
        f"{whole - left:,} of {whole:,} judgements left out: {len(gone):,} queries and {len(absent):,} documents are "
        "not in the collection"
    )

"""vtkit's abilities as functions: names or loaded objects in, values out. ``vtkit`` exports them (docs/python.md).

The name of a model, tokenizer or corpus is a folder, a file or a hub id, as on the command line; a loaded object can be
passed instead. Nothing is downloaded from the hub unless ``VTKIT_DOWNLOAD`` is 1.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from vtkit.data.hub import located
from vtkit.pipeline.folder import RunFolder
from vtkit.recipe.problems import section_of
from vtkit.settings.casing import CasingSection
from vtkit.settings.recipe import RecipeSection
from vtkit.system.errors import MissingExtra, RecipeError, machine_errors

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from sentence_transformers import SparseEncoder
    from transformers import PreTrainedTokenizerFast

    from vtkit.data.documents import Document
    from vtkit.data.rows import Columns
    from vtkit.deploy.result import Export
    from vtkit.deploy.target import TargetName
    from vtkit.encoder.calibrated import Calibration
    from vtkit.encoder.casing import CasingChange
    from vtkit.encoder.checkpoint import Layout
    from vtkit.evaluation.comparison import Comparison
    from vtkit.search.changes import Changed
    from vtkit.search.folders import Encoding
    from vtkit.search.results import SearchResult
    from vtkit.search.segments import Manifest
    from vtkit.settings.recipe import Recipe
    from vtkit.settings.transfer import OverlapMode
    from vtkit.transfer.provenance import Origin
    from vtkit.transfer.result import TransferResult
    from vtkit.vocabulary.composition import Han
    from vtkit.vocabulary.corpus_gap import Gap
    from vtkit.vocabulary.fragmentation import Fragmentation
    from vtkit.vocabulary.inspection import InspectedVocabulary
    from vtkit.vocabulary.pair import VocabularyPair
    from vtkit.vocabulary.statistics import Built

Name = str | Path
Texts = str | Path | Iterable[str]  # a corpus by its name, or the texts themselves
Names = Name | Sequence[Name]
Settings = Mapping[str, Any] | Sequence[str]
"""Settings of a recipe: ``{"adapt.steps": 50}``, or ``["adapt.steps=50"]`` as behind ``--set``."""

LOADED = "loaded"  # in a recipe, the name of a loaded object
LONGEST = 512  # tokens at which a text is cut if neither the caller nor the encoder has a limit


@dataclass(frozen=True, eq=False)
class Transfer:
    """An encoder on its new vocabulary, and the origin of its rows."""

    encoder: SparseEncoder
    result: TransferResult  # sizes, overlap by class, rows by method, and the sources of a sample of new tokens
    origins: list[Origin]  # of each token: the source tokens of its row, their weights, and its bias

    def write_provenance(self, path: Name) -> None:
        """Write the origins to ``path``, one row for each token (Parquet), for ``vtkit provenance``."""
        from vtkit.transfer.provenance import write_provenance

        write_provenance(Path(path), self.origins)


def load_encoder(name: Name, *, device: str | None = None) -> SparseEncoder:
    """A sparse encoder, or a masked language model as one, in float32.

    Args:
        name: a folder or a hub id.
        device: where it runs; by default the GPU, if there is one.

    Raises:
        DataError: there is no such model, or it is damaged.
    """
    from vtkit.encoder.model_folder import find_model

    find_model(str(name))  # before imports that take seconds
    from vtkit.encoder.checkpoint import load_encoder as load
    from vtkit.system.runtime import fastest_device

    return load(str(name), device or fastest_device())


def save_encoder(encoder: SparseEncoder, folder: Name, layout: Layout = "head") -> None:
    """Save ``encoder`` for plain ``SparseEncoder(folder)``.

    Args:
        layout: with ``autoencoder``, latent units become the module ``SparseAutoEncoderTokenEncoder`` (and their
            maxima ``SparseTokenPooling``) of sentence-transformers' pull request 3796, which 6.2 does not have.

    Raises:
        RecipeError: ``folder`` exists and is not empty.
        DataError: an encoder that has no such layout.
    """
    from vtkit.encoder.checkpoint import save_encoder as save

    save(encoder, _new_folder(folder), layout)


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Name) -> None:
    """Save ``tokenizer`` for ``AutoTokenizer.from_pretrained(folder)``, including that of transformers 4.

    Raises:
        RecipeError: ``folder`` exists and is not empty.
    """
    from vtkit.vocabulary.saved import save_tokenizer as save

    save(tokenizer, _new_folder(folder))


def _new_folder(name: Name) -> Path:
    folder = Path(name)
    if os.path.lexists(folder) and not (folder.is_dir() and not any(folder.iterdir())):
        raise RecipeError(f"{folder} already exists and will not be overwritten. Choose another name, or remove it.")
    return folder


def encode(
    encoder: Name | SparseEncoder,
    texts: str | Iterable[str],
    *,
    side: Literal["query", "document"] = "document",
    max_length: int | None = None,
    top_dimensions: int | None = None,
) -> csr_matrix:
    """Term weights of ``texts``.

    Args:
        encoder: by name or loaded.
        texts: several texts, or one string.
        side: chooses the prompt, and the half of an asymmetric encoder.
        max_length: tokens at which a text is cut, including special tokens; by default the encoder's own limit.
        top_dimensions: number of the largest weights to keep per text.

    Returns:
        (texts, vocabulary) float32; :func:`dimension_names` names the columns.

    Raises:
        DataError: an entry of ``texts`` is not a string.
        RecipeError: there is no such side.
    """
    from vtkit.data.text import as_texts
    from vtkit.encoder.sides import encode_side

    listed, side = list(as_texts(texts, "texts")), _side(side)
    loaded = load_encoder(encoder) if isinstance(encoder, str | Path) else encoder
    length = max_length or loaded.max_seq_length or LONGEST
    return encode_side(loaded, listed, side, length, top_dimensions=top_dimensions)


def encode_texts(
    encoder: Name, texts: Name, folder: Name, *, columns: Columns | None = None, **settings: Any
) -> Encoding:
    """Encode the texts of a file or folder into vectors on disk, in parts that survive a kill.

    Args:
        encoder: its name, which is kept in the folder; or the folder of a run, for its final model. The settings of
            the run (``[index]``) are the defaults of those here and of :func:`index_vectors`.
        texts: documents or queries, as for ``vtkit encode``.
        folder: is created; it must not exist. Until it is complete, parts are kept beside it, and an equal call
            continues with them.
        columns: of a table that hold id, title and text; by default they are recognised by their names.
        settings: those of ``vtkit encode``:

            - ``side``, ``"document"`` (the default) or ``"query"``, chooses the prompt, and the half of an asymmetric
              encoder.
            - ``max_length``: tokens at which a text is cut; by default those of the run, else 256, and 64 for queries.
            - ``top_dimensions``: number of the largest weights to keep per text.
            - ``mass``: share of the sum of a document's weights to keep; by default that of ``index.mass``. Not for
              queries.
            - ``precision`` of the encoder's matrix products, ``float32`` (the default without a run) or ``bf16``.
            - ``passages``: settings of ``[index.passages]``, such as ``{"words": 200}``: documents are cut into
              passages, each of which is encoded. Not for queries.
            - ``part``: ``"3/16"`` encodes one of sixteen parts, which several processes can share; ``folder`` is not
              created yet.
            - ``join``: encode nothing, and create ``folder`` from this number of parts; the vectors equal those of a
              call without parts.

    Returns:
        The counts of the vectors (with ``part``, of the part), and the share that pruning removed.

    Raises:
        DataError: the texts cannot be read, or parts to be joined are missing.
        RecipeError: the folder exists, there is no such setting, side or part, or a setting of documents is given for
            queries.
    """
    from vtkit.data.document_files import read_document_file, read_queries_as_documents
    from vtkit.data.executors import start_early
    from vtkit.data.rows import RECOGNISED
    from vtkit.data.shards import Part
    from vtkit.pipeline.search import OF_A_RUN, encoder_settings
    from vtkit.search.folders import encode_folder
    from vtkit.settings.encode import EncodeSettings
    from vtkit.settings.index import IndexSection
    from vtkit.system.outputs import held, new_folder, refuse_existing

    given = section_of(EncodeSettings, settings, refused="The settings cannot be used:")
    part = Part.of_settings(given)
    out, is_document = Path(folder), given.side == "document"
    encoder, own_index, language = encoder_settings(str(encoder))
    index = own_index or IndexSection()
    if given.passages is not None:
        index = index.model_copy(update={"passages": given.passages})
    of_run = {} if own_index is None else own_index.model_dump(mode="json", exclude=OF_A_RUN)
    of_run |= index.model_dump(mode="json", include={"passages"})
    read = read_document_file if is_document else read_queries_as_documents
    documents = read(str(texts), columns or RECOGNISED)
    shards = out.absolute().with_name(f".{out.name}.parts")

    with ExitStack() as stack:
        if part is None or part.number is None:
            work = stack.enter_context(new_folder(out))
        else:
            refuse_existing(work := out)
            stack.enter_context(machine_errors(out.absolute()))
            shards.mkdir(parents=True, exist_ok=True)
            stack.enter_context(held(shards / f"part-{part.number}-of-{part.of}.lock", f"part {given.part} of {out}"))
        start_early("vtkit.search.sharded_encoding")
        loaded = load_encoder(encoder)
        from vtkit.search.sharded_encoding import EncodeTexts  # takes seconds

        encoding, cut = EncodeTexts.of(loaded, index, given), index.passages if is_document else None
        return encode_folder(
            encoding, encoder, documents, work, shards, passages=cut, part=part, run=of_run, language=language
        )


def executed_by(**settings: Any) -> AbstractContextManager[None]:
    """Compute the parts of collections in the block in other processes or on other machines: shards of texts that are
    encoded or expanded, blocks whose words are counted. Processes with equally many threads give equal bytes.

    ::

        with vtkit.executed_by(executor="processes", workers=2):
            vtkit.encode_texts("naver/splade-v3", "collection", "vectors")

    Args:
        settings: of ``[run]`` (docs/settings.md).

    Raises:
        RecipeError: there is no such setting.
    """
    from vtkit.data.executors import executed_by as executed
    from vtkit.settings.run import RunSection

    return executed(section_of(RunSection, settings, refused="The settings of [run] cannot be used:"))


def expand_documents(
    expander: Name, texts: Name, folder: Name, *, language: str = "en", max_length: int = 256, **settings: Any
) -> tuple[int, float]:
    """Add the likely words of their queries to documents, and write them as ``folder/corpus.jsonl``.

    Args:
        expander: name of the model that ``[expand_documents]`` trained, ``RUN/expander``.
        texts: documents, as for ``vtkit encode``.
        folder: is created; it must not exist.
        language: its stop words are not added.
        max_length: tokens of a document that the encoder will read, including the added words.
        settings: of ``[expand_documents]`` (docs/settings.md): ``keep=40``.

    Returns:
        The number of documents, and the mean number of words added to one.

    Raises:
        DataError: the texts cannot be read, or the model cannot expand them.
        RecipeError: there is no such setting, or the folder exists.
    """
    from vtkit.data.document_files import read_document_file, write_documents
    from vtkit.settings.expand_documents import ExpandDocumentsSection
    from vtkit.system.outputs import new_folder

    section = section_of(ExpandDocumentsSection, settings, refused="The settings of [expand_documents] cannot be used:")
    documents = read_document_file(str(texts))
    with new_folder(Path(folder)) as work, TemporaryDirectory(prefix=".tokens-", dir=work) as tokens:
        encoder = load_encoder(expander)
        from vtkit.training.document_expansion.expansions import expansion_words, with_words  # takes seconds

        contents = [document.contents for document in documents]
        words = expansion_words(encoder, contents, section, language, Path(tokens))
        expanded = with_words(contents, words, encoder.tokenizer, max_length)
        written = [replace(document, title="", text=text) for document, text in zip(documents, expanded, strict=True)]
        write_documents(written, work / "corpus.jsonl")
    return len(documents), sum(map(len, words)) / len(words)


def index_vectors(
    vectors: Name, folder: Name, *, language: str | None = None, collection: str | None = None, **settings: Any
) -> Manifest:
    """Index documents that :func:`encode_texts` wrote, or copy the index of a run; :func:`search_run` opens the index's
    folder, and :func:`add_documents` changes it.

    Args:
        vectors: their folder; or that of a run, whose settings the index keeps. Files are linked, not copied, if
            possible.
        folder: is created; it must not exist.
        collection: evaluation set of the run; None for the first.
        language: ISO 639 code, for ``lexical="bm25"``; None: that of the run that the encoder comes from, else detected
            from the texts.
        settings: of ``[index]`` (docs/settings.md): ``engine="lucene"``, ``query_length=32``,
            ``url="http://localhost:19530"``. Others are those of the run.

    Raises:
        DataError: ``vectors`` is damaged, or no such folder.
        MissingExtra: a package that the engine needs is not installed.
        RecipeError: there is no such setting or engine, a setting is given for a run, the folder exists, or BM25's
            language cannot be detected.
    """
    from vtkit.data.document_files import DOCUMENTS, read_document_file
    from vtkit.evaluation.fusion_queries import beside_bm25
    from vtkit.pipeline.folder import is_run_folder
    from vtkit.pipeline.search import searched
    from vtkit.search.folders import copy_index, index_folder, read_encoding
    from vtkit.settings.index import IndexSection
    from vtkit.system.outputs import new_folder

    place = Path(vectors)
    if is_run_folder(place):
        if settings or language is not None:
            raise RecipeError(f"{place} is a run: its index has the settings of its recipe. Give none here.")
        with new_folder(Path(folder)) as work:
            return copy_index(*searched(place, model=None, collection=collection), work)
    if collection is not None:
        raise RecipeError(f"{place} is not a run: collection is for runs.")
    encoding = read_encoding(place)
    if encoding.model is None:
        raise RecipeError(f"{place} belongs to a run. Name the run.")
    for name, kept in (("passages", None), ("mass", encoding.mass)):
        if settings.get(name) not in (None, "auto", kept):
            raise RecipeError(f"index.{name} is applied when documents are encoded: vtkit encode --{name}, or {name}=.")
    if language is not None:
        section_of(RecipeSection, {"name": "index", "language": language})  # which knows the codes
    given, language = {**encoding.run, **settings, "mass": encoding.mass}, language or encoding.language
    index = section_of(IndexSection, given, refused="The settings of [index] cannot be used:")
    encoder, documents = load_encoder(encoding.model), read_document_file(str(place / DOCUMENTS))
    fusion = None if index.lexical == "none" else partial(beside_bm25, encoder, documents, index, language)
    with new_folder(Path(folder)) as work:
        return index_folder(place, work, index, encoder, documents, fusion)


def add_documents(index: Name, documents: Name | Sequence[Document], *, columns: Columns | None = None) -> Changed:
    """Add documents to an index; they take the places of those with their ids. Only they are encoded, and the index
    then equals one built anew from all documents, with the weights of encoder and BM25 that it was made with.

    Args:
        index: folder that :func:`index_vectors` or ``vtkit build`` made. Other processes that change it are waited for.
        documents: as for ``vtkit add``, or the documents themselves, which have different ids without white space.
        columns: of a table that hold id, title and text; by default they are recognised by their names.

    Returns:
        The counts, the drift of the new documents, and reasons to build the index again.

    Raises:
        DataError: the documents cannot be read, or the index cannot change.
        MachineError: there is no room; the index is as it was.
        RecipeError: ``index`` is no such folder.
    """
    from vtkit.data.document_files import read_document_file
    from vtkit.data.rows import RECOGNISED
    from vtkit.search.changes import add_documents as add

    if isinstance(documents, str | Path):
        documents = read_document_file(str(documents), columns or RECOGNISED)
    return add(Path(index), documents)


def delete_documents(index: Name, ids: Collection[str] = (), *, where: str | None = None) -> Changed:
    """Delete documents from an index.

    Args:
        index: as for :func:`add_documents`.
        ids: their ids; unknown ones are warned of.
        where: a condition on the fields of further documents (docs/data.md#fields).

    Raises:
        DataError: no document is meant, or no other would be left.
        RecipeError: ``index`` is no such folder, or the condition cannot be used.
    """
    from vtkit.search.changes import delete

    return delete(Path(index), [ids] if isinstance(ids, str) else ids, where)


def merge_segments(index: Name) -> Changed:
    """Merge the segments of an index into one without deleted documents, and derive the files that a search reads
    anew."""
    from vtkit.search.changes import merge

    return merge(Path(index))


def export_for(
    source: Name,
    target: TargetName,
    folder: Name,
    *,
    queries: Name | None = None,
    top_dimensions: int | None = None,
    model: str | None = None,
    collection: str | None = None,
) -> Export:
    """Export a model and its index to a search engine (docs/export.md).

    Args:
        source: folder of a run, or one that :func:`index_vectors` made, or an encoder's name.
        target: the engine.
        folder: is created; it must not exist.
        queries: file of queries whose expected results are kept for a comparison with the engine; by default the first
            words of documents.
        top_dimensions: number of a document's largest weights to keep.
        model, collection: as in :func:`search_run`.

    Raises:
        DataError: the engine cannot hold the model or its weights.
        MissingExtra: a package is not installed.
        RecipeError: there is no such target, or the folder exists.
        VtkitError: no such run, model or collection, or the network cannot be written as ONNX.
    """
    from importlib import import_module
    from typing import get_args

    from vtkit.data.document_files import read_query_file
    from vtkit.deploy.target import TargetName
    from vtkit.pipeline.folder import is_run_folder
    from vtkit.pipeline.search import searched
    from vtkit.search.folders import candidates_of
    from vtkit.search.searcher import Searcher
    from vtkit.search.segments import is_index_folder
    from vtkit.settings.engines import not_installed
    from vtkit.settings.index import IndexSection
    from vtkit.system.outputs import refuse_existing

    if target not in get_args(TargetName):
        raise RecipeError(f"there is no target {target!r}. There are {', '.join(get_args(TargetName))}.")
    refuse_existing(Path(folder))
    if missing := not_installed([("onnx", "onnx"), ("onnxruntime", "onnxruntime")]):  # before anything is loaded
        raise MissingExtra("An export", " and ".join(missing), "onnx")
    asked = [query.text for query in read_query_file(str(queries))] if queries is not None else []
    place = Path(source)
    if is_run_folder(place) or is_index_folder(place):
        home, manifest = searched(place, model=model, collection=collection)
        searcher, name, settings = Searcher.load(home, manifest), str(manifest.model), manifest.index
        candidates = candidates_of(home, manifest)
    elif model is not None or collection is not None:
        raise RecipeError(f"{source} is not a run: model and collection are for runs.")
    else:
        searcher, name, settings, candidates = None, located(str(source)), IndexSection(), None
    encoder = load_encoder(name, device="cpu")
    from vtkit.deploy.export import export  # takes seconds
    from vtkit.deploy.portable import QUERIES, Source, first_words

    engine, beside = import_module(f"vtkit.deploy.{target}").TARGET, None
    if engine.own_bm25 and searcher is not None and searcher.lexical is None:
        from vtkit.data.sequences import Lazy
        from vtkit.evaluation.fusion_queries import weight_beside_bm25

        documents = Lazy(len(searcher.documents), searcher.documents.__getitem__)
        beside = weight_beside_bm25(encoder, documents, settings)
    longest = min(settings.document_length, encoder.max_seq_length or settings.document_length)
    texts = tuple(asked[:QUERIES]) or first_words(encoder, searcher)
    of = Source(
        place.absolute().name, encoder, searcher, texts, settings.query_length, longest,
        candidates, settings.top_dimensions, beside,
    )  # fmt: skip
    return export(of, engine, Path(folder), top_dimensions)


def transfer_encoder(
    source: Name | SparseEncoder,
    target: Name | PreTrainedTokenizerFast,
    *,
    method: str | Sequence[str] = "auto",
    corpus: Names = (),
    settings: Settings = (),
    seed: int = 42,
    work_folder: Name | None = None,
    **given: Names | None,
) -> Transfer:
    """Move an encoder onto another vocabulary (docs/transfer.md), with the checks of a run (docs/transfer.md#gates).

    Args:
        source: the encoder, which is not changed. The new one is on the CPU.
        target: the tokenizer with the vocabulary to use, or a specification of one (``.toml``).
        method: one method, or several; the first one with evidence for a token makes its row.
        corpus: target text, whose token frequencies determine the decoder bias; without it, the bias is mixed like the
            rows.
        settings: further settings of [transfer], [casing] and [gates] (docs/settings.md).
        seed: of a method's random draws.
        work_folder: for intermediate files; by default the system's folder for temporary files.
        given: the methods' other inputs, by the names of their settings: ``parallel`` (files of parallel text),
            ``embedder``, ``target_embeddings``, ``vectors``, ``source_vectors``, ``dictionary``.

    Raises:
        RecipeError: invalid settings or missing files; all at once.
        DataError: source and target do not match, or a file is damaged.
        CollapseError: a check failed: the encoder would not work.
    """
    from vtkit.recipe.checks import check_data, check_names
    from vtkit.recipe.load import load_recipe as load
    from vtkit.recipe.tables import takes_several
    from vtkit.recipe.write import toml_value
    from vtkit.settings.transfer import ARGUMENTS, METHODS

    path, texts = Path("vtkit transfer"), _names(corpus)
    listed = [method] if isinstance(method, str) else list(method)
    asked: dict[str, Any] = {"recipe.name": "transfer", "recipe.seed": seed, "vocabulary.kind": "existing"}
    asked |= {"transfer.method": listed if len(listed) > 1 else listed[0], "transfer.bias.corpus": texts}
    asked |= {} if texts else {"transfer.bias.method": "mixture"}
    for name, things in given.items():  # to each method what it has a setting for
        if name not in ARGUMENTS:
            raise RecipeError(f"transfer has no argument {name!r}. Its arguments are {', '.join(ARGUMENTS)}.")
        for own, setting in ARGUMENTS[name] if things else ():
            several = takes_several(METHODS[own].model_fields[setting])
            asked[f"transfer.{own}.{setting}"] = _names(things) if several else str(things)  # type: ignore[arg-type]
    with TemporaryDirectory(prefix=".vtkit-transfer-", dir=work_folder) as work:
        if not isinstance(source, str | Path):
            save_encoder(source, Path(work, "source"))
            source = Path(work, "source")
        if not isinstance(target, str | Path):
            save_tokenizer(target, Path(work, "target"))
            target = Path(work, "target")
        asked |= {"source.model": located(str(source)), "vocabulary.tokenizer": located(str(target))}
        text = "\n".join(f"{setting} = {toml_value(value)}" for setting, value in asked.items())
        recipe = load(path, _overrides(settings), text=text).recipe
        check_names(recipe, path=path)
        check_data(recipe, path=path)
        import torch  # and others that take seconds

        from vtkit.pipeline.plan import Plan
        from vtkit.pipeline.store import Store, result_of
        from vtkit.transfer.provenance import PROVENANCE, read_provenance
        from vtkit.transfer.result import TransferResult

        store = Store(Path(work, "artifacts"))
        store.prepare()
        plan = Plan(recipe, store)
        outputs = {name: store.folder(step.dependencies) for name, step in plan.steps.items()}
        with torch.random.fork_rng():
            for step in [decision.step for decision in plan.decide({}, until="transfer")]:
                inputs = {role: outputs[other] for role, other in step.inputs.items()}
                make = partial(step.stage.function, step.view, inputs)
                store.build(step.dependencies, step.stage.result, make, afresh=False)
        moved = outputs["transfer"]
        encoder = load_encoder(moved / "model", device="cpu")
        return Transfer(encoder, result_of(moved, TransferResult), read_provenance(moved / PROVENANCE))


def calibrate_encoder(encoder: SparseEncoder, corpus: Texts, *, seed: int = 42, **settings: Any) -> Calibration:
    """Shift the logits of ``encoder``, in place (docs/training.md#calibration).

    Args:
        encoder: is changed.
        corpus: probe texts; half of the sample solves for the target, the other half measures the change.
        seed: of the sample.
        settings: of [calibrate] (docs/settings.md): ``target_activation=0.01``. Query tables are made
            with :func:`with_static_queries`.

    Raises:
        RecipeError: an invalid setting.
        DataError: too few texts, or an encoder with separate queries.
    """
    from vtkit.pipeline.steps.calibrate_head import calibrate_encoder as calibrate
    from vtkit.settings.calibrate import CalibrateSection

    section = section_of(CalibrateSection, settings, refused="the encoder cannot be calibrated like this:")
    return calibrate(encoder, _texts(corpus), section, seed)


def with_static_queries(encoder: SparseEncoder, kind: Literal["binary", "idf"], corpus: Texts = ()) -> SparseEncoder:
    """``encoder`` with a static query table: queries need no model, each token's weight comes from the table. Its
    modules are shared.

    Args:
        encoder: its document side is kept.
        kind: ``binary``: every token has the weight 1 (SPLADE-doc). ``idf``: ln(1 + (N − N_t + ½) / (N_t + ½)); N_t of
            N texts contain token t (arXiv:2411.04403).
        corpus: the documents, for ``idf``.

    Raises:
        DataError: ``idf`` without texts; token ids with gaps, which sentence-transformers' tables do not support.
    """
    from vtkit.encoder.query_tables import with_static_queries as with_table

    return with_table(encoder, kind, _texts(corpus))


def change_casing(encoder: SparseEncoder, **settings: Any) -> CasingChange:
    """Give ``encoder`` a casing policy, in place and without training (docs/casing.md).

    Args:
        encoder: is changed.
        settings: of [casing] (docs/settings.md): ``output="mask"``, ``input="lowercase"``.

    Raises:
        RecipeError: an invalid setting, such as ``map`` without lower-cased input.
    """
    from vtkit.encoder.casing import change_encoder

    return change_encoder(encoder, _casing(settings))


def change_tokenizer_casing(
    tokenizer: Name | PreTrainedTokenizerFast, **settings: Any
) -> tuple[PreTrainedTokenizerFast, CasingChange]:
    """A copy of a tokenizer with a casing policy, and its changes; see :func:`change_casing`.

    Raises:
        RecipeError: an invalid setting, such as ``map`` without lower-cased input.
    """
    from vtkit.encoder.casing import CasingChange, change_tokenizer

    casing = _casing(settings)
    output: Literal["map"] | None = "map" if casing.output == "map" else None
    changed, renamed, unreached = change_tokenizer(_tokenizer(tokenizer), casing)
    change = CasingChange(casing.input, output, renamed_tokens=len(renamed), not_reached_by_text=len(unreached))
    return changed, change


def _casing(settings: Mapping[str, Any]) -> CasingSection:
    return section_of(CasingSection, settings, refused="the casing cannot be changed like this:")


def train_tokenizer(corpus: Texts, *, lowercase: bool = False, language: str | None = None, **settings: Any) -> Built:
    """A vocabulary learned from a corpus; the same texts in the same order give the same bytes (docs/vocabulary.md).

    Args:
        corpus: the training texts.
        lowercase: whether the tokenizer lower-cases its input, and
        language: in which language (``tr``, ``az``: I becomes ı).
        settings: of [vocabulary] kind = "trained" (docs/settings.md): ``size=8000``, ``split="scripts"``.

    Raises:
        RecipeError: invalid settings.
        DataError: the corpus cannot be read, or the vocabulary cannot be learned from it.
    """
    from vtkit.settings.vocabulary import TrainedVocabulary
    from vtkit.vocabulary.specification import build

    values = {**settings, "kind": "trained", "corpus": (LOADED,)}
    section = section_of(TrainedVocabulary, values, refused="a vocabulary cannot be trained like this:")
    return build(
        section, _casing({"input": "lowercase" if lowercase else "keep", "language": language}), _texts(corpus)
    )


def build_tokenizer(specification: Name, settings: Settings = ()) -> Built:
    """The tokenizer of a specification (a TOML file), overridden by ``settings`` (docs/vocabulary.md).

    Raises:
        RecipeError: all problems of the specification, with file, line and setting.
        DataError: a corpus cannot be read, or the vocabulary cannot be learned from it.
    """
    from vtkit.recipe.checks import check_names
    from vtkit.recipe.load import load_specification
    from vtkit.vocabulary.specification import build

    loaded, places = load_specification(Path(specification), _overrides(settings))
    check_names(loaded, path=Path(specification), places=places)
    return build(loaded.vocabulary, loaded.casing)


def expand_tokenizer(
    tokenizer: Name | PreTrainedTokenizerFast,
    corpus: Texts,
    *,
    lowercase: bool = False,
    language: str | None = None,
    **settings: Any,
) -> Built:
    """A tokenizer extended by the tokens that a corpus needs most (AdaLM, docs/vocabulary.md).

    Args:
        tokenizer: WordPiece or byte-level BPE, by name or loaded.
        corpus: text of the domain.
        lowercase: make the tokenizer lower-case its input first, and
        language: in which language (``tr``, ``az``: I becomes ı).
        settings: of [vocabulary] kind = "expanded" (docs/settings.md): ``increment=1000``, ``stop="entropy-gain"``.

    Raises:
        RecipeError: invalid settings.
        DataError: the corpus or the tokenizer cannot be read, or the tokenizer cannot be expanded.
    """
    from vtkit.settings.vocabulary import ExpandedVocabulary
    from vtkit.vocabulary.expanded import expand_vocabulary

    named = str(tokenizer) if isinstance(tokenizer, str | Path) else LOADED
    values = {**settings, "kind": "expanded", "tokenizer": named, "corpus": (LOADED,)}
    section = section_of(ExpandedVocabulary, values, refused="a vocabulary cannot be expanded like this:")
    casing = _casing({"input": "lowercase" if lowercase else "keep", "language": language})
    return expand_vocabulary(_tokenizer(tokenizer), _texts(corpus), section, casing)


def load_recipe(path: Name, settings: Settings = ()) -> Recipe:
    """The recipe in a TOML file, overridden by ``settings``.

    Raises:
        RecipeError: all problems of the recipe, with file, line and setting.
    """
    from vtkit.recipe.load import load_recipe as load

    return load(Path(path), _overrides(settings)).recipe


def run_recipe(
    path: Name,
    settings: Settings = (),
    *,
    runs: Name = "runs",
    until: str | None = None,
    start: str | None = None,
    force: Sequence[str] = (),
    threads: int | None = None,
) -> RunFolder:
    """Run a recipe, or continue a run, like ``vtkit run`` (docs/running.md).

    Args:
        path: the TOML file.
        settings: override those of the file.
        runs: folder of all runs.
        until: last stage to run.
        start: first stage to run again, with all that follow.
        force: stages to run again.
        threads: CPU threads; all cores by default.

    Raises:
        RecipeError: the recipe or an argument is invalid; nothing was changed.
        CollapseError: a check failed, or a training collapsed.
    """
    from vtkit.pipeline.folder import open_run
    from vtkit.pipeline.run import run

    overrides = tuple(_overrides(settings))
    folder = run(Path(path), overrides, runs=Path(runs), until=until, start=start, force=tuple(force), threads=threads)
    return open_run(folder)


def search_run(
    run: Name | RunFolder,
    queries: str | Sequence[str],
    *,
    top: int = 10,
    offset: int = 0,
    where: str | None = None,
    model: str | None = None,
    collection: str | None = None,
    query_language: str | None = None,
) -> list[list[SearchResult]]:
    """Search the index of a run.

    Args:
        run: its folder, or one that :func:`index_vectors` made.
        queries: several queries, or one string.
        top: results per query.
        offset: results to leave out before these.
        where: a condition on the fields of documents, such as ``"year >= 2020"`` (docs/data.md#fields).
        model: stage whose model and index to use; the final one by default.
        collection: evaluation set; the first by default.
        query_language: language of the queries (``en``), if it is the source's instead of the documents'.

    Returns:
        The results of each query, best first; none if the query shares no term with any document.

    Raises:
        RecipeError: ``top`` is below 1.
        VtkitError: no such run, model or collection, or an entry of ``queries`` is not a string.
    """
    from vtkit.data.text import as_texts
    from vtkit.pipeline.search import open_searcher
    from vtkit.system import console

    if top < 1:
        raise RecipeError(f"top must be at least 1, not {top}.")
    listed = list(as_texts(queries, "queries"))
    folder = run.folder if isinstance(run, RunFolder) else Path(run)
    searcher = open_searcher(folder, model=model, collection=collection, query_language=query_language)
    found = list(searcher.search(listed, top, skip=offset, where=where))
    for warning in [warning for of_query in found for warning in of_query.warnings]:
        console.warn(warning)
    return [list(of_query.results) for of_query in found]


def evaluate(systems: Names, collections: Names, *, out: Name | None = None, **settings: Any) -> Comparison:
    """Evaluate systems on collections, with intervals and paired tests against one of them.

    Args:
        systems: sparse encoders and dense embedders, ``bm25``, ``bm25-words``, ``MODEL+bm25``, runs, indexes of
            :func:`index_vectors`, TREC run files.
        collections: folders or names.
        out: folder for ``results.json``, run files and values by query.
        settings: of :class:`~vtkit.settings.evaluate.ComparisonSettings`, such as ``measures=["nDCG@10"]`` or
            ``language="ko"``, and of ``[index]``, such as ``document_length=128``.

    Raises:
        RecipeError: all problems of names, settings, measures, collections and run files, before anything is encoded.
    """
    from vtkit.pipeline.evaluate import evaluate_named
    from vtkit.settings.evaluate import ComparisonSettings
    from vtkit.settings.index import IndexSection

    own = {name: settings.pop(name) for name in ComparisonSettings.model_fields.keys() & settings.keys()}
    how = section_of(ComparisonSettings, own, refused="These settings cannot be used:")
    index = section_of(IndexSection, settings, refused="The settings of [index] cannot be used:") if settings else None
    return evaluate_named(_names(systems), _names(collections), how, index, None if out is None else Path(out))


def overlap(
    source: Name | PreTrainedTokenizerFast, target: Name | PreTrainedTokenizerFast, mode: OverlapMode = "exact+symbols"
) -> VocabularyPair:
    """Two vocabularies, and the tokens of the second that the first also has
    (docs/vocabulary.md#overlap-of-two-vocabularies).

    ``overlap(a, b).overlap`` has the share, the counts by class and the pairs of ids.
    """
    from vtkit.vocabulary.pair import pair_of

    return pair_of(_tokenizer(source), _tokenizer(target), mode)


def inspect_vocabulary(
    tokenizer: Name | PreTrainedTokenizerFast, *, name: str | None = None, languages: str = "all", han: Han = "zh"
) -> InspectedVocabulary:
    """The composition of a vocabulary (docs/vocabulary.md#inspect-a-vocabulary).

    Args:
        tokenizer: by name or loaded.
        name: for the results.
        languages: to distinguish: ``all``, ``sembridge``, or codes separated by commas.
        han: the language of Han characters that Chinese, Japanese and Korean share.
    """
    from vtkit.vocabulary.composition import parse_languages
    from vtkit.vocabulary.inspection import inspect_vocabulary as inspect

    called = name or (str(tokenizer) if isinstance(tokenizer, str | Path) else "vocabulary")
    return inspect(_tokenizer(tokenizer), called, parse_languages(languages), han)


def fragmentation(
    corpus: Texts,
    tokenizers: Name | Sequence[Name] | Mapping[str, Name | PreTrainedTokenizerFast],
    *,
    queries: Texts | None = None,
    punctuation: Literal["keep", "cut"] = "keep",
    by_language: bool = False,
    top: int = 20,
) -> list[Fragmentation]:
    """The fragmentation of a corpus by tokenizers: tokens per word, split words, unknown and lost characters
    (docs/vocabulary.md).

    Args:
        corpus: read once.
        tokenizers: names, or a mapping of labels to names or loaded tokenizers.
        queries: texts that are also grouped by whether one of their words is split.
        punctuation: whether punctuation inside a white-space word ends it.
        by_language: detect the language of each text, if its script has several.
        top: entries in the lists of words and of unknown characters.

    Raises:
        DataError: there is no text, or a tokenizer is not available.
    """
    from vtkit.vocabulary.fragmentation import language_groups, measure_fragmentation
    from vtkit.vocabulary.words import script_of_text

    if not isinstance(tokenizers, Mapping):
        tokenizers = {name: name for name in _names(tokenizers)}
    return measure_fragmentation(
        _texts(corpus),
        {name: _tokenizer(tokenizer) for name, tokenizer in tokenizers.items()},
        queries=None if queries is None else _texts(queries),
        punctuation=punctuation,
        group_of=language_groups() if by_language else script_of_text,
        top=top,
    )


def corpus_gap(
    first: Texts,
    second: Texts,
    *,
    language: str | None = None,
    punctuation: Literal["keep", "cut"] = "keep",
    top: int = 20,
    seed: int = 0,
) -> Gap:
    """The distance between the words of two corpora (docs/vocabulary.md#the-gap-between-two-corpora).

    Args:
        first: the model's corpus.
        second: the corpus to search.
        language: code, if it matters for lower-casing.
        punctuation: whether punctuation inside a white-space word ends it.
        top: typical words to list per corpus.
        seed: of the sample that the similarity is compared with.

    Raises:
        DataError: a corpus cannot be read, or has no words.
    """
    from vtkit.vocabulary.corpus_gap import measure_gap

    return measure_gap(_texts(first), _texts(second), language=language, punctuation=punctuation, top=top, seed=seed)


def _texts(corpus: Texts) -> Iterable[str]:
    if isinstance(corpus, str | Path):
        from vtkit.data.document_files import read_corpus

        return read_corpus(corpus)
    from vtkit.data.text import as_texts

    return list(as_texts(corpus, "corpus")) if isinstance(corpus, Sequence) else as_texts(corpus, "corpus")


def _side(side: Literal["query", "document"]) -> Literal["query", "document"]:
    if side not in ("query", "document"):
        raise RecipeError(f'side must be "query" or "document", not {side!r}.')
    return side


def _tokenizer(tokenizer: Name | PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    from vtkit.vocabulary.existing import load_tokenizer

    return load_tokenizer(tokenizer) if isinstance(tokenizer, str | Path) else tokenizer


def _names(names: Names) -> list[str]:
    return [str(names)] if isinstance(names, str | Path) else [str(name) for name in names]


def _overrides(settings: Settings) -> list[str]:
    """``settings`` as for ``--set``."""
    from vtkit.recipe.write import toml_value

    if isinstance(settings, str):
        raise RecipeError(f"settings must be a dictionary or a list, not the string {settings!r}.")
    if not isinstance(settings, Mapping):
        return list(settings)
    return [f"{name}={toml_value(value)}" for name, value in settings.items() if value is not None]

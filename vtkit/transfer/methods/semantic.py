"""New tokens as sparse mixtures of the shared tokens nearest to them in the space of the model that owns the target
vocabulary (the vocabulary-transfer paper's semantic initialisation), by its table of a vector for each token."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vtkit.data.hub import read_json
from vtkit.encoder.model_folder import find_model, library_errors
from vtkit.settings.transfer import SemanticTransfer
from vtkit.system import console
from vtkit.system.errors import DataError
from vtkit.transfer.mixture import Mixture, Texts, mixture_of_parts
from vtkit.transfer.similarity import similarity_part
from vtkit.transfer.word_space import unit
from vtkit.vocabulary.existing import load_tokenizer
from vtkit.vocabulary.forms import Vocabulary
from vtkit.vocabulary.pair import VocabularyPair

STATIC_TABLES = ("embedding.weight", "embeddings")  # what sentence-transformers and model2vec call a static table


Table = tuple[Vocabulary, NDArray[np.float32]]
"""A vocabulary, and the vectors of its tokens, (vocabulary or more, width)."""


def mixture(pair: VocabularyPair, settings: SemanticTransfer, texts: Texts, seed: int) -> Mixture:
    """:func:`table_mixture` by the model of the recipe."""
    name = str(settings.target_embeddings)
    return table_mixture(pair, load_table(name), settings.alpha, name)


def table_mixture(pair: VocabularyPair, table: Table, alpha: float = 4.0, name: str = "the table") -> Mixture:
    """Each new token as ``Σ_u α-entmax(cos(Ẽ_t, Ẽ_u)) E_u`` over the shared tokens ``u``, special tokens aside.

    The vocabulary-transfer paper (SIGIR 2026) has α = 2 and a table over exactly the target vocabulary. Here rows are
    matched by what a token stands for; a new token without a row becomes the mean of all rows.

    Args:
        name: of the table, for messages.
    """
    overlap, (vocabulary, vectors) = pair.overlap, table
    new = overlap.new_ids
    if not len(new):
        return mixture_of_parts(pair)
    forms = pair.target.forms
    row_of = {form: row for row, form in reversed(list(enumerate(vocabulary.forms))) if form}
    rows = np.array([row_of.get(form, -1) if form is not None else -1 for form in forms])
    plain = np.array([form is not None for form in forms])
    if not np.isfinite(vectors).all():
        bad = int((~np.isfinite(vectors).all(axis=1)).sum())
        raise DataError(
            f"target embeddings {name}: {bad} of {len(vectors)} vectors are not finite (NaN or infinite). The "
            "file is damaged; fetch it again."
        )
    has = rows >= 0
    has[has] = vectors[rows[has]].any(axis=1)
    ids, anchors = new[has[new]], overlap.overlap_ids[has[overlap.overlap_ids]]
    if not len(ids) or not len(anchors):
        whose = "new tokens" if not len(ids) else "tokens that both vocabularies share"
        raise DataError(
            f"target embeddings {name} belong to another vocabulary ({len(vocabulary)} tokens): they have "
            f"vectors for {int((rows >= 0).sum())} of the {int(plain.sum())} target tokens, and for none of the "
            f"{whose}. Name the model that the target tokenizer belongs to."
        )
    missing = int(plain[new].sum()) - len(ids)
    if missing:
        console.warn(
            f"target embeddings {name} have no vector for {missing} of the {int(plain[new].sum())} new tokens, and "
            "so no evidence for them."
        )
    wanted, known = unit(vectors[rows[ids]]), unit(vectors[rows[anchors]])
    source_ids = overlap.target_to_source[anchors].astype(np.int64)
    return mixture_of_parts(pair, [similarity_part("semantic", pair, ids, wanted, known, source_ids, alpha)])


def load_table(name: str) -> Table:
    """The token vectors of a model and the tokenizer they belong to.

    Args:
        name: a folder or a hub id: a transformers model (its input embeddings), a sentence-transformers model (those of
            its first module), or a static table, a safetensors file (``embedding.weight``, ``embeddings``, or its one
            matrix).
    """
    label = f"target embeddings {name}"
    folder = find_model(name, "target embeddings")
    modules = read_json(folder / "modules.json", label)
    if isinstance(modules, list) and modules and isinstance(modules[0], dict):
        folder /= str(modules[0].get("path", ""))
    config = read_json(folder / "config.json", label)
    static = not isinstance(config, dict) or config.get("model_type") in (None, "model2vec")
    vectors = _static(name, folder) if static else _input_embeddings(name, folder)
    vocabulary = Vocabulary(load_tokenizer(folder))
    size = len(vocabulary)
    if vectors.ndim != 2 or len(vectors) < size:
        raise DataError(
            f"{label}: the tokenizer has {size} tokens and the table the shape {vectors.shape}, not one vector for "
            "each token. They do not belong together."
        )
    return vocabulary, vectors


def _static(name: str, folder: Path) -> NDArray[np.float32]:
    from safetensors.torch import load_file

    files = sorted(folder.glob("*.safetensors"))
    if len(files) != 1:
        raise DataError(
            f"target embeddings {name}: {folder} holds neither a transformers model (a config.json with a "
            f"model_type) nor exactly one safetensors file with a table, but {len(files)} such files."
        )
    with library_errors(f"{files[0]} cannot be read as safetensors. Fetch it again"):
        tensors = load_file(files[0])
    matrices = [key for key in STATIC_TABLES if key in tensors] or [key for key, t in tensors.items() if t.dim() == 2]
    if len(matrices) != 1:
        listed = ", ".join(f"{key} {tuple(tensor.shape)}" for key, tensor in tensors.items())
        raise DataError(
            f"{files[0]} should hold one matrix with a row for each token, named {' or '.join(STATIC_TABLES)}; it "
            f"holds {listed or 'nothing'}."
        )
    vectors: NDArray[np.float32] = tensors[matrices[0]].float().numpy()
    if "mapping" not in tensors:
        return vectors
    rows = tensors["mapping"].numpy()  # model2vec: several tokens may share a row
    if rows.min(initial=0) < 0 or rows.max(initial=0) >= len(vectors):
        raise DataError(f"{files[0]} maps tokens to rows that its table of {len(vectors)} rows does not have.")
    return np.asarray(vectors[rows])


def _input_embeddings(name: str, folder: Path) -> NDArray[np.float32]:
    import torch
    from transformers import AutoModel

    from vtkit.encoder.model_folder import check_model, load_complete, refuse_lacking
    from vtkit.system.runtime import without_notices

    label = f"target embeddings {name}"
    check_model(folder, label)
    with without_notices():
        model, missing = load_complete(AutoModel, folder, label, dtype=torch.float32)
    weight = model.get_input_embeddings().weight
    refuse_lacking(label, model, [key for key, own in model.named_parameters() if own is weight and key in missing])
    vectors: NDArray[np.float32] = weight.detach().numpy().copy()
    return vectors

"""An encoder as one network from token ids to term weights: ONNX in float32 and 8 bits, TorchScript. It repeats what
:func:`vtkit.encoder.encoding.encode` does after the decoder (folding, pooling, the limit on active dimensions); logits
are changed so that engines which pool themselves, ``max_i log(1 + ReLU(logit_i))``, get the same weights."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sentence_transformers import SparseEncoder
from torch import Tensor, nn

from vtkit.deploy.result import LEAST_COSINE
from vtkit.encoder.asymmetric import output_tokenizer, sums_units
from vtkit.encoder.encoding import encode
from vtkit.encoder.folding import folded_dimensions
from vtkit.encoder.token_units import has_token_units
from vtkit.encoder.truncation import first_tokens
from vtkit.encoder.unicoil import is_unicoil
from vtkit.system.errors import DataError, VtkitError
from vtkit.system.runtime import quiet_libraries

MODEL, QUANTISED = "model.onnx", "model_quantized.onnx"  # files of the network, with the outputs `logits` and `weights`

LOGITS, WEIGHTS = "logits", "weights"

TOLERANCE = 1e-3  # largest allowed difference of a float32 weight from vtkit's own

LARGEST_LOGIT = 88.0  # the exponential of larger ones is no float32

_OPSET = 18
_TEXTS_AT_ONCE = 8


InputForm = Callable[[Tensor, Tensor], tuple[Any, ...]]
"""From token ids and attention mask, (batch, tokens), to the arguments that an engine passes."""


class TermWeights(nn.Module):
    """Token ids to ``logits``, (batch, tokens, vocabulary), and ``weights``, (batch, vocabulary)."""

    def __init__(self, encoder: SparseEncoder, *, double_logarithm: bool = False) -> None:
        super().__init__()
        self.double_logarithm = double_logarithm
        if is_unicoil(encoder):
            raise DataError(
                "This is a uniCOIL encoder, which weighs the tokens of a text and has no logits over a vocabulary. No "
                "engine can run it. Encode its documents with vtkit encode, or train a SPLADE encoder."
            )
        if has_token_units(encoder):
            raise DataError(
                "This encoder is an autoencoder without a masked-language-model head, and no engine can run it. Encode "
                "its documents with vtkit encode, or export the encoder that it was saved from."
            )
        pooling = encoder[1]
        self.model = encoder[0].auto_model
        self.sums, self.twice = pooling.pooling_strategy == "sum", pooling.activation_function == "log1p_relu"
        self.root = sums_units(encoder)
        self.vocabulary = int(self.model.config.vocab_size)
        self.kept = min(encoder.max_active_dims or self.vocabulary, self.vocabulary)
        folded_to = folded_dimensions(encoder)
        self.folded_to = None if folded_to is None else torch.tensor(folded_to)

    @property
    def pools_elsewhere(self) -> bool:
        """Whether an engine that pools the logits itself gets the same weights."""
        return not self.sums and self.kept == self.vocabulary

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Both outputs; token types are ignored, since vtkit passes none (zeros to the model)."""
        logits = self.model(input_ids=input_ids, attention_mask=attention_mask).logits
        if token_type_ids is not None:
            logits = logits + (token_type_ids * 0).sum()
        if self.twice:
            logits = torch.log1p(torch.relu(logits))
        if self.folded_to is not None:  # the largest of each class; -1e4 for dimensions folded into others
            least = torch.full_like(logits, -1e4)
            logits = least.scatter_reduce(-1, self.folded_to.expand_as(logits), logits, "amax")
        mask = attention_mask.unsqueeze(-1)
        if self.sums:
            weights = (torch.log1p(torch.relu(logits)) * mask).sum(dim=1)
            weights = weights.sqrt() if self.root else weights
        else:
            weights = torch.log1p((torch.relu(logits) * mask).amax(dim=1))
        if self.kept < self.vocabulary:
            largest, places = weights.topk(self.kept, dim=1)
            weights = torch.zeros_like(weights).scatter(1, places, largest)
        if self.double_logarithm:
            logits = torch.exp(logits.clamp(0, LARGEST_LOGIT)) - 1
        return logits, weights


class EngineInputs(nn.Module):
    """The weights of a :class:`TermWeights` for an engine that passes ids, mask and perhaps types and positions, or
    that passes and expects tensors by name."""

    def __init__(self, network: TermWeights) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Any, *further: Tensor) -> Any:
        """(batch, vocabulary), called ``output`` if inputs have names."""
        if isinstance(inputs, dict):
            return {"output": self.network(inputs["input_ids"], inputs["attention_mask"])[1]}
        return self.network(inputs, further[0])[1]


def write_onnx(encoder: SparseEncoder, folder: Path, *, types: bool = False, double_logarithm: bool = False) -> None:
    """Write ``model.onnx`` into ``folder``.

    Args:
        types: whether to add an input ``token_type_ids`` even if the model does not use it (Vespa passes it).
        double_logarithm: whether the logits are for an engine that computes ``max_i log(1 + log(1 + ReLU(logit_i)))``
            (FastEmbed's ``IfSplade``).

    Raises:
        DataError: a uniCOIL encoder.
        VtkitError: the architecture cannot be written as ONNX.
    """
    network = TermWeights(encoder, double_logarithm=double_logarithm).eval()
    types = types or "token_type_ids" in encoder.tokenizer.model_input_names
    inputs = _example(encoder, types)
    axes = {name: {0: "batch", 1: "tokens"} for name in [*inputs, LOGITS]} | {WEIGHTS: {0: "batch"}}
    with _tracing(encoder, "ONNX"):
        torch.onnx.export(
            network,
            tuple(inputs.values()),
            str(folder / MODEL),
            input_names=list(inputs),
            output_names=[LOGITS, WEIGHTS],
            dynamic_axes=axes,
            opset_version=_OPSET,
            dynamo=False,
        )


def quantise(encoder: SparseEncoder, folder: Path, *, whole: bool) -> None:
    """Write ``model_quantized.onnx``: the matrices of ``model.onnx`` in 8 bits, with a scale for each column of a
    product; unless ``whole``, without the embeddings and the head, which stay float32."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model, graph = encoder[0].auto_model, onnx.load(str(folder / MODEL), load_external_data=False).graph
    sizes = {model.config.vocab_size, len(model.get_input_embeddings().weight)}
    by_token = {each.name for each in graph.initializer if sizes & set(each.dims)}
    kept = [] if whole else [node.name for node in graph.node if by_token & set(node.input)]
    with _tracing(encoder, "ONNX"):
        quantize_dynamic(
            str(folder / MODEL), str(folder / QUANTISED), per_channel=True, weight_type=QuantType.QInt8,
            nodes_to_exclude=kept,
        )  # fmt: skip


def write_torchscript(
    encoder: SparseEncoder, path: Path, form: InputForm, texts: Sequence[str], max_length: int
) -> None:
    """Trace the network of ``encoder`` into the file ``path``, with inputs of ``form``, and compare the weights that it
    gives ``texts`` with vtkit's own."""
    ids, mask = _example(encoder, types=False).values()
    torchscript: Any = torch.jit
    with _tracing(encoder, "TorchScript"):
        network = EngineInputs(TermWeights(encoder)).eval()
        torchscript.save(torchscript.trace(network, form(ids, mask), strict=False), str(path))
        traced, rows = torchscript.load(str(path)), []
    token_ids = first_tokens(encoder.tokenizer, texts, min(max_length, encoder.max_seq_length or max_length))
    for ids in token_ids["input_ids"]:
        with torch.inference_mode():
            output = traced(*form(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.long)))
        rows.append(sparse.csr_matrix((output["output"] if isinstance(output, dict) else output).numpy()))
    _difference(encoder, "TorchScript", encode(encoder, texts, max_length), sparse.vstack(rows, "csr"))


def check_onnx(encoder: SparseEncoder, folder: Path, texts: Sequence[str], max_length: int) -> tuple[float, float]:
    """Compare ``model.onnx`` in ``folder`` with vtkit's own vectors of ``texts``, and write ``model_quantized.onnx``
    beside it: as small as its mean cosine allows, and not at all if that stays below :data:`LEAST_COSINE`.

    Returns:
        The largest difference of a weight, in float32, and the mean cosine of the 8-bit vectors.
    """
    expected = encode(encoder, texts, max_length, description="checking")
    difference = _difference(encoder, "ONNX", expected, run_onnx(folder / MODEL, encoder, texts, max_length))
    for whole in (True, False):
        quantise(encoder, folder, whole=whole)
        cosine = mean_cosine(expected, run_onnx(folder / QUANTISED, encoder, texts, max_length))
        if cosine >= LEAST_COSINE:
            return difference, cosine
    (folder / QUANTISED).unlink()
    return difference, cosine


def run_onnx(path: Path, encoder: SparseEncoder, texts: Sequence[str], max_length: int) -> sparse.csr_matrix:
    """The ``weights`` that the file ``path`` gives ``texts``, (texts, vocabulary)."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = {each.name for each in session.get_inputs()}
    token_ids = first_tokens(encoder.tokenizer, texts, min(max_length, encoder.max_seq_length or max_length))
    rows = []
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        batch = token_ids["input_ids"][start : start + _TEXTS_AT_ONCE]
        padded = encoder.tokenizer.pad({"input_ids": batch}, return_attention_mask=True, return_tensors="np")
        padded = dict(padded) | {"token_type_ids": np.zeros_like(padded["input_ids"])}
        given = {name: values.astype(np.int64) for name, values in padded.items() if name in names}
        rows.append(sparse.csr_matrix(session.run([WEIGHTS], given)[0]))
    width = int(encoder[0].auto_model.config.vocab_size)
    return sparse.vstack(rows, "csr") if rows else sparse.csr_matrix((0, width), dtype=np.float32)


def texts_of_vocabulary(encoder: SparseEncoder) -> list[str]:
    """32 texts of 3 to 60 random tokens of the vocabulary, for a model without texts."""
    draw, tokenizer = np.random.default_rng(0), encoder.tokenizer
    ids = np.asarray(sorted(set(output_tokenizer(encoder).get_vocab().values()) & set(range(len(tokenizer)))))
    return [tokenizer.decode(draw.choice(ids, size)) for size in draw.integers(3, 60, 32).tolist()]


def mean_cosine(left: sparse.csr_matrix, right: sparse.csr_matrix) -> float:
    """Mean cosine of the rows of two matrices, (texts, vocabulary), over the rows in which the left one has a
    weight."""
    lengths = [np.sqrt(np.asarray(each.multiply(each).sum(axis=1)).ravel()) for each in (left, right)]
    dots = np.asarray(left.multiply(right).sum(axis=1)).ravel()
    sound = lengths[0] > 0
    return float((dots[sound] / np.maximum(lengths[0] * lengths[1], 1e-12)[sound]).mean()) if sound.any() else 1.0


def _example(encoder: SparseEncoder, types: bool) -> dict[str, Tensor]:
    """Inputs to trace with, by name: two texts of different lengths."""
    some = list(range(min(len(encoder.tokenizer), 64)))[-5:]
    padded = encoder.tokenizer.pad({"input_ids": [some, some[:3]]}, return_attention_mask=True, return_tensors="pt")
    inputs = {name: padded[name] for name in ("input_ids", "attention_mask")}
    return inputs | ({"token_type_ids": torch.zeros_like(padded["input_ids"])} if types else {})


@contextmanager
def _tracing(encoder: SparseEncoder, form: str) -> Iterator[None]:
    """Use the plain attention in the block, because the fused one would be traced for the example's lengths, suppress
    warnings, and refuse (VtkitError) an architecture that cannot be written as ``form``."""
    model: Any = encoder[0].auto_model
    logger = logging.getLogger()
    attention, level = model.config._attn_implementation, logger.level
    with quiet_libraries(), torch.inference_mode():
        logger.setLevel(logging.ERROR)
        model.set_attn_implementation("eager")
        try:
            yield
        except (RuntimeError, TypeError, ValueError) as error:
            said = " ".join(str(error).split())[:300]
            raise VtkitError(
                f"{type(model).__name__} cannot be written as {form}: {said}. Use the model with sentence-transformers."
            ) from error
        finally:
            model.set_attn_implementation(attention)
            logger.setLevel(level)


def _difference(encoder: SparseEncoder, form: str, expected: sparse.csr_matrix, exported: sparse.csr_matrix) -> float:
    if sums_units(encoder):  # near 0, the roots differ by more than what they are roots of
        expected, exported = expected.power(2), exported.power(2)
    difference = float(abs(expected - exported).max()) if expected.shape[0] else 0.0
    if not difference <= TOLERANCE:
        raise VtkitError(
            f"The weights of the {form} file differ from the model's by up to {difference:.3g}, so this architecture "
            f"({type(encoder[0].auto_model).__name__}) cannot be exported. Use it with sentence-transformers."
        )
    return difference

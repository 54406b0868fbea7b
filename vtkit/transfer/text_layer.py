"""A transformer layer on top of a dense embedder, in which the special tokens hold what the embedder says of the whole
text, so that latent units are learned from that too. The states of all other tokens stay as they are.

With x_i the states of a text's tokens, e the embedder's vector of the text (its own pooling of these states), μ and ē
the means of both, and v° a vector of length 1 in the direction of v, the layer is fitted to give

    √d (t + a)° at special tokens, t = (e - ē)°,  and  √d (y_i - a)° at others, y_i = (x_i - μ)°.

The *axis* a, of length 1, is the direction in which the states of tokens vary least; it is taken out of t and y_i, so
that the rows of a decoder tell both kinds of tokens apart by it. Special tokens are those whose state is that of the
first: in many embedders all have the same. The layer is one of the embedder's own architecture, with random weights to
begin with: any library reads the model as before. It is fitted by least squares to short spans of the texts, as queries
are, to beginnings and to long texts.
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from torch import Tensor, nn
from transformers import PreTrainedModel

from vtkit.data.shards import arrays_of
from vtkit.encoder.families import takes_autocast
from vtkit.encoder.fitted_head import HELD_OUT_EVERY, ReadStates, States
from vtkit.system import console
from vtkit.system.runtime import bf16_is_fast, fastest_device
from vtkit.vocabulary.words import word_spans

SPANS, BEGINNINGS, LONG = 3000, 3000, 600  # texts of each kind, at most
SPAN_WORDS, SPAN_CHARACTERS = (4, 12), 20_000  # words of a span, and characters of a text that it is drawn from
BEGINNING, LONG_LENGTH = 300, 384  # characters of a beginning, and tokens of a long text
ALIKE = 0.95  # cosine from which on two states are the same

STEPS = 600  # a third of them for each kind
TOKENS_A_STEP = 1000
LEARNING_RATE = 1e-3  # of AdamW; it rises for a twentieth of the steps and falls to 0 along a cosine
DEVIATION = 0.02  # of the weights to begin with
FIRST = 2.0  # what the error at first tokens counts beside that at all others
TEXTS_LOOKED_AT = 100  # whose tokens decide the axis


@dataclass(frozen=True)
class WholeTexts:
    """First tokens of texts as the layer gives them."""

    states: States  # one for each text
    texts: list[str]  # as far as they were read
    axis: Tensor  # a, (width,)
    held_by: float  # special tokens of a text that hold its vector, in the mean
    cosine: float  # of t and the states less the axis, mean over texts that the layer was not fitted to


class _Batch(NamedTuple):
    """States of some texts below the layer, padded."""

    states: Tensor  # (texts, tokens, width)
    mask: Tensor  # which are there, (texts, tokens)
    special: Tensor  # which are those of special tokens that have the state of the first, (texts, tokens)


@dataclass(frozen=True)
class _Read:
    """Texts, and the states of all their tokens below the layer."""

    states: NDArray[np.float16]  # (tokens, width)
    special: NDArray[np.bool_]  # (tokens,)
    starts: NDArray[np.int64]  # (texts + 1,)

    def batch(self, rows: NDArray[np.int64]) -> _Batch:
        lengths = self.starts[rows + 1] - self.starts[rows]
        mask = np.arange(lengths.max()) < lengths[:, None]
        places = np.where(mask, self.starts[rows][:, None] + np.arange(mask.shape[1]), 0)
        parts = self.states[places].astype(np.float32), mask.astype(np.int64), self.special[places] & mask
        states, there, special = (torch.from_numpy(part).to(fastest_device()) for part in parts)
        alike = nn.functional.cosine_similarity(states, states[:, :1], dim=2) > ALIKE
        return _Batch(states, there, special & alike)

    def batches(self) -> Iterator[_Batch]:
        """All texts, some at a time, in their order."""
        parts = np.array_split(np.arange(len(self.starts) - 1), len(self.states) // TOKENS_A_STEP + 1)
        return (self.batch(rows) for rows in parts if len(rows))


def takes_text_layer(encoder: SparseEncoder) -> bool:
    """Report whether a layer can be put on those of ``encoder``: they are of one kind (those of ModernBERT attend to
    the whole text in turns), the last can be computed alone, and the tokenizer adds special tokens."""
    model, added = encoder[0].auto_model, encoder.tokenizer("")["input_ids"]
    if hasattr(model.config, "global_attn_every_n_layers") or hasattr(model.config, "layer_types") or not added:
        return False
    ids, below = torch.tensor([added], device=model.device), list[Tensor]()
    hook = layers_of(model)[1][-1].register_forward_pre_hook(
        lambda _, given, named: below.append(given[0] if given else named["hidden_states"]), with_kwargs=True
    )
    with torch.no_grad():
        whole = model.base_model(input_ids=ids).last_hidden_state
        hook.remove()
        with _last_layer_alone(model) as computed:
            alone = computed(_Batch(below[0], torch.ones_like(ids), torch.ones_like(ids)))
    return torch.allclose(alone, whole, atol=1e-4)


def layers_of(model: PreTrainedModel) -> tuple[str, nn.ModuleList]:
    """The layers of the transformer of ``model``, and their place in its base model."""
    lists = ((name, each) for name, each in model.base_model.named_modules() if isinstance(each, nn.ModuleList))
    return next(found for found in lists if len(found[1]) == model.config.num_hidden_layers)


def add_layer(model: PreTrainedModel, layer: nn.Module) -> None:
    """Put a copy of ``layer`` on those of ``model``, in place."""
    layers_of(model)[1].append(copy.deepcopy(layer).to(model.device))
    model.config.num_hidden_layers += 1


def fit_text_layer(
    encoder: SparseEncoder,
    pooling: nn.Module,
    texts: Sequence[str],
    seed: int,
    folder: Path,
    steps: int = STEPS,
) -> WholeTexts:
    """Put the layer on those of ``encoder`` (:func:`takes_text_layer`), in place, and fit it.

    Args:
        pooling: makes the embedder's vectors of the states of tokens (:func:`vtkit.encoder.dense.text_pooling`).
        folder: where states are kept meanwhile.
        steps: of the optimiser.
    """
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    model: PreTrainedModel = encoder[0].auto_model
    kinds = _drawn(texts, rng)
    some = [text for kind in kinds for text in kind]
    arrays = arrays_of(ReadStates(encoder, LONG_LENGTH, special=True), some, "states of whole texts", folder / "whole")
    starts = np.concatenate([[0], np.cumsum(arrays["lengths"])])
    read = _Read(arrays["states"], np.isin(arrays["ids"], encoder.tokenizer("")["input_ids"]), starts)
    numbers = np.arange(len(some))
    held_out = numbers % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
    with torch.no_grad():
        pooled = [pooling({"token_embeddings": each.states, "attention_mask": each.mask}) for each in read.batches()]
        vectors = torch.cat([each["sentence_embedding"] for each in pooled])
        sample = read.batch(np.sort(rng.permutation(numbers)[:TEXTS_LOOKED_AT]))
        mean = sample.states[sample.mask > 0].mean(0)
        width, tokens = len(mean), _standard(sample.states[sample.mask > 0] - mean)
        # nothing that a layer norm has left varies in the direction of all ones, which is not wanted
        products = (tokens.T @ tokens / len(tokens)).double() + torch.ones(width, width, device=mean.device)
        axis = torch.linalg.eigh(products).eigenvectors[:, 0].float()
        vectors = vectors - vectors.mean(0)
        if vectors.shape[1] > width:  # their principal directions
            vectors = vectors @ torch.linalg.svd(vectors, full_matrices=False).Vh[:width].T
        of_texts = _beside(nn.functional.pad(vectors, (0, width - vectors.shape[1])), axis)
    add_layer(model, _fresh(layers_of(model)[1][-1]))
    parameters = list(layers_of(model)[1][-1].requires_grad_(True).parameters())
    optimiser = torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=0.0)
    rates = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min((step + 1) / (steps / 20), 0.5 * (1 + math.cos(math.pi * step / steps)))
    )
    half = torch.autocast(model.device.type, torch.bfloat16, enabled=bf16_is_fast() and takes_autocast(model))
    ends = np.cumsum([len(kind) for kind in kinds])
    of_kind = [rows[~held_out[rows]] for rows in np.split(numbers, ends[:-1]) if len(rows)]
    with _last_layer_alone(model) as computed:
        with torch.enable_grad():
            for _ in console.tracked(range(steps), "fitting the layer of whole texts", steps):
                rows = of_kind[rng.integers(len(of_kind))]
                tokens = (starts[rows + 1] - starts[rows]).mean()
                rows = rng.choice(rows, min(math.ceil(TOKENS_A_STEP / tokens), len(rows)), replace=False)
                batch = read.batch(rows)
                with half:
                    found = computed(batch).float()
                of_text, of_token = of_texts[torch.from_numpy(rows)][:, None], _beside(batch.states - mean, -axis)
                missed = (found - torch.where(batch.special[:, :, None], of_text, of_token)).square().mean(2)
                loss = FIRST * missed[batch.special].mean() + missed[(batch.mask > 0) & ~batch.special].mean()
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                rates.step()
        with torch.no_grad():
            given = torch.cat([computed(batch)[:, 0] for batch in read.batches()])
    unseen = torch.from_numpy(held_out)
    cosine = nn.functional.cosine_similarity(_without(given[unseen], axis), _without(of_texts[unseen], axis)).mean()
    whole = [text[:end] for text, end in zip(some, np.maximum.reduceat(arrays["ends"], starts[:-1]), strict=True)]
    places = np.stack([numbers, [len(text) for text in whole]], axis=1)
    states = States(given.cpu().numpy().astype(np.float16), np.zeros_like(numbers), held_out, places)
    return WholeTexts(states, whole, axis, float(sample.special.sum() / len(sample.special)), float(cosine))


def _drawn(texts: Sequence[str], rng: np.random.Generator) -> tuple[list[str], list[str], list[str]]:
    """Spans, beginnings and long texts."""
    order = rng.permutation(len(texts)).tolist()
    beginnings = [texts[number][:BEGINNING] for number in order[:BEGINNINGS]]
    spans, (fewest, most) = [], SPAN_WORDS
    for number in rng.integers(len(texts), size=SPANS).tolist():
        text = texts[number][:SPAN_CHARACTERS]
        words = list(word_spans(text))
        if len(words) >= fewest:
            count = min(int(rng.integers(fewest, most + 1)), len(words))
            first = int(rng.integers(len(words) - count + 1))
            spans.append(text[words[first][0] : words[first + count - 1][1]])
    return spans, beginnings, [texts[number] for number in order[-LONG:]]


def _standard(states: Tensor) -> Tensor:
    """Centred over their dimensions, of length √d, as a layer norm leaves them."""
    return nn.functional.layer_norm(states, states.shape[-1:])


def _without(states: Tensor, axis: Tensor) -> Tensor:
    """Less what lies on ``axis``."""
    return states - (states @ axis)[..., None] * axis


def _beside(vectors: Tensor, axis: Tensor) -> Tensor:
    """Vectors of length √d, half of whose squared length lies on ``axis``."""
    return _standard(nn.functional.normalize(_without(_standard(vectors), axis), dim=-1) + axis)


def _fresh(layer: nn.Module) -> nn.Module:
    """``layer`` with random weights, its layer norms without effect."""
    layer = copy.deepcopy(layer)
    for module in layer.modules():
        for name, weight in module.named_parameters(recurse=False):
            if isinstance(module, nn.LayerNorm):
                nn.init.constant_(weight, float(name == "weight"))
            else:
                nn.init.normal_(weight, std=DEVIATION * (name == "weight"))
    return layer


@contextmanager
def _last_layer_alone(model: PreTrainedModel) -> Iterator[Callable[[_Batch], Tensor]]:
    """A function from states below the last layer of ``model`` to those above it, (texts, tokens, width), while this
    lasts."""
    base = model.base_model
    (name, layers), embeddings = layers_of(model), base.embeddings
    base.set_submodule(name, nn.ModuleList([layers[-1]]))
    base.embeddings = _AsGiven()
    try:
        yield lambda batch: base(inputs_embeds=batch.states, attention_mask=batch.mask).last_hidden_state
    finally:
        base.embeddings = embeddings
        base.set_submodule(name, layers)


class _AsGiven(nn.Module):
    """In place of embeddings: the states that are given."""

    def forward(self, input_ids: None, inputs_embeds: Tensor, *_: Any, **__: Any) -> Tensor:
        return inputs_embeds

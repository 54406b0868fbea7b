"""A sparse head for a dense embedder, fitted to read each token's own name back from its state; similar tokens have
similar embeddings, so it finds tokens like it too (cf. arXiv:2212.10380). The transformer stays as it is.

With h the state of a token x and e_x its input embedding, which the decoder is tied to:

1. *Ridge regression* from h - mean(h) to e_x - mean(e): W = Y'X (X'X + λI)⁻¹, scaled down and moved to where the head's
   activation is nearly linear; the layer norm behind it takes both away again.
2. *Softmax.* W, the layer norm and the decoder's bias b minimise -log softmax(z + log p)_x over tokens drawn from all
   states, z = E LN(act(W h)) + b and p the tokens' frequencies (logit adjustment, arXiv:2007.07314).
3. *Threshold and scale.* b is shifted until a given share of the logits is positive, and all logits are scaled until a
   token's own is :data:`OWN_LOGIT` in the mean.
"""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from torch import Tensor, nn
from transformers import PreTrainedModel

from vtkit.data.shards import Arrays, arrays_of
from vtkit.encoder.families import mlm_head, takes_autocast
from vtkit.encoder.fitted import HeadFit
from vtkit.encoder.kernels.sparse_head import without_decoder
from vtkit.encoder.masked import MASKED_BIAS, mask_dimensions
from vtkit.encoder.truncation import alike_batches, first_tokens, padded
from vtkit.settings.source import HEAD_STEPS, STATES_LENGTH
from vtkit.system import console
from vtkit.system.errors import DataError
from vtkit.system.runtime import HoldsModels, bf16_is_fast, fastest_device

FEWEST = 20  # texts below which nothing is fitted
HELD_OUT_EVERY = 10  # of the texts every tenth is held out, to see how many of its tokens are read back
RIDGE = 1e-3  # λ, in units of the mean variance of a state's dimensions times the number of states
LINEAR = (2.0, 0.3)  # mean and deviation of what goes into the head's activation: GELU is nearly linear there
OWN_LOGIT = 3.0  # mean logit of a token's own dimension in the end
LOOKED_AT = 2048  # held-out tokens whose logits decide threshold and scale
POSITIONS = 512  # tokens a step
LEARNING_RATE = 1e-3  # of AdamW; it falls to 0 along a cosine

ROWS_AT_ONCE = 8192


class States(NamedTuple):
    """States of tokens, on disk."""

    states: NDArray[np.float16]  # (tokens, width)
    ids: NDArray[np.int64]  # the tokens, (tokens,)
    held_out: NDArray[np.bool_]  # whether a token's text is held out, (tokens,)
    places: NDArray[np.int64]  # number of a token's text, and the character behind the token, (tokens, 2)

    def batch(self, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """States and tokens of some rows, on the fastest device."""
        device = fastest_device()
        return torch.from_numpy(self.states[rows]).to(device).float(), torch.from_numpy(self.ids[rows]).to(device)


def fit_head(
    encoder: SparseEncoder, texts: Sequence[str], activation: float, seed: int, folder: Path, steps: int = HEAD_STEPS
) -> HeadFit:
    """Fit the head of ``encoder`` (:func:`vtkit.encoder.checkpoint.load_with_new_head`) in place, special tokens
    masked.

    Args:
        activation: share of a token's weights, over the vocabulary, that are positive in the end.
        folder: where states are kept meanwhile.
        steps: of the optimiser, after the closed form.
    """
    if not isinstance(encoder[0].auto_model, PreTrainedModel):
        raise DataError(
            f"{type(encoder[0].auto_model.base_model).__name__} has no masked-language-model head, so that no head can "
            "be fitted alone: learn latent units from it ([source.units])."
        )
    if len(texts) < FEWEST:
        raise DataError(
            f"A head needs at least {FEWEST} texts to be fitted, and there are {len(texts)}. Name more text of the "
            "language in corpus."
        )
    encoder.to(fastest_device())
    states = token_states(encoder, texts, folder)
    fit = fit_to_states(encoder, states, len(texts), activation, seed, steps)
    encoder.cpu()
    return fit


def fit_to_states(
    encoder: SparseEncoder, states: States, texts: int, activation: float, seed: int, steps: int = HEAD_STEPS
) -> HeadFit:
    """Fit the head of ``encoder`` in place to ``states`` of so many texts."""
    model: PreTrainedModel = encoder[0].auto_model
    head = Head(model)
    counts = np.bincount(states.ids[~states.held_out], minlength=head.decoder.out_features)
    prior = torch.from_numpy(np.log((counts + 1) / (counts + 1).sum())).float().to(head.decoder.weight.device)
    rng = np.random.default_rng(seed)
    fitted_on = np.flatnonzero(~states.held_out)
    held_out = np.flatnonzero(states.held_out)
    held_out = np.sort(rng.permutation(held_out)[:LOOKED_AT])
    if not len(held_out):
        raise DataError(
            "The texts hold hardly any tokens that the source knows, so there are no states to fit a head to. Name "
            "text of a language that it was trained on in corpus."
        )

    _ridge(head, states, fitted_on)
    by_ridge = _read_back(head, states, held_out, prior)
    parameters = [*head.parameters(), head.decoder.bias]
    optimiser = torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=0.0)
    rates = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 0.5 * (1 + math.cos(math.pi * step / steps)))
    with torch.enable_grad():
        for _ in console.tracked(range(steps), "fitting the head", steps):
            rows = np.sort(rng.choice(fitted_on, min(POSITIONS, len(fitted_on)), replace=False))
            hidden, tokens = states.batch(rows)
            loss = nn.functional.cross_entropy(head.logits(hidden) + prior, tokens)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            rates.step()
    read_back = _read_back(head, states, held_out, prior)
    mask_dimensions(model, encoder.tokenizer.all_special_ids)
    positive = _settle(head, states, held_out, activation)
    return HeadFit(texts, len(states.ids), by_ridge, read_back, positive)


def token_states(encoder: SparseEncoder, texts: Sequence[str], folder: Path) -> States:
    """The last states of all tokens but special ones, in half precision in ``folder/states``; ``texts`` are cut at
    :data:`STATES_LENGTH`."""
    arrays = arrays_of(ReadStates(encoder), texts, "states of tokens", folder / "states")
    numbers = np.repeat(np.arange(len(texts)), arrays["lengths"])
    places = np.stack([numbers, arrays["ends"]], axis=1)
    return States(arrays["states"], arrays["ids"], numbers % HELD_OUT_EVERY == HELD_OUT_EVERY - 1, places)


@dataclass(frozen=True)
class ReadStates(HoldsModels):
    """The work on a shard of texts whose tokens' states are learned from."""

    encoder: SparseEncoder

    def __call__(self, texts: Sequence[str], bar: console.Bar | None = None) -> Arrays:
        """The number of tokens of each text; each token's state, id, and the character of its text behind it."""
        tokenizer, model, device = self.encoder.tokenizer, self.encoder[0].auto_model, self.encoder.device
        length = min(STATES_LENGTH, self.encoder.max_seq_length or STATES_LENGTH)
        read = first_tokens(tokenizer, list(texts), length, return_offsets_mapping=True)
        rows = [np.asarray(ids, dtype=np.int64) for ids in read["input_ids"]]
        wanted = [~np.isin(ids, tokenizer.all_special_ids) for ids in rows]
        states = [np.empty((0, model.config.hidden_size), dtype=np.float16)] * len(rows)
        in_bf16 = bf16_is_fast() and takes_autocast(model)
        half = torch.autocast(device.type, dtype=torch.bfloat16) if in_bf16 else nullcontext()
        alike = alike_batches(read["input_ids"])
        with torch.inference_mode():
            for some in console.tracked(alike, bar or "states of tokens", len(rows), len):
                rows_read = [read["input_ids"][number] for number in some]
                ids, mask = padded(rows_read, tokenizer.pad_token_id, device)
                with half:
                    hidden = model.base_model(input_ids=ids, attention_mask=mask)
                vectors = hidden.last_hidden_state.float().cpu().numpy().astype(np.float16)
                for row, number in enumerate(some):
                    states[number] = vectors[row, : len(rows[number])][wanted[number]]
                if not all(np.isfinite(states[number]).all() for number in some):
                    raise DataError(
                        "The source's hidden states are not finite: its weights are damaged. Fetch it again."
                    )
        ends = [np.asarray(spans, dtype=np.int64).reshape(-1, 2)[:, 1] for spans in read["offset_mapping"]]
        return {
            "states": np.concatenate(states),
            "ids": np.concatenate([ids[keep] for ids, keep in zip(rows, wanted, strict=True)]),
            "ends": np.concatenate([end[keep] for end, keep in zip(ends, wanted, strict=True)]),
            "lengths": np.array([np.count_nonzero(keep) for keep in wanted]),
        }


class Head(nn.Module):
    """A masked-language-model head taken apart: linear map, activation, layer norm, decoder."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        decoder = mlm_head(model).decoder
        inside = {id(module) for module in model.base_model.modules()}
        parts = [module for module in model.modules() if id(module) not in inside and module is not decoder]
        maps = [module for module in parts if isinstance(module, nn.Linear)]
        norms = [module for module in parts if isinstance(module, nn.LayerNorm)]
        if len(maps) != 1 or len(norms) != 1 or maps[0].out_features != decoder.in_features:
            raise DataError(
                f"{type(model).__name__} has a head of {len(maps)} linear maps and {len(norms)} layer norms; vtkit "
                "fits heads of one linear map, an activation and a layer norm, as BERT and its kin have"
            )
        self.map, self.norm = maps[0], norms[0]
        if self.map.bias is None and hasattr(model.config, "classifier_bias"):
            model.config.classifier_bias = True  # ModernBERT's name for the bias of this map
            self.map.bias = nn.Parameter(self.map.weight.new_zeros(self.map.out_features))
        self.requires_grad_(True)
        object.__setattr__(self, "decoder", decoder)  # not a part: its weight is the input embeddings, which stay
        decoder.bias.requires_grad_(True)
        activations = [module for module in parts if "Activation" in type(module).__name__]
        self.activation = activations[0] if activations else nn.GELU()  # RoBERTa's kin call the function
        ids = torch.arange(8, device=decoder.weight.device)[None]
        with torch.no_grad(), without_decoder(decoder):
            wanted = model(input_ids=ids).logits
            computed = self.output(model.base_model(input_ids=ids).last_hidden_state)
        if not torch.allclose(wanted, computed, atol=1e-4):
            raise DataError(
                f"{type(model).__name__} has a head that is not LN(activation(W h)), and vtkit cannot fit it"
            )

    decoder: nn.Linear

    def output(self, states: Tensor) -> Tensor:
        """The input of the decoder, (tokens, width)."""
        projected: Tensor = self.norm(self.activation(self.map(states)))
        return projected

    def start_from(self, weight: Tensor, mean: Tensor, covariance: Tensor) -> None:
        """Let the linear map be ``weight``, of the states' deviations from their ``mean``, so small and so moved that
        the activation is nearly linear there; the layer norm takes both away again."""
        spread = float(torch.einsum("ij,jk,ik->", weight, covariance, weight) / len(weight)) ** 0.5
        middle, deviation = LINEAR
        weight = weight * (deviation / max(spread, 1e-12))
        with torch.no_grad():
            self.map.weight.copy_(weight)
            if self.map.bias is not None:
                self.map.bias.copy_(middle - weight @ mean)
            self.norm.weight.fill_(1.0)
            if self.norm.bias is not None:
                self.norm.bias.zero_()

    def pass_on(self, states: States, rows: NDArray[np.int64], projection: Tensor | None = None) -> None:
        """Hand states on as they are, or as ``projection`` maps them, centred by the mean of ``rows`` and of length
        √width."""
        sample = states.batch(rows[:: max(1, len(rows) // ROWS_AT_ONCE)])[0].double().cpu()
        weight = torch.eye(sample.shape[1]) if projection is None else projection
        self.start_from(weight.double(), sample.mean(0), sample.T.cov())

    def logits(self, states: Tensor) -> Tensor:
        """(tokens, vocabulary); the decoder's weight has no gradient."""
        return nn.functional.linear(self.output(states), self.decoder.weight.detach(), self.decoder.bias)


def _ridge(head: Head, states: States, rows: NDArray[np.int64]) -> None:
    """The linear map in closed form from the states ``rows``, and a layer norm and a bias that change nothing."""
    embeddings = head.decoder.weight.detach().double().cpu()
    centre = embeddings.mean(0)
    width = states.states.shape[1]
    gram, cross = torch.zeros(width, width).double(), torch.zeros(width, embeddings.shape[1]).double()
    sums = torch.zeros(width).double()
    for begin in range(0, len(rows), ROWS_AT_ONCE):
        hidden, tokens = (part.cpu() for part in states.batch(rows[begin : begin + ROWS_AT_ONCE]))
        hidden = hidden.double()
        gram += hidden.T @ hidden
        cross += hidden.T @ (embeddings[tokens] - centre)
        sums += hidden.sum(0)
    # of centred states: X'X - n m m', X'Y - m sum(Y); the second part has no effect but for the mean of Y
    mean = sums / len(rows)
    gram -= len(rows) * torch.outer(mean, mean)
    counts = torch.from_numpy(np.bincount(states.ids[rows], minlength=len(embeddings))).double()
    cross -= torch.outer(mean, counts @ (embeddings - centre))
    gram += RIDGE * gram.diagonal().mean() * torch.eye(width).double()
    weight = torch.linalg.solve(gram, cross).T
    head.start_from(weight, mean, gram / len(rows))
    with torch.no_grad():
        ordinary = head.decoder.bias.detach() >= MASKED_BIAS / 2
        head.decoder.bias[ordinary] = 0.0
        # a softmax that is neither flat nor sure of itself to begin with
        hidden, tokens = states.batch(rows[:: max(1, len(rows) // 512)])
        logits = head.logits(hidden)
        logits = logits - logits.mean(1, keepdim=True)
        head.norm.weight.mul_(10.0 / max(float(logits.gather(1, tokens[:, None]).mean()), 1.0))


def _read_back(head: Head, states: States, rows: NDArray[np.int64], prior: Tensor) -> float:
    """Share of the tokens ``rows`` that are the likeliest at their own state."""
    right = 0
    with torch.no_grad():
        for begin in range(0, len(rows), 512):
            hidden, tokens = states.batch(rows[begin : begin + 512])
            right += int(((head.logits(hidden) + prior).argmax(1) == tokens).sum())
    return right / max(len(rows), 1)


def _settle(head: Head, states: States, rows: NDArray[np.int64], activation: float) -> float:
    """Shift all biases until the share ``activation`` of the logits is positive, and scale logits until a token's own
    is :data:`OWN_LOGIT` in the mean; the share that is."""
    ordinary = head.decoder.bias.detach() >= MASKED_BIAS / 2
    with torch.no_grad():
        hidden, tokens = states.batch(rows)
        logits = head.logits(hidden)
        kept = logits[:, ordinary]
        most = max(1, round(activation * kept.numel()))
        threshold = float(kept.flatten().topk(most).values[-1])
        own_logit = float((logits.gather(1, tokens[:, None]) - threshold).clamp(min=0).mean())
        scale = OWN_LOGIT / max(own_logit, 1e-6)
        head.decoder.bias[ordinary] = scale * (head.decoder.bias[ordinary] - threshold)
        head.norm.weight.mul_(scale)
        if head.norm.bias is not None:
            head.norm.bias.mul_(scale)
        return float((head.logits(hidden)[:, ordinary] > 0).float().mean())

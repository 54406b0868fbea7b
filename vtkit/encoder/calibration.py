"""Activation Potential Calibration: a shift of the decoder bias that sets the share of positive activations.

The vocabulary-transfer paper subtracts a constant c from the bias after masked-language-model training
(b' <- b' - c) so that the ReLU of the sparse head meets a moderate share of positive logits. What share a
given c brings differs widely between set-ups, so here the *share is asked for and c is found*: the quantile
of the logits on probe texts, checked on probe texts that took no part in finding it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import torch
from sentence_transformers import SparseEncoder

from vtkit.encoder.families import mlm_head
from vtkit.encoder.sparse_head import without_decoder
from vtkit.errors import CollapseError

BINS = 8192
LOGITS_A_BLOCK = 8 * 2**20


@dataclass(frozen=True)
class ActivationRates:
    """Shares of positive activations on one set of texts."""

    token: float
    """Share of (position, token) logits above zero, padding left out."""

    pooled: float
    """Share of vocabulary dimensions above zero after max-pooling, mean over texts."""


@dataclass(frozen=True)
class Calibration:
    """What a calibration found; ``shift`` is the paper's c."""

    shift: float
    target: float
    definition: str
    before: ActivationRates
    after: ActivationRates
    held_out: ActivationRates

    def facts(self) -> dict[str, object]:
        return asdict(self)


def activation_rates(encoder: SparseEncoder, texts: Sequence[str], max_length: int) -> ActivationRates:
    """Shares of logits above zero, by both definitions."""
    return _Logits(encoder, texts, max_length).rates()


def calibrate(
    encoder: SparseEncoder, texts: Sequence[str], target: float, definition: str, max_length: int
) -> Calibration:
    """Shift ``encoder``'s decoder bias in place so that ``target`` of the activations are positive.

    Every logit moves by the same amount, so the share above zero after b <- b - c is the share above c
    before: c is the (1 - target) quantile of the logits (of the pooled logits for ``definition="pooled"``).

    Args:
        encoder: changed in place; only the decoder bias.
        texts: probe texts; the even ones solve for c, the odd ones check it.
        target: wanted share, between 0 and 1.
        definition: "token" or "pooled".
        max_length: tokens a text is cut at.

    Raises:
        CollapseError: the logits are not finite, or held-out texts miss the target by more than half of it.
    """
    solving = _Logits(encoder, texts[0::2], max_length)
    before = solving.rates()
    shift = solving.quantile(1.0 - target, definition)
    with torch.no_grad():
        mlm_head(encoder[0].auto_model).decoder.bias.sub_(shift)
    after = solving.rates()
    held_out = activation_rates(encoder, texts[1::2], max_length)
    reached = getattr(held_out, definition)
    if abs(reached - target) > 0.5 * target:
        raise CollapseError(
            f"calibration to a {definition} activation rate of {target:.1%} reached {reached:.1%} on held-out probe "
            "texts: the probe texts differ too much among themselves. Give more (calibrate.texts) or others "
            "(calibrate.corpus)."
        )
    return Calibration(shift, target, definition, before, after, held_out)


class _Logits:
    """The logits of some texts under the decoder as it is now, never all of them at once."""

    def __init__(self, encoder: SparseEncoder, texts: Sequence[str], max_length: int) -> None:
        self._hidden, self._lengths = _hidden_states(encoder, texts, max_length)
        self._decoder = mlm_head(encoder[0].auto_model).decoder

    def rates(self) -> ActivationRates:
        """Shares of the logits above zero, by both definitions."""
        tokens = pooled = 0
        for logits in self._blocks():
            tokens += int((logits > 0).sum())
            pooled += int((self._pool(logits) > 0).sum())
        vocabulary = self._decoder.out_features
        return ActivationRates(tokens / (len(self._hidden) * vocabulary), pooled / (len(self._lengths) * vocabulary))

    def quantile(self, share: float, definition: str) -> float:
        """The logit that ``share`` of all (pooled) logits lie below, to the width of a histogram bin."""
        lowest, highest = math.inf, -math.inf
        for logits in self._blocks():
            ends = float(logits.min()), float(logits.max())
            if not all(math.isfinite(end) for end in ends):  # NaN is lost in a comparison
                raise CollapseError("calibration: the model's logits are not finite (NaN or infinite weights).")
            lowest, highest = min(lowest, ends[0]), max(highest, ends[1])
        counts = torch.zeros(BINS, dtype=torch.float64)
        for logits in self._blocks():
            values = logits if definition == "token" else self._pool(logits)
            counts += torch.histc(values, BINS, lowest, highest).cpu()
        below = counts.cumsum(0) / counts.sum()
        position = int(torch.searchsorted(below, share))
        return lowest + (position + 1) * (highest - lowest) / BINS

    def _blocks(self) -> Iterator[torch.Tensor]:
        """The logits of all tokens, (tokens, block) for one block of the vocabulary after the other."""
        weight, bias = self._decoder.weight.detach(), self._decoder.bias.detach()
        size = max(64, LOGITS_A_BLOCK // max(len(self._hidden), 1))
        for start in range(0, weight.shape[0], size):
            block = slice(start, start + size)
            yield torch.addmm(bias[block], self._hidden, weight[block].t())

    def _pool(self, logits: torch.Tensor) -> torch.Tensor:
        """The maximum over each text's tokens, (texts, block)."""
        return torch.stack([part.amax(dim=0) for part in torch.split(logits, self._lengths)])


def _hidden_states(encoder: SparseEncoder, texts: Sequence[str], max_length: int) -> tuple[torch.Tensor, list[int]]:
    """What the decoder projects at every token of ``texts``: (tokens, width), and the tokens of each text."""
    tokenizer, model = encoder.tokenizer, encoder[0].auto_model
    limit = min(max_length, encoder.max_seq_length or max_length)
    token_ids = tokenizer(list(texts), truncation=True, max_length=limit)["input_ids"]
    order = sorted(range(len(texts)), key=lambda i: len(token_ids[i]))
    pieces: dict[int, torch.Tensor] = {}
    encoder.eval()
    with without_decoder(mlm_head(model).decoder), torch.no_grad():
        for start in range(0, len(order), 16):
            batch = order[start : start + 16]
            padded = tokenizer.pad({"input_ids": [token_ids[i] for i in batch]}, return_tensors="pt").to(model.device)
            hidden = model(**padded).logits
            for row, text in enumerate(batch):
                pieces[text] = hidden[row, padded["attention_mask"][row].bool()]
    lengths = [len(pieces[i]) for i in range(len(texts))]
    return torch.cat([pieces[i] for i in range(len(texts))]), lengths

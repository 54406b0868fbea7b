"""Activation Potential Calibration: a shift of the decoder bias that sets the share of positive activations.

The vocabulary-transfer paper subtracts a constant c from the bias after masked-language-model training
(b' <- b' - c) so that the ReLU of the sparse head meets a moderate share of positive logits. What share a
given c brings differs widely between set-ups, so here the *share is asked for and c is found*: the quantile
of the logits on probe texts, checked on probe texts that took no part in finding it.
"""

from __future__ import annotations

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
    return _LogitHistograms(encoder, texts, max_length).rates()


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
    solving, checking = list(texts[0::2]), list(texts[1::2])
    histograms = _LogitHistograms(encoder, solving, max_length)
    before = histograms.rates()
    shift = histograms.quantile(1.0 - target, definition)
    decoder = mlm_head(encoder[0].auto_model).decoder
    with torch.no_grad():
        decoder.bias.sub_(shift)
    after = activation_rates(encoder, solving, max_length)
    held_out = activation_rates(encoder, checking, max_length)
    reached = getattr(held_out, definition)
    if abs(reached - target) > 0.5 * target:
        raise CollapseError(
            f"calibration to a {definition} activation rate of {target:.1%} reached {reached:.1%} on held-out probe "
            "texts: the probe texts differ too much among themselves. Give more (calibrate.texts) or others "
            "(calibrate.corpus)."
        )
    return Calibration(shift, target, definition, before, after, held_out)


class _LogitHistograms:
    """Histograms of the token-level and of the max-pooled logits of some texts, over one range."""

    def __init__(self, encoder: SparseEncoder, texts: Sequence[str], max_length: int) -> None:
        self._hidden, self._lengths = _hidden_states(encoder, texts, max_length)
        decoder = mlm_head(encoder[0].auto_model).decoder
        self._weight, self._bias = decoder.weight.detach(), decoder.bias.detach()
        lowest, highest = torch.inf, -torch.inf
        finite = True
        for logits in self._blocks():
            finite = finite and bool(torch.isfinite(logits).all())
            lowest, highest = min(lowest, float(logits.min())), max(highest, float(logits.max()))
        if not finite:
            raise CollapseError("calibration: the model's logits are not finite (NaN or infinite weights).")
        self._lowest, self._width = lowest, max(highest - lowest, 1e-6) / BINS
        self._counts = {name: torch.zeros(BINS + 1, dtype=torch.int64) for name in ("token", "pooled")}
        self._positive = dict.fromkeys(self._counts, 0)
        for logits in self._blocks():
            self._count("token", logits)
            pooled = torch.stack([part.amax(dim=0) for part in torch.split(logits, self._lengths)])
            self._count("pooled", pooled)

    def _blocks(self) -> Iterator[torch.Tensor]:
        """The logits of all tokens, (tokens, block) for one block of the vocabulary after the other."""
        size = max(64, LOGITS_A_BLOCK // max(len(self._hidden), 1))
        for start in range(0, self._weight.shape[0], size):
            block = slice(start, start + size)
            yield self._hidden @ self._weight[block].t() + self._bias[block]

    def _count(self, name: str, logits: torch.Tensor) -> None:
        bins = ((logits - self._lowest) / self._width).to(torch.int64).clamp_(0, BINS)
        self._counts[name] += torch.bincount(bins.flatten().cpu(), minlength=BINS + 1)
        self._positive[name] += int((logits > 0).sum())

    def rates(self) -> ActivationRates:
        """Shares of the logits above zero, by both definitions."""
        return ActivationRates(*(self._positive[name] / int(self._counts[name].sum()) for name in ("token", "pooled")))

    def quantile(self, share: float, name: str) -> float:
        """The logit that ``share`` of all logits lie below, to the width of a bin."""
        below = self._counts[name].cumsum(0).double() / int(self._counts[name].sum())
        position = int(torch.searchsorted(below, share))
        return self._lowest + (position + 1) * self._width


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

"""Calibration: what can be done to a sparse head's logits without training. The vocabulary-transfer paper subtracts a
constant from the bias; here the share of positive logits is asked for, and the constant found on probe texts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sentence_transformers import SparseEncoder
from torch import Tensor

from vtkit.encoder.calibrated import (
    QUERY_TOKENS,
    RANKS,
    ActivationRates,
    Calibration,
    Definition,
    ProbeMetrics,
    TokenShifts,
)
from vtkit.encoder.encoding import encode
from vtkit.encoder.families import mlm_head
from vtkit.encoder.kernels.sparse_head import decoder_input
from vtkit.encoder.masked import MASKED_BIAS
from vtkit.encoder.truncation import first_tokens, padded
from vtkit.system.errors import CollapseError

BINS = 8192
LOGITS_A_BLOCK = 8 * 2**20
TEXTS_A_BATCH = 16  # probe texts whose hidden states are computed together

FREQUENCY_POWER = 0.5
"""How activation rates grow with document frequencies: with their square root, because a learned encoder activates
tokens in texts that do not hold them, and rare tokens relatively more often."""

HIGHEST_RATE = 0.999

SAME_SCORE = 1e-6  # relative difference up to which two scores count as one


@dataclass(frozen=True, eq=False)
class TokenTargets:
    """Activation rates by document frequency.

    A token that stands in N_j of N documents should be active in a share r_j of them:

        r_j = min(s · ((N_j + ½) / (N + 1)) ^ FREQUENCY_POWER, HIGHEST_RATE),   s such that Σ_j r_j = dimensions wanted
        b_j <- b_j - clip(strength · q_j, ±bound),   q_j the (1 - r_j) quantile of the texts' pooled logits of j

    The dimensions wanted are those of a pooled target, else those that a text has now. At strength 1, within the bound,
    each token is active in just its share of the texts; at ½ it goes half the way. Tokens with N_j = 0 and masked
    dimensions are left alone.
    """

    frequencies: NDArray[np.integer]  # documents that hold each token, (vocabulary,)
    documents: int
    strength: float
    bound: float  # largest shift of a token, in logits


def activation_rates(encoder: SparseEncoder, texts: Sequence[str], max_length: int) -> ActivationRates:
    """Shares of logits above zero, by both definitions."""
    return _Logits(encoder, texts, max_length).rates()


def calibrate(
    encoder: SparseEncoder,
    texts: Sequence[str],
    target: float | None,
    definition: Definition,
    max_length: int,
    *,
    shift: float = 0.0,
    tokens: TokenTargets | None = None,
) -> Calibration:
    """Shift ``encoder``'s logits in place, in this order, and measure before and after.

    1. ``shift`` c: b <- b - c. The same as log(1 + ReLU(x - c)) in place of log(1 + ReLU(x)).
    2. ``tokens``: a shift of each token's own, by its document frequency (:class:`TokenTargets`).
    3. ``target``: a further shift after which that share of the activations is positive: the (1 - target) quantile of
       the logits (of the pooled logits for ``definition="pooled"``). It makes up for step 1 wholly.

    Masked dimensions stay masked; they count among the activations, as ones that are not positive.

    Args:
        texts: probe texts; the even ones solve for the shift, the odd ones check it and fill the table.
        target: wanted share, between 0 and 1.
        max_length: tokens a text is cut at.

    Raises:
        CollapseError: the logits are not finite, or held-out texts miss the target by more than half of it. Without a
            target, ``tokens`` aims at the pooled share that there was before.
    """
    halves = texts[0::2], texts[1::2]
    solving, checking = (_Logits(encoder, half, max_length) for half in halves)
    before = solving.rates()
    figures = {"before": probe_figures(encoder, halves[1], max_length, checking.rates()["token"])}
    _lower_bias(encoder, shift)
    pooled = target if definition == "pooled" else None
    moved = None if tokens is None else _shift_tokens(encoder, solving, tokens, pooled)
    if target is not None:
        lowered = solving.quantile(1.0 - target, definition)
        _lower_bias(encoder, lowered)
        shift += lowered
    after, held_out = solving.rates(), checking.rates()
    if target is not None:
        _refuse_missed(held_out, target, definition)
    elif tokens is not None:
        _refuse_missed(held_out, after["pooled"], "pooled")
    figures["after"] = probe_figures(encoder, halves[1], max_length, held_out["token"])
    return Calibration(shift, target, definition, before, after, held_out, figures, moved)


def probe_figures(
    encoder: SparseEncoder, texts: Sequence[str], max_length: int, token_rate: float | None = None
) -> ProbeMetrics:
    """Statistics of the vectors of ``texts``, which need neither queries nor judgements. ``token_rate`` is the share of
    logits above zero, if it is known already.

    The first :data:`QUERY_TOKENS` tokens of each text stand in for a query, and every *other* distinct text is a
    document for it. A query that no text answers has a spread of zero, and all its scores are tied.
    """
    distinct = list(dict.fromkeys(texts))
    if token_rate is None:
        token_rate = activation_rates(encoder, texts, max_length)["token"]
    documents = encode(encoder, distinct, max_length, description="encoding probe texts")
    queries = encode(encoder, distinct, min(QUERY_TOKENS, max_length), description="encoding probe queries")
    spread, tied = score_spread(queries, documents)
    return ProbeMetrics(
        token=token_rate,
        pooled=documents.nnz / max(documents.shape[0] * documents.shape[1], 1),
        query_dimensions=queries.nnz / max(len(distinct), 1),
        document_dimensions=documents.nnz / max(len(distinct), 1),
        spread=spread,
        tied=tied,
    )


def score_spread(queries: sparse.csr_matrix, documents: sparse.csr_matrix) -> tuple[float, float]:
    """Spread and share of tied scores (:class:`ProbeMetrics`) of the i-th query over all documents but the i-th, both
    of (n, vocabulary); 0 for fewer than three texts, where there is nothing to compare."""
    count = queries.shape[0]
    if count < 3:
        return 0.0, 0.0
    scores = np.asarray((queries.astype(np.float64) @ documents.astype(np.float64).T).todense())
    others = scores[~np.eye(count, dtype=bool)].reshape(count, count - 1)
    means = others.mean(axis=1)
    spread = np.divide(others.std(axis=1), means, out=np.zeros(count), where=means > 0)
    ranked = -np.sort(-others, axis=1)
    same = ranked[:, :-1] - ranked[:, 1:] <= SAME_SCORE * ranked[:, :-1]
    tied = np.zeros(ranked.shape, dtype=bool)
    tied[:, :-1] |= same
    tied[:, 1:] |= same
    return float(spread.mean()), float(tied[:, :RANKS].mean())


def token_rates(targets: TokenTargets, wanted: float) -> NDArray[np.float64]:
    """The activation rate r_j wanted of each token (:class:`TokenTargets`), 0 where the corpus does not hold it; they
    sum to ``wanted``, active dimensions of a text, or are all :data:`HIGHEST_RATE` where that is more than they can
    have."""
    held = targets.frequencies > 0
    shares = np.where(held, ((targets.frequencies + 0.5) / (targets.documents + 1)) ** FREQUENCY_POWER, 0.0)
    low, high = 0.0, wanted / max(shares[held].min(initial=1.0), 1e-12)
    for _ in range(100):
        scale = (low + high) / 2
        if np.minimum(scale * shares, HIGHEST_RATE).sum() < wanted:
            low = scale
        else:
            high = scale
    return np.asarray(np.minimum(high * shares, HIGHEST_RATE))


def _shift_tokens(encoder: SparseEncoder, solving: _Logits, targets: TokenTargets, pooled: float | None) -> TokenShifts:
    """Lower every token's own bias in place."""
    bias = mlm_head(encoder[0].auto_model).decoder.bias
    wanted = (solving.rates()["pooled"] if pooled is None else pooled) * len(bias)
    usable = bias > MASKED_BIAS / 2
    held = replace(targets, frequencies=np.where(usable.cpu().numpy(), targets.frequencies, 0))
    rates = torch.from_numpy(token_rates(held, wanted)).to(bias.device, torch.float32)
    seen = rates > 0
    full = targets.strength * solving.token_quantiles(1.0 - rates)
    shifts = torch.where(seen, full.clamp(-targets.bound, targets.bound), torch.zeros_like(full))
    with torch.no_grad():
        bias.sub_(shifts)
    count = int(seen.sum())
    return TokenShifts(
        tokens=count,
        unseen=int((usable & ~seen).sum()),
        mean=float(shifts.abs().sum() / max(count, 1)),
        bounded=int((seen & (full.abs() > targets.bound)).sum()),
    )


def _refuse_missed(held_out: ActivationRates, target: float, definition: Definition) -> None:
    reached = held_out[definition]
    if abs(reached - target) > 0.5 * target:
        raise CollapseError(
            f"calibration to a {definition} activation rate of {target:.1%} reached {reached:.1%} on held-out "
            "probe texts: the probe texts differ too much from each other. Use more (texts) or others (corpus)."
        )


def _lower_bias(encoder: SparseEncoder, shift: float) -> None:
    """Lower the bias: b <- b - shift."""
    with torch.no_grad():
        mlm_head(encoder[0].auto_model).decoder.bias.sub_(shift)


class _Logits:
    """The logits of some texts under the decoder as it is now, never all of them at once."""

    def __init__(self, encoder: SparseEncoder, texts: Sequence[str], max_length: int) -> None:
        tokenizer, model = encoder.tokenizer, encoder[0].auto_model
        limit = min(max_length, encoder.max_seq_length or max_length)
        token_ids = first_tokens(tokenizer, texts, limit)["input_ids"]
        order = sorted(range(len(token_ids)), key=lambda text: len(token_ids[text]))
        states: dict[int, Tensor] = {}
        self._decoder = mlm_head(model).decoder
        encoder.eval()
        with torch.no_grad():
            for start in range(0, len(order), TEXTS_A_BATCH):
                batch = order[start : start + TEXTS_A_BATCH]
                ids, mask = padded([token_ids[text] for text in batch], tokenizer.pad_token_id, model.device)
                for text, hidden, real in zip(batch, decoder_input(model, ids, mask), mask.bool(), strict=True):
                    states[text] = hidden[real]
        # the decoder's input at every token, (tokens, width), and the number of tokens of each text
        self._hidden = torch.cat([states[text] for text in range(len(token_ids))])
        self._lengths = list(map(len, token_ids))

    def rates(self) -> ActivationRates:
        """Shares of the logits above zero, by both definitions."""
        tokens = pooled = 0
        for logits in self._blocks():
            tokens += int((logits > 0).sum())
            pooled += int((self._pool(logits) > 0).sum())
        vocabulary = self._decoder.out_features
        return {
            "token": tokens / (len(self._hidden) * vocabulary),
            "pooled": pooled / (len(self._lengths) * vocabulary),
        }

    def quantile(self, share: float, definition: str) -> float:
        """The logit that ``share`` of all (pooled) logits lie below, to the width of a histogram bin; the bins cover
        the logits that are not masked."""
        lowest, highest = math.inf, -math.inf
        for logits in self._blocks():
            usual = logits[:, logits[0] > MASKED_BIAS / 2]
            if usual.numel():
                lowest, highest = min(lowest, float(usual.min())), max(highest, float(usual.max()))
        counts = torch.zeros(BINS, dtype=torch.float64)
        total = 0
        for logits in self._blocks():
            values = logits if definition == "token" else self._pool(logits)
            total += values.numel()
            counts += torch.histc(values, BINS, lowest, highest).cpu()
        below = (total - counts.sum() + counts.cumsum(0)) / total
        position = min(int(torch.searchsorted(below, share)), BINS - 1)
        return lowest + (position + 1) * (highest - lowest) / BINS

    def token_quantiles(self, shares: Tensor) -> Tensor:
        """The value that ``shares[j]`` of the texts' pooled logits of token j lie below, (vocabulary,), interpolated
        between two texts, the k-th lowest of n standing for (k - ½) / n; never beyond the highest."""
        quantiles, start = [], 0
        for logits in self._blocks():
            ordered = self._pool(logits).sort(dim=0).values
            block = shares[start : start + ordered.shape[1]]
            start += ordered.shape[1]
            place = (block * len(ordered) - 0.5).clamp(0, len(ordered) - 1)
            below = place.floor().long()
            above = (below + 1).clamp(max=len(ordered) - 1)
            low, high = (ordered.gather(0, rank[None])[0] for rank in (below, above))
            quantiles.append(torch.lerp(low, high, place - below))
        return torch.cat(quantiles)

    def _blocks(self) -> Iterator[Tensor]:
        """The logits of all tokens, (tokens, block) for one block of the vocabulary after the other."""
        weight, bias = self._decoder.weight.detach(), self._decoder.bias.detach()
        size = max(64, LOGITS_A_BLOCK // max(len(self._hidden), 1))
        for start in range(0, weight.shape[0], size):
            block = slice(start, start + size)
            logits = torch.addmm(bias[block], self._hidden, weight[block].t())
            if not all(math.isfinite(end) for end in torch.stack(torch.aminmax(logits)).tolist()):
                raise CollapseError("calibration: the model's logits are not finite (NaN or infinite weights).")
            yield logits

    def _pool(self, logits: Tensor) -> Tensor:
        """The maximum over each text's tokens, (texts, block)."""
        return torch.stack([part.amax(dim=0) for part in torch.split(logits, self._lengths)])

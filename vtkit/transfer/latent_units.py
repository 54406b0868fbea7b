"""Latent units as a vocabulary: a sparse autoencoder on the token states of a dense embedder (Latent Terms,
arXiv:2605.29384).

With x the state of a token as the head hands it on (centred, of length √width):

    z = ReLU(E (x - c) + b),   x̂ = Dᵀ top_k(z) + c,   minimise |x - x̂|²

What is saved is a masked-language-model head that plain sentence-transformers reads: its linear map is the identity,
its decoder has the rows of E, and top_k becomes a threshold θ for each unit, above which it fires as often as it is
among the k (JumpReLU without the jump):

    logit_u = s (E_u (x - c) + b_u - θ_u)

Units are named by words (:mod:`vtkit.transfer.unit_names`). Words can stand beside them: a head that reads tokens back
(:mod:`vtkit.encoder.fitted_head`) hands z ≈ L x + l to its decoder E; a token's row is L'E_j and its bias b_j + E_j'l.
"""

import math
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Dense
from torch import Tensor, nn

from vtkit.encoder.asymmetric import WholeEncoder, dimension_names, named, with_sides, writes_units
from vtkit.encoder.checkpoint import as_sparse_encoder, load_encoder
from vtkit.encoder.fitted import HeadFit, UnitsFit
from vtkit.encoder.fitted_head import ROWS_AT_ONCE, Head, States, fit_to_states, token_states
from vtkit.encoder.masked import MASKED_BIAS
from vtkit.encoder.model_folder import first_of
from vtkit.encoder.new_head import WithNewHead, with_layers
from vtkit.settings.source import HEAD_STEPS, UNIT_STEPS, Units
from vtkit.system import console
from vtkit.system.errors import DataError
from vtkit.system.runtime import bf16_is_fast, fastest_device
from vtkit.transfer.surgery.head_only import graft_head
from vtkit.transfer.unit_names import unit_names

FEWEST_TOKENS = 1000

REVIVED_EVERY = 100  # steps after which units that fired for no token since become states that are rebuilt badly
REVIVED_UNTIL = 0.7  # of all steps; the rest is left to settle
LOOKED_AT = 16_384  # tokens whose units decide thresholds, and held-out ones that are rebuilt

UNIT_LOGIT = 30.0
"""Mean logit of a unit that fires: the logarithm then saturates, so that a weight says that a unit fires more than how
strongly it does (docs/log.md)."""

TEXTS_NAMED = 2000  # texts that name the units of a dictionary

POSITIONS = 1024  # tokens a step
LEARNING_RATE = 1e-3  # of AdamW; it rises for a twentieth of the steps and falls to 0 along a cosine

UNITS_AT_ONCE = 512


class Autoencoder(nn.Module):
    """The k-sparse autoencoder, the encoder started from the decoder's rows.

    Args:
        centre: c to begin with, (width,).
        rows: the decoder's rows to begin with, (units, width).
        active: k.
    """

    def __init__(self, centre: Tensor, rows: Tensor, active: int) -> None:
        super().__init__()
        self.active = active
        rows = nn.functional.normalize(rows, dim=1)
        self.encoder, self.decoder = nn.Parameter(rows.clone()), nn.Parameter(rows.clone())
        self.bias, self.centre = nn.Parameter(rows.new_zeros(len(rows))), nn.Parameter(centre.clone())

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """x̂, (tokens, width), and which units fire, (tokens, k).

        All units are compared without gradients, in training by a product in bf16 where the hardware has it. Only the k
        that fire are computed with gradients, from their own rows of the encoder and the decoder: other rows have the
        gradient 0, and the product with them is most of the work.
        """
        centred = states - self.centre
        half = torch.autocast(states.device.type, dtype=torch.bfloat16, enabled=self.training and bf16_is_fast())
        with torch.no_grad(), half:
            places = nn.functional.linear(centred, self.encoder, self.bias).topk(self.active, dim=1).indices
        rows = nn.functional.embedding(places, self.encoder)
        units = (torch.einsum("tw,tkw->tk", centred, rows) + self.bias[places]).relu()
        rebuilt = nn.functional.embedding_bag(places, self.decoder, per_sample_weights=units, mode="sum")
        return rebuilt + self.centre, places


def fit_units(
    encoder: SparseEncoder,
    texts: Sequence[str],
    section: Units,
    seed: int,
    folder: Path,
    words: float | None = None,
    steps: int | None = None,
    projection: Tensor | None = None,
) -> tuple[WholeEncoder, UnitsFit, HeadFit | None]:
    """An encoder that reads what ``encoder`` reads and writes latent units, and tokens behind them with ``words``.

    Args:
        encoder: of :func:`vtkit.encoder.checkpoint.load_with_new_head`; its head is replaced.
        section: with a ``dictionary``, its units are taken over, and nothing is learned.
        folder: where states and the model are kept meanwhile.
        words: of the tokens' head, :func:`vtkit.encoder.fitted_head.fit_head`'s ``activation``.
        steps: of the optimiser.
        projection: maps states before units are learned from them (:func:`vtkit.encoder.dense.token_projection`).
    """
    rng = np.random.default_rng(seed)
    known = None if section.dictionary is None else _dictionary(section.dictionary, encoder)
    if known is not None and words is None:  # the texts name the units and teach nothing
        texts = [texts[number] for number in np.sort(rng.permutation(len(texts))[:TEXTS_NAMED]).tolist()]
    encoder.to(fastest_device())
    states = token_states(encoder, texts, folder)
    fitted_on, held_out = np.flatnonzero(~states.held_out), np.flatnonzero(states.held_out)
    if known is None and len(fitted_on) < FEWEST_TOKENS:
        raise DataError(
            f"Units need at least {FEWEST_TOKENS} tokens to learn from, and the texts hold {len(fitted_on)}. Name more "
            "text of the language in corpus."
        )
    looked_at = np.sort(rng.permutation(fitted_on)[:LOOKED_AT])
    head, read = Head(encoder[0].auto_model), None
    if words is not None:
        read = fit_to_states(encoder, states, len(texts), words, seed, steps or HEAD_STEPS)
        with torch.no_grad():
            before = head.output(states.batch(looked_at)[0])
            tokens = head.decoder.weight.clone(), head.decoder.bias.clone()
    if known is not None:
        rows, bias = _units_of(known, head)
        unexplained, revived = None, 0
    else:
        head.pass_on(states, fitted_on, projection)
        learned, revived = _learned(head, states, fitted_on, section, seed, steps or UNIT_STEPS)
        measured = np.sort(rng.permutation(held_out if len(held_out) else fitted_on)[:LOOKED_AT])
        with torch.no_grad():
            wanted = head.output(states.batch(measured)[0])
            missed = torch.cat([learned(some)[0] - some for some in torch.split(wanted, 1024)])
            unexplained = float(missed.square().sum() / (wanted - wanted.mean(0)).square().sum())
            rows, bias = _as_decoder(head, learned, states, looked_at)
    units, dead = len(rows), int((bias <= MASKED_BIAS / 2).sum())
    with torch.no_grad():
        names = unit_names(head, rows, bias, states, texts, seed)
        if words is not None:
            names += encoder.tokenizer.convert_ids_to_tokens(range(len(encoder.tokenizer)))
            behind = _rows_of_words(head.output(states.batch(looked_at)[0]), before, *tokens)
            rows, bias = (torch.cat(both)[: len(names)] for both in zip((rows, bias), behind, strict=True))
    model, of_units = encoder.cpu()[0].auto_model, (rows.cpu(), bias.cpu())
    if isinstance(model, WithNewHead):
        plain = with_layers(encoder, *of_units, section.pooling)
    else:
        grafted = partial(graft_head, model, encoder.tokenizer, *of_units)
        plain = as_sparse_encoder(grafted(), encoder.tokenizer, folder / "model", section.pooling)
    whole = with_sides(plain, encoder, output=named(names))
    return whole, UnitsFit(units, len(texts), len(states.ids), unexplained, dead, revived), read


def _dictionary(dictionary: str, encoder: SparseEncoder) -> SparseEncoder:
    """The encoder ``dictionary``; DataError if it has no units, or those of another embedder than ``encoder``."""
    setting = "source.units.dictionary"
    known = load_encoder(dictionary, label=f"{setting} =")
    if not writes_units(known):
        raise DataError(
            f"{setting} = {dictionary}: its dimensions are not latent units. Name a model that [source.units] made."
        )
    models = known[0].auto_model, encoder[0].auto_model
    layers, own = (
        {
            name: weight
            for name, weight in each.base_model.named_parameters()
            if weight is not each.get_input_embeddings().weight
        }
        for each in models
    )
    other = [name for name, weight in own.items() if name not in layers or not torch.equal(layers[name], weight.cpu())]
    if other or len(layers) > len(own):
        raise DataError(
            f"{setting} = {dictionary}: its units were not learned from source.model as it is with this source.layers: "
            f"{first_of(other or list(layers))} differ. Name the model that they were learned from."
        )
    return known


def _units_of(known: SparseEncoder, head: Head) -> tuple[Tensor, Tensor]:
    """Decoder rows and biases of the units of another encoder, whose head ``head`` becomes."""
    names, device = dimension_names(known), head.map.weight.device
    count = next((n for n, name in enumerate(names) if not re.fullmatch(rf"{n}(:.*)?'*", name)), len(names))
    if isinstance(known[-2], Dense):  # :func:`vtkit.encoder.new_head.layers`
        head.map.load_state_dict(known[1].linear.state_dict())
        rows, bias = known[-2].linear.weight[:, :-1] / len(head.map.weight) ** 0.5, known[-2].linear.bias
    else:
        found = Head(known[0].auto_model)
        head.map.load_state_dict(found.map.state_dict())
        head.norm.load_state_dict(found.norm.state_dict())
        rows, bias = found.decoder.weight, found.decoder.bias
    return rows[:count].detach().to(device), bias[:count].detach().to(device)


def _rows_of_words(states: Tensor, outputs: Tensor, embeddings: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Decoder rows and biases of tokens over ``states``, (tokens, width), as units read them, where the tokens' own
    head makes ``outputs`` of them and has ``embeddings``, (vocabulary, width), and ``bias``."""
    known = torch.cat([states, torch.ones_like(states[:, :1])], dim=1).double().cpu()
    linear = torch.linalg.lstsq(known, outputs.double().cpu(), driver="gelsd").solution.to(embeddings)
    moved = torch.where(bias < MASKED_BIAS / 2, bias, bias + embeddings @ linear[-1])
    return embeddings @ linear[:-1].T, moved


def _learned(
    head: Head, states: States, rows: NDArray[np.int64], section: Units, seed: int, steps: int
) -> tuple[Autoencoder, int]:
    """The autoencoder after training on the states ``rows``, and how many units were revived."""
    rng = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        first = head.output(states.batch(np.sort(rng.choice(rows, min(ROWS_AT_ONCE, len(rows)), replace=False)))[0])
        centre = first.mean(0)
        drawn = torch.randint(len(first), (section.size,), generator=generator)
        noise = torch.randn(section.size, first.shape[1], generator=generator).to(first.device)
        sae = Autoencoder(centre, first[drawn.to(first.device)] - centre + 0.5 * noise, section.active)
    optimiser = torch.optim.AdamW(sae.parameters(), lr=LEARNING_RATE, weight_decay=0.0, fused=True)
    warm = max(1, steps // 20)

    def rate(step: int) -> float:
        return min((step + 1) / warm, 0.5 * (1 + math.cos(math.pi * step / steps)))

    rates = torch.optim.lr_scheduler.LambdaLR(optimiser, rate)
    fired = torch.zeros(section.size, dtype=torch.bool, device=centre.device)
    revived = 0
    with torch.enable_grad():
        for step in console.tracked(range(steps), "learning units", steps):
            picked = rng.choice(rows, min(POSITIONS, len(rows)), replace=False)
            with torch.no_grad():
                batch = head.output(states.batch(np.sort(picked))[0])
            rebuilt, places = sae(batch)
            errors = (rebuilt - batch).square().sum(1)
            optimiser.zero_grad()
            errors.mean().backward()
            optimiser.step()
            rates.step()
            fired[places.flatten()] = True
            if step % REVIVED_EVERY == REVIVED_EVERY - 1:
                if step < REVIVED_UNTIL * steps:
                    revived += _revive(sae, optimiser, ~fired, (batch - rebuilt).detach(), errors.detach())
                fired.zero_()
    return sae.eval(), revived


def _revive(sae: Autoencoder, optimiser: torch.optim.Optimizer, dead: Tensor, missed: Tensor, errors: Tensor) -> int:
    """Let ``dead`` units stand for what is ``missed`` most, (tokens, width); how many."""
    places = dead.nonzero().flatten()[: len(missed)]
    with torch.no_grad():
        rows = nn.functional.normalize(missed[errors.argsort(descending=True)[: len(places)]], dim=1)
        sae.encoder[places], sae.decoder[places] = rows, rows
        sae.bias[places] = 0.0
        for parameter in (sae.encoder, sae.decoder, sae.bias):
            for moment in ("exp_avg", "exp_avg_sq"):
                optimiser.state[parameter][moment][places] = 0.0
    return len(places)


def _as_decoder(head: Head, sae: Autoencoder, states: States, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Decoder rows and biases of the units, which fire for the tokens ``rows`` as often as they are among the k."""
    outputs = head.output(states.batch(rows)[0])
    fires = np.zeros(len(sae.bias), dtype=np.int64)
    for some in torch.split(outputs, 1024):
        fires += np.bincount(sae(some)[1].flatten().cpu().numpy(), minlength=len(fires))
    threshold, total, positive = torch.zeros_like(sae.bias), 0.0, 0
    for begin in range(0, len(fires), UNITS_AT_ONCE):
        part = slice(begin, begin + UNITS_AT_ONCE)
        values = nn.functional.linear(outputs - sae.centre, sae.encoder[part], sae.bias[part]).relu().T
        ordered = values.sort(dim=1, descending=True).values
        last = torch.as_tensor(np.minimum(fires[part], len(rows) - 1), device=values.device)
        threshold[part] = ordered.gather(1, last[:, None]).flatten()
        above = (values - threshold[part, None]).relu()
        total, positive = total + float(above.sum()), positive + int(above.count_nonzero())
    scale = UNIT_LOGIT / max(total / max(positive, 1), 1e-6)
    weight = scale * sae.encoder
    bias = scale * (sae.bias - threshold - sae.encoder @ sae.centre)
    bias[torch.as_tensor(fires == 0, device=bias.device)] = MASKED_BIAS
    return weight, bias

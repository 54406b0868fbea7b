"""What training minimises: a sum of named losses and penalties, functions of the term weights of one batch."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from sentence_transformers import SparseEncoder
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vtkit.encoder.asymmetric import output_tokenizer, writes_units
from vtkit.settings.finetune import LOSSES, PENALTIES, SIDES, FlopsDefinition, LossName, PenaltyName, Side
from vtkit.system import distributed
from vtkit.training import losses, regularizers
from vtkit.training.gates import Gate
from vtkit.training.query_table import QueryTable
from vtkit.training.target import READ_EVERY, ActiveTarget
from vtkit.training.teachers import KeptScores
from vtkit.vocabulary.casing import cased_ids


@dataclass(frozen=True)
class Batch:
    """The term weights of one batch."""

    queries: Tensor  # (n, vocabulary)
    documents: Tensor
    """(n + m, vocabulary): the i-th is relevant to the i-th query, the m last are hard negatives of some query."""

    sentences: Tensor | None = None
    """(n, vocabulary): target sides of sentence pairs. Where a run has nothing else they are queries and documents."""

    step: int = 0  # optimiser step

    @cached_property
    def scores(self) -> Tensor:
        """Scores of each query with each document, (n, n + m)."""
        return self.queries @ self.documents.t()

    @cached_property
    def sentence_scores(self) -> Tensor:
        """Scores of each sentence with every sentence, itself included, (n, n)."""
        assert self.sentences is not None
        return self.sentences @ self.sentences.t()


@dataclass(frozen=True)
class Term:
    """One summand of an objective: ``weight(step) · value(batch)``."""

    name: str  # of its curve
    value: Callable[[Batch], Tensor]  # a scalar
    weight: Callable[[int], float] = lambda step: 1.0  # its strength at an optimiser step
    state: nn.Module | None = None
    """Buffers that it keeps from batch to batch, and in checkpoints."""


def loss_term(
    name: LossName,
    weight: float = 1.0,
    *,
    scale: float = 1.0,
    repeated: Callable[[int], Tensor] | None = None,
    taught: KeptScores | None = None,
    teacher_scale: float | None = None,
) -> Term:
    """``weight`` times the loss of this name, whose curve is called like it.

    Args:
        scale: factor on the scores of a loss that learns from judgements.
        repeated: of a step, the documents that are relevant to a query but not its own, (n, n + m); such a loss counts
            them as no negatives.
        taught: the teacher's scores, for a loss that learns them.
        teacher_scale: factor on the teacher's scores of a query's own documents; None: by the kind of teacher.
    """
    loss: Callable[..., Tensor] = getattr(losses, LOSSES[name].function)
    learns = LOSSES[name].learns

    def value(batch: Batch) -> Tensor:
        if learns == "judgements":
            masked = None if repeated is None else repeated(batch.step).to(batch.scores.device)
            return loss(batch.scores, scale, masked)
        assert taught is not None
        if learns == "all":
            return loss(batch.scores, taught[batch.step].to(batch.scores))
        own = (teacher_scale or taught.scale) * taught.own(batch.step).to(batch.scores)
        return loss(losses.own_candidates(batch.scores), own)

    return Term(name, value, lambda step: weight)


def penalty_term(
    side: Side,
    name: PenaltyName,
    encoder: SparseEncoder,
    weight: Callable[[int], float],
    definition: FlopsDefinition = "batch",
) -> Term:
    """``weight(step)`` times the penalty of this name, of the queries or the documents of a batch (target sides of
    sentence pairs are documents too); its curve is called ``SIDE_NAME``.

    Args:
        encoder: whose vectors they are.
        weight: λ at an optimiser step.
        definition: how relevant documents and hard negatives are combined, in the penalties that it is about.
    """
    kind = PENALTIES[name]
    value: Callable[..., Tensor] = getattr(regularizers, kind.function)
    if isinstance(value, type):  # which has state
        value = value(encoder[0].auto_model.config.vocab_size)
    elif kind.spares:
        value = partial(value, dimensions=kind.spares[side])
    elif kind.only_cased:
        value = partial(value, dimensions=torch.from_numpy(cased_ids(output_tokenizer(encoder))))

    def of(batch: Batch) -> Tensor:
        if side == "query":
            return value(batch.queries)
        if kind.split and definition != "batch":
            relevant = len(batch.queries)
            return regularizers.of_documents(value, batch.documents[:relevant], batch.documents[relevant:], definition)
        extra = [] if batch.sentences is None or batch.sentences is batch.documents else [batch.sentences]
        return value(torch.cat([batch.documents, *extra]) if extra else batch.documents)

    return Term(f"{side}_{name}", of, weight, value if isinstance(value, nn.Module) else None)


UNIT_SCALE = 0.3
"""Factor on the weights of latent units in losses and penalties. A unit that fires weighs about log(1 + 30) = 3.4, a
token about 1; a softmax of scores ten times as large is one-hot and teaches nothing."""


class Objective(nn.Module):
    """The sum of ``terms``, as a loss module for ``SparseEncoderTrainer``, which logs each of them. Columns of the
    training data: query, document, and any number of hard negatives; sentences first.

    Args:
        terms: what is summed; the first is the loss that is watched for explosions.
        step: tells the current optimiser step (the trainer's own counter, so that it is in the checkpoint).
        gate: sees the first term and the vectors of every batch and stops a collapsed run.
        sentences: whether the first column holds sentences.
        table: what the first column, of queries, is looked up in instead of encoded.
        texts_at_once: texts of a batch whose activations are held at a time; None: all of them.
    """

    def __init__(
        self,
        model: SparseEncoder,
        terms: Sequence[Term],
        *,
        step: Callable[[], int],
        gate: Gate,
        sentences: bool = False,
        table: QueryTable | None = None,
        texts_at_once: int | None = None,
    ) -> None:
        super().__init__()
        self.model, self.terms, self.table = model, tuple(terms), table
        self.step, self.gate, self.sentences, self.texts_at_once = step, gate, sentences, texts_at_once
        self.scale = UNIT_SCALE if writes_units(model) else 1.0
        self.targets = {term.name: term.weight for term in terms if isinstance(term.weight, ActiveTarget)}
        self.state = nn.ModuleDict(
            {term.name: term.state for term in terms if term.state is not None}
            | {f"{name}_weight": target for name, target in self.targets.items()}
            | ({"query_table": table} if table is not None and table.trained else {})
        )
        self._active: list[dict[Side, float]] = []

    @property
    def curves(self) -> tuple[str, ...]:
        """Names of the values that the trainer logs at each point."""
        strengths = (f"{target.side}_lambda" for target in self.targets.values())
        return ("loss", *(term.name for term in self.terms), "query_dimensions", "document_dimensions", *strengths)

    def forward(self, features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> dict[str, Tensor]:
        features = list(features)
        looked_up = [] if self.table is None else [self.table(features[0])]
        encoded = term_weights_of(self.model, features[len(looked_up) :], self.texts_at_once)
        columns = [distributed.gathered(own) for own in (*looked_up, *encoded)]
        if self.scale != 1:
            columns = [self.scale * column for column in columns]
        step = self.step()
        if self.targets and step % READ_EVERY == 0:
            self._read_without_dropout(features, columns)
        sentences = columns[0] if self.sentences else None
        queries, *documents = columns[int(self.sentences) :] or columns[:1] * 2  # sentences alone are both
        batch = Batch(queries, torch.cat(documents) if len(documents) > 1 else documents[0], sentences, step)
        with torch.autocast(batch.queries.device.type, enabled=False):  # scores in bf16 would be off by hundredths
            values = {term.name: term.value(batch) for term in self.terms}
        active: dict[Side, float] = {"query": _mean_active(batch.queries), "document": _mean_active(batch.documents)}
        for name, target in self.targets.items():
            active[target.side] *= float(target.ratio[0])  # as they are without dropout
            loss = self.terms[0].weight(step) * float(values[self.terms[0].name].detach())
            target.see(step, active[target.side], loss, float(values[name].detach()))
        parts = {term.name: term.weight(step) * values[term.name] for term in self.terms}
        with torch.no_grad():
            total = torch.stack(list(parts.values())).sum()
            self.gate(step, parts[self.terms[0].name] if total.isfinite() else total)  # a penalty may be infinite
            self.gate.vectors(step, batch.queries, batch.documents, batch.scores)
            self._active.append(active)
        return parts

    @torch.no_grad()
    def _read_without_dropout(self, features: Sequence[dict[str, Tensor]], columns: Sequence[Tensor]) -> None:
        """Tell the targets how dropout changes the first column of their side."""
        queries = int(self.sentences and len(columns) > 1)
        first = {"query": queries, "document": min(queries + 1, len(columns) - 1)}  # else sentences are both
        training = self.model.training
        self.model.eval()
        for target in self.targets.values():
            if target.side == "query" and self.table is not None:
                continue  # which has no dropout
            column = first[target.side]
            (without,) = term_weights_of(self.model, [features[column]], self.texts_at_once)
            target.read(_mean_active(distributed.gathered(without)), _mean_active(columns[column]))
        self.model.train(training)

    def take_active_dimensions(self) -> dict[str, float]:
        """Mean active dimensions of the batches since the last call, and the λ found, for the training log."""
        seen, self._active = self._active, []
        if not seen:
            return {}
        means = {f"{side}_dimensions": round(sum(each[side] for each in seen) / len(seen), 2) for side in SIDES}
        return means | {f"{target.side}_lambda": float(f"{target(0):.3g}") for target in self.targets.values()}


def _mean_active(vectors: Tensor) -> float:
    return float((vectors > 0).sum(dim=1).float().mean())


TEXTS_A_GROUP = 8
"""Texts that go through the encoder together, at least; small groups of similar length waste little on padding."""

TOKENS_A_GROUP = 1024
"""Short texts come in larger groups, up to so many tokens: every group reads and casts all weights once more."""


def term_weights_of(
    model: SparseEncoder, columns: Sequence[dict[str, Tensor]], texts_at_once: int | None = None
) -> list[Tensor]:
    """The term weights of each column of a batch, (texts, vocabulary) float32.

    Args:
        texts_at_once: gradient caching (Gao et al. 2021, arXiv:2101.06983): no activations are held, and so many texts
            at a time are computed once more just before their backward pass, with the same gradients; None: all of
            them are held.
    """
    compute: Callable[..., Tensor] = _vectors
    if texts_at_once is not None and torch.is_grad_enabled():
        compute = partial(checkpoint, _vectors, use_reentrant=False, preserve_rng_state=False)
    weights = []
    for column in columns:
        groups = list(_groups(column, texts_at_once or TEXTS_A_GROUP))
        vectors = torch.cat([compute(model, features, seed) for _, features, seed in groups])
        weights.append(vectors[torch.argsort(torch.cat([rows for rows, _, _ in groups]))])
    return weights


def _groups(column: dict[str, Tensor], least: int) -> Iterator[tuple[Tensor, dict[str, Tensor], int]]:
    """Rows of similar length, ``least`` texts or more with :data:`TOKENS_A_GROUP` tokens, what the tokenizer gives of
    them, and a seed for the dropout: padding all texts of a column to the longest nearly doubles the tokens of real
    collections."""
    lengths, start = column["attention_mask"].sum(dim=1), 0
    order = torch.argsort(lengths, stable=True)
    for stop in range(1, len(order) + 1):
        texts = stop + 1 - start
        if stop < len(order) and (texts <= least or texts * int(lengths[order[stop]]) <= TOKENS_A_GROUP):
            continue
        rows = order[start:stop]
        features = {name: tensor[rows, : int(lengths[rows[-1]])] for name, tensor in column.items()}
        yield rows, features, int(torch.randint(2**62, ()))
        start = stop


def _vectors(model: SparseEncoder, features: dict[str, Tensor], seed: int) -> Tensor:
    device = model.device
    with torch.random.fork_rng([device] if device.type == "cuda" else [], enabled=model.training):
        if model.training:
            torch.manual_seed(seed)
        vectors: Tensor = model(dict(features))["sentence_embedding"]
        return vectors.float()

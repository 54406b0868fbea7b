"""Adaptation: masked-language-model training in the new vocabulary, by default with a frozen transformer.

The vocabulary-transfer paper trains the input embeddings, the tied decoder and its bias, and masks new
tokens more often (:mod:`vtkit.training.masking`). Only masked positions are projected onto the vocabulary, a few at a
time, and a batch of any size goes through the encoder in parts, so that neither has to fit into memory as a whole.
Masked dimensions (:mod:`vtkit.encoder.masked`) are no labels and have no part in the softmax, and stay masked.
An encoder whose output vocabulary is its own (head-only transfer) keeps its input embeddings, and what is masked is
labelled with output tokens. Instead of predicting tokens it may be brought to a teacher's vectors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sentence_transformers import SparseEncoder
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset, Sampler, SequentialSampler
from transformers import Trainer, TrainingArguments

from vtkit import console
from vtkit.encoder.asymmetric import WholeEncoder, dimension_names
from vtkit.encoder.families import mlm_head
from vtkit.encoder.masked import MASKED_BIAS, masked_dimensions
from vtkit.encoder.sparse_head import without_decoder
from vtkit.encoder.truncation import first_tokens, shortened_to
from vtkit.errors import DataError
from vtkit.recipe.sections import AdaptSection
from vtkit.training.gates import LossGate
from vtkit.training.masking import IGNORED, emlm_labels, mask_tokens
from vtkit.training.resuming import Progress, curve, fixed_order, train, trainer_settings

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

LOGITS_BYTES = 64 * 2**20
"""Logits that are held at a time, (positions, vocabulary), stay below this."""

TOKENS_A_PART = 8192
"""A batch of more tokens goes through the encoder in parts whose gradients are summed."""

SHORTEST = 4
"""Texts of fewer tokens (special tokens included) leave nothing to learn from and are passed over."""


def adapt(
    encoder: SparseEncoder,
    texts: Sequence[str],
    new_tokens: np.ndarray,
    section: AdaptSection,
    seed: int,
    folder: Path,
    teacher: SparseEncoder | None = None,
) -> dict[str, list[float]]:
    """Train ``encoder``'s masked language model in place on ``texts``.

    Args:
        encoder: changed in place.
        texts: training texts.
        new_tokens: ids of the (output) tokens that did not come from the source unchanged, weighted
            ``new_token_weight``.
        section: settings.
        seed: of the order, the masks and the dropout.
        folder: where checkpoints are kept and looked for.
        teacher: for the objective ``sap``, an encoder with the same output vocabulary; not changed.

    Returns:
        The curve: ``steps`` and ``loss`` (nats a masked token; for ``sap`` the mean squared difference of logits).

    Raises:
        DataError: no text is long enough, every token of the texts is masked, the teacher writes another vocabulary,
            or the labels need an output vocabulary that the encoder has not.
        CollapseError: the loss is not finite, or explodes.
    """
    tokenizer, model = encoder.tokenizer, encoder[0].auto_model
    output = encoder.output_tokenizer if isinstance(encoder, WholeEncoder) else None
    labels = section.labels or ("tokens" if output is None else "emlm")
    if section.objective != "sap" and (labels == "emlm") != (output is not None):
        raise DataError(
            'adapt.labels "emlm" is for an encoder with an output vocabulary of its own (transfer.scope "head-only"), '
            f'and "tokens" for all others; this encoder has {"no" if output is None else "an"} own output vocabulary.'
        )
    length = min(section.max_length, encoder.max_seq_length or section.max_length)
    read = first_tokens(tokenizer, texts, length, return_offsets_mapping=output is not None)
    long_enough = [number for number, ids in enumerate(read["input_ids"]) if len(ids) >= SHORTEST]
    token_ids = [read["input_ids"][number] for number in long_enough]
    if not token_ids:
        raise DataError(f"adapt.corpus: none of its {len(texts)} texts has {SHORTEST} tokens or more")

    head = mlm_head(model)
    weights = torch.ones(model.config.vocab_size)
    weights[torch.as_tensor(new_tokens, dtype=torch.long)] = section.new_token_weight
    weights[masked_dimensions(model).cpu()] = 0
    order = fixed_order(len(token_ids), section.steps * section.batch_size, seed)
    batches = _Batches(
        token_ids,
        _similar_lengths_together(order, [len(ids) for ids in token_ids], section.batch_size, seed),
        weights,
        # rows behind the tokenizer's last token fill the vocabulary up, and are no tokens
        torch.tensor(sorted({*tokenizer.all_special_ids, *range(len(tokenizer), model.config.vocab_size)})),
        tokenizer.mask_token_id,
        tokenizer.pad_token_id,
        section.mask_rate,
        seed,
    )
    if section.objective == "sap":
        if teacher is None:
            raise ValueError("the objective sap needs a teacher")
        _refuse_other_outputs(encoder, teacher)
        batches.teacher_ids = _read_by(teacher, [texts[number] for number in long_enough], length)
        batches.teacher_padding_id = teacher.tokenizer.pad_token_id
    elif output is not None:
        batches.wanted = _output_labels(
            output, [texts[n] for n in long_enough], [read["offset_mapping"][n] for n in long_enough]
        )
    if section.objective != "sap":
        _refuse_masked_texts(token_ids if batches.wanted is None else batches.wanted, weights, batches.special_ids)
    learning = {id(head.embeddings.weight), id(head.decoder.weight), id(head.decoder.bias)}
    if output is not None:  # what is read stays as it was
        learning.remove(id(head.embeddings.weight))
    for parameter in model.parameters():
        parameter.requires_grad_(section.train == "all" or id(parameter) in learning)

    arguments = TrainingArguments(
        **trainer_settings(folder, steps=section.steps, seed=seed, checkpoint_every=section.checkpoint_every),
        per_device_train_batch_size=1,
        learning_rate=section.learning_rate,
        weight_decay=section.weight_decay,
        lr_scheduler_type="cosine",
        warmup_steps=round(section.warmup * section.steps),
    )
    torch.manual_seed(seed)
    with console.progress("adapting", total=section.steps) as bar:
        trainer = _MaskedTrainer(
            model=model, args=arguments, train_dataset=batches, data_collator=_only, callbacks=[Progress(bar)]
        )
        trainer.gate = LossGate(
            "adaptation",
            "Lower adapt.learning_rate.",
            math.log(max(int((weights > 0).sum()), 2)) if section.objective != "sap" else None,
        )
        if section.prior == "unigram":
            wanted = token_ids if batches.wanted is None else batches.wanted
            trainer.prior = unigram_prior(wanted, model.config.vocab_size, batches.special_ids)
        trainer.teacher = None if teacher is None else teacher[0].auto_model.eval()
        history = train(trainer, folder)
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    model.eval()
    return curve(history, "loss")


def masked_loss(
    hidden: Tensor, labels: Tensor, decoder: nn.Linear, masked: Tensor, prior: Tensor | None = None
) -> Tensor:
    """Cross-entropy of predicted tokens, mean over positions: -log softmax_j(h_i · w_j + b_j)[label_i].

    The logits of all positions are never held at once: the gradients of a few positions are made as soon as their
    logits are. In float32, whatever the encoder is computed in.

    Args:
        hidden: what the decoder projects, (positions, width).
        labels: (positions,).
        decoder: with a bias.
        masked: dimensions that have no part in the softmax, (vocabulary,) bool.
        prior: added to the logits inside the softmax (:func:`unigram_prior`), (vocabulary,).

    Returns:
        Scalar, in nats.
    """
    positions = max(1, LOGITS_BYTES // (4 * len(decoder.weight)))
    bias = decoder.bias if prior is None else decoder.bias + prior.to(decoder.bias.device)
    with torch.autocast(hidden.device.type, enabled=False):
        loss: Tensor = nn.functional.linear_cross_entropy(
            hidden.float(),
            decoder.weight,
            labels,
            linear_bias=bias.masked_fill(masked, -torch.inf),
            options=nn.LinearCrossEntropyOptions(batch_chunk_size=positions, chunking_method=None),
        )
    return loss


def unigram_prior(labels: Sequence[Sequence[int]], vocabulary: int, special: Tensor) -> Tensor:
    """The unigram prior log n_j / Σ_k n_k of every token j, n its occurrences in ``labels``, special tokens left out.

    Added to the logits inside the softmax (Menon et al. 2021, arXiv:2007.07314, logit adjustment), so that the logits
    themselves learn how much likelier than usual a token is. Tokens that never occur have -∞: they have no part in the
    softmax, so nothing moves them. Float32, (vocabulary,).
    """
    found = np.fromiter(chain.from_iterable(labels), dtype=np.int64)
    counts = torch.from_numpy(np.bincount(found[found != IGNORED], minlength=vocabulary)).double()
    counts[special] = 0
    return (counts / counts.sum()).log().float()


def sap_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """Squared difference of pooled logits on the dimensions where either is positive, mean over them and over texts.

    MILCO's sparse alignment objective: ``mean_i 1/|A_i| Σ_{j in A_i} (s_ij - t_ij)²`` with A_i = {j: s_ij > 0 or
    t_ij > 0}. What is negative for both makes no difference to a vector and is left alone.

    Dimensions that either of the two masks (:mod:`vtkit.encoder.masked`) are left alone too: their logits are no
    logits.

    Args:
        student: max-pooled logits, (batch, vocabulary).
        teacher: the same of the frozen teacher. Where one of the two has more dimensions (a vocabulary filled up to a
            multiple of 8 or 64), those are no tokens and are left out.
    """
    width = min(student.shape[1], teacher.shape[1])
    student, teacher = student[:, :width], teacher[:, :width]
    either = ((student > 0) | (teacher > 0)) & (torch.minimum(student, teacher) > MASKED_BIAS / 2)
    squares = torch.where(either, (student - teacher).square(), 0.0)
    return (squares.sum(dim=1) / either.sum(dim=1).clamp(min=1)).mean()


def pooled_logits(hidden: Tensor, mask: Tensor, decoder: nn.Linear) -> Tensor:
    """Maximum over each text's positions of its logits, (batch, vocabulary), one text at a time.

    Unlike the sparse head's, the gradient of a negative maximum is kept. The logits are computed again in the backward
    pass instead of being held.
    """
    rows = [
        checkpoint(_highest, vectors[real.bool()], decoder.weight, decoder.bias, use_reentrant=False)
        for vectors, real in zip(hidden, mask, strict=True)
    ]
    return torch.stack(rows)


def _highest(vectors: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return nn.functional.linear(vectors, weight).amax(dim=0) + bias


def _refuse_other_outputs(student: SparseEncoder, teacher: SparseEncoder) -> None:
    ours, theirs = dimension_names(student), dimension_names(teacher)
    differing = sum(mine != other for mine, other in zip_longest(ours, theirs, fillvalue=""))
    if differing:
        sizes = [len([name for name in names if name]) for names in (theirs, ours)]
        raise DataError(
            f"adapt.teacher writes a vocabulary of {sizes[0]} tokens, and the encoder one of {sizes[1]}; "
            f"{differing} dimensions have other names. Name a teacher over the target's output vocabulary."
        )


def _refuse_masked_texts(labels: Sequence[Sequence[int]], weights: Tensor, special: Tensor) -> None:
    ordinary = set(range(len(weights))).difference(special.tolist())
    seen = ordinary.intersection(*[set().union(*labels)])
    if seen and not any(float(weights[number]) for number in seen):
        raise DataError(
            "adapt.corpus: every token of its texts is masked, so there is nothing to predict. Set casing.output to "
            '"all" or "fold", or casing.input to "lowercase".'
        )


def _read_by(teacher: SparseEncoder, texts: Sequence[str], length: int) -> list[list[int]]:
    limit = min(length, teacher.max_seq_length or length)
    ids: list[list[int]] = first_tokens(teacher.tokenizer, texts, limit)["input_ids"]
    return ids


def _output_labels(
    output: PreTrainedTokenizerBase, texts: Sequence[str], spans: Sequence[Sequence[tuple[int, int]]]
) -> list[list[int]]:
    """What every input token of ``texts`` is to be predicted as; nothing where the output vocabulary has no token."""
    read = shortened_to(output, texts, [max((end for _, end in own), default=0) for own in spans])
    written = output(read, add_special_tokens=False, return_offsets_mapping=True)
    labels = []
    for own, ids, offsets in zip(spans, written["input_ids"], written["offset_mapping"], strict=True):
        found = emlm_labels(
            np.asarray(own, dtype=np.int64).reshape(-1, 2),
            np.asarray(offsets, dtype=np.int64).reshape(-1, 2),
            np.asarray(ids, dtype=np.int64),
        )
        found[np.isin(found, output.all_special_ids)] = IGNORED
        labels.append(found.tolist())
    return labels


def _similar_lengths_together(
    order: np.ndarray, lengths: Sequence[int], batch_size: int, seed: int
) -> list[np.ndarray]:
    """Batches of ``order``: sorted by length inside windows of 32 batches, the batches then shuffled back."""
    batches: list[np.ndarray] = []
    window = 32 * batch_size
    for number, start in enumerate(range(0, len(order), window)):
        part = order[start : start + window]
        part = part[np.argsort([lengths[i] for i in part], kind="stable")]
        rows = [part[i : i + batch_size] for i in range(0, len(part), batch_size)]
        batches.extend(rows[i] for i in np.random.default_rng([seed, 1, number]).permutation(len(rows)))
    return batches


@dataclass
class _Batches(Dataset):  # type: ignore[type-arg]
    """Masked batches; the n-th is the same whenever and however often it is asked for."""

    token_ids: list[list[int]]
    batches: list[np.ndarray]
    weights: Tensor
    special_ids: Tensor
    mask_id: int
    padding_id: int
    mask_rate: float
    seed: int
    wanted: list[list[int]] | None = None
    """What each position is to be predicted as, where that is not its own token."""

    teacher_ids: list[list[int]] | None = None
    """The texts as a teacher reads them; then nothing is masked."""

    teacher_padding_id: int = 0

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        input_ids, attention_mask = self._padded(number, self.token_ids, self.padding_id)
        if self.teacher_ids is not None:
            teacher_ids, teacher_mask = self._padded(number, self.teacher_ids, self.teacher_padding_id)
            return {
                "input_ids": input_ids,
                "attention_mask": attention_mask,
                "teacher_ids": teacher_ids,
                "teacher_mask": teacher_mask,
            }
        wanted = None if self.wanted is None else self._padded(number, self.wanted, IGNORED)[0]
        generator = torch.Generator().manual_seed((self.seed << 32) + number)
        masked, labels = mask_tokens(
            input_ids, attention_mask, self.weights, self.special_ids, self.mask_id, self.mask_rate, generator, wanted
        )
        return {"input_ids": masked, "attention_mask": attention_mask, "labels": labels}

    def _padded(self, number: int, values: list[list[int]], padding: int) -> tuple[Tensor, Tensor]:
        """The batch's rows of ``values``, padded, and a mask of what is not padding; (batch, length) both."""
        rows = [torch.tensor(values[i]) for i in self.batches[number]]
        lengths = torch.tensor([len(row) for row in rows])
        padded = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=padding)
        return padded, (torch.arange(padded.shape[1]) < lengths[:, None]).long()


def _only(batches: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The data set's items are whole batches already."""
    (batch,) = batches
    return batch


def _parts(batch: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """``batch`` in parts of at most :data:`TOKENS_A_PART` tokens, each as long as its longest text."""
    texts, length = batch["input_ids"].shape
    parts = []
    for start in range(0, texts, max(1, TOKENS_A_PART // length)):
        rows = slice(start, start + max(1, TOKENS_A_PART // length))
        part = {name: tensor[rows] for name, tensor in batch.items()}
        for names, mask in (
            (("input_ids", "attention_mask", "labels"), "attention_mask"),
            (("teacher_ids", "teacher_mask"), "teacher_mask"),
        ):
            if mask in part:
                longest = int(part[mask].sum(dim=1).max())
                part |= {name: part[name][:, :longest] for name in names if name in part}
        parts.append(part)
    return parts


class _MaskedTrainer(Trainer):  # type: ignore[misc]
    """The library's trainer over :class:`_Batches`: in sequence, and projecting masked positions only."""

    teacher: PreTrainedModel | None = None
    prior: Tensor | None = None
    """Added to the logits inside the softmax."""

    gate: LossGate

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int]:
        return SequentialSampler(self.train_dataset)

    def training_step(self, model: Any, inputs: dict[str, Tensor], num_items_in_batch: Any = None) -> Tensor:
        """The gradient of a batch, part by part."""
        model.train()
        parts = [(part, self._terms(part)) for part in _parts(self._prepare_inputs(inputs))]
        total = sum(terms for _, terms in parts)
        loss = torch.zeros((), device=self.args.device)
        for part, terms in parts:
            if not terms:
                continue
            with self.compute_loss_context_manager():
                share = self.compute_loss(model, part) * (terms / total)
            self.accelerator.backward(share)
            loss += share.detach()
        self.gate(self.state.global_step, loss)
        return loss

    def _terms(self, inputs: dict[str, Tensor]) -> int:
        """How many terms the mean of the loss is over: predicted positions, or texts."""
        return len(inputs["input_ids"]) if self.teacher is not None else int((inputs["labels"] != IGNORED).sum())

    def compute_loss(self, model: Any, inputs: dict[str, Tensor], *_: Any, **__: Any) -> Tensor:
        decoder = mlm_head(self.model).decoder
        with without_decoder(decoder):
            hidden: Tensor = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
        if self.teacher is not None:
            return sap_loss(pooled_logits(hidden, inputs["attention_mask"], decoder), self._taught(inputs))
        predicted = inputs["labels"] != IGNORED
        masked = masked_dimensions(self.model)
        return masked_loss(hidden[predicted], inputs["labels"][predicted], decoder, masked, self.prior)

    def _taught(self, inputs: dict[str, Tensor]) -> Tensor:
        assert self.teacher is not None
        decoder, mask = mlm_head(self.teacher).decoder, inputs["teacher_mask"]
        self.teacher.to(mask.device)
        with torch.no_grad(), without_decoder(decoder):
            hidden = self.teacher(input_ids=inputs["teacher_ids"], attention_mask=mask).logits
            return pooled_logits(hidden, mask, decoder)

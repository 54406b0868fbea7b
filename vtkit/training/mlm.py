"""Adaptation: masked-language-model training in the new vocabulary, by default of embeddings, decoder and bias alone
(:mod:`vtkit.training.masking`), or towards a teacher's vectors. Only masked positions are projected onto the
vocabulary; masked dimensions are no labels, have no part in the softmax, and stay masked. How well masked tokens are
predicted is measured before and after, on texts that are held out."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainingArguments

from vtkit.data.sequences import Ragged, RaggedRows
from vtkit.data.text import batches as texts_in_batches
from vtkit.encoder.asymmetric import dimension_names, own_output
from vtkit.encoder.checkpoint import load_encoder
from vtkit.encoder.families import learns_only, mlm_head
from vtkit.encoder.kernels.dropout import fast_dropout
from vtkit.encoder.kernels.sparse_head import decoder_input
from vtkit.encoder.masked import MASKED_BIAS, masked_dimensions
from vtkit.encoder.truncation import first_tokens, padded
from vtkit.search.measures.masked_predictions import GroupedPredictions, HeldOutPredictions, grouped_predictions
from vtkit.settings.adapt import AdaptSection
from vtkit.system import console, distributed
from vtkit.system.errors import DataError
from vtkit.training import reporting
from vtkit.training.gates import Gate
from vtkit.training.masking import IGNORED, SHORTEST, MaskedBatches, parts, similar_lengths_together, tokenized
from vtkit.training.resuming import (
    Progress,
    SequentialTrainer,
    TrainingRun,
    curve,
    fixed_order,
    train,
    trainer_settings,
)

LOGITS_BYTES = 64 * 2**20  # logits that are held at a time, (positions, vocabulary), stay below this
HELD_OUT_BATCH = 16  # held-out texts that are predicted at a time


def adapt(
    encoder: SparseEncoder,
    texts: Sequence[str],
    new_tokens: np.ndarray,
    section: AdaptSection,
    run: TrainingRun,
    *,
    held_out: Sequence[str] = (),
    frequencies: bool = False,
) -> tuple[dict[str, list[float]], HeldOutPredictions | None]:
    """Train ``encoder``'s masked language model in place on ``texts``; with the objective ``sap``, towards the vectors
    of the teacher that the settings name.

    Args:
        new_tokens: ids of the (output) tokens that did not come from the source unchanged, weighted
            ``new_token_weight``.
        held_out: texts to measure the prediction of masked tokens on; ``sap`` predicts none.
        frequencies: add the log frequency of each token in ``texts`` to its logit inside the softmax (logit adjustment,
            arXiv:2007.07314), so that rows and bias do not learn plain frequency.

    Returns:
        The curves, ``steps`` and ``loss`` (nats a masked token; for ``sap`` the mean squared difference of logits), and
        how well masked tokens are predicted; None if nothing was held out, or nothing in it was masked.

    Raises:
        DataError: no text is long enough, every token of the texts is masked, or the teacher writes another vocabulary.
        CollapseError: the loss is not finite, or explodes.
    """
    tokenizer, model, folder, seed = encoder.tokenizer, encoder[0].auto_model, run.folder, run.seed
    teacher = load_encoder(section.teachers[0]) if section.objective == "sap" else None
    output = own_output(encoder)
    distributed.own_share(section.batch_size)
    length = min(section.max_length, encoder.max_seq_length or section.max_length)
    labelling = output if teacher is None else None
    folder.mkdir(parents=True, exist_ok=True)
    read = distributed.by_main(lambda: tokenized(tokenizer, labelling, texts, length, folder=folder))
    if not read.kept:
        raise DataError(f"None of the {len(texts)} texts in corpus has {SHORTEST} tokens or more.")

    weights = torch.ones(model.config.vocab_size)
    weights[torch.as_tensor(new_tokens, dtype=torch.long)] = section.new_token_weight
    weights[masked_dimensions(model).cpu()] = 0
    special = _no_words(tokenizer, model.config.vocab_size)
    never_labels = _no_words(output or tokenizer, model.config.vocab_size)
    order = fixed_order(len(read.kept), section.steps * section.batch_size, seed)
    batches = MaskedBatches(
        read.token_ids,
        similar_lengths_together(order, read.token_ids.lengths, section.batch_size, seed),
        weights,
        special,
        tokenizer.mask_token_id,
        tokenizer.pad_token_id,
        section.mask_rate,
        seed,
        read.wanted,
    )
    if teacher is not None:
        names = dimension_names(encoder), dimension_names(teacher)
        differing = sum(own != other for own, other in zip_longest(*names, fillvalue=""))
        if differing:
            sizes = [sum(map(bool, each)) for each in names]
            raise DataError(
                f"teachers has an output vocabulary of {sizes[1]} tokens and the encoder one of {sizes[0]}; "
                f"{differing} dimensions have different names. Name a teacher with the encoder's output vocabulary."
            )
        limit = min(length, teacher.max_seq_length or length)

        def teacher_ids() -> Ragged:
            rows = RaggedRows(folder / "teacher_ids.bin")
            for some in texts_in_batches(texts[number] for number in read.kept):
                for ids in first_tokens(teacher.tokenizer, some, limit)["input_ids"]:
                    rows.append(ids)
            return rows.whole()

        batches.teacher_ids = distributed.by_main(teacher_ids)
        batches.teacher_padding_id = teacher.tokenizer.pad_token_id
    else:
        seen = torch.from_numpy(batches.labels.counts(len(weights)) > 0)
        seen[never_labels] = False
        if seen.any() and not weights[seen].any():
            raise DataError(
                "Every token of the texts in corpus is a masked dimension, so there is nothing to predict. Set "
                'casing.output to "all" or "fold", or casing.input to "lowercase".'
            )
    learns_only(model, section.train or "embeddings", output is not None)

    settings = trainer_settings(model, run, section, section.steps, "cosine")
    vocabulary, prior, unseen_prior = model.config.vocab_size, None, None
    if frequencies:
        prior, unseen_prior = (unigram_prior(batches.labels, vocabulary, never_labels, unseen) for unseen in (0, 1))
    measured = _measured(encoder, labelling, held_out, length, new_tokens, batches, unseen_prior)
    before = distributed.by_main(measured)
    torch.manual_seed(seed)
    with console.progress("adapting", total=section.steps) as bar, fast_dropout(model):
        trainer = _MaskedTrainer(
            model=model,
            args=TrainingArguments(**settings, per_device_train_batch_size=1),
            train_dataset=batches,
            callbacks=[*reporting.callbacks(run.report_to, folder), Progress(bar)],
        )
        trainer.gate = Gate(
            "adaptation", guessing=math.log(max(int((weights > 0).sum()), 2)) if teacher is None else None
        )
        trainer.prior = prior
        trainer.teacher = None if teacher is None else teacher[0].auto_model.eval()
        history = train(trainer, folder)
    model.requires_grad_(True)
    model.eval()
    after = distributed.by_main(measured)
    predictions = None if before is None or after is None else HeldOutPredictions(len(held_out), before, after)
    return curve(history, "loss"), predictions


def _no_words(tokenizer: PreTrainedTokenizerBase, rows: int) -> Tensor:
    """Ids of special tokens, and of the rows behind the last token that fill the vocabulary up."""
    return torch.tensor(sorted({*tokenizer.all_special_ids, *range(len(tokenizer), rows)}))


def _measured(
    encoder: SparseEncoder,
    output: PreTrainedTokenizerBase | None,
    texts: Sequence[str],
    length: int,
    new_tokens: np.ndarray,
    batches: MaskedBatches,
    prior: Tensor | None,
) -> Callable[[], GroupedPredictions | None]:
    """Measures the encoder as it is on ``texts``, always on the same masked tokens; every token as often as any."""
    if batches.teacher_ids is not None or not texts:
        return lambda: None
    model = encoder[0].auto_model
    read = tokenized(encoder.tokenizer, output, texts, length, sizes=True)
    assert read.sizes is not None
    order = np.argsort(read.token_ids.lengths, kind="stable")
    rows = [order[start : start + HELD_OUT_BATCH] for start in range(0, len(order), HELD_OUT_BATCH)]
    alike = (batches.weights > 0).float()
    masked = replace(batches, token_ids=read.token_ids, batches=rows, weights=alike, wanted=read.wanted)
    new = np.zeros(model.config.vocab_size, dtype=bool)
    new[new_tokens] = True
    return partial(held_out_predictions, model, masked, read.sizes, new, prior)


def masked_loss(
    hidden: Tensor, labels: Tensor, decoder: nn.Linear, masked: Tensor, prior: Tensor | None = None
) -> Tensor:
    """Cross-entropy of predicted tokens, mean over positions, in nats: -log softmax_j(h_i · w_j + b_j)[label_i]; in
    float32, and a few positions at a time, so that the logits of all are never held at once.

    Args:
        hidden: what the decoder projects, (positions, width).
        labels: (positions,).
        decoder: with a bias.
        masked: dimensions that have no part in the softmax, (vocabulary,) bool.
        prior: added to the logits inside the softmax (:func:`unigram_prior`), (vocabulary,).
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


def unigram_prior(labels: Ragged, vocabulary: int, special: Tensor, unseen: int = 0) -> Tensor:
    """The unigram prior log n_j / Σ_k n_k of every token j, n its occurrences in ``labels`` and ``unseen`` more,
    special tokens left out; float32, (vocabulary,). Tokens that never occur have -∞ (Menon et al. 2021,
    arXiv:2007.07314)."""
    counts = torch.from_numpy(labels.counts(vocabulary)).double() + unseen
    counts[special] = 0
    return (counts / counts.sum()).log().float()


def sap_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """MILCO's sparse alignment objective, mean over texts: ``1/|A_i| Σ_{j in A_i} (s_ij - t_ij)²`` with A_i = {j: s_ij
    > 0 or t_ij > 0}, dimensions that either masks (:mod:`vtkit.encoder.masked`) left out; a scalar.

    Args:
        student: max-pooled logits, (batch, vocabulary).
        teacher: the same of the frozen teacher. Dimensions that only one of the two has (a vocabulary filled up) are
            left out.
    """
    width = min(student.shape[1], teacher.shape[1])
    student, teacher = student[:, :width], teacher[:, :width]
    either = ((student > 0) | (teacher > 0)) & (torch.minimum(student, teacher) > MASKED_BIAS / 2)
    squares = torch.where(either, (student - teacher).square(), 0.0)
    return (squares.sum(dim=1) / either.sum(dim=1).clamp(min=1)).mean()


def pooled_logits(hidden: Tensor, mask: Tensor, decoder: nn.Linear) -> Tensor:
    """Maximum over each text's positions of its logits, (batch, vocabulary), one text at a time, computed again in the
    backward pass. Unlike the sparse head's, the gradient of a negative maximum is kept."""

    def highest(vectors: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return nn.functional.linear(vectors, weight).amax(dim=0) + bias

    rows = [
        checkpoint(highest, vectors[real.bool()], decoder.weight, decoder.bias, use_reentrant=False)
        for vectors, real in zip(hidden, mask, strict=True)
    ]
    return torch.stack(rows)


class _MaskedTrainer(SequentialTrainer):
    """The library's trainer over :class:`MaskedBatches`: in sequence, and projecting masked positions only."""

    teacher: PreTrainedModel | None = None
    prior: Tensor | None = None  # added to the logits inside the softmax
    gate: Gate

    def share_step(self, model: Any, inputs: dict[str, Tensor], num_items_in_batch: Any = None) -> Tensor:
        """The gradient by the share of this process, part by part, and the loss of the batch."""
        model.train()
        whole = parts(self._prepare_inputs(inputs))
        terms = [  # predicted positions, or texts, which the loss is the mean over
            int((part["labels"] != IGNORED).sum()) if self.teacher is None else len(part["input_ids"]) for part in whole
        ]
        total = int(distributed.summed(torch.tensor(sum(terms), device=self.args.device)))
        loss = torch.zeros((), device=self.args.device)
        for part, count in zip(whole, terms, strict=True):
            if not count:
                continue
            with self.compute_loss_context_manager():
                share = self.compute_loss(model, part) * (count / total)
            self.accelerator.backward(share)
            loss += share.detach()
        loss = distributed.summed(loss)
        self.gate(self.state.global_step, loss)
        return loss

    def compute_loss(self, model: Any, inputs: dict[str, Tensor], *_: Any, **__: Any) -> Tensor:
        decoder, mask = mlm_head(self.model).decoder, inputs["attention_mask"]
        hidden = decoder_input(model, inputs["input_ids"], mask)
        if self.teacher is not None:
            taught_mask = inputs["teacher_mask"]
            with torch.no_grad():
                taught = decoder_input(self.teacher.to(mask.device), inputs["teacher_ids"], taught_mask)
                wanted = pooled_logits(taught, taught_mask, mlm_head(self.teacher).decoder)
            return sap_loss(pooled_logits(hidden, mask, decoder), wanted)
        predicted = inputs["labels"] != IGNORED
        masked = masked_dimensions(self.model)
        return masked_loss(hidden[predicted], inputs["labels"][predicted], decoder, masked, self.prior)


POSITIONS_AT_ONCE = 256  # masked positions whose logits are held at a time


@torch.no_grad()
def held_out_predictions(
    model: PreTrainedModel, batches: MaskedBatches, sizes: Ragged, new: NDArray[np.bool_], prior: Tensor | None = None
) -> GroupedPredictions | None:
    """Accuracy and bits per byte of the masked tokens of ``batches``; None where nothing in them is masked.

    Args:
        model: a masked language model; in evaluation mode afterwards.
        sizes: bytes of text of each token of each text.
        new: which tokens have a row that is not the source's, (vocabulary,).
        prior: added to the logits inside the softmax, (vocabulary,).
    """
    model.eval()
    decoder, masked = mlm_head(model).decoder, masked_dimensions(model)
    device = decoder.weight.device
    bias = decoder.bias if prior is None else decoder.bias + prior.to(device)
    bias = bias.masked_fill(masked, -torch.inf)
    log_probabilities, right, bytes_of, labels_of = [], [], [], []
    for number in range(len(batches)):
        batch = batches[number]
        predicted = batch["labels"] != IGNORED
        hidden = decoder_input(model, batch["input_ids"].to(device), batch["attention_mask"].to(device))
        hidden = hidden[predicted.to(device)]
        labels = batch["labels"][predicted]
        bytes_of.append(padded([sizes[row] for row in batches.batches[number]], 0)[0][predicted])
        labels_of.append(labels)
        for start in range(0, len(labels), POSITIONS_AT_ONCE):
            chunk = slice(start, start + POSITIONS_AT_ONCE)
            wanted = labels[chunk].to(device)
            logits = nn.functional.linear(hidden[chunk].float(), decoder.weight, bias)
            log_probabilities.append(-nn.functional.cross_entropy(logits, wanted, reduction="none").double().cpu())
            right.append((logits.argmax(dim=1) == wanted).cpu())
    if not right:
        return None
    logarithms, hits, lengths = (torch.cat(each).numpy() for each in (log_probabilities, right, bytes_of))
    return grouped_predictions(logarithms, hits, lengths, new[torch.cat(labels_of).numpy()])

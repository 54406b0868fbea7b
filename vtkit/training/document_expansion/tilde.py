"""TILDE (Zhuang and Zuccon 2021, doi:10.1145/3404835.3462922; expansion by it: TILDEv2, arXiv:2108.08513): the logits
at a text's first token, [CLS], learn the likelihoods of the tokens of the text on the other side, the query of a
document or the document of a query."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from torch import Tensor, nn
from transformers import PreTrainedModel, TrainingArguments

from vtkit.data.rankings import Ranking
from vtkit.data.sequences import Lazy, listed
from vtkit.data.shards import Arrays
from vtkit.encoder.asymmetric import own_output
from vtkit.encoder.families import mlm_head
from vtkit.encoder.kernels.dropout import fast_dropout
from vtkit.encoder.kernels.sparse_head import decoder_input
from vtkit.encoder.masked import masked_dimensions
from vtkit.encoder.truncation import alike_batches, first_tokens, padded
from vtkit.settings.expand_documents import ExpandDocumentsSection
from vtkit.system import console, distributed
from vtkit.system.errors import DataError
from vtkit.system.runtime import HoldsModels
from vtkit.training.gates import Gate
from vtkit.training.resuming import (
    Progress,
    SequentialTrainer,
    TrainingRun,
    curve,
    fixed_order,
    train,
    trainer_settings,
)
from vtkit.vocabulary.forms import Vocabulary

QUERY_LENGTH, DOCUMENT_LENGTH = 64, 128  # tokens that queries and documents are cut at
EPOCHS = 5  # passes over the pairs, as in the corpus-specific vocabularies paper

RANKING_DEPTH = 100  # documents of each ranking that get points in Borda's count

POSITIVES = 10
"""Documents of a query that its rankings together put first, and that the model learns from, as in the paper."""


def likelihood_loss(logits: Tensor, terms: Tensor, counted: Tensor) -> Tensor:
    """Binary cross-entropy over the vocabulary, mean over texts: ``-mean_i Σ_t y_it log σ(l_it) + (1 - y_it) log(1 -
    σ(l_it))``, y_it whether the other text has the token t.

    Args:
        logits: (texts, vocabulary).
        terms: y, 0 or 1, (texts, vocabulary).
        counted: tokens that are summed over, (vocabulary,) bool.

    Returns:
        Scalar, in nats a text; the authors' code has other constant factors, which Adam does not see.
    """
    each = nn.functional.binary_cross_entropy_with_logits(logits, terms, reduction="none")
    return (each * counted).sum(dim=1).mean()


def aggregated_pairs(rankings: Sequence[Ranking], queries: int) -> list[tuple[int, int]]:
    """Query and document for the first :data:`POSITIVES` documents of each query by Borda's count (Borda 1781; as
    metasearch by Aslam and Montague 2001, doi:10.1145/383952.384007): each ranking, of document numbers, best first, -1
    for none, gives :data:`RANKING_DEPTH` points to its first document, one less to the second, and so on. On ties the
    one that stands higher in any ranking comes first, then the lower number.
    """
    pairs: list[tuple[int, int]] = []
    for query in range(queries):
        points: dict[int, int] = defaultdict(int)
        best: dict[int, int] = {}
        for ranking in rankings:
            documents = [document for document in listed(ranking[query]) if document >= 0]
            for place, document in enumerate(documents[:RANKING_DEPTH]):
                points[document] += RANKING_DEPTH - place
                best[document] = min(place, best.get(document, place))
        order = sorted(points, key=lambda document: (-points[document], best[document], document))
        pairs += [(query, document) for document in order[:POSITIVES]]
    return pairs


def counted_tokens(encoder: SparseEncoder, stop_words: NDArray[np.bool_]) -> Tensor:
    """Tokens that are learned: no special tokens, fillers, masked dimensions or ``stop_words``, (tokens of the
    tokenizer,); (vocabulary,) bool."""
    counted = ~masked_dimensions(encoder[0].auto_model).cpu()
    counted[len(stop_words) :] = False
    counted[: len(stop_words)] &= torch.from_numpy(~stop_words)
    counted[list(Vocabulary(encoder.tokenizer).special)] = False
    return counted


def train_tilde(
    encoder: SparseEncoder,
    pairs: Sequence[tuple[str, str]],
    section: ExpandDocumentsSection,
    counted: Tensor,
    run: TrainingRun,
) -> dict[str, list[float]]:
    """Train ``encoder``'s masked language model in place on pairs of a query and a document: half the sum of
    :func:`likelihood_loss` of both directions. Both texts begin with [CLS], where the authors have a token for each
    side.

    Args:
        counted: of :func:`counted_tokens`.

    Returns:
        The curves: ``steps`` and ``loss``.
    """
    if not pairs:
        raise DataError("There are no pairs of a query and a relevant document to learn document expansion from.")
    model, batch = encoder[0].auto_model, min(section.batch_size, len(pairs))
    distributed.own_share(batch)
    queries, documents = zip(*pairs, strict=True)
    read = _tokenized(encoder, queries, QUERY_LENGTH), _tokenized(encoder, documents, DOCUMENT_LENGTH)
    steps = section.steps or max(1, round(EPOCHS * len(pairs) / batch))
    order = fixed_order(len(pairs), steps * batch, run.seed).reshape(steps, batch)

    def batch_of(step: int) -> dict[str, Tensor]:
        ids_and_masks: dict[str, Tensor] = {}
        for side, texts in zip(("query", "document"), read, strict=True):
            ids, mask = padded([texts[pair] for pair in order[step]], encoder.tokenizer.pad_token_id)
            ids_and_masks |= {f"{side}_ids": ids, f"{side}_attention_mask": mask}
        return ids_and_masks

    settings = trainer_settings(model, run, section, steps, "linear")
    torch.manual_seed(run.seed)
    with console.progress("learning to expand", total=steps) as bar, fast_dropout(model):
        trainer = _TildeTrainer(
            model=model,
            args=TrainingArguments(**settings, per_device_train_batch_size=1),
            train_dataset=Lazy(steps, batch_of),
            callbacks=[Progress(bar)],
        )
        trainer.counted = counted
        trainer.gate = Gate("training for document expansion", ())
        history = train(trainer, run.folder)
    model.eval()
    return curve(history, "loss")


@dataclass(frozen=True)
class LikeliestTokens(HoldsModels):
    """The work on a shard of texts: the likeliest tokens of each by the logits at its first token."""

    encoder: SparseEncoder
    tokens: int  # of each text
    max_length: int

    def __call__(self, texts: Sequence[str], bar: console.Bar | None = None) -> Arrays:
        """``tokens``, the likeliest first, (texts, tokens)."""
        model = self.encoder[0].auto_model.eval()
        read = _tokenized(self.encoder, texts, self.max_length)
        likeliest = np.zeros((len(texts), min(self.tokens, model.config.vocab_size)), dtype=np.int32)
        with torch.inference_mode():
            for rows in console.tracked(alike_batches(read), bar or "expanding documents", len(texts), len):
                batch = padded([read[row] for row in rows], self.encoder.tokenizer.pad_token_id)
                logits = first_logits(model, *(tensor.to(model.device) for tensor in batch))
                likeliest[rows] = logits.topk(likeliest.shape[1], dim=1).indices.cpu().numpy()
        return {"tokens": likeliest}


def first_logits(model: PreTrainedModel, ids: Tensor, mask: Tensor) -> Tensor:
    """Logits at the first token of each text, in float32; those of the others are not computed, (texts, vocabulary)."""
    decoder = mlm_head(model).decoder
    hidden = decoder_input(model, ids, mask)[:, 0]
    with torch.autocast(hidden.device.type, enabled=False):
        return nn.functional.linear(hidden.float(), decoder.weight, decoder.bias)


def _tokenized(encoder: SparseEncoder, texts: Sequence[str], max_length: int) -> list[list[int]]:
    """Token ids of each text, [CLS] in the first place."""
    if own_output(encoder) is not None:
        raise DataError(
            "Document expansion adds output tokens to texts, and this encoder reads another vocabulary "
            '(transfer.scope "head-only"). Remove [expand_documents], or set transfer.scope to "full".'
        )
    limit = min(max_length, encoder.max_seq_length or max_length)
    token_ids: list[list[int]] = first_tokens(encoder.tokenizer, texts, limit)["input_ids"]
    cls = encoder.tokenizer.cls_token_id
    if any(ids[:1] != [cls] for ids in token_ids):
        raise DataError(
            "Document expansion reads the logits at the first token, [CLS], and this tokenizer does not start texts "
            "with it. Remove [expand_documents], or use a tokenizer that does."
        )
    return token_ids


class _TildeTrainer(SequentialTrainer):
    """The library's trainer over batches of both sides, in sequence."""

    counted: Tensor
    gate: Gate

    def compute_loss(self, model: Any, inputs: dict[str, Tensor], *_: Any, **__: Any) -> Tensor:
        losses = []
        for side, other in (("document", "query"), ("query", "document")):
            ids, mask = inputs[f"{side}_ids"], inputs[f"{side}_attention_mask"]
            logits = first_logits(model, ids, mask)
            terms = torch.zeros_like(logits).scatter_(1, inputs[f"{other}_ids"], 1.0)
            losses.append(likelihood_loss(logits, terms, self.counted.to(logits.device)))
        loss = distributed.gathered(torch.stack(losses).mean()[None]).mean()
        self.gate(self.state.global_step, loss.detach())
        return loss

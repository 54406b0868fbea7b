"""Which case the tokens of a text activate: the confusion matrices of the casing study's figure 2."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sentence_transformers import SparseEncoder

from vtkit.encoder.asymmetric import output_tokenizer, query_side
from vtkit.encoder.sides import prompt_of
from vtkit.encoder.truncation import first_tokens, padded
from vtkit.system.errors import DataError
from vtkit.system.results import Result
from vtkit.vocabulary.casing import cased_ids
from vtkit.vocabulary.forms import Vocabulary

TEXTS_AT_ONCE = 8


@dataclass(frozen=True)
class CaseConfusion(Result):
    """Active dimensions by the case of the token that activates them and by their own; special tokens count nowhere."""

    cased_to_cased: int
    cased_to_uncased: int
    uncased_to_cased: int
    uncased_to_uncased: int

    @property
    def cased_output(self) -> float:
        """Share of the active dimensions that are cased tokens."""
        cased = self.cased_to_cased + self.uncased_to_cased
        return cased / max(1, cased + self.cased_to_uncased + self.uncased_to_uncased)


def case_confusion(encoder: SparseEncoder, texts: Sequence[str], max_length: int) -> CaseConfusion:
    """Count each active dimension of the queries ``texts`` under the token that activates it.

    A dimension j is active where max_i logit_ij > 0, and the token at the position i of that maximum activates it. A
    token is cased if any of its characters is upper case.
    """
    side = query_side(encoder) or encoder
    if not hasattr(side[0], "auto_model"):
        raise DataError("The encoder takes query weights from a table, in which each token activates only itself.")
    model, tokenizer = side[0].auto_model.eval(), side.tokenizer
    read, written = (np.zeros(model.config.vocab_size, dtype=bool) for _ in range(2))
    read[cased_ids(tokenizer)] = True
    written[cased_ids(output_tokenizer(encoder))] = True
    ordinary_in, ordinary_out = np.ones_like(read), np.ones_like(written)
    ordinary_in[list(Vocabulary(tokenizer).special)] = False
    ordinary_out[list(Vocabulary(output_tokenizer(encoder)).special)] = False
    counts = np.zeros((2, 2), dtype=np.int64)
    prompted = [prompt_of(encoder, "query") + text for text in texts]
    ids = first_tokens(tokenizer, prompted, max_length)["input_ids"] if prompted else []
    with torch.inference_mode():
        for begin in range(0, len(ids), TEXTS_AT_ONCE):
            batch, mask = padded(ids[begin : begin + TEXTS_AT_ONCE], tokenizer.pad_token_id, model.device)
            logits = model(input_ids=batch, attention_mask=mask).logits.masked_fill(mask[:, :, None] == 0, -torch.inf)
            highest, positions = logits.max(dim=1)
            source = batch.gather(1, positions).cpu().numpy()
            active = (highest > 0).cpu().numpy() & ordinary_out[None] & ordinary_in[source]
            dimensions = active.nonzero()[1]
            np.add.at(counts, (read[source[active]].astype(int), written[dimensions].astype(int)), 1)
    return CaseConfusion(int(counts[1, 1]), int(counts[1, 0]), int(counts[0, 1]), int(counts[0, 0]))

"""New tokens as the mean of the pieces that the source tokenizer cuts their text into.

The robust baseline of the vocabulary-transfer paper, and the method of AdaLM, CAI and FVT. The text of the token is
tokenized, not its spelling: ``##school`` is the continuation "school" and holds no hash signs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_matrix

from vtkit.transfer.mixture import Mixture, Part, assemble
from vtkit.vocabulary.alignment import Alignment, Canonical, canonical_forms, surface_and_start

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def subtoken_mixture(
    source: PreTrainedTokenizerFast, target: PreTrainedTokenizerFast, alignment: Alignment, source_rows: int
) -> Mixture:
    """Each new token as the mean of its pieces in the source vocabulary; the mean of all rows where it has none.

    A piece that occurs twice counts twice.
    """
    pieces = source_pieces(source, target, alignment)
    lengths = [len(found) for found in pieces.values()]
    rows = np.repeat(np.arange(len(pieces)), lengths)
    columns = np.array([piece for found in pieces.values() for piece in found], dtype=np.int64)
    weights = csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(pieces), source_rows))
    return assemble(alignment, source_rows, [Part("subtoken", np.array(list(pieces), dtype=np.int64), weights)])


def source_pieces(
    source: PreTrainedTokenizerFast, target: PreTrainedTokenizerFast, alignment: Alignment
) -> dict[int, list[int]]:
    """The source ids that the text of each new token is cut into, by ascending target id; only tokens that have any.

    Unknown and special pieces do not count. The first piece follows the token in starting a word or not, wherever
    the source has it in both forms.
    """
    surfaces = surface_and_start(target)
    forms = canonical_forms(source)
    twins: dict[Canonical, int] = {}
    for number, form in enumerate(forms):
        if form is not None:
            twins.setdefault(form, number)
    wanted = [number for number in alignment.new_ids.tolist() if surfaces[number][0]]
    texts = [f" {surfaces[number][0]}" if surfaces[number][1] else surfaces[number][0] for number in wanted]
    found: dict[int, list[int]] = {}
    encodings = source.backend_tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    for number, encoding in zip(wanted, encodings, strict=True):
        pieces = [piece for piece in encoding.ids if (form := forms[piece]) is not None and form.surface.strip()]
        if not pieces:
            continue
        first = forms[pieces[0]]
        if first is not None:
            pieces[0] = twins.get(Canonical(surfaces[number][1], first.surface), pieces[0])
        found[number] = pieces
    return found

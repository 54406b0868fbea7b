"""Source and target vocabulary of a transfer, with everything that is asked about both of them, worked out once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from vtkit.settings.transfer import OverlapMode
from vtkit.system.errors import DataError
from vtkit.vocabulary.forms import Vocabulary, whole_encodings
from vtkit.vocabulary.notation import Canonical
from vtkit.vocabulary.overlap import Overlap, find_overlap

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True, eq=False)
class VocabularyPair:
    """The two vocabularies of a transfer; a DataError if an overlapping source token has no row."""

    source: Vocabulary
    target: Vocabulary
    overlap: Overlap

    source_rows: int
    """Rows of the source's embedding matrix. Often a few more than its tokenizer has tokens, since sizes are rounded
    up."""

    def __post_init__(self) -> None:
        if int(self.overlap.target_to_source.max(initial=-1)) >= self.source_rows:
            raise DataError(
                f"The source's tokenizer has {self.overlap.source_size} tokens, but the source has {self.source_rows} "
                "embedding rows: they do not belong together."
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Target tokens and source rows: the shape of the weights that make rows of rows."""
        return self.overlap.target_size, self.source_rows

    @cached_property
    def pieces(self) -> dict[int, list[int]]:
        """The source ids that the text of each new token is cut into, by ascending target id; only tokens that have
        any. Unknown and special pieces do not count. The first follows the token in starting a word or not, if it can.
        """
        surfaces, forms = self.target.surfaces, self.source.forms
        first_with = {form: number for number, form in reversed([*enumerate(forms)]) if form is not None}
        wanted = [number for number in self.overlap.new_ids.tolist() if surfaces[number][0]]
        texts = [f" {surfaces[number][0]}" if surfaces[number][1] else surfaces[number][0] for number in wanted]
        pieces_of: dict[int, list[int]] = {}
        encodings = whole_encodings(self.source.tokenizer, texts)
        for number, encoding in zip(wanted, encodings, strict=True):
            pieces = [piece for piece in encoding.ids if (form := forms[piece]) is not None and form.surface.strip()]
            if not pieces:
                continue
            first = forms[pieces[0]]
            if first is not None:
                pieces[0] = first_with.get(Canonical(surfaces[number][1], first.surface), pieces[0])
            pieces_of[number] = pieces
        return pieces_of


def pair_of(
    source: PreTrainedTokenizerFast,
    target: PreTrainedTokenizerFast,
    mode: OverlapMode = "exact+symbols",
    source_rows: int | None = None,
) -> VocabularyPair:
    """The pair of two tokenizers' vocabularies, of a source with ``source_rows`` embedding rows, one for each token by
    default."""
    known, wanted = Vocabulary(source), Vocabulary(target)
    rows = len(known) if source_rows is None else source_rows
    return VocabularyPair(known, wanted, find_overlap(known, wanted, mode), rows)

"""A casing policy put into a finished encoder or tokenizer, without training (docs/casing.md)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sentence_transformers import SparseEncoder
from transformers import PreTrainedTokenizerFast

from vtkit.encoder.asymmetric import own_output, query_side, query_table
from vtkit.encoder.folding import apply_output_casing
from vtkit.encoder.query_tables import filled_up
from vtkit.settings.casing import CasingSection
from vtkit.vocabulary.casing import count_casing, map_cased
from vtkit.vocabulary.existing import with_casing

Input = Literal["keep", "lowercase"]
Output = Literal["mask", "map", "fold"]


@dataclass(frozen=True)
class CasingChange:
    """The changes that a casing policy made; None for a kind of change that was not needed."""

    input: Input
    output: Output | None = None
    fold: Literal["max"] | None = None
    dimensions_after_folding: int | None = None
    masked_dimensions: int | None = None
    renamed_tokens: int | None = None  # cased-only tokens that took their lower-case names
    not_reached_by_text: int | None = None  # of these, those that the tokenizer makes of no text


def change_tokenizer(
    tokenizer: PreTrainedTokenizerFast, casing: CasingSection
) -> tuple[PreTrainedTokenizerFast, Mapping[int, tuple[str, str]], tuple[int, ...]]:
    """A copy of ``tokenizer`` with its input casing; for ``map``, with the lower-case names of cased-only tokens, and
    what :func:`~vtkit.vocabulary.casing.map_cased` says of these."""
    lowercased = with_casing(tokenizer, casing)
    changed, renamed, unreached = map_cased(lowercased) if casing.output == "map" else (lowercased, {}, ())
    changed.model_max_length = tokenizer.model_max_length
    return changed, renamed, unreached


def change_encoder(encoder: SparseEncoder, casing: CasingSection) -> CasingChange:
    """Put the policy into ``encoder``, in place: its tokenizers, and its decoder bias for ``mask`` and ``map``."""
    queries, table, names = query_side(encoder), query_table(encoder), own_output(encoder)
    if names is not None:  # the input tokens name no dimension
        changed, renamed, unreached = change_tokenizer(names, casing.model_copy(update={"input": "keep"}))
        encoder.output_tokenizer = changed
        encoder[0].processor = with_casing(encoder.tokenizer, casing)
    else:
        changed, renamed, unreached = change_tokenizer(encoder.tokenizer, casing)
        encoder[0].processor = changed
    if table is not None:
        table.tokenizer = filled_up(changed, len(table.weight))
    elif queries is not None:
        queries[0].processor = changed
    input, output = casing.input, casing.output
    if output == "all":
        return CasingChange(input)
    masked = apply_output_casing(encoder, output)
    folds, maps = output == "fold", output == "map"
    return CasingChange(
        input,
        output,
        fold="max" if folds else None,
        dimensions_after_folding=count_casing(changed).folded if folds else None,
        masked_dimensions=None if folds else masked,
        renamed_tokens=len(renamed) if maps else None,
        not_reached_by_text=len(unreached) if maps else None,
    )

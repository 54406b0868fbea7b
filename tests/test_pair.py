"""The pair of vocabularies: what is asked of it."""

import pytest
from test_overlap import byte_level, wordpiece

from vtkit.system.errors import DataError
from vtkit.vocabulary.forms import tokens
from vtkit.vocabulary.pair import pair_of

SOURCE = wordpiece("school", "receptor", "##s", "the", "river")
TARGET = byte_level("Ġschool", "Ġreceptors", "s", "Ġgehen")


def test_pieces_are_those_of_the_new_tokens() -> None:
    pair = pair_of(SOURCE, TARGET)
    found = {tokens(TARGET)[number]: [tokens(SOURCE)[piece] for piece in cut] for number, cut in pair.pieces.items()}
    assert found == {"Ġreceptors": ["receptor", "##s"]}


def test_a_source_with_fewer_rows_than_tokens_is_refused() -> None:
    assert pair_of(SOURCE, TARGET, source_rows=len(SOURCE) + 3).shape == (len(TARGET), len(SOURCE) + 3)
    with pytest.raises(DataError, match="do not belong together"):
        pair_of(SOURCE, TARGET, source_rows=6)

"""The pair of vocabularies: what is asked of it, and that asking costs one pass over each vocabulary."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_overlap import byte_level, wordpiece

from vtkit.settings.transfer import TransferSection
from vtkit.system.errors import DataError
from vtkit.transfer.dispatch import bias_of, mixture_of
from vtkit.transfer.provenance import origins
from vtkit.transfer.result import sample_neighbours
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


def test_an_auto_run_reads_each_vocabulary_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pairs.tsv").write_text("river\tgehen\nschool\tschool gehen\n", encoding="utf-8")
    reads: list[Any] = []
    kind = type(SOURCE)
    whole = kind.get_vocab
    monkeypatch.setattr(kind, "get_vocab", lambda self: reads.append(self) or whole(self))
    section = TransferSection.model_validate(
        {"method": "auto", "parallel": {"files": (str(tmp_path / "pairs.tsv"),)}, "bias": {"method": "mixture"}}
    )
    pair = pair_of(SOURCE, TARGET)
    mixture = mixture_of(section, pair, lambda: iter(()), lambda: None, 0)
    bias = bias_of(section, pair, mixture, np.zeros(len(SOURCE), dtype=np.float32), lambda: None)
    assert len(list(origins(mixture, bias, pair))) == len(TARGET)
    sample_neighbours(mixture, pair)
    assert reads == [SOURCE, TARGET]

"""Parallel text whose columns do not belong together, or stand in the wrong order, is found."""

import random
from pathlib import Path

import numpy as np
import pytest
from test_overlap import wordpiece

from vtkit.data.checking import check_pairs
from vtkit.data.parallel import Alignment, alignment_of, read_pairs
from vtkit.system.errors import DataError
from vtkit.transfer.methods.bitext import pairs_in
from vtkit.vocabulary.existing import load_tokenizer

Pairs = list[tuple[str, str]]


def made_pairs(count: int, seed: int = 0) -> Pairs:
    """Sentences of 5 to 14 words out of 60, translated word for word, each word into one of about its length."""
    random_ = np.random.default_rng(seed)
    names = [first + second for first in ("ba", "ko", "mi", "tu", "re", "sa") for second in "bdfgklmnpr"]
    chosen = [random_.integers(0, len(names), random_.integers(5, 15)) for _ in range(count)]
    return [(" ".join(names[n] for n in row), " ".join(names[n][::-1] + "e" * (n % 3) for n in row)) for row in chosen]


def shifted(pairs: Pairs, lines: int = 1, since: int = 0) -> Pairs:
    """The pairs without ``lines`` of the second column, from the line ``since`` on."""
    targets = [target for _, target in pairs]
    del targets[since : since + lines]
    return [(source, target) for (source, _), target in zip(pairs, targets, strict=False)]


def shuffled(pairs: Pairs, every: int = 1) -> Pairs:
    """The targets of each ``every``-th pair in a random order."""
    targets = [target for _, target in pairs[::every]]
    random.Random(1).shuffle(targets)
    return [(pair[0], targets[number // every]) if number % every == 0 else pair for number, pair in enumerate(pairs)]


def put(path: Path, pairs: Pairs) -> str:
    path.write_text("".join(f"{first}\t{second}\n" for first, second in pairs), encoding="utf-8")
    return str(path)


def judged(pairs: Pairs) -> Alignment:
    found = alignment_of(pairs)
    assert found is not None
    return found


def test_the_correlation_is_that_of_ranks_by_hand() -> None:
    # lengths 1, 2, 3, 4 and 20, 40, 30, 50: the ranks differ by 0, 1, 1, 0, so that 1 - 6 * 2 / (4 * 15) = .8
    pairs = [("a" * n, "b" * m) for n, m in ((1, 20), (2, 40), (3, 30), (4, 50))]
    assert judged(pairs * 100).correlation == pytest.approx(0.8)
    assert judged([pair[::-1] for pair in pairs] * 100).correlation == pytest.approx(0.8)
    assert judged([("a", "b")] * 400).correlation == 0


def test_translations_are_told_from_shuffled_ones() -> None:
    pairs = made_pairs(1000)
    right, half, wrong = map(judged, (pairs, shuffled(pairs, 2), shuffled(pairs)))
    assert right.correlation > 0.9
    assert [(each.doubtful, each.unrelated) for each in (right, half)] == [(False, False), (True, False)]
    assert wrong.unrelated


@pytest.mark.parametrize(("lines", "since", "quarters"), [(1, 0, 0), (3, 0, 0), (1, 500, 2), (2, 750, 3)])
def test_a_line_missing_on_one_side_is_found_and_the_quarters_behind_it(lines: int, since: int, quarters: int) -> None:
    found = judged(shifted(made_pairs(1000), lines, since))
    assert found.shifts[1:] == (0,) * quarters + (-lines,) * (4 - quarters)


def test_few_pairs_are_not_judged_and_some_thousand_entries_are_only_doubted() -> None:
    assert alignment_of(shuffled(made_pairs(150))) is None
    assert alignment_of([]) is None
    entries = [("a" * n, "b" * n) for n in np.random.default_rng(2).integers(3, 12, 12_000).tolist()]
    few, many = judged(shuffled(entries[:3000])), judged(shuffled(entries))
    assert [(each.doubtful, each.unrelated) for each in (few, many)] == [(True, False), (True, True)]


def test_every_real_file_passes_and_its_shuffled_and_shifted_copies_are_refused(shared: Path, tmp_path: Path) -> None:
    files = sorted((shared / "data" / "parallel").glob("*.tsv.gz"))
    assert len(files) > 20
    for file in files:
        pairs = list(read_pairs(file))
        found = judged(pairs)
        assert not found.doubtful, file.name
        assert not any(found.shifts), file.name
        assert judged(shuffled(pairs)).unrelated, file.name
        if "anki" not in file.name:  # which is sorted by length: other lines fit as well
            assert judged(shifted(pairs)).shifts[0] == -1, file.name
        if len(pairs) <= 1000:
            assert judged(shuffled(pairs, 2)).doubtful, file.name
    list(check_pairs(str(files[0]), None))  # raises nothing
    for wrong, words in ((shifted(pairs), "1 line further up"), (shifted(pairs, since=500), "third quarter on")):
        with pytest.raises(DataError, match=words):
            list(check_pairs(put(tmp_path / "pairs.tsv", wrong), None))
    assert not list(check_pairs(str(shared / "data" / "parallel" / "tatoeba-en-ar.tsv.gz"), "ar"))


ENGLISH = "The government said on Monday that the new bridge over the river will be opened to traffic next summer."
GERMAN = "Die Regierung teilte am Montag mit, dass die neue Brücke über den Fluss im nächsten Sommer geöffnet wird."


def test_one_language_twice_and_swapped_columns_are_said(tmp_path: Path) -> None:
    for pair, language, doubt in (
        ((ENGLISH, ENGLISH), "de", "same language (en)"),
        ((GERMAN, ENGLISH), "de", "swapped"),
        ((GERMAN, ENGLISH), None, ""),
        ((ENGLISH, GERMAN), "de", ""),
    ):
        doubts = list(check_pairs(put(tmp_path / "pairs.tsv", [pair] * 40), language))
        assert doubt in " ".join(doubts)
        assert bool(doubts) == bool(doubt)


def test_swapped_columns_are_read_the_other_way_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = wordpiece("school", "house", "water"), wordpiece("학교", "집", "물")
    pairs = [("school house", "학교 집"), ("water", "물")]
    right, swapped = put(tmp_path / "right.tsv", pairs), put(tmp_path / "swapped.tsv", [pair[::-1] for pair in pairs])
    assert list(pairs_in([right], source, target)) == pairs
    assert not capsys.readouterr().err
    assert list(pairs_in([right, swapped], source, target)) == pairs * 2
    assert "swapped.tsv: its columns are swapped" in capsys.readouterr().err


def test_columns_of_real_languages_and_vocabularies_are_put_in_order(shared: Path) -> None:
    source, target = (load_tokenizer(str(shared / at)) for at in ("models/minilm-splade-en", "vocab/kobigbird"))
    file = shared / "data" / "parallel" / "tatoeba-en-ko.tsv.gz"
    pairs = list(pairs_in([file], source, target))
    assert pairs[0][0].isascii()
    assert list(pairs_in([file], target, source)) == [(second, first) for first, second in pairs]

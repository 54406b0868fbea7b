"""Parallel text whose columns do not belong together, or stand in the wrong order, is found."""

import gzip
import random
from pathlib import Path

import numpy as np
import pytest
import tiny
from test_overlap import wordpiece

from vtkit.commands.recipe import check_recipe
from vtkit.data.checking import pairs_doubts, pairs_problems
from vtkit.data.parallel import DOUBTFUL, UNRELATED, Alignment, alignment_of, languages_of, spread_over
from vtkit.system.errors import DataError
from vtkit.transfer.methods.bitext import pairs_in
from vtkit.vocabulary.existing import load_tokenizer

Pairs = list[tuple[str, str]]


def made_pairs(count: int, seed: int = 0) -> Pairs:
    """Sentences of 5 to 9 words out of 60, translated word for word."""
    random_ = np.random.default_rng(seed)
    names = [first + second for first in ("ba", "ko", "mi", "tu", "re", "sa") for second in "bdfgklmnpr"]
    chosen = [random_.integers(0, len(names), random_.integers(5, 10)) for _ in range(count)]
    return [(" ".join(names[n] for n in row), " ".join(names[n][::-1] for n in row)) for row in chosen]


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


def test_translations_are_told_from_shuffled_ones() -> None:
    pairs = made_pairs(1000)
    right, half, wrong = map(judged, (pairs, shuffled(pairs, 2), shuffled(pairs)))
    assert right.share > 0.95
    assert [(each.doubtful, each.unrelated) for each in (right, half)] == [(False, False), (True, False)]
    assert wrong.unrelated


def test_a_line_missing_on_one_side_shows_in_the_quarters_behind_it() -> None:
    pairs = made_pairs(1000)
    found = judged(pairs[:500] + [(pairs[n][0], pairs[n + 1][1]) for n in range(500, 999)])
    assert found.doubtful
    assert min(found.parts[:2]) > 0.8 > 0.65 > max(found.parts[2:])


def test_few_sentences_and_entries_of_one_word_are_not_judged() -> None:
    for pairs in (shuffled(made_pairs(150)), [(f"word{number}", f"wort{number}") for number in range(5000)], []):
        assert alignment_of(pairs) is None


def test_a_long_file_is_looked_at_evenly() -> None:
    found = spread_over(((str(number), "") for number in range(10_001)), most=100)
    numbers = [int(first) for first, _ in found]
    assert 50 <= len(numbers) <= 100
    assert len(set(np.diff(numbers))) == 1
    assert numbers[0] == 0
    assert numbers[-1] > 9_800


def test_real_files_pass_and_their_shuffled_copies_do_not(shared: Path) -> None:
    for name in ("tatoeba-en-zh", "en-th.pud", "en-ja.pud", "tatoeba-en-ar"):
        with gzip.open(shared / "data" / "parallel" / f"{name}.tsv.gz", "rt", encoding="utf-8") as file:
            pairs = [(first, second) for first, second in (line.rstrip("\n").split("\t") for line in file)]
        right, half, wrong = map(judged, (pairs, shuffled(pairs, 2), shuffled(pairs)))
        assert min(right.share, *right.parts) > DOUBTFUL, name
        assert half.doubtful, name
        assert wrong.share < UNRELATED, name
        assert languages_of(pairs) == ("en", name.removesuffix(".pud").rpartition("-")[2])


def test_a_dictionary_is_not_doubted(shared: Path) -> None:
    for name in ("dict-wiktionary-en-ko", "dict-wiktionary-en-th"):
        path = str(shared / "data" / "parallel" / f"{name}.tsv.gz")
        assert not [*pairs_problems(path), *pairs_doubts(path, name[-2:])]


def test_shuffled_pairs_stop_a_recipe_before_anything_is_run(tmp_path: Path) -> None:
    put(tmp_path / "pairs.tsv", shuffled(made_pairs(600)))
    tiny.bare(tmp_path / "model")
    (tmp_path / "text.txt").write_text(" ".join(target for _, target in made_pairs(50)))
    (tmp_path / "small.toml").write_text(
        '[recipe]\nname = "small"\n[source]\nmodel = "./model"\n[vocabulary]\nkind = "trained"\nsize = 400\n'
        'corpus = ["text.txt"]\n[transfer]\nmethod = "parallel"\nparallel.files = ["pairs.tsv"]\n'
    )
    with pytest.raises(DataError, match=r"transfer\.parallel\.files.*not translations of each other"):
        check_recipe(tmp_path / "small.toml", data=True)


ENGLISH = "The government said on Monday that the new bridge over the river will be opened to traffic next summer."
GERMAN = "Die Regierung teilte am Montag mit, dass die neue Brücke über den Fluss im nächsten Sommer geöffnet wird."


def test_one_language_twice_and_swapped_columns_are_said(tmp_path: Path) -> None:
    for pair, language, doubt in (
        ((ENGLISH, ENGLISH), "de", "same language (en)"),
        ((GERMAN, ENGLISH), "de", "swapped"),
        ((GERMAN, ENGLISH), None, ""),
        ((ENGLISH, GERMAN), "de", ""),
    ):
        doubts = list(pairs_doubts(put(tmp_path / "pairs.tsv", [pair] * 40), language))
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

"""Translations from parallel text: IBM model 1 and vectors of sentence ids, written out, and sensible on Korean."""

import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from support import refused
from vocabularies import wordpiece

from vtkit.data.checking import check_pairs
from vtkit.data.parallel import Alignment, alignment_of, read_pairs
from vtkit.data.sequences import Ragged
from vtkit.system.errors import DataError
from vtkit.transfer.entmax import entmax
from vtkit.transfer.methods import bitext as bitexts
from vtkit.transfer.methods.bitext import Bitext, pairs_in, read_bitext, strongest
from vtkit.transfer.methods.cooccurrence import cooccurrence_mixture
from vtkit.transfer.methods.parallel import in_agreement, translation_mixture, translation_probabilities
from vtkit.vocabulary.existing import load_tokenizer
from vtkit.vocabulary.forms import tokens
from vtkit.vocabulary.pair import pair_of

Pairs = list[tuple[list[int], list[int]]]
EMPTY = -1


def bitext(pairs: Pairs) -> Bitext:
    return Bitext(*(Ragged.of(pair[side] for pair in pairs) for side in (0, 1)))


def ibm_model_1(pairs: Pairs, iterations: int) -> dict[int, dict[int, float]]:
    """p(source | target) word by word, with dictionaries, from the textbook."""
    p: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(lambda: 1.0))
    for _ in range(iterations):
        counts: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        for source, target in pairs:
            for s in source:
                total = sum(p[t][s] for t in [EMPTY, *target])
                for t in [EMPTY, *target]:
                    counts[t][s] += p[t][s] / total
        p = defaultdict(dict)
        for t, row in counts.items():
            p[t] = defaultdict(float, {s: count / sum(row.values()) for s, count in row.items()})
    return p


ids = st.lists(st.integers(0, 5), min_size=1, max_size=5)


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=8), st.integers(1, 6))
def test_probabilities_equal_the_model_written_out(pairs: Pairs, iterations: int) -> None:
    found = translation_probabilities(bitext(pairs), 6, 6, iterations).toarray()
    expected = np.zeros((6, 6))
    for target, row in ibm_model_1(pairs, iterations).items():
        for source, probability in row.items():
            if target != EMPTY:
                expected[target, source] = probability
    assert np.allclose(found, expected, atol=1e-12)


def test_a_table_in_small_steps_is_the_same_table(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(5)
    pairs = [(draw.integers(0, 30, 6).tolist(), draw.integers(0, 40, 5).tolist()) for _ in range(50)]
    whole = translation_probabilities(bitext(pairs), 30, 40, 4)
    monkeypatch.setattr(bitexts, "KEYS_AT_ONCE", 70)
    assert np.array_equal(translation_probabilities(bitext(pairs), 30, 40, 4).toarray(), whole.toarray())
    monkeypatch.setattr(bitexts, "LARGEST_TABLE", 200)
    cut = translation_probabilities(bitext(pairs), 30, 40, 4)
    assert 0 < cut.nnz <= 200
    read = next(n for n in range(1, 51) if translation_probabilities(bitext(pairs[:n]), 30, 40, 4).nnz == cut.nnz)
    assert np.array_equal(cut.toarray(), translation_probabilities(bitext(pairs[:read]), 30, 40, 4).toarray())


def test_only_strong_translations_stay_and_are_renormalised() -> None:
    table = [
        [0.6, 0.3, 0.08, 0.02],  # 0.02 is below the threshold
        [0.04, 0.03, 0.01, 0.0],  # nothing reaches it: half of the best and more
        [0.0, 0.0, 0.0, 0.0],
        [0.25, 0.25, 0.25, 0.25],
    ]
    kept = strongest(csr_matrix(np.array(table)), 0.05, most=3).toarray()
    assert np.allclose(kept[0], np.array([0.6, 0.3, 0.08, 0]) / 0.98)
    assert np.allclose(kept[1:], [[4 / 7, 3 / 7, 0, 0], [0, 0, 0, 0], [1 / 3, 1 / 3, 1 / 3, 0]])


def test_special_and_unknown_tokens_are_no_evidence() -> None:
    source, target = wordpiece("school", "the"), wordpiece("학교", "##는")
    pair = pair_of(source, target)
    read = read_bitext(pair, [("the zebra school", "학교는"), ("zebra", "학교"), ("[MASK] the", "고래 학교")])
    assert len(read) == 2
    known = tokens(source)
    assert [known[n] for n in read.source.values] == ["the", "school", "the"]
    assert [tokens(target)[n] for n in read.target.values] == ["학교", "##는", "학교"]
    refused(DataError, "no pair with a known token", read_bitext, pair, [("zebra", "고래")])


def test_long_texts_are_cut_and_every_pair_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bitexts, "PAIRS_AT_ONCE", 2)
    pair = pair_of(wordpiece("a", "b"), wordpiece("a", "b"))
    pair.source.tokenizer.backend_tokenizer.enable_truncation(2)  # as files of models have it
    read = read_bitext(pair, [("a " * 500, "b"), ("b", "a"), ("b a", "a b a")])
    assert np.diff(read.source.starts).tolist() == [bitexts.LONGEST_TEXT, 1, 2]
    assert np.diff(read.target.starts).tolist() == [1, 1, 3]


def test_tokens_in_the_text_are_translated_and_the_others_left_without_weights() -> None:
    source = wordpiece("school", "war", "the", "##s", "7")
    target = wordpiece("학교", "전쟁", "##는", "학교는", "고래", "7", "[unused0]")
    pairs = [("school", "학교"), ("war", "전쟁"), ("the school", "학교는 학교"), ("the war", "전쟁는")] * 3
    pair = pair_of(source, target, source_rows=len(source) + 3)
    found = read_bitext(pair, pairs)
    mixture = translation_mixture(found, pair, 20, min_probability=0.2)
    of = dict(zip(tokens(target), mixture.methods, strict=True))
    assert of["7"] == of["[PAD]"] == "overlap"
    assert of["학교"] == of["전쟁"] == of["##는"] == of["학교는"] == "parallel"
    assert of["고래"] == of["[unused0]"] == "mean"
    assert mixture.weights.shape == (len(target), len(source) + 3)
    rows = dict(zip(tokens(target), mixture.weights.toarray(), strict=True))
    assert tokens(source)[int(rows["학교"].argmax())] == "school"


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=8), st.sampled_from([0.5, 1.0, 2.0]))
def test_agreement_weighs_by_the_other_direction(pairs: Pairs, exponent: float) -> None:
    forward = translation_probabilities(bitext(pairs), 6, 6, 4)
    turned = [(target, source) for source, target in pairs]
    backward = translation_probabilities(bitext(turned), 6, 6, 4)
    found = in_agreement(forward, backward, exponent).toarray()
    wanted = forward.toarray() * backward.toarray().T ** exponent
    sums = wanted.sum(axis=1, keepdims=True)
    assert np.allclose(found, wanted / np.where(sums > 0, sums, 1.0))


def test_a_rare_word_does_not_take_what_stands_beside_it() -> None:
    """ "고래" was seen once, in a sentence whose other word it cannot be told from; the other direction can tell."""
    pair = pair_of(wordpiece("whale", "school"), wordpiece("고래", "학교"))
    pairs = [("school", "학교")] * 20 + [("whale school", "고래 학교")]
    found = translation_mixture(read_bitext(pair, pairs), pair, 2, 0.0).weights.toarray()
    # 0.81 without agreement
    assert found[tokens(pair.target.tokenizer).index("고래"), tokens(pair.source.tokenizer).index("whale")] > 0.95


def test_korean_words_find_their_translations(shared: Path) -> None:
    source = load_tokenizer(str(shared / "models" / "minilm-splade-en"))
    target = load_tokenizer(str(shared / "vocab" / "kobigbird"))
    names = ("dict-wiktionary-en-ko", "news-en-ko", "tatoeba-anki-en-ko")
    files = [shared / "data" / "parallel" / f"{name}.tsv.gz" for name in names]
    pair = pair_of(source, target)
    pairs = list(pairs_in(files, source, target))
    read = read_bitext(pair, pairs)
    known = tokens(source)
    expected = {
        "학교": "school", "전쟁": "war", "대통령": "president", "물": "water", "고양이": "cat", "경제": "economy",
    }  # fmt: skip
    for kind, mixture in (
        ("parallel", translation_mixture(read, pair)), ("cooccurrence", cooccurrence_mixture(read, pair, 4.0)),
    ):  # fmt: skip
        first = {word: mixture.sources(target.convert_tokens_to_ids(word))[0][0] for word in expected}
        assert {word: known[number] for word, number in first.items()} == expected, kind
        counts = mixture.counts()
        assert counts[kind] > 15_000
        assert counts["overlap"] == len(pair.overlap.overlap_ids)
    few, again = (translation_mixture(read_bitext(pair, pairs[:500]), pair).weights for _ in range(2))
    assert few.data.tobytes() == again.data.tobytes()
    assert few.indices.tobytes() == again.indices.tobytes()


WORDS = [f"w{letter}" for letter in "abcdef"]
SOURCE = wordpiece(*WORDS)
TARGET = wordpiece(*[word.replace("w", "ㅎ") for word in WORDS])
PAIR = pair_of(SOURCE, TARGET)
FIRST = tokens(SOURCE).index(WORDS[0])
"""Both vocabularies have their words from here on."""


def cosines(pairs: Pairs) -> np.ndarray:
    """cos(x_t, x_s) with dense vectors, (6 target words, 6 source words)."""
    vectors = np.zeros((2, 6, len(pairs)))
    for number, pair in enumerate(pairs):
        for side in (0, 1):
            vectors[side, sorted(set(pair[side])), number] = (len(pair[0]) * len(pair[1])) ** -0.25
    lengths = np.linalg.norm(vectors, axis=2, keepdims=True)
    source, target = vectors / np.where(lengths > 0, lengths, 1)
    return target @ source.T


@pytest.mark.parametrize("alpha", [1.5, 2.0, 4.0])
@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=8))
def test_weights_are_the_entmax_of_the_cosines(alpha: float, pairs: Pairs) -> None:
    shifted = [([n + FIRST for n in source], [n + FIRST for n in target]) for source, target in pairs]
    mixture = cooccurrence_mixture(bitext(shifted), PAIR, alpha, 0.0)
    found = mixture.weights.toarray()[FIRST : FIRST + 6, FIRST : FIRST + 6]
    for row, similar in zip(found, cosines(pairs), strict=True):
        near = similar > 0
        wanted = np.zeros(6)
        if near.any():
            wanted[near] = entmax(similar[None, near], alpha)[0]
        assert np.allclose(row, wanted, atol=1e-6)


# Parallel text whose columns do not belong together, or stand in the wrong order, is found.


TextPairs = list[tuple[str, str]]


def made_pairs(count: int, seed: int = 0) -> TextPairs:
    """Sentences of 5 to 14 words out of 60, translated word for word, each word into one of about its length."""
    random_ = np.random.default_rng(seed)
    names = [first + second for first in ("ba", "ko", "mi", "tu", "re", "sa") for second in "bdfgklmnpr"]
    chosen = [random_.integers(0, len(names), random_.integers(5, 15)) for _ in range(count)]
    return [(" ".join(names[n] for n in row), " ".join(names[n][::-1] + "e" * (n % 3) for n in row)) for row in chosen]


def lines_shifted(pairs: TextPairs, lines: int = 1, since: int = 0) -> TextPairs:
    """The pairs without ``lines`` of the second column, from the line ``since`` on."""
    targets = [target for _, target in pairs]
    del targets[since : since + lines]
    return [(source, target) for (source, _), target in zip(pairs, targets, strict=False)]


def shuffled(pairs: TextPairs, every: int = 1) -> TextPairs:
    """The targets of each ``every``-th pair in a random order."""
    targets = [target for _, target in pairs[::every]]
    random.Random(1).shuffle(targets)
    return [(pair[0], targets[number // every]) if number % every == 0 else pair for number, pair in enumerate(pairs)]


def put(path: Path, pairs: TextPairs) -> str:
    path.write_text("".join(f"{first}\t{second}\n" for first, second in pairs), encoding="utf-8")
    return str(path)


def judged(pairs: TextPairs) -> Alignment:
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
    found = judged(lines_shifted(made_pairs(1000), lines, since))
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
            assert judged(lines_shifted(pairs)).shifts[0] == -1, file.name
        if len(pairs) <= 1000:
            assert judged(shuffled(pairs, 2)).doubtful, file.name
    list(check_pairs(str(files[0]), None))  # raises nothing
    for wrong, words in (
        (lines_shifted(pairs), "1 line further up"),
        (lines_shifted(pairs, since=500), "third quarter on"),
    ):
        refused(DataError, words, check_pairs, put(tmp_path / "pairs.tsv", wrong), None)
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

"""Counts of words with the white space in front of them: exact, whatever fits into memory."""

import re
from collections import Counter
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from vtkit.data.word_counts import Tally, count_chunks, pieces

CHUNK = re.compile(r"\s*\S+|\s+")
LETTERS = st.text(st.sampled_from(' \t\n\x1c\x85\u00a0\u2028\u3000ab\\"é한\U0001f600\ud800'), max_size=30)


def naive(texts: list[str]) -> Counter[str]:
    return Counter(chunk for text in texts for chunk in CHUNK.findall(text))


def naive_words(chunks: Counter[str]) -> list[tuple[str, int]]:
    words: Counter[str] = Counter()
    for chunk, count in chunks.items():
        if chunk.strip():
            words[chunk.lstrip()] += count
    return sorted(words.items())


@given(st.lists(LETTERS), st.sampled_from([0, 2**29]))
@example([" ", " a", "a ", " a b", "a b", "a  b"], 2**29)
def test_counts_equal_those_of_a_dictionary(texts: list[str], memory: int) -> None:
    counts, reference = count_chunks(iter(texts), memory=memory), naive(texts)
    assert list(counts) == list(counts) == sorted(reference.items())
    assert len(counts) == len(reference)
    assert list(counts.words()) == naive_words(reference)
    assert counts.texts == len(texts)
    assert counts.chunks == reference.total()
    assert counts.characters == sum(map(len, texts))


@given(st.lists(LETTERS, max_size=4), st.integers(1, 20))
def test_a_long_text_is_cut_in_front_of_white_space_only(parts: list[str], longest: int) -> None:
    text = "".join(parts)
    cut = list(pieces(text, longest))
    assert "".join(cut) == text
    assert naive(cut) == naive([text])


def test_what_a_tally_spilled_is_merged_and_its_folder_goes_away() -> None:
    tally = Tally()
    for run in (["b", "a"], ["a", "c"], []):
        tally.add(run)
        tally.make_room(100 * len(run) - 1)
        assert not tally._counts
    tally.add_many("a", 5)
    tally.finish()
    assert list(tally) == [("a", 7), ("b", 1), ("c", 1)]
    assert len(tally) == 3
    folder = Path(tally._folder.name)
    assert [path.name for path in folder.iterdir()] == ["merged"]
    del tally
    assert not folder.exists()

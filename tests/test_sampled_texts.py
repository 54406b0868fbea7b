"""Which texts a stage reads, drawing some of them, and counts of their words in bounded memory."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from vtkit.data.sampling import draw
from vtkit.data.word_counts import count_chunks, make_room, pieces
from vtkit.pipeline.stage import Corpus
from vtkit.pipeline.steps.texts import bias_corpus, calibration_corpus, read_texts
from vtkit.settings.recipe import Recipe


@given(st.lists(st.text()), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_what_is_drawn_is_there_in_the_order_it_came(texts: list[str], most: int, seed: int) -> None:
    numbered = [f"{n} {text}" for n, text in enumerate(texts)]
    drawn = draw(iter(numbered), most, seed)
    assert len(drawn) == min(most, len(texts))
    assert drawn == [text for text in numbered if text in set(drawn)]
    assert drawn == draw(numbered, most, seed)


def test_each_text_is_equally_likely() -> None:
    texts = [str(n) for n in range(12)]
    counts = Counter(text for seed in range(6000) for text in draw(texts, 4, seed))
    assert counts.total() == 24_000
    # 2000 expected for each, standard deviation 37
    assert max(abs(counts[text] - 2000) for text in texts) < 4 * 37
    assert draw(texts, 4, 1) != draw(texts, 4, 2)
    assert draw(["same"] * 5, 3, 0) == ["same"] * 3  # equal texts are drawn as often as they occur


def recipe(**sections: object) -> Recipe:
    return Recipe.model_validate(
        {
            "recipe": {"name": "r"},
            "source": {"model": "/m"},
            "vocabulary": {"kind": "existing", "tokenizer": "/t"},
            "transfer": {"method": "mean"},
            **sections,
        }
    )


def plain(*names: str) -> tuple[Corpus, ...]:
    return tuple(Corpus(name) for name in names)


def test_texts_come_from_the_first_section_that_names_some() -> None:
    adapt, finetune = {"corpus": ("/adapt",)}, {"data": "/finetune"}
    evaluate = {"sets": ("/evaluate",)}
    prior = {"method": "mean", "bias": {"corpus": ("/prior",)}}
    named = recipe(adapt=adapt, finetune=finetune, calibrate={"corpus": ("/probe",)}, transfer=prior)
    assert (calibration_corpus(named), bias_corpus(named)) == (plain("/probe"), plain("/prior"))
    from_adapt = recipe(adapt=adapt, finetune=finetune, calibrate={})
    assert calibration_corpus(from_adapt) == bias_corpus(from_adapt) == plain("/adapt")
    from_finetune = recipe(finetune=finetune, calibrate={}, evaluate=evaluate)
    assert calibration_corpus(from_finetune) == bias_corpus(from_finetune) == plain("/finetune")
    assert bias_corpus(recipe(evaluate=evaluate)) == plain("/evaluate")
    assert bias_corpus(recipe(transfer={"method": "mean", "bias": {"method": "mixture"}})) == ()


def test_corpora_are_read_one_after_the_other(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"{name}\n\nlast of {name}\n", "utf-8")
    names = [str(tmp_path / f"{name}.txt") for name in "ba"]
    assert list(read_texts(plain(*names))) == ["b", "last of b", "a", "last of a"]


LETTERS = st.text(st.sampled_from(' \t\n\x1c\x85\u00a0\u2028\u3000ab\\"é한\U0001f600\ud800'), max_size=30)


def naive(texts: list[str]) -> Counter[str]:
    """Chunks begin where white space does, but for control characters that some normalizers drop."""
    spaces = [" ", "\t", "\n", "\u00a0", "\u2028", "\u3000"]
    chunks: Counter[str] = Counter()
    for text in texts:
        starts = [n for n in range(1, len(text)) if text[n] in spaces and text[n - 1] not in spaces]
        chunks.update(text[start:end] for start, end in pairwise([0, *starts, len(text)]) if start < end)
    return chunks


@given(st.lists(LETTERS))
@example([" ", " a", "a ", " a b", "a b", "a  b", "a\x1cb", "\x1ca"])
def test_counts_equal_those_of_a_dictionary(texts: list[str]) -> None:
    counted, reference = count_chunks(iter(texts)), naive(texts)
    words: Counter[str] = Counter()
    for chunk, count in reference.items():
        words[chunk.lstrip(" \t\n\u00a0\u2028\u3000")] += count
    assert (counted.counts, counted.words()) == (reference, words - Counter({"": words[""]}))
    assert (counted.texts, counted.characters) == (len(texts), sum(map(len, texts)))


@given(st.lists(LETTERS, max_size=4), st.integers(1, 20))
def test_a_long_text_is_cut_in_front_of_white_space_only(parts: list[str], longest: int) -> None:
    text = "".join(parts)
    cut = list(pieces(text, longest))
    assert "".join(cut) == text
    assert naive(cut) == naive([text])


def test_beyond_twice_the_bound_the_rarest_are_dropped_whatever_the_order() -> None:
    counts = Counter("eeddddcba")
    make_room(counts, 3)
    assert counts == {"a": 1, "b": 1, "c": 1, "d": 4, "e": 2}
    counts.update("fg")
    make_room(counts, 3)
    assert counts == {"a": 1, "d": 4, "e": 2}

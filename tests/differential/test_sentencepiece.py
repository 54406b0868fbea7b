"""SentencePiece models: vtkit's ids are those of the ``sentencepiece`` package for the same file, or it is refused."""

import io
import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import sentencepiece
from generated import WORDS, cases, comparable, texts
from hypothesis import given
from hypothesis import strategies as st

from vtkit.system.errors import DataError
from vtkit.vocabulary.existing import load_tokenizer

NORMALIZATION = ("nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity")
SETTINGS = {
    "model_type": ("unigram", "bpe"),
    "normalization_rule_name": NORMALIZATION,
    "byte_fallback": (False, True),
    "add_dummy_prefix": (True, True, False),
    "remove_extra_whitespaces": (True, True, False),
    "split_by_whitespace": (True, True, False),
    "character_coverage": (1.0, 0.98),
    "user_defined_symbols": ((), (), ("h2o", "학교", "<ent>", "a.b", "@")),
}


@cache
def model(seed: int, **settings: Any) -> bytes:
    """A small model of words in an order of its own, some of them not seen."""
    draw = random.Random(seed)
    words = draw.sample([*WORDS, "the", "year", "test", "a", "in"], 80)
    lines = [" ".join(draw.choices(words, k=8)) for _ in range(60)]
    if not settings.get("split_by_whitespace", True):
        lines += ["in the year of the test"] * 20
    written = io.BytesIO()
    settings = {"vocab_size": draw.choice((700, 1000)), "hard_vocab_limit": False, **settings}
    settings["user_defined_symbols"] = list(settings.get("user_defined_symbols", ()))
    if settings["model_type"] == "bpe":
        settings["vocab_size"] = 800
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=written, minloglevel=2, num_threads=1, **settings
    )
    return written.getvalue()


def read(content: bytes) -> Any:
    """The model as vtkit reads it."""
    with TemporaryDirectory() as work:
        (Path(work) / "x.model").write_bytes(content)
        return load_tokenizer(f"{work}/x.model")


@cases(50)
@given(
    st.integers(0, 3),
    st.fixed_dictionaries({name: st.sampled_from(values) for name, values in SETTINGS.items()}),
    texts("h2o", "H2O", "a.b", "<ent>", "@", "in the year"),
)
def test_a_small_model_cuts_texts_as_sentencepiece_does(seed: int, settings: dict[str, Any], some: list[str]) -> None:
    content = model(seed, **settings)
    owner = sentencepiece.SentencePieceProcessor(model_proto=content)
    tokenizer = read(content)
    assert tokenizer.get_vocab() == {owner.id_to_piece(number): number for number in range(len(owner))}
    for text in filter(comparable, some):
        assert tokenizer(text, add_special_tokens=False)["input_ids"] == owner.encode(text), text


@pytest.fixture(scope="module")
def published(shared: Path) -> tuple[Any, sentencepiece.SentencePieceProcessor]:
    file = str(shared / "vocab" / "unilm3-cased-spm" / "unilm3-cased.model")
    return load_tokenizer(file), sentencepiece.SentencePieceProcessor(model_file=file)


@cases(150)
@given(some=texts())
def test_a_published_model_cuts_texts_as_sentencepiece_does(published: tuple[Any, Any], some: list[str]) -> None:
    tokenizer, owner = published
    for text in filter(comparable, some):
        assert tokenizer(text, add_special_tokens=False)["input_ids"] == owner.encode(text), text


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"treat_whitespace_as_suffix": True}, "treat_whitespace_as_suffix"),
        ({"model_type": "word"}, "model_type"),
        (
            {"user_defined_symbols": ("H2O",), "normalization_rule_name": "nmt_nfkc_cf"},
            "user_defined_symbols has 'H2O'",
        ),
    ],
)
def test_a_setting_that_cannot_be_followed_is_refused_by_its_name(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(DataError, match=named):
        read(model(0, **{"model_type": "unigram", **settings}))


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_user_defined_pieces_and_pieces_across_spaces_are_made(kind: str) -> None:
    water = read(model(0, model_type=kind, user_defined_symbols=("H2O",)))
    assert "H2O" in water.tokenize("drink H2O2 now")
    across = read(model(0, model_type=kind, split_by_whitespace=False))
    assert any("▁" in piece[1:] for piece in across.tokenize("in the year of the test"))

"""Trained vocabularies: the wanted size, borders that no token crosses, the same bytes from process to process; then
what a user sees of them: ``vtkit tokenizer``, and specifications that recipes name."""

import gzip
import json
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from command_line import invoke as vtkit
from command_line import python, succeeds
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from vocabularies import expansion, merging_bytes, wordpiece_of_letters

from vtkit.data.unspaced import cut_runs
from vtkit.data.word_counts import count_chunks
from vtkit.recipe.load import load_specification
from vtkit.settings.casing import CasingSection
from vtkit.settings.vocabulary import TrainedVocabulary
from vtkit.system.errors import DataError, RecipeError
from vtkit.vocabulary.existing import special_roles
from vtkit.vocabulary.expanded import expand_vocabulary
from vtkit.vocabulary.forms import Vocabulary, tokens
from vtkit.vocabulary.trained import _count_words, _pipeline, train

ROOT = Path(__file__).resolve().parents[1]
ALGORITHMS = ["wordpiece", "bpe", "unigram"]
FAMILIES = {"wordpiece": "wordpiece", "bpe": "byte-level", "unigram": "sentencepiece"}


SIZES = {"wordpiece": 400, "bpe": 400, "unigram": 200}


def train_vocabulary(*arguments: object) -> PreTrainedTokenizerFast:
    return train(*arguments)[0]


def section(algorithm: str = "wordpiece", size: int | None = None, **others: object) -> TrainedVocabulary:
    return TrainedVocabulary.model_validate(
        {"kind": "trained", "corpus": ("text",), "algorithm": algorithm, "size": size or SIZES[algorithm], **others}
    )


def made_up_texts(count: int = 2000) -> list[str]:
    """Sentences of a small language with Zipf-like word frequencies, in three scripts."""
    draw = random.Random(7)
    syllables = ["ka", "to", "mi", "ren", "sol", "ba", "lu", "per", "학", "교", "전", "мо", "ре", "Ün"]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(600)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    return [" ".join(draw.choices(words, weights, k=12)) + ("." if draw.random() < 0.5 else "!") for _ in range(count)]


def real_texts(shared: Path, name: str, count: int) -> Iterator[str]:
    with gzip.open(shared / "data" / "text" / name, "rt", encoding="utf-8") as file:
        yield from islice(file, count)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_vocabulary_has_its_size_and_roles_and_no_token_crosses_borders(algorithm: str, tmp_path: Path) -> None:
    texts = made_up_texts()
    tokenizer = train_vocabulary(iter(texts), section(algorithm))
    assert len(tokenizer) == SIZES[algorithm]
    assert tokens(tokenizer)[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert special_roles(tokenizer) == {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
    assert Vocabulary(tokenizer).notation.family == FAMILIES[algorithm]
    ids = tokenizer("kato 학교!")["input_ids"]
    assert (ids[0], ids[-1]) == (2, 3)
    assert 1 not in ids
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    assert again(texts[:20])["input_ids"] == tokenizer(texts[:20])["input_ids"]
    for surface, _ in Vocabulary(tokenizer).surfaces:
        assert surface.isalnum() or len(surface) <= 1, surface
    word = texts[0].split()[1]  # the first word is the same token as later ones
    first, twice = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (word, f"  {word}\t{word} "))
    assert twice == first * 2


KINDS: dict[str, dict[str, object]] = {
    algorithm: {"algorithm": algorithm, "size": 200 if algorithm == "unigram" else 600} for algorithm in ALGORITHMS
}

TRAIN = """
import sys
sys.path.insert(0, sys.argv[2])
from test_vocabulary_trained import train_each
train_each(sys.argv[1])
"""


def train_each(folder: str) -> None:
    """Train vocabularies of each kind, expanded ones too, into folders of ``folder``."""
    for name, kind in KINDS.items():
        train_vocabulary(iter(made_up_texts()), section(**kind)).save_pretrained(f"{folder}/{name}")
    for name, base in (("expanded", wordpiece_of_letters()), ("expanded bpe", merging_bytes())):
        made = expand_vocabulary(base, iter(made_up_texts()), expansion())
        made.tokenizer.save_pretrained(f"{folder}/{name}")


def test_a_process_with_other_hashes_and_threads_gives_the_same_bytes(tmp_path: Path) -> None:
    train_each(str(tmp_path / "here"))  # with the hashes of this process, and one thread
    python("-c", TRAIN, tmp_path / "there", Path(__file__).parent, PYTHONHASHSEED="1", RAYON_NUM_THREADS="2")
    for name in (*KINDS, "expanded", "expanded bpe"):
        first, second = (tmp_path / place / name / "tokenizer.json" for place in ("here", "there"))
        assert first.read_bytes() == second.read_bytes(), name


@pytest.mark.parametrize("algorithm", ["wordpiece", "bpe"])
def test_a_smaller_vocabulary_is_the_beginning_of_a_larger_one(algorithm: str) -> None:
    small, large = (tokens(train_vocabulary(made_up_texts(), section(algorithm, size))) for size in (320, 400))
    assert large[:320] == small


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_scripts_are_kept_apart_on_request(shared: Path, algorithm: str) -> None:
    japanese = list(real_texts(shared, "jglue-sentences-ja.txt.gz", 4000))
    text, parts = "食パンの2024年ABCテレビ", ["食", "パン", "の", "2024", "年", "ABC", "テレビ"]
    size = 2200 if algorithm == "unigram" else 2500
    apart = train_vocabulary(japanese, section(algorithm, size, split="scripts"))
    backend = apart.backend_tokenizer
    pieces = [piece for piece, _ in backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(text))]
    assert len(pieces) == len(parts)
    if algorithm != "bpe":  # whose pieces are spelled in bytes
        assert [piece.removeprefix("▁") for piece in pieces] == parts
    surfaces = [surface for surface, _ in Vocabulary(apart).surfaces]
    assert "テーブル" in surfaces
    assert not any("テ" in surface and "の" in surface for surface in surfaces)
    together = train_vocabulary(japanese, section(algorithm, size))
    spaced = together.backend_tokenizer.normalizer.normalize_str(text)
    assert spaced.strip() == "食パンの 2024年 ABCテレビ"  # words of other scripts have a border of their own
    assert len(together.backend_tokenizer.pre_tokenizer.pre_tokenize_str(spaced)) == 5


def test_marks_stay_with_their_letters() -> None:
    hindi = ["विद्यालय में पढ़ाई", "किताब और पानी"] * 60
    cut = train_vocabulary(hindi, section("bpe", 290)).backend_tokenizer.pre_tokenizer.pre_tokenize_str
    assert [len(cut(word)) for word in hindi[1].split()] == [1] * 3


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_lower_casing_is_inside_the_tokenizer_and_keeps_accents(algorithm: str) -> None:
    tokenizer = train_vocabulary(made_up_texts(), section(algorithm), CasingSection(input="lowercase"))
    assert tokenizer("ÜN Kato 학교")["input_ids"] == tokenizer("ün kato 학교")["input_ids"]
    assert tokenizer("ün")["input_ids"] != tokenizer("un")["input_ids"]
    assert tokenizer(unicodedata.normalize("NFD", "학교"))["input_ids"] == tokenizer("학교")["input_ids"]
    # Tokens of one byte keep their capitals.
    learned = [surface for surface, _ in Vocabulary(tokenizer).surfaces if len(surface) > 1]
    assert learned == [surface.lower() for surface in learned]


CASINGS = [CasingSection(), CasingSection(input="lowercase"), CasingSection(input="lowercase", language="tr")]
ODD = " \t\n\x0b\x1c\x85\u00a0\u2028\u3000\u00ad\u200b\ue000aAbIİÉéе́1٣ﬁ漢字カな한ᄒ각أَةक़\u0301-.'$_"
WRITTEN = st.lists(st.text(st.sampled_from(ODD), max_size=24), max_size=6)
SETTINGS = st.fixed_dictionaries({
    "clean": st.sampled_from(["format", "bert", "none"]), "strip_accents": st.booleans(),
    "split": st.sampled_from(["words", "scripts", "bert", "whitespace"]), "fold_spelling": st.booleans(),
})  # fmt: skip


@given(WRITTEN, SETTINGS, st.sampled_from(sorted(KINDS)), st.sampled_from(CASINGS), st.booleans())
@example(["I"], {"clean": "format", "split": "words"}, "bpe", CASINGS[2], False)
@settings(max_examples=300)
def test_words_are_counted_as_the_tokenizer_cuts_whole_texts(
    texts: list[str], chosen: dict[str, object], kind: str, casing: CasingSection, marked: bool
) -> None:
    given_section = section(**{**KINDS[kind], **chosen})
    marks_starts = marked or kind != "wordpiece"
    backend = _pipeline(given_section, casing, marks_starts)
    counted = _count_words(count_chunks(texts), backend, given_section, casing, marks_starts)
    cut = backend.pre_tokenizer.pre_tokenize_str
    reference = Counter(
        word
        for text in texts
        if text
        for part in (cut_runs if marks_starts else lambda text: [text])(backend.normalizer.normalize_str(text))
        for word, _ in cut(part)
        if word.strip("Ġ▁ ")
    )
    assert {word: count for word, count in counted.items() if word.strip("Ġ▁ ")} == reference


@pytest.mark.parametrize("kind", KINDS)
def test_turkish_in_capitals_has_the_tokens_of_turkish(kind: str) -> None:
    names = [
        "istanbul",
        "ısparta",
        "izmir",
        "ığdır",
        "diyarbakır",
        "kırıkkale",
        "rize",
        "niğde",
        "ilgi",
        "ışık",
        "bilgi",
        "sığınak",
    ]
    capitals = [name.replace("i", "İ").replace("ı", "I").upper() for name in names]
    texts = [" ".join(names[n:] + capitals[:n] + [capitals[n][0] + names[n][1:]]) for n in range(len(names))] * 4
    texts += [unicodedata.normalize("NFD", text) for text in texts]
    casing = CasingSection(input="lowercase", language="tr")
    tokenizer = train_vocabulary(texts, section(**{**KINDS[kind], "size": 300 if kind == "bpe" else 100}), casing)
    for written in (capitals, [unicodedata.normalize("NFD", name) for name in capitals]):
        assert [tokenizer(name)["input_ids"] for name in written] == [tokenizer(name)["input_ids"] for name in names]
    assert not any("\u0307" in surface for surface, _ in Vocabulary(tokenizer).surfaces)


def test_the_settings_by_eye() -> None:
    def cut(text: str, **chosen: object) -> list[str]:
        casing = CasingSection(input="lowercase" if chosen.pop("lowercase", False) else "keep")
        algorithm = chosen.get("algorithm", "wordpiece")
        backend = _pipeline(section(**chosen), casing, algorithm != "wordpiece")
        return [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(text))]

    assert cut("ﬁne ½") == ["fine", "1", "⁄", "2"]
    assert cut("Café ñandú й", strip_accents=True, lowercase=True) == ["cafe", "nandu", "и"]
    assert cut("Café", lowercase=True) == ["café"]
    assert cut("الدَّوْلَةُ العُثمَانِيَّة إلى", fold_spelling=True) == ["الدوله", "العثمانيه", "الي"]
    assert cut("ज़ाँच בְּרֵאשִׁית Café", fold_spelling=True) == ["जांच", "בראשית", "Café"]
    assert cut("الدَّوْلَةُ") == ["الدَّوْلَةُ"]
    assert cut("漢字かな") == ["漢字かな"]
    assert cut("漢字かな", split="scripts") == ["漢字", "かな"]
    assert cut("a-b_c", split="whitespace") == ["a-b_c"]
    assert cut("a-b_c", split="bert") == ["a", "-", "b", "_", "c"]
    assert cut("5€+x", split="words") == ["5", "€", "+", "x"]
    assert cut("5€+x", split="bert") == ["5€", "+", "x"]
    assert cut("soft\u00adhy\u200bphen") == ["softhyphen"]
    assert cut(" a  b", algorithm="unigram") == ["▁a", "▁b"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_corpus_may_hold_any_characters(algorithm: str) -> None:
    odd = "a\0b \U000f0000a\U000f0001\U000f0000 <unk> <s> \x1b[31m ▁x\x7f"
    texts = [*made_up_texts(), *[odd] * 40]
    tokenizer = train_vocabulary(texts, section(algorithm, clean="none", split="whitespace"))
    read = tokenizer("\U000f0000a", add_special_tokens=False)["input_ids"]
    assert tokenizer.unk_token_id not in read
    assert tokenizer.decode(read).replace(" ", "") == "\U000f0000a"


@pytest.mark.parametrize(
    ("texts", "algorithm", "size", "said"),
    [
        (["ab cd ef gh"], "wordpiece", 200, r"too small .* nothing occurs in it 2 times"),
        (["", "  "], "wordpiece", 400, "no words"),
        *((["a b c d"] * 20, algorithm, 5000, "too small to learn a vocabulary") for algorithm in ALGORITHMS[::2]),
        (["".join(map(chr, range(0xAC00, 0xAD00)))] * 3, "unigram", 200, "alone are 262 tokens"),
    ],
)
def test_a_corpus_with_nothing_to_learn_is_refused(texts: list[str], algorithm: str, size: int, said: str) -> None:
    with pytest.raises(DataError, match=said):
        train_vocabulary(iter(texts), section(algorithm, size))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_corpus_that_cannot_fill_the_size_gives_all_that_it_has(
    algorithm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = made_up_texts()

    def trained(wanted: int) -> tuple[PreTrainedTokenizerFast, str]:
        tokenizer = train_vocabulary(texts, section(algorithm, wanted))
        return tokenizer, " ".join(capsys.readouterr().err.split())

    whole, said = trained(100_000)
    size = len(whole)
    assert f"warning: the corpus gives a vocabulary of {size:,} tokens" in said
    exact, said = trained(size)
    assert exact.backend_tokenizer.to_str() == whole.backend_tokenizer.to_str()
    assert "gives a vocabulary" not in said
    assert len(trained(size - 1)[0]) == size - 1
    larger, said = trained(size + 1)
    assert len(larger) == size
    assert f"gives a vocabulary of {size:,} tokens" in said
    assert "warning" not in said


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_korean_vocabulary_has_its_frequent_words_whole(shared: Path, algorithm: str) -> None:
    tokenizer = train_vocabulary(real_texts(shared, "klue-sentences-ko.txt.gz", 6000), section(algorithm, 4000))
    known = set(Vocabulary(tokenizer).surfaces)
    assert {("있다", True), ("한국", True)} <= known
    assert len(tokenizer.tokenize("한국에서")) <= 2


def corpus_file(folder: Path) -> Path:
    path = folder / "corpus.txt"
    path.write_text("\n".join(made_up_texts()), encoding="utf-8")
    return path


SPECIFICATION = """
[vocabulary]
kind = "trained"
corpus = ["corpus.txt"]
algorithm = "bpe"
size = 400
strip_accents = true

[casing]
input = "lowercase"
"""


def test_the_commands_build_what_a_specification_or_the_options_say(tmp_path: Path) -> None:
    corpus = corpus_file(tmp_path)
    specification = tmp_path / "small.toml"
    specification.write_text(SPECIFICATION, encoding="utf-8")
    built = succeeds("tokenizer", "build", specification, "--out", tmp_path / "built", "--json")
    facts = json.loads(built.stdout)
    assert (facts["size"], facts["corpus"]["texts"]) == (400, 2000)
    assert "Unicode NFKC, lower case" in facts["text"]
    options = ["--algorithm", "bpe", "--size", 400, "--strip-accents", "--lowercase", "--out", tmp_path / "trained"]
    trained = succeeds("tokenizer", "train", corpus, *options)
    assert "400 tokens" in trained.stdout
    first, second = (tmp_path / name / "tokenizer.json" for name in ("built", "trained"))
    assert first.read_bytes() == second.read_bytes()
    succeeds("tokenizer", "build", specification, "--out", tmp_path / "smaller", "--set", "vocabulary.size=320")
    assert len(AutoTokenizer.from_pretrained(tmp_path / "smaller", local_files_only=True)) == 320


RECIPE = """
[recipe]
name = "{name}"
[source.scratch]
layers = 1
hidden = 32
heads = 2
feed_forward = 64
[vocabulary]
kind = "existing"
tokenizer = "tokenizers/small.toml"
{more}
[adapt]
corpus = ["tokenizers/corpus.txt"]
"""


def test_recipes_that_name_one_specification_share_what_it_builds(tmp_path: Path) -> None:
    folder = tmp_path / "tokenizers"
    folder.mkdir()
    corpus_file(folder)
    (folder / "small.toml").write_text(SPECIFICATION, encoding="utf-8")
    said = {}
    for name, more in (("first", ""), ("second", ""), ("third", "size = 320")):
        (tmp_path / f"{name}.toml").write_text(RECIPE.format(name=name, more=more), encoding="utf-8")
        done = succeeds("run", tmp_path / f"{name}.toml", "--runs", tmp_path / "runs", "--until", "vocabulary", "-v")
        said[name] = done.output
    assert re.search(r"vocabulary +run: not made yet", said["first"])
    assert re.search(r"vocabulary +skip: done", said["second"])
    assert re.search(r"vocabulary +run", said["third"])


def test_the_specifications_load() -> None:
    for path in (ROOT / "tokenizers").glob("*.toml"):
        assert load_specification(path)[0].vocabulary.corpus
    assert not (ROOT / "tokenizers" / "__init__.py").exists()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[vocabulary]\nkind = "existing"\ntokenizer = "./x"\n', 'must be "trained" or "expanded"'),
        (SPECIFICATION + "[adapt]\nsteps = 3\n", "There are vocabulary, casing"),
        (SPECIFICATION.replace("corpus.txt", "absent.txt"), "absent.txt does not exist"),
        (SPECIFICATION.replace("size", "sise"), "Did you mean 'size'"),
    ],
)
def test_a_specification_that_cannot_be_built_is_refused_in_one_message(
    text: str, complaint: str, tmp_path: Path
) -> None:
    corpus_file(tmp_path)
    (tmp_path / "small.toml").write_text(text, encoding="utf-8")
    done = vtkit("tokenizer", "build", tmp_path / "small.toml", "--out", tmp_path / "out")
    assert isinstance(done.exception, RecipeError), done.output
    assert complaint in str(done.exception)


@pytest.mark.parametrize("algorithm", ["wordpiece", "bpe", "unigram"])
def test_tokens_of_one_spelling_have_one_id(algorithm: str) -> None:
    texts = ["### heading [UNK] word ##x a#b x[UNK] #tag"] * 30 + ["the word of a heading"] * 30
    tokenizer, _ = train(texts, section(algorithm, 360, split="whitespace"))
    ids = tokenizer.backend_tokenizer.get_vocab()
    assert sorted(ids.values()) == list(range(len(ids)))
    assert [ids[token] for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")] == [0, 1, 2, 3, 4]

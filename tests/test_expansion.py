"""Vocabulary expansion: the paper's algorithm spelled out and run afresh for every size, against the one that reads
the corpus once; then what a user sees of it."""

import gzip
import json
import math
import random
import re
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke, succeeds
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import LETTERS, ROLES
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from vocabularies import expansion, merging_bytes, wordpiece_of_letters

from vtkit.pipeline.steps.build_vocabulary import VocabularyResult, build_vocabulary
from vtkit.recipe.load import load_recipe
from vtkit.settings.casing import CasingSection
from vtkit.settings.vocabulary import ExpandedVocabulary
from vtkit.system.errors import DataError
from vtkit.vocabulary.existing import load_tokenizer, special_roles, with_casing, wrap
from vtkit.vocabulary.expanded import LEAST_OCCURRENCES, expand_vocabulary
from vtkit.vocabulary.forms import tokens
from vtkit.vocabulary.notation import BYTE_LEVEL, WORDPIECE
from vtkit.vocabulary.statistics import Built


def first_tokens(shared: Path, size: int) -> PreTrainedTokenizerFast:
    """bert-base-uncased, but only the first ``size`` of its tokens."""
    base = load_tokenizer(str(shared / "vocab" / "bert-base-uncased"))
    layout = json.loads(base.backend_tokenizer.to_str())
    layout["model"]["vocab"] = {token: number for number, token in enumerate(tokens(base)[:size])}
    return wrap(Tokenizer.from_str(json.dumps(layout)), ROLES, "of the test")


def real_texts(shared: Path, count: int, name: str = "biomed-abstracts-en") -> list[str]:
    with gzip.open(shared / "data" / "text" / f"{name}.txt.gz", "rt", encoding="utf-8") as file:
        return [line.rstrip("\n") for line in islice(file, count)]


def made_up_texts(count: int = 300) -> list[str]:
    draw = random.Random(5)
    syllables = ["ka", "to", "mi", "ren", "sol", "ba", "lu", "per", "ni", "ste", "12", "é"]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(300)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    return [" ".join(draw.choices(words, weights, k=10)).capitalize() + draw.choice(".!") for _ in range(count)]


# The algorithm as it is written: everything afresh for every i, and the whole corpus every time.


class Naive:
    def __init__(self, base: PreTrainedTokenizerFast, texts: list[str], given: ExpandedVocabulary) -> None:
        self.base, self.texts, self.given = base, texts, given
        self.is_bpe = isinstance(base.backend_tokenizer.model, models.BPE)
        self.folding = Tokenizer.from_str(
            with_casing(base, CasingSection(input="lowercase")).backend_tokenizer.to_str()
        )
        self.words = [self.cut(text) for text in texts]

    def cut(self, text: str) -> list[str]:
        folded = self.folding.normalizer.normalize_str(text)
        return [word for word, _ in self.folding.pre_tokenizer.pre_tokenize_str(folded)]

    def trained(self, size: int) -> Tokenizer:
        """A vocabulary of ``size`` tokens, five of them special, learned on the texts one after the other."""
        trainer = trainers.BpeTrainer(
            vocab_size=size - 5, min_frequency=LEAST_OCCURRENCES, show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if self.is_bpe else [],
        )  # fmt: skip
        backend = Tokenizer(models.BPE())
        backend.normalizer, backend.pre_tokenizer = self.folding.normalizer, self.folding.pre_tokenizer
        if self.is_bpe:
            backend.train_from_iterator(self.texts, trainer)
            return backend
        # Continuing letters are Hangul syllables while merging, which none of the test's texts has.
        letters = sorted({letter for words in self.words for word in words for letter in word})
        inside = {ord(letter): chr(0xAC00 + number) for number, letter in enumerate(letters)}
        outside = {hangul: chr(letter) for letter, hangul in inside.items()}
        raw = Tokenizer(models.BPE())
        raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        mapped = (" ".join(word[0] + word[1:].translate(inside) for word in words) for words in self.words)
        raw.train_from_iterator(mapped, trainer)
        vocabulary = {"[UNK]": 0}
        for token in sorted(raw.get_vocab(), key=raw.get_vocab().__getitem__):
            spelled = "".join(outside.get(letter, letter) for letter in token)
            vocabulary["##" + spelled if token[0] in outside else spelled] = len(vocabulary)
        backend.model = models.WordPiece(vocabulary, unk_token="[UNK]")
        return backend

    def chosen(self, size: int) -> list[str]:
        backend = self.trained(size)
        frequencies: Counter[str] = Counter()
        for text in self.texts:
            frequencies.update(backend.encode(text, add_special_tokens=False).tokens)
        known = self.base.get_vocab()
        room, added = size - len(self.base), []
        spoken = {word for words in self.words for word in words}
        for token, count in sorted(frequencies.items(), key=lambda item: (-item[1], item[0])):
            if token in known or count < LEAST_OCCURRENCES or self.left_out(token) or len(added) == room:
                continue
            if self.is_bpe:
                pieces = self.base.backend_tokenizer.model.tokenize(token)
                if len(pieces) != 2 and token not in spoken:
                    continue
            added.append(token)
        return added

    def left_out(self, token: str) -> bool:
        _, surface = (BYTE_LEVEL if self.is_bpe else WORDPIECE).read(token)
        return re.search(r"[^\W\d_]", surface.encode(errors="ignore").decode()) is None

    def expanded(self, added: list[str]) -> Tokenizer:
        old = [*tokens(self.base)]
        vocabulary = {token: number for number, token in enumerate([*old, *added])}
        backend = Tokenizer.from_str(self.base.backend_tokenizer.to_str())
        if self.is_bpe:
            merges = [(left, right) for left, right in json.loads(backend.to_str())["model"]["merges"]]
            for token in added:
                pieces = self.base.backend_tokenizer.model.tokenize(token)
                if len(pieces) == 2:
                    merges.append((pieces[0].value, pieces[1].value))
            backend.model = models.BPE(vocabulary, merges, ignore_merges=True)
        else:
            backend.model = models.WordPiece(vocabulary, unk_token="[UNK]")
        backend.encode_special_tokens = True
        return backend

    def entropy(self, added: list[str]) -> tuple[float, int]:
        backend = self.expanded(added)
        cut = [backend.encode(text, add_special_tokens=False).tokens for text in self.texts]
        frequencies = Counter(token for text in cut for token in text)
        total = frequencies.total()
        entropy = sum(sum(math.log(frequencies[token] / total) for token in text) for text in cut)
        return entropy, total

    def run(self) -> tuple[list[str], list[tuple[int, float, int]], str]:
        curve = [(0, *self.entropy([]))]
        while True:
            wanted = len(self.base) + len(curve) * self.given.increment
            wanted = min(wanted, self.given.size or wanted)
            added = self.chosen(wanted)
            curve.append((len(added), *self.entropy(added)))
            risen = curve[-1][1] - curve[-2][1]
            if len(self.base) + len(added) < wanted:
                return added, curve, "exhausted"
            if self.given.stop == "entropy-gain" and risen < (self.given.epsilon or 0.01) * abs(curve[-2][1]):
                return added, curve, "entropy-gain"
            if self.given.stop == "first-gain" and risen < (self.given.epsilon or 0.1) * (curve[1][1] - curve[0][1]):
                return added, curve, "first-gain"
            if wanted == self.given.size:
                return added, curve, "size"


def compare(base: PreTrainedTokenizerFast, texts: list[str], given: ExpandedVocabulary) -> Built | None:
    """Both ways give the same tokens at the end, and the same numbers at every step; None where nothing is added."""
    added, curve, stopped = Naive(base, texts, given).run()
    if not added:
        with pytest.raises(DataError, match="nothing to add"):
            expand_vocabulary(base, texts, given)
        return None
    found = expand_vocabulary(base, texts, given)
    assert list(found.added) == added
    assert found.expansion.stopped == stopped
    assert [step.added for step in found.expansion.curve] == [step[0] for step in curve]
    assert [step.tokens for step in found.expansion.curve] == [step[2] for step in curve]
    assert [step.entropy for step in found.expansion.curve] == pytest.approx([step[1] for step in curve], rel=1e-9)
    return found


RULES = [("exhausted", None), ("entropy-gain", None), ("entropy-gain", 0.05), ("first-gain", 0.1), ("first-gain", 0.4)]
WORDS = st.text("abcABé12.,-(β", min_size=1, max_size=9)
TEXTS = st.lists(st.lists(WORDS, max_size=8).map("  ".join), min_size=1, max_size=12)


@pytest.mark.parametrize(
    "base",
    [wordpiece_of_letters("ab", "##bc", "."), merging_bytes(("a", "b"), ("Ġ", "a"), ("ab", "c"))],
    ids=["wordpiece", "bpe"],
)
@given(TEXTS, st.integers(1, 6), st.sampled_from(RULES))
@settings(max_examples=40)
def test_a_vocabulary_grows_as_in_the_algorithm(
    base: PreTrainedTokenizerFast, texts: list[str], increment: int, rule: tuple[str, float | None]
) -> None:
    compare(base, [*texts, "a word"] * 2, expansion(increment=increment, stop=rule[0], epsilon=rule[1]))


def test_every_increment_on_real_text_is_that_of_the_algorithm(shared: Path) -> None:
    found = compare(
        first_tokens(shared, 2200), real_texts(shared, 200), expansion(increment=150, size=2200 + 5 * 150 - 50)
    )
    assert found.expansion.stopped == "size"
    assert [step.added for step in found.expansion.curve] == [0, 150, 300, 450, 600, 700]
    gpt2 = load_tokenizer(str(shared / "vocab" / "gpt2")).backend_tokenizer
    merges = [(left, right) for left, right in json.loads(gpt2.to_str())["model"]["merges"][:1000]]
    bpe = merging_bytes(*merges, lowercase=False)
    found = compare(bpe, real_texts(shared, 150), expansion(increment=250, size=1261 + 900))
    assert [step.added for step in found.expansion.curve] == [0, 250, 500, 750, 900]


def test_more_increments_than_the_first_training_holds_are_the_same_too() -> None:
    found = compare(wordpiece_of_letters(), made_up_texts(), expansion(increment=6))
    assert len(found.expansion.curve) > 20
    assert found.expansion.stopped == "exhausted"


def test_the_frequent_new_words_come_first_and_digits_and_marks_never() -> None:
    texts = ["Apoptosis, apoptosis 1234 !!!"] * 5 + ["kinase kinase-1234 apoptosis"] * 3 + ["cat"] * 9
    found = expand_vocabulary(wordpiece_of_letters("cat", ",", "!"), texts, expansion(increment=3))
    assert found.added[:2] == ("apoptosis", "kinase")
    assert not any(re.fullmatch(r"(##)?[\d!-]+", token) for token in found.added)
    cut = found.tokenizer.tokenize
    assert cut("Kinase apoptosis cat") == ["kinase", "apoptosis", "cat"]
    # 9 times "cat", 13 "apoptosis", 6 "kinase", 5 commas, 15 "!", 3 hyphens unknown, 8 unknown "1234"
    assert found.expansion.curve[-1].tokens == 9 + 13 + 6 + 5 + 15 + 3 + 8
    assert found.expansion.curve[-1].tokens_per_word == found.expansion.curve[-1].tokens / (5 * 4 + 3 * 3 + 9)
    shares = [count / 59 for count in (9, 13, 6, 5, 15, 11)]
    assert found.expansion.curve[-1].entropy == pytest.approx(59 * sum(share * math.log(share) for share in shares))


@pytest.mark.parametrize("base", [wordpiece_of_letters("cat"), merging_bytes(("c", "a"))])
def test_all_of_the_base_stays_and_the_new_tokens_follow(base: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    texts = made_up_texts()
    found = expand_vocabulary(base, texts, expansion())
    assert tokens(found.tokenizer) == [*tokens(base), *found.added]
    assert special_roles(found.tokenizer) == special_roles(base)
    before, after = (json.loads(t.backend_tokenizer.to_str()) for t in (base, found.tokenizer))
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        assert after[part] == before[part]
    found.tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    ids = again(texts)["input_ids"]
    assert ids == found.tokenizer(texts)["input_ids"]
    made = {number for text in ids for number in text}
    assert found.expansion.unused == sum(number not in made for number in range(len(base), len(again)))
    assert found.expansion.curve[-1].tokens == sum(map(len, ids)) - 2 * len(ids)
    assert found.expansion.unused < len(found.added) / 10
    assert again.decode(again("kami")["input_ids"], skip_special_tokens=True) == "kami"


def test_modernbert_keeps_the_ids_of_its_added_tokens(shared: Path, tmp_path: Path) -> None:
    base = load_tokenizer(str(shared / "vocab" / "ModernBERT-base"))
    texts = [text.lower() for text in real_texts(shared, 150)] + ["two  spaces   and [unused0] [MASK] in it"] * 2
    found = expand_vocabulary(base, texts, expansion(increment=400, size=len(base) + 200))
    found.tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    assert tokens(again)[: len(base)] == tokens(base)
    assert again.added_tokens_decoder.keys() == base.added_tokens_decoder.keys()
    plain = "the house has two  spaces and a [MASK]"
    assert again(plain)["input_ids"] == base(plain)["input_ids"]
    again.backend_tokenizer.encode_special_tokens = True
    whole = again.backend_tokenizer.encode_batch(texts, add_special_tokens=False)
    made = Counter(number for encoding in whole for number in encoding.ids)
    assert found.expansion.curve[-1].tokens == made.total()
    assert found.expansion.unused == sum(number not in made for number in range(len(base), len(again)))
    # Words as a whole, and what the base cuts in two.
    pieces = base.backend_tokenizer.model.tokenize
    assert {len(pieces(token)) for token in found.added} >= {2, 3}
    assert all(again.tokenize(token.replace("Ġ", " ")) == [token] for token in found.added if token.startswith("Ġ"))


def test_special_tokens_that_a_normalizer_reaches_keep_their_ids_and_no_token_comes_beside_the_size(
    shared: Path,
) -> None:
    """The padding token of the uncased BERT is normalized, so that the library itself calls it [pad]."""
    base = load_tokenizer(str(shared / "vocab" / "bert-base-uncased"))
    found = expand_vocabulary(base, real_texts(shared, 300), expansion(size=len(base) + 50, increment=50)).tokenizer
    assert len(found) == len(base) + 50
    assert found.all_special_ids == base.all_special_ids
    assert found(["a b", "a"], padding=True)["input_ids"][1][-1] == base.pad_token_id


def test_a_base_that_keeps_upper_case_is_warned_of_and_can_be_folded(capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["Kinase KINASE kinase DNA"] * 4
    base = wordpiece_of_letters("DNA", *"DNAKISE", *(f"##{letter}" for letter in "DNAKISE"), lowercase=False)
    kept = expand_vocabulary(base, texts, expansion(increment=2))
    assert "keeps upper case" in capsys.readouterr().err
    assert kept.added == ("kinase", "dna")
    assert kept.expansion.unused == 1  # no text has dna in lower case
    assert kept.tokenizer.tokenize("Kinase kinase DNA") != ["kinase", "kinase", "DNA"]
    folded = expand_vocabulary(base, texts, expansion(increment=2), CasingSection(input="lowercase"))
    assert capsys.readouterr().err == ""
    assert folded.tokenizer.tokenize("Kinase KINASE DNA") == ["kinase", "kinase", "dna"]
    assert folded.expansion.unused == 0


# What cannot be done


def unigram() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.Unigram([*((token, 0.0) for token in ROLES.values()), ("▁a", -1.0), ("a", -2.0)], 1))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    return wrap(backend, ROLES, "of the test")


def characters() -> PreTrainedTokenizerFast:
    listed = [*ROLES.values(), "▁", *LETTERS]
    backend = Tokenizer(models.BPE({token: n for n, token in enumerate(listed)}, [], unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    return wrap(backend, ROLES, "of the test")


def joined() -> PreTrainedTokenizerFast:
    base = wordpiece_of_letters(" ")
    base.backend_tokenizer.pre_tokenizer = pre_tokenizers.Split(".", "isolated")
    return base


def test_what_cannot_be_expanded_is_refused() -> None:
    refused: list[tuple[PreTrainedTokenizerFast, list[str], dict[str, Any], str]] = [
        (unigram(), ["a text"], {}, "Unigram"),
        (characters(), ["a text"], {}, "BPE of characters"),
        (joined(), ["a text"] * 3, {}, "reach across white space"),
        (wordpiece_of_letters(), ["a text"], {"size": 57}, "size = 57 .* has 57 already"),
        (wordpiece_of_letters(), [], {}, "no words"),
        (wordpiece_of_letters(), ["", "  "], {}, "no words"),
        (wordpiece_of_letters("text", "this", "is"), ["this is text 1234 !!!"] * 3, {}, "nothing to add to the base"),
        (wordpiece_of_letters(), ["qx zj vk"], {}, "at least 2 times"),
    ]
    for base, texts, changes, message in refused:
        with pytest.raises(DataError, match=message):
            expand_vocabulary(base, iter(texts), expansion(**changes))


# The stage and the command


def test_the_stage_writes_the_tokenizer_and_says_how_it_grew(base_and_corpus: list[str], tmp_path: Path) -> None:
    text = (
        '[recipe]\nname = "expanded"\n[source]\nmodel = "org/model"\n[vocabulary]\nkind = "expanded"\n'
        'tokenizer = "./base"\ncorpus = ["corpus.txt"]\nincrement = 20\nstop = "first-gain"\nepsilon = 0.05\n'
        '[transfer]\nmethod = "subtoken"\n'
    )
    found = build_vocabulary(load_recipe(tmp_path / "recipe.toml", text=text).recipe, {}, tmp_path)
    expansion = found.expansion
    assert VocabularyResult.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert found.size == 58 + expansion.added == expansion.curve[-1].size
    assert (expansion.base_size, expansion.stopped) == (58, "first-gain")
    assert len(AutoTokenizer.from_pretrained(tmp_path / "tokenizer", local_files_only=True)) == found.size


@pytest.fixture
def base_and_corpus(tmp_path: Path) -> list[str]:
    wordpiece_of_letters("cat").save_pretrained(tmp_path / "base")
    (tmp_path / "corpus.txt").write_text("\n".join(made_up_texts()), encoding="utf-8")
    return [str(tmp_path / "base"), str(tmp_path / "corpus.txt")]


def test_the_command_prints_the_curve_and_saves(base_and_corpus: list[str], tmp_path: Path) -> None:
    options = ["--increment", "20", "--out", str(tmp_path / "out")]
    options += ["--png", str(tmp_path / "a.png"), "--html", str(tmp_path / "a.html")]
    done = succeeds("expand", *base_and_corpus, *options)
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:3]] == [["58", "0"], ["78", "20"]]
    assert any("(exhausted)" in line for line in lines)
    saved = AutoTokenizer.from_pretrained(tmp_path / "out", local_files_only=True)
    assert f"{len(saved):,}" in done.stdout
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "<img" in page
    assert "http" not in page.replace("http-equiv", "")
    facts = json.loads(invoke("expand", *base_and_corpus, "--increment", "20", "--size", "90", "--json").stdout)
    assert facts["stopped"] == "size"
    assert [step["size"] for step in facts["curve"]] == [58, 78, 90]
    assert len(facts["tokens"]) == facts["added"] == 32


def test_tokens_from_a_corpus_are_data_on_the_page(tmp_path: Path) -> None:
    from vtkit.report.expansion import expansion_page

    stats = expand_vocabulary(wordpiece_of_letters(), made_up_texts(), expansion()).expansion
    page = expansion_page(stats, "<b>base", ["a&b.txt"], ["<script>x", "\u202ey"])
    assert all(text not in page for text in ("<script", "<b>base", "\u202e"))
    assert all(text in page for text in ("&lt;script&gt;x", "&lt;b&gt;base", "a&amp;b.txt"))


def test_the_command_reads_standard_input_and_replaces_bad_bytes_on_request(base_and_corpus: list[str]) -> None:
    base, corpus = base_and_corpus
    raw = Path(corpus).read_bytes() + b"caf\xe9\n"
    refused = invoke("expand", base, "-", typed=raw)
    assert "standard input: line" in str(refused.exception)
    assert "is not UTF-8" in str(refused.exception)
    done = succeeds("expand", base, "-", "--encoding-errors", "replace", "--json", typed=raw)
    assert json.loads(done.stdout)["added"] > 0

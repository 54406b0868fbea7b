"""Words by script, and fragmentation: equal to tokenizing every line, whatever the tokenizer and the text."""

import gzip
import json
import math
import unicodedata
from bisect import bisect_right
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
import tiny
from command_line import invoke
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from layouts import KINDS, TEXTS, tokenizer
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from vocabularies import byte_level, wordpiece

from vtkit.data.document_files import read_corpus
from vtkit.data.spelling import lowered
from vtkit.encoder.checkpoint import load_source_tokenizer
from vtkit.evaluation.analyses.together import tokens_of_words
from vtkit.system.errors import DataError
from vtkit.vocabulary.composition import SEMBRIDGE
from vtkit.vocabulary.existing import load_tokenizer, wrap
from vtkit.vocabulary.forms import Vocabulary
from vtkit.vocabulary.fragmentation import Counts, Fragmentation, QueryCounts, language_groups, measure_fragmentation
from vtkit.vocabulary.inspection import corpus_use
from vtkit.vocabulary.pair import pair_of
from vtkit.vocabulary.profiles import Sample, VocabularyAnalysis
from vtkit.vocabulary.reachability import duplicates, unreachable
from vtkit.vocabulary.vocabularies import analyse_vocabularies, languages_told_apart
from vtkit.vocabulary.words import Punctuation, script_of, script_of_text, word_spans, words


def naive(texts: list[str], tokenizer: PreTrainedTokenizerFast) -> tuple[dict[str, Counts], Counter[int], Counter[str]]:
    """Counts by group, tokens, and extra tokens of words, by loops over every line."""
    backend = tokenizer.backend_tokenizer
    byte_level = isinstance(backend.decoder, decoders.ByteLevel)
    marks = {number for token, number in tokenizer.get_vocab().items() if not token.strip("Ġ " if byte_level else "▁ ")}
    unknown = tokenizer.unk_token_id
    groups: dict[str, Counter[str]] = {}
    ids: Counter[int] = Counter()
    extra: Counter[str] = Counter()
    for text in filter(None, map(str.strip, texts)):
        counts = groups.setdefault(script_of_text(text), Counter())
        encoding = backend.encode(text, add_special_tokens=False)
        spans = list(word_spans(text))
        ends = [end for _, end in spans]
        held: list[list[int]] = [[] for _ in spans]
        for number, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            first = place = bisect_right(ends, start)
            while number not in marks and start < end and place < len(spans) and spans[place][0] < end:
                held[place].append(number)
                place += 1
            counts["word_tokens"] += place > first
        counts["texts"] += 1
        counts["words"] += len(spans)
        counts["tokens"] += len(encoding.ids)
        counts["split_words"] += sum(len(tokens) > 1 for tokens in held)
        counts["lost_words"] += sum(not tokens for tokens in held)
        counts["unknown_words"] += sum(unknown in tokens for tokens in held)
        counts["unknown_tokens"] += encoding.ids.count(unknown)
        ids.update(encoding.ids)
        extra.update({text[start:end]: 0 for start, end in spans})
        for (start, end), tokens in zip(spans, held, strict=True):
            extra[text[start:end]] += max(0, len(tokens) - 1)
    return {name: Counts(**counts) for name, counts in groups.items()}, ids, extra


def check(texts: list[str], name: str, tokenizer: PreTrainedTokenizerFast, top: int = 20) -> Fragmentation:
    """What is measured is what the loops find."""
    (found,) = measure_fragmentation(texts, {name: tokenizer}, top=top)
    groups, ids, extra = naive(texts, tokenizer)
    assert found.groups == groups
    assert found.distinct_tokens == len(ids)
    entropy = -sum(n / ids.total() * math.log2(n / ids.total()) for n in ids.values())
    assert found.entropy_bits == pytest.approx(entropy, abs=1e-9)
    worst = sorted((-tokens, word) for word, tokens in extra.items() if tokens)[:top]
    assert [(-word.extra_tokens, word.word) for word in found.words] == worst
    occurrences = Counter(text[s:e] for text in map(str.strip, texts) for s, e in word_spans(text))
    assert all(word.occurrences == occurrences[word.word] for word in found.words)
    return found


def test_a_word_is_what_its_script_makes_it() -> None:
    assert words("(Don't) stop the wild-type; 3.14%!") == ["Don't", "stop", "the", "wild-type", "3.14"]
    assert words("the wild-type isn't", "cut") == ["the", "wild", "type", "isn", "t"]
    assert words("東京は2024年に、New Yorkでコンピューターを使った。") == [
        *("東京", "は", "2024", "年", "に", "New", "York", "で", "コンピューター", "を", "使", "っ", "た")
    ]
    assert words("ภาษาที่ดี 12") == ["ภาษา", "ที่", "ดี", "12"]
    assert words("ພາສາລາວ ភាសាខ្មែរជាភាសា မြန်မာစကားသည်") == [
        *("ພາສາ", "ລາວ", "ភាសាខ្មែរ", "ជា", "ភាសា", "မြန်မာ", "စကား", "သည်")
    ]
    assert words("我们使用Python写书。") == ["我们", "使用", "Python", "写书"]
    assert words("서울은 대한민국(韓國)의") == ["서울은", "대한민국", "韓國", "의"]
    assert words("می‌خواهم بروم،", "cut") == ["می‌خواهم", "بروم"]
    assert words("❤️ … ok❤️ 😀 ー ﷼") == ["ok"]


@given(st.text(st.characters(max_codepoint=127)), st.sampled_from(["keep", "cut"]))
def test_ascii_text_has_the_words_of_the_general_rule(text: str, punctuation: Punctuation) -> None:
    assert words(f"{text} é", punctuation) == [*words(text, punctuation), "é"]


@given(st.text(), st.text(), st.sampled_from(["keep", "cut"]), st.sampled_from([" ", "\n", "\u3000", " \t"]))
def test_words_never_reach_across_white_space(left: str, right: str, punctuation: str, space: str) -> None:
    assert words(left + space + right, punctuation) == words(left, punctuation) + words(right, punctuation)
    for word in words(left, punctuation):
        assert word == word.strip()
        # what cuts words may know a newer Unicode than Python, which then has no category for a letter
        assert any(character.isalnum() or unicodedata.category(character) == "Cn" for character in word)


def test_the_script_of_characters_and_texts_is_that_of_unicode() -> None:
    assert [script_of(c) for c in "aßéяψ한漢かカअกب𠮷1!"] == [
        *("Latin", "Latin", "Latin", "Cyrillic", "Greek", "Hangul", "Han", "Hiragana", "Katakana", "Devanagari"),
        *("Thai", "Arabic", "Han", "Common", "Common"),
    ]
    texts = ["plain", "漢字だ", "汉字", "서울 is big", "1 2 3", "", "IL-2 является цитокином", "Straße"]
    assert [script_of_text(text) for text in texts] == [
        *("Latin", "Japanese", "Han", "Latin", "none", "none", "Cyrillic", "Latin")
    ]
    assert lowered("DIŞ İKİ", "tr") == "dış iki"
    assert lowered("ÉTÉ") == "été"


SPACES = [" ", " ", " ", "  ", "   ", "\t", "\n", "\u3000", "\xa0", "\u2028", "\x0b", "\x1c", "\x85", "\r\n"]
CHUNKS = [
    *("the", "The", "서울은", "wild-type", "e\u0301te\u0301", "\u0301", "漢字かな", "क़लम", "ที่ดี", "ﬁn", "´", "…", "'s"),
    *("can't", "\u200b", "a\u200cb", "\u200c", "[MASK]", "[mask],", "<s>", "\ufffd", "½", "x\u00adx", "1,234.5", "😀"),
    "y" * 101,
]
MESSY = st.lists(st.one_of(st.sampled_from(CHUNKS), st.sampled_from(SPACES), st.text(max_size=3)), max_size=12)


@pytest.mark.parametrize("kind", KINDS)
@hypothesis_settings(max_examples=25)
@given(st.lists(MESSY.map("".join), min_size=1, max_size=5))
@example([*TEXTS * 3, " ".join(TEXTS), "  ", TEXTS[0] + " "])
def test_counts_are_those_of_tokenizing_every_line_however_messy_the_text(kind: str, texts: list[str]) -> None:
    found = check([*texts, "so that there is some text"], kind, tokenizer(kind))
    assert found.characters_read == found.characters


def test_of_a_large_corpus_a_seeded_sample_is_read_and_gives_the_shares_of_the_whole(shared: Path) -> None:
    texts = list(islice(read_corpus(shared / "data" / "text" / "biomed-abstracts-en.txt.gz"), 2000))
    name = {"t": load_tokenizer(str(shared / "vocab" / "bert-base-uncased"))}
    (whole,) = measure_fragmentation(texts, name)
    (sample,) = measure_fragmentation(texts, name, most_characters=whole.characters // 4)
    assert 0.9 * whole.characters / 4 < sample.characters_read <= whole.characters / 4
    assert sample.characters == whole.characters == whole.characters_read
    assert sample.total.texts < 0.4 * whole.total.texts
    assert sample.total.split_share == pytest.approx(whole.total.split_share, abs=0.01)
    assert sample.total.tokens_per_word == pytest.approx(whole.total.tokens_per_word, abs=0.03)
    assert measure_fragmentation(texts, name, most_characters=whole.characters // 4) == [sample]
    assert measure_fragmentation(texts, name, most_characters=whole.characters // 4, seed=1) != [sample]


@pytest.mark.parametrize("kind", ["wordpiece", "byte-level", "byte-level-trim", "metaspace"])
def test_a_text_that_is_read_in_pieces_counts_once_with_the_tokens_of_the_whole(kind: str) -> None:
    check(["the wild-type IL-2 receptor, 서울은 크다 " * 4000, "the"], kind, tokenizer(kind))


def test_queries_are_told_apart_by_whether_a_word_is_split() -> None:
    # "the" is one token, "tab" is three, 漢 is unknown
    (found,) = measure_fragmentation(
        ["the"], {"t": tokenizer("wordpiece")}, queries=["the", "the tab", " ", "the 漢", "the"]
    )
    assert found.queries == QueryCounts(
        texts=4, words=6, tokens=8, word_tokens=8, split_words=1, unknown_words=1, unknown_tokens=1, split_texts=1,
        unknown_texts=1,
    )  # fmt: skip
    assert found.queries.split_text_share == 0.25
    assert found.queries.tokens_per_text == 2.0


def test_a_case_by_eye() -> None:
    texts = ["the the thé 서울", "The tab, tab!"]
    (found,) = measure_fragmentation(texts, {"t": tokenizer("wordpiece")})
    total = found.total
    # the | the | the | 서울 | the | t ##a ##b | , | t ##a ##b | !
    assert (total.texts, total.words) == (2, 7)
    assert {word.word: (word.occurrences, word.extra_tokens) for word in found.words}["tab"] == (2, 4)
    assert next(word.pieces for word in found.words if word.word == "tab") == ["t", "##a", "##b"]
    losses = {loss.script: loss for loss in found.losses}
    assert losses["Latin"].counts == {"stripped": 1}
    assert losses["Latin"].examples == [("é", "e")]
    assert losses["Hangul"].counts == {"decomposed": 2}


def test_the_characters_behind_unknown_tokens_are_named() -> None:
    known = {"[UNK]": 0, "a": 1, "##a": 2, "b": 3}
    backend = Tokenizer(models.WordPiece(known, unk_token="[UNK]", max_input_chars_per_word=5))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    bare = wrap(backend, {"unk": "[UNK]"}, "bare", require_roles=False)
    (found,) = measure_fragmentation(["a漢a 漢a éa", "aaaaaaaa ab"], {"t": bare})
    assert found.unknown_characters == [("", 2), ("漢", 2), ("é", 1)]
    assert found.total.unknown_tokens == 5


def test_what_a_normalizer_does_beyond_case_is_told_by_script() -> None:
    for normalizer, wanted in (
        (None, {}),
        (normalizers.Lowercase(), {}),
        (
            normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]),
            {"Latin": {"stripped": 4}, "Hangul": {"decomposed": 1}, "Devanagari": {"dropped": 2}},
        ),
        (normalizers.NFKC(), {"Latin": {"replaced": 1}, "Common": {"replaced": 1}}),
        (normalizers.ByteLevel(), {}),
        (
            normalizers.Sequence([normalizers.NFKC(), normalizers.ByteLevel()]),
            {"Latin": {"replaced": 1}, "Common": {"replaced": 1}},
        ),
    ):
        backend = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        if normalizer is not None:
            backend.normalizer = normalizer
        made = wrap(backend, {"unk": "[UNK]"}, "of the test", require_roles=False)
        (found,) = measure_fragmentation(["ÉTÉ été Ｘ ½", "ि कि", "한"], {"t": made})
        assert {loss.script: loss.counts for loss in found.losses} == wanted


def test_texts_of_several_languages_are_counted_apart() -> None:
    texts = [
        "The museum was opened by the queen of England, who had given most of the paintings that hang in its halls to "
        "the people of the town many years before.",
        "서울은 크다",
        "東京に行った",
        "Das Mädchen isst jeden Morgen ein Brötchen mit Marmelade, bevor es mit seinem Bruder durch den verschneiten "
        "Wald zur Schule in die Stadt geht.",
    ]  # lingua reads a text of more than 120 letters by its trigrams only, which load fast
    (found,) = measure_fragmentation(texts, {"t": tokenizer("byte-level")})
    assert {name: counts.texts for name, counts in found.groups.items()} == {"Latin": 2, "Hangul": 1, "Japanese": 1}
    group_of = language_groups()
    assert [group_of(text) for text in texts] == ["English", "Korean", "Japanese", "German"]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A folder with a tokenizer, and a small BEIR collection beside it."""
    tokenizer("wordpiece").save_pretrained(tmp_path / "tok")
    (tmp_path / "beir" / "qrels").mkdir(parents=True)
    documents = [{"_id": str(n), "title": "", "text": text} for n, text in enumerate(TEXTS[:8])]
    (tmp_path / "beir" / "corpus.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in documents))
    (tmp_path / "beir" / "queries.jsonl").write_text('{"_id": "q1", "text": "the"}\n{"_id": "q2", "text": "tab"}\n')
    return tmp_path


def output(*arguments: str | Path, stdin: bytes = b"", code: int = 0) -> str:
    result = invoke("fragmentation", *arguments, typed=stdin)
    assert result.exit_code == code, result.output
    return result.stdout


def test_the_command_prints_tokenizers_side_by_side_and_the_queries_of_a_beir_folder(saved: Path) -> None:
    tokenizer("byte-level").save_pretrained(saved / "bytes")
    printed = output(saved / "beir", "-t", saved / "tok", "-t", saved / "bytes", "--top", "3")
    for part in ("8 texts", "Latin 2", "2 queries", "with a split word", "50.0%", "U+"):
        assert part in printed
    facts = json.loads(output(saved / "beir", "-t", saved / "tok", "--json"))
    (one,) = facts["tokenizers"]
    assert one["total"]["texts"] == 8
    assert one["queries"]["split_text_share"] == 0.5
    assert one["total"]["tokens_per_word"] == one["total"]["word_tokens"] / one["total"]["words"]


def test_corpora_come_from_files_of_every_kind_and_from_standard_input(saved: Path) -> None:
    raw = "".join(f"{text}\n" for text in TEXTS[:8]).encode()
    (saved / "t.txt").write_bytes(raw)
    (saved / "t.txt.gz").write_bytes(gzip.compress(raw))
    arguments = ("-t", saved / "tok", "--json", "--language", "mixed")
    wanted = json.loads(output(saved / "beir", *arguments))["tokenizers"][0]
    for corpus in (saved / "t.txt", saved / "t.txt.gz", "-"):
        (found,) = json.loads(output(corpus, *arguments, "--queries", saved / "beir", stdin=raw))["tokenizers"]
        assert found == wanted
        assert list(found["groups"]) == ["mixed"]


def test_bad_input_is_one_message(saved: Path) -> None:
    (saved / "latin.txt").write_bytes("good line\ncaf\xe9 and th\xe9\n".encode("latin-1"))
    (saved / "one.txt").write_bytes(b"x" * 5_000_000)
    tok = saved / "tok"
    for corpus, tokenizer_name, parts in (
        ("latin.txt", tok, ["line 2 is not UTF-8", "position 4", "first of 2"]),
        ("one.txt", tok, ["without white space"]),
        ("beir", saved / "nowhere", ["No tokenizer at"]),
    ):
        result = invoke("fragmentation", saved / corpus, "-t", tokenizer_name)
        assert isinstance(result.exception, DataError)
        for part in parts:
            assert part in str(result.exception)
    replaced = json.loads(output(saved / "latin.txt", "-t", tok, "--json", "--encoding-errors", "replace"))
    assert replaced["tokenizers"][0]["total"]["texts"] == 2


# The old and the new vocabulary side by side: checked against tokenizing every text, and by eye.


DOCUMENTS = ["the school is the school", "한국어 school", "the 山"]
QUERIES = ["the school", "한국어"]


def test_both_vocabularies_are_measured_on_the_same_texts() -> None:
    source = wordpiece("the", "school", "is")
    target = wordpiece("the", "school", "is", "한국", "##어", "山")
    old, new = analyse_vocabularies(source, target, DOCUMENTS, QUERIES, "ko")
    # nine words: 한국어 and 山 are unknown to the old vocabulary, 한국어 is two tokens of the new
    assert (old.documents.words, new.documents.words) == (9, 9)
    assert old.documents.unknown_words == old.documents.unknown_tokens == pytest.approx(2 / 9)
    assert (old.documents.tokens_per_word, new.documents.tokens_per_word) == pytest.approx((1.0, 10 / 9))
    assert new.documents.unknown_words == 0
    assert new.documents.split_words == pytest.approx(1 / 9)
    assert new.documents.tokens_per_text == pytest.approx(10 / 3)
    assert new.documents.texts_with_split_word is None
    assert (old.queries.texts_with_unknown, new.queries.texts_with_unknown) == (0.5, 0.0)
    assert (old.queries.texts_with_split_word, new.queries.texts_with_split_word) == (0.0, 0.5)
    assert old.worst_words == ()
    (worst,) = new.worst_words
    assert (worst.word, worst.occurrences, worst.pieces) == ("한국어", 1, ("한국", "##어"))
    assert (old.languages, new.languages) == ({"en": 3}, {"en": 3, "ko": 2, "zh": 1})


def test_a_vocabulary_is_described_alone_without_a_source_and_without_texts() -> None:
    source, target = analyse_vocabularies(None, byte_level("Ġthe", "ing"), [], [" "], "en")
    assert source is None
    assert (target.documents, target.queries, target.worst_words) == (None, None, ())
    _, found = analyse_vocabularies(None, wordpiece("the", "school"), [], ["the school"], "en")
    assert (found.documents, found.worst_words) == (None, ())
    assert found.queries.tokens_per_text == 2
    tokens = ("the", "한국", "к", "ひ", "山", "42", "Aβ", "[unused3]", "ก")
    _, found = analyse_vocabularies(None, wordpiece(*tokens), [], [], "ja")
    assert found.languages == {"en": 1, "ja": 2, "ko": 1, "ru": 1}
    others = (found.undecided, sum(found.other_scripts.values()), found.no_letters)
    assert (*others, found.size) == (1, 1, 2 + 5, 9 + 5)  # Aβ; ก; 42, an unused token and five special ones


def test_at_most_two_languages_share_a_script() -> None:
    assert languages_told_apart("ko") == SEMBRIDGE == languages_told_apart("xx")
    assert languages_told_apart("de") == (*SEMBRIDGE, "de")
    assert languages_told_apart("no") == (*SEMBRIDGE, "nb")
    for language in ("de", "ja", "uk", "fa", "mr", "th"):
        _, target = analyse_vocabularies(None, wordpiece("the"), [], [], "en")
        none = Sample(0, 0, 0)
        analysis = VocabularyAnalysis(languages_told_apart(language), none, none, source=None, target=target)
        assert all(len(codes) <= 2 for codes in analysis.shared_scripts.values())


def test_truncation_and_padding_that_a_file_saved_or_a_call_left_change_no_figure(tmp_path: Path) -> None:
    """As in the published all-MiniLM-L6-v2, whose tokenizer.json cuts texts at 128 tokens and pads them to so many."""
    plain, kept = tiny.tokenizer(), tiny.tokenizer()
    texts = ["river stone willow zz apple"] * 3 + ["amber basin"]

    def figures(tokenizer: PreTrainedTokenizerFast) -> list[object]:
        if tokenizer is kept:
            kept.backend_tokenizer.enable_truncation(4)
            kept.backend_tokenizer.enable_padding(length=4)
        vocabulary = Vocabulary(tokenizer)
        return [
            measure_fragmentation(texts, {"": tokenizer}, queries=texts),
            corpus_use([tokenizer], texts),
            unreachable(tokenizer, vocabulary.forms),
            duplicates(tokenizer, vocabulary.forms),
            pair_of(tokenizer, plain).pieces,
            pair_of(plain, tokenizer).pieces,
            vocabulary.unread(texts[0]),
            tokens_of_words(tokenizer, texts[0]),
        ]

    for number in range(len(figures(plain))):  # a figure at a time, since one may switch it off for the next
        assert figures(kept)[number] == figures(plain)[number]


def test_the_profile_of_a_run_counts_the_published_minilm_as_the_command_does(shared: Path) -> None:
    name = str(shared / "models" / "all-MiniLM-L6-v2")
    texts = ["The mitochondrion oxidises pyruvate.", "A spectrophotometer measures absorbance.", "Water is wet."]
    source = load_source_tokenizer(name)
    profile, _ = analyse_vocabularies(source, tiny.tokenizer(), texts, texts, "en")
    assert profile is not None
    (owner,) = measure_fragmentation(texts, {"": load_tokenizer(name)})
    assert profile.documents is not None
    assert profile.documents.tokens_per_word == owner.total.tokens_per_word > 1.3
    assert profile.documents.unknown_words == 0

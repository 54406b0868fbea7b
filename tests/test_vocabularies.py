"""The old and the new vocabulary side by side: checked against tokenizing every text, and by eye."""

import pytest
from test_composition import byte_level, wordpiece

from vtkit.vocabulary.composition import SEMBRIDGE
from vtkit.vocabulary.profiles import Sample, VocabularyAnalysis
from vtkit.vocabulary.vocabularies import analyse_vocabularies, languages_told_apart

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

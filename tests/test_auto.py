"""Tokens without evidence, and the method that chooses by evidence."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from vocabularies import wordpiece

from vtkit.settings.transfer import TransferSection
from vtkit.transfer.combination import with_pieces, with_reassigned
from vtkit.transfer.dispatch import mixture_of
from vtkit.transfer.methods.auto import auto_mixture, scripts_read, stems_and_unread
from vtkit.transfer.methods.bitext import read_bitext
from vtkit.transfer.methods.parallel import translation_mixture
from vtkit.transfer.mixture import Mixture, Part, mixture_of_parts
from vtkit.vocabulary.forms import Vocabulary, tokens
from vtkit.vocabulary.pair import pair_of

SOURCE = wordpiece("school", "receptor", "house", "river", "ox", "##s", "##ing", *"abcdefg", *(f"##{c}" for c in "abg"))
TARGET = wordpiece("school", "receptors", "학교", "고래", "전쟁", "abba", "[unused3]")
PAIR = pair_of(SOURCE, TARGET)


def of(mixture: Mixture) -> dict[str, str]:
    return dict(zip(tokens(TARGET), mixture.methods, strict=True))


def sources(mixture: Mixture, token: str) -> list[str]:
    return [tokens(SOURCE)[number] for number, _ in mixture.sources(tokens(TARGET).index(token))]


def test_each_token_without_weights_gets_the_row_of_a_word_of_its_own() -> None:
    mixture = with_reassigned(mixture_of_parts(PAIR), PAIR)
    recipients = [token for token, method in of(mixture).items() if method == "reassigned"]
    assert recipients == ["receptors", "학교", "고래", "전쟁", "abba"]
    # "school" is in use, "ox" and "##ing" are no words; words are donors again, from the last, when all have been
    donors = [sources(mixture, token)[0] for token in recipients]
    assert donors == ["receptor", "house", "river", "river", "house"]
    assert of(mixture)["[unused3]"] == "masked"
    assert mixture.weights.dtype == np.float32


def test_the_most_frequent_token_gets_the_row_of_the_most_frequent_word() -> None:
    counts = np.zeros(len(TARGET), dtype=np.int64)
    for token, count in {"고래": 9, "abba": 5, "학교": 1}.items():
        counts[tokens(TARGET).index(token)] = count
    mixture = with_reassigned(mixture_of_parts(PAIR), PAIR, counts)
    donors = {token: sources(mixture, token)[0] for token in ("고래", "abba", "학교", "receptors", "전쟁")}
    assert donors == {"고래": "receptor", "abba": "house", "학교": "river", "receptors": "river", "전쟁": "house"}


@given(st.lists(st.integers(0, 9), min_size=len(TARGET), max_size=len(TARGET)))
def test_reassigning_keeps_what_there_is(counts: list[int]) -> None:
    number = tokens(TARGET).index("학교")
    weights = csr_matrix(np.eye(len(SOURCE))[[tokens(SOURCE).index("river")]])
    before = mixture_of_parts(PAIR, [Part("parallel", np.array([number]), weights)])
    mixture = with_reassigned(before, PAIR, np.array(counts))
    assert sources(mixture, "학교") == ["river"]
    assert "river" not in sources(mixture, "고래") + sources(mixture, "전쟁")
    sums = np.asarray(mixture.weights.sum(axis=1)).ravel()
    assert np.allclose(sums, [0.0 if method == "masked" else 1.0 for method in mixture.methods])


def test_stems_and_what_the_source_cannot_read() -> None:
    stems, unread = stems_and_unread(PAIR)
    assert [tokens(TARGET)[n] for n in stems] == ["receptors"]
    assert [tokens(TARGET)[n] for n in unread] == ["학교", "고래", "전쟁"]  # abba is a name in a script it reads


def test_another_language_in_the_same_script_is_not_read() -> None:
    german = wordpiece("Schulen", "receptors", "##receptor", "gehen", "7a", "School", "Flüsse", "Ochsen")
    mixed = wordpiece("School", "HOUSE", "gehen", "Flüsse", "학교", "7a")
    # one of six words is known: what looks like a stem may be a false friend
    for target, read in ((german, set()), (mixed, {"Latin"})):
        assert scripts_read(Vocabulary(SOURCE).surfaces, Vocabulary(target).surfaces) == read
    stems, unread = stems_and_unread(pair_of(SOURCE, german))
    assert not len(stems)
    assert [tokens(german)[n] for n in unread] == [t for t in tokens(german) if t[-1].isalpha() and t[0] != "["]


def test_auto_takes_translations_then_stems_then_neighbours_then_reassigned_rows() -> None:
    parallel = translation_mixture(read_bitext(PAIR, [("school", "학교"), ("house", "학교")]), PAIR)
    near = np.array([tokens(TARGET).index(token) for token in ("receptors", "학교", "전쟁", "abba")])
    rows = csr_matrix(np.eye(len(SOURCE))[[tokens(SOURCE).index("ox")] * 4])
    neighbours = mixture_of_parts(PAIR, [Part("sembridge", near, rows)])
    mixture = auto_mixture(PAIR, {"parallel": parallel, "sembridge": neighbours})
    assert mixture.counts() == {"overlap": 6, "parallel": 1, "subtoken": 1, "sembridge": 1, "mean": 3}
    assert of(with_reassigned(mixture, PAIR)) == dict.fromkeys(tokens(TARGET), "overlap") | {
        "학교": "parallel",
        "receptors": "subtoken",
        "전쟁": "sembridge",
        "abba": "reassigned",
        "고래": "reassigned",
        "[unused3]": "masked",
    }


def test_a_recipe_chooses_what_auto_makes_of_tokens_without_evidence() -> None:
    reassigned = {"reassigned": 4, "masked": 1}
    for fallback, made in {
        "auto": reassigned,
        "reassigned": reassigned,
        "mean": {"mean": 5},
        "masked": {"masked": 5},
    }.items():
        settings = {"method": "auto", "fallback": fallback, "bias": {"method": "mixture"}}
        mixture = mixture_of(TransferSection.model_validate(settings), PAIR, lambda: iter(()), lambda: None, 0)
        assert mixture.counts() == {"overlap": 6, "subtoken": 1, **made}


def test_pieces_are_the_mean_of_the_tokens_a_text_is_made_of() -> None:
    source = wordpiece("school", "war", "of")
    target = wordpiece("학교", "##는", "학교는", "##전쟁는", "전쟁", "고래", "학고래교")
    pair = pair_of(source, target)
    ids = np.array([tokens(target).index(token) for token in ("학교", "전쟁", "##는")])
    weights = csr_matrix(np.eye(len(source))[[tokens(source).index(word) for word in ("school", "war", "of")]])
    mixture = with_pieces(mixture_of_parts(pair, [Part("parallel", ids, weights)]), pair.target)
    found = dict(zip(tokens(target), mixture.methods, strict=True))
    assert found["학교는"] == found["##전쟁는"] == "pieces"
    assert found["고래"] == found["학고래교"] == "mean"  # nothing of it is known; a third of it is too little
    rows = dict(zip(tokens(target), mixture.weights.toarray(), strict=True))
    assert np.allclose(rows["##전쟁는"], (rows["전쟁"] + rows["##는"]) / 2)

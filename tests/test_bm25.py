"""BM25 against its formula, what the analysers cut, and known figures on real collections."""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtkit.data.retrieval import load_beir
from vtkit.measures.effectiveness import evaluate
from vtkit.search.bm25 import Bm25, analyser
from vtkit.search.trec import to_run


def lucene(query: list[str], documents: list[list[str]], k1: float, b: float) -> list[float]:
    """Lucene's BM25 of each document, term by term as it is written down."""
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for document in documents:
        counts, score = Counter(document), 0.0
        for term in query:
            containing = sum(term in other for other in documents)
            idf = math.log(1 + (len(documents) - containing + 0.5) / (containing + 0.5))
            if counts[term]:
                score += idf * counts[term] / (counts[term] + k1 * (1 - b + b * len(document) / mean))
        scores.append(score)
    return scores


word_lists = st.lists(st.sampled_from("abcde"), max_size=8)


@given(st.lists(word_lists, min_size=1, max_size=8).filter(any), word_lists, st.sampled_from([(0.9, 0.4), (1.2, 0.75)]))
def test_scores_are_those_of_the_formula(
    documents: list[list[str]], query: list[str], parameters: tuple[float, float]
) -> None:
    k1, b = parameters
    ids, scores = Bm25.build((" ".join(words) for words in documents), "en", k1, b).search([" ".join(query)], 10)
    found = {d: s for d, s in zip(ids[0].tolist(), scores[0].tolist(), strict=True) if d >= 0}
    wanted = {d: s for d, s in enumerate(lucene(query, documents, k1, b)) if s > 0}
    assert found == pytest.approx(wanted, rel=1e-5)


def test_bm25s_in_its_lucene_form_gives_the_same_scores(shared: Path) -> None:
    bm25s = pytest.importorskip("bm25s")
    collection = load_beir(shared / "data" / "xquadr-en", "test").sample(50, 0)
    cut = analyser("en")
    texts = [document.contents for document in collection.documents]
    peer = bm25s.BM25(method="lucene", k1=0.9, b=0.4)
    peer.index([cut(text) for text in texts], show_progress=False)
    ids, scores = Bm25.build(texts, "en").search([query.text for query in collection.queries], 5)
    for query, row, row_scores in zip(collection.queries, ids, scores, strict=True):
        assert peer.get_scores(cut(query.text))[row].tolist() == pytest.approx(row_scores.tolist(), rel=1e-5)


def test_collections_without_any_term_are_searched_in_vain() -> None:
    for texts in ([], [""], ["!", "?"]):
        ids, _ = Bm25.build(texts, "en").search(["word", ""], 3)
        assert ids.tolist() == [[-1] * 3] * 2


@pytest.mark.parametrize(
    ("language", "text", "terms"),
    [
        ("en", "The U.S. state_of-the-art, 2nd café!", "the u s state of the art 2nd café"),
        ("de", "Straße ＡＢＣ ﬁn", "straße abc fin"),
        ("ko", "한국의 수도는 서울", "한국의 한국 국의 수도는 수도 도는 서울"),
        ("ko", unicodedata.normalize("NFD", "한국의"), "한국의 한국 국의"),
        ("en", "한국의 Korea", "한국의 korea"),
        ("ja", "東京タワーは高い。ビル", "東京 京タ タワ ワー ーは は高 高い ビル"),
        ("zh", "我 北京2008年奥运会", "我 北京 2008 年奥 奥运 运会"),
        ("th", "ไทย abc", "ไท ทย abc"),
        ("hi", "हिन्दी में क्या", "हिन्दी में क्या"),
        ("ta", "தமிழ் மொழி", "தமிழ் மொழி"),
        ("ar", "مُدَرِّسَة الأُمّـة", "مدرسه الامه"),
        ("fa", "می\u200cروم", "می روم"),
        ("hi", "क्\u200dष", "क्ष"),
        ("tr", "İSTANBUL IŞIK", "istanbul ışık"),
        ("en", "co\u00adoperate ❤\ufe0f 😀 𞤀𞤣", "cooperate 𞤢𞤣"),
        ("zh", "𠀀𠀁𠀂", "𠀀𠀁 𠀁𠀂"),
    ],
)
def test_text_is_cut_as_its_script_needs(language: str, text: str, terms: str) -> None:
    assert analyser(language)(text) == terms.split()


@given(st.sampled_from(["en", "ko", "zh", "ar", "tr"]), st.text())
def test_terms_hold_no_space_and_are_never_empty(language: str, text: str) -> None:
    assert all(term and not any(character.isspace() for character in term) for term in analyser(language)(text))


@pytest.mark.parametrize(
    ("name", "wanted"), [("arcdr-ar", 0.702), ("scifact-en", 0.662), ("xquadr-zh", 0.806), ("xquadr-hi", 0.760)]
)
def test_real_collections_are_searched_as_well_as_is_known_of_bm25(shared: Path, name: str, wanted: float) -> None:
    collection = load_beir(shared / "data" / name, "test").sample(500, 42)
    bm25 = Bm25.build((document.contents for document in collection.documents), name[-2:])
    ids, scores = bm25.search([query.text for query in collection.queries], 100)
    run = to_run([q.id for q in collection.queries], [d.id for d in collection.documents], ids, scores)
    assert evaluate(run, collection.qrels, ["nDCG@10"])["nDCG@10"] > wanted - 0.02

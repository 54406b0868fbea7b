"""BM25 against its formula, what the analysers cut, and known figures on real collections."""

import math
import sys
import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import refused

from vtkit.data.collections import load_retrieval
from vtkit.data.trec import to_run
from vtkit.search.analysers import analyser
from vtkit.search.bm25 import Bm25, merged_terms
from vtkit.search.measures.effectiveness import evaluate
from vtkit.settings.analysers import LUCENE, Analysis
from vtkit.system.errors import MissingExtra, RecipeError


def lucene(query: list[str], documents: list[list[str]], k1: float, b: float) -> list[float]:
    """Lucene's BM25 of each document, term by term as it is written down; documents without terms do not count."""
    filled = [document for document in documents if document]
    mean = sum(map(len, filled)) / max(len(filled), 1)
    scores = []
    for document in documents:
        counts, score = Counter(document), 0.0
        for term in query:
            containing = sum(term in other for other in filled)
            idf = math.log(1 + (len(filled) - containing + 0.5) / (containing + 0.5))
            if counts[term]:
                score += idf * counts[term] / (counts[term] + k1 * (1 - b + b * len(document) / mean))
        scores.append(score)
    return scores


word_lists = st.lists(st.sampled_from("abcde"), max_size=8)


@given(
    st.lists(word_lists, min_size=1, max_size=8).filter(any),
    word_lists,
    st.sampled_from(["full", "words"]),
)
def test_scores_are_those_of_the_formula(documents: list[list[str]], query: list[str], analysis: Analysis) -> None:
    texts, cut = [" ".join(words) for words in documents], analyser("en", analysis)
    ids, scores = Bm25.build(texts, "en", analysis).search([" ".join(query)], 10)
    found = {d: s for d, s in zip(ids[0].tolist(), scores[0].tolist(), strict=True) if d >= 0}
    every = lucene(cut(" ".join(query)), [cut(text) for text in texts], 0.9, cut.b)
    assert found == pytest.approx({d: s for d, s in enumerate(every) if s > 0}, rel=1e-4)


PASSAGES = "recipes/quickstart_data/elements-{}"


def lucene_scores(texts: list[str], queries: list[str], analyser_class: str, b: float) -> list[dict[int, float]]:
    """Of each query, what Lucene's own index finds with Lucene's own analyser, by place in ``texts``."""
    from vtkit.search.java import cast_to, java_class

    lucene = "org.apache.lucene"
    analyser = java_class(f"{lucene}.analysis.{analyser_class}")()
    directory = java_class(f"{lucene}.store.ByteBuffersDirectory")()
    writer = java_class(f"{lucene}.index.IndexWriter")(
        directory, java_class(f"{lucene}.index.IndexWriterConfig")(analyser)
    )
    document_class, field = java_class(f"{lucene}.document.Document"), java_class(f"{lucene}.document.TextField")
    store = java_class(f"{lucene}.document.Field$Store")
    for text in texts:
        document = document_class()
        document.add(field("contents", text, store.NO))
        writer.addDocument(cast_to("java.lang.Iterable", document))
    writer.close()
    reader = java_class(f"{lucene}.index.DirectoryReader").open(directory)
    searcher = java_class(f"{lucene}.search.IndexSearcher")(cast_to(f"{lucene}.index.IndexReader", reader))
    searcher.setSimilarity(java_class(f"{lucene}.search.similarities.BM25Similarity")(0.9, b))
    words = java_class("io.anserini.search.query.BagOfWordsQueryGenerator")()
    found = []
    for query in queries:
        hits = searcher.search(words.buildQuery("contents", analyser, query), len(texts)).scoreDocs
        found.append({hit.doc: hit.score for hit in hits})
    return found


@pytest.mark.parametrize("language", ["en", "ko"])
def test_lucenes_analyser_gives_the_scores_of_lucenes_own_index(language: str) -> None:
    """Of documents of less than 40 tokens: Lucene rounds the lengths beyond."""
    collection = load_retrieval(Path(__file__).parents[1] / PASSAGES.format(language), "test").sample(20, 0)
    cut = analyser(language, "lucene")
    texts = [" ".join(document.contents.split()[:8]) for document in collection.documents[:200]]
    queries = [query.text for query in collection.queries]
    assert all(0 < len(cut(text)) < 40 for text in texts)
    texts += ["", "!"]  # Lucene does not count documents without terms
    ids, scores = Bm25.build(texts, language, "lucene").search(queries, len(texts))
    wanted = lucene_scores(texts, queries, LUCENE[language], cut.b)
    assert sum(map(len, wanted)) > 50
    for row, row_scores, theirs in zip(ids, scores, wanted, strict=True):
        ours = {int(d): float(s) for d, s in zip(row, row_scores, strict=True) if d >= 0}
        assert ours == pytest.approx(theirs, rel=1e-4)


def test_every_language_that_lucene_is_said_to_know_has_its_analyser() -> None:
    for language, name in LUCENE.items():
        cut = analyser(language, "lucene")
        assert cut("Berlin 2008"), language
        assert cut.description.endswith(name.partition(".")[2])
    refused(RecipeError, r'"lucene" knows ar, .*, not "th"', analyser, "th", "lucene")


@pytest.mark.parametrize("more", [[""], ["?", " ", "…"]])
def test_documents_without_terms_move_no_scores_of_any_language(more: list[str]) -> None:
    texts = ["the red apple and the tree", "a blue apple", "das alte Haus und der Baum", "ein rotes Haus"]
    for queries, language in ((["apple", "Haus"], "de,en"), (["apple", "tree"], "en")):
        found = [Bm25.build(part, language).search(queries, 4) for part in (texts, [*more, *texts])]
        np.testing.assert_array_equal(found[1][0], np.where(found[0][0] < 0, -1, found[0][0] + len(more)))
        np.testing.assert_array_equal(found[1][1], found[0][1])
    assert Bm25.build([*more, *texts], "de,en").languages == {"de": 2, "en": 2}


def test_names_with_signs_and_emoji_are_found() -> None:
    texts = ["a course in C", "a course in C++", "a course in C#", "a course 🎉", "a course"]
    for query, first in (("C++", 1), ("c#", 2), ("🎉", 3)):
        ids, _ = Bm25.build(texts, "en").search([query], 5)
        assert ids[0, 0] == first


def test_collections_without_any_term_are_searched_in_vain() -> None:
    for texts in ([], [""], ["!", "?"]):
        ids, _ = Bm25.build(texts, "en").search(["word", ""], 3)
        assert ids.tolist() == [[-1] * 3] * 2


@pytest.mark.parametrize(
    ("analysis", "language", "text", "terms"),
    [
        ("lucene", "en", "The Receptors' running", "receptor run"),
        ("lucene", "eng", "café \ud800x 😀", "café x 😀"),
        ("lucene", "de", "die Häuser", "haus"),
        ("lucene", "ar", "مُدَرِّسَة الأُمّـة", "مدرس ام"),
        ("lucene", "ja", "東京タワーは高かった。", "東京 タワー 高い"),
        ("lucene", "ko", "한국의 abc", "한국 국의 abc"),
        ("lucene", "zh", "北京2008年奥运会", "北京 2008 年奥 奥运 运会"),
        ("words", "en", "The U.S. state_of-the-art, 2nd café!", "the u s state of the art 2nd café"),
        ("words", "de", "Straße ＡＢＣ ﬁn", "straße abc fin"),
        ("words", "ko", "한국의 수도는 서울", "한국의 수도는 서울"),
        ("words", "ko", unicodedata.normalize("NFD", "한국의"), "한국의"),
        ("words", "en", "한국의 Korea", "한국의 korea"),
        ("words", "ja", "東京タワーは高い。ビル", "東京 京タ タワ ワー ーは は高 高い ビル"),
        ("words", "zh", "我 北京2008年奥运会", "我 北京 2008 年奥 奥运 运会"),
        ("words", "th", "ไทย abc", "ไท ทย abc"),
        ("words", "hi", "हिन्दी में क्या", "हिन्दी में क्या"),
        ("words", "ta", "தமிழ் மொழி", "தமிழ் மொழி"),
        ("words", "ar", "مُدَرِّسَة الأُمّـة", "مدرسه الامه"),
        ("words", "fa", "می\u200cروم", "می روم"),
        ("words", "hi", "क्\u200dष", "क्ष"),
        ("words", "tr", "İSTANBUL IŞIK", "istanbul ışık"),
        ("words", "en", "co\u00adoperate ❤\ufe0f 😀 𞤀𞤣", "cooperate 𞤢𞤣"),
        ("words", "zh", "𠀀𠀁𠀂", "𠀀𠀁 𠀁𠀂"),
        ("full", "en", "Receptors", "receptors receptor* <rec rece ecep cept epto ptor tors ors>"),
        ("full", "eng", "The go", "go go* <go>"),
        ("full", "de", "an", "an an* <an>"),
        ("full", "de", "Häuser", "häuser haus* <häu häus äuse user ser>"),
        ("full", "xx", "Häuser", "häuser <häu häus äuse user ser>"),
        ("full", "ru", "книги", "книги книг* <кни книг ниги иги>"),
        ("full", "ko", "수도는 서울", "<수 수도 도는 는> <서 서울 울>"),
        ("words", "en", "C++ 😀", "c"),
        ("full", "en", "C++, go! C#, C++11", "c c* <c> c++ go go* <go> c c* <c> c# c c* <c> c++ 11 11* <11>"),
        (
            "full",
            "xx",
            "LGBTQ+ a+b page#part",
            "lgbtq <lgb lgbt gbtq btq> lgbtq+ a <a> b <b> page <pag page age> part <par part art>",
        ),
        ("full", "ko", "한국+", "<한 한국 국> 한국+"),
        ("full", "th", "😀👍🏽 ❤\ufe0f🇩🇪🇫🇷", "😀 👍 ❤ 🇩🇪 🇫🇷"),
        ("full", "en", "2008년 abc", "<2 20 00 08 8년 년> abc abc* <abc abc>"),
        ("full", "ja", "東京タワー。高", "東 京 タ ワ ー 東京 京タ タワ ワー 高"),
        ("full", "th", "ไทยคน abc", "ไทย ทยค ยคน abc <abc abc>"),
        ("full", "th", "ไท", "ไท"),
        ("full", "zh", "北京ไทย", "北 京 北京 ไทย"),
    ],
)
def test_each_script_is_cut_in_its_own_way(analysis: Analysis, language: str, text: str, terms: str) -> None:
    """By ``lucene`` as Lucene's own analysers do."""
    assert analyser(language, analysis)(text) == terms.split()


@pytest.mark.parametrize(
    ("language", "text", "typed"),
    [
        ("fa", "کتاب‌های ایرانی پی", "كتاب‌هاي ايراني پى"),  # on an Arabic keyboard
        ("fas", "خانه ما", "خانۀ ما"),
        ("ar", "كتابي", "کتابی"),  # on a Persian one
        ("ur", "ہے کیا یہ", "هے كيا يه"),
        ("fa", "سال ۱۴۰۳", "سال ١٤٠٣"),
        ("fa", "سال ۱۴۰۳", "سال 1403"),
        ("hi", "वर्ष २०२४", "वर्ष 2024"),
        ("th", "ปี ๒๕๖๗", "ปี 2567"),
        ("he", "שלום עולם", "שָׁלוֹם עוֹלָם"),
        ("ro", "știință și ție", "ştiinţă şi ţie"),
    ],
)
def test_spellings_of_other_keyboards_and_fonts_have_the_same_terms(language: str, text: str, typed: str) -> None:
    assert text != typed
    for analysis in ("full", "words"):
        assert analyser(language, analysis)(typed) == analyser(language, analysis)(text)


@pytest.mark.parametrize(
    ("language", "text", "more"),
    [
        ("ko", "수도는 서울", "수도 서울"),
        ("kor", "먹었습니다 abc", "먹"),
        ("ko", "2008년에 東京", "2008 년"),
        ("ja", "東京タワーは高かった。", "東京 タワー 高い"),
        ("jpn", "東京 ABC 서울", "東京"),
    ],
)
def test_morphemes_are_dictionary_forms_beside_the_other_terms(language: str, text: str, more: str) -> None:
    found = Counter(analyser(language, "morphemes")(text))
    assert found == Counter(analyser(language)(text)) + Counter(more.split())


@pytest.mark.parametrize("unit", ["가", "한국의", "東京"])
def test_morphemes_of_a_run_without_end_are_found_piece_by_piece(unit: str) -> None:
    """Sudachi refuses more than 49,149 bytes at once, and the time that Kiwi takes grows faster than the run."""
    language = "ja" if unit == "東京" else "ko"
    assert analyser(language, "morphemes")(unit * 5000)[-1]


def test_morphology_is_refused_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    refused(RecipeError, 'knows ja, ko, not "en"', analyser, "en", "morphemes")
    for name, language in (("kiwipiepy", "ko"), ("sudachipy", "ja")):
        monkeypatch.setitem(sys.modules, name, None)
        refused(MissingExtra, r"pip install 'vtkit\[morphology\]'", analyser, language, "morphemes")


def test_languages_are_known_by_each_of_their_codes() -> None:
    for code in ("de", "deu", "ger", "no", "nb", "nob", "fa", "fas", "per", "tr", "ta"):
        assert any(term.endswith("*") for term in analyser(code)("word"))


analysers = st.one_of(
    st.tuples(st.sampled_from(["en", "ko", "zh", "ar", "tr"]), st.sampled_from(["full", "words"])),
    st.tuples(st.sampled_from(["ko", "ja"]), st.sampled_from(["morphemes", "lucene"])),
)
texts = st.one_of(st.text(), st.text(st.characters(min_codepoint=0x3040, max_codepoint=0xD7A3)))


@given(analysers, texts)
def test_terms_hold_no_space_and_are_never_empty(which: tuple[str, Analysis], text: str) -> None:
    terms = analyser(*which)(text)
    assert all(term and not any(character.isspace() for character in term) for term in terms)


@pytest.mark.parametrize(
    ("name", "wanted"), [("arcdr-ar", 0.846), ("scifact-en", 0.690), ("xquadr-zh", 0.844), ("xquadr-hi", 0.822)]
)
def test_real_collections_are_searched_as_well_as_is_known_of_bm25(shared: Path, name: str, wanted: float) -> None:
    collection = load_retrieval(shared / "data" / name, "test").sample(500, 42)
    bm25 = Bm25.build((document.contents for document in collection.documents), name[-2:])
    ids, scores = bm25.search([query.text for query in collection.queries], 100)
    run = to_run([q.id for q in collection.queries], [d.id for d in collection.documents], ids, scores)
    assert evaluate(run, collection.qrels, ["nDCG@10"])["nDCG@10"] > wanted - 0.02


@given(st.lists(st.sets(st.text("abß語", max_size=3), max_size=12).map(sorted), min_size=1, max_size=4))
def test_terms_of_parts_are_merged_in_order(parts: list[list[str]]) -> None:
    terms, places = merged_terms(parts)
    assert terms == sorted(set().union(*parts))
    assert [[terms[place] for place in of_part] for of_part in places] == parts

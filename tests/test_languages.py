"""Collections in several languages: each document with the terms and the statistics of its own language."""

import importlib.util
import json
import re
from collections import Counter
from itertools import chain, zip_longest
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import scipy.sparse as sp
import tiny
from command_line import invoke
from hypothesis import given
from hypothesis import strategies as st

from vtkit.data.collections import load_retrieval
from vtkit.data.document_files import read_document_file
from vtkit.data.retrieval import RetrievalSet
from vtkit.deploy import scripts
from vtkit.evaluation.systems import Bm25System
from vtkit.recipe.load import load_recipe
from vtkit.search.analysers import MARK, STOP_WORDS, analyser
from vtkit.search.bm25 import Bm25
from vtkit.search.changes import add_documents
from vtkit.search.languages import language_of_text, languages_of, misfit
from vtkit.search.lexical import TERMS, LexicalPart
from vtkit.search.segments import Manifest
from vtkit.settings.analysers import refused
from vtkit.system.errors import RecipeError

ELEMENTS = Path(__file__).parents[1] / "recipes" / "quickstart_data"
GERMAN = [
    "Der alte Fischer ging am Morgen mit seinen Netzen zum Hafen hinunter und wartete auf das Boot.",
    "Die Häuser der Stadt wurden nach dem großen Feuer aus roten Ziegeln wieder aufgebaut.",
    "Im Winter liegt auf den Bergen so viel Schnee, dass die Straßen wochenlang gesperrt bleiben.",
    "Kinder lernen eine Sprache am besten, wenn man ihnen jeden Abend eine Geschichte vorliest.",
]
HINDI = [
    "नदी के किनारे पर लड़के अपनी नावों की मरम्मत कर रहे थे।",
    "गाँव की लड़कियों ने नदियों के बारे में पुस्तकें पढ़ीं।",
    "पहाड़ों पर बर्फ गिरने से सड़कें कई सप्ताह तक बंद रहती हैं।",
    "बच्चे कहानियाँ सुनकर भाषा सबसे अच्छी तरह सीखते हैं।",
]


def elements(language: str) -> list[str]:
    lines = (ELEMENTS / f"elements-{language}" / "corpus.jsonl").read_text("utf-8").splitlines()
    return [f"{entry['title']} {entry['text']}" for entry in map(json.loads, lines)]


ENGLISH, KOREAN = elements("en"), elements("ko")


# scores, by their definition

WORDS = {
    "en": ["house", "houses", "river", "the", "running", "42"],
    "ko": ["수소", "원소는", "강에서", "Python"],
    "hi": ["नदी", "नदियों", "लड़के", "लड़कियों"],
    "ar": ["أحمد", "احمد", "الكتاب", "الكتب"],
}
OWN = {
    "en": "these are many words of the text",
    "ko": "본문에는 낱말이 많다",
    "hi": "पाठ में बहुत से शब्द हैं",
    "ar": "في النص كلمات",
}

documents = st.lists(
    st.sampled_from(sorted(WORDS)).flatmap(
        lambda code: st.tuples(st.just(code), st.lists(st.sampled_from(WORDS[code]), max_size=4))
    ),
    min_size=1,
    max_size=10,
)
queries = st.lists(st.sampled_from(list(chain(*WORDS.values()))), max_size=4)


@given(documents, queries)
def test_a_document_has_the_score_that_it_has_among_those_of_its_language(
    documents: list[tuple[str, list[str]]], query: list[str]
) -> None:
    texts = [f"{' '.join(words)} {OWN[code]}" for code, words in documents]
    ids, scores = Bm25.build(texts, "en,hi,ko,ar").search([" ".join(query)], len(texts))
    found = {d: s for d, s in zip(ids[0].tolist(), scores[0].tolist(), strict=True) if d >= 0}
    asked, expected = " ".join(word for word in query if word not in STOP_WORDS["en"]), dict[int, float]()
    for code in WORDS:
        numbers = [number for number, document in enumerate(documents) if document[0] == code]
        if numbers:
            ids, scores = Bm25.build([texts[number] for number in numbers], code).search([asked], len(numbers))
            pairs = zip(ids[0].tolist(), scores[0].tolist(), strict=True)
            expected |= {numbers[place]: score for place, score in pairs if place >= 0}
    assert found == pytest.approx(expected, rel=1e-5)


def test_a_word_of_two_languages_counts_once_for_a_document() -> None:
    """*Hand* is English and German: a document has the terms of its own language only."""
    texts = ["My hand is cold, and so is the weather.", "Meine Hand ist kalt, und das Wetter ist es auch."]
    cut = analyser("en,de")
    assert [{term.partition(MARK)[0] for term in cut(text)} for text in texts] == [{"en"}, {"de"}]
    counts, alone = Counter(cut.of_query("Hand")), Counter(analyser("de")("Hand"))
    assert counts == Counter({f"{code}/{term}": count for code in ("en", "de") for term, count in alone.items()})
    for text, own in zip(texts, (analyser("en"), analyser("de")), strict=True):
        shared = {term.partition(MARK)[2] for term in cut(text) if term in counts}
        assert shared == set(own("Hand")) & set(own(text))


def test_one_language_has_terms_without_marks_and_analyses_queries_as_documents() -> None:
    for code, texts in {"en": ENGLISH[:50], "ko": KOREAN[:50], "hi": HINDI, "de": GERMAN}.items():
        cut = analyser(code)
        assert [cut(text) for text in texts] == [cut.of_query(text) for text in texts]
        assert not any(MARK in term for text in texts for term in cut(text))
        assert Bm25.build(texts, code).languages == {}


def test_morphemes_go_with_languages_that_have_none() -> None:
    assert refused("morphemes", "en,ko") is None
    assert refused("morphemes", "en,hi") is not None
    assert refused("lucene", "en,th") == refused("lucene", "th")
    pytest.importorskip("kiwipiepy")
    cut = analyser("en,ko", "morphemes")
    assert "ko/먹" in cut("어제 밥을 먹었습니다")
    assert "en/hous*" in cut("the houses of the town")


# languages of texts


def test_scripts_and_then_lingua_tell_the_language_of_a_text() -> None:
    language = language_of_text("en,de,hi,ko")
    for code, texts in {"de": GERMAN, "hi": HINDI}.items():
        assert {language(text) for text in texts} == {code}
    for code, texts in {"en": ENGLISH, "ko": KOREAN}.items():
        assert sum(language(text) == code for text in texts) >= 0.99 * len(texts)
    assert language("LG전자는 OLED 텔레비전 Signature Series를 CES에서 공개했다") == "ko"  # most letters are Latin
    assert language("1984") == language("Привет") == "en"  # the first
    assert language_of_text("zh,ja")("日本語の文章である") == "ja"
    assert language_of_text("zh,ja")("这是中文的文章") == "zh"
    assert language_of_text("ko,ja")("大韓民國") == "ja"
    with pytest.raises(RecipeError, match="languages en,xx: xx is not a known language"):
        language_of_text("en,xx")


def test_the_languages_of_a_collection_are_found_wherever_they_stand() -> None:
    assert languages_of(ENGLISH) == "en"
    assert languages_of(KOREAN) == "ko"
    assert languages_of([*ENGLISH[:300], *KOREAN[:100], *HINDI * 50]) == "en,hi,ko"
    assert languages_of([text for pair in zip(ENGLISH, KOREAN, strict=True) for text in pair]) in ("en,ko", "ko,en")
    assert languages_of([*ENGLISH[:360], *GERMAN * 10]) == "en,de"
    assert languages_of([*ENGLISH[:570], *KOREAN[:5]]) == "en"  # a few foreign texts are no language of the collection
    assert languages_of([]) is None
    assert languages_of(["12 34", "§ 5"]) is None
    assert languages_of([text[:30] for text in ENGLISH]) == "en"  # short texts are read together


def test_the_detected_languages_are_said_with_how_sure_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    languages_of([*ENGLISH[:90], *KOREAN[:30]])
    said = capsys.readouterr().err
    assert re.search(r"detected language: en 7\d%, ko 2\d% of 120 texts \(--language sets it\)", said), said
    languages_of(["12 34", "§ 5", "7"])
    assert "detected language: none is certain of 3 texts" in capsys.readouterr().err


def test_it_is_said_that_a_declared_language_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert misfit(ENGLISH, "en") is misfit(KOREAN, "ko") is misfit(HINDI, "hi") is misfit([], "en") is None
    assert misfit(KOREAN, "xyz") is None
    why = misfit([*ENGLISH[:200], *KOREAN[:100]], "en")
    assert why == "about 34% of the texts are in scripts that 'en' is not written in (Hangul)" or "33%" in str(why)
    assert misfit(GERMAN * 10, "en") == "about 100% of the texts are in 'de', not 'en'"
    collection = load_retrieval(str(ELEMENTS / "elements-ko"), "test")
    Bm25System.over(collection, "en", "full")
    assert "Name its languages" in capsys.readouterr().err
    mixed = RetrievalSet(
        "two", [*collection.documents, *load_retrieval(str(ELEMENTS / "elements-en"), "test").documents], [], {}
    )
    Bm25System.over(mixed, "en,ko", "full")
    said = capsys.readouterr().err
    assert "two: BM25 analyses each text as its language: en 575, ko 575 documents" in said, said
    assert "Name its languages" not in said


# the one index, and what encodes its queries


def lexical_part(texts: list[str], folder: Path) -> tuple[LexicalPart, LexicalPart]:
    bm25, vectors = Bm25.build(texts, "en,ko"), sp.csr_matrix(np.eye(len(texts), 9, dtype=np.float32))
    part = LexicalPart.weighted(bm25, vectors, 0.5, (2.0, 1.5))
    return part, LexicalPart.load(folder, part.save(folder), 9)


def script(folder: Path) -> ModuleType:
    path = folder / "encode.py"
    path.write_bytes((Path(scripts.__file__).parent / "encode.py").read_bytes())
    spec = importlib.util.spec_from_file_location("encode_of_export", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_exported_programs_cut_queries_as_the_index_does(tmp_path: Path) -> None:
    part, loaded = lexical_part([*ENGLISH[:9], *KOREAN[:9]][:18], tmp_path)
    assert (tmp_path / TERMS).is_file()
    cut, numbers = script(tmp_path).lexical_terms("en,ko", "full", 9)
    nothing = sp.csr_matrix((1, 9), dtype=np.float32)
    for query in ("lightest elements of hydrogen", "수소는 가장 가벼운", "hydrogen 수소", "unknown"):
        counted = Counter(numbers[term] for term in cut(query) if term in numbers)
        for each in (part, loaded):
            row = each.join_queries(nothing, [query])
            weights = {n: count * each.record.term_factor for n, count in counted.items()}
            assert dict(zip(row.indices.tolist(), row.data.tolist(), strict=True)) == pytest.approx(weights)


def test_documents_in_two_languages_become_one_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vtkit.transfer.latent_units.FEWEST_TOKENS", 50)
    pairs = zip_longest(ENGLISH[:40], KOREAN[:40])
    rows = [json.dumps({"id": f"d{n}", "text": text}) for n, text in enumerate(chain(*pairs))]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows), "utf-8")
    embedder, out = tiny.dense(tmp_path / "dense"), tmp_path / "index"
    small = (
        "source.units.size=32",
        "source.units.active=4",
        "source.steps=20",
        "index.precision=float32",
        'gates.warn=["unicode"]',
    )
    settings = [part for each in small for part in ("--set", each)]
    built = invoke("build", tmp_path / "rows.jsonl", "--embedder", embedder, "--out", out, *settings)
    assert built.exception is None, (built.output, built.exception)
    assert load_recipe(out / "recipe.toml").recipe.recipe.language in ("en,ko", "ko,en")
    lexical = Manifest.load(out).lexical
    assert lexical is not None
    assert lexical.language in ("en,ko", "ko,en")
    for number in (10, 11):  # English, Korean
        text = json.loads(rows[number])["text"]
        query = " ".join(text.split()[1:7])
        results = json.loads(invoke("search", out, query, "--json", "--why").stdout)["results"]
        assert results[0]["id"] == f"d{number}"
        of_bm25 = {word: bm25 for word, _, _, bm25, *_ in results[0]["words"] if bm25}
        assert of_bm25
        assert "" not in of_bm25  # every term belongs to a word
    added = {"id": "new", "text": "우라늄은 원자로의 연료로 쓰인다"}
    (tmp_path / "more.jsonl").write_text(json.dumps(added), "utf-8")
    assert add_documents(out, read_document_file(str(tmp_path / "more.jsonl"))).documents == 81
    results = json.loads(invoke("search", out, "원자로의 연료", "--json").stdout)["results"]
    assert results[0]["id"] == "new"


def test_a_recipe_names_languages_that_can_be_told_apart(tmp_path: Path) -> None:
    text = '[recipe]\nname = "x"\nlanguage = "{}"\n[source]\nmodel = "m"\n[vocabulary]\nkind = "source"\n'
    assert load_recipe(tmp_path / "x.toml", text=text.format("en,ko")).recipe.recipe.language == "en,ko"
    with pytest.raises(RecipeError, match="xx: not known"):
        load_recipe(tmp_path / "x.toml", text=text.format("en,xx"))
    with pytest.raises(RecipeError, match="language"):
        load_recipe(tmp_path / "x.toml", text=text.format("en, ko"))

"""Training data in one file: its layouts, what they have in common, and what is wrong with them."""

import math
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import put, refused

from vtkit.data.collections import load_retrieval
from vtkit.data.retrieval import RetrievalSet
from vtkit.data.training_files import load_training_data
from vtkit.system.errors import DataError


def by_text(data: RetrievalSet) -> dict[str, dict[str, tuple[int, float | None]]]:
    """Query -> document -> grade and score."""
    queries = {query.id: query.text for query in data.queries}
    documents = {document.id: document.text for document in data.documents}
    return {
        queries[query]: {
            documents[name]: (grade, data.scores.get(query, {}).get(name)) for name, grade in judged.items()
        }
        for query, judged in data.qrels.items()
    }


TRIPLE = {"what is vt": {"a vocabulary": (1, None), "a bird": (0, None)}}
SCORED = {"what is vt": {"a vocabulary": (1, 9.5), "a bird": (0, -2.0)}}


ASKED = {"query": "what is vt"}
PAIR = {**ASKED, "positive": "a vocabulary"}
BOTH = {**PAIR, "negative": "a bird"}
FLAGGED = {**ASKED, "pos": ["a vocabulary"], "neg": ["a bird"], "pos_scores": [9.5], "neg_scores": [-2]}
LISTED = {**ASKED, "docs": ["a bird", "a vocabulary"], "labels": [0, 1]}
ALONE = {"what is vt": {"a vocabulary": (1, None)}}
FIRST = {"what is vt": {"a vocabulary": (1, -3.0), "a bird": (0, 2.0)}}
BOTH_RELEVANT = {"what is vt": {"a vocabulary": (1, None), "a bird": (1, None)}}
MARGIN = {"what is vt": {"a vocabulary": (1, 0.0), "a bird": (0, -11.5)}}


@pytest.mark.parametrize(
    ("name", "line", "wanted"),
    [
        ("pairs.tsv", "what is vt\ta vocabulary", ALONE),
        ("triples.tsv", "what is vt\ta vocabulary\ta bird", TRIPLE),
        ("scored.tsv", "9.5\t-2\twhat is vt\ta vocabulary\ta bird", SCORED),
        ("st.jsonl", {"anchor": "what is vt", "positive": "a vocabulary", "negative": "a bird"}, TRIPLE),
        ("st1.jsonl", {**PAIR, "negative_1": "a bird"}, TRIPLE),
        ("kl.jsonl", {**BOTH, "scores": [9.5, -2]}, SCORED),
        ("flag.jsonl", FLAGGED, SCORED),
        ("margin.jsonl", {**BOTH, "label": 11.5}, MARGIN),
        ("labeled.jsonl", {**LISTED, "scores": [-2, 9.5]}, SCORED),
        ("best.jsonl", {**ASKED, "documents": ["a bird", "a vocabulary"], "scores": [-2, 9.5]}, SCORED),
        ("labels.jsonl", LISTED, TRIPLE),
        ("listed.jsonl", {**ASKED, "positive": ["a bird", "a vocabulary"], "labels": [0, 1]}, TRIPLE),
        ("first.jsonl", {**ASKED, "positive": ["a vocabulary", "a bird"], "scores": [-3, 2]}, FIRST),
        ("several.jsonl", {**ASKED, "pos": ["a vocabulary", "a bird"]}, BOTH_RELEVANT),
        ("webfaq.jsonl", {"question": "what is vt", "answer": "a vocabulary"}, ALONE),
    ],
)
def test_a_line_of_each_layout_by_eye(tmp_path: Path, name: str, line: object, wanted: object) -> None:
    assert by_text(load_training_data(put(tmp_path / name, [line]))) == wanted
    if isinstance(line, dict):
        assert by_text(load_training_data(put(tmp_path / "x.parquet", [line]))) == wanted


LABELLED = [("what is vt", "a vocabulary", 1), ("what is vt", "a bird", 0), ("where", "a bird", 0), ("who", "he", 2)]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("label.jsonl", [{"query": q, "answer": a, "label": n} for q, a, n in LABELLED]),
        ("float.jsonl", [{"query": q, "answer": a, "label": float(n)} for q, a, n in LABELLED]),
        ("last.tsv", [f"{q}\t{a}\t{n}" for q, a, n in LABELLED]),
        ("first.tsv", [f"{n}\t{q}\t{a}" for q, a, n in LABELLED]),
        ("header.tsv", ["query\tanswer\tlabel", *(f"{q}\t{a}\t{n}" for q, a, n in LABELLED)]),
    ],
)
def test_a_document_labelled_0_is_not_relevant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, lines: list[object]
) -> None:
    data = load_training_data(put(tmp_path / name, lines))
    assert by_text(data) == TRIPLE | {"who": {"he": (1, None)}}
    assert "left out: 1 queries of" in capsys.readouterr().err  # the one without a relevant document
    assert not data.scores


def test_one_labelled_line_below_a_header_is_no_triple(tmp_path: Path) -> None:
    wanted = {"q": {"d": (1, None)}}
    assert by_text(load_training_data(put(tmp_path / "x.tsv", ["query\tdocument\tlabel", "q\td\t1"]))) == wanted


def test_mined_negatives_of_sentence_transformers_are_read_in_each_format(tmp_path: Path) -> None:
    """Six of the queries have a second relevant document. A score without a label does not say which is relevant."""
    import datasets
    import tiny
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.util import mine_hard_negatives

    data = tiny.collection(30, seed=4)
    asked = [query.text for query in data.queries]
    pairs = list(zip([*asked, *asked[:6]], [*data.contents, *data.contents[7:13]], strict=True))
    columns = dict(zip(("query", "answer"), map(list, zip(*pairs, strict=True)), strict=True))
    embedder = SentenceTransformer(str(tiny.dense(tmp_path / "dense")), device="cpu")
    formats = ("triplet", "n-tuple", "n-tuple-scores", "labeled-pair", "labeled-list")
    for form, scored in product(formats, (False, True)):
        mined = mine_hard_negatives(
            datasets.Dataset.from_dict(columns), embedder,
            num_negatives=2, output_format=form, output_scores=scored, verbose=False,
        )  # fmt: skip
        mined.to_parquet(str(tmp_path / "mined.parquet"))
        mined.to_json(str(tmp_path / "mined.jsonl"))
        mined.to_csv(str(tmp_path / "mined.tsv"), sep="\t", index=False)
        files = [tmp_path / f"mined.{end}" for end in ("parquet", "jsonl")]
        if not scored and form in ("triplet", "n-tuple", "labeled-pair"):
            files.append(tmp_path / "mined.tsv")
        for file in files:
            if scored and form == "labeled-pair":
                refused(DataError, r"(line|row) 1( and \d+ more)?: has a score but no label", load_training_data, file)
                continue
            found = by_text(load_training_data(file))
            relevant = {(query, text) for query, of in found.items() for text, (grade, _) in of.items() if grade}
            assert relevant == set(pairs), (form, scored, file.suffix)
            others = [of for of in found.values() if sum(not grade for grade, _ in of.values()) >= 2]
            assert len(others) == len(found) == 30
            if scored or form == "n-tuple-scores":
                texts, ways = list(dict.fromkeys(text for of in found.values() for text in of)), embedder.encode_query
                near = embedder.similarity(ways(asked), embedder.encode_document(texts)).numpy()
                for row, query in enumerate(asked):
                    for text, (_, score) in found[query].items():
                        assert score == pytest.approx(float(near[row, texts.index(text)]), abs=1e-4)


def test_margins_to_several_documents_agree_with_each_other(tmp_path: Path) -> None:
    """Two lines of one query and relevant document, each with a margin, and the same margins in one line."""
    lines = [
        {"query": "q", "positive": "p", "negative": "n", "score": 4.0},
        {"query": "q", "positive": "p", "negative": "m", "score": 7.0},
    ]
    wanted = {"q": {"p": (1, 0.0), "n": (0, -4.0), "m": (0, -7.0)}}
    assert by_text(load_training_data(put(tmp_path / "x.jsonl", lines))) == wanted
    together = {"query": "q", "positive": "p", "negative_1": "n", "negative_2": "m", "label": [4.0, 7.0]}
    assert by_text(load_training_data(put(tmp_path / "y.jsonl", [together]))) == wanted


def test_a_damaged_parquet_file_is_said_to_be_damaged(tmp_path: Path) -> None:
    whole = put(tmp_path / "x.parquet", [{"query": "q", "positive": "p"}] * 5)
    (tmp_path / "cut.parquet").write_bytes(whole.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"cut\.parquet: cannot be read as parquet after row 0"):
        load_training_data(tmp_path / "cut.parquet")


TEXT = st.text("abc", min_size=1, max_size=2)
ROWS = st.lists(st.tuples(TEXT, TEXT, TEXT), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_layouts_agree_and_what_is_relevant_once_is_relevant(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("layouts")
    tsv = load_training_data(put(folder / "x.tsv", ["\t".join(row) for row in rows]))
    fields = ("query", "positive", "negative")
    jsonl = load_training_data(put(folder / "x.jsonl", [dict(zip(fields, row, strict=True)) for row in rows]))
    assert by_text(tsv) == by_text(jsonl)
    found = by_text(tsv)
    for query, positive, negative in rows:
        assert found[query][positive][0] == 1
        assert found[query][negative][0] == int((query, negative) in {(q, p) for q, p, _ in rows})
    assert len({document.text for document in tsv.documents}) == len(tsv.documents)


def test_compressed_with_a_header_and_through_the_collections(tmp_path: Path) -> None:
    lines = "query\tpositive\tnegative\nq one\td one\td two\n\nq two\td two\td one\n"
    data = load_retrieval(put(tmp_path / "x.tsv.gz", lines), "train")
    assert [query.text for query in data.queries] == ["q one", "q two"]
    assert by_text(data)["q one"] == {"d one": (1, None), "d two": (0, None)}


def test_empty_sides_and_negatives_that_are_relevant_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = load_training_data(put(tmp_path / "x.tsv", ["q\td\td", " \td\te", "q\t \te", "q\td\te"]))
    assert by_text(data) == {"q": {"d": (1, None), "e": (0, None)}}
    said = capsys.readouterr().err
    assert "left out: 2 rows of x.tsv without a query or a relevant document" in said
    assert "1 documents of x.tsv are listed as relevant and as not relevant to the same query" in said


SCORED = ["1.5\t0.5\tq\td\te", "2.5\t-3e-1\tr\td\te"]
WHOLE: dict[str, Any] = {"query": "q", "positive": "p", "negative": "n"}


@pytest.mark.parametrize(
    ("name", "lines", "complaint"),
    [
        ("x.tsv", ["only one column"], r"line 1: has one column, not query, tab, relevant document"),
        ("x.tsv", ["q\td", "q\td\te"], r"line 2: has 3 columns, most lines have 2"),
        ("x.tsv", ["1.5\t2\tq\td\te", "nan\t2\tq\td\tf"], r"line 2: a score is missing, NaN, infinite or not a number"),
        *(
            ("x.tsv", [f"{odd}\t0.5\tq\td\te", *SCORED], rf"x\.tsv: line 1: a score is missing, NaN, .*'{odd}'")
            for odd in ("nan", "inf", "None", "", "1,5")
        ),
        ("x.tsv", ["2.5\tq\td\te", *SCORED], r"x\.tsv: line 1: has 4 columns, most lines have 5"),
        ("x.tsv", [" \t "], r"holds no query with a relevant document"),
        ("x.jsonl", ["[]"], r"line 1: is not a JSON object"),
        ("x.jsonl", [{"query": "q"}], r"line 1: positive or pos or document or answer is missing"),
        ("x.jsonl", [{**WHOLE, "positive": 3}], r"line 1: query and documents must be strings"),
        ("x.jsonl", [{**WHOLE, "scores": [1, 2]}, {**WHOLE, "scores": [1, 2, 3]}], r"line 2: has 3 scores for 2 docu"),
        *(("x.jsonl", [{**WHOLE, "scores": [1, bad]}], r"line 1: a score is miss") for bad in (None, math.nan)),
        ("x.jsonl", [{**WHOLE, "scores": [1, 2]}, WHOLE], r"1 rows have scores and 1 have none"),
        ("x.jsonl", [{"query": "q", "positive": "p", "score": 0.7}], r"line 1: has a score but no label"),
        (
            "x.tsv",
            ["query\tpositive\tscore", "q\tp\t1", "q\te\t0"],
            r"line 2( and \d+ more)?: has a score but no label",
        ),
        (
            "x.jsonl",
            [{"query": "q", "positive": "p", "label": 0.7}],
            r"line 1: a label is no whole number: 0 means not",
        ),
        ("x.tsv", ["q\tp\t0.7", "q\te\t0.1"], r"line 1( and \d+ more)?: a label is no whole number"),
        ("x.jsonl", [{"query": "q", "positive": "p", "label": None}], r"line 1: has 0 labels for 1 documents"),
        ("x.jsonl", [{"query": "q", "positive": ["p", "n"], "labels": [1]}], r"line 1: has 1 labels for 2 documents"),
        ("x.tsv", ["q\tp\t0"], r"holds no query with a relevant document"),
        ("x.jsonl", ["{", WHOLE, {"positive": "p"}], r"2 problems\n  line 1: is not JSON.*\n  line 3: query or anchor"),
    ],
)
def test_damage_is_told_with_its_line(tmp_path: Path, name: str, lines: list[object], complaint: str) -> None:
    refused(DataError, complaint, load_training_data, put(tmp_path / name, lines))


@pytest.mark.parametrize("first", ["score_pos\tscore_neg\tquery\tpositive\tnegative", "", "3\t1\ts\td\te"])
def test_a_header_or_a_blank_line_leaves_the_layout_as_it_is(tmp_path: Path, first: str) -> None:
    data = load_training_data(put(tmp_path / "x.tsv", [first, *SCORED]))
    queries = {query.text: query.id for query in data.queries}
    assert queries.keys() - {"s"} == {"q", "r"}
    assert data.scores[queries["r"]] == {"d1": 2.5, "d2": -0.3}


def test_two_columns_of_a_dataset_are_pairs(tmp_path: Path) -> None:
    import datasets

    rows = {
        "generated_query": ["Why is gold yellow?", "", "What boils?", "Why is gold yellow?", None],
        "paragraph": ["Gold.", "No query.", "Water.", "Gold and light.", "Neither."],
        "tokens": [1, 2, 3, 4, 5],
    }
    (tmp_path / "pairs" / "data").mkdir(parents=True)
    datasets.Dataset.from_dict(rows).to_parquet(str(tmp_path / "pairs" / "data" / "train-00000-of-00001.parquet"))
    spec = f"datasets:{tmp_path / 'pairs'}::train:generated_query:paragraph"
    found = load_retrieval(spec, "train")
    assert [query.text for query in found.queries] == ["Why is gold yellow?", "What boils?"]
    assert [document.text for document in found.documents] == ["Gold.", "Water.", "Gold and light."]
    assert found.qrels == {"q1": {"d1": 1, "d3": 1}, "q2": {"d2": 1}}
    labelled = datasets.Dataset.from_dict({**rows, "label": [1, 1, 1, 0, 1]})
    labelled.save_to_disk(str(tmp_path / "labelled"))
    found = load_retrieval(spec.replace("pairs", "labelled"), "train")
    assert found.qrels == {"q1": {"d1": 1, "d3": 0}, "q2": {"d2": 1}}
    with pytest.raises(DataError, match=r"no column 'question'. There are generated_query, paragraph, tokens"):
        load_retrieval(spec.replace("generated_query", "question"), "train")
    with pytest.raises(DataError, match="row 1 has int instead of text in the column 'tokens'"):
        load_retrieval(spec.replace("paragraph", "tokens"), "train")
    with pytest.raises(DataError, match="write pairs of a dataset as datasets:NAME:CONFIG:SPLIT:QUERY:DOCUMENT"):
        load_retrieval(spec.removesuffix(":paragraph"), "train")

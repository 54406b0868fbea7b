"""The report: its verdict and advice, both pages, the charts and the model card, with friendly and hostile contents."""

import json
import math
import re
import warnings
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree

import matplotlib
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from pages import cut_off, shown_by_a_browser

from vtkit.pipeline.steps.write_report import MODEL_LABELS
from vtkit.report import blocks, pages, plots
from vtkit.report import model_card as cards
from vtkit.report import verdict as verdicts
from vtkit.report.blocks import Chart
from vtkit.report.content import report_page
from vtkit.report.data import ExampleResult, ReportData
from vtkit.report.diagnosis import diagnose
from vtkit.report.wording import duration, share, shorten, visible, visible_token
from vtkit.system.console import size


def html_page(report: dict[str, Any]) -> str:
    data = ReportData.from_json(report)
    return pages.html_page(report_page(data))


def markdown_page(report: dict[str, Any]) -> str:
    return pages.markdown_page(report_page(ReportData.from_json(report)))


def model_card(report: dict[str, Any]) -> str:
    return cards.model_card(ReportData.from_json(report))


def verdict(report: dict[str, Any]) -> str:
    return verdicts.verdict(ReportData.from_json(report))


def charts(report: dict[str, Any]) -> dict[str, list[Chart]]:
    """Key of a section -> its charts."""
    drawn = {
        key: [block for block in each.blocks if isinstance(block, Chart)] for key, each in sections(report).items()
    }
    return {key: of for key, of in drawn.items() if of}


ROOT = Path(__file__).resolve().parents[1]
FIRST_STRONG_ISOLATE, POP_ISOLATE = "\u2068", "\u2069"


def row(
    model: str, ndcg: float, recall: float, dimensions: float | None = None, p: float | None = None
) -> dict[str, Any]:
    stage, plus, rest = model.partition(" + ")
    kinds = {"BM25": "bm25", "BM25 (words)": "bm25", "deployed": "deployed"}
    return {
        "role": "sum" if plus else kinds.get(model, "encoder"), "system": model,
        "label": MODEL_LABELS.get(stage, stage) + plus + rest, "measures": {"nDCG@10": ndcg, "R@100": recall},
        "query_dimensions": None if dimensions is None else dimensions / 10, "document_dimensions": dimensions,
        "flops": None if dimensions is None else dimensions / 50, "p_value_vs_bm25": p,
    }  # fmt: skip


def profile(**changes: Any) -> dict[str, Any]:
    """A vocabulary that cuts words into two."""
    documents = {
        "words": 20000, "tokens_per_word": 2.06, "split_words": 0.6, "tokens_per_text": 88.4,
        "unknown_tokens": 0.0, "unknown_words": 0.0,
    }  # fmt: skip
    queries = documents | {
        "words": 1100,
        "tokens_per_word": 1.91,
        "tokens_per_text": 6.25,
        "texts_with_split_word": 0.77,
        "texts_with_unknown": 0.0,
    }
    return {
        "size": 32000, "languages": {"ko": 27000, "en": 1760}, "undecided": 240,
        "other_scripts": {"Hiragana": 800, "Greek": 200}, "no_letters": 2000, "documents": documents,
        "queries": queries,
        "worst_words": [{"word": "발견했다", "occurrences": 31, "pieces": ["발견", "##했", "##다"]}], **changes,
    }  # fmt: skip


def two_vocabularies() -> dict[str, Any]:
    """An English vocabulary and a Korean one."""
    source = profile(size=30522, languages={"en": 26830, "ko": 70}, undecided=0, no_letters=3622, other_scripts={})
    for side, per_word in (("documents", 6.18), ("queries", 5.7)):
        source[side] = source[side] | {"tokens_per_word": per_word, "unknown_tokens": 0.032}
    source["worst_words"] = [{"word": "원자", "occurrences": 135, "pieces": ["ᄋ", "##ᅯ", "##ᆫ", "##ᄌ", "##ᅡ"]}]
    return {
        "languages": ["en", "ar", "zh", "hi", "ko", "ru"],
        "documents": {"texts": 2000, "of": 6510, "shortened": 3},
        "queries": {"texts": 400, "of": 400, "shortened": 0}, "source": source, "target": profile(),
    }  # fmt: skip


def a_report(**changes: Any) -> dict[str, Any]:
    """A run of all stages on two sets, as in ``report.json``, with ``changes`` to its top level."""
    news = [
        row("BM25", 0.809, 0.962),
        row("source", 0.012, 0.051, 88.2, 0.0002),
        row("transfer", 0.318, 0.644, 11833.0, 0.0002),
        row("finetune", 0.760, 0.951, 181.3, 0.013),
        row("finetune + BM25", 0.841, 0.977, None, 0.0009),
    ]
    encyclopaedia = [
        row("BM25", 0.582, 0.97),
        row("finetune", 0.596, 0.9, 175.0, 0.21),
        row("finetune + BM25", 0.6, 0.9),
    ]
    text = "세종이 1446년에 반포한 문자 체계이다."
    hit = {"rank": 1, "id": "d-7", "title": "훈민정음", "text": text, "score": 8.5, "relevant": True}
    hit["tokens"] = [["훈민", 4.4], ["##정음", 4.1]]
    return {
        "name": "korean", "about": "English to Korean.", "language": "ko", "created": "2026-03-14",
        "seed": 42, "demonstration": False,
        "command": ["vtkit", "run", "my recipe.toml", "--set", "finetune.epochs=2"],
        "needs": [{"setting": "source.model", "name": "naver/splade-v3", "local": False},
            {"setting": "evaluate.sets", "name": "/home/me/news-ko", "local": True}],
        "recipe_toml": '[recipe]\nname = "korean"\n\n[source]\nmodel = "naver/splade-v3"\n',
        "versions": {"vtkit": "0.1.0", "torch": "2.13.0"},
        "seconds": {"vocabulary": 14.2, "finetune": 3725.0},
        "results": [{"set": "news-ko", "queries": 400, "documents": 6510, "rows": news},
            {"set": "encyclopaedia-ko", "queries": 213, "documents": 148612, "rows": encyclopaedia}],
        "vocabulary": {"source_size": 30522, "target_size": 32000, "overlap": {"exact": 2911, "symbol": 804,
            "special": 5}, "overlap_share": 0.11625, "methods": {"overlap": 3720, "parallel": 24510,
            "pieces": 3702, "mean": 68}},
        "vocabularies": two_vocabularies(),
        "curves": {"adapt": {"steps": [10, 20, 30], "loss": [9.0, 5.0, 3.0]}, "finetune": {"steps": [10, 20, 30],
            "loss": [3.0, 1.0, 0.5], "query_dimensions": [900.0, 40.0, 15.0], "document_dimensions": [9000.0,
            800.0, 180.0], "document_flops": [0.0, 0.2, 0.1]}},
        "calibration": {"shift": -2.314, "target": 0.35, "definition": "token", 
            "probe": {}, "before": {"token": 0.61, "pooled": 0.98}, "after": {"token": 0.35, "pooled": 0.87},
            "held_out": {"token": 0.34, "pooled": 0.86}},
        "gates": [{"gate": "overlap", "stage": "transfer", "finding": "warn", "level": "fail",
            "seen": "0.4% of the target vocabulary overlaps", "advice": "Check transfer.overlap."}],
        "sparsity": {"dead_dimensions": 0.183, "size_edges": [0, 100, 200, 300], "size_counts": [5, 6, 2]},
        "neighbours": [{"token": "학교", "method": "parallel", "sources": [["school", 0.81], ["##school", 0.19]]},
            {"token": "ᄒ", "method": "mean", "sources": []}],
        "examples": [{"query": "훈민정음을 반포한 해는?", "tokens": [["훈민", 1.9], ["##정음", 1.8]],
            "results": [hit]}],
        "outcomes": {"set": "news-ko", "measure": "nDCG@10", "system": "the encoder", "baseline": "BM25",
            "queries": 400, "won": 120, "lost": 80, "most_won": [{"query": "한글", "value": 1.0, "baseline": 0.25,
            "tokens": [["한글", 2.1]]}], "most_lost": [{"query": "조선", "value": 0.0, "baseline": 0.75,
            "tokens": [["조", 1.5]]}]},
        "cost": {"set": "news-ko", "documents": 6510, "index_bytes": 5200000, "queries": 100, "query_ms": 12.4,
            "query_ms_p99": 30.5},
        **changes,
    }  # fmt: skip


def with_text_everywhere(text: str) -> dict[str, Any]:
    """A report in which ``text`` stands wherever a user, a corpus or a tokenizer can bring text in."""
    report = a_report(name=f"n{text}", about=f"a{text}", created=f"c{text}", language=f"l{text}")
    report["recipe_toml"] = f"x{text}"
    report["curves"], report["sparsity"] = {}, None  # numbers only, and slow to draw
    report["command"] = ["vtkit", "run", f"r{text}"]
    report["needs"] = [{"setting": f"s{text}", "name": f"p{text}", "local": True}]
    target = report["vocabularies"]["target"]
    target["worst_words"] = [{"word": f"w{text}", "occurrences": 2, "pieces": [text, text]}]
    target["other_scripts"] = {f"o{text}": 1}
    report["versions"] = {f"v{text}": f"1{text}"}
    report["seconds"] = {f"s{text}": 1.0}
    for number, results in enumerate(report["results"]):
        results["set"] = f"{number}{text}"
        results["rows"].append({"role": "run", "system": f"m{text}", "measures": {"nDCG@10": 0.1, f"q{text}": 0.1}})
    report["vocabulary"]["methods"][f"o{text}"] = 1
    report["neighbours"] = [{"token": text, "method": f"p{text}", "sources": [[text, 0.5], [text, 0.5]]}]
    hit = {"rank": 1, "id": f"i{text}", "title": f"t{text}", "text": f"d{text}", "score": 1.0, "tokens": [[text, 1.0]]}
    report["examples"] = [{"query": f"w{text}", "why": f"y{text}", "tokens": [[text, 1.0]], "results": [hit]}]
    outcome = {"query": f"u{text}", "value": 1.0, "baseline": 0.0, "tokens": [[text, 1.0]]}
    names = {"set": f"s{text}", "measure": f"m{text}", "system": f"e{text}", "baseline": f"b{text}"}
    report["outcomes"] |= names | {"most_won": [outcome], "most_lost": [outcome]}
    report["cost"]["set"] = f"c{text}"
    report["without_evidence"] = [text]
    report["warnings"] = [f"g{text}"]
    report["vocabulary"]["methods"]["mean"] = 90_000
    return report


HOSTILE = [
    "<script>alert(1)</script>", "</style></title><img src=x onerror=alert(1)>", '" onmouseover="alert(1)', "']]><!--",
    "&lt;b&gt; &amp;#60;", "a|b", "\\|", "a\\", "`", "```\n# out", "line\nbreak", "\r\n\r\n- item",
    "\u202eright to left override\u202c", "\u200f\u2067\u2066", "مدرسة", "[text](javascript:alert(1))",
    "![x](http://example.org/x.png)", "**bold** _it_ ~~no~~ $x^2$", "    four spaces", "# heading", "1. item", "---",
    "\x00\x1b[31m\x7f", "\ud800", "\ufffe", "ক্‍ষ", "http://www.example.org", "{{ x }} {% y %} %s {0}",
    "$\\frac{1}{0}$", "#0a0b01", "", " ",
]  # fmt: skip

any_text = st.text(st.characters(), max_size=12) | st.text("<>&\"'`|\\*_[]()~#$ \n\t-+=.1a!:", max_size=12)


class Reader(HTMLParser):
    """Keeps the tags of a page in order, their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        self.tags.append("/" + tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def sections(report: dict[str, Any]) -> dict[str, blocks.Section]:
    return {section.key: section for section in report_page(ReportData.from_json(report)).sections}


words = blocks.plain_text


def tables(report: dict[str, Any], key: str) -> list[blocks.Table]:
    return [block for block in sections(report)[key].blocks if isinstance(block, blocks.Table)]


def cells(table: blocks.Table) -> dict[str, list[str]]:
    """First cell of each row -> the others."""
    return {words(row[0]): [words(cell) for cell in row[1:]] for row in table.rows}


def said(report: dict[str, Any], key: str) -> str:
    return " ".join(words(block.parts) for block in sections(report)[key].blocks if isinstance(block, blocks.Paragraph))


# The verdict


def recommended(*sets: list[dict[str, Any]]) -> verdicts.Recommendation:
    results = [{"set": f"s{number}", "rows": rows} for number, rows in enumerate(sets)]
    advice = verdicts.recommendation(ReportData.from_json({"results": results}))
    assert advice is not None
    return advice


FUSION = {"weight": 0.9, "deviations": (1, 1), "queries": 256, "kind": "snippets"}


def deployed(value: float, p: float) -> list[dict[str, Any]]:
    index = row("deployed", value, 0.9) | {"p_value_vs_bm25": p, "fusion": FUSION}
    return [row("BM25", 0.692, 0.9), row("transfer", 0.452, 0.8) | {"p_value_vs_bm25": 0.0001}, index]


@pytest.mark.parametrize(
    ("rows", "begins", "figures", "harmful"),
    [
        (deployed(0.711, 0.01), "Deploy the one index", ("0.711", "+0.019", "p = 0.010"), False),
        (deployed(0.452, 0.0001), "Do not deploy the one index", ("0.452", "−0.240", "p < 0.001"), True),
        (deployed(0.690, 0.4), "No gain shown by the one index", ("0.690", "−0.002", "p = 0.40"), False),
        (deployed(0.690, 0.4)[:2], "Do not deploy the encoder", ("0.452", "−0.240", "p < 0.001"), True),
    ],
)
def test_one_line_says_whether_to_deploy_with_value_gain_and_p(
    rows: list[dict[str, Any]], begins: str, figures: tuple[str, ...], harmful: bool
) -> None:
    advice = recommended(rows)
    assert advice.text.startswith(begins)
    assert all(figure in advice.text for figure in figures)
    assert advice.harmful is harmful
    report = {"results": [{"set": "s", "rows": rows}]}
    for page in (html_page(report), markdown_page(report)):
        shown = pages.markdown_words(begins)
        assert page.index(shown) < min(page.index(words) for words in ("What to do next", "Results"))


def test_harm_on_one_of_several_sets_is_a_reason_not_to_deploy() -> None:
    advice = recommended(deployed(0.792, 0.001), deployed(0.592, 0.001))
    assert advice.harmful
    assert "s1" in advice.text
    assert "+0.000" in advice.text


def test_without_bm25_nothing_is_recommended_and_what_is_deployed_stands_first() -> None:
    advice = recommended([row("transfer", 0.4, 0.8)])
    assert "BM25" in advice.text
    assert not advice.harmful
    assert verdicts.recommendation(ReportData()) is None
    assert verdict(one_set(row("BM25", 0.5, 0.9), row("finetune", math.nan, 0.8))) == verdict({}) == ""
    figures = verdicts.key_figures(ReportData.from_json({"results": [{"set": "s", "rows": deployed(0.749, 0.01)}]}))
    assert [value for value, _ in figures] == ["0.749", "0.692", "0.452"]
    assert "one index" in figures[0][1]


def test_the_summary_has_the_figures_of_the_final_model_and_of_those_beside_it() -> None:
    summary = verdict(a_report(results=a_report()["results"][:1]))
    assert all(figure in summary for figure in ("0.760", "BM25 0.809", "0.841", "source model 0.012"))


def test_everything_is_compared_with_the_better_bm25() -> None:
    """Plain words are no easier mark: if they are the better BM25, they are the one to beat."""
    for plain, gain in ((0.45, "−0.030"), (0.55, "−0.080")):
        rows = [row("BM25", 0.5, 0.9), row("BM25 (words)", plain, 0.9), row("finetune", 0.47, 0.8, p=0.3)]
        assert f"{gain} against BM25" in recommended(rows).text


def peer(value: float, p: float, plus: str = "", name: str = "e5") -> dict[str, Any]:
    role = "peer-sum" if plus else "peer"
    return row(f"{name} (dense){plus}", value, 0.9) | {"role": role, "p_value_vs_planned": p}


@pytest.mark.parametrize(
    ("peers", "head", "said"),
    [
        (
            [peer(0.760, 0.001), peer(0.767, 0.0001, " + BM25")],
            "The one index is better than BM25, but e5 (dense) is better still: ",
            ("+0.019 over BM25, p = 0.010", "−0.049 against e5 (dense), p = 0.001",
             "−0.056 against e5 (dense) + BM25, p < 0.001", "try index.top_dimensions = 1000"),
        ),
        (
            [peer(0.712, 0.8), peer(0.767, 0.0001, " + BM25")],
            "The one index is better than BM25, but e5 (dense) + BM25 is better still: ",
            ("−0.001 against e5 (dense), p = 0.80", "−0.056 against e5 (dense) + BM25, p < 0.001"),
        ),
        (
            [peer(0.760, 0.02), peer(0.780, 0.06, name="bge")],
            "The one index is better than BM25, but e5 (dense) is better still: ",
            ("+0.019 over BM25, p = 0.010", "−0.049 against e5 (dense), p = 0.020"),
        ),
        ([peer(0.712, 0.8)], "Deploy the one index: ", ("−0.001 against e5 (dense), p = 0.80",)),
        ([peer(0.601, 0.001)], "Deploy the one index: ", ("+0.110 over e5 (dense), p = 0.001",)),
    ],
)  # fmt: skip
def test_the_verdict_compares_with_bm25_the_embedder_and_both_in_this_order(
    peers: list[dict[str, Any]], head: str, said: tuple[str, ...]
) -> None:
    tip = ["index.top_dimensions = 1000"]
    report = one_set(*deployed(0.711, 0.01), *peers) | {"to_try": tip}
    found = verdicts.recommendation(ReportData.from_json(report))
    assert found is not None
    assert found.text.startswith(head)
    places = [found.text.index(words) for words in said]
    assert places == sorted(places)
    assert ("better embedder" in advice(report)) is ("better still" in head)
    assert (tip[0] in found.text) is (tip[0] in advice(report).get("better embedder", "")) is ("better still" in head)


def test_a_better_embedder_on_one_of_several_sets_is_named_with_that_set() -> None:
    found = recommended([*deployed(0.711, 0.01), peer(0.6, 0.01)], [*deployed(0.711, 0.6), peer(0.8, 0.01)])
    assert found.text.startswith("The one index is better than BM25, but e5 (dense) is better still: nDCG@10, ")
    assert "+0.019 over BM25 on average, above it beyond chance on 1 of 2 sets, below it on none; " in found.text
    assert "+0.011 over e5 (dense) on average, above it beyond chance on 1 of 2 sets, below it on s1" in found.text


# What to do next


def advice(report: dict[str, Any]) -> dict[str, str]:
    return {rule: words(text) for rule, text in diagnose(ReportData.from_json(report))}


def one_set(*rows: dict[str, Any], **figures: Any) -> dict[str, Any]:
    return {"results": [{"set": "s", "queries": 400, "rows": list(rows), **figures}]}


BETTER_SOURCE = one_set(row("BM25", 0.4, 0.9), row("source", 0.62, 0.9), row("finetune", 0.6, 0.9, p=0.001))
GOOD = one_set(row("BM25", 0.5, 0.9), row("source", 0.1, 0.2), row("finetune", 0.6, 0.9, 200.0, 0.001))


def with_methods(**methods: int) -> dict[str, Any]:
    overlap = {"source_size": 9, "target_size": 100, "overlap": {}, "overlap_share": 0.1, "methods": methods}
    return GOOD | {"vocabulary": overlap, "without_evidence": ["학교", "나무"]}


def with_unread(unknown: float) -> dict[str, Any]:
    target = profile()
    target["queries"] = target["queries"] | {"unknown_words": unknown}
    return GOOD | {"vocabularies": two_vocabularies() | {"target": target}}


RULES: list[tuple[str, dict[str, Any], dict[str, Any], tuple[str, ...]]] = [
    (
        "better source",
        BETTER_SOURCE | {"source_p_value": 0.01},
        BETTER_SOURCE | {"source_p_value": 0.06},
        ("0.620", "0.600", "p = 0.010", "keep it"),
    ),
    (
        "adds nothing",
        one_set(row("BM25", 0.5, 0.9), row("finetune", 0.51, 0.9, p=0.3)),
        one_set(row("BM25", 0.5, 0.9), row("finetune", 0.51, 0.9, p=0.03)),
        ("BM25", "[adapt]"),
    ),
    ("no evidence", with_methods(overlap=60, pieces=30, mean=10), with_methods(overlap=71, mean=29),
     ("40 %", "transfer.parallel.files", "학교")),
    ("unread words", with_unread(0.08), with_unread(0.04), ("8 %",)),
    ("few shared tokens", GOOD | {"query_tokens_shared": 0.2}, GOOD | {"query_tokens_shared": 0.3}, ("20 %",)),
    (
        "cut documents",
        one_set(*GOOD["results"][0]["rows"], share_cut=0.34, document_length=128),
        one_set(*GOOD["results"][0]["rows"], share_cut=0.05, document_length=128),
        ("34 %", "128", "index.document_length"),
    ),
    (
        "dense vectors",
        one_set(row("BM25", 0.5, 0.9), row("finetune", 0.6, 0.9, 11833.0, 0.001)),
        GOOD,
        ("11,833", "calibrate.target_activation"),
    ),
    ("few queries", one_set(*GOOD["results"][0]["rows"], queries=20), GOOD, ("20",)),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "applies", "does_not", "names"), RULES)
def test_each_rule_speaks_where_its_figure_says_so_and_nowhere_else(
    rule: str, applies: dict[str, Any], does_not: dict[str, Any], names: tuple[str, ...]
) -> None:
    found = advice(applies)
    assert rule in found
    assert all(name in found[rule] for name in names)
    assert rule not in advice(does_not)
    assert found[rule].split(":")[0] in " ".join(Reader(html_page(applies)).text)


def test_a_run_in_which_nothing_stands_out_is_to_be_tried() -> None:
    assert list(advice(GOOD)) == ["search"]
    assert advice({}) == {}


def test_a_warning_of_the_run_is_a_line_of_the_report() -> None:
    warned = GOOD | {"warnings": ["gate trimmed after vocabulary: warn; 7% lost", "73.0% of the weights removed"]}
    assert [words(text) for _, text in diagnose(ReportData.from_json(warned))] == [
        f"Warning: {warning}" for warning in warned["warnings"]
    ]
    for page in (html_page(warned), markdown_page(warned).replace("\\", "")):
        assert all(warning in page for warning in warned["warnings"])
        assert "Nothing needs attention" not in page


def test_every_rule_is_documented() -> None:
    text = (ROOT / "docs" / "evaluation.md").read_text("utf-8")
    listed = re.findall(r"^\| ([a-z ]+) \|", text.split("## What to do next")[1].split("\n## ")[0], re.M)
    assert sorted(name for name in listed if name != "rule") == sorted(
        {name for name, *_ in RULES} | {"better embedder"}
    )


# Both pages


def test_both_pages_say_the_same_numbers_and_words() -> None:
    report = a_report()
    drawn = re.sub(
        r'(?s)<div class="charts">.*?</div>|<style>.*?</style>|<nav.*?</nav>|<title>.*?</title>|<dl.*?</dl>',
        "",
        html_page(report),
    )
    in_html = " ".join(Reader(drawn).text)
    in_markdown = " ".join(Reader(MarkdownIt("commonmark").enable("table").render(markdown_page(report))).text)
    numbers = re.compile(r"\d[\d.,]*\d|\d")
    assert set(numbers.findall(in_html)) == set(numbers.findall(in_markdown))
    for text in ("학교", "##school", "훈민정음을 반포한 해는?", "세종이 1446년에 반포한", "translation probabilities"):
        assert text in in_html
        assert text in in_markdown


def test_every_kind_of_block_and_of_inline_piece_has_a_template() -> None:
    inlines = ("text", *(blocks.Piece(kind, f"a-{kind}", "0.5", 0.5) for kind in get_args(blocks.Kind)))
    parts = (
        *(blocks.Paragraph(inlines, style) for style in ("", "quiet", "heading")),
        *(blocks.Paragraph("ls", style) for style in ("command", "recipe")),
        blocks.Table("c", ("a", "b"), (("x", inlines),), notes={"b": "why"}),
        blocks.Hit(ExampleResult(1, 2.0, "id", "title", "text", (), True), inlines),
        blocks.Chart("drawn", "in words", 1.0, lambda figure: None),
    )  # fmt: skip
    assert {type(part) for part in parts} == set(get_args(blocks.Block))
    for folded in (True, False):
        page = blocks.Page("t", "k", (blocks.Section("s", "S", parts, folded),))
        for text in (pages.html_page(page), pages.markdown_page(page)):
            assert all(words in text for words in ("why", "a-token", "a-foreign", "a-strong", "a-code", "a-bar"))
        assert 'alt="in words"' in pages.html_page(page)


def test_the_best_of_each_column_is_bold() -> None:
    (table,) = tables(one_set(row("BM25", 0.5, 0.9), row("finetune", 0.5, 0.8)), "results")
    assert table.columns == ("model", "nDCG@10", "R@100"), "no column without numbers"
    bold = [[isinstance(cell, blocks.Piece) for cell in line[1:]] for line in table.rows]
    assert bold == [[True, True], [True, False]]


@pytest.mark.parametrize(
    "field", [
        "results", "vocabularies", "neighbours", "curves", "calibration", "gates", "sparsity", "seconds", "cost",
    ],
)  # fmt: skip
def test_a_section_without_data_is_not_there(field: str) -> None:
    key = {"vocabularies": "fragmentation", "curves": "training", "seconds": "times"}.get(field, field)
    assert key in sections(a_report())
    assert key not in sections(a_report(**{field: ReportData().to_json()[field]}))


def test_a_report_of_nothing_still_gives_pages_and_a_card() -> None:
    assert "<h1>run</h1>" in html_page({})
    assert markdown_page({}).split() == ["#", "run", "vtkit", "report"]
    assert yaml.safe_load(model_card({}).split("---")[1])["library_name"] == "sentence-transformers"
    folded = {key for key, section in sections(a_report()).items() if section.folded}
    assert folded == {"training", "calibration", "sparsity", "fragmentation", "neighbours", "times"}


def test_sets_that_are_not_whole_are_labelled_and_others_are_not() -> None:
    results = a_report()["results"]
    results[1]["not_comparable"] = ["sampled: 213 of 2,831 queries", "7 relevant documents are missing"]
    report = a_report(results=results)
    why = "sampled: 213 of 2,831 queries; 7 relevant documents are missing"
    label = f"encyclopaedia-ko, not comparable ({why})"
    card = model_card(report)
    shown = header_of(card)["model-index"][0]["results"]
    assert [entry["dataset"]["name"] for entry in shown] == ["news-ko", label], "in what the hub shows of the card"
    for page in (html_page(report), markdown_page(report), card):
        assert page.count(label) >= 1
    assert any(chart.caption.endswith(label) for chart in charts(report)["results"])
    assert why in verdict(report)
    assert "not comparable" not in model_card(a_report()) + html_page(a_report())


def test_a_demonstration_says_that_it_is_one() -> None:
    for write in (html_page, markdown_page, model_card):
        assert "not results to quote" in write(a_report(demonstration=True))
        assert "not results to quote" not in write(a_report())


def shown(report: dict[str, Any], key: str) -> str:
    """The text of a section's paragraphs, tables and their notes, and the descriptions of its charts."""
    texts = []
    for block in sections(report)[key].blocks:
        if isinstance(block, blocks.Table):
            texts += [block.caption, *(" ".join(map(words, line)) for line in (block.columns, *block.rows))]
            texts += block.notes.values()
        elif isinstance(block, Chart):
            texts.append(block.description)
        elif isinstance(block, blocks.Paragraph):
            texts.append(words(block.parts))
    return "\n".join(texts)


def parts_of_the_loss() -> dict[str, Any]:
    parts = {"infonce": [2.5, 0.4], "query_flops": [0.0, 0.01], "document_flops": [0.0, 0.02]}
    return {"curves": {"finetune": {"steps": [1, 2], "loss": [2.5, 0.43], "anti_zero": [0.5, 0.25], **parts}}}


def held_out() -> dict[str, Any]:
    values = {"before": ((0.1, 2.5), (0.25, 1.5)), "after": ((0.3, 1.25), (0.4, 1.125))}
    figures = {
        when: dict.fromkeys(("all", "overlapping", "new"))
        | {rows: {"tokens": 1200, "accuracy": accuracy, "bits_per_byte": bits}
           for rows, (accuracy, bits) in zip(("all", "overlapping"), pairs, strict=True)}
        for when, pairs in values.items()
    }  # fmt: skip
    return {"held_out": {"texts": 200, **figures}}


def chosen_weight() -> dict[str, Any]:
    curve = [[0.0, 0.512], [0.1, 0.634], [0.2, 0.567]]
    fusion = FUSION | {"weight": 0.1, "queries": 280, "kind": "other judged queries", "curve": curve, "chosen": 0.1}
    return one_set(row("BM25", 0.5, 0.9), row("transfer + BM25", 0.6, 0.9) | {"fusion": fusion})


@pytest.mark.parametrize(
    ("changes", "key", "figures"),
    [
        ({}, "queries", ("120", "80", "400", "200", "한글 1.000 0.250 한글 2.10", "조선 0.000 0.750 조 1.50")),
        ({}, "calibration", ("raised by 2.314",)),  # a shift, which is subtracted, is negative
        ({"calibration": a_report()["calibration"] | {"shift": 1.5}}, "calibration", ("lowered by 1.500",)),
        (parts_of_the_loss(), "training", ("loss: 2.5 at step 1, 0.43 at step 2", "InfoNCE 2 "
         "2.500 0.400", "of queries: 0 at step 1, 0.01 at step 2", "anti zero 2 0.500 0.250")),
        (held_out(), "training", ("all 1,200 10 % 30 % 2.50 1.25", "with the source 1,200 25 % 40 % 1.50 1.12")),
        (one_set(row("BM25", 0.5, 0.9), share_cut=0.034, document_length=128), "results", ("128", "3.4 %")),
        ({}, "sparsity", ("100 to 200",)),  # of 5 + 6 + 2 documents, the seventh lies in the second bin
        ({"sparsity": {"dead_dimensions": 0.1, "largest_share": 0.62, "median_share": 0.004}},
         "sparsity", ("10 %", "62 %", "0.4 %")),
        (chosen_weight(), "results", ("weight 0.0 0.1 0.2", "0.512 0.634 0.567", "280")),
        ({}, "fragmentation", ("2,000", "6,510", "20,000", "1,100", "tokens per word 6.18 2.06",
         "queries with a split word 77 % 77 %", "발견했다 31 발견 ##했 ##다")),
    ],
)  # fmt: skip
def test_the_figures_of_a_section_are_shown(changes: dict[str, Any], key: str, figures: tuple[str, ...]) -> None:
    text = shown(a_report(**changes), key)
    assert not [figure for figure in figures if figure not in text], text


def test_tokens_beyond_those_shown_are_summed_up() -> None:
    report = a_report()
    report["examples"][0]["results"][0].update(score=10.0, tokens=[["훈민", 6.0], ["##정음", 3.25]])
    report["examples"][0]["tokens"] = [[f"t{n}", 1.0] for n in range(30)]
    page = markdown_page(report)
    assert "훈민 6.00, \\#\\#정음 3.25, and 0.75 from others" in page
    assert "t23 1.00, and 6.00 from 6 others" in page


# Both vocabularies


def test_languages_of_both_vocabularies_stand_side_by_side() -> None:
    table = tables(a_report(), "vocabulary")[-1]
    assert table.columns[1:] == ("source vocabulary", "new vocabulary")
    assert cells(table)["Korean"] == ["70 (0.23 %)", "27,000 (84.38 %)"]
    assert cells(table)["other scripts"] == ["–", "1,000 (3.12 %)"]
    of_both = zip(*[row[1:] for row in table.rows[:-1]], strict=True)
    counts = [[int(cell.split()[0].replace(",", "").replace("–", "0")) for cell in of_one] for of_one in of_both]
    assert [sum(of_one) for of_one in counts] == [30522, 32000], "every token in one row"
    both = two_vocabularies()
    shared_script = a_report(vocabularies=both | {"languages": ["en", "ko", "de"]})
    assert ["detector" in said(each, "vocabulary") for each in (a_report(), shared_script)] == [False, True]


# To run it again


def test_the_command_can_be_pasted_into_a_shell_and_what_is_written_is_read_back() -> None:
    page = markdown_page(a_report())
    assert "```sh\nvtkit run 'my recipe.toml' --set finetune.epochs=2\n```" in page
    assert "/home/me/news-ko" in page
    assert "naver/splade-v3" in said(a_report(), "reproduction")
    assert "vtkit run 'my recipe.toml' --set finetune.epochs=2" in Reader(html_page(a_report())).text
    report = ReportData.from_json(a_report())
    assert ReportData.from_json(json.loads(json.dumps(report.to_json()))) == report


def test_the_card_holds_neither_paths_nor_words_of_the_users_texts() -> None:
    card = model_card(a_report())
    assert "| tokens per word | 6.18 | 2.06 |" in card
    for private in ("my recipe.toml", "/home/me", "발견했다", "훈민정음", "한글", "조선"):
        assert private not in card


# Hostile contents

HARMLESS_TAGS = Reader(html_page(with_text_everywhere("word"))).tags


def assert_html_holds(text: str) -> None:
    data = ReportData.from_json(with_text_everywhere(text))
    page = pages.html_page(report_page(data))
    page.encode("utf-8")
    read = Reader(page)
    assert read.tags == HARMLESS_TAGS
    assert "script" not in read.tags
    assert not [name for name, _ in read.attributes if name.startswith("on")]
    assert all(value.startswith("data:image/svg+xml;base64,") for name, value in read.attributes if name == "src")
    assert all(value.startswith("#") for name, value in read.attributes if name == "href")
    assert read.text.count(visible_token(text)) >= 5
    assert visible(f"w{text}") in read.text
    assert not set(page) & set("\x00\x1b\u200f\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u2069")


def blocks_of(page: str) -> list[str]:
    found = []
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(page):
        found.append(token.type)
        # Emphasis and code are this program's own; links, images and raw HTML never are.
        found += [child.type for child in token.children or () if child.type not in {"text", "text_special", "entity"}]
    return found


def body_of(card: str) -> str:
    return card.split("\n---\n", 1)[1]


HARMLESS_BLOCKS = blocks_of(markdown_page(with_text_everywhere("word")))
HARMLESS_CARD = blocks_of(body_of(model_card(with_text_everywhere("word"))))


def assert_markdown_holds(text: str) -> None:
    page = markdown_page(with_text_everywhere(text))
    page.encode("utf-8")
    assert blocks_of(page) == HARMLESS_BLOCKS
    read = Reader(MarkdownIt("commonmark").enable("table").render(page))
    words = "".join(read.text).replace(FIRST_STRONG_ISOLATE, "").replace(POP_ISOLATE, "")
    assert f"\n{visible_token(text)}\n{visible(f'p{text}')}\n" in words
    assert f"{visible_token(text)} 0.50, {visible_token(text)} 0.50\n" in words
    assert page.count(FIRST_STRONG_ISOLATE) == page.count(POP_ISOLATE)


def assert_card_holds(text: str) -> None:
    card = model_card(with_text_everywhere(text))
    header = header_of(card)
    assert header["model-index"][0]["name"] == visible(f"n{text}")
    assert header["language"] == [visible(f"l{text}")]
    assert blocks_of(body_of(card)) == HARMLESS_CARD


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_leaves_its_place_in_neither_page_nor_in_the_card(text: str) -> None:
    assert_html_holds(text)
    assert_markdown_holds(text)
    assert_card_holds(text)


@settings(max_examples=150)
@given(any_text)
@example("|" * 3)
@example("\\\\|")
def test_no_text_changes_a_block_of_the_markdown_page(text: str) -> None:
    assert_markdown_holds(text)


@pytest.mark.parametrize(
    "about", ["# x", "- x", "+ x", "* x", "1. x", "1) x", "===", "---", "> x", "    x", "```x", "| a |\n| - |", "<b>"]
)
def test_a_paragraph_stays_one_whatever_it_begins_with(about: str) -> None:
    assert blocks_of(markdown_page(a_report(about=about))) == blocks_of(markdown_page(a_report(about="x")))


def test_a_recipe_cannot_leave_its_fence() -> None:
    recipe = 'about = "````\n</details><script>"\n'
    page = markdown_page(a_report(recipe_toml=recipe))
    fences = [token for token in MarkdownIt("commonmark").parse(page) if token.type == "fence"]
    assert [fence.content for fence in fences if fence.info == "toml"] == [recipe]


def test_an_address_is_no_link_and_right_to_left_words_are_isolated_in_markdown() -> None:
    neighbours = [{"token": "مدرسة", "method": "parallel", "sources": [["school", 0.9]]}]
    page = markdown_page(a_report(about="see http://example.org or WWW.example.org", neighbours=neighbours))
    assert "see http:/\\/example.org or WWW\\.example.org" in page
    assert f"| {FIRST_STRONG_ISOLATE}مدرسة{POP_ISOLATE} |" in page


def test_nothing_is_fetched_from_elsewhere() -> None:
    page = html_page(a_report())
    assert "default-src 'none'" in page
    assert not re.findall(r"\w+://[^\"'\s<)]+", page)
    assert not re.search(r"@import|url\((?!#)", page)


def test_a_browser_shows_the_page_without_a_complaint_and_runs_nothing_in_it(tmp_path: Path) -> None:
    hostile = "</style></title><script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"
    page = tmp_path / "report.html"
    page.write_text(html_page(with_text_everywhere(hostile)), encoding="utf-8")
    document, logged = shown_by_a_browser(page)
    assert "CONSOLE" not in logged
    read = Reader(document)
    assert read.tags == Reader(page.read_text("utf-8")).tags
    assert "run" not in read.text


def test_a_long_query_leaves_room_for_the_columns_beside_it(tmp_path: Path) -> None:
    """A query of a hundred words once pushed its figures and tokens out of the page."""
    report = a_report()
    report["outcomes"]["most_lost"][0]["query"] = "which river " * 50
    assert "Most lost" not in cut_off(html_page(report), tmp_path / "report.html", 1200)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_accessibility_checker_finds_nothing(tmp_path: Path, scheme: str) -> None:
    checker = ROOT / "node_modules" / "axe-core" / "axe.min.js"
    if not checker.is_file():
        pytest.skip("axe-core is not installed: make axe")
    page = tmp_path / "report.html"
    check = "axe.run().then(r => document.title = 'found ' + JSON.stringify(r.violations.map(v => v.id)))"
    text = html_page(a_report()).replace("default-src 'none'", "script-src 'unsafe-inline'")
    text = text.replace("<details", "<details open")
    script = f"<script>{checker.read_text('utf-8')}</script><script>{check}</script></body>"
    page.write_text(text.replace("</body>", script), encoding="utf-8")
    dark = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    document, _ = shown_by_a_browser(page, "--window-size=390,844", "--virtual-time-budget=20000", *dark)
    assert re.search("<title>(.*?)</title>", document, re.S)[1] == "found []"


def test_the_page_has_landmarks_one_first_heading_and_headed_tables() -> None:
    page = html_page(a_report())
    tags = Reader(page).tags
    assert {"header", "nav", "main", "aside"} <= set(tags)
    assert tags.count("h1") == tags.count("main") == 1
    levels = [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in pairwise(levels)), "no level is left out"
    assert page.count("<table>") == page.count("<caption>") == page.count("<thead>")
    assert page.count("<table>") == page.count('<div class="scroll" role="region" aria-label="')
    assert not re.search(r"<th(?! scope=)[ >]", page)


# Charts


def all_charts(report: dict[str, Any]) -> list[str]:
    return [plots.svg(chart) for drawn in charts(report).values() for chart in drawn]


def test_the_same_report_gives_the_same_bytes_whatever_the_readers_settings() -> None:
    first = html_page(a_report())
    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "path", "lines.linewidth": 9}):
        assert html_page(a_report()) == first
        assert matplotlib.rcParams["font.size"] == 30


def test_the_charts_of_each_set_and_curve_are_described_small_and_show_nothing_from_elsewhere() -> None:
    counts = {key: len(found) for key, found in charts(a_report()).items()}
    assert counts == {"results": 2, "vocabulary": 1, "training": 4, "sparsity": 1}
    for drawn in charts(a_report()).values():
        for chart in drawn:
            assert re.search(r"\d", chart.description)
            assert pages.html_page(blocks.Page("", "", [blocks.Section("s", "S", [chart])])).count("<img ") == 1
    for svg in all_charts(a_report()):
        assert len(svg) < 30_000
        references = [
            value for each in ElementTree.fromstring(svg).iter() for key, value in each.attrib.items() if "href" in key
        ]
        assert all(value.startswith("#") for value in references)
        assert not re.search(r"fill: (#0{3,6}|black|#f{3,6}|white)\b", svg), "text that one of both themes hides"


def test_ids_are_unique_in_the_page_and_what_is_referred_to_is_there() -> None:
    read = Reader(html_page(a_report()))
    ids = [value for name, value in read.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    targets = [value[1:] for name, value in read.attributes if name == "href"]
    targets += [target for name, value in read.attributes if name == "aria-labelledby" for target in value.split()]
    assert set(targets) <= set(ids)


def test_a_long_curve_is_thinned_and_broken_points_are_left_out() -> None:
    steps = list(range(100_000))
    (svg,) = all_charts({"curves": {"adapt": {"steps": steps, "loss": [math.sin(step) for step in steps]}}})
    assert len(svg) < 30_000
    loss = [3.0, None, math.nan, math.inf, 1.0]
    (chart,) = charts({"curves": {"adapt": {"steps": [1, 2, 3, 4, 5, 6], "loss": loss}}})["training"]
    assert chart.description == "loss: 3 at step 1, 1 at step 5"


def test_labels_in_any_script_and_zeros_everywhere_draw_without_warnings() -> None:
    report = one_set(row("BM25", 0.5, 0.9), row("한국어 $모델_{x", 0.4, 0.8))
    curves = {"steps": [1, 2], "loss": [0, 0], "query_dimensions": [0, 0], "document_dimensions": [0, 0]}
    zeros = one_set(row("finetune", 0.0, 0.0)) | {"curves": {"finetune": curves}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (svg,) = all_charts(report)
        assert len(all_charts(zeros)) == 3
    assert "한국어 $모델_{x" in svg


# The model card


def header_of(card: str) -> dict[str, Any]:
    assert card.startswith("---\n")
    header = yaml.safe_load(card.split("\n---\n")[0])
    assert isinstance(header, dict)
    return header


def test_the_card_is_one_of_a_sparse_encoder() -> None:
    header = header_of(model_card(a_report()))
    assert (header["language"], header["base_model"]) == (["ko"], "naver/splade-v3")
    assert header["pipeline_tag"] == "feature-extraction"
    assert {"sentence-transformers", "sparse-encoder"} <= set(header["tags"])
    results = header["model-index"][0]["results"]
    assert [entry["dataset"]["name"] for entry in results] == ["news-ko", "encyclopaedia-ko"]
    assert results[0]["metrics"][0] == {"type": "ndcg@10", "value": 0.76, "name": "nDCG@10"}
    demonstration = header_of(model_card(a_report(demonstration=True, language="no")))
    assert "model-index" not in demonstration
    assert demonstration["language"] == ["no"], "Norwegian, not a truth value"


def test_a_source_that_is_a_folder_is_not_named_in_the_card() -> None:
    need = {"setting": "source.model", "name": "/home/someone/model", "local": True}
    card = model_card(a_report(needs=[need]))
    assert "base_model" not in header_of(card)
    assert "/home/someone" not in card


@pytest.mark.parametrize("named_apart", [False, True])
def test_the_code_in_the_card_is_python(named_apart: bool) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", model_card(a_report(named_apart=named_apart)), re.S)
    compile(code, "card", "exec")
    assert ("model.decode(queries" in code) != named_apart


def test_the_card_says_which_of_its_figures_the_plain_model_has() -> None:
    units, tokens = model_card(a_report(named_apart=True, summed=True)), model_card(a_report())
    assert "0.746 by the sums, 0.818 by the code above, 0.848 by vtkit's encoder, and 0.880 in one index" in units
    assert "queries.sqrt(), documents.sqrt().sqrt()" in units
    assert "Those of the encoder alone hold for the code above too" in tokens
    assert "one index with BM25 needs vtkit or an export" in tokens
    assert "sqrt" not in tokens


# Words and numbers


@pytest.mark.parametrize(
    ("tell", "values"),
    [
        (duration, {0.04: "0.0 s", 9.1: "9.1 s", 59.4: "59 s", 59.7: "1 min 00 s", 3599.8: "1 h 00 min",
                    7384: "2 h 03 min"}),
        (share, {0: "0 %", 1: "100 %", 0.9999: "99.9 %", 0.5: "50 %", 0.0123: "1.2 %", 1e-9: "< 0.01 %", None: "–"}),
        (size, {999: "999 B", 5_200_000: "5.2 MB", 12_000_000_000: "12.0 GB"}),
        (visible_token, {"##a": "##a", "": "(empty)", " ": "␣", "\n": "⟨U+000A⟩", "\u3000": "⟨U+3000⟩",
                         "\u202e": "⟨U+202E⟩", "\u200d": "⟨U+200D⟩", "می\u200cروم": "می\u200cروم",
                         "\U0001f469\u200d\U0001f52c": "\U0001f469\u200d\U0001f52c"}),
    ],
)  # fmt: skip
def test_times_shares_sizes_and_tokens_that_cannot_be_seen(tell: Callable[[Any], str], values: dict[Any, str]) -> None:
    assert {value: tell(value) for value in values} == values


@given(st.text(max_size=60), st.integers(4, 30))
def test_shortened_text_is_a_beginning_of_the_text(text: str, length: int) -> None:
    whole = " ".join(text.split())
    short = shorten(text, length)
    assert len(short) <= length + 2
    assert short == whole or whole.startswith(short.removesuffix("…").rstrip())

"""The analyses of the papers, each on a case worked out by hand and against a slow reference."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import tiny
import torch
from command_line import invoke, succeeds
from hypothesis import given, settings
from hypothesis import strategies as st

from vtkit.data.retrieval import Document, Query, RetrievalSet
from vtkit.evaluation.analyses.activation import activation
from vtkit.evaluation.analyses.case_confusion import case_confusion
from vtkit.evaluation.analyses.coarse_graining import coarse_graining, features
from vtkit.evaluation.analyses.coverage import coverage
from vtkit.evaluation.analyses.rsj import rsj_gap, rsj_weights
from vtkit.evaluation.analyses.together import sample_of
from vtkit.pipeline.folder import report_of
from vtkit.vocabulary.casing import cased_ids


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000))
def test_rsj_weights_are_those_of_counting(seed: int) -> None:
    rng = np.random.default_rng(seed)
    held = rng.random((12, 5)) < 0.4
    relevant = rng.choice(12, 3, replace=False)
    found = rsj_weights(sp.csc_matrix(held.astype(float)), np.arange(5), relevant)
    for term in range(5):
        inside = sum(bool(held[number, term]) for number in relevant)
        outside = sum(bool(held[number, term]) for number in range(12) if number not in relevant)
        p, q = (inside + 0.5) / 4, (outside + 0.5) / 10
        assert found[term] == pytest.approx(math.log(p / (1 - p)) - math.log(q / (1 - q)))


def test_a_system_that_retrieves_the_relevant_documents_has_no_gap_and_one_that_misses_a_term_is_below() -> None:
    presence = sp.csc_matrix(np.vstack([np.eye(4), np.eye(4)]))
    queries = [np.array([term]) for term in range(4)]
    relevant = [np.array([term, term + 4]) for term in range(4)]
    right = rsj_gap(presence, queries, relevant, relevant)
    assert right.queries == 4
    assert right.high_rsj_high_idf.mean == pytest.approx(0.0)
    wrong = rsj_gap(presence, queries, relevant, [(numbers + 1) % 8 for numbers in relevant])
    assert wrong.high_rsj_high_idf.mean < -2


def test_rsj_weights_are_about_words_as_in_the_paper_and_not_about_their_pieces() -> None:
    documents = [Document("a", "", "Phytates and cancer"), Document("b", "", "phytate of corn")]
    asked = RetrievalSet("two", documents, [Query("q", "Phytate, cancer, phytate")], {"q": {"b": 1}})
    sample = sample_of(asked, "en")
    assert sample.presence.toarray().sum(axis=0).tolist() == [1.0] * 6  # and, cancer, corn, of, phytate, phytates
    assert [len(terms) for terms in sample.terms] == [2]


def test_coverage_by_hand() -> None:
    documents = sp.csr_matrix(np.array([[1.0, 0, 0, 0], [1, 2, 0, 0], [0, 0, 3, 0], [1, 0, 0, 4]]))
    queries = sp.csr_matrix(np.array([[1.0, 1, 0, 1], [0, 0, 0, 1]]))
    found = coverage(
        [[1, 2], [1]], [np.array([0, 1]), np.array([3])], queries, documents, [np.array([1]), np.array([2])]
    )
    assert found.words_split == pytest.approx((0.5 + 0) / 2)
    assert found.queries_split == pytest.approx(0.5)
    assert found.tokens_per_word == pytest.approx((1.5 + 1) / 2)
    assert found.own_tokens_met == pytest.approx((1.0 + 0) / 2)
    assert found.own_tokens_met_elsewhere == pytest.approx(((3 / 4 + 1 / 4) / 2 + 1 / 4) / 2)
    assert found.score_by_own_tokens == pytest.approx(1.0)  # the second query has no score at all


def test_activation_by_hand() -> None:
    presence = sp.csr_matrix(np.array([[1.0, 1, 0], [1, 0, 0], [1, 0, 0]]))
    vectors = sp.csr_matrix(np.array([[2.0, 0, 0], [1, 0, 1], [0, 0, 1]]))
    found = activation(presence, vectors)
    assert (found.never_active, found.only_expansion) == (1, 1)
    assert found.correlation == pytest.approx(1.0)
    assert [(band.tokens, band.frequency, band.active, band.held) for band in found.bands] == [
        (1, 1.0, 0.0, 0.0),
        (1, 3.0, 2.0, pytest.approx(2 / 3)),
    ]


def test_merging_two_equal_dimensions_costs_nothing_and_two_that_never_meet_cost_half() -> None:
    equal = sp.csr_matrix(np.array([[1.0, 1, 0], [2, 2, 1]]))
    merged_to = np.array([0, 0, 2])
    assert coarse_graining(equal, merged_to, 0).compatibility == pytest.approx(0.0, abs=1e-6)
    # u = (2, 0) and (0, 2) become (1, 1): the best scale of 1 leaves |2 - 1| = 1 where it was active
    apart = sp.csr_matrix(np.array([[2.0, 0, 0], [0, 2, 0]]))
    found = coarse_graining(apart, merged_to, 0)
    assert found.compatibility == pytest.approx(1.0, abs=1e-6)
    assert (found.relative, found.dimensions, found.merged_dimensions) == (pytest.approx(0.5, abs=1e-6), 3, 2)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_complexity_never_grows_by_merging_and_is_that_of_its_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = rng.random((6, 5)) * (rng.random((6, 5)) < 0.6)
    merged_to = np.array([0, 0, 2, 2, 4])
    found = coarse_graining(sp.csr_matrix(pairs), merged_to, seed)
    assert found.rademacher_merged <= found.rademacher + 1e-9  # whatever the vectors, so it is no test of the theorem
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (200, 6))
    slow = np.mean(
        [max(abs(sum(s * u for s, u in zip(row, pairs[:, t], strict=True))) / 6 for t in range(5)) for row in signs]
    )
    assert found.rademacher == pytest.approx(slow)
    grid = np.linspace(0, 1, 2001)
    means = {t: pairs[:, merged_to == merged_to[t]].mean(axis=1) for t in range(5)}
    errors = [min(np.abs(pairs[:, t] - c * means[t]).max() for c in grid) for t in range(4)]
    assert found.compatibility == pytest.approx(max(errors), abs=1e-3)


def test_features_are_the_summands_of_the_score() -> None:
    queries, documents = (sp.csr_matrix(np.array(rows, dtype=float)) for rows in ([[1, 2, 0]], [[3, 4, 5]]))
    assert features(queries, documents).toarray().tolist() == [[3.0, 8.0, 0.0]]


def test_confusion_of_case_is_that_of_looking_at_every_logit(tmp_path: Path) -> None:
    encoder = tiny.encoder(tmp_path)
    tokenizer = encoder.tokenizer
    texts = tiny.texts(12, seed=3, words=(3, 9))
    found = case_confusion(encoder, texts, 16)
    cased, special = set(cased_ids(tokenizer).tolist()), set(tokenizer.all_special_ids)
    counts = {(a, b): 0 for a in (False, True) for b in (False, True)}
    for text in texts:
        batch = tokenizer([text], return_tensors="pt", truncation=True, max_length=16)
        with torch.no_grad():
            logits = encoder[0].auto_model(**batch).logits[0]
        for dimension in range(logits.shape[1]):
            place = int(logits[:, dimension].argmax())
            token = int(batch["input_ids"][0, place])
            if logits[place, dimension] > 0 and dimension not in special and token not in special:
                counts[token in cased, dimension in cased] += 1
    assert (found.cased_to_cased, found.cased_to_uncased) == (counts[True, True], counts[True, False])
    assert (found.uncased_to_cased, found.uncased_to_uncased) == (counts[False, True], counts[False, False])
    assert sum(counts.values()) > 0


def test_a_run_s_page_has_the_coverage_that_the_command_prints(tmp_path: Path) -> None:
    folder = tiny.finished_run(tmp_path, tiny.collection(60))
    report = report_of(folder)
    assert list(report.coverage) == ["source model", "after transfer"]
    models = [str(tmp_path / "encoder"), str(folder / "model")]
    given = ["analyse", *models, "--on", str(tmp_path / "collection"), "--language", "en"]
    shown = invoke(*given, "--queries", "5", "--documents", "20")
    assert shown.stdout.startswith("5 queries, 20 documents of ")
    assert "score from the query's own tokens" in shown.stdout
    assert "with case variants merged (cannot be larger)" in shown.stdout
    assert "complexity of this encoder's features" in shown.stdout
    printed = succeeds(*given, "--json")
    for own, found in zip(report.coverage.values(), json.loads(printed.stdout), strict=True):
        for name, value in found["coverage"].items():
            assert getattr(own, name) == pytest.approx(value, rel=0.02), name
    page = (folder / "report.html").read_text("utf-8")
    assert "How queries and documents meet" in page
    assert "query tokens active in relevant documents" in page

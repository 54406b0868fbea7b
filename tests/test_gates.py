"""Gates: each one passes, warns and fails on small encoders, by hand where figures can be counted."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from sentence_transformers import SparseEncoder
from support import refused
from tiny import ROLES, TOKENS, WORDS, encoder, shuffled, texts, tokenizer
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from vocabularies import byte_level

from vtkit.encoder.families import mlm_head
from vtkit.encoder.masked import mask_dimensions
from vtkit.evaluation.gates.encoder import activation_gate, dimensions_gate, encoder_gates, ties_gate
from vtkit.evaluation.gates.result import GateResult, Seen, passed
from vtkit.evaluation.gates.rows import Moved, identity_gate, neighbours_gate
from vtkit.evaluation.gates.vocabularies import overlap_gate, shared_scripts, unicode_gate, vocabulary_gates
from vtkit.settings.gates import GatesSection
from vtkit.settings.transfer import TransferSection
from vtkit.system.errors import CollapseError
from vtkit.transfer.methods.baselines import subtoken_mixture
from vtkit.transfer.mixture import Mixture, mixture_of_parts
from vtkit.transfer.surgery.graft import graft_encoder
from vtkit.transfer.surgery.head_only import graft_encoder_head
from vtkit.vocabulary.existing import wrap
from vtkit.vocabulary.overlap import Overlap
from vtkit.vocabulary.pair import pair_of

TEXTS = texts(24, seed=4)
COMPOUNDS = tuple(first + second for first, second in zip(WORDS, WORDS[7:], strict=False))
TARGET = (*shuffled(3), *COMPOUNDS)
MOST = GatesSection()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> SparseEncoder:
    return encoder(tmp_path_factory.mktemp("source"), tied=False)


def transferred(
    source: SparseEncoder,
    folder: Path,
    make: Callable[[Mixture], Mixture] = lambda mixture: mixture,
    graft: Any = graft_encoder,
) -> tuple[Moved, SparseEncoder]:
    """``source`` on TARGET by the mean of pieces, after ``make`` has changed the mixture; bias by the same weights."""
    pair = pair_of(source.tokenizer, tokenizer(TARGET))
    mixture = make(subtoken_mixture(pair))
    made = graft(source, tokenizer(TARGET), mixture, mixture.bias, folder)
    return Moved(source, pair.overlap, mixture, "mixture"), made


def all_by(method: str, *source_ids: int, drawn: int = 0) -> Callable[[Mixture], Mixture]:
    """New tokens that are all made by ``method``: without weights, of these source tokens, or ``drawn`` others each."""

    def make(mixture: Mixture) -> Mixture:
        weights, methods = mixture.weights.tolil(), mixture.methods.copy()
        new = np.flatnonzero(methods != "overlap")
        weights[new] = 0
        draw = np.random.default_rng(1)
        for number in new:
            ids = source_ids or draw.choice(len(TOKENS), drawn, replace=False)
            weights[number, ids] = 1 / max(len(ids), 1)
        methods[new] = method
        return Mixture(weights.tocsr(), methods)

    return make


def test_a_transfer_that_works_is_back_off_throughout(source: SparseEncoder, tmp_path: Path) -> None:
    moved, made = transferred(source, tmp_path)
    results = vocabulary_gates(MOST, tokenizer(TARGET), TEXTS, aligned(moved.alignment))
    results += encoder_gates(MOST, "transfer", made, TEXTS, moved)
    assert [result.gate for result in results] == [
        "overlap", "unicode", "identity", "neighbours", "activation", "dimensions", "ties",
    ]  # fmt: skip
    assert [(result.finding, result.advice) for result in results] == [("pass", "")] * 7
    assert all(result.seen and result.level == "fail" and not result.stops for result in results)
    passed(results)
    assert results[2].seen.startswith(f"{len(TOKENS)} shared tokens: rows equal bit for bit")


# overlap


def aligned(overlap: Overlap) -> Callable[[], Seen]:
    """The gate of the source's vocabulary and one that it overlaps with so."""
    return partial(overlap_gate, tokenizer(), tokenizer(TARGET), overlap, True)


@pytest.mark.parametrize(
    ("words", "bridged", "warned"),
    [
        ([chr(0x430 + n) * 3 for n in range(30)], False, True),  # another script
        ([first + second for first in WORDS[:10] for second in WORDS[20:30]], False, True),  # another language
        (WORDS[:40], False, False),  # one language needs no bridge
        ([chr(0x430 + n) * 3 for n in range(30)], True, False),
    ],
)
def test_a_transfer_between_languages_without_a_bridge_warns(words: list[str], bridged: bool, warned: bool) -> None:
    finding, _, advice = overlap_with(words, bridged=bridged)
    assert ("transfer.parallel.files" in advice) == warned
    assert finding == "warn" or not warned


def test_only_methods_that_know_both_languages_are_a_bridge() -> None:
    pairs, embedder = {"files": ("pairs.tsv",)}, {"embedder": "a/b"}
    settings: list[tuple[bool, dict[str, Any]]] = [
        (False, {"method": "auto"}),
        (False, {"method": ("focus", "subtoken")}),
        (False, {"method": "mean", "parallel": pairs}),
        (True, {"method": "auto", "parallel": pairs}),
        (True, {"method": "auto", "sembridge": embedder}),
        (True, {"method": ("parallel", "mean"), "parallel": pairs}),
    ]
    for bridged, given in settings:
        assert TransferSection.model_validate(given).bridged == bridged


def number_in(seen: str, pattern: str) -> float:
    """The number that ``pattern`` has in the words of a gate."""
    found = re.search(pattern, seen)
    assert found is not None, seen
    return float(found[1].rstrip(",;"))


def overlap_with(words: Iterable[str], *, bridged: bool = True) -> tuple[Any, ...]:
    target = tokenizer((*ROLES.values(), *words))
    return overlap_gate(tokenizer(), target, pair_of(tokenizer(), target).overlap, bridged)


def test_an_overlap_outside_what_pairs_of_such_scripts_have_is_worth_a_warning() -> None:
    greek = [*(chr(0x3B1 + n) * 2 for n in range(20)), *WORDS[:20]]
    assert shared_scripts(tokenizer(), tokenizer((*ROLES.values(), *greek))) == pytest.approx(0.5)
    assert shared_scripts(tokenizer(), tokenizer()) == pytest.approx(1.0)
    finding, seen, _ = overlap_with(greek)
    assert finding == "pass"
    assert seen.startswith("55.6% ")  # 25 of 45
    assert "between vocabularies of one script" in seen
    finding, seen, advice = overlap_with(first + second for first in WORDS[:20] for second in WORDS[20:40])
    assert finding == "warn"
    assert seen.startswith("1.2% ")
    assert "vtkit overlap SOURCE TARGET" in advice


def test_no_shared_token_and_no_shared_role_fail_and_a_role_without_counterpart_is_worth_a_warning() -> None:
    pair = pair_of(tokenizer(), tokenizer(TARGET))
    without = pair.overlap.target_to_source.copy()
    without[TARGET.index("[MASK]")] = -1
    for ids, wanted, words in (
        (np.full(len(TARGET), -1, dtype=np.int32), "fail", "no special token has its counterpart"),
        (without, "warn", "the source has no token for the roles mask"),
    ):
        overlap = replace(pair.overlap, target_to_source=ids)
        finding, seen, _ = aligned(overlap)()
        assert (finding, seen.rpartition("; ")[2]) == (wanted, words)


# identity


def test_one_shared_token_with_another_row_or_bias_fails(source: SparseEncoder, tmp_path: Path) -> None:
    moved, made = transferred(source, tmp_path)
    head = mlm_head(made[0].auto_model)
    number = TARGET.index("river")
    for parameter, what in (
        (head.embeddings.weight, "embedding rows"),
        (head.decoder.weight, "decoder rows"),
        (head.decoder.bias, "bias"),
    ):
        before = parameter.detach().clone()
        with torch.no_grad():
            parameter.view(len(TARGET), -1)[number, 0] += 1e-6
        finding, seen, advice = identity_gate(moved, made)
        assert finding == "fail"
        assert seen.startswith(f"1 of {len(TOKENS)} shared tokens differ")
        assert what in seen
        assert "defect" in advice
        with torch.no_grad():
            parameter.copy_(before)
    assert identity_gate(moved, made)[0] == "pass"


def test_what_may_differ_is_no_difference(source: SparseEncoder, tmp_path: Path) -> None:
    """A bias whose method does not keep it, masked dimensions, and rows that the method makes all of."""
    moved, made = transferred(source, tmp_path)
    mask_dimensions(made[0].auto_model, [TARGET.index("river"), 100])
    finding, seen, _ = identity_gate(moved, made)
    assert finding == "pass"
    assert number_in(seen, r"bias (\S+) ±") > -10
    with torch.no_grad():
        mlm_head(made[0].auto_model).decoder.bias.add_(1.0)
    assert identity_gate(moved, made)[0] == "fail"
    assert identity_gate(replace(moved, bias="zscore"), made)[0] == "pass"
    all_made = Mixture(moved.mixture.weights, np.full(len(TARGET), "random"))
    finding, seen, _ = identity_gate(replace(moved, mixture=all_made), made)
    assert (finding, seen.partition(",")[0]) == ("pass", "no token keeps its row")


# neighbours


@pytest.mark.parametrize("method", ["mean", "random", "masked"])
def test_new_tokens_without_evidence_are_worth_a_warning(method: str, source: SparseEncoder, tmp_path: Path) -> None:
    moved, made = transferred(source, tmp_path, all_by(method))
    finding, seen, _ = neighbours_gate(moved, made)
    assert finding == "warn"
    assert seen.startswith(f"none of {len(COMPOUNDS)} new tokens was made from source tokens")


@pytest.mark.parametrize(("share", "finding"), [(0.4, "pass"), (0.6, "warn"), (1.0, "warn")])
def test_reassigned_rows_are_no_evidence(share: float, finding: str, source: SparseEncoder, tmp_path: Path) -> None:
    """A transfer with a reassigned row for nearly every new token passed."""

    def changed(mixture: Mixture) -> Mixture:
        new = np.flatnonzero(mixture.methods != "overlap")
        words = np.arange(len(TOKENS) - len(new), len(TOKENS))
        rows = sparse.csr_matrix((np.ones(len(new), np.float32), (new, words)), shape=mixture.weights.shape)
        kept = sparse.diags_array((mixture.methods == "overlap").astype(np.float32))
        methods = mixture.methods.copy()
        methods[new] = "parallel"
        methods[new[: round(share * len(new))]] = "reassigned"
        return replace(mixture, weights=sparse.csr_matrix(kept @ mixture.weights + rows), methods=methods)

    moved, made = transferred(source, tmp_path, changed)
    found, seen, advice = neighbours_gate(moved, made)
    assert found == finding
    count, of = round(share * len(COMPOUNDS)), len(COMPOUNDS)
    assert f"{count} of {of} new tokens of text ({count / of:.0%}) without evidence, {count} of them with a" in seen
    assert ("dictionary" in advice and "embedder" in advice) == (finding == "warn")


def test_new_tokens_that_are_all_one_source_token_fail(source: SparseEncoder, tmp_path: Path) -> None:
    moved, made = transferred(source, tmp_path, all_by("sembridge", TOKENS.index("river")))
    finding, seen, _ = neighbours_gate(moved, made)
    assert finding == "fail"
    assert number_in(seen, r"nearest source row (\S+)") == 1.0
    moved, made = transferred(source, tmp_path, all_by("sembridge", drawn=30))
    finding, seen, _ = neighbours_gate(moved, made)  # rows much shorter than the source's
    assert finding == "warn"
    assert number_in(seen, r"length (\S+) of") == pytest.approx(30**-0.5, rel=0.2)  # of unrelated rows
    pair = pair_of(source.tokenizer, source.tokenizer)
    same = Moved(source, pair.overlap, mixture_of_parts(pair), "mixture")
    assert neighbours_gate(same, source)[:2] == ("pass", "no new tokens")


# unicode


def bytewise(normalizer: Any = None) -> Any:
    """A byte-level tokenizer that knows single bytes only."""
    made = byte_level(*sorted(pre_tokenizers.ByteLevel.alphabet()))
    if normalizer is not None:
        made.backend_tokenizer.normalizer = normalizer
    return made


@pytest.mark.parametrize(
    ("lines", "finding", "rate"),
    [
        (["river stone"] * 10, "pass", 0.0),
        (["river stone"] * 49 + ["oak 강"], "pass", 0.01),
        (["river stone"] * 9 + ["oak 강"], "warn", 0.05),
        (["river 강"] * 10, "fail", 0.5),
        (["강 돌"] * 10, "fail", 1.0),
    ],
)
def test_the_share_of_unknown_tokens_decides(lines: list[str], finding: str, rate: float) -> None:
    found, seen, advice = unicode_gate(tokenizer(), lines, 512)
    assert found == finding
    assert f"{rate:.1%} of {2 * len(lines)} tokens of {len(lines)} target texts are unknown" in seen
    if finding == "fail":
        assert "100% of Hangul" in seen
        assert "Name a tokenizer that knows Hangul" in advice


def test_the_advice_for_unknown_tokens_names_a_script_or_the_case() -> None:
    assert 'casing.input = "lowercase"' in unicode_gate(tokenizer(), ["River STONE oak"] * 10, 512)[2]
    assert "knows Hangul" in unicode_gate(tokenizer(), ["강돌 12 34 ²³ 56"] * 10, 512)[2]
    assert "knows these texts" in unicode_gate(tokenizer(), ["12 34"] * 10, 512)[2]


def test_a_line_break_without_a_token_is_no_unknown_token() -> None:
    backend = Tokenizer(models.WordLevel({token: number for number, token in enumerate(TOKENS)}, "[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n"), "isolated")
    breaking = wrap(backend, ROLES, "of the test")
    finding, seen, _ = unicode_gate(breaking, ["river\nstone\noak\npine"] * 10, 512)
    assert (finding, seen) == ("pass", "0.0% of 70 tokens of 10 target texts are unknown")
    assert unicode_gate(breaking, ["river\nxyz"] * 10, 512)[0] == "fail"


def test_a_script_that_is_lost_is_worth_a_warning_however_seldom() -> None:
    finding, seen, _ = unicode_gate(tokenizer(), ["river stone oak pine " * 20 + "강돌산강돌"], 512)
    assert number_in(seen, r"(\S+)% of \d+ tokens") < 2
    assert (finding, seen.rpartition("; ")[2]) == ("warn", "unread 100% of Hangul")
    _, seen, _ = unicode_gate(tokenizer(), ["river stone " * 5000 + "강돌산", "oak 강"], 8)
    assert seen.startswith("10.0% of 10 tokens of 2 "), "only the beginnings of long texts are looked at"


def test_text_read_byte_by_byte_or_taken_apart_is_worth_a_warning() -> None:
    assert unicode_gate(bytewise(), ["river stone"], 512)[0] == "pass"
    finding, seen, _ = unicode_gate(bytewise(), ["강돌산"], 512)
    assert finding == "warn"
    assert seen.startswith("0.0% of ")
    assert seen.endswith("100% of the tokens are pieces of characters")
    taking = bytewise(normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]))
    finding, seen, *_ = unicode_gate(taking, ["강돌산"], 512)
    assert finding == "warn"
    assert "apart 100% of Hangul" in seen


# vectors


def with_bias(folder: Path, value: float) -> SparseEncoder:
    made = encoder(folder)
    with torch.no_grad():
        mlm_head(made[0].auto_model).decoder.bias.fill_(value)
    return made


def findings(results: list[GateResult]) -> dict[str, str]:
    return {result.gate: result.finding for result in results}


def test_dead_vectors_fail_and_are_worth_a_warning_where_calibration_follows(tmp_path: Path) -> None:
    dead = with_bias(tmp_path, -100.0)
    results = encoder_gates(MOST, "calibrate", dead, TEXTS)
    assert findings(results) == dict.fromkeys(("activation", "dimensions", "ties"), "fail")
    assert "0 active dimensions a text and 0 a query of 120, 100% of the texts empty" in results[1].seen
    said = refused(CollapseError, "", passed, results)
    lines = said.splitlines()
    assert len(lines) == 3
    assert all("To go on in spite of it, add " in line for line in lines)
    assert "gate dimensions after calibrate: 0 active dimensions" in lines[1]
    later = encoder_gates(MOST, "transfer", dead, TEXTS, more_follows=True)
    assert findings(later) == dict.fromkeys(("activation", "dimensions", "ties"), "warn")
    passed(later)


def test_dense_vectors_are_no_reason_to_stop_but_logits_that_are_all_positive_are(tmp_path: Path) -> None:
    found = findings(encoder_gates(MOST, "calibrate", with_bias(tmp_path, 100.0), TEXTS))
    assert (found["activation"], found["dimensions"]) == ("fail", "warn")


@pytest.mark.parametrize("off", [(), ("activation",), ("activation", "dimensions")])
def test_weights_that_are_not_finite_fail_whatever_follows(off: tuple[str, ...], tmp_path: Path) -> None:
    broken = with_bias(tmp_path, 0.0)
    with torch.no_grad():
        mlm_head(broken[0].auto_model).embeddings.weight[70, 3] = torch.nan
    section = GatesSection(off=off)
    (result,) = encoder_gates(section, "transfer", broken, TEXTS, more_follows=True)
    assert result.gate == ("activation", "dimensions", "ties")[len(off)]
    assert (result.finding, result.seen) == ("fail", "weights are not finite (NaN or infinite)")


def vectors(*rows: list[float]) -> sparse.csr_matrix:
    return sparse.csr_matrix(np.array(rows))


def test_shares_of_positive_logits_and_active_dimensions_by_hand() -> None:
    for rates, following, wanted in (((0.3, 0.6), "fail", "pass"), ((0.0, 0.0), "warn", "warn"),
                                     ((0.95, 1.0), "fail", "fail")):  # fmt: skip
        assert activation_gate(dict(zip(("token", "pooled"), rates, strict=True)), following)[0] == wanted
    one = vectors([1, 0, 0, 0], [0, 1, 0, 0])
    for queries, documents, wanted in (
        (one, vectors([1, 1, 0, 0], [0, 1, 1, 0]), "pass"),
        (vectors([1, 0, 0, 0], [0, 0, 0, 0]), vectors([1, 1, 0, 0], [0, 1, 1, 0]), "fail"),  # 0.5 a query
        (one, vectors([1, 1, 1, 1], [0, 0, 0, 0]), "warn"),  # half are empty
        (one, vectors([1, 1, 1, 1], [1, 1, 1, 1]), "warn"),  # dense
    ):
        assert dimensions_gate(queries, documents, 4, "fail")[0] == wanted


def test_ties_by_hand() -> None:
    queries = vectors([1], [1], [1], [1])
    for scores, following, finding in (
        ([1, 2, 3, 4], "fail", "pass"),
        ([1, 1, 1, 4], "fail", "warn"),
        ([1, 1, 1, 1], "fail", "fail"),
        ([0, 0, 0, 0], "warn", "warn"),
    ):
        found: Seen = ties_gate(queries, vectors(*([score] for score in scores)), following)
        assert found[0] == finding
        if scores == [1, 1, 1, 4]:  # queries 0, 1, 2 score two 1s and the 4; query 3 scores three 1s
            assert found[1].startswith("75.0% ")  # (2/3 · 3 + 1)/4


# what follows


def test_a_gate_that_is_off_is_silent_and_a_warning_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dead = with_bias(tmp_path, -100.0)
    section = GatesSection(off=("activation", "ties", "overlap", "unicode"), warn=("dimensions",))
    pair = pair_of(tokenizer(), tokenizer(TARGET))
    assert vocabulary_gates(section, tokenizer(TARGET), TEXTS, aligned(pair.overlap)) == []
    results = encoder_gates(section, "transfer", dead, TEXTS)
    assert findings(results) == {"dimensions": "fail"}
    passed(results)
    shown = " ".join("".join(capsys.readouterr()).split())
    assert "warning: gate dimensions after transfer: fail; 0 active dimensions a text" in shown
    assert "add [calibrate]" in shown


def test_without_texts_the_gates_that_read_them_are_passed_over(source: SparseEncoder, tmp_path: Path) -> None:
    moved, made = transferred(source, tmp_path)
    found = vocabulary_gates(MOST, tokenizer(TARGET), ["", " "], aligned(moved.alignment))
    assert [result.gate for result in found] == ["overlap"]
    assert [r.gate for r in encoder_gates(MOST, "transfer", made, [], moved)] == ["identity", "neighbours"]


def test_a_head_only_transfer_is_looked_at_where_it_changed_something(source: SparseEncoder, tmp_path: Path) -> None:
    moved, made = transferred(source, tmp_path, graft=graft_encoder_head)
    results = encoder_gates(MOST, "transfer", made, TEXTS, moved)
    assert findings(results) == dict.fromkeys(
        ("identity", "neighbours", "unicode", "activation", "dimensions", "ties"), "pass"
    )
    with torch.no_grad():
        mlm_head(made[0].auto_model).decoder.weight[TARGET.index("river")] += 1.0
    assert identity_gate(moved, made)[0] == "fail"
    # what is read is still the source's vocabulary, whatever is written
    unread = encoder_gates(MOST, "transfer", made, ["강 돌", "산 강", "돌 산"], moved)
    assert findings(unread)["unicode"] == "fail"

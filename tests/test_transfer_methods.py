"""Mixtures and what is made of them: embeddings, provenance, lists of methods; and the methods that need nothing."""

import json
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from command_line import python
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from scipy.sparse import csr_matrix, random_array
from typer.testing import CliRunner
from vocabularies import byte_level, sentencepiece, with_masked, wordpiece, write_vectors

from vtkit.cli import app
from vtkit.encoder.checkpoint import load_encoder
from vtkit.encoder.masked import MASKED_BIAS
from vtkit.settings.transfer import METHODS
from vtkit.system.errors import DataError, VtkitError
from vtkit.transfer.combination import back_off
from vtkit.transfer.dense_rows import HEAVIEST
from vtkit.transfer.embedders import embed
from vtkit.transfer.methods.baselines import mixture as baseline_mixture
from vtkit.transfer.methods.baselines import subtoken_mixture
from vtkit.transfer.methods.sembridge import similarity_mixture
from vtkit.transfer.mixture import Mixture, Part, keep_rows, mixture_of_parts, with_fallback
from vtkit.transfer.provenance import origins, read_mixture, read_new_ids, read_provenance, write_provenance
from vtkit.transfer.result import Neighbour, sample_neighbours
from vtkit.transfer.word_space import unit
from vtkit.vocabulary.forms import tokens
from vtkit.vocabulary.pair import VocabularyPair, pair_of

SOURCE = wordpiece("school", "war", "##s", "##ing", "the", "7")
TARGET = wordpiece("school", "7", "schools", "warring", "##war", "[unused1]", "of")
ROWS = len(SOURCE) + 5
PAIR = pair_of(SOURCE, TARGET, source_rows=ROWS)
OVERLAP = PAIR.overlap


def embeddings(rows: int = ROWS, width: int = 4) -> np.ndarray:
    return np.random.default_rng(3).normal(size=(rows, width)).astype(np.float32)


def target_id(token: str) -> int:
    return tokens(TARGET).index(token)


def test_overlapping_tokens_keep_their_row_and_bias_to_the_bit() -> None:
    matrix, bias = embeddings(), embeddings()[:, 0]
    known, source = OVERLAP.overlap_ids, OVERLAP.target_to_source[OVERLAP.overlap_ids]
    kinds: tuple[Any, ...] = ("mean", "overlap_mean", "random", "univariate", "multivariate")
    for mixture in (subtoken_mixture(PAIR), *(mixture_of_parts(PAIR, fallback=kind) for kind in kinds)):
        assert np.array_equal(mixture.rows(matrix)[known], matrix[source])
        assert np.array_equal(mixture.bias(bias)[known], bias[source])


@pytest.mark.parametrize("method", ["mean", "overlap_mean"])
def test_mean_rows_are_the_mean_of_all_source_rows_or_of_those_that_overlap(method: Any) -> None:
    matrix = embeddings()
    mixture = mixture_of_parts(PAIR, fallback=method)
    shared = OVERLAP.target_to_source[OVERLAP.overlap_ids]
    averaged = matrix if method == "mean" else matrix[shared]
    assert mixture.counts() == {"overlap": 7, method: 5}
    assert np.allclose(mixture.rows(matrix)[OVERLAP.new_ids], averaged.mean(axis=0))
    assert np.allclose(mixture.bias(matrix[:, 1])[OVERLAP.new_ids], averaged[:, 1].mean())
    assert not np.allclose(matrix[shared].mean(axis=0), matrix.mean(axis=0))


def test_random_rows_are_noise_of_the_seed() -> None:
    pair = pair_of(SOURCE, wordpiece(*(f"word{n}" for n in range(2000))), source_rows=ROWS)
    matrix = embeddings(width=16)
    kinds: tuple[Any, ...] = ("random", "univariate")
    for kind in kinds:
        first, again, other = (
            mixture_of_parts(pair, fallback=kind).rows(matrix, seed=seed)[pair.overlap.new_ids] for seed in (1, 1, 2)
        )
        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)
    noise = mixture_of_parts(pair, fallback="random").rows(matrix, seed=1)[pair.overlap.new_ids]
    assert noise.std() == pytest.approx(0.02, rel=0.02)
    assert abs(noise.mean()) < 0.001
    everything = baseline_mixture(PAIR, METHODS["random_all"](), list, 0)  # keeps no row of the source
    assert everything.counts() == {"random": len(TARGET)}
    assert np.allclose(everything.rows(embeddings(width=400), seed=1).std(axis=1), 0.02, rtol=0.2)
    assert np.allclose(everything.bias(np.array([1.0, 3.0] * 8)), 2)


def test_noise_has_the_moments_of_the_source() -> None:
    draw = np.random.default_rng(6)
    matrix = (draw.normal(size=(ROWS, 3)) * [0.1, 1, 4] + [5, 0, -2]).astype(np.float32)
    pair = pair_of(SOURCE, wordpiece(*(f"word{n}" for n in range(4000))), source_rows=ROWS)
    expected: dict[Any, tuple[Any, Any]] = {
        "multivariate": (matrix.mean(axis=0), matrix.std(axis=0)),
        "univariate": (np.full(3, matrix.mean()), np.full(3, matrix.std())),
    }
    for kind, (mean, deviation) in expected.items():
        rows = mixture_of_parts(pair, fallback=kind).rows(matrix, seed=1)[pair.overlap.new_ids]
        assert rows.mean(axis=0) == pytest.approx(mean, abs=0.2)
        assert rows.std(axis=0) == pytest.approx(deviation, rel=0.05)


def test_the_first_method_with_evidence_makes_the_row() -> None:
    of, schools, warring = (np.array([target_id(token)]) for token in ("of", "schools", "warring"))
    first = mixture_of_parts(PAIR, [Part("parallel", of, csr_matrix(([1.0], ([0], [5])), shape=(1, ROWS)))])
    second = subtoken_mixture(PAIR)
    both = back_off([("parallel", first), ("subtoken", second)])
    assert both.counts() == {"overlap": 7, "parallel": 1, "subtoken": 2, "mean": 2}
    assert both.sources(of[0]) == first.sources(of[0])
    assert both.sources(schools[0]) == second.sources(schools[0])
    assert both.methods[warring[0]] == "mean"  # the source has no pieces for it
    noisy = back_off([("random", mixture_of_parts(PAIR, fallback="random")), ("subtoken", second)])
    assert noisy.counts() == {"overlap": 7, "random": 5}
    last = back_off([("subtoken", second), ("univariate", mixture_of_parts(PAIR, fallback="univariate"))])
    assert last.counts() == {"overlap": 7, "subtoken": 2, "univariate": 3}


def test_the_rest_of_a_method_can_be_chosen() -> None:
    mixture = subtoken_mixture(PAIR)
    assert with_fallback(mixture, "univariate").counts() == {"overlap": 7, "subtoken": 2, "univariate": 3}
    hidden = with_masked(mixture, np.array([target_id("[unused1]")]))
    assert hidden.counts() == {"overlap": 7, "subtoken": 2, "mean": 2, "masked": 1}
    assert with_fallback(hidden, "random").counts() == {"overlap": 7, "subtoken": 2, "random": 2, "masked": 1}


def test_masked_tokens_are_the_mean_with_the_bias_of_masked_dimensions() -> None:
    ids = np.array([target_id("schools"), target_id("[unused1]")])
    mixture = with_masked(subtoken_mixture(PAIR), ids)
    matrix, bias = embeddings(), embeddings()[:, 0]
    assert np.allclose(mixture.rows(matrix)[ids], matrix.mean(axis=0))
    assert mixture.sources(ids[0]) == []
    assert (mixture.bias(bias)[ids] == MASKED_BIAS).all()
    others = np.setdiff1d(np.arange(len(TARGET)), ids)
    assert np.array_equal(mixture.bias(bias)[others], subtoken_mixture(PAIR).bias(bias)[others])


def test_masked_source_tokens_have_no_part_in_the_biases_of_new_tokens() -> None:
    weights = csr_matrix([[0.0, 1.0, 0, 0], [0.25, 0.75, 0, 0], [0.5, 0, 0.25, 0.25], [1.0, 0, 0, 0], [0, 0, 0, 0]])
    methods = np.array(["overlap", "sembridge", "sembridge", "sembridge", "mean"])
    bias = np.array([MASKED_BIAS, -2.0, -4.0, -6.0], dtype=np.float32)
    found = Mixture(weights.astype(np.float32), methods).bias(bias)
    assert found == pytest.approx(
        [-2, -2, -5, -4, -4]
    )  # the last two: nothing is left, so the mean of what is not masked
    kept = Mixture(weights.astype(np.float32), np.array(["overlap"] * 5)).bias(bias)
    assert kept[3] == MASKED_BIAS  # an overlapping token that the source masks stays masked
    assert Mixture(weights.astype(np.float32), methods).bias(bias, bias == -6)[4] == -6


def test_parts_are_brought_to_a_sum_of_one() -> None:
    ids = np.array([target_id("of"), target_id("schools")])
    weights = csr_matrix(([3.0, 1.0, 5.0], ([0, 0, 1], [5, 6, 7])), shape=(2, ROWS))
    mixture = mixture_of_parts(PAIR, [Part("parallel", ids, weights)], fallback="random")
    assert mixture.sources(ids[0]) == [(5, 0.75), (6, 0.25)]
    assert mixture.sources(ids[1]) == [(7, 1.0)]
    assert mixture.counts() == {"overlap": 7, "parallel": 2, "random": 3}
    matrix = embeddings()
    assert np.allclose(mixture.rows(matrix)[ids[0]], 0.75 * matrix[5] + 0.25 * matrix[6])


@given(st.integers(0, 50))
def test_every_row_is_a_convex_combination(seed: int) -> None:
    weights = csr_matrix(random_array((5, ROWS), density=0.3, rng=np.random.default_rng(seed)))
    filled = np.flatnonzero(np.diff(weights.indptr) > 0)
    part = Part("sembridge", OVERLAP.new_ids[filled], weights[filled])
    mixture = mixture_of_parts(PAIR, [part])
    matrix = embeddings()
    rows = mixture.rows(matrix)
    assert np.all(rows <= matrix.max(axis=0) + 1e-5)
    assert np.all(rows >= matrix.min(axis=0) - 1e-5)
    sums = np.asarray(mixture.weights.sum(axis=1)).ravel()
    assert np.allclose(sums, [name not in ("mean", "random") for name in mixture.methods])
    ones = np.ones(ROWS, dtype=np.float32)
    assert np.allclose(mixture.bias(ones), 1)


def test_subtokens_are_the_pieces_of_the_text_not_of_the_spelling() -> None:
    mixture = subtoken_mixture(PAIR)
    known = tokens(SOURCE)

    def pieces(token: str) -> dict[str, float]:
        return {known[n]: round(weight, 4) for n, weight in mixture.sources(target_id(token))}

    assert pieces("schools") == {"school": 0.5, "##s": 0.5}
    assert pieces("##war") == {"war": 1.0}
    assert mixture.methods[target_id("warring")] == "mean"  # the source reads it as unknown
    assert mixture.methods[target_id("[unused1]")] == "mean"


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (("war", "##war", "##s"), "##wars", {"##war": 0.5, "##s": 0.5}),  # it continues a word, and so does its piece
        (("war", "##war", "##s"), "wars", {"war": 0.5, "##s": 0.5}),
        (("a", "##a"), "aaa", {"##a": 2 / 3, "a": 1 / 3}),  # a repeated piece counts twice
    ],
)
def test_pieces_by_hand(source: tuple[str, ...], target: str, expected: dict[str, float]) -> None:
    pair = pair_of(wordpiece(*source), wordpiece(target))
    known = tokens(wordpiece(*source))
    assert {known[n]: weight for n, weight in subtoken_mixture(pair).sources(5)} == pytest.approx(expected)


@pytest.mark.parametrize("source", [byte_level("s", "Ġs", "Ġ"), sentencepiece("s", "▁s", "▁")])
def test_every_family_marks_word_starts_in_its_own_way(source: Any) -> None:
    target = wordpiece("ss", "##ss")
    mixture = subtoken_mixture(pair_of(source, target))
    known = tokens(source)
    start = "Ġs" if "Ġs" in known else "▁s"
    assert mixture.sources(6)[0] == (known.index("s"), 1.0)
    assert known.index("s") in dict(mixture.sources(5))
    assert set(dict(mixture.sources(5))) <= {known.index("s"), known.index(start)}


def letter_counts(texts: Sequence[str]) -> NDArray[np.float32]:
    """Vectors that a person can work out: how often each letter occurs, divided by the length."""
    return unit(np.array([[text.count(letter) for letter in "schoolwarting7f"] for text in texts], dtype=np.float32))


def test_similar_texts_give_the_weights_of_similar_tokens() -> None:
    mixture = similarity_mixture(PAIR, letter_counts, 4.0)
    known = tokens(SOURCE)
    assert known[mixture.sources(target_id("schools"))[0][0]] == "school"
    assert mixture.sources(target_id("##war")) == [(known.index("war"), 1.0)]
    assert mixture.methods[target_id("[unused1]")] == "mean"
    assert mixture.weights[:, : len(OVERLAP.target_to_source)].shape[0] == len(TARGET)
    specials = mixture.weights[OVERLAP.new_ids][:, :5]
    assert specials.nnz == 0


def softmax_weights(pair: VocabularyPair) -> tuple[np.ndarray, np.ndarray]:
    """New tokens with a text, and their weights over all source tokens, as one dense matrix."""
    new = np.array([number for number in pair.overlap.new_ids if pair.target.texts[number]])
    anchors = [number for number, text in enumerate(pair.source.texts) if text]
    read = [
        letter_counts([texts[number] for number in numbers]).astype(np.float64)
        for texts, numbers in ((pair.target.texts, new.tolist()), (pair.source.texts, anchors))
    ]
    queries, keys = read
    weights = np.zeros((len(new), pair.source_rows))
    weights[:, anchors] = torch.from_numpy(queries @ keys.T).softmax(dim=1).numpy()
    return new, weights


def test_an_alpha_of_one_is_softmax_over_all_source_tokens_with_the_heaviest_recorded() -> None:
    mixture = similarity_mixture(PAIR, letter_counts, 1.0)
    new, weights = softmax_weights(PAIR)
    embeddings = np.random.default_rng(1).normal(size=(PAIR.source_rows, 5)).astype(np.float32)
    assert mixture.rows(embeddings)[new] == pytest.approx(weights @ embeddings, abs=1e-5)
    bias = np.arange(PAIR.source_rows, dtype=np.float32)
    assert mixture.bias(bias)[new] == pytest.approx(weights @ bias, rel=1e-5)
    for number, row in zip(new.tolist(), weights, strict=True):
        recorded = dict(mixture.sources(number))
        assert len(recorded) <= HEAVIEST
        assert sum(recorded.values()) <= 1 + 1e-6
        assert recorded == pytest.approx({source: row[source] for source in recorded}, rel=1e-4)
        assert min(recorded.values()) >= np.sort(row)[-len(recorded)] - 1e-6


def test_rows_over_all_source_tokens_come_after_those_of_the_methods_before_them() -> None:
    first, second = subtoken_mixture(PAIR), similarity_mixture(PAIR, letter_counts, 1.0)
    new, weights = softmax_weights(PAIR)
    known = np.diff(first.weights.indptr)[new] > 0
    both = back_off([("subtoken", first), ("sembridge", second)])
    embeddings = np.random.default_rng(1).normal(size=(PAIR.source_rows, 5)).astype(np.float32)
    found = both.rows(embeddings)
    assert 0 < known.sum() < len(new)
    assert found[new[known]] == pytest.approx(first.rows(embeddings)[new[known]], abs=1e-6)
    assert found[new[~known]] == pytest.approx(weights[~known] @ embeddings, abs=1e-5)
    left = keep_rows(second, new[:1])
    assert left.rows(embeddings)[new[:1]] == pytest.approx(weights[:1] @ embeddings, abs=1e-5)
    assert (left.methods[new[1:]] == "mean").all()


PEAK = """
import resource, sys
import numpy as np
from vtkit.transfer.dense_rows import DenseRows
from vtkit.transfer.word_space import unit
draw = np.random.default_rng(3)
queries, anchors = (unit(draw.normal(size=(count, 8)).astype(np.float32)) for count in (int(sys.argv[2]), 20_000))
rows = DenseRows(np.arange(len(queries)), queries, anchors, np.arange(20_000), float(sys.argv[1]))
rows.among(np.arange(len(queries)) < 5).heaviest(20_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows.heaviest(20_000)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize(("alpha", "count"), [(1.0, 5_000), (1.2, 250)])
def test_rows_over_all_source_tokens_take_the_memory_of_a_block(alpha: float, count: int) -> None:
    """5,000 rows over 20,000 anchors are 800 MB of weights in double precision, and several times that when made."""
    assert int(python("-c", PEAK, alpha, count)) < 250


def test_sembridge_finds_synonyms_with_a_real_embedder(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VTKIT_CACHE", str(tmp_path))
    source = wordpiece("car", "school", "king", "##s", "wine")
    target = wordpiece("automobile", "pupil", "queen", "beer")
    pair = pair_of(source, target)
    embedder = str(shared / "models" / "all-MiniLM-L6-v2")
    mixture = similarity_mixture(pair, partial(embed, name=embedder), 4.0)
    found = [tokens(source)[mixture.sources(n)[0][0]] for n in pair.overlap.new_ids]
    assert found == ["car", "school", "king", "wine"]
    assert mixture.counts() == {"overlap": 5, "sembridge": 4}


def test_provenance_survives_writing_and_reading(tmp_path: Path) -> None:
    mixture = subtoken_mixture(PAIR)
    path = tmp_path / "provenance.parquet"
    made = list(origins(mixture, np.arange(len(TARGET), dtype=np.float32), PAIR))
    write_provenance(path, made)
    read = read_provenance(path)
    assert list(read) == made
    assert [origin.target_id for origin in read] == list(range(len(TARGET)))
    assert read_new_ids(path).tolist() == OVERLAP.new_ids.tolist()
    schools = next(origin for origin in read if origin.token == "schools")
    assert (schools.method, schools.bias) == ("subtoken", target_id("schools"))
    assert dict(zip(schools.sources, schools.weights, strict=True)) == {"school": 0.5, "##s": 0.5}
    sampled = sample_neighbours(mixture, PAIR, seed=4)
    assert sampled == (Neighbour("schools", "subtoken", (("school", 0.5), ("##s", 0.5))),)
    back = read_mixture(path, ROWS)
    assert np.array_equal(back.methods, mixture.methods)
    for part in ("indptr", "indices", "data"):
        assert np.array_equal(getattr(back.weights, part), getattr(mixture.weights, part))
    assert back.weights.shape == mixture.weights.shape
    first = path.read_bytes()
    write_provenance(path, made)
    assert path.read_bytes() == first
    path.write_bytes(b"no parquet")
    for read_it in (read_provenance, read_new_ids, lambda path: read_mixture(path, ROWS)):
        with pytest.raises(DataError, match=r"provenance\.parquet"):
            read_it(path)


@pytest.fixture(scope="module")
def given_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source, a target, and things that a user may name and cannot be used."""
    folder = tmp_path_factory.mktemp("files")
    tiny.encoder(folder).save(str(folder / "source"))
    tiny.tokenizer((*tiny.TOKENS[:-20], "brook", "rivers", "hill")).save_pretrained(str(folder / "target"))
    tiny.body(folder / "embedder")
    tiny.tokenizer().save_pretrained(str(folder / "tokenizer"))
    for name, copy in (("source", "source-of-nan"), ("embedder", "embedder-of-nan")):
        shutil.copytree(folder / name, folder / copy)
        weights = load_file(folder / copy / "model.safetensors")
        next(tensor for key, tensor in weights.items() if "word_embeddings" in key)[30] = torch.nan
        save_file(weights, folder / copy / "model.safetensors", {"format": "pt"})
    shutil.copytree(folder / "target", folder / "gaps")
    content = json.loads((folder / "gaps" / "tokenizer.json").read_text())
    content["model"]["vocab"]["hill"] = 3_000_000_000
    (folder / "gaps" / "tokenizer.json").write_text(json.dumps(content))
    (folder / "one.tsv").write_text("river\nstone\n")
    (folder / "two.tsv").write_text("river\tbrook\nstone\thill\n")
    write_vectors(folder / "wide.vec", {"brook": [1, 2, 3], "hill": [1, 0, 1], "river": [0, 1, 0]})
    write_vectors(folder / "narrow.vec", {"river": [1, 2], "stone": [1, 0]})
    write_vectors(folder / "nan.vec", {"brook": [1, float("nan"), 3], "river": [1, 0, 1]})
    return folder


WECHSEL = "source target -m wechsel --vectors wide.vec"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("source-of-nan target -m subtoken", r"source-of-nan: weights are not finite numbers .*word_embeddings"),
        ("source target -m sembridge --embedder embedder-of-nan", r"gives vectors that are not finite numbers \(NaN"),
        ("source target -m sembridge --embedder source", "is a sparse encoder"),
        ("source target -m sembridge --embedder tokenizer", "holds no model: it has neither"),
        ("source target -m semantic --target-embeddings embedder-of-nan", "vectors are not finite"),
        ("source target -m focus --vectors nan.vec", r"nan\.vec: the vector of 'brook' holds a value that is not a"),
        ("source target -m ofa --vectors nan.vec", r"nan\.vec: the vector of 'brook' holds a value that is not a"),
        (f"{WECHSEL} --source-vectors narrow.vec --dictionary two.tsv", r"narrow\.vec has .* of 2 numbers .* of 3"),
        (f"{WECHSEL} --source-vectors wide.vec --dictionary one.tsv", r"one\.tsv: line 1 and 1 more has 1"),
        ("source target -m parallel --parallel one.tsv", r"one\.tsv: line 1 and 1 more has 1 columns, not 2"),
        ("source gaps -m mean", r"the token 'hill' the id 3,000,000,000, and vocabularies end at"),
    ],
)
def test_what_a_user_cannot_use_is_refused_in_one_message(
    arguments: str, message: str, given_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VTKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(given_files)
    result = CliRunner().invoke(app, ["transfer", *arguments.split(), "--out", str(tmp_path / "out")])
    assert isinstance(result.exception, VtkitError), result.output
    assert str(result.exception).count("\n") < 5
    with pytest.raises(VtkitError, match=message):
        raise result.exception
    assert not (tmp_path / "out").exists()


def test_a_target_that_is_the_source_has_nothing_to_transfer(given_files: Path, tmp_path: Path) -> None:
    source, out = str(given_files / "source"), str(tmp_path / "out")
    result = CliRunner().invoke(app, ["transfer", source, source, "-m", "subtoken", "-o", out], catch_exceptions=False)
    assert result.exit_code == 0
    assert "there is nothing to transfer" in " ".join(result.stderr.split())
    before, after = (load_encoder(name)[0].auto_model.state_dict() for name in (source, f"{out}/model"))
    assert all(torch.equal(before[name], after[name]) for name in before if "bias" not in name)

"""Adaptation of the vectors: its losses, its texts, that it learns, repeats and survives interruptions."""

import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.cross_encoder.modules import LogitScore
from tiny import TOKENS, bare, cross_encoder, dense, encoder, texts, tokenizer, weights
from tiny import WORDS as KNOWN
from transformers import BertForSequenceClassification, LlamaConfig, LlamaForCausalLM

from vtkit.data.synthetic_queries import crop_pair, opening_pair, units
from vtkit.encoder.checkpoint import save_encoder
from vtkit.encoder.dense import load_dense
from vtkit.search.bm25 import Bm25
from vtkit.settings.adapt import AdaptSection
from vtkit.system.errors import CollapseError, DataError
from vtkit.training import adapt as adaptation
from vtkit.training.adapt import adapt_vectors, batches_of, usable_texts
from vtkit.training.losses import infonce, listwise, symmetric_divergence
from vtkit.training.negatives import Ranked, system_rankings
from vtkit.training.objective import Batch
from vtkit.training.resuming import TrainingRun
from vtkit.training.teachers import (
    SCORES_FOLDER,
    Asked,
    Bm25Teacher,
    CrossEncoderTeacher,
    DenseTeacher,
    Ensemble,
    KeptScores,
    load_teacher,
)

TEXTS = texts(80, seed=11, words=(6, 30))


def section(objective: Any = "crop", **changes: Any) -> AdaptSection:
    wanted = {"steps": 6, "batch_size": 6, "max_length": 24, "learning_rate": 2e-3, "checkpoint_every": 2}
    return AdaptSection(objective=objective, **{**wanted, **changes})


def trained(
    folder: Path, objective: Any = "crop", seed: int = 5, more: dict[str, Any] | None = None, **changes: Any
) -> tuple[SparseEncoder, dict[str, list[float]]]:
    ours, wanted = encoder(folder), section(objective, **changes)
    curves = adapt_vectors(
        ours, TEXTS, wanted, TrainingRun(seed=seed, folder=folder / "checkpoints", language="en"), **(more or {})
    )
    return ours, curves


# losses


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.integers(2, 6), st.floats(0.1, 10), st.integers(0, 100))
def test_symmetric_divergence_is_both_directions_of_torch(rows: int, columns: int, tau: float, seed: int) -> None:
    torch.manual_seed(seed)
    student, teacher = torch.randn(rows, columns), torch.randn(rows, columns)
    log_q, log_p = (torch.log_softmax(scores / tau, dim=1) for scores in (student, teacher))
    kl = torch.nn.functional.kl_div
    expected = kl(log_q, log_p, log_target=True, reduction="batchmean") + kl(
        log_p, log_q, log_target=True, reduction="batchmean"
    )
    assert symmetric_divergence(student, teacher, tau).item() == pytest.approx(expected.item(), abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 5), st.integers(2, 6), st.floats(0.2, 3), st.floats(0.1, 50), st.floats(-9, 9), st.integers(0, 99)
)
def test_listwise_divergence_minds_no_scale_and_offset(
    rows: int, columns: int, tau: float, scale: float, offset: float, seed: int
) -> None:
    torch.manual_seed(seed)
    student, teacher = torch.randn(rows, columns).double(), torch.randn(rows, columns).double()
    once = listwise(student, teacher, tau)
    assert listwise(student, scale * teacher + offset, tau).item() == pytest.approx(once.item(), rel=1e-4)
    deviation = teacher.std(dim=1, correction=0, keepdim=True)
    expected = torch.nn.functional.kl_div(
        torch.log_softmax(student, dim=1), torch.softmax(teacher / deviation / tau, dim=1), reduction="batchmean"
    )
    assert once.item() == pytest.approx(expected.item(), rel=1e-5)


def test_listwise_divergence_passes_over_what_the_teacher_was_not_asked() -> None:
    student = torch.tensor([[1.0, 2.0, 9.0], [0.0, 1.0, 2.0]], requires_grad=True)
    teacher = torch.tensor([[2.0, 1.0, torch.nan], [4.0, 4.0, 4.0]])
    loss = listwise(student, teacher, 0.5)
    alone = listwise(student[:1, :2], teacher[:1, :2], 0.5)
    assert loss.item() == pytest.approx(alone.item() / 2)  # the second teaches nothing
    loss.backward()
    assert bool(torch.isfinite(student.grad).all())
    assert student.grad[0, 2] == 0
    assert bool((student.grad[1] == 0).all())


# texts


WORDS = st.lists(st.text("abcdefg", min_size=1, max_size=8), min_size=4, max_size=100)


@settings(max_examples=60, deadline=None)
@given(WORDS, st.integers(0, 99))
def test_crops_are_spans_of_their_text(words: list[str], seed: int) -> None:
    query, span = crop_pair(" ".join(words), np.random.default_rng(seed))
    assert f" {query} " in f" {' '.join(words)} "
    assert f" {span} " in f" {' '.join(words)} "
    assert min(5, len(words) // 2) <= len(query.split()) <= min(16, len(words) // 2)
    assert len(span.split()) == min(80, len(words))


def test_a_script_without_spaces_is_cut_by_characters() -> None:
    text = "水素は原子番号一の元素であり、宇宙で最も豊富に存在する。"
    assert "".join(units(text)) == text
    assert {len(unit) for unit in units(text)} == {2}
    query, document = crop_pair(text, np.random.default_rng(0))
    assert query in text
    assert document == text
    assert 2 * 5 <= len(query) <= len(text) // 2


def test_openings() -> None:
    for text, opening, rest in (
        ("A title\nThe text. It goes on.", "A title", "The text. It goes on."),
        ("First one. Second one.", "First one.", "Second one."),
        ("no end of a sentence", "no end", "of a sentence"),
        ("水素は元素。酸素もそう。", "水素は元素。", "酸素もそう。"),
    ):
        assert opening_pair(text, 16) == (opening, rest)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 40), st.integers(1, 20), st.integers(1, 12), st.integers(0, 99))
def test_no_text_is_twice_in_a_batch_and_all_come_before_one_again(
    items: int, steps: int, size: int, seed: int
) -> None:
    rows = batches_of(items, steps, size, seed)
    assert rows.shape == (steps, min(size, items))
    assert all(len(set(row)) == len(row) for row in rows.tolist())
    counts = np.bincount(rows.ravel(), minlength=items)
    assert counts.max() - counts.min() <= -(-steps // (items // rows.shape[1]))


def test_texts_that_leave_nothing_to_tell_apart_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"corpus: 1 of its 3 texts"):
        usable_texts(["one two three four"] * 2 + ["two words"])
    with pytest.raises(DataError, match=r"corpus: 0 of its 2 texts"):
        adapt_vectors(
            encoder(tmp_path),
            ["a", "b"],
            section(),
            TrainingRun(seed=1, folder=tmp_path / "checkpoints", language="en"),
        )


# training


@pytest.mark.bf16
def test_crops_teach_texts_to_find_themselves(tmp_path: Path) -> None:
    _, curves = trained(tmp_path, steps=40, learning_rate=5e-3, flops=1e-4)
    assert curves["infonce"][-1] < 0.9 * curves["infonce"][0]
    assert {"query_flops", "document_flops", "query_dimensions"} <= curves.keys()


@pytest.mark.bf16
def test_alignment_of_an_encoder_with_itself_starts_at_nothing_and_a_changed_one_comes_back(tmp_path: Path) -> None:
    ours, source = encoder(tmp_path / "a", dropout=0.0), encoder(tmp_path / "b", dropout=0.0)
    aligned = source, [(text, text) for text in TEXTS[:40]]

    def curve(steps: int) -> list[float]:
        wanted, folder = section("align", steps=steps, learning_rate=5e-3, flops=0.0), tmp_path / str(steps)
        return adapt_vectors(ours, TEXTS, wanted, TrainingRun(seed=5, folder=folder, language="en"), alignment=aligned)[
            "alignment"
        ]

    assert curve(1)[0] < 0.01  # bf16 alone
    with torch.no_grad():
        ours[0].auto_model.get_output_embeddings().bias.add_(
            torch.randn(120, generator=torch.Generator().manual_seed(1))
        )
    losses = curve(40)
    assert losses[-1] < 0.7 * losses[0]


def test_with_a_frozen_transformer_only_rows_and_bias_change(tmp_path: Path) -> None:
    before = weights(encoder(tmp_path / "before"))
    ours, _ = trained(tmp_path / "ours", train="embeddings")
    changed = {name for name, value in weights(ours).items() if not torch.equal(value, before[name])}
    assert changed
    assert all("embeddings.word" in name or "decoder" in name or "bias" in name for name in changed)


def test_dead_vectors_stop_the_run_and_the_message_names_the_settings(tmp_path: Path) -> None:
    with pytest.raises(CollapseError, match=r"adaptation step \d+: .* vectors are dead.*Lower flops"):
        trained(tmp_path, steps=200, flops=1e5, learning_rate=0.05)


# teachers


def test_bm25_scores_are_those_of_its_search() -> None:
    bm25 = Bm25.build(TEXTS, "en")
    queries = [TEXTS[3][:20], "nothing of it"]
    (scores,) = Bm25Teacher(lambda: bm25).scores([Asked(queries, [TEXTS[n] for n in (3, 5, 7)], [3, 5, 7], 1)])
    ids, values = bm25.search(queries, 80)
    known = [dict(zip(i, v, strict=True)) for i, v in zip(ids.tolist(), values.tolist(), strict=True)]
    assert scores.tolist() == [[row.get(n, 0.0) for n in (3, 5, 7)] for row in known]
    assert scores[0].argmax() == 0


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One tiny model of each kind that can teach."""
    root = tmp_path_factory.mktemp("teachers")
    save_encoder(encoder(root / "made"), root / "sparse")
    embedder = dense(root / "dense", prompts={"query": "apple "})
    return {"sparse": root / "sparse", "dense": embedder, "cross": cross_encoder(root / "cross")}


STEPS = [Asked(TEXTS[:3], TEXTS[10:16], [*range(10, 16)], 2), Asked(TEXTS[3:6], TEXTS[16:22], [*range(16, 22)], 2)]


def test_teachers_give_the_scores_of_their_own_library(folders: dict[str, Path]) -> None:
    libraries = {"sparse": SparseEncoder, "dense": SentenceTransformer}
    for kind, of in libraries.items():
        library: Any = of(str(folders[kind]), device="cpu")
        found = load_teacher(str(folders[kind]), (48, 48), "adapt.teachers").scores(STEPS)
        for step, scores in zip(STEPS, found, strict=True):
            expected = library.similarity(library.encode_query(step.queries), library.encode_document(step.documents))
            assert scores.dtype == np.float32
            assert np.allclose(scores, expected.to_dense().float().numpy(), rtol=0.05, atol=0.05)  # bf16


def logits(folder: Path, pairs: Sequence[tuple[str, str]], length: int) -> np.ndarray:
    """Of the transformers model itself, one pair at a time."""
    classifier, reader = BertForSequenceClassification.from_pretrained(folder).eval(), tokenizer()
    with torch.no_grad():
        read = [reader(*pair, truncation=True, max_length=length, return_tensors="pt") for pair in pairs]
        return np.array([float(classifier(**pair).logits) for pair in read])


def test_a_cross_encoder_teaches_its_raw_logits_whatever_its_configuration_says(folders: dict[str, Path]) -> None:
    raw = []
    for step, scores in zip(STEPS, load_teacher(str(folders["cross"]), (40, 48), "t").scores(STEPS), strict=True):
        for query, row in enumerate(scores):
            own = [query, query + 3]
            assert np.isnan(np.delete(row, own)).all()
            expected = logits(folders["cross"], [(step.queries[query], step.documents[place]) for place in own], 48)
            assert row[own] == pytest.approx(expected, abs=1e-4)
            raw += [*expected]
    assert min(raw) < 0  # no sigmoid gives that


def test_a_cross_encoder_reads_the_whole_query_and_document_that_the_encoder_reads(folders: dict[str, Path]) -> None:
    """Lengths 4 and 6 are 13 tokens of a pair; a query of 20 tokens takes nothing from its document."""
    query, document = " ".join(KNOWN[:20]), " ".join(KNOWN[20:40])
    ((scores,),) = load_teacher(str(folders["cross"]), (4, 6), "t").scores([Asked([query], [document], [0], 1)])
    kept = " ".join(KNOWN[:4]), " ".join(KNOWN[20:26])
    assert scores == pytest.approx(logits(folders["cross"], [kept], 13), abs=1e-4)
    model = load_teacher(str(folders["cross"]), (4, 10_000), "t").model
    assert model.max_seq_length == model.config.max_position_embeddings


def test_a_chat_template_takes_no_room_from_the_document(tmp_path: Path) -> None:
    """A causal reranker whose template has fifteen tokens: the first six tokens of the document are read behind it."""
    torch.manual_seed(0)
    tokens = (*TOKENS, *"01234")  # the library tells a template by digits
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokens), max_position_embeddings=128, pad_token_id=0, **shape))
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(0.0, 0.3)
    model.save_pretrained(tmp_path / "causal")
    reader, fixed = tokenizer(tokens), " ".join(KNOWN[40:47])
    reader.chat_template = (
        f"{fixed} {{% for message in messages %}} {{{{ message['content'] }}}} {{% endfor %}} {fixed} [SEP]"
    )
    reader.save_pretrained(str(tmp_path / "causal"))
    modules = [Transformer(str(tmp_path / "causal"), transformer_task="text-generation"), LogitScore(70, 71)]
    library = CrossEncoder(modules=modules, device="cpu")
    library.save_pretrained(str(tmp_path / "reranker"))
    query, document = " ".join(KNOWN[:20]), " ".join(KNOWN[20:40])
    teacher = load_teacher(str(tmp_path / "reranker"), (4, 6), "t")
    ((scores,),) = teacher.scores([Asked([query], [document], [0], 1)])
    kept = [(" ".join(KNOWN[:4]), " ".join(KNOWN[20:26])), (" ".join(KNOWN[:4]), " ".join(KNOWN[20:25]))]
    expected, shorter = library.predict(kept, activation_fn=torch.nn.Identity())
    assert scores[0] == pytest.approx(float(expected), abs=1e-4)
    assert abs(expected - shorter) > 0.01


@pytest.mark.parametrize("architecture", ["Qwen3ForCausalLM", "T5ForConditionalGeneration", "GPT2LMHeadModel"])
def test_a_bare_language_model_is_no_teacher_and_no_embedder(architecture: str, tmp_path: Path) -> None:
    settings = bare(tmp_path / "model") / "config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text("utf-8")) | {"architectures": [architecture]}))
    said = r"is a language model that writes text.*CrossEncoder.*finetune\.scores"
    for load in (lambda name: load_teacher(name, (8, 8), "t"), lambda name: load_dense(name, "evaluate.peers")):
        with pytest.raises(DataError, match=said):
            load(str(settings.parent))


@pytest.mark.parametrize("loss", ["margin_mse", "kl"])
def test_bm25_teaches_the_scores_of_a_querys_own_candidates(loss: str, tmp_path: Path) -> None:
    _, curves = trained(tmp_path, "distill", steps=3, distill={"loss": loss})
    assert curves[loss][0] > 0
    assert "infonce" not in curves


def test_what_is_no_teacher_is_an_error_that_names_the_setting(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    labels = cross_encoder(tmp_path / "labels", labels=3)
    for folder, said in ((labels, "3 labels"), (empty, r"adapt\.teachers = .*config\.json")):
        with pytest.raises(DataError, match=said):
            load_teacher(str(folder), (8, 8), "adapt.teachers")


@pytest.mark.bf16
@pytest.mark.parametrize("kind", ["sparse", "dense", "cross"])
def test_teachers_of_every_kind_can_be_learned_from(kind: str, folders: dict[str, Path], tmp_path: Path) -> None:
    teacher = load_teacher(str(folders[kind]), (48, 48), "adapt.teachers")
    if isinstance(teacher, CrossEncoderTeacher):
        teacher = replace(teacher, scale=1e5)  # a tiny classifier hardly tells texts apart
    given = {"teachers": [teacher]}
    _, curves = trained(tmp_path, "distill", more=given, teachers=[kind], steps=3)
    assert curves["margin_mse" if kind == "cross" else "listwise"][0] > 0


def test_of_several_teachers_the_mean_in_standard_deviations_counts() -> None:
    one = np.array([[1.0, 2.0, 3.0, np.nan], [5.0, 5.0, 5.0, 5.0]], dtype=np.float32)  # the second tells nothing
    two = np.array([[300.0, 100.0, 200.0, 400.0], [0.0, 0.0, 0.0, 4.0]], dtype=np.float32)
    (scores,) = Ensemble([_Fixed(one), _Fixed(two)]).scores([Asked(["a", "b"], ["c", "d", "e", "f"], [0, 1, 2, 3], 2)])
    r = 1.5**0.5  # 1, 2, 3 have the mean 2 and the deviation sqrt(2/3), and so, a hundred times, 300, 100, 200
    assert scores[0, :3] == pytest.approx([0, -r / 2, r / 2], abs=1e-6)
    assert np.isnan(scores[0, 3])  # only documents that both teachers know are compared
    t = 3**0.5  # 0, 0, 0, 4: mean 1, deviation sqrt(3)
    assert scores[1] == pytest.approx([-1 / t / 2, -1 / t / 2, -1 / t / 2, 3 / t / 2], abs=1e-6)
    assert scores.dtype == np.float32


def test_each_kind_of_teacher_has_its_scale(folders: dict[str, Path]) -> None:
    found = {kind: load_teacher(str(folders[kind]), (48, 48), "t") for kind in ("sparse", "dense", "cross")}
    assert {kind: teacher.scale for kind, teacher in found.items()} == {"sparse": 1.0, "dense": 20.0, "cross": 1.0}
    assert Ensemble([*found.values()]).scale == 5.0


def test_an_embedder_reads_a_document_once(folders: dict[str, Path], tmp_path: Path) -> None:
    teacher = load_teacher(str(folders["dense"]), (48, 48), "t")
    steps = [Asked(TEXTS[:2], TEXTS[10:12], [10, 11], 1), Asked(TEXTS[2:4], [TEXTS[11], TEXTS[10]], [11, 10], 1)]
    assert isinstance(teacher, DenseTeacher)
    first = replace(teacher, read=teacher.reading(steps, tmp_path / "vectors")).scores(steps)
    second = [teacher.scores([step])[0] for step in steps]
    assert all(np.allclose(a, b, atol=0.02) for a, b in zip(first, second, strict=True))
    assert len(np.load(tmp_path / "vectors" / "vectors.npy")) == 2


def test_a_querys_own_document_is_no_negative_of_it() -> None:
    """Two queries; the third document is the first one again, found for the second query."""
    step = Asked(["a", "b"], ["x", "y", "x", "z"], [7, 8, 7, 9], 2)
    repeated = adaptation._repeated(step)
    assert repeated.tolist() == [[False, False, True, False], [False, False, False, False]]
    queries = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    documents = torch.tensor([[3.0, 1.0], [0.0, 2.0], [3.0, 1.0], [1.0, 0.0]])
    first = math.log(math.exp(3) + math.exp(0) + math.exp(1)) - 3
    second = math.log(math.exp(1) + math.exp(2) + math.exp(1) + math.exp(0)) - 2
    assert infonce(queries @ documents.t(), repeated=repeated).item() == pytest.approx((first + second) / 2)


@dataclass
class _Fixed:
    values: np.ndarray
    scale: float = 1.0
    asked: int = 0

    def scores(self, steps: Any) -> np.ndarray:
        self.asked += len(steps)
        return np.stack([self.values for _ in steps])


def test_scores_are_kept_and_half_written_ones_made_again(tmp_path: Path) -> None:
    steps = [Asked(["a", "b"], ["c", "d"], [0, 1], 1)] * 45
    teacher = _Fixed(np.ones((2, 2), np.float32))
    assert len(list(KeptScores(teacher, steps, tmp_path))) == teacher.asked == 45
    files = sorted((tmp_path / SCORES_FOLDER).iterdir())
    files[1].write_bytes(files[1].read_bytes()[:50])
    again = list(KeptScores(teacher, steps, tmp_path))
    assert teacher.asked == 65
    assert [scores.shape for scores in again] == [(2, 2)] * 45
    with pytest.raises(DataError, match="40 of 40 queries"):
        KeptScores(_Fixed(np.full((2, 2), np.inf, np.float32)), steps, tmp_path / "infinite")


# GPL


def widened(folders: dict[str, Path], folder: Path, factor: float) -> Path:
    """The cross-encoder with logits ``factor`` times as far apart."""
    shutil.copytree(folders["cross"], folder)
    classifier = BertForSequenceClassification.from_pretrained(folder)
    with torch.no_grad():
        classifier.classifier.weight.mul_(factor)
        classifier.classifier.bias.mul_(factor)
    classifier.save_pretrained(folder)
    return folder


def test_the_loss_of_gpl_is_the_squared_error_of_the_raw_margins(folders: dict[str, Path], tmp_path: Path) -> None:
    name = str(widened(folders, tmp_path / "cross", 1e5))
    wanted = section("distill", steps=1, teachers=[name])
    ours = encoder(tmp_path / "ours", dropout=0.0)
    columns, (term,) = adaptation._distill(
        TEXTS,
        wanted,
        6,
        TrainingRun(seed=5, folder=tmp_path / "kept", language="en"),
        [load_teacher(name, (64, 24), "t")],
        None,
    )
    read = [ours.encode(columns[side], convert_to_tensor=True).to_dense() for side in columns]
    batch = Batch(read[0], torch.cat(read[1:]), step=0)
    pairs = [[*zip(columns["query"], columns[side], strict=True)] for side in ("document", "negative_1")]
    positive, negative = (logits(Path(name), side, 48) for side in pairs)
    margins = [(query @ (good - bad)).item() for query, good, bad in zip(*read, strict=True)]
    expected = np.mean((np.array(margins) - (positive - negative)) ** 2)
    assert term.value(batch).item() == pytest.approx(expected, rel=0.01)


def test_what_models_mine_is_kept_and_cross_encoders_mine_nothing(folders: dict[str, Path], tmp_path: Path) -> None:
    def mined(kind: str) -> list[np.ndarray]:
        place, names = tmp_path / kind / "rankings", [str(folders[kind])]
        setting = "adapt.distill.mining"
        ranked = Ranked(TEXTS[:12], TEXTS, (64, 48), 50)
        return system_rankings(names, ranked, lambda: Bm25.build(TEXTS, "en"), place, setting)

    (ranking,) = mined("dense")
    dense = SentenceTransformer(str(folders["dense"]), device="cpu")
    near = dense.similarity(dense.encode_query(TEXTS[:12]), dense.encode_document(TEXTS)).numpy()
    assert (ranking[:, 0] == near.argmax(axis=1)).sum() >= 11  # bf16 may swap two
    assert (tmp_path / "dense" / "rankings" / "model-1.npy").is_file()
    with pytest.raises(DataError, match=r"adapt\.distill\.mining = .*cross-encoder, which scores pairs"):
        mined("cross")


def test_the_candidate_beside_the_own_document_is_one_that_rankings_found() -> None:
    rankings = [np.array([[0, 3], [4, -1], [-1, -1]]), np.array([[5, 0], [1, -1], [-1, -1]])]
    found = np.array([adaptation._sampled(rankings, [0, 1, 2], 6, seed) for seed in range(200)])
    assert set(found[:, 0]) == {3, 5}
    assert set(found[:, 1]) == {4}
    assert set(found[:, 2]) == {0, 1, 3, 4, 5}  # where they found none, one of all others


@pytest.mark.parametrize(
    ("settings", "teachers", "way_out"),
    [({"loss": "listwise"}, 1, 'distill.loss to "margin_mse"'), ({}, 2, "one teacher")],
)
def test_two_scores_in_standard_deviations_are_refused(
    settings: dict[str, Any], teachers: int, way_out: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    name = str(widened(folders, tmp_path / "cross", 1e5))
    given = {"teachers": [load_teacher(name, (48, 24), "t")] * teachers}
    with pytest.raises(DataError, match=f"only their order is left.*{way_out}"):
        trained(tmp_path / "two", "distill", more=given, teachers=[name] * teachers, distill=settings)


def test_a_query_stands_beside_its_own_document_and_what_models_mined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adaptation, "DEPTH", 1)  # of BM25, which finds the own document first
    monkeypatch.setattr(adaptation, "system_rankings", lambda _, ranked, *__: [np.full((len(ranked.queries), 1), 7)])
    columns, _ = adaptation._distill(
        TEXTS, section("distill", steps=2), 6, TrainingRun(seed=5, folder=tmp_path, language="en"), [], None
    )
    assert all(query in own for query, own in zip(columns["query"], columns["document"], strict=True))
    assert columns["negative_1"].count(TEXTS[7]) > 6

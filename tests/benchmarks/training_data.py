"""Time and memory until the first step of fine-tuning, on generated data of MS MARCO's size.

Passages of Zipf's words, queries with one relevant passage and others that are judged as not relevant (examples, all
together), as a BEIR folder in a temporary folder. A process of its own loads the collection and fine-tunes a tiny
encoder on it (MarginMSE with one hard negative and a sparse teacher, batches of 128, 150,000 steps), up to the first
step of the optimiser. What it holds beside the models is memory of its own (RssAnon) above what it had before the
collection was opened; pages of files that are mapped (RssFile), which the system takes back when it needs them, stand
apart. ``again``: a second process, which finds what the first has made of the collection.

    python tests/benchmarks/training_data.py [--passages 8800000] [--queries 500000] [--examples 19000000]
                                             [--folder FOLDER]

``--folder`` keeps the collection, and takes the one that is there.
"""

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from measuring import alone, options

SYLLABLES = [f"{a}{b}" for a in "bdfghklmnprstvz" for b in "aeiou"]
WORDS = 60_000
WORDS_A_PASSAGE = 56
"""The mean of MS MARCO's passages."""

WORDS_A_QUERY = 6
PARTS = 50_000
BATCH, STEPS = 128, 150_000
LIMIT_GB = 4.0


def main() -> None:
    parser = options(__doc__, passages=8_800_000, queries=500_000, examples=19_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure is not None:
        print(json.dumps(measured(arguments.measure)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        collection = folder / "collection"
        if not collection.exists():
            generate(collection, arguments.passages, arguments.queries, arguments.examples)
        sizes = {name: getattr(arguments, name) for name in ("passages", "queries", "examples")}
        rows = {name: alone("--measure", str(folder)) for name in ("first", "again")}
    found = ", ".join(
        f"{name}: {row['seconds']:.0f} s to the first step, {row['own_gb']:.2f} GB beside the models at most, "
        f"{row['mapped_gb']:.2f} GB of mapped files"
        for name, row in rows.items()
    )
    print(f"{' '.join(f'{count:,} {name}' for name, count in sizes.items())}; {found}")
    print(json.dumps({**sizes, **rows, "limit_gb": LIMIT_GB, "within": rows["first"]["own_gb"] <= LIMIT_GB}))


def generate(folder: Path, passages: int, queries: int, examples: int) -> None:
    """A BEIR folder: ``examples`` judgements, of which one for each query says relevant."""
    words = vocabulary()
    draw = np.random.default_rng(1)
    (folder / "qrels").mkdir(parents=True)
    with (folder / "corpus.jsonl").open("w") as file:
        for number, text in enumerate(sentences(words, passages, WORDS_A_PASSAGE, draw)):
            file.write(f'{{"_id": "{number}", "title": "", "text": "{text}"}}\n')
    with (folder / "queries.jsonl").open("w") as file:
        for number, text in enumerate(sentences(words, queries, WORDS_A_QUERY, draw)):
            file.write(f'{{"_id": "q{number}", "text": "{text}"}}\n')
    each = max(examples // queries, 2)
    with (folder / "qrels" / "train.tsv").open("w") as file:
        file.write("query-id\tcorpus-id\tscore\n")
        for start in range(0, queries, 10_000):
            count = min(10_000, queries - start)
            for query, documents in enumerate(draw.integers(passages, size=(count, each)).tolist(), start):
                relevant, *others = dict.fromkeys(documents)
                file.write(f"q{query}\t{relevant}\t1\n" + "".join(f"q{query}\t{other}\t0\n" for other in others))


def vocabulary() -> list[str]:
    """Made-up words, the most frequent first, which are the shortest."""
    words: list[str] = []
    length = 1
    while len(words) < WORDS:
        grid = np.stack(np.unravel_index(np.arange(min(len(SYLLABLES) ** length, WORDS)), [len(SYLLABLES)] * length))
        words += ["".join(SYLLABLES[place] for place in column) for column in grid.T.tolist()]
        length += 1
    return words[:WORDS]


def sentences(words: list[str], count: int, mean: int, draw: np.random.Generator) -> Iterator[str]:
    """``count`` texts of four parts each, chosen from many parts whose words have Zipf's frequencies."""
    share = 1 / np.arange(1, len(words) + 1)
    bounds = np.cumsum(share / share.sum())
    parts = []
    for length in (1 + draw.poisson(mean / 4 - 1, PARTS)).tolist():
        places = np.minimum(np.searchsorted(bounds, draw.random(length)), len(words) - 1)
        parts.append(" ".join(words[place] for place in places.tolist()))
    for start in range(0, count, 100_000):
        for a, b, c, d in draw.integers(PARTS, size=(min(100_000, count - start), 4)).tolist():
            yield f"{parts[a]} {parts[b]} {parts[c]} {parts[d]}"


class FirstStep(Exception):
    """The first step of the optimiser is done."""


def measured(folder: Path) -> dict[str, float]:
    """Seconds until the first step, and peaks of memory."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from vtkit.data.collections import load_retrieval
    from vtkit.data.documents import keep_large_collections
    from vtkit.encoder.checkpoint import as_sparse_encoder
    from vtkit.encoder.scratch import scratch_model
    from vtkit.settings.finetune import FinetuneSection
    from vtkit.settings.source import Scratch
    from vtkit.training.finetune import finetune
    from vtkit.training.resuming import TrainingRun
    from vtkit.training.teachers import SparseTeacher
    from vtkit.vocabulary.existing import wrap

    keep_large_collections(folder / "kept")
    torch.set_num_threads(1)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *vocabulary()[:2000]]
    backend = Tokenizer(models.WordPiece({token: n for n, token in enumerate(tokens)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer = wrap(backend, dict(zip(("pad", "unk", "cls", "sep", "mask"), tokens, strict=False)), "of the benchmark")
    shape = Scratch(layers=1, hidden=16, heads=2, feed_forward=16, max_length=64)
    encoder, teacher = (
        as_sparse_encoder(scratch_model(shape, tokenizer), tokenizer, folder / f"model-{os.getpid()}-{name}")
        for name in ("student", "teacher")
    )
    section = FinetuneSection(
        data=str(folder / "collection"), loss="margin_mse", batch_size=BATCH, steps=STEPS, hard_negatives=1,
        query_length=16, document_length=32,
    )  # fmt: skip
    register_optimizer_step_post_hook(_stop)
    memory = Memory()
    begun = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(dir=folder) as checkpoints:
            data = load_retrieval(section.data, section.split)
            loaded = time.monotonic()
            finetune(
                encoder,
                data,
                section,
                TrainingRun(seed=1, folder=Path(checkpoints), language="en"),
                teachers=[SparseTeacher(teacher, 32)],
            )
    except FirstStep:
        own, mapped = memory.stop()
        seconds = time.monotonic() - begun
        return {"seconds": round(seconds, 1), "loading": round(loaded - begun, 1), "own_gb": own, "mapped_gb": mapped}
    raise SystemExit("training ended without a step")


def _stop(*_: object) -> None:
    raise FirstStep


class Memory(threading.Thread):
    """The peaks of this process's own memory and of mapped pages, looked at 20 times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.before = self.peak = self._now()
        self.ended = threading.Event()
        self.start()

    def run(self) -> None:
        while not self.ended.wait(0.05):
            self.peak = np.maximum(self.peak, self._now())

    def stop(self) -> tuple[float, float]:
        """What was taken beyond what there was, in GB: own, mapped."""
        self.ended.set()
        self.join()
        own, mapped = (np.maximum(self.peak, self._now()) - self.before) * 1024 / 1e9
        return round(float(own), 2), round(float(mapped), 2)

    @staticmethod
    def _now() -> np.ndarray:
        status = Path("/proc/self/status").read_text()
        return np.array([int(status.split(f"{name}:")[1].split()[0]) for name in ("RssAnon", "RssFile")])


if __name__ == "__main__":
    main()

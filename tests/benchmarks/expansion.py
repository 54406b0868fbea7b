"""Vocabulary expansion: vtkit's one pass against the algorithm as it is written, in one process.

    VTKIT_DATA=../shared python tests/benchmarks/expansion.py [--texts N] [--increment N] [--repeats N]

bert-base-uncased is expanded on biomed-abstracts-en by eight increments of 3,000 tokens. The peer trains a WordPiece
vocabulary with ``tokenizers`` for every size, cuts the whole corpus with it, and once more with the expanded
vocabulary for its entropy; it runs once, since it takes minutes. Its trainer numbers continuing characters in hash
order, so that equally frequent pairs may merge in another order: the last vocabularies must agree in 90 % of their
new tokens and in entropy to 0.5 %. (That vtkit's equal the algorithm's token for token is tests/test_expansion.py.)
The last line is one object of JSON; ``ratio`` is the peer's time over vtkit's median, ``cpu_ratio`` the same of
processor time, which other work on the machine changes less.
"""

import argparse
import gzip
import json
import math
import os
import statistics
import sys
import time
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from measuring import forget_peak, peak_mebibytes

from vtkit.settings.vocabulary import ExpandedVocabulary
from vtkit.vocabulary.existing import load_tokenizer
from vtkit.vocabulary.expanded import expand_vocabulary

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("VTKIT_DATA", ROOT.parent / "shared"))
BASE = SHARED / "vocab" / "bert-base-uncased"
CORPUS = SHARED / "data" / "text" / "biomed-abstracts-en.txt.gz"
INCREMENTS = 8
AT_ONCE = 1000


def cut(backend: Tokenizer, texts: list[str]) -> Counter[int]:
    """How often each token occurs."""
    counts = np.zeros(backend.get_vocab_size(), dtype=np.int64)
    for start in range(0, len(texts), AT_ONCE):
        for encoding in backend.encode_batch_fast(texts[start : start + AT_ONCE], add_special_tokens=False):
            np.add.at(counts, encoding.ids, 1)
    return Counter({number: int(count) for number, count in enumerate(counts) if count})


def entropy(counts: Counter[int]) -> float:
    total = counts.total()
    return math.fsum(count * math.log(count / total) for count in counts.values())


def naive(base: Tokenizer, texts: list[str], increment: int) -> tuple[list[str], float]:
    """The algorithm as it is written; the new tokens and the entropy of the last increment."""
    known = base.get_vocab()
    in_order = sorted(known, key=known.__getitem__)
    for number in range(1, INCREMENTS + 1):
        learned = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        learned.normalizer, learned.pre_tokenizer = base.normalizer, pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(
            vocab_size=len(known) + number * increment,
            min_frequency=2,
            show_progress=False,
            special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        )
        learned.train_from_iterator(texts, trainer)
        found = ((learned.id_to_token(token), count) for token, count in cut(learned, texts).most_common())
        new = [
            token
            for token, count in found
            if count > 1 and token not in known and any(letter.isalpha() for letter in token)
        ]
        added = new[: number * increment]
        vocabulary = {token: place for place, token in enumerate([*in_order, *added])}
        expanded = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
        expanded.normalizer, expanded.pre_tokenizer = base.normalizer, base.pre_tokenizer
        gained = entropy(cut(expanded, texts))
    return added, gained


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=None, help="only so many texts; default: all 17,276")
    parser.add_argument("--increment", type=int, default=3000, help="tokens of an increment")
    parser.add_argument("--repeats", type=int, default=3, help="timed runs of vtkit, after one that is not counted")
    arguments = parser.parse_args()
    if not CORPUS.is_file():
        raise SystemExit(f"{CORPUS} is not there: set VTKIT_DATA to the folder of the real collections")
    with gzip.open(CORPUS, "rt", encoding="utf-8") as file:
        texts = [line.rstrip("\n") for line in islice(file, arguments.texts)]
    increment = arguments.increment
    base = load_tokenizer(str(BASE))
    section = ExpandedVocabulary(
        kind="expanded",
        tokenizer="bert-base-uncased",
        corpus=(str(CORPUS),),
        increment=increment,
        size=len(base) + INCREMENTS * increment,
    )

    seconds, processor = [], []
    before = forget_peak()
    for _ in range(arguments.repeats + 1):
        started, used = time.perf_counter(), time.process_time()
        found = expand_vocabulary(base, iter(texts), section)
        seconds.append(time.perf_counter() - started)
        processor.append(time.process_time() - used)
    ours, memory = seconds[1:], peak_mebibytes() - before

    before = forget_peak()
    started, used = time.perf_counter(), time.process_time()
    added, reached = naive(base.backend_tokenizer, texts, increment)
    peer_processor = time.process_time() - used
    peer, peer_memory = time.perf_counter() - started, peak_mebibytes() - before

    shared = len(set(added) & set(found.added)) / len(found.added)
    if len(added) != len(found.added) or shared < 0.9 or abs(reached / found.expansion.curve[-1].entropy - 1) > 5e-3:
        raise SystemExit(
            f"the two sides disagree: {len(found.added)} and {len(added)} new tokens, {shared:.1%} of them the same, "
            f"entropy {found.expansion.curve[-1].entropy:.5f} and {reached:.5f}"
        )

    median, processor_median = statistics.median(ours), statistics.median(processor[1:])
    print(
        f"{len(texts)} texts, {INCREMENTS} increments of {increment}: vtkit {median:.1f} s (worst {max(ours):.1f}), "
        f"the algorithm as written {peer:.1f} s, {peer / median:.1f} times faster "
        f"({peer_processor / processor_median:.1f} times less processor time); {memory:.0f} MiB at its peak "
        f"against {peer_memory:.0f} MiB; {shared:.1%} of the new tokens are the same"
    )
    print(
        json.dumps(
            {
                "benchmark": "expansion",
                "texts": len(texts),
                "increments": INCREMENTS,
                "increment": increment,
                "cores": os.cpu_count(),
                "vtkit_median_seconds": round(median, 3),
                "vtkit_worst_seconds": round(max(ours), 3),
                "naive_seconds": round(peer, 3),
                "vtkit_cpu_seconds": round(processor_median, 3),
                "naive_cpu_seconds": round(peer_processor, 3),
                "vtkit_added_mebibytes": round(memory),
                "naive_added_mebibytes": round(peer_memory),
                "same_tokens": round(shared, 4),
                "ratio": round(peer / median, 2),
                "cpu_ratio": round(peer_processor / processor_median, 2),
            }
        )
    )


if __name__ == "__main__":
    main()

"""A vocabulary of 100k tokens learned from a corpus of 1 GB: seconds, and memory that does not grow with the corpus.

    VTKIT_DATA=../shared python tests/benchmarks/vocabulary_training.py [--megabytes 1000] [--size 100000] [--no-peer]

The corpus is that of fragmentation.py: real text, repeated with words respelled as often as real text has new ones. It
is written to a temporary folder, which goes away at the end, and read from there as a stream. vtkit counts its words,
and learns a vocabulary from it. The peer is ``WordPieceTrainer`` of ``tokenizers`` with the same normalizer and
pre-tokenizer, on the first ``--peer-megabytes`` of the corpus, against vtkit on the same. Each work has a process of
its own, and each peak is that of its process. The last line is one object of JSON; ``ratio`` is the peer's median time
over vtkit's.
"""

import argparse
import json
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fragmentation import growth, peak_mebibytes, real_lines, varied
from tokenizers import models, trainers

from vtkit.data.corpora import read_corpus
from vtkit.data.word_counts import count_chunks
from vtkit.settings.vocabulary import TrainedVocabulary
from vtkit.vocabulary.trained import _pipeline, train


def write_corpus(path: Path, megabytes: float, size: int) -> dict[str, Any]:
    """Real lines, then the same with variation, until the file has ``megabytes``."""
    lines = real_lines()
    endless = varied(lines, growth(lines), random.Random(1))
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < megabytes * 1e6:
            file.write("\n".join(islice(endless, 1000)) + "\n")
    return {}


def first_part(path: Path, megabytes: float) -> Iterator[str]:
    """The texts of the first ``megabytes`` of the corpus."""
    size = 0
    for text in read_corpus(path):
        yield text
        size += len(text.encode()) + 1
        if size >= megabytes * 1e6:
            return


def section(size: int) -> TrainedVocabulary:
    return TrainedVocabulary(kind="trained", corpus=("corpus.txt",), size=size, algorithm="wordpiece")


def count(path: Path, megabytes: float, size: int) -> dict[str, Any]:
    counts = count_chunks(first_part(path, megabytes))
    return {"texts": counts.texts, "chunks": counts.chunks, "distinct": len(counts)}


def learn(path: Path, megabytes: float, size: int) -> dict[str, Any]:
    training = train(first_part(path, megabytes), section(size))
    return {"size": len(training.tokenizer), "words": training.corpus.words, "distinct": training.corpus.distinct_words}


def peer(path: Path, megabytes: float, size: int) -> dict[str, Any]:
    learned = _pipeline(section(size), lowercase=False)
    learned.model = models.WordPiece(unk_token="[UNK]")
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=2,
        show_progress=False,
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
    )
    learned.train_from_iterator(first_part(path, megabytes), trainer)
    return {"size": learned.get_vocab_size()}


def _measured(connection: Any, work: Callable[..., dict[str, Any]], arguments: tuple[Any, ...]) -> None:
    started = time.perf_counter()
    facts = work(*arguments)
    seconds = time.perf_counter() - started
    connection.send({**facts, "seconds": round(seconds, 1), "peak_mebibytes": round(peak_mebibytes())})


def measured(work: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """What ``work`` gives, its seconds, and the largest resident size of a process that does nothing else, in MiB."""
    processes = multiprocessing.get_context("spawn")
    here, there = processes.Pipe(duplex=False)
    process = processes.Process(target=_measured, args=(there, work, arguments))
    process.start()
    there.close()
    try:
        facts: dict[str, Any] = here.recv()
    except EOFError:
        raise SystemExit(f"{work.__name__} failed") from None
    finally:
        process.join()
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=1000, help="of the corpus")
    parser.add_argument("--size", type=int, default=100_000, help="tokens of the vocabulary")
    parser.add_argument("--peer-megabytes", type=float, default=50, help="of the corpus, for the comparison")
    parser.add_argument("--repeats", type=int, default=3, help="timed runs of each side of the comparison")
    parser.add_argument("--no-peer", action="store_true", help="without the comparison")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vtkit-benchmark-") as folder:
        path = Path(folder, "corpus.txt")
        measured(write_corpus, path, given.megabytes, given.size)
        facts: dict[str, Any] = {
            "benchmark": "vocabulary training",
            "megabytes": round(path.stat().st_size / 1e6),
            "cores": os.cpu_count(),
            "count": measured(count, path, given.megabytes, given.size),
            "whole": measured(learn, path, given.megabytes, given.size),
        }
        if not given.no_peer:
            rounds = range(given.repeats)
            for name, work in (("vtkit", learn), ("peer", peer)):
                runs = [measured(work, path, given.peer_megabytes, given.size) for _ in rounds]
                seconds = [run["seconds"] for run in runs]
                facts |= {
                    f"{name}_median_seconds": statistics.median(seconds),
                    f"{name}_worst_seconds": max(seconds),
                    f"{name}_mebibytes": max(run["peak_mebibytes"] for run in runs),
                }
            facts["ratio"] = round(facts["peer_median_seconds"] / facts["vtkit_median_seconds"], 2)
    counted, whole = facts["count"], facts["whole"]
    print(
        f"{facts['megabytes']} MB, {counted['chunks']:,} words, {counted['distinct']:,} different: counted in "
        f"{counted['seconds']} s with {counted['peak_mebibytes']} MiB at the most; {whole['size']:,} tokens learned in "
        f"{whole['seconds']} s with {whole['peak_mebibytes']} MiB"
    )
    if not given.no_peer:
        print(
            f"{given.peer_megabytes:g} MB: vtkit {facts['vtkit_median_seconds']} s (worst "
            f"{facts['vtkit_worst_seconds']}, {facts['vtkit_mebibytes']} MiB), WordPieceTrainer "
            f"{facts['peer_median_seconds']} s (worst {facts['peer_worst_seconds']}, {facts['peer_mebibytes']} MiB): "
            f"{facts['ratio']} times as long"
        )
    print(json.dumps(facts))


if __name__ == "__main__":
    main()

"""A vocabulary of 100k tokens learned from a corpus of 1 GB: seconds, and memory that does not grow with the corpus.

    VTKIT_DATA=../shared python tests/benchmarks/vocabulary_training.py [--megabytes 1000] [--size 100000]

The corpus is real text, repeated with words respelled as often as real text has new ones. It is written to a temporary
folder, which goes away at the end, and read from there as a stream. vtkit counts its words, and learns a vocabulary
from it. The peer is ``WordPieceTrainer`` of ``tokenizers`` with the same normalizer and pre-tokenizer, on the first
``--peer-megabytes`` of the corpus, against vtkit on the same. Each work has a process of its own, and each peak is that
of its process. The last line is one object of JSON; ``ratio`` is the peer's median time over vtkit's.
"""

import argparse
import json
import multiprocessing
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from measuring import peak_mebibytes
from tokenizers import models, trainers

from vtkit.data.document_files import read_corpora, read_corpus
from vtkit.data.word_counts import count_chunks
from vtkit.settings.casing import CasingSection
from vtkit.settings.vocabulary import TrainedVocabulary
from vtkit.vocabulary.trained import _pipeline, train

SHARED = Path(os.environ.get("VTKIT_DATA", Path(__file__).resolve().parents[3] / "shared"))
CORPORA = (
    *("text/biomed-abstracts-en.txt.gz", "text/chem-preprints-en.txt.gz"),
    *("boolq-en", "squad-en", "scifact-en"),
)
_WORD = re.compile(r"[^\W\d_]{4,}")


def chunks_of(text: str) -> list[str]:
    return re.findall(r"\s*\S+", text)


def real_lines() -> list[str]:
    """The corpora, cut into lines of about a paragraph, in a random order."""
    lines = []
    for text in read_corpora(SHARED / "data" / name for name in CORPORA):
        words = text.split(" ")
        lines += [" ".join(words[start : start + 150]) for start in range(0, len(words), 150)]
    random.Random(0).shuffle(lines)
    return lines


def growth(lines: list[str]) -> float:
    """Distinct chunks that the second half of ``lines`` adds, over all its chunks."""
    half = len(lines) // 2
    first = {chunk for line in lines[:half] for chunk in chunks_of(line)}
    second = [chunk for line in lines[half:] for chunk in chunks_of(line)]
    return len(set(second) - first) / len(second)


def varied(lines: list[str], chance: float, generator: random.Random) -> Iterator[str]:
    """``lines``, and again ``lines`` with respelled words, and so on."""
    yield from lines
    letters = "aaeeiioouunnrrssttllccdmpghbfvyw"

    def respelled(match: re.Match[str]) -> str:
        word = match[0]
        if generator.random() >= share:
            return word
        place = generator.randrange(1, len(word))
        return word[:place] + "".join(generator.choices(letters, k=2)) + word[place:]

    words = sum(len(_WORD.findall(line)) for line in islice(lines, 1000))
    share = chance * sum(len(chunks_of(line)) for line in islice(lines, 1000)) / words
    while True:
        for line in lines:
            yield _WORD.sub(respelled, line)


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
    return {"texts": counts.texts, "chunks": counts.counts.total(), "distinct": len(counts.counts)}


def learn(path: Path, megabytes: float, size: int) -> dict[str, Any]:
    tokenizer, corpus = train(first_part(path, megabytes), section(size))
    return {"size": len(tokenizer), "words": corpus.words, "distinct": corpus.distinct_words}


def peer(path: Path, megabytes: float, size: int) -> dict[str, Any]:
    learned = _pipeline(section(size), CasingSection(), marks_starts=False)
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
        for name, work in (("vtkit", learn), ("peer", peer)):
            runs = [measured(work, path, given.peer_megabytes, given.size) for _ in range(given.repeats)]
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
    print(
        f"{given.peer_megabytes:g} MB: vtkit {facts['vtkit_median_seconds']} s (worst "
        f"{facts['vtkit_worst_seconds']}, {facts['vtkit_mebibytes']} MiB), WordPieceTrainer "
        f"{facts['peer_median_seconds']} s (worst {facts['peer_worst_seconds']}, {facts['peer_mebibytes']} MiB): "
        f"{facts['ratio']} times as long"
    )
    print(json.dumps(facts))


if __name__ == "__main__":
    main()

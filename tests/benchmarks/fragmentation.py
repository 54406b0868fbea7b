"""Fragmentation of 50 MB of text under five tokenizers, against ``encode_batch`` over every line, in one process.

    VTKIT_DATA=../shared python tests/benchmarks/fragmentation.py [--megabytes 50] [--repeats 3]

The text is real (biomedical abstracts, chemistry preprints, Wikipedia passages behind BoolQ and SQuAD, SciFact) and,
where it is not enough, repeated with variation: in each further round a word of four letters or more is respelled, with
the chance that a word of real text at this place would be new, into a word that the corpus has not seen. The chance is
estimated from the text itself: the distinct chunks that its second half adds. So the number of distinct chunks grows
as in real text, and is printed. Both sides use the same threads. The peer does nothing with its encodings; vtkit
measures everything it reports. Token totals of both sides are compared. The last line is one object of JSON; ``ratio``
is the peer's median time over vtkit's.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from memory import forget_peak, peak_mebibytes

from vtkit.data.corpora import read_corpora
from vtkit.inspect.fragmentation import measure_fragmentation
from vtkit.vocabulary.existing import load_tokenizer

SHARED = Path(os.environ.get("VTKIT_DATA", Path(__file__).resolve().parents[3] / "shared"))
CORPORA = (
    *("text/biomed-abstracts-en.txt.gz", "text/chem-preprints-en.txt.gz"),
    *("boolq-en", "squad-en", "scifact-en"),
)
TOKENIZERS = ("bert-base-uncased", "bert-base-cased-unilm", "ModernBERT-base", "gpt2", "unilm3-cased-spm")
LINES_AT_ONCE = 1000
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


def corpus(megabytes: float) -> tuple[list[str], dict[str, Any]]:
    """Lines of ``megabytes`` in UTF-8, and what there is to say about them."""
    lines = real_lines()
    real = sum(len(line.encode()) for line in lines)
    chance = growth(lines)
    generator = random.Random(1)
    endless = varied(lines, chance, generator)
    kept, size = [], 0
    while size < megabytes * 1e6:
        kept.append(next(endless))
        size += len(kept[-1].encode()) + 1
    chunks = [chunk for line in kept for chunk in chunks_of(line)]
    facts = {
        "megabytes": round(size / 1e6, 1),
        "real_megabytes": round(min(real, size) / 1e6, 1),
        "lines": len(kept),
        "chunks": len(chunks),
        "distinct_chunks": len(set(chunks)),
        "respelled_share": round(chance, 4),
    }
    return kept, facts


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


def timed(work: Callable[[], Any], repeats: int) -> tuple[list[float], float, Any]:
    """Seconds of each of ``repeats`` calls, processor seconds of a call (all threads), and what the last gave."""
    seconds = []
    result = None
    before = time.process_time()
    for _ in range(repeats):
        started = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - started)
    return seconds, (time.process_time() - before) / repeats, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=50)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    tokenizers = {name: load_tokenizer(str(SHARED / "vocab" / name), require_roles=False) for name in TOKENIZERS}
    lines, facts = corpus(arguments.megabytes)

    def every_line() -> dict[str, int]:
        totals = dict.fromkeys(tokenizers, 0)
        for name, tokenizer in tokenizers.items():
            backend = tokenizer.backend_tokenizer
            for start in range(0, len(lines), LINES_AT_ONCE):
                encodings = backend.encode_batch(lines[start : start + LINES_AT_ONCE], add_special_tokens=False)
                totals[name] += sum(map(len, encodings))
        return totals

    measure_fragmentation(lines[:200], tokenizers)
    for tokenizer in tokenizers.values():
        tokenizer.backend_tokenizer.encode_batch(lines[:200])
    before = forget_peak()
    ours, our_work, found = timed(lambda: measure_fragmentation(lines, tokenizers), arguments.repeats)
    our_peak = peak_mebibytes() - before
    before = forget_peak()
    theirs, their_work, totals = timed(every_line, arguments.repeats)
    their_peak = peak_mebibytes() - before
    if totals != {one.name: one.total.tokens for one in found}:
        raise SystemExit(f"the two sides disagree: {totals}")
    median, peer = statistics.median(ours), statistics.median(theirs)
    print(
        f"{facts['megabytes']} MB ({facts['real_megabytes']} real), {facts['lines']} lines, "
        f"{facts['chunks']:,} chunks, "
        f"{facts['distinct_chunks']:,} distinct, {len(tokenizers)} tokenizers, {os.cpu_count()} cores: vtkit "
        f"{median:.1f} s (worst {max(ours):.1f}), encode_batch over every line {peer:.1f} s (worst {max(theirs):.1f}), "
        f"{peer / median:.1f} times faster; {our_work:.1f} and {their_work:.1f} processor seconds; "
        f"{our_peak:.0f} and {their_peak:.0f} MiB at their peaks beside the text"
    )
    print(
        json.dumps(
            {
                "benchmark": "fragmentation",
                **facts,
                "tokenizers": list(tokenizers),
                "cores": os.cpu_count(),
                "vtkit_median_seconds": round(median, 2),
                "vtkit_worst_seconds": round(max(ours), 2),
                "peer_median_seconds": round(peer, 2),
                "peer_worst_seconds": round(max(theirs), 2),
                "ratio": round(peer / median, 2),
                "processor_seconds": {"vtkit": round(our_work, 2), "peer": round(their_work, 2)},
                "peak_mib_beside_the_text": {"vtkit": round(our_peak), "peer": round(their_peak)},
            }
        )
    )


if __name__ == "__main__":
    main()

"""A trimmed encoder beside the whole one: whether its states are the same to the bit, parameters, and seconds.

    python tests/benchmarks/trimming.py TEXTS MODEL [MODEL ...] [--texts 10000]

MODEL is a folder of a sparse encoder, a dense embedder, or a tokenizer, for which a small BERT of random weights is
made. TEXTS (text, .gz) is what each vocabulary is trimmed to. Texts are read one by one, so that none is padded.
"""

import argparse
import json
import time
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from sentence_transformers import SparseEncoder

from vtkit.data.corpora import read_corpora
from vtkit.encoder.checkpoint import as_sparse_encoder, load_encoder, load_with_new_head
from vtkit.encoder.scratch import scratch_model
from vtkit.settings.source import Scratch
from vtkit.system.errors import DataError
from vtkit.transfer.surgery.graft import trim_encoder
from vtkit.vocabulary.existing import load_tokenizer
from vtkit.vocabulary.trimmed import trim_vocabulary


def loaded(name: str, work: Path) -> SparseEncoder:
    """The encoder in a folder, or a new one over its tokenizer."""
    if not (Path(name) / "config.json").is_file():
        tokenizer = load_tokenizer(name)
        return as_sparse_encoder(scratch_model(Scratch(layers=2, hidden=128, heads=2), tokenizer), tokenizer, work)
    try:
        return load_encoder(name)
    except DataError:
        return load_with_new_head(name)


def states(encoder: SparseEncoder, texts: list[str]) -> tuple[list[torch.Tensor], float]:
    """The last states of each text, and seconds."""
    body, begun = encoder[0].auto_model.base_model, time.perf_counter()
    with torch.inference_mode():
        found = [
            body(input_ids=torch.tensor([encoder.tokenizer(text, truncation=True, max_length=64)["input_ids"]]))[0]
            for text in texts
        ]
    return found, time.perf_counter() - begun


def main() -> None:
    """Print a line of JSON for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--texts", type=int, default=10_000)
    given = parser.parse_args()
    texts = list(islice(read_corpora([given.corpus]), given.texts))
    for name in given.models:
        with TemporaryDirectory() as folder:
            whole = loaded(name, Path(folder) / "whole")
            trimmed = trim_encoder(whole, trim_vocabulary(whole.tokenizer, texts)[0], Path(folder) / "trimmed")
            equal, seconds = 0, [0.0, 0.0]
            for begin in range(0, len(texts), 500):
                some = texts[begin : begin + 500]
                (before, first), (after, second) = states(whole, some), states(trimmed, some)
                equal += sum(map(torch.equal, before, after))
                seconds = [seconds[0] + first, seconds[1] + second]
            parameters = [sum(weight.numel() for weight in each.parameters()) for each in (whole, trimmed)]
            report = {
                "model": Path(name).name,
                "tokenizer": type(whole.tokenizer.backend_tokenizer.model).__name__,
                "texts": len(texts),
                "equal_to_the_bit": equal,
                "tokens": [len(whole.tokenizer), len(trimmed.tokenizer)],
                "parameters": parameters,
                "share_of_parameters": round(parameters[1] / parameters[0], 3),
                "seconds": [round(value, 1) for value in seconds],
            }
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()

"""Queries written by a model: a sequence-to-sequence model reads a document and writes what it answers (docT5query,
GPL: Wang et al. 2022, arXiv:2112.07577)."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer

from vtkit.data.executors import in_order
from vtkit.encoder.model_folder import SAFELY, library_errors, load_complete, model_folder, refuse_lacking
from vtkit.system import console
from vtkit.system.errors import DataError
from vtkit.system.outputs import write_atomically
from vtkit.system.runtime import HoldsModels, fastest_device, without_notices

QUERIES_FOLDER = "generated-queries"

QUERIES = 3  # of each text, as in GPL

TEXTS_AT_ONCE = 16  # texts whose queries are sampled together and are one file: what a killed run loses at most

FEW_FILES = 32  # below which other processes are not worth starting

TOP_K = 25
TOP_P = 0.95
"""Each token is sampled from so many of the likeliest, and among these from the fewest that have this probability."""

LONGEST_QUERY = 64  # tokens of the generator that a query may have


@dataclass(frozen=True)
class QueryGenerator(HoldsModels):
    """A sequence-to-sequence model that writes queries."""

    model: Any
    tokenizer: Any
    max_length: int  # tokens of the generator that a document is cut at

    def queries(self, texts: Sequence[str], seed: int, folder: Path) -> list[list[str]]:
        """Queries of each text, :data:`QUERIES` or fewer (blank ones and repetitions are left out), sampled with
        :data:`TOP_K` and :data:`TOP_P`, and kept in files below ``folder``: a killed run ends in the same queries."""
        kept = folder / QUERIES_FOLDER
        kept.mkdir(parents=True, exist_ok=True)
        tasks = (
            (kept, texts[start : start + TEXTS_AT_ONCE], seed + start) for start in range(0, len(texts), TEXTS_AT_ONCE)
        )
        of_texts: list[list[str]] = []
        with console.progress("writing queries", total=len(texts)) as bar:
            for written in in_order(self, tasks, bar, FEW_FILES):
                of_texts += written
                bar.advance(len(written))
        without = sum(not queries for queries in of_texts)
        if without == len(of_texts):
            raise DataError("The query generator writes only blank queries. Name another model in distill.queries.")
        if without:
            console.say(
                f"  the generator writes no query for {without} of {len(of_texts)} texts; their openings are used"
            )
        return of_texts

    def __call__(self, task: tuple[Path, Sequence[str], int], bar: console.Bar | None) -> list[list[str]]:
        """The queries of some texts, which are one file in a folder, sampled with a seed."""
        kept, texts, seed = task
        file = kept / f"{hashlib.sha256(json.dumps([seed, *texts]).encode()).hexdigest()}.json"
        try:
            written: list[list[str]] = json.loads(file.read_text("utf-8"))
        except (OSError, ValueError):
            written = self._sampled(texts, seed)
            write_atomically(file, json.dumps(written, ensure_ascii=False))
        return written

    def _sampled(self, texts: Sequence[str], seed: int) -> list[list[str]]:
        read = self.tokenizer(
            list(texts), truncation=True, max_length=self.max_length, padding=True, return_tensors="pt"
        ).to(self.model.device)
        devices = [self.model.device] if self.model.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), torch.no_grad(), without_notices():
            torch.manual_seed(seed)
            tokens = self.model.generate(
                input_ids=read["input_ids"],
                attention_mask=read["attention_mask"],
                do_sample=True,
                top_k=TOP_K,
                top_p=TOP_P,
                num_return_sequences=QUERIES,
                max_new_tokens=LONGEST_QUERY,
            )
        written = [" ".join(query.split()) for query in self.tokenizer.batch_decode(tokens, skip_special_tokens=True)]
        return [
            list(dict.fromkeys(query for query in written[start : start + QUERIES] if query))
            for start in range(0, len(written), QUERIES)
        ]


def load_generator(name: str, max_length: int) -> QueryGenerator:
    """The generator of that name: a hub id or a folder."""
    label = f"query generator {name}"
    folder = model_folder(name, "query generator")
    with library_errors(f"{label} cannot be loaded"), without_notices():
        sequence_to_sequence = AutoConfig.from_pretrained(folder, **SAFELY).is_encoder_decoder
        if not sequence_to_sequence:
            raise DataError(f"{label} is not a sequence-to-sequence model such as T5. Name one that writes queries.")
        model, missing = load_complete(AutoModelForSeq2SeqLM, folder, label)
        refuse_lacking(label, model, missing)
        tokenizer = AutoTokenizer.from_pretrained(folder, **SAFELY)
    return QueryGenerator(model.float().eval().to(fastest_device()), tokenizer, max_length)

"""p(target token | source token) of the parallel text that a transfer learns from, for queries in the source's
language (:mod:`vtkit.search.bridge_queries`)."""

import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from vtkit.data.parallel import languages_of
from vtkit.search.bridge_queries import FOLDER as FOLDER
from vtkit.search.bridge_queries import RECORD, SOURCE, TABLE, TARGET, BridgeRecord
from vtkit.transfer.methods.bitext import Bitext, pairs_in, read_bitext, strongest
from vtkit.transfer.methods.parallel import AGREEMENT, in_agreement, translation_probabilities
from vtkit.vocabulary.pair import VocabularyPair

ITERATIONS, LEAST = 8, 0.05
"""Of the method ``parallel``, whose translations these are in the other direction."""


def write_bridge(folder: Path, files: Sequence[str | Path], pair: VocabularyPair) -> None:
    """Write the table of ``files``, its record and both tokenizers into ``folder``, which is made."""
    folder.mkdir()
    tokenizers = pair.source.tokenizer, pair.target.tokenizer
    pairs = list(islice(pairs_in(files, *tokenizers), 4000))
    bitext = read_bitext(pair, pairs_in(files, *tokenizers))
    sp.save_npz(folder / TABLE, query_translations(bitext, pair))
    record = BridgeRecord(languages_of(pairs)[0], len(bitext))
    (folder / RECORD).write_text(json.dumps(record.to_json()), encoding="utf-8")
    for tokenizer, side in zip(tokenizers, (SOURCE, TARGET), strict=True):
        tokenizer.save_pretrained(str(folder / side))


def query_translations(bitext: Bitext, pair: VocabularyPair) -> sp.csr_matrix:
    """p(target token | source token), (source rows, target vocabulary) float32, rows that sum to one or are empty; in
    agreement with the other direction. A source token that is nowhere in the text stands for itself."""
    sources, targets = pair.source_rows, pair.overlap.target_size
    forward = translation_probabilities(bitext.turned(), targets, sources, ITERATIONS)
    backward = translation_probabilities(bitext, sources, targets, ITERATIONS)
    table = strongest(in_agreement(forward, backward, AGREEMENT), LEAST)
    known = pair.overlap.overlap_ids
    same = pair.overlap.target_to_source[known]
    unseen = np.diff(table.indptr)[same] == 0
    identity = sp.csr_matrix((np.ones(unseen.sum()), (same[unseen], known[unseen])), shape=table.shape)
    sums = np.asarray(identity.sum(axis=1)).ravel()
    identity = sp.csr_matrix(sp.diags_array(1.0 / np.where(sums > 0, sums, 1.0)) @ identity)
    return sp.csr_matrix(table + identity, dtype=np.float32)

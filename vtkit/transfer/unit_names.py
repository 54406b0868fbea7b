"""Names of latent units: the words whose tokens fire them, against how often these words occur.

With p(w | u) the share of the weight of unit u that falls on tokens of the word w, and p(w) the word's share of all
tokens, a unit is named by the three words that add most to its mean pointwise mutual information,

    p(w | u) log (p(w | u) / p(w)).

Pointwise mutual information alone prefers the rarest words. A word is *common*, in any language, if it is frequent and
spread over the texts as if by chance: if its residual inverse document frequency (Church and Gale 1995) is small,

    log₂ Σ_d (1 - exp(-p n_d)) - log₂ df,

with p the word's share of all words, n_d the words of text d, and df the texts that hold it; the sum is the number of
texts that a Poisson process would put it into. The patients of a medical collection are frequent and not common,
because they cluster. A unit that mostly common words and punctuation fire tells no text apart: the words of
the largest p(w | u) stand in brackets, ``331:(of the in)``.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from vtkit.encoder.fitted_head import Head, States
from vtkit.vocabulary.words import word_spans

NAMED_BY = 3
TOKENS_READ = 65_536  # tokens whose units and words are counted
CHARACTERS_READ = 2000  # of each of their texts
AT_ONCE = 1024

FREQUENT = 1 / 500  # share of all words from which on a word may be common
CLUSTERED = 0.65  # bits of residual inverse document frequency from which on it is not


def unit_names(head: Head, rows: Tensor, bias: Tensor, states: States, texts: Sequence[str], seed: int) -> list[str]:
    """The name of each unit: its number and the words that fire it, or the number alone if nothing does.

    Args:
        head: hands the states of tokens on to the decoder.
        rows, bias: the decoder's of the units, (units, width) and (units,).
        texts: the texts of ``states``.
    """
    drawn = np.sort(np.random.default_rng(seed).permutation(len(states.ids))[:TOKENS_READ])
    words, of_token, common = words_of(states.places[drawn], texts)
    parts = []
    with torch.no_grad():
        for begin in range(0, len(drawn), AT_ONCE):
            fired = nn.functional.linear(
                head.output(states.batch(drawn[begin : begin + AT_ONCE])[0]), rows, bias
            ).relu()
            token, unit = (places.cpu().numpy() for places in fired.nonzero(as_tuple=True))
            parts.append((fired[fired > 0].cpu().numpy(), unit, of_token[begin + token]))
    weights, units, columns = (np.concatenate(part) for part in zip(*parts, strict=True))
    fired_by = sparse.csr_matrix((weights, (units, columns)), (len(rows), len(words)))
    sums = fired_by.sum(axis=1).A1
    of_common = fired_by[:, common].sum(axis=1).A1
    of_all = np.bincount(of_token, minlength=len(words)) / len(drawn)
    names = []
    for number, (start, stop) in enumerate(pairwise(fired_by.indptr)):
        by_common = 2 * of_common[number] >= sums[number]
        held, shares = fired_by.indices[start:stop], fired_by.data[start:stop] / sums[number]
        gains = shares if by_common else np.where(common[held], 0.0, shares * np.log(shares / of_all[held]))
        gains[held == 0] = 0.0
        best = held[np.argsort(-gains, kind="stable")[: min(NAMED_BY, np.count_nonzero(gains > 0))]]
        shown = " ".join(words[word] for word in best)
        shown = shown if shown and not by_common else f"({shown})"
        names.append(f"{number}:{shown}" if len(held) else f"{number}")
    return names


def words_of(places: NDArray[np.int64], texts: Sequence[str]) -> tuple[list[str], NDArray[np.int64], NDArray[np.bool_]]:
    """The words of the texts of some tokens, in lower case; the word that each token ends in, (tokens,); and which
    words are common, (words,). The first word is the empty one, for punctuation, and common.

    Args:
        places: :attr:`vtkit.encoder.fitted_head.States.places` of the tokens, (tokens, 2).
    """
    numbers, counts, held = {"": 0}, Counter[int](), Counter[int]()
    of_token, lengths = np.zeros(len(places), dtype=np.int64), []
    order = np.argsort(places[:, 0], kind="stable")
    listed, first = np.unique(places[order, 0], return_index=True)
    for text, tokens in zip(listed, np.split(order, first[1:]), strict=True):
        read = texts[text][:CHARACTERS_READ]
        spans = list(word_spans(read))
        found = [numbers.setdefault(read[start:stop].lower(), len(numbers)) for start, stop in spans]
        counts.update(found)
        held.update(set(found))
        lengths.append(len(found))
        for token in tokens:
            last = int(places[token, 1]) - 1
            nearest = bisect_right(spans, (last, math.inf)) - 1
            if nearest >= 0 and last < spans[nearest][1]:
                of_token[token] = found[nearest]
    common = np.zeros(len(numbers), dtype=bool)
    common[0] = True
    for word, count in counts.items():
        share = count / counts.total()
        if share >= FREQUENT:
            by_chance = -np.expm1(-share * np.array(lengths)).sum()
            common[word] = math.log2(by_chance / held[word]) < CLUSTERED
    return list(numbers), of_token, common

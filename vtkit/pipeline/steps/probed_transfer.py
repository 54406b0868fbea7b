"""``method = "auto"`` decided by a probe: retrieval with the rows of the rule and with those of its alternatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from vtkit.pipeline.stage import View
from vtkit.pipeline.steps.source import starts_untrained
from vtkit.pipeline.steps.texts import probe_texts, read_texts
from vtkit.system import console

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder
    from transformers import PreTrainedTokenizerFast

    from vtkit.settings.transfer import TransferSection
    from vtkit.transfer.encoder import Transfer

RULE = "rule"

PAIRS, LENGTH = 200, 128  # snippet pairs, and tokens that their texts are cut at


def transfer(
    recipe: View, section: TransferSection, source: SparseEncoder, target: PreTrainedTokenizerFast, work: Path
) -> Transfer:
    """:func:`vtkit.transfer.encoder.move_encoder`, by :func:`probed_transfer` where a probe can say something: not for
    an untrained source, which never learned to retrieve. The tokens of the target texts, if any, are counted once; word
    vectors are trained on them, and the snippets cut out of them."""
    from vtkit.transfer.encoder import move_encoder
    from vtkit.transfer.surgery.bias import count_tokens

    corpora, seed = recipe.corpora("transfer.bias.corpus"), recipe.recipe.seed
    counts = cache(lambda: count_tokens(target, read_texts(corpora)) if corpora else None)

    def move(asked: TransferSection, folder: Path) -> Transfer:
        texts = partial(read_texts, corpora)
        return move_encoder(
            source, target, asked, counts=counts, method_texts=texts, casing=recipe.casing, seed=seed, work=folder
        )

    if starts_untrained(recipe) or not corpora:
        return move(section, work)
    return probed_transfer(move, section, lambda count: probe_texts(corpora, count, seed), seed, work)


def probed_transfer(
    move: Callable[[TransferSection, Path], Transfer],
    section: TransferSection,
    texts: Callable[[int], Sequence[str]],
    seed: int,
    work: Path,
) -> Transfer:
    """The transfer by ``section`` or by that alternative to it which finds most snippets, made by ``move`` in a
    folder below ``work``.

    Snippets are cut out of target texts alone, of which ``texts`` gives so many. An alternative is taken where its mean
    reciprocal rank is the highest, and higher than the rule's with p < 0.05 (paired randomization).
    """
    from vtkit.data.synthetic_queries import FEWEST_PAIRS, snippet_pairs
    from vtkit.evaluation.gates.retrieval import reciprocal_ranks
    from vtkit.search.measures.significance import CHANCE, paired_randomization
    from vtkit.transfer.methods.auto import alternatives
    from vtkit.transfer.result import Probed

    moved = move(section, work / RULE)
    others = alternatives(section)
    if not others or not len(moved.pair.overlap.new_ids):
        return moved
    pairs = snippet_pairs(texts(2 * PAIRS), PAIRS, seed)
    if len(pairs) < FEWEST_PAIRS:
        console.say(f"auto follows its rule without a probe, because the texts give only {len(pairs)} snippets")
        return moved
    by_rule = reciprocal_ranks(moved.encoder, pairs, LENGTH)
    tried_methods = [Probed(RULE, float(by_rule.mean()), None, taken=True)]
    best = 0
    for number, (name, other) in enumerate(others.items(), 1):
        tried = move(other, work / str(number))
        ranks = reciprocal_ranks(tried.encoder, pairs, LENGTH)
        p = paired_randomization(dict(enumerate(ranks)), dict(enumerate(by_rule)))
        tried_methods.append(Probed(name, float(ranks.mean()), p, taken=False))
        if p < CHANCE and tried_methods[-1].reciprocal_rank > tried_methods[best].reciprocal_rank:
            moved, best = tried, number
    tried_methods = [replace(method, taken=number == best) for number, method in enumerate(tried_methods)]
    console.say(
        f"auto, mean reciprocal rank over {len(pairs)} snippets: "
        + ", ".join(
            f"{method.name} {method.reciprocal_rank:.3f}" + ("" if method.p is None else f" (p = {method.p:.3f})")
            for method in tried_methods
        )
        + f"; chosen: {tried_methods[best].name}"
    )
    return replace(moved, probed=tuple(tried_methods))

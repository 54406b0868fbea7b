"""Overlap-aware masking: the rate that is asked for, whatever the weights, and who is masked how often."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vtkit.data.sequences import Ragged
from vtkit.training.masking import IGNORED, MaskedBatches, masking_probabilities

WEIGHTS = st.lists(st.floats(2**-7, 2**7, width=32), min_size=1, max_size=40)


@given(WEIGHTS, st.floats(0.01, 0.99), st.data())
def test_the_expected_share_of_masked_positions_is_the_mask_rate(
    weights: list[float], rate: float, data: st.DataObject
) -> None:
    maskable = torch.tensor(data.draw(st.lists(st.booleans(), min_size=len(weights), max_size=len(weights))))
    found = masking_probabilities(torch.tensor([weights]), maskable[None], rate)[0]
    assert found.sum().item() == pytest.approx(rate * maskable.sum().item(), rel=1e-4)
    assert not found[~maskable].any()
    assert found.min() >= 0
    assert found.max() <= 1


@given(WEIGHTS, st.floats(0.01, 0.99))
def test_below_one_probabilities_are_proportional_to_the_weights(weights: list[float], rate: float) -> None:
    omega = torch.tensor([weights])
    found = masking_probabilities(omega, torch.ones_like(omega, dtype=torch.bool), rate)[0]
    free = found < 1
    ratios = found[free] / omega[0, free]
    torch.testing.assert_close(ratios, ratios[:1].expand_as(ratios), rtol=1e-4, atol=0)
    # what is clipped would have had more than one by that proportion
    assert not free.any() or bool((omega[0, ~free] * ratios[0] >= 1 - 1e-4).all())


@pytest.mark.parametrize(
    ("weights", "maskable", "rate", "expected"),
    [
        # each text keeps the rate by itself, one with nothing maskable too
        ([[1.0, 1, 2, 2], [2, 2, 2, 1]], [[1, 1, 1, 1], [1, 1, 0, 0]], 0.3, [[0.2, 0.2, 0.4, 0.4], [0.3, 0.3, 0, 0]]),
        ([[1.0] * 3] * 2, [[0, 0, 0], [1, 1, 1]], 0.4, [[0.0] * 3, [0.4] * 3]),
        ([[10.0, 1, 1, 1]], [[1, 1, 1, 1]], 0.5, [[1, 1 / 3, 1 / 3, 1 / 3]]),  # what the clip takes is spread
    ],
)
def test_probabilities_by_hand(
    weights: list[list[float]], maskable: list[list[int]], rate: float, expected: list[list[float]]
) -> None:
    found = masking_probabilities(torch.tensor(weights), torch.tensor(maskable).bool(), rate)
    torch.testing.assert_close(found, torch.tensor(expected))


SPECIAL = torch.tensor([0, 1, 2, 3, 4])
VOCABULARY, MASK = 50, 4


def masked_by(
    weights: torch.Tensor, rate: float, ids: torch.Tensor, attention: torch.Tensor, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    batches = MaskedBatches(Ragged.of([]), [], weights, SPECIAL, MASK, 0, rate, 0)
    return batches.masked(ids, ids, attention.bool() & ~torch.isin(ids, SPECIAL), generator)


def masked(seed: int = 0, texts: int = 4000, weight: float = 2.0, rate: float = 0.3) -> tuple[torch.Tensor, ...]:
    """Texts [CLS] + 12 tokens (the upper half of the vocabulary is new) + [SEP], padded with two; and their masking."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, VOCABULARY, (texts, 16), generator=generator)
    ids[:, 0], ids[:, 13], ids[:, 14:] = 2, 3, 0
    attention = (torch.arange(16) < 14).long().expand(texts, 16)
    weights = torch.ones(VOCABULARY)
    weights[VOCABULARY // 2 :] = weight
    inputs, labels = masked_by(weights, rate, ids, attention, generator)
    return ids, attention, inputs, labels


def test_special_tokens_and_padding_are_never_masked_and_never_put_in() -> None:
    ids, attention, inputs, labels = masked()
    untouchable = torch.isin(ids, SPECIAL) | (attention == 0)
    assert torch.equal(inputs[untouchable], ids[untouchable])
    assert (labels[untouchable] == IGNORED).all()
    changed = inputs != ids
    put_in = inputs[changed & (inputs != MASK)]
    assert len(put_in) > 0
    assert not torch.isin(put_in, SPECIAL).any()
    chosen = labels != IGNORED  # labels are the tokens that stood there
    assert torch.equal(labels[chosen], ids[chosen])
    assert torch.equal(inputs[~chosen], ids[~chosen])


def test_padding_is_left_alone_even_where_it_looks_like_a_token() -> None:
    ids = torch.full((200, 6), 9)
    attention = torch.tensor([1, 1, 1, 0, 0, 0]).expand(200, 6)
    generator = torch.Generator().manual_seed(1)
    inputs, labels = masked_by(torch.ones(VOCABULARY), 0.9, ids, attention, generator)
    assert (inputs[:, 3:] == 9).all()
    assert (labels[:, 3:] == IGNORED).all()
    assert (labels[:, :3] != IGNORED).float().mean().item() == pytest.approx(0.9, abs=0.05)


def test_of_the_chosen_tokens_80_percent_are_masked_10_random_and_10_stay() -> None:
    ids, _, inputs, labels = masked(texts=6000)
    chosen = labels != IGNORED
    was, became = ids[chosen], inputs[chosen]
    assert (became == MASK).float().mean().item() == pytest.approx(0.8, abs=0.01)
    # one random token in 45 is the token itself
    assert (became == was).float().mean().item() == pytest.approx(0.1 + 0.1 / 45, abs=0.01)
    put_in = became[(became != MASK) & (became != was)]
    assert torch.bincount(put_in, minlength=VOCABULARY)[5:].min() > 0


@pytest.mark.parametrize("weight", [0.5, 1.0, 2.0, 3.0])
def test_new_tokens_are_masked_as_many_times_as_often_as_their_weight_says(weight: float) -> None:
    ids, attention, _, labels = masked(weight=weight, rate=0.2, texts=20000)
    chosen = labels != IGNORED
    real = (attention == 1) & ~torch.isin(ids, SPECIAL)
    new, old = real & (ids >= VOCABULARY // 2), real & (ids < VOCABULARY // 2)
    both = new.any(dim=1) & old.any(dim=1)
    # within a text the ratio is exact; compare texts with as many new tokens as old ones
    even = both & (new.sum(dim=1) == old.sum(dim=1))
    ratio = chosen[even][new[even]].float().mean() / chosen[even][old[even]].float().mean()
    assert ratio.item() == pytest.approx(weight, rel=0.08)
    assert chosen[real].float().mean().item() == pytest.approx(0.2, abs=0.005)


def test_tokens_of_weight_0_are_read_as_they_are_and_do_not_count_for_the_rate() -> None:
    ids, attention, inputs, labels = masked(texts=6000, weight=0.0)
    real = (attention == 1) & ~torch.isin(ids, SPECIAL)
    hidden = real & (ids >= VOCABULARY // 2)
    assert torch.equal(inputs[hidden], ids[hidden])
    assert (labels[hidden] == IGNORED).all()
    assert (labels[real & ~hidden] != IGNORED).float().mean().item() == pytest.approx(0.3, abs=0.01)

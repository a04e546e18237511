"""The client's samplers draw what they say: inclusion, independence, loads; they go on; shards are parts of a whole.

Keys are given, so that a test always ends the same way. `Dealt` is what the tests must catch: a permutation, dealt out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from epsilond_client import samplers
from epsilond_client.samplers import (
    Blocks,
    CyclicPoisson,
    FixedOrderEpochs,
    Poisson,
    RandomAllocation,
    Sampler,
    TruncatedPoisson,
)
from epsilond_client.samplers.sampler import arguments_of
from scipy import stats

RECORDS, BINS, STEPS = 60, 6, 6000
KEY = bytes(range(32))
POISSON = Poisson(RECORDS, STEPS, sampling_probability=0.15, key=KEY)
CUT = TruncatedPoisson(RECORDS, STEPS, sampling_probability=0.15, max_batch_size=9, key=KEY)
SLOTS = TruncatedPoisson(
    50, STEPS, sampling_probability=0.15, max_batch_size=9, truncation="random_slots", slots=RECORDS, key=KEY
)
ALLOCATION = RandomAllocation(RECORDS, STEPS, num_bins=BINS, key=KEY)
BLOCKS = Blocks(RECORDS, STEPS, num_bins=15, participations=4, key=KEY)
TURNS = CyclicPoisson(RECORDS, STEPS, sampling_probability=0.45, cycle_length=3, assignment="independent", key=KEY)
ORDER = FixedOrderEpochs(RECORDS, STEPS, steps_per_epoch=7)
EVERY = pytest.mark.parametrize(
    "sampler", [POISSON, CUT, SLOTS, ALLOCATION, BLOCKS, TURNS, ORDER], ids=lambda sampler: sampler.kind
)


class Dealt(RandomAllocation):
    """A shuffled loader under another name: batches that are cut from a fresh permutation in every epoch."""

    def _drawn_bins(self, block: int, count: int) -> np.ndarray:
        return np.argsort(self._words("bins", "<u8", 0, self.records, block)) % count


def taken_by(sampler: Sampler) -> np.ndarray:
    """Who takes part in which step: booleans of shape (steps, records)."""
    taken = np.zeros((sampler.steps, sampler.records), dtype=bool)
    for step, row in enumerate(taken):
        row[sampler.batch(step)] = True
    return taken


def loads_are_binomial(taken: np.ndarray, probability: float) -> float:
    """The p-value of a chi-square test."""
    steps, records = taken.shape
    expected = stats.binom.pmf(np.arange(records + 1), records, probability) * steps
    common = expected >= 8
    counts = np.bincount(taken.sum(axis=1), minlength=records + 1)
    observed = np.append(counts[common], counts[~common].sum())
    return float(stats.chisquare(observed, np.append(expected[common], expected[~common].sum())).pvalue)


def pairs_are_independent(taken: np.ndarray, probability: float) -> float:
    """The p-value of the largest correlation between two records of one step, by their number."""
    values = taken.astype(np.float64)
    correlations = np.asarray(np.corrcoef(values.T))[np.triu_indices(taken.shape[1], 1)]
    largest = float(np.abs(correlations).max()) * math.sqrt(len(taken))
    return min(1.0, 2.0 * float(stats.norm.sf(largest)) * correlations.size)


def test_poisson_inclusions_are_independent_and_as_likely_as_charged() -> None:
    taken = taken_by(POISSON)
    counts = taken.sum(axis=0)
    assert stats.binomtest(int(taken.sum()), taken.size, 0.15).pvalue > 1e-3
    assert np.abs(counts - STEPS * 0.15).max() < 5 * math.sqrt(STEPS * 0.15 * 0.85)
    assert loads_are_binomial(taken, 0.15) > 1e-3
    assert pairs_are_independent(taken, 0.15) > 1e-3
    again = (taken[1:] & taken[:-1]).sum()
    assert stats.binomtest(int(again), taken[1:].size, 0.15**2).pvalue > 1e-3


@pytest.mark.parametrize("probability", [1.0, 2.0**-16, 0.3, 1e-12, 1.0 - 2.0**-20])
def test_a_coin_is_a_multiple_of_2_to_the_minus_53_below_the_charged_probability(
    monkeypatch: pytest.MonkeyPatch, probability: float
) -> None:
    """The variates are the first and the last one on each side of the threshold."""
    threshold = math.floor(probability * 2**53)
    variates = [0, max(threshold - 1, 0), min(threshold, 2**53 - 1), 2**53 - 1]
    sampler = Poisson(4, 1, sampling_probability=probability)
    leading = np.array([variate >> 37 for variate in variates], dtype="<u2")
    monkeypatch.setattr(Sampler, "_words", lambda *_: leading)
    monkeypatch.setattr(Sampler, "_word", lambda _self, _purpose, _step, record: (variates[record] % 2**37) << 27)
    assert sampler.batch(0).tolist() == [i for i, variate in enumerate(variates) if variate < threshold]


def is_an_allocation(sampler: RandomAllocation) -> dict[str, float]:
    """The p-values of what an allocation is, by names."""
    taken = taken_by(sampler)
    epochs = taken.reshape(-1, BINS, RECORDS)
    assert np.all(epochs.sum(axis=1) == 1), "each record is in one step of every epoch"
    bins = np.argmax(epochs, axis=1)
    apart = [bins[:, one] * BINS + bins[:, one + 1] for one in range(RECORDS - 1)]
    later = [bins[:-1, one] * BINS + bins[1:, one] for one in range(RECORDS)]

    def least(values: list[np.ndarray], kinds: int) -> float:
        found = [stats.chisquare(np.bincount(each, minlength=kinds)).pvalue for each in values]
        return float(min(found)) * len(found)

    return {
        "inclusion": least([bins[:, one] for one in range(RECORDS)], BINS),
        "between records": least(apart, BINS * BINS),
        "between epochs": least(later, BINS * BINS),
        "load": loads_are_binomial(epochs[:, 0], 1.0 / BINS),
    }


def test_records_are_allocated_alike_often_and_independently_of_each_other_and_of_earlier_epochs() -> None:
    found = is_an_allocation(ALLOCATION)
    assert min(found.values()) > 1e-3, found


def test_a_permutation_that_is_dealt_out_is_caught() -> None:
    found = is_an_allocation(Dealt(RECORDS, STEPS, num_bins=BINS, key=KEY))
    assert found["load"] < 1e-9, found


def test_records_draw_a_step_of_every_block() -> None:
    """Every 15 steps form blocks of 3, 4, 4 and 4, which begin at floor(15 b / 4). Each has every record once."""
    taken = taken_by(BLOCKS).reshape(-1, 15, RECORDS)
    starts = [0, 3, 7, 11, 15]
    for start, end in itertools.pairwise(starts):
        block = taken[:, start:end]
        assert np.all(block.sum(axis=1) == 1)
        counts = block.sum(axis=0)
        assert stats.chisquare(counts, len(taken) / (end - start), axis=0).pvalue.min() > 1e-3 / RECORDS
        assert loads_are_binomial(block[:, 0], 1.0 / (end - start)) > 1e-3
    # In the first steps of two blocks as often as if they knew nothing of each other.
    both = int((taken[:, 3] & taken[:, 7]).sum())
    assert stats.binomtest(both, taken[:, 3].size, 1 / 16).pvalue > 1e-3
    assert BLOCKS.divisor == 16.0


def test_bins_are_drawn_by_rejection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words of the last, incomplete round of bins are drawn again, as often as it takes."""
    words = np.array([0, 2**64 - 1, 2**64 - 2, 5], dtype="<u8")
    again = {(0, 1, 0): 2**64 - 1, (0, 1, 1): 4}
    monkeypatch.setattr(Sampler, "_words", lambda *_: words)
    monkeypatch.setattr(Sampler, "_word", lambda _self, _purpose, *place: again[place])
    sampler = RandomAllocation(4, 3, num_bins=3)
    # 2^64 - 1 is a multiple of 3: that word alone is beyond the last whole round.
    assert [sampler.batch(step).tolist() for step in range(3)] == [[0], [1], [2, 3]]


@pytest.mark.parametrize("assignment", ["independent", "by_position"])
def test_groups_take_turns_and_a_record_stays_in_its_own(assignment: str) -> None:
    sampler = CyclicPoisson(RECORDS, STEPS, sampling_probability=0.45, cycle_length=3, assignment=assignment, key=KEY)
    taken = taken_by(sampler).reshape(-1, 3, RECORDS)
    groups = taken.any(axis=0)
    assert np.all(groups.sum(axis=0) == 1), "never two steps closer than a cycle"
    if assignment == "by_position":
        assert np.argmax(groups, axis=0).tolist() == [place % 3 for place in range(RECORDS)]
    own = taken[:, np.argmax(groups, axis=0), np.arange(RECORDS)]
    assert stats.binomtest(int(own.sum()), own.size, 0.45).pvalue > 1e-3
    assert np.abs(own.sum(axis=0) - len(own) * 0.45).max() < 5 * math.sqrt(len(own) * 0.45 * 0.55)
    assert pairs_are_independent(own, 0.45) > 1e-3
    again = (own[1:] & own[:-1]).sum()
    assert stats.binomtest(int(again), own[1:].size, 0.45**2).pvalue > 1e-3


def test_each_record_draws_its_group_alone_and_all_groups_are_equally_likely() -> None:
    drawn = [
        CyclicPoisson(
            1000, 1, sampling_probability=1.0, cycle_length=3, assignment="independent", key=bytes([k] * 32)
        )._group_of_each()
        for k in range(20)
    ]
    assert stats.chisquare(np.bincount(np.concatenate(drawn), minlength=3)).pvalue > 1e-3
    sizes = [np.bincount(groups, minlength=3)[0] for groups in drawn]
    assert max(sizes) != min(sizes), "groups are not cut to one size"
    assert TURNS.divisor == pytest.approx(9.0)


def test_epochs_in_a_fixed_order_are_the_same_and_have_every_record_once() -> None:
    taken = taken_by(ORDER)[: STEPS // 7 * 7].reshape(-1, 7, RECORDS)
    assert np.all(taken == taken[0])
    assert np.all(taken[0].sum(axis=0) == 1)
    assert set(taken[0].sum(axis=1).tolist()) == {8, 9}
    assert ORDER.divisor == RECORDS / 7


def test_a_cut_batch_is_a_uniform_subset_of_the_poisson_batch() -> None:
    whole, cut = taken_by(POISSON), taken_by(CUT)
    assert np.all(whole | ~cut), "the same coins, and fewer of them"
    assert np.array_equal(cut.sum(axis=1), np.minimum(whole.sum(axis=1), 9))
    # Of the batches that are cut, each member is left out alike often: for the given sizes, 9 of a stay.
    over = whole.sum(axis=1) > 9
    sizes = whole[over].sum(axis=1, keepdims=True)
    expected = (whole[over] * (9.0 / sizes)).sum(axis=0)
    spread = np.sqrt((whole[over] * (9.0 / sizes) * (1.0 - 9.0 / sizes)).sum(axis=0))
    assert np.abs((cut[over].sum(axis=0) - expected) / spread).max() < 5.0


def test_empty_slots_take_places_in_a_batch() -> None:
    """The batches of 50 records in 60 slots are those of 60 records without the last 10. One more moves none."""
    cut, few = taken_by(CUT), taken_by(SLOTS)
    assert np.array_equal(few, cut[:, :50])
    assert (few.sum(axis=1) < np.minimum(taken_by(POISSON)[:, :50].sum(axis=1), 9)).any()
    more = TruncatedPoisson(50, STEPS, **arguments_of(SLOTS.sampling), records=51, key=KEY)
    assert np.array_equal(taken_by(more)[:, :50], few)


def test_a_cut_with_equal_words_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    words = {0: np.array([1, 1, 2], dtype="<u8"), 1: np.array([3, 1, 2], dtype="<u8")}
    monkeypatch.setattr(Sampler, "_tossed", lambda *_: np.arange(3))
    monkeypatch.setattr(Sampler, "_words", lambda _self, _purpose, _type, _first, _last, _step, attempt: words[attempt])
    sampler = TruncatedPoisson(3, 1, sampling_probability=1.0, max_batch_size=2)
    assert sampler.batch(0).tolist() == [1, 2]


@EVERY
def test_shards_draw_their_parts_without_a_word_to_each_other(sampler: Sampler) -> None:
    parts = [sampler.shard(number, 7) for number in range(7)]
    for step in range(20):
        batches = [part.batch(step) for part in parts]
        np.testing.assert_array_equal(np.concatenate(batches), sampler.batch(step))
    assert {part.divisor for part in parts} == {sampler.divisor}
    assert {len(part) for part in parts} == {STEPS}


def test_shards_begin_within_the_words_of_a_chunk() -> None:
    sampler = Poisson(10_000, 2, sampling_probability=0.01)
    batches = [sampler.shard(number, 3).batch(1) for number in range(3)]
    np.testing.assert_array_equal(np.concatenate(batches), sampler.batch(1))
    nobody = Poisson(2, 1, sampling_probability=1.0)
    assert [nobody.shard(number, 3).batch(0).tolist() for number in range(3)] == [[], [0], [1]]


@EVERY
def test_a_sampler_goes_on_from_its_state(sampler: Sampler) -> None:
    options: dict[str, Any] = sampler._parameters()
    first = type(sampler)(RECORDS, 50, **options)
    drawn = [batch for _, batch in zip(range(20), first, strict=False)]
    # A loader with workers has asked for more than were taken.
    state = first.state_dict(steps_taken=18)
    second = type(sampler)(RECORDS, 50, **options)
    second.load_state_dict(state)
    assert second.steps_left == 32
    rest = list(second)
    assert rest[:2] == drawn[18:]
    assert rest[2:] == list(first)
    assert len(rest) == 32
    with pytest.raises(ValueError, match="all 50 steps were drawn"):
        iter(second)


def test_a_state_of_another_sampler_is_refused() -> None:
    state = POISSON.state_dict()
    for other in (
        Poisson(RECORDS, STEPS, sampling_probability=0.2),
        Poisson(RECORDS, STEPS - 1, sampling_probability=0.15),
        ALLOCATION,
    ):
        with pytest.raises(ValueError, match="the state belongs to another sampler"):
            other.load_state_dict(state)
    with pytest.raises(ValueError, match=f"at most {STEPS}"):
        Poisson(RECORDS, STEPS, sampling_probability=0.15).load_state_dict(state | {"step": STEPS + 1})


def test_keys_are_of_the_operating_system_and_are_not_shown() -> None:
    one, other = (Poisson(1000, 3, sampling_probability=0.5) for _ in range(2))
    assert list(one) != list(other)
    assert one._key.hex() not in repr(one)
    assert str(one.records) not in repr(Poisson(999, 3, sampling_probability=0.5, records=1000))


def test_steps_and_epochs_have_nothing_to_do_with_each_other_under_one_key() -> None:
    """The words of all purposes and places differ."""
    words = {
        POISSON._digest(purpose, 16, *place)
        for purpose in ("bins", "leading", "kept")
        for place in ((0, 0), (0, 1), (1, 0), (1, 1), (0, 0, 0), (256, 0))
    }
    assert len(words) == 18


def test_micro_batches_have_one_size_and_hold_the_batch() -> None:
    for step in range(40):
        parts = list(ALLOCATION.micro_batches(step, 4))
        assert parts
        assert all(indices.shape == mask.shape == (4,) for indices, mask in parts)
        held = np.concatenate([indices[mask] for indices, mask in parts])
        np.testing.assert_array_equal(held, ALLOCATION.batch(step))
    [(indices, mask)] = Poisson(5, 1, sampling_probability=1e-12).micro_batches(0, 3)
    assert (indices.tolist(), mask.any()) == ([0, 0, 0], False)


def test_divisors_are_public_constants() -> None:
    assert Poisson(1000, 1, sampling_probability=0.1, records=990).divisor == 100.0
    assert RandomAllocation(1000, 1, num_bins=8, records=7).divisor == 125.0
    assert TruncatedPoisson(1000, 1, sampling_probability=0.1, max_batch_size=120).divisor == 100.0
    assert TruncatedPoisson(1000, 1, sampling_probability=0.1, max_batch_size=80).divisor == 80.0
    of_slots = {"sampling_probability": 0.1, "truncation": "random_slots", "slots": 1250}
    assert TruncatedPoisson(1000, 1, max_batch_size=200, **of_slots).divisor == 100.0
    assert TruncatedPoisson(1000, 1, max_batch_size=100, **of_slots).divisor == 80.0


def test_the_sampler_of_an_event_is_the_one_that_it_says() -> None:
    allocation = {"kind": "random_allocation", "num_bins": 5, "participations": 1}
    found = samplers.for_event({"sampling": allocation, "count": 12}, dataset_size=100)
    assert isinstance(found, RandomAllocation)
    assert (found.sampling, found.steps) == (allocation, 12)
    for other in (TURNS, ORDER):
        assert samplers.for_event({"sampling": other.sampling, "count": 2}, dataset_size=RECORDS).sampling == (
            other.sampling
        )
    cut = CUT.sampling
    assert samplers.for_event({"sampling": cut, "count": 2}, dataset_size=RECORDS).sampling == cut
    of_slots = samplers.for_event({"sampling": SLOTS.sampling, "count": 2}, dataset_size=50)
    assert (of_slots.sampling, of_slots.dataset_size) == (SLOTS.sampling, 50)
    for sampling, words in (
        ({"kind": "shuffled_epochs", "steps_per_epoch": 3}, "no sampler for shuffled_epochs"),
        (allocation | {"participations": 2}, "participations must be 1"),
        (cut | {"truncation": "arbitrary"}, "cut at random"),
        (cut | {"dataset_size": 61}, "the event is for 61 records"),
    ):
        with pytest.raises(ValueError, match=words):
            samplers.for_event({"sampling": sampling, "count": 2}, dataset_size=RECORDS)
    with pytest.raises(ValueError, match="full_batch"):
        samplers.for_event({}, dataset_size=RECORDS)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Poisson(0, 1, sampling_probability=0.5), "dataset_size must be 1 or more"),
        (lambda: Poisson(1, 0, sampling_probability=0.5), "steps must be 1 or more"),
        (lambda: Poisson(1, 1, sampling_probability=0.0), "above 0 and at most 1"),
        (lambda: Poisson(1, 1, sampling_probability=math.nan), "above 0 and at most 1"),
        (lambda: Poisson(1, 1, sampling_probability=0.5, key=b"short"), "32 bytes"),
        (lambda: Poisson(1, 1, sampling_probability=0.5, shard=(2, 2)), "from 0 to 1"),
        (lambda: Blocks(1, 1, num_bins=3, participations=4), "at most num_bins, 3"),
        (lambda: RandomAllocation(1, 1, num_bins=0), "num_bins must be 1 or more"),
        (
            lambda: TruncatedPoisson(1, 1, sampling_probability=0.5, max_batch_size=1, records=2),
            "bounds the number of records",
        ),
        (lambda: samplers.for_event({"sampling": SLOTS.sampling}, dataset_size=61), "slots must be 61 or more"),
        (lambda: samplers.for_event({"sampling": SLOTS.sampling}, dataset_size=9, records=61), "slots bounds"),
        (
            lambda: TruncatedPoisson(9, 1, sampling_probability=0.5, max_batch_size=1, truncation="random_slots"),
            'is needed with truncation "random_slots"',
        ),
        (lambda: TruncatedPoisson(9, 1, sampling_probability=0.5, max_batch_size=1, slots=9), "and only then"),
        (
            lambda: CyclicPoisson(9, 1, sampling_probability=0.5, cycle_length=2, assignment="shuffled"),
            'must be "independent" or "by_position"',
        ),
        (lambda: FixedOrderEpochs(9, 1, steps_per_epoch=0), "steps_per_epoch must be 1 or more"),
        (lambda: POISSON.batch(STEPS), f"from 0 to {STEPS - 1}"),
        (lambda: POISSON.batch(-1), f"from 0 to {STEPS - 1}"),
    ],
)
def test_numbers_outside_their_range_are_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()

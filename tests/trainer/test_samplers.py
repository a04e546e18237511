"""The sampling that was charged is the sampling that runs."""

from __future__ import annotations

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from scipy import stats

from accounting.errors import AccountingError
from accounting.events import (
    Blocks,
    CyclicPoisson,
    DisjointBatches,
    FixedOrderEpochs,
    FullBatch,
    Poisson,
    RandomAllocation,
    Sampling,
    ShuffledEpochs,
    TruncatedPoisson,
    WithoutReplacement,
    WithReplacement,
)
from accounting.relations import NeighboringRelation
from trainer.records import Block, Records
from trainer.samplers import (
    AllocationSampler,
    CyclicPoissonSampler,
    FixedOrderSampler,
    FullBatchSampler,
    PoissonSampler,
    Sampler,
    ShuffledSampler,
    TruncatedPoissonSampler,
    WithoutReplacementSampler,
    check_sampling,
    sampler_for,
)
from trainer.samplers.padding import padded_size
from trainer.streams import random_streams

STEPS = 4000
CUT = TruncatedPoisson(0.2, 12, 50, truncation="random")
SLOTS = TruncatedPoisson(0.2, 12, 60, truncation="random_slots")


class GivenWords:
    """A stream of chosen 64-bit words, in place of a random one."""

    def __init__(self, *words: int) -> None:
        self._words = list(words)

    def words(self, size: int) -> np.ndarray:
        drawn, self._words = self._words[:size], self._words[size:]
        return np.array(drawn + [0] * (size - len(drawn)), dtype=np.uint64)


def inclusions(rows: int, probability: float, steps: int, seed: int) -> np.ndarray:
    sampler = PoissonSampler(rows, probability, steps, random_streams(seed).sampling)
    taken = np.zeros((steps, rows + 1), dtype=bool)
    for step in taken:
        step[sampler.draw()] = True
    return taken[:, :rows]


@pytest.mark.parametrize("probability", [0.3, 0.017, 2.0**-16, 3e-5, 1.0 - 2.0**-20, 1.0, 1e-300, math.pi / 4])
def test_realised_probability_is_not_above_the_charged(probability: float) -> None:
    """Four rows whose variates are the last one below the threshold, the threshold, 0 and the largest."""
    threshold = math.floor(probability * 2**53)
    variates = [max(threshold - 1, 0), min(threshold, 2**53 - 1), 0, 2**53 - 1]
    leading = sum((u >> 37) << (16 * i) for i, u in enumerate(variates))
    tied = [u for u in variates if u >> 37 == threshold >> 37]
    stream = GivenWords(leading, *[(u & (2**37 - 1)) << 27 for u in tied])
    taken = PoissonSampler(4, probability, 1, stream).draw()  # type: ignore[arg-type]
    assert taken[taken < 4].tolist() == [i for i, u in enumerate(variates) if u < threshold]
    assert threshold / 2**53 <= probability


@pytest.mark.parametrize(("rows", "probability"), [(200, 0.05), (37, 0.5), (1000, 0.0017)])
def test_batch_sizes_are_binomial(rows: int, probability: float) -> None:
    sizes = inclusions(rows, probability, STEPS, seed=31).sum(axis=1)
    support = np.arange(rows + 1)
    expected = stats.binom.pmf(support, rows, probability) * STEPS
    common = expected >= 8
    observed = np.bincount(sizes, minlength=rows + 1)
    counts = np.append(observed[common], observed[~common].sum())
    means = np.append(expected[common], expected[~common].sum())
    assert stats.chisquare(counts, means).pvalue > 1e-3


def test_inclusions_are_independent() -> None:
    taken = inclusions(40, 0.25, 20_000, seed=37).astype(np.float64)
    assert abs(taken.mean() - 0.25) < 4 * math.sqrt(0.25 * 0.75 / taken.size)
    between_rows = np.asarray(np.corrcoef(taken.T))[np.triu_indices(40, 1)]
    between_steps = [np.asarray(np.corrcoef(taken[:-1, i], taken[1:, i]))[0, 1] for i in range(40)]
    for correlations in (between_rows, np.array(between_steps)):
        assert stats.kstest(correlations * math.sqrt(20_000), "norm").pvalue > 1e-3


def test_batches_may_be_empty_or_whole() -> None:
    assert set(PoissonSampler(50, 1e-12, 9, random_streams(1).sampling).draw().tolist()) == {50}
    whole = PoissonSampler(50, 1.0, 9, random_streams(1).sampling).draw()
    assert whole.tolist() == list(range(50))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("capacity", "probability", "steps"),
    [(60_000, 1024 / 60_000, 10_000), (1000, 0.1, 1000), (50, 0.5, 3), (7, 1e-9, 1)],
)
def test_batches_are_padded(capacity: int, probability: float, steps: int) -> None:
    """To the least size that a whole run exceeds with a probability of 2^-60 at most; so no batch's own size shows."""
    size = padded_size(capacity, probability, steps)
    exceeds = [
        sum(mp_binomial(capacity, k, probability) for k in range(least + 1, min(capacity, least + 2000) + 1))
        for least in (size, size - 1)
    ]
    assert steps * exceeds[0] <= mpmath.mpf(2) ** -60
    assert size == 1 or steps * exceeds[1] > mpmath.mpf(2) ** -60
    sampler = PoissonSampler(capacity, probability, steps, random_streams(3).sampling)
    for _ in range(3):
        drawn = sampler.draw()
        assert drawn.size == size
        assert np.all(np.diff(drawn[drawn < capacity]) > 0)


def mp_binomial(n: int, k: int, p: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        q = mpmath.mpf(p)
        return mpmath.binomial(n, k) * q**k * (1 - q) ** (n - k)


def test_a_step_that_draws_too_many_takes_another_batch() -> None:
    """Its law stays exact: nothing is dropped, and only its time, with probability 2^-60, may show it."""
    sampler = PoissonSampler(50, 0.5, 3, random_streams(1).sampling)
    sampler._size = 7
    drawn = sampler.draw()
    assert drawn.size % 7 == 0
    assert drawn[drawn < 50].size > 7


def sampler(
    sampling: Sampling, *, rows: int = 60, steps: int = 4, divisor: int = 10, size: int = 50, seed: int = 1
) -> Sampler:
    return sampler_for(sampling, steps, divisor, size, slots_of(np.arange(rows)), random_streams(seed).sampling)


def slots_of(positions: np.ndarray) -> Records:
    """As many slots, with nothing in them."""
    none = np.empty(0)
    return Records(Block(np, none, none, none, none), positions)


def test_the_sampler_is_the_one_that_was_charged() -> None:
    assert isinstance(sampler(FullBatch()), FullBatchSampler)
    assert isinstance(sampler(Poisson(0.5)), PoissonSampler)
    assert isinstance(sampler(WithoutReplacement(10, 50)), WithoutReplacementSampler)
    assert isinstance(sampler(CUT), TruncatedPoissonSampler)
    assert isinstance(sampler(SLOTS), TruncatedPoissonSampler)
    assert isinstance(sampler(RandomAllocation(5, 1)), AllocationSampler)
    assert isinstance(sampler(Blocks(7, 2)), AllocationSampler)
    assert isinstance(sampler(ShuffledEpochs(5)), ShuffledSampler)
    assert isinstance(sampler(CyclicPoisson(0.5, 3, "independent")), CyclicPoissonSampler)
    assert isinstance(sampler(CyclicPoisson(0.5, 3, "by_position")), CyclicPoissonSampler)
    assert isinstance(sampler(FixedOrderEpochs(3)), FixedOrderSampler)
    assert isinstance(sampler(DisjointBatches("by_position")), ShuffledSampler)
    assert isinstance(sampler(DisjointBatches("independent")), AllocationSampler)


def refusal(
    sampling: Sampling,
    *,
    steps: int = 4,
    relation: NeighboringRelation = NeighboringRelation.REPLACE_SPECIAL,
) -> tuple[str, tuple[str | int, ...]]:
    with pytest.raises(AccountingError) as caught:
        check_sampling(sampling, steps, 10, 50, 60, relation)
    return caught.value.detail, tuple(caught.value.pointer)


def test_what_is_not_drawn_as_it_is_charged_is_refused() -> None:
    check_sampling(CUT, 4, 10, 50, 60, NeighboringRelation.REPLACE_SPECIAL)
    for relation in NeighboringRelation:
        check_sampling(SLOTS, 4, 10, 50, 60, relation)
    for sampling, relation, words, pointer in (
        (WithReplacement(10, 50), "replace_one", "full_batch, poisson, truncated_poisson, without_re", "sampling/kind"),
        (RandomAllocation(5, 2), "replace_special", "one step of each allocation, not 2", "sampling/participations"),
        (TruncatedPoisson(0.2, 12, 50), "replace_special", "random subset", "sampling/truncation"),
        (CUT, "add_or_remove_one", 'use truncation "random_slots"', "sampling/truncation"),
        (replace(SLOTS, dataset_size=50), "add_or_remove_one", "a capacity of 60", "sampling/dataset_size"),
        (replace(SLOTS, dataset_size=61), "add_or_remove_one", "for 61 slots", "sampling/dataset_size"),
        (TruncatedPoisson(0.2, 12, 51, truncation="random"), "replace_one", "for 51 records", "sampling/dataset_size"),
        (DisjointBatches("by_position"), "replace_one", "need 60 records; dataset_size is 50", "divisor"),
    ):
        detail, place = refusal(sampling, steps=6, relation=NeighboringRelation(relation))
        assert words in detail
        assert "/".join(map(str, place)) == pointer


@pytest.mark.parametrize("sampling", [WithoutReplacement(10, 50), ShuffledEpochs(5), DisjointBatches("by_position")])
@pytest.mark.parametrize("slots", [50, 57, 80])
def test_schemes_of_a_fixed_size_draw_from_the_declared_places(sampling: Sampling, slots: int) -> None:
    """Whatever the capacity: a place beyond the declared ones is never drawn."""
    few, many = sampler(sampling, rows=slots), sampler(sampling, rows=1000)
    for _ in range(4):
        drawn, same = few.draw(), many.draw()
        assert isinstance(drawn, np.ndarray)
        assert drawn.size == 10
        assert drawn.max() < 50
        np.testing.assert_array_equal(drawn, same)


def test_places_are_found_in_their_slots() -> None:
    positions = np.random.default_rng(1).permutation(30)
    one, other = (
        sampler_for(WithoutReplacement(20, 30), 1, 20, 30, slots_of(where), random_streams(1).sampling).draw()
        for where in (np.arange(30), positions)
    )
    np.testing.assert_array_equal(other, positions[one])


def test_batches_of_slots_are_equally_likely() -> None:
    """All pairs out of six, by a chi-square test; and no slot is drawn twice in a step."""
    drawing = sampler(WithoutReplacement(2, 6), rows=6, size=6)
    counts = np.zeros((6, 6))
    for _ in range(15_000):
        one, other = sorted(drawing.draw())
        counts[one, other] += 1
    assert stats.chisquare(counts[np.triu_indices(6, 1)]).pvalue > 1e-3
    assert counts.sum() == counts[np.triu_indices(6, 1)].sum()


def test_slots_take_part_once_at_most_and_in_every_step_alike_often() -> None:
    where = np.zeros((12, 3))
    for seed in range(3000):
        drawing = sampler(DisjointBatches("by_position"), rows=12, steps=3, divisor=4, size=12, seed=seed)
        batches = [drawing.draw() for _ in range(3)]
        assert sorted(row for batch in batches for row in batch) == list(range(12))
        for step, batch in enumerate(batches):
            where[batch, step] += 1
    assert stats.chisquare(where.ravel()).pvalue > 1e-3


def test_slots_draw_their_step() -> None:
    """Independently of each other: how many take part in a step is binomial."""
    sizes = []
    for seed in range(2000):
        drawing = sampler(DisjointBatches("independent"), rows=9, steps=3, seed=seed)
        batches = [batch[batch < 9] for batch in (drawing.draw() for _ in range(3))]
        assert sorted(row for batch in batches for row in batch) == list(range(9))
        sizes.append(len(batches[0]))
    expected = stats.binom.pmf(np.arange(10), 9, 1 / 3) * 2000
    counts = np.bincount(sizes, minlength=10)
    merged = np.append(counts[:6], counts[6:].sum()), np.append(expected[:6], expected[6:].sum())
    assert stats.chisquare(*merged).pvalue > 1e-3


@pytest.mark.parametrize("sampling", [DisjointBatches("independent"), RandomAllocation(20, 1)])
def test_batches_that_slots_draw_are_padded_alike(sampling: Sampling) -> None:
    """As Poisson batches are: each has the size that is exceeded with probability 2^-60 in all steps together."""
    for seed in range(5):
        drawing = sampler(sampling, rows=1000, steps=20, seed=seed)
        assert {np.asarray(drawing.draw()).size for _ in range(20)} == {padded_size(1000, 0.05, 20)}


def steps_of(sampling: Sampling, *, rows: int, steps: int, seed: int = 1) -> np.ndarray:
    """Which slots take part in which steps: booleans of shape (steps, rows)."""
    drawing = sampler(sampling, rows=rows, steps=steps, size=rows, seed=seed)
    taken = np.zeros((steps, rows + 1), dtype=bool)
    for step in taken:
        step[drawing.draw()] = True
    return taken[:, :rows]


EPOCHS, BINS, ROWS = 3000, 5, 20


@pytest.fixture(scope="module")
def allocated() -> np.ndarray:
    """The bin of each slot in each epoch: shape (EPOCHS, ROWS)."""
    taken = steps_of(RandomAllocation(BINS, 1), rows=ROWS, steps=EPOCHS * BINS).reshape(EPOCHS, BINS, ROWS)
    assert np.all(taken.sum(axis=1) == 1), "each slot is in one step of every epoch"
    return np.argmax(taken, axis=1)


def test_allocated_slots_are_in_every_step_alike_often(allocated: np.ndarray) -> None:
    counts = np.stack([np.bincount(allocated[:, slot], minlength=BINS) for slot in range(ROWS)])
    assert stats.chisquare(counts, EPOCHS / BINS, axis=1).pvalue.min() > 1e-3 / ROWS


def test_allocated_slots_are_independent_of_each_other_and_of_earlier_epochs(allocated: np.ndarray) -> None:
    """All pairs of bins are alike likely: of two slots in one epoch, and of one slot in two epochs."""
    between_slots = [(allocated[:, one], allocated[:, one + 1]) for one in range(ROWS - 1)]
    between_epochs = [(allocated[:-lag, slot], allocated[lag:, slot]) for slot in range(ROWS) for lag in (1, 2)]
    for pairs in (between_slots, between_epochs):
        values = [stats.chisquare(np.bincount(a * BINS + b, minlength=BINS * BINS)).pvalue for a, b in pairs]
        assert min(values) > 1e-3 / len(values)


def test_loads_of_allocated_batches_are_binomial(allocated: np.ndarray) -> None:
    """A permutation that is dealt out has loads that do not vary: this is what catches it."""
    loads = (allocated == 0).sum(axis=1)
    expected = stats.binom.pmf(np.arange(ROWS + 1), ROWS, 1 / BINS) * EPOCHS
    common = expected >= 8
    counts = np.bincount(loads, minlength=ROWS + 1)
    observed = np.append(counts[common], counts[~common].sum())
    assert stats.chisquare(observed, np.append(expected[common], expected[~common].sum())).pvalue > 1e-3


def test_slots_draw_a_step_of_every_block() -> None:
    """Seven steps in two blocks, of three and of four, and then again; a phase of ten steps ends within the third."""
    runs = np.stack([steps_of(Blocks(7, 2), rows=30, steps=10, seed=seed) for seed in range(400)])
    for start, end in ((0, 3), (3, 7), (7, 10)):
        block = runs[:, start:end]
        assert np.all(block.sum(axis=1) == 1)
        counts = block.sum(axis=(0, 2))
        assert stats.chisquare(counts).pvalue > 1e-3
    load = runs[:, 3].sum(axis=1)
    assert np.var(load) == pytest.approx(30 * 0.25 * 0.75, rel=0.3), "dealt out, it would not vary"
    both = int((runs[:, 0] & runs[:, 3]).sum())
    assert stats.binomtest(both, runs[:, 0].size, 1 / 12).pvalue > 1e-3


def test_an_allocation_that_is_cut_short_leaves_slots_out() -> None:
    """A phase that ends after two of five steps: two fifths of the slots have had their step."""
    seen = np.array([steps_of(RandomAllocation(5, 1), rows=50, steps=2, seed=seed).sum() for seed in range(200)])
    assert abs(seen.mean() - 20.0) < 5 * math.sqrt(50 * 0.4 * 0.6 / 200)


def test_shuffled_batches_have_public_sizes_and_every_place_once_an_epoch() -> None:
    taken = steps_of(ShuffledEpochs(3), rows=11, steps=3 * 2000).reshape(2000, 3, 11)
    assert np.all(taken.sum(axis=1) == 1)
    assert np.unique(taken.sum(axis=2), axis=0).tolist() == [[3, 4, 4]]
    places = taken.sum(axis=0)
    assert stats.chisquare(places, np.array([[3], [4], [4]]) / 11 * 2000, axis=0).pvalue.min() > 1e-3 / 11
    again = (taken[:-1, 0] & taken[1:, 0]).mean()
    assert again == pytest.approx((3 / 11) ** 2, abs=5 * math.sqrt((3 / 11) ** 2 / taken[1:, 0].size))


def test_a_cut_batch_is_a_uniform_subset_of_its_poisson_batch() -> None:
    """Beside what its coins say: of a batch of a > 12 places each is kept with probability 12 / a."""
    steps = 6000
    cut = sampler(CUT, rows=50, steps=steps)
    assert isinstance(cut, TruncatedPoissonSampler)
    whole, kept = np.zeros((steps, 51), dtype=bool), np.zeros((steps, 51), dtype=bool)
    draw = cut._coins.draw

    def watched() -> np.ndarray:
        drawn = draw()
        whole[step, drawn] = True
        return drawn

    cut._coins.draw = watched  # type: ignore[method-assign]
    for step in range(steps):
        batch = cut.draw()
        assert batch.size == 12, "padded to one size, whatever was drawn"
        kept[step, batch] = True
    whole, kept = whole[:, :50], kept[:, :50]
    assert np.all(whole | ~kept)
    np.testing.assert_array_equal(kept.sum(axis=1), np.minimum(whole.sum(axis=1), 12))
    chance = 12 / np.maximum(whole.sum(axis=1, keepdims=True), 12)
    large = whole & (chance < 1.0)
    excess = (kept & large).sum(axis=0) - (large * chance).sum(axis=0)
    spread = np.sqrt((large * chance * (1.0 - chance)).sum(axis=0))
    assert np.abs(excess / spread).max() < 4.5
    # Who is kept in one step has nothing to do with who is kept in the next.
    again = (kept[1:] & kept[:-1]).mean()
    assert again == pytest.approx(kept.mean() ** 2, abs=5 * math.sqrt(kept.mean() ** 2 / kept[1:].size))


def test_slots_are_cut_whether_or_not_they_hold_a_record() -> None:
    """Of 60 slots, each draws its coin, and each is as likely as any other to be among the 12 that are kept."""
    steps = 8000
    drawn = sampler(SLOTS, rows=60, steps=steps)
    taken = np.zeros((steps, 61), dtype=bool)
    for row in taken:
        batch = drawn.draw()
        assert isinstance(batch, np.ndarray)
        assert batch.size == 12, "padded to one size, whatever was drawn"
        row[batch] = True
    taken = taken[:, :60]
    law, sizes = stats.binom(60, 0.2), np.arange(61)
    rate = float(np.sum(law.pmf(sizes) * np.minimum(sizes, 12))) / 60
    spread = math.sqrt(steps * rate * (1.0 - rate))
    assert np.abs(taken.sum(axis=0) - steps * rate).max() < 4.5 * spread
    full = int((taken.sum(axis=1) == 12).sum())
    assert stats.binomtest(full, steps, float(law.sf(11))).pvalue > 1e-4


def test_equal_words_are_drawn_again() -> None:
    """Of three places two are kept; the first words of the last two are equal, and so are their last bits."""
    cut = TruncatedPoissonSampler(
        np.arange(3), TruncatedPoisson(1.0, 2, 3, truncation="random"), 1, GivenWords(0, *[0] * 3, 8, 4, 5, 9, 7, 3)
    )  # type: ignore[arg-type]
    assert cut.draw().tolist() == [2, 1]


@pytest.mark.parametrize(
    "sampling",
    [
        FullBatch(),
        Poisson(0.3),
        CUT,
        SLOTS,
        WithoutReplacement(10, 50),
        RandomAllocation(3, 1),
        Blocks(5, 2),
        ShuffledEpochs(3),
        CyclicPoisson(0.6, 3, "independent"),
        CyclicPoisson(0.6, 3, "by_position"),
        FixedOrderEpochs(3),
        *map(DisjointBatches, ("by_position", "independent")),
    ],
)
@pytest.mark.parametrize("done", [0, 2, 3])
def test_restored_samplers_go_on(sampling: Sampling, done: int) -> None:
    """Before the first step, within an epoch of three steps, and between two epochs."""
    stream, another = random_streams(1).sampling, random_streams(2).sampling
    one, other = (sampler_for(sampling, 5, 10, 50, slots_of(np.arange(60)), source) for source in (stream, another))
    for _ in range(done):
        one.draw()
    other.restore(one.state())
    another.state = stream.state
    for _ in range(5 - done):
        np.testing.assert_array_equal(other.draw(), one.draw())


CYCLES, GROUPS, MEMBERS = 2000, 4, 60
TURNS = [CyclicPoisson(0.3, GROUPS, "independent"), CyclicPoisson(0.3, GROUPS, "by_position"), FixedOrderEpochs(GROUPS)]


@pytest.fixture(scope="module", params=TURNS, ids=lambda sampling: repr(sampling.to_json()))
def turns(request: pytest.FixtureRequest) -> tuple[Sampling, np.ndarray]:
    """Who takes part: shape (CYCLES, GROUPS, MEMBERS)."""
    taken = steps_of(request.param, rows=MEMBERS, steps=CYCLES * GROUPS)
    return request.param, taken.reshape(CYCLES, GROUPS, MEMBERS)


def test_a_slot_keeps_its_group(turns: tuple[Sampling, np.ndarray]) -> None:
    """All steps of a slot are a whole number of cycles apart: correlated noise is charged for that alone."""
    _, taken = turns
    assert np.all(np.count_nonzero(taken.any(axis=0), axis=0) == 1)
    flat = taken.reshape(-1, MEMBERS)
    for slot in range(MEMBERS):
        assert np.diff(np.flatnonzero(flat[:, slot])).min() >= GROUPS


def test_a_slot_is_drawn_at_its_groups_turn_as_often_as_was_charged(turns: tuple[Sampling, np.ndarray]) -> None:
    """Independently of the other slots and of earlier cycles."""
    sampling, taken = turns
    rate = sampling.sampling_probability if isinstance(sampling, CyclicPoisson) else 1.0
    seen = taken.any(axis=1)  # in each cycle
    spread = math.sqrt(rate * (1.0 - rate) / CYCLES)
    assert np.abs(seen.mean(axis=0) - rate).max() <= 4.5 * spread
    if rate < 1.0:
        numbers = seen.astype(np.float64)
        between_slots = np.corrcoef(numbers.T)[np.triu_indices(MEMBERS, 1)]
        between_cycles = [np.corrcoef(numbers[:-1, slot], numbers[1:, slot])[0, 1] for slot in range(MEMBERS)]
        for correlations in (between_slots, np.array(between_cycles)):
            assert stats.kstest(correlations * math.sqrt(CYCLES), "norm").pvalue > 1e-3


@pytest.mark.parametrize("sampling", TURNS)
def test_groups_are_alike_likely_and_of_the_sizes_that_were_charged(sampling: Sampling) -> None:
    """Slots that draw their group make sizes binomial; groups that are cut have sizes that do not vary."""
    runs, rows = 600, 22
    groups = np.zeros((runs, GROUPS, rows), dtype=bool)
    sure = sampling if isinstance(sampling, FixedOrderEpochs) else CyclicPoisson(1.0, GROUPS, sampling.assignment)
    for seed in range(runs):
        groups[seed] = steps_of(sure, rows=rows, steps=GROUPS, seed=seed)
    assert np.all(groups.sum(axis=1) == 1), "with probability 1 everybody takes part at the turn of his group"
    sizes = groups.sum(axis=2)
    if isinstance(sampling, CyclicPoisson) and sampling.assignment == "independent":
        assert stats.chisquare(groups.sum(axis=0), axis=0).pvalue.min() > 1e-3 / rows
        assert np.var(sizes) == pytest.approx(rows * 0.25 * 0.75, rel=0.15)
        together = (groups[:, :, :-1] & groups[:, :, 1:]).any(axis=1)
        assert stats.binomtest(int(together.sum()), together.size, 1 / GROUPS).pvalue > 1e-3
    else:
        assert np.unique(sizes, axis=0).tolist() == [[6, 5, 6, 5]]
        expected = runs * sizes[0][:, None] / rows
        assert stats.chisquare(groups.sum(axis=0), np.broadcast_to(expected, (GROUPS, rows))).pvalue.min() > 1e-3 / rows


@pytest.mark.parametrize("sampling", [TURNS[0], CyclicPoisson(1.0, 5, "independent"), TURNS[1]])
def test_batches_of_groups_are_padded_alike(sampling: CyclicPoisson) -> None:
    """However many slots a group has, and however many of them are drawn."""
    by_position = sampling.assignment == "by_position"
    size = (
        padded_size(250, 0.3, 20)
        if by_position
        else padded_size(1000, sampling.sampling_probability / sampling.cycle_length, 20)
    )
    for seed in range(5):
        drawing = sampler(sampling, rows=1000, steps=20, size=1000, seed=seed)
        assert isinstance(drawing, CyclicPoissonSampler)
        assert {np.asarray(drawing.draw()).size for _ in range(20)} == {size}
        assert {group.size for group in drawing._groups} == {drawing._group_size + 1}


def test_a_group_that_is_larger_than_its_list_keeps_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    drawing = sampler(CyclicPoisson(1.0, 2, "independent"), rows=50)
    assert isinstance(drawing, CyclicPoissonSampler)
    drawing._group_size = drawing._size = 7
    drawing._deal()
    both = [np.asarray(drawing.draw()) for _ in range(2)]
    assert sorted(slot for batch in both for slot in batch if slot < 50) == list(range(50))
    assert all(batch.size % 7 == 0 for batch in both)


@pytest.mark.parametrize("sampling", TURNS)
def test_groups_are_cut_from_the_declared_places_or_drawn_by_every_slot(sampling: Sampling) -> None:
    drawing = sampler(sampling, rows=80, size=50, steps=400)
    taken = np.unique(np.concatenate([drawing.draw() for _ in range(400)]))
    declared = isinstance(sampling, FixedOrderEpochs) or sampling.assignment == "by_position"  # type: ignore[attr-defined]
    assert taken[taken < 80].tolist() == list(range(50 if declared else 80))


@pytest.mark.parametrize("sampling", TURNS)
def test_a_state_without_the_groups_is_refused(sampling: Sampling) -> None:
    drawing = sampler(sampling)
    state = drawing.state()
    for wrong in ({"drawn": 3}, state | {"turn_of": state["turn_of"][1:]}):
        with pytest.raises(AccountingError, match="lacks the groups of the records") as caught:
            drawing.restore(wrong)
        assert caught.value.code == "checkpoint_refused"


@pytest.mark.parametrize("sampling", TURNS)
def test_restored_groups_are_those_that_were(sampling: Sampling) -> None:
    """At every step of two cycles, whatever the stream has been used for meanwhile."""
    for done in range(2 * GROUPS):
        drawing = sampler(sampling, steps=100)
        for _ in range(done):
            drawing.draw()
        other = sampler(sampling, steps=100, seed=9)
        other.restore(drawing.state())
        groups: list[list[set[int]]] = [[set() for _ in range(GROUPS)] for _ in range(2)]
        for which, each in enumerate((other, drawing)):
            for turn in range(GROUPS * 20):
                groups[which][turn % GROUPS] |= set(np.asarray(each.draw()).tolist()) - {60}
        assert groups[0] == groups[1]

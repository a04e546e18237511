"""A slot stays in its part, whose turns are a whole cycle apart."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from accounting.errors import AccountingError
from accounting.events import (
    CyclicPoisson,
    FixedOrderEpochs,
    Sampling,
)
from tests.trainer.samplers.drawing import sampler, steps_of
from trainer.samplers import (
    CyclicPoissonSampler,
)
from trainer.samplers.padding import padded_size

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


def test_a_group_that_is_larger_than_its_list_keeps_everybody() -> None:
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

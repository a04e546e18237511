"""A guard compares how batches are drawn with what is charged; real loaders of PyTorch are in the adapters' tests."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from epsilond_client import Budget, Client
from epsilond_client.events import gaussian
from epsilond_client.loaders import check_batches
from epsilond_client.samplers import Poisson, RandomAllocation, Sampler, TruncatedPoisson, for_event

SAMPLER = RandomAllocation(100, 10, num_bins=5)
CUT = TruncatedPoisson(100, 10, sampling_probability=0.1, max_batch_size=12)
POISSON = {"kind": "poisson", "sampling_probability": 0.1}


class Loader:
    """Any object with a batch_sampler."""

    def __init__(self, batch_sampler: Any) -> None:
        self.batch_sampler = batch_sampler

    def __iter__(self) -> Any:
        return iter(self.batch_sampler)


@pytest.mark.parametrize("wrapped", [lambda sampler: sampler, Loader])
def test_a_sampler_and_a_loader_that_has_it_are_what_they_say(wrapped: Any) -> None:
    check_batches(SAMPLER.sampling, wrapped(SAMPLER), stacklevel=1)
    with pytest.raises(ValueError, match=r"drawn as .*random_allocation.*poisson.*is reserved"):
        check_batches(POISSON, wrapped(SAMPLER), stacklevel=1)
    with pytest.raises(ValueError, match="is reserved"):
        check_batches(POISSON, wrapped(Poisson(100, 10, sampling_probability=0.2)), stacklevel=1)


@pytest.mark.parametrize("batches", [[1, 2], range(3), Loader([[0], [1]])])
@pytest.mark.parametrize(
    "kind",
    [
        "poisson",
        "truncated_poisson",
        "random_allocation",
        "without_replacement",
        "cyclic_poisson",
        "fixed_order_epochs",
    ],
)
def test_what_nobody_can_see_is_warned_of(batches: Any, kind: str) -> None:
    with pytest.warns(RuntimeWarning, match=f"charged as {kind}, and nothing shows"):
        check_batches({"kind": kind, "steps_per_epoch": 2}, batches, stacklevel=1)


def test_a_loader_that_shuffles_is_refused_where_a_record_must_keep_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The classes here are stand-ins for PyTorch's. The adapters' tests use the real ones."""

    class SequentialSampler:
        pass

    class BatchSampler:
        def __init__(self, sampler: object) -> None:
            self.sampler = sampler

    class Mixed(BatchSampler):
        """Cuts the same order in another way each time."""

    class DataLoader:
        def __init__(self, sampler: object, steps: int, batch_sampler: object = None) -> None:
            self.sampler, self._steps = sampler, steps
            self.batch_sampler = BatchSampler(sampler) if batch_sampler is None else batch_sampler

        def __len__(self) -> int:
            return self._steps

    stand_in = ModuleType("torch.utils.data")
    stand_in.__dict__.update(SequentialSampler=SequentialSampler, BatchSampler=BatchSampler, DataLoader=DataLoader)
    monkeypatch.setitem(sys.modules, "torch.utils.data", stand_in)
    fixed = {"kind": "fixed_order_epochs", "steps_per_epoch": 4}
    check_batches(fixed, DataLoader(SequentialSampler(), 4), stacklevel=1)
    # Beside a batch_sampler of one's own PyTorch keeps a sequential sampler that nobody asks.
    shuffled = DataLoader(SequentialSampler(), 4, BatchSampler(object()))
    mixed = DataLoader(SequentialSampler(), 4, Mixed(SequentialSampler()))
    for wrong in (DataLoader(object(), 4), DataLoader(SequentialSampler(), 5), shuffled, mixed):
        with pytest.raises(ValueError, match=r"charged as fixed_order_epochs.*a batch_sampler of [a-z_.]*$"):
            check_batches(fixed, wrong, stacklevel=1)
    with pytest.raises(ValueError, match=r"charged as cyclic_poisson.*a batch_sampler of [a-z_.]*$"):
        check_batches({"kind": "cyclic_poisson"}, DataLoader(SequentialSampler(), 4), stacklevel=1)


@pytest.mark.parametrize("sampling", [None, {"kind": "full_batch"}, {"kind": "shuffled_epochs", "steps_per_epoch": 4}])
def test_a_schedule_that_is_fixed_in_advance_costs_the_same_in_any_order(sampling: Any) -> None:
    check_batches(sampling, [1, 2], stacklevel=1)


def test_a_guard_charges_what_its_sampler_draws(client: Client) -> None:
    budget = client.budgets.create(
        "allocated",
        neighboring_relation="add_or_remove_one",
        filter={"kind": "renyi_dp", "epsilon": 8, "delta": 1e-5},
    )
    sampler = RandomAllocation(100, 10, num_bins=5)
    with client.guard(budget, noise_multiplier=4.0, sampler=sampler) as guard:
        assert guard.steps_reserved == 10
        sizes = [len(batch) for batch in guard.steps(Loader(sampler))]
    assert sum(sizes) == 200
    [event] = client.reservations.get(guard.id).charged_events or []
    assert (event["sampling"], event["count"]) == (sampler.sampling, 10)


def test_a_reservation_begins_with_an_epoch(client: Client, budget: Budget) -> None:
    """Halves of an epoch under two charges are not what either says: a record is in one of them for certain."""
    sampler = RandomAllocation(100, 12, num_bins=5)
    list(zip(range(7), sampler, strict=False))
    with pytest.raises(ValueError, match="in the middle of an epoch"):
        client.guard(budget, noise_multiplier=1.0, sampler=sampler)
    sampler.begin_epoch()
    assert sampler.steps_left == 2
    assert client.guard(budget, noise_multiplier=1.0, sampler=sampler).steps_reserved == 2
    list(sampler)
    assert not sampler.is_within_epoch, "nothing of the last epoch is left"
    poisson = Poisson(100, 12, sampling_probability=0.1)
    list(zip(range(7), poisson, strict=False))
    poisson.begin_epoch()
    assert poisson.steps_left == 5
    assert not poisson.is_within_epoch


@pytest.mark.parametrize(
    "sampler",
    [SAMPLER, Poisson(100, 10, sampling_probability=0.1), CUT],
    ids=lambda sampler: sampler.kind,
)
def test_the_service_accounts_what_a_sampler_says(client: Client, sampler: Sampler) -> None:
    event = gaussian(4.0, sampling=sampler.sampling, count=len(sampler))
    found = client.account([event], neighboring_relation="replace_special", delta=1e-5)
    full = client.account([gaussian(4.0, count=10)], neighboring_relation="replace_special", delta=1e-5)
    assert found.epsilon.upper < full.epsilon.upper
    assert for_event(event, dataset_size=100).sampling == sampler.sampling


def test_a_guard_refuses_a_loop_over_other_batches_before_anything_is_drawn(client: Client, budget: Budget) -> None:
    sampler = Poisson(100, 10, sampling_probability=0.1)
    held = client.guard(budget, noise_multiplier=50.0, sampler=sampler, steps=3)
    with pytest.raises(ValueError, match="is reserved"), held:
        list(held.steps(Poisson(100, 3, sampling_probability=0.2)))
    assert [found.state for found in client.reservations.list(budget)] == ["voided"]


def test_a_guard_asks_for_one_way_of_drawing(client: Client, budget: Budget) -> None:
    with pytest.raises(ValueError, match="how batches are drawn"):
        client.guard(budget, noise_multiplier=1.0, steps=3)
    with pytest.raises(ValueError, match="how batches are drawn"):
        client.guard(budget, noise_multiplier=1.0, sampler=SAMPLER, sampling=POISSON)
    with pytest.raises(ValueError, match="the number of steps"):
        client.guard(budget, noise_multiplier=1.0, sampling=POISSON)

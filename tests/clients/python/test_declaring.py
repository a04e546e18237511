"""What a loop's author says becomes the event that is reserved, or is refused in the author's own words."""

from __future__ import annotations

import re
from typing import Any

import pytest
from epsilond_client import Budget, Client
from epsilond_client.declaring import steps_per_epoch, training_event
from epsilond_client.samplers import Poisson, RandomAllocation

POISSON = {"kind": "poisson", "sampling_probability": 0.25}


def test_epochs_and_a_rate_are_steps(client: Client, budget: Budget) -> None:
    by_epochs = training_event(2.0, sample_rate=0.25, epochs=3)
    assert by_epochs == training_event(2.0, sampling_probability=0.25, steps=12)
    assert by_epochs["sampling"] == POISSON
    renyi = client.budgets.create(
        "rates", neighboring_relation="add_or_remove_one", filter={"kind": "renyi_dp", "epsilon": 8, "delta": 1e-5}
    )
    with client.guard(renyi, noise_multiplier=2.0, sample_rate=0.25, epochs=3) as guard:
        assert guard.steps_reserved == 12
        guard.take(5)
    [charged] = client.reservations.get(guard.id)["charged_events"]
    assert (charged["count"], charged["sampling"]) == (5, POISSON)


def test_an_epoch_has_as_many_steps_as_batches_that_a_rate_was_made_from() -> None:
    for batches in range(1, 3000):
        assert steps_per_epoch(1.0 / batches) == batches
    assert steps_per_epoch(64 / 1000) == 16, "rounded up: 15.6"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"sample_rate": 64, "epochs": 1},
            "sample_rate must be a number above 0 and at most 1, got 64: .* batch size divided by",
        ),
        ({"sampling_probability": 0.0, "steps": 1}, "sampling_probability must be a number above 0"),
        ({"sample_rate": 0.1, "sampling_probability": 0.1, "steps": 1}, "are the same number"),
        ({"sample_rate": 0.1, "epochs": 1, "steps": 1}, "not both; got 1 and 1"),
        ({"sample_rate": 0.1, "epochs": 0}, "epochs must be 1 or more"),
        ({"sample_rate": 0.1, "steps": 0}, "steps must be 1 or more"),
        ({"sample_rate": 0.1}, "the number of steps or, with a sample_rate, the number of epochs"),
        ({"sampling": {"kind": "full_batch"}, "epochs": 2}, "epochs need a sample_rate"),
        ({"sampler": Poisson(10, 5, sampling_probability=0.5), "epochs": 2}, "neither with a sampler"),
        ({"steps": 3}, "say how batches are drawn"),
        (
            {"sample_rate": 0.1, "steps": 1, "noise_multiplier": 0.0},
            "noise_multiplier must be a number above 0, got 0.0",
        ),
        ({"sample_rate": 0.1, "steps": 1, "noise_multiplier": "1.1"}, "must be a number above 0, got '1.1'"),
        ({"sample_rate": "0.1", "steps": 1}, "sample_rate must be a number above 0"),
        (
            {"sample_rate": 0.1, "steps": 1, "noise_multiplier": float("nan")},
            "noise_multiplier must be a number above 0",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        training_event(**{"noise_multiplier": 1.0} | given)
    assert re.match(r"/", str(refused.value)) is None, "no pointer into a request that the caller has not written"


def test_a_sampler_knows_its_steps() -> None:
    sampler = RandomAllocation(100, 10, num_bins=5)
    assert training_event(2.0, sampler=sampler)["count"] == 10
    assert training_event(2.0, sampler=sampler, steps=5)["count"] == 5

"""Calibrations for all records of one owner."""

from __future__ import annotations

import pytest

from accounting.errors import InvalidValue
from accounting.events import Event, Gaussian, Poisson, RandomAllocation, Sampling
from accounting.groups import group_epsilon_for_delta
from accounting.relations import NeighboringRelation
from accounting.solve import solve_noise
from accounting.targets import ApproximateDpTarget, GroupDpTarget, Target

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE


def noise_for(target: Target, sampling: Sampling, steps: int) -> float:
    return solve_noise(lambda noise: (Event(Gaussian(noise), sampling, steps),), ADD_REMOVE, target).value


@pytest.mark.parametrize(("sampling", "steps"), [(Poisson(0.01), 100), (RandomAllocation(20, 1), 20)], ids=repr)
def test_the_noise_is_the_least_that_holds_for_a_group(sampling: Sampling, steps: int) -> None:
    noise = noise_for(GroupDpTarget(3.0, 1e-5, 4), sampling, steps)
    held, less = (
        group_epsilon_for_delta([Event(Gaussian(sigma), sampling, steps)], ADD_REMOVE, 1e-5, 4).value.upper
        for sigma in (noise, 0.99 * noise)
    )
    assert held <= 3.0 < less
    assert noise > 1.5 * noise_for(ApproximateDpTarget(3.0, 1e-5), sampling, steps)


def test_one_record_is_no_group() -> None:
    with pytest.raises(InvalidValue, match=r"group_size must be in \[2, 1000\]"):
        GroupDpTarget(1.0, 1e-5, 1)
    assert GroupDpTarget(1.0, 1e-5, 8).say(2.0) == "epsilon 2 at delta 1e-05 for groups of 8"

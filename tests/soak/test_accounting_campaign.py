"""A thousand random specs per scheme against an independent referee: no upper bound below it, no lower bound above."""

from __future__ import annotations

import numpy as np
import pytest

from accounting.accountant import epsilon_for_delta
from accounting.dp_accounting_adapter import REFEREE_ALLOWANCE, referee_delta
from accounting.events import Event, Gaussian, Laplace, Poisson
from accounting.relations import NeighboringRelation
from tests.soak.report import write_report

SPECS = 1000
ADD_OR_REMOVE_ONE = NeighboringRelation.ADD_OR_REMOVE_ONE


def random_event(scheme: str, rng: np.random.Generator) -> Event:
    steps = int(np.exp(rng.uniform(0.0, np.log(2000.0))))
    noise = float(np.exp(rng.uniform(np.log(0.5), np.log(20.0))))
    if scheme == "gaussian_poisson":
        return Event(Gaussian(noise), Poisson(float(np.exp(rng.uniform(np.log(1e-4), np.log(0.5))))), steps)
    if scheme == "gaussian_full_batch":
        return Event(Gaussian(noise * np.sqrt(steps)), count=steps)
    return Event(Laplace(noise * np.sqrt(steps)), count=min(steps, 50))


@pytest.mark.soak
@pytest.mark.parametrize("scheme", ["gaussian_poisson", "gaussian_full_batch", "laplace_full_batch"])
def test_random_specs_agree_with_the_referee(scheme: str) -> None:
    """The referee rounds losses up, so its delta at our upper epsilon may exceed ours only by its own grid's error."""
    rng = np.random.default_rng(20)
    below, widths, unbounded = 0, [], 0
    for _ in range(SPECS):
        event, delta = random_event(scheme, rng), float(10.0 ** rng.uniform(-8.0, -2.0))
        answer = epsilon_for_delta([event], ADD_OR_REMOVE_ONE, delta).value
        if not np.isfinite(answer.upper):
            unbounded += 1
            continue
        widths.append(answer.width / max(1.0, answer.upper))
        if answer.lower > 0.0:
            # At a smaller epsilon the true delta is above the target: the pessimistic referee must say so too.
            claimed = referee_delta([event], ADD_OR_REMOVE_ONE, answer.lower * (1.0 - 1e-9))
            below += claimed < delta * (1.0 - 1e-6) - REFEREE_ALLOWANCE
    write_report(
        f"accounting_{scheme}",
        "make soak",
        {
            "specs": SPECS,
            "lower_bounds_above_the_referee": int(below),
            "unbounded": unbounded,
            "width_over_max_1_epsilon": {
                str(level): float(np.quantile(widths, level)) for level in (0.5, 0.9, 0.98, 1.0)
            },
        },
    )
    assert below == 0
    assert unbounded == 0

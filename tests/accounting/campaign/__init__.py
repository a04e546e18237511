"""Random specs per scheme, judged by an independent referee: what `make test` and `make soak` both run.

An engine's lower bound of epsilon may not lie above the referee's, nor its upper bound below what an attained pair
already costs. Referees: `tests.accounting.referee`, `tests.accounting.discrete_referee` and dp-accounting's own
distributions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from accounting.accountant import epsilon_for_delta
from accounting.dp_accounting_adapter import REFEREE_ALLOWANCE
from accounting.groups import group_epsilon_for_delta
from accounting.intervals import Interval
from tests.accounting.campaign.groups import GROUPS
from tests.accounting.campaign.outcomes import OUTCOMES
from tests.accounting.campaign.sampled import SAMPLED
from tests.accounting.campaign.scheduled import SCHEDULED
from tests.accounting.campaign.selection import SELECTION
from tests.accounting.campaign.smooth_norms import SMOOTH_NORMS
from tests.accounting.campaign.spec import Scheme, Spec

SEED = 20
#: Relative error of the referees from above at a grid of 1e-3, beside `REFEREE_ALLOWANCE`; of closed forms in double.
RELATIVE_ALLOWANCE = 1e-6
SCHEMES: dict[str, Scheme] = {**SCHEDULED, **SAMPLED, **OUTCOMES, **SELECTION, **SMOOTH_NORMS, **GROUPS}


@dataclass
class Outcome:
    """What a campaign found."""

    specs: int = 0
    lower_bounds_above_the_referee: list[str] = field(default_factory=list)
    upper_bounds_below_an_attained_pair: list[str] = field(default_factory=list)
    unbounded: int = 0
    widths: list[float] = field(default_factory=list)
    lower_bounds_checked: int = 0
    upper_bounds_checked: int = 0

    @property
    def violations(self) -> list[str]:
        return [*self.lower_bounds_above_the_referee, *self.upper_bounds_below_an_attained_pair]


def run_campaign(name: str, specs: int, seed: int = SEED) -> Outcome:
    """``specs`` random specs of the scheme ``name``; the seed fixes them."""
    scheme, outcome = SCHEMES[name], Outcome()
    rng = np.random.default_rng([seed, scheme.stream])
    for _ in range(specs):
        spec = scheme.draw(rng)
        value = _epsilon(spec)
        outcome.specs += 1
        if not math.isfinite(value.upper):
            outcome.unbounded += 1
            continue
        outcome.widths.append(value.width / max(1.0, value.upper))
        label = f"{spec}: {value}"
        if value.lower > 0.0:
            # At a smaller epsilon the true delta is above the target: who never underestimates must say so too.
            outcome.lower_bounds_checked += 1
            claimed = scheme.from_above(spec, value.lower * (1.0 - 1e-9))
            if claimed < spec.delta * (1.0 - RELATIVE_ALLOWANCE) - REFEREE_ALLOWANCE:
                outcome.lower_bounds_above_the_referee.append(f"{label} referee {claimed}")
        outcome.upper_bounds_checked += 1
        if scheme.from_below is None:
            attained = scheme.from_above(spec, value.upper) * (1.0 - 1e-9)
        else:
            mean, allowance = scheme.from_below(spec, value.upper, rng)
            attained = mean - allowance
        if attained > spec.delta:
            outcome.upper_bounds_below_an_attained_pair.append(f"{label} attained {attained}")
    return outcome


def _epsilon(spec: Spec) -> Interval:
    if spec.group_size == 1:
        return epsilon_for_delta([spec.event], spec.relation, spec.delta).value
    return group_epsilon_for_delta([spec.event], spec.relation, spec.delta, spec.group_size).value

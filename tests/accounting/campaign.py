"""Random specs per scheme, judged by an independent referee: what `make test` and `make soak` both run.

An engine's lower bound of epsilon may not lie above the referee's, nor its upper bound below what an attained pair
already costs. Referees: `tests.accounting.referee` and dp-accounting's own distributions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from accounting.accountant import epsilon_for_delta
from accounting.dp_accounting_adapter import REFEREE_ALLOWANCE, referee_delta
from accounting.events import Event, FullBatch, Gaussian, Laplace, Poisson, ShuffledEpochs, WithoutReplacement
from accounting.relations import NeighboringRelation
from tests.accounting import referee
from tests.accounting.references import gaussian_delta

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
SPECIAL = NeighboringRelation.REPLACE_SPECIAL
REPLACE = NeighboringRelation.REPLACE_ONE
#: Relative error of the referees from above at a grid of 1e-3, beside `REFEREE_ALLOWANCE`; of closed forms in double.
RELATIVE_ALLOWANCE = 1e-6
SEED = 20


@dataclass(frozen=True)
class Spec:
    """One random question: events, relation and delta."""

    event: Event
    relation: NeighboringRelation
    delta: float

    @property
    def probability(self) -> float:
        sampling = self.event.sampling
        return sampling.sampling_probability if isinstance(sampling, Poisson | WithoutReplacement) else 1.0

    @property
    def sensitivity(self) -> float:
        """On purpose not the engine's own."""
        return 2.0 if self.relation is REPLACE else 1.0

    @property
    def noise(self) -> float:
        mechanism = self.event.mechanism
        assert isinstance(mechanism, Gaussian | Laplace)
        return mechanism.noise_multiplier


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


@dataclass(frozen=True)
class Scheme:
    """How a scheme's specs are drawn and judged.

    Attributes:
        from_above: delta of the spec at an epsilon, never below the truth but for rounding.
        from_below: (mean, allowance) of what an attained pair costs; None where ``from_above`` is exact.
    """

    draw: Callable[[np.random.Generator], Spec]
    from_above: Callable[[Spec, float], float]
    from_below: Callable[[Spec, float, np.random.Generator], tuple[float, float]] | None


def run_campaign(name: str, specs: int, seed: int = SEED) -> Outcome:
    """``specs`` random specs of the scheme ``name``; the seed fixes them."""
    scheme, outcome = SCHEMES[name], Outcome()
    rng = np.random.default_rng([seed, sorted(SCHEMES).index(name)])
    for _ in range(specs):
        spec = scheme.draw(rng)
        value = epsilon_for_delta([spec.event], spec.relation, spec.delta).value
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


def _uniform_in_log(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(math.log(low), math.log(high))))


def _steps(rng: np.random.Generator, most: int = 2000) -> int:
    return int(_uniform_in_log(rng, 1.0, most + 1.0))


def _delta(rng: np.random.Generator) -> float:
    return _uniform_in_log(rng, 1e-8, 1e-2)


def _draw_poisson(relation: NeighboringRelation) -> Callable[[np.random.Generator], Spec]:
    def draw(rng: np.random.Generator) -> Spec:
        sampling = Poisson(_uniform_in_log(rng, 1e-4, 0.6))
        return Spec(Event(Gaussian(_uniform_in_log(rng, 0.5, 20.0)), sampling, _steps(rng)), relation, _delta(rng))

    return draw


def _draw_full_batch(rng: np.random.Generator) -> Spec:
    steps, relation = _steps(rng), (ADD_REMOVE, REPLACE, SPECIAL)[int(rng.integers(3))]
    noise = _uniform_in_log(rng, 0.3, 20.0) * math.sqrt(steps)
    return Spec(Event(Gaussian(noise), FullBatch(), steps), relation, _delta(rng))


def _draw_laplace(rng: np.random.Generator) -> Spec:
    steps, relation = _steps(rng, 50), (ADD_REMOVE, REPLACE)[int(rng.integers(2))]
    noise = _uniform_in_log(rng, 0.5, 20.0) * math.sqrt(steps)
    return Spec(Event(Laplace(noise), FullBatch(), steps), relation, _delta(rng))


def _draw_sampled_laplace(rng: np.random.Generator) -> Spec:
    sampling, steps = Poisson(_uniform_in_log(rng, 1e-3, 0.6)), _steps(rng)
    return Spec(Event(Laplace(_uniform_in_log(rng, 0.5, 20.0)), sampling, steps), ADD_REMOVE, _delta(rng))


def _draw_fixed_size(rng: np.random.Generator) -> Spec:
    size = int(_uniform_in_log(rng, 20.0, 1e6))
    sampling = WithoutReplacement(max(1, int(size * _uniform_in_log(rng, 1e-4, 0.6))), size)
    return Spec(Event(Gaussian(_uniform_in_log(rng, 1.0, 40.0)), sampling, _steps(rng)), REPLACE, _delta(rng))


def _draw_shuffled(rng: np.random.Generator) -> Spec:
    per_epoch, steps = int(_uniform_in_log(rng, 2.0, 1000.0)), _steps(rng, 10_000)
    relation = (REPLACE, SPECIAL)[int(rng.integers(2))]
    noise = _uniform_in_log(rng, 0.3, 20.0) * math.sqrt(math.ceil(steps / per_epoch))
    return Spec(Event(Gaussian(noise), ShuffledEpochs(per_epoch), steps), relation, _delta(rng))


def _library(spec: Spec, epsilon: float) -> float:
    return referee_delta([spec.event], spec.relation, epsilon, interval=1e-3)


def _laplace_from_above(spec: Spec, epsilon: float) -> float:
    scale = spec.noise / spec.sensitivity
    return referee.laplace_from_above(scale, spec.probability, spec.event.count, epsilon, 1e-3)


def _replace_from_above(spec: Spec, epsilon: float) -> float:
    profile = referee.replace_profile(spec.noise, spec.probability)
    return referee.delta_from_above(profile, spec.event.count, epsilon, 1e-3)


def _fixed_size_from_above(spec: Spec, epsilon: float) -> float:
    profile = referee.symmetrized_profile(spec.noise, spec.probability)
    return referee.delta_from_above(profile, spec.event.count, epsilon, 1e-3)


def _attained(
    pair: Callable[[Spec], referee.AttainedPair],
) -> Callable[[Spec, float, np.random.Generator], tuple[float, float]]:
    def from_below(spec: Spec, epsilon: float, rng: np.random.Generator) -> tuple[float, float]:
        draws = int(np.clip(100_000 / spec.event.count, 300, 8000))
        return pair(spec).estimate_delta(spec.event.count, epsilon, rng, draws)

    return from_below


def _gaussian_shift(spec: Spec, epsilon: float) -> float:
    """Exact: a record that takes part in n steps shifts by sensitivity sqrt(n) noise standard deviations.

    For shuffled epochs these batches are attained: some order puts a record's steps first in every epoch.
    """
    sampling, count = spec.event.sampling, spec.event.count
    taken = math.ceil(count / sampling.steps_per_epoch) if isinstance(sampling, ShuffledEpochs) else count
    return float(gaussian_delta(spec.sensitivity * math.sqrt(taken) / spec.noise, epsilon))


SCHEMES: dict[str, Scheme] = {
    "gaussian_poisson": Scheme(
        _draw_poisson(ADD_REMOVE),
        _library,
        _attained(lambda spec: referee.poisson_gaussian(spec.noise, spec.probability)),
    ),
    "gaussian_poisson_replace_one": Scheme(
        _draw_poisson(REPLACE),
        _replace_from_above,
        _attained(lambda spec: referee.poisson_gaussian_replace(spec.noise, spec.probability)),
    ),
    "gaussian_full_batch": Scheme(_draw_full_batch, _gaussian_shift, None),
    "gaussian_shuffled_epochs": Scheme(_draw_shuffled, _gaussian_shift, None),
    "gaussian_without_replacement": Scheme(
        _draw_fixed_size,
        _fixed_size_from_above,
        # A record is swapped for its opposite while all others agree with the one that comes in: attained.
        _attained(lambda spec: referee.poisson_gaussian(spec.noise / 2.0, spec.probability)),
    ),
    "laplace_full_batch": Scheme(
        _draw_laplace,
        _laplace_from_above,
        _attained(lambda spec: referee.poisson_laplace(spec.noise / spec.sensitivity, 1.0)),
    ),
    "laplace_poisson": Scheme(
        _draw_sampled_laplace,
        _laplace_from_above,
        _attained(lambda spec: referee.poisson_laplace(spec.noise, spec.probability)),
    ),
}

"""Laws of the random number of runs of a selection, as Papernot & Steinke 2022 analyse them.

With f(x) = E x^K, a set of the best outcomes that one run hits with probability x contains the best of K independent
runs with probability 1 - f(1 - x), and the selection's density relative to one run's is f' (`selection`). The cost of
its privacy therefore depends on the ratio of f' at two probabilities that a test of neighbours can have.

With u, v the probabilities of a set under two neighbours, v <= s u + d for every s = e^epsilon, d = delta(epsilon)
(both directions). f' is taken at the complements 1 - u and 1 - v, and under such a line each supremum has a closed
form; the smallest over any lines is a bound, and over all of them it is exact, because the set above a level is convex.

* Truncated negative binomial: f'(1 - u) = E[K] (1 + b u)^-(eta + 1), b = 1 / gamma - 1.
* Poisson: f'(1 - u) = mu e^(-mu u).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.canonical import Json
from accounting.described import Described, Real, Whole
from accounting.errors import InvalidValue, Unreachable
from accounting.numbers import read_real

Array = NDArray[np.float64]

MAX_EXPECTED_TRIALS = 1e6
MIN_GAMMA = 1e-12
MAX_ETA = 100.0
#: An allowance for the rounding of the closed forms in this module, relative to their largest terms.
_ALLOWANCE = 1e-13


@dataclass(frozen=True, slots=True)
class TruncatedNegativeBinomial(Described):
    """P(K = k) proportional to (1 - gamma)^k times the product over l < k of (l + eta) / (l + 1), for k >= 1.

    eta = 1 is the geometric law, eta = 0 the logarithmic one; at eta = -1 there is one trial.

    Attributes:
        eta: In [-1, 100]. A smaller eta loses less privacy and spreads K more widely.
        gamma: In [1e-12, 1]; at 1 there is one trial.

    Source: Papernot & Steinke 2022, Definition 1.

    >>> TruncatedNegativeBinomial(1.0, 0.1).expected_trials
    10.0
    """

    kind: ClassVar[str] = "truncated_negative_binomial"
    eta: Annotated[float, Real(-1.0, MAX_ETA)]
    gamma: Annotated[float, Real(MIN_GAMMA, 1.0)]

    def __post_init__(self) -> None:
        Described.__post_init__(self)
        if self.expected_trials > MAX_EXPECTED_TRIALS * (1.0 + 1e-9):
            raise InvalidValue(
                f"gamma {self.gamma:g} gives {self.expected_trials:g} expected trials, more than "
                f"{MAX_EXPECTED_TRIALS:g}",
                pointer=("gamma",),
            )

    @classmethod
    def with_expected_trials(cls, eta: float, expected_trials: float) -> TruncatedNegativeBinomial:
        """Return the law whose mean is this.

        Args:
            eta: As above.
            expected_trials: In [1, 1e6].

        Raises:
            Unreachable: If no gamma in [1e-12, 1] has this mean, as for eta near -1.

        >>> TruncatedNegativeBinomial.with_expected_trials(1, 20).gamma
        0.05
        """
        one = cls(eta, 1.0)
        wanted = read_real("expected_trials", expected_trials, 1.0, MAX_EXPECTED_TRIALS)
        if one.eta == 1.0:
            return cls(one.eta, 1.0 / wanted)
        if wanted == 1.0:
            return one

        def excess(log_gamma: float) -> float:
            return math.log(_mean(one.eta, max(math.exp(log_gamma), MIN_GAMMA)) / wanted)

        least = math.log(MIN_GAMMA)
        if excess(least) < 0.0:
            raise Unreachable(
                f"no gamma of at least {MIN_GAMMA:g} gives {wanted:g} expected trials at eta {one.eta:g}; take a "
                "larger eta",
                pointer=("expected_trials",),
            )
        return cls(one.eta, math.exp(scipy.optimize.brentq(excess, least, 0.0, xtol=1e-15, rtol=1e-15)))

    @property
    def expected_trials(self) -> float:
        """E[K] = eta (1 / gamma - 1) / (1 - gamma^eta); (1 / gamma - 1) / log(1 / gamma) at eta 0."""
        return _mean(self.eta, self.gamma)

    @property
    def none_probability(self) -> float:
        """Return 0: there is always a run."""
        return 0.0

    def chance_that_the_best_is_in(self, probabilities: Array) -> Array:
        """Return 1 - f(1 - x), the probability that the best run lies in a set of best outcomes that one run hits with
        probability x.
        """
        if self.gamma == 1.0 or self.eta == -1.0:
            return probabilities
        log_inverse = -math.log(self.gamma)
        grown: Array = np.log1p(math.expm1(log_inverse) * probabilities)
        if abs(self.eta) * log_inverse < 1e-12:
            return grown / log_inverse
        chance: Array = np.expm1(-self.eta * grown) / math.expm1(-self.eta * log_inverse)
        return chance

    def density(self, probabilities: Array) -> Array:
        """Return f'(1 - u): E[K] (1 + b u)^-(eta + 1)."""
        density: Array = self.expected_trials * np.exp(-(1.0 + self.eta) * np.log1p(self._odds * probabilities))
        return density

    def log_ratio(self, slopes: Array, deltas: Array) -> float:
        """Bound log f'(1 - u) - log f'(1 - v) over v <= s u + d: (1 + eta) log((1 + b v) / (1 + b u)).

        It is monotone up to the point where v = 1, and falls beyond.
        """
        b = self._odds
        whole = np.maximum(1.0 - deltas, 0.0) / slopes
        ends = np.maximum(np.log1p(b * deltas), math.log1p(b) - np.log1p(b * whole))
        return self._enlarged((1.0 + self.eta) * float(np.min(ends)))

    def log_renyi_factor(self, order: float, slopes: Array, deltas: Array) -> float:
        """Bound order log f'(1 - u) - (order - 1) log f'(1 - v) over v <= s u + d.

        It is log E[K] + (1 + eta) ((order - 1) log(1 + b v) - order log(1 + b u)), which rises to one maximum.
        """
        b, tilt = self._odds, order - 1.0
        if b == 0.0:
            return 0.0
        best = (tilt * slopes - order * (1.0 + b * deltas)) / (b * slopes)
        u = np.clip(best, 0.0, np.maximum(1.0 - deltas, 0.0) / slopes)
        v = np.minimum(slopes * u + deltas, 1.0)
        rises = tilt * np.log1p(b * v) - order * np.log1p(b * u)
        rounding = _ALLOWANCE * float(order * math.log1p(b) + 1.0)
        return self._enlarged(math.log(self.expected_trials)) + (1.0 + self.eta) * (float(np.min(rises)) + rounding)

    def log_renyi_factor_by_moments(self, order: float, orders: Array, divergences: Array) -> float:
        """Bound the factor of `log_renyi_factor` by Renyi divergences e_hat of orders l_hat, as in Theorem 2.

        log E[K] + (order - 1) (1 + eta) ((1 - 1 / l_hat) e_hat + log(1 / gamma) / l_hat), the smallest.
        """
        terms = (1.0 - 1.0 / orders) * divergences - math.log(self.gamma) / orders
        least = (1.0 + self.eta) * float(np.min(terms))
        return self._enlarged(math.log(self.expected_trials) + (order - 1.0) * least)

    def to_json(self) -> dict[str, Json]:
        return Described.to_json(self) | {"expected_trials": self.expected_trials}

    @property
    def _odds(self) -> float:
        return (1.0 - self.gamma) / self.gamma

    @staticmethod
    def _enlarged(value: float) -> float:
        return value * (1.0 + _ALLOWANCE) + _ALLOWANCE if value > 0.0 else 0.0


def _mean(eta: float, gamma: float) -> float:
    if gamma == 1.0 or eta == -1.0:
        return 1.0
    if eta == 1.0:
        return 1.0 / gamma
    log_inverse = -math.log(gamma)
    falling = -math.expm1(-eta * log_inverse) / eta if eta else log_inverse
    return math.expm1(log_inverse) / falling


@dataclass(frozen=True, slots=True)
class PoissonTrials:
    """A Poisson number of runs; with probability e^-mean there is none, and nothing is released.

    Attributes:
        mean: In (0, 1e6].

    Source: Papernot & Steinke 2022, section 3.2.
    """

    kind: ClassVar[str] = "poisson"
    mean: float

    def __post_init__(self) -> None:
        value = read_real("expected_trials", self.mean, 0.0, MAX_EXPECTED_TRIALS, open_lower=True)
        object.__setattr__(self, "mean", value)

    @property
    def expected_trials(self) -> float:
        return self.mean

    @property
    def none_probability(self) -> float:
        """e^-mean, rounded up."""
        return math.exp(-self.mean) * (1.0 + _ALLOWANCE)

    def chance_that_the_best_is_in(self, probabilities: Array) -> Array:
        """Return 1 - e^(-mean x)."""
        chance: Array = -np.expm1(-self.mean * probabilities)
        return chance

    def density(self, probabilities: Array) -> Array:
        """Return f'(1 - u): mean e^(-mean u)."""
        density: Array = self.mean * np.exp(-self.mean * probabilities)
        return density

    def log_ratio(self, slopes: Array, deltas: Array) -> float:
        """Bound mean (v - u) over v <= s u + d: at u = 0, or where v is 1."""
        whole = np.maximum(1.0 - deltas, 0.0) / slopes
        return self.mean * float(np.min(np.maximum(deltas, 1.0 - whole))) * (1.0 + _ALLOWANCE)

    def log_renyi_factor(self, order: float, slopes: Array, deltas: Array) -> float:
        """Bound log mean + mean ((order - 1) v - order u) over v <= s u + d: at u = 0, or where v is 1.

        The line with s = order / (order - 1) gives (order - 1) d: Theorem 6.
        """
        tilt = order - 1.0
        whole = np.maximum(1.0 - deltas, 0.0) / slopes
        rises = np.maximum(tilt * deltas, tilt - order * whole)
        rounding = _ALLOWANCE * (self.mean * order + abs(math.log(self.mean)) + 1.0)
        return math.log(self.mean) + self.mean * float(np.min(rises)) + rounding

    def to_json(self) -> dict[str, Json]:
        return {"kind": self.kind, "expected_trials": self.mean}


@dataclass(frozen=True, slots=True)
class FixedTrials(Described):
    """A fixed number of runs, which may be known: all runs may be released, and they compose.

    No smaller cost is proved for the best run alone: f' = k x^(k - 1) vanishes at 0, so its ratio has no bound.
    """

    kind: ClassVar[str] = "fixed"
    trials: Annotated[int, Whole(1, int(MAX_EXPECTED_TRIALS))]

    @property
    def expected_trials(self) -> float:
        return float(self.trials)

    def to_json(self) -> dict[str, Json]:
        return Described.to_json(self) | {"expected_trials": self.expected_trials}


RandomTrials = TruncatedNegativeBinomial | PoissonTrials
Trials = RandomTrials | FixedTrials
_SHAPES: Mapping[str, float] = {"geometric": 1.0, "logarithmic": 0.0}
TRIALS = ("truncated_negative_binomial", *_SHAPES, PoissonTrials.kind, FixedTrials.kind)


def trials_of(
    kind: str,
    *,
    expected_trials: float | None = None,
    eta: float | None = None,
    gamma: float | None = None,
    trials: int | None = None,
) -> Trials:
    """Return a law by its name: ``geometric`` and ``logarithmic`` are truncated negative binomial with eta 1 and 0.

    Args:
        kind: One of `TRIALS`.
        expected_trials: The mean. For the negative binomial laws, ``gamma`` may be given instead.
        eta: For ``truncated_negative_binomial``.
        gamma: For the negative binomial laws.
        trials: For ``fixed``.

    Raises:
        InvalidValue: If the name is unknown, or a number is missing, given twice, not a parameter of this law, or out
            of range.

    >>> trials_of("geometric", expected_trials=20)
    TruncatedNegativeBinomial(eta=1.0, gamma=0.05)
    """
    if kind not in TRIALS:
        raise InvalidValue(f"kind must be one of {', '.join(TRIALS)}", pointer=("kind",))
    given = {"expected_trials": expected_trials, "eta": eta, "gamma": gamma, "trials": trials}
    wanted = {"truncated_negative_binomial": {"eta"}, "fixed": {"trials"}, "poisson": {"expected_trials"}}.get(
        kind, set()
    )
    for name, value in given.items():
        free = kind not in {"fixed", "poisson"} and name in {"expected_trials", "gamma"}
        if value is not None and name not in wanted and not free:
            raise InvalidValue(f"{kind} takes no {name}", pointer=(name,))
    for name in sorted(wanted):
        if given[name] is None:
            raise InvalidValue(f"{kind} needs {name}", pointer=(name,))
    if kind == FixedTrials.kind:
        assert trials is not None
        return FixedTrials(trials)
    if kind == PoissonTrials.kind:
        assert expected_trials is not None
        return PoissonTrials(expected_trials)
    shape = _SHAPES.get(kind, eta)
    assert shape is not None
    if (gamma is None) == (expected_trials is None):
        raise InvalidValue(f"{kind} takes exactly one of expected_trials and gamma", pointer=("expected_trials",))
    if gamma is not None:
        return TruncatedNegativeBinomial(shape, gamma)
    assert expected_trials is not None
    return TruncatedNegativeBinomial.with_expected_trials(shape, expected_trials)

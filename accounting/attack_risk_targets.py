"""Calibration targets that limit an attacker: advantage, true positive rate, Bayes risk; see `targets`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import scipy

from accounting.accountant import delta_for_epsilon
from accounting.bayes_risk import SMALLEST_PRIOR, log_odds, risk_of_delta
from accounting.composition.gaussian_dp import mu_of_gaussian
from accounting.composition.intersection import EVALUATORS, QUICK_EVALUATORS
from accounting.described import Described, Real
from accounting.errors import InvalidValue
from accounting.events import Event
from accounting.intervals import Answer, Interval
from accounting.relations import NeighboringRelation
from accounting.true_positive_rate import tpr_for_fpr

_BELOW_ONE = math.nextafter(1.0, 0.0)
Rate = Annotated[float, Real(0.0, _BELOW_ONE, open_lower=True)]


@dataclass(frozen=True, slots=True)
class AdvantageTarget(Described):
    """A target that limits the advantage of membership attacks: their true positive rate less their false positive
    rate."""

    kind: ClassVar[str] = "attack_risk"
    additive: ClassVar[bool] = False
    advantage: Rate

    @property
    def limit(self) -> float:
        return self.advantage

    def assess(self, events: Sequence[Event], relation: NeighboringRelation, *, quick: bool = False) -> Answer:
        return delta_for_epsilon(events, relation, 0.0, evaluators=QUICK_EVALUATORS if quick else EVALUATORS)

    def level(self, figure: float) -> float:
        """Return mu of the Gaussian pair with this advantage: 2 Phi(mu/2) - 1."""
        return 2.0 * math.sqrt(2.0) * float(scipy.special.erfinv(figure))

    def say(self, figure: float) -> str:
        return f"an attack's advantage of {figure:.6g}"


@dataclass(frozen=True, slots=True)
class TruePositiveRateTarget(Described):
    """A target that limits the true positive rate of membership attacks at a given false positive rate."""

    kind: ClassVar[str] = "attack_risk"
    additive: ClassVar[bool] = False
    fpr: Rate
    tpr: Rate

    def __post_init__(self) -> None:
        Described.__post_init__(self)
        if self.tpr <= self.fpr:
            raise InvalidValue(
                f"tpr must be above fpr {self.fpr:g}: an attacker who never looks at the output already reaches a "
                "true positive rate of fpr",
                pointer=("tpr",),
            )

    @property
    def limit(self) -> float:
        return self.tpr

    def assess(self, events: Sequence[Event], relation: NeighboringRelation, *, quick: bool = False) -> Answer:
        return tpr_for_fpr(events, relation, self.fpr, evaluators=QUICK_EVALUATORS if quick else EVALUATORS)

    def level(self, figure: float) -> float:
        """Return mu of the Gaussian pair with this rate: Phi(mu + Phi^-1(fpr))."""
        return float(scipy.special.ndtri(figure) - scipy.special.ndtri(self.fpr))

    def say(self, figure: float) -> str:
        return f"a true positive rate of {figure:.6g} at false positive rate {self.fpr:g}"


@dataclass(frozen=True, slots=True)
class BayesRiskTarget(Described):
    """A target for the smallest probability of error of a membership attacker with a prior.

    The Bayes risk is s (1 - delta) with s = min(prior, 1 - prior) and delta at the prior's log-odds, so the target
    limits this delta to 1 - bayes_risk / s. `risk` turns a delta into a Bayes risk again.
    """

    kind: ClassVar[str] = "attack_risk"
    additive: ClassVar[bool] = False
    prior: Annotated[float, Real(SMALLEST_PRIOR, _BELOW_ONE)]
    bayes_risk: Annotated[float, Real(0.0, 0.5, open_lower=True)]

    def __post_init__(self) -> None:
        Described.__post_init__(self)
        if self.limit <= 0.0:
            raise InvalidValue(
                f"bayes_risk must be below {min(self.prior, 1.0 - self.prior):g}: an attacker who never looks at "
                "the output already errs with no larger probability",
                pointer=("bayes_risk",),
            )

    @property
    def limit(self) -> float:
        """The largest permitted delta, rounded down by more than the rounding error of `risk`."""
        return 1.0 - self.bayes_risk / log_odds(self.prior)[0] - 2.0**-48

    def assess(self, events: Sequence[Event], relation: NeighboringRelation, *, quick: bool = False) -> Answer:
        _, least, _ = log_odds(self.prior)
        return delta_for_epsilon(events, relation, least, evaluators=QUICK_EVALUATORS if quick else EVALUATORS)

    def risk(self, deltas: Interval) -> Interval:
        """Return the Bayes risk of delta at the prior's log-odds."""
        return risk_of_delta(log_odds(self.prior)[0], deltas, deltas)

    def level(self, figure: float) -> float:
        """Return mu of the Gaussian pair with this delta."""
        if not 0.0 < figure < 1.0:
            return 0.0 if figure <= 0.0 else math.inf
        return mu_of_gaussian(log_odds(self.prior)[1], figure)

    def say(self, figure: float) -> str:
        risk = log_odds(self.prior)[0] * (1.0 - figure)
        return f"a Bayes risk of {risk:.6g} at prior {self.prior:g}"

"""This module calibrates a run that is evaluated on held-out rows. The training and the evaluation share one target.

First, the noise of the evaluation is computed from a small share of the target. Then the training is calibrated for the
rest of the target. The rest is first guessed as if the training were one Gaussian mechanism, for which squares of mu
add up. The guess is then corrected until the certified cost of training and evaluation together meets the target. The
privacy guarantee does not depend on the guess.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from accounting.errors import Unreachable, Unsupported
from accounting.events import Event, Gaussian
from accounting.group_targets import GroupDpTarget
from accounting.intervals import Interval
from accounting.relations import NeighboringRelation
from accounting.solve import solve_noise
from accounting.targets import (
    AdvantageTarget,
    ApproximateDpTarget,
    BayesRiskTarget,
    BudgetTarget,
    GaussianDpTarget,
    PureDpTarget,
    Target,
    TruePositiveRateTarget,
    ZcdpTarget,
)
from calibrators.choices import Choice
from calibrators.draft import Draft
from calibrators.held_out import EVALUATION_NOISE, HeldOutEvaluation
from calibrators.presets import Objective, Preset
from calibrators.spec import Calibration, OpenDelta, OpenEpsilon, Spec

#: The share of the target that an evaluation takes unless its noise is given. Shares are measured in squares of mu.
#: With this share, the noise of the training is about a twentieth larger than without an evaluation.
SHARE = 0.1
#: The search for a plan stops when the certified cost is at least this share of the target, or after this many plans.
_USED, _TRIES = 0.99, 8
#: The factor on the noise at which the slope of the cost is measured.
_MORE = 1.05


@dataclass(frozen=True, slots=True)
class EvaluatedRun:
    """A run whose model is evaluated on held-out rows.

    Attributes:
        algorithm, spec, preset, facts: As in `calibrators.draft.Draft`. The target is for training and evaluation
            together.
        noise_multiplier: The noise multiplier of the evaluation; None takes a share of the target.
    """

    algorithm: str | None
    spec: Spec
    preset: Preset | None
    facts: Objective
    noise_multiplier: float | None = None

    def calibrate(self) -> Calibration:
        """Calibrate the training for the part of the target that the evaluation leaves.

        Guarantees:
            - together_they_meet_the_target: the certified cost of the plan's events, including the evaluation, is at
              most the target's limit.

        Raises:
            Unsupported: If Gaussian noise has no cost under the target.
            Unreachable: If the evaluation alone misses the target, or if no training meets the rest of the target. As
            `calibrators.draft.Draft.calibrate` does.
        """
        relation = self.spec.neighboring_relation
        assert relation is not None, "a run with held-out rows has a budget, and a budget has a neighbouring relation"
        target = _gaussian(self.spec.target)
        alone = solve_noise(lambda noise: (Event(Gaussian(noise)),), relation, target).value
        evaluation = HeldOutEvaluation(self._noise(alone))
        left = 1.0 - (alone / evaluation.noise_multiplier) ** 2
        if left <= 0.0:
            raise Unreachable(
                f"the evaluation alone needs a noise multiplier of {alone:.6g} to meet "
                f"{target.say(target.limit)}, and the training needs a part of the target: give a "
                f"noise_multiplier above {alone:.6g}, or leave it out",
                pointer=("evaluation", "noise_multiplier"),
            )
        noise = alone / math.sqrt(left)
        best: Calibration | None = None
        for _ in range(_TRIES):
            guess, slope = _gaussian_cost(target, noise, relation)
            found = self._trained_for(target, min(guess, target.limit))
            plan = replace(found.plan, evaluation=evaluation)
            achieved = target.assess(plan.events, relation)
            used = target.level(achieved.value.upper) / target.level(target.limit)
            if achieved.value.upper <= target.limit:
                best = replace(found, plan=plan, achieved=achieved, choices=self._choices(found, evaluation))
                if used >= _USED:
                    break
            # The level falls more slowly than the noise rises, because the evaluation's part of it does not change.
            noise *= (used / ((1.0 + _USED) / 2.0)) ** (1.0 / (left * slope))
        if best is None:
            raise Unreachable(
                f"no training was found that meets {target.say(target.limit)} together with the evaluation; "
                "give the evaluation more noise, or leave the evaluation out",
                pointer=("evaluation",),
            )
        return best

    def _noise(self, alone: float) -> float:
        if self.noise_multiplier is not None:
            return self.noise_multiplier
        return min(max(alone / math.sqrt(SHARE), EVALUATION_NOISE.lower), EVALUATION_NOISE.upper)

    def _trained_for(self, target: Target, limit: float) -> Calibration:
        spec = replace(self.spec, target=_limited(target, limit))
        return Draft(self.algorithm, spec, self.preset, self.facts).calibrate()

    def _choices(self, found: Calibration, evaluation: HeldOutEvaluation) -> tuple[Choice, ...]:
        if self.noise_multiplier is not None:
            return found.choices
        reason = (
            f"The evaluation takes {SHARE:.0%} of the target, measured in squares of mu. The training is "
            "calibrated for the rest. It has about a twentieth more noise than without the evaluation."
        )
        value = evaluation.noise_multiplier
        return (*found.choices, Choice("evaluation.noise_multiplier", value, reason, "docs/concepts/held_out_rows.md"))


def _gaussian(target: Target | OpenEpsilon | OpenDelta) -> Target:
    """Return the target if a Gaussian mechanism has a cost under this kind of target.

    Raises:
        Unsupported: If Gaussian noise has no cost under the target.
    """
    if not isinstance(target, PureDpTarget | BudgetTarget | OpenEpsilon | OpenDelta):
        return target
    raise Unsupported(
        "an evaluation on held-out rows uses Gaussian noise, which has no cost under this target: give an "
        "approximate_dp, zcdp, gaussian_dp or attack_risk target, or leave evaluation out",
        pointer=("target", "kind"),
    )


def _gaussian_cost(target: Target, noise: float, relation: NeighboringRelation) -> tuple[float, float]:
    """Return the cost of one Gaussian mechanism, and how fast the log of its level falls with the log of the noise."""
    cost, less = (target.assess((Event(Gaussian(each)),), relation).value.upper for each in (noise, noise * _MORE))
    return cost, math.log(target.level(cost) / target.level(less)) / math.log(_MORE)


def _limited(target: Target, limit: float) -> Target:
    """Return the target with another limit."""
    match target:
        case ZcdpTarget():
            return ZcdpTarget(limit)
        case GaussianDpTarget():
            return GaussianDpTarget(limit)
        case AdvantageTarget():
            return AdvantageTarget(limit)
        case TruePositiveRateTarget():
            return replace(target, tpr=limit)
        case BayesRiskTarget():
            return replace(target, bayes_risk=target.risk(Interval(limit, limit, limit)).lower)
        case _:
            assert isinstance(target, ApproximateDpTarget | GroupDpTarget), "as was checked"
            return replace(target, epsilon=limit)

"""Attack risks, and the trade-off curve as one mu, in `/v1/account`."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.bayes_risk import log_odds, risk_of_delta
from accounting.gaussian_regret import RegretOfGaussian, gaussian_summary
from accounting.intervals import Interval
from app.evaluation import Evaluation
from app.privacy.account import (
    AttackRiskBody,
    AttackRiskRequest,
    BayesRiskBody,
    GaussianSummaryBody,
    RegretBody,
    TruePositiveRateBody,
)
from app.problems import refused_at
from app.wire.answers import IntervalBody

_UP, _DOWN = 1.0 + 2.0**-51, 1.0 - 2.0**-51


def attack_risk(evaluation: Evaluation, wanted: AttackRiskRequest) -> AttackRiskBody:
    """Return the advantage, the true positive rates and the Bayes risks of the events.

    Raises:
        Problem: 422 when the engine refuses the events, or they take too long.
    """
    odds = [log_odds(prior) for prior in wanted.prior]
    asked = [0.0, *(epsilon for _, least, most in odds for epsilon in (least, most))]
    advantage, *deltas = [answer.value for answer in evaluation.deltas(asked, "attack_risk", "prior")]
    risks = [risk_of_delta(odds[k][0], deltas[2 * k + 1], deltas[2 * k]) for k in range(len(odds))]
    return AttackRiskBody(
        advantage=IntervalBody.of(advantage),
        bayes_security=IntervalBody.of(_one_less(advantage)),
        true_positive_rates=[
            TruePositiveRateBody(fpr=fpr, tpr=IntervalBody.of(found.value))
            for fpr, found in zip(
                wanted.fpr, evaluation.true_positive_rates(wanted.fpr, "attack_risk", "fpr"), strict=True
            )
        ],
        bayes_risks=[
            BayesRiskBody(
                prior=prior, bayes_risk=IntervalBody.of(risk), success_probability=IntervalBody.of(_one_less(risk))
            )
            for prior, risk in zip(wanted.prior, risks, strict=True)
        ],
    )


def gaussian_dp(evaluation: Evaluation, regret: float) -> GaussianSummaryBody:
    """Return the events' trade-off curve as one mu, with its regret.

    Raises:
        Problem: 422 when no mu is within the regret, or the events take too long.
    """

    def deltas_at(epsilons: Sequence[float]) -> list[Interval]:
        unique = sorted(set(epsilons))
        known = dict(zip(unique, evaluation.deltas(unique, "gaussian_dp"), strict=True))
        return [known[epsilon].value for epsilon in epsilons]

    with refused_at("gaussian_dp"):
        found = gaussian_summary(
            evaluation.events, evaluation.relation, regret, deltas_at=deltas_at, group_size=evaluation.group_size
        )
    return GaussianSummaryBody(closest=_body(found.closest), conservative=_body(found.conservative))


def _body(found: RegretOfGaussian) -> RegretBody:
    return RegretBody(
        mu=found.mu,
        promised_too_much=found.promised_too_much,
        promised_too_little=found.promised_too_little,
        regret=found.regret,
    )


def _one_less(interval: Interval) -> Interval:
    """Return 1 - x, rounded outward."""
    lower, upper = (1.0 - interval.upper) * _DOWN, min(1.0, (1.0 - interval.lower) * _UP)
    return Interval(lower, min(max(1.0 - interval.estimate, lower), upper), upper)

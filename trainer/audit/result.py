"""The findings of an audit, beside the claim."""

from __future__ import annotations

import math
from dataclasses import dataclass

from accounting.canonical import Json
from accounting.intervals import Interval
from trainer.audit.trials import Counts, Ranks, Rule

CONSISTENT = "consistent"
VIOLATED = "violated"


@dataclass(frozen=True, slots=True)
class Finding:
    """The bound that the guesses of one rule prove at one delta.

    Attributes:
        delta: The delta at which claim and bound are compared.
        claim: The certified epsilon, at delta, of the events that were attacked.
        epsilon_lower: A lower bound of the epsilon of the attacked program, at ``confidence``.
        confidence: The confidence of this finding alone.
        rule: The rule for guessing, which was chosen on the pilot, before the counted trials.
        counts: The outcomes of the guesses.
    """

    delta: float
    claim: Interval
    epsilon_lower: float
    confidence: float
    rule: Rule
    counts: Counts

    @property
    def contradicts_the_claim(self) -> bool:
        return self.epsilon_lower > self.claim.upper

    def to_json(self) -> dict[str, Json]:
        return {
            "delta": self.delta,
            "claim": {end: _finite(getattr(self.claim, end)) for end in ("lower", "estimate", "upper")},
            "epsilon_lower": self.epsilon_lower,
            "confidence": self.confidence,
            "score": self.rule.score,
            "rule": _rule_to_json(self.rule),
            "guesses": self.counts.guesses,
            "correct": self.counts.correct,
            "members": self.counts.members,
            "hits": self.counts.hits,
            "alarms": self.counts.alarms,
            "rejections": self.counts.rejections,
            "misses": self.counts.misses,
        }


@dataclass(frozen=True, slots=True)
class AuditResult:
    """An audit of one plan.

    Attributes:
        verdict: ``"violated"`` if a lower bound is above the upper end of the claim at its delta. Otherwise
            ``"consistent"``: the attack found nothing, which proves nothing about better attacks.
        confidence: An honest run is called violated with probability at most 1 - confidence.
        finding: The finding at the delta in question.
        strongest: The finding at the delta, from a fixed list, at which the bound exceeds the claim most; None for the
            method of one run.
        method: The name of the method.
        design: The name of the canaries' design.
        trials: The number of counted canaries.
        canaries_per_run: The number of canaries of one run.
        runs: The number of runs of the trainer, or of vectors of the evaluation, including the pilot.
        largest_provable_epsilon: The epsilon that this many trials would prove if every guess were right.
        notes: Notes about the power of this audit, for its reader.
    """

    verdict: str
    confidence: float
    finding: Finding
    strongest: Finding | None
    method: str
    design: str
    trials: int
    canaries_per_run: int
    runs: int
    largest_provable_epsilon: float
    notes: tuple[str, ...]

    @property
    def epsilon_lower(self) -> float:
        """A lower bound of the epsilon of the attacked program, at the delta in question."""
        return self.finding.epsilon_lower

    @property
    def claim(self) -> Interval:
        """The certified epsilon at the delta in question."""
        return self.finding.claim

    def to_json(self) -> dict[str, Json]:
        return {
            "verdict": self.verdict,
            "confidence": self.confidence,
            "finding": self.finding.to_json(),
            "strongest": None if self.strongest is None else self.strongest.to_json(),
            "method": self.method,
            "design": self.design,
            "trials": self.trials,
            "canaries_per_run": self.canaries_per_run,
            "runs": self.runs,
            "largest_provable_epsilon": self.largest_provable_epsilon,
            "notes": list(self.notes),
        }


def verdict_of(*findings: Finding | None) -> str:
    """Return ``"violated"`` if one of the findings contradicts its claim."""
    contradicted = any(finding is not None and finding.contradicts_the_claim for finding in findings)
    return VIOLATED if contradicted else CONSISTENT


def _rule_to_json(rule: Rule) -> dict[str, Json]:
    if isinstance(rule, Ranks):
        return {"top": rule.top, "bottom": rule.bottom}
    return {"above": _finite(rule.above), "below": _finite(rule.below)}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

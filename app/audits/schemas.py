"""Requests and answers of `/v1/audits`."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from app.algorithms.calibrate import CalibrateRequest
from app.kit.fields import Identifier, Integer, OptionalInteger, Schema
from app.wire.answers import ConventionBody, IntervalBody
from app.wire.events import EventSchema

#: The largest number of canaries in an audit. Most audits of long plans reach the time limit well before.
MAX_TRIALS = 1_000_000


class AuditRequest(Schema):
    """A request for an audit: the plan to attack, the attack and the number of trials."""

    run_id: Identifier | None = Field(None, description="Attack the plan of this run; or give `calibration`.")
    calibration: CalibrateRequest | None = Field(
        None, description="Attack the plan that this calibration makes. It needs a step size, given or derived."
    )
    delta: float = Field(1e-5, ge=1e-12, le=0.5, description="The delta at which the claimed epsilon is compared.")
    method: Literal["guesses", "clopper_pearson", "one_run", "gaussian_dp"] = Field(
        "guesses",
        description="`guesses`: independent canaries, right and wrong guesses (a binomial bound). `clopper_pearson`: "
        "limits of the true and the false positive rate. `one_run`: many canaries in a single run (Steinke, Nasr & "
        "Jagielski 2023), which assumes nothing about their independence. `gaussian_dp`: the largest mu that the rates "
        "rule out, then epsilon; a bound where the loss is Gaussian.",
    )
    design: Literal["orthogonal", "opposed", "held_out"] = Field(
        "orthogonal",
        description="`orthogonal`: each canary has a direction of its own, so that one run holds many. `opposed`: one "
        "canary against a record that cancels it, which shows a bound on the sum in place of one on each record. "
        "`held_out`: one canary in the held-out part, against the noisy vector of an evaluated run's scores; give "
        "`run_id`.",
    )
    trials: Integer = Field(2000, ge=10, le=MAX_TRIALS, description="Canaries that are counted.")
    confidence: float = Field(
        0.95, gt=0, lt=1, description="An honest trainer is called violated with a probability of at most 1 minus this."
    )
    seed: OptionalInteger = Field(
        None, ge=0, le=2**63 - 1, description="Makes the audit repeat; canaries are not private data."
    )


class FindingBody(Schema):
    """The epsilon that one rule of guessing proves at one delta."""

    delta: float
    claim: IntervalBody = Field(description="The certified epsilon, at delta, of the events that were attacked.")
    epsilon_lower: float = Field(description="What ran cannot have a smaller epsilon.")
    confidence: float = Field(description="The confidence of this single finding.")
    score: str = Field(description="What the attacker looked at.")
    rule: dict[str, float | int | None] = Field(description="Chosen on a pilot, before the counted trials.")
    guesses: int
    correct: int
    members: int
    hits: int
    alarms: int
    rejections: int
    misses: int


class AuditBody(Schema):
    """An attack on a plan, and the claim about it."""

    id: Identifier
    run_id: str | None
    algorithm: str
    plan_hash: str
    events: list[EventSchema] = Field(
        description="The attacked events, which the claim is about: the training, or with `held_out` the evaluation."
    )
    convention: ConventionBody
    verdict: Literal["consistent", "violated"] = Field(
        description="`violated`: a lower bound is above the claim. `consistent`: this attack found nothing, which "
        "proves nothing about better ones."
    )
    confidence: float
    finding: FindingBody = Field(description="The finding at the requested delta.")
    strongest: FindingBody | None = Field(
        description="The finding at that delta of a fixed list at which the bound exceeds the claim most; null for "
        "one_run."
    )
    method: str
    design: str
    trials: int
    canaries_per_run: int
    runs: int = Field(
        description="Full runs of the plan by the real trainer, or vectors of its evaluation, including those of the "
        "pilot."
    )
    largest_provable_epsilon: float = Field(
        description="The epsilon that this number of trials would prove if every guess were right."
    )
    notes: list[str]
    created_at: datetime

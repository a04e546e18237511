"""Request and answer of `/v1/account`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from accounting.fourier.effort import DEFAULT_EFFORT, LEAST_EFFORT, MOST_EFFORT
from accounting.gaussian_regret import DEFAULT_REGRET
from accounting.groups import MAX_GROUP_SIZE
from accounting.numbers import MAX_EVENTS
from accounting.relations import NeighboringRelation
from app.kit.fields import Integer, Schema
from app.wire.answers import ConventionBody, IntervalBody
from app.wire.events import EventSchema

MAX_POINTS = 1000
#: The most false positive rates, and the most priors, of a request.
MAX_RISKS = 20

Delta = Annotated[float, Field(ge=0, le=0.5)]
Epsilon = Annotated[float, Field(ge=0, le=1e6)]


class CurveRequest(Schema):
    """The number of points of a curve."""

    points: Integer = Field(100, ge=2, le=MAX_POINTS)


class AttackRiskRequest(Schema):
    """The points at which to bound the risk of membership inference and of other attacks on one record."""

    fpr: list[Annotated[float, Field(ge=1e-30, lt=1)]] = Field(
        [], max_length=MAX_RISKS, description="False positive rates; also baselines of reconstruction."
    )
    prior: list[Annotated[float, Field(ge=1e-30, lt=1)]] = Field(
        [], max_length=MAX_RISKS, description="Prior probabilities of membership."
    )


class GaussianSummaryRequest(Schema):
    """One mu for the whole trade-off curve."""

    regret: float = Field(
        DEFAULT_REGRET,
        ge=1e-4,
        le=0.5,
        description="The amount by which the conservative mu may promise too much, at any prior.",
    )


class AccountRequest(Schema):
    """Give exactly one of `delta` and `epsilon`; the answer is the other one."""

    events: list[EventSchema] = Field(min_length=1, max_length=MAX_EVENTS)
    neighboring_relation: NeighboringRelation = Field(NeighboringRelation.ADD_OR_REMOVE_ONE, strict=False)
    delta: Delta | Annotated[list[Delta], Field(min_length=1, max_length=MAX_POINTS)] | None = Field(
        None, description="Asks for epsilon at this delta, or at each of these."
    )
    epsilon: Epsilon | Annotated[list[Epsilon], Field(min_length=1, max_length=MAX_POINTS)] | None = Field(
        None, description="Asks for delta at this epsilon, or at each of these."
    )
    group_size: Integer = Field(
        1,
        ge=1,
        le=MAX_GROUP_SIZE,
        description="Asks for the guarantee for this many records of one owner together, which all come or go, become "
        "null or are replaced. It is the guarantee for a unit larger than a record. You must make sure that no unit "
        "has more records.",
    )
    curve: CurveRequest | None = Field(
        None, description="Asks for the curve around the value, too, and for the trade-off curve."
    )
    attack_risk: AttackRiskRequest | None = Field(None, description="Asks what the best attacks reach, too.")
    gaussian_dp: GaussianSummaryRequest | None = Field(
        None, description="Asks for the curve as one mu, too, with its regret."
    )
    effort: Integer = Field(
        DEFAULT_EFFORT,
        ge=LEAST_EFFORT,
        le=MOST_EFFORT,
        description="How many operations each number may take, in either direction of the privacy loss: the default "
        "takes two to three seconds. An answer that reaches the limit has a wider interval, and a warning.",
    )
    certify: bool = Field(False, description="Asks dp-accounting's PLD accountant, too, which takes seconds.")
    certificate: bool = Field(
        False,
        description="Asks for certificates of both ends, which `epsilond-verify` proves again. Only for one value at "
        "a time; takes up to a few seconds.",
    )


class CertificationBody(Schema):
    """A second opinion: dp-accounting's pessimistic number, computed independently, beside the interval."""

    engine: str = Field(description="Library, version and accountant.")
    epsilon: float | None = Field(None, description="Its epsilon, if epsilon was asked for; null if it has none.")
    delta: float | None = Field(None, description="Its delta, if delta was asked for; null if it has none.")
    value_discretization_interval: float | None = Field(description="The spacing of its lattice of privacy losses.")
    rounding_allowance: float | None = Field(
        description="How far floating-point errors may move its number in either direction; null if they hide the "
        "number."
    )
    discretization_allowance: float | None = Field(
        description="How far its lattice may raise the number above the truth."
    )
    position: Literal["below", "within", "above"] | None = Field(
        description="The position of its number. `below`: Below our interval. `within`: Between lower and upper. "
        "`above`: Above our interval. null: it has no number."
    )
    agrees: bool | None = Field(
        description="Whether it lies in the interval, up to the allowances; null if that cannot be decided."
    )
    note: str = Field(description="The result in words, or the reason why there is no number.")


class CertificateBody(Schema):
    """An inequality with all that a verifier needs to prove it in ball arithmetic."""

    claim: Literal["at_most", "more_than"] = Field(
        description="`at_most`: delta at `epsilon` is at most `delta` in every direction. `more_than`: it is above "
        "`delta` in some direction."
    )
    epsilon: float
    delta: float
    verdict: Literal["verified"] = Field(
        description="`verified`: the verifier proved it before it was returned. A certificate that is not proved is "
        "never returned."
    )
    assumed: list[str] = Field(description="The theorems by which the pairs dominate the mechanisms.")
    checked_with: str = Field(description="The versions of the verifier and of its arithmetic.")
    sha256: str = Field(description="The hash of the bytes of `certificate`.")
    statement_sha256: str = Field(description="The hash of the statement alone, which a better witness shares.")
    certificate: str = Field(description="Canonical JSON. Its UTF-8 bytes are what `epsilond-verify` reads.")


class CertificatesBody(Schema):
    """Certificates of the two ends of an interval."""

    upper: CertificateBody | None = Field(description="The certificate of this end; if it is null, a note says why.")
    lower: CertificateBody | None = Field(description="The certificate of this end; if it is null, a note says why.")
    notes: list[str] = Field(
        description="The reason why an end has no certificate, or why it is stated a little wider."
    )


class PointBody(Schema):
    """One point of a privacy curve; the requested quantity is an interval."""

    epsilon: IntervalBody | float
    delta: IntervalBody | float
    method: str
    error_budget: dict[str, float] = Field(
        description="The width of the interval, split into its named sources of error."
    )
    certification: CertificationBody | None = Field(None, description="Given if the request says `certify`.")


class EpsilonAtDelta(Schema):
    delta: float
    epsilon: IntervalBody


class DeltaAtEpsilon(Schema):
    epsilon: float
    delta: IntervalBody


class TradeOffPoint(Schema):
    """The smallest false negative rate of any attacker with this false positive rate."""

    false_positive_rate: float
    false_negative_rate: IntervalBody


class CurveBody(Schema):
    """Certified curves of the same events."""

    epsilon_over_delta: list[EpsilonAtDelta] | None = Field(
        None, description="Given if delta was given: from a thousandth of it to a thousand times as much."
    )
    delta_over_epsilon: list[DeltaAtEpsilon] | None = Field(
        None, description="Given if epsilon was given: from 0 to twice as much."
    )
    trade_off: list[TradeOffPoint] = Field(
        description="The trade-off function: every test of one data set against its neighbour, in either direction, "
        "has at least this rate of false negatives. False positive rates are evenly spaced in normal quantiles."
    )


class TruePositiveRateBody(Schema):
    """The largest true positive rate at one false positive rate."""

    fpr: float
    tpr: IntervalBody = Field(
        description="Upper: no test has more; nor does an attack that reconstructs a record, or an attribute, with a "
        "baseline success of `fpr` without the output."
    )


class BayesRiskBody(Schema):
    """The error rate of the best attacker with one prior."""

    prior: float
    bayes_risk: IntervalBody = Field(description="Lower: no attacker errs less often.")
    success_probability: IntervalBody = Field(description="1 minus the Bayes risk.")


class AttackRiskBody(Schema):
    """The results of the best attackers, in each direction."""

    advantage: IntervalBody = Field(
        description="The largest value of the true positive rate minus the false positive rate."
    )
    bayes_security: IntervalBody = Field(
        description="The errors of the best attacker as a share of those of a blind guess: the smallest value over "
        "all priors."
    )
    true_positive_rates: list[TruePositiveRateBody]
    bayes_risks: list[BayesRiskBody]


class RegretBody(Schema):
    """The distance between the trade-off curve of mu-Gaussian DP and that of the events."""

    mu: float
    promised_too_much: float = Field(
        description="An attacker's success probability, with any prior, exceeds what mu-Gaussian DP allows by at most "
        "this."
    )
    promised_too_little: float = Field(
        description="The success probability of the best attacker falls short of that by at most this."
    )
    regret: float = Field(description="The larger of the two.")


class GaussianSummaryBody(Schema):
    """The whole trade-off curve in one number; mu-Gaussian DP itself holds if `promised_too_much` is 0."""

    closest: RegretBody = Field(description="The mu whose curve is nearest.")
    conservative: RegretBody = Field(description="The smallest mu that promises too much by no more than was allowed.")


class SwitchBody(Schema):
    """The cost of the same training loop with batches of another kind."""

    kind: Literal["random_allocation"] = Field(description="Each record draws its own step of every pass.")
    epsilon: IntervalBody


class ShufflingBody(Schema):
    """Each shuffled pass is charged as a full batch; no smaller charge is known to be enough."""

    attained_epsilon: float = Field(description="Some neighbours cost at least this.")
    switch_to: SwitchBody | None = Field(
        None, description="The cost of a loop in which each record draws its own steps; null under replace_one."
    )
    poisson_claim: IntervalBody | None = Field(
        None, description="The cost of Poisson batches of the same size, which is not a bound here."
    )
    poisson_is_refuted: bool = Field(description="Whether that number is below `attained_epsilon`.")


class AccountAnswer(Schema):
    """The answer to one value has `epsilon`, `delta`, `method` and `error_budget`. The answer to a list has `points`
    instead, in the order of the list."""

    epsilon: IntervalBody | float | None = Field(None, description="The interval, if delta was given.")
    delta: IntervalBody | float | None = Field(None, description="The interval, if epsilon was given.")
    method: str | None = Field(None, description="The evaluator that gave the upper bound.")
    error_budget: dict[str, float] | None = Field(
        None, description="The width of the interval, split into its named sources of error."
    )
    certification: CertificationBody | None = Field(None, description="Given if the request says `certify`.")
    certificates: CertificatesBody | None = Field(None, description="Given if the request asks for a `certificate`.")
    points: list[PointBody] | None = Field(None, description="Given if the request has a list.")
    curve: CurveBody | None = Field(None, description="Given if the request asks for it.")
    attack_risk: AttackRiskBody | None = Field(None, description="Given if the request asks for it.")
    gaussian_dp: GaussianSummaryBody | None = Field(None, description="Given if the request asks for it.")
    group_size: int | None = Field(None, description="Given if the request asks for more than one record.")
    shuffling: ShufflingBody | None = Field(
        None,
        description="Given if the request has one delta, is about single records, and has shuffled epochs of Gaussian "
        "noise.",
    )
    convention: ConventionBody
    warnings: list[str]

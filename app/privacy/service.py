"""Use cases of the stateless accounting endpoints."""

from __future__ import annotations

from accounting.convention import convention
from accounting.events import RandomAllocation
from accounting.intervals import Answer
from accounting.schedule_warnings import public_size, weak_guarantee
from app.context import Context
from app.evaluation import Evaluation
from app.privacy.account import AccountAnswer, AccountRequest, CertificationBody, PointBody
from app.privacy.attack_risk import attack_risk, gaussian_dp
from app.privacy.certificates import certificates
from app.privacy.certification import certify
from app.privacy.curves import curve
from app.problems import unprocessable
from app.wire.answers import ConventionBody, IntervalBody, error_budget
from app.wire.events import to_events

#: The seconds that one request may take. A request that takes longer is refused, so that others get their turn.
MOST_SECONDS = 30.0


def account(context: Context, request: AccountRequest) -> AccountAnswer:
    """Return epsilon at delta or delta at epsilon, for one value or many, with curves and a second opinion if
    requested.

    Raises:
        Problem: 422 when the request gives both epsilon and delta or neither, or when the engine refuses the events.
    """
    if (request.delta is None) == (request.epsilon is None):
        code = "overdetermined" if request.delta is not None else "missing"
        raise unprocessable(code, "give either delta, to get epsilon, or epsilon, to get delta", "delta")
    events, relation = to_events(request.events), request.neighboring_relation
    if request.certify and request.group_size > 1:
        raise unprocessable(
            "unsupported",
            "a second opinion exists only for single records: use group_size 1, or leave certify out",
            "certify",
        )
    if request.certificate and isinstance(request.delta or request.epsilon, list):
        raise unprocessable(
            "unsupported",
            "a certificate states one value: give a single delta or epsilon, not a list",
            "certificate",
        )
    evaluation = Evaluation(context, events, relation, MOST_SECONDS, request.group_size, request.effort)
    field = "delta" if request.delta is not None else "epsilon"
    given = request.delta if request.delta is not None else request.epsilon
    asked: list[float] = given if isinstance(given, list) else [float(given or 0.0)]
    answers = evaluation.epsilons(asked, field) if field == "delta" else evaluation.deltas(asked, field)
    certifications: list[CertificationBody] = []
    if request.certify:
        certifications = certify(context, events, relation, field, asked, answers)
    points = [
        _point(field, value, found, certifications[index] if certifications else None)
        for index, (value, found) in enumerate(zip(asked, answers, strict=True))
    ]
    engine_warnings = [warning for found in answers for warning in found.warnings]
    if not isinstance(given, list):
        upper = answers[0].value.upper
        epsilon, delta = (upper, asked[0]) if field == "delta" else (asked[0], upper)
        engine_warnings += weak_guarantee(epsilon=epsilon, delta=delta, records=public_size(events))
    parts: dict[str, object] = {"points": points} if isinstance(given, list) else _fields(points[0])
    if request.group_size > 1:
        parts["group_size"] = request.group_size
    if field == "delta" and not isinstance(given, list) and asked[0] > 0.0 and request.group_size == 1:
        parts |= _about_shuffling(evaluation, asked[0])
    if request.certificate:
        value, size = answers[0].value, request.group_size
        parts["certificates"] = certificates(context, events, relation, field, asked[0], value, size)
    if request.curve is not None:
        parts["curve"] = curve(evaluation, field, asked, request.curve.points)
    if request.attack_risk is not None:
        parts["attack_risk"] = attack_risk(evaluation, request.attack_risk)
    if request.gaussian_dp is not None:
        parts["gaussian_dp"] = gaussian_dp(evaluation, request.gaussian_dp.regret)
    return AccountAnswer.model_validate(
        parts
        | {
            "convention": ConventionBody.model_validate(convention(relation, events)),
            "warnings": list(dict.fromkeys([*evaluation.warnings(field, asked[0]), *engine_warnings])),
        }
    )


def _about_shuffling(evaluation: Evaluation, delta: float) -> dict[str, object]:
    """Return the part of the answer about shuffled epochs; None if there are no such epochs."""
    found = evaluation.shuffling(delta, "delta")
    if found is None:
        return {}
    about: dict[str, object] = {"attained_epsilon": found.attained, "poisson_is_refuted": found.poisson_is_refuted}
    if found.allocated is not None:
        about["switch_to"] = {"kind": RandomAllocation.kind, "epsilon": IntervalBody.of(found.allocated.value)}
    if found.poisson is not None:
        about["poisson_claim"] = IntervalBody.of(found.poisson.value)
    return {"shuffling": about}


def has_every_opinion(answer: AccountAnswer) -> bool:
    """Return whether the answer has every second opinion and certificate. A less busy server may find missing ones
    later."""
    if answer.certificates is not None and None in (answer.certificates.upper, answer.certificates.lower):
        return False
    points = answer.points if answer.points is not None else [answer]
    opinions = [point.certification for point in points if point.certification is not None]
    return all(opinion.epsilon is not None or opinion.delta is not None for opinion in opinions)


def _point(field: str, value: float, found: Answer, certification: CertificationBody | None) -> PointBody:
    interval = IntervalBody.of(found.value)
    point = PointBody(
        epsilon=value if field == "epsilon" else interval,
        delta=value if field == "delta" else interval,
        method=found.method,
        error_budget=error_budget(found),
    )
    # A field that was not requested is left out of the answer. It must not be null.
    return point if certification is None else point.model_copy(update={"certification": certification})


def _fields(point: PointBody) -> dict[str, object]:
    return {name: getattr(point, name) for name in point.model_fields_set}

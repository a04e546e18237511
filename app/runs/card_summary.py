"""The first page of a privacy card: the guarantee in words and numbers, and what it does not cover."""

from __future__ import annotations

from accounting.best_guess import under_epsilon, under_mu
from app.algorithms.schemas import AchievedBody
from app.algorithms.targets import (
    AchievedAdvantageBody,
    AchievedBayesRiskBody,
    AchievedMuBody,
    AchievedOfGroupsBody,
    AchievedPureBody,
    AnyAchievedBody,
)
from app.budgets.doubts import in_per_cent
from app.runs.card_parts import Section, fact_table
from app.runs.guarantee import bounds_of
from app.runs.report_schemas import PrivacyReport

#: Limits on an attacker's share of right guesses. Up to the first, the attacker learns almost nothing. Above the
#: second, the protection is weak.
_ALMOST_THE_SAME, _WEAK = 0.6, 0.8


def summary(report: PrivacyReport) -> tuple[Section, ...]:
    """Return the sections of the first page."""
    return (
        Section("In words", paragraphs=tuple(_in_words(report))),
        Section("In numbers", tables=(fact_table("The guarantee and its scope", _in_numbers(report)),)),
        Section("What it does not cover", points=tuple(_not_covered(report))),
    )


def most_right(achieved: AnyAchievedBody) -> float | None:
    """Return the largest share of cases in which an attacker guesses membership correctly, if both answers are equally
    likely beforehand.

    The attacker knows everything else about the data and the algorithm (`accounting.best_guess`). The result is None if
    the guarantee gives no such number.

    >>> round(most_right(AchievedPureBody(epsilon=3.0, method="closed_form", error_budget={})), 4)
    0.9526
    """
    match achieved:
        case AchievedBody() | AchievedOfGroupsBody():
            epsilon, delta = achieved.epsilon.upper, achieved.delta
            return None if epsilon is None else under_epsilon(epsilon, delta)
        case AchievedPureBody():
            return under_epsilon(achieved.epsilon)
        case AchievedMuBody():
            return under_mu(achieved.mu)
        # Of a guess that is right in this share of cases, the advantage is 2 * share - 1, and the Bayes risk 1 - share.
        case AchievedAdvantageBody():
            most = achieved.advantage.upper
            return None if most is None else 0.5 + 0.5 * most
        case AchievedBayesRiskBody(prior=0.5):
            least = achieved.bayes_risk.lower
            return None if least is None else 1.0 - least
    return None


def _in_words(report: PrivacyReport) -> list[str]:
    protected = _protected(report)
    if report.seeded:
        return ["The run was made to repeat itself, for practice on public rows. It protects nobody."]
    share = most_right(report.achieved)
    promise = _promise(share, protected)
    words = [f"{promise} This holds whatever they know already, and whatever they do with the model."]
    if share is not None:
        words.append(
            f"Suppose that somebody knows all of the data except whether {protected} took part, and considers both "
            "equally likely. After seeing the model, their best guess is right in at most "
            f"{in_per_cent(share)} of cases; before, in 50 %."
        )
    return words


def _promise(share: float | None, protected: str) -> str:
    """State the promise in words that are not stronger than the bound on guesses."""
    if share is not None and share <= _ALMOST_THE_SAME:
        return f"Anybody who sees the released model learns almost the same, whether or not {protected} took part."
    limited = f"There is a proved limit to what anybody can learn of {protected} from the released model."
    return limited if share is None or share <= _WEAK else f"{limited} The limit is a weak one."


def _protected(report: PrivacyReport) -> str:
    """Return words for the person or the rows whose participation is protected."""
    if isinstance(report.achieved, AchievedOfGroupsBody):
        return f"any {report.achieved.group_size} {report.privacy_unit}s together"
    return f"any one {report.privacy_unit}"


def _in_numbers(report: PrivacyReport) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = (
        [] if report.seeded else [(each.name, str(each)) for each in bounds_of(report.achieved)]
    )
    found += [
        ("protected", _protected(report)),
        ("data", report.data.name or report.data.dataset_id or "rows of the request"),
        ("trained by", f"{report.algorithm}, a {report.model.kind.replace('_', ' ')}"),
    ]
    if report.budget is not None:
        found.append(("paid from the budget", report.budget.name))
    if report.ledger is not None and report.ledger.certificate is not None:
        found.append(("proof that others can check", f"certificate {report.ledger.certificate.sha256[:12]}"))
    if report.audits:
        violated = sum(audit.verdict == "violated" for audit in report.audits)
        found.append(("attacks tried on it", f"{len(report.audits)}, of which {violated} refute the guarantee"))
    return found


def _not_covered(report: PrivacyReport) -> list[str]:
    unit = report.privacy_unit
    points = [
        "What is true of people in general: a model may show that smokers fall ill more often, and so reveal something "
        "about every smoker, whether or not they were in the data.",
        "Other releases from the same data: privacy losses add up.",
        _several(unit),
        "The operators of the service and of its machine: they see the rows.",
    ]
    if report.data.public:
        points.insert(0, "These rows: they are public. The guarantee is what the same run would give to private ones.")
    return points


def _several(unit: str) -> str:
    """Describe who is less protected than one unit, such as a household."""
    if unit == "person":
        return "Several persons together: a household is protected less than each of its members."
    return (
        f"More than one {unit}: somebody with several {unit}s in the data is protected less, and a household less than "
        "each of its members."
    )

"""`certificate: true`: certificates of both ends of an answer, made in a process with limits of time and memory.

A failure here never makes an answer fail: if an end of the interval has no certificate, a note says why.
"""

from __future__ import annotations

from collections.abc import Sequence

from accounting.certificates import AT_MOST, MORE_THAN, CertifiedEnd, certify_delta, certify_epsilon
from accounting.events import Event
from accounting.intervals import Interval
from accounting.relations import NeighboringRelation
from app.context import Context
from app.kit.process_pool import JobFailed
from app.privacy.account import CertificateBody, CertificatesBody
from app.problems import Problem


def certificates(
    context: Context,
    events: Sequence[Event],
    relation: NeighboringRelation,
    field: str,
    asked: float,
    value: Interval,
    group_size: int = 1,
) -> CertificatesBody:
    """Return certificates of the two ends of the interval ``value``.

    Args:
        context: The process's context, which starts the limited process.
        events: The accounted events, which the certificate will name.
        relation: The neighbouring relation.
        field: ``"delta"`` or ``"epsilon"``, whichever was given.
        asked: The value of that field.
        value: The answer.
        group_size: The number of records in a group.
    """
    function = certify_epsilon if field == "delta" else certify_delta
    try:
        upper, lower = context.processes.run(function, events, relation, asked, value, group_size)
    except (JobFailed, Problem) as failure:
        note = f"No certificates: {failure}. The interval stands."
        return CertificatesBody(upper=None, lower=None, notes=[note])
    quantity = "epsilon" if field == "delta" else "delta"
    stated = {"upper": (upper, value.upper), "lower": (lower, value.lower)}
    notes = [note for name, (end, exact) in stated.items() for note in _notes(name, end, quantity, exact)]
    return CertificatesBody(upper=_body(AT_MOST, upper), lower=_body(MORE_THAN, lower), notes=notes)


def _notes(name: str, end: CertifiedEnd, quantity: str, exact: float) -> list[str]:
    if end.certificate is None:
        return [f"The {name} end has no certificate: {end.reason}. The interval stands."]
    if getattr(end, quantity) != exact:
        return [f"The {name} end is certified a millionth of itself wider than the interval is."]
    return []


def _body(claim: str, end: CertifiedEnd) -> CertificateBody | None:
    if end.certificate is None:
        return None
    found = end.certificate
    return CertificateBody.model_validate(
        {
            "claim": claim,
            "epsilon": end.epsilon,
            "delta": end.delta,
            "verdict": found.verdict,
            "assumed": list(found.assumed),
            "checked_with": found.checked_with,
            "sha256": found.sha256,
            "statement_sha256": found.statement_sha256,
            "certificate": found.data.decode(),
        }
    )

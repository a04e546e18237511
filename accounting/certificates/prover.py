"""This module makes certificates of statements: it chooses a witness in double precision, and the verifier decides.

The verifier (`clients/verifier`) is a separate distribution that needs python-flint. Without python-flint there are no
certificates, because an unchecked certificate is never handed out.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

import numpy as np

from accounting.canonical import Json
from accounting.certificates.certificate import (
    AT_MOST,
    MORE_THAN,
    Certificate,
    NoCertificate,
    Statement,
    bytes_of,
    hash_of,
)
from accounting.certificates.cut import cuts
from accounting.certificates.pairs import certified_loss, is_wider, rare_left_out, sampled_step, shares_stated
from accounting.certificates.witness import (
    DirectedEvent,
    Direction,
    LineSearch,
    Part,
    chernoff,
    lines_with_windows,
)
from accounting.events import DiscreteGaussian, DiscreteLaplace, Event, Laplace, PureDp, RandomizedResponse
from accounting.events.schedules import check_event, resolve_schedule
from accounting.fourier.mixture import MixtureStep
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.visible_mixture import VisibleMixtureLoss
from accounting.losses.with_replacement import DrawsLoss
from accounting.relations import NeighboringRelation

NOT_INSTALLED = (
    "the verifier needs python-flint, which is not installed, and unchecked certificates are not handed out; install "
    "python-flint (`make proofs` in a checkout)"
)
_WITH_OUTCOMES = PureDp | RandomizedResponse | DiscreteLaplace | DiscreteGaussian
_SOURCE = str(Path(__file__).resolve().parents[2] / "clients" / "verifier" / "src")
#: The most steps whose outcomes a verifier adds up, the most steps of Laplace noise whose polynomials it adds up, and
#: the most bits with which it computes.
_MOST_TERMS, _MOST_LAPLACE, _MOST_BITS = 200_000, 1000, 2048
#: The outcomes that are left out as rare may have at most this share of delta.
_RARE = 1e-11
#: The share of a moment that the search for a line may neglect.
_NEGLIGIBLE = 1e-30
#: If the plain contour needs at most this many points, no other contour is tried.
_FEW_POINTS = 4000


class Verdict(Protocol):
    """The verifier's answer about a certificate."""

    @property
    def verdict(self) -> str: ...
    @property
    def statement(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def assumed(self) -> tuple[str, ...]: ...
    @property
    def sha256(self) -> str: ...
    @property
    def undecided(self) -> tuple[int, ...]: ...
    @property
    def checked_with(self) -> str: ...


# Numbers in double precision only steer the search and may overflow. The verifier decides.
@np.errstate(all="ignore")
def certify(
    claim: str,
    events: Sequence[Event],
    relation: NeighboringRelation,
    epsilon: float,
    delta: float,
    group_size: int = 1,
) -> Certificate:
    """Return a certificate of a statement that the verifier has verified.

    Args:
        claim: `AT_MOST` or `MORE_THAN`: how the events' delta at ``epsilon`` compares with ``delta``.
        events: What the statement is about. The verifier resolves schedules itself.
        group_size: How many records of one owner come, go or are replaced together.

    Raises:
        NoCertificate: If the verifier has no theorem for some event, if its bounds do not decide, or if it is not
            installed.

    Guarantees: certificates_are_verified: nothing is returned that the verifier did not verify.
    """
    check = verifier()
    relation = NeighboringRelation(relation)
    statement = Statement(claim, tuple(events), relation, float(epsilon), float(delta), group_size)
    wider = [why for event in _resolved(statement) if (why := is_wider(event, relation))]
    if claim == MORE_THAN and wider:
        raise NoCertificate(wider[0])
    reason = "the verifier has no form of proof that fits these events"
    for data in witnesses(statement):
        verdict = check(data)
        if verdict.verdict == "verified":
            return Certificate(
                data, verdict.sha256, hash_of(statement), verdict.verdict, verdict.assumed, verdict.checked_with
            )
        reason = f"the verifier says {verdict.verdict}" + (f": {verdict.reason}" if verdict.reason else "")
        if verdict.verdict == "refuted":
            # Only the wider pair exceeds delta. This says nothing about the events themselves.
            reason = wider[0] if wider else reason
            break
    raise NoCertificate(reason)


def verifier() -> Callable[[bytes], Verdict]:
    """Return this checkout's verifier.

    Raises:
        NoCertificate: If python-flint, with which the verifier computes, is not installed.
    """
    if _SOURCE not in sys.path:
        sys.path.append(_SOURCE)
    try:
        return cast(Callable[[bytes], Verdict], import_module("epsilond_verifier").check)
    except (ImportError, AttributeError):  # AttributeError comes from a python-flint that is too old.
        raise NoCertificate(NOT_INSTALLED) from None


def check_again(data: bytes) -> Verdict:
    """Verify a certificate. This function can be sent to other processes.

    Raises:
        NoCertificate: As `verifier` does.
    """
    return verifier()(data)


def witnesses(statement: Statement) -> Iterator[bytes]:
    """Yield certificates that nobody has checked yet, the likeliest first.

    Raises:
        NoCertificate: If an event is not covered, or if the quadratures that steer the search would take too many
            nodes.
    """
    try:
        yield from _witnesses(statement)
    except OverflowError as error:
        raise NoCertificate(str(error)) from None


def _witnesses(statement: Statement) -> Iterator[bytes]:
    names = ["both"] if _is_symmetric(statement) else ["remove", "add"]
    for extra, slack in ((0.0, 1.0), (20.0, 1.5)):
        directions = {name: _directed(statement, name, extra, slack) for name in names}
        if statement.claim == AT_MOST:
            yield from _of_all(statement, directions)
        else:
            likeliest = sorted(directions, key=lambda name: -directions[name].log_estimate)
            for name in likeliest:
                for form, digits in _complete(statement, directions[name]):
                    yield bytes_of(statement, _bits(digits), {name: form})


def _of_all(statement: Statement, directions: dict[str, Direction]) -> Iterator[bytes]:
    """Yield certificates that have one form of proof for each direction. The likeliest forms come first."""
    found = {name: list(_complete(statement, direction)) for name, direction in directions.items()}
    if any(not forms for forms in found.values()):
        raise NoCertificate("every contour line needs more points than the verifier accepts")
    for number in range(max(len(forms) for forms in found.values())):
        chosen = {name: forms[min(number, len(forms) - 1)] for name, forms in found.items()}
        yield bytes_of(
            statement,
            _bits(max(digits for _, digits in chosen.values())),
            {name: form for name, (form, _) in chosen.items()},
        )


def _bits(digits: float) -> int:
    return max(64, math.ceil(digits / math.log(2.0)) + 40)


def _complete(statement: Statement, direction: Direction) -> Iterator[tuple[dict[str, Json], float]]:
    """Yield complete witnesses of one direction with their natural digits.

    A complete witness also says which outcomes are left out as rare, and the shares of the branches of draws with
    replacement.
    """
    kept: list[Json] = [event.kept for event in direction.events]
    draws: list[Json] = [{"shares": list(event.shares)} for event in direction.events if event.shares]
    said: dict[str, Json] = {"kept": kept} if any(kept) else {}
    said |= {"draws": draws} if draws else {}
    for form, digits in _forms(statement, direction):
        yield form | said, digits


def _forms(statement: Statement, direction: Direction) -> Iterator[tuple[dict[str, Json], float]]:
    """Yield witnesses of one direction with their natural digits, quick ones first."""
    epsilon, delta = statement.epsilon, statement.delta
    events = direction.events
    if all(event.step is None for event in events):
        yield {"form": "gaussian"}, 80.0 + 5.0 * math.log1p(epsilon)
        return
    only = events[0]
    if len(events) == 1 and only.count == 1 and only.step is not None and only.power != "outcomes":
        yield {"form": "one_step"}, 120.0 + _cancelled(statement)
        return
    if statement.claim == AT_MOST and epsilon >= direction.largest_loss:
        yield {"form": "bounded"}, 60.0
        return
    if len(events) == 1 and only.power == "outcomes" and only.count <= _MOST_TERMS:
        yield {"form": "outcomes"}, 80.0 + math.log(only.count) + _cancelled(statement)
        return
    if len(events) == 1 and only.power == "laplace" and only.count <= _MOST_LAPLACE:
        digits = 80.0 + _cancelled(statement) + _grown(only.count, direction.largest_loss - epsilon)
        if _bits(digits) <= _MOST_BITS:
            yield {"form": "laplace"}, digits
            return
    if statement.claim == AT_MOST:
        quick = chernoff(direction, delta) if delta > 0.0 else None
        if quick is not None:
            yield quick, 60.0 + math.log(sum(event.count for event in events))
            return
    log_delta = max(math.log(delta), -700.0) if delta > 0.0 else direction.log_estimate
    if statement.claim == MORE_THAN:
        # If the true delta is far above ``delta``, the integral has to resolve the true delta.
        log_delta = max(log_delta, direction.log_estimate - 8.0)
    for form, digits in _integrals(direction, log_delta):
        if statement.claim == MORE_THAN:
            form["far"] = direction.far(float(str(form["tilt"])), float(str(form["period"])))
        yield form, digits


def _integrals(direction: Direction, log_delta: float) -> Iterator[tuple[dict[str, Json], float]]:
    """Yield contour integrals. If few points suffice, the plain one comes alone; otherwise integrals with a cut, with
    many points or with a window follow.
    """
    search = LineSearch(direction, log_delta)
    line = search.chosen(most_points=_FEW_POINTS)
    if line is None:
        yield from cuts(direction, log_delta)
        line = search.chosen()
    if line is not None:
        yield search.contour(line)
        return
    for windowed in lines_with_windows(search):
        yield search.contour(windowed)


def _cancelled(statement: Statement) -> float:
    return statement.epsilon - math.log(max(statement.delta, 1e-300))


def _grown(count: int, left: float) -> float:
    """Return the log of the ratio of the largest polynomial of Laplace noise to the sum of all polynomials.

    ``left`` is T lam - epsilon, the largest total loss less epsilon.
    """
    w = max(left, 0.0) / 2.0
    return max(min(2.0 * math.sqrt(count * w), count * math.log(2.0) + w) - w, 0.0)


def _is_symmetric(statement: Statement) -> bool:
    return all(
        certified_loss(event, statement.relation, statement.group_size).symmetric for event in _resolved(statement)
    )


def _resolved(statement: Statement) -> list[Event]:
    resolved = []
    for event in statement.events:
        check_event(event, statement.relation)
        resolved.append(resolve_schedule(event))
    return resolved


def _directed(statement: Statement, name: str, extra: float, slack: float) -> Direction:
    resolved = _resolved(statement)
    count = sum(event.count for event in resolved)
    mu_squared, events = 0.0, []
    # A lower bound loses up to e^epsilon times the mass that is left out. This product must also be negligible beside
    # delta.
    mass = max(statement.delta, 1e-290) * math.exp(-min(statement.epsilon, 600.0)) * _RARE / count
    for event in resolved:
        loss = certified_loss(event, statement.relation, statement.group_size)
        if isinstance(loss, GaussianLoss):
            mu_squared += event.count * loss.mu**2
            events.append(DirectedEvent(None, (), event.count))
            continue
        shares, kept = tuple[float, ...](), 0
        if isinstance(loss, DrawsLoss):
            loss, shares = shares_stated(loss, mass)
        else:
            loss, kept = rare_left_out(loss, mass)
        mixed, parts = isinstance(loss, VisibleMixtureLoss), []
        weights, losses = (loss.weights, loss.losses) if isinstance(loss, VisibleMixtureLoss) else ((1.0,), (loss,))
        for weight, branch in zip(weights, losses, strict=True):
            step = branch.contour_step(math.log(count), remove=name != "add")
            if step is None:
                raise NoCertificate("the events contain a step that has no contour integral")
            parts.append(Part(weight, step, sampled_step(branch, name)))
        whole = MixtureStep(weights, tuple(part.step for part in parts), _NEGLIGIBLE) if mixed else parts[0].step
        power = "laplace" if isinstance(event.mechanism, Laplace) else ""
        power = "outcomes" if isinstance(event.mechanism, _WITH_OUTCOMES) else power
        largest = whole.largest_loss
        events.append(DirectedEvent(whole, tuple(parts), event.count, mixed, kept, shares, largest, power))
    return Direction(tuple(events), mu_squared, statement.epsilon, extra, slack)

"""Certificates of statements: a witness is chosen in double precision, and the verifier decides.

The verifier (`clients/verifier`) is a distribution of its own on python-flint. Where that is not installed there are no
certificates: one that nobody has checked is not handed out.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

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
from accounting.certificates.nodes import SampledStep
from accounting.certificates.witness import (
    DirectedEvent,
    Direction,
    LineSearch,
    chernoff,
    lines_with_windows,
)
from accounting.events import Event, Gaussian, Laplace, Poisson, PureDp, RandomizedResponse, WithoutReplacement
from accounting.events.schedules import check_event, resolve_schedule
from accounting.losses.poisson import PoissonGaussianLoss, PoissonReplaceLoss
from accounting.losses.privacy_loss import PrivacyLoss
from accounting.losses.rules import loss_of
from accounting.losses.without_replacement import SymmetrizedLoss
from accounting.relations import NeighboringRelation

NOT_INSTALLED = (
    "what the verifier computes with is not installed, and a certificate that nobody has checked is not handed out; "
    "install python-flint (`make proofs` in a checkout)"
)
_SOURCE = str(Path(__file__).resolve().parents[2] / "clients" / "verifier" / "src")
_WIDER_PAIR = (
    "batches of a fixed size have a narrower pair under replace_special than the one that certificates are about: that "
    "the wider one loses more says nothing about theirs"
)
_MOST_TERMS = 200_000
#: Points up to which nothing but the plain contour is tried.
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


def certify(
    claim: str, events: Sequence[Event], relation: NeighboringRelation, epsilon: float, delta: float
) -> Certificate:
    """Return a certificate of a statement, which the verifier has verified.

    Args:
        claim: `AT_MOST` or `MORE_THAN`: of delta at ``epsilon`` against ``delta``.
        events: What the statement is about. The verifier resolves schedules itself.

    Raises:
        NoCertificate: The verifier has no theorem for some event, or its bounds do not decide, or it is not installed.

    Guarantees: certificates_are_verified: nothing is returned that the verifier did not verify.
    """
    check = verifier()
    null = NeighboringRelation(relation) is NeighboringRelation.REPLACE_SPECIAL
    if claim == MORE_THAN and null and any(isinstance(event.sampling, WithoutReplacement) for event in events):
        raise NoCertificate(_WIDER_PAIR)
    statement = Statement(claim, tuple(events), NeighboringRelation(relation), float(epsilon), float(delta))
    reason = "no form of proof fits these events"
    for data in witnesses(statement):
        verdict = check(data)
        if verdict.verdict == "verified":
            return Certificate(
                data, verdict.sha256, hash_of(statement), verdict.verdict, verdict.assumed, verdict.checked_with
            )
        reason = f"the verifier says {verdict.verdict}" + (f": {verdict.reason}" if verdict.reason else "")
        if verdict.verdict == "refuted":
            break
    raise NoCertificate(reason)


def verifier() -> Callable[[bytes], Verdict]:
    """Return this checkout's verifier.

    Raises:
        NoCertificate: python-flint, which it computes with, is not installed.
    """
    if _SOURCE not in sys.path:
        sys.path.append(_SOURCE)
    try:
        return cast(Callable[[bytes], Verdict], import_module("epsilond_verifier").check)
    except (ImportError, AttributeError):  # the latter with a python-flint that is too old
        raise NoCertificate(NOT_INSTALLED) from None


def check_again(data: bytes) -> Verdict:
    """Verify a certificate; other processes are sent this function.

    Raises:
        NoCertificate: as `verifier`.
    """
    return verifier()(data)


def witnesses(statement: Statement) -> Iterator[bytes]:
    """Yield certificates that nobody has checked yet, the likeliest first.

    Raises:
        NoCertificate: An event is not covered, or the quadratures that steer the search would take too many nodes.
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
                for form, digits in _forms(statement, directions[name]):
                    yield bytes_of(statement, _bits(digits), {name: form})


def _of_all(statement: Statement, directions: dict[str, Direction]) -> Iterator[bytes]:
    """Yield certificates with one form for each direction: the likeliest forms together, then the next ones."""
    found = {name: list(_forms(statement, direction)) for name, direction in directions.items()}
    if any(not forms for forms in found.values()):
        raise NoCertificate("no line has few enough points")
    for number in range(max(len(forms) for forms in found.values())):
        chosen = {name: forms[min(number, len(forms) - 1)] for name, forms in found.items()}
        yield bytes_of(
            statement,
            _bits(max(digits for _, digits in chosen.values())),
            {name: form for name, (form, _) in chosen.items()},
        )


def _bits(digits: float) -> int:
    return max(64, math.ceil(digits / math.log(2.0)) + 40)


def _forms(statement: Statement, direction: Direction) -> Iterator[tuple[dict[str, Json], float]]:
    """Yield witnesses of one direction with their natural digits, quick ones first."""
    epsilon, delta = statement.epsilon, statement.delta
    events = direction.events
    if all(event.step is None for event in events):
        yield {"form": "gaussian"}, 60.0 + epsilon + 2.0 * math.log1p(epsilon)
        return
    only = events[0]
    if len(events) == 1 and only.count == 1 and only.has_closed_form:
        yield {"form": "one_step"}, 120.0 + _cancelled(statement)
        return
    if statement.claim == AT_MOST and epsilon >= direction.largest_loss:
        yield {"form": "bounded"}, 60.0
        return
    if len(events) == 1 and only.has_outcomes and only.count <= _MOST_TERMS:
        yield {"form": "outcomes"}, 80.0 + math.log(only.count) + _cancelled(statement)
        return
    if statement.claim == AT_MOST:
        quick = chernoff(direction, delta) if delta > 0.0 else None
        if quick is not None:
            yield quick, 60.0 + math.log(sum(event.count for event in events))
            return
    log_delta = max(math.log(delta), -700.0) if delta > 0.0 else direction.log_estimate
    if statement.claim == MORE_THAN:
        # Where far more than ``delta`` is lost, that is what has to be resolved.
        log_delta = max(log_delta, direction.log_estimate - 8.0)
    for form, digits in _integrals(direction, log_delta):
        if statement.claim == MORE_THAN:
            form["far"] = direction.far(float(str(form["tilt"])), float(str(form["period"])))
        yield form, digits


def _integrals(direction: Direction, log_delta: float) -> Iterator[tuple[dict[str, Json], float]]:
    """Yield contour integrals: the plain one where few points do; else those with a cut, many points or a window."""
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


def _is_symmetric(statement: Statement) -> bool:
    return all(_loss(event, statement.relation).symmetric for event in _resolved(statement))


def _resolved(statement: Statement) -> list[Event]:
    resolved = []
    for event in statement.events:
        check_event(event, statement.relation)
        resolved.append(resolve_schedule(event))
    return resolved


def _loss(event: Event, relation: NeighboringRelation) -> PrivacyLoss:
    """Return the loss whose pair the verifier has a theorem for.

    Raises:
        NoCertificate: It has none for this event.
    """
    mechanism, sampling = event.mechanism, event.sampling
    if isinstance(mechanism, Gaussian) and isinstance(sampling, WithoutReplacement):
        probability = sampling.batch_size / sampling.dataset_size
        return SymmetrizedLoss(PoissonGaussianLoss(mechanism.noise_multiplier / 2.0, probability))
    if isinstance(mechanism, Gaussian) and isinstance(sampling, Poisson):
        return loss_of(event, relation)
    if isinstance(mechanism, Gaussian | Laplace | RandomizedResponse | PureDp) and sampling.kind == "full_batch":
        return loss_of(event, relation)
    raise NoCertificate(f"no certificate covers {mechanism.kind} with {sampling.kind} batches yet")


def _directed(statement: Statement, name: str, extra: float, slack: float) -> Direction:
    resolved = _resolved(statement)
    log_count = math.log(sum(event.count for event in resolved))
    mu_squared, events = 0.0, []
    for event in resolved:
        loss = _loss(event, statement.relation)
        if isinstance(event.mechanism, Gaussian) and event.sampling.kind == "full_batch":
            noise = event.mechanism.noise_multiplier
            mu_squared += event.count * (statement.relation.sensitivity / noise) ** 2
            events.append(DirectedEvent(None, None, event.count))
            continue
        step = loss.contour_step(log_count, remove=name != "add")
        if step is None:
            raise NoCertificate("a step has no contour integral")
        sampled = _sampled(loss, name)
        has_outcomes = isinstance(event.mechanism, PureDp | RandomizedResponse)
        has_closed_form = not has_outcomes and (sampled is None or sampled.kind != "replace")
        events.append(DirectedEvent(step, sampled, event.count, step.largest_loss, has_outcomes, has_closed_form))
    return Direction(tuple(events), mu_squared, statement.epsilon, extra, slack)


def _sampled(loss: PrivacyLoss, name: str) -> SampledStep | None:
    if isinstance(loss, PoissonGaussianLoss):
        kind = "add" if name == "add" else "remove"
        return SampledStep(kind, loss.noise_multiplier, loss.sampling_probability)
    if isinstance(loss, PoissonReplaceLoss):
        return SampledStep("replace", loss.noise_multiplier, loss.sampling_probability)
    if isinstance(loss, SymmetrizedLoss):
        assert isinstance(loss.pair, PoissonGaussianLoss)
        return SampledStep("fixed_size", loss.pair.noise_multiplier, loss.pair.sampling_probability)
    return None

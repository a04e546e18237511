"""This module chooses the witness of one direction: the form of proof, the line and the nodes.

Every number is found in double precision and need not be exact, because a verifier evaluates its bounds at the numbers
that the witness states. The forms are those of docs/concepts/certificates.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from accounting.canonical import Json
from accounting.certificates.certificate import NoCertificate
from accounting.certificates.envelopes import Bound, Envelope
from accounting.certificates.nodes import SampledStep, rounded
from accounting.fourier.choice import DirectedComposition
from accounting.fourier.steps import MOMENTS, TILTS, VARIANCES, Step, TiltTable, log_chernoff, log_kernel

Array = NDArray[np.float64]

#: The terms left out of the sum, and the aliases, stay below this fraction of delta.
_TOLERANCE = 1e-12
#: Beyond this many points, or nodes times points, another form is tried.
MOST_POINTS, MOST_NODE_POINTS = 60_000, 1e7
_LINES_TRIED = 5
#: The fewest natural digits of a rule for a rare branch, and the log of the share of a moment of all steps below which
#: a branch is rare.
LEAST_DIGITS, _RARE = 6.0, -3.0


@dataclass(frozen=True)
class Part:
    """A branch of a step, or all of it.

    Attributes:
        weight: Its probability.
        step: Its transform, as the engine's contour integrals have it.
        sampled: The step for which nodes have to be chosen; None if a verifier has the transform in closed form.
    """

    weight: float
    step: Step
    sampled: SampledStep | None


@dataclass(frozen=True)
class DirectedEvent:
    """One event of a statement in one direction.

    Attributes:
        step: Its transform, as the engine's contour integrals have it; None for full batches of Gaussian noise.
        parts: Its branches, or one part; none for full batches of Gaussian noise.
        count: The number of its steps.
        is_mixture: Whether the output of a step shows which branch the step takes.
        kept: The number of branches, or of records in a batch, that are not left out as rare; 0 if all are kept.
        shares: For draws with replacement: the shares of the branches of two draws and more.
        largest_loss: The largest loss of one step.
        power: The form that adds up equal steps exactly: "outcomes", "laplace", or an empty string for none.
    """

    step: Step | None
    parts: tuple[Part, ...]
    count: int
    is_mixture: bool = False
    kept: int = 0
    shares: tuple[float, ...] = ()
    largest_loss: float = math.inf
    power: str = ""

    @property
    def sampled(self) -> SampledStep | None:
        """Return the step of the event's only part for which nodes have to be chosen."""
        return self.parts[0].sampled if len(self.parts) == 1 and not self.is_mixture else None


@dataclass(frozen=True)
class Direction:
    """All events in one direction, at one epsilon.

    Attributes:
        mu_squared: The mu squared of all full batches of Gaussian noise.
        extra: Natural digits that a second try adds to the expected ones.
    """

    events: tuple[DirectedEvent, ...]
    mu_squared: float
    epsilon: float
    extra: float = 0.0
    slack: float = 1.0
    _moments: dict[tuple[int, int, float], float] = field(default_factory=dict, repr=False)

    @cached_property
    def composition(self) -> DirectedComposition:
        """Return the engine's composition of the same steps."""
        steps = tuple((event.step, event.count) for event in self.events if event.step is not None)
        return DirectedComposition(steps, self.mu_squared)

    @cached_property
    def table(self) -> TiltTable:
        """Return a table of moments at tilts around the saddle point."""
        return self.composition.table_at(self.epsilon)

    @cached_property
    def far_table(self) -> Array:
        """Return tilts x and log M(x) B(x) at each of them, also far above the saddle point. B is defined in
        `steps.log_kernel_at`.
        """
        epsilon = max(self.epsilon, 1e-3)
        bounds = [
            2.0 * event.step.largest_tilt(event.count, epsilon) for event in self.events if event.step is not None
        ]
        with np.errstate(over="ignore"):
            table = self.composition.table(np.geomspace(0.01 / epsilon, min([1e5 / epsilon, *bounds]), 90))
        return np.array([table.tilts, table.log_bounds])

    @property
    def largest_loss(self) -> float:
        """Return the largest loss of all steps."""
        return math.fsum(event.count * event.largest_loss for event in self.events)

    @property
    def log_estimate(self) -> float:
        """Return an estimate of the logarithm of delta that is rather too large than too small."""
        return min(log_chernoff(self.table.rows, self.epsilon), 0.0)

    def log_moment(self, tilt: float) -> float:
        """Return an estimate of log M(tilt) of all steps."""
        return float(self.composition.table(np.array([tilt])).rows[MOMENTS, 0])

    def own_moment(self, index: int, tilt: float, part: int = 0) -> float:
        """Return an estimate of log M(tilt) for one part of one step of an event."""
        key = index, part, tilt
        if key not in self._moments:
            step = self.events[index].parts[part].step
            self._moments[key] = float(step.table(np.array([tilt])).rows[MOMENTS, 0])
        return self._moments[key]

    def log_shares(self, index: int, tilt: float) -> list[float]:
        """Return estimates of the logarithm of each part's share in M(tilt), for one step of an event."""
        parts = self.events[index].parts
        logs = [math.log(part.weight) + self.own_moment(index, tilt, i) for i, part in enumerate(parts)]
        total = float(np.logaddexp.reduce(logs)) if logs else 0.0
        return [log - total for log in logs]

    def place(self, index: int, choose: Callable[[int, SampledStep], dict[str, Json]]) -> Json:
        """Return the nodes of one event. For each of its parts, ``choose`` is called with the part's number."""
        event = self.events[index]
        found: list[Json] = [{} if p.sampled is None else choose(i, p.sampled) for i, p in enumerate(event.parts)]
        return {"branches": found} if event.is_mixture else found[0] if found else {}

    def rules(self, tilt: float, digits: float) -> list[Json]:
        """Return the nodes of each step for moments at one real tilt."""

        def rule(index: int) -> Json:
            shares = self.log_shares(index, tilt)

            def choose(part: int, sampled: SampledStep) -> dict[str, Json]:
                own = max(digits + shares[part], LEAST_DIGITS)
                moment = self.own_moment(index, tilt, part)
                return sampled.nodes(sampled.steepest(tilt, min(18.0, own)), tilt, own, moment, latest=0.0)

            return self.place(index, choose)

        return [rule(index) for index in range(len(self.events))]

    def far(self, above: float, period: float) -> dict[str, Json]:
        """Return the tilt that gives the best bound of the aliases on the right. It is larger than the tilt of the
        line.
        """
        known = np.concatenate([self.far_table, [self.table.tilts, self.table.log_bounds]], axis=1)
        tilts, logs = known[0], known[1] - known[0] * self.epsilon - (known[0] - above) * period
        logs = np.where(tilts > 1.02 * above, logs, math.inf)
        for index in np.argsort(logs)[:12]:
            tilt = rounded(float(tilts[index]))
            if math.isfinite(logs[index]):
                with suppress(NoCertificate):
                    return {"tilt": tilt, "steps": self.rules(tilt, self.digits_of_moments)}
        raise NoCertificate("no tilt gives a bound of the aliases of the contour integral")

    @property
    def digits_of_moments(self) -> float:
        """Return the number of digits of a moment that is used only in bounds."""
        return 4.0 + math.log(sum(event.count for event in self.events)) + self.extra


def chernoff(direction: Direction, delta: float) -> dict[str, Json] | None:
    """Return Chernoff's bound at the best tilt; None if it is not below ``delta``."""
    rows = direction.table.rows
    logs = rows[MOMENTS] + log_kernel(rows[TILTS]) - rows[TILTS] * direction.epsilon
    tilt = rounded(float(rows[TILTS, int(np.argmin(logs))]))
    if math.log(delta) - float(logs.min()) < 0.3:
        return None
    return {"form": "chernoff", "tilt": tilt, "steps": direction.rules(tilt, direction.digits_of_moments)}


@dataclass(frozen=True)
class ChosenLine:
    """A line with its number of points and the places at which each step's envelope is evaluated."""

    tilt: float
    period: float
    points: int
    window: float
    log_moment: float
    main: list[list[float]]
    coarse: list[list[tuple[Bound, float] | None]]
    work: float


class LineSearch:
    """The search for a line, which has a tilt, a period and a number of points.

    Args:
        log_delta: Logarithm of the delta that everything is measured against.
    """

    def __init__(self, direction: Direction, log_delta: float) -> None:
        self.direction, self.log_delta = direction, log_delta
        self.log_tolerance = log_delta + math.log(_TOLERANCE) - direction.extra / 2.0
        self._known: dict[float, list[EventEnvelope]] = {}

    def lines(self) -> list[tuple[float, float]]:
        """Return tilts with their periods, in ascending order of the expected number of points."""
        rows, epsilon = self.direction.table.rows, self.direction.epsilon
        tilts = rows[TILTS]
        needed = rows[MOMENTS] + log_kernel(tilts) - tilts * epsilon - self.log_tolerance
        found = []
        for index, tilt in enumerate(tilts):
            above = tilts > 1.02 * tilt
            if not above.any() or tilt < 1e-8 or not math.isfinite(rows[MOMENTS, index]):
                continue
            right = float(np.min(np.logaddexp(needed[above], 0.0) / (tilts[above] - tilt)))
            period = max(right, -self.log_tolerance / tilt)
            log = rows[MOMENTS, index] - tilt * epsilon
            amplification = log - math.log(tilt) - math.log1p(tilt) - self.log_delta
            decay = math.sqrt(2.0 * max(log - self.log_tolerance, 1.0) / max(float(rows[VARIANCES, index]), 1e-300))
            if amplification < 200.0:
                found.append((period * decay * (1.0 + 0.01 * max(amplification, 0.0)), float(tilt), period))
        return [(tilt, period) for _, tilt, period in sorted(found)[:_LINES_TRIED]]

    def chosen(self, window: float = 0.0, most_points: float = MOST_POINTS) -> ChosenLine | None:
        """Return the line with the least work; None if every line has too many points."""
        best: ChosenLine | None = None
        for tilt, period in self.lines():
            line = self._at(rounded(tilt), rounded(period * 1.002), window, most_points)
            if line is not None and line.work <= MOST_NODE_POINTS and (best is None or line.work < best.work):
                best = line
        return best

    def _at(self, tilt: float, period: float, window: float, most_points: float) -> ChosenLine | None:
        direction = self.direction
        log_moment = direction.log_moment(tilt) + 0.5 * window**2 * tilt * (tilt + 1.0)
        gaussian = direction.mu_squared + window**2
        envelopes = self._envelopes(tilt)
        start = log_moment - tilt * direction.epsilon - self.log_tolerance
        variance = max(float(direction.composition.table(np.array([tilt])).rows[VARIANCES, 0]), 1e-300) + window**2
        t = 0.7 * math.sqrt(2.0 * max(start, 1.0) / variance)
        most = most_points * 2.0 * math.pi / period

        def left(t: float) -> float:
            total = start - 0.5 * gaussian * t * t - math.log(math.pi * t)
            for envelope, event in zip(envelopes, direction.events, strict=True):
                total += event.count * envelope.log_at(t)
            return total

        while t <= most and left(t) > 0.0:
            t *= 1.25
        if t > most:
            return None
        low, high = t / 1.25, t
        for _ in range(4):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if left(middle) <= 0.0 else (middle, high)
        points = max(4, math.ceil(high * period / (2.0 * math.pi) * direction.slack) + 1)
        main: list[list[float]] = []
        coarse: list[list[tuple[Bound, float] | None]] = []
        nodes = 0.0
        for envelope, event in zip(envelopes, direction.events, strict=True):
            steep, bounds, number = envelope.chosen_at(high, event.count)
            main.append(steep)
            coarse.append(bounds)
            nodes += number
        return ChosenLine(tilt, period, points, window, log_moment, main, coarse, (nodes + 4.0) * points)

    def _envelopes(self, tilt: float) -> list[EventEnvelope]:
        """Return the bounds of each event, which every search of lines at this tilt shares."""
        if tilt not in self._known:
            direction = self.direction
            self._known[tilt] = [EventEnvelope(direction, index, tilt) for index in range(len(direction.events))]
        return self._known[tilt]

    def contour(self, line: ChosenLine) -> tuple[dict[str, Json], float]:
        """Return the witness of a line, and the natural digits that its arithmetic needs."""
        direction = self.direction
        scale = math.log(line.tilt) + math.log1p(line.tilt)
        amplification = line.log_moment - line.tilt * direction.epsilon - scale - self.log_delta
        digits = -math.log(_TOLERANCE) + max(amplification, 0.0) + 0.5 * math.log(line.points) + 3.0 + direction.extra
        steps: list[Json] = []
        most = 0.0
        latest = 2.0 * math.pi * line.points / line.period
        for index, event in enumerate(direction.events):
            shares = direction.log_shares(index, line.tilt)

            def choose(
                part: int,
                sampled: SampledStep,
                index: int = index,
                count: int = event.count,
                shares: list[float] = shares,
            ) -> dict[str, Json]:
                nonlocal most
                angle, moment = line.main[index][part], direction.own_moment(index, line.tilt, part)
                own = max(digits + math.log(count) + shares[part], LEAST_DIGITS)
                coarse = line.coarse[index][part]
                nodes = sampled.nodes(angle, line.tilt, own, moment, latest=latest)
                growth = sampled.log_growth(angle, line.tilt)
                most = max(most, own + growth / 4.0 - math.log(sampled.probability))
                if coarse is not None:
                    nodes["envelope"] = coarse[0].nodes(line.tilt, coarse[1], moment)
                return nodes

            steps.append(direction.place(index, choose))
        form: dict[str, Json] = {
            "form": "contour",
            "tilt": line.tilt,
            "period": line.period,
            "points": line.points,
            "window": line.window,
            "steps": steps,
        }
        return form, max(most, digits)


class EventEnvelope:
    """The bounds of an event's transform: those of its parts, each times its share of M(c)."""

    def __init__(self, direction: Direction, index: int, tilt: float) -> None:
        event = direction.events[index]
        self.shares, self.tilt = direction.log_shares(index, tilt), tilt
        digits = math.log(max(event.count, 2)) + 8.0
        self.parts: list[Envelope | Step] = []
        for i, (part, share) in enumerate(zip(event.parts, self.shares, strict=True)):
            is_rare = share + math.log(event.count) < _RARE
            moment, own = direction.own_moment(index, tilt, i), max(digits + share, 1.0)
            found = part.sampled and Envelope(part.sampled, tilt, moment, own, is_rare=is_rare)
            self.parts.append(found or part.step)
        self.digits = digits

    def log_at(self, t: float) -> float:
        """Return the log of the bound at t, at most 0."""
        logs = [share + self._log_of(part, t) for share, part in zip(self.shares, self.parts, strict=True)]
        return min(float(np.logaddexp.reduce(logs)), 0.0) if logs else 0.0

    def _log_of(self, part: Envelope | Step, t: float) -> float:
        if isinstance(part, Envelope):
            return part.log_at(t)
        return float(part.line(self.tilt, t).log_envelope(np.array([t]))[0])

    def chosen_at(self, t: float, count: int) -> tuple[list[float], list[tuple[Bound, float] | None], float]:
        """Return the angles of the main rules, the bounds for envelopes with their digits, and the approximate number
        of nodes.
        """
        main: list[float] = []
        coarse: list[tuple[Bound, float] | None] = []
        nodes = 0.0
        for share, part in zip(self.shares, self.parts, strict=True):
            steep, bound = part.chosen_at(t, count * math.exp(share)) if isinstance(part, Envelope) else (0.0, None)
            main.append(steep)
            # The error of a rule for the envelope is to stay below the envelope.
            digits = max(self.digits - self.log_at(t) + share, 1.0)
            coarse.append(None if bound is None else (bound, digits))
            nodes += part.expected(steep) if isinstance(part, Envelope) else 0.0
        return main, coarse, nodes


def lines_with_windows(search: LineSearch) -> Iterator[ChosenLine]:
    """Yield lines with a Gaussian window, those with few points first. The window narrows as points are added."""
    direction = search.direction
    tilts = search.lines()
    for points in (3000.0, 25_000.0):
        best: ChosenLine | None = None
        for tilt, period in tilts:
            reach = points * 2.0 * math.pi / (period * 1.002)
            log = direction.log_moment(tilt) - tilt * direction.epsilon - search.log_tolerance
            window = rounded(math.sqrt(2.0 * max(log, 1.0)) / reach)
            line = search._at(rounded(tilt), rounded(period * 1.002), window, 1.3 * points)
            if line is None or line.work > MOST_NODE_POINTS:
                continue
            if best is None or line.window < best.window:
                best = line
        if best is not None:
            yield best

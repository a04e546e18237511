"""The witness of a law that is cut once: where few participations decide, the bulk of the losses reaches no epsilon.

Theorem 5 of docs/concepts/fourier.md with one cut. As in `accounting.certificates.witness`, no number has to be right.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.canonical import Json
from accounting.certificates.certificate import NoCertificate
from accounting.certificates.nodes import SampledStep, log_above, log_growth_above, rounded
from accounting.certificates.witness import MOST_POINTS, Direction

Array = NDArray[np.float64]

#: The share of delta that the bulk below the cut may weigh: the first often suffices, the second takes more points.
_BULKS = (2e-9, 1e-11)
#: Where the law is cut, over epsilon.
_SHARES = (0.75, 0.6, 0.47, 0.36, 0.27, 0.2, 0.15, 0.1, 0.06, 0.04, 0.025, 0.015, 0.01)
_TOLERANCE, _PANELS, _MOST_NODE_POINTS = 1e-11, 400, 1.6e7


@dataclass(frozen=True)
class Bulk:
    """A bound of what lies below the cut, and about how much of delta it is."""

    tilt: float
    start: float
    end: float
    log_bound: float


@dataclass(frozen=True)
class Cut:
    """One repeated step, cut at ``place`` with a width.

    Attributes:
        step: The law that is cut: that of remove for batches of a fixed size.
    """

    direction: Direction
    whole: SampledStep
    step: SampledStep
    count: int
    place: float
    log_delta: float

    @cached_property
    def width(self) -> float:
        """Return how smooth the cut is."""
        widest = 0.25 * min(self.step.noise, self.step.noise**2)
        # What a batch of a fixed size does not have, below 1/2, is to weigh nothing.
        return rounded(min(widest, (self.place - 0.5) / 10.0) if self.is_fixed else widest)

    @property
    def is_fixed(self) -> bool:
        """Return whether it is a step on batches of a fixed size."""
        return self.whole.kind == "fixed_size"

    @cached_property
    def bulk(self) -> Bulk:
        """Return the least bound of the bulk among some tilts and ends."""
        s, epsilon = self.step.noise, self.direction.epsilon
        hits = [(h, math.exp(log_weight)) for h, log_weight in enumerate(self.step.log_weights)]
        start = 0.5 if self.is_fixed else -11.0 * s - self.step.most
        best = Bulk(1.0, start, start + 1.0, math.inf)
        for reach in (2.5, 4.0, 5.5, 7.0, 9.0):
            end = self.place + reach * self.width
            edges = np.linspace(start, end, _PANELS + 1)
            share = scipy.special.ndtr((self.place - edges) / self.width)
            under = scipy.special.ndtr(edges / s)
            if self.step.kind == "replace":
                under = np.sum([p * scipy.special.ndtr((edges + h) / s) for h, p in hits], axis=0)
            masses = np.diff(under)
            log_ratio = self.step.log_ratio(edges, 0.0)[0]
            if self.step.kind == "replace":
                log_ratio = log_ratio - self.step.log_ratio(-edges, 0.0)[0]
            beyond = sum(p * float(scipy.special.ndtr((h - end) / s)) for h, p in hits)
            rest = math.log(max(self.count * float(share[-1]) * beyond, 1e-320))
            for tilt in np.geomspace(0.3, 3e4, 60) / max(epsilon, 1e-3):
                p = tilt + 1.0
                with np.errstate(over="ignore", invalid="ignore"):
                    heights = np.expm1(p * log_ratio) - p * np.expm1(log_ratio)
                    if self.is_fixed:
                        heights = np.expm1(tilt * log_ratio) * (np.exp(log_ratio) - np.exp(-tilt * log_ratio))
                    total = 1.0 + (0.0 if self.is_fixed else under[0] * max(tilt, heights[0]))
                    total += float(np.sum(masses * np.maximum(heights[1:], heights[:-1]) * share[:-1]))
                if not math.isfinite(total):
                    continue
                kernel = -tilt * math.log1p(1.0 / tilt) - math.log1p(tilt)
                bound = float(np.logaddexp(self.count * math.log(total) + kernel - tilt * epsilon, rest))
                if bound < best.log_bound:
                    best = Bulk(rounded(float(tilt)), start, end, bound)
        return best

    def form(self) -> tuple[dict[str, Json], float] | None:
        """Return the witness on the line with the fewest points, and its natural digits; None if it has too many."""
        best: tuple[float, float, float, float] | None = None
        angle = min(self.step.steepest(1.0, 18.0), 1.3 * self.width / self.step.height(1.0))
        known = self.direction.far_table[0]
        for tilt in np.geomspace(10.0 * known[0], known[-1] / 1.05, 40):
            found = self._points(float(tilt), angle)
            if found is not None and (best is None or found[0] * found[1] < best[1] * best[2]):
                best = float(tilt), *found
        if best is None:
            return None
        tilt, period, reach, amplification = best
        tilt, period = rounded(tilt), rounded(period * 1.002)
        points = math.ceil(reach * period / (2.0 * math.pi) * self.direction.slack) + 2
        digits = -math.log(_TOLERANCE) + amplification + 0.5 * math.log(points) + math.log(self.count) + 8.0
        digits += self.direction.extra
        growth = log_growth_above(self.step, angle, self.width)
        moment = self.direction.own_moment(0, tilt)
        try:
            above = self.step.nodes(angle, tilt, digits, moment, more_growth=growth)
            latest = 2.0 * math.pi * points / period
            nodes = self.whole.nodes(self.whole.steepest(tilt, 18.0), tilt, digits, moment, latest=latest)
        except NoCertificate:
            return None
        number = self.step.number_of(above) + self.whole.number_of(nodes)
        if points > MOST_POINTS or number * points > _MOST_NODE_POINTS:
            return None
        bulk: dict[str, Json] = {"tilt": self.bulk.tilt, "end": rounded(self.bulk.end), "panels": _PANELS}
        if not self.is_fixed:
            bulk["start"] = rounded(self.bulk.start)
        return {
            "form": "cut",
            "tilt": tilt,
            "period": period,
            "points": points,
            "place": self.place,
            "width": self.width,
            "steps": [nodes],
            "above": above,
            "bulk": bulk,
        }, digits - 2.0 * math.log(self.step.probability) + 10.0

    def _points(self, tilt: float, angle: float) -> tuple[float, float, float] | None:
        """Return the period, the last t and the log of M(c)^T e^(-c eps) over delta, for one tilt."""
        direction, tolerance = self.direction, self.log_delta + math.log(_TOLERANCE)
        own = direction.own_moment(0, tilt)
        log = self.count * own - tilt * direction.epsilon
        rows = direction.far_table
        above = rows[0] > 1.02 * tilt
        if not above.any() or log - self.log_delta > 45.0:
            return None
        needed = rows[1] - rows[0] * direction.epsilon - tolerance
        period = max(float(np.min(np.logaddexp(needed[above], 0.0) / (rows[0][above] - tilt))), -tolerance / tilt)
        places, spacings = self.step.places(tilt, 40.0, own, finest=self.width / 3.0)
        logs, rates = self.step.tilted(places, angle, tilt)
        logs = logs + log_above(places, self.step.height(angle), self.place, self.width) - own
        kept = logs > -60.0
        weights, rates = spacings[kept] * np.exp(logs[kept]), np.maximum(rates[kept], 0.0)
        t, most = 1.0 / direction.epsilon, MOST_POINTS * 2.0 * math.pi / period
        start = math.log(self.count) + log - tolerance
        while t <= most:
            total = float(np.sum(weights * np.exp(-t * rates)))
            if start + math.log(max(min(total, 1.0), 1e-300)) - math.log(math.pi * t) <= 0.0:
                return period, t, max(log - self.log_delta - math.log(tilt) - math.log1p(tilt), 0.0)
            t *= 1.08
        return None


def cuts(direction: Direction, log_delta: float) -> Iterator[tuple[dict[str, Json], float]]:
    """Yield the forms of the highest cuts whose bulk is small, and smaller."""
    event = direction.events[0]
    step = event.sampled
    if len(direction.events) > 1 or step is None or step.kind == "add":
        return
    cut_step = SampledStep("remove", step.noise, step.log_weights) if step.kind == "fixed_size" else step
    tolerances = list(_BULKS)
    for share in _SHARES:
        place = _place_of(cut_step, share * direction.epsilon)
        cut = Cut(direction, step, cut_step, event.count, rounded(place), log_delta)
        if not tolerances or cut.bulk.log_bound > log_delta + math.log(tolerances[0]):
            continue
        tolerances = [least for least in tolerances if cut.bulk.log_bound > log_delta + math.log(least)]
        form = cut.form()
        if form is None:
            return
        yield form


def _place_of(step: SampledStep, loss: float) -> float:
    """Return where the loss of one step is ``loss``."""
    s = step.noise
    # One record alone would lose as much there: more of them, and replaced ones, lose it before.
    odds = (math.exp(min(loss, 600.0)) - math.exp(step.log_weights[0])) / math.exp(step.log_weights[1])
    low, high = 0.0, 0.5 + s * s * math.log(odds)
    if step.kind == "remove" and step.most == 1:
        return high
    for _ in range(60):
        middle = 0.5 * (low + high)
        at = np.array([middle])
        value = float(step.log_ratio(at, 0.0)[0][0])
        if step.kind == "replace":
            value -= float(step.log_ratio(-at, 0.0)[0][0])
        low, high = (middle, high) if value < loss else (low, middle)
    return high

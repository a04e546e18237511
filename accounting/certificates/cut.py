"""This module chooses the witness for a law of losses that is cut once into a bulk and the losses above it.

The cut helps if a few participations decide delta: the losses of the bulk then do not add up to epsilon.

The form of proof is Theorem 5 of docs/concepts/fourier.md with one cut. Each branch of a mixture has a cut of its own.
As in `accounting.certificates.witness`, the numbers need not be exact for the certificate to be sound.
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
from accounting.certificates.witness import LEAST_DIGITS, MOST_POINTS, Direction

Array = NDArray[np.float64]

#: The largest shares of delta that the bulk below the cut may have, tried one after the other. The first often
#: suffices; the second takes more points.
_BULKS = (2e-9, 1e-11)
#: The losses at which the law is cut, as multiples of epsilon.
_SHARES = (0.75, 0.6, 0.47, 0.36, 0.27, 0.2, 0.15, 0.1, 0.06, 0.04, 0.025, 0.015, 0.01)
_TOLERANCE, _PANELS, _MOST_NODE_POINTS = 1e-11, 400, 1.6e7


@dataclass(frozen=True)
class Bulk:
    """A bound on delta of the losses below the cut, its logarithm, and the ends of the panels that prove it.

    The ends of the panels are measured from the cut, in widths of the cut.
    """

    tilt: float
    reach: float
    log_bound: float


@dataclass(frozen=True)
class Branch:
    """A branch of the step, or all of it, cut at ``place`` with a width.

    Attributes:
        weight: Its probability.
        step: The law that is cut. For batches of a fixed size it is the law of the remove direction.
    """

    weight: float
    whole: SampledStep
    step: SampledStep
    place: float

    @cached_property
    def width(self) -> float:
        """Return the width of the cut: the standard deviation of the normal law that smooths it."""
        widest = 0.25 * min(self.step.noise, self.step.noise**2)
        # A batch of a fixed size has no mass below 1/2, so the part of the law there must be negligible.
        return rounded(min(widest, (self.place - 0.5) / 10.0) if self.is_fixed else widest)

    @property
    def is_fixed(self) -> bool:
        """Return whether the step is one on batches of a fixed size."""
        return self.whole.kind == "fixed_size"

    @property
    def start(self) -> float:
        """Return where the panels of the bulk begin."""
        return 0.5 if self.is_fixed else -11.0 * self.step.noise - self.step.most

    @cached_property
    def angle(self) -> float:
        """Return the angle of the nodes above the cut."""
        return min(self.step.steepest(1.0, 18.0), 1.3 * self.width / self.step.height(1.0))

    def end(self, reach: float) -> float:
        """Return where the panels of the bulk end."""
        return self.place + reach * self.width

    def below(self, reach: float, tilts: Array) -> tuple[Array, float]:
        """Return the sums over the panels at some tilts, and a bound of the part beyond the panels."""
        s, end = self.step.noise, self.end(reach)
        hits = [(h, math.exp(log_weight)) for h, log_weight in enumerate(self.step.log_weights)]
        edges = np.linspace(self.start, end, _PANELS + 1)
        share = scipy.special.ndtr((self.place - edges) / self.width)
        under = scipy.special.ndtr(edges / s)
        log_ratio = self.step.log_ratio(edges, 0.0)[0]
        if self.step.kind == "replace":
            under = np.sum([p * scipy.special.ndtr((edges + h) / s) for h, p in hits], axis=0)
            log_ratio = log_ratio - self.step.log_ratio(-edges, 0.0)[0]
        c = tilts[:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            heights = np.expm1((c + 1.0) * log_ratio) - (c + 1.0) * np.expm1(log_ratio)
            if self.is_fixed:
                heights = np.expm1(c * log_ratio) * (np.exp(log_ratio) - np.exp(-c * log_ratio))
            totals = np.sum(np.diff(under) * np.maximum(heights[:, 1:], heights[:, :-1]) * share[:-1], axis=1)
            totals = totals if self.is_fixed else totals + under[0] * np.maximum(tilts, heights[:, 0])
        beyond = sum(p * float(scipy.special.ndtr((h - end) / s)) for h, p in hits)
        return self.weight * totals, self.weight * float(share[-1]) * beyond

    def above(self, tilt: float, digits: float, log_moment: float) -> dict[str, Json]:
        """Return the nodes above the cut."""
        growth = log_growth_above(self.step, self.angle, self.width)
        return self.step.nodes(self.angle, tilt, digits, log_moment, more_growth=growth)


@dataclass(frozen=True)
class Cut:
    """One repeated step whose branches are cut."""

    direction: Direction
    branches: tuple[Branch, ...]
    log_delta: float

    @property
    def count(self) -> int:
        """Return how many steps there are."""
        return self.direction.events[0].count

    @cached_property
    def bulk(self) -> Bulk:
        """Return the smallest bound of the bulk that some choices of tilts and ends give."""
        epsilon, best = self.direction.epsilon, Bulk(1.0, 1.0, math.inf)
        tilts = np.geomspace(0.3, 3e4, 60) / max(epsilon, 1e-3)
        kernels = -tilts * np.log1p(1.0 / tilts) - np.log1p(tilts)
        for reach in (2.5, 4.0, 5.5, 7.0, 9.0):
            parts = [branch.below(reach, tilts) for branch in self.branches]
            rest = math.log(max(self.count * sum(beyond for _, beyond in parts), 1e-320))
            with np.errstate(invalid="ignore"):
                totals = self.count * np.log1p(np.sum([sums for sums, _ in parts], axis=0))
                bounds = np.nan_to_num(np.logaddexp(totals + kernels - tilts * epsilon, rest), nan=math.inf)
            least = int(np.argmin(bounds))
            if bounds[least] < best.log_bound:
                best = Bulk(rounded(float(tilts[least])), reach, float(bounds[least]))
        return best

    def form(self) -> tuple[dict[str, Json], float] | None:
        """Return the witness on the line with the fewest points, and its natural digits; None if every line has too
        many points.
        """
        best: tuple[float, float, float, float] | None = None
        known = self.direction.far_table[0]
        for tilt in np.geomspace(10.0 * known[0], known[-1] / 1.05, 40):
            found = self._points(float(tilt))
            if found is not None and (best is None or found[0] * found[1] < best[1] * best[2]):
                best = float(tilt), *found
        if best is None:
            return None
        tilt, period, reach, amplification = best
        tilt, period = rounded(tilt), rounded(period * 1.002)
        points = math.ceil(reach * period / (2.0 * math.pi) * self.direction.slack) + 2
        digits = -math.log(_TOLERANCE) + amplification + 0.5 * math.log(points) + math.log(self.count) + 8.0
        digits += self.direction.extra
        latest = 2.0 * math.pi * points / period
        nodes: list[Json] = []
        above: list[dict[str, Json]] = []
        number = 0
        for index, (branch, share) in enumerate(zip(self.branches, self.direction.log_shares(0, tilt), strict=True)):
            own, moment = max(digits + share, LEAST_DIGITS), self.direction.own_moment(0, tilt, index)
            try:
                high = branch.above(tilt, own, moment)
                whole = branch.whole.nodes(branch.whole.steepest(tilt, 18.0), tilt, own, moment, latest=latest)
            except NoCertificate:
                return None
            number += branch.step.number_of(high) + branch.whole.number_of(whole)
            nodes.append(whole)
            above.append(high)
        if points > MOST_POINTS or number * points > _MOST_NODE_POINTS:
            return None
        rarest = min(branch.step.probability for branch in self.branches)
        line: dict[str, Json] = {"form": "cut", "tilt": tilt, "period": period, "points": points}
        return {**line, **self._places(nodes, above)}, digits - 2.0 * math.log(rarest) + 10.0

    def _places(self, nodes: list[Json], above: list[dict[str, Json]]) -> dict[str, Json]:
        bulk: dict[str, Json] = {"tilt": self.bulk.tilt, "panels": _PANELS}
        cuts: list[dict[str, Json]] = []
        ends: list[dict[str, Json]] = []
        for branch in self.branches:
            start: dict[str, Json] = {} if branch.is_fixed else {"start": rounded(branch.start)}
            cuts.append({"place": branch.place, "width": branch.width})
            ends.append({"end": rounded(branch.end(self.bulk.reach)), **start})
        if not self.direction.events[0].is_mixture:
            return {**cuts[0], "steps": nodes, "above": above[0], "bulk": bulk | ends[0]}
        high: list[Json] = [line | cut for line, cut in zip(above, cuts, strict=True)]
        return {"steps": [{"branches": nodes}], "above": {"branches": high}, "bulk": {**bulk, "branches": [*ends]}}

    def _points(self, tilt: float) -> tuple[float, float, float] | None:
        """Return three numbers for one tilt: the period, the last t, and the log of the ratio of M(c)^T e^(-c eps)
        to delta.
        """
        direction, tolerance = self.direction, self.log_delta + math.log(_TOLERANCE)
        log = direction.log_moment(tilt) - tilt * direction.epsilon
        rows = direction.far_table
        higher = rows[0] > 1.02 * tilt
        if not higher.any() or log - self.log_delta > 45.0:
            return None
        needed = rows[1] - rows[0] * direction.epsilon - tolerance
        period = max(float(np.min(np.logaddexp(needed[higher], 0.0) / (rows[0][higher] - tilt))), -tolerance / tilt)
        weights, rates = np.empty(0), np.empty(0)
        for index, (branch, share) in enumerate(zip(self.branches, direction.log_shares(0, tilt), strict=True)):
            step, own = branch.step, direction.own_moment(0, tilt, index)
            places, spacings = step.places(tilt, 40.0, own, finest=branch.width / 3.0)
            logs, turned = step.tilted(places, branch.angle, tilt)
            logs = logs + log_above(places, step.height(branch.angle), branch.place, branch.width) - own + share
            kept = logs > -60.0
            weights = np.concatenate([weights, spacings[kept] * np.exp(logs[kept])])
            rates = np.concatenate([rates, np.maximum(turned[kept], 0.0)])
        t, most = 1.0 / direction.epsilon, MOST_POINTS * 2.0 * math.pi / period
        start = math.log(self.count) + log - tolerance
        while t <= most:
            total = float(np.sum(weights * np.exp(-t * rates)))
            if start + math.log(max(min(total, 1.0), 1e-300)) - math.log(math.pi * t) <= 0.0:
                return period, t, max(log - self.log_delta - math.log(tilt) - math.log1p(tilt), 0.0)
            t *= 1.08
        return None


def cuts(direction: Direction, log_delta: float) -> Iterator[tuple[dict[str, Json], float]]:
    """Yield the forms of the highest cuts whose bulk is small enough, for each of the allowed shares."""
    event = direction.events[0]
    steps = [part.sampled for part in event.parts if part.sampled is not None and part.sampled.kind != "add"]
    if len(direction.events) > 1 or len(steps) < len(event.parts):
        return
    tolerances = list(_BULKS)
    for share in _SHARES:
        branches = []
        for part, whole in zip(event.parts, steps, strict=True):
            step = SampledStep("remove", whole.noise, whole.log_weights) if whole.kind == "fixed_size" else whole
            branches.append(Branch(part.weight, whole, step, rounded(_place_of(step, share * direction.epsilon))))
        cut = Cut(direction, tuple(branches), log_delta)
        if any(branch.width <= 0.0 for branch in branches):
            return
        if not tolerances or cut.bulk.log_bound > log_delta + math.log(tolerances[0]):
            continue
        tolerances = [least for least in tolerances if cut.bulk.log_bound > log_delta + math.log(least)]
        form = cut.form()
        if form is None:
            return
        yield form


def _place_of(step: SampledStep, loss: float) -> float:
    """Return the place at which the loss of one step is ``loss``."""
    s = step.noise
    # This place is for a single record that comes or goes. Several records, or a replaced one, reach the loss at a
    # smaller place.
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

"""This module chooses the rule from which a verifier takes its bounds of a transform beyond some t.

As in `accounting.certificates.nodes`, nothing here has to be right. The rules are those of Theorem B in
docs/concepts/certificates.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.canonical import Json
from accounting.certificates.nodes import MOST_FOR_ENVELOPE, SampledStep, log_above, log_growth_above, rounded

Array = NDArray[np.float64]

#: The widths of the cuts above which an envelope is found, divided by the smaller of s and s^2. The distance of a cut
#: from 1/2, in widths, which is so large that hardly anything of the law is cut. The largest angle, at which the share
#: above a cut grows by e^3.4.
_WIDTHS_OF_CUTS, _BEFORE_A_CUT, _ANGLE_OF_CUTS = (0.04, 0.08, 0.16, 0.3), 8.3, 1.3
#: A share of the law below this number counts as 0.
_LEAST = 1e-300


@dataclass(frozen=True, slots=True)
class Bound:
    """Theorem B's bound of |M(c + it)/M(c)| on one line: a constant plus weights that fall exponentially in t at given
    rates.

    Attributes:
        step: The law that is integrated: the step's own, or for batches of a fixed size the remove law above a cut.
        cut: The place of the cut and its width; None if the law is not cut.
    """

    step: SampledStep
    angle: float
    constant: float
    weights: Array
    rates: Array
    cut: tuple[float, float] | None = None

    def log_at(self, t: float) -> float:
        """Return the log of the bound at t, at most 0."""
        bound = self.constant + float(np.sum(self.weights * np.exp(-t * self.rates)))
        return min(math.log(max(bound, _LEAST)), 0.0)

    def nodes(self, tilt: float, digits: float, log_moment: float) -> dict[str, Json]:
        """Return the nodes of the quadrature rule behind this bound."""
        if self.cut is None:
            return self.step.nodes(self.angle, tilt, digits, log_moment)
        place, width = self.cut
        growth = log_growth_above(self.step, self.angle, width)
        found = self.step.nodes(self.angle, tilt, digits, log_moment, more_growth=growth)
        return {**found, "place": place, "width": width}


class Envelope:
    """The bounds of one step's transform on lines at several angles, and for a fixed size above several cuts.

    Args:
        log_moment: log M(c).
        digits: The natural digits of a rule that serves only the envelope.
        is_rare: Whether the branch is so rare that the main rule's own bound is good enough.
    """

    def __init__(
        self, step: SampledStep, tilt: float, log_moment: float, digits: float, *, is_rare: bool = False
    ) -> None:
        self.step, self.tilt, self.log_moment, self.digits, self.is_rare = step, tilt, log_moment, digits, is_rare
        places, spacings = step.places(tilt, 20.0, log_moment)
        constant = 0.0
        if step.kind == "fixed_size":
            s, q = step.noise, step.probability
            constant = (1.0 - q) * math.erf(0.5 / s * math.sqrt(0.5)) * math.exp(-log_moment)
        self.bounds: list[Bound] = []
        left, right = step.reach(tilt, digits, log_moment)
        self.width = left + right
        for angle in step.steepest(tilt, 18.0) * 0.6 ** np.arange(2 if is_rare else 14):
            if self.bounds and self._coarse_nodes(angle) > MOST_FOR_ENVELOPE:
                break
            logs, rates = step.tilted(places, angle, tilt)
            logs = logs + np.log(spacings)
            if step.kind == "fixed_size":
                more, arguments = step.rise(angle, tilt)
                logs, rates = np.concatenate([logs, more]), np.concatenate([rates, arguments])
            self.bounds.append(self._bound(step, float(angle), constant, logs, rates))
        #: The bounds of the main rule.
        self.own = self.bounds[min(1, len(self.bounds) - 1)]
        if step.kind == "fixed_size" and not is_rare:
            self.bounds += self._above_cuts()

    def _bound(
        self,
        step: SampledStep,
        angle: float,
        constant: float,
        logs: Array,
        rates: Array,
        cut: tuple[float, float] | None = None,
    ) -> Bound:
        weights, rates = np.exp(logs - self.log_moment), np.maximum(rates, 0.0)
        kept = weights > 1e-20
        return Bound(step, angle, constant, weights[kept], rates[kept], cut)

    def _above_cuts(self) -> Iterator[Bound]:
        """Yield bounds above cuts, for batches of a fixed size. Above such a cut, the remove law on the whole line
        hardly reaches below 1/2.
        """
        step = SampledStep("remove", self.step.noise, self.step.log_weights)
        for share in _WIDTHS_OF_CUTS:
            width = rounded(share * min(step.noise, step.noise**2))
            cut = rounded(0.5 + _BEFORE_A_CUT * width), width
            places, spacings = step.places(self.tilt, 20.0, self.log_moment, finest=width / 3.0)
            logs, _ = step.tilted(places, 0.0, self.tilt)
            above = logs + log_above(places, 0.0, *cut) + np.log(spacings) - self.log_moment
            left_out = max(1.0 - float(np.sum(np.exp(above))), 0.0) + 1e-15
            steepest = min(step.steepest(self.tilt, 18.0), _ANGLE_OF_CUTS * width / step.noise**2)
            for angle in steepest * 0.3 ** np.arange(4):
                if self.width * self.digits / (2.0 * math.pi * step.height(angle)) > MOST_FOR_ENVELOPE:
                    break
                logs, rates = step.tilted(places, angle, self.tilt)
                logs = logs + log_above(places, step.height(angle), *cut) + np.log(spacings)
                yield self._bound(step, float(angle), left_out, logs, rates, cut)

    def _coarse_nodes(self, angle: float) -> float:
        theta = self.step.height(angle)
        growth = self.step.log_growth(angle, self.tilt)
        if self.step.kind == "fixed_size":
            return 2.0 * (self.digits + growth) * (0.3 * self.width / theta + 10.0)
        return self.width * (self.digits + growth) / (2.0 * math.pi * theta)

    def expected(self, angle: float) -> float:
        """Return the approximate number of nodes that the main rule has at an angle."""
        theta, digits = self.step.height(angle), 50.0 + self.digits
        if self.step.kind == "fixed_size":
            return 2.0 * (0.3 * self.width / theta * digits + 0.5 * digits)
        return self.width * (digits + self.step.log_growth(angle, self.tilt)) / (2.0 * math.pi * theta)

    def log_at(self, t: float) -> float:
        """Return the log of the smallest bound at t, at most 0."""
        if self.is_rare and self.step.kind == "fixed_size":
            return 0.0
        return min(bound.log_at(t) for bound in self.bounds)

    def chosen_at(self, t: float, count: float) -> tuple[float, Bound | None]:
        """Return the main rule's angle, and a bound for the envelope at t if the main rule has no good bound of its
        own.
        """
        if self.is_rare:
            return self.own.angle, None
        best = min(self.bounds, key=lambda bound: bound.log_at(t))
        gained = self.own.log_at(t) - best.log_at(t)
        return self.own.angle, best if self.step.kind == "fixed_size" or count * gained > 0.7 else None

"""Steps with atoms whose laws are elementary: randomised response, and Laplace noise on full batches.

Their |M(c + it)| does not fall to 0, or falls slowly: compositions converge where many steps, noise of another kind or
a window make them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.fourier.ratio_path import RatioPart
from accounting.fourier.ratio_step import RatioStep
from accounting.fourier.steps import UNIT, StepLine, TiltTable
from accounting.mechanisms.laplace import LaplaceLoss
from accounting.mechanisms.plain import RandomizedResponseLoss

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RandomizedResponseStep:
    """+epsilon with probability p = 1 / (1 + e^-eps), -epsilon otherwise, as `steps.Step`.

    Attributes:
        loss: The mechanism.
    """

    loss: RandomizedResponseLoss

    @property
    def participation(self) -> float:
        return 1.0

    @property
    def largest_loss(self) -> float:
        return self.loss.epsilon

    def table(self, tilts: Array) -> TiltTable:
        """K(x) = log [cosh((x + 1/2) eps) / cosh(eps/2)].

        Guarantees: moment_within_its_error.
        """
        epsilon = self.loss.epsilon
        moments = np.zeros_like(tilts)
        above = tilts > 0.0
        moments[above] = self.loss.log_moment(tilts[above])
        tangent = np.tanh((tilts + 0.5) * epsilon)
        variances = epsilon**2 * (1.0 - tangent * tangent)
        # The closed form is rounded up by an allowance.
        return TiltTable(tilts, moments, epsilon * tangent, variances, (2e-12 + 16.0 * UNIT) * moments)

    def line(self, tilt: float, decay: float) -> StepLine:
        """Two atoms, whose phases meet again: |M| does not fall.

        Guarantees: line_within_its_error.
        """
        epsilon = self.loss.epsilon
        table = self.table(np.array([tilt]))
        likely = 1.0 / (1.0 + math.exp(-(2.0 * tilt + 1.0) * epsilon))
        unlikely = 1.0 / (1.0 + math.exp(min((2.0 * tilt + 1.0) * epsilon, 700.0)))
        return StepLine(
            weights=np.array([likely, unlikely], dtype=np.complex128),
            losses=np.array([epsilon, -epsilon], dtype=np.complex128),
            log_moment=float(table.moments[0]),
            log_moment_error=float(table.errors[0]),
            relative_error=0.0,
            rounding=UNIT * (32.0 + 8.0 * (2.0 * tilt + 1.0) * epsilon),
            mass=1.0,
            first_moment=epsilon,
            envelope=(np.zeros((1, 1)), np.zeros((1, 1)), 0.0),
        )

    def largest_tilt(self, count: int, epsilon: float) -> float:
        return math.inf


def laplace_step(loss: LaplaceLoss, digits: float) -> RatioStep:
    """Laplace noise on a full batch: mass 1/2 at l, e^-l / 2 at -l, density e^((y - l)/2) / 4 between them.

    Guarantees: moment_within_its_error; line_within_its_error; envelope_is_above_and_falls.

    Source: Mironov 2017, Proposition 6, from the definition.
    """
    l = loss.epsilon  # noqa: E741
    part = RatioPart(1.0, -0.5 * l - math.log(4.0), 0.0, -l, l, upward=True)
    return RatioStep((part,), ((0.5, l), (0.5 * math.exp(-l), -l)), 0.0, digits, 1.0, l)

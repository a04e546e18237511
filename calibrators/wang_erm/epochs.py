"""This module bounds the utility of epochs of variance-reduced descent with noise, by derived forms of section 4 of the
paper.

Every inner direction has noise u of variance sigma^2 per coordinate. It has mean zero and does not depend on the batch,
so it only adds p sigma^2 to the direction's variance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from accounting.errors import InvalidValue


@dataclass(frozen=True, slots=True)
class StronglyConvexEpochs:
    r"""DP-SVRG (Algorithm 1) for mu-strongly convex F^r. Every epoch starts at its snapshot.

    Guarantees:
        - E F^r(x~_T) - F^r* <= A^T D_0 + floor, with contraction A of an epoch of m steps where A < 1,
          A = 1 / (eta (1 - k eta L) mu m) + k eta L (m + 1) / (m (1 - k eta L)).

    The paper has k = 8. The noise is independent of the batch and has mean zero, so k = 4 suffices.

    Attributes:
        smoothness: The smoothness L of every record's loss.
        strong_convexity: The strong convexity mu of F^r.
        step_size: The step size eta.
        variance_factor: The variance factor k.

    Raises:
        InvalidValue: If eta is 1/(3 k L) or more, because then no m makes A smaller than 1/2.

    >>> epochs = StronglyConvexEpochs(smoothness=1.0, strong_convexity=0.1, step_size=1 / 24)
    >>> epochs.inner_iterations, round(epochs.contraction(961), 10)
    (961, 0.4998959417)
    """

    smoothness: float
    strong_convexity: float
    step_size: float
    variance_factor: float = 4.0

    def __post_init__(self) -> None:
        if self._share * 3.0 >= 1.0:
            raise InvalidValue(
                f"step_size must be below 1/({3.0 * self.variance_factor:g} smoothness) = "
                f"{1.0 / (3.0 * self.variance_factor * self.smoothness):g}, got {self.step_size:g}: with a "
                "larger step size, no number of inner steps halves the risk in an epoch",
                pointer=("step_size",),
            )

    @property
    def _share(self) -> float:
        """The number k eta L."""
        return self.variance_factor * self.step_size * self.smoothness

    def contraction(self, inner_iterations: int) -> float:
        """Return the contraction A of an epoch of this many steps, a pure number."""
        left, m = 1.0 - self._share, inner_iterations
        return 1.0 / (self.step_size * left * self.strong_convexity * m) + self._share * (m + 1) / (m * left)

    @property
    def inner_iterations(self) -> int:
        """The smallest number m of inner steps with A < 1/2."""
        left = 1.0 - self._share
        y = self._share / left
        return math.floor((1.0 / (self.step_size * self.strong_convexity * left) + y) / (0.5 - y)) + 1

    def floor(self, noise_stddev_on_mean: float, dimension: int, inner_iterations: int) -> float:
        """Return the excess that noise leaves after many epochs, in loss units; inf if an epoch does not contract."""
        kept = self.contraction(inner_iterations)
        if kept >= 1.0:
            return math.inf
        factor = 0.25 * self.variance_factor  # it is 2 for k = 8, which splits off the noise with a factor of 2
        noise = factor * self.step_size * dimension * noise_stddev_on_mean**2
        return noise / ((1.0 - self._share) * (1.0 - kept))

    def bound(
        self, initial_gap: float, epochs: int, noise_stddev_on_mean: float, dimension: int, inner_iterations: int
    ) -> float:
        """Return the bound on E F^r(x~_T) - F^r*, in loss units."""
        kept = self.contraction(inner_iterations)
        floor = self.floor(noise_stddev_on_mean, dimension, inner_iterations)
        return math.inf if kept >= 1.0 else kept**epochs * initial_gap + floor


@dataclass(frozen=True, slots=True)
class ConvexEpochs:
    r"""DP-SVRG++ (Algorithm 2) for convex f. Epoch s has 2^s m steps and starts where the one before ended.

    Guarantees:
        - E F^r(x~_T) - F^r* <= 2^-T ((1 + 1/(2 m)) D_0 + 39 L |x_0 - x*|^2 / (4 m)) + p sigma^2 / (4 L) at
          eta = 1/(13 L), for every m >= 1.

    Attributes:
        smoothness: The smoothness L of every record's loss.
        initial_gap: The initial gap D_0.
        initial_distance: The initial distance |x_0 - x*|.

    >>> ConvexEpochs(smoothness=1.0, initial_gap=0.5, initial_distance=2.0).bound(6, 0.05, 10, first_iterations=5)
    0.13671875
    """

    smoothness: float
    initial_gap: float
    initial_distance: float

    @property
    def step_size(self) -> float:
        """The step size eta = 1/(13 L)."""
        return 1.0 / (13.0 * self.smoothness)

    @property
    def first_iterations(self) -> int:
        """The smallest m >= 39 L |x_0 - x*|^2 / (4 D_0). With it, the term with the distance is at most the term with
        the gap.
        """
        return max(1, math.ceil(9.75 * self.smoothness * self.initial_distance**2 / self.initial_gap))

    def bound(self, epochs: int, noise_stddev_on_mean: float, dimension: int, first_iterations: int) -> float:
        """Return the bound on E F^r(x~_T) - F^r*, in loss units."""
        m = first_iterations
        start = (1.0 + 0.5 / m) * self.initial_gap + 9.75 * self.smoothness * self.initial_distance**2 / m
        return math.ldexp(start, -epochs) + dimension * noise_stddev_on_mean**2 / (4.0 * self.smoothness)

r"""Generalised Gaussian noise: density proportional to $\exp(-\|z\|_r^2/2)$, exactly.

The *squared norm* stands in the exponent. Independent coordinates of density $\exp(-|z|^r)$, which others call
generalised normal, are something else.

In polar coordinates of $\|\cdot\|_r$ the radius and the direction are independent: the density of the radius is
proportional to $\rho^{d-1} e^{-\rho^2/2}$, so that its square is chi-squared of d degrees, and the direction has the
cone measure, which is the law of $g/\|g\|_r$ for independent entries of density proportional to $\exp(-|g_i|^r)$.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from randomgen import AESCounter

from trainer.noise import Floats, State


class GeneralizedGaussianNoise:
    """Generalised Gaussian vectors of unit scale in float64, from a stream of their own.

    Guarantees:
        - noise_has_the_density: exp(-|z|_r^2 / 2), normalised, as far as float64 goes. No claim is made against an
          adversary who reads the last bits of what is released.
        - restored_noise_goes_on: after `restore` the vectors that follow are those that followed `state`.

    Source: Bassily, Guzman & Nandi 2021, Definition 7 (density), Proposition 8 (radius); the sampler is derived.

    >>> from trainer.streams import random_streams
    >>> GeneralizedGaussianNoise(random_streams(1).noise).vector(3, order=4.0).shape
    (3,)
    """

    def __init__(self, stream: AESCounter) -> None:
        self._stream = stream
        self._generator = np.random.Generator(stream)

    def vector(self, dimension: int, order: float) -> Floats:
        """The next vector, shape (dimension,).

        Args:
            order: r of the norm, in [2, infinity).
        """
        draw = self._generator
        return from_variates(
            draw.standard_gamma(0.5 * dimension),
            draw.random(dimension),
            draw.standard_gamma(1.0 + 1.0 / order, dimension),
            1.0 - 2.0 * draw.integers(2, size=dimension),
            order,
        )

    def rounded(self, dimension: int, order: float, scale: float) -> Floats:
        drawn: Floats = np.rint(scale * self.vector(dimension, order))
        return drawn

    def state(self) -> State:
        """All that is needed to go on from here."""
        return {"stream": self._stream.state}

    def restore(self, state: State) -> None:
        """Go on from where `state` was taken."""
        self._stream.state = state["stream"]


def from_variates(
    radius: float, uniforms: Floats, gammas: Floats, signs: npt.NDArray[np.floating], order: float
) -> Floats:
    r"""The vector that these variates make.

    U G^(1/r) with U uniform and G of the gamma law of shape 1 + 1/r has the law of the root $G'^{1/r}$ of a gamma
    variate of shape 1/r, and does not underflow where r is large.

    Args:
        radius: Half of the squared radius: a gamma variate of shape d/2.
        uniforms: shape (d,), on [0, 1).
        gammas: shape (d,), of shape 1 + 1/r.
        signs: shape (d,), 1 or -1.
        order: r.

    >>> import numpy as np
    >>> z = from_variates(1.3, np.array([0.2, 0.9, 0.5]), np.array([1.1, 0.7, 1.6]), np.array([1.0, -1.0, 1.0]), 4.0)
    >>> (0.7 * z).round(12).tolist()
    [0.267126122241, -1.073631418758, 0.733395418765]
    """
    entries = uniforms * gammas ** (1.0 / order)
    largest = float(entries.max())
    if largest == 0.0:  # every uniform variate was 0: a direction is as good as any other
        entries, largest = np.ones_like(entries), 1.0
    ratios = entries / largest
    length = float(np.sum(ratios**order)) ** (1.0 / order)
    made: Floats = np.sqrt(2.0 * radius) / length * signs * ratios
    return made

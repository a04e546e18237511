r"""Rounded generalised Gaussian noise: round(K z) for z of density proportional to $\exp(-\|z\|_r^2/2)$, exactly.

The *squared norm* stands in the exponent, so that entries depend on each other. Independent entries of density
$\exp(-|z|^r)$, which others call generalised normal, are another law, but one random number turns them into the law
drawn here.

**The law.** Let $\alpha = 2/r < 1$, and let V be positive and stable: $E\, e^{-tV} = e^{-t^\alpha}$ for $t \ge 0$. With
$t = 2^{-r/2} \|z\|_r^r$ and $w = 2^{-r/2} V$ this is $\exp(-\|z\|_r^2/2) = E \prod_i \exp(-w |z_i|^r)$. So z is a
mixture of vectors with independent entries of density proportional to $\exp(-w |z_i|^r)$, where the law of w is
weighted by the inverse of what normalises them, $w^{-d/r}$ up to a constant. In other words $z = M g$ with independent
entries $g_i$ of density proportional to $\exp(-|g_i|^r)$ and, independent of them, $M = w^{-1/r} = \sqrt 2\, V^{-1/r}$,
where the law of V is weighted by $V^{-d/r}$.

Kanter has $V = (a(U)/G)^{(1-\alpha)/\alpha}$ for G standard exponential, U uniform on $(0, \pi)$ and
$a(x)^{1-\alpha} = 1/B(x)$, $B(x) = \sin x / (\sin(\alpha x)^\alpha \sin((1-\alpha)x)^{1-\alpha})$. So
$V^{-1/r} = (G^{1-\alpha} B(U))^{1/2}$, and the weight is $(G^{1-\alpha} B(U))^{d/2}$, a product: U and G stay
independent. Hence

$$M^2 = 2\, B(U)\, G^{1-\alpha}, \quad U \sim B^{d/2} \text{ on } (0, \pi), \quad G \sim \Gamma(1+m), \quad
m = (1-\alpha)\, d/2.$$

For r = 2, z is standard normal.

`trainer.exact.mixing` draws U and G by comparisons of enclosures. M is then known between bounds, and further bits of
the same uniform variates narrow them. The entries are the ziggurat's (`trainer.exact.ziggurat`), with K M for its
scale.

**Work.** The number of points that are tried for U and G is independent of the accepted points, hence of the noise, and
it is independent of the records. The work for the entries is planned for the number `spread_of`, which M exceeds with
probability 2^-100 at most.

Source: Bassily, Guzman & Nandi 2021, Definition 7 (density); Kanter 1975 and Devroye 2009 for the stable law and its
weighting by a power; the mixture is derived here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from trainer.exact.enclosures import Interval
from trainer.exact.gaussian import rounded_normals
from trainer.exact.layers import check_order, power_layers
from trainer.exact.loops import Floats
from trainer.exact.mixing import Multiplier, mixing
from trainer.exact.ziggurat import Sources, State, Tables, rounded
from trainer.keystream import Keystream

#: -ln of the probability that G is above the bound on G that `spread_of` uses: above 100 ln 2.
_RARE = 70.0


class GeneralizedGaussianNoise:
    """Draws round(K z) for generalised Gaussian vectors z, from a stream of its own.

    Args:
        stream: The source of all bits; nothing else may draw from it.

    Guarantees:
        - noise_has_the_law_of_a_rounded_vector: for ideal bits, with no error at all, the density of z being
          proportional to exp(-|z|_r^2 / 2).
        - restored_noise_goes_on: after `restore` the vectors that follow are those that followed `state`.

    >>> from trainer.streams import random_streams
    >>> GeneralizedGaussianNoise(random_streams(1).noise).rounded(3, 4.0, 1000.0).shape
    (3,)
    """

    def __init__(self, stream: Keystream) -> None:
        self._sources, self._mixing = Sources.of(stream), stream.jumped(3)

    def rounded(self, dimension: int, order: float, scale: float) -> Floats:
        """Return the next vector, shape (dimension,): whole numbers.

        Args:
            dimension: The dimension d.
            order: The order r of the norm, from 2 to 128.
            scale: The scale K; if it is 0, nothing is drawn.

        Raises:
            InvalidValue: If the order is out of range.
        """
        if scale == 0.0:
            return np.zeros(dimension)
        if order == 2.0:
            return rounded_normals(self._sources, dimension, scale)
        layers = power_layers(order)
        tables = Tables.of(layers, _Scaled(Fraction(scale), mixing(dimension, order).drawn(self._mixing)))
        return rounded(tables, self._sources, dimension, scale * spread_of(dimension, order))

    def state(self) -> State:
        """Return everything that is needed to go on from here."""
        return {"sources": self._sources.state(), "mixing": self._mixing.state}

    def restore(self, state: State) -> None:
        """Go on from the point at which `state` was taken."""
        self._sources.restore(state["sources"])
        self._mixing.state = state["mixing"]


def spread_of(dimension: int, order: float) -> float:
    """Return a number that the multiplier M of the entries' scale exceeds with probability 2^-100 at most.

    M^2 is at most 2 B(0) G^(1 - alpha), and a gamma variate of shape s is above s + (2 s t)^(1/2) + t with probability
    e^-t at most (Boucheron, Lugosi & Massart 2013, section 2.4).

    Raises:
        InvalidValue: If the order is out of range.

    >>> spread_of(100, 2.0)
    1.0
    """
    check_order(order)
    if order == 2.0:
        return 1.0
    alpha = 2.0 / order
    shape = 1.0 + 0.5 * (1.0 - alpha) * dimension
    largest = shape + math.sqrt(2.0 * shape * _RARE) + _RARE
    top = -alpha * math.log(alpha) - (1.0 - alpha) * math.log1p(-alpha)
    return math.sqrt(2.0 * math.exp(top + (1.0 - alpha) * math.log(largest))) * (1.0 + 1e-9)


@dataclass(frozen=True)
class _Scaled:
    """The scale K M."""

    scale: Fraction
    multiplier: Multiplier

    def bounds(self, bits: int) -> Interval:
        low, high = self.multiplier.bounds(bits)
        return self.scale * low, self.scale * high

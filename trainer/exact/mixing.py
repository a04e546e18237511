r"""The random number M that turns independent entries into a generalised Gaussian vector, to any number of bits.

With $\alpha = 2/r$, $B(x) = \sin x / (\sin(\alpha x)^\alpha \sin((1-\alpha)x)^{1-\alpha})$ and $m = (1-\alpha) d/2$:

$$M^2 = 2\, B(U)\, G^{1-\alpha}, \quad U \sim B^{d/2} \text{ on } (0, \pi), \quad G \sim \Gamma(1+m)$$

independent of each other; `trainer.exact.generalized_gaussian` says why. Both are ratios of uniform variates
(`trainer.exact.ratios`) of densities proportional to h, within these rectangles:

- U: $h = (B(x)/B(0))^{d/2}$. From $\ln(\sin x / x) = -\sum_k c_k x^{2k}$ with all $c_k > 0$ and $c_1 = 1/6$ it follows
  that $\ln B(x) - \ln B(0) = -\sum_k c_k x^{2k} (1 - \alpha^{2k+1} - (1-\alpha)^{2k+1})$, all of whose terms are
  negative. It is at most the first one, $-\alpha(1-\alpha) x^2/2$. So $h \le 1$, and $0 \le x \sqrt{h(x)} \le \min(\pi,
  2 e^{-1/2} / \sqrt{d \alpha (1-\alpha)})$.
- G - m: $\ln h = m \ln((m+x)/m) - x$, so that $h \le 1$. $x \sqrt{h(x)}$ is largest and least at $x = 1 \pm
  \sqrt{1 + 2m}$, where its derivative is 0; for m < 1 it is no less than -m, since x is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

from trainer.exact.enclosures import SINE_LIMIT, Interval, exp, ln, sine, times
from trainer.exact.ratios import OUTSIDE, Ratio, accepted
from trainer.keystream import Keystream

#: The precision, in bits, of the constants that are computed once for each law, and the grain: the sizes of the
#: rectangles below a law's density are rounded up to its multiples.
_BITS, _GRAIN = 200, 1 << 64


@lru_cache(maxsize=64)
def mixing(dimension: int, order: float) -> Mixing:
    """Return the law of M for vectors of this many entries and the norm l_r, r above 2."""
    return Mixing(dimension, Fraction(order))


@dataclass(frozen=True)
class Mixing:
    """The law of M.

    Attributes:
        dimension: The dimension d.
        order: The order r, above 2.
    """

    dimension: int
    order: Fraction

    @cached_property
    def alpha(self) -> Fraction:
        return 2 / self.order

    @cached_property
    def shape(self) -> Fraction:
        """The shape m of the gamma law of G, minus 1."""
        return (1 - self.alpha) * self.dimension / 2

    def drawn(self, stream: Keystream) -> Multiplier:
        """Draw a value of M."""
        angle = accepted(stream, (Fraction(0), self.angle_end), self.angle_log_density)
        return Multiplier(self, angle, accepted(stream, self.gamma_ends, self.gamma_log_density))

    @cached_property
    def angle_end(self) -> Fraction:
        """An upper bound of x h(x)^(1/2) for U."""
        square = 4 / (self.dimension * self.alpha * (1 - self.alpha))
        high = (ln((square, square), _BITS)[1] - 1) / 2
        return min(SINE_LIMIT, _up(exp((high, high), _BITS)[1]))

    @cached_property
    def gamma_ends(self) -> Interval:
        """Bounds of x h(x)^(1/2) for G - m."""
        m = self.shape
        low, high = ln((1 + 2 * m, 1 + 2 * m), _BITS)
        least, most = exp((low / 2, high / 2), _BITS)
        right = self._gamma_product((1 + least, 1 + most))[1]
        left = -self._gamma_product((1 - most, 1 - least))[0] if m >= 1 else m
        return -_up(left), _up(right)

    def _gamma_product(self, x: Interval) -> Interval:
        log = self.gamma_log_density(x, _BITS)
        assert log is not None
        return times(x, exp((log[0] / 2, log[1] / 2), _BITS))

    def gamma_log_density(self, x: Interval, bits: int) -> Interval | None:
        """Return bounds of ln h for G - m."""
        m = self.shape
        low, high = m + x[0], m + x[1]
        if high <= 0:
            return OUTSIDE
        if low <= 0:
            return None
        logs = ln((low / m, high / m), bits)
        return m * logs[0] - x[1], m * logs[1] - x[0]

    def angle_log_density(self, x: Interval, bits: int) -> Interval | None:
        """Return bounds of ln h for U. Below 22/7, the sine is positive only up to pi."""
        if x[0] >= SINE_LIMIT:
            return OUTSIDE
        if x[1] > SINE_LIMIT:
            return None
        whole = sine(x, bits)
        if whole[1] <= 0:
            return OUTSIDE
        parts = [(share, sine((share * x[0], share * x[1]), bits)) for share in (self.alpha, 1 - self.alpha)]
        if whole[0] <= 0 or any(low <= 0 for _, (low, _) in parts):
            return None
        low, high = ln(whole, bits)
        for share, sines in parts:
            least, most = ln(sines, bits)
            low, high = low - share * most, high - share * least
        top = self.log_top(bits)
        return self.dimension * (low - top[1]) / 2, self.dimension * (high - top[0]) / 2

    def log_top(self, bits: int) -> Interval:
        """Return bounds of ln B(0)."""
        return _log_top(self.alpha, bits)


class Multiplier:
    """The random number M, of which further bits can be read."""

    def __init__(self, law: Mixing, angle: Ratio, gamma: Ratio) -> None:
        self._law, self._angle, self._gamma = law, angle, gamma
        self._known = self._enclosed()

    def bounds(self, bits: int) -> Interval:
        """Return bounds of M whose ratio is below 1 + 2^-bits."""
        while (self._known[1] - self._known[0]) * (1 << bits) >= self._known[0]:
            for ratio in (self._angle, self._gamma):
                ratio.extend()
                while not ratio.refresh():
                    ratio.extend()
            self._known = self._enclosed()
        return self._known

    def _enclosed(self) -> Interval:
        """Return exp of half of ln 2 + ln B(0) + (2/d) ln h(U) + (1 - alpha) ln G."""
        law, bits = self._law, min(self._angle.precision, self._gamma.precision)
        low, high = (law.shape + end for end in self._gamma.bounds)
        two = Fraction(2)
        logs = zip(ln((two, two), bits), law.log_top(bits), self._angle.log, ln((low, high), bits), strict=True)
        least, most = (
            (double + top + 2 * angle / law.dimension + (1 - law.alpha) * gamma) / 2
            for double, top, angle, gamma in logs
        )
        return exp((least, most), bits)


@lru_cache(maxsize=64)
def _log_top(alpha: Fraction, bits: int) -> Interval:
    logs = [(share, ln((share, share), bits)) for share in (alpha, 1 - alpha)]
    (one, (low, high)), (other, (least, most)) = logs
    return -(one * high + other * most), -(one * low + other * least)


def _up(number: Fraction) -> Fraction:
    return Fraction(math.ceil(number * _GRAIN), _GRAIN)

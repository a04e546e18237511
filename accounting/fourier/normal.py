"""The logarithm of the normal distribution function, for compiled loops."""

from __future__ import annotations

import math

from accounting.compiled import compiled

_SQRT_HALF = math.sqrt(0.5)
_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
#: For x below this number, the complementary error function nears the subnormal numbers, and the asymptotic series is
#: accurate enough.
_FAR_LEFT = -30.0


@compiled
def log_normal_below(x: float) -> float:
    """Return log Phi(x), within 1e-13 (1 + |log Phi(x)|).

    Left of -30 it is the asymptotic series of Mills' ratio, whose error is below its first term that is left out,
    10395 / x^12.

    >>> f"{log_normal_below(0.0):.12f} {log_normal_below(-40.0):.8f} {log_normal_below(-math.inf)}"
    '-0.693147180560 -804.60844201 -inf'
    """
    if x > 0.0:
        return math.log1p(-0.5 * math.erfc(x * _SQRT_HALF))
    if x > _FAR_LEFT:
        return math.log(0.5 * math.erfc(-x * _SQRT_HALF))
    if x == -math.inf:
        return x
    r = 1.0 / (x * x)
    series = -r * (1.0 - 3.0 * r * (1.0 - 5.0 * r * (1.0 - 7.0 * r * (1.0 - 9.0 * r))))
    return -0.5 * x * x - math.log(-x) - _HALF_LOG_TWO_PI + math.log1p(series)

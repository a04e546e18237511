"""This module computes moments at real tilts of a loss whose law is a finite measure. One compiled loop serves every
mechanism.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from accounting.compiled import compiled

Array = NDArray[np.float64]

#: The rounding of a compensated sum of up to 1e7 terms and of the functions in its terms, in units of the unit
#: roundoff.
ACCUMULATION = 44.0
#: For larger exponents e^exponent nears the largest number, so sums are taken relative to the largest term.
_LARGE = 600.0
#: Terms whose log is below this are negligible beside the largest term, and slow to compute.
_UNDERFLOW = -700.0
#: A term of at most e^-46 times the largest changes the sum by less than one unit in the last place.
_NOTHING = 46.0


@compiled
def moments_at(
    log_mass: Array, base: Array, loss: Array, at_zero: float, tilts: Array, from_one: bool, cancellation: float
) -> tuple[Array, Array, Array, Array]:
    """Return moments M(x) = at_zero + sum of e^(log_mass + base + x loss) at each tilt x.

    If M is within a half of 1, it is 1 plus the sum of mass (e^(base + x loss) - 1), which loses no digits. This needs
    masses e^log_mass and ``at_zero`` that add up to 1.

    Args:
        log_mass, base, loss: The values at each node, all of one shape.
        at_zero: A mass with base 0 and loss 0.
        tilts: The tilts x >= 0.
        from_one: Whether the masses add up to 1.
        cancellation: Rounding of ``base`` and ``loss`` beyond their own size, in units of the unit roundoff.

    Returns:
        log M, its first and its second derivative (estimates), and the rounding error of log M in units of the unit
        roundoff: the value of a function is wrong by 4 units, and a compensated sum by 2 units more than its terms.
    """
    size, nodes = tilts.size, loss.size
    logs, means, variances, rounding = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    mass = np.empty(nodes)
    for j in range(nodes):
        mass[j] = math.exp(log_mass[j])
    for i in range(size):
        x = tilts[i]
        top = -math.inf
        for j in range(nodes):
            top = max(top, base[j] + x * loss[j] + log_mass[j])
        shift = top if top > _LARGE or top < -_LARGE else 0.0
        total, lost = at_zero * math.exp(-shift), 0.0
        change, gone, spread = 0.0, 0.0, 0.0
        first, second, largest = 0.0, 0.0, 0.0
        for j in range(nodes):
            exponent = base[j] + x * loss[j]
            if exponent + log_mass[j] > top - _NOTHING:
                largest = max(largest, abs(exponent))
            if from_one and shift == 0.0 and exponent < 1.0:
                grown = math.expm1(exponent)
                weight, term = mass[j] * (1.0 + grown), mass[j] * grown
            else:
                log = exponent + log_mass[j] - shift
                weight = math.exp(log) if log > _UNDERFLOW else 0.0
                term = weight - mass[j]
            moved = weight - lost
            raised = total + moved
            lost = (raised - total) - moved
            total = raised
            moved = term - gone
            raised = change + moved
            gone = (raised - change) - moved
            change = raised
            # Exponents that are large and cancel have roundings of their own size.
            spread += abs(term) * (ACCUMULATION + 4.0 * (abs(log_mass[j]) + abs(exponent)))
            first += weight * loss[j]
            second += weight * loss[j] * loss[j]
        means[i] = first / total
        variances[i] = max(second / total - means[i] * means[i], 0.0)
        own = cancellation * (x + 1.0)
        if from_one and shift == 0.0 and abs(change) < 0.5:
            logs[i] = math.log1p(change)
            # A relative error of the terms' weights changes M - 1 by the same relative amount, and M by the tilt times
            # as much.
            rounding[i] = 2.0 * spread + 2.0 * own * abs(change)
        else:
            logs[i] = shift + math.log(total)
            # The exponents of the terms that matter are about as large as log M itself, even if they are differences of
            # large numbers.
            rounding[i] = ACCUMULATION + 8.0 * largest + 4.0 * abs(logs[i]) + own
            if from_one:
                rounding[i] += 2.0 * own * abs(math.expm1(min(logs[i], 1.0)))
    return logs, means, variances, rounding

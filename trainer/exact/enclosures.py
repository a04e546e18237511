"""Enclosures: pairs of rational numbers between which a real number certainly lies.

Each function sums its power series in integer multiples of 2^-bits, which are called units here. Its docstring bounds
the rounding error. The returned interval always contains the true value, and becomes arbitrarily narrow with more bits
and a narrower argument.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

Interval = tuple[Fraction, Fraction]

#: The upper end of the range in which the sine is computed. It is slightly above pi.
SINE_LIMIT = Fraction(22, 7)


def exp(argument: Interval, bits: int) -> Interval:
    """Return bounds of exp on the interval. Their relative error is about 2^-bits plus the interval's width.

    Let a be the least argument, rounded down to a unit. Then exp(a) = 2^k exp(f) with f = a - k ln 2. The number f is
    known to 2 |k| units and lies in [0, 0.7]. Term j of the series is term j - 1 times f / j, rounded down twice. Its
    error is at most 0.7 / j times the error of term j - 1, plus 2 units, so it stays below 4 units. The omitted terms
    sum to less than 8 units. An error in f is magnified at most 3 times, since exp(f) < 3.

    >>> low, high = exp((Fraction(-1), Fraction(-1)), 80)
    >>> float(low) == float(high) == 0.36787944117144233
    True
    """
    low, high = argument
    place = (low.numerator << bits) // low.denominator
    width = high - Fraction(place, 1 << bits)
    if width > 1:
        return exp((low, low), bits)[0], exp((high, high), bits)[1]
    unit, log_two = 1 << bits, _ln_two(bits)[0]
    power = place // log_two
    rest = place - power * log_two
    total, term, count = unit, unit, 0
    while term:
        count += 1
        term = (term * rest >> bits) // count
        total += term
    error = 4 * count + 8 + 6 * abs(power)
    shift = Fraction(1 << max(power, 0), 1 << (bits + max(-power, 0)))
    # e^w is at most 1 + w + w^2 for w in [0, 1]
    return shift * (total - error), shift * (total + error) * (1 + width + width * width)


def ln(argument: Interval, bits: int) -> Interval:
    """Return bounds of ln on an interval of positive numbers, to about 2^-bits plus the interval's relative width.

    Write the least argument as 2^k m, with m in [2/3, 4/3] rounded down to a unit. Its logarithm is k ln 2 + 2 artanh z
    with z = (m - 1) / (m + 1) and |z| <= 1/5. Each power of z is the previous one times z^2, rounded down twice. Its
    error is at most 1/25 of the previous error, plus 2 units, so it stays below 3 units. Division by 3 or more leaves
    less than 2 units in each term of the series. An error of 1 unit in z adds at most 2 units, and the omitted terms
    add at most 1.

    >>> low, high = ln((Fraction(10), Fraction(10)), 80)
    >>> float(low) == float(high) == 2.302585092994046
    True
    """
    low, high = argument
    power = low.numerator.bit_length() - low.denominator.bit_length()
    mantissa = _quotient(low, bits - power)
    if 3 * mantissa > 4 << bits:
        power += 1
        mantissa = _quotient(low, bits - power)
    elif 3 * mantissa < 2 << bits:
        power -= 1
        mantissa = _quotient(low, bits - power)
    unit = 1 << bits
    term = ((mantissa - unit) << bits) // (mantissa + unit)
    square = term * term >> bits
    total, count = term, 1
    while abs(term) > 1:
        term = term * square >> bits
        count += 2
        total += term // count
    error = 2 * count + 6
    two = tuple(power * end for end in _ln_two(bits)[:: 1 if power >= 0 else -1])
    # The slope of ln is largest at the least argument. So ln grows over the interval by at most greatest / least - 1.
    wider = (_quotient(high, 2 * bits - power) + 1) // mantissa + 1 - unit
    return Fraction(two[0] + 2 * total - error, unit), Fraction(two[1] + 2 * total + error + wider, unit)


@lru_cache(maxsize=64)
def _ln_two(bits: int) -> tuple[int, int]:
    """Return bounds of ln 2 in units, at most 2 apart.

    The series is that for 2 artanh(1/3). Each term is rounded down by less than 2 units of the finer grid used here,
    and the omitted terms sum to less than one such unit.
    """
    finer = bits + 16
    term = (1 << finer) // 3
    total, count = term, 1
    while term:
        term //= 9
        count += 2
        total += term // count
    return 2 * (total - count) >> 16, (2 * (total + count) >> 16) + 1


def _quotient(number: Fraction, shift: int) -> int:
    """Return ``number`` times 2^shift, rounded down to an integer."""
    return (number.numerator << max(shift, 0)) // (number.denominator << max(-shift, 0))


def times(one: Interval, other: Interval) -> Interval:
    """Return the interval of all products of a number in one interval and a number in the other. Any signs are allowed.

    >>> times((Fraction(-1), Fraction(2)), (Fraction(3), Fraction(4))) == (-4, 8)
    True
    """
    ends = [a * b for a in one for b in other]
    return min(ends), max(ends)


def power(base: Interval, exponent: Fraction, bits: int) -> Interval:
    """Return bounds of base^exponent for an interval of bases >= 0 and a positive exponent.

    >>> low, high = power((Fraction(2), Fraction(2)), Fraction(5, 2), 80)
    >>> low**2 <= 32 <= high**2
    True
    """
    if exponent.denominator == 1 and exponent <= 4:
        return base[0] ** int(exponent), base[1] ** int(exponent)
    if base[1] == 0:
        return Fraction(0), Fraction(0)
    low, high = ln((base[0] or base[1], base[1]), bits)
    least, most = exp((exponent * low, exponent * high), bits)
    return least if base[0] > 0 else Fraction(0), most


def sine(argument: Interval, bits: int) -> Interval:
    """Return bounds of the sine on an interval within [0, 22/7], to about 2^-bits plus the interval's width.

    Let x be the midpoint of the interval. Term k of the series is term k - 1 times x^2 / (2k (2k + 1)), rounded down.
    Its error is at most the error of term k - 1 times 22^2 / (7^2 2k (2k + 1)), plus 2 units, so it stays below 6
    units. The first omitted term is below one unit, or is covered by its own error bound. The sine changes by no more
    than its argument, so half the interval's width covers the rest of the interval.

    >>> low, high = sine((Fraction(1, 2), Fraction(1, 2)), 80)
    >>> float(low) == float(high) == 0.479425538604203
    True
    """
    half = (argument[1] - argument[0]) / 2
    place = ((argument[0] + half).numerator << bits) // (argument[0] + half).denominator
    square = place * place >> bits
    total, term, count = place, place, 0
    while term:
        count += 1
        term = (term * square >> bits) // (2 * count * (2 * count + 1))
        total += term if count % 2 == 0 else -term
    error = half + Fraction(6 * count + 8, 1 << bits)
    middle = Fraction(total, 1 << bits)
    return middle - error, middle + error

"""Enclosures against mpmath: they contain the values, and are as narrow as they promise."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from trainer.exact import enclosures
from trainer.exact.enclosures import SINE_LIMIT, Interval, exp, ln, power, sine

BITS = (64, 100, 160, 224)


def high(number: Fraction) -> Any:
    return mpmath.mpf(number.numerator) / number.denominator


def arguments(count: int) -> list[tuple[Fraction, Fraction]]:
    """Numbers of many sizes, with the widths of intervals that begin there."""
    rng, found = np.random.default_rng(3), []
    for index in range(count):
        digits = int(rng.choice([3, 62]))
        number = Fraction(int(rng.integers(1, 1 << digits)), 1 << int(rng.choice([1, 64, 128, 200])))
        width = Fraction(int(rng.integers(1, 1 << 20)), 1 << int(rng.choice([10, 30, 100, 160])))
        found.append((number, width if index % 2 else Fraction(0)))
    return found


def contains(function: Callable[[Interval, int], Interval], exact: Callable[[Any], Any], interval: Interval) -> None:
    """At the ends and between them; a single number is known to 2^22 units."""
    for bits in BITS:
        low, most = function(interval, bits)
        for place in (interval[0], interval[1], (2 * interval[0] + interval[1]) / 3):
            assert high(low) <= exact(high(place)) <= high(most)
        if interval[0] == interval[1]:
            assert most - low <= max(1, abs(most)) * Fraction(1 << 22, 1 << bits)


@pytest.fixture(autouse=True)
def precision() -> Any:
    with mpmath.workprec(900):
        yield


def test_logarithms_are_enclosed() -> None:
    for number, width in arguments(400):
        contains(ln, mpmath.log, (number, number + width))


def test_exponentials_are_enclosed() -> None:
    for index, (number, width) in enumerate(arguments(400)):
        place = min(number, Fraction(300)) * (-1) ** (index // 2)
        contains(exp, mpmath.exp, (place, place + width))


def test_sines_are_enclosed() -> None:
    for number, width in arguments(400):
        place = number if number < 3 else SINE_LIMIT / (1 + number % 5)
        contains(sine, mpmath.sin, (place, min(place + width, SINE_LIMIT)))


@pytest.mark.one_in(4)
@pytest.mark.parametrize("exponent", [Fraction(2), Fraction(5, 2), Fraction(12.7), Fraction(128)])
def test_powers_are_enclosed(exponent: Fraction) -> None:
    for index, (number, width) in enumerate(arguments(60)):
        base = Fraction(0) if index % 5 == 1 else number % 3
        most = base + min(width, base or Fraction(1))
        contains(
            lambda interval, bits: power(interval, exponent, bits),
            lambda x: x ** high(exponent),
            (base, most),
        )


def test_ln_two_is_enclosed() -> None:
    for bits in range(60, 300):
        low, most = enclosures._ln_two(bits)
        assert low <= mpmath.log(2) * mpmath.mpf(2) ** bits <= most <= low + 2

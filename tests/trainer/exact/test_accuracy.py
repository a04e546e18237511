"""NumPy's exp, log and log1p are as accurate as the slack of exact noise and selections assumes, where they are used.

The arguments are dense, and where such functions are at their worst: at the ends, next to powers of two, next to the
points between which a function's table has its entries, and next to 1, where a logarithm vanishes. NumPy has loops for
several kinds of processors, and others for what is left of a vector; each one that this machine has is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import mpmath
import numpy as np
import pytest

_NUMPY: Any = import_module("numpy._core._multiarray_umath")
#: Sets of instructions that NumPy has loops for beyond the least, and that this machine has.
FOUND = [name for name in _NUMPY.__cpu_dispatch__ if _NUMPY.__cpu_features__.get(name, False)]
Function = Callable[[np.ndarray], np.ndarray]

#: What `trainer.exact.ziggurat` and `trainer.exact.selection` claim, absolute and relative.
CLAIM = 2.0**-45


def around(points: np.ndarray, low: float, high: float) -> np.ndarray:
    """The points and their neighbours at distances of 1 ulp and more, within the domain."""
    found = [points, np.nextafter(points, -np.inf), np.nextafter(points, np.inf)]
    for exponent in (-50, -45, -40, -30, -20):
        found += [points * (1.0 - 2.0**exponent), points * (1.0 + 2.0**exponent)]
    every = np.concatenate(found)
    return every[(every >= low) & (every <= high)]


def exponents() -> np.ndarray:
    """Of exp: from the height of the farthest tail that floating point decides, to 0."""
    rng = np.random.default_rng(5)
    multiples = -np.arange(0, 14 * 64) * (np.log(2.0) / 32.0) / 2.0
    special = np.concatenate([multiples, -(2.0 ** -np.arange(0.0, 1074.0, 7.0)), -np.arange(15.0)])
    return np.concatenate([-rng.uniform(0.0, 14.0, 8000), around(special, -14.0, 0.0), [-0.0]])


def tails() -> np.ndarray:
    """Of log: what a tail's word stands for."""
    rng = np.random.default_rng(6)
    special = np.concatenate([2.0 ** -np.arange(21.0), np.arange(1, 257) / 256.0, np.sqrt(0.5) ** np.arange(41.0)])
    dense = [rng.uniform(2.0**-20, 1.0, 4000), 2.0 ** -rng.uniform(0.0, 20.0, 4000)]
    return np.concatenate([*dense, around(special, 2.0**-20, 1.0)])


def uniforms() -> np.ndarray:
    """Of log1p at -V: V between the edges of a selection's words."""
    rng = np.random.default_rng(7)
    special = np.concatenate([2.0 ** -np.arange(25.0), 1.0 - 2.0 ** -np.arange(1.0, 25.0), np.arange(1, 257) / 256.0])
    dense = [rng.uniform(0.0, 1.0, 4000), 2.0 ** -rng.uniform(0.0, 24.0, 2000), 1.0 - 2.0 ** -rng.uniform(0, 24, 2000)]
    every = np.concatenate([*dense, around(special, 0.0, 1.0)])
    return -every[(every >= 2.0**-24) & (every <= 1.0 - 2.0**-24)]


def exponentials() -> np.ndarray:
    """Of log: an exponential variate, from the least word's to the largest one's; next to 1 its logarithm vanishes."""
    rng = np.random.default_rng(8)
    special = np.concatenate([2.0 ** np.arange(-24.0, 5.0), np.arange(1, 513) / 128.0])
    near = 1.0 + np.concatenate([2.0 ** -np.arange(1.0, 53.0), -(2.0 ** -np.arange(1.0, 54.0))])
    dense = [rng.uniform(2.0**-24, 17.0, 4000), 2.0 ** -rng.uniform(-4.0, 24.0, 4000)]
    return np.concatenate([*dense, near, around(special, 2.0**-24, 17.0)])


USES: dict[str, tuple[str, Callable[[], np.ndarray], bool]] = {
    "heights of wedges and of the tail": ("exp", exponents, False),
    "places in the tail": ("log", tails, False),
    "exponentials of a selection": ("log1p", uniforms, True),
    "Gumbel noise of a selection": ("log", exponentials, True),
}


def largest_error(function: Function, use: str) -> float:
    """The largest error over all arguments of a use: absolute, or relative to the value."""
    name, arguments, is_relative = USES[use]
    given = arguments()
    exact: Any = getattr(mpmath, name)
    with mpmath.workprec(160):
        values = [exact(mpmath.mpf(x)) for x in given.tolist()]
        largest = mpmath.mpf(0)
        for found in ways(function, given):
            for value, computed in zip(values, found.tolist(), strict=True):
                error = abs(mpmath.mpf(computed) - value)
                if is_relative and value:
                    error /= abs(value)
                largest = max(largest, error)
        return float(largest)


def ways(function: Function, given: np.ndarray) -> list[np.ndarray]:
    """A long vector; vectors too short for a register, one for each number of places left over; and a strided one."""
    apart = np.empty(3 * given.size)
    apart[::3] = given
    pieces, start = [], 0
    while start < given.size:
        size = 1 + start % 7
        pieces.append(function(given[start : start + size].copy()))
        start += size
    return [function(given), np.concatenate(pieces), function(apart[::3])]


@pytest.mark.parametrize("use", USES)
def test_numpy_is_as_accurate_as_the_slack_assumes(use: str) -> None:
    assert largest_error(getattr(np, USES[use][0]), use) < CLAIM


@pytest.mark.parametrize("use", USES)
def test_a_function_that_is_worse_is_found(use: str) -> None:
    """On a short interval alone, by no more than the claim."""
    own: Function = getattr(np, USES[use][0])
    middle = float(np.median(USES[use][1]()))

    def worse(x: np.ndarray) -> np.ndarray:
        found = own(x)
        wrong = found * (1.0 + CLAIM) if USES[use][2] else found + CLAIM
        return np.where(np.abs(x - middle) < 1e-2 * abs(middle), wrong, found)

    assert largest_error(worse, use) >= 0.99 * CLAIM


@pytest.mark.thorough
def test_every_kind_of_loop_is_as_accurate() -> None:
    """Without the instructions that this machine's processor has beyond the least that NumPy asks for, one by one."""
    for count in range(1, len(FOUND) + 1):
        environment = os.environ | {"NPY_DISABLE_CPU_FEATURES": " ".join(FOUND[-count:])}
        command = [sys.executable, "-W", "ignore", "-m", "tests.trainer.exact.test_accuracy"]
        answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        measured = json.loads(answer.stdout)
        assert measured["with"] == FOUND[:-count]
        assert all(error < CLAIM for error in measured["errors"].values()), measured


if __name__ == "__main__":
    found = {use: largest_error(getattr(np, USES[use][0]), use) for use in USES}
    sys.stdout.write(json.dumps({"with": FOUND, "errors": found}) + "\n")

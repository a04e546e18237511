"""This module represents privacy losses with countably many outcomes as lists of masses and losses.

The formulas are written so that nothing cancels, however small the losses. With masses p_i and losses l_i,

    delta(eps) = (1 - e^(eps - l_m)) A_m + e^(eps - l_m) D_m,   m the first index with l_m > eps,
    A_m = sum of p_i over i >= m,   D_m = (1 - e^(l_m - l_(m+1))) A_(m+1) + e^(l_m - l_(m+1)) D_(m+1),
    M(x) = 1 + sum of p_i (e^(x l_i) - 1 + x (e^(-l_i) - 1)),

all of whose terms are nonnegative (the second sum adds x times the sum of Q's masses less P's, which is 0).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: An allowance for the rounding of a moment; see `test_atoms`.
ALLOWANCE = 1e-12
#: The largest number of (tilts x atoms) that are in memory at once.
_BLOCK = 2_000_000


@dataclass(frozen=True, eq=False)
class Atoms:
    """The loss under P of a pair (P, Q) on countably many outcomes.

    Attributes:
        log_masses: log of P's masses.
        losses: The logs of the ratios of P's masses to Q's masses, strictly increasing.
    """

    log_masses: Array
    losses: Array

    @cached_property
    def swapped(self) -> Atoms:
        """The loss in the other direction: that of the pair (Q, P) under Q."""
        return Atoms((self.log_masses - self.losses)[::-1], -self.losses[::-1])

    @cached_property
    def _sums(self) -> tuple[Array, Array]:
        """The sums A_m and D_m, which the module's docstring defines."""
        masses = np.exp(self.log_masses)
        above: Array = np.cumsum(masses[::-1])[::-1]
        shrink = np.exp(-np.diff(self.losses)).tolist()
        gained = (-np.expm1(-np.diff(self.losses)) * above[1:]).tolist()
        profile = [0.0]
        for factor, gain in zip(reversed(shrink), reversed(gained), strict=True):
            profile.append(gain + factor * profile[-1])
        return above, np.array(profile[::-1])

    def profile(self, epsilons: Array) -> Array:
        """Return delta at every eps, relatively accurate."""
        above, profile = self._sums
        place = np.searchsorted(self.losses, epsilons, side="right")
        inside = np.minimum(place, self.losses.size - 1)
        distance = np.minimum(epsilons - self.losses[inside], 0.0)
        delta = -np.expm1(distance) * above[inside] + np.exp(distance) * profile[inside]
        profile_at: Array = np.where(place < self.losses.size, delta, 0.0)
        return profile_at

    def log_moment(self, tilts: Array) -> Array:
        """Return K(x) for every x > 0, to a relative error of 1e-12."""
        flat = np.asarray(tilts, dtype=np.float64).reshape(-1)
        rows = max(1, _BLOCK // self.losses.size)
        parts = [self._log_moment(flat[start : start + rows]) for start in range(0, flat.size, rows)]
        moments: Array = np.concatenate(parts).reshape(np.shape(tilts))
        return moments

    def _log_moment(self, tilts: Array) -> Array:
        x, losses = tilts[:, None], self.losses
        exponents = self.log_masses + x * losses
        top = exponents.max(axis=1)
        large = top + np.log(np.exp(exponents - top[:, None]).sum(axis=1))
        scaled = np.minimum(x * losses, 30.0)
        with np.errstate(over="ignore", invalid="ignore"):
            direct = np.expm1(scaled) + x * np.expm1(-losses)
            near = np.maximum(x, 1.0) * np.abs(losses) < 0.1
            terms = np.where(near, _series(x, losses), direct) * np.exp(self.log_masses)
            small = np.log1p(np.maximum(terms.sum(axis=1), 0.0))
        is_small = (large < 0.5) & ((x * losses).max(axis=1) < 30.0) & np.isfinite(small)
        moments: Array = np.where(is_small, small, large)
        return moments


def _series(x: Array, losses: Array) -> Array:
    """Return e^(x l) - 1 + x (e^-l - 1) where x |l| and |l| are below 0.1.

    It is the sum over n > 1 of (x^n + x (-1)^n) l^n / n!.

    (x^n + x (-1)^n) = x (x + 1) r_(n-1), r_1 = 1, r_m = x r_(m-1) + (-1)^(m-1).
    """
    ratio, power = np.ones_like(x), 0.5 * losses * losses
    total: Array = ratio * power
    for n in range(3, 15):
        ratio = x * ratio + (1.0 if n % 2 == 0 else -1.0)
        power = power * losses / n
        total = total + ratio * power
    return x * (x + 1.0) * total

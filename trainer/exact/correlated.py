r"""Exact noise that is correlated over the steps of a run: the release is a function of C G + s Z, rounded once.

**Setting.** C is lower triangular and Toeplitz, with coefficients c_j = n_j 2^-m for j < b, where n_j are whole numbers
and n_0 > 0. The sum of step t is a vector q_t of whole steps of a grid. Z_t are independent standard normal vectors,
and R_t = round(K Z_t) with K = 2^m s / gamma, gamma the grid's step in units of the contribution bound.

**The proof covers** the whole numbers Y_t = sum_j n_j q_(t-j) + R_t. Since sum_j n_j q_(t-j) is whole, Y_t is the
release of the continuous mechanism, (C G + s Z)_t over gamma 2^-m, rounded to a whole number. One record moves the q of
a step by no more than 1 / gamma in the l2 norm, and not at all the q of steps in which it does not take part. So every
guarantee that is proved for sums that a record moves by at most the bound, with sensitivity |c| or another one, holds
for Y.

**The release** is x_t = round((Y_t - sum_(j>=1) n_j x_(t-j)) / n_0), a function of Y_0, ..., Y_t: the solution of
C x = Y, with each step rounded to the grid of the sums. It can be formed without Y and without earlier sums. Let

    e_t = round((R_t - sum_(j>=1) n_j e_(t-j)) / n_0),    round(a) = floor(a + 1/2).

Then x_t = q_t + e_t for all t. *Proof.* If it holds for earlier steps, then

    Y_t - sum_(j>=1) n_j x_(t-j) = n_0 q_t + R_t - sum_(j>=1) n_j e_(t-j),

and since q_t is whole, round((n_0 q_t + a) / n_0) = q_t + round(a / n_0). So adding e_t to the sum releases x_t, bit by
bit, and only the last b - 1 vectors e are kept. They are the noise, and as secret as the records.

Rounding to whole steps moves each row of C x by n_0 / 2 at most, where R_t has the standard deviation K.

**Numbers are exact.** e = h * (R + r) with |r_t| <= n_0 / 2 and h the coefficients of 1 / sum n_j x^j. So as long as
|Z| stays below `_LARGEST_NORMAL`, which it exceeds with a probability below 2^-740 per number, e is at most E =
(`_LARGEST_NORMAL` K + n_0 / 2) |h|_1 in absolute value, and every other number at most `_LARGEST_NORMAL` K + n_0 / 2 +
|n|_1 E. `Recursion.spread` keeps K so small that these are below 2^31 and 2^52: all sums and products are whole numbers
that float64 holds, in any order, and e is kept in 32 bits. (n_0 / 2 is below `_LARGEST_NORMAL` K, since s is at least
|c| / 1000 and gamma at most 1/16.)

Nothing here depends on a record, and the work is the same in every step.

Source: Choquette-Choo et al. 2023 (arXiv 2306.08153) for the mechanism; the exact form is derived here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from accounting.errors import InvalidValue
from trainer.exact.loops import Floats, Kept, solve
from trainer.grid import LARGEST_SCALE
from trainer.noise import Noise, State

#: The largest |Z| for which all numbers are exact: 2^5.
_LARGEST_NORMAL = 32.0
#: The limit below which all numbers stay, and the limit for kept numbers.
_LARGEST_NUMBER, _LARGEST_KEPT = 2.0**52, 2.0**31
#: The most numbers of the noise that are kept from step to step: 512 MiB.
MOST_KEPT = 1 << 27
#: The number of coefficients of 1 / C that are added up one by one; later ones are bounded together.
_LISTED = 1 << 14


@dataclass(frozen=True, slots=True)
class Recursion:
    """The matrix C in whole numbers.

    Attributes:
        whole: The numbers n_0, n_1, ..., as many as C has bands.
        bits: The exponent m.
    """

    whole: tuple[int, ...]
    bits: int

    @property
    def memory(self) -> int:
        """The number of vectors that are kept from step to step."""
        return len(self.whole) - 1

    def spread(self, steps: int) -> float:
        """Return 2^m, or the larger factor that keeps all numbers exact; the grid of the sums is coarser by as much.

        Args:
            steps: The number T of steps.
        """
        norm = self._inverse_norm(steps)
        growth = max((1.0 + sum(self.whole) * norm) / _LARGEST_NUMBER, norm / _LARGEST_KEPT)
        return float(2.0**self.bits * max(1.0, 2.0 * _LARGEST_NORMAL * LARGEST_SCALE * growth))

    def _inverse_norm(self, steps: int) -> float:
        """Return an upper bound of |h|_1, the sum of the first ``steps`` |h_t|, up to rounding.

        n_0 h is the difference u_t - u_(t-1) of a sequence in which every number is a weighted mean of the b numbers
        before it; the weights are the decreases of n over n_0. So u stays within the range of any b consecutive
        numbers.
        """
        listed = min(steps, _LISTED + len(self.whole))
        impulse = np.zeros(listed)
        impulse[0] = 1.0
        inverse = scipy.signal.lfilter([1.0], np.array(self.whole, dtype=np.float64), impulse)
        means = np.cumsum(inverse)[-len(self.whole) :]
        return float(np.sum(np.abs(inverse)) + (steps - listed) * np.ptp(means))


class CorrelatedNoise:
    """A source of the vectors e_t of the module's docstring, one of which is added to the sum of each step.

    Args:
        noise: The source of R.
        recursion: The matrix C.
        dimension: The dimension d.

    Guarantees:
        - noise_solves_the_recursion: C applied to it gives the rounded normal numbers, up to n_0 / 2.
        - restored_noise_goes_on: with the vectors that were kept.
        - work_is_public: it follows from the sizes alone.

    Raises:
        InvalidValue: If more than `MOST_KEPT` numbers would have to be kept.
    """

    def __init__(self, noise: Noise, recursion: Recursion, dimension: int) -> None:
        check_kept(recursion, dimension)
        self._noise, self._recursion = noise, recursion
        # The weight of the oldest vector comes first. All appear twice, so that every rotation of the rows is a slice.
        self._weights = np.array(2 * recursion.whole[:0:-1], dtype=np.float64)
        self._kept: Kept = np.zeros((recursion.memory, dimension), dtype=np.int32)
        self._drawn = 0

    def rounded(self, size: int, scale: float) -> Floats:
        """Return e_t, shape (size,), in an array that belongs to the caller.

        Args:
            size: The size d.
            scale: The noise multiplier s / gamma in steps of the sums' grid, which is the same in every step.
        """
        values = self._noise.rounded(size, scale * 2.0**self._recursion.bits)
        # The vector of step t is in row t mod (b - 1), so the next vector replaces the oldest one.
        rows = self._recursion.memory
        oldest = self._drawn % max(1, rows)
        weights = self._weights[rows - oldest : 2 * rows - oldest]
        solve(values, self._kept, weights, oldest, float(self._recursion.whole[0]))
        self._drawn += 1
        return values

    def state(self) -> State:
        """Return everything that is needed to go on from here. It is as secret as the records."""
        return {"noise": self._noise.state(), "kept": self._kept.copy(), "drawn": self._drawn}

    def restore(self, state: State) -> None:
        """Go on from the point at which `state` was taken.

        Raises:
            InvalidValue: If the vectors that were kept are not there. Without them, the noise would belong to
                another C.
        """
        kept: Any = state.get("kept")
        if np.shape(kept) != self._kept.shape:
            raise InvalidValue(
                "the checkpoint lacks the noise of the last steps, on which the next noise depends",
                code="checkpoint_refused",
            )
        self._noise.restore(state["noise"])
        self._kept = np.array(kept, dtype=np.int32)
        self._drawn = int(state["drawn"])

    def close(self) -> None:
        """Draw nothing more."""
        self._noise.close()


def check_kept(recursion: Recursion, dimension: int) -> None:
    """Refuse noise if too many numbers would have to be kept from step to step.

    Raises:
        InvalidValue: If more than `MOST_KEPT` numbers would have to be kept.
    """
    numbers = recursion.memory * dimension
    if numbers > MOST_KEPT:
        raise InvalidValue(
            f"noise over {recursion.memory + 1} bands and {dimension} parameters keeps {numbers} numbers from step to "
            f"step; a run keeps at most {MOST_KEPT}: use at most {MOST_KEPT // dimension + 1} bands",
            pointer=("correlation", "bands"),
        )

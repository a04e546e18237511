r"""P_1D (Algorithm 14 of Lowy & Razaviyayn 2023) sends numbers as single bits. Many coordinates are sent at once here.

A user with an integer $\hat z \in \{0..g\}$ sends $\hat z$ ones, $g - \hat z$ zeros and b fair coins. The shuffler
permutes the bits of all users. Single bits in random order show only how many of them are ones, so anybody may see
$\sum_i \hat z_i + \mathrm{Bin}(n b, \tfrac12)$, and a run computes this number. `messages` and `shuffled` are the
protocol itself, for few users. The number of ones among their bits has the same law, and with the same coins it is the
same number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainer.arrays import Array, Namespace
from trainer.keystream import Keystream
from trainer.shuffle.coins import Bits, Coins, Counts


@dataclass(frozen=True, slots=True)
class BitProtocol:
    """The steps of users, shuffler and analyser.

    Attributes:
        bound: C: numbers lie in [-C, C].
        levels: The number g of levels.
        noise_bits: The number b of noise bits for each user and coordinate.

    >>> BitProtocol(bound=1.0, levels=4, noise_bits=20).sums(np.array([28]), users=2).tolist()
    [2.0]
    """

    bound: float
    levels: int
    noise_bits: int

    def rounded(self, xp: Namespace, rows: Array, uniforms: Array) -> Array:
        """Return integers from 0 to g with mean (rows + C) g / (2 C): the first part of the local randomiser.

        Args:
            rows: shape (B, d), float64, finite; numbers outside [-C, C] are clamped.
            uniforms: shape (B, d), multiples of 2^-53 in [0, 1).

        Returns:
            shape (B, d), int64.

        Guarantees:
            - within_one_level: each integer is within one level of the number itself, whatever the uniforms are;
              privacy rests on that alone.
            - unbiased: except for the rounding of rows to float64 and a probability below 2^-53.
        """
        scaled = (xp.clip(rows / self.bound, -1.0, 1.0) + 1.0) * (0.5 * self.levels)
        whole = xp.floor(scaled)
        up = xp.astype(uniforms < scaled - whole, xp.float64)
        return xp.astype(xp.clip(whole + up, 0.0, float(self.levels)), xp.int64)

    def messages(self, integers: Counts, coins: Coins) -> Bits:
        """Return all bits of one coordinate, a row for each user: shape (n, g + b)."""
        unary = np.arange(self.levels) < integers[:, None]
        noise = coins.tosses(integers.size * self.noise_bits).reshape(integers.size, self.noise_bits)
        return np.concatenate([unary.astype(np.uint8), noise], axis=1)

    def sums(self, ones: npt.NDArray[np.int64], users: int) -> npt.NDArray[np.float64]:
        """Return the analyser's results: unbiased estimates of the sums of all users' numbers, from the numbers of
        ones.

        The estimate is (2 C / g) (ones - n b / 2) - n C, computed in whole numbers as far as possible.
        """
        return self.bound * ((2 * ones - users * (self.noise_bits + self.levels)) / self.levels)


def shuffled(messages: Bits, stream: Keystream) -> Bits:
    """Return all users' bits in a uniformly random order, as the shuffler gives them: shape (n (g + b),)."""
    return stream.generator().permutation(messages.ravel())

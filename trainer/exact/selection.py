"""This module draws exact selections: the index of the least score after Gumbel noise, of unbounded range, is
subtracted.

The noise is G = -ln E with E = -ln(1 - V) and V uniform in [0, 1). A prefix of V's bits is known. If the known
bits leave open which score wins, further bits of the same V are read; nothing is drawn anew, so the law is exact.
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.keystream import Keystream

_WORD = 64
#: If the first word is nearer than this to either end of its range, decimal arithmetic decides.
_EDGE = 2**40
#: The most that ln E errs in float64 between the edges: 2^-32 for V, the rest for log1p and log.
_SLACK = 2.0**-30
_LOWEST, _HIGHEST = Decimal("-Infinity"), Decimal("Infinity")


class Selections:
    """Selections by report-noisy-max with exact standard Gumbel noise.

    Guarantees:
        - selections_are_exact: on the scores as computed and for ideal bits, the law is the exponential mechanism's.
          This relies on NumPy's log and log1p, which err by less than 2^-45 of their value.
        - restored_selections_go_on: after `restore` the selections are those that followed `state`.

    >>> from trainer.streams import random_streams
    >>> Selections(random_streams(1).noise).least(np.array([0.0, 1e9]), 1.0)
    0
    """

    def __init__(self, stream: Keystream) -> None:
        self._words = stream
        self._extensions = stream.jumped()

    def least(self, scores: npt.NDArray[np.float64], scale: float) -> int:
        """Return the index at which score - scale G is least, with an independent G for each score.

        Args:
            scores: shape (m,), finite.
            scale: At least 0, finite; at 0 the first least score is returned.
        """
        words = self._words.words(scores.size)
        if scale == 0.0:
            return int(np.argmin(scores))
        lower, upper = _bounds(scores, scale, words)
        contenders = np.flatnonzero(lower <= upper.min())
        if contenders.size == 1:
            return int(contenders[0])
        return self._refined(scores, scale, {int(i): int(words[i]) for i in contenders})

    def _refined(self, scores: npt.NDArray[np.float64], scale: float, known: dict[int, int]) -> int:
        bits = _WORD
        while True:
            bounds = {i: _enclosure(float(scores[i]), scale, word, bits) for i, word in known.items()}
            best = min(upper for _, upper in bounds.values())
            known = {i: word for i, word in known.items() if bounds[i][0] <= best}
            if len(known) == 1:
                return next(iter(known))
            known = {i: word << _WORD | self._extensions.word() for i, word in known.items()}
            bits += _WORD

    def state(self) -> dict[str, Any]:
        """Return everything that is needed to go on from here."""
        return {"stream": self._words.state, "extensions": self._extensions.state}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from the point at which `state` was taken."""
        self._words.state = state["stream"]
        self._extensions.state = state["extensions"]


def _bounds(
    scores: npt.NDArray[np.float64], scale: float, words: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return bounds of score + scale ln E in float64, infinite if float64 says too little.

    Between the edges V is known to 2^-40 + 2^-53 of itself and to 2^-52, and d ln E / dV = 1 / ((1 - V) E). Below 1/2
    that gives less than 2^-39, above it less than 2^-52 2^20 = 2^-32.
    """
    middle = (words >= np.uint64(_EDGE)) & (words < np.uint64(2**_WORD - _EDGE))
    uniform = np.where(middle, words.astype(np.float64) * 2.0**-_WORD, 0.5)
    with np.errstate(over="ignore", invalid="ignore"):
        noise = scale * np.log(-np.log1p(-uniform))
        value = scores + noise
        error = scale * _SLACK + 2.0**-50 * (np.abs(scores) + np.abs(noise)) + 1e-322
        lower, upper = value - error, value + error
    sure = middle & np.isfinite(lower) & np.isfinite(upper)
    return np.where(sure, lower, -np.inf), np.where(sure, upper, np.inf)


def _enclosure(score: float, scale: float, word: int, bits: int) -> tuple[Decimal, Decimal]:
    """Return bounds of score + scale ln E over all V in [word, word + 1] 2^-bits.

    A whole number of 2^-bits has at most `bits` decimals, so 1 - V is exact; `ln` is correctly rounded.
    """
    context = Context(prec=bits + 20)
    unit = Decimal(2**bits)
    lower, upper = _LOWEST, _HIGHEST
    if word:
        least = context.next_minus(context.ln(context.divide(2**bits - word, unit)).copy_negate())
        scaled = context.fma(Decimal(scale), context.next_minus(context.ln(least)), Decimal(score))
        lower = context.next_minus(scaled)
    if word + 1 < 2**bits:
        most = context.next_plus(context.ln(context.divide(2**bits - word - 1, unit)).copy_negate())
        scaled = context.fma(Decimal(scale), context.next_plus(context.ln(most)), Decimal(score))
        upper = context.next_plus(scaled)
    return lower, upper

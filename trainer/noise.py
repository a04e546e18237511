"""This module has the trainer's interface of sources of normal noise.

Anybody who can reproduce the noise can subtract it. So the noise comes from AES in counter mode under keys of the
operating system: a statistical generator (PCG, Philox, the Mersenne Twister) would void the guarantee, however good its
histograms. A key that was derived from a caller's seed is for public data alone; the service refuses one with a private
data set.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
State = dict[str, Any]


class Noise(Protocol):
    """A source of rounded normal variates (`trainer.exact.gaussian`)."""

    def rounded(self, size: int, scale: float) -> Floats:
        """Return the next ``size`` numbers round(scale Z), shape (size,): whole numbers in a new array."""
        ...

    def state(self) -> State:
        """Return everything that is needed to go on from here."""
        ...

    def restore(self, state: State) -> None:
        """Go on from the point at which `state` was taken."""
        ...

    def close(self) -> None:
        """Stop drawing."""
        ...

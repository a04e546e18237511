"""The reduction of Theorem 18 of Lowy & Razaviyayn 2023 as it is written: Algorithm 4, run after run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.transcriptions.localized_clipped_subgradient import Vector, algorithm_4


def reduction(
    w: Vector,
    gradient: Callable[[Vector, int], Vector],
    order: Sequence[int],
    noises: Sequence[Vector],
    runs: Sequence[Mapping[str, Any]],
    *,
    W: Callable[[Vector], Vector],
    penalty: float = 0.0,
) -> Vector:
    """w_M; each run has its own n, T, eta, lam, C, sigma and D, and fresh records."""
    read = drawn = 0
    for run in runs:
        records, steps = sum(run["n"]), sum(run["T"])
        w = algorithm_4(
            w,
            gradient,
            order[read : read + records],
            noises[drawn : drawn + steps],
            **run,
            W=W,
            penalty=penalty,
        )
        read, drawn = read + records, drawn + steps
    return w

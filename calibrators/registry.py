"""The algorithms by name."""

from __future__ import annotations

from accounting.errors import InvalidValue, one_of
from calibrators.algorithm import Algorithm
from calibrators.yang_nsgd.dp_nsgd import DP_NSGD
from calibrators.yang_nsgd.dp_sgd import DP_SGD

ALGORITHMS: dict[str, Algorithm] = {algorithm.name: algorithm for algorithm in (DP_SGD, DP_NSGD)}


def find_algorithm(name: str) -> Algorithm:
    """The algorithm of that name.

    Raises:
        InvalidValue: there is none; the detail lists those there are.
    """
    if name not in ALGORITHMS:
        raise InvalidValue(
            f"there is no algorithm {name!r}; there is {one_of(list(ALGORITHMS))}",
            code="unknown_algorithm",
            pointer=("algorithm",),
        )
    return ALGORITHMS[name]

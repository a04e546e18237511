"""This module has the proximal steps of penalties, which never look at data, and their gradients, which are never
clipped."""

from __future__ import annotations

from calibrators.geometry import L1Penalty, L2Penalty, Penalty
from trainer.arrays import Array, Namespace, namespace_of


def prox(penalty: Penalty | None, xp: Namespace, point: Array, step_size: float | Array) -> Array:
    """Return argmin_x |x - y|^2 / (2 step_size) + penalty(x), or the point itself if there is no penalty.

    Args:
        point: The point y, shape (d,), float64.
        step_size: The step size, positive, in parameters^2 / loss. If it has shape (d,), each coordinate has its own.

    Guarantees:
        - prox_is_the_minimiser: by its optimality condition (y - x) / step_size in the penalty's subdifferential.

    >>> import numpy as np
    >>> prox(L1Penalty(1.0), np, np.array([2.0, 0.25]), 0.5).tolist()
    [1.5, 0.0]
    """
    match penalty:
        case None:
            return point
        case L2Penalty():
            return point / (1.0 + step_size * penalty.strength)
        case L1Penalty():
            shrunk = xp.abs(point) - step_size * penalty.strength
            return xp.sign(point) * xp.maximum(shrunk, xp.zeros_like(shrunk))


def gradient(penalty: Penalty | None, point: Array) -> Array:
    """Return the penalty's gradient at the point: zeros without a penalty, and for the l1 norm the subgradient that is
    0 at 0.

    >>> import numpy as np
    >>> gradient(L2Penalty(0.5), np.array([2.0])).tolist()
    [1.0]
    """
    match penalty:
        case None:
            return namespace_of(point).zeros_like(point)
        case L2Penalty():
            return penalty.strength * point
        case L1Penalty():
            return penalty.strength * namespace_of(point).sign(point)

r"""This module has the linear minimisation oracle and the mirror steps of an l_p ball, 1 < p <= 2, that is centred at
0.

The functions look only at points and noisy gradients, which are public.
"""

from __future__ import annotations

import math

from trainer.arrays import Array, Namespace


def norm(xp: Namespace, vector: Array, order: float) -> float:
    """Return |v|_p, computed by ratios to the largest entry.

    >>> import numpy as np
    >>> norm(np, np.array([3.0, -4.0]), 2.0)
    5.0
    """
    largest = float(xp.max(xp.abs(vector)))
    if largest == 0.0:
        return 0.0
    return largest * math.pow(float(xp.sum(xp.abs(vector / largest) ** order)), 1.0 / order)


def dual_map(xp: Namespace, vector: Array, order: float) -> Array:
    r"""Return the gradient of $\tfrac12 \|v\|_a^2$: $\|v\|_a^{2-a}\, \mathrm{sign}(v) |v|^{a-1}$, and 0 at 0.

    The map of the dual exponent of a is the inverse.

    Args:
        order: The exponent a, > 1.

    >>> import numpy as np
    >>> dual_map(np, dual_map(np, np.array([1.0, -2.0]), 1.5), 3.0).round(12).tolist()
    [1.0, -2.0]
    """
    length = norm(xp, vector, order)
    if length == 0.0:
        return xp.zeros_like(vector)
    return length * xp.sign(vector) * xp.abs(vector / length) ** (order - 1.0)


def least_in_ball(xp: Namespace, gradient: Array, norm_order: float, radius: float) -> Array:
    r"""Return the v with $\|v\|_p \le D$ of least <v, g>: $-D\, \mathrm{sign}(g) |g|^{q-1} / \|g\|_q^{q-1}$; 0 if g =
    0.

    Args:
        gradient: The gradient g, shape (d,).
        norm_order: The order p, in (1, 2].

    >>> import numpy as np
    >>> least_in_ball(np, np.array([3.0, -4.0]), 1.5, 1.0).round(14).tolist()
    [-0.44485135173054, 0.79084684752095]
    """
    dual_order = norm_order / (norm_order - 1.0)
    length = norm(xp, gradient, dual_order)
    if length == 0.0:
        return xp.zeros_like(gradient)
    direction = dual_map(xp, gradient / length, dual_order)
    # The direction has norm 1 up to a rounding error, which a power with a large q magnifies.
    return -radius / norm(xp, direction, norm_order) * direction


def mirror_step(
    xp: Namespace, point: Array, gradient: Array, step_size: float, norm_order: float, radius: float
) -> Array:
    r"""Return $\arg\min_x\; \eta \langle g, x \rangle + B(x, y)$ over the ball, for the Bregman divergence B of
    $\Phi(x) = \tfrac{1}{2(p-1)} \|x\|_p^2$.

    $\Phi$ is 1-strongly convex in the norm. The unconstrained minimum is scaled down to the ball, which is the exact
    Bregman projection: the objective depends on a direction through one inner product alone.

    Args:
        point: The point y, shape (d,), in the ball.
        gradient: The gradient g, shape (d,).
        step_size: The step size eta.
        norm_order: The order p, in (1, 2].
        radius: The radius of the ball.

    >>> import numpy as np
    >>> y, g = np.array([0.5, -0.2, 0.1]), np.array([1.0, 0.5, -2.0])
    >>> mirror_step(np, y, g, 0.1, 1.5, 1.0).round(13).tolist()
    [0.4166720245914, -0.2314787403509, 0.1990504905922]
    """
    dual_order = norm_order / (norm_order - 1.0)
    moved = dual_map(xp, point, norm_order) - step_size * (norm_order - 1.0) * gradient
    free = dual_map(xp, moved, dual_order)
    length = norm(xp, free, norm_order)
    return free if length <= radius else free * (radius / length)

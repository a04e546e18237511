"""Cross-entropy of the softmax: log(sum_k exp(z_k)) - z_y for logits z and a class y.

Its derivative by z is p - e_y with p the softmax of z: of l2 norm at most sqrt(2). The second derivative is
diag(p) - p p^T, whose eigenvalues are at most 1/2: by Gershgorin each is at most 2 p_k (1 - p_k) for some k.
"""

from __future__ import annotations

import math

from trainer.arrays import Array, Namespace

#: Largest l2 norm of the derivative by the logits.
LIPSCHITZ = math.sqrt(2.0)
#: Largest eigenvalue of the second derivative by the logits.
CURVATURE = 0.5


def probabilities(xp: Namespace, logits: Array) -> Array:
    """The softmax of each row of shape (B, K); the largest logit is subtracted first, so nothing overflows.

    >>> import numpy as np
    >>> probabilities(np, np.array([[1000.0, 1000.0]])).tolist()
    [[0.5, 0.5]]
    """
    exponentials = xp.exp(logits - xp.max(logits, axis=1, keepdims=True))
    return exponentials / xp.sum(exponentials, axis=1, keepdims=True)


def residuals(xp: Namespace, logits: Array, labels: Array) -> Array:
    """The derivative of each record's loss by its logits.

    Args:
        logits: shape (B, K), float64.
        labels: shape (B,), integers in [0, K).

    Returns:
        shape (B, K), float64; rows of l2 norm at most sqrt(2), up to rounding.

    Guarantees:
        - residuals_are_the_derivative: equal to the difference quotient of the loss.

    >>> import numpy as np
    >>> residuals(np, np.array([[0.0, 0.0]]), np.array([1])).tolist()
    [[0.5, -0.5]]
    """
    classes = xp.arange(logits.shape[1], dtype=labels.dtype)
    chosen = labels[:, None] == classes[None, :]
    return probabilities(xp, logits) - xp.astype(chosen, xp.float64)

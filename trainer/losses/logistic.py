"""Logistic loss: log(1 + exp(z)) - y z for a logit z and a label y in {0, 1}.

Its derivative by z is sigmoid(z) - y, in [-1, 1]; the second derivative is at most 1/4.
"""

from __future__ import annotations

from trainer.arrays import Array, Namespace

#: Largest |derivative by the logit|.
LIPSCHITZ = 1.0
#: Largest second derivative by the logit.
CURVATURE = 0.25


def probabilities(xp: Namespace, logits: Array) -> Array:
    """sigmoid(z), elementwise; an exponential that overflows gives the correct limit 0.

    >>> import numpy as np
    >>> probabilities(np, np.array([0.0])).tolist()
    [0.5]
    """
    return 1.0 / (1.0 + xp.exp(-logits))


def residuals(xp: Namespace, logits: Array, labels: Array) -> Array:
    """The derivative of each record's loss by its logit.

    Args:
        logits: shape (B, 1), float64.
        labels: shape (B,), integers 0 or 1.

    Returns:
        shape (B, 1), float64, each in [-1, 1].

    Guarantees:
        - residuals_are_the_derivative: equal to the difference quotient of the loss.

    >>> import numpy as np
    >>> residuals(np, np.array([[0.0], [0.0]]), np.array([0, 1])).tolist()
    [[0.5], [-0.5]]
    """
    return probabilities(xp, logits) - xp.astype(labels, xp.float64)[:, None]

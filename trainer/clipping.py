"""Bounding one record's contribution: factors on gradients, given upper bounds of their norms.

A contribution stays below its bound by a margin (`margin`), which pays for all rounding: of norms, of factors, and of
the sum over a batch. Without it, half of the clipped records exceed their bound by a rounding error.
"""

from __future__ import annotations

from accounting.errors import InvalidValue, one_of
from calibrators.plan import DTYPES, Clip, GradientBound
from trainer.arrays import Array, cleared, namespace_of

#: By dtype: the relative distance by which a contribution stays below its bound. `trainer.grid` proves that it is
#: enough.
MARGINS = {"float64": 1e-5, "float32": 2.0**-7}
#: By dtype: the smallest clip threshold that is accepted, since the smallest numbers are too coarse to keep lower ones.
SMALLEST_MAX_GRAD_NORMS = {"float64": 1e-100, "float32": 1e-12}
_SMALLEST_NORMAL = 2.0**-1022


def margin(dtype: str) -> float:
    """Return the relative distance by which a contribution stays below its bound in a run of this dtype.

    >>> margin("float64")
    1e-05
    """
    if dtype not in MARGINS:
        raise InvalidValue(f"dtype must be {one_of(DTYPES)}, got {dtype!r}", pointer=("dtype",))
    return MARGINS[dtype]


def contribution_factors(bound: GradientBound, norms: Array, margin: float) -> Array:
    """Return factors that turn gradients into contributions no longer than 1: the paper's h_i over the bound.

    Args:
        bound: The rule by which gradients are bounded.
        norms: shape (B,), float64, positive: upper bounds of |g|, in gradient units.
        margin: The distance that contributions keep from 1.

    >>> import numpy as np
    >>> contribution_factors(Clip(2.0), np.array([5.0, 1.0]), 1e-5).round(4).tolist()
    [0.2, 0.5]
    """
    if isinstance(bound, Clip):
        return clip_factors(norms, bound.max_grad_norm, margin) / bound.max_grad_norm
    return normalize_factors(norms, bound.regularizer, margin)


def clip_factors(norms: Array, max_grad_norm: float, margin: float) -> Array:
    """Return factors that make gradients no longer than C: min(1, C (1 - margin) / |g|).

    Args:
        norms: shape (B,), float64, positive: upper bounds of |g|, in gradient units.
        max_grad_norm: The clip threshold C, in gradient units.
        margin: See `margin`.

    Returns:
        shape (B,), float64: the paper's h_i.

    Guarantees:
        - clipped_within_the_bound: factor * norm <= C (1 - margin), up to rounding of 1e-15.
        - short_gradients_are_kept: where norm <= C (1 - margin), the factor is 1.

    Source: Yang, Zhang, Chen & Liu 2022, eq. (2); the margin is ours.

    >>> import numpy as np
    >>> clip_factors(np.array([5.0, 1.0]), 2.0, 1e-5).round(4).tolist()
    [0.4, 1.0]
    """
    xp = namespace_of(norms)
    return _normal(xp.minimum(xp.ones_like(norms), max_grad_norm * (1.0 - margin) / norms))


def normalize_factors(norms: Array, regularizer: float, margin: float) -> Array:
    """Return factors that turn g into g / (r + |g|), with a norm of at most 1 - margin.

    The exact quotient is below 1, but it rounds to 1 or more if r is small against |g|. So the margin applies there and
    only there: min(1 / (r + |g|), (1 - margin) / |g|).

    Args:
        norms: shape (B,), float64, positive: upper bounds of |g|, in gradient units.
        regularizer: The regularizer r >= 0, in gradient units.
        margin: See `margin`.

    Returns:
        shape (B,), float64, in 1/gradient units: the paper's h_i.

    Guarantees:
        - normalized_below_one: factor * norm <= 1 - margin, up to rounding of 1e-15.
        - exact_away_from_one: where |g| / (r + |g|) <= 1 - margin, the factor is 1 / (r + |g|).

    Source: Yang, Zhang, Chen & Liu 2022, eq. (3), Algorithm 1; the margin is ours.

    >>> import numpy as np
    >>> normalize_factors(np.array([5.0, 1.0]), 0.5, 1e-5).round(4).tolist()
    [0.1818, 0.6667]
    """
    xp = namespace_of(norms)
    return _normal(xp.minimum(1.0 / (regularizer + norms), (1.0 - margin) / norms))


def _normal(factors: Array) -> Array:
    """Replace factors below the normal numbers by 0, since they are too coarse to keep a bound: such a gradient
    contributes nothing."""
    xp = namespace_of(factors)
    return cleared(xp, factors, xp.logical_not(factors >= _SMALLEST_NORMAL))

"""Bounding one record's contribution: clip factors, normalisation factors, and norms that cannot overflow.

A record's gradient is handed over as ``scale * v``: ``v`` of moderate size and ``scale`` a factor of at least 1 that
was taken out of the record. What is returned multiplies ``v``. So a gradient beyond the range of float64 is bounded
like any other, and no overflow lets one through.

Bounds are kept with a margin of 1e-5: a contribution is at most (1 - 1e-5) of what is accounted. Rounding (of the
norm, of the factor, of the sum over the batch in float64) is far below the margin. Without it, half of the clipped
records exceed their bound by a rounding error.
"""

from __future__ import annotations

from accounting.errors import InvalidValue
from trainer.arrays import Array, Namespace, namespace_of

#: How far below its bound a contribution stays, relative.
MARGIN = 1e-5
#: Gradients with ``|v|`` below this contribute zero: where float64 becomes coarse, a norm is no longer known to 1e-5.
NEGLIGIBLE_NORM = 2.0**-900
#: Clip thresholds below this are refused, for the same reason.
SMALLEST_MAX_GRAD_NORM = 1e-100


def row_norms(xp: Namespace, rows: Array) -> Array:
    """The l2 norm of each row, by scale * sqrt(sum((row / scale)^2)).

    Args:
        rows: shape (B, m), m >= 1, float64, finite.

    Returns:
        shape (B,), float64.

    Guarantees:
        - norms_do_not_overflow: finite and accurate wherever the true norm is a normal number of float64.

    >>> import numpy as np
    >>> row_norms(np, np.array([[3e200, 4e200], [0.0, 0.0]])) / 1e200
    array([5., 0.])
    """
    largest = xp.max(xp.abs(rows), axis=1)
    scale = xp.where(largest > 0.0, largest, xp.ones_like(largest))
    ratios = rows / scale[:, None]
    return scale * xp.sqrt(xp.sum(ratios * ratios, axis=1))


def clip_factors(norms: Array, scales: Array, max_grad_norm: float) -> Array:
    """Factors on ``v`` that make ``g = scale * v`` no longer than ``max_grad_norm``: scale * min(1, C(1 - 1e-5) / |g|).

    Args:
        norms: shape (B,), float64: |v|, the l2 norm of the gradient over its scale, in gradient units. Finite.
        scales: shape (B,), float64, finite, >= 1.
        max_grad_norm: C, in gradient units.

    Returns:
        shape (B,), float64. The contribution is ``factor * v``; with scale 1 the factor is the paper's h_i.

    Guarantees:
        - clipped_within_the_bound: factor * |v| <= C (1 - 1e-5), up to rounding of 1e-15, for any input allowed.
        - short_gradients_are_kept: where |g| <= C (1 - 1e-5), the contribution is g.
        - zero_stays_zero: a gradient of norm 0 contributes 0 (so does one whose |v| is below 2^-900).

    Raises:
        InvalidValue: C below 1e-100, where float64 could not keep the bound.

    Source: Yang, Zhang, Chen & Liu 2022, eq. (2); the margin is ours.

    >>> import numpy as np
    >>> clip_factors(np.array([5.0, 1.0]), np.ones(2), 2.0).round(5).tolist()
    [0.4, 1.0]
    """
    xp = namespace_of(norms)
    if not max_grad_norm >= SMALLEST_MAX_GRAD_NORM:
        raise InvalidValue(
            f"max_grad_norm must be at least {SMALLEST_MAX_GRAD_NORM:g} to be kept in floating point; got "
            f"{max_grad_norm!r}. Rescale the features",
            pointer=("gradient_bound", "max_grad_norm"),
        )
    counts = norms >= NEGLIGIBLE_NORM
    divisors = xp.where(counts, norms, xp.ones_like(norms))
    factors = xp.minimum(scales, max_grad_norm * (1.0 - MARGIN) / divisors)
    return xp.where(counts, factors, xp.zeros_like(factors))


def normalize_factors(norms: Array, scales: Array, regularizer: float) -> Array:
    """Factors on ``v`` that turn ``g = scale * v`` into g / (r + |g|), held at norm 1 - 1e-5 at most.

    The quotient is below 1 on paper, but rounds to 1 and beyond where r is small against |g|. So the margin applies
    there and only there: ``scale * min(1 / (r + |g|), (1 - 1e-5) / |g|)``.

    Args:
        norms: shape (B,), float64: |v|, the l2 norm of the gradient over its scale, in gradient units. Finite.
        scales: shape (B,), float64, finite, >= 1.
        regularizer: r >= 0, in gradient units. With r = 0 the gradient 0 stays 0.

    Returns:
        shape (B,), float64, in 1/gradient units. The contribution is ``factor * v``; with scale 1 the factor is h_i.

    Guarantees:
        - normalized_below_one: factor * |v| <= 1 - 1e-5, up to rounding of 1e-15, for any input allowed.
        - exact_away_from_one: where |g| / (r + |g|) <= 1 - 1e-5, that is the length of the contribution.
        - zero_stays_zero: as for `clip_factors`; for r = 0 too.

    Source: Yang, Zhang, Chen & Liu 2022, eq. (3), Algorithm 1; the margin is ours.

    >>> import numpy as np
    >>> normalize_factors(np.array([5.0, 1.0, 0.0]), np.ones(3), 0.5).round(4).tolist()
    [0.1818, 0.6667, 0.0]
    """
    xp = namespace_of(norms)
    counts = norms >= NEGLIGIBLE_NORM
    safe = xp.where(counts, norms, xp.ones_like(norms))
    factors = xp.minimum(1.0 / (regularizer / scales + safe), (1.0 - MARGIN) / safe)
    return xp.where(counts, factors, xp.zeros_like(factors))

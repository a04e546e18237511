"""The nearest point of the part of a domain that lies near a centre: an l2 ball about it cuts the domain.

The centre lies in the domain, so the part is not empty. Everything here is public once the point is.
"""

from __future__ import annotations

import math

from calibrators.geometry import L2Ball
from trainer.arrays import Array, Namespace
from trainer.domains import project


def project_near(domain: L2Ball | None, centre: Array, radius: float, xp: Namespace, point: Array) -> Array:
    """The point of the domain within ``radius`` of ``centre`` that is nearest to ``point``.

    Where neither ball's own projection lies in the other, the nearest point is on both spheres. They meet in a sphere
    about c + h u, with u the direction of the centre c, whose nearest point is beside the axis as the point is.

    Args:
        domain: Centred at 0; None is all of R^d.
        centre: shape (d,), float64, in the domain.
        radius: Infinite for the domain alone.
        point: shape (d,), float64.

    Guarantees:
        - localised_points_are_in_both_balls: up to rounding of 1e-15 of the domain's radius.
        - localised_points_are_nearest: up to rounding.

    >>> import numpy as np
    >>> project_near(L2Ball(1.0), np.array([0.8, 0.0]), 0.5, np, np.array([1.5, 0.9])).round(7).tolist()
    [0.86875, 0.4952509]
    """
    inside = project(domain, xp, point)
    if not math.isfinite(radius) or _length(xp, inside - centre) <= radius:
        return inside
    offset = point - centre
    distance = _length(xp, offset)
    near = offset if distance <= radius else offset * (radius / distance)
    if domain is None:
        return centre + near
    # Everything by differences from the centre, which may be far longer than the radius.
    apart = _length(xp, centre)
    room = (domain.radius - apart) * (domain.radius + apart)
    if 2.0 * float(xp.sum(centre * near)) + float(xp.sum(near * near)) <= room:
        return centre + near
    if not apart > 0.0:  # concentric balls, of one radius up to rounding
        return centre + near
    outward = centre / apart
    height = min(radius, (room - radius**2) / (2.0 * apart))
    beside = math.sqrt(max(0.0, (radius - height) * (radius + height)))
    sideways = offset - float(xp.sum(offset * outward)) * outward
    width = _length(xp, sideways)
    if not width > 0.0:  # on the axis, where the nearest point of the domain was near enough up to rounding
        return centre + height * outward
    return centre + height * outward + sideways * (beside / width)


def _length(xp: Namespace, vector: Array) -> float:
    return float(xp.sqrt(xp.sum(vector * vector)))

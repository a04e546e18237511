"""A Frank-Wolfe step in the l1 ball selects a vertex by report-noisy-max and moves towards it.

The selection is exact on the scores as computed: the noise is not truncated at any value.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer.arrays import Array, namespace_of, to_host
from trainer.exact.selection import Selections


@dataclass(frozen=True, slots=True)
class Vertex:
    """A vertex of an l1 ball.

    Attributes:
        index: The index of the only coordinate that is not 0.
        value: The value of that coordinate: plus or minus the radius.
    """

    index: int
    value: float


def noisy_vertex(gradient: Array, radius: float, selections: Selections, noise_scale: float) -> Vertex:
    """Return the vertex u with the least <u, gradient> - noise_scale G_u, where each G_u is an independent standard
    Gumbel variate.

    Args:
        gradient: shape (d,), float64.
        radius: The radius of the l1 ball.
        selections: The source of selections among 2 d scores: those of +D e_1..+D e_d, then those of -D e_1..-D e_d.
        noise_scale: The scale of the noise, in the unit of the scores.
    """
    xp, size = namespace_of(gradient), gradient.shape[0]
    scores = radius * xp.concat([gradient, -gradient])
    chosen = selections.least(to_host(scores), noise_scale)
    return Vertex(chosen, radius) if chosen < size else Vertex(chosen - size, -radius)


def towards(point: Array, vertex: Vertex, step_size: float) -> Array:
    """Return point + step_size (vertex - point) in a new array. It is in the ball whenever the point is.

    >>> import numpy as np
    >>> towards(np.array([0.5, 0.0]), Vertex(1, -2.0), 0.5).tolist()
    [0.25, -1.0]
    """
    moved = (1.0 - step_size) * point
    moved[vertex.index] = moved[vertex.index] + step_size * vertex.value
    return moved

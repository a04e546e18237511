"""Frank-Wolfe steps in the l1 ball: a vertex by report-noisy-max, and a step towards it.

The selection is exact on the scores as computed: the noise has no last value, however rare it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer.arrays import Array, namespace_of, to_host
from trainer.exact.selection import Selections


@dataclass(frozen=True, slots=True)
class Vertex:
    """A vertex of an l1 ball.

    Attributes:
        index: Its only coordinate that is not 0.
        value: That coordinate: plus or minus the radius.
    """

    index: int
    value: float


def noisy_vertex(gradient: Array, radius: float, selections: Selections, noise_scale: float) -> Vertex:
    """Return the vertex u of least <u, gradient> - noise_scale G_u, with a standard Gumbel G_u for each.

    Args:
        gradient: shape (d,), float64.
        radius: The radius of the l1 ball.
        selections: They choose among 2 d scores: of +D e_1..+D e_d, then of -D e_1..-D e_d.
        noise_scale: In units of a score.
    """
    xp, size = namespace_of(gradient), gradient.shape[0]
    scores = radius * xp.concat([gradient, -gradient])
    chosen = selections.least(to_host(scores), noise_scale)
    return Vertex(chosen, radius) if chosen < size else Vertex(chosen - size, -radius)


def towards(point: Array, vertex: Vertex, step_size: float) -> Array:
    """Return point + step_size (vertex - point), in an array of its own; in the ball wherever the point is.

    >>> import numpy as np
    >>> towards(np.array([0.5, 0.0]), Vertex(1, -2.0), 0.5).tolist()
    [0.25, -1.0]
    """
    moved = (1.0 - step_size) * point
    moved[vertex.index] = moved[vertex.index] + step_size * vertex.value
    return moved

"""Frank-Wolfe steps in the l1 ball: a vertex by report-noisy-max, and a step towards it.

Gumbel noise is float64's: its upper tail ends at 36 scales, and no claim is made about events rarer than that or about
the last bits of what is released.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer.arrays import Array, namespace_of
from trainer.noise import GumbelNoise


@dataclass(frozen=True, slots=True)
class Vertex:
    """A vertex of an l1 ball.

    Attributes:
        index: Its only coordinate that is not 0.
        value: That coordinate: plus or minus the radius.
    """

    index: int
    value: float


def noisy_vertex(gradient: Array, radius: float, noise: GumbelNoise, noise_scale: float) -> Vertex:
    """The vertex u of least <u, gradient> - noise_scale G_u, with a standard Gumbel G_u for each.

    Args:
        gradient: shape (d,), float64.
        radius: Of the l1 ball.
        noise: 2 d variates are drawn: for +D e_1..+D e_d, then for -D e_1..-D e_d.
        noise_scale: In units of a score.
    """
    xp, size = namespace_of(gradient), gradient.shape[0]
    scores = radius * xp.concat([gradient, -gradient])
    chosen = int(xp.argmin(scores - noise_scale * xp.asarray(noise.gumbel((2 * size,)))))
    return Vertex(chosen, radius) if chosen < size else Vertex(chosen - size, -radius)


def towards(point: Array, vertex: Vertex, step_size: float) -> Array:
    """point + step_size (vertex - point), in an array of its own; in the ball wherever the point is.

    >>> import numpy as np
    >>> towards(np.array([0.5, 0.0]), Vertex(1, -2.0), 0.5).tolist()
    [0.25, -1.0]
    """
    moved = (1.0 - step_size) * point
    moved[vertex.index] = moved[vertex.index] + step_size * vertex.value
    return moved

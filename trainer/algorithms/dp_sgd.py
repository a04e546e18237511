"""DP-SGD: clip each record's gradient, sum, add noise, divide by a public constant, step.

Source: Yang, Zhang, Chen & Liu 2022 (arXiv 2206.13033), eq. (2).
"""

from __future__ import annotations

from calibrators.plan import Clip, Phase
from trainer.arrays import Array
from trainer.clipping import clip_factors
from trainer.gradients import Batch


def update(point: Array, batch: Batch, phase: Phase, standard_noise: Array) -> Array:
    """x - (eta/B) (sum_i min(1, c/|g_i|) g_i + c sigma Z).

    Args:
        point: x, shape (m, K).
        batch: the g_i, at x.
        phase: c = gradient_bound.max_grad_norm, eta = step_size, B = divisor, c sigma = noise_stddev_on_sum.
        standard_noise: Z, the shape of x, independent standard normal.

    Returns:
        The next point, shape (m, K).

    Guarantees:
        - update_is_equation_2: equal to the paper's, up to the clip's margin of 1e-5.
        - one_record_moves_the_sum_by_at_most_the_bound: which is c, or 2 c where a record is replaced.
    """
    bound = phase.gradient_bound
    assert isinstance(bound, Clip)
    assert phase.step_size is not None
    clipped_sum = batch.bounded_sum(lambda norms, scales: clip_factors(norms, scales, bound.max_grad_norm))
    noisy_sum = clipped_sum + phase.noise_stddev_on_sum * standard_noise
    return point - (phase.step_size / phase.divisor) * noisy_sum

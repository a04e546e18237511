"""DP-NSGD: normalise each record's gradient, sum, add noise, divide by a public constant, step.

Source: Yang, Zhang, Chen & Liu 2022 (arXiv 2206.13033), eq. (3), Algorithm 1.
"""

from __future__ import annotations

from calibrators.plan import Normalize, Phase
from trainer.arrays import Array
from trainer.clipping import normalize_factors
from trainer.gradients import Batch


def update(point: Array, batch: Batch, phase: Phase, standard_noise: Array) -> Array:
    """x - (eta/B) (sum_i g_i/(r + |g_i|) + sigma Z).

    The noise is not scaled by r: a normalised gradient is as long as 1 for every r.

    Args:
        point: x, shape (m, K).
        batch: the g_i, at x.
        phase: r = gradient_bound.regularizer, eta = step_size, B = divisor, sigma = noise_stddev_on_sum.
        standard_noise: Z, the shape of x, independent standard normal.

    Returns:
        The next point, shape (m, K).

    Guarantees:
        - update_is_equation_3: equal to the paper's, but for contributions within 1e-5 of norm 1.
        - one_record_moves_the_sum_by_at_most_the_bound: which is 1, or 2 where a record is replaced.
    """
    bound = phase.gradient_bound
    assert isinstance(bound, Normalize)
    assert phase.step_size is not None
    normalized_sum = batch.bounded_sum(lambda norms, scales: normalize_factors(norms, scales, bound.regularizer))
    noisy_sum = normalized_sum + phase.noise_stddev_on_sum * standard_noise
    return point - (phase.step_size / phase.divisor) * noisy_sum

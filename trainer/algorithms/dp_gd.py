"""DP-GD: clip every record's gradient, average over all records, add noise, step.

Source: Wang, Ye & Xu 2017 (arXiv 1802.05251), Algorithm 4.
"""

from __future__ import annotations

from calibrators.plan import Clip
from trainer.arrays import Array
from trainer.batches import Batch
from trainer.step import Step


def update(point: Array, batch: Batch, step: Step) -> Array:
    """x - eta ((1/n) sum_i min(1, G/|g_i|) g_i + sigma Z).

    A penalty and a domain, which the paper's algorithm does not have, act on the new point: prox, then projection.

    Args:
        point: x, shape (d,).
        batch: all g_i, at x.
        step: G, n = divisor, sigma = noise_stddev_on_sum / n, eta = step_size, Z = standard_noise.

    Returns:
        The next point, shape (d,). Which of them is released is the plan's to say.

    Guarantees:
        - update_is_algorithm_4: equal to the paper's where no gradient is longer than G, up to the clip's margin.
        - one_record_moves_the_mean_by_at_most_the_bound: which is G/n, or 2 G/n where a record is replaced.
    """
    assert isinstance(step.gradient_bound, Clip)
    noisy_mean = (batch.bounded_sum(step.factors()) + step.noise_stddev_on_sum * step.standard_noise) / step.divisor
    return step.project(step.prox(point - step.step_size * noisy_mean))

r"""What one inner step of variance-reduced descent costs, of which nothing is released but the noisy direction.

The step takes $v = \tfrac{1}{b}\sum_{i \in B} a_i + \nabla F(\tilde x) + u$ with
$a_i = \nabla f(x, z_i) - \nabla f(\tilde x, z_i)$, a fresh batch B of b of the n records and fresh
$u \sim N(0, \sigma^2 I)$. Every gradient is no longer than G, so $\|a_i\| \le 2G$. Let $s = \sigma b / (2G)$, the noise
on the sum of the $a_i$ over their bound.

Fix what was released before, hence x and $\tilde x$. Write $u = u_1 + u_2$ with variances $w\sigma^2$ and
$(1 - w)\sigma^2$: v is post-processing of (i) $\tfrac{1}{b}\sum_B a_i + u_1$, whose sum moves by up to $4G$ where the
replaced record is in B, and (ii) $\nabla F(\tilde x) + u_2$, which moves by up to $2G/n$. Given the past, (i) and (ii)
are independent under either data set, so that their Renyi divergences add, although one record moves both:

$$R(\lambda) \le R_{\mathrm{wor}}(\lambda; q, \sqrt{w}\,s/2) + \frac{\lambda q^2}{2 (1-w) s^2},\qquad q = b/n,$$

for every w, hence for the best of some at every order. Without a look at the batch's secrecy v moves by at most
$4G/b + 2G/n$, which bounds the same divergence by $\lambda (2 + q)^2 / (2 s^2)$. Divergences of adaptive steps add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from accounting.conversions.rounding import CLOSED_FORM_ALLOWANCE
from accounting.errors import InvalidValue
from accounting.events import Event, RenyiDp
from calibrators.wang_erm.batch_divergence import batch_divergences

#: Orders less 1 at which a step's divergence is stated: close together where a small batch's divergence has its knee.
_TILTS = (*np.geomspace(0.2, 0.8, 4), *np.geomspace(1.0, 100.0, 40), *np.geomspace(135.0, 5e4, 20))
ORDERS = tuple(float(f"{1.0 + tilt:.6g}") for tilt in _TILTS)
#: w: the share of the variance that hides the batch.
SHARES = (0.5, 0.65, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
#: No larger divergence is stated.
_MOST = 1e6


@dataclass(frozen=True, slots=True)
class InnerSteps:
    """The event of all inner steps, from the noise multiplier s and the batch size; whatever the number of epochs is.

    Attributes:
        dataset_size: n.
        count: Of inner steps, in all epochs together.

    >>> event = InnerSteps(10_000, 32_657)(30.0, 17, 100)
    >>> event.count, event.mechanism.kind
    (32657, 'renyi_dp')
    """

    dataset_size: int
    count: int

    def __call__(self, noise_multiplier: float, iterations: int, batch_size: int) -> Event:
        orders, epsilons = step_divergence(noise_multiplier, batch_size / self.dataset_size)
        return Event(RenyiDp(orders, epsilons), count=self.count)


@lru_cache(maxsize=1024)
def step_divergence(
    noise_multiplier: float, sampling_probability: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Orders, and upper bounds of the Renyi divergence of one inner step, under replacement of one record.

    Args:
        noise_multiplier: s, noise on the sum of a batch's differences over their bound 2 G.
        sampling_probability: q = b/n, in (0, 1].

    Guarantees:
        - divergence_is_an_upper_bound; it falls as s grows, and grows with q.

    Raises:
        InvalidValue: the noise is so small that no divergence in the range of a renyi_dp event is known.
    """
    s, q = noise_multiplier, sampling_probability
    orders = np.array(ORDERS)
    with np.errstate(over="ignore"):
        best = orders * (2.0 + q) ** 2 / (2.0 * s * s)
        for share in SHARES:
            snapshot = orders * q * q / (2.0 * (1.0 - share) * s * s)
            best = np.minimum(best, batch_divergences(share**0.5 * s / 2.0, q, orders) + snapshot)
    best = best * (1.0 + 4.0 * CLOSED_FORM_ALLOWANCE)
    # Divergences grow with the order, so that a bound at one order is a bound at every smaller one.
    best = np.minimum.accumulate(best[::-1])[::-1]
    stated = best <= _MOST
    if not stated[0]:
        raise InvalidValue(
            f"no Renyi divergence above {_MOST:g} is stated; use more noise than {s:g}, or aim lower",
            pointer=("noise_multiplier",),
        )
    return tuple(orders[stated].tolist()), tuple(best[stated].tolist())

r"""This module bounds the error of coordinate-wise medians of means, and the number of groups that they need (Lemmas 52
and 57 to 59).

**Setting.** n i.i.d. records x in $\mathbb{R}^d$ with mean $\nu$, $\|\nu\| \le L$, and in each coordinate
$\mathbb{E}|x_j - \nu_j|^k \le \gamma$, $k \ge 2$. Coordinates are clamped to $[-\tau, \tau]$ with $\tau \ge 2L$; each
of m groups of b records has a mean, and $\hat\nu_j$ is the lower median of the m means in coordinate j.

**Bias.** In each coordinate $|\mathbb{E}\,\Pi(x_j) - \nu_j| \le \beta = \kappa_k \gamma (2/\tau)^{k-1}$,
$\kappa_k = (k-1)^{k-1}/k^k$; the paper has 10 in place of $\kappa_k$. *Proof.* The part that is cut off is at most
$(|x_j| - \tau)_+ \le (|x_j - \nu_j| - \tau/2)_+$, and $(y - c)_+ \le \kappa_k y^k / c^{k-1}$. $\square$

**High probability.** For $0 < \zeta < 1$ let $u = \ln(2d/\zeta)/m$ and $p = \frac12 (1 - \sqrt{1 - e^{-2u}})$. With
probability at least $1 - \zeta/2$, in all coordinates at once,

$$|\hat\nu_j - \nu_j| \le \beta + \frac{\min(\gamma^{1/k}, \tau)}{\sqrt{b p}}.$$

*Proof.* Clamping brings two numbers no farther apart, so a clamped coordinate has a variance of at most $\gamma^{2/k}$,
and a group's mean is farther than the last term from its own mean with probability at most p (Chebyshev). At least half
of the groups are that far off with probability at most $(4p(1-p))^{m/2} = e^{-um} = \zeta/(2d)$ (Chernoff). Otherwise
fewer than half are above that interval and fewer than half are below it, hence the lower median is in it. $\square$

With $p = 0.01$ and Hoeffding's inequality in place of Chernoff's, $m \ge \ln(2d/\zeta)/0.4802$ groups suffice, and the
last term is $10 \gamma^{1/k}/\sqrt b$, as in the paper, which takes $m = \lceil 20 \ln(4d/\zeta) \rceil$. At the former
m, the proof above has a p of about 0.11, and 3 in place of 10; then $1/\sqrt{b p}$ is within 1% of its minimum at a
given number of records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: The exponent of Hoeffding's inequality per group: twice the square of 0.99 - 1/2.
_HOEFFDING = 0.4802


def groups_needed(dimension: int, failure_probability: float) -> int:
    """Return a number m of groups that suffices: if each of m groups is good with probability 99%, more than half of
    them are good with high probability.

    >>> groups_needed(5, 1e-3)
    20
    """
    return math.ceil(_log_tail(dimension, failure_probability) / _HOEFFDING)


def groups_printed(dimension: int, failure_probability: float) -> int:
    """Return the paper's number m of groups.

    >>> groups_printed(5, 1e-3)
    199
    """
    return math.ceil(20.0 * (_log_tail(dimension, failure_probability) + math.log(2.0)))


def noise_stddev_on_medians(
    noise_multiplier: float, truncation_radius: float, dimension: int, group_size: int
) -> float:
    """Return the standard deviation of the noise on a group's mean: the multiplier times sqrt(d) tau / b, where sqrt(d)
    tau bounds the norm of a clamped record.

    >>> round(noise_stddev_on_medians(2.0, 4.0, 5, 20) ** 2, 12)
    0.8
    """
    return noise_multiplier * truncation_radius * math.sqrt(dimension) / group_size


@dataclass(frozen=True, slots=True)
class MedianOfMeans:
    """The errors of medians of means, before any noise is added to the release.

    Attributes:
        truncation_radius: The truncation radius tau, in the records' unit.
        groups: The number m of groups.
        group_size: The number b of records in a group.
        dimension: The dimension d.
        moment_order: The moment order k, at least 2.
        coordinate_moment: The bound gamma^(1/k) on the k-th central moment, in the records' unit.
        failure_probability: The failure probability zeta. One half of it is for these medians, the other half for the
            noise added to them.

    >>> medians = MedianOfMeans(4.0, 20, 500, 5, 3.0, 0.5, 1e-3)
    >>> round(medians.bias, 10), round(medians.printed_bias, 10), round(medians.bad_group_probability, 4)
    (0.0046296296, 0.3125, 0.1121)
    """

    truncation_radius: float
    groups: int
    group_size: int
    dimension: int
    moment_order: float
    coordinate_moment: float
    failure_probability: float

    @property
    def bias(self) -> float:
        """The bound beta on the bias of each coordinate."""
        k = self.moment_order
        return self._bias((k - 1.0) * math.log1p(-1.0 / k) - math.log(k))

    @property
    def printed_bias(self) -> float:
        """The paper's bound on the bias, 10 gamma (2 / tau)^(k-1)."""
        return self._bias(math.log(10.0))

    @property
    def bad_group_probability(self) -> float:
        """The number p: if each group is bad with probability at most p, the median is bad with probability at most
        zeta / (2 d).
        """
        tail = -2.0 * _log_tail(self.dimension, self.failure_probability) / self.groups
        # This computes (1 - sqrt(1 - e)) / 2 without cancellation, with e = exp(tail).
        return 0.5 * math.exp(tail) / (1.0 + math.sqrt(-math.expm1(tail)))

    def deviation(self, noise_variance: float = 0.0) -> float:
        """Return a bound on each median's deviation, not counting bias, that holds with probability at least 1 - zeta /
        2.

        Args:
            noise_variance: The variance of independent noise with mean 0 on every group's mean.
        """
        spread = min(self.coordinate_moment, self.truncation_radius)
        p = self.bad_group_probability
        return math.sqrt((spread**2 / self.group_size + noise_variance) / p) if p > 0.0 else math.inf

    def error(self, noise_variance: float = 0.0) -> float:
        """Return the bound sqrt(d) (beta + deviation) on the l2 error, which holds with probability at least 1 - zeta /
        2.
        """
        return math.sqrt(self.dimension) * (self.bias + self.deviation(noise_variance))

    @property
    def printed_error(self) -> float | None:
        """The printed bound 10 sqrt(d) (gamma^(1/k) / sqrt(b) + gamma (2/tau)^(k-1)) on the error; None with too few
        groups.
        """
        if self.groups < groups_needed(self.dimension, self.failure_probability):
            return None
        deviation = 10.0 * self.coordinate_moment / math.sqrt(self.group_size)
        return math.sqrt(self.dimension) * (deviation + self.printed_bias)

    def _bias(self, log_constant: float) -> float:
        """Return ``constant`` g (2 g / tau)^(k-1), computed by logarithms, because gamma = g^k overflows for large
        k.
        """
        k, g = self.moment_order, self.coordinate_moment
        exponent = log_constant + (k - 1.0) * math.log(2.0 * g / self.truncation_radius)
        return g * math.exp(exponent) if exponent < 700.0 else math.inf


def balanced_radius(
    dimension: int, moment_order: float, coordinate_moment: float, noise_per_radius: float, mean_bound: float
) -> float:
    r"""Return the tau that minimises the sum of bias and noise, or 2 L if that is larger.

    The minimum of $\sqrt d\,\kappa_k \gamma (2/\tau)^{k-1} + N \tau$ is at
    $\tau = 2 \gamma^{1/k} \left((k-1) \kappa_k \sqrt d / (2 N)\right)^{1/k}$.

    Args:
        noise_per_radius: The number N: the length of the noise that is added to the medians, per unit of tau.
        mean_bound: The bound L on the mean.

    >>> tau = balanced_radius(5, 3.0, 0.5, 0.01, 0.0)
    >>> cost = lambda t: math.sqrt(5) * 4 / 27 * 0.125 * (2 / t) ** 2 + 0.01 * t
    >>> cost(tau) < min(cost(0.99 * tau), cost(1.01 * tau))
    True
    """
    k = moment_order
    log_kappa = (k - 1.0) * math.log1p(-1.0 / k) - math.log(k)
    log_ratio = math.log(k - 1.0) + log_kappa + math.log(math.sqrt(dimension) / (2.0 * noise_per_radius))
    return max(2.0 * mean_bound, 2.0 * coordinate_moment * math.exp(log_ratio / k))


def normal_length(dimension: int, failure_probability: float) -> float:
    """Return sqrt(d) + sqrt(2 ln(2 / zeta)), a length that a standard normal vector exceeds with probability at most
    zeta / 2.

    >>> round(normal_length(4, 2.0 * math.exp(-2.0)), 12)
    4.0
    """
    return math.sqrt(dimension) + math.sqrt(2.0 * (math.log(2.0) - math.log(failure_probability)))


def medians_rate(dimension: int, moment_order: float, coordinate_moment: float, radius: float, records: int) -> float:
    """Return the rate of the bias by Lemma 52, without logarithms: sqrt(d) (gamma^(1/k)/sqrt(n) + gamma (2/tau)^(k-1)).

    >>> round(medians_rate(4, 2.0, 1.0, 10.0, 100), 12)
    0.6
    """
    g = coordinate_moment
    exponent = (moment_order - 1.0) * math.log(2.0 * g / radius)
    return (
        math.sqrt(dimension) * g * (1.0 / math.sqrt(records) + (math.exp(exponent) if exponent < 700.0 else math.inf))
    )


def _log_tail(dimension: int, failure_probability: float) -> float:
    return math.log(2.0 * dimension) - math.log(failure_probability)

r"""This module describes MeanOracle1 (Algorithm 1), the clipped and noised mean of a batch. Lemma 6 bounds its bias and
variance.

$$\tilde\nu = \frac1s \sum_{i=1}^s \Pi_C(z_i) + N(0, \sigma^2 I_d), \qquad \sigma = z C / s,$$

where $\Pi_C$ clips a vector to length $C$. With i.i.d. $z_i$ of mean $\nu$ and $\mathbb{E}\|z\|^k \le r_k^k$,

$$\|\mathbb{E}\tilde\nu - \nu\| \le B = \frac{r_k^k}{(k-1) C^{k-1}}, \qquad
  \mathbb{E}\|\tilde\nu - \mathbb{E}\tilde\nu\|^2 \le \Sigma^2 = d \sigma^2 + r_2^2 / s.$$

*Proof.* $\|z - \Pi_C(z)\| = (\|z\| - C)_+$, whose mean is $\int_C^\infty P(\|z\| > t)\,dt \le \int_C^\infty r_k^k
t^{-k}\,dt$. Clipping does not lengthen a vector, so the variance of a clipped record is at most $\min(r_2^2, C^2)$.
*Sharper:* $(x - C)_+ \le \kappa_k x^k / C^{k-1}$ with $\kappa_k = (k-1)^{k-1}/k^k$ (with equality at $x = C k / (k -
1)$), hence $B \le \kappa_k r_k^k / C^{k-1}$. A two-point distribution attains this bound. $\square$

**Batches that are drawn (add or remove one record).** Each of the n records independently draws one of R batches. The
sum of a batch is divided by $s = \lfloor n/R \rfloor$. Given the records that earlier steps have read, $R_t \sim
\mathrm{Bin}(n, f)$ records are left before step $t = 0..R-1$, $f = (R - t)/R$, each of which is in batch t with
probability $1/(R - t)$. So the oracle's mean is $(1 + \alpha_t)$ times that of a clipped record, with
$\mathbb{E}\alpha_t^2 = \big(\frac{n}{R s} - 1\big)^2 + \frac{n (1 - f)}{f R^2 s^2}$. Hence its root mean square bias is
at most $B + \min(r_2, C) \sqrt{\mathbb{E} \alpha_t^2}$ (Minkowski), and the records' part of $\Sigma^2$ is $\frac{n}{R
s} \min(r_2, C)^2 / s$.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrators.lowy_razaviyayn.moments import Moments


@dataclass(frozen=True, slots=True)
class MeanOracle:
    """One call of the oracle on a batch of fixed size, with bounds on the error of its answer.

    Attributes:
        max_grad_norm: The clip threshold C, in gradient units.
        batch_size: The batch size s, by which the sum is divided.
        noise_multiplier: The noise multiplier z, which is the noise on the sum divided by C.
        dimension: The dimension d.
        moments: The moments of the records' gradients.

    >>> oracle = MeanOracle(3.0, 100, 2.0, 10, Moments(order=3.0, bound=2.0, bound_2=1.5))
    >>> round(oracle.noise_variance, 10), round(oracle.bias, 10), round(oracle.sharp_bias, 10)
    (0.0036, 0.4444444444, 0.1316872428)
    >>> round(oracle.variance, 10)
    0.0585
    """

    max_grad_norm: float
    batch_size: int
    noise_multiplier: float
    dimension: int
    moments: Moments

    @property
    def noise_variance(self) -> float:
        """The variance sigma^2 of the noise in each coordinate of the mean."""
        return (self.noise_multiplier * self.max_grad_norm / self.batch_size) ** 2

    @property
    def bias(self) -> float:
        """The bound B of Lemma 6 on the bias, in gradient units. It is at most r_k, which always bounds the bias of a
        clipped mean.
        """
        return self._bias(-math.log(self.moments.order - 1.0))

    @property
    def sharp_bias(self) -> float:
        """The bound on the bias with the smallest constant, kappa_k."""
        k = self.moments.order
        return self._bias((k - 1.0) * math.log1p(-1.0 / k) - math.log(k))

    @property
    def variance(self) -> float:
        """The bound Sigma^2 = d sigma^2 + r_2^2 / s of Lemma 6 on the variance, in squared gradient units."""
        return self.dimension * self.noise_variance + self.moments.second**2 / self.batch_size

    @property
    def sharp_variance(self) -> float:
        """The bound on the variance with min(r_2, C) in place of r_2, because no clipped record is longer than C."""
        return self.dimension * self.noise_variance + self.clipped_second_moment / self.batch_size

    @property
    def clipped_second_moment(self) -> float:
        """The bound min(r_2, C)^2 on E[|Pi_C(z)|^2]."""
        return min(self.moments.second, self.max_grad_norm) ** 2

    def _bias(self, log_constant: float) -> float:
        """Return ``constant`` r_k (r_k / C)^(k - 1), computed by logarithms, because r_k^k overflows for large k."""
        k, r = self.moments.order, self.moments.bound
        exponent = log_constant + (k - 1.0) * math.log(r / self.max_grad_norm)
        return r * math.exp(min(exponent, 0.0))


Vector = npt.NDArray[np.float64]


def constant_errors(oracle: MeanOracle, rounds: int) -> tuple[Vector, float]:
    """Return the sharp bounds on the bias of each step and on the variance, for batches of fixed size."""
    return np.full(rounds, oracle.sharp_bias), oracle.sharp_variance


def errors_of_drawn_batches(oracle: MeanOracle, rounds: int, records: int) -> tuple[Vector, float]:
    """Return bounds on bias and variance if each record draws its batch and sums are divided by the oracle's s.

    Returns:
        A bound on the root mean square bias of each step, shape (rounds,), in gradient units; and a bound on the
        variance of every step, in squared gradient units.
    """
    size = oracle.batch_size
    left = np.arange(rounds, 0, -1) / rounds
    load = records / (rounds * size)
    deviation = np.sqrt((load - 1.0) ** 2 + load * (1.0 - left) / (left * rounds * size))
    bias: Vector = oracle.sharp_bias + math.sqrt(oracle.clipped_second_moment) * deviation
    variance = oracle.dimension * oracle.noise_variance + load * oracle.clipped_second_moment / size
    return bias, variance

r"""The utility of a noisy average of noiseless steps, with constants.

With probability at least $1 - \gamma$ over indices and noise, $R_S(\bar w + b) - R_S(w_*)$ is at most the sum of

- the optimisation error of Theorem 12's proof without noise on gradients ($\gamma/3$), which needs no self-bounding;
- the noise's part ($\gamma/4$): $\|\partial\ell\| \le G$ at $\bar w$ and Hoelder smoothness give
  $G\beta + L\beta^{1+\alpha}$ for $\|b\| \le \beta$, and $\|b\|^2/\sigma^2$ is chi-squared, hence
  $\beta = \sigma\sqrt{d + 2\sqrt{dx} + 2x}$, $x = \ln(4/\gamma)$ (Laurent & Massart 2000, Lemma 1), which is below the
  paper's $\sigma\sqrt{d}(1 + (8x/d)^{1/4})$ and needs no $\gamma > 4e^{-d/8}$.

In expectation the noise's part is at most $G\sigma\sqrt{d} + L(\sigma\sqrt{d})^{1+\alpha}$, by Jensen's inequality.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from calibrators.provenance import LOSS, Provenance, ProvenanceKind
from calibrators.wang_nonsmooth.holder import PAPER, HolderProblem
from calibrators.wang_nonsmooth.optimisation_error import OptimisationError
from calibrators.wang_nonsmooth.output_rates import OutputRate
from calibrators.wang_nonsmooth.utility import is_vacuous

HOLDS = (
    "losses are convex, never negative, and alpha-Hoelder with constant L on all of R^d",
    "no record is scaled down, but for the trainer's margin",
)
_EXPECTED = (
    r"\mathbb{E}[R_S(\bar w + b) - R_S(w_*)] \le \tfrac{\|w_*\|^2}{2T\eta} + \tfrac{\eta G^2}{2} + G\sigma\sqrt{d}"
    r" + L(\sigma\sqrt{d})^{1+\alpha}"
)
_LIKELY = (
    r"R_S(\bar w + b) - R_S(w_*) \le A_R \sqrt{\tfrac{2\ln(9/\gamma)}{T}} + A_* \sqrt{\tfrac{\ln(9/\gamma)}{2T}}"
    r" + \tfrac{\|w_*\|^2}{2T\eta} + \tfrac{\eta G^2}{2} + G\beta + L\beta^{1+\alpha},\;"
    r" \beta = \sigma\sqrt{d + 2\sqrt{dx} + 2x},\; x = \ln(4/\gamma)"
)


@dataclass(frozen=True, slots=True)
class OutputNoise:
    """Noise on the average.

    Attributes:
        stddev: The standard deviation sigma, per coordinate, in parameters.
        dimension: The dimension d.
        gradient_norm: The bound G on gradients at the average.
        exponent: The exponent alpha.
        constant: The constant L.
    """

    stddev: float
    dimension: int
    gradient_norm: float
    exponent: float
    constant: float

    def length(self, failure_probability: float) -> float:
        """Return beta: the noise is longer than that with probability at most gamma/4."""
        d, x = self.dimension, math.log(4.0) - math.log(failure_probability)
        return self.stddev * math.sqrt(d + 2.0 * math.sqrt(d * x) + 2.0 * x)

    @property
    def mean_length(self) -> float:
        """The number sigma sqrt(d), which is at least the expected length."""
        return self.stddev * math.sqrt(self.dimension)

    def cost(self, length: float) -> float:
        """Return G beta + L beta^(1 + alpha), in loss units.

        >>> round(OutputNoise(0.1, 50, 3.0, 0.5, 1.5).cost(1.354150687), 8)
        6.42614877
        """
        return self.gradient_norm * length + self.constant * math.pow(length, 1.0 + self.exponent)


@dataclass(frozen=True, slots=True)
class OutputRun:
    """The numbers on which the utility depends.

    Attributes:
        problem: The constants.
        noise: The noise on the average.
        iterations: The number T of steps.
        step_size: The step size eta.
        radius: The radius of all points.
        own_step_size: Whether the caller has chosen eta.
        rate: The rate of the theorem; None if a number that it needs is missing.
    """

    problem: HolderProblem
    noise: OutputNoise | None
    iterations: int
    step_size: float
    radius: float
    own_step_size: bool
    rate: OutputRate | None


def utility_of(run: OutputRun) -> list[Provenance]:
    """Return the bounds and the rate, as far as the given constants allow."""
    found = [
        Provenance("gradient_evaluations", float(run.iterations), "T", f"{PAPER}, Algorithm 1", ProvenanceKind.EXACT)
    ]
    problem = run.problem
    if run.noise is not None and problem.distance:
        found += _bounds(run, run.noise, problem.distance)
    if run.rate is not None:
        found.append(_rate(run, run.rate))
    return found


def _bounds(run: OutputRun, noise: OutputNoise, distance: float) -> list[Provenance]:
    problem = run.problem
    steps = OptimisationError(noise.gradient_norm, distance, noise.dimension, run.iterations, 0.0)
    expected = steps.expected(run.step_size) + noise.cost(noise.mean_length)
    found = [
        Provenance(
            "expected_excess_risk_bound",
            expected,
            _EXPECTED,
            f"{PAPER}, proofs of Theorems 10 and 12 (derived)",
            ProvenanceKind.DERIVED,
            (*HOLDS, "of the empirical risk, in expectation over indices and noise"),
            vacuous=is_vacuous(problem, expected),
            units=LOSS,
        )
    ]
    if problem.failure_probability is None or problem.loss_at_zero is None:
        return found
    optimised = steps.with_probability(
        run.step_size,
        problem.failure_probability,
        radius=run.radius,
        largest_loss=problem.loss_at_zero + noise.gradient_norm * run.radius,
        largest_loss_at_minimiser=_largest_loss_at(distance, run, problem.loss_at_zero),
        sampled=True,
    )
    value = None if optimised is None else optimised + noise.cost(noise.length(problem.failure_probability))
    found.append(
        Provenance(
            "excess_risk_bound",
            value,
            _LIKELY,
            f"{PAPER}, proofs of Theorems 10 and 12 (derived)",
            ProvenanceKind.DERIVED,
            (*HOLDS, "of the empirical risk, with probability 1 - gamma", "gamma > 18 exp(-T d / 8)"),
            vacuous=None if value is None else is_vacuous(problem, value),
            units=LOSS,
        )
    )
    return found


def _largest_loss_at(distance: float, run: OutputRun, loss_at_zero: float) -> float:
    """Return A_* by the Hoelder constants, or by G if w* is in the ball in which G holds and that is less."""
    problem, noise = run.problem, run.noise
    assert noise is not None, "asked where there are bounds"
    growth = math.inf if problem.radius is None else noise.gradient_norm * distance
    if problem.gradient_at_zero is not None:
        power = noise.constant * math.pow(distance, 1.0 + noise.exponent)
        growth = min(growth, problem.gradient_at_zero * distance + power)
    return loss_at_zero + growth


def _rate(run: OutputRun, rate: OutputRate) -> Provenance:
    problem, holds = run.problem, [*HOLDS, f"constant c = {run.problem.order_constant:g} (order_constant)"]
    value = None if problem.distance is None else rate.excess_risk(problem.distance, problem.order_constant)
    holds += ["|w*| >= 1 in the paper's units", f"T of order {rate.iterations:.4g}; it is {run.iterations:g}"]
    if not rate.holds:
        value = None
        holds.append("gamma > 4 max(exp(-d / 8), delta), which fails")
    if run.own_step_size:
        value = None
        holds.append("the theorem's own step size, and the request has another")
    return Provenance(
        "excess_risk_rate",
        value,
        rate.excess_risk_formula,
        rate.source,
        ProvenanceKind.ORDER,
        tuple(holds),
        vacuous=None if value is None else is_vacuous(problem, value),
        units=LOSS,
    )

r"""This module bounds the utility of an average of noiseless steps with added noise, with explicit constants.

With probability at least $1 - \gamma$ over indices and noise, $R_S(\bar w + b) - R_S(w_*)$ is at most the sum of

- the optimisation error from the proof of Theorem 12 without noise on gradients ($\gamma/3$). It does not need the
  self-bounding property;
- the noise's part ($\gamma/4$): $\|\partial\ell\| \le G$ at $\bar w$ and Hoelder smoothness give
  $G\beta + L\beta^{1+\alpha}$ for $\|b\| \le \beta$, and $\|b\|^2/\sigma^2$ is chi-squared, hence
  $\beta = \sigma\sqrt{d + 2\sqrt{dx} + 2x}$, $x = \ln(4/\gamma)$ (Laurent & Massart 2000, Lemma 1), which is below the
  paper's $\sigma\sqrt{d}(1 + (8x/d)^{1/4})$ and needs no $\gamma > 4e^{-d/8}$.

In expectation, the contribution of the noise is at most $G\sigma\sqrt{d} + L(\sigma\sqrt{d})^{1+\alpha}$, by Jensen's
inequality.
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
    "no record is scaled down, except by the trainer's margin",
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
    """The noise on the average, and the constants of the losses that determine its effect.

    Attributes:
        stddev: The standard deviation sigma per coordinate, in parameter units.
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
        """Return the length beta that the noise exceeds with probability at most gamma/4."""
        d, x = self.dimension, math.log(4.0) - math.log(failure_probability)
        return self.stddev * math.sqrt(d + 2.0 * math.sqrt(d * x) + 2.0 * x)

    @property
    def mean_length(self) -> float:
        """The number sigma sqrt(d), an upper bound on the expected length of the noise."""
        return self.stddev * math.sqrt(self.dimension)

    def cost(self, length: float) -> float:
        """Return G beta + L beta^(1 + alpha), a bound on the effect of noise of length beta on the loss, in loss units.

        >>> round(OutputNoise(0.1, 50, 3.0, 0.5, 1.5).cost(1.354150687), 8)
        6.42614877
        """
        return self.gradient_norm * length + self.constant * math.pow(length, 1.0 + self.exponent)


@dataclass(frozen=True, slots=True)
class OutputRun:
    """The numbers that determine the utility of a run.

    Attributes:
        problem: The constants.
        noise: The noise on the average.
        iterations: The number T of steps.
        step_size: The step size eta.
        radius: The radius of all points.
        own_step_size: Whether the caller chose eta.
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
            (*HOLDS, "the bound is on the empirical risk, in expectation over indices and noise"),
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
            (*HOLDS, "the bound is on the empirical risk, with probability 1 - gamma", "gamma > 18 exp(-T d / 8)"),
            vacuous=None if value is None else is_vacuous(problem, value),
            units=LOSS,
        )
    )
    return found


def _largest_loss_at(distance: float, run: OutputRun, loss_at_zero: float) -> float:
    """Return the bound A_* on every loss at w*. It uses the Hoelder constants, or G if w* is in the ball in which G
    holds, whichever gives the smaller bound.
    """
    problem, noise = run.problem, run.noise
    assert noise is not None, "called only if there are bounds"
    growth = math.inf if problem.radius is None else noise.gradient_norm * distance
    if problem.gradient_at_zero is not None:
        power = noise.constant * math.pow(distance, 1.0 + noise.exponent)
        growth = min(growth, problem.gradient_at_zero * distance + power)
    return loss_at_zero + growth


def _rate(run: OutputRun, rate: OutputRate) -> Provenance:
    problem, holds = run.problem, [*HOLDS, f"constant c = {run.problem.order_constant:g} (order_constant)"]
    value = None if problem.distance is None else rate.excess_risk(problem.distance, problem.order_constant)
    holds += [
        "|w*| >= 1 in the paper's units",
        (f"T is of order {rate.iterations:.4g}; in this plan T is {run.iterations:g}"),
    ]
    if not rate.holds:
        value = None
        holds.append("gamma > 4 max(exp(-d / 8), delta); this does not hold here")
    if run.own_step_size:
        value = None
        holds.append("the step size is the theorem's; this does not hold here, because the request gives another")
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

"""This module computes the step size, the optimisation error and the rate of one run of noisy-gradient SGD, each with
its provenance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from accounting.errors import InvalidValue
from accounting.events import FullBatch, Poisson
from accounting.targets import ApproximateDpTarget
from calibrators.plan import Clip, Phase
from calibrators.provenance import LOSS, STEP, Provenance, ProvenanceKind
from calibrators.spec import OpenDelta, OpenEpsilon, Spec
from calibrators.wang_nonsmooth import optimisation_error
from calibrators.wang_nonsmooth.feasible_noise import Theorem11
from calibrators.wang_nonsmooth.holder import HolderProblem
from calibrators.wang_nonsmooth.optimisation_error import OptimisationError, Rate, paper_iterations

#: If the share beta of epsilon in Theorem 11 is below this number, the noise that Theorem 12 assumes is much smaller
#: than the noise that is needed.
_ATTAINED_BETA = 0.1

HOLDS = (
    "losses are convex, never negative, and alpha-Hoelder with constant L on all of R^d",
    "no gradient is clipped, except by the trainer's margin",
)


@dataclass(frozen=True, slots=True)
class Run:
    """The numbers that determine the utility of a run.

    Attributes:
        spec: The spec with its sizes filled in.
        problem: The constants.
        phase: The steps, with their noise.
        achieved: The certified upper bound on the cost, in the number that the target limits.
    """

    spec: Spec
    problem: HolderProblem
    phase: Phase
    achieved: float

    @property
    def is_clipped(self) -> bool:
        """Return whether clipping at the gradient bound may shorten gradients."""
        bound, longest = self.phase.gradient_bound, self.problem.gradient_norm
        return isinstance(bound, Clip) and longest is not None and bound.max_grad_norm < longest * (1.0 - 1e-12)

    @property
    def rate(self) -> Rate | None:
        """The numbers that Theorem 12 needs; None unless all are known and the target is (epsilon, delta)."""
        pair, problem, dimension = self._epsilon_delta(), self.problem, self.spec.dimension
        if pair is None or problem.failure_probability is None or dimension is None:
            return None
        return Rate(self.spec.dataset_size, dimension, *pair, problem.failure_probability)

    @property
    def error(self) -> OptimisationError | None:
        """The optimisation error; None if a number that it needs is missing, or if gradients are clipped."""
        problem, dimension = self.problem, self.spec.dimension
        longest, distance = problem.gradient_norm, problem.distance
        if longest is None or not distance or dimension is None or self.is_clipped:
            return None
        sampling = self.phase.event.sampling
        variance = (1.0 - sampling.sampling_probability) / self.phase.divisor if isinstance(sampling, Poisson) else 0.0
        return OptimisationError(
            longest, distance, dimension, self.phase.steps, self.phase.noise_stddev_on_mean, variance
        )

    @property
    def beta(self) -> float | None:
        """The beta of the feasible split with the least noise in Theorem 11; None if no split is feasible."""
        pair = self._epsilon_delta()
        if pair is None:
            return None
        theorem = Theorem11(self.spec.dataset_size, self.phase.steps, *pair, self.phase.divisor)
        best = theorem.least_noise()
        return None if best is None else best.beta

    def _epsilon_delta(self) -> tuple[float, float] | None:
        match self.spec.target:
            case ApproximateDpTarget(epsilon=epsilon, delta=delta):
                pair = epsilon, delta
            case OpenEpsilon(delta=delta):
                pair = self.achieved, delta
            case OpenDelta(epsilon=epsilon):
                pair = epsilon, self.achieved
            case _:
                return None
        return pair if 0.0 < pair[0] < math.inf and 0.0 < pair[1] < 1.0 else None


@dataclass(frozen=True, slots=True)
class Utility:
    """The parts of a calibration other than its noise.

    Attributes:
        step_size: The step size of the plan; None if the plan cannot run.
    """

    step_size: float | None
    hyperparameters: tuple[Provenance, ...]
    utility: tuple[Provenance, ...]
    warnings: tuple[str, ...]


def utility_of(run: Run) -> Utility:
    """Return step sizes and bounds, as far as the given constants allow.

    Raises:
        InvalidValue: If the plan uses the step size of Theorem 12 and it is not below min(1, 1/L).
    """
    steps, size = run.phase.steps, run.phase.divisor
    utility = [
        Provenance(
            "gradient_evaluations", float(steps * size), "T b", optimisation_error.STEPS_SOURCE, ProvenanceKind.EXACT
        )
    ]
    warnings: list[str] = []
    if run.problem.radius is None and not run.problem.is_lipschitz:
        warnings.append(
            "Without a radius, this plan only states the noise and cannot be run: on all of R^d the algorithm "
            "is defined only for holder_exponent 0, so there is no step size."
        )
        return Utility(None, (), tuple(utility), tuple(warnings))
    if run.is_clipped:
        warnings.append(
            f"The gradient bound is below G = {run.problem.gradient_norm:g}, so gradients may be clipped, and "
            "the theorem does not cover this. The privacy guarantee holds, but the utility bounds are left "
            "out."
        )
    hyperparameters = step_sizes(run)
    step_size = run.spec.step_size
    if step_size is None and hyperparameters:
        assert isinstance(hyperparameters[0].value, float), "the recommended step size is one number for all steps"
        step_size = hyperparameters[0].value
    if step_size is not None:
        utility += _optimisation(run, step_size)
    if (rate := run.rate) is not None and not run.is_clipped:
        found, warning = _rate(run, rate)
        utility.append(found)
        warnings += [warning] if warning else []
    return Utility(step_size, tuple(hyperparameters), tuple(utility), tuple(warnings))


def step_sizes(run: Run) -> list[Provenance]:
    """Return the recommended step sizes. The first is the step size of Theorem 12 if there is one, otherwise the step
    size with the smallest bound.
    """
    found = []
    if (rate := run.rate) is not None and (own := _paper_step_size(run, rate)) is not None:
        found.append(own)
    if (error := run.error) is not None:
        limit = step_size_limit(run.problem)
        found.append(
            Provenance(
                "step_size_of_least_bound" if found else "step_size",
                min(error.balanced_step_size, limit * (1.0 - 1e-9)),
                optimisation_error.BALANCED_FORMULA,
                f"{optimisation_error.EXPECTED_SOURCE}: the step size with the smallest bound",
                ProvenanceKind.DERIVED,
                HOLDS,
                units=STEP,
            )
        )
    return found


def _paper_step_size(run: Run, rate: Rate) -> Provenance | None:
    value = rate.step_size(run.phase.steps, run.problem.order_constant)
    limit = step_size_limit(run.problem)
    if value >= limit:
        if run.spec.step_size is not None:
            return None
        raise InvalidValue(
            f"the step size of Theorem 12, 1/(T A) = {value:.4g}, must be below min(1, 1/L) = {limit:.4g}: "
            "raise iterations, or give step_size",
            code="step_size_too_large",
            pointer=("iterations",) if run.spec.iterations is not None else ("assumptions", "holder_constant"),
        )
    return Provenance(
        "step_size",
        value,
        optimisation_error.STEP_SIZE_FORMULA,
        optimisation_error.STEP_SIZE_SOURCE,
        ProvenanceKind.ORDER,
        (*HOLDS, f"constant c = {run.problem.order_constant:g} (order_constant)", "the step size is below min(1, 1/L)"),
        units=STEP,
    )


def _optimisation(run: Run, step_size: float) -> list[Provenance]:
    error, problem = run.error, run.problem
    if error is None:
        return []
    expected = error.expected(step_size)
    found = [
        Provenance(
            "expected_excess_risk_bound",
            expected,
            optimisation_error.EXPECTED_FORMULA,
            optimisation_error.EXPECTED_SOURCE,
            ProvenanceKind.DERIVED,
            (*HOLDS, "the bound is on the empirical optimisation error, in expectation over batches and noise"),
            vacuous=is_vacuous(problem, expected),
            units=LOSS,
        )
    ]
    if problem.failure_probability is None or problem.loss_at_zero is None or problem.radius is None:
        return found
    sampling = run.phase.event.sampling
    bound = None
    if isinstance(sampling, Poisson):
        why = "all batches have a fixed size; this does not hold for Poisson batches"
    else:
        why = "the bound is on the empirical optimisation error R_S(w) - R_S(w*), with probability 1 - gamma/3"
        bound = error.with_probability(
            step_size,
            problem.failure_probability,
            radius=problem.radius,
            largest_loss=problem.loss_at_zero + error.gradient_norm * problem.radius,
            largest_loss_at_minimiser=_largest_loss_at_minimiser(problem, error),
            sampled=not isinstance(sampling, FullBatch),
        )
    exact = run.phase.divisor == 1 and not isinstance(sampling, Poisson)
    found.append(
        Provenance(
            "excess_risk_bound",
            bound,
            optimisation_error.ERROR_FORMULA,
            optimisation_error.ERROR_SOURCE,
            ProvenanceKind.EXACT if exact else ProvenanceKind.DERIVED,
            (*HOLDS, why, "gamma > 18 exp(-T d / 8)"),
            vacuous=None if bound is None else is_vacuous(problem, bound),
            units=LOSS,
        )
    )
    return found


def _rate(run: Run, rate: Rate) -> tuple[Provenance, str]:
    """Return the rate of Theorem 12, and a warning if the rate is not attained."""
    problem, beta, steps = run.problem, run.beta, run.phase.steps
    constant = problem.order_constant
    value = None if problem.distance is None else rate.excess_risk(problem.distance, constant)
    assumptions = [*HOLDS, f"constant c = {constant:g} (order_constant)", "|w*| >= 1 in the paper's units"]
    if problem.exponent is not None:
        assumptions.append(
            f"T is of order {paper_iterations(run.spec.dataset_size, problem.exponent):.4g}; in this plan T is "
            f"{steps:g}"
        )
    if 18.0 * math.exp(-min(steps * rate.dimension / 8.0, 700.0)) >= rate.failure_probability:
        value = None
        assumptions.append("gamma > 18 exp(-T d / 8); this does not hold here")
    if run.spec.step_size is not None:
        value = None
        assumptions.append("the step size is the theorem's; this does not hold here, because the request gives another")
    warning = ""
    if beta is None or beta < _ATTAINED_BETA:
        best = "no beta meets the conditions of Theorem 11" if beta is None else f"the best feasible beta is {beta:.4g}"
        assumptions.append(f"not attained: {best}")
        warning = (
            f"excess_risk_rate is not attained: {best}, so Theorem 12 assumes less noise than privacy needs. "
            "excess_risk_bound is for the plan's noise."
        )
    return (
        Provenance(
            "excess_risk_rate",
            value,
            optimisation_error.RATE_FORMULA,
            optimisation_error.RATE_SOURCE,
            ProvenanceKind.ORDER,
            tuple(assumptions),
            vacuous=None if value is None else is_vacuous(problem, value),
            units=LOSS,
        ),
        warning,
    )


def step_size_limit(problem: HolderProblem) -> float:
    """Return the limit min(1, 1/L) on the step size as printed, where the 1 stands for 1/c."""
    inverse = math.inf if not problem.constant else 1.0 / problem.constant
    return min(1.0 / problem.order_constant, inverse)


def _largest_loss_at_minimiser(problem: HolderProblem, error: OptimisationError) -> float:
    """Return the bound A_* on every loss at w*, by the Hoelder constants or by G, whichever is smaller."""
    assert problem.loss_at_zero is not None, "called only if the loss at 0 is known"
    growth = error.gradient_norm * error.distance
    if problem.gradient_at_zero is not None and problem.constant is not None and problem.exponent is not None:
        holder = problem.constant * math.pow(error.distance, 1.0 + problem.exponent)
        growth = min(growth, problem.gradient_at_zero * error.distance + holder)
    return problem.loss_at_zero + growth


def is_vacuous(problem: HolderProblem, bound: float) -> bool | None:
    """Return whether the bound is vacuous: the point w = 0 already has an excess of at most M |w*|, by convexity, and
    of at most M_0.
    """
    trivial = [] if problem.loss_at_zero is None else [problem.loss_at_zero]
    if problem.gradient_at_zero is not None and problem.distance is not None:
        trivial.append(problem.gradient_at_zero * problem.distance)
    return bound >= min(trivial) if trivial else None

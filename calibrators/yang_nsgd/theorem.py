"""This module contains the gradient-norm theorem of DP-SGD and DP-NSGD, and the calibration that follows from it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from calibrators.algorithm import Algorithm
from calibrators.noise import calibration_of, solve_gaussian_steps
from calibrators.plan import Phase
from calibrators.provenance import GRADIENT, Provenance, ProvenanceKind, Units
from calibrators.spec import Calibration, Spec
from calibrators.staged import calibrate_stages
from calibrators.yang_nsgd.lemma_3_1 import lemma_3_1
from calibrators.yang_nsgd.nonconvex import DRAWN_ANEW, Problem, read_problem

HOLDS = (
    "global generalised smoothness with L_0, L_1",
    "every record's gradient deviates from grad f by at most tau_0 + tau_1 |grad f|",
    "f(x_0) - inf f <= D_0",
)


@dataclass(frozen=True, slots=True)
class GradientNormTheorem:
    r"""A bound on the expected smallest gradient norm of T steps, for clipped and for normalised gradients.

    With $V = d s^2 + b^2$, where b bounds a contribution and s is the noise's standard deviation on the mean:
    $E_T = \tfrac{2}{\kappa} (D_0/(\eta T) + \eta K_0 V/2)$, and the bound is $\sqrt{\theta E_T} + E_T$ plus the floor.

    Attributes:
        problem: The constants of the objective.
        contribution: The contribution b, in the unit of contributions.
        theta: The gradient norm at which the two regimes of the bound meet, in gradient units.
        kappa: The share of the gradient that survives beyond theta, in the unit of contributions.
        floor: The part of the bound that does not vanish as the number of steps grows, in gradient units.
        source, step_size_formula, step_size_units, bound_formula: The provenance of the numbers in the answer.

    Guarantees:
        - With every valid step size eta, E[min_k |grad f(x_k)|] is at most `bound`.
    """

    problem: Problem
    contribution: float
    theta: float
    kappa: float
    floor: float
    source: str
    step_size_formula: str
    step_size_units: Units
    bound_formula: str

    @property
    def k0(self) -> float:
        """The smoothness constant below theta: L_0 + L_1 theta."""
        return self.problem.l0 + self.problem.l1 * self.theta

    def _second_moment(self, noise_stddev_on_mean: float) -> float:
        return self.problem.dimension * noise_stddev_on_mean**2 + self.contribution**2

    def step_size(self, noise_stddev_on_mean: float, iterations: int) -> float:
        """Return the step size eta = sqrt(2 D_0 / (K_0 V T)), in parameter units per unit of a contribution."""
        v = self._second_moment(noise_stddev_on_mean)
        return math.sqrt(2.0 * self.problem.initial_gap / (self.k0 * v * iterations))

    def largest_step_size(self, noise_stddev_on_mean: float) -> float:
        """Return the largest step size that the theorem covers, which is the largest eta with eta L_1 V <= kappa."""
        scale = self.problem.l1 * self._second_moment(noise_stddev_on_mean)
        return self.kappa / scale if scale > 0.0 else math.inf

    def fewest_iterations(self, noise_stddev_on_mean: float) -> float:
        """Return the fewest steps at which the recommended step size is valid: 2 D_0 L_1^2 V / (K_0 kappa^2)."""
        p = self.problem
        v = self._second_moment(noise_stddev_on_mean)
        return 2.0 * p.initial_gap * p.l1**2 * v / (self.k0 * self.kappa**2)

    def bound(self, step_size: float, noise_stddev_on_mean: float, iterations: int) -> float:
        """Return the bound sqrt(theta E_T) + E_T + floor, in gradient units."""
        v = self._second_moment(noise_stddev_on_mean)
        e_t = (2.0 / self.kappa) * (self.problem.initial_gap / (step_size * iterations) + step_size * self.k0 * v / 2.0)
        return math.sqrt(self.theta * e_t) + e_t + self.floor


def calibrate_with_theorem(
    algorithm: Algorithm, spec: Spec, theorem_of: Callable[[Problem], GradientNormTheorem]
) -> Calibration:
    """Solve for the open quantity. If the theorem's constants are given, compute the step size and the bound from the
    theorem.

    The caller's own step size goes into the plan unchanged, and the bound is then the theorem's bound for this step
    size. The theorem is about all of R^d, so it does not cover domains or penalties. It also does not cover batches
    that are truncated or that depend on the records of earlier batches.
    """
    assert spec.gradient_bound is not None, "the registry has checked the gradient bound"
    problem, missing = read_problem(spec)
    theorem = None if problem is None else theorem_of(problem)
    if spec.stages:
        return calibrate_stages(algorithm, spec)
    steps = solve_gaussian_steps(spec)
    event, iterations = steps.event, steps.event.count
    s = Phase(event, spec.gradient_bound, steps.batch_size).noise_stddev_on_mean

    hyperparameters: list[Provenance] = []
    utility = [
        Provenance(
            "gradient_evaluations",
            float(iterations * steps.batch_size),
            "T B",
            algorithm.source,
            ProvenanceKind.EXACT,
        )
    ]
    warnings: list[str] = []
    step_size = spec.step_size
    if spec.domain is not None or spec.penalty is not None:
        warnings.append(
            "The theorem covers only the loss itself, minimised over all of R^d, so it gives no step size and no "
            "bound with a "
            "domain or a penalty. The privacy guarantee holds without the bound."
        )
    elif not isinstance(event.sampling, DRAWN_ANEW):
        warnings.append(
            "The theorem is about batches that are drawn anew at every step and kept whole. If records take "
            "turns, or if batches are truncated, it gives no step size and no bound. The privacy guarantee "
            "holds without the bound."
        )
    elif problem is not None and theorem is not None:
        recommended = theorem.step_size(s, iterations)
        hyperparameters.append(
            Provenance(
                "step_size",
                recommended,
                theorem.step_size_formula,
                theorem.source,
                ProvenanceKind.DERIVED,
                HOLDS,
                units=theorem.step_size_units,
            )
        )
        step_size = recommended if step_size is None else step_size
        bound, warning = _bound(theorem, step_size, s, iterations)
        utility.append(
            Provenance(
                "gradient_norm_bound",
                bound,
                theorem.bound_formula,
                theorem.source,
                ProvenanceKind.DERIVED,
                HOLDS,
                vacuous=None if bound is None else bound >= problem.trivial_gradient_norm,
                units=GRADIENT,
            )
        )
        if warning:
            warnings.append(warning)
    phase = Phase(event, spec.gradient_bound, steps.batch_size, step_size)
    return calibration_of(
        algorithm.name,
        spec,
        steps,
        phase,
        domain=spec.domain,
        penalty=spec.penalty,
        release=spec.release_of(iterations),
        hyperparameters=tuple(hyperparameters),
        utility=tuple(utility),
        missing=missing,
        warnings=warnings,
        as_published=lemma_3_1(spec, phase),
    )


def _bound(theorem: GradientNormTheorem, step_size: float, s: float, iterations: int) -> tuple[float | None, str]:
    # The slack of a few ulp keeps rounding from refusing a step size at the threshold that the exact condition allows.
    if step_size <= theorem.largest_step_size(s) * (1.0 + 1e-12):
        return theorem.bound(step_size, s, iterations), ""
    fewest = math.ceil(theorem.fewest_iterations(s))
    return None, (
        f"The theorem does not cover step_size {step_size:g}, because the largest that it covers is "
        f"{theorem.largest_step_size(s):g}. The recommended step size is covered from {fewest} iterations on. "
        "The gradient norm bound is left out."
    )

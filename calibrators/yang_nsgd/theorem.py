"""From a spec and a gradient-norm theorem to a Calibration: the part that DP-SGD and DP-NSGD share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, Protocol

from calibrators.algorithm import Algorithm
from calibrators.noise import solve_gaussian_steps
from calibrators.plan import Phase, Plan
from calibrators.provenance import Provenance, ProvenanceKind
from calibrators.spec import Calibration, Spec, check_sampling
from calibrators.yang_nsgd.nonconvex import Problem, missing_assumptions, read_problem

HOLDS = (
    "global generalised smoothness with L_0, L_1",
    "every record's gradient deviates by at most tau_0 + tau_1 |grad f|",
    "f(x_0) - inf f <= D_0",
)


class GradientNormTheorem(Protocol):
    """A bound on the expected smallest gradient norm; s is the noise's standard deviation on the mean."""

    source: ClassVar[str]
    step_size_formula: ClassVar[str]
    bound_formula: ClassVar[str]

    def step_size(self, noise_stddev_on_mean: float, iterations: int) -> float: ...
    def largest_step_size(self, noise_stddev_on_mean: float) -> float: ...
    def fewest_iterations(self, noise_stddev_on_mean: float) -> float: ...
    def bound(self, step_size: float, noise_stddev_on_mean: float, iterations: int) -> float: ...


def calibrate_with_theorem(
    algorithm: Algorithm, spec: Spec, theorem_of: Callable[[Problem], GradientNormTheorem]
) -> Calibration:
    """Solve for what the spec leaves open; then read step size and bound off the theorem, as far as it is given.

    A step size of the caller's own goes into the plan as it is; the bound is then the theorem's at that step size.
    """
    check_sampling(spec.sampling, algorithm.samplings)
    problem = read_problem(spec)
    theorem = None if problem is None else theorem_of(problem)
    steps = solve_gaussian_steps(spec, algorithm.samplings)
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
    if problem is not None and theorem is not None:
        recommended = theorem.step_size(s, iterations)
        hyperparameters.append(
            Provenance(
                "step_size", recommended, theorem.step_size_formula, theorem.source, ProvenanceKind.DERIVED, HOLDS
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
            )
        )
        if warning:
            warnings.append(warning)
    phase = Phase(event, spec.gradient_bound, steps.batch_size, step_size)
    return Calibration(
        plan=Plan(algorithm.name, spec.dataset_size, spec.neighboring_relation, (phase,)),
        unknown=spec.unknown,
        value=steps.value,
        achieved=steps.achieved,
        next_achieved=steps.next_achieved,
        hyperparameters=tuple(hyperparameters),
        utility=tuple(utility),
        missing_assumptions=missing_assumptions(spec),
        warnings=(*steps.achieved.warnings, *warnings),
    )


def _bound(theorem: GradientNormTheorem, step_size: float, s: float, iterations: int) -> tuple[float | None, str]:
    # A relative slack of a few ulp: at the threshold itself rounding must not refuse what the algebra allows.
    if step_size <= theorem.largest_step_size(s) * (1.0 + 1e-12):
        return theorem.bound(step_size, s, iterations), ""
    fewest = math.ceil(theorem.fewest_iterations(s))
    return None, (
        f"the theorem does not cover the step size {step_size:g} (largest: {theorem.largest_step_size(s):g}); "
        f"the recommended one is covered from {fewest} iterations on. The gradient norm bound is left out."
    )

"""From a spec and a gradient-norm theorem to a Calibration: the part that DP-SGD and DP-NSGD share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, Protocol

from calibrators.algorithm import Algorithm
from calibrators.noise import solve_gaussian_steps
from calibrators.plan import Phase, Plan
from calibrators.provenance import Provenance, ProvenanceKind
from calibrators.spec import Calibration, Spec
from calibrators.units import GRADIENT, Units
from calibrators.yang_nsgd.lemma_3_1 import lemma_3_1
from calibrators.yang_nsgd.nonconvex import Problem, read_problem

HOLDS = (
    "global generalised smoothness with L_0, L_1",
    "every record's gradient deviates by at most tau_0 + tau_1 |grad f|",
    "f(x_0) - inf f <= D_0",
)


class GradientNormTheorem(Protocol):
    """A bound on the expected smallest gradient norm; s is the noise's standard deviation on the mean."""

    source: ClassVar[str]
    step_size_formula: ClassVar[str]
    step_size_units: ClassVar[Units]
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
    With a domain or a penalty the theorem, which is about all of R^d, says nothing.
    """
    assert spec.gradient_bound is not None, "the registry has seen to the gradient bound"
    problem, missing = read_problem(spec)
    theorem = None if problem is None else theorem_of(problem)
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
            "The theorem is about all of R^d and the bare loss: with a domain or a penalty it gives no step size and "
            "no bound. The privacy does not depend on it."
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
    return Calibration(
        plan=Plan(algorithm.name, spec.dataset_size, spec.relation, (phase,), domain=spec.domain, penalty=spec.penalty),
        unknown=spec.unknown,
        value=steps.value,
        achieved=steps.achieved,
        next_achieved=steps.next_achieved,
        hyperparameters=tuple(hyperparameters),
        utility=tuple(utility),
        missing_assumptions=missing,
        warnings=(*steps.achieved.warnings, *warnings),
        literal=lemma_3_1(spec, phase),
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

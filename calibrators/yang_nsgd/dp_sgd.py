"""DP-SGD clips every record's gradient, adds noise and takes a step (Yang et al. 2022, equation (2), Theorem 3.4)."""

from __future__ import annotations

from collections.abc import Mapping

from accounting.errors import InvalidValue
from calibrators.algorithm import EXAMPLE_TARGET, Algorithm, Example, ExampleRequest, StepRule
from calibrators.plan import Clip
from calibrators.provenance import STEP
from calibrators.scopes import Measure, Scope, Shape
from calibrators.spec import Calibration, Spec
from calibrators.yang_nsgd.nonconvex import (
    ASSUMPTIONS,
    ERRATA,
    EXAMPLE_CONSTANTS,
    PAPER,
    RELATIONS,
    SAMPLINGS,
    VERDICT,
    Problem,
    deviation_of,
)
from calibrators.yang_nsgd.theorem import GradientNormTheorem, calibrate_with_theorem


def clipped_theorem(problem: Problem, max_grad_norm: float) -> GradientNormTheorem:
    """Return the derived form of Theorem 3.4. In it, theta = kappa = G_c, and there is no floor.

    Up to the gradient norm G_c = (c - tau_0) / (1 + tau_1) no record is clipped.

    Args:
        problem: The constants of the objective.
        max_grad_norm: The clip threshold c >= 2 t_0, in gradient units.

    Raises:
        InvalidValue: If c < 2 t_0, where the first-order lower bound fails (Lemma A.5).

    Source: Yang et al. 2022, Theorem 3.4 and Lemma A.5; the proof of the constants is in docs/algorithms/yang_nsgd.md.

    >>> problem = Problem(initial_gap=2, l0=1, l1=0.5, tau0=0.3, tau1=0.2, dimension=100)
    >>> theorem = clipped_theorem(problem, max_grad_norm=1.5)
    >>> round(theorem.bound(theorem.step_size(0.015, 20000), 0.015, 20000), 10)
    0.2807391434
    """
    smallest = 2.0 * problem.t0
    if max_grad_norm < smallest:
        raise InvalidValue(
            f"max_grad_norm must be at least 2 tau_0 / (1 - tau_1) = {smallest:g} for the theorem, got "
            f"{max_grad_norm:g}: raise it, leave the assumptions out to calibrate only the noise, or take the "
            "preset practical, which needs no theorem",
            code="clip_below_theorem",
            pointer=("gradient_bound", "max_grad_norm"),
        )
    g_c = (max_grad_norm - problem.tau0) / (1.0 + problem.tau1)
    return GradientNormTheorem(
        problem,
        max_grad_norm,
        theta=g_c,
        kappa=g_c,
        floor=0.0,
        source=f"{PAPER}, Theorem 3.4 (constants derived)",
        step_size_formula=r"\eta = \sqrt{2 D_0 / (K_0 V_c T)},\; V_c = d s^2 + c^2,\; K_0 = L_0 + L_1 G_c",
        step_size_units=STEP,
        bound_formula=r"\mathbb{E}\min_{k<T}\|\nabla f(x_k)\| \le \sqrt{G_c E_T} + E_T,\;"
        r" E_T = \tfrac{2}{G_c}\left(\tfrac{D_0}{\eta T} + \tfrac{\eta K_0 V_c}{2}\right),\;"
        r" G_c = \tfrac{c - \tau_0}{1 + \tau_1}",
    )


def smallest_clip(constants: Mapping[str, float]) -> Clip | None:
    """Return the smallest clip threshold that the theorem covers, 2 t_0."""
    t0 = deviation_of(constants)
    return None if not t0 else Clip(2.0 * t0)


def calibrate(spec: Spec) -> Calibration:
    """Calibrate the spec: the engine computes the noise. The derived form of Theorem 3.4 gives the step size and the
    bound on the gradient norm.

    Raises:
        InvalidValue: If a number is outside its range, the gradient bound is not `clip`, or c < 2 t_0.
        Unsupported: If the sampling is not available.
        Unreachable: If no noise multiplier meets the target.
    """
    bound = spec.gradient_bound
    if not isinstance(bound, Clip):
        raise InvalidValue(
            "gradient_bound.kind must be clip, because dp_sgd clips gradients", pointer=("gradient_bound",)
        )
    return calibrate_with_theorem(ALGORITHM, spec, lambda problem: clipped_theorem(problem, bound.max_grad_norm))


ALGORITHM = Algorithm(
    name="dp_sgd",
    summary="Clip each record's gradient to l2 norm c, sum, add Gaussian noise, and take a step.",
    source=f"{PAPER}, equation (2), Theorem 3.4",
    update=r"x \leftarrow x - \frac{\eta}{B}\left(\sum_i \min(1, c/\|g_i\|)\, g_i + c\,\sigma Z\right)",
    samplings=SAMPLINGS,
    in_stages=True,
    step_rule=StepRule.BOUNDED_MEAN,
    theorem_bound=smallest_clip,
    relations=RELATIONS,
    gradient_bounds=(Clip,),
    assumptions=ASSUMPTIONS,
    guarantee="(epsilon, delta)-differential privacy of all iterates together, hence of the released point.",
    gradient_complexity="T B",
    verdict=VERDICT,
    errata=ERRATA,
    calibrate=calibrate,
    scope=Scope(Shape.NONCONVEX, Measure.STATIONARITY),
    example=Example(
        Spec(
            50_000,
            EXAMPLE_TARGET,
            batch_size=1000,
            iterations=5000,
            gradient_bound=Clip(1.5),
            dimension=20,
            assumptions=EXAMPLE_CONSTANTS,
        )
    ),
    requests={
        "dp_sgd_poisson": ExampleRequest(
            "DP-SGD, Poisson batches, epsilon 8",
            {
                "dataset_size": 50000,
                "batch_size": 1000,
                "iterations": 5000,
                "sampling": "poisson",
                "neighboring_relation": "add_or_remove_one",
                "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
                "target": {"kind": "approximate_dp", "epsilon": 8, "delta": 1e-5},
            },
        )
    },
)

"""DP-NSGD normalises every record's gradient, adds noise and takes a step (Yang et al. 2022, Algorithm 1, Theorem
3.2).
"""

from __future__ import annotations

from collections.abc import Mapping

from accounting.errors import InvalidValue
from calibrators.algorithm import EXAMPLE_TARGET, Algorithm, Example, ExampleRequest, StepRule
from calibrators.plan import Normalize
from calibrators.provenance import PARAMETER
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


def normalized_theorem(problem: Problem, regularizer: float) -> GradientNormTheorem:
    """Return the derived form of Theorem 3.2. It has theta = r + t_0 and a floor that falls as the regularizer r grows.

    The floor is 0 if tau_0 is 0.

    Args:
        problem: The constants of the objective.
        regularizer: The regularizer r > 0, in gradient units.

    Raises:
        InvalidValue: If r is 0.

    Source: Yang et al. 2022, Theorem 3.2, Lemma A.3 and equation (17); the proof of the constants is in
    docs/algorithms/yang_nsgd.md.

    >>> problem = Problem(initial_gap=2, l0=1, l1=0.5, tau0=0.3, tau1=0.2, dimension=100)
    >>> theorem = normalized_theorem(problem, regularizer=1.0)
    >>> round(theorem.bound(theorem.step_size(0.01, 20000), 0.01, 20000), 10)
    0.7842684413
    """
    if regularizer == 0.0:
        raise InvalidValue("regularizer must be above 0 for the theorem", pointer=("gradient_bound", "regularizer"))
    theta = regularizer + problem.t0
    return GradientNormTheorem(
        problem,
        1.0,
        theta=theta,
        kappa=theta / (regularizer + problem.tau0 + (1.0 + problem.tau1) * theta),
        floor=min(4.0 * problem.t0 * problem.t0 / regularizer, problem.t0),
        source=f"{PAPER}, Theorem 3.2 (constants derived)",
        step_size_formula=r"\eta = \sqrt{2 D_0 / (K_0 V T)},\; V = d s^2 + 1,\; K_0 = L_0 + L_1 \theta,\;"
        r" \theta = r + t_0",
        step_size_units=PARAMETER,
        bound_formula=r"\mathbb{E}\min_{k<T}\|\nabla f(x_k)\| \le \sqrt{\theta E_T} + E_T + \min(4 t_0^2/r,\, t_0),\;"
        r" E_T = \tfrac{2}{\kappa}\left(\tfrac{D_0}{\eta T} + \tfrac{\eta K_0 V}{2}\right)",
    )


def regularizer_of_deviation(constants: Mapping[str, float]) -> Normalize | None:
    """Return the default regularizer, t_0. The theorem leaves the regularizer open; from t_0 on, its floor falls."""
    t0 = deviation_of(constants)
    return None if not t0 else Normalize(t0)


def calibrate(spec: Spec) -> Calibration:
    """Calibrate the spec: the engine computes the noise. The derived form of Theorem 3.2 gives the step size and the
    bound on the gradient norm.

    Raises:
        InvalidValue: If a number is outside its range, or the gradient bound is not `normalize`.
        Unsupported: If the sampling is not available.
        Unreachable: If no noise multiplier meets the target.
    """
    bound = spec.gradient_bound
    if not isinstance(bound, Normalize):
        raise InvalidValue(
            "gradient_bound.kind must be normalize, because dp_nsgd normalises gradients", pointer=("gradient_bound",)
        )
    return calibrate_with_theorem(ALGORITHM, spec, lambda problem: normalized_theorem(problem, bound.regularizer))


ALGORITHM = Algorithm(
    name="dp_nsgd",
    summary=(
        "Divide each record's gradient g by (r + |g|), sum, add Gaussian noise and take a step. There is no clip "
        "threshold."
    ),
    source=f"{PAPER}, Algorithm 1, equation (3), Theorem 3.2",
    update=r"x \leftarrow x - \frac{\eta}{B}\left(\sum_i \frac{g_i}{r + \|g_i\|} + \sigma Z\right)",
    samplings=SAMPLINGS,
    in_stages=True,
    step_rule=StepRule.BOUNDED_MEAN,
    theorem_bound=regularizer_of_deviation,
    relations=RELATIONS,
    gradient_bounds=(Normalize,),
    assumptions=ASSUMPTIONS,
    guarantee="(epsilon, delta)-differential privacy of all iterates together, hence of the released point.",
    gradient_complexity="T B",
    verdict=VERDICT,
    errata=(
        *ERRATA,
        ("The noise on the sum is sigma for every r. Scaling it by r, as one public fork does, voids the guarantee."),
    ),
    calibrate=calibrate,
    scope=Scope(Shape.NONCONVEX, Measure.STATIONARITY),
    example=Example(
        Spec(
            50_000,
            EXAMPLE_TARGET,
            batch_size=1000,
            iterations=5000,
            gradient_bound=Normalize(1.0),
            dimension=20,
            assumptions=EXAMPLE_CONSTANTS,
        )
    ),
    requests={
        "dp_nsgd_theorem": ExampleRequest(
            "DP-NSGD with the constants its theorem needs: step size and gradient bound",
            {
                "dataset_size": 50000,
                "dimension": 100,
                "batch_size": 1000,
                "iterations": 5000,
                "sampling": {"kind": "poisson"},
                "neighboring_relation": "add_or_remove_one",
                "gradient_bound": {"kind": "normalize", "regularizer": 1.0},
                "target": {"kind": "approximate_dp", "epsilon": 2, "delta": 1e-5},
                "assumptions": {
                    "initial_gap": 2,
                    "generalized_smoothness_l0": 1,
                    "generalized_smoothness_l1": 0.5,
                    "deviation_tau0": 0.3,
                    "deviation_tau1": 0.2,
                },
            },
        )
    },
)

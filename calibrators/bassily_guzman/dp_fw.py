r"""Full-batch private Frank-Wolfe over the l1 ball. It minimises the empirical risk; the effect of the noise grows only
with ln d.

**Setting.** Minimise $F_S(x) = \tfrac1n \sum_i f(x, z_i)$ over $\{\|x\|_1 \le D\}$, diameter $M = 2D$; every
$f(\cdot, z)$ is convex, $\|\nabla f\|_\infty \le L_0$ and $\|\nabla f(x) - \nabla f(y)\|_\infty \le L_1 \|x - y\|_1$.

**Update.** $x_0 = 0$; for $t = 0..T-1$:

    u <- the vertex +-D e_i of least  <u, grad F_S(x_t)> - lambda Gumbel;   x_{t+1} <- x_t + 2/(t+2) (u - x_t)

The point $x_T$ is released.

**Privacy.** The trainer clips each record's gradient to $\|\cdot\|_\infty \le L_0$ and divides the sum by the declared
n, so privacy needs no property of the losses. A record changes the scores of one selection within a range of width at
most $s L_0 M/n$. Here s = 2 if the record is replaced by another, and s = 1 if it is added, removed or becomes the null
record. A Gumbel selection with range w is $w^2/(8\lambda^2)$-zCDP and $(w/\lambda)$-DP, given all selections before it,
and these costs add up. Let $\sigma$ be the noise multiplier of one step. Then $\lambda = \tfrac\sigma2 L_0 M/n$ costs
$\rho = s^2/(2\sigma^2)$, as Gaussian noise would. For delta = 0 (and for Gaussian DP), $\lambda = \sigma L_0 M/n$ costs
$\epsilon = s/\sigma$. Under `replace_one`, T steps within rho need $\lambda = (2 L_0 M/n)\sqrt{T/(8\rho)}$, and within
epsilon $\lambda = 2 T L_0 M/(n \epsilon)$.

**Utility.** The step to u satisfies $F_S(x_{t+1}) \le F_S(x_t) + \eta_t \langle \nabla F_S(x_t), u - x_t \rangle +
\tfrac12 L_1 M^2 \eta_t^2$, and the selection's expected regret is at most $\lambda \ln K$. With $\eta_t = 2/(t+2)$ the
expected gap after T steps is at most $2 L_1 M^2/(T+2) + \lambda \ln K$. The default T is the integer with the smallest
bound among those whose work takes at most about a minute of one core. The bound is on the empirical risk and says
nothing about the population risk.
"""

from __future__ import annotations

import math

import numpy as np

from accounting.errors import InvalidValue
from accounting.events import FullBatch, PureDp, ZcDp
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, BudgetTarget, GaussianDpTarget
from calibrators.algorithm import EXAMPLE_TARGET, Algorithm, Example, ExampleRequest
from calibrators.bassily_guzman import rates
from calibrators.bassily_guzman.printed_selection import printed_calibration
from calibrators.bassily_guzman.selection import (
    NO_PENALTY,
    Selections,
    checked_scales,
    expected_regret,
    is_pure,
    multiplier,
)
from calibrators.bassily_guzman.setting import ASSUMPTIONS, Setting, read_setting
from calibrators.bassily_guzman.tree import Problem
from calibrators.noise import Steps, calibration_of, solve_steps
from calibrators.phases.vertex_steps import VertexSteps
from calibrators.provenance import LOSS, Provenance, ProvenanceKind
from calibrators.refusals import refuse
from calibrators.scopes import Measure, Shape, in_l1_ball
from calibrators.spec import Calibration, Spec, Unknown
from calibrators.work import UNCAPPED, affordable_steps

SOURCE = "Talwar, Thakurta & Zhang 2015 (Frank-Wolfe by noisy selection); derived: Gumbel noise and bound"
BOUND_FORMULA = r"F_S(x_T) - \min F_S \le \frac{2 L_1 M^2}{T+2} + \lambda \ln K"
RISK_HOLDS = (
    "every loss is convex, L_0-Lipschitz and L_1-smooth in the l1 norm",
    (
        "the bound is on the empirical risk, which is the mean loss of the records; it says nothing about the "
        "population risk"
    ),
)
ERRATA = (
    "In Guzman's talk, report-noisy-max uses Laplace noise of scale sensitivity over epsilon. This is only 2 "
    "epsilon-DP, because scores of opposite vertices move apart. Here the noise is scaled to the range of the "
    "scores' changes. It is Gumbel noise, which costs a quarter of the rho of Laplace noise.",
    (
        "Guzman's talk composes selections by the square-root term of advanced composition and leaves out the "
        "other term. Here the rhos of the selections add up."
    ),
    (
        "The COLT papers and Guzman's talk use the diameter M and the radius D in the same formulas. Here M = 2 D "
        "throughout."
    ),
)
_LAST_USEFUL = r"(2 L_1 M^2 / (p \lambda_1 \ln K))^{1/(1+p)}"
CAPPED = "the number of steps is limited to about a minute of work of one core; more steps would have a smaller bound"


def calibrate(spec: Spec) -> Calibration:
    """Calibrate the spec: the engine computes the noise. The number of steps is `iterations`; if it is left out, it is
    the number with the smallest bound.

    Raises:
        InvalidValue: If an assumption is unknown, missing or outside its range, or sizes do not fit each other.
        Unsupported: If a size is solved for, or if a penalty or a step size is given.
        Unreachable: If no noise meets the target.
    """
    refuse_what_has_no_part(spec)
    setting, pure = read_setting(spec), is_pure(spec)
    iterations = spec.iterations or _best_iterations(spec, setting, pure)
    steps = solve_steps(
        spec, Selections(pure, spec.relation, per_step=True), iterations=iterations, batch_size=spec.dataset_size
    )
    [scale] = checked_scales([noise_scale(setting.problem, spec.dataset_size, steps.noise_multiplier, pure)])
    phase = VertexSteps(steps.event, spec.dataset_size, scale, setting.problem.lipschitz)
    return calibration_of(
        ALGORITHM.name,
        spec,
        steps,
        phase,
        noise_scales=(scale,),
        domain=setting.domain,
        hyperparameters=_hyperparameters(spec, setting, iterations, scale, pure, steps),
        utility=_utility(spec, setting, iterations, scale, steps),
        missing=("dimension",) if setting.num_vertices is None else (),
        warnings=setting.warnings,
        as_published=printed_calibration(spec, iterations),
    )


def noise_scale(problem: Problem, dataset_size: int, noise_multiplier: float, pure: bool) -> float:
    r"""Return the noise scale $\lambda = \tfrac\sigma2 L_0 M/n$, in loss units; for pure DP, return twice this scale.

    >>> noise_scale(Problem(2.0, 1.0, 2.0), 10_000, 200.0, pure=True)
    0.08
    """
    width = problem.lipschitz * problem.diameter / dataset_size
    return noise_multiplier * (width if pure else 0.5 * width)


def empirical_risk_bound(problem: Problem, iterations: int, scale: float, num_vertices: int) -> float:
    """Return the bound on the expected gap of the empirical risk after this many steps, in loss units.

    Source: derived in the docstring of this module.

    >>> round(empirical_risk_bound(Problem(2.0, 1.0, 2.0), 100, 0.0181235084681, 100), 10)
    0.1618932134
    """
    curvature = 2.0 * problem.smoothness * problem.diameter**2 / (iterations + 2.0)
    return curvature + expected_regret(scale, num_vertices)


def best_iterations(problem: Problem, num_vertices: int, one_step_scale: float, power: float, most: int) -> int:
    r"""Return the integer $T$ from 1 to ``most`` with the smallest bound, if T steps need the noise scale $\lambda_1
    T^p$.

    The bound rises above $T^{1+p} = 2 L_1 M^2/(p \lambda_1 \ln K)$, so only smaller integers are tried.

    Args:
        problem: The constants of the losses.
        num_vertices: The number of vertices K.
        one_step_scale: The noise scale $\lambda_1$ for one step.
        power: The exponent p: 1/2 if rhos add up, 1 if epsilons do.
        most: The largest T.
    """
    regret = expected_regret(one_step_scale, num_vertices)
    last = min(float(most), last_useful(problem, num_vertices, one_step_scale, power) + 1.0)
    tried = np.arange(1.0, max(1, math.floor(last)) + 1.0)
    curvature = 2.0 * problem.smoothness * problem.diameter**2
    return 1 + int(np.argmin(curvature / (tried + 2.0) + regret * tried**power))


def last_useful(problem: Problem, num_vertices: int, one_step_scale: float, power: float) -> float:
    """Return the number of steps above which the bound of `best_iterations` rises. The smallest bound is at an integer
    just below this number.

    >>> round(last_useful(Problem(2.0, 1.0, 2.0), 100, 0.001, 0.5), 1)
    229.4
    """
    regret = expected_regret(one_step_scale, num_vertices)
    curvature = 2.0 * problem.smoothness * problem.diameter**2
    return math.pow(curvature / (power * regret), 1.0 / (1.0 + power))


def _best_iterations(spec: Spec, setting: Setting, pure: bool) -> int:
    """Return the number T of steps with the smallest bound, computed from the noise that one step needs. T steps need
    sqrt(T) times this noise, or T times if epsilons add up.
    """
    scale, power = one_step_scale(spec, setting, pure)
    assert setting.num_vertices is not None, "as was checked"
    return best_iterations(setting.problem, setting.num_vertices, scale, power, most_steps(spec))


def _last_useful(spec: Spec, setting: Setting, pure: bool) -> float:
    scale, power = one_step_scale(spec, setting, pure)
    assert setting.num_vertices is not None, "as was checked"
    return last_useful(setting.problem, setting.num_vertices, scale, power)


def most_steps(spec: Spec) -> int:
    """Return the largest number of steps that is chosen if a request leaves the number open."""
    return affordable_steps(spec.dataset_size, spec.need("dimension"))


def one_step_scale(spec: Spec, setting: Setting, pure: bool) -> tuple[float, float]:
    """Return the noise scale that one step would need, and the power p such that T steps need T^p times this scale.

    Raises:
        InvalidValue: If the number of steps is not given, and nothing determines it.
    """
    if setting.num_vertices is None or spec.unknown is not Unknown.NOISE_MULTIPLIER:
        raise InvalidValue(
            "iterations is needed: the number with the smallest bound can be chosen only if dimension is given "
            "and noise_multiplier is left out",
            code="missing",
            pointer=("iterations",),
        )
    one = solve_steps(spec, Selections(pure, spec.relation), iterations=1, batch_size=spec.dataset_size)
    [scale] = checked_scales([noise_scale(setting.problem, spec.dataset_size, one.noise_multiplier, pure)])
    return scale, 1.0 if epsilons_add_up(spec, pure) else 0.5


def epsilons_add_up(spec: Spec, pure: bool) -> bool:
    """Return whether the noise scale grows like T rather than sqrt(T). For Gaussian DP it grows like sqrt(T), because
    squares of epsilons add up.
    """
    if isinstance(spec.target, BudgetTarget):
        return pure and spec.target.filter.kind != "gaussian_dp"
    return pure and not isinstance(spec.target, GaussianDpTarget)


def refuse_what_has_no_part(spec: Spec) -> None:
    """Refuse specs that choose a penalty, a step size, or a batch that is not all records. The steps are full-batch
    steps of size 2/(t+2).

    Raises:
        InvalidValue: If a size does not fit the data set.
        Unsupported: If a size is solved for, or if a penalty or a step size is given.
    """
    refuse(
        spec,
        sizes=(
            f"{spec.unknown} cannot be solved for, because the noise is scaled so that the cost does not depend on "
            "it. Solve for noise_multiplier. If you leave iterations out, the number with the smallest bound is "
            "chosen"
        ),
        penalty=NO_PENALTY,
        step_size="step_size cannot be chosen, because the bound is proved for the step sizes 2/(t+2); leave it out",
    )
    if spec.dataset_size < 2:
        raise InvalidValue("dataset_size must be at least 2", pointer=("dataset_size",))
    if spec.batch_size not in (None, spec.dataset_size):
        raise InvalidValue(
            f"full_batch takes every record in every step: batch_size must be {spec.dataset_size}",
            pointer=("batch_size",),
        )


def uncapped(steps: float, formula: str) -> Provenance:
    """Return the provenance of the number of steps that has the smallest bound, if this number is above
    `most_steps`.
    """
    above = "the bound rises above this number of steps, and is smallest at or just below it"
    return Provenance(UNCAPPED, math.floor(steps) * 1.0, formula, SOURCE, ProvenanceKind.DERIVED, (above,))


def _hyperparameters(
    spec: Spec, setting: Setting, iterations: int, scale: float, pure: bool, steps: Steps
) -> tuple[Provenance, ...]:
    derived = ProvenanceKind.DERIVED
    formula = r"\lambda = \sigma L_0 M/n" if pure else r"\lambda = \tfrac{\sigma}{2} L_0 M/n"
    capped = spec.iterations is None and iterations == most_steps(spec)
    chosen = "T" if spec.iterations else r"\arg\min_T \tfrac{2 L_1 M^2}{T+2} + \lambda_T \ln K"
    return (
        Provenance("noise_scale", scale, formula, SOURCE, derived, units=LOSS),
        multiplier(
            steps.noise_multiplier,
            pure,
            SOURCE,
            "the noise of one step; s is 2 under replace_one, and 1 under replace_special and add_or_remove_one",
        ),
        Provenance("iterations", float(iterations), chosen, SOURCE, derived, (CAPPED,) if capped else ()),
        Provenance("batch_size", float(spec.dataset_size), "n", SOURCE, derived),
        *((uncapped(_last_useful(spec, setting, pure), _LAST_USEFUL),) if capped else ()),
    )


def _utility(spec: Spec, setting: Setting, iterations: int, scale: float, steps: Steps) -> tuple[Provenance, ...]:
    evaluations = Provenance(
        "gradient_evaluations", float(iterations * spec.dataset_size), "n T", SOURCE, ProvenanceKind.EXACT
    )
    if setting.num_vertices is None:
        return (evaluations,)
    bound = empirical_risk_bound(setting.problem, iterations, scale, setting.num_vertices)
    certified = Provenance(
        "excess_risk_bound",
        bound,
        BOUND_FORMULA,
        "derived",
        ProvenanceKind.DERIVED,
        RISK_HOLDS,
        vacuous=bound >= setting.trivial_excess_risk,
        units=LOSS,
    )
    return (certified, _rate(spec, setting, setting.num_vertices, steps), evaluations)


def _rate(spec: Spec, setting: Setting, num_vertices: int, steps: Steps) -> Provenance:
    mechanism, count = steps.event.mechanism, steps.event.count
    if isinstance(mechanism, PureDp):
        rate = rates.pure_frank_wolfe_rate(setting.problem, num_vertices, spec.dataset_size, count * mechanism.epsilon)
        formula = r"c\,[A + (L_1 M^2 A)^{1/2}],\; A = L_0 M \ln K/(n\varepsilon)"
    else:
        assert isinstance(mechanism, ZcDp)
        rate = rates.frank_wolfe_rate(setting.problem, num_vertices, spec.dataset_size, count * mechanism.rho)
        formula = r"c\,[A + (L_1 M^2)^{1/3} A^{2/3}],\; A = L_0 M \ln K/(n\sqrt\rho)"
    return setting.order(
        "excess_risk_rate",
        rate,
        formula,
        "derived, by balancing",
        "the rate of the empirical risk, with the best number of steps",
    )


ALGORITHM = Algorithm(
    name="dp_fw",
    summary="Full-batch Frank-Wolfe over the l1 ball. Each step selects a vertex by report-noisy-max.",
    source=SOURCE,
    update=r"x_{t+1} = x_t + \tfrac{2}{t+2}(u - x_t),\quad "
    r"u = \arg\min_{v \in \{\pm D e_i\}} \langle v, \nabla F_S(x_t) \rangle - \lambda G_v",
    samplings=(FullBatch,),
    relations=(
        NeighboringRelation.REPLACE_ONE,
        NeighboringRelation.REPLACE_SPECIAL,
        NeighboringRelation.ADD_OR_REMOVE_ONE,
    ),
    gradient_bounds=(),
    gradient_bound_required=False,
    assumptions=ASSUMPTIONS,
    guarantee=(
        "Each selection is rho-zCDP, or epsilon-DP. Their costs add up, and the released point is a function of "
        "the selections."
    ),
    gradient_complexity="n T",
    has_pure_dp=True,
    norm_order=1.0,
    verdict=(
        "Unsound: the report-noisy-max of Guzman's talk scales its noise to the sensitivity of a single score, not "
        "to the range of the scores' changes. Its privacy loss is up to twice the stated epsilon."
    ),
    errata=ERRATA,
    calibrate=calibrate,
    scope=in_l1_ball(Shape.CONVEX, Measure.EMPIRICAL_RISK),
    example=Example(
        Spec(10_000, EXAMPLE_TARGET, dimension=100, assumptions={"lipschitz": 1.0, "smoothness": 0.5, "diameter": 2.0}),
        variants={
            "pure": {"target": ApproximateDpTarget(2.0, 0.0)},
            "linear losses": {"assumptions": {"lipschitz": 1.0, "smoothness": 0.0, "radius": 1.0}},
        },
    ),
    requests={
        "dp_fw_theorem": ExampleRequest(
            "Full-batch Frank-Wolfe over the l1 ball; the bound chooses the number of steps",
            {
                "dataset_size": 10000,
                "dimension": 50,
                "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-6},
                "assumptions": {"lipschitz": 2, "smoothness": 1, "radius": 1},
            },
        )
    },
)

r"""Private stochastic Frank-Wolfe over the l1 ball for smooth losses that need not be convex.

**Setting.** Consider losses over $\{\|x\|_1 \le D\}$, diameter $M = 2D$, with $\|\nabla f\|_\infty \le L_0$ and
$\|\nabla f(x) - \nabla f(y)\|_\infty \le L_1 \|x - y\|_1$, n independent records, and $F = E f$. The algorithm looks
for a point with a small gap $\max_{y} \langle \nabla F(x), x - y \rangle$, which is 0 if x is stationary.

**Update.** There is a single round of T steps, with $n_0 = \lfloor n/2 \rfloor$, $m = \lfloor (n-n_0)/T \rfloor$, $\eta
= 1/\sqrt T$, $x_0 = 0$;

    d_0 <- mean of grad f(x_0, .) over n_0 records
    t >= 1: d_t <- (1-eta)(d_{t-1} + mean of (grad f(x_t, .) - grad f(x_{t-1}, .))) + eta mean of grad f(x_t, .)
            over m fresh records
    u <- the vertex +-D e_i of least  <u, d_t> - lambda Gumbel;   x_{t+1} <- x_t + eta (u - x_t)

One of $x_0..x_{T-1}$ is released, drawn uniformly and independently of the data.

**Privacy.** A secret order gives every record slot to one step. The trainer clips gradients and their changes, so
privacy needs no property of the losses. The module `recursion` states the cost. If $\sigma$ is the noise multiplier of
all selections together, rho is $s^2/(2\sigma^2)$, and for delta = 0 (and for Gaussian DP) epsilon is $s/\sigma$. All
points follow from the selections, and the released point is drawn without looking at data.

**Utility.** The module `recursion` bounds the mean gap. If T is left out, it is the power of the square root of two,
rounded to an integer, with the smallest bound.
"""

from __future__ import annotations

import math

from accounting.errors import InvalidValue
from accounting.events import DisjointBatches, PureDp, ZcDp
from accounting.events.regularity import kappa_pair
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, PureDpTarget
from calibrators.algorithm import EXAMPLE_TARGET, Algorithm, Example, ExampleRequest
from calibrators.as_published import AsPublished, Verdict
from calibrators.bassily_guzman import rates
from calibrators.bassily_guzman.recursion import Recursion, mean_gap_bound
from calibrators.bassily_guzman.recursive_calibration import (
    RECURSIVE_ASSUMPTIONS,
    Solved,
    calibration,
    checked_step_size,
    refuse_what_has_no_part,
    shared_out,
    solve,
)
from calibrators.bassily_guzman.setting import Setting, read_setting
from calibrators.bassily_guzman.tree_utility import epsilon_and_delta
from calibrators.phases.recursive_selections import MAX_SELECTIONS
from calibrators.provenance import LOSS, Provenance, ProvenanceKind
from calibrators.release import RandomIterate
from calibrators.scopes import Measure, Shape, in_l1_ball
from calibrators.spec import Calibration, Spec

SOURCE = "Bassily, Guzman & Menart 2021, smooth losses over polyhedra (secondary); derived: one round, noise and bound"
BOUND_FORMULA = (
    r"\frac{\Gamma_0}{\eta T} + \frac1T \sum_{t<T} (M\sqrt{r_t} + \lambda \ln K) + \tfrac12 L_1 M^2 \eta,\;"
    r" r_0 = \tfrac{4\kappa L_0^2}{n_0},\; r_t = (1-\eta)^2 r_{t-1} + \tfrac{4\kappa c^2}{m}"
)
GAP_HOLDS = (
    "every loss is L_0-Lipschitz and L_1-smooth in the l1 norm; losses need not be convex",
    "records are independent draws from one distribution, and F is the expected loss under it",
    "the bound is on the gap max_y <grad F(x), x - y>, averaged over the random choice of the released point",
)
ERRATA = (
    "The published schedule has rounds of 2^i steps with falling step sizes, and its constants are known only "
    "from a secondary source. Here there is one round with one step size, and every constant is proved.",
    (
        "The paper does not say whether its l1 result is for pure or for approximate differential privacy; its "
        "rate has no delta. Here noise with pure DP has that rate, and noise with zCDP has a better rate in "
        "epsilon."
    ),
    (
        "In Guzman's talk, report-noisy-max uses Laplace noise of scale sensitivity over epsilon. This is only 2 "
        "epsilon-DP. Here the noise is Gumbel noise, scaled to the range of the scores' changes."
    ),
    "No lower bound on the gap is known, and none is given.",
)


def calibrate(spec: Spec) -> Calibration:
    """Calibrate the spec: the engine computes the noise. The number of steps is `iterations`; if it is left out, it is
    the number with the smallest bound.

    Raises:
        InvalidValue: If an assumption is unknown, missing or outside its range, or sizes do not fit each other.
        Unsupported: If a size is solved for, or if a penalty is given.
        Unreachable: If no noise meets the target.
    """
    refuse_what_has_no_part(spec)
    setting = read_setting(spec)
    solved = solve(spec)
    recursion = _recursion(spec, setting, solved)
    return calibration(
        ALGORITHM.name,
        SOURCE,
        spec,
        setting,
        recursion,
        solved,
        hyperparameters=_hyperparameters(spec, recursion),
        utility=_utility(spec, setting, recursion, solved),
        as_published=_as_published(spec),
        release=RandomIterate(),
    )


def steps_of(dataset_size: int, iterations: int, step_size: float | None = None) -> Recursion:
    """Return the schedule of T steps over n records. The step size is 1/sqrt(T) unless it is given.

    >>> steps_of(100_000, 100)
    Recursion(selections=100, first_batch=50000, batch=500, step_size=0.1)

    Raises:
        InvalidValue: If fewer records than steps are left after the first batch.
    """
    first = dataset_size // 2
    eta = 1.0 / math.sqrt(iterations) if step_size is None else checked_step_size(step_size)
    return Recursion(iterations, first, shared_out(dataset_size - first, iterations), eta)


def _recursion(spec: Spec, setting: Setting, solved: Solved) -> Recursion:
    """Return the schedule with the caller's number of steps, or with the number of steps that has the smallest
    bound.
    """
    if spec.iterations is not None:
        if not 2 <= spec.iterations <= MAX_SELECTIONS:
            raise InvalidValue(
                f"iterations must be in [2, {MAX_SELECTIONS}]; with a single step, the released point would be "
                "the start, which has no noise",
                pointer=("iterations",),
            )
        return steps_of(spec.dataset_size, spec.iterations, spec.step_size)
    if setting.num_vertices is None:
        raise InvalidValue(
            "give iterations, or give dimension, so that the number of steps with the smallest bound can be chosen",
            code="missing",
            pointer=("iterations",),
        )
    left = spec.dataset_size - spec.dataset_size // 2
    tried = sorted({round(2.0 ** (0.5 * power)) for power in range(2, 40)})
    tried = [count for count in tried if count <= min(left, MAX_SELECTIONS)]
    possible = [steps_of(spec.dataset_size, count, spec.step_size) for count in tried]
    if not possible:
        raise InvalidValue(
            "dataset_size must be at least 3: the first estimate and each of two steps need a record",
            pointer=("dataset_size",),
        )
    return min(possible, key=lambda recursion: _bound(setting, recursion, solved))


def _bound(setting: Setting, recursion: Recursion, solved: Solved) -> float:
    """Return the bound on the mean gap. The number of vertices must be known."""
    assert setting.num_vertices is not None, "called only if there are bounds"
    return mean_gap_bound(
        setting.problem,
        recursion,
        solved.noise_scale(setting, recursion),
        num_vertices=setting.num_vertices,
        kappa=kappa_pair(1.0, setting.regularity_dimension).kappa,
        initial_gap=setting.trivial_excess_risk,
    )


def _hyperparameters(spec: Spec, recursion: Recursion) -> tuple[Provenance, ...]:
    chosen = "T" if spec.iterations else r"\arg\min_T"
    formula = r"\eta = 1/\sqrt T" if spec.step_size is None else r"\eta"
    derived = ProvenanceKind.DERIVED
    return (
        Provenance("iterations", float(recursion.selections), chosen, SOURCE, derived),
        Provenance("step_size", recursion.step_size, formula, SOURCE, derived),
    )


def _utility(spec: Spec, setting: Setting, recursion: Recursion, solved: Solved) -> tuple[Provenance, ...]:
    if setting.num_vertices is None:
        return ()
    bound = _bound(setting, recursion, solved)
    certified = Provenance(
        "gradient_norm_bound",
        bound,
        BOUND_FORMULA,
        "derived",
        ProvenanceKind.DERIVED,
        GAP_HOLDS,
        vacuous=bound >= setting.problem.lipschitz * setting.problem.diameter,
        units=LOSS,
    )
    return (certified, *_orders(spec, setting, setting.num_vertices, solved))


def _orders(spec: Spec, setting: Setting, num_vertices: int, solved: Solved) -> list[Provenance]:
    """Return the rates that are known only up to a constant."""
    problem, n, mechanism = setting.problem, spec.dataset_size, solved.steps.event.mechanism

    if isinstance(mechanism, PureDp):
        rate = rates.pure_gap_rate(problem, num_vertices, n, mechanism.epsilon)
        formula = r"c\,(L_0 + L_1 M) M\,[n^{-1/3} + (\ln K/(n\varepsilon))^{1/3}]"
    else:
        assert isinstance(mechanism, ZcDp)
        rate = rates.gap_rate(problem, num_vertices, n, mechanism.rho)
        formula = r"c\,(L_0 + L_1 M) M\,[n^{-1/3} + (\ln K/(n\sqrt\rho))^{2/5}]"
    found = [
        setting.order("gradient_norm_rate", rate, formula, "derived, by balancing", "with the best number of steps")
    ]
    epsilon, _ = epsilon_and_delta(spec, solved.steps)
    if epsilon is not None and setting.dimension is not None:
        found.append(
            setting.order(
                "gradient_norm_rate_printed",
                rates.printed_gap_rate(problem, setting.dimension, n, epsilon),
                r"c\,L_0 M\,\ln^{2/3} d/(n\varepsilon)^{1/3}",
                "Bassily, Guzman & Menart 2021, abstract (secondary)",
                "as in Guzman's talk, in units of L_0 M",
            )
        )
    return found


def _as_published(spec: Spec) -> AsPublished | None:
    """Explain why nothing that the paper prints can be certified."""
    if not isinstance(spec.target, ApproximateDpTarget | PureDpTarget):
        return None
    why = (
        "The published schedule is known only from a secondary source, which does not specify constants and "
        "logarithms. So there is no printed noise to certify."
    )
    source = "Bassily, Guzman & Menart 2021, algorithm for polyhedra (secondary source)"
    formula = r"\eta_t = 1/\sqrt{t+1},\quad b_t = \lfloor b/(t+1) \rfloor,\quad b = n/\ln^2 n"
    return AsPublished(Verdict.UNSOUND, why, source, formula)


ALGORITHM = Algorithm(
    name="private_sfw_nonconvex_l1",
    summary="Frank-Wolfe over the l1 ball in one pass, towards a stationary point of smooth losses, convex or not.",
    source=SOURCE,
    update=r"d_t = (1-\eta)(d_{t-1} + \bar\Delta_t) + \eta \bar g_t,\quad x_{t+1} = x_t + \eta(u - x_t),\quad "
    r"u = \arg\min_{v \in \{\pm D e_i\}} \langle v, d_t \rangle - \lambda G_v",
    samplings=(DisjointBatches,),
    relations=(NeighboringRelation.REPLACE_ONE, NeighboringRelation.REPLACE_SPECIAL),
    gradient_bounds=(),
    gradient_bound_required=False,
    assumptions=RECURSIVE_ASSUMPTIONS,
    guarantee=(
        "All selections together are rho-zCDP, or epsilon-DP. The released point is a function of them, so it has "
        "the same guarantee."
    ),
    gradient_complexity="n_0 + 2 (T-1) m",
    has_pure_dp=True,
    norm_order=1.0,
    verdict="Counted as unsound: the published constants are not specified, so there is nothing to certify.",
    errata=ERRATA,
    calibrate=calibrate,
    scope=in_l1_ball(Shape.NONCONVEX, Measure.STATIONARITY),
    example=Example(
        Spec(
            100_000, EXAMPLE_TARGET, dimension=100, assumptions={"lipschitz": 1.0, "smoothness": 0.5, "diameter": 2.0}
        ),
        variants={"pure": {"target": ApproximateDpTarget(2.0, 0.0)}, "own steps": {"iterations": 100}},
    ),
    requests={
        "private_sfw_nonconvex_l1_theorem": ExampleRequest(
            "Frank-Wolfe towards a stationary point in the l1 ball, for losses that need not be convex",
            {
                "dataset_size": 100000,
                "dimension": 100,
                "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-6},
                "assumptions": {"lipschitz": 1, "smoothness": 1, "radius": 1},
            },
        )
    },
)

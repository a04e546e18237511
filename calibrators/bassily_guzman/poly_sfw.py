r"""Stochastic Frank-Wolfe over the l1 ball in one pass. Each record corrects a gradient estimate a little.

**Setting.** Minimise $F(x) = E f(x, z)$ over $\{\|x\|_1 \le D\}$, diameter $M = 2D$, from n independent records; every
$f(\cdot, z)$ is convex, $\|\nabla f\|_\infty \le L_0$ and $\|\nabla f(x) - \nabla f(y)\|_\infty \le L_1 \|x - y\|_1$.

**Update.** $x_0 = 0$, $n_0 = \lfloor n/2 \rfloor$, K = 2d vertices:

    d_0 <- mean of grad f(x_0, .) over n_0 records
    t >= 1: d_t <- (1-eta)(d_{t-1} + mean of (grad f(x_t, .) - grad f(x_{t-1}, .))) + eta mean of grad f(x_t, .)
            over m fresh records
    u <- the vertex +-D e_i of least  <u, d_t> - lambda Gumbel;   x_{t+1} <- x_t + eta (u - x_t)

The last point is released. By default, as in the paper, m = 1, $\eta = \ln(n/\ln K)/n$, and there are as many steps as
records left. If `iterations` gives T, then $m = \lfloor (n - n_0)/(T-1) \rfloor$ and $\eta = \min\{1, m \ln(n/\ln
K)/n\}$. With this $\eta$, the start has about the same weight after all steps as in the paper.

**Privacy.** A secret order, drawn without looking at data, gives every record slot to one step. The trainer clips
gradients and their changes, so privacy needs no property of the losses. The module `recursion` states the cost;
$\lambda$ is the same for all steps. If $\sigma$ is the noise multiplier of all selections together, rho is
$s^2/(2\sigma^2)$, and for delta = 0 (and for Gaussian DP) epsilon is $s/\sigma$.

**Utility.** The bound follows from the module `recursion`. For delta = 0 and steps on single records, the noise does
not fall with n and every bound is vacuous. Then give `iterations`, or use `tree_sfw_l1`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from accounting.errors import InvalidValue
from accounting.events import DisjointBatches, ZcDp
from accounting.events.regularity import kappa_pair
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.algorithm import EXAMPLE_TARGET, Algorithm, Example, ExampleRequest, StepCount
from calibrators.as_published import AsPublished
from calibrators.bassily_guzman import rates
from calibrators.bassily_guzman.printed_poly_sfw import SOURCE, printed_calibration
from calibrators.bassily_guzman.recursion import Recursion, excess_risk_bound
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
from calibrators.bassily_guzman.tree_utility import PAPER, RISK_HOLDS, epsilon_and_delta
from calibrators.phases.recursive_selections import MAX_SELECTIONS
from calibrators.provenance import LOSS, Provenance, ProvenanceKind
from calibrators.scopes import Measure, Shape, in_l1_ball
from calibrators.spec import Calibration, Spec, Unknown

BOUND_FORMULA = (
    r"\Gamma_{t+1} = (1-\eta)\Gamma_t + \eta(M\sqrt{r_t} + \lambda \ln K) + \tfrac12 L_1 M^2 \eta^2,\;"
    r" r_0 = \tfrac{4\kappa L_0^2}{n_0},\; r_t = (1-\eta)^2 r_{t-1} + \tfrac{4\kappa c^2}{m}"
)
ERRATA = (
    "The privacy proof composes all selections as if a record took full part in each of them. It uses advanced "
    "composition without the residual term, which at epsilon 1 would add 1.8 per cent to epsilon. In fact, a "
    "record's part shrinks geometrically, so the printed noise is many times larger than needed. The field "
    "literal of an answer states how many times.",
    (
        "Lemma 5 gives 2 L_0 / n as the sensitivity of the first gradient. The sensitivity is 4 L_0 / n. The "
        "paper's bound on the range of the scores over the diameter makes up for this factor of 2."
    ),
    "Guzman's talk has a radius in place of the diameter. With a radius, the lemma is false.",
    (
        "The paper uses Laplace noise. Here the noise is Gumbel noise, which costs a quarter of the rho and has a "
        "smaller regret."
    ),
    (
        "The error bound of Lemma 6 grows like the square root of t. Here the bound approaches a limit, and has M "
        "in place of the paper's 2 M."
    ),
    "For an odd number of records, the first printed scale is too small by the factor n / (n - 1).",
)
#: Up to this number of records, each step takes m = 1 record. For larger n, m grows as (n / this number)^2. This keeps
#: rounding errors below the margin that a trainer leaves.
SINGLE_RECORDS = 1 << 19


def calibrate(spec: Spec) -> Calibration:
    """Calibrate the spec: the engine computes the noise. The step size and the number of steps are the paper's unless
    they are given.

    Raises:
        InvalidValue: If an assumption is unknown, missing or outside its range, or sizes do not fit each other.
        Unsupported: If a size is solved for, or if a penalty is given.
        Unreachable: If no noise meets the target.
    """
    refuse_what_has_no_part(spec)
    setting = read_setting(spec)
    recursion = _recursion(spec, setting)
    solved = solve(spec)
    scale = solved.noise_scale(setting, recursion)
    return calibration(
        ALGORITHM.name,
        SOURCE,
        spec,
        setting,
        recursion,
        solved,
        hyperparameters=_hyperparameters(spec, recursion),
        utility=_utility(spec, setting, recursion, scale, solved),
        as_published=_as_published(spec, setting, solved),
    )


def _recursion(spec: Spec, setting: Setting) -> Recursion:
    """Return the number of steps, the batch sizes and the step size."""
    n, first = spec.dataset_size, spec.dataset_size // 2
    if spec.iterations is None:
        batch = max(1, math.ceil((n / SINGLE_RECORDS) ** 2))
        selections = 1 + (n - first) // batch
    else:
        if spec.iterations > MAX_SELECTIONS:
            raise InvalidValue(f"iterations must be at most {MAX_SELECTIONS}", pointer=("iterations",))
        selections = spec.iterations
        batch = shared_out(n - first, selections - 1)
    return Recursion(selections, first, batch, _step_size(spec, setting, batch))


def _step_size(spec: Spec, setting: Setting, batch: int) -> float:
    if spec.step_size is not None:
        return checked_step_size(spec.step_size)
    if setting.num_vertices is None:
        raise InvalidValue(
            "dimension is needed if step_size is left out, because the paper's step size depends on the number "
            "of vertices",
            code="missing",
            pointer=("dimension",),
        )
    share = spec.dataset_size / math.log(setting.num_vertices)
    if share <= 1.0:
        raise InvalidValue(
            "the paper's step size ln(n / ln K) / n is positive only for more than ln K = "
            f"{math.log(setting.num_vertices):.6g} records; give a step_size",
            code="too_few_records",
            pointer=("dataset_size",),
        )
    return min(1.0, batch * math.log(share) / spec.dataset_size)


def _hyperparameters(spec: Spec, recursion: Recursion) -> tuple[Provenance, ...]:
    own = recursion.batch == 1
    exact, derived = ProvenanceKind.EXACT, ProvenanceKind.DERIVED
    formula = r"\eta = \ln(n/\ln K)/n" if own else r"\eta = \min\{1, m \ln(n/\ln K)/n\}"
    given = spec.step_size is not None
    return (
        Provenance("iterations", float(recursion.selections), "T = 1 + (n - n_0)/m", SOURCE, derived),
        Provenance(
            "step_size",
            recursion.step_size,
            r"\eta" if given else formula,
            SOURCE if own or given else f"{SOURCE}; derived for batches",
            exact if own or given else derived,
        ),
    )


def _utility(
    spec: Spec, setting: Setting, recursion: Recursion, scale: float, solved: Solved
) -> tuple[Provenance, ...]:
    if setting.num_vertices is None:
        return ()
    bound = excess_risk_bound(
        setting.problem,
        recursion,
        scale,
        num_vertices=setting.num_vertices,
        kappa=kappa_pair(1.0, setting.regularity_dimension).kappa,
        initial_gap=setting.trivial_excess_risk,
    )
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
    return (certified, *_orders(spec, setting, setting.num_vertices, solved))


def _orders(spec: Spec, setting: Setting, num_vertices: int, solved: Solved) -> list[Provenance]:
    """Return the rates that are known only up to a constant."""
    epsilon, delta = epsilon_and_delta(spec, solved.steps)
    n, known, found = spec.dataset_size, ("known only up to the factor order_constant",), []
    is_zcdp = isinstance(solved.steps.event.mechanism, ZcDp)
    if is_zcdp and epsilon is not None and 0.0 < delta < 1.0 and n > math.log(num_vertices):
        rate = rates.poly_sfw_rate(setting.problem, num_vertices, n, epsilon, delta)
        found.append(
            Provenance(
                "excess_risk_rate",
                setting.order_constant * rate,
                r"c\,M (L_1 M + L_0) \ln K \ln(n/\ln K) \sqrt{\ln(1/\delta)} / (\varepsilon\sqrt n)",
                f"{PAPER}, Theorem 4",
                ProvenanceKind.ORDER,
                known,
                units=LOSS,
            )
        )
    if setting.dimension is not None:
        small = delta < 1.0 / n
        bound = rates.lower_bound_rate(setting.problem, setting.dimension, n, epsilon if small else None)
        found.append(
            Provenance(
                "lower_bound_rate",
                setting.order_constant * bound,
                r"c\,L_0 D\,(\sqrt{\ln d/n} + \min\{\sqrt d/(\varepsilon n), (\ln d/(\varepsilon n))^{2/3}\})",
                "Asi, Feldman, Koren & Talwar 2021, abstract (secondary)",
                ProvenanceKind.ORDER,
                (*known, "the second term is included only for a target in epsilon with delta below 1/n"),
                units=LOSS,
            )
        )
    return found


def _as_published(spec: Spec, setting: Setting, solved: Solved) -> AsPublished | None:
    """Return the paper's own calibration. It is for replaced records, whatever the relation of the spec."""
    if setting.num_vertices is None or spec.unknown is not Unknown.NOISE_MULTIPLIER:
        return None

    def needed() -> float:
        if spec.relation is NeighboringRelation.REPLACE_ONE:
            return solved.steps.noise_multiplier
        return solve(replace(spec, neighboring_relation=NeighboringRelation.REPLACE_ONE)).steps.noise_multiplier

    judged = needed if spec.judge_published else None
    return printed_calibration(spec.target, setting.problem, setting.num_vertices, spec.dataset_size, judged)


ALGORITHM = Algorithm(
    name="poly_sfw",
    summary=(
        "Frank-Wolfe over the l1 ball in one pass. Each record corrects a gradient estimate, and report-noisy-max "
        "selects vertices."
    ),
    source=SOURCE,
    update=r"d_t = (1-\eta)(d_{t-1} + \nabla f(x_t, z_t) - \nabla f(x_{t-1}, z_t)) + \eta \nabla f(x_t, z_t),\quad "
    r"x_{t+1} = x_t + \eta(u - x_t),\quad u = \arg\min_{v \in \{\pm D e_i\}} \langle v, d_t \rangle - \lambda G_v",
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
    verdict=(
        "Loose: for the usual targets, the printed noise is many times larger than needed, because a record's part "
        "in later selections shrinks. The verdict is computed for each request."
    ),
    errata=ERRATA,
    fewer_steps=StepCount.ITERATIONS,
    calibrate=calibrate,
    scope=in_l1_ball(Shape.CONVEX, Measure.POPULATION_RISK),
    example=Example(
        Spec(
            200_000, EXAMPLE_TARGET, dimension=100, assumptions={"lipschitz": 1.0, "smoothness": 0.5, "diameter": 2.0}
        ),
        variants={
            "pure": {"target": ApproximateDpTarget(2.0, 0.0), "iterations": 200},
            "own step": {"iterations": 300, "step_size": 0.01},
        },
    ),
    requests={
        "poly_sfw_theorem": ExampleRequest(
            "Frank-Wolfe over the l1 ball in one pass, with an estimate that every record corrects",
            {
                "dataset_size": 200000,
                "dimension": 50,
                "target": {"kind": "approximate_dp", "epsilon": 2, "delta": 1e-6},
                "assumptions": {"lipschitz": 1, "smoothness": 0.5, "radius": 1},
            },
        )
    },
)

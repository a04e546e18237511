r"""Noisy Frank-Wolfe over an l_p ball, 1 < p <= 2, in one pass. It uses variance-reduced gradients and generalised
Gaussian noise.

**Setting.** Minimise $F(x) = E f(x, z)$ over $\{\|x\|_p \le D\}$, diameter $M = 2D$, from n independent records; every
$f(\cdot, z)$ is convex, $\|\nabla f\|_q \le L_0$ and $\|\nabla f(x) - \nabla f(y)\|_q \le L_1 \|x - y\|_p$.

**Update.** From $x_0 = 0$, $x_{t+1} = (1-\eta_t) x_t + \eta_t v_t$. Here $v_t$ is the point of the ball that minimises
$\langle d_t, v\rangle$, and $d_t$ is an estimate of $\nabla F(x_t)$. The last point is released. `variant` chooses the
estimate:

    naive        d_0 = mean gradient of n0 records + noise; d_t = d_{t-1} + mean change over m fresh ones + noise
    prefix_tree  the same sums; the noise is that of the nodes of a binary tree over the steps, popcount(t) of them
    batch_tree   the trees of Asi, Feldman, Koren & Talwar 2021, with noise on what each node reads

with $n_0 = \lfloor n/2 \rfloor$, $T = \lfloor\sqrt n\rfloor$ steps after the first, $m = \lfloor (n-n_0)/T \rfloor$ and
$\eta = \ln n/(2\sqrt n)$ in the first two; with another T, $\eta = \ln n/(2T)$, at most 1. The trees of batches are as
in `tree_sfw_l1`, with b records at a root and step sizes 2/(k+2).

**Privacy.** Gradients are clipped to $L_0$ in l_q, changes to $\min(2 L_0, L_1 \|x - x'\|_p)$, which is at most $c =
\min(2 L_0, L_1 \eta M)$ from one step to the next and $c_j$ at depth j of a tree. A secret order gives each slot to one
mean. With noise of scale $\sqrt\kappa\,c/m$ times the noise multiplier $\sigma$, the mean that reads a record costs
this record $\rho = s^2/(2\sigma^2)$ (`generalized_gaussian`). Here s = 2 if the record is replaced, and s = 1 if it
becomes the null record. Means of other records cost it nothing. In a prefix tree, a change is part of at most $h =
\lfloor\log_2 T\rfloor + 1$ nodes, so the noise at the nodes is $\sqrt h$ times as large. Nodes are released as they are
completed, and later changes depend on a record only through released nodes.

**Utility.** The recursions of `estimate_risk` give the bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from accounting.errors import InvalidValue
from accounting.events import DisjointBatches
from accounting.relations import NeighboringRelation
from calibrators.algorithm import EXAMPLE_TARGET, Algorithm, Example, ExampleRequest
from calibrators.as_published import AsPublished
from calibrators.bassily_guzman import lp_rates
from calibrators.bassily_guzman.estimate_risk import excess_risk_bound, tree_excess_risk_bound
from calibrators.bassily_guzman.generalized_gaussian import Releases, noise_scale, refuse_pure_dp
from calibrators.bassily_guzman.lp_setting import (
    SMOOTH_ASSUMPTIONS,
    LpSetting,
    read_lp_setting,
    refuse_what_has_no_part,
)
from calibrators.bassily_guzman.printed_lp_noise import PAPER, naive_as_published, unknown_as_published
from calibrators.bassily_guzman.tree import Trees, possible_trees
from calibrators.geometry import LpBall
from calibrators.noise import Steps, calibration_of, solve_steps
from calibrators.phases.gradient_estimates import MAX_ESTIMATES, EstimatePhase
from calibrators.phases.gradient_trees import GradientTreePhase
from calibrators.provenance import GRADIENT, LOSS, Provenance, ProvenanceKind
from calibrators.refusals import refuse, unread
from calibrators.scopes import Measure, Shape, in_lp_ball
from calibrators.spec import Calibration, Spec

PREFIX_TREE, NAIVE, BATCH_TREE = VARIANTS = ("prefix_tree", "naive", "batch_tree")
SOURCE = f"{PAPER}, Algorithm 3; trees of the extended version and of Asi, Feldman, Koren & Talwar 2021"
SIZES_SOURCE = f"{PAPER}, Algorithm 3"
TREE_SOURCE = "derived; trees of Asi, Feldman, Koren & Talwar 2021"
TREE_FORMULA = r"\sigma_j \propto c_j\, 2^j / b"
SCALE_FORMULAS = {
    NAIVE: r"(\sqrt\kappa\,(L_0/n_0)\,\sigma,\; \sqrt\kappa\,(\min(2 L_0, L_1 \eta M)/m)\,\sigma)",
    PREFIX_TREE: r"(\sqrt\kappa\,(L_0/n_0)\,\sigma,\; \sqrt{\kappa h}\,(\min(2 L_0, L_1 \eta M)/m)\,\sigma)",
    BATCH_TREE: r"\sigma_j = \sqrt\kappa\, c_j\, (2^j/b)\, \sigma,\; j = 0, \ldots, T",
}
RISK_HOLDS = (
    "every loss is convex, L_0-Lipschitz and L_1-smooth in the l_p norm",
    "records are independent draws from one distribution, and F is the expected loss under it",
)
ERRATA = (
    "For p near 1 the paper takes kappa = 2 ln d, which is not a regularity constant: at p = 1 it is below the "
    "constant of every l_r norm. Here kappa is the minimum over r of (r - 1) d^(2/r - 2/q), and the noise uses "
    "the minimising r.",
    (
        "The paper sets kappa and kappa_+ by separate minima, which need not belong to the same norm. Here they "
        "are chosen together."
    ),
    (
        "The printed sigma^2 = 2 kappa ln(1/delta) Delta^2/epsilon^2 does not follow from its proof, and is too "
        "small above epsilon 5 or 6. Here the noise is computed from rho."
    ),
    (
        "The paper prints 2 L_0/n as the sensitivity of the first gradient, which averages n/2 records. The "
        "sensitivity is 4 L_0/n."
    ),
    "Algorithm 3 uses e^2 ln d where section 2 has e^2 (ln d - 1). The latter is negative for d <= 2.",
    (
        "The constants of the trees in the extended version were not available. They are derived here, without "
        "amplification by shuffling."
    ),
)


@dataclass(frozen=True, slots=True)
class Layout:
    """The number of steps, the batch sizes and the step size. They determine which records a step reads, before any
    noise is added.

    Attributes:
        iterations: The number T of steps.
        first_batch, batch: The batch sizes n0 and m.
        step_size: The step size eta.
    """

    iterations: int
    first_batch: int
    batch: int
    step_size: float


def calibrate(spec: Spec) -> Calibration:
    """Calibrate the spec: the engine computes the noise, the sizes are the paper's, and the number of trees minimises
    the bound.

    Raises:
        InvalidValue: If an assumption or the dimension is missing or outside its range, or sizes do not fit the
            records.
        NoCostInFilter: If the target is of pure or Gaussian DP.
        Unsupported: If a size is solved for; if a penalty is given; or if a step size is given for the variant with
            trees of batches.
        Unreachable: If no noise meets the target.
    """
    refuse_what_has_no_part(spec)
    refuse_pure_dp(spec)
    setting = read_lp_setting(spec, SMOOTH_ASSUMPTIONS)
    steps = solve_steps(spec, Releases(spec.relation, each=False), iterations=1, batch_size=1)
    phase = _trees(spec, setting, steps) if spec.variant == BATCH_TREE else _estimates(spec, setting, steps)
    return calibration_of(
        ALGORITHM.name,
        spec,
        steps,
        phase,
        noise_scales=phase.noise_scale,
        domain=setting.domain,
        hyperparameters=_hyperparameters(spec, phase, steps.noise_multiplier),
        utility=_utility(spec, setting, phase, steps),
        warnings=_warnings(spec, phase),
        as_published=_as_published(spec, setting),
    )


def layout(spec: Spec) -> Layout:
    """Return the layout for the variants without trees of batches.

    >>> from accounting.targets import ZcdpTarget
    >>> layout(Spec(40_000, ZcdpTarget(1.0)))
    Layout(iterations=200, first_batch=20000, batch=100, step_size=0.02649158683274018)
    """
    n = spec.dataset_size
    if n < 4:
        raise InvalidValue(f"dataset_size must be at least 4, got {n}", pointer=("dataset_size",))
    refuse(spec, batch_size="the batch sizes follow from dataset_size and iterations: leave batch_size out")
    first = n // 2
    iterations = math.isqrt(n) if spec.iterations is None else spec.iterations
    if iterations > min(n - first, MAX_ESTIMATES - 1):
        raise InvalidValue(
            "every step needs at least one record that no other step reads: at most "
            f"{min(n - first, MAX_ESTIMATES - 1)} iterations fit",
            pointer=("iterations",),
        )
    spread = math.sqrt(n) if iterations == math.isqrt(n) else iterations
    step_size = min(1.0, math.log(n) / (2.0 * spread)) if spec.step_size is None else spec.step_size
    if step_size > 1.0:
        raise InvalidValue(
            "step_size must be at most 1, because it is the share of the way to a point of the ball; got "
            f"{step_size:g}",
            pointer=("step_size",),
        )
    return Layout(iterations, first, (n - first) // iterations, step_size)


def _estimates(spec: Spec, setting: LpSetting, steps: Steps) -> EstimatePhase:
    sizes, problem = layout(spec), setting.problem
    change = min(2.0 * problem.lipschitz, problem.smoothness * sizes.step_size * problem.diameter)
    tree = spec.variant == PREFIX_TREE
    multiplier = steps.noise_multiplier
    return EstimatePhase(
        event=steps.event,
        estimator="prefix_tree" if tree else "sums",
        norm_order=setting.norm_order,
        noise_order=setting.regularity.r,
        estimates=sizes.iterations + 1,
        first_batch=sizes.first_batch,
        batch=sizes.batch,
        first_scale=noise_scale(setting.regularity, problem.lipschitz, sizes.first_batch, multiplier),
        scale=noise_scale(
            setting.regularity, change, sizes.batch, multiplier, sizes.iterations.bit_length() if tree else 1
        ),
        lipschitz=problem.lipschitz,
        smoothness=problem.smoothness,
        step_size=sizes.step_size,
    )


def _trees(spec: Spec, setting: LpSetting, steps: Steps) -> GradientTreePhase:
    """Return the layout with the smallest bound among the layouts that the caller's sizes allow."""
    refuse(
        spec,
        step_size=(
            "step_size cannot be chosen, because the privacy of trees is proved for the step sizes 2/(k+2): leave "
            "step_size out"
        ),
    )
    if spec.batch_size is not None and spec.batch_size.bit_count() != 1:
        raise InvalidValue(
            f"batch_size must be a power of two, got {spec.batch_size}: it is the number of records at the root "
            "of a tree, and is halved at every depth",
            pointer=("batch_size",),
        )
    possible = possible_trees(spec.dataset_size, spec.batch_size)
    if not possible:
        raise InvalidValue(
            "there are too few records for one tree: a tree needs 3/2 times as many records as its root, and a "
            "root has at least 2",
            pointer=("dataset_size" if spec.batch_size is None else "batch_size",),
        )
    if spec.iterations is not None:
        possible = [trees for trees in possible if trees.num_trees == spec.iterations]
        if not possible:
            raise InvalidValue(
                f"iterations, the number of trees, is too large at {spec.iterations}: with T trees a root needs "
                "at least 2^T records, and each record is read only once",
                pointer=("iterations",),
            )
    phases = [_tree_phase(setting, trees, steps) for trees in possible]
    return min(phases, key=lambda phase: tree_excess_risk_bound(setting, phase))


def _tree_phase(setting: LpSetting, trees: Trees, steps: Steps) -> GradientTreePhase:
    scales = [
        noise_scale(
            setting.regularity,
            setting.problem.contribution_bound(depth),
            trees.records_per_tree >> depth,
            steps.noise_multiplier,
        )
        for depth in range(trees.num_trees + 1)
    ]
    return GradientTreePhase(
        event=steps.event,
        norm_order=setting.norm_order,
        noise_order=setting.regularity.r,
        num_trees=trees.num_trees,
        records_per_tree=trees.records_per_tree,
        scales=tuple(scales),
        lipschitz=setting.problem.lipschitz,
        smoothness=setting.problem.smoothness,
    )


def _hyperparameters(
    spec: Spec, phase: EstimatePhase | GradientTreePhase, noise_multiplier: float
) -> tuple[Provenance, ...]:
    derived, exact = ProvenanceKind.DERIVED, ProvenanceKind.EXACT
    scales = SCALE_FORMULAS[str(spec.variant)]
    found = [
        Provenance("noise_scale", phase.noise_scale, scales, f"{PAPER}, section 3; derived", derived, units=GRADIENT),
        Provenance(
            "noise_multiplier",
            noise_multiplier,
            r"\rho = s^2/(2\sigma^2)",
            "derived",
            derived,
            ("s is 2 under replace_one and 1 under replace_special",),
        ),
    ]
    if isinstance(phase, GradientTreePhase):
        chosen = r"\arg\min_T \Gamma" if spec.iterations is None else "T"
        return (
            *found,
            Provenance("iterations", float(phase.num_trees), chosen, TREE_SOURCE, derived, ("number of trees",)),
            Provenance(
                "batch_size",
                float(phase.records_per_tree),
                r"b = 2^{\lfloor \log_2 (n / (T + T(T+1)/4)) \rfloor} \ge 2^T",
                TREE_SOURCE,
                derived,
                ("records at the root of a tree",),
            ),
        )
    found += [
        Provenance("iterations", phase.estimates - 1.0, r"T = \lfloor\sqrt n\rfloor", SIZES_SOURCE, exact),
        Provenance(
            "batch_size",
            (float(phase.first_batch), float(phase.batch)),
            r"n_0 = \lfloor n/2 \rfloor,\; m = \lfloor (n - n_0)/T \rfloor",
            SIZES_SOURCE,
            exact,
        ),
    ]
    if spec.step_size is None:
        formula = r"\eta = \min(1, \ln(n)/(2\sqrt n))\ \text{or}\ \min(1, \ln(n)/(2T))"
        found.append(Provenance("step_size", phase.step_size, formula, f"{SIZES_SOURCE}; derived", derived))
    return tuple(found)


def _utility(
    spec: Spec, setting: LpSetting, phase: EstimatePhase | GradientTreePhase, steps: Steps
) -> tuple[Provenance, ...]:
    if isinstance(phase, GradientTreePhase):
        bound, eta = tree_excess_risk_bound(setting, phase), r"\eta_t = \tfrac{2}{t+2}"
        evaluations = Trees(phase.num_trees, phase.records_per_tree).gradient_evaluations
        formula, source = r"b \sum_{\tau=1}^{T} (1 + \tau)", TREE_SOURCE
    else:
        bound, eta = excess_risk_bound(setting, phase), r"\eta_t = \eta"
        evaluations = phase.first_batch + 2 * (phase.estimates - 1) * phase.batch
        formula, source = "n_0 + 2 T m", SIZES_SOURCE
    found = [
        Provenance(
            "excess_risk_bound",
            bound,
            r"\Gamma_{t+1} = (1-\eta_t)\Gamma_t + \eta_t M\sqrt{r_t} + \tfrac12 L_1 M^2\eta_t^2,\; " + eta,
            f"{PAPER}, section 5; derived",
            ProvenanceKind.DERIVED,
            RISK_HOLDS,
            vacuous=bound >= setting.trivial_gap,
            units=LOSS,
        ),
        *smooth_orders(spec, setting, steps),
        Provenance("gradient_evaluations", float(evaluations), formula, source, ProvenanceKind.EXACT),
    ]
    return tuple(found)


def smooth_orders(spec: Spec, setting: LpSetting, steps: Steps) -> list[Provenance]:
    """Return the rates that are known only up to a constant, at the target's epsilon and delta."""
    asked = lp_rates.epsilon_and_delta(spec, steps)
    if asked is None:
        return []
    (epsilon, delta), problem, n, d = asked, setting.problem, spec.dataset_size, setting.dimension
    amplitude = (problem.lipschitz + problem.smoothness * problem.diameter) * problem.diameter
    found = [
        lp_rates.order(
            setting,
            "excess_risk_rate",
            amplitude * lp_rates.smooth_rate(setting.regularity.kappa, d, n, epsilon),
            r"(L_0 + L_1 M) M [\sqrt{\kappa/n} + \kappa\sqrt d/(\varepsilon n)]",
            lp_rates.TALK,
            "the rate of the variants with trees, without logarithms",
        )
    ]
    if spec.variant == NAIVE:
        printed = lp_rates.naive_rate(setting, n, epsilon, delta)
        found[0] = lp_rates.order(
            setting,
            "excess_risk_rate",
            printed,
            r"[(\kappa L_0 M + L_1 M^2 \ln n)/\sqrt n"
            r" + \kappa L_1 M^2 \ln n \sqrt{d \ln(1/\delta)}/(\varepsilon n^{3/4})]",
            f"{PAPER}, Theorem 9",
            "its second term",
        )
    if 1.0 < setting.norm_order < 2.0:
        small = delta < 1.0 / n
        value = lp_rates.population_lower_bound(setting.norm_order, d, n, epsilon if small else None)
        found.append(
            lp_rates.order(
                setting,
                "lower_bound_rate",
                problem.lipschitz * setting.radius * value,
                r"L_0 D \max\{1/\sqrt n, (p-1)\sqrt d/(\varepsilon n)\}",
                f"{PAPER}, Theorem 18",
                "for 1 < p < 2; the second term is included only for delta below 1/n",
            )
        )
    return found


def _warnings(spec: Spec, phase: EstimatePhase | GradientTreePhase) -> list[str]:
    if isinstance(phase, GradientTreePhase):
        read = Trees(phase.num_trees, phase.records_per_tree).records
    else:
        read = phase.first_batch + (phase.estimates - 1) * phase.batch
    return unread(spec, read, "all batches have the same size")


def _as_published(spec: Spec, setting: LpSetting) -> AsPublished | None:
    if spec.variant == NAIVE:
        return naive_as_published(spec, setting)
    return unknown_as_published(spec, f"{PAPER}, extended version (secondary)", TREE_FORMULA)


ALGORITHM = Algorithm(
    name="noisy_sfw_lp",
    summary="Frank-Wolfe over an l_p ball in one pass, with variance-reduced gradients and generalised Gaussian noise.",
    source=SOURCE,
    update=r"x \leftarrow (1-\eta) x + \eta \arg\min_{\|v\|_p \le D} \langle v, d_t \rangle",
    samplings=(DisjointBatches,),
    relations=(NeighboringRelation.REPLACE_ONE, NeighboringRelation.REPLACE_SPECIAL),
    gradient_bounds=(),
    gradient_bound_required=False,
    assumptions=SMOOTH_ASSUMPTIONS,
    guarantee=(
        "All noisy estimates together are rho-zCDP. The released point is a function of them, so it has the same "
        "guarantee. There is no pure epsilon."
    ),
    gradient_complexity=r"n_0 + 2 T m,\ \text{or}\ b \sum_{\tau=1}^{T} (1 + \tau)",
    verdict=(
        "The naive variant is sound up to about epsilon 5 if the printed kappa is a regularity constant, and "
        "unsound if kappa is 2 ln d. For the variants with trees there is nothing to certify, because their "
        "constants are not known."
    ),
    errata=ERRATA,
    calibrate=calibrate,
    scope=in_lp_ball(Shape.CONVEX, Measure.POPULATION_RISK),
    example=Example(
        Spec(
            40_000,
            EXAMPLE_TARGET,
            dimension=30,
            assumptions={"norm_order": 1.5, "lipschitz": 2.0, "smoothness": 1.0, "radius": 1.0},
        ),
        variants={
            "naive": {"variant": "naive"},
            "batch trees": {"variant": "batch_tree"},
            "given ball": {
                "domain": LpBall(2.0, 1.0),
                "assumptions": {"lipschitz": 2.0, "smoothness": 1.0, "initial_gap": 1.5},
            },
        },
    ),
    requests={
        f"noisy_sfw_lp_{variant}": ExampleRequest(
            f"Noisy Frank-Wolfe in an l_1.5 ball, {words}",
            {
                "variant": variant,
                "dataset_size": 40000,
                "dimension": 30,
                "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-6},
                "assumptions": {"norm_order": 1.5, "lipschitz": 2, "smoothness": 1, "radius": 1},
            },
        )
        for variant, words in (
            ("prefix_tree", "prefix sums of noisy changes of the gradient"),
            ("naive", "the paper's sums of noisy changes, with a verdict on its noise"),
            ("batch_tree", "trees of batches, with the best number of trees"),
        )
    },
    variants=VARIANTS,
)

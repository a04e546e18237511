r"""Full-batch private Frank-Wolfe for generalised linear losses over the l1 ball, with a smoothed scalar link.

**Setting.** Minimise $F(x) = E\, \ell_y(\langle a, x \rangle)$ over $\{\|x\|_1 \le D\}$, diameter $M = 2D$, from n
records $(a_i, y_i)$. Every link $\ell_y$ is convex and $\ell_0$-Lipschitz on the logits that the ball admits, and
$\|a\|_\infty \le R_a$, so every loss is $L_0 = \ell_0 R_a$-Lipschitz. Losses need not be smooth: hinge, absolute and
quantile losses are not.

**Update.** The link is replaced by its Moreau envelope $\ell^\beta(m) = \min_u \ell(u) + \tfrac\beta2 (u - m)^2$, whose
derivative is $\beta (m - u^*)$, where $u^*$ is the minimiser. This derivative is at most $\ell_0$ in size and changes
by at most $\beta$ times the change of m, and $0 \le \ell - \ell^\beta \le \ell_0^2/(2\beta)$. So the smoothed losses
are $L_0$-Lipschitz and $\beta R_a^2$-smooth. Then $x_0 = 0$ and, for $t = 0..T-1$,

    u <- the vertex +-D e_i of least  <u, grad F_S^beta(x_t)> - lambda Gumbel;   x_{t+1} <- x_t + 2/(t+2) (u - x_t)

The point $x_T$ is released. The plan carries $\beta$.

**Privacy.** The analysis is that of `dp_fw`. Every record's gradient is clipped to $\|\cdot\|_\infty \le L_0$, so
privacy does not depend on the smoothing.

**Utility.** With $\lambda$ the scale of the Gumbel noise and $K = 2d$ vertices,

$$E F(x_T) - \min F \le \frac{\ell_0^2}{2\beta} + \frac{2 \beta R_a^2 M^2}{T+2} + \lambda \ln K
+ 2 L_0 D \sqrt{\frac{2 \ln(2d)}{n}}.$$

The first term is the effect of smoothing, and the next two are Frank-Wolfe's gap on the smoothed empirical risk. The
last term is twice the Rademacher complexity of the losses over the ball. It bounds the expected difference between
population risk and empirical risk at a point that may depend on the records in any way. For T steps the best smoothing
is $\beta = \ell_0 \sqrt{T+2}/(2 R_a M)$, and the first two terms then add up to $2 L_0 M/\sqrt{T+2}$. The default T is
the integer with the smallest bound, of order $n \sqrt\rho/\ln K$. This takes about $n^2$ gradients, for a risk of order
$(\ln K/(n \sqrt\rho))^{1/2} + (\ln d/n)^{1/2}$.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from accounting.errors import InvalidValue
from accounting.events import FullBatch, PureDp, ZcDp
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.algorithm import (
    EXAMPLE_TARGET,
    Algorithm,
    Assumption,
    Example,
    ExampleRequest,
    Given,
    read_assumptions,
)
from calibrators.bassily_guzman import rates
from calibrators.bassily_guzman.dp_fw import (
    CAPPED,
    best_iterations,
    empirical_risk_bound,
    last_useful,
    most_steps,
    noise_scale,
    one_step_scale,
    refuse_what_has_no_part,
    uncapped,
)
from calibrators.bassily_guzman.printed_selection import printed_calibration
from calibrators.bassily_guzman.selection import Selections, checked_scales, expected_regret, is_pure, multiplier
from calibrators.bassily_guzman.setting import ASSUMPTIONS as SMOOTH_ASSUMPTIONS
from calibrators.bassily_guzman.setting import Setting, setting_of
from calibrators.bassily_guzman.tree import Problem
from calibrators.noise import Steps, calibration_of, solve_steps
from calibrators.phases.smoothed_vertex_steps import SmoothedVertexSteps
from calibrators.provenance import LOSS, Provenance, ProvenanceKind
from calibrators.scopes import Measure, Shape, in_l1_ball
from calibrators.spec import Calibration, Spec

SOURCE = (
    "after Bassily, Guzman & Menart 2021 (arXiv 2107.05585), generalised linear losses (secondary source); all "
    "constants are derived"
)
BOUND_FORMULA = (
    r"E F(x_T) - \min F \le \frac{\ell_0^2}{2\beta} + \frac{2 \beta R_a^2 M^2}{T+2} + \lambda \ln K"
    r" + 2 L_0 D \sqrt{\tfrac{2 \ln(2d)}{n}}"
)
RISK_HOLDS = (
    "every loss is a convex function (link) of the logit <a, x>, and l_0-Lipschitz on the logits that the ball allows",
    ("every record's features, including the constant 1 of an intercept, are at most L_0 / l_0 in absolute value"),
    (
        "records are independent and identically distributed; the bound is on the population risk of the original "
        "loss, not of the smoothed one"
    ),
)
ERRATA = (
    "Only quoted rates of the paper were available for generalised linear losses, not its text. So the "
    "constants and the calibration are derived here. The algorithm takes about n^2 gradients; the paper says "
    "'super-linear time'.",
    (
        "Guzman's talk states that its report-noisy-max is epsilon-DP. It is only 2 epsilon-DP, because scores of "
        "opposite vertices move apart. Here the noise is Gumbel noise, scaled to the range of the scores' changes."
    ),
)
ASSUMPTIONS = (
    *(item for item in SMOOTH_ASSUMPTIONS if item.name not in ("smoothness", "num_vertices")),
    Assumption(
        "link_lipschitz",
        r"\ell_0",
        LOSS,
        "every record's loss changes by at most l_0 times the change of its logit, for all logits that the "
        "domain allows; features are then assumed to be at most lipschitz / link_lipschitz in absolute value",
        open_lower=True,
        required=False,
    ),
    Assumption(
        "smoothing",
        r"\beta",
        LOSS,
        "the parameter of the link's Moreau envelope, in losses per squared logit; if left out, the value with "
        "the smallest bound",
        open_lower=True,
        required=False,
    ),
)


@dataclass(frozen=True, slots=True)
class Link:
    """The known facts about the links.

    Attributes:
        lipschitz: The constant l_0, in losses per logit.
        features: The bound R_a on the absolute value of a feature, in logits per unit of a parameter.
    """

    lipschitz: float
    features: float


def calibrate(spec: Spec) -> Calibration:
    """Calibrate the spec: the engine computes the noise. The smoothing and the number of steps minimise the bound
    unless they are given.

    Raises:
        InvalidValue: If an assumption is unknown, missing or outside its range, or sizes do not fit each other.
        Unsupported: If a size is solved for, or if a penalty or a step size is given.
        Unreachable: If no noise meets the target.
    """
    refuse_what_has_no_part(spec)
    given, pure = read_assumptions(ASSUMPTIONS, spec.assumptions), is_pure(spec)
    setting = setting_of(spec, given, 0.0)
    slope = given.get("link_lipschitz")
    link = None if slope is None else Link(slope, setting.problem.lipschitz / slope)
    iterations = spec.iterations or _best_iterations(spec, setting, link, given.get("smoothing"), pure)
    smoothing = _smoothing(given, link, setting.problem.diameter, iterations)
    steps = solve_steps(
        spec, Selections(pure, spec.relation, per_step=True), iterations=iterations, batch_size=spec.dataset_size
    )
    [scale] = checked_scales([noise_scale(setting.problem, spec.dataset_size, steps.noise_multiplier, pure)])
    phase = SmoothedVertexSteps(steps.event, spec.dataset_size, scale, setting.problem.lipschitz, smoothing)
    wanted = (("dimension", setting.num_vertices), ("link_lipschitz", link))
    return calibration_of(
        ALGORITHM.name,
        spec,
        steps,
        phase,
        noise_scales=(scale,),
        domain=setting.domain,
        hyperparameters=_hyperparameters(spec, setting, given, link, phase, pure, steps),
        utility=_utility(spec, setting, link, phase),
        missing=tuple(name for name, known in wanted if known is None),
        as_published=printed_calibration(spec, iterations),
    )


def best_smoothing(link: Link, diameter: float, iterations: int) -> float:
    r"""Return the smoothing with the smallest bound, $\beta = \ell_0 \sqrt{T+2}/(2 R_a M)$, in losses per squared
    logit.

    >>> round(best_smoothing(Link(1.0, 1.0), 2.0, 2000), 9)
    11.185928661
    """
    return link.lipschitz * math.sqrt(iterations + 2.0) / (2.0 * link.features * diameter)


def smoothed_risk_bound(
    link: Link, diameter: float, smoothing: float, iterations: int, scale: float, num_vertices: int
) -> float:
    """Return the bound on the expected gap of the empirical risk, in loss units. The risk is that of the original
    losses, not of the smoothed ones.

    Source: derived in the docstring of this module.

    >>> round(smoothed_risk_bound(Link(1.0, 1.0), 2.0, 20.0, 2000, 0.0405, 100), 9)
    0.291429472
    """
    problem = Problem(link.lipschitz * link.features, smoothing * link.features**2, diameter)
    return link.lipschitz**2 / (2.0 * smoothing) + empirical_risk_bound(problem, iterations, scale, num_vertices)


def generalisation_gap(lipschitz: float, radius: float, num_vertices: int, dataset_size: int) -> float:
    r"""Return $2 L_0 D \sqrt{2 \ln K/n}$, a bound on the expected difference between population and empirical risk. It
    follows from symmetrisation, contraction and Massart's lemma over the $K = 2d$ vertices.

    >>> round(generalisation_gap(1.0, 1.0, 100, 10_000), 13)
    0.0606970851754
    """
    return 2.0 * lipschitz * radius * math.sqrt(2.0 * math.log(num_vertices) / dataset_size)


def best_iterations_smoothed(lipschitz: float, diameter: float, regret: float, power: float, most: int) -> int:
    r"""Return the integer $T$ from 1 to ``most`` that minimises $2 L_0 M/\sqrt{T+2} + r_1 T^p$.

    Above $(T+2)^{p+1/2} = L_0 M/(p r_1)$ the sum rises, so only smaller integers are tried.

    Args:
        lipschitz: The Lipschitz constant L_0.
        diameter: The diameter M.
        regret: The regret r_1 of one step.
        power: The exponent p: 1/2 if rhos add up, 1 if epsilons do.
        most: The largest T.
    """
    error = 2.0 * lipschitz * diameter
    last = min(float(most), _last_useful_smoothed(lipschitz, diameter, regret, power) + 1.0)
    tried = np.arange(1.0, max(1, math.floor(last)) + 1.0)
    return 1 + int(np.argmin(error / np.sqrt(tried + 2.0) + regret * tried**power))


def _last_useful_smoothed(lipschitz: float, diameter: float, regret: float, power: float) -> float:
    """Return the number of steps above which the sum of `best_iterations_smoothed` rises."""
    return math.pow(lipschitz * diameter / (power * regret), 1.0 / (power + 0.5))


def _last_useful(spec: Spec, setting: Setting, link: Link | None, smoothing: float | None, pure: bool) -> Provenance:
    scale, power = one_step_scale(spec, setting, pure)
    assert setting.num_vertices is not None, "as was checked"
    problem = setting.problem
    if smoothing is None or link is None:
        regret = expected_regret(scale, setting.num_vertices)
        steps = _last_useful_smoothed(problem.lipschitz, problem.diameter, regret, power)
        return uncapped(steps, r"(L_0 M / (p r_1))^{1/(p + 1/2)}")
    smooth = replace(problem, smoothness=smoothing * link.features**2)
    steps = last_useful(smooth, setting.num_vertices, scale, power)
    return uncapped(steps, r"(2 L_1 M^2 / (p \lambda_1 \ln K))^{1/(1+p)}")


def _best_iterations(spec: Spec, setting: Setting, link: Link | None, smoothing: float | None, pure: bool) -> int:
    """Return the number of steps with the smallest bound, computed from the noise that one step would need."""
    scale, power = one_step_scale(spec, setting, pure)
    assert setting.num_vertices is not None, "as was checked"
    problem = setting.problem
    if smoothing is None:
        regret = expected_regret(scale, setting.num_vertices)
        return best_iterations_smoothed(problem.lipschitz, problem.diameter, regret, power, most_steps(spec))
    if link is None:
        raise _missing_link("the number of steps with the smallest bound")
    smooth = replace(problem, smoothness=smoothing * link.features**2)
    return best_iterations(smooth, setting.num_vertices, scale, power, most_steps(spec))


def _smoothing(given: Given, link: Link | None, diameter: float, iterations: int) -> float:
    smoothing = given.get("smoothing")
    if smoothing is not None:
        return smoothing
    if link is None:
        raise _missing_link("the smoothing with the smallest bound")
    return best_smoothing(link, diameter, iterations)


def _missing_link(what: str) -> InvalidValue:
    return InvalidValue(
        f"link_lipschitz is needed to choose {what}; instead, you can give both iterations and assumptions.smoothing",
        code="missing",
        pointer=("assumptions", "link_lipschitz"),
    )


def _hyperparameters(
    spec: Spec, setting: Setting, given: Given, link: Link | None, phase: SmoothedVertexSteps, pure: bool, steps: Steps
) -> tuple[Provenance, ...]:
    derived = ProvenanceKind.DERIVED
    noise = r"\lambda = \sigma L_0 M/n" if pure else r"\lambda = \tfrac{\sigma}{2} L_0 M/n"
    smoothing = r"\beta" if given.get("smoothing") is not None else r"\beta = \frac{\ell_0 \sqrt{T+2}}{2 R_a M}"
    capped = spec.iterations is None and phase.steps == most_steps(spec)
    chosen = "T" if spec.iterations else r"\arg\min_T"
    return (
        Provenance("noise_scale", phase.gumbel_scale, noise, SOURCE, derived, units=LOSS),
        multiplier(
            steps.noise_multiplier,
            pure,
            SOURCE,
            "the noise of one step; s is 2 under replace_one, and 1 under replace_special and add_or_remove_one",
        ),
        Provenance(
            "smoothing", phase.smoothing, smoothing, SOURCE, derived, ("in losses per squared logit",), units=LOSS
        ),
        Provenance("iterations", float(phase.steps), chosen, SOURCE, derived, (CAPPED,) if capped else ()),
        Provenance("batch_size", float(spec.dataset_size), "n", SOURCE, derived),
        *((_last_useful(spec, setting, link, given.get("smoothing"), pure),) if capped else ()),
    )


def _utility(spec: Spec, setting: Setting, link: Link | None, phase: SmoothedVertexSteps) -> tuple[Provenance, ...]:
    evaluations = Provenance(
        "gradient_evaluations", float(phase.steps * spec.dataset_size), "n T", SOURCE, ProvenanceKind.EXACT
    )
    if setting.num_vertices is None:
        return (evaluations,)
    rate = _rate(spec, setting, setting.num_vertices, phase)
    if link is None:
        return (rate, evaluations)
    problem, vertices = setting.problem, setting.num_vertices
    bound = smoothed_risk_bound(
        link, problem.diameter, phase.smoothing, phase.steps, phase.gumbel_scale, vertices
    ) + generalisation_gap(problem.lipschitz, problem.diameter / 2.0, vertices, spec.dataset_size)
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
    return (certified, rate, evaluations)


def _rate(spec: Spec, setting: Setting, num_vertices: int, phase: SmoothedVertexSteps) -> Provenance:
    mechanism, count = phase.event.mechanism, phase.event.count
    if isinstance(mechanism, PureDp):
        rate = rates.pure_generalized_linear_rate(
            setting.problem, num_vertices, spec.dataset_size, count * mechanism.epsilon
        )
        formula = r"c\, L_0 M\,[(\ln K/(n\varepsilon))^{1/3} + (\ln K/n)^{1/2}]"
    else:
        assert isinstance(mechanism, ZcDp)
        rate = rates.generalized_linear_rate(setting.problem, num_vertices, spec.dataset_size, count * mechanism.rho)
        formula = r"c\, L_0 M\,[(\ln K/(n\sqrt\rho))^{1/2} + (\ln K/n)^{1/2}]"
    return setting.order(
        "excess_risk_rate",
        rate,
        formula,
        "derived, by balancing",
        "with the best smoothing and the best number of steps",
    )


ALGORITHM = Algorithm(
    name="generalized_linear_l1",
    summary="Full-batch Frank-Wolfe over the l1 ball with smoothed links, for hinge, absolute and quantile losses.",
    source=SOURCE,
    update=r"x_{t+1} = x_t + \tfrac{2}{t+2}(u - x_t),\quad "
    r"u = \arg\min_{v \in \{\pm D e_i\}} \langle v, \nabla F_S^\beta(x_t) \rangle - \lambda G_v,\quad "
    r"\ell^\beta(m) = \min_u \ell(u) + \tfrac{\beta}{2} (u - m)^2",
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
        "Unsound: the paper prints only rates for generalised linear losses. The report-noisy-max of Guzman's talk "
        "scales its noise to the sensitivity of a single score, not to the range of the scores' changes. Its "
        "privacy loss is up to twice the stated epsilon."
    ),
    errata=ERRATA,
    calibrate=calibrate,
    scope=in_l1_ball(Shape.CONVEX, Measure.POPULATION_RISK, needs_smoothness=False),
    example=Example(
        Spec(
            10_000,
            EXAMPLE_TARGET,
            dimension=100,
            assumptions={"lipschitz": 1.0, "link_lipschitz": 0.5, "diameter": 2.0},
        ),
        variants={
            "pure": {"target": ApproximateDpTarget(2.0, 0.0)},
            "own smoothing": {
                "assumptions": {"lipschitz": 1.0, "link_lipschitz": 0.5, "radius": 1.0, "smoothing": 4.0}
            },
        },
    ),
    requests={
        "generalized_linear_l1_theorem": ExampleRequest(
            "Frank-Wolfe over the l1 ball on a smoothed hinge; the bound chooses smoothing and steps",
            {
                "dataset_size": 10000,
                "dimension": 50,
                "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-6},
                "assumptions": {"lipschitz": 1, "link_lipschitz": 1, "radius": 1},
            },
        )
    },
)

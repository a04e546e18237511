"""This module states the utility of a plan of proximal rounds: the recommended numbers, and bounds on how far the
released point is from stationary.
"""

from __future__ import annotations

from calibrators.bassily_guzman.proximal_point import closeness_rate
from calibrators.bassily_guzman.proximal_setting import ProximalSetting
from calibrators.phases.proximal_phases import ProximalPhase
from calibrators.provenance import GRADIENT, LOSS, PARAMETER, PURE, SMOOTHNESS, Provenance, ProvenanceKind
from calibrators.spec import Spec

PAPER = "Bassily, Guzman & Menart 2021"
SECONDARY = "secondary source"
_DERIVED = f"{PAPER}, talk ({SECONDARY}); derived"
CLOSENESS_FORMULA = r"\theta = \sqrt{\tfrac2\omega(\Gamma_0/R + a)}"
POPULATION_FORMULA = r"a = \tfrac{2 L_0^2}{\omega m} + \tfrac73 L_0 \sqrt{2 g/\omega}"
EMPIRICAL_FORMULA = r"g = \tfrac{2 (\tfrac73 L_0 + \sigma\sqrt d)^2}{\omega (T + 1)}"
HOLDS = (
    "every loss is L_0-Lipschitz and omega-weakly convex in the l2 norm, so that nothing is clipped",
    "records are independent draws from one distribution, and F is the expected loss under it",
)
_NEAR = (
    "the bound is on the distance from the released point to a nearly stationary point, averaged over the random "
    "choice of the released point"
)
_GAP = "the bound is on the mean of the gap max_y <g, x - y> at that nearby point x, where g is a subgradient of F at x"
_SLOPE = "the bound is on the mean length of a subgradient of F at that nearby point"


def recommended(spec: Spec, phase: ProximalPhase) -> tuple[Provenance, ...]:
    """Return the recommended sizes, the regulariser and the noise."""
    balanced = r"\lfloor\min\{\sqrt n, (n\varepsilon/\sqrt d)^{2/3}\}\rfloor"
    derived, exact = ProvenanceKind.DERIVED, ProvenanceKind.EXACT
    own_rounds, own_steps = spec.iterations is not None, "inner_iterations" in spec.assumptions
    found = [
        Provenance(
            "iterations",
            float(phase.rounds),
            "R" if own_rounds else balanced,
            _DERIVED,
            exact if own_rounds else ProvenanceKind.ORDER,
            ("the number of rounds; inner_iterations is the number of steps of each round",),
        ),
        Provenance("inner_iterations", float(phase.inner_iterations), "T" if own_steps else "T = m", _DERIVED, derived),
        Provenance("batch_size", float(phase.records), r"m = \lfloor n/R \rfloor", _DERIVED, exact),
        Provenance(
            "noise_stddev_on_mean",
            phase.noise_stddev_on_mean,
            r"\sigma = z\,C\sqrt T/m",
            "derived",
            derived,
            units=GRADIENT,
        ),
    ]
    if phase.regularizer is not None:
        found.append(
            Provenance("regularizer", phase.regularizer, r"\beta = 2\omega", _DERIVED, derived, units=SMOOTHNESS)
        )
    return tuple(found)


def utility(
    setting: ProximalSetting, phase: ProximalPhase, dataset_size: int, epsilon: float | None
) -> tuple[Provenance, ...]:
    """Return the bounds (if the constants are given and nothing is clipped), the rates and the number of gradients."""
    evaluations = Provenance(
        "gradient_evaluations", float(phase.gradient_evaluations), r"R\,m\,T", _DERIVED, ProvenanceKind.EXACT
    )
    if not setting.is_bounded:
        return (evaluations,)
    problem, gap, dimension = setting.problem, setting.initial_gap, setting.dimension
    assert problem is not None, "called only if no constant is missing"
    assert gap is not None, "called only if no constant is missing"
    assert dimension is not None, "called only if no constant is missing"
    empirical = problem.empirical_gap(phase.inner_iterations, phase.noise_stddev_on_mean, dimension)
    proved = problem.closeness(gap, phase.rounds, problem.population_gap(empirical, phase.records))
    expected = setting.order_constant * problem.closeness(gap, phase.rounds, empirical)
    found = [
        *_both(setting, proved, "bound", f"{CLOSENESS_FORMULA},\\; {POPULATION_FORMULA},\\; {EMPIRICAL_FORMULA}"),
        *_both(setting, expected, "rate", rf"c\,\theta,\; {CLOSENESS_FORMULA},\; a = {EMPIRICAL_FORMULA}"),
    ]
    if epsilon is not None:
        found.append(
            Provenance(
                "closeness_rate_printed",
                setting.order_constant * closeness_rate(dataset_size, dimension, epsilon),
                r"c\,(n^{-1/4} + (\sqrt d/(n\varepsilon))^{1/3})",
                f"{PAPER}, as quoted in Guzman's talk ({SECONDARY})",
                ProvenanceKind.ORDER,
                (
                    "known only up to the factor order_constant and logarithms",
                    ("the rate for problems whose constants are of order 1"),
                ),
                units=PURE,
            )
        )
    return (*found, evaluations)


def _both(setting: ProximalSetting, theta: float, ending: str, formula: str) -> tuple[Provenance, Provenance]:
    """Return bounds on the distance between the released point and its proximal point, and on how far the proximal
    point is from stationary.
    """
    problem = setting.problem
    assert problem is not None, "called only if there are bounds"
    proved = ending == "bound"
    kind = ProvenanceKind.DERIVED if proved else ProvenanceKind.ORDER
    unproved = "known only up to the factor order_constant; the generalisation error of a round is left out"
    holds = HOLDS if proved else (*HOLDS, unproved)
    width = setting.diameter
    farthest = problem.radius if width is None else min(problem.radius, width)
    closeness = Provenance(
        f"closeness_{ending}",
        theta,
        formula,
        _DERIVED,
        kind,
        (_NEAR, *holds),
        vacuous=theta >= farthest,
        units=PARAMETER,
    )
    stationarity = Provenance(
        f"gradient_norm_{ending}",
        problem.regularizer * theta * (1.0 if width is None else width),
        rf"\beta\theta,\; {formula}" if width is None else rf"\beta M \theta,\; {formula}",
        _DERIVED,
        kind,
        (_SLOPE if width is None else _GAP, *holds),
        # The bound is vacuous if it is at least L_0, because no subgradient is longer than L_0.
        vacuous=problem.regularizer * theta >= problem.lipschitz,
        units=GRADIENT if width is None else LOSS,
    )
    return closeness, stationarity

"""This module states the utility of tree Frank-Wolfe: the certified bound, the rates that are known only up to a
constant, and the number of gradients.
"""

from __future__ import annotations

import math

from accounting.events import PureDp, ZcDp
from accounting.events.regularity import kappa_pair
from accounting.targets import ApproximateDpTarget, PureDpTarget
from calibrators.bassily_guzman import rates
from calibrators.bassily_guzman.setting import Setting
from calibrators.bassily_guzman.tree import Trees, excess_risk_bound
from calibrators.noise import Steps
from calibrators.provenance import LOSS, Provenance, ProvenanceKind
from calibrators.spec import OpenDelta, OpenEpsilon, Spec

PAPER = "Bassily, Guzman & Nandi 2021"
LAYOUT_SOURCE = "derived; trees of Asi, Feldman, Koren & Talwar 2021"
BOUND_FORMULA = (
    r"\Gamma_{k+1} = (1-\eta_k)\Gamma_k + \eta_k (M\sqrt{r_k} + \lambda_\tau \ln K) + \tfrac12 L_1 M^2 \eta_k^2,\;"
    r" \eta_k = \tfrac{2}{k+2}"
)
RISK_HOLDS = (
    "every loss is convex, L_0-Lipschitz and L_1-smooth in the l1 norm",
    "records are independent draws from one distribution, and F is the expected loss under it",
)


def bound_of(setting: Setting, trees: Trees, scales: tuple[float, ...]) -> float:
    """Return the excess risk bound for this layout of trees and these noise scales. The number of vertices must be
    known.
    """
    assert setting.num_vertices is not None, "called only if there are bounds"
    return excess_risk_bound(
        setting.problem,
        trees,
        scales,
        num_vertices=setting.num_vertices,
        kappa=kappa_pair(1.0, setting.regularity_dimension).kappa,
    )


def utility(
    spec: Spec, setting: Setting, trees: Trees, scales: tuple[float, ...], steps: Steps
) -> tuple[Provenance, ...]:
    """Return the number of gradients and, if the number of vertices is known, the bound and the rates."""
    evaluations = Provenance(
        "gradient_evaluations",
        float(trees.gradient_evaluations),
        r"b \sum_{\tau=1}^{T} (1 + \tau)",
        LAYOUT_SOURCE,
        ProvenanceKind.EXACT,
    )
    if setting.num_vertices is None:
        return (evaluations,)
    bound = bound_of(setting, trees, scales)
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
    return (certified, *_orders(spec, setting, setting.num_vertices, steps), evaluations)


def _orders(spec: Spec, setting: Setting, num_vertices: int, steps: Steps) -> list[Provenance]:
    """Return the rates that are known only up to a constant."""
    problem, n = setting.problem, spec.dataset_size
    mechanism = steps.event.mechanism

    if isinstance(mechanism, PureDp):
        rate = rates.pure_tree_rate(problem, num_vertices, n, mechanism.epsilon)
        formula = r"c\,[A\sqrt{\ln K/n} + (L_1 M^2 A \ln K/(n\varepsilon))^{1/2}],\; A = (L_0 + L_1 M) M"
    else:
        assert isinstance(mechanism, ZcDp)
        rate = rates.tree_rate(problem, num_vertices, n, mechanism.rho)
        formula = r"c\,[A\sqrt{\ln K/n} + (L_1 M^2)^{1/3} (A \ln K/(n\sqrt\rho))^{2/3}],\; A = (L_0 + L_1 M) M"
    found = [setting.order("excess_risk_rate", rate, formula, "derived, by balancing")]
    epsilon, delta = epsilon_and_delta(spec, steps)
    dimension = setting.dimension
    if epsilon is not None and 0.0 < delta < 1.0:
        if dimension is not None:
            found.append(
                setting.order(
                    "excess_risk_rate_printed",
                    rates.tree_rate_as_printed(problem, dimension, n, epsilon, delta),
                    r"c\,[(L_0 D + L_1 D^2)\sqrt{\ln d/n}\ln n"
                    r" + L_1 D^2 (\ln d \ln^2 n \ln(1/\delta)/(\varepsilon n))^{2/3}]",
                    "Asi, Feldman, Koren & Talwar 2021, as quoted in Guzman's talk (secondary)",
                    "the rate as printed. Its second term vanishes as L_1 goes to 0, which is impossible; "
                    "excess_risk_rate is the corrected rate",
                )
            )
        if n > math.log(num_vertices):
            found.append(
                setting.order(
                    "poly_sfw_rate",
                    rates.poly_sfw_rate(problem, num_vertices, n, epsilon, delta),
                    r"c\,M (L_1 M + L_0) \ln K \ln(n/\ln K) \sqrt{\ln(1/\delta)} / (\varepsilon\sqrt n)",
                    f"{PAPER}, Theorem 4",
                    "for comparison: the rate of the authors' own algorithm, which has no trees",
                )
            )
    if dimension is not None:
        small = delta < 1.0 / n
        found.append(
            setting.order(
                "lower_bound_rate",
                rates.lower_bound_rate(problem, dimension, n, epsilon if small else None),
                r"c\,L_0 D\,(\sqrt{\ln d/n} + \min\{\sqrt d/(\varepsilon n), (\ln d/(\varepsilon n))^{2/3}\})",
                "Asi, Feldman, Koren & Talwar 2021, abstract (secondary)",
                "the second term is included only for a target in epsilon with delta below 1/n",
            )
        )
    return found


def epsilon_and_delta(spec: Spec, steps: Steps) -> tuple[float | None, float]:
    """Return the target's epsilon and delta, including the one that was solved for. The epsilon is None if the target
    has none.
    """
    found = steps.achieved.value.upper
    match spec.target:
        case ApproximateDpTarget(epsilon=epsilon, delta=delta):
            return epsilon, delta
        case PureDpTarget(epsilon=epsilon):
            return epsilon, 0.0
        case OpenEpsilon(delta=delta):
            return found if 0.0 < found < math.inf else None, delta
        case OpenDelta(epsilon=epsilon):
            return epsilon if epsilon > 0.0 else None, found
    return None, 0.0

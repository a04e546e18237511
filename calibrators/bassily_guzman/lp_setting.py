"""This module reads the caller's assumptions about Lipschitz losses over an l_p ball, 1 < p <= 2, and checks them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from accounting.errors import InvalidValue
from accounting.events.regularity import RegularityPair, kappa_pair
from calibrators.algorithm import Assumption, Given, read_assumptions
from calibrators.bassily_guzman.setting import SAME, agreed_diameter
from calibrators.bassily_guzman.tree import Problem
from calibrators.geometry import LpBall
from calibrators.provenance import GRADIENT, LOSS, PARAMETER, PURE, SMOOTHNESS
from calibrators.refusals import refuse
from calibrators.spec import Spec

NORM_ORDER = Assumption(
    "norm_order",
    "p",
    PURE,
    "the order p of the parameters' norm; gradients are measured in l_q, 1/p + 1/q = 1. An lp_ball as domain "
    "also gives it",
    lower=1.0,
    upper=2.0,
    open_lower=True,
    required=False,
)
LIPSCHITZ = Assumption(
    "lipschitz",
    "L_0",
    GRADIENT,
    "every record's gradient has l_q norm at most L_0 in the domain; longer gradients are clipped, so privacy "
    "holds even if this is false",
    open_lower=True,
)
SMOOTH = Assumption(
    "smoothness",
    "L_1",
    SMOOTHNESS,
    "between two points every record's gradient changes by at most L_1 times their l_p distance, in the l_q norm; "
    "longer changes are clipped",
)
SIZES = (
    Assumption(
        "diameter",
        "M",
        PARAMETER,
        "the largest l_p distance between two points of the ball",
        open_lower=True,
        required=False,
    ),
    Assumption(
        "radius",
        "D",
        PARAMETER,
        "the radius of the l_p ball, M/2; give either the radius or the diameter",
        open_lower=True,
        required=False,
    ),
    Assumption(
        "initial_gap",
        r"\Gamma_0",
        LOSS,
        "upper bound on F(x_0) - min F, in place of L_0 M",
        open_lower=True,
        required=False,
    ),
    Assumption(
        "order_constant",
        "c",
        PURE,
        "the factor of the rates, whose constants are unknown",
        open_lower=True,
        required=False,
        default=1.0,
    ),
)
SMOOTH_ASSUMPTIONS = (NORM_ORDER, LIPSCHITZ, SMOOTH, *SIZES)
LIPSCHITZ_ASSUMPTIONS = (NORM_ORDER, LIPSCHITZ, *SIZES)


@dataclass(frozen=True, slots=True)
class LpSetting:
    """The assumptions of a spec about losses and domain.

    Attributes:
        problem: The constants L_0, L_1 (0 if the algorithm does not use it) and M.
        norm_order: The order p of the norm of parameters.
        dimension: Number d of parameters.
        regularity: The regularity of the dual norm. It includes the smooth norm in which the noise is drawn.
        initial_gap: The caller's initial gap; None means L_0 M.
        order_constant: The constant c of the rates.
    """

    problem: Problem
    norm_order: float
    dimension: int
    regularity: RegularityPair
    initial_gap: float | None
    order_constant: float

    @property
    def radius(self) -> float:
        return self.problem.diameter / 2.0

    @property
    def domain(self) -> LpBall:
        return LpBall(self.norm_order, self.radius)

    @property
    def trivial_gap(self) -> float:
        """The bound on the excess risk that holds at the starting point, before any step."""
        largest = self.problem.lipschitz * self.problem.diameter
        return largest if self.initial_gap is None else min(largest, self.initial_gap)


def read_lp_setting(spec: Spec, known: Sequence[Assumption]) -> LpSetting:
    """Return the assumptions of a spec.

    Raises:
        InvalidValue: If an assumption is unknown or outside its range; if the dimension, or an assumption to which the
            noise is scaled, is missing (``missing``); if values of p, or sizes, contradict each other
            (``contradiction``); or if the domain is not an l_p ball.
    """
    given = read_assumptions(known, spec.assumptions)
    for name in given.missing:
        raise InvalidValue(
            f"{name} is needed because the privacy depends on it: gradients are clipped to it, and the noise is "
            "scaled to it",
            code="missing",
            pointer=("assumptions", name),
        )
    if spec.domain is not None and not isinstance(spec.domain, LpBall):
        raise InvalidValue(
            f"the domain must be an l_p ball with 1 < p <= 2, of kind lp_ball; got {spec.domain.kind}",
            code="unsupported_domain",
            pointer=("domain", "kind"),
        )
    dimension = spec.need(
        "dimension", "the noise is scaled to the regularity of the dual norm, which depends on the dimension"
    )
    order = _norm_order(given, spec.domain)
    return LpSetting(
        problem=Problem(
            given["lipschitz"],
            given.get("smoothness") or 0.0,
            agreed_diameter(given, spec.domain, "l_p ball", wanted="radius"),
        ),
        norm_order=order,
        dimension=dimension,
        regularity=kappa_pair(order, dimension),
        initial_gap=given.get("initial_gap"),
        order_constant=given["order_constant"],
    )


def refuse_what_has_no_part(spec: Spec) -> None:
    """Refuse specs that ask for something that l_p algorithms cannot do.

    Raises:
        Unsupported: If a size is solved for, or a penalty is given.
    """
    refuse(
        spec,
        sizes=(
            f"{spec.unknown} cannot be solved for, because both the step sizes and the noise depend on it. Solve "
            "for noise_multiplier, or for epsilon or delta with given noise"
        ),
        penalty="this algorithm cannot handle a penalty: leave penalty out",
    )


def _norm_order(given: Given, domain: LpBall | None) -> float:
    order = given.get("norm_order")
    if domain is None:
        if order is None:
            raise InvalidValue(
                "norm_order is needed: the p of the parameters' norm, above 1 and at most 2",
                code="missing",
                pointer=("assumptions", "norm_order"),
            )
        return order
    if domain.norm_order > 2.0:
        raise InvalidValue(
            f"norm_order must be at most 2, got {domain.norm_order:g}: for a larger p the dual norm is not "
            "regular enough for this noise. Use an l2 ball with this radius times d^(1/2 - 1/p)",
            pointer=("domain", "norm_order"),
        )
    if order is not None and abs(order - domain.norm_order) > SAME * order:
        raise InvalidValue(
            f"assumptions.norm_order is {order:g}, but the norm_order of the domain is {domain.norm_order:g}; "
            "give only one of them",
            code="contradiction",
            pointer=("assumptions", "norm_order"),
        )
    return domain.norm_order

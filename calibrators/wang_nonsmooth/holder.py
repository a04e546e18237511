"""This module reads the constants of a Hoelder-smooth problem from a request, and computes the gradient bound that
follows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from accounting.errors import InvalidValue, Unsupported
from calibrators.algorithm import Assumption, Given, read_assumptions
from calibrators.geometry import L2Ball
from calibrators.provenance import GRADIENT, LOSS, PARAMETER, PURE, SMOOTHNESS, Units
from calibrators.spec import Spec

PAPER = "Wang, Lei, Ying & Zhang 2022"

#: The constants from which G follows if `lipschitz` is not given.
HOLDER_NAMES = ("holder_exponent", "holder_constant", "gradient_at_zero")

ASSUMPTIONS = (
    Assumption(
        "radius",
        "R",
        PARAMETER,
        "the radius of the l2 ball around 0 in which parameters are kept; the ball must contain w*. You can "
        "also give a domain of kind l2_ball",
        upper=1e12,
        open_lower=True,
    ),
    Assumption(
        "holder_exponent",
        r"\alpha",
        PURE,
        "0 for a Lipschitz loss, 1 for a smooth loss; needed unless lipschitz is given. With only lipschitz, it is 0",
        upper=1.0,
    ),
    Assumption(
        "holder_constant",
        "L",
        Units(loss=1, parameter=-1, holder=-1),
        "every record's |g(w) - g(w')| <= L |w - w'|^alpha for all w, w' in R^d; needed unless lipschitz is given",
    ),
    Assumption(
        "gradient_at_zero",
        "M",
        GRADIENT,
        "the length of the longest gradient of a record at w = 0; needed unless lipschitz is given",
    ),
    Assumption(
        "lipschitz",
        "G",
        GRADIENT,
        "the length of the longest gradient of a record in the domain, in place of M + L R^alpha",
        open_lower=True,
        required=False,
    ),
    Assumption("loss_at_zero", "M_0", LOSS, "the largest loss of a record at w = 0; losses are never negative"),
    Assumption(
        "initial_distance",
        r"\|w_*\|",
        PARAMETER,
        "upper bound on the norm of the minimiser w*; if left out, R is used",
        required=False,
    ),
    Assumption(
        "failure_probability",
        r"\gamma",
        PURE,
        "the probability with which the utility bounds may fail; in (0, 1)",
        upper=math.nextafter(1.0, 0.0),
        open_lower=True,
    ),
    Assumption(
        "order_constant",
        "c",
        SMOOTHNESS,
        "the constant c that Theorem 12 leaves open: a factor c in the rate, and 1 / c in the step size",
        open_lower=True,
        required=False,
        default=1.0,
    ),
)


@dataclass(frozen=True, slots=True)
class HolderProblem:
    """The known constants of the problem. A constant is None if it is neither given nor implied by others.

    Attributes:
        gradient_norm: The bound G on the gradient of a record in the domain.
        exponent: The exponent alpha.
        constant: The constant L. A G-Lipschitz loss has alpha = 0 and L = 2 G.
        loss_at_zero: The bound M_0 on the loss at 0.
        gradient_at_zero: The bound M on the gradient at 0. If M is not given, G is used.
        radius: The radius R; None is all of R^d.
        distance: An upper bound on the norm of w*.
        failure_probability: The failure probability gamma.
        order_constant: The order constant c.
        missing: The names of the constants that the utility bounds need and that are missing.
    """

    gradient_norm: float | None
    exponent: float | None
    constant: float | None
    loss_at_zero: float | None
    gradient_at_zero: float | None
    radius: float | None
    distance: float | None
    failure_probability: float | None
    order_constant: float
    missing: tuple[str, ...]

    @property
    def is_lipschitz(self) -> bool:
        """Return whether gradients are bounded on all of R^d, so that no domain is needed (Remark 5)."""
        return self.exponent == 0.0 and self.gradient_norm is not None


def read_problem(spec: Spec) -> HolderProblem:
    """Return the constants of a spec.

    Raises:
        InvalidValue: If a constant is unknown or outside its range, the radius disagrees with the domain, w* lies
            outside it, or every gradient is 0.
        Unsupported: If the domain is not an l2 ball.
    """
    given = read_assumptions(ASSUMPTIONS, spec.assumptions, needed=[("dimension", spec.dimension)])
    radius = _radius(spec, given)
    missing = [name for name in given.missing if name != "radius" or radius is None]
    lipschitz, exponent, constant = given.get("lipschitz"), given.get("holder_exponent"), given.get("holder_constant")
    if lipschitz is not None:
        exponent = 0.0 if exponent is None else exponent
        constant = 2.0 * lipschitz if constant is None and exponent == 0.0 else constant
        needless = {"gradient_at_zero", "holder_exponent"} | ({"holder_constant"} if exponent == 0.0 else set())
        missing = [name for name in missing if name not in needless]
    gradient_at_zero = given.get("gradient_at_zero")
    distance = given.get("initial_distance")
    if distance is not None and radius is not None and distance > radius:
        raise InvalidValue(
            f"initial_distance must be at most the radius, {radius:g}: it bounds the norm of w*, and w* lies in "
            "the ball of this radius",
            pointer=("assumptions", "initial_distance"),
        )
    return HolderProblem(
        gradient_norm=_gradient_norm(lipschitz, exponent, constant, gradient_at_zero, radius),
        exponent=exponent,
        constant=constant,
        loss_at_zero=given.get("loss_at_zero"),
        gradient_at_zero=lipschitz if gradient_at_zero is None else gradient_at_zero,
        radius=radius,
        distance=radius if distance is None else distance,
        failure_probability=given.get("failure_probability"),
        order_constant=given["order_constant"],
        missing=tuple(missing),
    )


def gradient_norm_in_ball(gradient_at_zero: float, constant: float, exponent: float, radius: float) -> float:
    """Return G = M + L R^alpha, the longest gradient of a record in the ball of radius R.

    >>> round(gradient_norm_in_ball(1.5, 1.5, 0.5, 2.0), 9)
    3.621320344
    """
    return gradient_at_zero + constant * math.pow(radius, exponent)


def _radius(spec: Spec, given: Given) -> float | None:
    radius = given.get("radius")
    if spec.domain is None:
        return radius
    if not isinstance(spec.domain, L2Ball):
        raise Unsupported(
            f"the domain must be an l2_ball, not {spec.domain.kind}, because the theorem is about l2 balls around 0",
            code="unsupported_domain",
            pointer=("domain", "kind"),
        )
    if radius is not None and radius != spec.domain.radius:
        raise InvalidValue(
            f"assumptions.radius is {radius!r}, but the domain's radius is {spec.domain.radius!r}; give only "
            "one of them",
            code="overdetermined",
            pointer=("domain", "radius"),
        )
    return spec.domain.radius


def _gradient_norm(
    lipschitz: float | None,
    exponent: float | None,
    constant: float | None,
    gradient_at_zero: float | None,
    radius: float | None,
) -> float | None:
    if lipschitz is not None:
        return lipschitz
    if exponent is None or constant is None or gradient_at_zero is None:
        return None
    if constant == 0.0 and gradient_at_zero == 0.0:
        raise InvalidValue(
            "holder_constant and gradient_at_zero cannot both be 0, because then every gradient is 0",
            pointer=("assumptions", "gradient_at_zero"),
        )
    if exponent == 0.0:
        return gradient_at_zero + constant
    return None if radius is None else gradient_norm_in_ball(gradient_at_zero, constant, exponent, radius)


#: The constants in the examples of these algorithms.
EXAMPLE_CONSTANTS = {
    "radius": 2.0,
    "holder_exponent": 0.5,
    "holder_constant": 0.3,
    "gradient_at_zero": 0.5,
    "loss_at_zero": 1.0,
    "failure_probability": 0.05,
}

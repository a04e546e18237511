"""This module reads and checks the spec of the proximal algorithm, for weakly convex Lipschitz losses in an l2 ball or
without a domain.
"""

from __future__ import annotations

from dataclasses import dataclass

from accounting.errors import InvalidValue
from calibrators.algorithm import Assumption, Given, read_assumptions
from calibrators.bassily_guzman.proximal_point import ProximalProblem
from calibrators.bassily_guzman.setting import agreed_diameter
from calibrators.geometry import L2Ball
from calibrators.plan import Clip
from calibrators.provenance import GRADIENT, LOSS, PARAMETER, PURE, SMOOTHNESS
from calibrators.spec import Spec

_SMALLEST, _LARGEST = 1e-30, 1e30

ASSUMPTIONS = (
    Assumption(
        "lipschitz",
        "L_0",
        GRADIENT,
        "the length of the longest gradient of a record in the domain; gradients are clipped to "
        "gradient_bound, or to this number if gradient_bound is left out",
        lower=_SMALLEST,
        upper=1e12,
    ),
    Assumption(
        "weak_convexity",
        r"\omega",
        SMOOTHNESS,
        "every record's loss plus omega/2 |x|^2 is convex in the domain; any number above 0 for a convex loss",
        upper=_LARGEST,
    ),
    Assumption(
        "diameter",
        "M",
        PARAMETER,
        "the diameter of the domain, an l2 ball; without a diameter, a radius or a domain, parameters are not bounded",
        lower=_SMALLEST,
        upper=1e12,
        required=False,
    ),
    Assumption(
        "radius",
        "D",
        PARAMETER,
        "the radius of the l2 ball, M/2; give either the radius or the diameter",
        lower=_SMALLEST,
        upper=1e12,
        required=False,
    ),
    Assumption(
        "initial_gap",
        r"\Gamma_0",
        LOSS,
        "upper bound on F(x_0) - min F; the bounds use the smaller of this number and L_0 M, and need at least "
        "one of them",
        open_lower=True,
        required=False,
    ),
    Assumption(
        "inner_iterations",
        "T",
        PURE,
        "the number of steps of each round, a whole number; if left out, the number of records in a round",
        lower=2.0,
        upper=1e8,
        required=False,
    ),
    Assumption(
        "order_constant",
        "c",
        PURE,
        "the factor of rates that are known only up to a constant",
        open_lower=True,
        required=False,
        default=1.0,
    ),
)


@dataclass(frozen=True, slots=True)
class ProximalSetting:
    """The assumptions of a spec about losses and domain.

    Attributes:
        problem: The constants L_0 and omega; None if omega is not given. Without L_0, the clip threshold replaces it.
        missing: The names of numbers that the bounds need and that are missing. Empty if the bounds hold, or if
            clipping invalidates them.
        max_grad_norm: The bound C on a contribution.
        diameter: The diameter M; None if there is no domain.
        initial_gap: Upper bound of F(x_0) - min F; None if no bound is known.
        dimension: Number d of parameters.
        inner_iterations: The caller's number T of steps in a round.
        order_constant: The constant c of the rates.
        warnings: Warnings that bounds are left out.
    """

    problem: ProximalProblem | None
    missing: tuple[str, ...]
    max_grad_norm: float
    diameter: float | None
    initial_gap: float | None
    dimension: int | None
    inner_iterations: int | None
    order_constant: float
    warnings: tuple[str, ...]

    @property
    def domain(self) -> L2Ball | None:
        return None if self.diameter is None else L2Ball(self.diameter / 2.0)

    @property
    def is_bounded(self) -> bool:
        """Return whether the bounds hold for this setting."""
        return not (self.missing or self.warnings)


def read_proximal_setting(spec: Spec) -> ProximalSetting:
    """Return the assumptions of a spec.

    Raises:
        InvalidValue: If an assumption is unknown or outside its range; if there is neither a bound on gradients nor a
            Lipschitz constant (``missing``); if sizes contradict each other; if omega is 0; or if the domain is no l2
            ball.
    """
    given = read_assumptions(ASSUMPTIONS, spec.assumptions, needed=[("dimension", spec.dimension)])
    lipschitz, bound = given.get("lipschitz"), _bound(spec, given)
    omega, diameter = given.get("weak_convexity"), _diameter(spec, given)
    if omega is not None and omega < _SMALLEST:
        raise InvalidValue(
            f"weak_convexity must be at least {_SMALLEST:g}. A convex loss is weakly convex for every such "
            "number. For 0, use an algorithm for convex losses, such as localized_clipped_subgradient or "
            "noisy_mirror_descent",
            pointer=("assumptions", "weak_convexity"),
        )
    gap = _initial_gap(given, lipschitz, diameter)
    warnings: tuple[str, ...] = ()
    if lipschitz is not None and bound < lipschitz:
        warnings = (
            "gradient_bound is below lipschitz, so gradients may be clipped. The bounds do not cover clipping, "
            "so none is given.",
        )
    return ProximalSetting(
        problem=None if omega is None else ProximalProblem(bound if lipschitz is None else lipschitz, omega),
        missing=(*given.missing, *(("initial_gap",) if lipschitz is not None and gap is None else ())),
        max_grad_norm=bound,
        diameter=diameter,
        initial_gap=gap,
        dimension=spec.dimension,
        inner_iterations=_inner_iterations(given),
        order_constant=given["order_constant"],
        warnings=warnings,
    )


def _bound(spec: Spec, given: Given) -> float:
    """Return the request's clip threshold C. Without one, return L_0."""
    if isinstance(spec.gradient_bound, Clip):
        return spec.gradient_bound.max_grad_norm
    lipschitz = given.get("lipschitz")
    if lipschitz is None:
        raise InvalidValue(
            "gradient_bound is needed if lipschitz is left out, because gradients are clipped to it and the "
            "noise is scaled to it",
            code="missing",
            pointer=("gradient_bound",),
        )
    return lipschitz


def _diameter(spec: Spec, given: Given) -> float | None:
    """Return the diameter M from the assumptions or from the spec's domain, which must agree. None if neither is
    given.
    """
    if not isinstance(spec.domain, L2Ball | None):
        raise InvalidValue(
            f"the domain must be an l2 ball or left out; got {spec.domain.kind}. In other norms, the projection "
            "on the intersection of the domain and the ball around a round's start has no closed form, and "
            "near p = 1 weak convexity in l2 is not enough",
            code="unsupported_domain",
            pointer=("domain", "kind"),
        )
    if spec.domain is None and given.get("diameter") is None and given.get("radius") is None:
        return None
    return agreed_diameter(given, spec.domain, "l2 ball", wanted="radius")


def _initial_gap(given: Given, lipschitz: float | None, diameter: float | None) -> float | None:
    """Return the smaller of the stated gap and L_0 M; None if neither is known."""
    stated = given.get("initial_gap")
    known = [] if stated is None else [stated]
    if lipschitz is not None and diameter is not None:
        known.append(lipschitz * diameter)
    return min(known, default=None)


def _inner_iterations(given: Given) -> int | None:
    stated = given.get("inner_iterations")
    if stated is not None and not stated.is_integer():
        raise InvalidValue(
            f"inner_iterations must be an integer, got {stated!r}", pointer=("assumptions", "inner_iterations")
        )
    return None if stated is None else int(stated)

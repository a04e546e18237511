"""This module reads the caller's assumptions about Lipschitz and smooth losses over the l1 ball, and checks them."""

from __future__ import annotations

from dataclasses import dataclass

from accounting.errors import InvalidValue
from accounting.numbers import MAX_DIMENSION, read_integer
from calibrators.algorithm import Assumption, Given, read_assumptions
from calibrators.bassily_guzman.tree import Problem
from calibrators.geometry import L1Ball, L2Ball, LpBall
from calibrators.provenance import GRADIENT, LOSS, PARAMETER, PURE, SMOOTHNESS, Provenance, ProvenanceKind
from calibrators.spec import Spec

#: Two ways of giving the same length may differ by this relative amount.
SAME = 1e-12

ASSUMPTIONS = (
    Assumption(
        "lipschitz",
        "L_0",
        GRADIENT,
        "every record's gradient has l_inf norm at most L_0 in the domain; longer gradients are clipped, so "
        "privacy holds even if this is false",
        open_lower=True,
    ),
    Assumption(
        "smoothness",
        "L_1",
        SMOOTHNESS,
        "between two points every record's gradient changes by at most L_1 times their l1 distance, in the l_inf norm; "
        "longer changes are clipped",
    ),
    Assumption(
        "diameter",
        "M",
        PARAMETER,
        "the largest l1 distance between two points of the domain",
        open_lower=True,
        required=False,
    ),
    Assumption(
        "radius",
        "D",
        PARAMETER,
        "the radius of the l1 ball, M/2; give either the radius or the diameter",
        open_lower=True,
        required=False,
    ),
    Assumption(
        "num_vertices",
        "K",
        PURE,
        "the number of vertices of the domain; 2 d for the l1 ball",
        lower=2.0,
        required=False,
    ),
    Assumption(
        "initial_gap",
        r"\Gamma_0",
        LOSS,
        "upper bound on F(x_0) - min F, used in place of L_0 M. It only decides whether a bound is vacuous, "
        "because the first step makes the bound independent of the start",
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


@dataclass(frozen=True, slots=True)
class Setting:
    """The assumptions of a spec about losses and domain.

    Attributes:
        problem: The constants L_0, L_1 and M.
        dimension: Number d of parameters.
        num_vertices: The number of vertices K; by default 2 d; None if neither is known.
        initial_gap: The caller's initial gap; None means L_0 M.
        order_constant: The constant c of the rates.
    """

    problem: Problem
    dimension: int | None
    num_vertices: int | None
    initial_gap: float | None
    order_constant: float

    @property
    def domain(self) -> L1Ball:
        return L1Ball(self.problem.diameter / 2.0)

    @property
    def regularity_dimension(self) -> int:
        """The dimension in the regularity constant: d for the l1 ball, whose dual norm is l_inf^d, and K for another
        polytope.
        """
        assert self.num_vertices is not None, "called only if there are bounds"
        if self.dimension is not None and self.num_vertices == 2 * self.dimension:
            return self.dimension
        return self.num_vertices

    @property
    def trivial_excess_risk(self) -> float:
        """The bound on the excess risk that holds at the starting point, before any step."""
        largest = self.problem.lipschitz * self.problem.diameter
        return largest if self.initial_gap is None else min(largest, self.initial_gap)

    def order(self, name: str, value: float, formula: str, source: str, *holds: str) -> Provenance:
        """Return a number in loss units that is known only up to a constant, which the caller gives."""
        assumed = ("known only up to the factor order_constant", *holds)
        number = self.order_constant * value
        return Provenance(name, number, formula, source, ProvenanceKind.ORDER, assumed, units=LOSS)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return a warning if a run selects among other vertices than the bounds assume."""
        if self.num_vertices is None or self.dimension is None or self.num_vertices == 2 * self.dimension:
            return ()
        return (
            f"A run selects among the {2 * self.dimension} vertices of the l1 ball, but bounds and rates are "
            f"for num_vertices {self.num_vertices}.",
        )


def read_setting(spec: Spec) -> Setting:
    """Return the assumptions of a spec.

    Raises:
        InvalidValue: If an assumption is unknown or outside its range; if L_0, L_1 or the size of the domain is
            missing, from which the noise is computed (``missing``); or if sizes contradict each other
            (``contradiction``).
    """
    given = read_assumptions(ASSUMPTIONS, spec.assumptions)
    return setting_of(spec, given, given.get("smoothness"))


def setting_of(spec: Spec, given: Given, smoothness: float | None) -> Setting:
    """Return the setting of a spec from its assumptions and the smoothness L_1 of its losses.

    Raises:
        InvalidValue: As `read_setting` does.
    """
    for name in given.missing:
        raise InvalidValue(
            f"{name} is needed because the privacy depends on it: gradients are clipped to it, and the noise is "
            "scaled to it",
            code="missing",
            pointer=("assumptions", name),
        )
    assert smoothness is not None, "missing constants have been refused"
    vertices = given.get("num_vertices")
    return Setting(
        problem=Problem(given["lipschitz"], smoothness, _diameter(spec, given)),
        dimension=spec.dimension,
        num_vertices=_num_vertices(vertices, spec.dimension),
        initial_gap=given.get("initial_gap"),
        order_constant=given["order_constant"],
    )


def _diameter(spec: Spec, given: Given) -> float:
    """Return the diameter M from the assumptions or from the spec's domain, which must agree."""
    if spec.domain is not None and not isinstance(spec.domain, L1Ball):
        raise InvalidValue(
            "the domain must be an l1 ball, because the algorithm selects vertices of the domain; got "
            f"{spec.domain.kind}",
            code="unsupported_domain",
            pointer=("domain", "kind"),
        )
    return agreed_diameter(given, spec.domain, "l1 ball", wanted="diameter")


def agreed_diameter(given: Given, domain: L1Ball | L2Ball | LpBall | None, ball: str, *, wanted: str) -> float:
    """Return the diameter M from the assumptions or from the domain, which must agree.

    Args:
        ball: The kind of domain, in words.
        wanted: The assumption that a refusal points at if no size is given.

    Raises:
        InvalidValue: If no size is given (``missing``), or if two different sizes are given (``contradiction``).
    """
    sizes: list[tuple[tuple[str, ...], float]] = []
    for name, factor in (("diameter", 1.0), ("radius", 2.0)):
        value = given.get(name)
        if value is not None:
            sizes.append((("assumptions", name), factor * value))
    if domain is not None:
        sizes.append((("domain", "radius"), 2.0 * domain.radius))
    if not sizes:
        raise InvalidValue(
            f"the size of the {ball} is needed: give assumptions.radius, or assumptions.diameter (twice the radius)",
            code="missing",
            pointer=("assumptions", wanted),
        )
    (_, diameter), *others = sizes
    for pointer, other in others:
        if abs(other - diameter) > SAME * diameter:
            raise InvalidValue(
                f"two sizes of the {ball} contradict each other: {'.'.join(pointer)} gives the diameter "
                f"{other:g}, and {'.'.join(sizes[0][0])} gives {diameter:g}. The diameter is twice the radius; "
                "give only one of the two",
                code="contradiction",
                pointer=pointer,
            )
    return diameter


def _num_vertices(given: float | None, dimension: int | None) -> int | None:
    if given is None:
        return None if dimension is None else 2 * dimension
    try:
        return read_integer("num_vertices", given, 2, 2 * MAX_DIMENSION)
    except InvalidValue as error:
        raise error.inside("assumptions") from None

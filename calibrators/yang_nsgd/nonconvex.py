"""The setting both algorithms share: generalised smoothness and bounded deviation (Yang et al., section 2)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from accounting.errors import InvalidValue
from accounting.events import FullBatch, Poisson
from accounting.relations import NeighboringRelation
from calibrators.algorithm import Assumption
from calibrators.spec import Spec, read_assumption

PAPER = "Yang, Zhang, Chen & Liu 2022"

SAMPLINGS = (FullBatch, Poisson)
RELATIONS = tuple(NeighboringRelation)

ASSUMPTIONS = (
    Assumption("initial_gap", "D_0", "loss", "upper bound of f(x_0) - inf f"),
    Assumption(
        "generalized_smoothness_l0",
        "L_0",
        "loss / parameter^2",
        "|grad f(x) - grad f(y)| <= (L_0 + L_1 |grad f(x)|) |x - y| for all x, y",
    ),
    Assumption("generalized_smoothness_l1", "L_1", "1 / parameter", "see L_0; 0 is ordinary smoothness (default 0)"),
    Assumption("deviation_tau0", "\\tau_0", "gradient", "every record's |g - grad f(x)| <= tau_0 + tau_1 |grad f(x)|"),
    Assumption("deviation_tau1", "\\tau_1", "pure number", "see tau_0; in [0, 1) (default 0)"),
)
REQUIRED = ("initial_gap", "generalized_smoothness_l0", "deviation_tau0")

ERRATA = (
    "The paper's Definition 2.1 is replace-one, but its accountant starts from sensitivity 1 times the bound. Under "
    "replace-one two sums lie 2 apart: here the sensitivity is 2 there, and 1 under add_or_remove_one.",
    "The paper is ambiguous about noise on the sum or on the mean. Here the noise multiplier is on the sum.",
    "The paper accounts batches drawn without replacement, its experiments use a Poisson accountant. Here the sampling "
    "that was asked for is both accounted and drawn.",
)


@dataclass(frozen=True, slots=True)
class Problem:
    """Constants of the objective: D_0, L_0, L_1, tau_0, tau_1 and the number d of parameters."""

    initial_gap: float
    l0: float
    l1: float
    tau0: float
    tau1: float
    dimension: int

    @property
    def t0(self) -> float:
        """tau_0 / (1 - tau_1): below this gradient norm a record's deviation may exceed the gradient itself."""
        return self.tau0 / (1.0 - self.tau1)

    @property
    def trivial_gradient_norm(self) -> float:
        """What holds at the starting point without any step: the root of G^2 = 2 (L_0 + L_1 G) D_0.

        From Lemma A.1 with u = -grad f / (L_0 + L_1 G): D_0 >= G^2 / (2 (L_0 + L_1 G)).
        """
        half = self.l1 * self.initial_gap
        return half + math.sqrt(half * half + 2.0 * self.l0 * self.initial_gap)


def missing_assumptions(spec: Spec) -> tuple[str, ...]:
    """Names that the theorems need and the spec lacks."""
    missing = [name for name in REQUIRED if name not in spec.assumptions]
    if spec.dimension is None:
        missing.append("dimension")
    return tuple(missing)


def read_problem(spec: Spec) -> Problem | None:
    """The constants, or None when some are missing.

    Raises:
        InvalidValue: a constant is unknown or outside its range, or L_0 = L_1 = 0.
    """
    _refuse_unknown(spec.assumptions)
    if missing_assumptions(spec):
        return None
    given: Mapping[str, float] = {"generalized_smoothness_l1": 0.0, "deviation_tau1": 0.0, **spec.assumptions}
    problem = Problem(
        initial_gap=read_assumption(given, "initial_gap", 0.0, 1e30, open_lower=True),
        l0=read_assumption(given, "generalized_smoothness_l0", 0.0, 1e30),
        l1=read_assumption(given, "generalized_smoothness_l1", 0.0, 1e30),
        tau0=read_assumption(given, "deviation_tau0", 0.0, 1e30),
        tau1=read_assumption(given, "deviation_tau1", 0.0, math.nextafter(1.0, 0.0)),
        dimension=spec.dimension or 0,
    )
    if problem.l0 == 0.0 and problem.l1 == 0.0:
        raise InvalidValue(
            "generalized_smoothness_l0 and generalized_smoothness_l1 cannot both be 0",
            pointer=("assumptions", "generalized_smoothness_l0"),
        )
    return problem


def _refuse_unknown(assumptions: Mapping[str, float]) -> None:
    known = [assumption.name for assumption in ASSUMPTIONS]
    for name in assumptions:
        if name not in known:
            raise InvalidValue(
                f"this algorithm has no assumption {name!r}; it has {', '.join(known)}",
                code="unknown_assumption",
                pointer=("assumptions", name),
            )

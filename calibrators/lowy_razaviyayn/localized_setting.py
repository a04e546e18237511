"""This module reads and checks the spec of the localised algorithms. It also makes their event, their plan and the
verdict on the paper's noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from accounting.errors import InvalidValue
from accounting.events import Event
from accounting.relations import NeighboringRelation
from calibrators.algorithm import Assumption, read_assumptions
from calibrators.as_published import AsPublished
from calibrators.lowy_razaviyayn.localization import Blocks, Localization, LocalizedProblem, UniformMoments
from calibrators.lowy_razaviyayn.moments import DIAMETER, LARGEST, MOMENT_ORDER, ORDER_CONSTANT, PAPER, SMALLEST
from calibrators.lowy_razaviyayn.one_pass import clip_of, l2_strength, with_diameter
from calibrators.lowy_razaviyayn.printed_noise import rho_of
from calibrators.noise import Steps, one_mechanism, solve_steps
from calibrators.phases.localized_phases import LocalizedPhase
from calibrators.provenance import GRADIENT, PURE
from calibrators.refusals import refuse
from calibrators.spec import Spec
from calibrators.verdicts import judge_steps

#: The relations under which slots and block sizes stay the same. Adding or removing a record would shift the records of
#: later blocks.
RELATIONS = (NeighboringRelation.REPLACE_ONE, NeighboringRelation.REPLACE_SPECIAL)

_OPTIONAL = "; if left out, the bound for the next higher moment is used"
ASSUMPTIONS = (
    DIAMETER,
    MOMENT_ORDER,
    Assumption(
        "moment_bound_2k",
        r"\tilde r_{2k}",
        GRADIENT,
        "the bound on E[sup over the domain of |grad f(w, x)|^(2k)]^(1/(2k)), for all subgradients, before "
        "clipping and without a penalty; k is moment_order",
        lower=SMALLEST,
        upper=LARGEST,
    ),
    Assumption(
        "moment_bound_2",
        r"\tilde r_2",
        GRADIENT,
        f"the same bound for the second moment{_OPTIONAL}",
        lower=SMALLEST,
        upper=LARGEST,
        required=False,
    ),
    Assumption(
        "moment_bound_1",
        r"\tilde r_1",
        GRADIENT,
        f"the same bound for the first moment{_OPTIONAL}",
        lower=SMALLEST,
        upper=LARGEST,
        required=False,
    ),
    Assumption(
        "lipschitz",
        "L_f",
        GRADIENT,
        "the length of the longest subgradient of a record anywhere in the domain; leave it out if there is no "
        "such bound",
        lower=SMALLEST,
        upper=LARGEST,
        required=False,
    ),
    Assumption(
        "localization_power",
        "p",
        PURE,
        "the power p: block i takes about n_i^p steps. If left out, p is chosen for the best rate; p = 1 needs "
        "the fewest gradients",
        lower=1.0,
        upper=8.0,
        required=False,
    ),
    ORDER_CONSTANT,
)

PRINTED_FORMULA = (
    r"\sigma_i^2 = \frac{4 C_i^2 T_i}{\varepsilon_p^2 n_i^2},\; \varepsilon_p = \sqrt{2 \rho},\;"
    r" \rho = (\sqrt{\ln(1/\delta) + \varepsilon} - \sqrt{\ln(1/\delta)})^2"
)
_SETTING = "full batches of disjoint blocks, counted as one Gaussian mechanism, replace_one"


@dataclass(frozen=True, slots=True)
class LocalizedSetting:
    """The assumptions of a spec about losses and domain.

    Attributes:
        problem: The constants; None if the theorem lacks one.
        missing: The names of the missing constants.
        power: The caller's power p; None if it is not given.
        order_constant: The constant c of the rates.
    """

    problem: LocalizedProblem | None
    missing: tuple[str, ...]
    power: float | None
    order_constant: float


@dataclass(frozen=True, slots=True)
class LocalizedRun:
    """A run of Algorithm 4 in a plan.

    Attributes:
        blocks: The blocks of the run.
        step_size: The step size eta; None in a plan that was made only to compute its privacy.
        localization: The bound's terms for this run; None without the theorem's constants.
        start: A bound on the root mean square of |w_0 - w*|; 0 without the theorem's constants.
    """

    blocks: Blocks
    step_size: float | None
    localization: Localization | None = None
    start: float = 0.0

    @property
    def bound(self) -> float:
        """The bound on the excess risk after this run, in loss units."""
        assert self.localization is not None, "called only if there are bounds"
        assert self.step_size is not None, "a localization always has a step size"
        return self.localization.bound(self.start, self.step_size)


def solve_noise(spec: Spec) -> Steps:
    """Return the one Gaussian mechanism that meets the target.

    Raises:
        Unsupported: If the number of steps or of records is solved for.
        InvalidValue: If a batch size is given.
    """
    refuse(
        spec,
        sizes=(
            f"{spec.unknown} cannot be solved for, because the cost of the blocks does not depend on it; solve for "
            "noise_multiplier, and the theorem chooses blocks and steps"
        ),
    )
    if spec.batch_size is not None:
        raise InvalidValue(
            "batch_size cannot be chosen, because a step takes its whole block and the block sizes follow from "
            "dataset_size: leave batch_size out",
            code="overdetermined",
            pointer=("batch_size",),
        )
    return solve_steps(spec, one_mechanism, iterations=1, batch_size=1)


def read_setting(spec: Spec, algorithm: str, assumptions: Sequence[Assumption]) -> LocalizedSetting:
    """Return the assumptions of a spec.

    Raises:
        InvalidValue: If a constant is unknown or outside its range, or if constants contradict each other.
        Unsupported: If the domain is not an l2 ball, or the penalty is not l2.
    """
    given = with_diameter(spec, algorithm)
    known = read_assumptions(assumptions, given, needed=[("dimension", spec.dimension)])
    strength = l2_strength(spec, algorithm)
    power, order_constant = known.get("localization_power"), known["order_constant"]
    if known.missing:
        return LocalizedSetting(None, known.missing, power, order_constant)
    moments = UniformMoments(
        known["moment_order"],
        known["moment_bound_2k"],
        known.get("moment_bound_2"),
        known.get("moment_bound_1"),
        known.get("lipschitz"),
    )
    problem = LocalizedProblem(
        known["diameter"], spec.need("dimension"), moments, strength, known.get("strong_convexity") or 0.0
    )
    return LocalizedSetting(problem, (), power, order_constant)


def thresholds(
    spec: Spec, problem: LocalizedProblem | None, sizes: tuple[int, ...], power: float, noise_multiplier: float
) -> Blocks:
    """Return the blocks with the spec's clip threshold C, or with the thresholds C_i of the theorem.

    Raises:
        InvalidValue: If no threshold is given and none can be derived (``missing``), or if a block has too many steps.
    """
    if problem is None or spec.gradient_bound is not None:
        own = clip_of(spec, None, "the theorem's assumptions")
        return Blocks(sizes, power, (own.max_grad_norm,) * len(sizes))
    return Blocks(sizes, power, balanced_thresholds(problem, sizes, power, noise_multiplier))


def balanced_thresholds(
    problem: LocalizedProblem, sizes: tuple[int, ...], power: float, noise_multiplier: float
) -> tuple[float, ...]:
    """Return the clip thresholds C_i of the theorem."""
    steps = Blocks(sizes, power, (1.0,) * len(sizes)).inner_iterations
    return tuple(
        problem.balanced_threshold(size, count, power, noise_multiplier)
        for size, count in zip(sizes, steps, strict=True)
    )


def phase_of(event: Event, noise_multiplier: float, runs: Sequence[LocalizedRun]) -> LocalizedPhase:
    """Return the phase with the blocks of all runs, one after the other."""
    step_sizes: list[float] = []
    strengths: list[float] = []
    radii: list[float] = []
    for run in runs:
        if run.step_size is not None:
            step_sizes += run.blocks.step_sizes(run.step_size)
            strengths += run.blocks.regularizers(run.step_size)
            radii += [] if run.localization is None else run.localization.radii(run.step_size)
    return LocalizedPhase(
        event=event,
        records=tuple(size for run in runs for size in run.blocks.sizes),
        inner_iterations=tuple(count for run in runs for count in run.blocks.inner_iterations),
        max_grad_norm=tuple(bound for run in runs for bound in run.blocks.thresholds),
        noise_stddev_on_mean=tuple(stddev for run in runs for stddev in run.blocks.noise_stddevs(noise_multiplier)),
        step_size=tuple(step_sizes),
        regularizer=tuple(strengths),
        radius=tuple(radii),
    )


def printed_noise(spec: Spec) -> AsPublished | None:
    """Return the noise of Algorithm 3 at this spec with a verdict; None for targets that the paper does not treat."""
    rho = rho_of(spec.target)
    if rho is None:
        return None
    printed = math.sqrt(2.0 / rho)
    source = f"{PAPER}, Algorithms 3 and 4 (with Algorithm 1, and Proposition 3 for targets in epsilon and delta)"
    verdict, why = judge_steps(spec, one_mechanism, printed, iterations=1, batch_size=1, setting=_SETTING)
    return AsPublished(verdict, why, source, PRINTED_FORMULA, noise_multiplier=printed)


#: The constants in the examples of these algorithms.
EXAMPLE_CONSTANTS = {
    "diameter": 2.0,
    "moment_order": 4.0,
    "moment_bound_2k": 1.5,
    "moment_bound_2": 1.2,
    "moment_bound_1": 1.0,
    "lipschitz": 3.0,
}

"""This module is shared by the calibrations of Frank-Wolfe algorithms with a recursive gradient estimate. It contains
their refusals, noise, plan and recommended numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from accounting.errors import InvalidValue
from calibrators.algorithm import Assumption
from calibrators.as_published import AsPublished
from calibrators.bassily_guzman.recursion import Recursion
from calibrators.bassily_guzman.selection import NO_PENALTY, Selections, checked_scales, is_pure, multiplier
from calibrators.bassily_guzman.setting import ASSUMPTIONS, Setting
from calibrators.noise import Steps, calibration_of, solve_steps
from calibrators.phases.recursive_selections import RecursiveSelections
from calibrators.provenance import LOSS, Provenance, ProvenanceKind
from calibrators.refusals import refuse, unread
from calibrators.release import LAST_ITERATE, Release
from calibrators.spec import Calibration, Spec

SCALE_FORMULA = (
    r"\lambda = \tfrac{\sigma}{2} \max\Bigl\{\tfrac{M L_0}{n_0} \sqrt{\tfrac{1-(1-\eta)^{2T}}{\eta(2-\eta)}},"
    r" \tfrac{M c}{m} \sqrt{\tfrac{1-(1-\eta)^{2(T-1)}}{\eta(2-\eta)}}\Bigr\},\;"
    r" c = (1-\eta)\min(2 L_0, L_1 \eta M) + \eta L_0"
)
PURE_SCALE_FORMULA = (
    r"\lambda = \sigma \max\Bigl\{\tfrac{M L_0}{n_0} \tfrac{1-(1-\eta)^T}{\eta},"
    r" \tfrac{M c}{m} \tfrac{1-(1-\eta)^{T-1}}{\eta}\Bigr\},\;"
    r" c = (1-\eta)\min(2 L_0, L_1 \eta M) + \eta L_0"
)
_GAP = "upper bound on F(x_0) - min F, in place of L_0 M"
#: The assumptions of `setting`, with the meaning that the initial gap has for these algorithms.
RECURSIVE_ASSUMPTIONS: tuple[Assumption, ...] = tuple(
    replace(item, meaning=_GAP) if item.name == "initial_gap" else item for item in ASSUMPTIONS
)


@dataclass(frozen=True, slots=True)
class Solved:
    """The noise that meets the target. The batch sizes determine only the scale of the noise.

    Attributes:
        pure: Whether the cost is an epsilon at delta 0 rather than a rho.
        steps: The engine's answer.
    """

    pure: bool
    steps: Steps

    def noise_scale(self, setting: Setting, recursion: Recursion) -> float:
        """Return the noise scale lambda, in loss units.

        Raises:
            InvalidValue: If the scale is outside the safe range of floating point.
        """
        width = recursion.pure_width if self.pure else recursion.zcdp_width
        factor = 1.0 if self.pure else 0.5
        [scale] = checked_scales([factor * self.steps.noise_multiplier * width(setting.problem)])
        return scale


def solve(spec: Spec) -> Solved:
    """Return the noise that meets the target, with one event for all selections.

    Raises:
        Unreachable: If no noise meets the target.
    """
    pure = is_pure(spec)
    return Solved(pure, solve_steps(spec, Selections(pure, spec.relation), iterations=1, batch_size=1))


def refuse_what_has_no_part(spec: Spec) -> None:
    """Refuse to solve for sizes, and refuse penalties and batch sizes.

    Raises:
        Unsupported: If a size is solved for, or if a penalty is given.
        InvalidValue: If a batch size is given.
    """
    refuse(
        spec,
        sizes=(
            f"{spec.unknown} cannot be solved for, because the noise is scaled so that the cost does not depend on "
            "it. Solve for noise_multiplier"
        ),
        penalty=NO_PENALTY,
    )
    if spec.dataset_size < 2:
        raise InvalidValue("dataset_size must be at least 2", pointer=("dataset_size",))
    if spec.batch_size is not None:
        raise InvalidValue(
            "batch_size cannot be chosen: half of the records are for the first estimate, and the later steps "
            "share the others equally. Leave batch_size out",
            code="overdetermined",
            pointer=("batch_size",),
        )


def checked_step_size(step_size: float) -> float:
    """Return the caller's own step size.

    Raises:
        InvalidValue: If the step size is not in (0, 1].
    """
    if not 0.0 < step_size <= 1.0:
        raise InvalidValue(
            f"step_size must be in (0, 1], because it is the share of the way to a vertex; got {step_size:g}",
            pointer=("step_size",),
        )
    return step_size


def shared_out(records: int, steps: int) -> int:
    """Return the number of records in each of ``steps`` batches that share the given number of records.

    Raises:
        InvalidValue: If there are fewer records than batches.
    """
    if steps > records:
        raise InvalidValue(
            f"each step after the first needs its own records: {steps} records are needed, but only {records} "
            "are left after the first step; give fewer iterations",
            code="too_few_records",
            pointer=("iterations",),
        )
    return records // steps if steps else max(records, 1)


def calibration(
    name: str,
    source: str,
    spec: Spec,
    setting: Setting,
    recursion: Recursion,
    solved: Solved,
    *,
    hyperparameters: tuple[Provenance, ...],
    utility: tuple[Provenance, ...],
    as_published: AsPublished | None,
    release: Release = LAST_ITERATE,
) -> Calibration:
    """Return the calibration, with the parts that all these algorithms share.

    Args:
        hyperparameters: The number of selections and the step size.
        utility: The bounds and rates.
    """
    scale, steps = solved.noise_scale(setting, recursion), solved.steps
    phase = RecursiveSelections(
        event=steps.event,
        selections=recursion.selections,
        first_batch=recursion.first_batch,
        batch=recursion.batch,
        step_size=recursion.step_size,
        gumbel_scale=scale,
        lipschitz=setting.problem.lipschitz,
        smoothness=setting.problem.smoothness,
    )
    derived = ProvenanceKind.DERIVED
    sizes = (float(recursion.first_batch), float(recursion.batch))
    return calibration_of(
        name,
        spec,
        steps,
        phase,
        noise_scales=(scale,),
        domain=setting.domain,
        release=release,
        hyperparameters=(
            Provenance(
                "noise_scale",
                scale,
                PURE_SCALE_FORMULA if solved.pure else SCALE_FORMULA,
                f"{source}; noise derived",
                derived,
                units=LOSS,
            ),
            multiplier(
                steps.noise_multiplier,
                solved.pure,
                f"{source}; noise derived",
                "the cost of all selections together; s is 2 under replace_one and 1 under replace_special",
            ),
            *hyperparameters,
            Provenance(
                "batch_size",
                sizes,
                r"(n_0, m)",
                source,
                derived,
                ("the batch sizes of the first step and of every other step",),
            ),
        ),
        utility=(
            *utility,
            Provenance(
                "gradient_evaluations",
                float(recursion.gradient_evaluations),
                "n_0 + 2 (T-1) m",
                source,
                ProvenanceKind.EXACT,
            ),
        ),
        missing=("dimension",) if setting.num_vertices is None else (),
        warnings=(
            *unread(spec, recursion.records),
            *setting.warnings,
        ),
        as_published=as_published,
    )

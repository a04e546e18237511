"""Shared code of Frank-Wolfe calibrations with a recursive estimate: refusals, noise, plan, numbers."""

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
#: The paper's assumptions, and the initial gap as these algorithms use it.
RECURSIVE_ASSUMPTIONS: tuple[Assumption, ...] = tuple(
    replace(item, meaning=_GAP) if item.name == "initial_gap" else item for item in ASSUMPTIONS
)


@dataclass(frozen=True, slots=True)
class Solved:
    """The noise that meets the target. The batches decide only its scale.

    Attributes:
        pure: Whether epsilon at delta 0 is stated, rather than rho.
        steps: The engine's answer.
    """

    pure: bool
    steps: Steps

    def noise_scale(self, setting: Setting, recursion: Recursion) -> float:
        """Return the noise scale lambda, in loss units.

        Raises:
            InvalidValue: If floating point cannot represent it.
        """
        width = recursion.pure_width if self.pure else recursion.zcdp_width
        factor = 1.0 if self.pure else 0.5
        [scale] = checked_scales([factor * self.steps.noise_multiplier * width(setting.problem)])
        return scale


def solve(spec: Spec) -> Solved:
    """Return the aggregate event of all selections.

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
        sizes=f"{spec.unknown} cannot be solved for: the noise scales with the selections and the batches, so the "
        "cost stays the same. Solve for noise_multiplier",
        penalty=NO_PENALTY,
    )
    if spec.dataset_size < 2:
        raise InvalidValue("dataset_size must be at least 2", pointer=("dataset_size",))
    if spec.batch_size is not None:
        raise InvalidValue(
            "batch sizes follow from dataset_size and iterations: half of the records make the first estimate, the "
            "others are shared among the steps after it; leave batch_size out",
            code="overdetermined",
            pointer=("batch_size",),
        )


def checked_step_size(step_size: float) -> float:
    """Return the caller's own step size.

    Raises:
        InvalidValue: If a step would leave the ball, or would not move.
    """
    if not 0.0 < step_size <= 1.0:
        raise InvalidValue(
            f"step_size, the share of the way to a vertex, must be in (0, 1], got {step_size:g}", pointer=("step_size",)
        )
    return step_size


def shared_out(records: int, steps: int) -> int:
    """Return the number of records of each of this many batches.

    Raises:
        InvalidValue: If there is less than one record for each batch.
    """
    if steps > records:
        raise InvalidValue(
            f"each step after the first takes records of its own: {records} are left for them, and {steps} are needed; "
            "ask for fewer iterations",
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
    """Return the answer, made of the parts that all these algorithms share.

    Args:
        hyperparameters: The number of selections and the step size.
        utility: Bounds and rates.
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
                "of all selections together; s is 2 under replace_one and 1 under replace_special",
            ),
            *hyperparameters,
            Provenance("batch_size", sizes, r"(n_0, m)", source, derived, ("of the first step and of every other",)),
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

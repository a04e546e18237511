"""This module is shared by the paper's one-pass algorithms. It computes the noise, rounds, batches and clip threshold
of a spec, and the errors of a planned pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from accounting.errors import InvalidValue, Unsupported
from accounting.relations import NeighboringRelation
from calibrators.geometry import L2Ball, L2Penalty
from calibrators.lowy_razaviyayn.mean_oracle import MeanOracle, Vector, constant_errors, errors_of_drawn_batches
from calibrators.lowy_razaviyayn.moments import Moments
from calibrators.lowy_razaviyayn.zcdp import paper_epsilon, paper_rho
from calibrators.noise import Steps, gaussian_event, solve_steps
from calibrators.plan import Clip, Phase
from calibrators.refusals import refuse
from calibrators.spec import Spec

FIXED_BATCHES = "all batches have the same size; this does not hold under add_or_remove_one"

#: The most rounds of a pass. Bounds are added up round by round, so their computation takes time for each round.
MAX_ROUNDS = 100_000
#: The relations under which one pass costs as much as one mechanism. The first is the paper's.
RELATIONS = (
    NeighboringRelation.REPLACE_ONE,
    NeighboringRelation.REPLACE_SPECIAL,
    NeighboringRelation.ADD_OR_REMOVE_ONE,
)


class Preset(Protocol):
    """The functions by which a theorem chooses values that the spec leaves open."""

    def recommended_iterations(self, records: int, paper_epsilon: float) -> int: ...

    def clip_threshold(self, iterations: int, records: int, paper_epsilon: float) -> float: ...


@dataclass(frozen=True, slots=True)
class Chosen:
    """The sizes and the clip threshold of a pass, with nothing left open.

    Attributes:
        iterations: The number T of the paper.
        batch_size: The batch size s of each round.
        bound: The clip threshold C.
    """

    iterations: int
    batch_size: int
    bound: Clip


@dataclass(frozen=True, slots=True)
class PlannedBatches:
    """The calls of the mean oracle in a planned pass.

    Attributes:
        phase: The steps of the pass. They need no step size here.
        dimension: The dimension d.
        moments: The moments of the gradients, before clipping.
        dataset_size: The number n of records.
        relation: The neighbouring relation. It decides whether batches are cut from the records, or whether each record
            draws its batch.
    """

    phase: Phase
    dimension: int
    moments: Moments
    dataset_size: int
    relation: NeighboringRelation

    @property
    def oracle(self) -> MeanOracle:
        """The mean oracle for a batch of fixed size."""
        bound = self.phase.gradient_bound.contribution_bound
        return MeanOracle(bound, self.phase.divisor, self._noise_multiplier, self.dimension, self.moments)

    @property
    def paper_epsilon(self) -> float:
        """The paper's epsilon_p for the plan's noise."""
        return paper_epsilon(self._noise_multiplier)

    @property
    def rho(self) -> float:
        """The rho of the pass in zCDP when a record is replaced."""
        return paper_rho(self._noise_multiplier)

    @property
    def are_drawn(self) -> bool:
        """Return whether each record draws its batch. If so, batches vary in size."""
        return self.relation is NeighboringRelation.ADD_OR_REMOVE_ONE

    def errors(self) -> tuple[Vector, float]:
        """Return bounds on the root mean square bias and on the variance of every step, with sharp constants."""
        if self.are_drawn:
            return errors_of_drawn_batches(self.oracle, self.phase.steps, self.dataset_size)
        return constant_errors(self.oracle, self.phase.steps)

    @property
    def _noise_multiplier(self) -> float:
        return self.phase.noise_stddev_on_sum / self.phase.gradient_bound.contribution_bound


def check_unknown(spec: Spec) -> None:
    """Refuse to solve for the number of steps or the batch size, because the privacy of one pass does not depend on
    them.

    Raises:
        Unsupported: If the number of steps or the batch size is solved for.
    """
    refuse(
        spec,
        sizes=(
            f"{spec.unknown} cannot be solved for, because the cost of one pass over disjoint batches does not "
            "depend on it; leave it to the preset, or give iterations"
        ),
    )


def solve_pass(spec: Spec, rounds: int) -> Steps:
    """Return the steps of the pass with the noise that meets the target. The noise is the same for every number of
    rounds, but the event states this number.
    """
    return solve_steps(spec, gaussian_event(spec), iterations=rounds, batch_size=max(1, spec.dataset_size // rounds))


def choose(
    spec: Spec, preset: Preset | None, paper_epsilon: float, *, preset_words: str, extra_rounds: int = 0
) -> Chosen:
    """Return T, the batch size floor(n / rounds), and C. They are the spec's values, or the preset's if the spec leaves
    them open.

    Args:
        preset: The preset; None if constants of the theorem are missing.
        paper_epsilon: The paper's epsilon_p for the noise that the engine found.
        preset_words: The preset's formula for T, in words.
        extra_rounds: The number of rounds in addition to T.

    Raises:
        InvalidValue: If there are more rounds than records or than `MAX_ROUNDS`; if a different batch size is given; or
            if a number is missing that no preset chooses.
    """
    n = spec.dataset_size
    each, number = "each round", "the number of rounds, which without the theorem's assumptions"
    if extra_rounds:
        each, number = "each of iterations + 1 rounds", "T of T + 1 rounds, which without the theorem's assumptions"
    if spec.iterations is not None:
        iterations = spec.iterations
    elif preset is not None:
        iterations = preset.recommended_iterations(n, paper_epsilon)
    else:
        iterations = spec.need("iterations", f"{number} has no preset")
    rounds, most = iterations + extra_rounds, min(n, MAX_ROUNDS) - extra_rounds
    if iterations > most:
        asked = "got " if spec.iterations is not None else f"the preset, {preset_words}, is "
        raise InvalidValue(
            f"iterations must be at most {most}: {each} needs at least one record, and there can be at most "
            f"{MAX_ROUNDS} rounds; {asked}{iterations}",
            code="too_few_records" if rounds > n else None,
            pointer=("iterations",),
        )
    size = n // rounds
    if spec.batch_size not in (None, size):
        raise InvalidValue(
            f"batch_size must be {size}, because one pass in {rounds} rounds determines it: leave it out",
            code="overdetermined",
            pointer=("batch_size",),
        )
    threshold = None
    if preset is not None and spec.gradient_bound is None:
        threshold = preset.clip_threshold(iterations, n, paper_epsilon)
    return Chosen(iterations, size, clip_of(spec, threshold, "the theorem's assumptions"))


def clip_of(spec: Spec, preset: float | None, needs: str) -> Clip:
    """Return the spec's clip threshold, or the preset's if the spec has none.

    Args:
        preset: The preset's threshold; None if it cannot be computed.
        needs: The constants from which the preset would be computed, in words.

    Raises:
        InvalidValue: If it is not given and no preset can choose it.
    """
    if spec.gradient_bound is not None:
        return spec.clip
    if preset is None:
        raise InvalidValue(
            f"gradient_bound is needed, because without {needs} no preset can choose max_grad_norm",
            code="missing",
            pointer=("gradient_bound",),
        )
    return Clip(preset)


def with_diameter(spec: Spec, algorithm: str) -> Mapping[str, float]:
    """Return the spec's constants. If the spec gives a domain but no diameter, the constants include the domain's
    diameter.

    Raises:
        InvalidValue: If the stated diameter is smaller than the domain's diameter.
        Unsupported: If the domain is not an l2 ball.
    """
    if spec.domain is None:
        return spec.assumptions
    if not isinstance(spec.domain, L2Ball):
        raise Unsupported(
            f"the domain of {algorithm} must be an l2_ball, not {spec.domain.kind}",
            code="unsupported_domain",
            pointer=("domain", "kind"),
        )
    across = 2.0 * spec.domain.radius
    stated = spec.assumptions.get("diameter")
    if isinstance(stated, int | float) and stated < across * (1.0 - 1e-12):
        raise InvalidValue(
            f"diameter must be at least {across:g}, which is twice the domain's radius; got {stated!r}",
            pointer=("assumptions", "diameter"),
        )
    return {"diameter": across, **spec.assumptions}


def ball(spec: Spec, diameter: float | None) -> L2Ball | None:
    """Return the spec's domain, or the ball around 0 with this diameter; None if neither is known."""
    if isinstance(spec.domain, L2Ball):
        return spec.domain
    return None if diameter is None else L2Ball(0.5 * diameter)


def l2_strength(spec: Spec, algorithm: str) -> float:
    """Return the strength of the penalty, whose gradient is added after clipping; 0 without a penalty.

    Raises:
        Unsupported: If the penalty is not an l2 penalty, and so does not have a gradient everywhere.
    """
    if spec.penalty is None:
        return 0.0
    if not isinstance(spec.penalty, L2Penalty):
        raise Unsupported(
            f"the penalty of {algorithm} must be l2, not {spec.penalty.kind}, because the algorithm adds the "
            "penalty's gradient",
            code="unsupported_penalty",
            pointer=("penalty", "kind"),
        )
    return spec.penalty.strength

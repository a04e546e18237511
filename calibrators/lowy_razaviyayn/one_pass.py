"""Shared code of the paper's one-pass algorithms: noise, rounds, batches and clip threshold of a spec, and the errors
of a planned pass that theorems use.
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

FIXED_BATCHES = "batches have the same size, which fails under add_or_remove_one"

#: Bounds are added up round by round.
MAX_ROUNDS = 100_000
#: The relations under which one pass costs one mechanism. The first is the paper's.
RELATIONS = (
    NeighboringRelation.REPLACE_ONE,
    NeighboringRelation.REPLACE_SPECIAL,
    NeighboringRelation.ADD_OR_REMOVE_ONE,
)


class Preset(Protocol):
    """The values that a theorem chooses if the spec leaves them open."""

    def recommended_iterations(self, records: int, paper_epsilon: float) -> int: ...

    def clip_threshold(self, iterations: int, records: int, paper_epsilon: float) -> float: ...


@dataclass(frozen=True, slots=True)
class Chosen:
    """The spec's sizes, filled in.

    Attributes:
        iterations: The paper's T.
        batch_size: The batch size s, of each round.
        bound: The clip threshold C.
    """

    iterations: int
    batch_size: int
    bound: Clip


@dataclass(frozen=True, slots=True)
class PlannedBatches:
    """The oracle's calls in a planned pass.

    Attributes:
        phase: The steps, which need no step size yet.
        dimension: The dimension d.
        moments: The moments of the gradients, before clipping.
        dataset_size: The number n of records.
        relation: The neighbouring relation, which decides whether batches are cut or drawn.
    """

    phase: Phase
    dimension: int
    moments: Moments
    dataset_size: int
    relation: NeighboringRelation

    @property
    def oracle(self) -> MeanOracle:
        """One call on a batch of fixed size."""
        bound = self.phase.gradient_bound.contribution_bound
        return MeanOracle(bound, self.phase.divisor, self._noise_multiplier, self.dimension, self.moments)

    @property
    def paper_epsilon(self) -> float:
        """epsilon_p of the noise."""
        return paper_epsilon(self._noise_multiplier)

    @property
    def rho(self) -> float:
        """The zCDP of the pass when a record is replaced."""
        return paper_rho(self._noise_multiplier)

    @property
    def are_drawn(self) -> bool:
        """Return whether records draw their batches, so that batches vary in size."""
        return self.relation is NeighboringRelation.ADD_OR_REMOVE_ONE

    def errors(self) -> tuple[Vector, float]:
        """Bound the root mean square bias and the variance of every step, with sharp constants."""
        if self.are_drawn:
            return errors_of_drawn_batches(self.oracle, self.phase.steps, self.dataset_size)
        return constant_errors(self.oracle, self.phase.steps)

    @property
    def _noise_multiplier(self) -> float:
        return self.phase.noise_stddev_on_sum / self.phase.gradient_bound.contribution_bound


def check_unknown(spec: Spec) -> None:
    """Refuse to solve for a size on which the privacy of one pass does not depend.

    Raises:
        Unsupported: If the number of steps or the batch size is solved for.
    """
    refuse(
        spec,
        sizes="one pass over disjoint batches costs the same whatever the number of its steps: "
        f"{spec.unknown} cannot be solved for; leave it to the preset, or give iterations",
    )


def solve_pass(spec: Spec, rounds: int) -> Steps:
    """Return the pass. Its noise is the same for every number of rounds, but its event states that number."""
    return solve_steps(spec, gaussian_event(spec), iterations=rounds, batch_size=max(1, spec.dataset_size // rounds))


def choose(
    spec: Spec, preset: Preset | None, paper_epsilon: float, *, preset_words: str, extra_rounds: int = 0
) -> Chosen:
    """Return T, batches of floor(n / rounds) records, and C: the spec's own values, or else the preset's.

    Args:
        preset: The preset; None if assumptions of the theorem are missing.
        paper_epsilon: The paper's epsilon of the noise that the engine found.
        preset_words: The preset's formula for T.
        extra_rounds: The number of rounds beside T.

    Raises:
        InvalidValue: If there are more rounds than records or than `MAX_ROUNDS`, a different batch size is given, or a
            number that no preset fills in is missing.
    """
    n = spec.dataset_size
    each, number = "each round", "the number of rounds, which without the assumptions"
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
            f"iterations must be at most {most}: {each} needs records of its own, and there are at most "
            f"{MAX_ROUNDS} rounds; {asked}{iterations}",
            code="too_few_records" if rounds > n else None,
            pointer=("iterations",),
        )
    size = n // rounds
    if spec.batch_size not in (None, size):
        raise InvalidValue(
            f"batch_size follows from one pass in {rounds} rounds: leave it out (it is {size})",
            code="overdetermined",
            pointer=("batch_size",),
        )
    threshold = None
    if preset is not None and spec.gradient_bound is None:
        threshold = preset.clip_threshold(iterations, n, paper_epsilon)
    return Chosen(iterations, size, clip_of(spec, threshold, "the theorem's assumptions"))


def clip_of(spec: Spec, preset: float | None, needs: str) -> Clip:
    """Return the spec's own clip threshold, or the preset's.

    Args:
        preset: The preset's threshold; None if it cannot be computed.
        needs: The constants from which it would be computed.

    Raises:
        InvalidValue: If it is not given and no preset can choose it.
    """
    if spec.gradient_bound is not None:
        return spec.clip
    if preset is None:
        raise InvalidValue(
            f"gradient_bound is needed: without {needs} there is no preset for max_grad_norm",
            code="missing",
            pointer=("gradient_bound",),
        )
    return Clip(preset)


def with_diameter(spec: Spec, algorithm: str) -> Mapping[str, float]:
    """Return the spec's constants, with the domain's diameter if only the domain was given.

    Raises:
        InvalidValue: If the diameter that is stated is smaller than the domain's.
        Unsupported: If the domain is no l2 ball.
    """
    if spec.domain is None:
        return spec.assumptions
    if not isinstance(spec.domain, L2Ball):
        raise Unsupported(
            f"{algorithm} projects on an l2_ball, not on {spec.domain.kind}",
            code="unsupported_domain",
            pointer=("domain", "kind"),
        )
    across = 2.0 * spec.domain.radius
    stated = spec.assumptions.get("diameter")
    if isinstance(stated, int | float) and stated < across * (1.0 - 1e-12):
        raise InvalidValue(
            f"diameter must be at least twice the domain's radius, {across:g}, got {stated!r}",
            pointer=("assumptions", "diameter"),
        )
    return {"diameter": across, **spec.assumptions}


def ball(spec: Spec, diameter: float | None) -> L2Ball | None:
    """Return the spec's domain, or the ball of the diameter; None if neither is known."""
    if isinstance(spec.domain, L2Ball):
        return spec.domain
    return None if diameter is None else L2Ball(0.5 * diameter)


def l2_strength(spec: Spec, algorithm: str) -> float:
    """Return the strength of the penalty whose gradient is added outside the clip; 0 without one.

    Raises:
        Unsupported: If the penalty has no gradient everywhere.
    """
    if spec.penalty is None:
        return 0.0
    if not isinstance(spec.penalty, L2Penalty):
        raise Unsupported(
            f"{algorithm} adds the gradient of an l2 penalty; {spec.penalty.kind} has none",
            code="unsupported_penalty",
            pointer=("penalty", "kind"),
        )
    return spec.penalty.strength

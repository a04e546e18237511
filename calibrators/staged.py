"""This module calibrates a training in stages. There is one noise multiplier, and the noise of each stage is a given
multiple of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from accounting.errors import InvalidValue, inside
from accounting.events import DisjointBatches, Event, TruncatedPoisson
from accounting.numbers import MAX_NOISE_MULTIPLIER, MIN_NOISE_MULTIPLIER
from accounting.solve import Solution, solve_delta, solve_epsilon, solve_noise
from calibrators.algorithm import Algorithm
from calibrators.noise import check_one_pass, gaussian_event, pointed_at_sampling
from calibrators.plan import Phase, Plan
from calibrators.provenance import Provenance, ProvenanceKind
from calibrators.spec import Calibration, OpenDelta, OpenEpsilon, Spec

WARNING = (
    "The theorem is about equal steps, so it gives no step size and no bound for a training in stages. The "
    "privacy guarantee holds without the theorem."
)


def calibrate_stages(algorithm: Algorithm, spec: Spec, hyperparameters: Iterable[Provenance] = ()) -> Calibration:
    """Solve for the noise multiplier, epsilon or delta of a training in stages. The noise of each stage is a given
    multiple of the noise multiplier.

    A larger noise multiplier means more noise in every stage and less privacy loss, so the smallest one is found by
    bisection.

    Guarantees:
        never_misses: the certified upper bound on the cost of all stages together meets the target.

    Raises:
        InvalidValue: If a stage's batch is larger than the data set, or disjoint batches need more records than there
            are.
        Unsupported: If the sampling is not accounted under the relation.
        Unreachable: If nothing meets the target.
    """
    assert spec.gradient_bound is not None, "the registry has checked the gradient bound"
    if spec.sampling == TruncatedPoisson.kind:
        spec.need("max_batch_size", "the largest batch size; a random subset of this size is kept from a larger batch")
    for index, stage in enumerate(spec.stages):
        with inside("stages", index):
            if stage.batch_size > spec.dataset_size:
                raise InvalidValue(
                    f"batch_size must be at most dataset_size, {spec.dataset_size}, got {stage.batch_size}",
                    pointer=("batch_size",),
                )
            if spec.sampling == DisjointBatches.kind:
                check_one_pass(stage.batch_size, stage.iterations, spec.dataset_size)
    with pointed_at_sampling():
        found = _solved(spec)
    noise = spec.noise_multiplier if spec.noise_multiplier is not None else found.value
    phases = tuple(
        Phase(event, spec.gradient_bound, stage.batch_size, stage.step_size or spec.step_size)
        for stage, event in zip(spec.stages, _events(spec, noise), strict=True)
    )
    evaluations = float(sum(stage.iterations * stage.batch_size for stage in spec.stages))
    release = spec.release_of(sum(stage.iterations for stage in spec.stages))
    plan = Plan(algorithm.name, spec.dataset_size, spec.relation, phases, spec.domain, spec.penalty, release)
    return Calibration(
        plan=plan,
        unknown=spec.unknown,
        value=found.value,
        achieved=found.achieved,
        next_achieved=None,
        hyperparameters=tuple(hyperparameters),
        utility=(
            Provenance("gradient_evaluations", evaluations, r"\sum_i T_i B_i", algorithm.source, ProvenanceKind.EXACT),
        ),
        missing_assumptions=(),
        warnings=(*found.achieved.warnings, WARNING),
    )


def _solved(spec: Spec) -> Solution:
    target = spec.target
    if isinstance(target, OpenEpsilon | OpenDelta):
        assert spec.noise_multiplier is not None, "the spec requires it if another quantity is solved for"
        events = _events(spec, spec.noise_multiplier)
        if isinstance(target, OpenEpsilon):
            return solve_epsilon(events, spec.relation, target.delta)
        return solve_delta(events, spec.relation, target.epsilon)
    return solve_noise(lambda value: _events(spec, value, in_range=True), spec.relation, target)


def _events(spec: Spec, noise_multiplier: float, *, in_range: bool = False) -> tuple[Event, ...]:
    """Return the events of all stages.

    Args:
        spec: The spec with its stages.
        noise_multiplier: The noise multiplier of the whole training.
        in_range: Whether noise outside the engine's range is replaced by the nearest end of the range. A search near
            the ends needs this.
    """
    event_of = gaussian_event(spec)
    noises = [noise_multiplier * stage.noise_factor for stage in spec.stages]
    if in_range:
        noises = [min(max(noise, MIN_NOISE_MULTIPLIER), MAX_NOISE_MULTIPLIER) for noise in noises]
    return tuple(
        event_of(noise, stage.iterations, stage.batch_size) for noise, stage in zip(noises, spec.stages, strict=True)
    )

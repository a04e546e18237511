"""What every conformance test of a calibrator is run on: each registered algorithm's examples, and what is read off."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest

from calibrators.algorithm import Algorithm, Example
from calibrators.correlation import Correlation
from calibrators.phases.median_of_means import MedianPhase
from calibrators.phases.output_perturbation import OutputPerturbation
from calibrators.phases.shuffled_counts import ShuffledCounts
from calibrators.phases.shuffled_medians import ShuffledMedians
from calibrators.plan import BoundedSteps, Clip, CorrelatedSteps, Plan
from calibrators.provenance import Provenance
from calibrators.registry import ALGORITHMS, calibrate
from calibrators.spec import Calibration, Spec

EXAMPLES: dict[str, Example] = {name: algorithm.example for name, algorithm in ALGORITHMS.items()}


def cases(*, bounded: bool = False) -> list[Any]:
    """(name, spec) of every example of a registered algorithm, or of those that a theorem speaks of.

    Variants follow in `make soak`.
    """
    return [
        pytest.param(name, spec, id=f"{name}-{word}" if word else name, marks=[pytest.mark.soak] if word else [])
        for name in ALGORITHMS
        if EXAMPLES[name].bounded or not bounded
        for word, spec in EXAMPLES[name].specs().items()
    ]


every_example = pytest.mark.parametrize(("name", "spec"), [(name, EXAMPLES[name].spec) for name in ALGORITHMS])
every_case = pytest.mark.parametrize(("name", "spec"), cases())
every_bounded_case = pytest.mark.parametrize(("name", "spec"), cases(bounded=True))
every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)


def algorithm_of(name: str) -> Algorithm:
    return ALGORITHMS[name]


def calibrated(name: str, spec: Spec, **changes: Any) -> Calibration:
    """The calibration of the spec with changes; remembered, since many tests start from the same."""
    return _calibrated(name, _Frozen(replace(spec, **changes)))


def sized_for(sampling: str, spec: Spec) -> dict[str, Any]:
    """What changes beside the sampling: full batches have one size, one pass has as many steps as fill it."""
    if sampling == "full_batch":
        return {"batch_size": None}
    if sampling == "truncated_poisson":
        assert spec.batch_size is not None
        return {"max_batch_size": spec.batch_size, "capacity": 2 * spec.dataset_size}
    if sampling == "disjoint_batches" and spec.batch_size and spec.iterations:
        return {"iterations": min(spec.iterations, spec.dataset_size // spec.batch_size)}
    return {}


def pinned(name: str, spec: Spec) -> Spec:
    """The spec with what the algorithm would choose for itself: so that one thing can be moved alone."""
    found = calibrated(name, spec)
    first, steps = found.plan.phases[0], number(found.hyperparameters, "iterations")
    if spec.iterations is None and steps is not None:
        spec = replace(spec, iterations=int(steps))
    if spec.gradient_bound is None and isinstance(first, BoundedSteps):
        spec = replace(spec, gradient_bound=first.gradient_bound)
    if spec.gradient_bound is None and isinstance(first, ShuffledCounts):
        spec = replace(spec, gradient_bound=Clip(first.max_grad_norm))
    if isinstance(first, MedianPhase | ShuffledMedians):
        spec = replace(spec, assumptions=dict(spec.assumptions) | {"truncation_radius": first.truncation_radius})
    if isinstance(first, CorrelatedSteps):
        spec = replace(spec, correlation=replace(spec.correlation or Correlation(), bands=len(first.coefficients)))
    if spec.step_size is None and isinstance(first, OutputPerturbation):
        spec = replace(spec, step_size=first.step_size)  # its noise is on what the steps lead to
    return spec


def noise_of(plan: Plan) -> tuple[float, ...]:
    """The scale of each phase's noise: on the mean of gradients, or on the scores of a selection."""
    scales: list[float] = []
    for phase in plan.phases:
        scales += [phase.noise_stddev_on_mean] if isinstance(phase, BoundedSteps) else phase.noise_scale
    return tuple(scales)


def noise_multiplier_of(found: Calibration) -> float:
    """On the sum over the contribution bound; algorithms with noise of another kind give it as a hyperparameter."""
    stated = number(found.hyperparameters, "noise_multiplier")
    if stated is not None:
        return stated
    assert isinstance(found.value, float)
    return found.value


def number(items: tuple[Provenance, ...], name: str) -> float | None:
    """The value of that name, if it is there and is one number."""
    for item in items:
        if item.name == name and isinstance(item.value, float):
            return item.value
    return None


def bounds_of(found: Calibration) -> dict[str, float]:
    """Upper bounds on what is lost, by name; those that are left out are not there."""
    return {
        item.name: item.value
        for item in found.utility
        if "bound" in item.name and not item.name.startswith("lower") and isinstance(item.value, float)
    }


class _Frozen:
    """A spec as a key: its constants are a mapping, which has no hash."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self._key = repr(spec)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Frozen) and other._key == self._key


@lru_cache(maxsize=1024)
def _calibrated(name: str, frozen: _Frozen) -> Calibration:
    return calibrate(name, frozen.spec)

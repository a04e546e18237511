"""What an algorithm cannot answer is refused where it stands in the request, with what would be right."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest

from accounting.errors import AccountingError, InvalidValue, Unreachable, Unsupported
from accounting.events import SAMPLINGS
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.algorithm import Assumption
from calibrators.plan import BoundedSteps, Clip, GradientBound, Normalize
from calibrators.registry import calibrate
from calibrators.spec import Calibration, Spec, Unknown
from tests.conformance.subjects import (
    EXAMPLES,
    algorithm_of,
    calibrated,
    every_algorithm,
    every_case,
    every_example,
    number,
    sized_for,
)

BOUNDS: dict[str, GradientBound] = {Clip.kind: Clip(1.0), Normalize.kind: Normalize(1.0)}
#: Where in a request a reason may lie.
REQUEST = {
    "algorithm", "assumptions", "batch_size", "correlation", "dataset_size", "dimension", "domain", "gradient_bound",
    "iterations", "neighboring_relation", "noise_multiplier", "penalty", "sampling", "solve_for", "step_size", "target",
}  # fmt: skip


def refused(name: str, spec: Spec, **changes: Any) -> AccountingError:
    with pytest.raises(AccountingError) as caught:
        calibrate(name, replace(spec, **changes))
    error = caught.value
    assert len(error.detail) > 20, "a sentence that says what would be right"
    assert error.pointer, error.detail
    assert error.pointer[0] in REQUEST, error.pointer
    return error


def outside(assumption: Assumption) -> list[float]:
    """Numbers outside the assumption's range."""
    values = [math.nan, math.inf, -math.inf]
    values.append(assumption.lower if assumption.open_lower else assumption.lower - max(1.0, assumption.lower))
    values.append(2.0 * assumption.upper if assumption.upper > 0.0 else assumption.upper + 1.0)
    return values


def known() -> list[Any]:
    return [
        pytest.param(name, assumption, id=f"{name}-{assumption.name}")
        for name in EXAMPLES
        for assumption in algorithm_of(name).assumptions
    ]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("name", "assumption"), known())
def test_an_assumption_outside_its_range_is_refused_where_it_stands(name: str, assumption: Assumption) -> None:
    spec = EXAMPLES[name].spec
    for value in outside(assumption):
        error = refused(name, spec, assumptions=dict(spec.assumptions) | {assumption.name: value})
        assert isinstance(error, InvalidValue)
        assert error.pointer == ("assumptions", assumption.name)


@every_algorithm
def test_an_unknown_assumption_is_refused_with_those_there_are(name: str) -> None:
    spec = EXAMPLES[name].spec
    error = refused(name, spec, assumptions=dict(spec.assumptions) | {"no_such_constant": 1.0})
    assert (error.code, error.pointer) == ("unknown_assumption", ("assumptions", "no_such_constant"))
    assert all(assumption.name in error.detail for assumption in algorithm_of(name).assumptions)


@pytest.mark.parametrize(
    ("name", "assumption"),
    [case for case in known() if case.values[1].required],  # type: ignore[attr-defined]
)
def test_without_an_assumption_it_is_named_or_refused_as_missing(name: str, assumption: Assumption) -> None:
    spec = EXAMPLES[name].spec
    changes = {"assumptions": {key: value for key, value in spec.assumptions.items() if key != assumption.name}}
    found = answer_or_missing(name, spec, changes)
    if found is None:
        return
    assert assumption.name in found.missing_assumptions
    # The privacy does not depend on what is missing: what is charged still meets the target.
    assert found.achieved.value.upper <= 2.0


@every_algorithm
def test_without_the_number_of_parameters_it_is_missing(name: str) -> None:
    found = answer_or_missing(name, EXAMPLES[name].spec, {"dimension": None})
    assert found is None or not EXAMPLES[name].bounded or "dimension" in found.missing_assumptions


def answer_or_missing(name: str, spec: Spec, changes: dict[str, Any]) -> Calibration | None:
    """The answer, or None where the request is refused for what it leaves out, in so many words."""
    try:
        return calibrate(name, replace(spec, **changes))
    except AccountingError:
        assert refused(name, spec, **changes).code == "missing"
        return None


@every_case
def test_a_sampling_that_is_not_available_is_refused_with_those_that_are(name: str, spec: Spec) -> None:
    available = [scheme.kind for scheme in algorithm_of(name).samplings]
    for kind in {*SAMPLINGS, "round_robin"} - set(available):
        error = refused(name, spec, sampling=kind)
        assert isinstance(error, Unsupported)
        assert (error.code, error.pointer) == ("unsupported_sampling", ("sampling",))
        assert all(each in error.detail for each in available)


@every_case
def test_a_relation_that_is_not_accounted_is_refused_with_those_that_are(name: str, spec: Spec) -> None:
    accounted = algorithm_of(name).relations
    for relation in set(NeighboringRelation) - set(accounted):
        error = refused(name, spec, neighboring_relation=relation)
        assert isinstance(error, Unsupported)
        assert (error.code, error.pointer) == ("unsupported_relation", ("neighboring_relation",))
        assert all(str(each) in error.detail for each in accounted)


@every_case
def test_a_gradient_bound_of_another_kind_is_refused(name: str, spec: Spec) -> None:
    taken = {bound.kind for bound in algorithm_of(name).gradient_bounds}
    for kind, bound in BOUNDS.items():
        if kind not in taken:
            error = refused(name, spec, gradient_bound=bound)
            assert error.code == "unsupported_gradient_bound"
            assert error.pointer[0] == "gradient_bound"
    if algorithm_of(name).gradient_bound_required:
        error = refused(name, spec, gradient_bound=None)
        assert (error.code, error.pointer) == ("missing", ("gradient_bound",))


@every_case
@pytest.mark.one_in(6)
def test_every_supported_sampling_and_relation_is_answered_or_refused_with_what_works(name: str, spec: Spec) -> None:
    algorithm, answered = algorithm_of(name), 0
    for sampling in algorithm.samplings:
        for relation in algorithm.relations:
            changes: dict[str, Any] = {"sampling": sampling.kind, "neighboring_relation": relation}
            changes |= sized_for(sampling.kind, spec)
            try:
                found = calibrated(name, spec, **changes)
            except AccountingError:
                error = refused(name, spec, **changes)
                assert isinstance(error, Unsupported)
                assert error.pointer in (("sampling",), ("neighboring_relation",))
                assert re.search(r"\buse\b", error.detail, re.IGNORECASE)
                alternatives = {*map(str, algorithm.relations), *(scheme.kind for scheme in algorithm.samplings)}
                assert any(each in error.detail for each in alternatives - {sampling.kind, str(relation)})
                continue
            answered += 1
            assert found.plan.neighboring_relation is relation
            assert found.achieved.value.upper <= 2.0
    assert answered >= len(algorithm.samplings), "no sampling is offered that works under no relation"


@every_case
def test_left_out_sampling_and_relation_are_the_papers_own(name: str, spec: Spec) -> None:
    algorithm = algorithm_of(name)
    found = calibrated(name, spec)
    said = calibrated(name, spec, sampling=algorithm.samplings[0].kind, neighboring_relation=algorithm.relations[0])
    assert found.plan.plan_hash == said.plan.plan_hash
    assert found.plan.neighboring_relation is algorithm.relations[0]


@pytest.mark.parametrize("unknown", [Unknown.ITERATIONS, Unknown.BATCH_SIZE])
@every_case
def test_a_size_is_solved_for_or_refused(name: str, spec: Spec, unknown: Unknown) -> None:
    """With the noise that was solved for, the size that it was solved at is one that fits, and the largest does."""
    found = calibrated(name, spec)
    if not isinstance(found.value, float):
        error = refused(name, spec, unknown=unknown, noise_multiplier=2.0, **{str(unknown): None})
        assert error.pointer == ("solve_for",)
        return
    size, steps = noise_sizes(name, spec)
    sizes = {"batch_size": size, "iterations": steps} | {str(unknown): None}
    changes = {"unknown": unknown, "noise_multiplier": found.value, "sampling": None} | sizes
    try:
        solved = calibrated(name, spec, **changes)
    except Unreachable as error:
        assert "every number" in error.detail  # noqa: PT017
        return
    except AccountingError:
        error = refused(name, spec, **changes)
        assert error.pointer == ("solve_for",)
        return
    assert isinstance(solved.value, int | float)
    assert solved.value >= (steps if unknown is Unknown.ITERATIONS else size)
    assert solved.achieved.value.upper <= 2.0
    assert solved.next_achieved is None or solved.next_achieved.value.upper > 2.0


def noise_sizes(name: str, spec: Spec) -> tuple[int, int]:
    """Batch size and number of steps of the example's plan."""
    found = calibrated(name, spec)
    [phase] = found.plan.phases
    # Where steps come in epochs, iterations is their number.
    size = phase.divisor if isinstance(phase, BoundedSteps) else phase.batch_size
    return size, int(number(found.hyperparameters, "iterations") or phase.steps)


@every_example
@pytest.mark.one_in(4)
def test_a_target_out_of_reach_is_called_unreachable(name: str, spec: Spec) -> None:
    """Before anything is said of the paper's own noise, which would be out of every range."""
    assert isinstance(spec.target, ApproximateDpTarget)
    target = replace(spec.target, epsilon=1e-12, delta=min(spec.target.delta, 1e-30))
    with pytest.raises(Unreachable):
        calibrate(name, replace(spec, target=target))

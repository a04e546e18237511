"""Runs repeat where they are to, and only there: seeds, fresh keys, cancellation, checkpoints, array libraries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import array_api_strict
import numpy as np
import pytest

from accounting.errors import InvalidValue
from calibrators.plan import Plan
from tests.conformance.trainers.examples import every_dtype, every_own_plan, every_plan, model, records_of
from trainer.checkpoint import Binding, Checkpoints
from trainer.run import RunCancelled, RunResult, first_checkpoint, run


def flat(result: RunResult) -> list[float]:
    return [float(number) for value in result.parameters.values() for number in value.ravel()]


@every_plan
@pytest.mark.one_in(4)
def test_seeded_runs_repeat(name: str, plan: Plan) -> None:
    runs = [flat(run(plan, model(), *records_of(plan), seed=seed)) for seed in (5, 5, 6, 7, 8)]
    assert runs[0] == runs[1]
    # A selection has few outcomes, and two seeds may share one.
    assert len({tuple(numbers) for numbers in runs}) > 2


@every_own_plan
@pytest.mark.one_in(4)
def test_unseeded_runs_differ(name: str, plan: Plan) -> None:
    runs = {tuple(flat(run(plan, model(), *records_of(plan)))) for _ in range(12)}
    assert len(runs) > 3


@every_own_plan
def test_a_cancelled_run_releases_nothing_and_says_how_far_it_was(name: str, plan: Plan) -> None:
    for stop in range(plan.iterations):
        answers = iter([False] * stop + [True])
        with pytest.raises(RunCancelled) as stopped:
            run(plan, model(), *records_of(plan), is_cancelled=lambda answers=answers: next(answers))  # type: ignore[misc]
        assert stopped.value.steps == stop
        assert set(vars(stopped.value)) == {"steps"}


@every_plan
def test_progress_counts_the_plans_steps(name: str, plan: Plan) -> None:
    told: list[tuple[int, int]] = []
    run(plan, model(), *records_of(plan), on_progress=lambda done, total: told.append((done, total)))
    assert told == [(done, plan.iterations) for done in range(plan.iterations + 1)]


def checkpoints(saved: list[bytes], resume: bytes | None = None, **changes: Any) -> Checkpoints:
    usual = {"data_tag": "tag", "code_version": "1"} | changes
    return Checkpoints(save=saved.append, is_due=lambda done: True, resume=resume, **usual)


@every_dtype
@every_plan
@pytest.mark.one_in(16)
def test_a_resumed_run_goes_on_bit_by_bit(name: str, plan: Plan, dtype: str) -> None:
    """From its beginning and every step, with keys that nobody chose: everything random is in the checkpoint."""
    plan = replace(plan, dtype=dtype)
    first = first_checkpoint(Binding(plan.plan_hash, "tag", "1"))
    saved: list[bytes] = []
    whole = run(plan, model(), *records_of(plan), checkpoint=checkpoints(saved, first))
    assert len(saved) >= plan.iterations - 1
    for done, data in enumerate((first, *saved)):
        later: list[bytes] = []
        again = run(plan, model(), *records_of(plan), checkpoint=checkpoints(later, data))
        assert flat(again) == flat(whole)
        assert again.steps == plan.iterations
        assert len(later) == len(saved) - done


@every_own_plan
def test_a_checkpoint_of_something_else_is_refused(name: str, plan: Plan) -> None:
    saved: list[bytes] = []
    run(plan, model(), *records_of(plan), checkpoint=checkpoints(saved))
    other = replace(plan, dataset_size=plan.dataset_size + 1)
    attempts: Sequence[tuple[Plan, Checkpoints]] = [
        (plan, checkpoints([], saved[0], data_tag="other")),
        (plan, checkpoints([], saved[0], code_version="2")),
        (other, checkpoints([], saved[0])),
        (plan, checkpoints([], saved[0][:-7])),
    ]
    for some, checkpoint in attempts:
        with pytest.raises(InvalidValue) as refused:
            run(some, model(), *records_of(plan), checkpoint=checkpoint)
        assert refused.value.code == "checkpoint_refused"


@every_dtype
@every_plan
@pytest.mark.one_in(4)
def test_any_array_library_gives_the_same_run(name: str, plan: Plan, dtype: str) -> None:
    plan = replace(plan, dtype=dtype)
    features, labels = records_of(plan)
    features[2] = np.nan
    expected = run(plan, model(), features, labels, seed=2)
    strict = run(plan, model(), array_api_strict.asarray(features), array_api_strict.asarray(labels), seed=2)
    for key, value in expected.parameters.items():
        assert type(strict.parameters[key]) is np.ndarray
        np.testing.assert_allclose(strict.parameters[key], value, rtol=1e-11 if dtype == "float64" else 1e-4, atol=1e-7)


@every_plan
def test_float32_and_float64_agree(name: str, plan: Plan) -> None:
    wide, narrow = (
        flat(run(replace(plan, dtype=dtype), model(), *records_of(plan), seed=2)) for dtype in ("float64", "float32")
    )
    # Their margins differ, and so do clipped contributions, by 2^-7.
    np.testing.assert_allclose(narrow, wide, rtol=0.05, atol=0.02)

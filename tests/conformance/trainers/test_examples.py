"""Every trainer has a small run, and every small run covers what its algorithm's plans can say."""

from __future__ import annotations

from calibrators.plan import Plan
from calibrators.registry import ALGORITHMS as CALIBRATORS
from tests.conformance.trainers.examples import RUNS, every_algorithm, every_plan, plan_of
from tests.conformance.trainers.transcriptions import TRANSCRIPTIONS
from trainer.algorithms import ALGORITHMS


def test_every_trainer_has_a_run_and_a_transcription() -> None:
    assert set(ALGORITHMS) - set(RUNS) == set(), "add a run to tests/conformance/trainers/examples.py"
    assert set(ALGORITHMS) - set(TRANSCRIPTIONS) == set(), "add it to tests/conformance/trainers/transcriptions.py"
    assert set(RUNS) == set(TRANSCRIPTIONS) == set(ALGORITHMS)


def test_trainers_and_calibrators_have_the_same_names() -> None:
    assert set(ALGORITHMS) == set(CALIBRATORS)
    assert {name: algorithm.name for name, algorithm in ALGORITHMS.items()} == {name: name for name in ALGORITHMS}


@every_algorithm
def test_a_trainer_takes_the_phases_that_its_calibrator_makes(name: str) -> None:
    algorithm, plan = ALGORITHMS[name], plan_of(name)
    for phase in plan.phases:
        assert isinstance(phase, algorithm.phase_type)
        bound = getattr(phase, "gradient_bound", None)
        assert (bound is None) == (algorithm.gradient_bound is None)
        assert bound is None or isinstance(bound, algorithm.gradient_bound or ())


@every_plan
def test_a_small_run_is_executable(name: str, plan: Plan) -> None:
    assert plan.algorithm == name
    assert plan.is_executable
    # A mean is one step by its nature.
    assert (1 if ALGORITHMS[name].means_only else 3) <= plan.iterations <= 20

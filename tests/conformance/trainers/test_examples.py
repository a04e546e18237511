"""Every trainer has a small run, and every small run covers what its algorithm's plans can say."""

from __future__ import annotations

from pathlib import Path

from calibrators.plan import Plan
from calibrators.registry import ALGORITHMS as CALIBRATORS
from tests.conformance.trainers import subjects
from tests.conformance.trainers.examples import RUNS, every_algorithm, every_plan, plan_of
from trainer.algorithms import EXECUTIONS
from trainer.execution import MEANS


def test_every_trainer_has_a_run_and_a_transcription() -> None:
    missing = sorted(set(EXECUTIONS) - set(RUNS))
    assert not missing, f"add a subject for {missing} in {Path(subjects.__file__).parent}"
    assert set(RUNS) == set(EXECUTIONS)


def test_trainers_and_calibrators_have_the_same_names() -> None:
    assert set(EXECUTIONS) == set(CALIBRATORS)


@every_algorithm
def test_a_trainer_takes_the_phases_that_its_calibrator_makes(name: str) -> None:
    execution, plan = EXECUTIONS[name], plan_of(name)
    for phase in plan.phases:
        assert isinstance(phase, execution.phase_type)
        bound = getattr(phase, "gradient_bound", None)
        assert (bound is None) == (execution.gradient_bound is None)
        assert bound is None or isinstance(bound, execution.gradient_bound or ())


@every_plan
def test_a_small_run_is_executable(name: str, plan: Plan) -> None:
    assert plan.algorithm == name
    assert plan.is_executable
    # A mean is one step by its nature.
    assert (1 if EXECUTIONS[name].models == MEANS else 3) <= plan.iterations <= 20

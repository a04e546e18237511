"""What a trainer's arithmetic cannot keep is refused before anything is charged, by the check of each record."""

from __future__ import annotations

import pytest

from accounting.errors import InvalidValue
from calibrators.phases.output_perturbation import OutputPerturbation
from calibrators.plan import Normalize
from tests.conformance.trainers.examples import every_algorithm, model, plan_of
from trainer import execution
from trainer.algorithms import EXECUTIONS
from trainer.execution import Proposal

#: Whose bound on gradients follows from the rows' and has a check of its own, or is 1 whatever the loss.
WITHOUT_A_LEAST_BOUND = {
    name
    for name, each in EXECUTIONS.items()
    if each.gradient_bound is Normalize or each.phase_type is OutputPerturbation
}


def proposal(name: str) -> Proposal:
    """The algorithm's small run."""
    plan = plan_of(name)
    return Proposal(plan, model(), 2 * plan.dataset_size)


@every_algorithm
def test_a_plan_that_runs_is_not_refused(name: str) -> None:
    if EXECUTIONS[name].phase_type is not OutputPerturbation:  # the model's gradients have no bound there
        EXECUTIONS[name].check(proposal(name))


@every_algorithm
def test_a_bound_that_the_numeric_type_cannot_keep_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in WITHOUT_A_LEAST_BOUND:
        return
    monkeypatch.setattr(execution, "SMALLEST_MAX_GRAD_NORMS", {"float64": 1e30, "float32": 1e30})
    with pytest.raises(InvalidValue, match=r"must be at least 1e\+30 to be kept in float64") as refused:
        EXECUTIONS[name].check(proposal(name))
    where, constant = refused.value.pointer
    assert (where, constant) in {
        ("gradient_bound", "max_grad_norm"),
        ("assumptions", "lipschitz"),
        ("assumptions", "truncation_radius"),
    }

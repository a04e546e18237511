"""Questions: calibration requests that are read and checked, with everything that is needed to solve them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from app.algorithms.budget_costs import (
    BudgetReader,
    KnownBudget,
    budget_target,
)
from app.algorithms.calibrate import CalibrateRequest
from app.algorithms.refusals import placed
from app.algorithms.schemas import (
    AlgorithmFields,
)
from app.algorithms.specs import spec_of
from app.algorithms.targets import BudgetGoal, to_target
from app.problems import unprocessable
from calibrators import registry
from calibrators.draft import Draft
from calibrators.evaluated import EvaluatedRun
from calibrators.presets import UNKNOWN_OBJECTIVE, Objective
from calibrators.spec import Calibration, Spec, Unknown


@dataclass(frozen=True)
class Question:
    """A calibration request that is read and checked, with everything that is needed to solve it.

    Attributes:
        algorithm: The algorithm's name.
        spec: The input of the algorithm's calibrator.
        budget: The budget in which the plan's cost is shown, with its amounts at the time when the request was read.
        charge_delta: The delta at which that budget prices the plan, if it is an approximate_dp budget.
        dtype: The numeric type in which the plan is carried out; None leaves it to `trainer.numeric_types`.
        draft: Chooses what the request leaves out; None if the request must have everything.
    """

    algorithm: str
    spec: Spec
    budget: KnownBudget | None = None
    charge_delta: float | None = None
    dtype: str | None = None
    draft: Draft | EvaluatedRun | None = None

    def work(self) -> Callable[[], Calibration]:
        """Return a function that solves for the open quantities.

        The function is sent to processes that do not import the service.
        """
        if self.draft is not None:
            return self.draft.calibrate
        return partial(registry.calibrate, self.algorithm, self.spec)


def read(request: CalibrateRequest, budgets: BudgetReader) -> Question:
    """Read a request, and make the checks that take no time.

    Raises:
        Problem: 422 with a pointer to the field that is missing, given twice, malformed or unsupported.
    """
    unknown, body = Unknown(request.solve_for), request.target
    budget_id, charge_delta = request.budget_id, getattr(body, "delta", None)
    pointer: tuple[str, ...] = ("budget_id",)
    if isinstance(body, BudgetGoal):
        if budget_id is not None:
            raise unprocessable("overdetermined", "the target already names a budget; leave budget_id out", "budget_id")
        budget_id, pointer = body.budget_id, ("target", "budget_id")
        charge_delta = None if body.charge is None else body.charge.delta
    relation = request.neighboring_relation
    budget = None if budget_id is None else budgets.find(budget_id, relation, *pointer)
    if relation is None and budget is not None:
        request = request.model_copy(update={"neighboring_relation": budget.state.relation})
    goal = budget_target(budget, charge_delta) if isinstance(body, BudgetGoal) and budget is not None else None
    target = to_target(body, unknown, goal)
    is_drafted = request.algorithm is None or request.preset is not None
    spec = spec_of(
        request,
        unknown,
        request.dataset_size,
        request.capacity,
        request.dimension,
        target,
        request.noise_multiplier,
        judge_published=request.judge_literal,
        drafted=is_drafted,
    )
    if is_drafted or request.algorithm is None:
        return replace(drafted(request, spec, UNKNOWN_OBJECTIVE), budget=budget, charge_delta=charge_delta)
    with placed():
        spec = registry.with_defaults(registry.find_algorithm(request.algorithm), spec)
    return Question(request.algorithm, spec, budget, charge_delta, request.dtype)


def drafted(fields: AlgorithmFields, spec: Spec, facts: Objective) -> Question:
    with placed():
        draft = Draft(fields.algorithm, spec, fields.preset, facts)
    return Question(draft.algorithm, draft.spec, dtype=fields.dtype, draft=draft)


def names_a_budget(request: CalibrateRequest) -> bool:
    """Return whether the answer depends on what is charged to a budget."""
    return request.budget_id is not None or isinstance(request.target, BudgetGoal)

"""The use case of `/v1/sweep`: read all cells, then solve them. Long sweeps are solved in a separate process."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from accounting.convention import convention
from app.algorithms import service as algorithms
from app.algorithms.answers import solution_body
from app.algorithms.budget_costs import BudgetReader
from app.algorithms.calibrate import CalibrateRequest
from app.algorithms.plans import noise_body
from app.algorithms.questions import Question, read
from app.algorithms.schemas import DtypeName
from app.algorithms.targets import achieved_body
from app.auth.principal import Principal
from app.context import Context
from app.kit.process_pool import JobFailed
from app.problems import Problem, unprocessable
from app.sweeps.cells import Value, find_swept, read_cell
from app.sweeps.schemas import RowBody, RowProblem, SweepAnswer, SweepRequest
from app.wire.answers import ConventionBody
from calibrators.provenance import Provenance
from calibrators.registry import ALGORITHMS
from calibrators.spec import Calibration

#: A sweep of more values has the time limit `MOST_SECONDS_OF_LONG_SWEEPS`.
MOST_CELLS_OF_SHORT_SWEEPS = 64
#: Sweeps of more cells, and those of sampled steps, are solved in another process, which has limits of time and memory.
MOST_CELLS_IN_THREAD = 8
#: The number of cells that are given to a process together. If one cell takes too long, at most these cells have no
#: answer.
CELLS_TOGETHER = 32
#: No further cell is begun after this many seconds.
MOST_SECONDS = 30.0
MOST_SECONDS_OF_LONG_SWEEPS = 120.0


@dataclass(frozen=True)
class Cell:
    """A solved question, and whether its plan would fit the budget that it names."""

    calibration: Calibration
    fits_budget: bool | None


def sweep(context: Context, request: SweepRequest, principal: Principal) -> SweepAnswer:
    """Return one row for each value. A cell without an answer has a problem, and does not affect the others.

    Raises:
        Problem: 422 if no field or several fields take lists, or if no cell can be read.
    """
    swept = find_swept(request.root)
    if request.root.get("certificate"):
        detail = (
            "a certificate states the result of one calibration: send a single request to /v1/calibrate, or leave "
            "certificate out"
        )
        raise unprocessable("unsupported", detail, "certificate")
    reader = BudgetReader(context, principal)
    questions: list[Question | Problem] = []
    for value in swept.values:
        try:
            questions.append(read(read_cell(CalibrateRequest, request.root, {swept.path: value}), reader))
        except Problem as problem:
            questions.append(problem)
    readable = [question for question in questions if isinstance(question, Question)]
    if not readable and isinstance(questions[0], Problem):
        raise questions[0]
    outcomes = iter(_solve_all(context, readable))
    rows = [
        _problem_row(value, _row_problem(question))
        if isinstance(question, Problem)
        else _row(value, question, next(outcomes))
        for value, question in zip(swept.values, questions, strict=True)
    ]
    relations = dict.fromkeys(question.spec.relation for question in readable)
    return SweepAnswer(
        field=".".join(swept.path),
        values=list(swept.values),
        rows=rows,
        conventions={str(each): ConventionBody.model_validate(convention(each, ())) for each in relations},
        citations=[ALGORITHMS[name].source for name in dict.fromkeys(question.algorithm for question in readable)],
    )


def names_a_budget(request: SweepRequest) -> bool:
    """Return whether the answer of any cell may depend on the charges of a budget."""
    return "budget" in json.dumps(request.root)


def is_complete(answer: SweepAnswer) -> bool:
    """Return whether every cell was reached. A less busy server may reach more of them."""
    return all(row.problem is None or row.problem.code != "too_much_work" for row in answer.rows)


def solve_cells(questions: Sequence[Question], seconds: float) -> list[Cell | RowProblem]:
    """Return the outcome of each question, in their order. Questions that are not begun in time get ``too_much_work``.

    It also runs in another process, so its arguments and its result can be pickled.
    """
    deadline = time.monotonic() + seconds
    outcomes: list[Cell | RowProblem] = []
    for question in questions:
        if time.monotonic() > deadline:
            outcomes.append(_too_much_work("the sweep's time was over before this value"))
            continue
        try:
            calibration = algorithms.solve(question)
            fits = algorithms.fits(question, calibration)
        except Problem as problem:
            outcomes.append(_row_problem(problem))
        else:
            outcomes.append(Cell(calibration, fits))
    return outcomes


def _solve_all(context: Context, questions: Sequence[Question]) -> list[Cell | RowProblem]:
    is_short = len(questions) <= MOST_CELLS_OF_SHORT_SWEEPS
    seconds = MOST_SECONDS if is_short else MOST_SECONDS_OF_LONG_SWEEPS
    if len(questions) <= MOST_CELLS_IN_THREAD and all(algorithms.is_brief(question.spec) for question in questions):
        with context.numerics:
            return solve_cells(questions, seconds)
    deadline = time.monotonic() + seconds
    outcomes: list[Cell | RowProblem] = []
    for start in range(0, len(questions), CELLS_TOGETHER):
        together = questions[start : start + CELLS_TOGETHER]
        # Part of the process's own time is left for the last cell.
        left = min(deadline - time.monotonic(), 0.7 * context.processes.seconds)
        if left <= 0.0:
            outcomes += solve_cells(together, -1.0)
            continue
        try:
            outcomes += context.processes.run(solve_cells, together, left)
        except JobFailed as failure:
            outcomes += [_too_much_work(f"this value, or one of its neighbours, was given up: {failure}")] * len(
                together
            )
    return outcomes


def _row(value: Value, question: Question, outcome: Cell | RowProblem) -> RowBody:
    if isinstance(outcome, RowProblem):
        return _problem_row(value, outcome)
    calibration = outcome.calibration
    return RowBody(
        value=value,
        solution=solution_body(calibration),
        achieved=achieved_body(question.spec.target, calibration.achieved),
        noise=noise_body(calibration.plan),
        hyperparameters=_values(calibration.hyperparameters),
        utility=_values(calibration.utility),
        dtype=cast(DtypeName, calibration.plan.dtype),
        dtype_reason=calibration.dtype_reason,
        plan_hash=calibration.plan.plan_hash,
        fits_budget=outcome.fits_budget,
        warnings=list(calibration.warnings),
    )


def _values(numbers: Sequence[Provenance]) -> dict[str, float | list[float] | None]:
    return {item.name: list(item.value) if isinstance(item.value, tuple) else item.value for item in numbers}


def _problem_row(value: Value, problem: RowProblem) -> RowBody:
    return RowBody(value=value, problem=problem)


def _row_problem(problem: Problem) -> RowProblem:
    return RowProblem(code=problem.code, detail=problem.detail, errors=list(problem.errors))


def _too_much_work(reason: str) -> RowProblem:
    detail = f"{reason}; sweep fewer values at a time, or an easier target"
    return RowProblem(code="too_much_work", detail=detail, errors=[])

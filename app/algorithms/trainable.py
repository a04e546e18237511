"""The models and plans that an algorithm can train. A run that a worker would refuse is refused here, before any
charge."""

from __future__ import annotations

from accounting.errors import one_of
from app.problems import refused_at, unprocessable
from calibrators.plan import Plan
from trainer.algorithms import EXECUTIONS
from trainer.execution import Proposal
from trainer.models import Model

#: The most numbers that all slots may hold together: 4 GiB in float64.
MAX_SLOT_NUMBERS = 2**29
#: The numbers of a slot besides its features: the label, its square, whether the slot is filled, and its position.
_NUMBERS_BESIDE_A_ROW = 4


def check_model(algorithm: str, kind: str) -> None:
    """Refuse a model that the algorithm does not train.

    Raises:
        Problem: 422 ``unsupported_model``.
    """
    known = EXECUTIONS[algorithm].models
    if kind not in known:
        raise unprocessable("unsupported_model", f"{algorithm} trains {one_of(known)}, not {kind}", "model", "kind")


def trainers_of(kind: str) -> tuple[str, ...]:
    """Return the names of the algorithms that train such a model, in the order of lists."""
    return tuple(name for name, execution in EXECUTIONS.items() if kind in execution.models)


def check_slots(capacity: int, model: Model) -> None:
    """Refuse a data set whose slots take more memory than a worker has.

    Args:
        capacity: Slots of the data set, a public number. Each takes the memory of a row, whether it is filled or not.
        model: The model whose features the rows hold.

    Raises:
        Problem: 422 ``too_many_slots``.
    """
    numbers = capacity * (model.num_features + _NUMBERS_BESIDE_A_ROW)
    if numbers > MAX_SLOT_NUMBERS:
        detail = (
            f"a run keeps a slot for each of {capacity} possible records, {_gibibytes(numbers)} in float64, and a "
            f"worker has room for {_gibibytes(MAX_SLOT_NUMBERS)}: register the data with a smaller capacity or with "
            "fewer columns"
        )
        raise unprocessable("too_many_slots", detail, "dataset_id")


def check_plan(plan: Plan, model: Model, capacity: int) -> None:
    """Refuse a plan whose bounds the trainer's arithmetic or the model cannot guarantee.

    Args:
        plan: The plan that is to be carried out.
        model: The model that is trained.
        capacity: Slots of the data set; a batch may hold all of them.

    Raises:
        Problem: 422, mostly ``invalid_value``.
    """
    with refused_at():
        EXECUTIONS[plan.algorithm].check(Proposal(plan, model, capacity))


def _gibibytes(numbers: int) -> str:
    return f"{8 * numbers / 2**30:.3g} GiB"

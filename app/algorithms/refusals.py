"""Turn refusals of the engine into HTTP problems that point at the refused field of the request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from accounting.errors import AccountingError, NoCostInFilter, Unreachable, Unsupported
from accounting.targets import BudgetTarget
from app.problems import Problem, from_accounting, unprocessable
from calibrators.spec import Spec

_PARENTS = {
    "charge": ("target",),
    "step_size": ("hyperparameters",),
    "averaged_share": ("hyperparameters",),
    "momentum": ("hyperparameters",),
    "step_size_schedule": ("hyperparameters",),
    "max_batch_size": ("sampling",),
    "stages": ("schedule",),
}


@contextmanager
def placed() -> Iterator[None]:
    """Turn the engine's refusals of values in a request into HTTP problems."""
    try:
        yield
    except AccountingError as error:
        raise _at_its_place(error) from None


@contextmanager
def refusals(spec: Spec) -> Iterator[None]:
    """Turn the engine's refusals of a calibration into HTTP problems."""
    try:
        yield
    except AccountingError as error:
        raise _refusal(error, spec) from None


def _refusal(error: AccountingError, spec: Spec) -> Problem:
    """Point a refusal at a field of the request. The engine's own pointer may be into a list of events, which the
    request does not have."""
    if isinstance(error, Unreachable):
        # If the evaluation uses up the target, the error points at the field that does so. Otherwise the target is at
        # fault.
        return unprocessable(error.code, error.detail, *(error.pointer or ("target",)))
    if isinstance(error, NoCostInFilter):
        if isinstance(spec.target, BudgetTarget):
            return unprocessable(error.code, error.detail, "target", "budget_id")
        detail = f"no proof shows that this noise meets the target: {error.detail}"
        return unprocessable(error.code, detail, "target", "kind")
    if isinstance(error, Unsupported) and not error.pointer:
        return unprocessable(error.code, error.detail, "solve_for")
    return _at_its_place(error)


def _at_its_place(error: AccountingError) -> Problem:
    """Complete the pointer to a field. The calibrators give only the field's name, without the objects that contain
    it."""
    first = str(error.pointer[0]) if error.pointer else ""
    return from_accounting(error, *_PARENTS.get(first, ()))

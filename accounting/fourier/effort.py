"""This module counts effort: the operations after which a question is answered with the bounds found so far.

Operations are counted and not timed, so that the digits of an answer depend on the question alone. An operation is
about as much work as one multiplication of complex numbers: `DEFAULT_EFFORT` of them take one to two seconds on one
core.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

DEFAULT_EFFORT, LEAST_EFFORT, MOST_EFFORT = 1_000_000_000, 1_000_000, 3_000_000_000
#: Operations for a node at a real tilt, for a node of a line with its envelope, and for a node at one point of a line.
TILT, LINE, POINT = 10, 300, 20


class OutOfEffort(OverflowError):
    """An error that says that a computation needs more operations than are left. A cheaper method may still answer."""


@dataclass
class Effort:
    """The effort that one question may take, in each direction of the loss.

    Attributes:
        limit: Number of operations allowed.
        spent: Number of operations so far, in this direction.
        is_reached: Whether the limit was reached in some direction.
    """

    limit: int
    spent: int = 0
    is_reached: bool = False


_current: ContextVar[Effort | None] = ContextVar("effort", default=None)


@contextmanager
def question() -> Iterator[Effort]:
    """Count the operations of the question in this block against the limit that is set, or against `DEFAULT_EFFORT`."""
    outer = _current.get()
    effort = Effort(DEFAULT_EFFORT if outer is None else outer.limit)
    token = _current.set(effort)
    try:
        yield effort
    finally:
        _current.reset(token)


@contextmanager
def limited(limit: int) -> Iterator[None]:
    """Limit each computation in the ``with`` block to ``limit`` operations.

    >>> from accounting.accountant import epsilon_for_delta
    >>> from accounting.events import Event, Gaussian, Poisson
    >>> from accounting.relations import NeighboringRelation
    >>> few = [Event(Gaussian(0.5), Poisson(1e-6), 1000)]
    >>> with limited(2_000_000):
    ...     wide = epsilon_for_delta(few, NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-7)
    >>> wide.value.width > 1e-3, wide.warnings[0][:34]
    (True, 'The engine stopped at its limit of')
    """
    token = _current.set(Effort(limit))
    try:
        yield
    finally:
        _current.reset(token)


def renew() -> None:
    """Begin another direction. The count starts again at 0."""
    effort = _current.get()
    if effort is not None:
        effort.spent = 0


def spend(operations: int) -> None:
    """Count operations before they are done.

    Raises:
        OutOfEffort: If the operations are more than are left. They are then not done, so they do not count.
    """
    effort = _current.get()
    if effort is None:
        return
    if effort.spent + operations > effort.limit:
        effort.is_reached = True
        raise OutOfEffort(f"the question takes more than the limit of {effort.limit} operations")
    effort.spent += operations


@contextmanager
def share_of_effort(share: float, reserved: float) -> Iterator[None]:
    """Limit the block to a share of the operations that are left beyond those that are reserved."""
    effort = _current.get()
    if effort is None:
        yield
        return
    limit = effort.limit
    effort.limit = effort.spent + max(0, int(share * (limit - effort.spent - reserved)))
    try:
        yield
    finally:
        effort.limit = limit


def left() -> float:
    """Return how many operations this direction may still take."""
    effort = _current.get()
    return math.inf if effort is None else float(effort.limit - effort.spent)

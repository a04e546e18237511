"""This module is shared by trainers whose plan is one structured phase: it has the state between steps, and checks of a
plan."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, TypeVar

from accounting.errors import InvalidValue
from accounting.relations import NeighboringRelation
from calibrators.phases.structured import StructuredPhase
from calibrators.plan import Plan
from trainer.arrays import Array
from trainer.clipping import SMALLEST_MAX_GRAD_NORMS
from trainer.loop import Resumable, Task

P = TypeVar("P", bound=StructuredPhase)
D = TypeVar("D")


class StructuredSteps(Resumable):
    """A trainer that counts steps and keeps the point after them and a source of noise.

    A subclass names in ``kept`` what else is carried from step to step.

    Args:
        task: The task of a plan of one structured phase.
        noise: The source of the noise.
        start: The first point, shape (d,), float64; None means 0, the centre of a ball.
    """

    kept: ClassVar[tuple[str, ...]] = ("_done", "_point", "_noise")

    def __init__(self, task: Task, noise: Any, start: Array | None = None) -> None:
        self._task, self._noise = task, noise
        self._xp = xp = task.records.xp
        self._point: Array = xp.zeros(task.model.num_parameters, dtype=xp.float64) if start is None else start
        self._done = 0

    @property
    def steps_done(self) -> int:
        return self._done

    @abstractmethod
    def step(self) -> None:
        """Carry out the next step."""

    def released(self) -> Array:
        return self._point

    def close(self) -> None:
        """Do nothing, since nothing is drawn ahead."""
        return


def initial_point(task: Task) -> Array:
    """Return the point from which the model's training starts: shape (d,), float64."""
    xp = task.records.xp
    return xp.asarray(task.model.initial(task.streams.initialisation), dtype=xp.float64)


def only_phase(plan: Plan, phase_type: type[P], *, exactly: bool = False, where: str = "") -> P:
    """Return the plan's only phase.

    Args:
        phase_type: The type that the phase must have.
        exactly: Whether a phase of a subclass is refused, too.
        where: The domain that the phase needs, in words, for the message.

    Raises:
        InvalidValue: If the plan has several phases, or its phase is of another kind.
    """
    phase = plan.phases[0]
    if len(plan.phases) != 1 or not isinstance(phase, phase_type) or (exactly and type(phase) is not phase_type):
        raise another_plan(plan, phase_type, where)
    return phase


def domain_of(plan: Plan, domain_type: type[D], phase_type: type[StructuredPhase], where: str) -> D:
    """Return the plan's domain.

    Raises:
        InvalidValue: If the domain is of another kind.
    """
    if not isinstance(plan.domain, domain_type):
        raise another_plan(plan, phase_type, where)
    return plan.domain


def another_plan(plan: Plan, phase_type: type[StructuredPhase], where: str = "") -> InvalidValue:
    """Return the error for a plan that is not a plan of the algorithm."""
    return InvalidValue(
        f"{plan.algorithm} takes only plans with one phase, of kind {phase_type.kind}{where}",
        code="invalid_plan",
        pointer=("phases",),
    )


def check_positions(plan: Plan, words: str) -> None:
    """Refuse a relation under which neighbours have records at other positions.

    Args:
        words: The message, which says why positions matter.

    Raises:
        InvalidValue: If a record may come or go.
    """
    if plan.neighboring_relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
        raise InvalidValue(words, pointer=("neighboring_relation",))


def check_kept(name: str, bound: float, dtype: str = "float64", rescale: str = "losses") -> None:
    """Refuse a bound of the only phase that a numeric type cannot keep.

    Args:
        name: The name of the phase's field.
        bound: The value of the field, or the smallest of its values.
        dtype: The numeric type.
        rescale: The quantity to rescale, in words, which makes the bound larger.

    Raises:
        InvalidValue: If the bound is too small.
    """
    smallest = SMALLEST_MAX_GRAD_NORMS[dtype]
    if bound < smallest:
        kept_in = "floating point" if rescale == "losses" else dtype
        raise InvalidValue(
            f"{name} must be at least {smallest:g} to be kept in {kept_in}; rescale the {rescale}",
            pointer=("phases", 0, name),
        )

"""Computes many values for one list of events within the time limit of a request."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeVar

from accounting.accountant import deltas_for_epsilons, epsilons_for_deltas
from accounting.events import Event, FullBatch, Gaussian
from accounting.fourier.effort import DEFAULT_EFFORT, limited
from accounting.groups import group_delta_for_epsilon, group_epsilon_for_delta
from accounting.intervals import Answer
from accounting.relations import NeighboringRelation
from accounting.schedule_warnings import hides_nothing, schedule_warnings
from accounting.shuffling import Shuffling, about_shuffling, is_shuffled
from accounting.true_positive_rate import tpr_for_fpr, tpr_from_deltas
from app.context import Context
from app.kit.process_pool import too_much_work
from app.problems import refused_at, unprocessable

#: Full batches with Gaussian noise have a closed form. This many pairs of event and value take a few milliseconds.
MOST_IN_THREAD = 1000

P = ParamSpec("P")
T = TypeVar("T")
Evaluate = Callable[..., list[Answer]]


@dataclass
class Evaluation:
    """The engine, called for one request.

    Attributes:
        seconds: The time limit. After it, no computation begins, and a running one is given up.
        group_size: The number of records in a group.
        effort: The number of operations that each value may take.
    """

    context: Context
    events: tuple[Event, ...]
    relation: NeighboringRelation
    seconds: float
    group_size: int = 1
    effort: int = DEFAULT_EFFORT

    def __post_init__(self) -> None:
        self._deadline = time.monotonic() + self.seconds

    def epsilons(self, deltas: Sequence[float], *pointer: str | int) -> list[Answer]:
        """Return epsilon at each delta.

        Args:
            deltas: The deltas.
            pointer: The field of the request that asks for so many values.

        Raises:
            Problem: 422 when the engine refuses the events, or they take too long.
        """
        return self._answers(_group_epsilons if self.group_size > 1 else epsilons_for_deltas, deltas, pointer)

    def deltas(self, epsilons: Sequence[float], *pointer: str | int) -> list[Answer]:
        """Return delta at each epsilon; otherwise like `epsilons`."""
        return self._answers(_group_deltas if self.group_size > 1 else deltas_for_epsilons, epsilons, pointer)

    def warnings(self, field: str, value: float) -> tuple[str, ...]:
        """Return warnings about the sampling schemes, with numbers for the ``value`` of ``field``."""
        if not any(map(hides_nothing, self.events)):
            # These warnings contain no numbers, so no process is needed.
            return schedule_warnings(self.events, self.relation, **{field: value})
        return self._in_bounds((field,), schedule_warnings, self.events, self.relation, **{field: value})

    def shuffling(self, delta: float, *pointer: str | int) -> Shuffling | None:
        """Return a lower bound on the cost of shuffled epochs at ``delta``, and the cost with other batches; None
        without epochs."""
        if not any(map(is_shuffled, self.events)):
            return None
        return self._in_bounds(pointer, about_shuffling, self.events, self.relation, delta)

    def true_positive_rates(self, rates: Sequence[float], *pointer: str | int) -> list[Answer]:
        """Return the largest true positive rate at each false positive rate; otherwise like `epsilons`."""
        return self._answers(_true_positive_rates, rates, pointer)

    def _answers(self, evaluate: Evaluate, values: Sequence[float], pointer: tuple[str | int, ...]) -> list[Answer]:
        answers: list[Answer] = []
        while len(answers) < len(values):
            # Other callers get a turn between the groups. The sizes of the groups are 1, 2, 4 and so on, whatever the
            # time: the last digits of a value depend on the values computed with it, and must not depend on the speed
            # of the machine.
            together = len(answers) + 1
            if time.monotonic() > self._deadline:
                raise unprocessable(
                    "too_much_work",
                    f"only {len(answers)} of {len(values)} values were found in {self.seconds:g} s; ask for fewer "
                    "values at a time, or about fewer events",
                    *pointer,
                )
            with self.context.metrics.evaluation() as found:
                more = self._together(evaluate, values[len(answers) : len(answers) + together], pointer)
                found.evaluator, found.values = more[-1].method, len(more)
            answers += more
        return answers

    def _together(self, evaluate: Evaluate, values: Sequence[float], pointer: tuple[str | int, ...]) -> list[Answer]:
        size = {"group_size": self.group_size} if self.group_size > 1 else {}
        if self._has_closed_form(len(values)):
            with refused_at("events"), self.context.numerics:
                return evaluate(self.events, self.relation, values)
        return self._in_bounds(pointer, evaluate, self.events, self.relation, values, **size)

    def _has_closed_form(self, values: int) -> bool:
        """Return whether this many values take only milliseconds for all parameters of the events."""
        return (
            self.group_size == 1
            and len(self.events) * values <= MOST_IN_THREAD
            and all(
                isinstance(each.mechanism, Gaussian) and isinstance(each.sampling, FullBatch) for each in self.events
            )
        )

    def _in_bounds(
        self, pointer: tuple[str | int, ...], function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Return the result of ``function``, computed in a process, since a thread that computes for minutes cannot be
        stopped."""
        left = max(0.0, self._deadline - time.monotonic())
        remedy = "ask for fewer values at a time, or about fewer events"
        if self.group_size > 1:
            remedy = "ask for fewer values at a time, about fewer events, or about a smaller group"
        with refused_at("events"), too_much_work("this", remedy, *pointer):
            return self.context.processes.run_within(left, _limited, self.effort, partial(function, *args, **kwargs))


def _limited(effort: int, function: Callable[[], T]) -> T:
    with limited(effort):
        return function()


def _true_positive_rates(
    events: Sequence[Event], relation: NeighboringRelation, rates: Sequence[float], *, group_size: int = 1
) -> list[Answer]:
    if group_size == 1:
        return [tpr_for_fpr(events, relation, rate) for rate in rates]
    return [
        tpr_from_deltas(lambda epsilon: group_delta_for_epsilon(events, relation, epsilon, group_size), rate)
        for rate in rates
    ]


def _group_epsilons(
    events: Sequence[Event], relation: NeighboringRelation, deltas: Sequence[float], *, group_size: int
) -> list[Answer]:
    return [group_epsilon_for_delta(events, relation, delta, group_size) for delta in deltas]


def _group_deltas(
    events: Sequence[Event], relation: NeighboringRelation, epsilons: Sequence[float], *, group_size: int
) -> list[Answer]:
    return [group_delta_for_epsilon(events, relation, epsilon, group_size) for epsilon in epsilons]

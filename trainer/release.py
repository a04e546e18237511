"""This module makes the released model from the points of a run, step by step, so that no path is stored."""

from __future__ import annotations

from typing import Any, Protocol

from calibrators.release import AverageIterate, LastIterate, RandomIterate, Release, WeightedAverage
from trainer.arrays import Array, namespace_of
from trainer.keystream import Keystream

State = dict[str, Any]


class Rule(Protocol):
    """A rule that sees the points of every step and gives the released point at the end."""

    def see(self, step: int, start: Array, end: Array) -> None:
        """Take note that step number ``step``, from 0 on, leads from ``start`` to ``end``."""
        ...

    def released(self) -> Array:
        """Return what is released after the last step, shape (d,)."""
        ...

    def state(self) -> State:
        """Return everything that is needed to go on from here."""
        ...

    def restore(self, state: State) -> None:
        """Go on from the point at which `state` was taken."""
        ...


class _Kept:
    """A rule that keeps a single vector."""

    def __init__(self, start: Array) -> None:
        self._kept = start

    def released(self) -> Array:
        return self._kept

    def state(self) -> State:
        return {"kept": self._kept}

    def restore(self, state: State) -> None:
        self._kept = namespace_of(self._kept).asarray(state["kept"])


class Last(_Kept):
    """The point to which the last step leads."""

    def see(self, step: int, start: Array, end: Array) -> None:
        self._kept = end


class Average(_Kept):
    """The mean of the points from which the steps start."""

    def __init__(self, steps: int, start: Array) -> None:
        super().__init__(0.0 * start)
        self._steps = steps

    def see(self, step: int, start: Array, end: Array) -> None:
        self._kept = self._kept + start

    def released(self) -> Array:
        return self._kept / self._steps


class Random(_Kept):
    """The point from which one step starts. The step is drawn before the first one, and stays secret."""

    def __init__(self, steps: int, start: Array, stream: Keystream) -> None:
        super().__init__(start)
        self._chosen = int(stream.generator().integers(steps))

    def see(self, step: int, start: Array, end: Array) -> None:
        if step == self._chosen:
            self._kept = start

    def state(self) -> State:
        return super().state() | {"chosen": self._chosen}

    def restore(self, state: State) -> None:
        super().restore(state)
        self._chosen = int(state["chosen"])


class Weighted(_Kept):
    """A weighted mean of the points to which the steps lead."""

    def __init__(self, weights: tuple[float, ...], start: Array) -> None:
        super().__init__(0.0 * start)
        self._weights = weights

    def see(self, step: int, start: Array, end: Array) -> None:
        self._kept = self._kept + self._weights[step] * end


def rule_for(release: Release, steps: int, start: Array, stream: Keystream) -> Rule:
    """Return the rule that a plan names.

    Args:
        steps: The number of steps of the whole plan.
        start: The point from which training starts.
        stream: The stream of a random choice.
    """
    match release:
        case LastIterate():
            return Last(start)
        case AverageIterate():
            return Average(steps, start)
        case RandomIterate():
            return Random(steps, start, stream)
        case WeightedAverage():
            return Weighted(release.weights, start)

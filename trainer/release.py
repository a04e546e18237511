"""The points of a run that make the model, gathered step by step, so that no path is stored."""

from __future__ import annotations

from typing import Any, Protocol

from calibrators.release import AverageIterate, LastIterate, RandomIterate, Release, WeightedAverage
from trainer.arrays import Array, namespace_of
from trainer.keystream import Keystream

State = dict[str, Any]


class Rule(Protocol):
    """Sees every step's points and says in the end what is released."""

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
    """One vector is all that is kept."""

    def __init__(self, start: Array) -> None:
        self._kept = start

    def released(self) -> Array:
        return self._kept

    def state(self) -> State:
        return {"kept": self._kept}

    def restore(self, state: State) -> None:
        self._kept = namespace_of(self._kept).asarray(state["kept"])


class Last(_Kept):
    """The point that the last step leads to."""

    def see(self, step: int, start: Array, end: Array) -> None:
        self._kept = end


class Average(_Kept):
    """The mean of the points that the steps start from."""

    def __init__(self, steps: int, start: Array) -> None:
        super().__init__(0.0 * start)
        self._steps = steps

    def see(self, step: int, start: Array, end: Array) -> None:
        self._kept = self._kept + start

    def released(self) -> Array:
        return self._kept / self._steps


class Random(_Kept):
    """The point that one step starts from; which one is drawn before the first step, and stays secret."""

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
    """A weighted mean of the points that the steps lead to."""

    def __init__(self, weights: tuple[float, ...], start: Array) -> None:
        super().__init__(0.0 * start)
        self._weights = weights

    def see(self, step: int, start: Array, end: Array) -> None:
        self._kept = self._kept + self._weights[step] * end


def rule_for(release: Release, steps: int, start: Array, stream: Keystream) -> Rule:
    """Return the rule that a plan names.

    Args:
        steps: The number of steps of the whole plan.
        start: The point that training starts from.
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

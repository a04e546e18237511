"""This module hands out the declared places in a secret order, each of them once. The order is drawn before any record
is read."""

from __future__ import annotations

import numpy as np

from trainer.loop import State, Task
from trainer.records import Indices


class SecretSlots:
    """Hands out slots in an order that is drawn from the declared size alone.

    Guarantees:
        - no_slot_is_taken_twice: so a record contributes to one mean at most.
        - rows_beyond_the_declared_size_are_never_read.
    """

    def __init__(self, task: Task) -> None:
        self._positions = task.records.positions
        places = task.streams.sampling.generator().permutation(task.plan.dataset_size)
        self._order: Indices = places.astype(np.intp)
        self._taken = 0

    def take(self, size: int) -> Indices:
        """Return the next ``size`` slots, empty ones included."""
        slots = self._positions[self._order[self._taken : self._taken + size]]
        self._taken += size
        return slots

    def state(self) -> State:
        return {"order": self._order, "taken": self._taken}

    def restore(self, state: State) -> None:
        self._order, self._taken = np.asarray(state["order"], dtype=np.intp), int(state["taken"])

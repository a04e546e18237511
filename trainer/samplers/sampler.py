"""The protocol of a sampler, which draws the slots of one step after the other."""

from __future__ import annotations

from typing import Any, Protocol

from trainer.records import Selection

State = dict[str, Any]


class Sampler(Protocol):
    """Draws the slots of one step after the other."""

    def draw(self) -> Selection:
        """Return the slots of the next step, padded by the spare slot."""
        ...

    def state(self) -> State:
        """Return what the sampler keeps between steps, beside the state of the stream that it draws from."""
        ...

    def restore(self, state: State) -> None:
        """Go on from the point at which `state` was taken, once the stream is where it was."""
        ...


class MemorylessSampler:
    """Keeps nothing between steps but the state of its stream."""

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        pass

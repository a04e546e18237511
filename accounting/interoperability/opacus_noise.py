"""The noise that Opacus finds for a target, by the steps of Opacus' own search."""

from __future__ import annotations

from accounting.errors import Unreachable
from accounting.interoperability.opacus import OpacusHistory
from accounting.numbers import MAX_NOISE_MULTIPLIER

#: The number of halvings after which Opacus' search stops, whatever the tolerance.
_MOST_HALVINGS = 100


def noise_that_opacus_finds(
    mechanism: str, target_epsilon: float, delta: float, sample_rate: float, steps: int, tolerance: float = 0.01
) -> float:
    """Return the result of Opacus' `get_noise_multiplier`.

    Its search doubles from 20 until epsilon is at most the target, and halves the interval until epsilon is less than
    the tolerance below it. If its epsilon is not reproduced to the last digit, a decision at the edge may differ.

    Args:
        mechanism: Opacus' accountant: ``rdp``, ``prv`` or ``gdp``.
        target_epsilon, delta: The target.
        sample_rate, steps: The training's sample rate and number of steps, as Poisson samples.
        tolerance: The tolerance in epsilon.

    Raises:
        InvalidValue: If a number is out of range.
        Unreachable: If the search finds no noise multiplier.

    >>> round(noise_that_opacus_finds("rdp", 3.0, 1e-5, 0.01, 1000), 4)
    0.8655
    """

    def epsilon_at(noise: float) -> float:
        state = {"mechanism": mechanism, "history": [[noise, sample_rate, steps]]}
        found = OpacusHistory.from_state(state).reported_epsilon(delta)
        return float("inf") if found is None else found

    low, high = 0.0, 10.0
    reached = float("inf")
    while reached > target_epsilon:
        high *= 2.0
        if high > MAX_NOISE_MULTIPLIER:
            raise Unreachable(f"Opacus finds no noise with which epsilon is at most {target_epsilon:g}")
        reached = epsilon_at(high)
    for _ in range(_MOST_HALVINGS):
        if target_epsilon - reached <= tolerance:
            break
        middle = 0.5 * (low + high)
        found = epsilon_at(middle)
        if found < target_epsilon:
            high, reached = middle, found
        else:
            low = middle
    return high

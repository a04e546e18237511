"""Uses each compiled loop of the engine once, for `trainer.warm_up`."""

from __future__ import annotations

from accounting.accountant import delta_for_epsilon, epsilon_for_delta, epsilons_for_deltas
from accounting.events import Event, Gaussian, Laplace, Poisson, RandomAllocation, WithoutReplacement
from accounting.relations import NeighboringRelation

_ADD_OR_REMOVE, _REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
_TRAINING = [Event(Gaussian(1.0), Poisson(0.01), 1000)]


def warm_up() -> None:
    """Ask questions that use every compiled loop of the engine with every type of argument."""
    epsilon_for_delta(_TRAINING, _ADD_OR_REMOVE, 1e-5)
    epsilon_for_delta(_TRAINING, _REPLACE, 1e-5)
    epsilons_for_deltas(_TRAINING, _ADD_OR_REMOVE, [1e-6, 1e-5, 1e-4])
    epsilon_for_delta([Event(Gaussian(1.0), Poisson(0.01), 10), Event(Gaussian(3.0))], _ADD_OR_REMOVE, 1e-5)
    # Few participations: bands of losses.
    few = [Event(Gaussian(0.6), Poisson(1e-3), 10)]
    epsilon_for_delta(few, _ADD_OR_REMOVE, 1e-6)
    epsilon_for_delta(few, _REPLACE, 1e-6)
    epsilon_for_delta([Event(Gaussian(4.0), WithoutReplacement(10, 1000), 100)], _REPLACE, 1e-5)
    epsilon_for_delta([Event(Gaussian(2.0), RandomAllocation(6, 1), 15)], _ADD_OR_REMOVE, 1e-5)
    epsilon_for_delta([Event(Gaussian(2.0), RandomAllocation(6, 1), 12)], _ADD_OR_REMOVE, 1e-5)
    # Laplace noise has atoms.
    delta_for_epsilon([Event(Laplace(2.0), Poisson(0.1), 30)], _ADD_OR_REMOVE, 1.0)

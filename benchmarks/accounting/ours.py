"""This module computes our answers, by public functions of the engine alone."""

from __future__ import annotations

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.events import Event, Gaussian, Poisson, WithoutReplacement
from accounting.intervals import Answer
from accounting.relations import NeighboringRelation
from accounting.solve import Calibrated, solve_noise_multiplier
from benchmarks.accounting.cases import FixedSize, Target, Training
from benchmarks.timing import perturbed

ADD_OR_REMOVE_ONE = NeighboringRelation.ADD_OR_REMOVE_ONE


def epsilon(training: Training, index: int = 0) -> Answer:
    """Return the certified epsilon of a training run; ``index`` numbers timed calls (see
    `benchmarks.timing.perturbed`).
    """
    return epsilon_for_delta([_event(training, index)], training.relation, training.delta)


def delta(training: Training, at_epsilon: float, index: int = 0) -> Answer:
    """Return the certified delta of a training run at ``at_epsilon``."""
    return delta_for_epsilon([_event(training, index)], training.relation, at_epsilon)


def noise(target: Target, index: int = 0) -> Calibrated:
    """Return the smallest certified noise multiplier for a target."""
    sampling = Poisson(target.sampling_probability)
    return solve_noise_multiplier(
        lambda noise_multiplier: [Event(Gaussian(noise_multiplier), sampling, target.steps)],
        ADD_OR_REMOVE_ONE,
        epsilon=perturbed(target.epsilon, index),
        delta=target.delta,
    )


def fixed_size_epsilon(case: FixedSize, index: int = 0) -> Answer:
    """Return the certified epsilon of fixed-size batches under replace_one."""
    mechanism = Gaussian(perturbed(case.noise_multiplier, index))
    event = Event(mechanism, WithoutReplacement(case.batch_size, case.dataset_size), case.steps)
    return epsilon_for_delta([event], NeighboringRelation.REPLACE_ONE, case.delta)


def full_batch_epsilon(noise_multiplier: float, relation: NeighboringRelation, at_delta: float) -> Answer:
    """Return the certified epsilon of one Gaussian mechanism."""
    return epsilon_for_delta([Event(Gaussian(noise_multiplier))], relation, at_delta)


def _event(training: Training, index: int) -> Event:
    mechanism = Gaussian(perturbed(training.noise_multiplier, index))
    return Event(mechanism, Poisson(training.sampling_probability), training.steps)

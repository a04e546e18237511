"""Turns the declarations of a training loop, made before its first step, into the event that is reserved."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

from epsilond_client.events import gaussian

if TYPE_CHECKING:
    from epsilond_client.samplers import Sampler

#: A quotient this close above a whole number counts as that number, since 1 / sample_rate is rarely exact.
_ROUNDING = 1e-9


def training_event(
    noise_multiplier: float,
    *,
    steps: int | None = None,
    epochs: int | None = None,
    sampler: Sampler | None = None,
    sample_rate: float | None = None,
    sampling_probability: float | None = None,
    sampling: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the event of a whole training: steps of Gaussian noise with their sampling.

    Args:
        noise_multiplier: The multiplier of each step: noise divided by the bound on one record's contribution.
        steps: The most steps that may be taken; if left out, those that a sampler has left.
        epochs: Passes, in place of steps: each is 1 / sample_rate steps, rounded up.
        sampler: A sampler of `epsilond_client.samplers`, which draws the batches.
        sample_rate, sampling_probability: Two names of one number: the probability of a Poisson sample.
        sampling: Any other sampling scheme.

    Raises:
        ValueError: a number is outside its range; or the way in which batches are drawn, or the number of steps, is
            missing or given twice.

    >>> training_event(1.1, sample_rate=0.01, epochs=5)["count"]
    500
    """
    if not _is_above_0(noise_multiplier):
        raise ValueError(
            f"noise_multiplier must be a number above 0, got {noise_multiplier!r}: it is the standard deviation of "
            "the noise over the bound on one record's contribution. client.calibrate finds the noise for a target"
        )
    if sample_rate is not None:
        if sampling_probability is not None:
            raise ValueError("sample_rate and sampling_probability are the same number: give one of them")
        sampling_probability = _rate("sample_rate", sample_rate)
    elif sampling_probability is not None:
        sampling_probability = _rate("sampling_probability", sampling_probability)
    if sum(given is not None for given in (sampler, sampling, sampling_probability)) != 1:
        raise ValueError(
            "say how batches are drawn: give a sampler of epsilond_client.samplers, sample_rate for other "
            'Poisson samples, or sampling for another scheme ({"kind": "full_batch"}, '
            '{"kind": "shuffled_epochs", "steps_per_epoch": ...})'
        )
    if sampler is not None:
        if sampler.is_within_epoch:
            raise ValueError(
                "the sampler is in the middle of an epoch, but a reservation must begin with a whole epoch. Call "
                "begin_epoch() on the sampler, which skips the rest of the present epoch"
            )
        sampling = sampler.sampling
        if steps is None and epochs is None:
            steps = sampler.steps_left
    if epochs is not None:
        steps = _steps_of(epochs, steps, sampling_probability)
    if steps is None:
        raise ValueError(
            "give the number of steps or, with a sample_rate, the number of epochs; with a sampler, neither is needed"
        )
    if operator.index(steps) < 1:
        raise ValueError(f"steps must be 1 or more, got {steps}")
    return gaussian(noise_multiplier, sampling_probability=sampling_probability, sampling=sampling, count=steps)


def steps_per_epoch(sample_rate: float) -> int:
    """Return the number of steps in which each record is drawn once on average, rounded up.

    >>> steps_per_epoch(0.01), steps_per_epoch(0.3)
    (100, 4)
    """
    return math.ceil((1.0 - _ROUNDING) / sample_rate)


def _steps_of(epochs: int, steps: int | None, sampling_probability: float | None) -> int:
    if steps is not None:
        raise ValueError(f"give the number of epochs or the number of steps, not both; got {epochs} and {steps}")
    if sampling_probability is None:
        raise ValueError(
            "epochs need a sample_rate, which gives their number of steps: give steps instead, or neither with a "
            "sampler"
        )
    if operator.index(epochs) < 1:
        raise ValueError(f"epochs must be 1 or more, got {epochs}")
    return epochs * steps_per_epoch(sampling_probability)


def _rate(name: str, value: float) -> float:
    if not (_is_above_0(value) and value <= 1.0):
        raise ValueError(
            f"{name} must be a number above 0 and at most 1, got {value!r}: it is the probability with which a "
            "record is in a batch, the batch size divided by the number of records"
        )
    return float(value)


def _is_above_0(value: object) -> bool:
    return isinstance(value, Real) and float(value) > 0.0

"""This module has the random streams of one run, one for each purpose, so that no stream depends on how much another is
used."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, fields
from typing import Any

from accounting.events import Sampling
from accounting.numbers import read_integer
from trainer.exact.gaussian import RoundedGaussian
from trainer.exact.generalized_gaussian import GeneralizedGaussianNoise
from trainer.exact.selection import Selections
from trainer.keystream import Keystream
from trainer.noise import Noise
from trainer.records import Records
from trainer.samplers import Sampler, sampler_for
from trainer.shuffle.coins import Coins

KEY_BYTES = 16
MAX_SEED = 2**128 - 1


@dataclass(frozen=True)
class RandomStreams:
    """Independent streams of one run, each with a key of its own.

    They are separate so that the noise depends on the plan alone, and not on the number of records.

    Attributes:
        slots: The stream that decides the slot of each record.
        sampling: The stream that decides which records take part in a step.
        noise: The stream of the noise that is added to sums.
        initialisation: The stream of the point from which training starts.
        release: The stream that decides which point is released, if one is drawn.
    """

    slots: Keystream
    sampling: Keystream
    noise: Keystream
    initialisation: Keystream
    release: Keystream

    def state(self) -> dict[str, Any]:
        """Return the state of every stream, which determines all later draws."""
        return {field.name: getattr(self, field.name).state for field in fields(self)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from the point at which `state` was taken."""
        for field in fields(self):
            getattr(self, field.name).state = state[field.name]

    def gaussian_noise(self) -> Noise:
        """Return a source of rounded normal variates, which uses the whole stream."""
        return RoundedGaussian(self.noise)

    def selections(self) -> Selections:
        """Return a source of exact selections with Gumbel noise, which uses the whole stream."""
        return Selections(self.noise)

    def generalized_gaussian_noise(self) -> GeneralizedGaussianNoise:
        """Return a source of generalised Gaussian vectors, which uses the whole stream."""
        return GeneralizedGaussianNoise(self.noise)

    def coins(self) -> Coins:
        """Return a source of fair coins, which uses the whole stream."""
        return Coins(self.noise)

    def sampler(self, sampling: Sampling, steps: int, divisor: int, dataset_size: int, records: Records) -> Sampler:
        """Return the sampler that draws the slots of a phase's steps; see `sampler_for`."""
        return sampler_for(sampling, steps, divisor, dataset_size, records, self.sampling)


def random_streams(seed: int | None = None) -> RandomStreams:
    """Return fresh streams, each with a full key of its own from the operating system.

    Args:
        seed: A seed, for runs on public data only. Keys are then derived from it, and the run can be repeated.

    Guarantees:
        - unseeded_streams_differ: without a seed every call has new keys of 128 bits of the system's entropy.
        - seeded_streams_repeat: equal seeds give equal streams; the streams of a seed are unrelated.

    Raises:
        InvalidValue: If the seed is not an integer in [0, 2^128).

    >>> random_streams(3).noise.word() == random_streams(3).noise.word()
    True
    """
    if seed is not None:
        seed = read_integer("seed", seed, 0, MAX_SEED)
    return RandomStreams(**{field.name: _stream(field.name, seed) for field in fields(RandomStreams)})


def _stream(purpose: str, seed: int | None) -> Keystream:
    if seed is None:
        key = secrets.token_bytes(KEY_BYTES)
    else:
        key = hashlib.sha256(f"epsilond trainer {purpose} {seed}".encode()).digest()[:KEY_BYTES]
    return Keystream(key=int.from_bytes(key, "little"))

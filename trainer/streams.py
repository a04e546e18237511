"""The streams of randomness of one run: one for each purpose, so that none depends on how much another is used."""

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

    They are apart so that the noise is the same whatever the number of records: it depends on the plan alone.

    Attributes:
        slots: Decides the slot of each record.
        sampling: Decides who takes part in a step.
        noise: The noise that is added to sums.
        initialisation: The point that training starts from.
        release: Decides which point is released, if one is drawn.
    """

    slots: Keystream
    sampling: Keystream
    noise: Keystream
    initialisation: Keystream
    release: Keystream

    def state(self) -> dict[str, Any]:
        """Return the state of every stream; it determines everything that is drawn from then on."""
        return {field.name: getattr(self, field.name).state for field in fields(self)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from the point at which `state` was taken."""
        for field in fields(self):
            getattr(self, field.name).state = state[field.name]

    def gaussian_noise(self) -> Noise:
        """Return a source of rounded normal variates; one source takes the whole stream."""
        return RoundedGaussian(self.noise)

    def selections(self) -> Selections:
        """Return exact selections with Gumbel noise; one source takes the whole stream."""
        return Selections(self.noise)

    def generalized_gaussian_noise(self) -> GeneralizedGaussianNoise:
        """Generalised Gaussian vectors; one source takes the whole stream."""
        return GeneralizedGaussianNoise(self.noise)

    def coins(self) -> Coins:
        """Fair coins; one source takes the whole stream."""
        return Coins(self.noise)

    def sampler(self, sampling: Sampling, steps: int, divisor: int, dataset_size: int, records: Records) -> Sampler:
        """Return what draws the slots of the steps of a phase; see `sampler_for`."""
        return sampler_for(sampling, steps, divisor, dataset_size, records, self.sampling)


def random_streams(seed: int | None = None) -> RandomStreams:
    """Fresh streams, each with a full key of its own from the operating system.

    Args:
        seed: For runs on public data alone: keys are then derived from it, and the run repeats.

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

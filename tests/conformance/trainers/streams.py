"""Streams that remember what was drawn from them, and may take the noise away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from accounting.events import Sampling
from trainer.records import Records, Selection
from trainer.samplers import Sampler
from trainer.shuffle import Coins
from trainer.streams import RandomStreams, random_streams


@dataclass
class Record:
    """What a run drew.

    Attributes:
        phases: What each phase's sampler was asked for: sampling, steps, divisor, declared size.
        batches: Places of each step, ascending: the numbers of rows as they were handed to the run; later places are
            those of empty slots.
        noises: The noise of each step at unit scale, as it was used.
    """

    phases: list[tuple[Sampling, int, int, int]] = field(default_factory=list)
    batches: list[np.ndarray] = field(default_factory=list)
    noises: list[np.ndarray] = field(default_factory=list)


class RecordingStreams(RandomStreams):
    """The streams of a seed, watched.

    Args:
        seed: Of everything.
        noise_factor: On the Gaussian noise; 0 takes it away.
        gumbel: In place of the Gumbel noise, one array for each draw.
        batches: In place of the rows that are drawn, their numbers for each step; absent ones are left out.
    """

    def __init__(
        self,
        seed: int,
        *,
        noise_factor: float = 1.0,
        gumbel: Sequence[np.ndarray] | None = None,
        batches: Sequence[np.ndarray] | None = None,
    ) -> None:
        super().__init__(**vars(random_streams(seed)))
        object.__setattr__(self, "record", Record())
        object.__setattr__(self, "_noise_factor", noise_factor)
        object.__setattr__(self, "_gumbel", None if gumbel is None else list(gumbel))
        object.__setattr__(self, "_batches", None if batches is None else list(batches))

    @property
    def drawn(self) -> Record:
        record: Record = self.__dict__["record"]
        return record

    def gaussian_noise(self) -> Any:
        return _Noise(super().gaussian_noise(), self.drawn, self.__dict__["_noise_factor"])

    def selections(self) -> Any:
        return _Selections(super().selections(), self.drawn, self.__dict__["_gumbel"])

    def generalized_gaussian_noise(self) -> Any:
        return _GeneralizedGaussian(super().generalized_gaussian_noise(), self.drawn, self.__dict__["_noise_factor"])

    def coins(self) -> Any:
        return _Coins(super().coins(), self.drawn, self.__dict__["_noise_factor"])

    def sampler(self, sampling: Sampling, steps: int, divisor: int, dataset_size: int, records: Records) -> Any:
        self.drawn.phases.append((sampling, steps, divisor, dataset_size))
        sampler = super().sampler(sampling, steps, divisor, dataset_size, records)
        return _Sampler(sampler, records, self.drawn, self.__dict__["_batches"])


class _Sampler:
    """A sampler, its rows under the numbers that they came with."""

    def __init__(
        self, sampler: Sampler, records: Records, record: Record, given: list[np.ndarray] | None = None
    ) -> None:
        self._sampler, self._record, self._given = sampler, record, given
        self._positions, self._numbers = records.positions, np.argsort(records.positions)
        self._spare = records.spare

    def draw(self) -> Selection:
        rows = self._sampler.draw()
        if self._given is not None and not isinstance(rows, slice):
            rows = self._positions[self._given[len(self._record.batches)]]
        slots = np.arange(self._spare)[rows] if isinstance(rows, slice) else rows[rows != self._spare]
        self._record.batches.append(np.sort(self._numbers[slots]))
        return rows

    def state(self) -> Any:
        return self._sampler.state()

    def restore(self, state: Any) -> None:
        self._sampler.restore(state)


class _Noise:
    def __init__(self, noise: Any, record: Record, factor: float) -> None:
        self._noise, self._record, self._factor = noise, record, factor

    def rounded(self, size: int, scale: float) -> np.ndarray:
        drawn: np.ndarray = self._factor * self._noise.rounded(size, scale)
        self._record.noises.append(drawn / scale)
        return drawn

    def state(self) -> Any:
        return self._noise.state()

    def restore(self, state: Any) -> None:
        self._noise.restore(state)

    def close(self) -> None:
        self._noise.close()


class _GeneralizedGaussian:
    def __init__(self, noise: Any, record: Record, factor: float) -> None:
        self._noise, self._record, self._factor = noise, record, factor

    def rounded(self, dimension: int, order: float, scale: float) -> np.ndarray:
        drawn: np.ndarray = self._factor * self._noise.rounded(dimension, order, scale)
        self._record.noises.append(drawn / scale)
        return drawn

    def state(self) -> Any:
        return self._noise.state()

    def restore(self, state: Any) -> None:
        self._noise.restore(state)


class _Coins:
    """Without noise, half of all tosses are heads."""

    def __init__(self, coins: Coins, record: Record, factor: float) -> None:
        self._coins, self._record, self._factor = coins, record, factor

    def uniforms(self, shape: tuple[int, ...]) -> np.ndarray:
        drawn = self._coins.uniforms(shape)
        self._record.noises.append(drawn.copy())
        return drawn

    def heads(self, tosses: int, coordinates: int) -> np.ndarray:
        drawn = self._coins.heads(tosses, coordinates) if self._factor else np.full(coordinates, tosses // 2)
        self._record.noises.append(drawn.copy())
        return drawn

    def state(self) -> Any:
        return self._coins.state()

    def restore(self, state: Any) -> None:
        self._coins.restore(state)


class _Selections:
    def __init__(self, noise: Any, record: Record, given: list[np.ndarray] | None) -> None:
        self._noise, self._record, self._given = noise, record, given
        self._own = np.random.default_rng(9)

    def least(self, scores: np.ndarray, scale: float) -> int:
        # The law of exact selections is tested elsewhere; a transcription needs to be told the variates.
        drawn = self._own.gumbel(size=scores.shape) if self._given is None else self._given.pop(0)
        assert drawn.shape == scores.shape
        self._record.noises.append(drawn.copy())
        return int(np.argmin(scores - scale * drawn))

    def state(self) -> Any:
        return self._noise.state()

    def restore(self, state: Any) -> None:
        self._noise.restore(state)

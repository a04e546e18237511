"""Gaussian noise that is correlated over the steps of a run: matrix factorisation mechanisms, DP-FTRL.

A run of T steps releases g_t + s (C^-1 Z)_t, where g_t is the sum of step t. This is a function of C G + s Z. Its
privacy depends on C and s alone. Each class here is a family of matrices C, lower triangular and Toeplitz: see
`accounting.factorisations`. All steps of one record together are one Gaussian mechanism or, with cyclic Poisson
batches, one Poisson-sampled Gaussian mechanism for each cycle. An event is resolved to these (the theorems are in
`accounting.losses.correlated_gaussian`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

from accounting.described import Described, Real, Reals, Whole
from accounting.errors import InvalidValue
from accounting.events.gaussian import Gaussian
from accounting.events.mechanism import Mechanism, NoiseMultiplier, mechanism
from accounting.events.samplings import FULL_BATCH, CyclicPoisson, FixedOrderEpochs, FullBatch, Sampling
from accounting.numbers import MAX_COUNT, MAX_NOISE_MULTIPLIER, MIN_NOISE_MULTIPLIER


class _LoadedWhenUsed:
    """A stand-in for a module until one of its functions is called, since the vocabulary loads no NumPy."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


if TYPE_CHECKING:
    from accounting import factorisations
    from accounting.factorisations import Array
else:
    factorisations = _LoadedWhenUsed("accounting.factorisations")

MOST_LISTED = 1024
_MOST_BUFFERS = 64
#: Sensitivities are rounded up by less than this, relative: coefficients and their sums, each by less than 1e-9.
_ROUNDED_UP = 1e-8


class Correlated(Mechanism):
    """A whole run whose noise is correlated over its steps: one event, whose count is the number of steps."""

    __slots__ = ()
    samplings: ClassVar[tuple[type[Sampling], ...]] = (FullBatch, FixedOrderEpochs)
    filters = Gaussian.filters
    norm = "l2"
    noise_multiplier_is = (
        "standard deviation of the independent normal draws behind the noise, over the contribution bound, in l2"
    )
    noise_multiplier: float

    @abstractmethod
    def coefficients_of(self, steps: int) -> Array:
        """Return upper bounds of c_0, c_1, ... that do not increase: shape (at most ``steps``,); later ones are 0."""

    def sensitivity(self, sampling: Sampling, steps: int) -> float:
        """Return the distance by which a record moves C G in all its steps, or in each cycle: in contribution bounds,
        rounded up."""
        separation = 1
        if isinstance(sampling, CyclicPoisson):
            separation = steps
        elif isinstance(sampling, FixedOrderEpochs):
            separation = sampling.steps_per_epoch
        return factorisations.participation_norm(self.coefficients_of(steps), steps, separation)

    def least_noise(self, sampling: Sampling, steps: int) -> float:
        """Return the smallest noise multiplier at which such steps are accounted, enlarged by a billionth."""
        return MIN_NOISE_MULTIPLIER * max(1.0, self.sensitivity(sampling, steps) * (1.0 + 1e-9))

    @property
    def from_below(self) -> Correlated | None:
        noise = self.noise_multiplier * (1.0 + _ROUNDED_UP)
        return replace(cast(Any, self), noise_multiplier=noise) if noise <= MAX_NOISE_MULTIPLIER else None

    def resolved(self, sampling: Sampling, count: int) -> tuple[Mechanism, Sampling, int]:
        """Return one Gaussian mechanism for all steps of a record; with cyclic Poisson batches, one for each cycle."""
        noise = math.nextafter(self.noise_multiplier / self.sensitivity(sampling, count), 0.0)
        if noise < MIN_NOISE_MULTIPLIER:
            raise InvalidValue(
                f"all steps of a record together are one Gaussian mechanism with noise multiplier {noise!r}, less than "
                f"the smallest allowed, {MIN_NOISE_MULTIPLIER:g}: take more noise, or fewer steps",
                pointer=("mechanism", "noise_multiplier"),
            )
        if noise > MAX_NOISE_MULTIPLIER:
            raise InvalidValue(
                f"all steps of a record together are one Gaussian mechanism with noise multiplier {noise!r}, more than "
                f"the largest allowed, {MAX_NOISE_MULTIPLIER:g}: take less noise, or larger coefficients",
                pointer=("mechanism", "noise_multiplier"),
            )
        stands = Gaussian(noise)
        if isinstance(sampling, CyclicPoisson):
            return stands, *sampling.resolved(count)
        return stands, FULL_BATCH, 1


@mechanism
@dataclass(frozen=True, slots=True)
class CorrelatedGaussian(Correlated):
    """Gaussian noise correlated by a banded Toeplitz matrix, given by its coefficients; a run is one event.

    The run releases the sums plus C^-1 Z, where Z are independent normal numbers and C has the coefficients on its
    diagonals. An event is one stream of noise: two events are two streams.

    >>> CorrelatedGaussian(3.0, (1.0, 0.5)).resolved(CyclicPoisson(0.1, 2, "independent"), 10)[1:]
    (Poisson(sampling_probability=0.1), 5)
    """

    kind: ClassVar[str] = "correlated_gaussian"
    samplings = (FullBatch, CyclicPoisson, FixedOrderEpochs)
    noise_multiplier: NoiseMultiplier
    coefficients: Annotated[
        tuple[float, ...],
        Reals(
            Real(0.0, 1e6),
            MOST_LISTED,
            "c_0, c_1, ... of C: c_0 is positive, none is larger than the one before. With c_0 alone, the noise "
            "of different steps is independent.",
        ),
    ]

    def __post_init__(self) -> None:
        Described.__post_init__(self)
        if self.coefficients[0] < 1e-6:
            raise InvalidValue(
                f"the first coefficient must be at least 1e-6, got {self.coefficients[0]!r}",
                pointer=("coefficients", 0),
            )
        for index, (one, following) in enumerate(zip(self.coefficients, self.coefficients[1:], strict=False), start=1):
            if following > one:
                raise InvalidValue(
                    f"coefficients must not increase, because the worst case for a record is known only for such "
                    f"coefficients; {following!r} comes after {one!r}",
                    pointer=("coefficients", index),
                )

    @property
    def bands(self) -> int:
        """The number of coefficients."""
        return len(self.coefficients)

    def coefficients_of(self, steps: int) -> Array:
        return factorisations.listed(self.coefficients[:steps])


@mechanism
@dataclass(frozen=True, slots=True)
class SquareRootGaussian(Correlated):
    """Gaussian noise correlated by the square root of the matrix of prefix sums, cut to its first diagonals."""

    kind: ClassVar[str] = "square_root_gaussian"
    samplings = (FullBatch, CyclicPoisson, FixedOrderEpochs)
    noise_multiplier: NoiseMultiplier
    bands: Annotated[
        int, Whole(1, MAX_COUNT, "Diagonals of C that are kept: 1, 1/2, 3/8, ...; as many as steps keep all.")
    ]

    def coefficients_of(self, steps: int) -> Array:
        return factorisations.square_root(min(self.bands, steps))


@mechanism
@dataclass(frozen=True, slots=True)
class InverseSquareRootGaussian(Correlated):
    """Gaussian noise correlated by a matrix whose inverse is the inverse square root of prefix sums, cut to a band."""

    kind: ClassVar[str] = "inverse_square_root_gaussian"
    noise_multiplier: NoiseMultiplier
    inverse_bands: Annotated[int, Whole(1, 1000, "Diagonals of the inverse of C that are kept: 1, -1/2, -1/8, ...")]

    def coefficients_of(self, steps: int) -> Array:
        return factorisations.inverse_of_root(self.inverse_bands, steps)


@mechanism
@dataclass(frozen=True, slots=True)
class BufferedGaussian(Correlated):
    """Gaussian noise correlated by a buffered linear Toeplitz matrix: c_0 = 1, c_i = sum of scales decays^(i-1)."""

    kind: ClassVar[str] = "buffered_gaussian"
    noise_multiplier: NoiseMultiplier
    scales: Annotated[
        tuple[float, ...], Reals(Real(0.0, 1.0), _MOST_BUFFERS, "One for each buffer; their sum is at most 1.")
    ]
    decays: Annotated[
        tuple[float, ...], Reals(Real(0.0, 1.0), _MOST_BUFFERS, "One for each buffer, in the same order.")
    ]

    def __post_init__(self) -> None:
        Described.__post_init__(self)
        if len(self.scales) != len(self.decays):
            raise InvalidValue(
                f"each buffer must have one scale and one decay, got {len(self.scales)} scales and "
                f"{len(self.decays)} decays",
                pointer=("decays",),
            )
        if sum(self.scales) > 1.0:
            raise InvalidValue(
                f"the scales must add up to at most 1, but they add up to {sum(self.scales)!r}", pointer=("scales",)
            )

    def coefficients_of(self, steps: int) -> Array:
        return factorisations.buffered(self.scales, self.decays, steps)

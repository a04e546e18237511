"""Distinguishers on the last bits of what is released, and the two ways of adding noise that they must catch.

Noise in floating point that is added to a sum in floating point tells that the sum was there: where the two nearly
cancel, what is left is a whole multiple of the sum's last bit. On a public grid nothing of that kind is left. Whoever
attacks here knows all but whether one record takes part, the sum that it would make, and every noisy sum of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from calibrators.plan import Plan
from tests.trainer.given import trainer_of
from trainer.audit.bounds import epsilon_from_rates
from trainer.exact.gaussian import RoundedGaussian
from trainer.grid import Grid
from trainer.losses import Squared
from trainer.models import LinearModel, MeanModel, Model
from trainer.streams import random_streams

#: Residues modulo 2 to the powers 1 to this are looked at.
_RESIDUES = 20
#: Exponents up to so many below and above that of a typical part of the sum are counted one by one.
_EXPONENTS = 12
_GENERALIZED: Any = type(random_streams(0).generalized_gaussian_noise())


@dataclass(frozen=True)
class Seen:
    """One noisy sum, in steps of its grid: more than a run shows, which multiplies it by a public number.

    Attributes:
        released: shape (d,), float64.
        secret: shape (d,), what was noised: of use only where the attacker could compute it.
    """

    released: np.ndarray
    secret: np.ndarray


#: From whether the record takes part and a key to all noisy sums of a run.
Mechanism = Callable[[bool, int], list[Seen]]


@contextmanager
def watched() -> Iterator[list[Seen]]:
    """All that leaves grids, in order."""
    seen: list[Seen] = []
    noised = Grid.noised

    def watching(grid: Grid, integers: Any, noise: Any, unit: float) -> Any:
        seen.append(Seen(integers + noise, np.array(integers)))
        return noised(grid, integers, noise, unit)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Grid, "noised", watching)
        yield seen


@contextmanager
def sums_that_are_not_rounded() -> Iterator[None]:
    """A control: whole numbers of noise on sums that lie on no grid."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(np, "round", lambda array: array)
        yield


@contextmanager
def noise_in_floating_point() -> Iterator[None]:
    """A control: what a textbook does, noise in float64 on a sum in float64."""

    gaussian, generalized = RoundedGaussian.rounded, _GENERALIZED.rounded

    def normal(noise: RoundedGaussian, size: int, scale: float) -> np.ndarray:
        drawn: np.ndarray = scale * _generator(gaussian(noise, 2, 2.0**36)).standard_normal(size)
        return drawn

    def power(noise: Any, dimension: int, order: float, scale: float) -> np.ndarray:
        draw = _generator(generalized(noise, 2, order, 2.0**36))
        entries = draw.standard_gamma(1.0 / order, dimension) ** (1.0 / order) * draw.choice([-1.0, 1.0], dimension)
        length = np.sum(np.abs(entries) ** order) ** (1.0 / order)
        drawn: np.ndarray = scale * np.sqrt(2.0 * draw.standard_gamma(0.5 * dimension)) * (entries / length)
        return drawn

    with sums_that_are_not_rounded(), pytest.MonkeyPatch.context() as patched:
        patched.setattr(RoundedGaussian, "rounded", normal)
        patched.setattr(_GENERALIZED, "rounded", power)
        yield


def _generator(key: np.ndarray) -> np.random.Generator:
    """What a run draws from its own stream is the key of noise in floating point."""
    return np.random.default_rng(np.abs(key).astype(np.uint64))


#: By name: what must be caught.
CONTROLS = {"noise in floating point": noise_in_floating_point, "sums off the grid": sums_that_are_not_rounded}


def mechanism_of(plan: Plan, dimension: int, *, every_record: bool = False) -> Mechanism:
    """Return the runs of a plan on rows of zeros, and on the same with one long row of about equal entries.

    Args:
        plan: Of any number of parameters.
        dimension: How many there are.
        every_record: Whether all rows are that long one, which shows more than one record may.
    """
    means = plan.algorithm == "coordinatewise_mean"
    model: Model = MeanModel(dimension) if means else LinearModel(Squared(), dimension, fit_intercept=False)
    rng = np.random.default_rng(1)
    row = 100.0 * np.where(rng.random(dimension) < 0.5, -1.0, 1.0) * (1.0 + 0.3 * rng.random(dimension))
    rows = plan.dataset_size
    features, labels = np.zeros((rows, dimension)), np.zeros(rows)
    with_it, its_label = features.copy(), labels.copy()
    with_it[: rows if every_record else 1], its_label[: rows if every_record else 1] = row, 1.0

    def run(present: bool, key: int) -> list[Seen]:
        data = (with_it, its_label) if present else (features, labels)
        with watched() as seen:
            trainer = trainer_of(plan, model, *data, random_streams(key), capacity=rows)
            for _ in range(plan.iterations):
                trainer.step()
            trainer.close()
        return seen

    return run


def distinguishers(seen: Seen, target: np.ndarray) -> np.ndarray:
    """Numbers that would differ between the two worlds.

    Args:
        seen: A noisy sum.
        target: shape (d,): the sum if the record takes part, in the same steps.

    Returns:
        Of the coordinates in which noise and sum may have nearly cancelled: the share that lies on the lattice of the
        sum's last bits, the number of those that do not, trailing zeros, and their number; the mass off the grid; of
        residues modulo powers of two the leading bits, plain, relative to the target's and matched with its signs;
        trailing zeros of whole steps; histograms of exponents and of last bits; zeros; and what honest noise leaves,
        the matched filter and the length.
    """
    y, sizes = seen.released, np.abs(target)
    mantissas, exponents = np.frexp(y)
    zeros = _trailing_zeros(np.abs(mantissas * 2.0**53).astype(np.int64))
    last = exponents - 53 + zeros
    lattice = np.frexp(np.maximum(0.5 * sizes, 1e-300))[1] - 53
    near = (np.abs(y) < 0.5 * sizes) & (y != 0.0)
    found = [
        float(np.mean(last[near] >= lattice[near])) if near.any() else 0.5,
        float(np.sum(near & (last < lattice))),
        float(np.mean(zeros[near])) if near.any() else 0.0,
        float(np.sum(near)),
    ]
    whole = np.rint(y)
    found.append(float(np.mean(y != whole)))
    steps, own = whole.astype(np.int64), np.rint(target).astype(np.int64)
    matched, parts = target > 0.0, (steps, steps - own, steps + own)
    for bit in range(_RESIDUES):
        leading = [(part & (1 << bit)) != 0 for part in parts]
        found += [float(np.count_nonzero(part)) for part in (*leading, leading[0] ^ matched)]
    found.append(float(np.mean(_trailing_zeros(steps))))
    typical = int(np.frexp(np.median(sizes[sizes > 0.0]) if sizes.any() else 1.0)[1])
    for places in (exponents - typical, last - typical + 53):
        found += (np.bincount(np.clip(places + _EXPONENTS, 0, 2 * _EXPONENTS), minlength=2 * _EXPONENTS + 1)).tolist()
    found += [float(np.mean(y == 0.0)), float(y @ target), float(y @ y)]
    return np.array(found)


def _trailing_zeros(numbers: np.ndarray) -> np.ndarray:
    """Return the number of zeros at the end of the binary digits; 63 for 0."""
    lowest = np.where(numbers == 0, np.int64(2**62), numbers & -numbers)
    found: np.ndarray = np.frexp(lowest.astype(np.float64))[1] - 1 + (numbers == 0)
    return found


def epsilon_shown(mechanism: Mechanism, trials: int, delta: float, confidence: float) -> float:
    """Return a lower bound of epsilon from the best of all distinguishers and the best threshold for it.

    Both are chosen on the first half of the trials and judged on the second.
    """
    target = [seen.secret for seen in mechanism(True, 0)]

    def numbers(present: bool, key: int) -> np.ndarray:
        return np.sum([distinguishers(*pair) for pair in zip(mechanism(present, key), target, strict=True)], axis=0)

    members = np.array([numbers(True, 1 + 2 * trial) for trial in range(trials)])
    others = np.array([numbers(False, 2 + 2 * trial) for trial in range(trials)])
    half = trials // 2
    which, threshold, sign = _best_rule(members[:half], others[:half])
    hits, alarms = (int(np.sum(sign * side[half:, which] > sign * threshold)) for side in (members, others))
    return epsilon_from_rates(hits, trials - half, alarms, trials - half, delta, confidence)


def _best_rule(members: np.ndarray, others: np.ndarray) -> tuple[int, float, float]:
    """Return the distinguisher, the threshold and the side of it that are right most often."""
    best, rule = -1, (0, 0.0, 1.0)
    for which in range(members.shape[1]):
        values = np.unique(np.concatenate([members[:, which], others[:, which]]))
        for threshold in 0.5 * (values[:-1] + values[1:]):
            right = int(np.sum(members[:, which] > threshold)) - int(np.sum(others[:, which] > threshold))
            if abs(right) > best:
                best, rule = abs(right), (which, float(threshold), 1.0 if right > 0 else -1.0)
    return rule

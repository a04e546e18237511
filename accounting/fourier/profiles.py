"""This module makes the profile delta(eps) of one direction near one epsilon. It tries methods in this order:

1. `plain`: the contour of the whole composition, if it needs few points; then the same again with the delta that it
   found.
2. `_without_atoms`, if one step is repeated: a sum over the outcomes of its atoms, and a contour of the rest.
3. `capped`: the contour without the far tail, whose moments explode.
4. `split`, if fewer than three participations of a record are expected: the bulk of the losses of equal subsampled
   steps is split off, and the rest is divided into bands.
5. `windowed_contours`: contours with a Gaussian window, which always converge; first with few points.
6. `split`, if participations are many.
7. `windowed_contours` again, with many points.

`near` yields the profiles in this order, and its caller stops at the first that is narrow enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.fourier.choice import DirectedComposition, Lines, choose_line, contour_at, guess_epsilon
from accounting.fourier.contour import Contour, truncation_point
from accounting.fourier.effort import left, share_of_effort
from accounting.fourier.outcomes import OutcomesProfile
from accounting.fourier.pairs import GaussianPair, Pair
from accounting.fourier.quadrature import GaussianPairStep
from accounting.fourier.ratio_step import RatioStep
from accounting.fourier.split import Cut, SplitStep, top_for
from accounting.fourier.steps import UNIT, TiltTable, log_chernoff
from accounting.intervals import Bounds

Array = NDArray[np.float64]

PLAIN_POINTS = 3000
SPLIT_POINTS = 60_000
#: The ratio of the losses at the two ends of a band.
_BAND_RATIO = 16.0
WINDOW_POINTS = 120_000
#: Below this expected number of participations of one record, a single participation matters most, and the bulk is
#: split off first.
FEW_PARTICIPATIONS = 3.0
#: The losses at which laws are cut, divided by epsilon.
_SHARES = (0.47, 0.27, 0.15, 0.08, 0.04, 0.75, 0.02, 0.01)
#: Up to this number of steps, a cut is also tried so low that losses below it never add up to epsilon.
_FEW_STEPS = 64
#: The law without its atoms is tabulated at 36 tilts. The largest tilt is at most 40 divided by the distance of epsilon
#: from the largest loss, and at most 3000 divided by one step's largest loss.
_REST_TILTS, _NEAREST, _STEEPEST = 36, 40.0, 3000.0
#: The bulk is bounded at this multiple of epsilon, so that the bound holds around epsilon.
_BELOW = 0.98
#: The bulk's delta is only bounded, and not computed, if the bound is below this fraction of delta.
_NEGLIGIBLE = 3e-9
#: The share of the remaining effort that `split` reserves for later methods, and the share of the rest for one cut.
_RESERVED, _ONE_CUT = 0.2, 0.8


class BoundedDelta(Protocol):
    """delta(eps) between bounds, and an estimate of it with its slope."""

    def delta_bounds(self, epsilon: float) -> Bounds: ...
    def estimate(self, epsilon: float) -> tuple[float, float]: ...


class Profile(BoundedDelta, Protocol):
    """The profile delta(eps) near the epsilon for which it was made; its bounds hold at every other epsilon, too."""

    @property
    def tilt(self) -> float: ...


@dataclass(frozen=True)
class SumProfile:
    """A profile that is a sum of several parts (see `accounting.fourier.split`).

    Attributes:
        parts: The parts that add up.
        bound: A bound of everything else, which holds for every epsilon from ``least`` on.
        least: The smallest epsilon at which ``bound`` holds.
        too_much: A bound of the mass by which the parts exceed the law.
    """

    parts: tuple[Contour | OutcomesProfile, ...]
    bound: float
    least: float
    too_much: float = 0.0

    @property
    def tilt(self) -> float:
        return self.parts[0].tilt

    def delta_bounds(self, epsilon: float) -> Bounds:
        bounds = [part.delta_bounds(epsilon) for part in self.parts]
        budget: dict[str, float] = {}
        for part in bounds:
            for name, width in part.error_budget.items():
                budget[name] = budget.get(name, 0.0) + width
        bound = self.bound if epsilon >= self.least else math.inf
        budget["left_out"] = bound + self.too_much
        lower, upper = sum(part.lower for part in bounds), sum(part.upper for part in bounds)
        return Bounds(max(lower - self.too_much, 0.0), upper + bound, sum(part.estimate for part in bounds), budget)

    def estimate(self, epsilon: float) -> tuple[float, float]:
        deltas, slopes = zip(*(part.estimate(epsilon) for part in self.parts), strict=True)
        return sum(deltas), sum(slopes)


@dataclass(frozen=True)
class DirectedProfiles:
    """One direction of a composition: its profiles near an epsilon, and the bounds that need no profile."""

    composition: DirectedComposition

    def near(self, epsilon: float, log_scale: float, table: TiltTable | None = None) -> Iterator[tuple[Profile, str]]:
        """Yield profiles with the names of their methods, in the order of the rule. Each profile is made when it is
        asked for.

        Args:
            log_scale: The logarithm of a delta that is not far above the wanted one; parts below 1e-10 of it are left
                out.
            table: The table of the composition at this epsilon, if it is known.
        """
        table = table or self.composition.table_at(epsilon)
        known: Lines = {}
        plain = self.plain(table, epsilon, known=known)
        log_delta: float | None = None
        if plain is not None:
            yield plain, "fourier_inversion"
            # The tolerances were relative to the saddle-point estimate, which may have been too large.
            log_delta = known_log_delta(plain, epsilon)
            again = contour_at(self.composition, table, epsilon, PLAIN_POINTS, log_delta=log_delta, known=known)
            if log_delta is not None and again is not None:
                yield again, "fourier_inversion"
        if self._repeated is None:
            without = _without_atoms(self.composition, table, epsilon)
            if without is not None:
                yield without, "split_fourier_inversion"
        yield from self._named(self.capped(epsilon, log_scale, windowed=False), "fourier_inversion")
        if self.participations < FEW_PARTICIPATIONS:
            yield from self._named(self.split(epsilon, log_scale), "split_fourier_inversion")
        yield from self._named(self.capped(epsilon, log_scale, windowed=True), "windowed_fourier_inversion")
        windowed = windowed_contours(self.composition, table, epsilon, log_delta, PLAIN_POINTS, known)
        yield from self._named(windowed, "windowed_fourier_inversion")
        if self.participations >= FEW_PARTICIPATIONS:
            yield from self._named(self.split(epsilon, log_scale), "split_fourier_inversion")
        windowed = windowed_contours(self.composition, table, epsilon, log_delta, WINDOW_POINTS, known)
        yield from self._named(windowed, "windowed_fourier_inversion")

    def plain(
        self, table: TiltTable, epsilon: float, log_delta: float | None = None, known: Lines | None = None
    ) -> Contour | None:
        """Return the contour of the whole composition, if it takes few points.

        Args:
            log_delta: The logarithm of the wanted delta, if it is known.
            known: As in `contour_at`.
        """
        with suppress(OverflowError):
            return contour_at(self.composition, table, epsilon, PLAIN_POINTS, log_delta=log_delta, known=known)
        return None

    @staticmethod
    def _named(profiles: Iterable[Profile], method: str) -> Iterator[tuple[Profile, str]]:
        for profile in profiles:
            yield profile, method

    @property
    def _repeated(self) -> tuple[GaussianPairStep | RatioStep, GaussianPair, int] | None:
        """Return the one repeated subsampled step with unbounded losses, its pair, and the number of steps; None if
        there is none.
        """
        if len(self.composition.steps) != 1 or self.composition.mu_squared > 0.0:
            return None
        step, count = self.composition.steps[0]
        if not isinstance(step, GaussianPairStep | RatioStep) or step.pair is None or step.pair.pair is Pair.ADD:
            return None
        return step, step.pair, count

    def capped(self, epsilon: float, log_scale: float, *, windowed: bool) -> Iterator[SumProfile]:
        """Yield profiles without the far tail, whose moments explode. They come from a plain contour, or from
        windowed ones.
        """
        if self._repeated is None:
            return
        mean, variance = self.composition.moments
        capped, left_out = self._capped(log_scale, max(epsilon - mean, math.sqrt(variance)) / variance)
        with suppress(OverflowError):
            table = capped.table_at(epsilon)
            if windowed:
                contours = windowed_contours(capped, table, epsilon, None, PLAIN_POINTS, {})
                yield from (SumProfile((contour,), left_out, 0.0) for contour in contours)
            elif (contour := contour_at(capped, table, epsilon, PLAIN_POINTS)) is not None:
                yield SumProfile((contour,), left_out, 0.0)
            elif (without := _without_atoms(capped, table, epsilon)) is not None:
                yield replace(without, bound=without.bound + left_out)

    def chernoff_epsilon(self, delta: float) -> float:
        """Return the smallest eps at which some tilt's M(x) B(x) e^(-x eps) is at most delta."""
        left = delta - self.composition.left_out
        bounds = [_chernoff_epsilon(self.composition.table_for(delta), left) if left > 0.0 else math.inf]
        if self._repeated is not None:
            _, variance = self.composition.moments
            normal = math.sqrt(2.0 * -math.log(delta) / variance)
            for tilt in (normal, 0.1 * normal, 0.01 * normal):
                capped, left_out = self._capped(math.log(delta), tilt)
                try:
                    table = capped.table(tilt * 3.0 * 1.5 ** -np.arange(12.0))
                except OverflowError:
                    continue
                bounds.append(_chernoff_epsilon(table, delta - left_out))
        return min(bounds)

    @property
    def participations(self) -> float:
        """Return the expected participations of one record in the subsampled steps; inf with a full batch."""
        if self.composition.mu_squared > 0.0:
            return math.inf
        return math.fsum(count * step.participation for step, count in self.composition.steps)

    def guess_epsilon(self, delta: float) -> float:
        """Return an estimate of epsilon(delta) that is not misled by moments that explode."""
        mean, variance = self.composition.moments
        reach = math.sqrt(2.0 * -math.log(delta))
        if self._repeated is None:
            return mean + reach * math.sqrt(variance)
        capped, _ = self._capped(math.log(delta), reach / math.sqrt(variance))
        try:
            return guess_epsilon(capped, delta)[0]
        except OverflowError:
            return mean + reach * math.sqrt(variance)

    def _capped(self, log_scale: float, tilt: float) -> tuple[DirectedComposition, float]:
        """Return the repeated step without its far tail, and a bound of the mass that is left out.

        Args:
            tilt: The approximate largest tilt at which moments are needed. The band must end before these moments grow
                again.
        """
        assert self._repeated is not None
        step, pair, count = self._repeated
        cut = Cut(step, pair, min(0.25 * pair.noise, _narrow_enough(pair, 4.0 * tilt)))
        top = top_for(pair, cut.width, _log_left_out(log_scale, count))
        return DirectedComposition(((cut.below(top), count),), 0.0), count * cut.mass_beyond(top)

    def split(self, epsilon: float, log_scale: float) -> Iterator[SumProfile]:
        """Yield profiles of cut steps. Yield nothing unless the composition repeats one subsampled step and some cut
        helps.
        """
        if self._repeated is None or epsilon <= 0.0:
            return
        step, pair, count = self._repeated
        noise, place = pair.noise, pair.place_of_loss(epsilon)
        steepest = max(place / noise**2 / max(pair.slope(place), 1e-300), 4.0 / epsilon)
        widest = min(0.25 * noise**2, 0.25 * noise, _narrow_enough(pair, 3.0 * steepest))
        log_left_out = _log_left_out(log_scale, count)
        # Beyond this number of widths of a cut, what is left out is negligible.
        reach = -float(scipy.special.ndtri_exp(log_left_out))
        reserved = _RESERVED * left()
        for first, width in self._cuts(epsilon, widest, reach):
            cut, top = Cut(step, pair, width), top_for(pair, width, log_left_out)
            lowest, highest = pair.exponents(np.array([first, top]))[1].tolist()
            if not lowest > 0.0:
                continue
            # Losses of very different sizes need lines of their own, so the losses beyond the first cut are divided
            # into bands of a fixed ratio.
            levels = 1 + max(0, round(math.log(max(highest / lowest, 1.0)) / math.log(_BAND_RATIO)))
            edges = [first, *(pair.place_of_loss(lowest * _BAND_RATIO**level) for level in range(1, levels))]
            places = [place for place in edges if place < top - 4.0 * width]
            if not places:
                continue
            try:
                with share_of_effort(_ONE_CUT, reserved):
                    profile = _split_at(cut, count, [*places, top], epsilon, count * cut.mass_beyond(top))
            except OverflowError:
                continue
            if profile is not None:
                yield profile

    def _cuts(self, epsilon: float, widest: float, reach: float) -> Iterator[tuple[float, float]]:
        """Yield places of the first cut, each with its width."""
        assert self._repeated is not None
        step, pair, count = self._repeated
        # The step's losses below 0 differ from the pair's, so a cut must leave no mass of the pair there.
        least = 0.5 if isinstance(step, RatioStep) else -math.inf
        if count <= _FEW_STEPS:
            # Losses below this place never add up to more than epsilon.
            place = pair.place_of_loss(_BELOW * epsilon / count)
            width = min(widest, 0.5 * (place - least) / reach)
            yield place - reach * width, width
        for share in _SHARES:
            place = pair.place_of_loss(share * epsilon)
            yield place, min(widest, (place - least) / reach)


def windowed_contours(
    composition: DirectedComposition,
    table: TiltTable,
    epsilon: float,
    log_delta: float | None,
    most_points: int,
    known: Lines,
) -> Iterator[Contour]:
    """Yield contours with the widest window whose error is allowed, or with the narrowest window that the points
    allow.
    """
    tilt = choose_line(table, epsilon, log_delta).tilt
    # The window moves epsilon by about tilt * window^2.
    window = min(math.sqrt(0.03 * goal(epsilon) / tilt), 4.0)
    for _ in range(10):
        contour = None
        with suppress(OverflowError):
            contour = contour_at(
                composition, table, epsilon, most_points, log_delta=log_delta, window=window, known=known
            )
        if contour is not None:
            yield contour
            return
        window *= 2.0


def goal(epsilon: float) -> float:
    """Return the width at which an interval of epsilon is narrow enough."""
    if math.isinf(epsilon):
        return 0.0
    return 1e-6 * max(1e-3, epsilon) if epsilon <= 200.0 else 1e-3 * epsilon


def chernoff_delta(table: TiltTable, epsilon: float) -> float:
    """Return the smallest M(x) B(x) e^(-x eps) among the tilts: at least delta."""
    return math.exp(min(0.0, max(log_chernoff(table.rows, epsilon) + 1e-12, -700.0)))


def known_log_delta(profile: Profile, epsilon: float) -> float | None:
    """Return log delta if the profile knows delta to a tenth; otherwise None."""
    bounds = profile.delta_bounds(epsilon)
    return math.log(bounds.estimate) if bounds.lower > 0.9 * bounds.upper else None


def _narrow_enough(pair: GaussianPair, tilt: float) -> float:
    """Return the width of a band's end up to which the moments at ``tilt`` do not explode beyond it.

    Beyond the end, e^(tilt loss) grows like e^(tilt (x / s^2 - log(1/q))), and the band's share falls like e^(-x^2 / (2
    w^2)).
    """
    return pair.noise**2 * math.sqrt(max(-math.log(pair.probability), 0.1) / tilt)


def _log_left_out(log_scale: float, count: int) -> float:
    """Return log of the mass of one step that may be left out."""
    return log_scale - 23.0 - math.log(count)


def _split_at(cut: Cut, count: int, places: Sequence[float], epsilon: float, left_out: float) -> SumProfile | None:
    splits = cut.chain(count, places)
    rests = [split.rest_table(_rest_tilts(split, epsilon)) for split in splits]
    log_delta = float(np.logaddexp.reduce([choose_line(rest, epsilon).log_delta for rest in rests]))
    least = _BELOW * epsilon
    bulk_bound = cut.bulk_bound(places[0], count, least)
    parts: list[Contour | OutcomesProfile] = []
    # A relative error e of delta moves epsilon by about e over the tilt.
    tilt = choose_line(rests[0], epsilon).tilt
    negligible = min(max(_NEGLIGIBLE, 0.05 * goal(epsilon) * tilt), 1e-3)
    if bulk_bound > negligible * math.exp(log_delta):
        bulk_bound, least = 0.0, 0.0
        composition = DirectedComposition(((splits[0].bulk, splits[0].count),), 0.0)
        table = composition.table_at(epsilon)
        log_delta = float(np.logaddexp(choose_line(table, epsilon).log_delta, log_delta))
        bulk = contour_at(composition, table, epsilon, SPLIT_POINTS, log_delta=log_delta)
        without = _without_atoms(composition, table, epsilon, log_delta) if bulk is None else None
        if without is not None:
            parts, bulk_bound, least = [*without.parts], without.bound, without.least
        elif bulk is not None:
            parts = [bulk]
        else:
            return None
    for split, rest in zip(splits, rests, strict=True):
        contour = _rest_contour(split, rest, epsilon, log_delta)
        if contour is None:
            return None
        parts.append(contour)
    too_much = math.expm1(count * math.log1p(cut.excess_below_zero(places[0])))
    profile = SumProfile(tuple(parts), bulk_bound + left_out, least, too_much)
    known = known_log_delta(profile, epsilon)
    if known is None or known > log_delta - 2.0:
        return profile
    # The saddle-point estimates were too large, so too much mass was left out.
    again = [_rest_contour(split, rest, epsilon, known) for split, rest in zip(splits, rests, strict=True)]
    kept = tuple(new or old for new, old in zip(again, parts[-len(again) :], strict=True))
    return SumProfile((*parts[: -len(again)], *kept), bulk_bound + left_out, least, too_much)


def _without_atoms(
    composition: DirectedComposition, table: TiltTable, epsilon: float, log_delta: float | None = None
) -> SumProfile | None:
    """Return a profile in two parts: a sum over the outcomes of a repeated step's atoms, and a contour of the rest.

    Return None if the composition does not repeat one step with atoms, or if there are too many outcomes or points.

    Args:
        table: The table of the composition.
        log_delta: The logarithm of the delta of which this profile is a part; None if it is the whole.
    """
    step, count = composition.steps[0]
    if len(composition.steps) > 1 or composition.mu_squared > 0.0 or not isinstance(step, RatioStep):
        return None
    outcomes = step.outcomes(count)
    if outcomes is None:
        return None
    split = SplitStep(step.atoms_alone, step.without_atoms, count, None, leading=bool(outcomes.parts))
    # Near the largest loss, saddle points grow like 1 over the distance from it.
    steepest = min(_NEAREST / (composition.largest_loss - epsilon), _STEEPEST / step.largest_loss)
    largest = max(float(table.tilts.max()), steepest)
    rest = split.rest_table(np.concatenate([[0.0], np.geomspace(table.tilts.min(), largest, _REST_TILTS)]))
    least, (exact, slope) = epsilon - goal(epsilon), outcomes.estimate(epsilon)
    outcomes, bound = replace(outcomes, tilt=slope / max(exact, 1e-300)), chernoff_delta(rest, least)
    if bound > _NEGLIGIBLE * exact:
        expected = np.logaddexp(choose_line(rest, epsilon).log_delta, math.log(max(exact, 1e-300)))
        log_delta = float(expected if log_delta is None else np.logaddexp(expected, log_delta))
        contour = _rest_contour(split, rest, epsilon, log_delta)
        if contour is not None:
            return SumProfile((contour, outcomes), 0.0, 0.0)
    # The bound may be wide for delta and still narrow for epsilon.
    return SumProfile((outcomes,), bound, least) if bound <= max(_NEGLIGIBLE * exact, goal(epsilon) * slope) else None


def _rest_tilts(split: SplitStep, epsilon: float) -> Array:
    tilts = 2.0 * split.rest.largest_tilt(split.count, epsilon) * 1.35 ** -np.arange(36.0, -1.0, -1.0)
    return np.concatenate([[0.0], tilts])


def _rest_contour(split: SplitStep, rest: TiltTable, epsilon: float, log_delta: float) -> Contour | None:
    choice = choose_line(rest, epsilon, log_delta)
    decay = choice.decay if split.decay is None else split.decay
    line = split.rest_line(choice.tilt, decay)
    last = truncation_point(line.log_envelope, decay, choice.log_tolerance)
    points = last * choice.period / (2.0 * math.pi)
    if not points <= SPLIT_POINTS:
        return None
    values = line.values(choice.period, max(8, math.ceil(points) + 1))
    return Contour(choice.tilt, choice.period, values, 0.0, rest)


def _chernoff_epsilon(table: TiltTable, delta: float) -> float:
    slack = 8.0 * UNIT * (np.abs(table.moments) - math.log(delta))
    epsilons = (table.log_bounds - math.log(delta) + slack) / table.tilts
    return max(0.0, float(np.nanmin(epsilons))) * (1.0 + 1e-12) + 1e-300

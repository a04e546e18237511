"""Laws of few outcomes, and compositions of few steps with atoms, against nested quadratures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.events import Event, FullBatch, Laplace, Poisson, WithoutReplacement
from accounting.events.samplings import Sampling
from accounting.fourier import profiles
from accounting.fourier.choice import DirectedComposition
from accounting.fourier.contour import Array
from accounting.fourier.outcomes import Outcomes, OutcomesProfile
from accounting.fourier.profiles import SumProfile
from accounting.fourier.ratio_path import RatioPart
from accounting.fourier.ratio_step import RatioStep
from accounting.fourier.split import SplitLine
from accounting.fourier.steps import StepLine
from accounting.losses.laplace import LaplaceLoss
from accounting.losses.poisson_laplace import PoissonLaplaceLoss, PoissonLaplaceReplaceLoss
from accounting.losses.privacy_loss import PrivacyLoss
from accounting.losses.without_replacement import SymmetrizedLoss
from accounting.relations import NeighboringRelation

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(30)
LOSSES = (
    (LaplaceLoss(0.8), True),
    (LaplaceLoss(12.0), True),
    (PoissonLaplaceLoss(2.0, 0.1), True),
    (PoissonLaplaceLoss(2.0, 0.1), False),
    (PoissonLaplaceReplaceLoss(1.0, 0.3), True),
    (SymmetrizedLoss(PoissonLaplaceLoss(3.0, 0.02)), True),
)


def one_step(loss: PrivacyLoss, *, remove: bool) -> Callable[[Array], Array]:
    """The closed form of one step's profile."""

    def profile(epsilons: Array) -> Array:
        total: Array = loss.excess(epsilons, remove=remove) + np.maximum(-np.expm1(np.minimum(epsilons, 0.0)), 0.0)
        return total

    return profile


def two_steps(loss: PrivacyLoss, step: RatioStep, epsilon: float, *, remove: bool) -> float:
    """Over the first step's loss, with panels that end where the second's profile has a kink."""
    profile = one_step(loss, remove=remove)
    atoms = step.atoms_alone.atoms
    total = sum(mass * float(profile(np.array([epsilon - place]))[0]) for mass, place in atoms)
    kinks = [epsilon - place for place in (*(place for _, place in atoms), 0.0)]
    for part in step.parts:
        q = part.probability
        inner = [math.log1p(math.expm1(kink if part.upward else -kink) / q) for kink in kinks if _is_inside(part, kink)]
        ends = np.unique(np.concatenate([np.linspace(part.low, part.high, 40), inner]))
        half = 0.5 * np.diff(ends)[:, None]
        y = (0.5 * (ends[1:] + ends[:-1])[:, None] + half * _NODES).ravel()
        log_f = np.log1p(q * np.expm1(y))
        mass = (half * _WEIGHTS).ravel() * np.exp(part.log_density(y) + (log_f if part.upward else 0.0))
        total += float(mass @ profile(epsilon - (log_f if part.upward else -log_f)))
    return total


def _is_inside(part: RatioPart, kink: float) -> bool:
    ends = np.log1p(part.probability * np.expm1(np.array([part.low, part.high])))
    return bool(ends[0] < (kink if part.upward else -kink) < ends[1])


def without_atoms(step: RatioStep, count: int, epsilon: float) -> SumProfile:
    """The profile in which atoms are summed."""
    composition = DirectedComposition(((step, count),), 0.0)
    made = profiles._without_atoms(composition, composition.table_at(epsilon), epsilon)
    assert made is not None
    return made


@pytest.mark.parametrize(("loss", "remove"), LOSSES)
@pytest.mark.parametrize("share", [0.2, 0.7, 0.98, 1.0 - 1e-7])
def test_two_steps_agree_with_a_nested_quadrature(loss: PrivacyLoss, share: float, *, remove: bool) -> None:
    """Between the kinks, and at a ten-millionth from the largest loss, where delta is small."""
    step = loss.contour_step(math.log(2.0), remove=remove)
    assert isinstance(step, RatioStep)
    epsilon = 2.0 * share * max(place for _, place in step.atoms)
    truth = two_steps(loss, step, epsilon, remove=remove)
    profile = without_atoms(step, 2, epsilon)
    bounds = profile.delta_bounds(epsilon)
    allowed = 1e-10 * truth + 1e-16
    assert bounds.lower <= truth + allowed
    assert bounds.upper >= truth - allowed
    assert bounds.width <= 5e-7 * truth
    if share < 0.98:
        # Without either part the truth is outside.
        for part in profile.parts:
            assert bounds.upper - part.delta_bounds(epsilon).lower < truth


@pytest.mark.parametrize(("loss", "remove"), [LOSSES[0], *LOSSES[2:]])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.one_in(10)
def test_without_the_leading_term_it_is_the_same(
    loss: PrivacyLoss, count: int, monkeypatch: pytest.MonkeyPatch, *, remove: bool
) -> None:
    """M^T - A^T on the line, or T A^(T-1) G taken out of it and summed."""
    monkeypatch.setattr(profiles, "SPLIT_POINTS", 500_000)
    step = loss.contour_step(math.log(count), remove=remove)
    assert isinstance(step, RatioStep)
    epsilon = 0.55 * count * max(place for _, place in step.atoms)
    here = without_atoms(step, count, epsilon).delta_bounds(epsilon)
    plain = replace(step, parts=tuple(_Plain(*_fields(part)) for part in step.parts))
    profile = without_atoms(plain, count, epsilon)
    there = profile.delta_bounds(epsilon)
    assert not next(part for part in profile.parts if isinstance(part, OutcomesProfile)).parts
    assert max(here.lower, there.lower) <= min(here.upper, there.upper)
    assert there.width <= 1e-6 * there.upper
    assert here.width <= 1e-7 * here.upper


class _Plain(RatioPart):
    """One whose profile is not in closed form."""

    has_profile = False


def _fields(part: RatioPart) -> tuple[float, float, float, float, float, bool]:
    return part.probability, part.log_scale, part.curvature, part.low, part.high, part.upward


@pytest.mark.one_in(4)
@pytest.mark.parametrize("upward", [True, False])
@pytest.mark.parametrize(
    ("q", "size", "low"), [(1.0, 0.05, -0.05), (0.2, 3.0, -3.0), (1e-4, 9.0, 0.0), (0.9, 20.0, 0.0)]
)
def test_the_profile_of_one_draw(q: float, size: float, low: float, *, upward: bool) -> None:
    """D_G and its slope, in 30 digits, on both sides of its range and next to its ends."""
    part = RatioPart(q, -0.5 * size - math.log(4.0), 0.0, low, size, upward)
    ends = part.log_f(np.array([low, size])) * (1.0 if upward else -1.0)
    first, last = float(ends.min()), float(ends.max())
    length = last - first
    epsilons = [first - length, first + 1e-3 * length, first + 0.5 * length, last - 1e-6 * length, last + length]
    deltas, slopes = part.profile(np.array(epsilons))
    with mp.workdps(30):
        for epsilon, delta, slope in zip(epsilons, deltas, slopes, strict=True):
            truth, steep = _one_draw(part, epsilon)
            # The largest loss itself is rounded.
            assert abs(delta - float(truth)) <= 1e-13 * float(truth) + 1e-15 * (abs(last) + 1.0) * float(steep) + 1e-300
            assert slope == pytest.approx(float(steep), rel=1e-6, abs=1e-12)


def _one_draw(part: RatioPart, epsilon: float) -> tuple[mp.mpf, mp.mpf]:
    q, g = mp.mpf(part.probability), mp.exp(mp.mpf(epsilon))
    odds = ((g if part.upward else 1 / g) - 1) / q + 1
    kink = mp.log(odds) if odds > 0 else mp.ninf
    low, high = mp.mpf(part.low), mp.mpf(part.high)
    low, high = (max(low, kink), high) if part.upward else (low, min(high, kink))
    if not low < high:
        return mp.mpf(0), mp.mpf(0)

    def density(y: mp.mpf) -> mp.mpf:
        return mp.exp(mp.mpf(part.log_scale) - y / 2)

    def f(y: mp.mpf) -> mp.mpf:
        return 1 - q + q * mp.exp(y)

    places = mp.linspace(low, high, 5)
    if part.upward:
        return mp.quad(lambda y: density(y) * (f(y) - g), places), mp.quad(lambda y: density(y) * g, places)
    return mp.quad(lambda y: density(y) * (1 - g * f(y)), places), mp.quad(lambda y: density(y) * g * f(y), places)


@pytest.mark.parametrize(
    ("atoms", "count"),
    [([(0.5, 1.0), (0.3, -1.0)], 20), ([(0.25, 0.3), (0.5, -0.1), (0.2, 0.0)], 40), ([(0.9, 0.7)], 5)],
)
def test_outcomes_are_those_of_every_order(atoms: Sequence[tuple[float, float]], count: int) -> None:
    """delta in 30 digits, by convolution atom after atom; the bounds are around it, and close."""
    law = {mp.mpf(0): mp.mpf(1)}
    with mp.workdps(30):
        for _ in range(count):
            following: dict[mp.mpf, mp.mpf] = {}
            for loss, mass in law.items():
                for own, place in atoms:
                    key = mp.nint((loss + mp.mpf(place)) * 10**9) / 10**9
                    following[key] = following.get(key, mp.mpf(0)) + mass * mp.mpf(own)
            law = following
        outcomes = Outcomes.of_atoms(atoms, 0.0, count)
        assert outcomes is not None
        for epsilon in (-0.5, 0.05, 0.71, 2.3, 0.999 * count * atoms[0][1]):
            truth = sum(mass * (1 - mp.exp(mp.mpf(epsilon) - loss)) for loss, mass in law.items() if loss > epsilon)
            lower, upper = outcomes.delta(epsilon)
            assert lower <= truth <= upper
            assert upper - lower <= 1e-10 * truth + 1e-300


def test_errors_of_the_atoms_are_inside() -> None:
    """Masses and losses that are as wrong as is said."""
    atoms, error = [(0.4, 0.9), (0.35, -0.9), (0.1, 0.0)], 1e-9
    told = Outcomes.of_atoms(atoms, error, 12)
    assert told is not None
    for sign in (-1.0, 1.0):
        moved = 1.0 + sign * error
        wrong = Outcomes.of_atoms([(mass * moved, loss * moved) for mass, loss in atoms], 0.0, 12)
        assert wrong is not None
        for epsilon in (0.1, 1.7999, 4.0, 10.7):
            lower, upper = told.delta(epsilon)
            assert lower <= wrong.delta(epsilon)[0]
            assert wrong.delta(epsilon)[1] <= upper


def test_errors_of_the_masses_of_one_draw_are_inside() -> None:
    """The atoms of the other steps, and the profile of the one draw, are as wrong as is said, and to one side."""
    atoms, error, part_error = [(0.4, 0.9), (0.35, -0.9)], 1e-7, 3e-7
    part = RatioPart(0.3, -1.0 - math.log(4.0), 0.0, 0.0, 2.0, True)
    nothing = Outcomes(np.array([-1000.0]), np.zeros(1), 0.0, 0.0)
    but_one = Outcomes.of_atoms(atoms, error, 5)
    assert but_one is not None
    told = OutcomesProfile(nothing, but_one, (part,), part_error, 6)
    for sign in (-1.0, 1.0):
        moved = Outcomes.of_atoms([(mass * (1.0 + sign * error), loss) for mass, loss in atoms], 0.0, 5)
        assert moved is not None
        larger = replace(part, log_scale=part.log_scale + math.log1p(sign * part_error))
        wrong = OutcomesProfile(nothing, moved, (larger,), 0.0, 6)
        for epsilon in (0.1, 1.7, 4.4):
            bounds, delta = told.delta_bounds(epsilon), wrong.estimate(epsilon)[0]
            assert 0.0 < bounds.lower <= delta <= bounds.upper
            assert abs(delta - bounds.estimate) > 0.4 * bounds.width, "it says little more"


def test_errors_of_the_losses_of_one_draw_are_inside() -> None:
    """The losses of the other steps are as wrong as is said, and to one side."""
    error, count = 1e-7, 6
    part = RatioPart(0.3, -1.0 - math.log(4.0), 0.0, 0.0, 2.0, True)
    nothing = Outcomes(np.array([-1000.0]), np.zeros(1), 0.0, count * 0.9 * error)
    right, less, more = (
        Outcomes.of_atoms([(0.4, 0.9 * moved), (0.35, 0.1 * moved)], 0.0, count - 1)
        for moved in (1.0, 1.0 - error, 1.0 + error)
    )
    assert right is not None
    assert less is not None
    assert more is not None
    for epsilon in (0.1, 1.7, 4.4):
        bounds = OutcomesProfile(nothing, right, (part,), 0.0, count).delta_bounds(epsilon)
        low, high = (OutcomesProfile(nothing, law, (part,), 0.0, count).estimate(epsilon)[0] for law in (less, more))
        assert 0.0 < bounds.lower <= low < high <= bounds.upper


@pytest.mark.parametrize(("loss", "remove"), [LOSSES[0], LOSSES[2], LOSSES[3]])
@pytest.mark.one_in(4)
def test_the_error_of_one_draws_profile_is_told(loss: PrivacyLoss, *, remove: bool) -> None:
    step = loss.contour_step(math.log(3.0), remove=remove)
    assert isinstance(step, RatioStep)
    made = step.outcomes(3)
    assert made is not None
    with mp.workdps(30):
        for part in made.parts:
            assert isinstance(part, RatioPart)
            first, last = sorted((1.0 if part.upward else -1.0) * part.log_f(np.array([part.low, part.high])))
            epsilons = np.linspace(first, last, 8)[:-2]
            deltas = part.profile(epsilons)[0]
            for epsilon, delta in zip(epsilons.tolist(), deltas.tolist(), strict=True):
                truth = _one_draw(part, epsilon)[0]
                assert abs(delta - truth) <= made.part_error * truth


def test_too_many_outcomes_are_left_to_others() -> None:
    assert Outcomes.of_atoms([(0.4, 0.9), (0.35, -0.9), (0.1, 0.0)], 0.0, 344) is not None
    assert Outcomes.of_atoms([(0.4, 0.9), (0.35, -0.9), (0.1, 0.0)], 0.0, 345) is None


@pytest.mark.parametrize("sampling", [FullBatch(), Poisson(0.3), WithoutReplacement(30, 1000)])
@pytest.mark.parametrize("noise", [0.2, 1.3, 30.0])
@pytest.mark.parametrize("steps", [2, 5, 19])
@pytest.mark.one_in(45)
def test_few_steps_are_narrow_at_every_delta(sampling: Sampling, noise: float, steps: int) -> None:
    """Up to the largest loss, at which lattices and windows were a fifth of epsilon wide; there and back."""
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    if isinstance(sampling, WithoutReplacement):
        relation = NeighboringRelation.REPLACE_ONE
    events = [Event(Laplace(noise), sampling, steps)]
    for delta in (1e-14, 1e-9, 1e-4):
        value = epsilon_for_delta(events, relation, delta).value
        assert value.width <= 1e-6 * max(value.upper, 1e-3)
        if value.lower > 0.0:
            assert delta_for_epsilon(events, relation, value.upper).value.lower <= delta * (1.0 + 1e-9)
            assert delta_for_epsilon(events, relation, value.lower).value.upper >= delta * (1.0 - 1e-9)


def test_errors_of_the_leading_term_are_counted() -> None:
    """A = i and G = -i at one point: M is 0 there, and only T A^(T-1) G is as wrong as A."""
    t, size, none = 2.0, 1e-7, (np.zeros((1, 0)), np.zeros((1, 0)), 1.0)

    def line(turn: float, weight: float, rounding: float) -> StepLine:
        weights, losses = np.array([weight + 0j]), np.array([turn / t + 0j])
        return StepLine(weights, losses, 0.0, 0.0, 0.0, rounding, 1.0, turn / t, none)

    rest = line(1.5 * math.pi, 1.0, 0.0)
    told = SplitLine(line(0.5 * math.pi, 1.0, size), rest, 6, leading=True).values(2.0 * math.pi / t, 2)
    wrong = SplitLine(line(0.5 * math.pi, 1.0 + size, 0.0), rest, 6, leading=True).values(2.0 * math.pi / t, 2)
    moved = abs(complex(told.ratios[1] - wrong.ratios[1]))
    assert moved > 0.3 * (told.errors[1] + told.rounding[1])
    assert moved <= told.errors[1] + told.rounding[1]

"""Proximal rounds: the worked numbers, what the event covers, what is proved against simulation, what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from accounting.errors import AccountingError
from accounting.events import Event, Gaussian, Poisson, ZcDp
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, GaussianDpTarget, ZcdpTarget
from calibrators.bassily_guzman.proximal_point import ProximalProblem
from calibrators.geometry import L2Ball, L2Penalty, LpBall
from calibrators.phases.proximal_phases import ProximalPhase
from calibrators.plan import Clip
from calibrators.registry import calibrate
from calibrators.release import RandomIterate
from calibrators.spec import Calibration, OpenEpsilon, Spec, Unknown
from tests.transcriptions.localized_clipped_subgradient import ball
from tests.transcriptions.proximal_weakly_convex import rounds

#: zCDP of (1, 1e-6) by the conversion of Canonne, Kamath & Steinke.
RHO = 0.0243559703595
GIVEN = {"lipschitz": 1.0, "weak_convexity": 0.5, "diameter": 2.0}


def found(records: int = 100_000, **changes: Any) -> Calibration:
    given: dict[str, Any] = {"target": ZcdpTarget(RHO), "dimension": 50, "iterations": 316, "assumptions": GIVEN}
    return calibrate("proximal_weakly_convex", Spec(dataset_size=records, **(given | changes)))


def phase_of(calibration: Calibration) -> ProximalPhase:
    [phase] = calibration.plan.phases
    assert isinstance(phase, ProximalPhase)
    return phase


def value(calibration: Calibration, name: str) -> Any:
    return next(
        (item.value for item in (*calibration.utility, *calibration.hyperparameters) if item.name == name), None
    )


def test_the_worked_plan() -> None:
    answer = found()
    phase = phase_of(answer)
    assert (phase.rounds, phase.records, phase.inner_iterations) == (316, 316, 316)
    assert (phase.regularizer, phase.radius) == (1.0, pytest.approx(4.0 / 3.0, rel=1e-15))
    assert phase.noise_stddev_on_mean == pytest.approx(0.509763502496, rel=1e-7)
    assert ProximalProblem(1.0, 0.5).empirical_gap(316, 0.509763502496, 50) == pytest.approx(0.444905025124, rel=1e-9)
    assert ProximalProblem(1.0, 0.5).closeness(2.0, 316, 0.444905025124) == pytest.approx(1.34347927271, rel=1e-9)
    assert value(answer, "closeness_rate") == pytest.approx(1.34347927271, rel=1e-6)
    assert value(answer, "gradient_norm_rate") == pytest.approx(2.68695854541, rel=1e-6)
    assert {item.name: item.vacuous for item in answer.utility if item.vacuous is not None} == dict.fromkeys(
        ("closeness_bound", "gradient_norm_bound", "closeness_rate", "gradient_norm_rate"), True
    )
    assert value(answer, "gradient_evaluations") == 316.0**3
    assert answer.plan.release == RandomIterate()
    assert answer.plan.domain == L2Ball(1.0)
    balanced = found(target=ApproximateDpTarget(1.0, 1e-6), iterations=None)
    assert phase_of(balanced).rounds == 316
    printed = found(10_000, target=ApproximateDpTarget(1.0, 1e-6), dimension=100)
    assert value(printed, "closeness_rate_printed") == pytest.approx(0.2, rel=1e-12)


@pytest.mark.parametrize(("relation", "factor"), [("replace_one", 2.0), ("replace_special", 1.0)])
def test_the_one_event_is_the_gaussian_mechanism_that_every_round_is(relation: str, factor: float) -> None:
    """mu^2 of a round is T (s C/m)^2 / sigma^2, with s = 2 where a record is replaced."""
    answer = found(
        1000,
        target=GaussianDpTarget(0.8),
        iterations=7,
        neighboring_relation=NeighboringRelation(relation),
        gradient_bound=Clip(1.5),
        assumptions=GIVEN | {"inner_iterations": 9.0},
    )
    phase = phase_of(answer)
    assert isinstance(answer.value, float)
    assert answer.plan.events == (Event(Gaussian(answer.value)),)
    assert (phase.records, phase.inner_iterations, phase.max_grad_norm) == (142, 9, 1.5)
    mu = 3.0 * factor * 1.5 / (142 * phase.noise_stddev_on_mean)
    assert mu == pytest.approx(0.8, rel=1e-5)
    assert mu <= 0.8 * (1.0 + 1e-15), "but for rounding"
    assert answer.achieved.value.upper <= 0.8
    assert any("6 of 1000" in warning for warning in answer.warnings)


def test_without_the_constants_the_noise_is_solved_all_the_same() -> None:
    private = found(assumptions={}, gradient_bound=Clip(1.0))
    assert set(private.missing_assumptions) == {"lipschitz", "weak_convexity"}
    assert not private.plan.is_executable
    assert phase_of(private).noise_stddev_on_mean == phase_of(found()).noise_stddev_on_mean
    runs = found(assumptions={"weak_convexity": 0.5}, gradient_bound=Clip(1.0))
    assert runs.plan.is_executable
    assert (runs.plan.domain, phase_of(runs).radius) == (None, phase_of(found()).radius)
    anywhere = found(assumptions={"lipschitz": 1.0, "weak_convexity": 0.5})
    assert anywhere.missing_assumptions == ("initial_gap",)
    assert [item.name for item in anywhere.utility] == ["gradient_evaluations"]
    clipped = found(gradient_bound=Clip(0.9))
    assert [item.name for item in clipped.utility] == ["gradient_evaluations"]
    assert "clipped" in clipped.warnings[-1]


def test_what_is_known_of_the_gap_is_used() -> None:
    """Of the start the smaller of two bounds; where parameters are anywhere, a subgradient in place of a gap."""
    assert value(found(assumptions=GIVEN | {"initial_gap": 3.0}), "closeness_bound") == value(
        found(), "closeness_bound"
    )
    less = found(assumptions=GIVEN | {"initial_gap": 0.5})
    assert value(less, "closeness_bound") < value(found(), "closeness_bound")
    anywhere = found(assumptions={"lipschitz": 1.0, "weak_convexity": 0.5, "initial_gap": 0.5})
    assert value(anywhere, "gradient_norm_bound") == pytest.approx(value(less, "gradient_norm_bound") / 2.0, rel=1e-15)


def test_the_bounds_hold_in_a_simulation_and_are_not_far_off() -> None:
    """E|x_J - prox(x_J)| for f(x, i) = |x_i^2 - 1/4| / 2 in the unit ball, i either coordinate: phase retrieval.

    It is 1-Lipschitz there and 1-weakly convex, neither smooth nor convex, and the mean's proximal points are those of
    the coordinates, found on a grid.
    """
    omega, lipschitz, n, R, T, sigma = 1.0, 1.0, 256, 8, 32, 0.05
    problem, rng, m = ProximalProblem(lipschitz, omega), np.random.default_rng(3), n // 8

    def loss(x: np.ndarray) -> np.ndarray:
        return 0.25 * np.abs(x**2 - 0.25).sum(axis=-1)

    def gradient(x: np.ndarray, j: int) -> np.ndarray:
        found = np.zeros(2)
        found[which[j]] = np.sign(x[which[j]] ** 2 - 0.25) * x[which[j]]
        return found

    line = np.linspace(-1.0, 1.0, 2001)
    squares = np.abs(line**2 - 0.25) / 4.0

    def proximal(x: np.ndarray) -> np.ndarray:
        """The minimum of F + omega |. - x|^2, coordinate by coordinate: within the ball for x well inside."""
        return np.array([line[np.argmin(squares + omega * (line - each) ** 2)] for each in x])

    far: list[float] = []
    gaps: list[float] = []
    for _ in range(2):
        which = rng.integers(2, size=n)
        noises = rng.normal(size=(R * T, 2))
        start = np.array([0.7, -0.1])
        path = rounds(
            start, gradient, range(n), noises, R=R, m=m, T=T, omega=omega, L0=lipschitz, C=1.0, sigma=sigma, X=ball(1.0)
        )
        for t, x in enumerate(path[:R]):
            near = proximal(x)
            assert np.linalg.norm(near - x) <= problem.radius
            reached = loss(path[t + 1]) + omega * np.sum((path[t + 1] - x) ** 2)
            gaps.append(float(reached - loss(near) - omega * np.sum((near - x) ** 2)))
            far.append(float(np.linalg.norm(near - x)))
    empirical = problem.empirical_gap(T, sigma, 2)
    assert -1e-6 < np.mean(gaps) < problem.population_gap(empirical, m)
    theta = problem.closeness(float(loss(np.array([0.7, -0.1]))), R, float(np.mean(gaps)))
    assert 0.2 * theta < np.mean(far) <= theta
    assert theta < problem.closeness(0.5, R, problem.population_gap(empirical, m))


def test_the_empirical_bound_of_a_round_holds_under_loud_noise() -> None:
    """The weighted average on f = max(-x, x/2 - 3/10), convex and so weakly convex: many rounds at once."""
    rng, problem, sigma, steps = np.random.default_rng(0), ProximalProblem(1.0, 0.5), 2.0, 16

    def objective(x: np.ndarray) -> np.ndarray:
        return np.maximum(-x, 0.5 * x - 0.3) + 0.5 * problem.regularizer * x**2

    x = average = np.zeros(4000)
    for k in range(1, steps + 1):
        average = average + 2.0 * k * x / (steps * (steps + 1))
        noisy = np.where(-x > 0.5 * x - 0.3, -1.0, 0.5) + sigma * rng.normal(size=x.size) + problem.regularizer * x
        x = np.clip(x - 2.0 / (problem.weak_convexity * (k + 1)) * noisy, -problem.radius, problem.radius)
    least = objective(np.linspace(-problem.radius, problem.radius, 4001)).min()
    gap = float(np.mean(objective(average))) - least
    assert 0.02 * problem.empirical_gap(steps, sigma, 1) < gap <= problem.empirical_gap(steps, sigma, 1)


@pytest.mark.parametrize(
    ("records", "changes", "pointer"),
    [
        (1, {}, ("dataset_size",)),
        (1000, {"iterations": 1}, ("iterations",)),
        (1000, {"iterations": 1001}, ("iterations",)),
        (1000, {"iterations": None, "dimension": None}, ("iterations",)),
        (1000, {"batch_size": 10}, ("batch_size",)),
        (1000, {"step_size": 0.1}, ("step_size",)),
        (1000, {"penalty": L2Penalty(1.0)}, ("penalty",)),
        (1000, {"iterations": None, "unknown": Unknown.ITERATIONS, "noise_multiplier": 1.0}, ("solve_for",)),
        (1000, {"domain": LpBall(1.5, 1.0)}, ("domain", "kind")),
        (1000, {"domain": L2Ball(2.0)}, ("domain", "radius")),
        (1000, {"assumptions": {"weak_convexity": 0.5}}, ("gradient_bound",)),
        (1000, {"assumptions": GIVEN | {"weak_convexity": 0.0}}, ("assumptions", "weak_convexity")),
        (1000, {"assumptions": GIVEN | {"inner_iterations": 2.5}}, ("assumptions", "inner_iterations")),
        (1000, {"assumptions": GIVEN | {"radius": 2.0}}, ("assumptions", "radius")),
        (1000, {"neighboring_relation": NeighboringRelation.ADD_OR_REMOVE_ONE}, ("neighboring_relation",)),
    ],
)
def test_what_does_not_fit_is_refused(records: int, changes: dict[str, Any], pointer: tuple[str, ...]) -> None:
    with pytest.raises(AccountingError) as refused:
        found(records, **({"iterations": 10} | changes))
    assert refused.value.pointer == pointer


def test_given_noise_costs_what_one_mechanism_does() -> None:
    answer = found(target=OpenEpsilon(1e-6), unknown=Unknown.EPSILON, noise_multiplier=8.44935777866)
    assert answer.value == pytest.approx(1.0, rel=1e-6), "twice the noise of a Gaussian mechanism of sensitivity 1"
    assert value(answer, "closeness_rate_printed") is not None


@pytest.mark.parametrize(
    "change",
    [
        {"event": Event(ZcDp(1.0))},
        {"event": Event(Gaussian(1.0), Poisson(0.5))},
        {"event": Event(Gaussian(1.0), count=2)},
        {"noise_stddev_on_mean": 0.49},
        {"inner_iterations": 5},
        {"rounds": 0},
        {"radius": None},
        {"regularizer": 0.0},
    ],
)
def test_a_phase_that_costs_more_than_its_event_does_not_exist(change: dict[str, Any]) -> None:
    phase = ProximalPhase(Event(Gaussian(1.0)), 3, 4, 4, 1.0, 0.5, 0.5, 1.0, 1.0)
    assert (phase.steps, phase.gradient_evaluations) == (12, 48)
    with pytest.raises(AccountingError):
        replace(phase, **change)

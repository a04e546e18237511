"""Full-batch Frank-Wolfe's calibration: worked numbers, transcripts of small instances, refusals."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import integrate

from accounting.errors import AccountingError, InvalidValue, Unsupported
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, GaussianDpTarget, PureDpTarget, Target, ZcdpTarget
from calibrators.as_published import Verdict
from calibrators.bassily_guzman import rates
from calibrators.bassily_guzman.dp_fw import best_iterations, empirical_risk_bound, noise_scale
from calibrators.bassily_guzman.printed_selection import attained_loss, printed_calibration
from calibrators.bassily_guzman.tree import Problem
from calibrators.geometry import Box, L1Ball, L2Penalty
from calibrators.phases.vertex_steps import VertexSteps
from calibrators.plan import Clip, plan_from_canonical
from calibrators.registry import calibrate
from calibrators.spec import Calibration, OpenEpsilon, Spec, Unknown
from calibrators.work import affordable_steps
from tests.transcriptions.dp_fw import Vector, trajectory

RHO = 0.0243559703595
W7 = Problem(2.0, 1.0, 2.0)
ORDERS = (1.0001, 2.0, 5.0, 20.0, 100.0)


def calibrated(**changes: Any) -> Calibration:
    usual: dict[str, Any] = {
        "dataset_size": 10_000,
        "target": ZcdpTarget(RHO),
        "dimension": 50,
        "assumptions": {"lipschitz": 2.0, "smoothness": 1.0, "radius": 1.0},
    }
    return calibrate("dp_fw", Spec(**(usual | changes)))


def number(found: Calibration, name: str) -> float:
    [value] = [item.value for item in (*found.hyperparameters, *found.utility) if item.name == name]
    assert isinstance(value, float)
    return value


def test_the_worked_scales_and_bounds() -> None:
    """W7: T = 100 within rho and epsilon 1, and the integer of least bound."""
    assert noise_scale(W7, 10_000, math.sqrt(2.0 * 100.0 / RHO), pure=False) == pytest.approx(0.0181235084681, rel=1e-9)
    assert empirical_risk_bound(W7, 100, 0.0181235084681, 100) == pytest.approx(0.161893213412, rel=1e-9)
    found = calibrated(iterations=100)
    assert found.value == (pytest.approx(0.0181235084681, rel=1e-7),)
    assert number(found, "excess_risk_bound") == pytest.approx(0.161893213412, rel=1e-7)
    assert number(found, "gradient_evaluations") == 1e6
    pure = calibrated(iterations=100, target=PureDpTarget(1.0))
    assert pure.value == (pytest.approx(0.08, rel=1e-9),)
    assert [event.count for event in pure.plan.events] == [100]
    best = calibrated()
    assert best.plan.iterations == 152
    assert number(best, "excess_risk_bound") == pytest.approx(0.154846720054, rel=1e-7)
    continuous = (4 * 4 * math.sqrt(8 * RHO) * 1e4 / (8 * math.log(100))) ** (2 / 3)
    assert continuous == pytest.approx(154.319692345, rel=1e-9)


@pytest.mark.parametrize("power", [0.5, 1.0])
@pytest.mark.parametrize("smoothness", [0.0, 1e-3, 1.0, 30.0])
def test_no_other_number_of_steps_has_a_smaller_bound(power: float, smoothness: float) -> None:
    problem = Problem(2.0, smoothness, 2.0)
    for scale in (1e-4, 1e-2, 1.0, 50.0):
        found = best_iterations(problem, 100, scale, power, 10**6)
        bounds = [empirical_risk_bound(problem, t, scale * t**power, 100) for t in range(1, 20_000)]
        assert found == 1 + int(np.argmin(bounds))


def test_the_default_number_of_steps_is_the_best_under_every_kind_of_target() -> None:
    for target in (PureDpTarget(2.0), GaussianDpTarget(0.5), ApproximateDpTarget(1.0, 1e-6)):
        own = calibrated(target=target)
        for steps in (max(1, own.plan.iterations - 5), own.plan.iterations + 5):
            other = calibrated(target=target, iterations=steps)
            assert number(own, "excess_risk_bound") <= number(other, "excess_risk_bound") * (1.0 + 1e-3)
    assert calibrated(assumptions={"lipschitz": 2.0, "smoothness": 0.0, "radius": 1.0}).plan.iterations == 1


def test_no_default_has_more_steps_than_a_minute_of_work() -> None:
    large = calibrated(dataset_size=10**7, dimension=50)
    [steps] = [each for each in large.hyperparameters if each.name == "iterations"]
    assert large.plan.iterations == affordable_steps(10**7, 50) == 100
    assert any("about a minute" in words for words in steps.assumptions)
    assert calibrated(dataset_size=10**7, iterations=5_000).plan.iterations == 5_000, "who asks for more has them"
    [own] = [each for each in calibrated().hyperparameters if each.name == "iterations"]
    assert not own.assumptions


def test_the_bound_holds_for_the_worst_noise_of_its_kind_in_simulation() -> None:
    """Least squares with records of random signs: the mean gap of runs of the transcription is below it."""
    generator = np.random.default_rng(3)
    n, d, D, T = 40, 4, 1.0, 12
    A, y = generator.choice([-1.0, 1.0], size=(n, d)), generator.uniform(-1.0, 1.0, size=n)
    grid = np.array([v for v in itertools.product(np.linspace(-1, 1, 9), repeat=d) if np.abs(v).sum() <= 1.0 + 1e-9])
    best = min(float(np.mean((A @ x - y) ** 2) / 2.0) for x in grid)

    def gap(scale: float) -> float:
        def select(scores: Vector) -> int:
            return int(np.argmin(scores - scale * generator.gumbel(size=scores.size)))

        path = trajectory(np.zeros(d), lambda x, i: A[i] * (A[i] @ x - y[i]), select, n=n, T=T, D=D)
        return float(np.mean((A @ path[-1][1] - y) ** 2) / 2.0) - best

    for scale in (0.02, 0.3):
        bound = empirical_risk_bound(Problem(2.0, 1.0, 2.0 * D), T, scale, 2 * d)
        assert np.mean([gap(scale) for _ in range(20)]) <= bound


class Forced:
    """Selects what a sequence says, and adds up how likely each of that was."""

    def __init__(self, sequence: tuple[int, ...], scale: float) -> None:
        self._left, self._scale, self.log_probability = iter(sequence), scale, 0.0

    def select(self, scores: Vector) -> int:
        chosen, exponents = next(self._left), -scores / self._scale
        self.log_probability += float(exponents[chosen] - np.logaddexp.reduce(exponents))
        return chosen


def law(slopes: Vector, waves: Vector, T: int, scale: float) -> npt.NDArray[np.float64]:
    """Log-probability of every sequence of vertices; gradients jump with the point, and clipping acts."""
    found = []
    for sequence in itertools.product(range(4), repeat=T):
        forced = Forced(sequence, scale)
        trajectory(
            np.zeros(2),
            lambda x, i: slopes[i] * np.cos(waves[i] @ x),
            forced.select,
            n=len(slopes),
            T=T,
            D=1.0,
            L0=0.7,
        )
        found.append(forced.log_probability)
    return np.array(found)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_no_transcript_loses_more_than_is_charged(relation: NeighboringRelation) -> None:
    """A record turned around, or gone with the divisor kept; at all orders, and in the log-ratio."""
    generator = np.random.default_rng(5)
    T, n = 3, 3
    plans = {
        pure: calibrate(
            "dp_fw",
            Spec(
                n,
                PureDpTarget(0.9) if pure else ZcdpTarget(0.3),
                iterations=T,
                dimension=2,
                neighboring_relation=relation,
                assumptions={"lipschitz": 0.7, "smoothness": 1.0, "radius": 1.0},
            ),
        ).plan
        for pure in (False, True)
    }
    ratios: list[float] = []
    for _ in range(6):
        slopes, waves = generator.choice([-9.0, 9.0], size=(n, 2)), 5.0 * generator.normal(size=(n, 2))
        other = slopes.copy()
        other[0] = -other[0] if relation is NeighboringRelation.REPLACE_ONE else 0.0
        for pure, plan in plans.items():
            [phase] = plan.phases
            assert isinstance(phase, VertexSteps)
            p, q = (law(each, waves, T, phase.gumbel_scale) for each in (slopes, other))
            if pure:
                ratios.append(float(np.max(np.abs(p - q))) / 0.9)
                continue
            for order in ORDERS:
                divergence = float(np.logaddexp.reduce(order * p + (1.0 - order) * q) / (order - 1.0))
                ratios.append(divergence / (order * 0.3))
    assert max(ratios) <= 1.0
    assert max(ratios) >= 0.4, "the charge is near"


def test_the_talks_selection_loses_twice_its_epsilon() -> None:
    """W2, by quadrature: two items, a gap of 5 scales, a neighbour's of 3."""

    def unlikely(gap: float) -> float:
        def density(x: float) -> float:
            below = 0.5 * math.exp(x - gap) if x < gap else 1.0 - 0.5 * math.exp(gap - x)
            return 0.5 * math.exp(-abs(x)) * below

        return sum(integrate.quad(density, *ends)[0] for ends in ((-50.0, 0.0), (0.0, gap), (gap, 50.0)))

    assert unlikely(5.0) == pytest.approx(0.0117914072484, rel=1e-9)
    assert unlikely(3.0) == pytest.approx(0.0622338354598, rel=1e-9)
    assert math.log(unlikely(3.0) / unlikely(5.0)) == pytest.approx(1.66352776338, rel=1e-9)
    assert math.log(unlikely(1.5) / unlikely(2.5)) == pytest.approx(0.748685571719, rel=1e-8)
    assert attained_loss(1.0, 5) == pytest.approx(1.66352776338, rel=1e-9)
    assert [round(attained_loss(1.0, n), 3) for n in (20, 100)] == [1.905, 1.98]
    assert all(attained_loss(epsilon, n) > epsilon for epsilon in (1e-3, 1.0, 9.0) for n in (2, 3, 10**6))
    for target in (PureDpTarget(1.0), ApproximateDpTarget(1.0, 0.0), ApproximateDpTarget(1.0, 1e-6)):
        published = calibrated(target=target, iterations=10).as_published
        assert published is not None
        assert (published.verdict, published.noise_multiplier) == (Verdict.UNSOUND, None)
        assert "target of 1" in published.why
    assert calibrated().as_published is None
    assert printed_calibration(Spec(100, ApproximateDpTarget(1.0, 1.0)), 1) is None, "no noise at all"


def at_best(n: int, target: Target, power: float) -> Calibration:
    """The number of steps of least bound, however much work they are."""
    scale = number(calibrated(dataset_size=n, target=target, iterations=1), "noise_scale")
    steps = best_iterations(W7, 100, scale, power, 10**6)
    return calibrated(dataset_size=n, target=target, iterations=steps)


def test_rates_follow_the_bound_at_its_best_number_of_steps() -> None:
    """Within a constant, over sizes: balanced, with the best number of steps not rounded."""
    shares = []
    for n in (10**4, 10**6, 10**8):
        own = at_best(n, ZcdpTarget(RHO), 0.5)
        shares.append(number(own, "excess_risk_bound") / rates.frank_wolfe_rate(W7, 100, n, RHO))
        pure = at_best(n, PureDpTarget(1.0), 1.0)
        shares.append(number(pure, "excess_risk_bound") / rates.pure_frank_wolfe_rate(W7, 100, n, 1.0))
    assert 0.5 < min(shares) <= max(shares) < 6.0


def test_without_the_dimension_the_noise_is_solved_and_the_number_of_steps_asked_for() -> None:
    found = calibrated(dimension=None, iterations=7)
    assert found.missing_assumptions == ("dimension",)
    assert [item.name for item in found.utility] == ["gradient_evaluations"]
    assert found.value == calibrated(iterations=7).value


def test_the_plan_travels_and_is_charged_by_the_step() -> None:
    plan = calibrated(iterations=9, target=PureDpTarget(1.0)).plan
    assert plan_from_canonical(plan.canonical(), plan.plan_hash) == plan
    assert [event.count for event in plan.cost_of_prefix(4)] == [4]
    [phase] = plan.phases
    assert isinstance(phase, VertexSteps)
    for changes in ({"divisor": 0}, {"gumbel_scale": 0.0}, {"lipschitz": -1.0}, {"lipschitz": math.nan}):
        with pytest.raises(InvalidValue):
            replace(phase, **changes)


LENGTHS = {"lipschitz": 2.0, "smoothness": 1.0, "radius": 1.0}
OPEN = {"target": OpenEpsilon(1e-6), "unknown": Unknown.EPSILON}


@pytest.mark.parametrize(
    ("changes", "kind", "code", "pointer"),
    [
        ({"assumptions": {"smoothness": 1.0, "radius": 1.0}}, InvalidValue, "missing", ("assumptions", "lipschitz")),
        ({"assumptions": {"lipschitz": 1.0, "smoothness": 1.0}}, InvalidValue, "missing", ("assumptions", "diameter")),
        ({"assumptions": LENGTHS | {"diameter": 1.0}}, InvalidValue, "contradiction", ("assumptions", "radius")),
        ({"assumptions": LENGTHS | {"lipschitz": 1e30, "radius": 1e9}}, InvalidValue, "invalid_value", None),
        ({"domain": L1Ball(2.0)}, InvalidValue, "contradiction", ("domain", "radius")),
        ({"domain": Box(-1.0, 1.0)}, InvalidValue, "unsupported_domain", ("domain", "kind")),
        ({"dimension": None}, InvalidValue, "missing", ("iterations",)),
        (OPEN | {"noise_multiplier": 2.0}, InvalidValue, "missing", ("iterations",)),
        (OPEN | {"noise_multiplier": 1e-3, "iterations": 1}, InvalidValue, "invalid_value", ("noise_multiplier",)),
        ({"dataset_size": 1}, InvalidValue, "invalid_value", ("dataset_size",)),
        ({"batch_size": 100}, InvalidValue, "invalid_value", ("batch_size",)),
        ({"penalty": L2Penalty(1.0)}, Unsupported, "unsupported", ("penalty",)),
        ({"step_size": 0.1}, Unsupported, "unsupported", ("step_size",)),
        ({"gradient_bound": Clip(1.0)}, InvalidValue, "unsupported_gradient_bound", ("gradient_bound",)),
        ({"sampling": "poisson"}, Unsupported, "unsupported_sampling", ("sampling",)),
        ({"unknown": Unknown.ITERATIONS, "noise_multiplier": 2.0}, Unsupported, "unsupported", ("solve_for",)),
        ({"unknown": Unknown.BATCH_SIZE, "noise_multiplier": 2.0}, Unsupported, "unsupported", ("solve_for",)),
    ],
)
def test_what_has_no_sound_answer_is_refused_where_it_stands(
    changes: dict[str, Any], kind: type[AccountingError], code: str, pointer: tuple[str, ...] | None
) -> None:
    with pytest.raises(kind) as refused:
        calibrated(**changes)
    assert refused.value.code == code
    assert refused.value.pointer == (pointer or ("assumptions", "lipschitz"))

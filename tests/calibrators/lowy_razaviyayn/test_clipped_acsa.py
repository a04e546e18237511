"""The calibrator of clipped accelerated SGD: worked numbers, its bound, refusals, the printed noise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize

from accounting.errors import InvalidValue, Unsupported
from accounting.events import DisjointBatches, Event, Gaussian
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, GaussianDpTarget, ZcdpTarget
from calibrators.as_published import Verdict
from calibrators.geometry import L1Ball, L1Penalty, L2Ball, L2Penalty
from calibrators.lowy_razaviyayn.convex_smooth import ConvexSmoothProblem
from calibrators.lowy_razaviyayn.mean_oracle import MeanOracle, errors_of_drawn_batches
from calibrators.lowy_razaviyayn.moments import Moments
from calibrators.plan import Clip, plan_from_canonical
from calibrators.provenance import ProvenanceKind
from calibrators.registry import calibrate
from calibrators.release import LAST_ITERATE
from calibrators.spec import Calibration, Spec, Unknown

NAME = "clipped_acsa"
ASSUMPTIONS = {"smoothness": 1.0, "diameter": 2.0, "moment_order": 2.0, "moment_bound": 3.0}
#: Everything is left to the paper.
WORKED = Spec(10_000, ZcdpTarget(0.5), dimension=20, assumptions=ASSUMPTIONS)
ADD_OR_REMOVE_ONE = NeighboringRelation.ADD_OR_REMOVE_ONE


def solved(**changes: object) -> Calibration:
    return calibrate(NAME, replace(WORKED, **changes))


def numbers(found: Calibration) -> dict[str, float | tuple[float, ...] | None]:
    every = (*found.hyperparameters, *found.utility)
    assert len({item.name for item in every}) == len(every), "a table of them is keyed by name"
    return {item.name: item.value for item in every}


@pytest.mark.parametrize(
    ("n", "d", "rho", "beta", "diameter", "k", "r", "steps", "size", "clip", "variance", "etas", "bounds", "rate"),
    [
        (10_000, 20, 0.5, 1.0, 2.0, 2.0, 3.0, 5, 2000, 94.86832981, 0.009, (2.459039447, 2.0),
         (2.235657479, 0.9004449929), 0.2461767968),
        (100_000, 50, 0.1, 2.0, 1.0, 4.0, 2.0, 16, 6250, 12.61166705, 8.143572263e-05, (4.396411141, 4.0),
         (0.0930720994, 0.03855896348), 0.01427478128),
        (10_000, 20, 0.5, 0.0, 2.0, 2.0, 3.0, 1, 10_000, 141.8612414, 0.0008049844719, (0.07249933068, 0.05126476836),
         (1.866868488, 0.5370026985), 0.1868845516),
    ],
)  # fmt: skip
def test_the_worked_presets(n, d, rho, beta, diameter, k, r, steps, size, clip, variance, etas, bounds, rate):
    constants = {"smoothness": beta, "diameter": diameter, "moment_order": k, "moment_bound": r}
    spec = Spec(n, ZcdpTarget(rho), dimension=d, assumptions=constants)
    found = calibrate(NAME, spec)
    [phase] = found.plan.phases
    assert phase.event == Event(Gaussian(found.value), DisjointBatches("by_position"), steps)
    assert (phase.steps, phase.divisor) == (steps, size)
    assert phase.gradient_bound.max_grad_norm == pytest.approx(clip, rel=1e-8)
    assert phase.noise_stddev_on_mean**2 == pytest.approx(variance, rel=1e-7)
    assert phase.step_size == pytest.approx(0.5 / etas[1], rel=1e-8)
    assert found.plan.domain == L2Ball(diameter / 2.0)
    assert found.plan.release == LAST_ITERATE
    values = numbers(found)
    assert (values["iterations"], values["batch_size"], values["gradient_evaluations"]) == (steps, size, n)
    assert values["max_grad_norm"] == phase.gradient_bound.max_grad_norm
    assert values["step_size"] == phase.step_size
    assert values["step_size_printed"] == pytest.approx(0.5 / etas[0], rel=1e-8)
    assert values["excess_risk_bound_closed_form"] == pytest.approx(bounds[1], rel=1e-8)
    assert values["excess_risk_rate"] == pytest.approx(rate, rel=1e-7)
    assert values["lower_bound"] < values["excess_risk_bound"] < bounds[1] < values["excess_risk_bound_printed"]
    printed = calibrate(NAME, replace(spec, step_size=0.5 / etas[0]))
    assert numbers(printed)["excess_risk_bound_printed"] == pytest.approx(bounds[0], rel=1e-7)
    assert numbers(printed)["excess_risk_bound"] < bounds[0]
    assert numbers(printed)["excess_risk_rate"] is None, "the preset's steps are left"


def test_the_worked_terms_of_the_number_of_steps_and_of_the_error():
    problem = ConvexSmoothProblem(1.0, 2.0, 20, Moments(2.0, 3.0))
    assert problem.iterations_by_terms(10_000, 1.0) == pytest.approx((4.635186561, 8.164965809), rel=1e-9)
    oracle = MeanOracle(94.86832981, 2000, 2.0, 20, problem.moments)
    assert (oracle.bias, oracle.variance) == pytest.approx((0.09486832981, 0.1845), rel=1e-9)
    other = ConvexSmoothProblem(2.0, 1.0, 50, Moments(4.0, 2.0))
    assert other.iterations_by_terms(100_000, math.sqrt(0.2)) == pytest.approx((15.86080632, 17.7827941), rel=1e-9)
    oracle = MeanOracle(12.61166705, 6250, math.sqrt(20.0), 50, other.moments)
    assert (oracle.bias, oracle.variance) == pytest.approx((0.002658772864, 0.004711786131), rel=1e-8)


@pytest.mark.parametrize(
    ("sharp", "steps", "clip", "least"), [(True, 9, 29.088, 0.441609), (False, 7, 60.17, 0.798254)]
)
def test_the_worked_least_certificates(sharp, steps, clip, least):
    """The least closed form over T and C is known for the oracle's sharp constants and for the printed bias."""
    problem = ConvexSmoothProblem(1.0, 2.0, 20, Moments(2.0, 3.0))

    def certificate(last: int, threshold: float) -> float:
        oracle = MeanOracle(threshold, 10_000 // last, 2.0, 20, problem.moments)
        bias, variance = (oracle.sharp_bias if sharp else oracle.bias), oracle.sharp_variance
        factor = math.sqrt((2 * last + 1) * last * (last + 1) / 12.0)
        eta = max(2.0, factor * math.sqrt(variance + bias**2) / 2.0)
        return problem.closed_form(last, eta, bias, variance)

    assert certificate(steps, clip) == pytest.approx(least, abs=1e-6)
    for last in range(1, 30):
        found = optimize.minimize_scalar(lambda x, last=last: certificate(last, math.exp(x)), bounds=(0, 6))
        assert found.fun >= least - 1e-6


def test_the_evaluated_bound_is_below_the_closed_form_and_above_the_steps_of_the_proof():
    """Where the closed form holds; and on random quadratics every step obeys the inequality that (1) adds up."""
    rng = np.random.default_rng(5)
    for _ in range(100):
        last, beta = int(rng.integers(1, 40)), float(rng.choice([0.0, 0.3, 4.0]))
        problem = ConvexSmoothProblem(beta, 1.5, 3, Moments(3.0, 1.0))
        eta = max(2.0 * beta, 1e-3) * rng.uniform(1.0, 20.0)
        bias, variance = rng.exponential(1.0), rng.exponential(1.0)
        evaluated = problem.evaluated_bound(eta, np.full(last, bias), variance)
        assert evaluated <= problem.closed_form(last, eta, bias, variance) * (1.0 + 1e-12)
        assert evaluated == pytest.approx(unrolled(last, beta, eta, bias, variance, 1.5), rel=1e-9)
        hessian = np.diag(beta * rng.uniform(0.0, 1.0, 3))
        centre = rng.normal(size=3)
        w = ag = project(rng.normal(size=3))
        u = project(rng.normal(size=3))
        for t in range(1, last + 1):
            alpha, eta_t = 2.0 / (t + 1), 4.0 * eta / (t * (t + 1))
            md = (1.0 - alpha) * ag + alpha * w
            error = rng.normal(size=3)
            after = project(w - alpha / eta_t * (hessian @ (md - centre) + error))
            left = risk(hessian, centre, alpha * after + (1.0 - alpha) * ag) - risk(hessian, centre, u)
            right = (1.0 - alpha) * (risk(hessian, centre, ag) - risk(hessian, centre, u))
            right += eta_t / 2.0 * (np.sum((w - u) ** 2) - np.sum((after - u) ** 2)) - alpha * error @ (w - u)
            right += alpha**2 * error @ error / (2.0 * (eta_t - beta * alpha**2))
            assert left <= right + 1e-9
            w, ag = after, alpha * after + (1.0 - alpha) * ag


def unrolled(last, beta, eta, bias, variance, diameter):
    """The inequality of each step, one after the other; what is left of the distances telescopes to the first."""
    bound, gamma = 0.0, 1.0
    for t in range(1, last + 1):
        alpha, eta_t = 2.0 / (t + 1), 4.0 * eta / (t * (t + 1))
        gamma = gamma if t == 1 else gamma * (1.0 - alpha)
        error = alpha**2 * (variance + bias**2) / (2.0 * (eta_t - beta * alpha**2))
        bound = (1.0 - alpha) * bound + error + alpha * bias * diameter
    return bound + gamma * (2.0 * eta) * diameter**2 / 2.0


def risk(hessian, centre, w):
    return 0.5 * float((w - centre) @ hessian @ (w - centre))


def project(w, radius=0.75):
    length = float(np.linalg.norm(w))
    return w if length <= radius else w * (radius / length)


def test_batches_that_are_drawn_have_a_bound_of_their_own_and_no_closed_form():
    cut = numbers(solved(neighboring_relation=NeighboringRelation.REPLACE_SPECIAL))
    found = solved(neighboring_relation=ADD_OR_REMOVE_ONE)
    assert found.plan.events[0].sampling == DisjointBatches("independent")
    drawn = numbers(found)
    assert cut["excess_risk_bound"] < drawn["excess_risk_bound"]
    for name in ("excess_risk_bound_closed_form", "excess_risk_bound_printed", "excess_risk_rate"):
        [item] = [item for item in found.utility if item.name == name]
        assert item.value is None
        assert any("add_or_remove_one" in words for words in item.assumptions)
    phase = found.plan.phases[0]
    oracle = MeanOracle(phase.gradient_bound.max_grad_norm, phase.divisor, found.value, 20, Moments(2.0, 3.0))
    bias, variance = errors_of_drawn_batches(oracle, phase.steps, 10_000)
    assert bias[0] < bias[-1], "later batches vary more, given the earlier ones"
    problem = ConvexSmoothProblem(1.0, 2.0, 20, Moments(2.0, 3.0))
    assert drawn["excess_risk_bound"] == problem.evaluated_bound(0.5 / phase.step_size, bias, variance)


def test_the_noise_is_that_of_one_mechanism_whatever_the_number_of_steps():
    assert {solved(iterations=count).value for count in (1, 7, 5000)} == {solved().value}
    assert solved().value == pytest.approx(2.0, rel=1e-8)
    one = solved(neighboring_relation=ADD_OR_REMOVE_ONE).value
    assert solved().value == pytest.approx(2.0 * one, rel=1e-8)


def test_without_assumptions_the_noise_is_solved_and_what_is_missing_is_named():
    found = solved(assumptions={}, dimension=None, iterations=10, gradient_bound=Clip(1.0))
    assert found.value == solved().value
    assert found.missing_assumptions == (*ASSUMPTIONS, "dimension")
    assert not found.plan.is_executable
    assert [item.name for item in found.utility] == ["gradient_evaluations"]
    own = solved(assumptions={"diameter": 6.0}, iterations=10, gradient_bound=Clip(1.0), step_size=0.1)
    assert own.plan.is_executable
    assert own.plan.domain == L2Ball(3.0)
    assert plan_from_canonical(own.plan.canonical(), own.plan.plan_hash) == own.plan


@pytest.mark.parametrize("left_out", ["iterations", "gradient_bound"])
def test_without_assumptions_what_the_preset_would_give_is_needed(left_out):
    with pytest.raises(InvalidValue) as refused:
        solved(assumptions={}, **({"iterations": 10, "gradient_bound": Clip(1.0)} | {left_out: None}))
    assert (refused.value.pointer, refused.value.code) == ((left_out,), "missing")


def test_longer_steps_have_fewer_bounds_and_too_long_ones_none():
    short, long, longest = (solved(step_size=share) for share in (0.25, 0.5, 0.6))
    assert None not in [numbers(short)[name] for name in ("excess_risk_bound", "excess_risk_bound_printed")]
    assert numbers(long)["excess_risk_bound"] is not None
    assert numbers(long)["excess_risk_bound_closed_form"] is None
    assert numbers(longest)["excess_risk_bound"] is None
    assert any("1/(2 beta) = 0.5" in warning for warning in longest.warnings)
    assert longest.plan.phases[0].step_size == 0.6
    assert short.warnings == long.warnings == ()


def test_a_penalty_counts_in_beta_and_in_the_trivial_risk_alone():
    found = solved(penalty=L2Penalty(0.5))
    assert found.plan.penalty == L2Penalty(0.5)
    assert numbers(found)["excess_risk_bound"] == numbers(solved())["excess_risk_bound"]
    problem = ConvexSmoothProblem(1.0, 2.0, 20, Moments(2.0, 3.0), penalty_strength=0.5)
    assert problem.trivial_excess_risk == (3.0 + 0.5) * 2.0


def test_a_bound_above_the_trivial_one_is_called_vacuous():
    hopeless = {item.name: item.vacuous for item in solved(target=ZcdpTarget(1e-6)).utility}
    assert hopeless["excess_risk_bound"] is True
    assert {item.name: item.vacuous for item in solved().utility}["excess_risk_bound"] is False
    kinds = {item.name: item.kind for item in solved(dimension=50).utility}
    assert kinds["excess_risk_bound"] is ProvenanceKind.DERIVED
    assert kinds["excess_risk_bound_printed"] is ProvenanceKind.EXACT
    assert kinds["excess_risk_rate"] is kinds["lower_bound_rate"] is ProvenanceKind.ORDER


@pytest.mark.parametrize(
    ("changes", "error", "pointer", "words"),
    [
        ({"sampling": "poisson"}, Unsupported, ("sampling",), "disjoint_batches"),
        ({"unknown": Unknown.ITERATIONS, "noise_multiplier": 2.0}, Unsupported, ("solve_for",), "not depend on it"),
        ({"iterations": 10_001}, InvalidValue, ("iterations",), "at most 10000"),
        ({"dataset_size": 10**6, "iterations": 10**5 + 1}, InvalidValue, ("iterations",), "at most 100000"),
        ({"iterations": 5, "batch_size": 1999}, InvalidValue, ("batch_size",), "2000"),
        ({"dataset_size": 3, "assumptions": ASSUMPTIONS | {"smoothness": 1e9}, "target": ZcdpTarget(1e6)}, InvalidValue,
         ("iterations",), "preset"),
        ({"domain": L1Ball(1.0)}, Unsupported, ("domain", "kind"), "l2_ball"),
        ({"domain": L2Ball(1.5)}, InvalidValue, ("assumptions", "diameter"), "twice the domain"),
        ({"penalty": L1Penalty(1.0)}, Unsupported, ("penalty", "kind"), "l2"),
        ({"penalty": L2Penalty(1.5)}, InvalidValue, ("assumptions", "smoothness"), "the strength of the penalty"),
    ],
)  # fmt: skip
def test_what_the_theorem_does_not_take_is_refused(changes, error, pointer, words):
    with pytest.raises(error) as refused:
        solved(**changes)
    assert refused.value.pointer == pointer
    assert words in refused.value.detail


def test_the_printed_noise_is_sound_where_the_batches_divide_the_records():
    even, uneven = solved(iterations=8).as_published, solved(iterations=7).as_published
    assert even.verdict is Verdict.SOUND
    assert even.noise_multiplier == pytest.approx(2.0)
    assert "Algorithm 2" in even.source
    assert uneven.verdict is Verdict.UNSOUND
    assert uneven.noise_multiplier == pytest.approx(2.0 * 1428 * 7 / 10_000)
    assert "10000/7 is not a whole number" in uneven.why
    assert solved(iterations=7, target=ApproximateDpTarget(1.0, 1e-6)).as_published.verdict is Verdict.LOOSE
    assert solved(target=GaussianDpTarget(1.0)).as_published is None

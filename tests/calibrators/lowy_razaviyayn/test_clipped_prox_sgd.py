"""The calibrator of clipped proximal SGD: worked numbers, its bound, refusals, the printed noise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from accounting.errors import InvalidValue, Unsupported
from accounting.events import DisjointBatches, Event, Gaussian
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, GaussianDpTarget, ZcdpTarget
from calibrators.as_published import Verdict
from calibrators.geometry import Box, L1Penalty, L2Penalty
from calibrators.lowy_razaviyayn.mean_oracle import MeanOracle, errors_of_drawn_batches
from calibrators.lowy_razaviyayn.moments import Moments
from calibrators.lowy_razaviyayn.proximal_pl import ProximalPlProblem
from calibrators.plan import Clip, plan_from_canonical
from calibrators.provenance import ProvenanceKind
from calibrators.registry import calibrate
from calibrators.release import LAST_ITERATE
from calibrators.spec import Calibration, Spec, Unknown

NAME = "clipped_prox_sgd"
ASSUMPTIONS = {"smoothness": 4.0, "pl_constant": 1.0, "initial_gap": 8.0, "moment_order": 3.0, "moment_bound": 2.0}
#: Everything is left to the paper.
WORKED = Spec(50_000, ZcdpTarget(0.5), dimension=10, assumptions=ASSUMPTIONS)
PROBLEM = ProximalPlProblem(4.0, 1.0, 8.0, 10, Moments(3.0, 2.0))


def solved(**changes: object) -> Calibration:
    return calibrate(NAME, replace(WORKED, **changes))


def numbers(found: Calibration) -> dict[str, float | tuple[float, ...] | None]:
    every = (*found.hyperparameters, *found.utility)
    assert len({item.name for item in every}) == len(every), "a table of them is keyed by name"
    return {item.name: item.value for item in every}


def test_the_worked_example():
    found = solved()
    [phase] = found.plan.phases
    assert phase.event == Event(Gaussian(found.value), DisjointBatches("by_position"), 94)
    assert found.value == pytest.approx(2.0, rel=1e-8)
    assert (phase.divisor, phase.step_size) == (531, 0.125)
    assert phase.gradient_bound.max_grad_norm == pytest.approx(11.04021114, rel=1e-8)
    assert phase.noise_stddev_on_mean**2 == pytest.approx(0.001729122283, rel=1e-7)
    assert found.plan.release == LAST_ITERATE
    oracle = MeanOracle(11.04021114, 531, 2.0, 10, PROBLEM.moments)
    assert (oracle.bias, oracle.variance) == pytest.approx((0.03281748027, 0.02482417952), rel=1e-8)
    values = numbers(found)
    assert (values["iterations"], values["batch_size"], values["step_size"]) == (94, 531, 0.125)
    assert values["max_grad_norm"] == phase.gradient_bound.max_grad_norm
    assert values["gradient_evaluations"] == 94 * 531
    assert values["excess_risk_bound_printed"] == pytest.approx(0.1036329701, rel=1e-7)
    assert values["excess_risk_bound_closed_form"] == pytest.approx(0.01297888721, rel=1e-7)
    assert values["excess_risk_rate"] == pytest.approx(0.00499390236, rel=1e-7)
    assert values["lower_bound"] < values["excess_risk_bound"] < values["excess_risk_bound_closed_form"]
    assert values["lower_bound_rate"] is None, "the paper needs 40 parameters"
    longer = numbers(solved(step_size=0.25))
    assert longer["excess_risk_bound_closed_form"] == pytest.approx(0.01295058328, rel=1e-7)
    assert longer["excess_risk_bound"] is not None
    assert longer["excess_risk_bound_printed"] is longer["excess_risk_rate"] is None, "of the paper's step size alone"


def test_the_bound_sums_to_the_closed_form():
    for steps, step_size in ((1, 0.25), (94, 0.125), (94, 0.01), (500, 0.05)):
        oracle = MeanOracle(5.0, 50_000 // steps, 2.0, 10, PROBLEM.moments)
        constant = PROBLEM.evaluated_bound(step_size, np.full(steps, oracle.bias), oracle.variance)
        left = (1.0 - step_size) ** steps
        expected = left * 8.0 + (1.0 - left) * (oracle.bias**2 + oracle.variance) / 2.0
        assert constant == pytest.approx(expected, rel=1e-9)
        assert constant <= PROBLEM.closed_form(steps, step_size, oracle)


def test_every_step_of_the_proof_holds_where_f_is_not_convex():
    """One step on F^0 = x^2 + 3 sin^2 x (PL without being convex) and on quadratics with an l1 penalty on [-1, 1]."""
    rng = np.random.default_rng(11)
    grid = np.linspace(-4.0, 4.0, 20_001)
    wave = grid**2 + 3.0 * np.sin(grid) ** 2
    slope = 2.0 * grid + 3.0 * np.sin(2.0 * grid)
    beta = 8.0
    mu = float(np.min((slope**2 / 2.0)[wave > 1e-9] / wave[wave > 1e-9]))
    assert 0.0 < mu < 2.0 - 6.0 + beta, "and the curvature 2 + 6 cos 2x is negative somewhere"
    for _ in range(2000):
        x, error, eta = rng.uniform(-4.0, 4.0), rng.normal() * rng.exponential(3.0), rng.uniform(0.05, 1.0) / beta
        gap = x**2 + 3.0 * math.sin(x) ** 2
        after = x - eta * (2.0 * x + 3.0 * math.sin(2.0 * x) + error)
        assert after**2 + 3.0 * math.sin(after) ** 2 <= (1.0 - mu * eta) * gap + 0.5 * eta * error**2 + 1e-9
    for _ in range(2000):
        curvature, centre, strength = rng.uniform(0.3, 2.0), rng.normal() * 2.0, rng.exponential(0.5)

        def risk(w, curvature=curvature, centre=centre, strength=strength):
            return 0.5 * curvature * (w - centre) ** 2 + strength * abs(w)

        best = min(max(threshold(centre, strength / curvature), -1.0), 1.0)
        w, error, eta = rng.uniform(-1.0, 1.0), rng.normal(), rng.uniform(0.05, 1.0) / curvature
        moved = threshold(w - eta * (curvature * (w - centre) + error), eta * strength)
        after = min(max(moved, -1.0), 1.0)
        gap = risk(w) - risk(best)
        assert risk(after) - risk(best) <= (1.0 - curvature * eta) * gap + 0.5 * eta * error**2 + 1e-9


def threshold(v, width):
    return math.copysign(max(abs(v) - width, 0.0), v)


def test_batches_that_are_drawn_have_a_bound_of_their_own_and_no_closed_form():
    found = solved(neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE)
    drawn = numbers(found)
    cut = numbers(solved(neighboring_relation=NeighboringRelation.REPLACE_SPECIAL))
    assert found.plan.events[0].sampling == DisjointBatches("independent")
    assert cut["excess_risk_bound"] < drawn["excess_risk_bound"]
    assert found.value == pytest.approx(0.5 * solved().value, rel=1e-8)
    for name in ("excess_risk_bound_closed_form", "excess_risk_bound_printed", "excess_risk_rate"):
        [item] = [item for item in found.utility if item.name == name]
        assert item.value is None
        assert any("add_or_remove_one" in words for words in item.assumptions)
    phase = found.plan.phases[0]
    oracle = MeanOracle(phase.gradient_bound.max_grad_norm, phase.divisor, found.value, 10, PROBLEM.moments)
    errors = errors_of_drawn_batches(oracle, phase.steps, 50_000)
    assert drawn["excess_risk_bound"] == PROBLEM.evaluated_bound(0.125, *errors)


def test_without_assumptions_the_noise_is_solved_and_what_is_missing_is_named():
    found = solved(assumptions={}, dimension=None, iterations=10, gradient_bound=Clip(1.0))
    assert found.value == solved().value
    assert found.missing_assumptions == (*ASSUMPTIONS, "dimension")
    assert not found.plan.is_executable
    own = solved(assumptions={}, iterations=10, gradient_bound=Clip(1.0), step_size=0.1, penalty=L1Penalty(0.2))
    assert own.plan.is_executable
    assert own.plan.domain is None
    assert plan_from_canonical(own.plan.canonical(), own.plan.plan_hash) == own.plan
    for left_out in ("iterations", "gradient_bound"):
        with pytest.raises(InvalidValue) as refused:
            solved(assumptions={}, **({"iterations": 10, "gradient_bound": Clip(1.0)} | {left_out: None}))
        assert (refused.value.pointer, refused.value.code) == ((left_out,), "missing")


def test_every_penalty_and_domain_is_a_part_of_f1():
    for part in ({"penalty": L1Penalty(0.3)}, {"penalty": L2Penalty(0.3)}, {"domain": Box(-1.0, 2.0)}):
        found = solved(**part)
        assert numbers(found) == numbers(solved())
        assert (found.plan.penalty, found.plan.domain) == (part.get("penalty"), part.get("domain"))


def test_a_step_size_beyond_the_theorem_has_no_bound_and_a_warning():
    found = solved(step_size=0.26)
    assert numbers(found)["excess_risk_bound"] is numbers(found)["excess_risk_bound_closed_form"] is None
    assert any("1/beta = 0.25" in warning for warning in found.warnings)
    assert solved(step_size=0.25).warnings == ()


def test_a_bound_above_the_initial_gap_is_called_vacuous():
    hopeless = {item.name: item.vacuous for item in solved(target=ZcdpTarget(1e-7)).utility}
    assert hopeless["excess_risk_bound"] is hopeless["excess_risk_bound_closed_form"] is True
    assert {item.name: item.vacuous for item in solved().utility}["excess_risk_bound"] is False
    kinds = {item.name: item.kind for item in solved(dimension=50).utility}
    assert kinds["excess_risk_bound"] is ProvenanceKind.DERIVED
    assert kinds["excess_risk_bound_printed"] is ProvenanceKind.EXACT
    assert kinds["excess_risk_rate"] is kinds["lower_bound_rate"] is ProvenanceKind.ORDER


def test_the_rate_needs_a_good_condition_number_and_the_lower_bound_a_small_gap():
    found = solved(assumptions=ASSUMPTIONS | {"smoothness": 5000.0}, iterations=1000)
    [rate] = [item for item in found.utility if item.name == "excess_risk_rate"]
    assert rate.value is None
    assert any("n / ln n" in words for words in rate.assumptions)
    least = numbers(solved(assumptions=ASSUMPTIONS | {"initial_gap": 0.01}))["lower_bound"]
    assert least == pytest.approx(0.08 / 4.0 * numbers(solved())["lower_bound"]), "r^2 is 8 mu Delta, not r_k^2"


@pytest.mark.parametrize(
    ("changes", "error", "pointer", "words"),
    [
        ({"sampling": "full_batch"}, Unsupported, ("sampling",), "disjoint_batches"),
        (
            {"unknown": Unknown.ITERATIONS, "noise_multiplier": 2.0},
            Unsupported,
            ("solve_for",),
            "does not depend on it",
        ),
        ({"iterations": 50_001}, InvalidValue, ("iterations",), "at most 50000"),
        ({"iterations": 94, "batch_size": 530}, InvalidValue, ("batch_size",), "531"),
        ({"dataset_size": 20}, InvalidValue, ("iterations",), "preset"),
        ({"assumptions": ASSUMPTIONS | {"pl_constant": 5.0}}, InvalidValue, ("assumptions", "pl_constant"), "at most"),
    ],
)
def test_what_the_theorem_does_not_take_is_refused(changes, error, pointer, words):
    with pytest.raises(error) as refused:
        solved(**changes)
    assert refused.value.pointer == pointer
    assert words in refused.value.detail


def test_the_printed_noise_is_sound_where_the_batches_divide_the_records():
    even, uneven = solved(iterations=100).as_published, solved(iterations=94).as_published
    assert even.verdict is Verdict.SOUND
    assert "Algorithm 8" in even.source
    assert uneven.verdict is Verdict.UNSOUND
    assert uneven.noise_multiplier == pytest.approx(2.0 * 531 * 94 / 50_000)
    assert solved(target=ApproximateDpTarget(1.0, 1e-6)).as_published.verdict is Verdict.LOOSE
    assert solved(target=GaussianDpTarget(1.0)).as_published is None

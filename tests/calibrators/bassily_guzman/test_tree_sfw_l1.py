"""The calibrator of tree Frank-Wolfe: worked numbers, the bound's closed form, refusals, the paper's own noise."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from accounting.errors import AccountingError, InvalidValue, Unsupported
from accounting.events import FullBatch, PureDp, ZcDp
from accounting.events.regularity import kappa_pair
from accounting.filters import ApproximateDpFilter, GaussianDpFilter, PureDpFilter, RenyiFilter, ZcdpFilter
from accounting.relations import NeighboringRelation
from accounting.targets import (
    AdvantageTarget,
    ApproximateDpTarget,
    BudgetTarget,
    GaussianDpTarget,
    PureDpTarget,
    Target,
    ZcdpTarget,
)
from calibrators.as_published import Verdict
from calibrators.bassily_guzman import rates
from calibrators.bassily_guzman.shuffled_trees import attained_loss
from calibrators.bassily_guzman.tree import (
    Problem,
    Trees,
    excess_risk_bound,
    largest_records_per_tree,
    possible_trees,
)
from calibrators.geometry import Box, L1Ball, L2Penalty
from calibrators.phases.trees import movement
from calibrators.phases.vertex_trees import TreePhase
from calibrators.plan import Clip, plan_from_canonical
from calibrators.provenance import Provenance, ProvenanceKind
from calibrators.registry import calibrate
from calibrators.spec import Calibration, OpenDelta, OpenEpsilon, Spec, Unknown

RHO = 0.0243559703595
W8 = Problem(lipschitz=2.0, smoothness=1.0, diameter=2.0)
REPLACE = NeighboringRelation.REPLACE_ONE
SPECIAL = NeighboringRelation.REPLACE_SPECIAL


def spec(**changes: Any) -> Spec:
    given = Spec(
        dataset_size=50_000,
        target=ZcdpTarget(RHO),
        dimension=50,
        iterations=4,
        assumptions={"lipschitz": 2.0, "smoothness": 1.0, "radius": 1.0},
    )
    return replace(given, **changes)


def calibrated(**changes: Any) -> Calibration:
    return calibrate("tree_sfw_l1", spec(**changes))


def phase_of(found: Calibration) -> TreePhase:
    [phase] = found.plan.phases
    assert isinstance(phase, TreePhase)
    return phase


def named(items: tuple[Provenance, ...], name: str) -> Provenance:
    [item] = [item for item in items if item.name == name]
    return item


def number(items: tuple[Provenance, ...], name: str) -> float:
    value = named(items, name).value
    assert isinstance(value, float)
    return value


def recursion(problem: Problem, trees: Trees, scales: tuple[float, ...], num_vertices: int, kappa: float) -> float:
    """Gamma as the catalogue writes it, leaf by leaf."""
    gamma, k, b = problem.lipschitz * problem.diameter, 0, trees.records_per_tree
    for tau, scale in enumerate(scales, start=1):
        for leaf in range(2**tau):
            r = 4.0 * kappa * problem.lipschitz**2 / b
            for j in range(1, tau + 1):
                if leaf >> (tau - j) & 1:
                    change = problem.smoothness * problem.diameter * min(1.0, 2.0 ** (1 - j))
                    r += 4.0 * kappa * min(2.0 * problem.lipschitz, change) ** 2 * 2**j / b
            eta = 2.0 / (k + 2.0)
            regret = problem.diameter * math.sqrt(r) + scale * math.log(num_vertices)
            gamma = (1.0 - eta) * gamma + eta * regret + 0.5 * problem.smoothness * (problem.diameter * eta) ** 2
            k += 1
    assert k == trees.steps
    return gamma


def test_the_layout_noise_and_bound_are_the_catalogues() -> None:
    """W8, at rho of the (1, 1e-6) conversion; a zcdp target is solved in whole nano-units of rho."""
    found = calibrated()
    phase = phase_of(found)
    assert (phase.num_trees, phase.records_per_tree, phase.steps) == (4, 4096, 30)
    scales = (0.00884936936921, 0.0125148981804, 0.0176987387384, 0.0250297963608)
    assert phase.noise_scales == pytest.approx(scales, rel=1e-7)
    assert found.value == phase.noise_scales
    assert number(found.utility, "excess_risk_bound") == pytest.approx(1.25817903249, rel=1e-8)
    assert number(found.utility, "gradient_evaluations") == 57344.0
    assert Trees(4, 4096).records == 36864
    assert found.plan.domain == L1Ball(1.0)
    assert found.plan.release.kind == "last"


def test_the_formulas_are_the_catalogues_to_the_last_printed_digit() -> None:
    trees = Trees(4, 4096)
    scales = tuple(2.0 * trees.zcdp_width(W8, tree) / math.sqrt(8.0 * RHO) for tree in range(1, 5))
    expected = (0.00884936936921, 0.0125148981804, 0.0176987387384, 0.0250297963608)
    assert scales == pytest.approx(expected, rel=1e-11)
    kappa = kappa_pair(1.0, 50).kappa
    assert kappa == pytest.approx(18.3238541446, rel=1e-11)
    assert excess_risk_bound(W8, trees, scales, num_vertices=100, kappa=kappa) == pytest.approx(
        1.25817903249, rel=1e-11
    )


def test_pure_noise_and_its_bound_are_the_catalogues() -> None:
    found = calibrated(target=PureDpTarget(1.0))
    assert found.value == pytest.approx((1 / 256, 1 / 128, 1 / 64, 1 / 32), rel=1e-10)
    assert number(found.utility, "excess_risk_bound") == pytest.approx(1.27764559919, rel=1e-10)
    assert found.plan.events[0].mechanism == PureDp(1.0)
    assert calibrated(target=ApproximateDpTarget(1.0, 0.0)).value == pytest.approx(found.value, rel=1e-5)


def test_order_rates_are_the_catalogues() -> None:
    """W13: c = L_0 = L_1 = 1; the prefactor 2 of R1a is M = 1."""
    unit = Problem(1.0, 1.0, 1.0)
    assert rates.poly_sfw_rate(unit, 100, 10_000, 1.0, 1e-6) == pytest.approx(2.63026235404, rel=1e-11)
    ball = Problem(1.0, 1.0, 2.0)
    assert rates.tree_rate_as_printed(ball, 100, 10_000, 1.0, 1e-6) == pytest.approx(1.0581933641, rel=1e-10)
    assert rates.lower_bound_rate(ball, 100, 10_000, 1.0) == pytest.approx(0.0224596602629, rel=1e-11)
    found = calibrated(target=ApproximateDpTarget(1.0, 1e-6))
    orders = {item.name for item in found.utility if item.kind is ProvenanceKind.ORDER}
    assert orders == {"excess_risk_rate", "excess_risk_rate_printed", "poly_sfw_rate", "lower_bound_rate"}
    thrice = calibrated(
        target=ApproximateDpTarget(1.0, 1e-6), assumptions=dict(spec().assumptions) | {"order_constant": 3.0}
    )
    for name in orders:
        assert number(thrice.utility, name) == pytest.approx(3.0 * number(found.utility, name), rel=1e-14)


def test_the_rate_has_the_slopes_of_the_best_bound_in_records_and_budget() -> None:
    """The explicit bound at its best T falls as the rate does: n^(-2/3) where the noise rules."""
    problem = Problem(1.0, 1.0, 1.0)

    def best(n: int, rho: float) -> float:
        return min(
            excess_risk_bound(
                problem,
                trees,
                tuple(2.0 * trees.zcdp_width(problem, t) / math.sqrt(8.0 * rho) for t in range(1, trees.num_trees + 1)),
                num_vertices=2,
                kappa=1.0,
            )
            for trees in possible_trees(n)
        )

    sizes = [4**k * 10**4 for k in range(8)]
    for rho in (1e-9, 1e-10):
        bounds = [best(n, rho) for n in sizes]
        orders = [rates.tree_rate(problem, 2, n, rho) for n in sizes]
        ratios = [bound / order for bound, order in zip(bounds, orders, strict=True) if order < 0.2]
        assert len(ratios) >= 3
        assert max(ratios) < 40.0 * min(ratios)


@pytest.mark.parametrize("layout", [Trees(1, 2), Trees(1, 64), Trees(3, 8), Trees(4, 4096), Trees(7, 256)])
@pytest.mark.parametrize("smoothness", [0.0, 0.3, 7.0])
def test_the_closed_form_of_the_bound_is_its_recursion(layout: Trees, smoothness: float) -> None:
    problem = Problem(1.5, smoothness, 0.8)
    scales = tuple(0.01 * 1.5**tree for tree in range(layout.num_trees))
    closed = excess_risk_bound(problem, layout, scales, num_vertices=10, kappa=5.0)
    assert closed == pytest.approx(recursion(problem, layout, scales, 10, 5.0), rel=1e-12)


@pytest.mark.parametrize("target", [ZcdpTarget(RHO), PureDpTarget(0.1), ApproximateDpTarget(8.0, 1e-5)])
@pytest.mark.parametrize("size", [3, 20, 1000, 10**6])
def test_left_to_itself_the_number_of_trees_has_the_least_bound(target: Target, size: int) -> None:
    chosen = calibrated(target=target, dataset_size=size, iterations=None)
    bounds = {
        trees.num_trees: number(
            calibrated(target=target, dataset_size=size, iterations=trees.num_trees).utility, "excess_risk_bound"
        )
        for trees in possible_trees(size)
    }
    assert phase_of(chosen).num_trees == min(bounds, key=lambda t: bounds[t])
    assert number(chosen.utility, "excess_risk_bound") == min(bounds.values())


def test_layouts_read_no_record_twice_and_leave_less_than_half() -> None:
    for size in (*range(3, 300), 10**6, 10**9 + 7):
        for trees in possible_trees(size):
            assert trees.records <= size < 2 * trees.records
            assert trees.records_per_tree >= 2**trees.num_trees
            assert trees.records == sum(
                trees.records_per_tree + tau * trees.records_per_tree // 2 for tau in range(1, trees.num_trees + 1)
            )
    assert largest_records_per_tree(50_000, 4) == 4096


def test_the_iterate_never_moves_further_than_the_layout_says() -> None:
    """Between a node and its right child every step may jump across the whole diameter."""
    for tree in range(1, 9):
        first = 2**tree - 2
        for depth in range(1, tree + 1):
            width = 2 ** (tree - depth)
            for start in range(0, 2**tree, 2 * width):
                steps = range(first + start, first + start + width)
                moved = 1.0 - math.prod(1.0 - 2.0 / (k + 2.0) for k in steps)
                assert moved <= movement(1.0, depth) + 1e-12


def test_noise_costs_what_the_engine_certifies_under_both_relations() -> None:
    one, special = calibrated(), calibrated(neighboring_relation=SPECIAL)
    assert one.plan.neighboring_relation is REPLACE, "the default"
    assert isinstance(one.value, tuple)
    assert special.value == pytest.approx(tuple(scale / 2.0 for scale in one.value), rel=1e-7)
    for found in (one, special):
        [event] = found.plan.events
        assert isinstance(event.mechanism, ZcDp)
        assert event.sampling == FullBatch()
        assert event.count == 1
        assert event.mechanism.rho == pytest.approx(RHO, rel=1e-6)
        assert event.mechanism.rho <= RHO
        distance = found.plan.neighboring_relation.sensitivity
        for tree, scale in enumerate(phase_of(found).noise_scales, start=1):
            selections = (distance * Trees(4, 4096).zcdp_width(W8, tree) / scale) ** 2 / 8.0
            assert selections <= event.mechanism.rho * (1.0 + 1e-12)


@pytest.mark.parametrize(
    ("target", "pure"),
    [
        (ZcdpTarget(0.5), False),
        (ApproximateDpTarget(2.0, 1e-5), False),
        (ApproximateDpTarget(2.0, 0.0), True),
        (PureDpTarget(2.0), True),
        (GaussianDpTarget(1.0), True),
        (AdvantageTarget(0.2), False),
        (BudgetTarget(ZcdpFilter(0.5), (10**8,)), False),
        (BudgetTarget(PureDpFilter(2.0), (10**8,)), True),
        (BudgetTarget(GaussianDpFilter(1.0), (10**8,)), True),
        (BudgetTarget(RenyiFilter(1.6, 1e-5), RenyiFilter(1.6, 1e-5).zero), False),
        (BudgetTarget(ApproximateDpFilter(1.0, 1e-5), (0, 0), 1e-6), False),
        (BudgetTarget(ApproximateDpFilter(1.0, 1e-5), (0, 0), 0.0), True),
    ],
)
def test_every_target_is_met_by_the_kind_of_guarantee_that_implies_it(target: Target, pure: bool) -> None:
    found = calibrated(target=target)
    assert isinstance(found.plan.events[0].mechanism, PureDp) is pure
    achieved = target.assess(found.plan.events, REPLACE)
    assert achieved.value.upper <= target.limit
    assert achieved.value.upper >= target.limit * (1.0 - 2e-5)


def test_a_given_noise_multiplier_is_turned_into_epsilon_or_delta() -> None:
    solved = calibrated(target=ApproximateDpTarget(1.0, 1e-6))
    multiplier = number(solved.hyperparameters, "noise_multiplier")
    given = {"noise_multiplier": multiplier}
    epsilon = calibrated(target=OpenEpsilon(1e-6), unknown=Unknown.EPSILON, **given)
    assert epsilon.value == pytest.approx(1.0, rel=1e-5)
    assert phase_of(epsilon).noise_scales == solved.value
    delta = calibrated(target=OpenDelta(1.0), unknown=Unknown.DELTA, **given)
    assert delta.value == pytest.approx(1e-6, rel=1e-3)
    pure = calibrated(target=OpenEpsilon(0.0), unknown=Unknown.EPSILON, noise_multiplier=4.0)
    assert pure.value == pytest.approx(0.5)
    assert pure.plan.events[0].mechanism == PureDp(0.5)


def test_every_output_scales_with_its_units() -> None:
    """Losses in units of 1/a, parameters in units of 1/b."""
    target = ApproximateDpTarget(1.0, 1e-6)
    gap = {"initial_gap": 0.3}
    before = calibrated(target=target, iterations=None, assumptions=dict(spec().assumptions) | gap)
    for a, b in ((1e4, 1.0), (1.0, 1e-3), (1e-2, 1e5)):
        after = calibrated(
            target=target,
            iterations=None,
            assumptions={
                "lipschitz": 2.0 * a / b,
                "smoothness": 1.0 * a / b**2,
                "radius": b,
                "initial_gap": 0.3 * a,
            },
        )
        pairs = zip((*before.hyperparameters, *before.utility), (*after.hyperparameters, *after.utility), strict=True)
        for old, new in pairs:
            expected = np.asarray(old.value) * old.units.scale(a, b)
            np.testing.assert_allclose(np.asarray(new.value), expected, rtol=1e-9, err_msg=old.name)
            assert new.vacuous == old.vacuous
        assert phase_of(after).noise_scales == pytest.approx([a * s for s in phase_of(before).noise_scales], rel=1e-9)


def test_more_records_more_budget_and_gentler_losses_never_raise_the_best_bound() -> None:
    def best(**changes: Any) -> float:
        return number(calibrated(iterations=None, **changes).utility, "excess_risk_bound")

    assert best(dataset_size=200_000) < best() < best(dataset_size=5_000)
    assert best(target=ZcdpTarget(1.0)) < best() < best(target=ZcdpTarget(1e-4))
    assert best(dimension=5) < best() < best(dimension=5000)
    for name in ("lipschitz", "smoothness", "radius"):
        assumptions = dict(spec().assumptions)
        assumptions[name] *= 1.5
        assert best(assumptions=assumptions) > best()


def test_a_bound_is_vacuous_where_the_start_is_as_good() -> None:
    bound = number(calibrated().utility, "excess_risk_bound")
    for gap, vacuous in ((0.99 * bound, True), (1.01 * bound, False)):
        found = calibrated(assumptions=dict(spec().assumptions) | {"initial_gap": gap})
        assert named(found.utility, "excess_risk_bound").vacuous is vacuous
        assert number(found.utility, "excess_risk_bound") == bound, "the first step forgets the start"
    assert named(calibrated(dataset_size=40, iterations=2).utility, "excess_risk_bound").vacuous


def test_without_the_dimension_the_noise_is_solved_and_the_bound_asked_for() -> None:
    found = calibrated(dimension=None)
    assert found.missing_assumptions == ("dimension",)
    assert [item.name for item in found.utility] == ["gradient_evaluations"]
    assert found.value == calibrated().value


def test_a_polytope_of_other_vertices_is_bounded_with_them() -> None:
    found = calibrated(assumptions=dict(spec().assumptions) | {"num_vertices": 30.0})
    scales = phase_of(found).noise_scales
    expected = excess_risk_bound(W8, Trees(4, 4096), scales, num_vertices=30, kappa=kappa_pair(1.0, 30).kappa)
    assert number(found.utility, "excess_risk_bound") == expected
    assert any("num_vertices 30" in warning for warning in found.warnings)
    same = calibrated(assumptions=dict(spec().assumptions) | {"num_vertices": 100.0})
    assert number(same.utility, "excess_risk_bound") == number(calibrated().utility, "excess_risk_bound")


def test_the_size_of_the_ball_may_be_given_in_three_ways_that_agree() -> None:
    plain = {"lipschitz": 2.0, "smoothness": 1.0}
    hashes = {
        calibrated(assumptions=plain | {"radius": 1.0}).plan.plan_hash,
        calibrated(assumptions=plain | {"diameter": 2.0}).plan.plan_hash,
        calibrated(assumptions=plain, domain=L1Ball(1.0)).plan.plan_hash,
        calibrated(assumptions=plain | {"diameter": 2.0, "radius": 1.0}, domain=L1Ball(1.0)).plan.plan_hash,
    }
    assert len(hashes) == 1


def test_the_plan_travels_as_bytes() -> None:
    plan = calibrated(target=PureDpTarget(0.7)).plan
    assert plan_from_canonical(plan.canonical(), plan.plan_hash) == plan
    assert plan.cost_of_prefix(0) == ()
    assert plan.cost_of_prefix(1) == plan.events, "the first selection costs the whole"


LENGTHS = {"lipschitz": 2.0, "smoothness": 1.0, "radius": 1.0}


@pytest.mark.parametrize(
    ("changes", "kind", "code", "pointer"),
    [
        ({"assumptions": {"smoothness": 1.0, "radius": 1.0}}, InvalidValue, "missing", ("assumptions", "lipschitz")),
        ({"assumptions": {"lipschitz": 1.0, "radius": 1.0}}, InvalidValue, "missing", ("assumptions", "smoothness")),
        ({"assumptions": {"lipschitz": 1.0, "smoothness": 1.0}}, InvalidValue, "missing", ("assumptions", "diameter")),
        (
            {"assumptions": LENGTHS | {"lipschitz": 0.0}},
            InvalidValue,
            "invalid_value",
            ("assumptions", "lipschitz"),
        ),
        (
            {"assumptions": LENGTHS | {"smoothness": -1.0}},
            InvalidValue,
            "invalid_value",
            ("assumptions", "smoothness"),
        ),
        ({"assumptions": LENGTHS | {"radius": math.nan}}, InvalidValue, "invalid_value", ("assumptions", "radius")),
        (
            {"assumptions": LENGTHS | {"diameter": 1.0}},
            InvalidValue,
            "contradiction",
            ("assumptions", "radius"),
        ),
        ({"domain": L1Ball(2.0)}, InvalidValue, "contradiction", ("domain", "radius")),
        ({"domain": Box(-1.0, 1.0)}, InvalidValue, "unsupported_domain", ("domain", "kind")),
        (
            {"assumptions": LENGTHS | {"num_vertices": 1.0}},
            InvalidValue,
            "invalid_value",
            ("assumptions", "num_vertices"),
        ),
        (
            {"assumptions": LENGTHS | {"num_vertices": 2.5}},
            InvalidValue,
            "invalid_value",
            ("assumptions", "num_vertices"),
        ),
        ({"assumptions": LENGTHS | {"kappa": 1.0}}, InvalidValue, "unknown_assumption", ("assumptions", "kappa")),
        (
            {"assumptions": LENGTHS | {"lipschitz": 1e30, "radius": 1e9}},
            InvalidValue,
            "invalid_value",
            ("assumptions", "lipschitz"),
        ),
        ({"iterations": 11}, InvalidValue, "invalid_value", ("iterations",)),
        ({"iterations": None, "dimension": None}, InvalidValue, "missing", ("iterations",)),
        ({"dataset_size": 2}, InvalidValue, "invalid_value", ("dataset_size",)),
        ({"batch_size": 100}, InvalidValue, "invalid_value", ("batch_size",)),
        ({"batch_size": 32768, "iterations": None}, None, "", ()),
        ({"batch_size": 1, "iterations": None}, InvalidValue, "invalid_value", ("batch_size",)),
        ({"penalty": L2Penalty(1.0)}, Unsupported, "unsupported", ("penalty",)),
        ({"step_size": 0.1}, Unsupported, "unsupported", ("step_size",)),
        ({"gradient_bound": Clip(1.0)}, InvalidValue, "unsupported_gradient_bound", ("gradient_bound",)),
        ({"sampling": "poisson"}, Unsupported, "unsupported_sampling", ("sampling",)),
        (
            {"neighboring_relation": NeighboringRelation.ADD_OR_REMOVE_ONE},
            Unsupported,
            "unsupported_relation",
            ("neighboring_relation",),
        ),
        (
            {"unknown": Unknown.ITERATIONS, "iterations": None, "noise_multiplier": 2.0},
            Unsupported,
            "unsupported",
            ("solve_for",),
        ),
        (
            {"unknown": Unknown.BATCH_SIZE, "noise_multiplier": 2.0},
            Unsupported,
            "unsupported",
            ("solve_for",),
        ),
        (
            {"target": OpenEpsilon(1e-6), "unknown": Unknown.EPSILON, "noise_multiplier": 1e-3},
            InvalidValue,
            "invalid_value",
            ("noise_multiplier",),
        ),
    ],
)
def test_what_has_no_sound_answer_is_refused_where_it_stands(
    changes: dict[str, Any], kind: type[AccountingError] | None, code: str, pointer: tuple[str, ...]
) -> None:
    if kind is None:
        assert phase_of(calibrated(**changes)).records_per_tree == 32768
        return
    with pytest.raises(kind) as refused:
        calibrated(**changes)
    assert (refused.value.code, refused.value.pointer) == (code, pointer)


def test_the_printed_noise_is_unsound_and_the_reason_is_computed() -> None:
    pure = calibrated(target=PureDpTarget(1.0)).as_published
    assert pure is not None
    assert pure.verdict is Verdict.UNSOUND
    assert "1.9907. This is above the target of 1" in pure.why
    for size in (3, 40, 10**7):
        few = calibrated(target=PureDpTarget(0.01), dataset_size=size, iterations=1).as_published
        assert few is not None
        assert few.verdict is Verdict.UNSOUND
    for epsilon in (1e-3, 0.1, 5.0):
        assert all(epsilon < attained_loss(epsilon, records) < 2.0 * epsilon for records in (2, 3, 10**5))
    unspecified = calibrated(target=ApproximateDpTarget(1.0, 1e-6)).as_published
    assert unspecified is not None
    assert (unspecified.verdict, unspecified.noise_multiplier) == (Verdict.UNSOUND, None)
    assert "known only up to a constant" in unspecified.why
    assert calibrated().as_published is None


def test_the_loss_of_the_printed_noise_is_that_of_the_selections_themselves() -> None:
    """Both leaves of the first tree by quadrature of Laplace noise, at the noise scale and the gap of the instance."""
    records, epsilon, lipschitz, radius = 12, 1.5, 0.7, 2.0
    scale = 2.0 * lipschitz * radius * 2.0 / (records * epsilon)

    def unlikely(gap: float) -> float:
        x = np.linspace(-60.0, 60.0, 2_400_001) * scale
        density = np.exp(-np.abs(x) / scale) / (2.0 * scale)
        other = x - gap
        below = np.where(other < 0.0, 0.5 * np.exp(other / scale), 1.0 - 0.5 * np.exp(-np.abs(other) / scale))
        return float(np.trapezoid(density * below, x))

    gaps = [2.0 * radius * lipschitz * mean for mean in (1.0, 1.0 - 2.0 / records)]
    ratio = 2.0 * math.log(unlikely(gaps[1]) / unlikely(gaps[0]))
    assert attained_loss(epsilon, records) == pytest.approx(ratio, rel=1e-6)
    assert unlikely(5.0 * scale) == pytest.approx(0.0117914072484, rel=1e-6), "W2"

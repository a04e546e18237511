"""Advice says what calibrations say, in an order that never puts a rate above a bound."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from accounting.errors import InvalidValue
from accounting.targets import ApproximateDpTarget
from calibrators.advice import Advice, Facts, advise, longest_in_l2, risk_before_training
from calibrators.plan import Clip, Normalize
from calibrators.provenance import Provenance, ProvenanceKind
from calibrators.registry import ALGORITHMS, calibrate
from calibrators.scopes import Measure, Problem, Shape

CONSTANTS = {
    "lipschitz": 1.0,
    "smoothness": 0.5,
    "radius": 1.0,
    "diameter": 2.0,
    "initial_gap": 1.0,
    "strong_convexity": 0.1,
    "pl_constant": 0.1,
    "moment_order": 4.0,
    "moment_bound": 1.0,
    "holder_exponent": 1.0,
    "holder_constant": 0.5,
    "gradient_at_zero": 1.0,
    "loss_at_zero": 1.0,
    "failure_probability": 0.05,
}
FACTS = Facts(50_000, 20, ApproximateDpTarget(2.0, 1e-6), batch_size=500, iterations=20, assumptions=CONSTANTS)
PROBLEMS = {
    "convex": Problem(Shape.CONVEX),
    "strongly convex": Problem(Shape.STRONGLY_CONVEX),
    "heavy tails": Problem(Shape.CONVEX, is_heavy_tailed=True),
    "not smooth": Problem(Shape.CONVEX, is_smooth=False),
    "sparse": Problem(Shape.CONVEX, 1.0),
    "between": Problem(Shape.CONVEX, 1.5),
    "a network": Problem(Shape.NONCONVEX),
}
every_problem = pytest.mark.parametrize("word", PROBLEMS)


@lru_cache(maxsize=16)
def advice(word: str) -> tuple[Advice, ...]:
    return advise(PROBLEMS[word], FACTS)


def applying(word: str) -> list[str]:
    return [item.algorithm for item in advice(word) if item.calibration is not None]


@every_problem
@pytest.mark.one_in(3)
def test_nothing_is_left_out_and_what_does_not_apply_says_why(word: str) -> None:
    found = advice(word)
    assert sorted(item.algorithm for item in found) == sorted(ALGORITHMS)
    for item in found:
        assert item.bound is not None or item.reasons
        if item.calibration is None:
            assert (item.spec, item.bound, item.rate) == (None, None, None)


@every_problem
def test_no_rate_is_above_a_bound_and_no_vacuous_bound_above_another(word: str) -> None:
    answered = [item for item in advice(word) if item.calibration is not None]
    for _, group in itertools.groupby(answered, key=lambda item: item.measure):
        ranks = [item.rank for item in group]
        assert ranks == sorted(ranks)
    assert len(list(itertools.groupby(item.measure for item in answered))) == len({item.measure for item in answered})


def test_ranks() -> None:
    def number(value: float, kind: ProvenanceKind, *, vacuous: bool = False) -> Provenance:
        return Provenance("excess_risk_bound", value, "x", "y", kind, vacuous=vacuous)

    derived, order = ProvenanceKind.DERIVED, ProvenanceKind.ORDER
    best_first = [
        Advice("a", None, bound=number(0.5, derived), rate=number(9.0, order)),
        Advice("b", None, bound=number(0.9, derived)),
        Advice("c", None, bound=number(0.1, derived, vacuous=True)),
        Advice("d", None, rate=number(1e-9, order)),
        Advice("e", None, rate=number(1e-3, order)),
        Advice("f", None),
    ]
    shuffled = [best_first[place] for place in (3, 0, 5, 2, 4, 1)]
    assert sorted(shuffled, key=lambda item: item.rank) == best_first


@every_problem
def test_what_is_said_is_what_a_calibration_says(word: str) -> None:
    for item in advice(word):
        if item.spec is not None and item.calibration is not None:
            again = calibrate(item.algorithm, item.spec)
            assert again.plan.plan_hash == item.calibration.plan.plan_hash
            found = {each.name: each.value for each in again.utility}
            assert item.bound is None or found[item.bound.name] == item.bound.value
            assert item.rate is None or item.rate in again.utility


def test_the_shape_of_the_objective_decides() -> None:
    assert {"clipped_acsa", "dp_accmd", "dp_gd"} <= set(applying("convex"))
    assert "clipped_sgd_strongly_convex" not in applying("convex")
    assert set(applying("convex")) - {"clipped_prox_sgd"} < set(applying("strongly convex"))
    assert "clipped_acsa" not in applying("a network")
    assert "dp_adam" in applying("a network")


def test_heavy_tails_norms_and_kinks_decide() -> None:
    with_theorem = {name for name in applying("heavy tails") if ALGORITHMS[name].scope.shape is not None}
    assert with_theorem
    assert all(ALGORITHMS[name].scope.allows_heavy_tails for name in with_theorem)
    assert "tree_sfw_l1" in applying("sparse")
    assert "dp_gd" not in applying("sparse")
    assert {"noisy_mirror_descent"} <= set(applying("between"))
    assert "dp_sgd_gradient" in applying("not smooth")
    assert "clipped_acsa" not in applying("not smooth")


def test_a_gradient_norm_is_not_ranked_among_risks() -> None:
    for item in advice("convex"):
        if item.bound is not None:
            about_gradients = item.bound.name.startswith("gradient_norm")
            assert (item.measure is Measure.STATIONARITY) == about_gradients
    assert next(item for item in advice("convex") if item.algorithm == "dp_gd").measure is not Measure.POPULATION_RISK


def test_constants_of_another_shape_bring_out_no_theorem() -> None:
    convex = next(item for item in advice("convex") if item.algorithm == "dp_gd")
    strongly = next(item for item in advice("strongly convex") if item.algorithm == "dp_gd")
    assert convex.bound is not None
    assert strongly.bound is not None
    assert (convex.bound.name, strongly.bound.name) == ("gradient_norm_bound", "excess_risk_bound")
    assert strongly.measure is Measure.EMPIRICAL_RISK


def test_what_is_missing_is_named_with_its_place() -> None:
    bare = {item.algorithm: item for item in advise(PROBLEMS["convex"], replace(FACTS, assumptions={}))}
    pointers = {reason.pointer for item in bare.values() for reason in item.reasons}
    assert ("gradient_bound",) in pointers
    assert any(pointer[:1] == ("assumptions",) for pointer in pointers)


def test_given_sizes_are_for_those_that_cannot_choose() -> None:
    facts = replace(FACTS, batch_size=500, iterations=40, gradient_bound=Normalize(0.5))
    found = {item.algorithm: item for item in advise(PROBLEMS["a network"], facts)}
    spec = found["dp_nsgd"].spec
    assert spec is not None
    assert (spec.batch_size, spec.iterations, spec.gradient_bound) == (500, 40, Normalize(0.5))
    convex = {item.algorithm: item for item in advise(PROBLEMS["convex"], facts)}["clipped_acsa"]
    assert convex.spec is not None
    assert convex.spec.iterations is None


def by_name(problem: Problem, facts: Facts) -> dict[str, Advice]:
    return {item.algorithm: item for item in advise(problem, facts)}


def test_a_bound_of_the_largest_entry_becomes_one_of_the_length() -> None:
    constants = {"lipschitz": 1.0, "smoothness": 0.5, "radius": 1.0}
    facts = replace(FACTS, dimension=1000, assumptions=constants)
    sparse = advise(PROBLEMS["sparse"], facts)
    found = {item.algorithm: item for item in sparse}
    spec = found["dp_accmd"].spec
    assert spec is not None
    assert isinstance(spec.gradient_bound, Clip)
    assert spec.gradient_bound.max_grad_norm == pytest.approx(math.sqrt(1000.0))
    empirical = [item.algorithm for item in sparse if item.measure is Measure.EMPIRICAL_RISK]
    assert empirical.index("dp_fw") < empirical.index("dp_accmd")
    euclidean = by_name(PROBLEMS["convex"], facts)["dp_accmd"].spec
    assert euclidean is not None
    assert euclidean.gradient_bound == Clip(1.0)


@pytest.mark.parametrize("norm_order", [1.0, 1.25, 1.5, 2.0])
def test_no_gradient_is_longer_than_its_bound_in_the_dual_norm_says(norm_order: float) -> None:
    draws = np.random.default_rng(0).standard_cauchy((500, 30))
    draws[0] = 1.0
    dual = math.inf if norm_order == 1.0 else norm_order / (norm_order - 1.0)
    bounds = np.array([longest_in_l2(norm, norm_order, 30) for norm in np.linalg.norm(draws, dual, axis=1)])
    lengths = np.linalg.norm(draws, axis=1)
    assert (lengths <= bounds * (1.0 + 1e-12)).all()
    assert bounds[0] == pytest.approx(lengths[0]), "equal entries attain it"


def test_a_bound_of_gradients_is_one_of_their_moments() -> None:
    constants = {"lipschitz": 2.0, "smoothness": 0.5, "diameter": 2.0}
    every = by_name(PROBLEMS["convex"], replace(FACTS, assumptions=constants))
    assert every["localized_clipped_subgradient"].bound is not None
    found = every["clipped_acsa"]
    assert found.spec is not None
    assert found.spec.assumptions["moment_bound"] == 2.0
    assert found.bound is not None
    own = replace(FACTS, assumptions={**constants, "moment_order": 3.0, "moment_bound": 1.5})
    spec = by_name(PROBLEMS["convex"], own)["clipped_acsa"].spec
    assert spec is not None
    assert (spec.assumptions["moment_order"], spec.assumptions["moment_bound"]) == (3.0, 1.5)
    tails = by_name(PROBLEMS["heavy tails"], replace(FACTS, assumptions=constants))["clipped_acsa"]
    assert tails.spec is None, "the gradient has no bound there"


def test_a_bound_is_vacuous_where_as_much_is_known_before_training() -> None:
    found = [item for item in advice("convex") if item.known is not None and item.bound is not None]
    assert {item.known for item in found} == {1.0}
    for item in found:
        assert item.bound is not None
        assert isinstance(item.bound.value, float)
        assert item.bound.vacuous == (item.bound.value >= 1.0)
        assert ("This bound is vacuous" in item.why) == item.bound.vacuous
    close = by_name(PROBLEMS["convex"], replace(FACTS, assumptions={**CONSTANTS, "initial_gap": 1e-9}))
    bounds = [item.bound for item in close.values() if item.known is not None and item.bound is not None]
    assert bounds
    assert all(bound.vacuous for bound in bounds)
    assert risk_before_training({"smoothness": 1.0, "lipschitz": 1.0}) is None


def test_sizes_that_nobody_gives_are_the_usual_ones() -> None:
    found = by_name(PROBLEMS["a network"], replace(FACTS, batch_size=None, iterations=None))
    for name in ("dp_sgd", "dp_nsgd", "dp_adam"):
        spec = found[name].spec
        assert spec is not None, found[name].reasons
        assert spec.iterations is not None


def test_a_norm_out_of_range_is_refused() -> None:
    with pytest.raises(InvalidValue):
        Problem(Shape.CONVEX, 2.5)

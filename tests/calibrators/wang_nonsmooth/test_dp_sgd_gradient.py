"""The calibrator of dp_sgd_gradient: noise under the target, catalogued numbers, units, refusals and printed noise."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from accounting.accountant import epsilon_for_delta
from accounting.errors import AccountingError, InvalidValue, Unsupported
from accounting.events import Event, FullBatch, Gaussian, Poisson, WithoutReplacement
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, GaussianDpTarget
from calibrators.as_published import Verdict
from calibrators.geometry import L1Ball, L2Ball, L2Penalty
from calibrators.plan import Clip, Normalize, plan_from_canonical
from calibrators.provenance import GRADIENT, PURE, ProvenanceKind
from calibrators.registry import calibrate
from calibrators.release import AverageIterate
from calibrators.spec import Calibration, OpenDelta, OpenEpsilon, Spec, Unknown
from calibrators.wang_nonsmooth.dp_sgd_gradient import ALGORITHM
from calibrators.wang_nonsmooth.holder import ASSUMPTIONS
from calibrators.wang_nonsmooth.optimisation_error import OptimisationError

#: The hinge with q = 1.5 and |x| <= 1, in the unit ball: G = 3.
HINGE = {
    "holder_exponent": 0.5,
    "holder_constant": 1.5,
    "gradient_at_zero": 1.5,
    "loss_at_zero": 1.0,
    "radius": 1.0,
    "failure_probability": 0.05,
}


def spec(**changes: object) -> Spec:
    given = Spec(dataset_size=1000, target=ApproximateDpTarget(1.0, 1e-6), dimension=50, assumptions=HINGE)
    return replace(given, **changes)


def solved(**changes: object) -> Calibration:
    return calibrate("dp_sgd_gradient", spec(**changes))


def full(**changes: object) -> Calibration:
    """Full batches: solved in closed form."""
    return solved(sampling="full_batch", **changes)


def numbers(found: Calibration) -> dict[str, float | tuple[float, ...] | None]:
    return {item.name: item.value for item in (*found.hyperparameters, *found.utility)}


def without(*names: str) -> dict[str, float]:
    return {name: value for name, value in HINGE.items() if name not in names}


def test_what_is_left_out_is_the_papers_own_one_record_drawn_from_n_replaced_n_steps_averaged_in_the_ball():
    found = solved()
    [phase] = found.plan.phases
    assert phase.event.sampling == WithoutReplacement(1, 1000)
    assert phase.event.count == 1000
    assert phase.divisor == 1
    assert phase.gradient_bound == Clip(3.0)
    assert found.plan.neighboring_relation is NeighboringRelation.REPLACE_ONE
    assert found.plan.domain == L2Ball(1.0)
    assert found.plan.release == AverageIterate()
    assert found.plan.is_executable
    assert plan_from_canonical(found.plan.canonical(), found.plan.plan_hash) == found.plan
    assert numbers(found)["batch_size"] == 1.0
    assert numbers(found)["iterations"] == 1000.0
    assert found.missing_assumptions == ()


def test_the_plan_meets_the_target_and_a_little_less_noise_would_not():
    found = solved()
    relation = NeighboringRelation.REPLACE_ONE
    assert epsilon_for_delta(found.plan.events, relation, 1e-6).value.upper <= 1.0
    less = Event(Gaussian(found.value * 0.999), WithoutReplacement(1, 1000), 1000)
    assert epsilon_for_delta([less], relation, 1e-6).value.lower > 1.0
    assert found.plan.phases[0].noise_stddev_on_mean == found.value * 3.0


@pytest.mark.parametrize("relation", NeighboringRelation)
@pytest.mark.parametrize("sampling", ["poisson", "full_batch"])
def test_every_relation_and_sampling_is_accounted_as_asked(sampling, relation):
    found = solved(sampling=sampling, neighboring_relation=relation)
    [event] = found.plan.events
    assert event.sampling == (Poisson(0.001) if sampling == "poisson" else FullBatch())
    assert epsilon_for_delta([event], relation, 1e-6).value.upper <= 1.0
    assert found.plan.phases[0].divisor == (1 if sampling == "poisson" else 1000)


def test_worked_step_sizes_of_the_catalogue():
    for exponent, steps, step_size in [(0.25, 398108, 1.368742589e-05), (1.0, 10**4, 0.0005449073748)]:
        assumptions = HINGE | {"holder_exponent": exponent}
        found = full(dataset_size=10**4, target=ApproximateDpTarget(1.0, 1e-8), assumptions=assumptions)
        assert found.plan.iterations == steps
        assert numbers(found)["step_size"] == pytest.approx(step_size, rel=1e-9)
        assert found.plan.phases[0].step_size == numbers(found)["step_size"]
        [own] = [item for item in found.hyperparameters if item.name == "step_size"]
        assert own.kind is ProvenanceKind.ORDER
        assert "Theorem 12" in own.source


def test_the_bounds_are_of_the_noise_that_is_used():
    found = solved()
    [phase], values = found.plan.phases, numbers(found)
    error = OptimisationError(3.0, 1.0, 50, 1000, phase.noise_stddev_on_mean)
    assert values["expected_excess_risk_bound"] == error.expected(phase.step_size)
    bound = error.with_probability(
        phase.step_size, 0.05, radius=1.0, largest_loss=4.0, largest_loss_at_minimiser=4.0, sampled=True
    )
    assert values["excess_risk_bound"] == bound
    assert values["step_size_of_least_bound"] == error.balanced_step_size
    kinds = {item.name: item.kind for item in (*found.hyperparameters, *found.utility)}
    assert kinds["excess_risk_bound"] is ProvenanceKind.EXACT
    assert kinds["expected_excess_risk_bound"] is ProvenanceKind.DERIVED
    assert kinds["excess_risk_rate"] is ProvenanceKind.ORDER
    [bound] = [item for item in found.utility if item.name == "excess_risk_bound"]
    assert any("empirical optimisation error" in words and "gamma/3" in words for words in bound.assumptions)


def test_a_smaller_distance_and_a_smaller_lipschitz_constant_tighten_the_bounds():
    base = numbers(full())
    near = numbers(full(assumptions=HINGE | {"initial_distance": 0.5}))
    flat = solved(assumptions=HINGE | {"lipschitz": 2.0})
    for name in ("expected_excess_risk_bound", "excess_risk_bound", "excess_risk_rate"):
        assert near[name] < base[name]
    assert flat.plan.phases[0].gradient_bound == Clip(2.0)
    [phase] = flat.plan.phases
    error = OptimisationError(2.0, 1.0, 50, 1000, phase.noise_stddev_on_mean)
    assert numbers(flat)["excess_risk_bound"] == error.with_probability(
        phase.step_size, 0.05, radius=1.0, largest_loss=3.0, largest_loss_at_minimiser=3.0, sampled=True
    )


def test_a_poisson_batch_has_the_expected_bound_with_its_own_variance_and_no_other():
    found = solved(sampling="poisson")
    [phase] = found.plan.phases
    error = OptimisationError(3.0, 1.0, 50, 1000, phase.noise_stddev_on_mean, 0.999)
    assert numbers(found)["expected_excess_risk_bound"] == pytest.approx(error.expected(phase.step_size), rel=1e-12)
    assert numbers(found)["excess_risk_bound"] is None


@pytest.mark.parametrize("loss", [1e-3, 10.0])
@pytest.mark.parametrize("parameter", [1e-2, 10.0])
def test_a_change_of_units_moves_each_number_by_its_power(loss, parameter):
    """All constants at values other than 1, so that a forgotten one shows."""
    exponent = 0.25
    given = {
        "radius": 1.7,
        "holder_exponent": exponent,
        "holder_constant": 0.8,
        "gradient_at_zero": 1.3,
        "loss_at_zero": 0.9,
        "initial_distance": 1.1,
        "failure_probability": 0.05,
        "order_constant": 0.6,
    }
    units = {item.name: item.units for item in ASSUMPTIONS}
    scaled = {name: value * units[name].scale(loss, parameter, exponent) for name, value in given.items()}
    base, found = full(assumptions=given, iterations=10**5), full(assumptions=scaled, iterations=10**5)
    assert found.value == base.value
    gradient = GRADIENT.scale(loss, parameter)
    assert found.plan.phases[0].noise_stddev_on_mean == pytest.approx(
        gradient * base.plan.phases[0].noise_stddev_on_mean, rel=1e-12
    )
    assert found.as_published.verdict is base.as_published.verdict
    assert len(numbers(found)) == 6
    for before, after in zip(
        (*base.hyperparameters, *base.utility), (*found.hyperparameters, *found.utility), strict=True
    ):
        assert after.value == pytest.approx(before.value * before.units.scale(loss, parameter, exponent), rel=1e-9)
        assert (before.units == PURE) is (before.name == "gradient_evaluations")


def test_lipschitz_alone_is_read_as_exponent_0():
    found = full(assumptions={"lipschitz": 1.0, "radius": 2.0, "loss_at_zero": 1.0, "failure_probability": 0.1})
    assert found.missing_assumptions == ()
    assert found.plan.iterations == 1000**2
    assert found.plan.phases[0].gradient_bound == Clip(1.0)
    with pytest.raises(InvalidValue, match="5e-08"):
        full(assumptions={"lipschitz": 1e7, "radius": 2.0, "loss_at_zero": 1.0, "failure_probability": 0.1})


def test_on_all_of_space_a_lipschitz_loss_runs_and_its_bounds_miss_the_radius():
    """Remark 5: G = M + L."""
    for constants in ({"lipschitz": 3.0}, without("radius") | {"holder_exponent": 0.0}):
        found = full(assumptions={**constants, "failure_probability": 0.05, "loss_at_zero": 1.0})
        assert found.plan.domain is None
        assert found.plan.phases[0].gradient_bound == Clip(3.0)
        assert found.missing_assumptions == ("radius",)
        assert found.plan.is_executable
        assert "excess_risk_bound" not in numbers(found)


def test_with_a_gradient_bound_alone_the_noise_is_solved_and_what_is_missing_is_named():
    found = full(assumptions={}, gradient_bound=Clip(2.0), iterations=100, dimension=None, step_size=0.1)
    assert found.missing_assumptions == (
        "radius",
        "holder_exponent",
        "holder_constant",
        "gradient_at_zero",
        "loss_at_zero",
        "failure_probability",
        "dimension",
    )
    assert not found.plan.is_executable
    assert any("radius" in warning for warning in found.warnings)
    assert set(numbers(found)) == {"gradient_evaluations"}
    assert epsilon_for_delta(found.plan.events, NeighboringRelation.REPLACE_ONE, 1e-6).value.upper <= 1.0


def test_with_a_domain_and_a_step_size_of_the_callers_a_plan_runs_without_any_constants():
    found = full(assumptions={}, gradient_bound=Clip(2.0), iterations=100, step_size=0.1, domain=L2Ball(4.0))
    assert found.plan.is_executable
    assert found.plan.domain == L2Ball(4.0)
    assert "radius" not in found.missing_assumptions


def test_the_domains_radius_stands_for_the_assumption():
    assert full(assumptions=without("radius"), domain=L2Ball(1.0)).plan == full().plan


def test_a_gradient_bound_below_g_keeps_the_privacy_and_leaves_the_bounds_out_with_a_warning():
    found = full(gradient_bound=Clip(2.9))
    assert found.plan.phases[0].gradient_bound == Clip(2.9)
    assert set(numbers(found)) == {"iterations", "step_size", "gradient_evaluations"}
    assert any("below G = 3" in warning for warning in found.warnings)
    larger = full(gradient_bound=Clip(4.0))
    assert "excess_risk_bound" in numbers(larger)
    assert numbers(larger)["excess_risk_bound"] > numbers(full())["excess_risk_bound"], "its noise is larger"


def test_the_callers_step_size_goes_into_the_plan_and_the_bounds_are_of_it():
    best = numbers(full())["step_size_of_least_bound"]
    found = full(step_size=best)
    assert found.plan.phases[0].step_size == best
    assert numbers(found)["expected_excess_risk_bound"] < numbers(full())["expected_excess_risk_bound"]
    [rate] = [item for item in found.utility if item.name == "excess_risk_rate"]
    assert rate.value is None, "the theorem's rate is of the theorem's step size"


@pytest.mark.parametrize(
    ("changes", "pair"),
    [
        ({"target": OpenEpsilon(1e-6), "unknown": Unknown.EPSILON, "noise_multiplier": 3000.0}, "epsilon"),
        ({"target": OpenDelta(1.0), "unknown": Unknown.DELTA, "noise_multiplier": 200.0}, "delta"),
    ],
)
def test_the_step_size_uses_the_certified_half_of_the_target_that_was_open(changes, pair):
    """There are so many dimensions that the privacy term of A is the larger one."""
    found = full(**changes, dimension=10**7)
    target = ApproximateDpTarget(found.value, 1e-6) if pair == "epsilon" else ApproximateDpTarget(1.0, found.value)
    closed = full(target=target, dimension=10**7)
    assert numbers(found)["step_size"] == pytest.approx(numbers(closed)["step_size"], rel=1e-12)
    assert found.as_published is None


def test_steps_are_solved_for_and_the_bounds_are_of_the_steps_that_were_found():
    found = full(unknown=Unknown.ITERATIONS, noise_multiplier=3000.0)
    assert found.plan.iterations == found.value
    assert numbers(found)["gradient_evaluations"] == found.value * 1000
    assert found.next_achieved.value.upper > 1.0


def test_a_target_without_delta_has_the_step_size_of_least_bound_in_the_plan():
    found = full(target=GaussianDpTarget(0.5))
    values = numbers(found)
    [own] = [item for item in found.hyperparameters if item.name == "step_size"]
    assert own.kind is ProvenanceKind.DERIVED
    assert found.plan.phases[0].step_size == own.value
    assert "excess_risk_rate" not in values
    assert found.as_published is None


def test_the_rate_is_called_not_attained_where_its_noise_is_not_private_and_not_elsewhere():
    def rate(found: Calibration):
        return next(item for item in found.utility if item.name == "excess_risk_rate")

    small = solved()
    assert any("not attained" in words for words in rate(small).assumptions)
    assert any("not attained" in warning for warning in small.warnings)
    long = solved(iterations=10**6, target=ApproximateDpTarget(4.0, 1e-6))
    assert not any("not attained" in words for words in rate(long).assumptions)
    assert long.warnings == ()
    assert rate(long).value == pytest.approx(
        math.sqrt(50 * math.log(1e6) * math.log(20)) / 4000
        + math.sqrt(math.log(1000) * math.log(20000) * math.log(20) / 1000),
        rel=1e-12,
    )
    twice = solved(iterations=10**6, target=ApproximateDpTarget(4.0, 1e-6), assumptions=HINGE | {"order_constant": 2.0})
    assert rate(twice).value == pytest.approx(2.0 * rate(long).value, rel=1e-12)
    assert numbers(twice)["step_size"] == pytest.approx(numbers(long)["step_size"] / 2.0, rel=1e-12)


def test_a_bound_worse_than_staying_at_0_is_called_vacuous():
    def vacuous(found: Calibration):
        return next(item.vacuous for item in found.utility if item.name == "expected_excess_risk_bound")

    assert vacuous(full(target=ApproximateDpTarget(0.01, 1e-6))) is True
    assert vacuous(full(dataset_size=10**6)) is False
    near = full(assumptions=HINGE | {"initial_distance": 0.001})
    assert 0.0015 < numbers(near)["expected_excess_risk_bound"] < 1.0
    assert vacuous(near) is True, "w = 0 is within 1.5 * 0.001 of the minimum"


def test_the_published_noise_is_loose_where_a_beta_is_feasible():
    found = solved(iterations=10**6, target=ApproximateDpTarget(4.0, 1e-6)).as_published
    assert found.verdict is Verdict.LOOSE
    assert found.noise_stddev_on_mean == pytest.approx(3.0 * math.sqrt(55.35428695), rel=1e-9)
    assert "beta = 0.5" in found.why
    own = solved(target=ApproximateDpTarget(1.0, 1e-6))
    small = own.as_published
    assert small.verdict is Verdict.LOOSE
    assert small.noise_stddev_on_mean == pytest.approx(3.0 * math.sqrt(54.592751749762), rel=1e-9)
    assert f"with {math.sqrt(54.592751749762) / own.value:.4g} times the noise that is needed" in small.why


def test_the_published_verdict_is_of_the_papers_own_sampling_whatever_was_asked():
    own = solved(iterations=10**6, target=ApproximateDpTarget(4.0, 1e-6)).as_published
    asked = solved(
        iterations=10**6,
        target=ApproximateDpTarget(4.0, 1e-6),
        sampling="poisson",
        neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
    ).as_published
    assert asked == own


def test_the_published_calibration_is_unsound_and_has_no_noise_where_no_beta_is_feasible():
    found = solved(iterations=10**6).as_published
    assert found.verdict is Verdict.UNSOUND
    assert found.noise_stddev_on_mean is None
    assert "(32) and (33)" in found.why


@pytest.mark.parametrize(
    ("changes", "error", "code", "pointer", "words"),
    [
        ({"assumptions": {}}, InvalidValue, "missing", ("assumptions", "radius"), "gradient_bound"),
        ({"assumptions": without("radius")}, InvalidValue, "missing", ("assumptions", "radius"), "holder_exponent 0"),
        (
            {"assumptions": {"lipschitz": 1.0, "holder_exponent": 0.5}},
            InvalidValue,
            "missing",
            ("assumptions", "radius"),
            "on all of R",
        ),
        ({"assumptions": {"radius": 1.0}}, InvalidValue, "missing", ("gradient_bound",), "lipschitz"),
        ({"assumptions": without("holder_constant")}, InvalidValue, "missing", ("gradient_bound",), "holder_constant"),
        (
            {"assumptions": HINGE | {"gradient_at_zero": 0.0, "holder_constant": 0.0}},
            InvalidValue,
            "invalid_value",
            ("assumptions", "gradient_at_zero"),
            "cannot both be 0",
        ),
        (
            {"assumptions": HINGE | {"holder_exponent": 1.1}},
            InvalidValue,
            "invalid_value",
            ("assumptions", "holder_exponent"),
            "1",
        ),
        (
            {"assumptions": HINGE | {"initial_distance": 1.5}},
            InvalidValue,
            "invalid_value",
            ("assumptions", "initial_distance"),
            "the radius, 1",
        ),
        (
            {"assumptions": HINGE | {"failure_probability": 1.0}},
            InvalidValue,
            "invalid_value",
            ("assumptions", "failure_probability"),
            "failure_probability",
        ),
        (
            {"assumptions": HINGE | {"smoothness": 1.0}},
            InvalidValue,
            "unknown_assumption",
            ("assumptions", "smoothness"),
            "holder_constant",
        ),
        ({"domain": L2Ball(2.0)}, InvalidValue, "overdetermined", ("domain", "radius"), "give only one"),
        ({"domain": L1Ball(1.0)}, Unsupported, "unsupported_domain", ("domain", "kind"), "l2_ball"),
        ({"penalty": L2Penalty(0.1)}, Unsupported, "unsupported", ("penalty",), "part of the loss"),
        (
            {"gradient_bound": Normalize(0.1)},
            InvalidValue,
            "unsupported_gradient_bound",
            ("gradient_bound", "kind"),
            "clip",
        ),
        ({"sampling": "shuffled_epochs"}, Unsupported, "unsupported_sampling", ("sampling",), "without_replacement"),
        (
            {"assumptions": HINGE | {"holder_constant": 1e5}},
            InvalidValue,
            "step_size_too_large",
            ("iterations",),
            "raise iterations",
        ),
        (
            {"dataset_size": 20_000, "assumptions": HINGE | {"holder_exponent": 0.0}},
            InvalidValue,
            "invalid_value",
            ("iterations",),
            "iterations is needed",
        ),
        (
            {"assumptions": {"radius": 1.0}, "gradient_bound": Clip(1.0)},
            InvalidValue,
            "missing",
            ("iterations",),
            "iterations",
        ),
    ],
)
def test_what_the_theorem_does_not_cover_is_refused_with_a_pointer(changes, error, code, pointer, words):
    with pytest.raises(error, match=words) as caught:
        solved(**changes)
    assert isinstance(caught.value, AccountingError)
    assert caught.value.pointer == pointer
    assert caught.value.code == code


def test_a_step_size_of_the_callers_own_is_not_refused_for_the_theorems():
    found = full(assumptions=HINGE | {"holder_constant": 1e5, "lipschitz": 3.0}, step_size=1e-7)
    assert found.plan.phases[0].step_size == 1e-7
    assert numbers(found)["step_size"] == pytest.approx(1e-5, rel=1e-8), "the one of least bound, below 1/L"
    assert numbers(found)["step_size"] < 1e-5


def test_the_description_names_its_errata_and_its_verdict():
    assert "Theorem 11 is sound" in ALGORITHM.verdict
    assert any("1/(T A)" in words for words in ALGORITHM.errata)
    assert any("not private" in words for words in ALGORITHM.errata)

"""The calibrators of DP-SGD and DP-NSGD: noise under the target, provenance, refusals with pointers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from accounting.accountant import epsilon_for_delta
from accounting.errors import InvalidValue, Unsupported
from accounting.events import Event, FullBatch, Gaussian, Poisson, WithoutReplacement
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.geometry import L2Ball, L2Penalty
from calibrators.plan import Clip, Normalize
from calibrators.provenance import ProvenanceKind
from calibrators.registry import calibrate
from calibrators.spec import Spec

ASSUMPTIONS = {
    "initial_gap": 2.0,
    "generalized_smoothness_l0": 1.0,
    "generalized_smoothness_l1": 0.5,
    "deviation_tau0": 0.3,
    "deviation_tau1": 0.2,
}
BOUNDS = {"dp_sgd": Clip(1.5), "dp_nsgd": Normalize(0.01)}


def spec(name: str, **changes: Any) -> Spec:
    given = Spec(
        dataset_size=1000,
        batch_size=100,
        iterations=200,
        sampling="poisson",
        neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
        gradient_bound=BOUNDS[name],
        target=ApproximateDpTarget(2.0, 1e-5),
        dimension=100,
    )
    return replace(given, **changes)


def full(name: str, **changes: Any) -> Spec:
    """Full batches: solved in closed form, so in a millisecond."""
    return spec(name, sampling="full_batch", batch_size=1000, **changes)


names = pytest.mark.parametrize("name", BOUNDS)


@names
@pytest.mark.parametrize("relation", NeighboringRelation)
def test_the_plan_meets_the_target_under_its_own_relation(name, relation):
    found = calibrate(name, full(name, neighboring_relation=relation))
    assert found.plan.neighboring_relation is relation
    assert epsilon_for_delta(found.plan.events, relation, 1e-5).value.upper <= 2.0
    less = Event(Gaussian(found.plan.events[0].mechanism.noise_multiplier * 0.9999), FullBatch(), 200)
    assert epsilon_for_delta([less], relation, 1e-5).value.lower > 2.0, "the target is used up"


@names
def test_replace_one_takes_twice_the_noise_of_add_or_remove(name):
    noise = {
        relation: calibrate(name, full(name, neighboring_relation=relation)).plan.phases[0]
        for relation in NeighboringRelation
    }
    one = noise[NeighboringRelation.ADD_OR_REMOVE_ONE].noise_stddev_on_sum
    assert noise[NeighboringRelation.REPLACE_ONE].noise_stddev_on_sum == pytest.approx(2.0 * one, rel=1e-6)
    assert noise[NeighboringRelation.REPLACE_SPECIAL].noise_stddev_on_sum == one


@names
def test_poisson_is_what_is_charged_and_what_will_be_drawn(name):
    found = calibrate(name, spec(name))
    [event] = found.plan.events
    assert event.sampling == Poisson(0.1)
    assert event.count == 200
    assert found.plan.phases[0].divisor == 100
    assert found.achieved.value.upper <= 2.0
    assert found.achieved.value.upper > 2.0 - 1e-3


@names
def test_without_assumptions_the_noise_is_solved_and_what_is_missing_is_named(name):
    found = calibrate(name, full(name, dimension=None))
    assert found.missing_assumptions == (
        "initial_gap",
        "generalized_smoothness_l0",
        "deviation_tau0",
        "dimension",
    )
    assert not found.plan.is_executable
    assert found.hyperparameters == ()


@names
def test_every_recommended_number_has_its_theorem(name):
    found = calibrate(name, full(name, assumptions=ASSUMPTIONS))
    numbers = {item.name: item for item in (*found.hyperparameters, *found.utility)}
    assert set(numbers) == {"step_size", "gradient_evaluations", "gradient_norm_bound"}
    for item in numbers.values():
        assert "Yang" in item.source
        assert item.formula
    assert numbers["step_size"].kind is ProvenanceKind.DERIVED
    assert numbers["gradient_evaluations"].value == 200 * 1000
    assert found.plan.phases[0].step_size == numbers["step_size"].value
    assert found.missing_assumptions == ()


@names
def test_the_callers_step_size_goes_into_the_plan_and_the_bound_is_of_that_step_size(name):
    recommended = calibrate(name, full(name, assumptions=ASSUMPTIONS))
    own_step = recommended.plan.phases[0].step_size / 3.0
    own = calibrate(name, full(name, assumptions=ASSUMPTIONS, step_size=own_step))
    assert own.plan.phases[0].step_size == own_step
    assert own.utility[1].value > recommended.utility[1].value
    assert own.plan.plan_hash != recommended.plan.plan_hash


@names
def test_a_step_size_beyond_the_theorem_has_no_bound_and_a_warning_that_says_from_when_on(name):
    found = calibrate(name, full(name, assumptions=ASSUMPTIONS, step_size=1e6))
    assert found.utility[1].value is None
    assert any("iterations on" in warning for warning in found.warnings)


@names
def test_a_bound_that_is_worse_than_standing_still_is_called_vacuous(name):
    smooth = ASSUMPTIONS | {"generalized_smoothness_l1": 0.0}
    one_step = calibrate(name, full(name, assumptions=smooth, iterations=1))
    assert one_step.utility[1].vacuous is True
    tiny = ASSUMPTIONS | {"deviation_tau0": 0.0, "deviation_tau1": 0.0}
    bound = Clip(10.0) if name == "dp_sgd" else Normalize(1.0)
    large = replace(
        full(name, assumptions=tiny, dimension=1, gradient_bound=bound), dataset_size=10**7, batch_size=10**7
    )
    many = calibrate(name, replace(large, iterations=10**5))
    assert many.utility[1].vacuous is False


@names
@pytest.mark.parametrize(
    ("changes", "error", "pointer", "words"),
    [
        (
            {"sampling": "with_replacement"},
            Unsupported,
            ("sampling",),
            "poisson, without_replacement, full_batch, truncated_poisson, random_allocation, blocks, disjoint_batches",
        ),
        ({"sampling": "without_replacement"}, Unsupported, ("sampling",), "replace_special or replace_one"),
        ({"sampling": "shuffled_epochs"}, Unsupported, ("sampling",), "replace_special or replace_one"),
        (
            {"sampling": "random_allocation", "neighboring_relation": NeighboringRelation.REPLACE_ONE},
            Unsupported,
            ("sampling",),
            "add_or_remove_one or replace_special",
        ),
        ({"gradient_bound": None}, InvalidValue, ("gradient_bound",), "needs a gradient_bound of kind"),
        ({"iterations": None}, InvalidValue, ("iterations",), "epochs"),
        ({"batch_size": None}, InvalidValue, ("batch_size",), "expected number"),
        ({"sampling": "full_batch"}, InvalidValue, ("batch_size",), "1000"),
        ({"assumptions": {"lipschitz": 1.0}}, InvalidValue, ("assumptions", "lipschitz"), "initial_gap"),
        ({"assumptions": ASSUMPTIONS | {"initial_gap": 0.0}}, InvalidValue, ("assumptions", "initial_gap"), "0"),
        ({"assumptions": ASSUMPTIONS | {"deviation_tau1": 1.0}}, InvalidValue, ("assumptions", "deviation_tau1"), "1"),
        (
            {"assumptions": ASSUMPTIONS | {"generalized_smoothness_l0": 0.0, "generalized_smoothness_l1": 0.0}},
            InvalidValue,
            ("assumptions", "generalized_smoothness_l0"),
            "both",
        ),
    ],
)
def test_what_no_theorem_covers_is_refused_with_a_pointer(name, changes, error, pointer, words):
    with pytest.raises(error, match=words) as caught:
        calibrate(name, spec(name, **changes))
    assert caught.value.pointer == pointer


def test_the_bound_of_the_other_algorithm_is_refused():
    for name, other in (("dp_sgd", Normalize(1.0)), ("dp_nsgd", Clip(1.0))):
        with pytest.raises(InvalidValue, match=f"not {other.kind}") as caught:
            calibrate(name, spec(name, gradient_bound=other))
        assert (caught.value.code, caught.value.pointer) == ("unsupported_gradient_bound", ("gradient_bound", "kind"))


def test_a_clip_threshold_that_the_theorem_does_not_cover_is_refused_only_where_the_theorem_is_asked():
    low = Clip(0.74)
    with pytest.raises(InvalidValue, match=r"0\.75") as caught:
        calibrate("dp_sgd", full("dp_sgd", assumptions=ASSUMPTIONS, gradient_bound=low))
    assert (caught.value.code, caught.value.pointer) == ("clip_below_theorem", ("gradient_bound", "max_grad_norm"))
    assert calibrate("dp_sgd", full("dp_sgd", gradient_bound=low)).plan.phases[0].gradient_bound == low


@names
def test_what_the_request_leaves_out_is_what_is_usual(name):
    """Poisson batches under add_or_remove_one, as in accounting; a sampling that is named brings its own relation."""
    found = calibrate(name, spec(name, sampling=None, neighboring_relation=None))
    assert found.plan.neighboring_relation is NeighboringRelation.ADD_OR_REMOVE_ONE
    [event] = found.plan.events
    assert event.sampling == Poisson(0.1)
    assert event.count == 200
    fixed = calibrate(name, spec(name, sampling="without_replacement", neighboring_relation=None))
    assert fixed.plan.neighboring_relation is NeighboringRelation.REPLACE_ONE
    assert fixed.plan.events[0].sampling == WithoutReplacement(100, 1000)


@names
@pytest.mark.parametrize("changes", [{"domain": L2Ball(1.0)}, {"penalty": L2Penalty(0.1)}])
def test_with_a_domain_or_a_penalty_there_is_no_theorem_and_the_noise_stays(name, changes):
    plain = calibrate(name, full(name, assumptions=ASSUMPTIONS))
    found = calibrate(name, full(name, assumptions=ASSUMPTIONS, **changes))
    assert found.value == plain.value
    assert found.hyperparameters == ()
    assert [item.name for item in found.utility] == ["gradient_evaluations"]
    assert any("all of R^d" in warning for warning in found.warnings)
    assert not found.plan.is_executable
    assert (found.plan.domain, found.plan.penalty) == (changes.get("domain"), changes.get("penalty"))
    assert calibrate(name, full(name, step_size=0.1, **changes)).plan.is_executable


@pytest.mark.one_in(5)
@names
@pytest.mark.parametrize(
    "sampling", ["random_allocation", "blocks", "shuffled_epochs", "disjoint_batches", "truncated_poisson"]
)
def test_where_records_take_turns_or_batches_are_cut_the_theorem_gives_no_step_size_and_no_bound(
    name: str, sampling: str
) -> None:
    asked = spec(
        name,
        sampling=sampling,
        neighboring_relation=NeighboringRelation.REPLACE_SPECIAL,
        iterations=10,
        assumptions=ASSUMPTIONS,
        max_batch_size=110 if sampling == "truncated_poisson" else None,
    )
    found = calibrate(name, asked)
    assert found.plan.phases[0].step_size is None
    assert found.hyperparameters == ()
    assert [item.name for item in found.utility] == ["gradient_evaluations"]
    assert any("records take turns" in warning for warning in found.warnings)
    assert any("random_allocation" in warning for warning in found.warnings) == (sampling == "shuffled_epochs")
    assert calibrate(name, replace(asked, step_size=0.1)).plan.phases[0].step_size == 0.1

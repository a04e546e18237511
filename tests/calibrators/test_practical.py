"""Presets: what a spec leaves out is chosen from public numbers alone, and what it gives stays."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from accounting.errors import AccountingError, InvalidValue, NoCostInFilter
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, PureDpTarget
from calibrators.draft import Draft
from calibrators.geometry import L2Penalty
from calibrators.plan import MAX_SCHEDULE, Clip, Normalize, Plan
from calibrators.practical import MOST_STEPS
from calibrators.presets import UNKNOWN_OBJECTIVE, Objective, Preset
from calibrators.registry import ALGORITHMS, calibrate
from calibrators.release import LAST_ITERATE, WeightedAverage, average_of_last
from calibrators.spec import Calibration, OpenEpsilon, Spec, Unknown
from calibrators.stages import Stage
from calibrators.theorem_choices import LEFT_OPEN
from calibrators.work import FEWEST_STEPS, PATIENCE, WORK, affordable_steps, work_of

SPEC = Spec(1000, ApproximateDpTarget(2.0, 1e-5), dimension=20)
STEPPING = [name for name, each in ALGORITHMS.items() if each.step_rule is not None]
#: What declared bounds give of a logistic regression, as far as the theorems of these algorithms take it.
CONSTANTS = {"initial_gap": math.log(2.0), "generalized_smoothness_l0": 1.0, "deviation_tau0": 4.0, "lipschitz": 2.0}


def declared(_norm_order: float, given: Mapping[str, float]) -> Mapping[str, float]:
    return {name: value for name, value in CONSTANTS.items() if name not in given}


FACTS = Objective(declared, is_convex=True)


#: Of a smooth loss, and of one that is Lipschitz in the l1 norm, too.
_SMOOTH = {
    "lipschitz": 2.0,
    "smoothness": 200.0,
    "initial_gap": math.log(2.0),
    "initial_distance": 5.0,
    "link_lipschitz": 1.0,
    "moment_order": 64.0,
    "moment_bound_2k": 2.0,
}


def without(*names: str) -> Callable[[float, Mapping[str, float]], Mapping[str, float]]:
    """Return what derives these constants but for some."""
    kept = {name: value for name, value in _SMOOTH.items() if name not in names}
    return lambda _order, given: {name: value for name, value in kept.items() if name not in given}


SMOOTH = Objective(without(), is_convex=True)


def chosen(
    name: str | None, preset: Preset | None = None, facts: Objective = UNKNOWN_OBJECTIVE, **changes: Any
) -> Calibration:
    return Draft(name, replace(SPEC, **changes), preset, facts).calibrate()


def choices(calibration: Calibration) -> dict[str, Any]:
    return {choice.name: choice.value for choice in calibration.choices}


def test_a_spec_with_sizes_and_target_alone_has_a_plan_that_runs():
    found = chosen(None)
    assert found.plan.algorithm == "dp_adam"
    assert found.plan.is_executable
    assert isinstance(found.plan.release, WeightedAverage)
    assert list(choices(found)) == [
        "algorithm",
        "sampling",
        "iterations",
        "gradient_bound",
        "hyperparameters.step_size",
        "hyperparameters.averaged_share",
    ]
    assert all(choice.reason.endswith(".") and choice.source for choice in found.choices)


@pytest.mark.parametrize("name", STEPPING)
def test_the_plan_is_that_of_a_spec_with_the_chosen_values(name):
    """Nothing about a plan is decided but by what the answer names."""
    found = chosen(name)
    values = choices(found)
    bound = values["gradient_bound"]
    own = replace(
        SPEC,
        sampling=values["sampling"],
        batch_size=values.get("batch_size", SPEC.dataset_size),
        iterations=values["iterations"],
        gradient_bound=Clip(bound["max_grad_norm"]) if bound["kind"] == "clip" else Normalize(bound["regularizer"]),
        step_size=values["hyperparameters.step_size"],
        averaged_share=values["hyperparameters.averaged_share"],
    )
    assert calibrate(name, own).plan == found.plan


@pytest.mark.parametrize("name", [*STEPPING, None])
@pytest.mark.parametrize(
    "given",
    [
        {"iterations": 7},
        {"step_size": 0.25},
        {"averaged_share": 0.1},
        {"neighboring_relation": NeighboringRelation.REPLACE_SPECIAL},
    ],
    ids=str,
)
def test_what_is_given_stays(name, given):
    found = chosen(name, **given)
    (phase,) = found.plan.phases
    assert {each.rpartition(".")[2] for each in choices(found)}.isdisjoint(given)
    match given:
        case {"iterations": steps}:
            assert found.plan.iterations == steps
        case {"step_size": size}:
            assert phase.step_size == size
            assert found.plan.release == LAST_ITERATE
        case {"averaged_share": share}:
            steps = found.plan.iterations
            assert found.plan.release == average_of_last(math.ceil(share * steps), steps)
        case {"neighboring_relation": relation}:
            assert found.plan.neighboring_relation == relation


def test_a_batch_size_is_that_of_sampled_batches():
    found = chosen("dp_sgd", batch_size=50)
    assert choices(found)["sampling"] == "poisson"
    assert found.plan.phases[0].divisor == 50


def test_the_work_of_all_steps_has_a_limit():
    """Fewer steps first, then smaller batches."""

    def plan_of(records: int, dimension: int) -> Plan:
        return chosen(None, dataset_size=records, dimension=dimension).plan

    assert plan_of(10_000, 10).iterations == MOST_STEPS
    fewer = plan_of(60_000, 5000)
    assert 100 < fewer.iterations < MOST_STEPS
    assert fewer.phases[0].divisor == 60_000
    for plan, dimension in ((fewer, 5000), (plan_of(100_000_000, 1000), 1000)):
        work = plan.iterations * plan.phases[0].divisor * dimension
        assert work <= WORK or plan.phases[0].divisor == math.ceil(plan.dataset_size / 64)


@pytest.mark.parametrize("sampling", [scheme.kind for scheme in ALGORITHMS["dp_sgd"].samplings])
def test_every_sampling_has_sizes(sampling):
    found = chosen("dp_sgd", sampling=sampling)
    assert found.plan.is_executable
    assert found.achieved.value.upper <= 2.0


def test_step_sizes_of_stages_are_chosen_where_a_stage_has_none():
    stages = (Stage(10, 100), Stage(20, 200, step_size=0.5))
    found = chosen("dp_adam", stages=stages, sampling="poisson")
    first, second = found.plan.phases
    assert first.step_size == choices(found)["hyperparameters.step_size"]
    assert second.step_size == 0.5
    given = chosen("dp_adam", stages=(replace(stages[0], step_size=0.1), stages[1]), sampling="poisson")
    assert set(choices(given)) == {"gradient_bound"}


def test_more_steps_than_an_average_has_weights_for_release_the_last_point():
    found = chosen("dp_adam", iterations=MAX_SCHEDULE + 1)
    assert found.plan.release == LAST_ITERATE
    with pytest.raises(InvalidValue) as caught:
        chosen("dp_adam", iterations=MAX_SCHEDULE + 1, averaged_share=0.5)
    assert caught.value.pointer == ("averaged_share",)


@pytest.mark.parametrize("name", ["dp_sgd", "dp_nsgd"])
def test_the_theorems_choice_stands_beside_the_practical_one(name):
    practical, theorem = chosen(name, facts=FACTS), chosen(name, Preset.THEOREM, FACTS)
    (phase,) = theorem.plan.phases
    beside = {choice.name: choice.theorem for choice in practical.choices}
    assert beside["hyperparameters.step_size"] == phase.step_size
    assert beside["gradient_bound"] == phase.gradient_bound.to_json()
    assert beside["iterations"] is None
    assert theorem.plan.release == LAST_ITERATE
    assert theorem.derived == {name: value for name, value in CONSTANTS.items() if name != "lipschitz"}
    assert practical.derived == {}
    assert practical.plan.phases[0].step_size > phase.step_size


@pytest.mark.parametrize("name", ["dp_sgd", "dp_nsgd"])
def test_a_theorem_without_its_constants_has_no_choice_and_the_answer_names_them(name):
    beside = {choice.name: choice for choice in chosen(name).choices}
    for member in ("gradient_bound", "hyperparameters.step_size"):
        assert beside[member].theorem is None
        assert "initial_gap, generalized_smoothness_l0 and deviation_tau0, but not all" in beside[member].theorem_reason
    assert beside["iterations"].theorem_reason == LEFT_OPEN
    assert "are not known" in (chosen(name).theorem_note or "")


def test_a_theorem_that_does_not_apply_has_no_choice_and_the_answer_says_why():
    def reason(**changes: Any) -> str:
        [step] = (each for each in chosen("dp_sgd", facts=FACTS, **changes).choices if each.name.endswith("step_size"))
        assert step.theorem is None
        return step.theorem_reason

    assert "max_grad_norm must be at least" in reason(gradient_bound=Clip(1.0))
    assert "covers only the loss itself" in reason(penalty=L2Penalty(0.1))


def test_an_algorithm_without_a_theorem_says_so_beside_each_choice():
    found = chosen("dp_adam", facts=FACTS)
    said = {choice.theorem_reason for choice in found.choices}
    assert said == {found.theorem_note}
    assert said == {"No theorem bounds the error of dp_adam, so no theorem chooses its numbers."}


def test_a_theorem_whose_numbers_are_kept_is_named():
    found = chosen("dp_gd", facts=SMOOTH)
    [clip] = found.choices
    assert clip.theorem == clip.value == {"kind": "clip", "max_grad_norm": 2.0}
    assert "The theorem itself chose step_size and iterations" in (found.theorem_note or "")
    given = chosen("dp_gd", facts=SMOOTH, iterations=7, gradient_bound=Clip(2.0))
    assert "The theorem itself chose step_size (" in (given.theorem_note or "")
    sizes = {"iterations": 2, "batch_size": 50, "step_size": 1e-4, "assumptions": {"inner_iterations": 3.0}}
    everything = chosen("dp_svrg_pp", Preset.PRACTICAL, SMOOTH, gradient_bound=Clip(2.0), **sizes)
    assert (everything.theorem_note or "").startswith("The theorem chooses none of the numbers of this plan (")
    unnamed = chosen(None, facts=replace(SMOOTH, trained_by=("dp_gd",)))
    assert "algorithm" in choices(unnamed)
    assert "algorithm" not in (unnamed.theorem_note or "")
    unknown = chosen("dp_gd", facts=replace(SMOOTH, derive=without("lipschitz"))).choices
    assert [(each.theorem, "give lipschitz" in each.theorem_reason) for each in unknown] == [(None, True)]


#: Sizes at which the theorems' own numbers of steps are more work than a worker has time for.
LARGE = {"dataset_size": 60_000, "dimension": 785}


@pytest.mark.parametrize(
    ("name", "member", "size"), [("dp_svrg_pp", "assumptions.inner_iterations", 1), ("dp_gd", "iterations", 1000)]
)
def test_steps_that_nobody_gives_are_no_more_work_than_a_worker_has_time_for(name, member, size):
    """The theorem's own number stands beside, and the plan is that of a spec with the fewer steps."""
    large = LARGE | {"dataset_size": size * LARGE["dataset_size"]}
    found = chosen(name, facts=SMOOTH, **large)
    own = chosen(name, Preset.THEOREM, SMOOTH, **large)
    assert work_of(found, 785) <= WORK or found.plan.iterations == FEWEST_STEPS
    assert work_of(own, 785) > WORK
    [fewer] = (each for each in found.choices if each.name == member)
    assert fewer.theorem * found.plan.iterations == fewer.value * own.plan.iterations
    assert any(
        f"the theorem's {fewer.theorem}. The theorem's number means {own.plan.iterations} steps" in each
        for each in found.warnings
    )
    assert any(f"The theorem chooses {own.plan.iterations} steps" in each for each in own.warnings)
    number = {"assumptions": {"inner_iterations": fewer.value}} if "." in member else {"iterations": fewer.value}
    given = chosen(name, Preset.PRACTICAL, SMOOTH, **large, **number)
    assert given.plan == found.plan
    assert member not in choices(given)


def test_steps_that_a_theorem_leaves_open_are_no_more_than_the_records_allow():
    """Every step reads records of its own."""
    few = chosen("noisy_sfw_nonconvex_lp", facts=SMOOTH, dataset_size=60)
    assert few.plan.iterations == choices(few)["iterations"] == 30
    assert chosen("noisy_sfw_nonconvex_lp", facts=SMOOTH).plan.iterations == FEWEST_STEPS


def test_steps_that_are_given_are_never_fewer():
    found = chosen("dp_gd", facts=SMOOTH, iterations=5000, **LARGE)
    assert found.plan.iterations == 5000
    inner = chosen("dp_svrg_pp", Preset.PRACTICAL, SMOOTH, assumptions={"inner_iterations": 50_000.0}, **LARGE)
    assert inner.plan.iterations == 50_000 * 62


def test_a_theorem_that_allows_no_fewer_steps_is_refused_with_their_number():
    name = "localized_clipped_subgradient"
    with pytest.raises(InvalidValue, match=r"chooses 590624 steps, .* minutes .*the preset theorem") as caught:
        chosen(name, facts=SMOOTH, **LARGE)
    assert caught.value.code == "too_much_work"
    own = chosen(name, Preset.THEOREM, SMOOTH, **LARGE)
    assert own.plan.iterations == 590624
    assert any("590624 steps" in each for each in own.warnings)
    assert chosen(name, facts=SMOOTH, iterations=15, **LARGE).plan.iterations == 590624
    patient = chosen(name, facts=SMOOTH, **LARGE | {"dataset_size": 10_000})
    assert WORK < work_of(patient, 785) <= PATIENCE * WORK
    assert any("The theorem chooses" in each for each in patient.warnings)


@pytest.mark.parametrize("name", ["dp_fw", "generalized_linear_l1"])
def test_a_number_of_least_bound_that_is_not_taken_stands_beside(name):
    found = chosen(name, facts=SMOOTH, **LARGE)
    [steps] = (each for each in found.choices if each.name == "iterations")
    assert steps.value == found.plan.iterations == affordable_steps(60_000, 785)
    assert steps.theorem > steps.value
    more = chosen(name, facts=SMOOTH, iterations=steps.theorem, **LARGE)
    beyond = chosen(name, facts=SMOOTH, iterations=2 * steps.theorem, **LARGE)
    bounds = [
        each.value
        for calibration in (found, more, beyond)
        for each in calibration.utility
        if each.name == "excess_risk_bound"
    ]
    assert bounds[1] == min(bounds)
    assert "iterations" not in choices(chosen(name, facts=SMOOTH))


def test_constants_of_a_theorem_ask_for_the_theorem():
    given = {name: value for name, value in CONSTANTS.items() if name != "lipschitz"}
    assert chosen("dp_sgd", assumptions=given).plan == chosen("dp_sgd", Preset.THEOREM, FACTS).plan
    assert (
        chosen("dp_sgd", Preset.PRACTICAL, assumptions=given, gradient_bound=Clip(100.0)).plan.release != LAST_ITERATE
    )


def test_a_clip_below_the_theorem_needs_no_theorem():
    """Who gave none is asked for none; who asks for the theorem is told what it needs."""
    assert chosen("dp_sgd", facts=FACTS, gradient_bound=Clip(1.0)).plan.is_executable
    with pytest.raises(InvalidValue, match=r"max_grad_norm must be at least .* = 8 for the theorem, got 1"):
        chosen("dp_sgd", Preset.THEOREM, FACTS, gradient_bound=Clip(1.0))


def test_a_theorem_is_that_of_a_named_algorithm():
    with pytest.raises(InvalidValue) as caught:
        chosen(None, Preset.THEOREM)
    assert (caught.value.code, caught.value.pointer) == ("missing", ("algorithm",))


def test_choices_for_convex_losses_are_for_no_others():
    assert choices(chosen("proximal_weakly_convex", facts=FACTS))["assumptions.weak_convexity"] > 0
    unknown = replace(FACTS, is_convex=False)
    assert chosen("proximal_weakly_convex", facts=unknown).missing_assumptions == ("weak_convexity",)


def test_a_model_that_the_usual_algorithm_does_not_train_has_another():
    only = replace(UNKNOWN_OBJECTIVE, trained_by=("dp_nsgd", "dp_sgd"))
    assert choices(chosen(None, facts=only))["algorithm"] == "dp_nsgd"
    also = replace(UNKNOWN_OBJECTIVE, trained_by=("dp_sgd", "dp_adam"))
    assert choices(chosen(None, facts=also))["algorithm"] == "dp_adam"


def test_what_noise_certifies_is_solved_for_beside_choices():
    found = chosen(None, target=OpenEpsilon(1e-5), unknown=Unknown.EPSILON, noise_multiplier=50.0)
    assert found.plan.phases[0].noise_multiplier == 50.0
    assert found.value == found.achieved.value.upper


@pytest.mark.parametrize(("unknown", "given"), [(Unknown.ITERATIONS, {}), (Unknown.BATCH_SIZE, {"iterations": 10})])
def test_where_a_size_is_solved_for_no_step_size_is_chosen(unknown, given):
    sampling = "full_batch" if unknown is Unknown.ITERATIONS else "poisson"
    found = chosen("dp_sgd", unknown=unknown, noise_multiplier=5.0, sampling=sampling, **given)
    assert set(choices(found)) == {"gradient_bound"}
    assert not found.plan.is_executable


def test_models_of_numbers_take_a_quarter_of_adams_step_and_nothing_else_differs():
    numbers = replace(FACTS, predicts_numbers=True)
    plain, smaller = choices(chosen(None, facts=FACTS)), choices(chosen(None, facts=numbers))
    assert smaller.pop("hyperparameters.step_size") == 0.25 * plain.pop("hyperparameters.step_size")
    assert smaller == plain
    normalised = [choices(chosen("dp_nsgd", facts=facts, preset=Preset.PRACTICAL)) for facts in (FACTS, numbers)]
    assert normalised[0] == normalised[1]


def test_a_pure_target_without_an_algorithm_is_told_which_can() -> None:
    with pytest.raises(NoCostInFilter, match="dp_fw, generalized_linear_l1"):
        chosen(None, target=PureDpTarget(1.0))
    mean = Objective(declared, is_convex=True, trained_by=("clipped_mean", "coordinatewise_mean"))
    with pytest.raises(NoCostInFilter, match="pure DP: ask for approximate_dp"):
        chosen(None, facts=mean, target=PureDpTarget(1.0))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_is_refused_for_a_pure_target_unless_its_record_says_that_it_can(name: str) -> None:
    """Those that can are refused for the domain that they miss here."""
    with pytest.raises(AccountingError) as refused:
        chosen(name, target=PureDpTarget(1.0))
    assert (refused.value.code != "no_cost_in_filter") == ALGORITHMS[name].has_pure_dp

"""Bands are chosen as in worked tables and by brute force, where a spec leaves them open."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from accounting.errors import AccountingError, InvalidValue, Unreachable, Unsupported
from accounting.events import CyclicPoisson, Event, FixedOrderEpochs, Gaussian, Poisson
from accounting.relations import NeighboringRelation
from accounting.solve import solve_count, solve_noise
from accounting.targets import ApproximateDpTarget, GaussianDpTarget
from calibrators.correlation import Correlation, Objective
from calibrators.matrix_factorisation.bands import BandedEvent, Solved, solve
from calibrators.matrix_factorisation.strategy import Workload, optimal
from calibrators.noise import GaussianSteps, solve_steps
from calibrators.plan import Clip
from calibrators.spec import OpenEpsilon, Spec, Unknown

ADD = NeighboringRelation.ADD_OR_REMOVE_ONE
NULL = NeighboringRelation.REPLACE_SPECIAL
REPLACE = NeighboringRelation.REPLACE_ONE
WIDE = Correlation(bands=101, max_bands=200)


def spec(**changes: Any) -> Spec:
    """The note's setting, and what the registry fills in."""
    found = Spec(
        50_000,
        ApproximateDpTarget(2.0, 1e-5),
        batch_size=500,
        iterations=2000,
        sampling=CyclicPoisson.kind,
        neighboring_relation=ADD,
        gradient_bound=Clip(1.0),
        correlation=Correlation(),
    )
    return replace(found, **changes)


def table(found: Solved, sampling: str = CyclicPoisson.kind) -> dict[int, tuple[float, float | None]]:
    return {each.bands: (each.noise_multiplier, each.ratio) for each in found.alternatives if each.sampling == sampling}


def test_the_worked_noise_of_each_number_of_bands_and_the_choice():
    found = solve(spec())
    noise = [1.149332, 1.483610, 1.981190, 2.708087, 3.751102, 5.241861, 7.338292]
    ratio = [1.0, 0.9164, 0.8737, 0.8626, 0.8806, 0.9347, 1.0346]
    assert list(table(found)) == [1, 2, 4, 8, 16, 32, 64]
    assert [each[0] for each in table(found).values()] == pytest.approx(noise, abs=2e-6)
    assert [each[1] for each in table(found).values()] == pytest.approx(ratio, abs=6e-5)
    assert found.bands == 8
    assert [each.bands for each in found.alternatives if each.is_chosen] == [8]
    replaced = solve(spec(neighboring_relation=REPLACE, correlation=Correlation(bands=8)))
    assert replaced.steps.noise_multiplier == pytest.approx(5.038675, rel=3e-6)
    assert isinstance(replaced.steps.event.sampling, CyclicPoisson)
    assert replaced.steps.event.sampling.assignment == "by_position"


@pytest.mark.parametrize(
    ("epsilon", "alone", "best", "ratios"),
    [
        (1.0, 1.842783, 4, [0.9677, 0.9574, 0.9668, 1.0005, 1.0721, 1.1977]),
        (4.0, 0.822517, 16, [0.8522, 0.7615, 0.7156, 0.7063, 0.7327, 0.7954]),
        (8.0, 0.643334, 32, [0.8099, 0.6798, 0.5984, 0.5577, 0.5529, 0.5788]),
    ],
)
def test_the_worked_choices_at_other_targets(epsilon, alone, best, ratios):
    found = solve(spec(target=ApproximateDpTarget(epsilon, 1e-5)))
    assert table(found)[1][0] == pytest.approx(alone, abs=3e-6)
    assert found.bands == best
    assert [table(found)[bands][1] for bands in (2, 4, 8, 16, 32, 64)] == pytest.approx(ratios, abs=6e-5)


def test_many_epochs_gain_less():
    found = solve(spec(batch_size=1000, iterations=5000, target=ApproximateDpTarget(8.0, 1e-5)))
    assert table(found)[1][0] == pytest.approx(1.089387, abs=2e-6)
    assert [table(found)[bands][1] for bands in (2, 4, 8, 16, 32)] == pytest.approx(
        [0.9103, 0.8602, 0.8385, 0.8399, 0.8633], abs=6e-5
    )


def test_worked_errors_in_a_fixed_order_and_what_not_sampling_loses():
    """20 epochs of 100 steps: sens is the root of 20, and errors are those of the matrices."""
    fixed = spec(sampling=FixedOrderEpochs.kind, neighboring_relation=NULL, target=ApproximateDpTarget(8.0, 1e-5))
    for bands, factor in ((1, 141.46), (16, 38.17), (64, 22.92), (100, 20.21)):
        found = solve(replace(fixed, correlation=Correlation(bands=bands, max_bands=128)))
        chosen = next(each for each in found.alternatives if each.is_chosen)
        assert chosen.sampling == FixedOrderEpochs.kind
        assert chosen.error == pytest.approx(0.600229 * factor, rel=4e-4)
    sampled = next(each for each in found.alternatives if each.sampling == CyclicPoisson.kind and each.bands == 100)
    assert sampled.error != chosen.error
    both = solve(replace(fixed, sampling=CyclicPoisson.kind))
    assert both.bands == 32
    assert next(each.error for each in both.alternatives if each.is_chosen) == pytest.approx(11.25, abs=0.01)
    assert table(both, FixedOrderEpochs.kind)[64][0] == pytest.approx(0.600229 * 20**0.5, rel=1e-5)


def test_one_band_is_independent_noise():
    found = solve(spec(correlation=Correlation(bands=1)))
    usual = solve_steps(spec(), GaussianSteps("poisson", 50_000, ADD), iterations=2000, batch_size=500)
    assert found.steps.noise_multiplier == pytest.approx(usual.noise_multiplier, rel=1e-12)
    assert found.strategy.coefficients == (1.0,)
    assert found.steps.achieved.value.upper == pytest.approx(usual.achieved.value.upper, rel=1e-12)


@pytest.mark.parametrize("objective", list(Objective))
def test_the_choice_by_doubling_is_near_that_by_brute_force(objective):
    """Every number of bands up to 24, each with its own noise: the choice is the best of those that were tried, and
    within one part in a hundred of the best of all."""
    small = spec(iterations=200, target=ApproximateDpTarget(4.0, 1e-5), correlation=Correlation(None, objective, 24))
    found = solve(small)
    brute = {}
    for bands in range(1, 25):
        event_of = BandedEvent(CyclicPoisson.kind, 50_000, ADD, bands, 0.0, Correlation(), is_exact=False)
        noise = solve_noise(lambda value, of=event_of: [of(value, 200, 500)], ADD, small.target).value
        brute[bands] = noise * optimal(Workload(200), bands, objective).at(objective)
    tried = {each.bands: each.error for each in found.alternatives}
    assert {1, 2, 4, 8, 16} < set(tried)
    assert tried == pytest.approx({bands: brute[bands] for bands in tried}, rel=1e-12)
    assert tried[found.bands] == min(tried.values())
    assert tried[found.bands] <= 1.01 * min(brute.values())


def test_the_event_is_that_of_the_sizes():
    steps = BandedEvent(CyclicPoisson.kind, 1000, NULL, 4, 0.0, Correlation(), is_exact=True)
    event = steps(2.0, 100, 25)
    assert event.sampling == CyclicPoisson(0.1, 4, "independent")
    assert event.mechanism.to_json()["coefficients"] == list(optimal(Workload(100), 4).coefficients)
    assert (event.count, steps.largest_batch) == (100, 250)
    assert len(steps.strategy(3).coefficients) == 3
    fixed = replace(steps, sampling=FixedOrderEpochs.kind)
    assert fixed(2.0, 100, 30).sampling == FixedOrderEpochs(34)
    assert fixed.largest_batch == 333
    assert -(-1000 // 333) == 4
    assert -(-1000 // 334) == 3


@pytest.mark.parametrize("sampling", [CyclicPoisson.kind, FixedOrderEpochs.kind])
@pytest.mark.parametrize("unknown", [Unknown.ITERATIONS, Unknown.BATCH_SIZE])
def test_integers_are_the_largest(sampling, unknown):
    asked = spec(
        sampling=sampling,
        neighboring_relation=NULL,
        correlation=Correlation(bands=8),
        unknown=unknown,
        noise_multiplier=3.0,
        **{str(unknown): None},
    )
    found = solve(asked)
    value = int(found.steps.value)
    assert found.steps.achieved.value.upper <= 2.0
    for change, meets in ((0, True), (1, False)):
        sizes = {"iterations": 2000, "batch_size": 500} | {str(unknown): value + change}
        open_epsilon = replace(asked, unknown=Unknown.EPSILON, target=OpenEpsilon(1e-5), **sizes)
        assert (solve(open_epsilon).steps.value <= 2.0) is meets
    assert found.alternatives == ()


def test_coefficients_with_a_norm_below_one_allow_a_few_steps_more():
    """Fewer steps would be answered with a norm of 1, and one more than that would meet the target."""
    asked = spec(
        batch_size=10,
        correlation=Correlation(bands=2),
        unknown=Unknown.ITERATIONS,
        iterations=None,
        noise_multiplier=0.6,
    )
    found = solve(asked)
    alone = BandedEvent(CyclicPoisson.kind, 50_000, ADD, 2, 0.0, Correlation(), is_exact=False)
    assert sum(value * value for value in found.strategy.coefficients) < 1.0
    assert found.steps.value > solve_count(lambda count: [alone(0.6, count, 10)], ADD, asked.target).value
    assert found.steps.achieved.value.upper <= 2.0 < found.steps.next_achieved.value.upper


def test_batches_end_where_the_groups_do():
    """With 8 bands a batch of a group has at most an eighth of the records; beyond nothing is accounted."""
    with pytest.raises(Unreachable, match="every batch size up to 6250"):
        solve(
            spec(correlation=Correlation(bands=8), unknown=Unknown.BATCH_SIZE, batch_size=None, noise_multiplier=100.0)
        )


@pytest.mark.parametrize(
    ("changes", "refusal", "words", "pointer"),
    [
        ({"correlation": WIDE}, InvalidValue, "at most 100 bands", ("correlation", "bands")),
        (
            {"correlation": Correlation(bands=64), "iterations": 63},
            InvalidValue,
            "at most 63 bands",
            ("correlation", "bands"),
        ),
        (
            {"correlation": WIDE, "sampling": "fixed_order_epochs", "neighboring_relation": NULL},
            InvalidValue,
            "have only 100 steps in an epoch",
            ("correlation", "bands"),
        ),
        ({"sampling": "fixed_order_epochs"}, Unsupported, "a record that comes or goes", ("sampling",)),
        *(
            (
                {
                    "correlation": Correlation(bands=8),
                    "dataset_size": 7,
                    "sampling": sampling,
                    "neighboring_relation": NULL,
                    "unknown": Unknown.BATCH_SIZE,
                    "batch_size": None,
                    "noise_multiplier": 3.0,
                },
                InvalidValue,
                "7 records in batches of 1 have only 7 .*: use at most 7 bands",
                ("correlation", "bands"),
            )
            for sampling in ("cyclic_poisson", "fixed_order_epochs")
        ),
        ({"batch_size": None}, InvalidValue, "batch_size is needed", ("batch_size",)),
        ({"iterations": None}, InvalidValue, "iterations is needed", ("iterations",)),
        (
            {"unknown": Unknown.EPSILON, "target": OpenEpsilon(1e-5), "noise_multiplier": 1.0},
            Unsupported,
            "give correlation.bands",
            ("solve_for",),
        ),
        ({"target": ApproximateDpTarget(1e-12, 1e-30)}, Unreachable, "epsilon 1e-12", ()),
    ],
)  # fmt: skip
def test_what_is_not_covered_is_refused(changes, refusal, words, pointer):
    with pytest.raises(refusal, match=words) as caught:
        solve(spec(**changes))
    assert caught.value.pointer == pointer


def test_candidates_end_at_the_sizes_and_at_max_bands():
    assert list(table(solve(spec(dataset_size=5000)))) == [1, 2, 4, 8]
    assert {1, 2, 4} <= set(table(solve(spec(iterations=5)))) <= {1, 2, 3, 4, 5}
    few = solve(spec(correlation=Correlation(max_bands=3))).alternatives
    assert [each.bands for each in few if each.is_allowed] == [1, 2]
    assert list(table(solve(spec(dataset_size=500)))) == [1]
    assert solve(spec(dataset_size=4000)).alternatives[-1].bands == 8
    whole = BandedEvent(CyclicPoisson.kind, 4000, ADD, 8, 0.0, Correlation(), is_exact=False)(1.0, 16, 500)
    assert whole.sampling == CyclicPoisson(1.0, 8, "independent")


@pytest.mark.parametrize(
    ("most", "chosen", "beyond"), [(8, 8, [16, 32]), (12, 8, [16, 32]), (16, 16, [32]), (32, 32, [])]
)
def test_more_bands_than_are_allowed_are_told_of_where_they_have_less_error(most, chosen, beyond):
    """At epsilon 8 the best number is 32; one that is not allowed is never the plan's."""
    asked = spec(target=ApproximateDpTarget(8.0, 1e-5), correlation=Correlation(max_bands=most))
    found = solve(asked)
    assert found.bands == chosen
    assert [each.bands for each in found.alternatives if not each.is_allowed] == beyond
    errors = {each.bands: each.error for each in solve(spec(target=asked.target)).alternatives}
    assert all(each.error == errors[each.bands] for each in found.alternatives)
    assert all(each.error < errors[chosen] for each in found.alternatives if not each.is_allowed)


@pytest.mark.thorough
def test_where_sizes_allow_no_more_bands_or_more_have_more_error_nothing_is_beyond():
    for changes in (
        {"correlation": Correlation(max_bands=64)},
        {"correlation": Correlation(bands=8, max_bands=8)},
        {"correlation": Correlation(max_bands=16), "iterations": 16, "target": ApproximateDpTarget(8.0, 1e-5)},
    ):
        assert all(each.is_allowed for each in solve(spec(**changes)).alternatives)
    few = spec(
        dataset_size=5000, iterations=200, correlation=Correlation(max_bands=8), target=ApproximateDpTarget(50.0, 1e-5)
    )
    assert [each.bands for each in solve(few).alternatives if not each.is_allowed] == [10], "n/B"


def test_memory_is_that_of_the_noise_of_earlier_steps():
    found = solve(spec(dimension=10**6, correlation=Correlation(bands=32)))
    assert [each.memory for each in found.alternatives] == [0, 31 * 4 * 10**6]
    assert {each.memory for each in solve(spec()).alternatives} == {None}


def test_a_target_that_sampling_does_not_help_has_its_own_price():
    """Without amplification a cycle costs one full step: the sampling is of no use, and the errors show it."""
    found = solve(spec(target=GaussianDpTarget(1.0), neighboring_relation=NULL))
    assert table(found)[8][0] == pytest.approx(250**0.5, rel=1e-6)
    assert found.steps.achieved.value.upper <= 1.0


def test_the_reduction_is_one_step_for_each_cycle_with_the_noise_over_the_norm():
    found = solve(spec(correlation=Correlation(bands=8)))
    norm = sum(value * value for value in found.strategy.coefficients) ** 0.5
    alone = Event(Gaussian(found.steps.noise_multiplier / norm), Poisson(0.08), 250)
    again = ApproximateDpTarget(2.0, 1e-5).assess([alone], ADD)
    assert again.value.upper == pytest.approx(found.steps.achieved.value.upper, rel=1e-9)


def test_a_correlation_has_its_ranges():
    for wrong in ({"bands": 0}, {"bands": 1025}, {"max_bands": 0}, {"bands": 65}, {"bands": 3, "max_bands": 2}):
        with pytest.raises(AccountingError) as caught:
            Correlation(**wrong)
        assert caught.value.pointer == ("bands",) if "bands" in wrong else ("max_bands",)
    with pytest.raises(
        AccountingError, match=r"^bands is 200, which is more than max_bands, 64: give a larger max_bands"
    ):
        Correlation(bands=200)


def test_the_least_noise_is_over_what_a_record_moves():
    """It is a refusal of the target, and none of a noise that nobody gave; a noise that is given is where it stands."""
    rare = {"dataset_size": 10**9, "batch_size": 3, "iterations": 20, "correlation": Correlation(bands=4)}
    with pytest.raises(Unreachable, match=r"every noise multiplier from 0\.001 on"):
        solve(spec(target=ApproximateDpTarget(1e-4, 0.5), **rare))
    epochs = {"sampling": "fixed_order_epochs", "neighboring_relation": NULL, "correlation": Correlation(bands=1)}
    with pytest.raises(Unreachable, match=r"every noise multiplier from 0\.00447214 on"):
        solve(spec(target=ApproximateDpTarget(1e6, 0.5), **epochs))
    given = {"unknown": Unknown.EPSILON, "target": OpenEpsilon(1e-5), "noise_multiplier": 1e-3}
    with pytest.raises(InvalidValue, match=r"noise multiplier 0\.0002236") as caught:
        solve(spec(**epochs | given))
    assert caught.value.pointer == ("noise_multiplier",)

"""The calibrators of DP-Adam and DP-NAdam: the price of the steps they are made of, no bound, honest constants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from accounting.errors import InvalidValue, Unsupported
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, ZcdpTarget
from calibrators.geometry import Box, L1Ball, L1Penalty, L2Ball, L2Penalty, LpBall, Simplex
from calibrators.plan import Clip, GradientBound, Normalize, Phase
from calibrators.provenance import ProvenanceKind
from calibrators.registry import calibrate
from calibrators.spec import Spec

BOUNDS: dict[str, GradientBound] = {"dp_adam": Clip(1.5), "dp_nadam": Normalize(0.01)}
WITHOUT_MOMENTS = {"dp_adam": "dp_sgd", "dp_nadam": "dp_nsgd"}
names = pytest.mark.parametrize("name", BOUNDS)


def spec(name: str, **changes: Any) -> Spec:
    given = Spec(
        dataset_size=1000,
        iterations=200,
        sampling="full_batch",
        gradient_bound=BOUNDS[name],
        target=ApproximateDpTarget(2.0, 1e-5),
        step_size=0.01,
    )
    return replace(given, **changes)


@names
@pytest.mark.parametrize("relation", NeighboringRelation)
@pytest.mark.parametrize("sampling", ["full_batch", "poisson"])
def test_moments_cost_nothing(name: str, relation: NeighboringRelation, sampling: str) -> None:
    asked = spec(name, sampling=sampling, batch_size=1000, neighboring_relation=relation, target=ZcdpTarget(0.5))
    found, without = calibrate(name, asked), calibrate(WITHOUT_MOMENTS[name], asked)
    assert found.plan.events == without.plan.events
    assert found.plan.phases == without.plan.phases
    assert found.achieved == without.achieved
    assert found.plan.plan_hash != without.plan.plan_hash


@pytest.mark.parametrize(("epsilon", "printed"), [(1.0, 24.98802643), (8.0, 3.520105986)])
@names
def test_the_papers_own_noise_is_that_of_lemma_3_1(name: str, epsilon: float, printed: float) -> None:
    """The worked numbers of the lemma: N = 50 000, B = 1000, T = 5000, delta = 1e-5, sensitivity 1."""
    changes = {"sampling": None, "dataset_size": 50_000, "batch_size": 1000, "iterations": 5000}
    found = calibrate(name, spec(name, target=ApproximateDpTarget(epsilon, 1e-5), **changes))
    assert found.as_published is not None
    assert found.as_published.noise_multiplier == pytest.approx(printed, rel=1e-9)
    other = calibrate(WITHOUT_MOMENTS[name], spec(name, target=ApproximateDpTarget(epsilon, 1e-5), **changes))
    assert found.as_published == other.as_published


@names
def test_there_is_no_bound_and_its_absence_is_said(name: str) -> None:
    found = calibrate(name, spec(name))
    assert found.plan.is_executable
    assert [(item.name, item.value) for item in found.utility] == [("gradient_evaluations", 200 * 1000)]
    assert found.missing_assumptions == ()
    assert any("no bound" in warning for warning in found.warnings)


@names
def test_the_constants_are_adams_and_not_the_papers(name: str) -> None:
    found = {item.name: item for item in calibrate(name, spec(name)).hyperparameters}
    assert {key: item.value for key, item in found.items()} == {
        "first_moment_decay": 0.9,
        "second_moment_decay": 0.999,
        "stabilizer": 1e-8,
    }
    for item in found.values():
        assert item.kind is ProvenanceKind.EXACT
        assert "Kingma" in item.source
        assert any("Yang et al. do not state" in sentence for sentence in item.assumptions)


@names
def test_without_a_step_size_the_plan_is_for_its_privacy_alone(name: str) -> None:
    found = calibrate(name, spec(name, step_size=None))
    assert not found.plan.is_executable
    assert found.plan.events == calibrate(name, spec(name)).plan.events
    assert any("hyperparameters.step_size" in warning for warning in found.warnings)


@names
@pytest.mark.parametrize("domain", [L2Ball(1.0), L1Ball(1.0), LpBall(1.5, 1.0), Simplex(1.0)])
def test_a_domain_with_no_projection_in_adams_metric_is_refused(name: str, domain: object) -> None:
    with pytest.raises(Unsupported, match="box") as caught:
        calibrate(name, spec(name, domain=domain))
    assert (caught.value.code, caught.value.pointer) == ("unsupported_domain", ("domain", "kind"))


@names
@pytest.mark.parametrize(
    "changes", [{"domain": Box(-1.0, 1.0)}, {"penalty": L1Penalty(0.1)}, {"penalty": L2Penalty(1.0)}]
)
def test_a_box_and_a_penalty_go_into_the_plan_at_no_price(name: str, changes: dict[str, Any]) -> None:
    found = calibrate(name, spec(name, **changes))
    assert (found.plan.domain, found.plan.penalty) == (changes.get("domain"), changes.get("penalty"))
    assert found.plan.events == calibrate(name, spec(name)).plan.events


@names
def test_constants_of_a_theorem_are_refused_since_there_is_none(name: str) -> None:
    with pytest.raises(InvalidValue, match="no theorem") as caught:
        calibrate(name, spec(name, assumptions={"initial_gap": 2.0}))
    assert (caught.value.code, caught.value.pointer) == ("unknown_assumption", ("assumptions", "initial_gap"))


def test_the_noise_on_normalised_gradients_ignores_the_regularizer() -> None:
    noise = set()
    for regularizer in (0.0, 0.01, 100.0):
        [phase] = calibrate("dp_nadam", spec("dp_nadam", gradient_bound=Normalize(regularizer))).plan.phases
        assert isinstance(phase, Phase)
        noise.add(phase.noise_stddev_on_sum)
    assert len(noise) == 1

"""Lemma 3.1 with explicit constants: its worked numbers, its conditions, and the engine's verdict."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from accounting.composition.composition import compose
from accounting.events import Event, Gaussian, WithoutReplacement
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, ZcdpTarget
from calibrators.as_published import AsPublished, Verdict
from calibrators.plan import Clip
from calibrators.registry import calibrate
from calibrators.spec import Spec
from calibrators.yang_nsgd.lemma_3_1 import failed_conditions, printed_noise_multiplier

ADD, ONE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
DELTA, Q, T = 1e-5, 0.02, 5000


def spec(epsilon: float, **changes: Any) -> Spec:
    """The paper's CIFAR-10 sizes."""
    papers_own = {"sampling": "without_replacement", "neighboring_relation": ONE}
    given = papers_own | {"batch_size": 1000, "iterations": T, "gradient_bound": Clip(1.0), **changes}
    return Spec(50_000, given.pop("target", ApproximateDpTarget(epsilon, DELTA)), **given)


def published(spec: Spec) -> AsPublished:
    found = calibrate("dp_sgd", spec).as_published
    assert found is not None
    return found


def rho_prime(epsilon: float) -> float:
    root = math.sqrt(math.log(1.0 / DELTA))
    return (math.sqrt(root * root + epsilon) - root) ** 2


@pytest.mark.parametrize(
    ("epsilon", "rho", "one", "two", "c2"),
    [
        (1.0, 0.02081993834, 24.98802643, 49.97605286, 5.207438053),
        (8.0, 1.049136201, 3.520105986, 7.040211971, 5.86864558),
    ],
)
def test_worked_numbers_of_the_lemma(epsilon: float, rho: float, one: float, two: float, c2: float) -> None:
    assert rho_prime(epsilon) == pytest.approx(rho, rel=1e-9)
    assert printed_noise_multiplier(epsilon, DELTA, Q, T) == pytest.approx(one, rel=1e-9)
    assert printed_noise_multiplier(epsilon, DELTA, Q, T, sensitivity=2.0) == pytest.approx(two, rel=1e-9)
    assert one * epsilon / (Q * math.sqrt(T * math.log(1.0 / DELTA))) == pytest.approx(c2, rel=1e-9)
    assert failed_conditions(epsilon, DELTA, Q, T) == ()


@pytest.mark.parametrize(
    ("epsilon", "q", "steps", "which"),
    [(1.0, 0.11, T, "q <= 0.1"), (8.0, Q, 1500, "sqrt(5)"), (0.7, 0.1, 1, "omega")],
)
def test_a_condition_that_fails_is_named(epsilon: float, q: float, steps: int, which: str) -> None:
    failed = failed_conditions(epsilon, DELTA, q, steps)
    assert any(which in words for words in failed)


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0, 8.0])
def test_where_its_conditions_hold_the_lemma_is_loose(epsilon: float) -> None:
    found = published(spec(epsilon))
    assert found.verdict is Verdict.LOOSE
    assert found.noise_multiplier is not None
    event = Event(Gaussian(found.noise_multiplier), WithoutReplacement(1000, 50_000), T)
    assert ApproximateDpTarget(epsilon, DELTA).assess([event], ONE).value.upper <= epsilon
    needed = calibrate("dp_sgd", spec(epsilon)).value
    assert isinstance(needed, float)
    assert f"{found.noise_multiplier / needed:.4g} times the noise" in found.why


def test_the_verdict_is_of_the_papers_sampling_and_relation_whatever_was_asked_for() -> None:
    asked = spec(2.0, sampling="poisson", neighboring_relation=ADD)
    assert published(asked) == published(spec(2.0))


def test_where_its_conditions_fail_the_lemma_is_unsound_and_prints_nothing() -> None:
    """The paper's own experiments have noise multipliers near 1, and the lemma needs sqrt(5)."""
    found = published(spec(8.0, iterations=1000))
    assert found.verdict is Verdict.UNSOUND
    assert "does not apply" in found.why
    assert found.noise_multiplier is None


def test_half_the_sensitivity_would_be_unsound_without_the_lemmas_slack() -> None:
    """Why the service does not calibrate like this: noise for a distance of 1 where neighbours are 2 apart."""
    half = calibrate("dp_sgd", spec(2.0)).value
    assert isinstance(half, float)
    event = Event(Gaussian(half / 2.0), WithoutReplacement(1000, 50_000), T)
    assert ApproximateDpTarget(2.0, DELTA).assess([event], ONE).value.lower > 2.0


@pytest.mark.parametrize("changes", [{"target": ZcdpTarget(0.5), "sampling": "full_batch", "batch_size": None}])
def test_targets_that_the_lemma_does_not_speak_of_have_no_as_published(changes: dict[str, Any]) -> None:
    assert calibrate("dp_sgd", spec(1.0, **changes)).as_published is None


@pytest.mark.parametrize(
    ("alpha", "q", "nu", "divergence"),
    [
        (2.0, 0.02, 1.0, 0.00108641218),
        (8.0, 0.02, 1.0, 0.01322124794),
        (2.5, 0.02, 0.65, 0.008068234961),
        (16.0, 0.01, 2.0, 0.0003140221373),
        (32.0, 0.02, 6.0, 0.0002037158751),
    ],
)
def test_the_engine_has_the_catalogues_divergences(alpha: float, q: float, nu: float, divergence: float) -> None:
    event = Event(Gaussian(2.0 * nu), WithoutReplacement(round(q * 50_000), 50_000))
    [moment] = compose([event], ONE).log_moment(np.array([alpha - 1.0]))
    assert moment / (alpha - 1.0) == pytest.approx(divergence, rel=1e-8)


@pytest.mark.parametrize(
    ("sigma", "alpha", "composed", "improved"),
    [(4.0, 4.0, 1.55258403, 4.640445659), (12.0, 16.0, 0.5088881301, 1.027038725)],
)
def test_the_engine_is_below_the_catalogues_epsilon_at_one_order(
    sigma: float, alpha: float, composed: float, improved: float
) -> None:
    event = Event(Gaussian(sigma), WithoutReplacement(1000, 50_000), T)
    [moment] = compose([event], ONE).log_moment(np.array([alpha - 1.0]))
    assert moment / (alpha - 1.0) == pytest.approx(composed, rel=1e-8)
    epsilon = ApproximateDpTarget(improved, DELTA).assess([event], ONE).value
    assert improved / 1.3 < epsilon.lower <= epsilon.upper <= improved


@pytest.mark.parametrize(
    ("epsilon", "poisson", "fixed"),
    [(1.0, 5.346, 12.227), (2.0, 2.928, 6.867), (4.0, 1.697, 4.066), (8.0, 1.089, 2.599)],
)
def test_noise_for_the_papers_experiments(epsilon: float, poisson: float, fixed: float) -> None:
    """Poisson, add or remove: what a tight accountant gave; fixed size, replace one: below what Renyi orders gave."""
    tight = calibrate("dp_sgd", spec(epsilon, sampling="poisson", neighboring_relation=ADD)).value
    assert tight == pytest.approx(poisson, abs=6e-4)
    own = calibrate("dp_sgd", spec(epsilon)).value
    assert isinstance(own, float)
    assert 0.9 * fixed < own < fixed

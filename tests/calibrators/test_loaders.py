"""Loaders: the schemes that they can do, and what their batches lose, against calibrations of each side by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from accounting.events import FullBatch, Poisson, ShuffledEpochs, WithoutReplacement
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.advice import Facts, advise, advise_on_batches
from calibrators.correlation import Correlation
from calibrators.loaders import Loader, scheme_of
from calibrators.plan import Clip
from calibrators.registry import ALGORITHMS, calibrate
from calibrators.scopes import Problem, Shape
from calibrators.spec import Spec

FACTS = Facts(
    50_000,
    1000,
    ApproximateDpTarget(8.0, 1e-5),
    neighboring_relation=NeighboringRelation.REPLACE_SPECIAL,
    gradient_bound=Clip(1.0),
    batch_size=500,
    iterations=2000,
)


def spec(sampling: str, **changes: object) -> Spec:
    found = Spec(
        50_000,
        FACTS.target,
        batch_size=500,
        iterations=2000,
        sampling=sampling,
        neighboring_relation=FACTS.neighboring_relation,
        gradient_bound=FACTS.gradient_bound,
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def test_a_loader_does_what_it_can() -> None:
    assert scheme_of(Loader.POISSON, (WithoutReplacement, Poisson)) is WithoutReplacement
    assert scheme_of(Loader.SHUFFLED, (Poisson, FullBatch, ShuffledEpochs)) is ShuffledEpochs
    assert scheme_of(Loader.FIXED_ORDER, (Poisson, WithoutReplacement)) is None
    correlating = ALGORITHMS["dp_bandmf"].samplings
    assert scheme_of(Loader.SHUFFLED, correlating) is None, "nothing is proved for orders that are drawn anew"
    assert scheme_of(Loader.FIXED_ORDER, correlating).kind == "fixed_order_epochs"  # type: ignore[union-attr]


@pytest.mark.parametrize("loader", Loader)
@pytest.mark.one_in(3)
def test_batches_are_ranked_by_their_error_and_are_what_calibrations_say(loader: Loader) -> None:
    found = advise_on_batches(replace(FACTS, loader=loader))
    assert found is not None
    assert [each.error for each in found.ranked] == sorted(each.error for each in found.ranked)
    rows = {(each.algorithm, each.sampling): each for each in found.ranked}
    assert set(rows) == {
        ("dp_sgd", "poisson"),
        ("dp_sgd", "shuffled_epochs"),
        ("dp_bandmf", "cyclic_poisson"),
        ("dp_bandmf", "fixed_order_epochs"),
    }
    for (algorithm, sampling), row in rows.items():
        own = spec(sampling, correlation=Correlation(bands=row.bands) if algorithm == "dp_bandmf" else None)
        assert calibrate(algorithm, own).value == pytest.approx(row.noise_multiplier, rel=2e-5)
        assert row.ratio == row.error / rows["dp_sgd", "shuffled_epochs"].error
    possible = {
        Loader.POISSON: set(rows),
        Loader.SHUFFLED: {("dp_sgd", "shuffled_epochs")},
        Loader.FIXED_ORDER: {("dp_sgd", "shuffled_epochs"), ("dp_bandmf", "fixed_order_epochs")},
    }
    assert {key for key, row in rows.items() if row.is_possible} == possible[loader]
    fixed = rows["dp_bandmf", "fixed_order_epochs"]
    less = f"with {fixed.bands} bands has {100.0 * (1.0 - fixed.ratio):.0f} % less error"
    assert (less in found.detail) == (loader is not Loader.POISSON)
    assert ("cannot draw Poisson batches" in found.detail) == (loader is not Loader.POISSON)
    assert ("If your loader keeps the same order" in found.detail) == (loader is Loader.SHUFFLED)


def test_the_worked_errors_without_sampling() -> None:
    """20 epochs of 100 steps at epsilon 8: 141.46 times the noise of one step, and 22.92 with 64 bands."""
    found = advise_on_batches(replace(FACTS, loader=Loader.FIXED_ORDER))
    assert found is not None
    rows = {each.sampling: each for each in found.ranked}
    assert rows["fixed_order_epochs"].bands == 64
    assert rows["fixed_order_epochs"].ratio == pytest.approx(22.92 / 141.46, abs=1e-4)


@pytest.mark.parametrize("loader", [Loader.SHUFFLED, Loader.FIXED_ORDER])
def test_what_a_loader_cannot_do_does_not_apply(loader: Loader) -> None:
    facts = replace(FACTS, loader=loader, assumptions={"lipschitz": 1.0, "radius": 1.0})
    found = {each.algorithm: each for each in advise(Problem(Shape.CONVEX), facts)}
    for name, each in found.items():
        samplings = ALGORITHMS[name].samplings
        if scheme_of(loader, samplings) is None:
            assert each.calibration is None
            assert any(reason.pointer == ("loader",) for reason in each.reasons)
        elif each.calibration is not None:
            assert each.spec is not None
            assert each.spec.sampling == scheme_of(loader, samplings).kind  # type: ignore[union-attr]
    assert found["dp_sgd_output"].calibration is None
    assert (found["dp_bandmf"].calibration is None) == (loader is Loader.SHUFFLED)
    assert found["dp_sgd"].calibration is not None


def test_without_a_loader_or_sizes_nothing_is_said_of_batches() -> None:
    assert advise_on_batches(FACTS) is None
    assert advise_on_batches(replace(FACTS, loader=Loader.SHUFFLED, iterations=None)) is None
    assert advise_on_batches(replace(FACTS, loader=Loader.SHUFFLED, batch_size=None)) is None

"""Which cells of the table of costs exist, what is refused, and fixed schedules in every column."""

from __future__ import annotations

import pytest

from accounting.errors import NoCostInFilter, Unsupported
from accounting.events import (
    MECHANISMS,
    DisjointBatches,
    Event,
    Gaussian,
    Laplace,
    Poisson,
    PureDp,
    ShuffledEpochs,
    WithoutReplacement,
    ZcDp,
)
from accounting.filters import (
    approximate_dp_cost,
    gaussian_dp_cost,
    pure_dp_cost,
    renyi_dp_cost,
    zcdp_cost,
)
from accounting.relations import NeighboringRelation
from accounting.units import SATURATED
from tests.accounting.filters.costs.cells import ADD_REMOVE, KINDS, ONE_OF_EACH, REPLACE, SAMPLINGS, SPECIAL, cost_in


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ONE_OF_EACH)
@pytest.mark.one_in(4)
def test_a_missing_cell_is_refused_and_names_the_filters_that_work(name: str, kind: str) -> None:
    event = ONE_OF_EACH[name]
    working = type(event.mechanism).filters
    if kind in working:
        assert all(0 < amount < SATURATED for amount in cost_in(kind, [event], REPLACE).amounts[:1])
        return
    with pytest.raises(
        NoCostInFilter, match=f"a {name} event has no proved additive cost in a {kind} budget"
    ) as caught:
        cost_in(kind, [Event(PureDp(1.0)) if kind in PureDp.filters else event, event], REPLACE)
    assert caught.value.pointer == ("events", 1, "mechanism")
    assert all(other in caught.value.detail.split("it has one in")[1] for other in working)


def test_which_cells_exist() -> None:
    exist = {(cls.kind, kind) for cls in MECHANISMS.values() for kind in cls.filters}
    missing = {(name, kind) for name in ONE_OF_EACH for kind in KINDS} - exist
    assert missing == {
        ("gaussian", "pure_dp"),
        ("gaussian_mixture", "pure_dp"),
        ("generalized_gaussian", "pure_dp"),
        ("generalized_gaussian", "gaussian_dp"),
        ("tree_aggregation", "pure_dp"),
        ("discrete_gaussian", "pure_dp"),
        ("discrete_gaussian", "gaussian_dp"),
        ("zcdp", "pure_dp"),
        ("zcdp", "gaussian_dp"),
        ("renyi_dp", "pure_dp"),
        ("renyi_dp", "zcdp"),
        ("renyi_dp", "gaussian_dp"),
        *(("approximate_dp", kind) for kind in KINDS if kind not in ("approximate_dp", "approximate_gaussian_dp")),
    }


@pytest.mark.parametrize("name", SAMPLINGS)
def test_pure_dp_sampled_gaussian_is_refused(name: str) -> None:
    with pytest.raises(NoCostInFilter, match="approximate_dp, approximate_gaussian_dp, zcdp, gaussian_dp or renyi_dp"):
        pure_dp_cost((Event(Gaussian(1.0), SAMPLINGS[name]),), REPLACE)


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("name", ["without_replacement", "shuffled_epochs", "disjoint_batches"])
def test_a_relation_under_which_other_records_move_is_refused(name: str, kind: str) -> None:
    events = [Event(Gaussian(4.0)), Event(Gaussian(4.0), SAMPLINGS[name], 8)]
    with pytest.raises(Unsupported) as caught:
        cost_in(kind, events, ADD_REMOVE)
    assert caught.value.code == "unsupported_relation"
    assert caught.value.pointer == ("events", 1, "sampling", "kind")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("relation", [SPECIAL, REPLACE])
def test_shuffled_epochs_cost_their_passes_and_disjoint_batches_one(kind: str, relation: NeighboringRelation) -> None:
    mechanism = Laplace(4.0) if kind == "pure_dp" else Gaussian(4.0)
    for count, passes in ((1, 1), (4, 1), (5, 2), (8, 2), (39, 10), (40, 10)):
        shuffled = cost_in(kind, [Event(mechanism, ShuffledEpochs(4), count)], relation)
        assert shuffled == cost_in(kind, [Event(mechanism, count=passes)], relation)
        assert shuffled.warnings == ()
    disjoint = cost_in(kind, [Event(mechanism, DisjointBatches("by_position"), 10**6)], relation)
    assert disjoint == cost_in(kind, [Event(mechanism)], relation)
    twice = cost_in(kind, [Event(mechanism, DisjointBatches("by_position"), 7)] * 2, relation)
    assert twice == cost_in(kind, [Event(mechanism, count=2)], relation)


def test_disjoint_batches_drawn_record_by_record_are_accounted_under_add_or_remove() -> None:
    event = Event(Gaussian(4.0), DisjointBatches("independent"), 10)
    assert zcdp_cost((event,), ADD_REMOVE).amounts == zcdp_cost((Event(Gaussian(4.0)),), ADD_REMOVE).amounts


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_sample_of_everything_is_a_full_batch(kind: str) -> None:
    full = cost_in(kind, [Event(Gaussian(4.0), count=9)], REPLACE)
    for sampling in (Poisson(1.0), WithoutReplacement(100, 100)):
        assert cost_in(kind, [Event(Gaussian(4.0), sampling, 9)], REPLACE) == full
    assert full.warnings == ()


def test_costs_saturate_instead_of_overflowing() -> None:
    huge = renyi_dp_cost((Event(Gaussian(0.05), Poisson(0.5), 10**8),), REPLACE, (1000.0, 1e5))
    assert huge.amounts == (SATURATED, SATURATED)
    assert zcdp_cost((Event(ZcDp(1e6), count=10**8),), REPLACE).amounts == (SATURATED,)
    assert gaussian_dp_cost((Event(Gaussian(1e-3), count=10**8),), REPLACE).amounts == (SATURATED,)
    assert pure_dp_cost((Event(PureDp(1e6), count=10**8),), REPLACE).amounts == (SATURATED,)
    assert approximate_dp_cost((Event(Gaussian(1e-3), count=10**8),), REPLACE, 1e-18).amounts == (SATURATED, 1)

"""Tree aggregation against an explicit tree, its published account, and its own page."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.composition.composition import compose
from accounting.errors import Unsupported
from accounting.events import DisjointBatches, Event, Gaussian, TreeAggregation, event_from_json
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.rules import loss_of
from accounting.relations import NeighboringRelation
from tests.accounting.references import gaussian_epsilon

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE
SPECIAL = NeighboringRelation.REPLACE_SPECIAL
PAGE = Path(__file__).parents[3] / "docs/concepts/mechanisms.md"


def released_nodes(num_leaves: int) -> list[range]:
    """Every node all of whose leaves come, as the range of its leaves."""
    nodes = []
    size = 1
    while size <= num_leaves:
        nodes += [range(first, first + size) for first in range(0, num_leaves - size + 1, size)]
        size *= 2
    return nodes


@pytest.mark.parametrize("num_leaves", [*range(1, 34), 63, 64, 65, 100])
def test_nodes_of_the_worst_leaf_of_an_explicit_tree(num_leaves: int) -> None:
    nodes = released_nodes(num_leaves)
    over = [sum(leaf in node for node in nodes) for leaf in range(num_leaves)]
    assert max(over) == over[0] == TreeAggregation(1.0, num_leaves, 0).nodes
    # The nodes that make up prefix sums are the only ones that are needed, and the first leaf is under all of these.
    needed = set()
    for length in range(1, num_leaves + 1):
        place = 0
        for level in reversed(range(length.bit_length())):
            if length >> level & 1:
                needed.add((place, 1 << level))
                place += 1 << level
    assert needed <= {(node.start, len(node)) for node in nodes}
    assert sum(start == 0 for start, _ in needed) == over[0]


@pytest.mark.thorough
def test_exact_gaussian_attained_by_the_first_leaf() -> None:
    """The vector of released nodes moves by its indicator of the leaf: that Gaussian pair's mu."""
    noise, leaves, restarts = 3.0, 13, 2
    moved = np.array([0 in node for node in released_nodes(leaves)], dtype=float)
    mu = math.sqrt((1 + restarts) * moved @ moved) / noise
    for relation, factor in ((SPECIAL, 1.0), (REPLACE, 2.0)):
        event = Event(TreeAggregation(noise, leaves, restarts), count=5)
        value = epsilon_for_delta([event], relation, 1e-6).value
        assert value.width < 1e-9 * value.upper
        assert value.upper == pytest.approx(gaussian_epsilon(factor * mu * math.sqrt(5), 1e-6), rel=1e-9)


def test_composes_with_gaussians_as_one() -> None:
    events = [Event(TreeAggregation(4.0, 7, 0)), Event(Gaussian(4.0), count=3)]
    composition = compose(events, SPECIAL)
    assert isinstance(composition.gaussian_only, GaussianLoss)
    assert composition.gaussian_only.mu == pytest.approx(math.sqrt(6) / 4, rel=1e-14)


def test_published_account_of_one_tree() -> None:
    """dp-accounting's Renyi divergence of a record in one tree: order h / (2 s^2)."""
    rdp = pytest.importorskip("dp_accounting.rdp")
    accountancy = pytest.importorskip("dp_accounting.privacy_accountant")
    event = pytest.importorskip("dp_accounting.dp_event").SingleEpochTreeAggregationDpEvent
    for leaves in (1, 2, 3, 31, 32, 33, 1000):
        orders = [2.0, 8.0, 32.0]
        accountant = rdp.RdpAccountant(orders, accountancy.NeighboringRelation.REPLACE_SPECIAL)
        accountant.compose(event(2.5, leaves))
        tilts = np.array(orders) - 1.0
        ours = (
            loss_of(Event(TreeAggregation(2.5, leaves, 0)), NeighboringRelation.REPLACE_SPECIAL).log_moment(tilts)
            / tilts
        )
        np.testing.assert_allclose(ours, accountant._rdp, rtol=1e-13)


def test_relations_that_move_other_records_are_refused() -> None:
    event = Event(TreeAggregation(1.0, 8, 0))
    with pytest.raises(Unsupported, match="moves the records after it") as caught:
        epsilon_for_delta([event], ADD_REMOVE, 1e-5)
    assert caught.value.code == "unsupported_relation"
    with pytest.raises(Unsupported, match="no amplification"):
        Event(TreeAggregation(1.0, 8, 0), DisjointBatches("independent"))


def test_same_bits_and_round_trip() -> None:
    numbers = [TreeAggregation(2, 8, 1), TreeAggregation(2.0, 8.0, np.int64(1)), TreeAggregation(np.float64(2), 8, 1)]  # type: ignore[arg-type]
    assert len({repr(each) for each in numbers}) == 1
    event = Event(numbers[0], count=3)
    assert event_from_json(event.to_json()) == event


def test_extremes_stay_numbers() -> None:
    for noise, leaves, restarts, count in ((0.05, 10**8, 10**8 - 1, 10**8), (1e3, 1, 0, 1)):
        event = Event(TreeAggregation(noise, leaves, restarts), count=count)
        for delta in (1e-30, 0.5):
            value = epsilon_for_delta([event], REPLACE, delta).value
            assert 0.0 <= value.lower <= value.upper < math.inf
        assert 0.0 <= delta_for_epsilon([event], REPLACE, 1.0).value.upper <= 1.0


def test_worked_number_of_the_page() -> None:
    value = epsilon_for_delta([Event(TreeAggregation(8.0, 1000, 2))], SPECIAL, 1e-6).value
    assert f"epsilon is {value.upper:.6f}" in PAGE.read_text()

"""Histories that Opacus itself wrote (histories/make_opacus_history.py), its numbers, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from accounting.accountant import epsilon_for_delta
from accounting.errors import InvalidValue, Unsupported
from accounting.events import Event, FullBatch, Gaussian, Poisson, ShuffledEpochs
from accounting.interoperability import Batches, OpacusHistory, import_opacus
from accounting.relations import NeighboringRelation

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
SPECIAL = NeighboringRelation.REPLACE_SPECIAL
REAL = json.loads((Path(__file__).parent / "histories" / "opacus_1_6_0.json").read_text())
CASES = [
    pytest.param(case, id=f"{index}-{case['state_dict']['mechanism']}") for index, case in enumerate(REAL["cases"])
]


@pytest.mark.parametrize("case", CASES)
def test_every_step_is_read(case: dict[str, Any]) -> None:
    history = OpacusHistory.from_state(case["state_dict"])
    events = history.events(Batches.POISSON)
    assert [(e.mechanism, e.sampling, e.count) for e in events] == [
        (Gaussian(noise), Poisson(rate), steps) for noise, rate, steps in case["state_dict"]["history"]
    ]


@pytest.mark.parametrize("case", CASES)
def test_reported_as_opacus_reports(case: dict[str, Any]) -> None:
    found = import_opacus(OpacusHistory.from_state(case["state_dict"]), ADD_REMOVE, REAL["delta"])
    exactness = 1e-3 if case["state_dict"]["mechanism"] == "prv" else 1e-7
    assert found.reported.epsilon == pytest.approx(case["epsilon"], rel=exactness)


@pytest.mark.parametrize("case", CASES)
def test_renyi_is_above_and_the_central_limit_below_the_truth(case: dict[str, Any]) -> None:
    found = import_opacus(OpacusHistory.from_state(case["state_dict"]), ADD_REMOVE, REAL["delta"])
    interval = epsilon_for_delta(found.events, ADD_REMOVE, REAL["delta"]).value
    unsound = {difference.code for difference in found.differences if difference.unsound}
    if case["state_dict"]["mechanism"] == "gdp":
        assert case["epsilon"] < interval.lower - 0.5
        assert unsound == {"central_limit"}
    else:
        assert case["epsilon"] > interval.upper
        assert not unsound


def test_shuffled_is_never_amplified() -> None:
    """The third history was recorded with poisson_sampling=False, and says nothing of it."""
    case = REAL["cases"][2]
    assert case["poisson_sampling"] is False
    history = OpacusHistory.from_state(case["state_dict"])
    found = import_opacus(history, SPECIAL, REAL["delta"], Batches.SHUFFLED)
    assert found.events == (Event(Gaussian(0.8), ShuffledEpochs(10), 50),)
    assert found.differences[0].code == "shuffled_charged_as_poisson"
    truth = epsilon_for_delta(found.events, SPECIAL, REAL["delta"]).value
    assert truth.lower > 1.5 * case["epsilon"]
    full = epsilon_for_delta([Event(Gaussian(0.8), count=5)], SPECIAL, REAL["delta"]).value
    assert truth == full
    with pytest.raises(Unsupported, match="replace_special"):
        epsilon_for_delta(found.events, ADD_REMOVE, REAL["delta"])


def test_replacing_a_record_is_not_what_opacus_means() -> None:
    history = OpacusHistory.from_state({"mechanism": "rdp", "history": [[2.0, 1.0, 3]]})
    found = import_opacus(history, NeighboringRelation.REPLACE_ONE, 1e-5)
    assert found.events == (Event(Gaussian(2.0), FullBatch(), 3),)
    assert found.reported.relation is ADD_REMOVE
    assert found.differences[-1].code == "add_or_remove_one"
    assert epsilon_for_delta(found.events, NeighboringRelation.REPLACE_ONE, 1e-5).value.lower > 1.5 * (
        found.reported.epsilon or 0.0
    )


@pytest.mark.parametrize(
    ("state", "pointer"),
    [
        ({"history": [[1.0, 0.1, 1]]}, ("mechanism",)),
        ({"mechanism": "rdp"}, ("history",)),
        ({"mechanism": "rdp", "history": []}, ("history",)),
        ({"mechanism": "rdp", "history": [[1.0, 0.1]]}, ("history", 0)),
        ({"mechanism": "rdp", "history": [[1.0, 0.1, 1], [0.0, 0.1, 1]]}, ("history", 1)),
        ({"mechanism": "rdp", "history": [[1.0, 1.5, 1]]}, ("history", 0)),
        ({"mechanism": "rdp", "history": [[1.0, 0.1, 1.5]]}, ("history", 0)),
    ],
)
def test_malformed_histories_are_pointed_at(state: dict[str, Any], pointer: tuple[str | int, ...]) -> None:
    with pytest.raises(InvalidValue) as refusal:
        OpacusHistory.from_state(state)
    assert refusal.value.pointer == pointer


def test_shuffled_batches_are_a_whole_number() -> None:
    history = OpacusHistory.from_state({"mechanism": "rdp", "history": [[1.0, 0.3, 10]]})
    with pytest.raises(InvalidValue, match="does not have this form"):
        history.events(Batches.SHUFFLED)


def test_noise_that_changes_where_an_epoch_ends() -> None:
    """Two passes with one noise, one with another, half a pass with a third: each record once in every one of them."""
    history = OpacusHistory.from_state(
        {"mechanism": "rdp", "history": [[4.0, 0.1, 20], [2.0, 0.1, 3], [2.0, 0.1, 7], [3.0, 0.05, 11]]}
    )
    events = history.events(Batches.SHUFFLED)
    assert events == (
        Event(Gaussian(4.0), ShuffledEpochs(10), 20),
        Event(Gaussian(2.0), ShuffledEpochs(10), 10),
        Event(Gaussian(3.0), ShuffledEpochs(20), 11),
    )
    passes = [Event(Gaussian(4.0), count=2), Event(Gaussian(2.0)), Event(Gaussian(3.0))]
    assert epsilon_for_delta(events, SPECIAL, 1e-5) == epsilon_for_delta(passes, SPECIAL, 1e-5)


@pytest.mark.parametrize(
    ("history", "words"),
    [
        ([[1.0, 0.1, 5], [2.0, 0.1, 10], [1.0, 0.1, 5]], "after 5 of the 10 batches"),
        ([[1.0, 0.1, 20], [2.0, 0.1, 13], [1.0, 0.1, 7]], "after 3 of the 10 batches"),
        ([[1.0, 0.1, 15], [1.0, 0.2, 5]], "after 5 of the 10 batches"),
        ([[1.0, 0.1, 15], [1.0, 1.0, 5]], "after 5 of the 10 batches"),
    ],
)
def test_noise_that_changes_inside_an_epoch_is_refused(history: list[list[float]], words: str) -> None:
    """Half an epoch, an epoch, half an epoch: a record may be in both of the first kind, or twice in the second."""
    with pytest.raises(Unsupported, match=words) as refusal:
        OpacusHistory.from_state({"mechanism": "rdp", "history": history}).events(Batches.SHUFFLED)
    assert refusal.value.pointer == ("batches",)


def test_a_number_that_opacus_has_not() -> None:
    tiny = OpacusHistory.from_state({"mechanism": "gdp", "history": [[0.01, 0.5, 10]]})
    assert tiny.reported_epsilon(1e-5) is None
    two = OpacusHistory.from_state({"mechanism": "gdp", "history": [[1.0, 0.5, 10], [2.0, 0.5, 10]]})
    assert two.reported_epsilon(1e-5) is None

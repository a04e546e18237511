"""Which of a run's points is released."""

from __future__ import annotations

import json
from typing import Any

import pytest

from accounting.canonical import canonical_bytes
from accounting.errors import InvalidValue
from calibrators.release import AverageIterate, LastIterate, RandomIterate, Release, WeightedAverage, release_from_json

EVERY: list[Release] = [LastIterate(), AverageIterate(), RandomIterate(), WeightedAverage((0.25, 0.0, 0.75))]


@pytest.mark.parametrize("release", EVERY, ids=lambda release: release.kind)
def test_a_release_reads_back_from_its_json_and_from_its_canonical_bytes(release: Release) -> None:
    assert release_from_json(release.to_json()) == release
    assert release_from_json(json.loads(canonical_bytes({"release": release.to_json()}))["release"]) == release


def test_weights_may_miss_one_by_rounding_and_no_more() -> None:
    assert WeightedAverage((0.1,) * 10).weights == (0.1,) * 10
    with pytest.raises(InvalidValue, match="weights must be a list of 1 to"):
        WeightedAverage(())
    for weights in ((0.5, 0.49), (0.5, 0.5, 1e-8)):
        with pytest.raises(InvalidValue, match="sum to 1") as caught:
            WeightedAverage(weights)
        assert caught.value.pointer == ("release", "weights")


@pytest.mark.parametrize("weights", [(1.5, -0.5), (float("nan"), 1.0), (True, 0.0), (float("inf"), 0.0)])
def test_weights_are_shares(weights: Any) -> None:
    with pytest.raises(InvalidValue, match="weights"):
        WeightedAverage(weights)


@pytest.mark.parametrize("value", [{}, {"kind": "best"}])
def test_a_kind_that_there_is_not_is_refused_with_those_there_are(value: dict[str, Any]) -> None:
    """Above all the best iterate, which nobody can single out privately."""
    with pytest.raises(InvalidValue, match="last, average, random or weighted_average") as caught:
        release_from_json(value)
    assert caught.value.pointer == ("release", "kind")

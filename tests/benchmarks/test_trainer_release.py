"""What an exact release costs: measured in turns in one process, and judged by its goal."""

from __future__ import annotations

import copy
import math
import re
from typing import Any

import numpy as np
import pytest

from benchmarks import report
from benchmarks.trainer import release, work
from benchmarks.trainer.work import Task


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    return report.read("release")


def test_noise_is_measured_on_both_sides() -> None:
    found = release.noise(28, 2)
    assert found["exponent"] == 28
    assert found["ratio"]["rounds"] == 2
    assert all(found[f"nanoseconds_{side}"] > 0.0 for side in ("ours", "numpy"))


@pytest.mark.parametrize("dtype", release.DTYPES)
@pytest.mark.parametrize("model", work.MODELS)
@pytest.mark.one_in(1000)
def test_steps_are_measured_on_both_sides(model: str, dtype: str) -> None:
    rng = np.random.default_rng(1)
    features, labels = rng.random((300, work.FEATURES), dtype=np.float32), rng.integers(10, size=300)
    found = release.step(Task(model, 64), dtype, features, labels, 2)
    assert (found["model"], found["dtype"], found["ratio"]["rounds"]) == (model, dtype, 2)
    assert all(found[f"milliseconds_{side}"] > 0.0 for side in ("private", "plain"))


def test_plain_steps_are_real_ones() -> None:
    """The step that the private one is compared with moves every layer, and makes the labels likelier."""
    rng = np.random.default_rng(2)
    features = rng.random((64, work.FEATURES), dtype=np.float32)
    labels = (features[:, 0] > 0.5).astype(np.int64)
    for model, layers in (("softmax", 1), ("mlp", 2)):
        plain = release.Plain(Task(model, 64), features, labels)
        before = [weight.copy() for weight in plain.weights], plain.loss()
        for _ in range(300):
            plain.step()
        assert len(plain.weights) == layers
        assert all(np.any(new != old) for new, old in zip(plain.weights, before[0], strict=True))
        assert plain.loss() < before[1]


def test_the_goal_is_missed_where_one_scale_misses_it(measured: dict[str, Any]) -> None:
    for row in measured["noise"]:
        row["ratio"] = row["ratio"] | {"ratio": release.OVER_NUMPY}
    assert release.goals(measured)[0]["met"]
    spoilt = copy.deepcopy(measured)
    spoilt["noise"][-1]["ratio"]["ratio"] = math.nextafter(release.OVER_NUMPY, 2.0)
    assert not release.goals(spoilt)[0]["met"]
    assert release.release_section(spoilt | {"goals": release.goals(spoilt)}) != release.release_section(measured)


def test_the_results_say_when_where_and_with_what_they_were_measured() -> None:
    found = report.read("release")
    assert found["quick"] is False, "run: make bench-trainer"
    assert re.fullmatch(r"[0-9a-f]{40}", found["commit"])
    assert [row["exponent"] for row in found["noise"]] == list(release.EXPONENTS)
    assert len(found["steps"]) == len(work.MODELS) * len(release.DTYPES)
    assert found["goals"] == release.goals(found)

"""Sides are started, stopped and timed from outside: exactly the steps that were asked for, in turns."""

from __future__ import annotations

import io
import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu import device, plain
from benchmarks.trainer import rounds, work
from benchmarks.trainer.pace import Pace
from benchmarks.trainer.rounds import Scale, child_process, figures, side_by_side
from benchmarks.trainer.work import Task

SMALL = 500


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    work.write_data(tmp_path, rows=SMALL)
    return tmp_path


@pytest.mark.parametrize(("warm", "timed"), [(2, 3), (0, 3), (1, 1)])
def test_exactly_the_steps_that_are_asked_for_are_timed(warm: int, timed: int) -> None:
    steps = itertools.count(1)
    done = 0
    answers = io.StringIO()
    command = json.dumps({"warm": warm, "steps": timed})
    pace = Pace(iter([command, command, json.dumps({"warm": 0, "steps": 0})]), answers, clock=lambda: float(done))
    pace()
    while not pace.over:
        done = next(steps)
        pace()
    assert done == 2 * (warm + timed)
    lines = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert [line["seconds"] for line in lines] == [timed, timed]
    assert all(line["peak_bytes"] > 0 for line in lines)


def test_the_clock_is_read_after_the_device_has_settled() -> None:
    moments: list[str] = []

    def clock() -> float:
        moments.append("clock")
        return 0.0

    pace = Pace(iter(['{"warm": 0, "steps": 1}', '{"warm": 0, "steps": 0}']), io.StringIO(), clock)
    pace.settle = lambda: moments.append("settled")
    pace()
    pace()
    assert moments == ["settled", "clock"] * (len(moments) // 2)
    assert len(moments) >= 4


@pytest.mark.thorough
@pytest.mark.parametrize("model", work.MODELS)
@pytest.mark.one_in(1000)
def test_our_side_takes_turns_in_a_process_of_its_own(folder: Path, model: str) -> None:
    measured = side_by_side(Task(model, 256), folder, Scale(2, 0.0, 2), ("ours",), {"ratio": ("ours", "ours")})
    assert measured["steps"] == {"ours": 2}
    assert len(measured["sides"]["ours"]["each_round"]) == 2
    assert measured["ratios"]["ratio"]["ratio"] == 1.0


@pytest.mark.thorough
def test_the_memory_of_a_process_counts_its_data(folder: Path) -> None:
    with child_process("ours", Task("softmax", 256), folder) as child:
        before = child.description["libraries_bytes"]
        assert child.run(0, 2).peak_bytes >= before + 4 * SMALL * work.FEATURES


def test_a_side_that_ends_without_an_answer_fails_the_benchmark(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="'ours' ended without an answer"),
        child_process("ours", Task("softmax", 256), tmp_path / "nowhere") as child,
    ):
        child.run(0, 1)


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    ours = {"ours": [2.0, 2.0, 2.0], "ours_cut": [1.0, 3.0, 4.0], "ours_fixed": [1.0, 1.0, 1.0]}
    measured = {"torch": [1.0, 2.0, 4.0], **ours, "ghost": [4.0, 6.0, 8.0], "hooks": [20.0] * 3}
    found = figures(measured)
    assert found["sides"]["torch"] == {"milliseconds": 2.0, "each_round": [1.0, 2.0, 4.0]}
    assert {name: spread["ratio"] for name, spread in found["ratios"].items()} == {
        "over_torch": 1.0,
        "cut_over_torch": 1.0,
        "fixed_over_torch": 0.5,
        "ghost_over_ours": 3.0,
        "hooks_over_ours": 10.0,
    }
    assert found["ratios"]["over_torch"] == {"ratio": 1.0, "smallest_ratio": 0.5, "largest_ratio": 2.0, "rounds": 3}


def test_every_ratio_is_of_sides_that_are_measured() -> None:
    assert {side for pair in rounds.RATIOS.values() for side in pair} == set(work.SIDES)


@pytest.mark.parametrize("model", work.MODELS)
def test_the_plain_step_on_a_device_descends_the_mean_loss(model: str) -> None:
    draw = np.random.default_rng(3)
    inputs, labels = draw.random((7, work.FEATURES)), draw.integers(0, work.CLASSES, 7)
    parameters = [draw.normal(scale=0.05, size=array.shape) for array in plain.initial(np, model)]
    before = [array.copy() for array in parameters]
    plain.step(np, parameters, inputs, labels)
    for number, (old, new) in enumerate(zip(before, parameters, strict=True)):
        place = np.unravel_index(np.argmax(np.abs(new - old)), old.shape)
        slope = 0.0
        for sign in (1.0, -1.0):
            moved = [array.copy() for array in before]
            moved[number][place] += sign * 1e-5
            slope += sign * mean_loss(moved, inputs, labels) / 2e-5
        assert (old - new)[place] == pytest.approx(work.STEP_SIZE * slope, rel=1e-4)


def mean_loss(parameters: list[np.ndarray], inputs: np.ndarray, labels: np.ndarray) -> float:
    """Softmax cross-entropy, written as its definition."""
    values = inputs
    for weights, bias in zip(parameters[:-2:2], parameters[1:-2:2], strict=True):
        values = np.maximum(values @ weights + bias, 0.0)
    logits = values @ parameters[-2] + parameters[-1]
    return float(np.mean([np.log(np.exp(row).sum()) - row[label] for row, label in zip(logits, labels, strict=True)]))


def test_without_cupy_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(device.NoGpu, match="CuPy is not installed"):
        device.cupy()

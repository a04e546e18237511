"""From what was measured to goals and the parts of docs/measured.md about training steps and the GPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from benchmarks.gpu.markdown import gpu_section
from benchmarks.trainer.goals import goals
from benchmarks.trainer.markdown import trainer_section
from benchmarks.trainer.rounds import RATIOS
from benchmarks.trainer.rounds import figures as speeds
from benchmarks.trainer.work import SIDES, TASKS, Task

Figures = dict[str, Any]


def speed(task: Task) -> Figures:
    """Ours exactly as slow as the goals allow, or a little faster than the goal that is a strict one."""
    hooks = 5.0 if task.model == "softmax" else 50.0
    ours = dict.fromkeys(("ours", "ours_cut", "ours_fixed"), [1.3] * 3)
    measured = {"torch": [1.0] * 3, **ours, "ghost": [1.4] * 3, "hooks": [1.3 * hooks] * 3}
    return asdict(task) | {"cores": 2, "steps": dict.fromkeys(SIDES, 9)} | speeds(measured)


def memory(task: Task) -> Figures:
    ours = dict.fromkeys(("ours", "ours_cut", "ours_fixed"), 300)
    peaks = {"torch": 200, **ours, "ghost": 400, "hooks": 500}
    sides = {side: {"peak_bytes": peak * 2**20, "libraries_bytes": 2**26} for side, peak in peaks.items()}
    return asdict(task) | {"steps": 40, "sides": sides, "over_torch": 1.5, "data_over_torch": 1.7}


def figures() -> Figures:
    """Every section, each goal met."""
    measured: Figures = {
        "benchmark": "trainer",
        "command": "make bench-trainer",
        "quick": False,
        "load_average_before": 0.25,
        "date": "2026-11-21",
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "uncommitted_changes": False,
        "versions": {"python": "3.11.7", "numpy": "2.4.6", "torch": "2.13.0"},
        "machine": {"cpu": "a processor", "cores": 2, "system": "Linux x86_64"},
        "data": {"rows": 60000, "features": 784, "classes": 10, "dtype": "float32"},
        "speed": [speed(task) for task in TASKS],
        "memory": [memory(task) for task in TASKS],
    }
    return measured | {"goals": goals(measured)}


def ratio(row: int, name: str, value: float) -> Callable[[Figures], None]:
    def spoil(spoilt: Figures) -> None:
        spoilt["speed"][row]["ratios"][name]["ratio"] = value

    return spoil


def test_every_goal_can_be_met_and_can_be_missed_at_either_batch_size() -> None:
    assert all(goal["met"] for goal in figures()["goals"])
    spoilers: list[tuple[str, str, Callable[[Figures], None]]] = []
    for index, model in enumerate(("softmax", "softmax", "perceptron", "perceptron")):
        torch, hooks = (1.31, 4.99) if model == "softmax" else (1.61, 49.9)
        spoilers += [
            (model, "private step, Poisson batches, over", ratio(index, "over_torch", torch)),
            (model, "Poisson batches that are cut, over", ratio(index, "cut_over_torch", torch)),
            (model, "fixed size, over", ratio(index, "fixed_over_torch", torch)),
            (model, "hooks", ratio(index, "hooks_over_ours", hooks)),
            (model, "ghost", ratio(index, "ghost_over_ours", 1.0)),
        ]
    spoilers += [("", "peak memory", lambda spoilt: spoilt["memory"][3].update(over_torch=1.51))]
    for model, words, spoil in spoilers:
        spoilt = figures()
        spoil(spoilt)
        (missed,) = [goal for goal in goals(spoilt) if not goal["met"]]
        assert words in missed["what"]
        assert model in missed["what"]


@pytest.mark.parametrize(
    "path",
    [
        ("commit",),
        ("uncommitted_changes",),
        ("versions", "torch"),
        ("machine", "cpu"),
        ("load_average_before",),
        ("goals", 0, "met"),
        ("goals", 6, "measured"),
        *(("speed", 1, "sides", side, "milliseconds") for side in SIDES),
        *(("speed", 2, "ratios", name, "ratio") for name in RATIOS),
        ("memory", 3, "sides", "ours", "peak_bytes"),
        ("memory", 0, "data_over_torch"),
        ("memory", 0, "steps"),
    ],
    ids=repr,
)
def test_a_figure_that_changes_changes_the_section(path: tuple[str | int, ...]) -> None:
    measured = figures()
    changed = copy.deepcopy(measured)
    *parents, last = path
    target: Any = changed
    for key in parents:
        target = target[key]
    value = target[last]
    if isinstance(value, bool):
        target[last] = not value
    else:
        target[last] = "else" if isinstance(value, str) else value * 8 + 7
    assert trainer_section(changed) != trainer_section(measured)


def gpu_figures(ratio: float = 1.3) -> Figures:
    row = asdict(TASKS[0]) | {
        "sides": {"cupy": {"milliseconds": 0.25}, "ours_on_gpu": {"milliseconds": 0.5}, "ours": {"milliseconds": 2.0}},
        "ratios": {"over_cupy": {"ratio": ratio, "smallest_ratio": 1.0, "largest_ratio": 2.0, "rounds": 3}},
    }
    names = {"commit": "0" * 40, "date": "2026-11-21", "gpu": "a device", "uncommitted_changes": False}
    return {"ran": True, "goal": 1.3, "versions": {"python": "3.11.7"}, "speed": [row], **names}


def test_without_a_gpu_the_section_says_not_run_and_has_no_figure_but_the_goal() -> None:
    (line,) = gpu_section({"ran": False, "goal": 1.3})
    assert "not run: no GPU" in line
    assert "met" not in line
    assert "missed" not in line


@pytest.mark.parametrize(("ratio", "verdict"), [(1.3, "| met | 2.000 |"), (1.31, "| **missed** | 2.000 |")])
def test_on_a_gpu_the_goal_is_met_or_missed(ratio: float, verdict: str) -> None:
    assert gpu_section(gpu_figures(ratio))[-1].endswith(verdict)


def test_every_row_of_a_table_has_as_many_cells_as_its_header() -> None:
    for lines in (trainer_section(figures()), gpu_section(gpu_figures())):
        columns = 0
        for line in lines:
            cells = line.count("|")
            assert not columns or cells in (0, columns), line
            columns = cells

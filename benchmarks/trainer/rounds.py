"""This module starts a process for each side and times the sides in turns, so that a slow moment of the machine affects
all of them."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from subprocess import PIPE
from typing import IO, Any

from benchmarks import report
from benchmarks.trainer.child import CORES
from benchmarks.trainer.pace import Command, Timed
from benchmarks.trainer.work import SIDES, Task

#: The number of steps before the timed ones, divided by the number of timed steps. They are not timed, and use up what
#: a side prepared while it waited.
WARM_SHARE = 0.5
#: The pause in seconds between the turns of two sides. After it, the threads of the first side no longer wait actively.
PAUSE_S = 0.1
MOST_STEPS = 5_000
MEMORY_STEPS = 40

#: The name of each ratio, and the sides in its numerator and denominator.
Ratios = Mapping[str, tuple[str, str]]
RATIOS: Ratios = {
    "over_torch": ("ours", "torch"),
    "cut_over_torch": ("ours_cut", "torch"),
    "fixed_over_torch": ("ours_fixed", "torch"),
    "hooks_over_ours": ("hooks", "ours"),
    "ghost_over_ours": ("ghost", "ours"),
}


@dataclass(frozen=True, slots=True)
class Scale:
    """The sizes that decide how much one run of the benchmark measures.

    Attributes:
        rounds: The number of rounds; every side is timed once in each of them.
        seconds: The time for the timed steps of one side in one round.
        least_steps: The least number of timed steps, even if they take longer.
    """

    rounds: int
    seconds: float
    least_steps: int


class Child:
    """The process of a side that is ready to take steps.

    Attributes:
        description: The description that the side sent when it was ready.
    """

    def __init__(self, side: str, commands: IO[str], answers: IO[str]) -> None:
        self._side, self._commands, self._answers = side, commands, answers
        self.description: Mapping[str, Any] = self._answer()

    def run(self, warm: int, steps: int) -> Timed:
        """Let the side take ``warm`` steps and then ``steps`` timed steps, and return its answer."""
        self._send(Command(warm, steps))
        return Timed(**self._answer())

    def stop(self) -> None:
        """Let the process end."""
        self._send(Command(0, 0))

    def _send(self, command: Command) -> None:
        self._commands.write(json.dumps(asdict(command)) + "\n")
        self._commands.flush()

    def _answer(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line:
            raise RuntimeError(f"the process of {self._side!r} ended without an answer; its error is above")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def child_process(side: str, task: Task, folder: Path) -> Iterator[Child]:
    """Start a `Child` with two threads on two cores, like the others, and end it afterwards.

    Raises:
        RuntimeError: If the process ends before it is ready.
    """
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(CORES))
    command = [sys.executable, "-m", "benchmarks.trainer.child", side, task.model, str(task.batch_size), str(folder)]
    with subprocess.Popen(
        command, cwd=report.ROOT, env=os.environ | threads, stdin=PIPE, stdout=PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            child = Child(side, process.stdin, process.stdout)
            yield child
            child.stop()
            process.wait(30.0)
        finally:
            process.kill()


def side_by_side(
    task: Task, folder: Path, scale: Scale, sides: Sequence[str] = SIDES, ratios: Ratios = RATIOS
) -> dict[str, Any]:
    """Return the milliseconds for each step of every side, round by round, and the ratios of the rounds."""
    with ExitStack() as stack:
        children = {side: stack.enter_context(child_process(side, task, folder)) for side in sides}
        steps = {side: _steps_for(child, scale) for side, child in children.items()}
        measured: dict[str, list[float]] = {side: [] for side in sides}
        for turn in range(scale.rounds):
            for side in sides[:: 1 if turn % 2 == 0 else -1]:
                time.sleep(PAUSE_S)
                timed = children[side].run(_warm(steps[side]), steps[side])
                measured[side].append(1e3 * timed.seconds / steps[side])
        cores = {child.description["cores"] for child in children.values()}
    return asdict(task) | {"cores": cores.pop(), "steps": steps} | figures(measured, ratios)


def figures(measured: Mapping[str, Sequence[float]], ratios: Ratios = RATIOS) -> dict[str, Any]:
    """Return the medians of the sides and of the rounds' ratios, from the milliseconds for each step in each round."""
    sides = {
        side: {"milliseconds": statistics.median(rounds), "each_round": list(rounds)}
        for side, rounds in measured.items()
    }
    spreads = {
        name: spread([over / under for over, under in zip(measured[first], measured[second], strict=True)])
        for name, (first, second) in ratios.items()
    }
    return {"sides": sides, "ratios": spreads}


def spread(ratios: Sequence[float]) -> dict[str, Any]:
    """Return the median, the smallest and the largest of the rounds' ratios.

    >>> spread([3.0, 1.0, 2.0])
    {'ratio': 2.0, 'smallest_ratio': 1.0, 'largest_ratio': 3.0, 'rounds': 3}
    """
    return {
        "ratio": statistics.median(ratios),
        "smallest_ratio": min(ratios),
        "largest_ratio": max(ratios),
        "rounds": len(ratios),
    }


def memory(task: Task, folder: Path) -> dict[str, Any]:
    """Return the largest resident memory of each side in a fresh process that reads the same data and does the same
    steps.

    The whole process is counted: interpreter, libraries, the array of features as it is read, and all that training
    takes. ``libraries_bytes`` is its memory before it reads the data.
    """
    sides: dict[str, dict[str, int]] = {}
    for side in SIDES:
        with child_process(side, task, folder) as child:
            peak = child.run(0, MEMORY_STEPS).peak_bytes
            sides[side] = {"peak_bytes": peak, "libraries_bytes": child.description["libraries_bytes"]}
    return asdict(task) | {
        "steps": MEMORY_STEPS,
        "sides": sides,
        "over_torch": sides["ours"]["peak_bytes"] / sides["torch"]["peak_bytes"],
        "data_over_torch": _data_bytes(sides["ours"]) / _data_bytes(sides["torch"]),
    }


def _data_bytes(side: Mapping[str, int]) -> int:
    return side["peak_bytes"] - side["libraries_bytes"]


def _steps_for(child: Child, scale: Scale) -> int:
    """Return how many steps fill a round. Trial runs with more and more steps show it, since the first steps take the
    longest. Their times are dropped."""
    tried = scale.least_steps
    while True:
        seconds = child.run(0, tried).seconds
        if seconds >= scale.seconds / 4 or tried >= MOST_STEPS:
            return max(scale.least_steps, min(MOST_STEPS, round(scale.seconds * tried / seconds)))
        tried *= 4


def _warm(steps: int) -> int:
    return max(1, round(WARM_SHARE * steps))

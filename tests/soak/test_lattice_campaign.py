"""Lattice and exponent distinguishers with many trials: releases show no more than was charged, controls do."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context
from typing import Any

import pytest

from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.plan import Clip
from calibrators.registry import calibrate
from calibrators.spec import Spec
from tests.soak.report import write_report
from tests.trainer.lattice import CONTROLS, epsilon_shown, mechanism_of

#: A side; half of them choose the distinguisher and its threshold, and the other half is judged.
TRIALS = 200
EPSILON, DELTA, ALPHA = 0.5, 1e-6, 0.001

_GRADIENTS: dict[str, Any] = {
    "dataset_size": 4,
    "sampling": "full_batch",
    "gradient_bound": Clip(1.0),
    "neighboring_relation": NeighboringRelation.ADD_OR_REMOVE_ONE,
}
#: The algorithm, parameters, and its calibration.
RUNS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "one_step": ("dp_sgd", 100_000, _GRADIENTS | {"iterations": 1, "step_size": 0.5}),
    "many_steps": ("dp_sgd", 20_000, _GRADIENTS | {"iterations": 4, "step_size": 1e-4}),
    "output_perturbation": (
        "dp_sgd_output",
        60_000,
        {
            "dataset_size": 1,
            "iterations": 20,
            "step_size": 0.2,
            "assumptions": {
                "holder_exponent": 1.0,
                "holder_constant": 4.0,
                "gradient_at_zero": 2.0,
                "radius": 0.4,
            },
        },
    ),
}


RELEASE = "release"


def shown(name: str, world: str) -> float:
    """What the best distinguisher shows of a run: of the release, or of a control."""
    algorithm, dimension, given = RUNS[name]
    spec = Spec(**{"target": ApproximateDpTarget(EPSILON, DELTA), "dimension": dimension} | given)
    mechanism = mechanism_of(calibrate(algorithm, spec).plan, dimension)
    with CONTROLS.get(world, nullcontext)():
        return round(epsilon_shown(mechanism, TRIALS, DELTA, 1.0 - ALPHA), 4)


@pytest.mark.soak
def test_last_bits_of_many_runs() -> None:
    """With probability 1 - ALPHA each of the three shows no more than it may, if it keeps what was charged."""
    worlds = [*CONTROLS, RELEASE]
    with ProcessPoolExecutor(len(RUNS), get_context("spawn")) as pool:
        answers = {(name, world): pool.submit(shown, name, world) for world in worlds for name in RUNS}
    released = {name: answers[name, RELEASE].result() for name in RUNS}
    controls = {f"{name}, {world}": answers[name, world].result() for world in CONTROLS for name in RUNS}
    write_report(
        "lattice",
        "make soak",
        {
            "trials_a_side": TRIALS,
            "confidence": 1.0 - ALPHA,
            "epsilon_charged": EPSILON,
            "delta": DELTA,
            "largest_epsilon_shown": max(released.values()),
            "smallest_epsilon_of_controls": min(controls.values()),
            "shown": released,
            "controls": controls,
        },
    )
    assert max(released.values()) <= EPSILON
    assert min(controls.values()) > EPSILON

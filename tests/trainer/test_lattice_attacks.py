"""Attacks on the last bits of what is released, with fixed keys; more trials are in `make soak`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.plan import Clip
from calibrators.registry import calibrate
from calibrators.spec import Spec
from tests.trainer.lattice import CONTROLS, epsilon_shown, mechanism_of

#: The more coordinates, the more of them nearly cancel: enough for noise in floating point to be caught each time.
DIMENSION = 40_000
_DIMENSIONS = {"output perturbation": 90_000, "one step in float32": 80_000, "blocks": 25_000, "trees": 25_000}
#: A side; half of them are judged, of which twelve of twelve show an epsilon of 1.02.
TRIALS = 24
EPSILON, DELTA, CONFIDENCE = 0.5, 1e-6, 0.95

_ADDED: dict[str, Any] = {
    "dataset_size": 4,
    "sampling": "full_batch",
    "gradient_bound": Clip(1.0),
    "neighboring_relation": NeighboringRelation.ADD_OR_REMOVE_ONE,
}
_LP = {"norm_order": 1.5, "lipschitz": 0.8, "radius": 0.5}
_SMOOTH = {"holder_exponent": 1.0, "holder_constant": 4.0, "gradient_at_zero": 2.0, "radius": 0.4}
_WEAKLY_CONVEX = {"lipschitz": 0.8, "weak_convexity": 2.0, "radius": 0.3, "inner_iterations": 2.0}

#: The algorithm, its calibration, and whether every record is another one: where the noise is so large that one alone
#: would not show in the controls.
CASES: dict[str, tuple[str, dict[str, Any], bool]] = {
    "one step": ("dp_sgd", _ADDED | {"iterations": 1, "step_size": 0.5}, False),
    "one step in float32": ("dp_sgd", _ADDED | {"iterations": 1, "step_size": 0.5}, False),
    "iterates seen": ("dp_sgd", _ADDED | {"iterations": 3, "step_size": 1e-4}, False),
    "output perturbation": (
        "dp_sgd_output",
        {"dataset_size": 1, "iterations": 12, "step_size": 0.2, "assumptions": _SMOOTH},
        False,
    ),
    "variance reduction": (
        "dp_svrg",
        {
            "dataset_size": 4,
            "batch_size": 4,
            "iterations": 1,
            "gradient_bound": Clip(1.0),
            "step_size": 1e-4,
            "assumptions": {"inner_iterations": 2.0},
        },
        True,
    ),
    "medians": (
        "coordinatewise_mean",
        {"dataset_size": 4, "assumptions": {"truncation_radius": 1.0, "num_groups": 1.0}},
        False,
    ),
    "blocks": ("proximal_weakly_convex", {"dataset_size": 4, "iterations": 2, "assumptions": _WEAKLY_CONVEX}, True),
    "mirror steps": ("noisy_mirror_descent", {"dataset_size": 4, "iterations": 1, "assumptions": _LP}, True),
    "trees": (
        "noisy_sfw_lp",
        {"dataset_size": 8, "iterations": 1, "assumptions": _LP | {"smoothness": 1.5}, "variant": "batch_tree"},
        True,
    ),
}


def shown(case: str) -> float:
    """What the best distinguisher shows of a case, as the trainer is now."""
    algorithm, given, every_record = CASES[case]
    dimension = _DIMENSIONS.get(case, DIMENSION)
    spec = Spec(**{"target": ApproximateDpTarget(EPSILON, DELTA), "dimension": dimension} | given)
    plan = calibrate(algorithm, spec).plan
    if case.endswith("float32"):
        plan = replace(plan, dtype="float32")
    mechanism = mechanism_of(plan, dimension, every_record=every_record)
    return epsilon_shown(mechanism, TRIALS, DELTA, CONFIDENCE)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.one_in(4)
def test_last_bits_show_no_more_than_was_charged(case: str) -> None:
    assert shown(case) <= EPSILON


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.one_in(6)
def test_noise_that_leaves_a_lattice_is_caught(case: str, control: str) -> None:
    with CONTROLS[control]():
        assert shown(case) > EPSILON

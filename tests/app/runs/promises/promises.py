"""What each algorithm promises, on a problem that satisfies its assumptions and has a known optimum.

An algorithm whose subject in `tests/conformance/trainers/subjects` has a promise of its own needs no entry here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.app.runs.promises.laws import absolute, alike, corners, logistic, squared
from tests.app.runs.promises.promise import Promise, frank_wolfe_gap, gradient_norm, near_stationary
from tests.conformance.trainers.subjects import SUBJECTS

CLOSENESS, STATIONARITY = near_stationary(radius=1.0, weak_convexity=0.25)
LARGE_CLOSENESS, LARGE_STATIONARITY = near_stationary(radius=1.0, weak_convexity=0.5)
FAR, NEAR = logistic(np.array([2.0, -1.0])), logistic(np.array([0.8, -0.4]))
RIDGE = logistic(np.array([2.0, -1.0]), penalty=0.5)
MEAN = corners()
_L2 = {"kind": "l2", "strength": RIDGE.penalty}
_FULL = {"sampling": "full_batch", "iterations": 400}
_NEARLY_ALIKE = {"deviation_tau0": 0.15}
_IN_A_BALL = {"failure_probability": 0.1}
#: About the mean (0.9, -0.8): (0.95 * 0.1^4 + 0.05 * 1.9^4)^(1/4) = 0.90, (0.1 * 1.8^4 + 0.9 * 0.2^4)^(1/4) = 1.02.
_MOMENTS = {"moment_order": 4, "coordinate_moment_bound": 1.03, "mean_bound": 1.3}
_ADAM = "the paper proves none of its variants with moments"
_LOCALIZED = "it says nothing below some 100000 records, and as many gradients as their square would have to be taken"


def _zcdp(rho: float) -> dict[str, Any]:
    return {"kind": "zcdp", "rho": rho}


def _approximate(epsilon: float) -> dict[str, Any]:
    return {"kind": "approximate_dp", "epsilon": epsilon, "delta": 1e-6}


def _clip(max_grad_norm: float) -> dict[str, Any]:
    return {"kind": "clip", "max_grad_norm": max_grad_norm}


PROMISES: dict[str, Promise] = {
    **{name: subject.promise for name, subject in SUBJECTS.items() if subject.promise is not None},
    "dp_sgd": Promise(
        alike(),
        2000,
        {**_FULL, "gradient_bound": _clip(0.6), "target": _zcdp(1), "assumptions": _NEARLY_ALIKE},
        of_the_population=False,
        stationarity=gradient_norm,
    ),
    "dp_nsgd": Promise(
        alike(),
        2000,
        {
            **_FULL,
            "gradient_bound": {"kind": "normalize", "regularizer": 0.5},
            "target": _zcdp(1),
            "assumptions": _NEARLY_ALIKE,
        },
        of_the_population=False,
        stationarity=gradient_norm,
    ),
    "dp_adam": Promise(
        FAR,
        1000,
        {
            **_FULL,
            "iterations": 50,
            "gradient_bound": _clip(1),
            "target": _zcdp(1),
            "hyperparameters": {"step_size": 0.05},
        },
        unbounded=_ADAM,
    ),
    "dp_nadam": Promise(
        FAR,
        1000,
        {
            **_FULL,
            "iterations": 50,
            "gradient_bound": {"kind": "normalize", "regularizer": 0.5},
            "target": _zcdp(1),
            "hyperparameters": {"step_size": 0.05},
        },
        unbounded=_ADAM,
    ),
    "dp_sgd_gradient": Promise(
        FAR,
        4000,
        {**_FULL, "iterations": 200, "target": _zcdp(0.5), "assumptions": {"radius": 3, **_IN_A_BALL}},
        of_the_population=False,
    ),
    "dp_sgd_output": Promise(
        NEAR,
        4000,
        {"target": _approximate(8), "assumptions": {"radius": 1, **_IN_A_BALL}},
        of_the_population=False,
    ),
    "dp_gd": Promise(
        squared(),
        4000,
        {"gradient_bound": _clip(4), "target": _zcdp(0.5), "assumptions": {"pl_constant": 0.3}},
        of_the_population=False,
        runs=6,
    ),
    "dp_svrg": Promise(
        RIDGE,
        1000,
        {"iterations": 2, "gradient_bound": _clip(1.5), "target": _approximate(4), "penalty": _L2},
        of_the_population=False,
    ),
    "dp_svrg_pp": Promise(
        FAR,
        1000,
        {
            "iterations": 3,
            "gradient_bound": _clip(1.5),
            "target": _approximate(4),
            "assumptions": {"initial_distance": 2.5},
        },
        of_the_population=False,
    ),
    "dp_accmd": Promise(
        FAR,
        4000,
        {"gradient_bound": _clip(1.5), "target": _zcdp(0.5), "assumptions": {"radius": 4}},
        of_the_population=False,
    ),
    "clipped_acsa": Promise(FAR, 4000, {"target": _zcdp(0.5), "assumptions": {"diameter": 6}}),
    "clipped_mean": Promise(MEAN, 200, {"target": _zcdp(0.08)}, runs=8),
    "shuffle_vector_mean": Promise(MEAN, 4000, {"target": _approximate(20)}, runs=8),
    "coordinatewise_mean": Promise(MEAN, 4000, {"target": _zcdp(0.5), "assumptions": _MOMENTS}),
    "shuffle_coordinatewise_mean": Promise(
        MEAN, 10000, {"target": _approximate(8), "assumptions": {"num_groups": 10, **_MOMENTS}}
    ),
    "clipped_prox_sgd": Promise(
        RIDGE, 4000, {"target": _zcdp(0.5), "penalty": _L2, "assumptions": {"pl_constant": RIDGE.penalty}}
    ),
    "clipped_sgd_strongly_convex": Promise(
        RIDGE, 4000, {"target": _zcdp(0.5), "penalty": _L2, "assumptions": {"diameter": 4}}
    ),
    "localized_clipped_subgradient": Promise(
        NEAR,
        300,
        {"target": _zcdp(2), "assumptions": {"diameter": 2, "localization_power": 1}},
        vacuous=_LOCALIZED,
    ),
    "localized_clipped_strongly_convex": Promise(
        RIDGE,
        300,
        {"target": _zcdp(2), "penalty": _L2, "assumptions": {"diameter": 2, "localization_power": 1}},
        vacuous=_LOCALIZED,
    ),
    "dp_fw": Promise(
        FAR,
        2000,
        {"iterations": 200, "target": _zcdp(0.5), "assumptions": {"radius": 4}},
        of_the_population=False,
    ),
    "generalized_linear_l1": Promise(
        absolute(), 4000, {"iterations": 150, "target": _zcdp(0.5), "assumptions": {"radius": 1}}
    ),
    "noisy_mirror_descent": Promise(
        FAR,
        2000,
        {"iterations": 200, "target": _zcdp(0.5), "assumptions": {"norm_order": 1.5, "radius": 4}},
        of_the_population=False,
    ),
    "noisy_sfw_lp": Promise(NEAR, 20000, {"target": _zcdp(2), "assumptions": {"norm_order": 1.5, "radius": 1}}),
    "noisy_sfw_nonconvex_lp": Promise(
        NEAR,
        20000,
        {"iterations": 60, "target": _zcdp(2), "assumptions": {"norm_order": 1.5, "radius": 1}},
        stationarity=frank_wolfe_gap(radius=1.0, dual_order=3.0),
    ),
    "poly_sfw": Promise(NEAR, 20000, {"iterations": 60, "target": _zcdp(2), "assumptions": {"radius": 1.2}}),
    "private_sfw_nonconvex_l1": Promise(
        NEAR,
        10000,
        {"target": _zcdp(2), "assumptions": {"radius": 1.2}},
        stationarity=frank_wolfe_gap(radius=1.2, dual_order=np.inf),
    ),
    "tree_sfw_l1": Promise(NEAR, 20000, {"target": _zcdp(2), "assumptions": {"radius": 1.2}}),
    "proximal_weakly_convex": Promise(
        NEAR,
        500,
        {
            "iterations": 5,
            "target": _zcdp(2),
            "assumptions": {"weak_convexity": 0.25, "diameter": 2, "inner_iterations": 50},
        },
        stationarity=STATIONARITY,
        closeness=CLOSENESS,
        vacuous="it says something from some 15000 steps of a round on",
    ),
}
#: Of those that are vacuous above, at sizes that take longer. The risk of zero is log 2, the least one 0.61.
LARGE_PROMISES: dict[str, Promise] = {
    "proximal_weakly_convex": Promise(
        NEAR,
        1000,
        {
            "iterations": 2,
            "target": _zcdp(20),
            "assumptions": {"weak_convexity": 0.5, "diameter": 2, "inner_iterations": 16000, "initial_gap": 0.1},
        },
        stationarity=LARGE_STATIONARITY,
        closeness=LARGE_CLOSENESS,
    ),
}

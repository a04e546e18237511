"""One small run for each algorithm: what the conformance suite of trainers carries out.

A new algorithm adds its entry to `RUNS`, with its transcription in `transcriptions.py`; the suite does the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from accounting.errors import AccountingError
from calibrators.geometry import L2Penalty
from calibrators.plan import Clip, Normalize, Phase, Plan
from calibrators.registry import ALGORITHMS as CALIBRATORS
from calibrators.registry import calibrate
from calibrators.spec import OpenEpsilon, Spec, Unknown
from trainer.algorithms import ALGORITHMS
from trainer.losses import Squared
from trainer.models import LinearModel

#: Every declared record is there.
ROWS, FEATURES = 24, 4


@dataclass(frozen=True, slots=True)
class Run:
    """A few steps on a few records.

    Attributes:
        spec: With given noise; sampling and relation left out.
        variants: Changes that bring out other forms of the algorithm, by a word for each.
    """

    spec: Spec
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def spec(**given: Any) -> Spec:
    """Whatever these steps cost: the noise is given."""
    usual = {
        "dataset_size": ROWS,
        "target": OpenEpsilon(1e-5),
        "unknown": Unknown.EPSILON,
        "noise_multiplier": 0.7,
        "dimension": FEATURES,
    }
    return Spec(**(usual | given))


RUNS: dict[str, Run] = {
    "dp_sgd": Run(
        spec(batch_size=6, iterations=7, gradient_bound=Clip(0.8), step_size=0.4),
        variants={"ridge": {"penalty": L2Penalty(0.3)}},
    ),
    "dp_nsgd": Run(spec(batch_size=6, iterations=7, gradient_bound=Normalize(0.3), step_size=0.4)),
    "dp_sgd_gradient": Run(
        spec(
            batch_size=4,
            iterations=9,
            gradient_bound=Clip(0.8),
            step_size=0.5,
            assumptions={"radius": 0.4, "lipschitz": 0.8},
        )
    ),
    "dp_gd": Run(
        spec(
            iterations=6,
            gradient_bound=Clip(0.8),
            step_size=0.3,
            assumptions={"smoothness": 2.0, "initial_gap": 1.0, "pl_constant": 0.1},
        ),
        variants={
            "any smooth loss": {"assumptions": {"smoothness": 2.0, "initial_gap": 1.0}},
            "ridge": {"penalty": L2Penalty(0.3)},
        },
    ),
    "clipped_sgd_strongly_convex": Run(
        spec(
            iterations=5,
            gradient_bound=Clip(0.8),
            penalty=L2Penalty(0.3),
            assumptions={
                "smoothness": 2.0,
                "strong_convexity": 0.5,
                "diameter": 1.0,
                "moment_order": 4.0,
                "moment_bound": 1.5,
            },
        )
    ),
    "tree_sfw_l1": Run(
        spec(
            dataset_size=60,
            iterations=2,
            assumptions={"lipschitz": 0.8, "smoothness": 1.5, "radius": 0.5},
        )
    ),
}


@lru_cache(maxsize=256)
def plan_of(name: str, variant: str = "", **changes: Any) -> Plan:
    """The calibrated plan of an algorithm's run."""
    run = RUNS[name]
    varied = dict(run.variants[variant]) if variant else {}
    return calibrate(name, replace(run.spec, **(varied | changes))).plan


def plans(**changes: Any) -> list[Any]:
    """(name, plan) of every trainer under every sampling and relation that is accounted, and of its variants."""
    found = []
    for name in ALGORITHMS:
        if name not in RUNS:
            continue
        found += [
            pytest.param(name, plan_of(name, word, **changes), id=f"{name}-{word or 'own'}")
            for word in ("", *RUNS[name].variants)
        ]
        found += [
            pytest.param(name, plan, id=f"{name}-{sampling}-{relation}")
            for (sampling, relation), plan in settings(name, **changes).items()
        ]
    return found


@lru_cache(maxsize=64)
def settings(name: str, **changes: Any) -> dict[tuple[str, str], Plan]:
    """The run's plan under every other sampling and relation, as far as they are accounted."""
    algorithm = CALIBRATORS[name]
    found: dict[tuple[str, str], Plan] = {}
    for scheme in algorithm.samplings:
        for relation in algorithm.relations:
            if (scheme, relation) == (algorithm.samplings[0], algorithm.relations[0]):
                continue
            full = {"batch_size": None} if scheme.kind == "full_batch" else {}
            try:
                plan = plan_of(name, sampling=scheme.kind, neighboring_relation=relation, **(full | changes))
            except AccountingError:
                continue
            found[scheme.kind, str(relation)] = plan
    return found


def model(features: int = FEATURES) -> LinearModel:
    """Least squares, whose gradients (w . x - y) x have every length and direction."""
    return LinearModel(Squared(), features, fit_intercept=False)


def data(rows: int, features: int = FEATURES, seed: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Records of which some are clipped and some are not."""
    rng = np.random.default_rng(seed)
    drawn = rng.normal(size=(rows, features))
    drawn[::5] *= 20.0
    return drawn, rng.uniform(-1.0, 1.0, rows)


def records_of(plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """As many records as the plan declares."""
    return data(plan.dataset_size)


def is_gradient_steps(plan: Plan) -> bool:
    return all(isinstance(phase, Phase) for phase in plan.phases)


every_algorithm = pytest.mark.parametrize("name", [name for name in ALGORITHMS if name in RUNS])
every_plan = pytest.mark.parametrize(("name", "plan"), plans())
every_own_plan = pytest.mark.parametrize(
    ("name", "plan"),
    [
        pytest.param(name, plan_of(name, word), id=f"{name}-{word or 'own'}")
        for name in ALGORITHMS
        if name in RUNS
        for word in ("", *RUNS[name].variants)
    ],
)
every_gradient_plan = pytest.mark.parametrize(
    ("name", "plan"), [case for case in plans() if is_gradient_steps(case.values[1])]
)
every_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])

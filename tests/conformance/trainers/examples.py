"""One small run for each algorithm: what the conformance suite of trainers carries out.

A new algorithm has a file of its own in `subjects`; the suite does the rest.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from accounting.errors import AccountingError
from calibrators.plan import BoundedSteps, Plan
from calibrators.registry import ALGORITHMS as CALIBRATORS
from calibrators.registry import calibrate
from tests.conformance.subjects import sized_for
from tests.conformance.trainers.subjects import FEATURES, RUNS
from trainer.algorithms import EXECUTIONS
from trainer.loop import check_sampling_of
from trainer.losses import Squared
from trainer.models import LinearModel
from trainer.run import usual_capacity


@lru_cache(maxsize=256)
def plan_of(name: str, variant: str = "", **changes: Any) -> Plan:
    """The calibrated plan of an algorithm's run."""
    run = RUNS[name]
    varied = dict(run.variants[variant]) if variant else {}
    return calibrate(name, replace(run.spec, **(varied | changes))).plan


def plans(**changes: Any) -> list[Any]:
    """(name, plan) of every trainer under every sampling and relation that is accounted, and of its variants."""
    found = []
    for name in EXECUTIONS:
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
            sizes = sized_for(scheme.kind, RUNS[name].spec)
            try:
                plan = plan_of(name, sampling=scheme.kind, neighboring_relation=relation, **(sizes | changes))
                for phase in plan.phases:
                    if isinstance(phase, BoundedSteps):
                        # What can be charged may be for loops of other programs.
                        check_sampling_of(plan, phase, usual_capacity(plan))
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
    return all(isinstance(phase, BoundedSteps) for phase in plan.phases)


every_algorithm = pytest.mark.parametrize("name", [name for name in EXECUTIONS if name in RUNS])
every_plan = pytest.mark.parametrize(("name", "plan"), plans())
every_own_plan = pytest.mark.parametrize(
    ("name", "plan"),
    [
        pytest.param(name, plan_of(name, word), id=f"{name}-{word or 'own'}")
        for name in EXECUTIONS
        if name in RUNS
        for word in ("", *RUNS[name].variants)
    ],
)
every_gradient_plan = pytest.mark.parametrize(
    ("name", "plan"), [case for case in plans() if is_gradient_steps(case.values[1])]
)
#: The narrower type takes as long again, for each algorithm.
every_dtype = pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.thorough)])

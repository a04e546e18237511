"""This module carries out one run of the protocol: a plan is trained on some rows of a data set, and the model is
scored on the other rows."""

from __future__ import annotations

from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from benchmarks.defaults.protocol import DELTA, LARGEST_BATCH, Setting, Split
from calibrators.plan import Clip, GradientBound, Normalize, Plan
from calibrators.registry import ALGORITHMS, calibrate
from calibrators.spec import Spec
from trainer import models
from trainer.numeric_types import carried_out
from trainer.run import run


def model_of(split: Split) -> models.Model:
    """Return the model that is trained on these rows."""
    return models.build(split.features.shape[1], num_classes=split.num_classes, kind=split.model)


def plan_of(setting: Setting, records: int, epsilon: float) -> Plan:
    """Return the plan of a setting with the least noise that meets the target."""
    batch = min(round(setting.share * records), LARGEST_BATCH)
    normalizes = ALGORITHMS[setting.algorithm].gradient_bounds == (Normalize,)
    bound: GradientBound = Normalize(setting.bound) if normalizes else Clip(setting.bound)
    spec = Spec(
        records,
        ApproximateDpTarget(epsilon, DELTA),
        batch_size=batch,
        iterations=setting.iterations,
        sampling="full_batch" if batch == records else "poisson",
        neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
        gradient_bound=bound,
        step_size=setting.step_size,
        judge_published=False,
    )
    return carried_out(calibrate(setting.algorithm, spec).plan, None)[0]


def score(split: Split, plan: Plan, seed: int) -> float:
    """Train by the plan and score the released model: accuracy for classes, R^2 for numbers."""
    model = model_of(split)
    parameters = run(plan, model, split.features, split.labels, seed=seed).parameters
    return split.score(split.test_features @ parameters["weights"] + parameters["bias"])

"""This module computes the scores of the preset, and of models without privacy."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression, LogisticRegression

from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from benchmarks.defaults.kept import Scorer
from benchmarks.defaults.protocol import DELTA, SEEDS, Split
from benchmarks.defaults.trials import model_of
from calibrators.draft import Draft
from calibrators.plan import BoundedSteps, Plan
from calibrators.presets import UNKNOWN_OBJECTIVE
from calibrators.spec import Spec
from trainer.numeric_types import carried_out


def preset_plan(
    split: Split, epsilon: float, algorithm: str | None = None, **given: Any
) -> tuple[Plan, dict[str, Any]]:
    """Return the plan that the preset makes if only data, model and target are named, and the numbers that it chose.

    Args:
        split: The rows.
        epsilon: The epsilon of the target.
        algorithm: The algorithm; if None, the preset chooses one.
        given: The fields of the spec that are given instead of chosen.
    """
    spec = Spec(
        len(split.labels),
        ApproximateDpTarget(epsilon, DELTA),
        neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
        dimension=model_of(split).num_parameters,
        judge_published=False,
        **given,
    )
    objective = replace(UNKNOWN_OBJECTIVE, predicts_numbers=not split.num_classes)
    calibration = Draft(algorithm, spec, None, objective).calibrate()
    return carried_out(calibration.plan, None)[0], {choice.name: choice.value for choice in calibration.choices}


def with_steps(plan: Plan, factor: float) -> Plan:
    """Return the plan with its step size multiplied by the factor."""
    [phase] = plan.phases
    assert isinstance(phase, BoundedSteps), "as algorithms with a rule for step sizes have"
    assert isinstance(phase.step_size, float), "the rule has chosen one for all steps"
    return replace(plan, phases=(replace(phase, step_size=factor * phase.step_size),))


def preset_scores(split: Split, epsilon: float, score: Scorer, say: Callable[[str], object]) -> dict[str, Any]:
    """Return the scores of the preset's plan for each seed at one epsilon, and the preset's choices."""
    plan, chosen = preset_plan(split, epsilon)
    scores = [score(plan, seed) for seed in SEEDS]
    say(f"  epsilon {epsilon:g}: {np.mean(scores):.4f} by the preset\n")
    return {"scores": scores, "chosen": chosen}


def without_privacy(split: Split) -> float:
    """Return the score of scikit-learn's model without privacy: least squares, or logistic regression."""
    estimator = LogisticRegression(C=100.0, max_iter=100) if split.num_classes else LinearRegression()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a hundred steps are enough, converged or not
        estimator.fit(split.features, split.labels)
    return float(estimator.score(split.test_features, split.test_labels))

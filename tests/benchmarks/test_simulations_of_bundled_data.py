"""A ranking by simulation beside runs of the same plans on bundled rows: what it tells apart is told apart there."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from benchmarks.defaults.protocol import TUNED_ON, Split
from calibrators.advice import Facts, advise
from calibrators.scopes import Problem, Shape
from calibrators.spec import Spec
from trainer.models import build
from trainer.numeric_types import carried_out
from trainer.run import run
from trainer.simulation.attained import Simulation, calibrated, simulate

NAMES = ("dp_adam", "dp_sgd", "dp_accmd", "dp_gd", "clipped_acsa")
#: A difference of so many standard errors is one that the simulation tells apart.
SURE = 4.0


def losses(split: Split, asked: Simulation, name: str, spec: Spec) -> np.ndarray:
    """Of runs of the simulated plan on the data set, on rows that no run trains on."""
    plan = carried_out(calibrated(asked, name, spec).plan, None)[0]
    model = build(split.features.shape[1], kind="logistic_regression", fit_intercept=False)
    found = []
    for seed in range(5):
        weights = run(plan, model, split.features, split.labels, seed=seed).parameters["weights"]
        logits = (split.test_features @ weights)[:, None]
        found.append(float(np.mean(model.loss.values(np, logits, split.test_labels))))
    return np.array(found)


def test_what_a_simulation_tells_apart_is_in_the_same_order_on_real_rows() -> None:
    """Breast cancer, 427 rows of 30 features: declared bounds give the constants, and nothing else is known."""
    split = TUNED_ON["breast_cancer"]()
    records, width = split.features.shape
    constants = {"lipschitz": width**0.5, "smoothness": width / 4.0, "radius": 3.0, "diameter": 6.0, "initial_gap": 0.7}
    facts = Facts(records, width, ApproximateDpTarget(3.0, 1e-5), NeighboringRelation.ADD_OR_REMOVE_ONE)
    facts = replace(facts, assumptions=constants)
    problem = Problem(Shape.CONVEX)
    asked = Simulation(problem, facts, "logistic_regression", repetitions=5)
    specs = {item.algorithm: item.spec for item in advise(problem, facts, NAMES) if item.spec is not None}
    assert set(specs) == set(NAMES)
    simulated = {name: simulate(asked, name, spec) for name, spec in specs.items()}
    real = {name: losses(split, asked, name, spec) for name, spec in specs.items()}
    told_apart = 0
    for first, second in itertools.combinations(NAMES, 2):
        one, other = simulated[first], simulated[second]
        assert one.excess is not None
        assert other.excess is not None
        error = np.hypot(one.standard_error or 0.0, other.standard_error or 0.0)
        if abs(one.excess - other.excess) > SURE * error:
            told_apart += 1
            assert (one.excess < other.excess) == bool(real[first].mean() < real[second].mean()), (first, second)
    assert told_apart >= 6, "most pairs are told apart"

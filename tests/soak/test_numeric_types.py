"""What float32 costs in accuracy: the examples of all algorithms on public data, in both types with equal seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.algorithms import service as algorithms
from app.algorithms.binding import DataDescription, build_model, facts_of
from app.context import Context
from app.datasets import bundled
from app.datasets.columns import split_label
from app.db.database import Database
from app.fence.watching import fenced_context
from app.runs.examples import RUN_EXAMPLES
from app.runs.schemas import RunRequest
from app.settings import Settings
from calibrators.plan import DTYPES, Plan
from tests.soak.report import write_report
from trainer.algorithms import EXECUTIONS
from trainer.models import Model
from trainer.numeric_types import carried_out
from trainer.run import run

SEEDS = 12
#: Both types take the same noise, in steps of their own grids, so that scores differ by little; by chance, so much.
MOST = 0.01

Rows = tuple[np.ndarray, np.ndarray]


def example_of(algorithm: str) -> dict[str, Any]:
    bodies: Iterator[Any] = (example["value"] for example in RUN_EXAMPLES.values())
    return dict(next(body for body in bodies if body.get("algorithm") == algorithm))


def prepared(context: Context, algorithm: str) -> tuple[Plan, Model, Rows]:
    """The example's plan as a run calibrates it, its model and its scaled rows."""
    request = RunRequest.model_validate(example_of(algorithm))
    assert request.dataset_id is not None
    declared = bundled.declaration(request.dataset_id).metadata
    columns, label = split_label(declared.columns, declared.label)
    features, labels = bundled.load(request.dataset_id)
    data = DataDescription(declared_size=len(labels), privacy_unit="record", features=columns, label=label)
    model = build_model(request.model, data)
    facts = facts_of(request, request.model.kind, model, data)
    found = algorithms.calibrate(context, request, len(labels), len(labels), model.num_parameters, facts)
    return found.plan, model, (data.scale(features), data.scale_labels(labels))


def score(model: Model, parameters: dict[str, np.ndarray], rows: Rows) -> float:
    """The share of rows that are predicted rightly; of a mean, less its distance from the records' own."""
    if model.kind == "mean":
        return -float(np.linalg.norm(parameters["mean"] - rows[0].mean(axis=0)))
    found = model.score(parameters, *rows)
    return found if model.num_classes else -found


@pytest.mark.soak
def test_float32_costs_no_accuracy() -> None:
    context = fenced_context(Settings.model_construct(), Database("sqlite://"))
    table: dict[str, dict[str, Any]] = {}
    try:
        for algorithm in EXECUTIONS:
            plan, model, rows = prepared(context, algorithm)
            wide, narrow = (
                np.array(
                    [
                        score(model, run(replace(plan, dtype=dtype), model, *rows, seed=seed).parameters, rows)
                        for seed in range(SEEDS)
                    ]
                )
                for dtype in DTYPES
            )
            spread = float(wide.std(ddof=1))
            table[algorithm] = {
                "default": carried_out(plan, None)[0].dtype,
                "float64": round(float(wide.mean()), 5),
                "float32": round(float(narrow.mean()), 5),
                "spread_over_seeds": round(spread, 5),
                "largest_difference_at_one_seed": round(float(np.abs(wide - narrow).max()), 5),
                "beyond_noise": bool(abs(wide.mean() - narrow.mean()) > 3.0 * spread * math.sqrt(2.0 / SEEDS)),
            }
    finally:
        context.processes.close()
    apart = {name: abs(row["float32"] - row["float64"]) for name, row in table.items() if row["default"] == "float32"}
    write_report(
        "numeric_types",
        "make soak",
        {
            "algorithms": len(table),
            "runs_of_each": SEEDS,
            "beyond_noise": sum(row["beyond_noise"] for row in table.values()),
            "largest_difference_of_means": max(apart.values()),
            "scores": table,
        },
    )
    for algorithm, row in table.items():
        if row["default"] == "float32":
            allowed = MOST + 3.0 * row["spread_over_seeds"] * math.sqrt(2.0 / SEEDS)
            assert row["float32"] >= row["float64"] - allowed, algorithm
            assert not row["beyond_noise"] or abs(row["float32"] - row["float64"]) <= MOST, algorithm

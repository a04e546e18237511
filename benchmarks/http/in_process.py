"""This module makes the same calibrations with the engine alone, in one thread of a process that does nothing else."""

from __future__ import annotations

import os
import random
import time
from dataclasses import replace

from accounting.targets import ApproximateDpTarget
from app.algorithms.budget_costs import BudgetReader
from app.algorithms.calibrate import CalibrateRequest
from app.algorithms.questions import read
from app.auth.principal import LOOPBACK
from app.db.database import Database
from app.fence.watching import fenced_context
from app.settings import Settings
from benchmarks.http import work
from benchmarks.http_load import WARM_UP_S, Load
from benchmarks.ledger.processes import Gate
from calibrators import registry


def calibrate_for(gate: Gate, kind: str, seconds: float, seed: int, core: int) -> Load:
    """Calibrate specs that have already been read and checked, each for a different epsilon."""
    os.sched_setaffinity(0, {core})
    settings = Settings()
    # No request names a budget, so the database of this name is never opened.
    budgets = BudgetReader(
        fenced_context(settings, Database(f"sqlite:///{settings.data_dir}/engine.sqlite3")), LOOPBACK
    )
    question = read(CalibrateRequest.model_validate(work.request(kind)), budgets)
    target, draw = question.spec.target, random.Random(seed)
    assert isinstance(target, ApproximateDpTarget)

    def run(for_seconds: float) -> Load:
        milliseconds: list[float] = []
        began = now = time.perf_counter()
        while now - began < for_seconds:
            epsilon = target.epsilon * (1.0 + work.SPREAD * draw.random())
            registry.calibrate(question.algorithm, replace(question.spec, target=replace(target, epsilon=epsilon)))
            before, now = now, time.perf_counter()
            milliseconds.append(1e3 * (now - before))
        return Load(len(milliseconds), now - began, 1.0, milliseconds)

    run(WARM_UP_S)
    gate()
    return run(seconds)

"""Tuning: the cost of running a private algorithm several times and releasing the best result."""

from __future__ import annotations

from accounting.tuning.cost import (
    DEFAULT_ORDERS,
    TuningCost,
    selection_charge,
    selection_event,
    selection_moments,
    tuning_cost,
)
from accounting.tuning.trials import (
    TRIALS,
    FixedTrials,
    PoissonTrials,
    Trials,
    TruncatedNegativeBinomial,
    trials_of,
)

__all__ = [
    "DEFAULT_ORDERS",
    "TRIALS",
    "FixedTrials",
    "PoissonTrials",
    "Trials",
    "TruncatedNegativeBinomial",
    "TuningCost",
    "selection_charge",
    "selection_event",
    "selection_moments",
    "trials_of",
    "tuning_cost",
]

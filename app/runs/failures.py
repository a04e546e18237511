"""The texts that say why runs fail. They are constant, so they reveal nothing about a record."""

from __future__ import annotations

FAILED = {
    "code": "run_failed",
    "detail": "The run did not finish. Its charge stands in full; the operator's log has the run's id.",
}
WORKER_LOST = {
    "code": "worker_lost",
    "detail": "The worker process ended or stalled before the run was done. What was started stays charged: noise may "
    "have been drawn.",
}
NOT_STARTED = {
    "code": "run_not_started",
    "detail": "The run could not be started. Nothing was charged; the operator's log has the run's id.",
}
HOLD_LOST = {
    "code": "reservation_lost",
    "detail": "The run waited longer than its hold on the budget lasts. Nothing was charged; ask for it again.",
}
DATASET_GONE = {
    "code": "dataset_deleted",
    "detail": "A data set of the run, or its version, was deleted before it was loaded. Nothing was charged.",
}
DATASET_TOO_FULL = {
    "code": "dataset_too_full",
    "detail": "The data set has more rows than its capacity, so no run on it can hide their number. Nothing was "
    "charged. Its owner can upload the file again with a larger capacity.",
}
DEVICE_TOO_SMALL = {
    "code": "device_too_small",
    "detail": "The worker's device has too little memory for as many rows as the data set has room for, and this "
    "model. Nothing was charged. A worker that computes on its processor can take such runs.",
}
PLAN_REFUSED = {
    "code": "plan_hash_mismatch",
    "detail": "The stored plan is not the one that was charged, so the worker refused it. Nothing was charged.",
}
DECLARATION_ALTERED = {
    "code": "declaration_altered",
    "detail": "The run, its charge or one of its data sets is not what the books say, so the worker refused "
    "it. Nothing was charged. Somebody has changed the database: `epsilond ledger verify` names the place.",
}

#: The problems whose texts say that nothing was charged. They are not used if something was charged.
UNCHARGED = (
    NOT_STARTED,
    HOLD_LOST,
    DATASET_GONE,
    DATASET_TOO_FULL,
    DEVICE_TOO_SMALL,
    PLAN_REFUSED,
    DECLARATION_ALTERED,
)


def with_charge(problem: dict[str, str], charge: str) -> dict[str, str]:
    """Return the problem with another statement in place of "Nothing was charged"."""
    return {**problem, "detail": problem["detail"].replace("Nothing was charged", charge)}


class RefusedError(Exception):
    """Raised for a run that must not start, with the constant text that says why, or with None if the run was
    cancelled."""

    def __init__(self, problem: dict[str, str] | None) -> None:
        super().__init__("cancelled" if problem is None else problem["code"])
        self.problem = problem

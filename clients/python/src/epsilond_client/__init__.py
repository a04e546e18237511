"""The client of epsilond, the privacy-accounting daemon."""

from epsilond_client.answers import (
    Answer,
    Budget,
    Dataset,
    DatasetVersion,
    Document,
    Entry,
    Event,
    Interval,
    Key,
    Progress,
    ProgressMessage,
    Reservation,
    Run,
)
from epsilond_client.client import Client
from epsilond_client.holding import HeldReservation
from epsilond_client.loading import load
from epsilond_client.problems import (
    BudgetExceeded,
    Conflict,
    EpsilondError,
    Fault,
    Forbidden,
    InvalidRequest,
    NotFound,
    ProblemError,
    RateLimited,
    RunFailed,
    StepsExhausted,
    Unauthenticated,
    Unavailable,
)
from epsilond_client.retries import Retries

__all__ = [
    "Answer",
    "Budget",
    "BudgetExceeded",
    "Client",
    "Conflict",
    "Dataset",
    "DatasetVersion",
    "Document",
    "Entry",
    "EpsilondError",
    "Event",
    "Fault",
    "Forbidden",
    "HeldReservation",
    "Interval",
    "InvalidRequest",
    "Key",
    "NotFound",
    "ProblemError",
    "Progress",
    "ProgressMessage",
    "RateLimited",
    "Reservation",
    "Retries",
    "Run",
    "RunFailed",
    "StepsExhausted",
    "Unauthenticated",
    "Unavailable",
    "load",
]

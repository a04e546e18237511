"""The subjects of the register's entries, and what may follow a first entry. Nothing here needs a database."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from app.entries.kinds import EntryKind


class Subject(StrEnum):
    """The kinds of subjects of the register's entries."""

    REGISTER = "register"
    """The register itself: which subjects it has, each with all rows that there were when it took it up."""
    DATASET = "dataset"
    """A data set: its declaration, its root budget and its end."""
    VERSION = "version"
    """A later version of a private data set."""
    KEY = "key"
    """An API key: its rights, its tokens and its end."""
    RUN = "run"
    """A run: what was asked for, and how it ended."""
    AUDIT = "audit"
    """An audit: the plan, the claim and the finding."""
    SWEEP = "sweep"
    """A sweep of runs: what was asked for and charged, its cells, and how it ended."""
    WEBHOOK = "webhook"
    """An address that is told what happens to a budget: by whom it was registered, and its end."""


#: The subjects that every register has, even one from before entries about the register itself existed.
FIRST_SUBJECTS = frozenset({Subject.DATASET, Subject.VERSION, Subject.KEY, Subject.RUN, Subject.AUDIT})


#: A token changes with a rotation, and its hash changes with the secret under which it is hashed.
_OF_TOKEN = (
    "token_hash",
    "secret_version",
    "previous_token_hash",
    "previous_secret_version",
    "previous_token_until",
    "rotated_at",
)
_AT_THE_END_OF_A_RUN = (
    "state",
    "result",
    "problem",
    "steps_done",
    "worker_id",
    "epoch",
    "workers_lost",
    "schedule",
    "release_at",
    "started_at",
    "finished_at",
)

_AT_THE_END_OF_A_SWEEP = ("outcome", "best_run_id", "is_cancelled", "release_at", "started_at", "finished_at")

#: The columns that a later entry of each kind may set. All other columns are fixed by the first entry about a subject.
LATER: Mapping[Subject, Mapping[EntryKind, tuple[str, ...]]] = {
    Subject.REGISTER: {EntryKind.CHANGE: ("subjects",)},
    Subject.DATASET: {EntryKind.END: ("deleted_at",)},
    Subject.VERSION: {},
    Subject.KEY: {EntryKind.CHANGE: _OF_TOKEN, EntryKind.END: ("revoked_at",)},
    Subject.RUN: {EntryKind.END: _AT_THE_END_OF_A_RUN},
    Subject.AUDIT: {},
    Subject.SWEEP: {EntryKind.END: _AT_THE_END_OF_A_SWEEP},
    Subject.WEBHOOK: {EntryKind.CHANGE: ("state", "secret_version"), EntryKind.END: ()},
}

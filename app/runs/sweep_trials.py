"""The trials of a sweep for the best run: how many count, which runs they are, and which cells they belong to. All of
this is secret.

These choices are not drawn once and stored. They are computed from the random id of the sweep by hashes under the
content secret, which no database holds. So somebody who reads the database does not learn how many trials count.
Somebody who writes to the database cannot add a trial, because the ids of trials are also computed in this way.

A worker knows the secret, and computes the same trials after a crash as before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

from sqlalchemy import Row, select
from sqlalchemy.orm import Session

from accounting.tuning.drawing import draw_trials
from accounting.tuning.trials import RandomTrials
from app.context import Context
from app.entries.registered import REGISTERED, hash_of_cells
from app.entries.subjects import Subject
from app.kit.ids import id_of
from app.ledger.rebuild import BrokenChain
from app.ledger.vouched import Vouched
from app.runs import sweep_repository as repository
from app.runs.sweep_charges import law_of, quantile_of
from app.tables.runs import RunSweep
from app.tables.states import Select

#: The label of the keyed hashes (`app.secrets.material`).
LABEL = "sweep_trials"
#: A number below n is made from a number with this many more bits than n, so that its distribution is uniform up to
#: 2^-256.
_MORE_BITS = 256


@dataclass(frozen=True)
class Trials:
    """The trials of one sweep.

    Attributes:
        keyed_hash: A function of a label and bytes that returns 256 bits in hexadecimal
            (`app.context.Context.keyed_hash`).
        sweep_id: The id of the sweep.
        law: The law of their number.
        cells: The number of cells.
        spare: The number of trials that are made even if fewer are drawn.

    Guarantees:
        - law: without the secret, the number and the cells cannot be told from random draws: the number as drawn by
          `accounting.tuning.drawing.draw_trials`, and each cell with the same probability, up to 2^-256.
    """

    keyed_hash: Callable[[str, bytes], str]
    sweep_id: str
    law: RandomTrials
    cells: int
    spare: int = 1

    @cached_property
    def drawn(self) -> int:
        """Return how many trials count. One trial is made even if the number is 0; otherwise the ledger would show that
        it is 0."""
        return draw_trials(self.law, lambda total: self._below(total, "number"))

    @property
    def most(self) -> int:
        """Return how many trials are ever made."""
        return max(1, self.spare, self.drawn)

    def id_of(self, number: int) -> str:
        """Return the id of the run of a trial, by the trial's number from 0."""
        return id_of("run", bytes.fromhex(self._hash(f"id\n{number}")))

    def cell_of(self, number: int) -> int:
        """Return the cell of a trial."""
        return self._below(self.cells, f"cell\n{number}")

    def number_of(self, run_id: str) -> int | None:
        """Return the number of the trial that a run is; None if it is not a trial of this sweep."""
        return next((number for number in range(self.most) if self.id_of(number) == run_id), None)

    def counts(self, run_id: str) -> bool:
        """Return whether a run is one of the trials from which the best is chosen."""
        number = self.number_of(run_id)
        return number is not None and number < self.drawn

    def next(self, made: Collection[str]) -> int:
        """Return the number of the first trial that is not among these runs."""
        return next(number for number in count() if self.id_of(number) not in made)

    def _below(self, total: int, what: str) -> int:
        blocks = -(-(total.bit_length() + _MORE_BITS) // 256)
        return int("".join(self._hash(f"{what}\n{block}") for block in range(blocks)), 16) % total

    def _hash(self, what: str) -> str:
        return self.keyed_hash(LABEL, f"{self.sweep_id}\n{what}".encode())


def trials_of(context: Context, session: Session, sweep: RunSweep) -> Trials:
    """Return the trials of a sweep for the best run.

    If there is a release time, as many trials are made as a public quantile says. Without the extra trials, people who
    wait for the same workers could find out how many trials count.
    """
    assert sweep.trials is not None, "a sweep for the best has a law"
    law = law_of(sweep.trials)
    spare = 1 if sweep.release_at is None else quantile_of(law)
    return Trials(context.keyed_hash, sweep.id, law, repository.count_cells(session, sweep.id), spare)


def is_as_entered(session: Session, vouched: Vouched, sweep: RunSweep) -> bool:
    """Return whether the stored sweep and its cells agree with the register, and the sweep has not ended."""
    registered = REGISTERED[Subject.SWEEP]
    row: Row[Any] = session.execute(select(registered.table).where(registered.table.c.id == sweep.id)).one()
    try:
        told = vouched.told(sweep.id)
    except BrokenChain:
        return False
    if told is None or told.subject is not Subject.SWEEP or told.has_ended:
        return False
    cells = hash_of_cells(repository.whole_cells(session, sweep.id))
    return registered.different(row._asdict(), told.columns) is None and cells == row.cells_hash


def is_trial(context: Context, session: Session, sweep: RunSweep, run_id: str, cell: int | None) -> bool:
    """Return whether a run is a trial of the sweep, with the right cell."""
    if sweep.select != Select.BEST:
        return False
    trials = trials_of(context, session, sweep)
    number = trials.number_of(run_id)
    return number is not None and cell == trials.cell_of(number)

"""A reservation around a block of code: `Client.reserve` and `Client.guard`.

These rules hold whatever happens in the block:

* No noise is drawn before the service has confirmed the start of the reservation. It starts on entry, or before the
  first step for `Client.guard`.
* A step is counted when it begins, not when it ends, because its noise may be drawn at any time in between.
* At the end the counted steps are committed, or everything if nothing was counted. In some budgets (`approximate_dp`),
  the price of a part does not hold if the part was chosen by looking at outputs. By the service's rule they charge
  everything, and the client asks for nothing else.
* If the block fails before the reservation was started, the hold is given back.
* If this process is killed, a hold that was not started expires by itself. A started one is kept in full until the same
  key or an owner commits it; the service shows it as overdue.
"""

from __future__ import annotations

import logging
import operator
import os
import threading
import uuid
import warnings
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self, TypeVar

from epsilond_client.answers import Event, Reservation
from epsilond_client.budgets import Reservations
from epsilond_client.loaders import check_batches
from epsilond_client.naming import BudgetId
from epsilond_client.problems import EpsilondError, ProblemError, StepsExhausted, Unavailable
from epsilond_client.transport import plain

T = TypeVar("T")
log = logging.getLogger("epsilond_client")

#: A hold is extended this many times as often as it must be, so that attempts in between may fail.
_EXTENSIONS = 3
_SHORTEST_WAIT_S = 0.3
#: The problems that say that somebody else made the start, or an earlier process with the same key.
_ANOTHERS = frozenset({"already_started", "already_resolved", "expired", "owned_by_run"})


class HeldReservation:
    """A part of a budget that is held while a block runs: the context manager of `Client.reserve` and `Client.guard`.

    Args:
        reservations: Makes the calls.
        background: Makes the calls in the background, where no attempt may take long.
        budget: The budget that pays.
        events: The planned releases, fixed before their noise is drawn.
        purpose: Shown with every entry.
        expires_in: Seconds after which the hold ends if this process dies.
        charge_delta: The delta at which an ``approximate_dp`` budget prices the events.
        certificate: Whether a proof of what the events cost alone is kept with the charge.
        start: Whether noise may be drawn as soon as the block begins. If not, it may be drawn from the first `take` or
            `start` on.
        idempotency_key: The caller's own key, by which a second process finds this reservation instead of making
            another.
    """

    def __init__(
        self,
        reservations: Reservations,
        background: Reservations,
        budget: BudgetId,
        events: Sequence[Event],
        *,
        purpose: str,
        expires_in: int,
        charge_delta: float | None,
        certificate: bool,
        start: bool,
        idempotency_key: str | None,
    ) -> None:
        if not events:
            raise ValueError("a reservation must have at least one event")
        self._reservations = reservations
        self._background = background
        self._budget = budget
        self._events = tuple(plain(event) for event in events)
        self._purpose = purpose
        self._expires_in = expires_in
        self._charge_delta = charge_delta
        self._certificate = certificate
        self._start_on_entry = start
        self._key = idempotency_key
        # The key belongs only to this object: an answer to another object's start does not permit drawing noise.
        self._start_key = str(uuid.uuid4())
        self._reservation: Reservation | None = None
        self._taken = 0
        self._counts = False
        self._started = False
        self._maybe_started = False
        self._is_anothers = False
        self._resolved = False
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._ended = threading.Event()
        self._extender: threading.Thread | None = None

    @property
    def reservation(self) -> Reservation:
        """Return the reservation as in the service's last answer."""
        if self._reservation is None:
            raise EpsilondError("nothing is held before the block begins: `with client.reserve(...) as reservation:`")
        return self._reservation

    @property
    def id(self) -> str:
        return self.reservation.id

    @property
    def is_started(self) -> bool:
        """Return whether noise may be drawn. Once it may, the charge stands."""
        return self._started

    @property
    def steps_reserved(self) -> int:
        """Return the number of steps of all events together."""
        return sum(int(event.get("count", 1)) for event in self._events)

    @property
    def steps_taken(self) -> int:
        """Return the number of counted steps."""
        return self._taken

    @property
    def steps_left(self) -> int:
        return self.steps_reserved - self._taken

    def start(self) -> Reservation:
        """State that noise is about to be drawn. Draw none before this has returned. A second call does nothing.

        Raises:
            Conflict: ``already_started`` by another process: its noise may have been released, so this process must
                draw none. ``expired``: the hold was given back before it was started.
            Unavailable: no answer came. Another call asks again under the same key, and the start takes effect once.
        """
        self._check_process()
        with self._lock:
            if self._resolved or self._ended.is_set():
                raise EpsilondError(
                    f"the reservation {self.id} is resolved, or its block has ended: no more noise may be drawn for it"
                )
            if not self._started:
                self._ask_for_start()
            return self.reservation

    def take(self, steps: int = 1) -> None:
        """Count steps that are about to be taken. Call it before their noise is drawn. The first call starts the
        reservation.

        It is for reservations of one kind of step. If the list has several kinds, the number of steps does not say
        which were taken. Then state them at the end: ``commit(events=...)``.

        Raises:
            StepsExhausted: fewer steps are left. None of these steps is counted, and none may be taken.
        """
        if len(self._events) > 1:
            raise ValueError(
                "steps are counted only if the reservation has one event; if it has several, use commit(events=...)"
            )
        if operator.index(steps) < 1:
            raise ValueError("steps must be 1 or more")
        self._check_process()
        with self._lock:
            if steps > self.steps_left:
                raise StepsExhausted(
                    f"{self._taken} of the {self.steps_reserved} reserved steps are taken, and {steps} more would "
                    "be too many: end the training here, or reserve more steps before the next one"
                )
            self.start()
            self._counts = True
            self._taken += steps

    def steps(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield the batches. Each is counted as a step before it is handed out.

        Args:
            batches: A sampler of `epsilond_client.samplers`, a loader that has it as its `batch_sampler`, or any other
                batches.

        Raises:
            StepsExhausted: there are more batches than steps; a batch beyond them is not handed out.
            ValueError: the batches of this loader are drawn in another way than is charged.

        Warns:
            RuntimeWarning: a sampling scheme is charged, and it is unknown whether the batches are drawn by it.
        """
        check_batches(self._events[0].get("sampling"), batches, stacklevel=2)
        return self._counting(batches)

    def _counting(self, batches: Iterable[T]) -> Iterator[T]:
        for batch in batches:
            self.take()
            yield batch

    def commit(self, events: Sequence[Event] | None = None, *, give_up_tail: bool = False) -> Reservation:
        """Charge the events that happened now: all of them or a part. No more noise may be drawn for this reservation.

        Args:
            events: The reserved list with counts reduced and later events dropped. None means the counted steps, or
                everything if nothing was counted.
            give_up_tail: State that no noise was drawn for the rest, so that its cost is given back.
        """
        with self._lock:
            # This is set before the request: a step after it, or after a lost answer, would not be charged.
            self._ended.set()
            if events is None:
                events = self._counted()
            self._reservation = self._reservations.commit(self.reservation, events=events, give_up_tail=give_up_tail)
            self._resolved = True
            return self._reservation

    def void(self) -> Reservation:
        """Give back the hold: nothing has happened, and nothing will.

        Raises:
            Conflict: the reservation has started.
        """
        self._reservation = self._reservations.void(self.reservation)
        self._resolved = True
        self._ended.set()
        return self._reservation

    def __enter__(self) -> Self:
        if self._reservation is not None:
            raise EpsilondError("a reservation can be used for one block only: make another reservation")
        self._reservation = self._reservations.create(
            self._budget,
            self._events,
            purpose=self._purpose,
            expires_in=self._expires_in,
            charge_delta=self._charge_delta,
            certificate=self._certificate,
            idempotency_key=self._key,
        )
        try:
            if self._start_on_entry:
                self.start()
            self._extender = threading.Thread(target=self._extend, name="epsilond-extend", daemon=True)
            self._extender.start()
        except BaseException as error:
            self._give_up(error)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if os.getpid() != self._process:
            return  # A forked process leaves the block here, and must not settle what its parent is doing.
        self._ended.set()
        if self._resolved:
            return
        if error is not None:
            self._give_up(error)
            return
        try:
            self.commit()
        except BaseException as failure:
            failure.add_note(self._standing(failure))
            raise
        if not self._started:
            # The warning comes after the charge, because it raises where warnings are errors.
            warnings.warn(
                f"the block ended, and no step was taken through the reservation {self.id}, so all of it is "
                "charged: take steps through it (guard.steps, take), or call void() if no noise was drawn",
                RuntimeWarning,
                stacklevel=2,
            )

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise EpsilondError(
                "this process is a fork of the process that holds the reservation, which would not learn of steps "
                "taken here: take the steps there, or make a reservation in each process"
            )

    def _ask_for_start(self) -> None:
        # All attempts use one key: after a lost answer, the service says whether it was this start that was made.
        self._maybe_started = True
        try:
            self._reservation = self._reservations.start(self.reservation, idempotency_key=self._start_key)
        except Unavailable:
            raise
        except ProblemError as problem:
            self._maybe_started, self._start_key = False, str(uuid.uuid4())
            self._is_anothers = problem.code in _ANOTHERS
            raise
        self._started = True

    def _give_up(self, error: BaseException) -> None:
        """Commit what may have happened in a failed block, and give back the rest. The block's own error is raised."""
        self._ended.set()
        try:
            if self._started:
                self.commit()
            elif not self._is_anothers:
                self._void_or_commit()
            else:
                error.add_note(self._standing())
        except BaseException as failure:
            error.add_note(f"{self._standing(failure)}\n{type(failure).__name__}: {failure}")

    def _void_or_commit(self) -> None:
        try:
            self.void()
        except ProblemError as problem:
            if problem.code != "already_started" or not self._maybe_started:
                raise
            if self._key is not None:
                # Another process may have found the same reservation; this is refused if that process made the start.
                self._ask_for_start()
            # This process's start was made and its answer lost. Nothing was drawn, and one step is the smallest
            # possible charge.
            self.commit(events=[{**self._events[0], "count": 1}])

    def _counted(self) -> list[Event] | None:
        """Return the part that was counted; None if nothing was counted, which means everything."""
        if not self._counts:
            return None
        return [{**self._events[0], "count": self._taken}]

    def _standing(self, failure: BaseException | None = None) -> str:
        """Describe what happens to a reservation that this process could not end."""
        code = failure.code if isinstance(failure, ProblemError) else None
        if code == "already_resolved":
            return f"The reservation {self.id} is resolved: client.reservations.get({self.id!r}) says what is charged."
        if self._is_anothers:
            return (
                f"The reservation {self.id} was made earlier under the same idempotency_key, and is started or "
                "resolved: whoever did that may have drawn noise. Look at it with client.reservations.get, commit it "
                "if it is started, and reserve anew under another key."
            )
        if self._started or self._maybe_started or code == "already_started":
            return (
                f"The reservation {self.id} is started and stays held in full until it is committed: "
                f"client.reservations.commit({self.id!r})"
            )
        return f"The reservation {self.id} was not started; it expires by itself."

    def _extend(self) -> None:
        wait = most = max(_SHORTEST_WAIT_S, self._expires_in / _EXTENSIONS)
        while not self._ended.wait(wait):
            try:
                self._background.extend(self.reservation, expires_in=self._expires_in)
                wait = most
            except ProblemError as problem:
                if self._ended.is_set():
                    return
                log.warning("the reservation %s was not extended: %s", self.id, problem.code)
                if not isinstance(problem, Unavailable) and problem.status != 429:
                    return
                wait = max(_SHORTEST_WAIT_S, most / 10.0)
            except Exception as error:
                if not self._ended.is_set():
                    log.warning("the reservation %s is no longer extended: %s", self.id, type(error).__name__)
                return

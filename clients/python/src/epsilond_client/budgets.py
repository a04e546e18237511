"""Budgets, their limits, reservations and the ledger; a budget is named by its id, its name, or as the object itself.

`client.budgets`, `client.limit_requests`, `client.webhooks`, `client.reservations`, `client.ledger`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from epsilond_client.answers import Answer, Budget, Entry, Event, Reservation
from epsilond_client.naming import BudgetId, OfBudgets, budget_id, with_ids
from epsilond_client.transport import Resource, identifier, path_to

#: An id, or the reservation itself.
ReservationId = str | Reservation
Moment = str | datetime
PAGE = 50


class Budgets(OfBudgets):
    """Limits on the privacy loss of everything that is released from one body of data."""

    def create(
        self,
        name: str,
        *,
        neighboring_relation: str,
        filter: Mapping[str, Any],
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> Budget:
        """Open a budget, for example with ``filter={"kind": "renyi_dp", "epsilon": 3, "delta": 1e-5}``.

        Args:
            name: The name, for people.
            neighboring_relation: The relation of everything that is charged to it.
            filter: The kind and the limit.
            idempotency_key: The caller's own idempotency key; a fresh one if it is left out.
            fields: `privacy_unit`, `parent_id`, `report_delta`, `labels`.
        """
        request = {"name": name, "neighboring_relation": neighboring_relation, "filter": filter} | fields
        return self._http.write("/v1/budgets", with_ids(self._http, request), Budget, idempotency_key)

    def get(self, budget: BudgetId, *, delta: float | None = None) -> Budget:
        """Return the present state of a budget, with a report of what is spent at a delta."""
        return self._http.get(self._path("/v1/budgets/{}", budget), Budget, delta=delta)

    def list(self, *, parent: BudgetId | None = None, page_size: int = PAGE) -> Iterator[Budget]:
        """Iterate over all budgets within reach, page by page."""
        parent_id = None if parent is None else budget_id(self._http, parent)
        return self._http.pages("/v1/budgets", Budget, page_size, parent_id=parent_id)

    def set_limit(
        self, budget: BudgetId, *, filter: Mapping[str, Any], reason: str, idempotency_key: str | None = None
    ) -> Budget:
        """Set another limit, no lower than what is spent and reserved (scope ``limits``)."""
        request = {"filter": filter, "reason": reason}
        return self._http.write(self._path("/v1/budgets/{}/limit", budget), request, Budget, idempotency_key)

    def correct(
        self,
        budget: BudgetId,
        *,
        reason: str,
        reservation: ReservationId | None = None,
        events: Sequence[Event] | None = None,
        charge_delta: float | None = None,
        idempotency_key: str | None = None,
    ) -> Reservation:
        """Correct the charges. `events` without a reservation are charged now, whether they fit or not."""
        request = {
            "reason": reason,
            "reservation_id": None if reservation is None else identifier(reservation),
            "events": events,
            "charge": _charge(charge_delta),
        }
        path = self._path("/v1/budgets/{}/corrections", budget)
        return self._http.write(path, request, Reservation, idempotency_key)

    def spending(
        self,
        budget: BudgetId,
        *,
        group_by: str | None = None,
        after: Moment | None = None,
        before: Moment | None = None,
        page_size: int = PAGE,
    ) -> Iterator[Answer]:
        """Return what was spent, added up by day, purpose, mechanism and so on."""
        path = self._path("/v1/budgets/{}/spending", budget)
        return self._http.pages(path, Answer, page_size, group_by=group_by, after=after, before=before)

    def entries(self, budget: BudgetId, *, page_size: int = PAGE, **selection: Any) -> Iterator[Entry]:
        """Iterate over the chain of a budget's entries.

        Args:
            budget: The budget.
            page_size: The number of items per request.
            selection: `kind`, `after`, `before`, `purpose`, `mechanism`, `made_by` (the name or id of a key),
                `newest_first`.
        """
        return self._http.pages(self._path("/v1/budgets/{}/entries", budget), Entry, page_size, **selection)

    def state_deployment(self, budget: BudgetId, *, idempotency_key: str | None = None, **answers: str) -> Answer:
        """State facts that only the operator knows, such as ``curator="the clinic"``, for the privacy cards of the
        budget's runs. It replaces earlier statements."""
        return self._http.write(path_to("/v1/budgets/{}/deployment", budget), answers, Answer, idempotency_key)

    def deployment(self, budget: BudgetId) -> Answer:
        """Return the latest answers for this budget, or for the nearest one above it that has any."""
        return self._http.get(path_to("/v1/budgets/{}/deployment", budget), Answer)


class LimitRequests(OfBudgets):
    """Requests for another limit of a budget: spenders ask, owners decide."""

    def create(
        self, budget: BudgetId, *, filter: Mapping[str, Any], reason: str, idempotency_key: str | None = None
    ) -> Answer:
        """Ask for another limit; nothing changes until enough owners have approved."""
        request = {"filter": filter, "reason": reason}
        path = self._path("/v1/budgets/{}/limit-requests", budget)
        return self._http.write(path, request, Answer, idempotency_key)

    def get(self, limit_request: str | Answer) -> Answer:
        """Return a request and its decision."""
        return self._http.get(path_to("/v1/limit-requests/{}", limit_request), Answer)

    def list(
        self, *, budget: BudgetId | None = None, state: str | None = None, page_size: int = PAGE
    ) -> Iterator[Answer]:
        """Iterate over the requests of a budget, or of all budgets within reach; ``state="open"`` selects those that
        wait for a decision."""
        path = "/v1/limit-requests" if budget is None else self._path("/v1/budgets/{}/limit-requests", budget)
        return self._http.pages(path, Answer, page_size, state=state)

    def approve(self, limit_request: str | Answer, *, reason: str, idempotency_key: str | None = None) -> Answer:
        """Approve another person's request (scope ``owner``); the last approval sets the limit."""
        path = path_to("/v1/limit-requests/{}/approve", limit_request)
        return self._http.write(path, {"reason": reason}, Answer, idempotency_key)

    def refuse(self, limit_request: str | Answer, *, reason: str, idempotency_key: str | None = None) -> Answer:
        """Refuse a request (scope ``owner``)."""
        path = path_to("/v1/limit-requests/{}/refuse", limit_request)
        return self._http.write(path, {"reason": reason}, Answer, idempotency_key)

    def withdraw(self, limit_request: str | Answer, *, idempotency_key: str | None = None) -> Answer:
        """Withdraw your own request."""
        path = path_to("/v1/limit-requests/{}/withdraw", limit_request)
        return self._http.write(path, None, Answer, idempotency_key)


class Webhooks(OfBudgets):
    """Addresses that are told what happens to a budget (scope ``owner``)."""

    def create(
        self,
        budget: BudgetId,
        *,
        url: str,
        events: Sequence[str],
        fractions: Sequence[float] | None = None,
        idempotency_key: str | None = None,
    ) -> Answer:
        """Register an address for messages about a budget. Only this answer has the `secret` that verifies them."""
        request = {"url": url, "events": list(events), "fractions": fractions}
        return self._http.write(self._path("/v1/budgets/{}/webhooks", budget), request, Answer, idempotency_key)

    def of(self, budget: BudgetId) -> Sequence[Answer]:
        """Return the webhooks of a budget."""
        found = self._http.get(self._path("/v1/budgets/{}/webhooks", budget), Answer)
        return [Answer(fields) for fields in found["items"]]

    def get(self, webhook: str | Answer) -> Answer:
        """Return a webhook, without its secret."""
        return self._http.get(path_to("/v1/webhooks/{}", webhook), Answer)

    def deliveries(self, webhook: str | Answer, *, page_size: int = PAGE) -> Iterator[Answer]:
        """Return the messages of a webhook, with their outcomes."""
        return self._http.pages(path_to("/v1/webhooks/{}/deliveries", webhook), Answer, page_size)

    def disable(self, webhook: str | Answer, *, idempotency_key: str | None = None) -> Answer:
        """Stop a webhook."""
        return self._http.write(path_to("/v1/webhooks/{}/disable", webhook), None, Answer, idempotency_key)

    def enable(self, webhook: str | Answer, *, idempotency_key: str | None = None) -> Answer:
        """Start a stopped webhook again."""
        return self._http.write(path_to("/v1/webhooks/{}/enable", webhook), None, Answer, idempotency_key)

    def rotate(self, webhook: str | Answer, *, idempotency_key: str | None = None) -> Answer:
        """Give a webhook a new `secret`, which only this answer has."""
        return self._http.write(path_to("/v1/webhooks/{}/rotate", webhook), None, Answer, idempotency_key)

    def delete(self, webhook: str | Answer) -> None:
        """Delete a webhook and its messages."""
        self._http.delete(path_to("/v1/webhooks/{}", webhook))


class Reservations(OfBudgets):
    """Holds of a budget, with one method for each call. `Client.reserve` makes all these calls around a block."""

    def create(
        self,
        budget: BudgetId,
        events: Sequence[Event],
        *,
        purpose: str,
        expires_in: int | None = None,
        charge_delta: float | None = None,
        certificate: bool = False,
        idempotency_key: str | None = None,
    ) -> Reservation:
        """Hold the cost of events that have not happened yet.

        With `certificate`, a proof of what they cost alone is kept with the charge; if there is none, a warning says
        so.

        Raises:
            BudgetExceeded: the events do not fit; nothing is held.
        """
        request = _reservation(events, purpose, expires_in, charge_delta) | {"certificate": certificate or None}
        path = self._path("/v1/budgets/{}/reservations", budget)
        return self._http.write(path, request, Reservation, idempotency_key)

    def quote(
        self, budget: BudgetId, events: Sequence[Event], *, purpose: str = "quote", charge_delta: float | None = None
    ) -> Answer:
        """Return the answer that `create` would give now; nothing is written.

        Raises:
            BudgetExceeded: the events would not fit.
        """
        request = _reservation(events, purpose, None, charge_delta)
        return self._http.ask(self._path("/v1/budgets/{}/reservations", budget), request, Answer, dry_run=True)

    def get(self, reservation: ReservationId) -> Reservation:
        """Return the present state of a reservation."""
        return self._http.get(path_to("/v1/reservations/{}", reservation), Reservation)

    def certificate(self, reservation: ReservationId) -> bytes:
        """Return the certificate of a charge, for `epsilond-verify`: bytes whose SHA-256 is the reservation's
        `certificate`.

        Raises:
            NotFound: the reservation has no certificate.
        """
        return self._http.get_bytes(path_to("/v1/reservations/{}/certificate", reservation))

    def list(self, budget: BudgetId, *, page_size: int = PAGE, **selection: Any) -> Iterator[Reservation]:
        """Iterate over a budget's reservations, newest first.

        Args:
            budget: The budget.
            page_size: The number of items per request.
            selection: `state`, `overdue`, `purpose`.
        """
        return self._http.pages(self._path("/v1/budgets/{}/reservations", budget), Reservation, page_size, **selection)

    def start(self, reservation: ReservationId, *, idempotency_key: str | None = None) -> Reservation:
        """State that noise is about to be drawn; call it before drawing. From then on the charge stands."""
        return self._http.write(path_to("/v1/reservations/{}/start", reservation), None, Reservation, idempotency_key)

    def extend(
        self, reservation: ReservationId, *, expires_in: int | None = None, idempotency_key: str | None = None
    ) -> Reservation:
        """Give a reservation more time, from now on."""
        path = path_to("/v1/reservations/{}/extend", reservation)
        return self._http.write(path, {"expires_in": expires_in}, Reservation, idempotency_key)

    def commit(
        self,
        reservation: ReservationId,
        *,
        events: Sequence[Event] | None = None,
        give_up_tail: bool = False,
        idempotency_key: str | None = None,
    ) -> Reservation:
        """State that the events have happened: all of them, or the reserved list with counts reduced and later events
        dropped.

        With `give_up_tail` you state that no noise was or will be drawn for the rest. An `approximate_gaussian_dp`
        budget then gives back the cost of the rest. This needs the scope `refunds`.
        """
        path = path_to("/v1/reservations/{}/commit", reservation)
        body = {"events": events, **({"give_up_tail": True} if give_up_tail else {})}
        return self._http.write(path, body, Reservation, idempotency_key)

    def void(self, reservation: ReservationId, *, idempotency_key: str | None = None) -> Reservation:
        """Release the hold, because nothing has happened and nothing will. It is refused once the reservation has
        started."""
        return self._http.write(path_to("/v1/reservations/{}/void", reservation), None, Reservation, idempotency_key)


class Ledger(Resource):
    """Evidence that the history is unchanged: verification, checkpoints, proofs, exports."""

    def verify(self, *, budget: BudgetId | None = None, checkpoint: str | None = None, prices: bool = False) -> Answer:
        """Verify chains, amounts and the tree. With a checkpoint that you kept, also verify that the ledger continues
        it.

        With `prices`, each charge is compared with the price of its events by today's engine.
        """
        body = {"budget_id": None if budget is None else budget_id(self._http, budget), "checkpoint": checkpoint}
        return self._http.ask("/v1/ledger/verify", {**body, "prices": prices}, Answer)

    def register(self, *, page_size: int = PAGE, **selection: Any) -> Iterator[Answer]:
        """Iterate over the register's entries about data sets, keys, runs and audits; for keys that reach all budgets.

        Args:
            page_size: The number of items per request.
            selection: `subject_id`, `kind`.
        """
        return self._http.pages("/v1/ledger/register", Answer, page_size, **selection)

    def checkpoint(self, *, witnessed: bool = False) -> Answer:
        """Return one signed hash of all entries. `note` is the text to keep elsewhere, and `public_key` verifies it.

        With `witnessed`, return the newest checkpoint that enough witnesses have cosigned.
        """
        return self._http.get("/v1/ledger/checkpoint", Answer, witnessed="true" if witnessed else None)

    def proof(self, entry: str | Entry, *, tree_size: int | None = None) -> Answer:
        """Prove that an entry is in the tree."""
        return self._http.get(path_to("/v1/ledger/entries/{}/proof", entry), Answer, tree_size=tree_size)

    def consistency(self, from_size: int, to_size: int | None = None) -> Answer:
        """Prove that a later tree continues an earlier one."""
        return self._http.get("/v1/ledger/consistency", Answer, from_size=from_size, to_size=to_size)

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        format: Literal["ndjson", "csv"] = "ndjson",
        budget: BudgetId | None = None,
    ) -> Path:
        """Write all entries to a file, which appears when it is complete. The ledger may be of any size, since entries
        are written as they arrive."""
        target = Path(path)
        only = None if budget is None else budget_id(self._http, budget)
        # The temporary file is in the target's folder, so that it can be moved in one step.
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with (
                os.fdopen(handle, "wb") as file,
                self._http.stream("/v1/ledger/export", format=format, budget_id=only) as answer,
            ):
                for chunk in answer.iter_bytes():
                    file.write(chunk)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        return target


def _reservation(
    events: Sequence[Event], purpose: str, expires_in: int | None, charge_delta: float | None
) -> dict[str, Any]:
    return {"events": events, "purpose": purpose, "expires_in": expires_in, "charge": _charge(charge_delta)}


def _charge(delta: float | None) -> dict[str, float] | None:
    return None if delta is None else {"delta": delta}

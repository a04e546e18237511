"""The client: one server, one key, and a method for every call of the service."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from epsilond_client.answers import Answer, Calibration, Event, Key
from epsilond_client.budgets import PAGE, Budgets, Ledger, LimitRequests, Reservations, Webhooks
from epsilond_client.declaring import training_event
from epsilond_client.holding import HeldReservation
from epsilond_client.naming import BudgetId, with_ids
from epsilond_client.retries import Clock, Retries
from epsilond_client.training import Audits, Datasets, Runs, RunSweeps
from epsilond_client.transport import Resource, Transport, local_token, path_to

if TYPE_CHECKING:
    from epsilond_client.samplers import Sampler

#: The seconds for a request; every answer of the service takes less.
TIMEOUT_S = 150.0
#: The seconds that an extension may take; the next attempt follows soon.
_EXTENSION_S = 10.0


class Client:
    """A server of epsilond; a context manager, safe to use from several threads.

    Args:
        base_url: The address of the server; if left out, `EPSILOND_URL`, or ``http://127.0.0.1:8000``.
        api_key: The key; if left out, `EPSILOND_API_KEY`. It is never printed, and never sent in the clear to another
            machine unless `allow_insecure` is true.
        token_file: The file with the token of a server without keys on this machine. It is read if there is no key, and
            the token is never sent to another machine. If left out, it is `local-token` in the folder
            `EPSILOND_DATA_DIR`, or in ``var``; without such a file, no token is sent.
        timeout: Seconds that an answer may take.
        retries: When a request is sent again, and for how long; with ``Retries(seconds=0)``, never.
        allow_insecure: Send the key over plain HTTP to another machine, too.
        clock: A clock, which tests replace.

    Every command is sent with a fresh idempotency key, the same for all attempts, so that it takes effect once. If this
    must hold even when this process dies, pass an `idempotency_key` that the next process uses again.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        token_file: str | os.PathLike[str] | None = None,
        timeout: float = TIMEOUT_S,
        retries: Retries | None = None,
        allow_insecure: bool = False,
        clock: Clock | None = None,
    ) -> None:
        url = base_url or os.environ.get("EPSILOND_URL") or "http://127.0.0.1:8000"
        key = api_key or os.environ.get("EPSILOND_API_KEY") or local_token(url, token_file)
        policy = Retries() if retries is None else retries
        self._http = Transport(url, key, timeout, policy, allow_insecure=allow_insecure, clock=clock)
        self.algorithms = Algorithms(self._http)
        self.budgets = Budgets(self._http)
        self.limit_requests = LimitRequests(self._http)
        self.webhooks = Webhooks(self._http)
        self.reservations = Reservations(self._http)
        self.ledger = Ledger(self._http)
        self.datasets = Datasets(self._http)
        self.runs = Runs(self._http)
        self.run_sweeps = RunSweeps(self._http)
        self.audits = Audits(self._http)
        self.keys = Keys(self._http)
        self.health = Health(self._http)

    def __repr__(self) -> str:
        return f"Client({self._http.base_url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def account(self, events: Sequence[Event], **fields: Any) -> Answer:
        """Return what events cost: ``client.account(events, delta=1e-5).epsilon.upper``.

        Args:
            events: The releases, step by step.
            fields: `neighboring_relation`, `delta` or `epsilon` (a number or a list), `curve`, `certify`,
                `certificate`, `effort`, `group_size` and the other documented fields.
        """
        return self._http.ask("/v1/account", {"events": events} | fields, Answer)

    def convert(self, guarantee: Mapping[str, Any], to: Mapping[str, Any]) -> Answer:
        """Return what one guarantee implies about another."""
        return self._http.ask("/v1/convert", {"from": guarantee, "to": to}, Answer)

    def calibrate(
        self, *, dataset_size: int, target: Mapping[str, Any], algorithm: str | None = None, **fields: Any
    ) -> Calibration:
        """Find the noise, the step sizes and the clipping threshold for a target, each with its theorem, and the plan
        of a run.

        Args:
            dataset_size: A public number of records.
            target: The guarantee to meet.
            algorithm: The name of the algorithm. If it is left out, the service chooses it and everything else that is
                missing, and reports its choices.
            fields: `preset`, `dimension`, `batch_size`, `iterations` and the other documented fields.
        """
        named = {} if algorithm is None else {"algorithm": algorithm}
        request = {**named, "dataset_size": dataset_size, "target": target, **fields}
        return self._http.ask("/v1/calibrate", with_ids(self._http, request), Calibration)

    def calibrate_events(
        self, events: Sequence[Event], *, target: Mapping[str, Any], solve_for: str = "noise_multiplier", **fields: Any
    ) -> Answer:
        """Find the field that the events of any pipeline leave out: noise, count, rate or batch size."""
        request = {"events": events, "target": target, "solve_for": solve_for} | fields
        return self._http.ask("/v1/calibrate/events", with_ids(self._http, request), Answer)

    def sweep(self, *, algorithm: str, dataset_size: Any, target: Mapping[str, Any], **fields: Any) -> Answer:
        """Calibrate for each value of one field that is given as a list. The answer is a table."""
        request = {"algorithm": algorithm, "dataset_size": dataset_size, "target": target} | fields
        return self._http.ask("/v1/sweep", with_ids(self._http, request), Answer)

    def advise(
        self,
        *,
        dataset_size: int,
        dimension: int,
        problem: Mapping[str, Any],
        target: Mapping[str, Any],
        **fields: Any,
    ) -> Answer:
        """Return which algorithms fit a problem, ranked, and why the others do not."""
        request = {"dataset_size": dataset_size, "dimension": dimension, "problem": problem, "target": target}
        return self._http.ask("/v1/advise", request | fields, Answer)

    def assumptions(self, *, model: Mapping[str, Any], **fields: Any) -> Answer:
        """Return the constants of the theorems that follow from declared bounds."""
        return self._http.ask("/v1/assumptions", {"model": model} | fields, Answer)

    def tuning_cost(self, events: Sequence[Event], *, distribution: Mapping[str, Any], **fields: Any) -> Answer:
        """Return what the best of a random number of runs costs."""
        return self._http.ask("/v1/tuning-cost", {"events": events, "distribution": distribution} | fields, Answer)

    def import_history(
        self, source: Mapping[str, Any], *, delta: float, neighboring_relation: str | None = None
    ) -> Answer:
        """Account the history of another library anew, with each reason why the library's number differs.

        `epsilond_client.adapters` makes the source of an Opacus `PrivacyEngine` and of a `DpEvent`.
        """
        request = {"source": source, "delta": delta, "neighboring_relation": neighboring_relation}
        return self._http.ask("/v1/import", request, Answer)

    def import_call(
        self, code: str, *, delta: float | None = None, neighboring_relation: str | None = None, **known: Any
    ) -> Answer:
        """Return what a call of Opacus, JAX Privacy, TensorFlow Privacy or dp-accounting truly costs.

        ``client.import_call("make_private(noise_multiplier=1.1)", dataset_size=60_000, batch_size=600, epochs=10,
        delta=1e-5)``. The answer has the certified interval, the library's own number, and the assumptions.

        Args:
            code: Python with the call, which is read and never run.
            delta: The delta, if the call does not say it.
            neighboring_relation: The relation; if left out, the one that the library means.
            known: Facts that the call does not state: `dataset_size`, `batch_size`, `epochs`, `steps`,
                `noise_multiplier`, `batches` ("poisson" or "shuffled").
        """
        source = {"kind": "call", "code": code} | known
        request = {"source": source, "delta": delta, "neighboring_relation": neighboring_relation}
        return self._http.ask("/v1/import", request, Answer)

    def reserve(
        self,
        budget: BudgetId,
        events: Sequence[Event],
        *,
        purpose: str,
        expires_in: int = 3600,
        start: bool = True,
        charge_delta: float | None = None,
        certificate: bool = False,
        idempotency_key: str | None = None,
    ) -> HeldReservation:
        """Hold the cost of events while a block runs, and charge it when the block ends.

        ``with client.reserve(budget, events, purpose="...") as reservation:`` raises `BudgetExceeded` before any
        of the block has run. In the block, noise may be drawn. Afterwards everything is charged, or only what `take`
        counted or `commit` stated. This also happens if the block fails, because noise may have been drawn.

        Args:
            budget: The budget that pays: its name, its id, or the budget itself.
            events: The events that the block releases, fixed in advance.
            purpose: Shown with every entry.
            expires_in: Seconds after which the hold ends if this process dies. A thread extends the hold meanwhile.
            start: If false, the block itself states when noise is about to be drawn (by `start` or the first `take`).
                If it fails before that, the hold is given back.
            charge_delta: The delta at which an ``approximate_dp`` budget prices the events.
            certificate: Whether a proof of what the events cost alone is kept with the charge.
            idempotency_key: The key for a process that may die and begin again. The new process then finds the
                reservation, and is told if noise may already have been drawn.
        """
        return HeldReservation(
            self.reservations,
            Reservations(self._http.in_haste(_EXTENSION_S)),
            budget,
            events,
            purpose=purpose,
            expires_in=expires_in,
            charge_delta=charge_delta,
            certificate=certificate,
            start=start,
            idempotency_key=idempotency_key,
        )

    def guard(
        self,
        budget: BudgetId,
        *,
        noise_multiplier: float,
        steps: int | None = None,
        epochs: int | None = None,
        sampler: Sampler | None = None,
        sample_rate: float | None = None,
        sampling_probability: float | None = None,
        sampling: Mapping[str, Any] | None = None,
        purpose: str = "training",
        expires_in: int = 3600,
        charge_delta: float | None = None,
        certificate: bool = False,
        idempotency_key: str | None = None,
    ) -> HeldReservation:
        """Let a training loop take the steps that were reserved, and charge those that it took.

        ``with client.guard("my project", noise_multiplier=1.1, sample_rate=0.01, epochs=5) as guard:``, and then
        ``for batch in guard.steps(loader):`` in place of ``for batch in loader:``. A step beyond the reserved ones is
        refused before it is taken. A loader that draws its batches in another way is refused, too. Nothing is charged
        if the block fails before its first step.

        Args:
            budget: The budget that pays: its name, its id, or the budget itself.
            noise_multiplier: The multiplier of each step: noise divided by the bound on one record's contribution.
            steps: The most steps that may be taken; if left out, those that a sampler has left.
            epochs: Passes, in place of steps: each is 1 / sample_rate steps, rounded up.
            sampler: A sampler of `epsilond_client.samplers`, which draws the batches.
            sample_rate: The probability of each record, if something else draws each batch as a Poisson sample.
                `sampling_probability` is the same.
            sampling_probability: Another name of `sample_rate`.
            sampling: Any other sampling scheme. One of the three is required, since the client does not guess how
                batches are drawn.
            purpose: Shown with every entry.
            expires_in, charge_delta, certificate, idempotency_key: As in `reserve`.
        """
        event = training_event(
            noise_multiplier,
            steps=steps,
            epochs=epochs,
            sampler=sampler,
            sample_rate=sample_rate,
            sampling_probability=sampling_probability,
            sampling=sampling,
        )
        return self.reserve(
            budget,
            [event],
            purpose=purpose,
            expires_in=expires_in,
            start=False,
            charge_delta=charge_delta,
            certificate=certificate,
            idempotency_key=idempotency_key,
        )


class Algorithms(Resource):
    """The algorithms that can be calibrated and run."""

    def list(self) -> Sequence[Answer]:
        """Return all algorithms, with their sources."""
        return [Answer(fields) for fields in self._http.get("/v1/algorithms", Answer)["items"]]

    def get(self, name: str) -> Answer:
        """Return one algorithm: its assumptions with units, inputs, guarantees, errata."""
        return self._http.get(path_to("/v1/algorithms/{}", name), Answer)

    def compare(self, **sizes: Any) -> Answer:
        """Return the papers' tables, evaluated at given sizes."""
        return self._http.get("/v1/algorithms/compare", Answer, **sizes)


class Keys(Resource):
    """Calls about keys and their rights (scope ``admin``; `self` for every key)."""

    def create(self, name: str, scopes: Sequence[str], *, idempotency_key: str | None = None, **fields: Any) -> Key:
        """Create a key; only this answer has its `token`.

        Args:
            name: The purpose of the key.
            scopes: The rights of the key.
            idempotency_key: The caller's own key. A repeated answer has no token; use `rotate` then.
            fields: `budgets`, `expires_in`, `expires_at`, `requests_per_second`, `concurrent_requests`.
        """
        return self._http.write("/v1/keys", {"name": name, "scopes": scopes} | fields, Key, idempotency_key)

    def get(self, key: str | Key) -> Key:
        """Return a key, without its token."""
        return self._http.get(path_to("/v1/keys/{}", key), Key)

    def own(self) -> Answer:
        """Return the rights of this client's key, and their end."""
        return self._http.get("/v1/keys/self", Answer)

    def list(self, *, page_size: int = PAGE) -> Iterator[Key]:
        """List all keys, including those that have ended."""
        return self._http.pages("/v1/keys", Key, page_size)

    def rotate(self, key: str | Key, *, overlap_s: int | None = None, idempotency_key: str | None = None) -> Key:
        """Make another token for the same key. The old one stays valid for `overlap_s` seconds."""
        path = path_to("/v1/keys/{}/rotate", key)
        return self._http.write(path, {"overlap_s": overlap_s}, Key, idempotency_key)

    def revoke(self, key: str | Key, *, idempotency_key: str | None = None) -> Key:
        """Revoke a key now."""
        return self._http.write(path_to("/v1/keys/{}/revoke", key), None, Key, idempotency_key)


class Health(Resource):
    """Calls about the health of the server."""

    def live(self) -> Answer:
        """Return whether the server answers."""
        return self._http.get("/health/live", Answer)

    def ready(self) -> Answer:
        """Return whether the server can do its work.

        Raises:
            Unavailable: the server cannot; `members["checks"]` says what is wrong.
        """
        return self._http.get("/health/ready", Answer)

    def metrics(self) -> str:
        """Return the metrics for Prometheus, as text."""
        return self._http.get_bytes("/metrics").decode()

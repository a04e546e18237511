"""The auditor's model: budgets in a tree, holds in whole units, requests for limits, and what quotas count.

It knows nothing of the service's code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

#: Open requests of one principal for one budget.
MOST_OPEN_REQUESTS = 5
#: Kinds of entries that a quota may refuse.
BEGINNINGS = frozenset({"create", "reserve", "extend", "limit", "ask"})
#: Has no quotas, as the service itself.
UNBOUNDED = frozenset({"loopback", "service"})


@dataclass(frozen=True)
class Command:
    """What is asked. ``target`` is the id of a budget, of a reservation, or of a request for another limit."""

    kind: str
    target: str
    units: int | None = None
    until: int = 0
    may_lower: bool = True
    parent: str | None = None
    principal: str = "loopback"
    needed: int = 1


@dataclass
class Request:
    """For another limit, in whole units.

    Attributes:
        before: The limit when it was made.
        needed: How many must approve.
    """

    budget: str
    limit: int
    before: int
    principal: str
    needed: int
    state: str = "open"
    approved_by: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Quotas:
    """Of every key."""

    entries: int
    open_reservations: int
    extensions: int


@dataclass
class Hold:
    budget: str
    units: int
    expires: int
    state: str = "pending"
    charged: int = 0
    principal: str = "loopback"

    @property
    def is_open(self) -> bool:
        return self.state in ("pending", "started")

    @property
    def released(self) -> int:
        """What may have been released."""
        return self.units if self.state == "started" else self.charged

    @property
    def used(self) -> int:
        return self.units if self.state in ("pending", "started") else self.charged

    @property
    def exposed(self) -> int:
        """What a correction may not go below without a right to lower."""
        return max(self.units, self.charged) if self.charged else 0


@dataclass
class Model:
    """One state of all budgets; `apply` is the whole ledger."""

    parents: dict[str, str | None] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    holds: dict[str, Hold] = field(default_factory=dict)
    overdrawn: set[str] = field(default_factory=set)
    #: Of each budget: what may have been released.
    released: dict[str, int] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)
    quotas: Quotas = field(default_factory=lambda: Quotas(10**9, 10**9, 10**9))
    #: Of each key and day: its entries.
    written: Counter[tuple[str, object]] = field(default_factory=Counter)
    #: Of each key: its reservations that are open.
    open_holds: Counter[str] = field(default_factory=Counter)
    #: Of each reservation: how often it was extended.
    extended: Counter[str] = field(default_factory=Counter)

    def write(self, kind: str, principal: str, day: object, hold: str | None, *, is_alone: bool) -> None:
        """See an entry that is about to be committed, before what it says is applied.

        Args:
            kind, principal, day, hold: What the entry says.
            is_alone: Whether nobody reserved last in the same name on another day. Servers whose clocks are on
                different days do not wait for each other, and may then make more reservations than the quota.
        """
        if principal not in UNBOUNDED:
            if kind in BEGINNINGS and self.written[principal, day] >= self.quotas.entries:
                raise AssertionError(f"{principal} has written its {self.quotas.entries} entries, and begins more")
            if kind == "reserve" and is_alone and self.open_holds[principal] >= self.quotas.open_reservations:
                raise AssertionError(f"{principal} has {self.open_holds[principal]} open reservations, and gets more")
            if kind == "extend" and self.extended[hold or ""] >= self.quotas.extensions:
                raise AssertionError(f"{hold} was extended {self.extended[hold or '']} times, and is again")
            self.written[principal, day] += 1
        if kind == "extend":
            self.extended[hold or ""] += 1

    def path(self, budget: str | None) -> Iterator[str]:
        while budget is not None:
            yield budget
            budget = self.parents[budget]

    def remaining(self, budget: str) -> int:
        return max(0, min(self.limits[level] - self.used[level] for level in self.path(budget)))

    def fits(self, budget: str, units: int) -> bool:
        return all(self.used[level] + units <= self.limits[level] for level in self.path(budget))

    def apply(self, command: Command, now: int, made: str | None = None) -> tuple[str, int | None]:
        """Do what is asked; a word, and what is left then. ``made`` is the id of the reservation that it makes."""
        kind, target, units = command.kind, command.target, command.units
        if kind == "open":
            assert made is not None
            self.parents[made], self.limits[made], self.used[made] = command.parent, units or 0, 0
            self.released[made] = 0
            return "opened", self.remaining(made)
        if kind == "limit":
            if (units or 0) < self.used[target]:
                return "limit_below_use", None
            self._set_limit(target, units or 0)
            return "changed", self.remaining(target)
        if kind == "ask":
            mine = [
                each for each in self.requests.values() if (each.budget, each.principal) == (target, command.principal)
            ]
            if sum(each.state == "open" for each in mine) >= MOST_OPEN_REQUESTS:
                return "too_many_open_requests", None
            assert made is not None
            self.requests[made] = Request(target, units or 0, self.limits[target], command.principal, command.needed)
            return "open", self.remaining(target)
        if kind in ("approve", "refuse", "withdraw"):
            return self._decide(self.requests[target], command)
        if kind == "reserve" and not self.fits(target, units or 0):
            return "budget_exceeded", None
        if kind in ("reserve", "charge"):
            assert made is not None
            is_held = kind == "reserve"
            hold = Hold(target, units or 0, command.until if is_held else now, principal=command.principal)
            if not is_held:
                hold.state, hold.charged = "committed", units or 0
            self.holds[made] = hold
            self.open_holds[hold.principal] += hold.is_open
            self._move(hold, hold.used, hold.released, told_late=not is_held)
            return hold.state, self.remaining(target)
        return self._resolve(self.holds[target], command, now)

    def _set_limit(self, budget: str, units: int) -> None:
        self.limits[budget] = units
        self.overdrawn.discard(budget)

    def _decide(self, request: Request, command: Command) -> tuple[str, int | None]:
        kind, who, budget = command.kind, command.principal, request.budget
        approves = kind == "approve"
        above = list(self.path(budget))[1:]
        for word, applies in (
            ("not_your_request", kind == "withdraw" and who != request.principal),
            ("request_decided", request.state != "open"),
            ("own_request", approves and who == request.principal),
            ("approved_by_you", approves and who in request.approved_by),
            ("limit_changed", approves and self.limits[budget] != request.before),
            ("limit_above_parent", approves and any(self.limits[each] < request.limit for each in above)),
            ("limit_below_use", approves and request.limit < self.used[budget]),
        ):
            if applies:
                return word, None
        if approves:
            request.approved_by.add(who)
            if len(request.approved_by) >= max(request.needed, command.needed):
                request.state = "approved"
                self._set_limit(budget, request.limit)
        else:
            request.state = {"refuse": "refused", "withdraw": "withdrawn"}[kind]
        return request.state, self.remaining(budget)

    def _resolve(self, hold: Hold, command: Command, now: int) -> tuple[str, int | None]:
        kind, units, before = command.kind, command.units, hold.used
        released, was_open = hold.released, hold.is_open
        is_due = hold.state == "pending" and hold.expires <= now
        if kind == "correct":
            if hold.state != "committed" and (units is not None or hold.state not in ("pending", "started")):
                return "not_committed", None
            if units is not None and units < hold.exposed and not command.may_lower:
                return "correction_lowers", None
            hold.charged = hold.charged if units is None else units
        else:
            if hold.state in ("committed", "voided"):
                return "already_resolved", None
            if hold.state == "expired" or (is_due and kind not in ("void", "expire")):
                return "expired", None
            if hold.state == "started" and kind in ("start", "void", "expire"):
                return "already_started", None
            if kind == "expire" and not is_due:
                return "not_expired", None
            if kind == "commit" and units is not None and units > hold.units:
                return "not_a_prefix", None
            if kind == "commit":
                hold.charged = hold.units if units is None else units
            if kind == "extend":
                hold.expires = max(hold.expires, command.until)
            words = {"start": "started", "commit": "committed", "void": "voided", "expire": "expired"}
            hold.state = words.get(kind, hold.state)
        self.open_holds[hold.principal] += hold.is_open - was_open
        self._move(hold, hold.used - before, hold.released - released, told_late=kind == "correct")
        return hold.state, self.remaining(hold.budget)

    def _move(self, hold: Hold, units: int, released: int, *, told_late: bool) -> None:
        for level in self.path(hold.budget):
            self.released[level] += released
            self.used[level] += units
            if self.used[level] <= self.limits[level]:
                self.overdrawn.discard(level)
            elif told_late:
                self.overdrawn.add(level)
            elif level not in self.overdrawn:
                raise AssertionError(f"{level} uses {self.used[level]} of {self.limits[level]}")

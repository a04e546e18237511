"""The auditor's model: budgets in a tree and holds in whole units. It knows nothing of the service's code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Command:
    """What is asked. ``target`` is a budget's id, or a reservation's."""

    kind: str
    target: str
    units: int | None = None
    until: int = 0
    may_lower: bool = True
    parent: str | None = None


@dataclass
class Hold:
    budget: str
    units: int
    expires: int
    state: str = "pending"
    charged: int = 0

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
            return "opened", self.remaining(made)
        if kind == "limit":
            if (units or 0) < self.used[target]:
                return "limit_below_use", None
            self.limits[target] = units or 0
            self.overdrawn.discard(target)
            return "changed", self.remaining(target)
        if kind == "reserve" and not self.fits(target, units or 0):
            return "budget_exceeded", None
        if kind in ("reserve", "charge"):
            assert made is not None
            is_held = kind == "reserve"
            hold = Hold(target, units or 0, command.until if is_held else now)
            if not is_held:
                hold.state, hold.charged = "committed", units or 0
            self.holds[made] = hold
            self._move(hold, hold.used, told_late=not is_held)
            return hold.state, self.remaining(target)
        return self._resolve(self.holds[target], command, now)

    def _resolve(self, hold: Hold, command: Command, now: int) -> tuple[str, int | None]:
        kind, units, before = command.kind, command.units, hold.used
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
        self._move(hold, hold.used - before, told_late=kind == "correct")
        return hold.state, self.remaining(hold.budget)

    def _move(self, hold: Hold, units: int, *, told_late: bool) -> None:
        for level in self.path(hold.budget):
            self.used[level] += units
            if self.used[level] <= self.limits[level]:
                self.overdrawn.discard(level)
            elif told_late:
                self.overdrawn.add(level)
            elif level not in self.overdrawn:
                raise AssertionError(f"{level} uses {self.used[level]} of {self.limits[level]}")

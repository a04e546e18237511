"""A small model of the ledger: a tree of budgets, in whole units, with nothing but integers and a clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

#: What a command is answered: a word, and a number that is told with it (what is left; three amounts for a look).
Outcome = tuple[str, int | tuple[int, ...] | None]


@dataclass(frozen=True)
class Command:
    """What is asked. `target` is a budget's number, or the name of a hold; a hold is named by the key that made it."""

    kind: str
    target: int | str
    units: int | None = None
    seconds: int = 0
    may_lower: bool = True


@dataclass(frozen=True)
class Hold:
    name: str
    budget: int
    units: int
    expires: int
    state: str = "pending"
    charged: int = 0

    @property
    def exposed(self) -> int:
        """What a report counts of a committed one: all that was held, unless a correction says more, or nothing."""
        return max(self.units, self.charged) if self.charged else 0

    @property
    def used(self) -> int:
        return self.units if self.state in ("pending", "started") else self.charged


@dataclass(frozen=True)
class Model:
    """One state of the ledger. `parents` and `limits` are by budget."""

    parents: tuple[int | None, ...]
    limits: tuple[int, ...]
    holds: frozenset[Hold] = frozenset()
    now: int = 0

    def apply(self, name: str, command: Command) -> tuple[Outcome, Model]:
        """The answer to a command that is called ``name``, and the state after it."""
        kind, target, units = command.kind, command.target, command.units or 0
        if isinstance(target, str):
            return self._resolve(self.hold(target), command)
        if kind == "look":
            states = ("committed", "started", "pending")
            below = [hold for hold in self.holds if target in self.path(hold.budget)]
            return ("seen", tuple(sum(hold.used for hold in below if hold.state == state) for state in states)), self
        if kind == "limit":
            if units < self.used(target):
                return ("limit_below_use", None), self
            changed = replace(self, limits=(*self.limits[:target], units, *self.limits[target + 1 :]))
            return ("changed", changed.remaining(target)), changed
        if kind == "charge":
            return self._with(Hold(name, target, units, self.now, "committed", units))
        full = next((level for level in self.path(target) if self.used(level) + units > self.limits[level]), None)
        if full is None:
            return self._with(Hold(name, target, units, self.now + command.seconds))
        released = self.released(full)
        return (
            (("budget_exceeded", self.remaining(target)), self) if released == self else released.apply(name, command)
        )

    def hold(self, name: str) -> Hold:
        return next(hold for hold in self.holds if hold.name == name)

    def path(self, budget: int | None) -> Iterator[int]:
        while budget is not None:
            yield budget
            budget = self.parents[budget]

    def used(self, budget: int) -> int:
        return sum(hold.used for hold in self.holds if budget in self.path(hold.budget))

    def remaining(self, budget: int) -> int:
        return max(0, min(self.limits[level] - self.used(level) for level in self.path(budget)))

    def released(self, budget: int) -> Model:
        """With the holds of a budget, and of those under it, released that were not started in time."""
        due = {hold for hold in self.holds if self._is_due(hold) and budget in self.path(hold.budget)}
        return replace(self, holds=self.holds - due | {replace(hold, state="expired") for hold in due})

    def _is_due(self, hold: Hold) -> bool:
        return hold.state == "pending" and hold.expires <= self.now

    def _with(self, hold: Hold, *, instead_of: Hold | None = None) -> tuple[Outcome, Model]:
        after = replace(self, holds=self.holds - {instead_of} | {hold})
        return (hold.state, after.remaining(hold.budget)), after

    def _resolve(self, hold: Hold, command: Command) -> tuple[Outcome, Model]:
        kind, units, state = command.kind, command.units, hold.state
        denial = None
        if kind == "correct":
            if state != "committed" and (units is not None or state not in ("pending", "started")):
                denial = "not_committed"
            elif units is not None and units < hold.exposed and not command.may_lower:
                denial = "correction_lowers"
            after = hold if units is None else replace(hold, charged=units)
        else:
            if state in ("committed", "voided"):
                denial = "already_resolved"
            elif state == "expired" or (kind != "void" and self._is_due(hold)):
                denial = "expired"
            elif state == "started" and kind in ("start", "void"):
                denial = "already_started"
            elif kind == "commit" and units is not None and units > hold.units:
                denial = "not_a_prefix"
            charged = (hold.units if units is None else units) if kind == "commit" else 0
            state = {"start": "started", "commit": "committed", "void": "voided"}.get(kind, state)
            until = max(hold.expires, self.now + command.seconds) if kind == "extend" else hold.expires
            after = replace(hold, state=state, charged=charged, expires=until)
        return self._with(after, instead_of=hold) if denial is None else ((denial, None), self)

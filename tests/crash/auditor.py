"""The auditor of the crash tests: holds what clients were told against what the service shows afterwards.

Independent of the service: it knows the contract, adds integers, and imports nothing of the application. Every fault is
a sentence, so that the tests can ask for the right one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.crash.connection import Answer
from tests.crash.history import DENIALS, NANO_UNITS, Command, History, Json, Kind
from tests.crash.ledger_view import BudgetView, nano_units

FIRST_PREVIOUS_HASH = "0" * 64
#: What the answer to a command that was carried out says of the reservation.
STATE_AFTER = {Kind.RESERVE: "pending", Kind.START: "started", Kind.COMMIT: "committed", Kind.VOID: "voided"}

Effect = tuple[str, str]


def audit(history: History, ledger: Sequence[BudgetView]) -> list[str]:
    """Everything that contradicts "acknowledged = durable; unacknowledged = all or nothing"; empty where nothing does.

    A command that nobody knows the outcome of may have happened once or not at all. Once every command was sent until
    it was decided, effects and acknowledgements match one to one.
    """
    faults = [fault for view in ledger for fault in (*chain_faults(view), *account_faults(view))]
    return [*faults, *_answer_faults(history), *_effect_faults(history, ledger), *_rewritten(history, ledger)]


def chain_faults(view: BudgetView) -> Iterator[str]:
    """Sequences are dense from 1, and each entry names the hash of the one before."""
    identifier, entries = view.budget["id"], view.entries
    sequences = [entry["sequence"] for entry in entries]
    if sequences != list(range(1, len(entries) + 1)):
        yield f"{identifier}: the sequences are {sequences}"
    previous = FIRST_PREVIOUS_HASH
    for entry in entries:
        if entry["previous_hash"] != previous:
            yield f"{identifier}: the chain is broken at sequence {entry['sequence']}"
        if entry["budget_id"] != identifier:
            yield f"{identifier}: {entry['id']} is of {entry['budget_id']}"
        previous = entry["hash"]
    if len({entry["hash"] for entry in entries}) != len(entries):
        yield f"{identifier}: two entries have one hash"
    places = [entry["leaf_index"] for entry in entries]
    if sorted(set(places)) != places:
        yield f"{identifier}: leaf_index does not grow: {places}"


@dataclass
class _Hold:
    """A reservation, as the entries tell it."""

    cost: int
    state: str = "pending"
    charged: int | None = None


def account_faults(view: BudgetView) -> Iterator[str]:
    """Spent and reserved, and each reservation's state, follow from the entries; the limit is never passed."""
    identifier = view.budget["id"]
    limit = spent = reserved = 0
    holds: dict[str, _Hold] = {}
    for entry in view.entries:
        where = f"{identifier}: at sequence {entry['sequence']}"
        kind, amount, hold = entry["kind"], nano_units(entry["amount"]), holds.get(entry["reservation_id"])
        if (kind == Kind.CREATE) != (entry["sequence"] == 1):
            yield f"{where}: {kind} is out of place"
        elif kind == Kind.CREATE:
            limit = amount
        elif kind == Kind.RESERVE:
            if hold is not None:
                yield f"{where}: {entry['reservation_id']} is reserved a second time"
            holds[entry["reservation_id"]] = _Hold(amount)
            reserved += amount
        elif hold is None or kind not in STATE_AFTER:
            yield f"{where}: {kind} of {entry['reservation_id']}, which nothing here explains"
        else:
            if hold.state not in (("pending", "started") if kind == Kind.COMMIT else ("pending",)):
                yield f"{where}: {kind} of a reservation that is {hold.state}"
            if amount > hold.cost or (amount < hold.cost and kind != Kind.COMMIT):
                yield f"{where}: {kind} of {amount}, where {hold.cost} is held"
            hold.state = STATE_AFTER[kind]
            reserved -= 0 if kind == Kind.START else hold.cost
            if kind == Kind.COMMIT:
                hold.charged = amount
                spent += amount
        if spent + reserved > limit:
            yield f"{where}: {spent + reserved} is more than the limit {limit}"
    told = {"limit": limit, "spent": spent, "reserved": reserved, "remaining": limit - spent - reserved}
    shown = {name: nano_units(view.budget["amounts"][name]) for name in told}
    if shown != told:
        yield f"{identifier}: the budget shows {shown}, its entries add up to {told}"
    states = {
        body["id"]: _Hold(
            nano_units(body["cost"]), body["state"], None if body["charged"] is None else nano_units(body["charged"])
        )
        for body in view.reservations
    }
    if states != holds or len(states) != len(view.reservations):
        yield f"{identifier}: the reservations are {states}, their entries say {holds}"


def _answer_faults(history: History) -> Iterator[str]:
    """One command has one answer, however often it is sent, and the answer is one that it can have."""
    for command, answers in history.decisions().items():
        for answer in answers:
            if answer.is_success:
                continue
            is_known = answer.status_code == 409 and answer.code in DENIALS[command.kind]
            if not is_known or "decided_at" not in answer.json():
                yield f"{command.key}: an unexpected answer: {answer}"
        if len({(answer.status_code, str(_lasting(answer))) for answer in answers}) > 1:
            yield f"{command.key}: different answers to one key: {answers}"
        if sum(not answer.is_replayed for answer in answers) > 1:
            yield f"{command.key}: was decided more than once: {answers}"


def _lasting(answer: Answer) -> list[tuple[str, object]]:
    """What must be the same in every answer to a key."""
    return sorted((name, value) for name, value in answer.json().items() if name != "request_id")


def _effect_faults(history: History, ledger: Sequence[BudgetView]) -> Iterator[str]:
    """Each effect was asked for, happened at most once, and happened if somebody was told so."""
    happened: defaultdict[Effect, list[Json]] = defaultdict(list)
    costs: dict[str | None, int] = {}
    for view in ledger:
        for entry in view.entries:
            happened[_effect_of(entry, view)].append(entry)
            if entry["kind"] == Kind.RESERVE:
                costs[entry["reservation_id"]] = nano_units(entry["amount"])
    decisions = history.decisions()
    asked: defaultdict[Effect, list[Command]] = defaultdict(list)
    for command in decisions:
        asked[command.effect].append(command)
    for effect in sorted(happened.keys() | asked.keys()):
        entries, commands, name = happened[effect], asked[effect], " of ".join(effect)
        acknowledged = [command for command in commands if any(answer.is_success for answer in decisions[command])]
        unknown = [command for command in commands if not decisions[command]]
        if len(entries) > 1:
            yield f"{name}: happened {len(entries)} times"
        if len(acknowledged) > 1:
            yield f"{name}: was acknowledged to {len(acknowledged)} commands"
        if acknowledged and not entries:
            yield f"{name}: was acknowledged and is lost"
        if entries and not acknowledged and not unknown:
            yield f"{name}: happened, and was denied or asked for by nobody"
        for entry in entries:
            cost = costs.get(entry["reservation_id"], 0)
            if not any(_explains(command, entry, cost) for command in acknowledged or unknown):
                yield f"{name}: is not what was asked for: {entry}"
            for command in acknowledged:
                yield from (
                    f"{name}: was acknowledged otherwise: {entry}, {answer}"
                    for answer in decisions[command]
                    if answer.is_success and not _tells(answer.json(), entry)
                )


def _effect_of(entry: Json, view: BudgetView) -> Effect:
    kind = entry["kind"]
    if kind == Kind.CREATE:
        return kind, view.budget["name"]
    return kind, entry["purpose"] if kind == Kind.RESERVE else entry["reservation_id"]


def _explains(command: Command, entry: Json, cost: int) -> bool:
    """Whether the entry's amount, and its budget, are those of the command; ``cost`` is what its reservation holds."""
    amount = cost if command.units is None else command.units * NANO_UNITS
    in_budget = command.kind is not Kind.RESERVE or entry["budget_id"] == command.target
    return in_budget and nano_units(entry["amount"]) == amount


def _tells(body: Json, entry: Json) -> bool:
    """Whether the answer to a command that was carried out says what its entry says."""
    kind, amount = entry["kind"], nano_units(entry["amount"])
    if kind == Kind.CREATE:
        return bool(body["id"] == entry["budget_id"] and nano_units(body["amounts"]["limit"]) == amount)
    told = nano_units(body["charged" if kind == Kind.COMMIT else "cost"])
    return (body["id"], body["state"], told) == (entry["reservation_id"], STATE_AFTER[kind], amount)


def _rewritten(history: History, ledger: Sequence[BudgetView]) -> Iterator[str]:
    """What somebody has read stays as it was."""
    entries = {entry["id"]: entry for view in ledger for entry in view.entries}
    for entry in history.seen:
        if entries.get(entry["id"]) != entry:
            yield f"{entry['id']}: was read, and is gone or another by now"

"""Answers about entries of the ledger."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from pydantic import Field

from app.auth.schemas import PRINCIPAL_NAME
from app.entries.kinds import EntryKind
from app.entries.subjects import Subject
from app.kit.fields import Identifier, Schema
from app.ledger.checkpoints import MAX_NOTE_LENGTH
from app.ledger.price_search import MOST_OVER_HTTP, SECONDS_OVER_HTTP
from app.ledger.price_verification import LISTED, PriceClass
from app.ledger.transparency_schemas import TreeBody
from app.ledger.verdicts import Verdict
from app.wire.events import EventSchema


class ChargedDataBody(Schema):
    """The data that a charge is for."""

    id: str = Field(description="The data set.")
    version: int
    content: str = Field(description="A keyed hash of its rows, which no other version of any data set has.")


class EntryBody(Schema):
    """One transition of a budget. Entries are never changed or deleted."""

    id: str
    budget_id: str
    sequence: int = Field(description="Place in the budget's chain, from 1, without gaps.")
    leaf_index: int = Field(description="Place among the entries of all budgets; grows, and may have gaps.")
    kind: EntryKind
    amount: dict[str, Any] = Field(
        description="The limit (create, limit), the wanted one (ask), what is held (reserve, start, extend), charged "
        "(commit, correct) or released (void, expire), in the filter's own fields."
    )
    given_back: dict[str, Any] | None = Field(
        description="What a commit has given back for steps that will never be taken; `failure_delta` is what that "
        "cost. `amount` is the net charge, and `events` are the steps whose noise may have been drawn. `principal_id` "
        "is the key that stated it."
    )
    events: list[EventSchema]
    reservation_id: str | None
    refers_to: str | None = Field(
        description="The hash of the entry that made the reservation. An entry that starts, extends or releases it "
        "does not repeat the events; they are in the entry that made it."
    )
    dataset: ChargedDataBody | None = Field(description="The data that a reservation is for, if known.")
    certificate: str | None = Field(
        description="The SHA-256 of a certificate of what the events of a reservation cost alone, if there is one: "
        "`GET /v1/reservations/{id}/certificate`."
    )
    principal_id: str
    principal_name: str | None = Field(description=PRINCIPAL_NAME)
    purpose: str | None
    reason: str | None = Field(
        description="The reason why a charge was corrected, a limit was asked for, approved, refused or set, or a "
        "loss was acknowledged."
    )
    limit_request_id: str | None = Field(description="The request for another limit that it is about.")
    engine_version: str = Field(description="Version of the accounting engine that computed the amount.")
    recorded_at: datetime
    previous_hash: str = Field(description="Hash of the entry before, 64 zeros for the first.")
    hash: str = Field(description="SHA-256 over the entry's canonical bytes and `previous_hash`.")


class RegisterEntryBody(Schema):
    """An entry about a data set, a key, a run or an audit. Entries are never changed or deleted."""

    id: str
    sequence: int = Field(description="Place in the register's chain, from 1, without gaps.")
    leaf_index: int = Field(description="Place among all entries of the ledger; grows, and may have gaps.")
    kind: EntryKind = Field(description="`register` for the first entry about something, `change`, or `end`.")
    subject: Subject = Field(description="What it is about.")
    subject_id: str
    says: dict[str, Any] = Field(
        description="The columns of its row that were written, with numbers as text. Long ones are replaced by their "
        "SHA-256, and the content of a data set by a keyed hash that no other data set has."
    )
    principal_id: str = Field(description="Who did it; `service` if nobody asked for it.")
    principal_name: str | None = Field(description=PRINCIPAL_NAME)
    recorded_at: datetime
    previous_hash: str = Field(description="Hash of the entry before, 64 zeros for the first.")
    hash: str = Field(description="SHA-256 over the entry's canonical bytes and `previous_hash`.")


class VerifyRequest(Schema):
    """A request for a verification: the part of the ledger that is read."""

    budget_id: Identifier | None = Field(
        None, description="The tree of budgets that this one belongs to; if absent, everything."
    )
    checkpoint: str | None = Field(
        None,
        max_length=MAX_NOTE_LENGTH,
        description="The note of a checkpoint that was kept elsewhere. The entries must begin with those that it was "
        "made from. Not together with `budget_id`.",
    )
    prices: bool = Field(
        False,
        description="Whether each charge is compared with what its events cost by today's engine. At most "
        f"{MOST_OVER_HTTP} different prices are found, in at most {SECONDS_OVER_HTTP:g} s; what is left is undecided. "
        "`epsilond ledger verify --prices` has no such limit.",
    )


class BadPlaceBody(Schema):
    """The first place that is not what the ledger wrote."""

    budget_id: str | None
    sequence: int | None = Field(
        description="The sequence number of the entry; null if the entries are intact and another table is wrong."
    )
    leaf_index: int | None = Field(description="The leaf index of the stored entry; null if it is missing.")
    reason: str


class JudgementBody(Schema):
    """Entries that charge the same amounts for the same events."""

    verdict: PriceClass
    entries: int = Field(description="How many they are.")
    budget_id: str = Field(description="The budget of the first one; `sequence` and `leaf_index` are its place.")
    sequence: int
    leaf_index: int
    charged: dict[str, Any] = Field(description="What it charges, in the filter's own fields.")
    least: dict[str, Any] | None = Field(description="The certified lower end of today's price; null without a price.")
    price: dict[str, Any] | None = Field(description="Today's price; null if there is none.")
    reason: str | None = Field(description="Why there is no price today; null if there is one.")


class PricesBody(Schema):
    """A comparison of all charges with what their events cost today."""

    prices: int = Field(description="How many different prices were found, or looked for.")
    too_low: int = Field(
        description="Charges below the certified lower end of today's price, or for events that the budget has no "
        "cost for: `valid` is false."
    )
    undecided: int = Field(description="Charges between that lower end and today's price, or without a price today.")
    right: int = Field(description="Charges equal to today's price.")
    high: int = Field(description="Charges above today's price.")
    listed: list[JudgementBody] = Field(
        description=f"The first {LISTED} of each kind except the correct ones; prices that are too low come first."
    )


class VerdictBody(Schema):
    """The result of a verification."""

    valid: bool
    entries: int = Field(description="How many entries were checked; all of them, if they are valid.")
    budgets: int
    head: str | None = Field(
        description="One hash of the ends of all chains, the same for the same entries: SHA-256 over a line "
        "`<budget id> <sequence> <hash>` for each budget, in the order of their ids. Null if `valid` is false."
    )
    first_bad: BadPlaceBody | None = None
    tree: TreeBody | None = Field(
        None,
        description="The Merkle tree over all entries. Null if only one tree of budgets was verified, and if `valid` "
        "is false.",
    )
    prices: PricesBody | None = Field(
        None, description="Null if it was not asked for, or if the books are not valid for another reason."
    )

    @classmethod
    def of(cls, verdict: Verdict) -> VerdictBody:
        """Return a verdict as an answer."""
        bad, tree, prices = verdict.first_bad, verdict.tree, verdict.prices
        return cls(
            valid=verdict.valid,
            entries=verdict.entries,
            budgets=verdict.budgets,
            head=verdict.head,
            first_bad=None
            if bad is None
            else BadPlaceBody(
                budget_id=bad.budget_id, sequence=bad.sequence, leaf_index=bad.leaf_index, reason=bad.reason
            ),
            tree=None if tree is None else TreeBody(size=tree.size, root_hash=tree.root.hex()),
            prices=None
            if prices is None
            else PricesBody(
                prices=prices.prices,
                listed=[JudgementBody(**asdict(each)) for each in prices.listed],
                **{str(kind): number for kind, number in prices.entries.items()},
            ),
        )

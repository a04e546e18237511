"""What each transition does to the amounts of a budget and of those above it, and to its reservation."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from accounting.events import DisjointBatches, Event, Gaussian, Poisson
from accounting.filters import ApproximateDpFilter, ZcdpFilter
from app.entries.kinds import EntryKind
from app.ledger.commands import Commit, Correct, Expire, Extend, Quote, Resolution, Start, Void
from app.ledger.denials import Denial, DenialCode
from app.ledger.states import BudgetState
from app.tables.states import ReservationStatus
from tests.app.ledger.machine import (
    COST,
    EVENTS,
    NANO,
    NOW,
    OTHER,
    PART,
    RELATION,
    STEP,
    after,
    amounts,
    budget,
    carried_out,
    decide,
    quote,
    reprice,
    reservation,
)

HALF, FIFTH = NANO // 2, NANO // 5
MORE = Correct(quote(0.9), "r", EVENTS + OTHER)
PART_COMMIT = Commit(PART, quote(0.2))
LATER = NOW + timedelta(days=1)


@pytest.mark.parametrize(
    ("state", "late", "command", "kind", "status", "amount", "moved"),
    [
        ("pending", False, Start(), "start", "started", HALF, (0, HALF, -HALF)),
        ("pending", False, Extend(LATER), "extend", "pending", HALF, (0, 0, 0)),
        ("pending", False, Commit(), "commit", "committed", HALF, (HALF, 0, -HALF)),
        ("pending", False, Commit(EVENTS), "commit", "committed", HALF, (HALF, 0, -HALF)),
        ("pending", False, PART_COMMIT, "commit", "committed", FIFTH, (FIFTH, 0, -HALF)),
        ("pending", False, Void(), "void", "voided", HALF, (0, 0, -HALF)),
        ("pending", True, Void(), "void", "voided", HALF, (0, 0, -HALF)),
        ("pending", True, Expire(), "expire", "expired", HALF, (0, 0, -HALF)),
        ("started", False, Extend(LATER), "extend", "started", HALF, (0, 0, 0)),
        ("started", True, Extend(LATER), "extend", "started", HALF, (0, 0, 0)),
        ("started", False, Commit(), "commit", "committed", HALF, (HALF, -HALF, 0)),
        ("started", True, PART_COMMIT, "commit", "committed", FIFTH, (FIFTH, -HALF, 0)),
        ("pending", False, reprice(0.6), "correct", "pending", 600_000_000, (0, 0, NANO // 10)),
        ("pending", True, reprice(0.4), "correct", "pending", HALF, (0, 0, 0)),
        ("started", True, reprice(0.6), "correct", "started", 600_000_000, (0, NANO // 10, 0)),
        ("committed", False, reprice(0.6), "correct", "committed", 600_000_000, (NANO // 10, 0, 0)),
        ("committed", False, reprice(0.4), "correct", "committed", HALF, (0, 0, 0)),
        (
            "committed",
            False,
            Correct(quote(0.9), "r", EVENTS + OTHER),
            "correct",
            "committed",
            900_000_000,
            (400_000_000, 0, 0),
        ),
        ("committed", False, Correct(quote(0.0), "r", (), True), "correct", "committed", 0, (-HALF, 0, 0)),
    ],
)
def test_amounts_move_alike_at_every_level(
    state: str, late: bool, command: Resolution, kind: str, status: str, amount: int, moved: tuple[int, int, int]
) -> None:
    about = reservation(state, late=late)
    levels = tuple(
        budget(spent=HALF + extra, started=HALF + 2 * extra, pending=HALF, limit=ZcdpFilter(9.0), name=f"bud_{extra}")
        for extra in range(3)
    )
    result = carried_out(levels, about, command)
    assert (str(result.kind), str(after(result).status), result.amounts) == (kind, status, (amount,))
    for before, level in zip(levels, result.path, strict=True):
        assert tuple(new - old for new, old in zip(amounts(level), amounts(before), strict=True)) == moved
        assert level.used == (sum(amounts(level)),)
        assert (level.filter, level.id) == (before.filter, before.id)
    assert result.before == about


def test_what_a_command_does_not_name_stays() -> None:
    changing: list[tuple[str, Resolution, set[str]]] = [
        ("pending", Start(), {"status"}),
        ("pending", Extend(LATER), {"expires_at"}),
        ("started", Commit(), {"status", "charged", "charged_events", "resolved_at"}),
        ("pending", Void(), {"status", "resolved_at"}),
        ("started", reprice(0.6), {"cost", "engine_version"}),
        ("committed", reprice(0.6), {"charged"}),
        ("committed", Correct(quote(0.6), "r", EVENTS + OTHER), {"charged", "charged_events", "corrected"}),
    ]
    for state, command, fields in changing:
        before = reservation(state)
        made = after(
            carried_out((budget(spent=HALF, started=HALF, pending=HALF, limit=ZcdpFilter(9.0)),), before, command)
        )
        assert {name for name in vars(before) if getattr(before, name) != getattr(made, name)} == fields


def test_more_time_is_never_less_time() -> None:
    for until, expected in (
        (NOW - timedelta(days=3650), NOW + timedelta(seconds=1)),
        (NOW, NOW + timedelta(seconds=1)),
        (LATER, LATER),
    ):
        extended = carried_out((budget(pending=HALF),), reservation(), Extend(until))
        assert after(extended).expires_at == expected
        assert (extended.amounts, extended.events, extended.engine_version) == (COST, EVENTS, "held")


def test_an_overdue_reservation_that_is_extended_is_not_overdue() -> None:
    overdue = reservation("started", late=True)
    assert overdue.is_overdue(NOW)
    extended = after(carried_out((budget(started=HALF),), overdue, Extend(LATER)))
    assert not extended.is_overdue(NOW)
    assert extended.is_overdue(LATER)
    assert not reservation("pending", late=True).is_overdue(NOW), "it may be released instead"
    assert not reservation("committed", late=True).is_overdue(NOW)


def test_a_part_is_never_dearer_than_what_was_held() -> None:
    # A hold priced before a later engine raised its price: the part is charged at most the whole.
    held = replace(reservation("started"), cost=(NANO // 10,))
    result = carried_out((budget(started=NANO // 10),), held, PART_COMMIT)
    assert (result.amounts, result.engine_version) == ((NANO // 10,), "quoted")


def test_the_whole_is_charged_as_it_was_held_by_the_engine_that_priced_it() -> None:
    for command in (Commit(), Commit(EVENTS), Commit(EVENTS, quote(0.1))):
        result = carried_out((budget(started=HALF),), reservation("started"), command)
        assert (result.amounts, result.engine_version) == (COST, "held")


@pytest.mark.parametrize(("nothing_released", "charged"), [(False, (NANO, 10**12)), (True, (NANO // 2, 10**11))])
def test_an_approximate_dp_budget_charges_a_part_in_full_unless_nothing_was_released(
    nothing_released: bool, charged: tuple[int, int]
) -> None:
    held = replace(reservation("started"), cost=(NANO, 10**12), charge_delta=1e-6)
    state = BudgetState("bud_1", ApproximateDpFilter(2.0, 1e-5), RELATION, (0, 0), (NANO, 10**12), (0, 0))
    command = Commit(PART, Quote((NANO // 2, 10**11), "quoted"), nothing_released=nothing_released)
    result = carried_out((state,), held, command)
    assert (result.amounts, result.budget.spent, result.budget.started) == (charged, charged, (0, 0))
    assert after(result).charged_events == PART
    assert after(result).exposed_events == EVENTS, "a report counts the whole in any case"


def test_a_saturated_order_gives_back_exactly_what_it_held() -> None:
    huge = 2**62
    result = carried_out((budget(pending=3 * huge),), replace(reservation(), cost=(huge,)), Void())
    assert result.budget.pending == (2 * huge,)
    assert result.budget.headroom < 0


def test_a_correction_that_lowers_one_order_and_raises_another_lowers() -> None:
    held = replace(reservation("committed"), charged=(10, 10), cost=(10, 10))
    state = BudgetState("bud_1", ApproximateDpFilter(2.0, 1e-5), RELATION, (10, 10), (0, 0), (0, 0))
    refused = decide((state,), held, Correct(Quote((20, 5), "v"), "r", OTHER))
    assert isinstance(refused, Denial)
    assert refused.code is DenialCode.CORRECTION_LOWERS
    mixed = Correct(Quote((20, 5), "v"), "r", OTHER, may_lower=True)
    assert carried_out((state,), held, mixed).budget.spent == (20, 5)
    # A price alone is corrected upwards, amount by amount.
    repriced = carried_out((state,), held, Correct(Quote((20, 5), "v"), "r", may_lower=True, priced=EVENTS))
    assert repriced.budget.spent == (20, 10)


@pytest.mark.parametrize(
    ("state", "events"),
    [("pending", ()), ("started", EVENTS), ("committed", EVENTS), ("voided", ()), ("expired", ())],
)
def test_a_report_counts_what_may_have_been_released(state: str, events: tuple[object, ...]) -> None:
    assert reservation(state).exposed_events == events


def test_a_report_counts_the_whole_of_a_part_until_a_correction_says_what_happened() -> None:
    part = after(carried_out((budget(started=HALF),), reservation("started"), PART_COMMIT))
    assert part.exposed_events == EVENTS
    repriced = after(carried_out((budget(spent=FIFTH),), part, reprice(0.3, events=PART)))
    assert (repriced.exposed_events, repriced.corrected) == (EVENTS, False)
    corrected = after(carried_out((budget(spent=FIFTH),), part, Correct(quote(0.3), "r", OTHER, may_lower=True)))
    assert (corrected.exposed_events, corrected.corrected) == (OTHER, True)
    again = after(carried_out((budget(spent=NANO // 3),), corrected, reprice(0.4, events=OTHER)))
    assert (again.exposed_events, again.corrected) == (OTHER, True)
    # Another part of the same list may have been chosen by looking at outputs as well.
    longer = (Event(STEP, count=6),)
    other_part = after(carried_out((budget(spent=FIFTH),), part, Correct(quote(0.3), "r", longer, may_lower=True)))
    assert (other_part.charged_events, other_part.exposed_events) == (longer, EVENTS)
    nothing = after(carried_out((budget(spent=FIFTH),), part, Correct(quote(0.0), "r", (), may_lower=True)))
    assert nothing.exposed_events == ()


@pytest.mark.parametrize(
    "told",
    [
        OTHER,  # another mechanism, however dear the filter finds it
        (Event(STEP, count=9),),
        (Event(STEP, count=9), *OTHER),
        (Event(Gaussian(1.0), Poisson(1e-6), 10),),  # unamplified in the filter, and nearly nothing in a report
    ],
)
def test_nobody_forgets_steps_without_the_scope_whatever_the_filter_charges(told: tuple[Event, ...]) -> None:
    state, dearer = budget(spent=HALF), quote(0.9)
    refused = decide((state,), reservation("committed"), Correct(dearer, "r", told))
    assert isinstance(refused, Denial)
    assert refused.code is DenialCode.CORRECTION_LOWERS
    allowed = carried_out((state,), reservation("committed"), Correct(dearer, "r", told, may_lower=True))
    assert after(allowed).charged == dearer.amounts


def test_pieces_of_a_part_are_a_part() -> None:
    part = after(carried_out((budget(started=HALF),), reservation("started"), PART_COMMIT))
    pieces = (Event(STEP, count=2), Event(STEP, count=1))
    corrected = after(carried_out((budget(spent=FIFTH),), part, Correct(quote(0.3), "r", pieces, may_lower=True)))
    assert corrected.exposed_events == EVENTS


def test_pieces_of_a_pass_are_passes_of_their_own() -> None:
    """A record is in one batch of a pass, and in one of each piece where the pieces were passes."""
    passes = DisjointBatches("independent")
    one_pass = replace(reservation("committed"), events=(Event(Gaussian(1.0), passes, 10),))
    pieces = tuple(Event(Gaussian(1.0), passes, 5) for _ in range(2))
    corrected = after(carried_out((budget(spent=HALF),), one_pass, Correct(quote(0.9), "r", pieces)))
    assert corrected.exposed_events == pieces
    shorter = Correct(quote(0.9), "r", (Event(Gaussian(1.0), passes, 5),))
    assert after(carried_out((budget(spent=HALF),), one_pass, shorter)).exposed_events == one_pass.events


def test_a_price_of_other_events_than_those_of_now_is_outdated() -> None:
    """A part was committed while the whole was priced again: the whole's price is not the part's."""
    part = after(carried_out((budget(started=HALF),), reservation("started"), PART_COMMIT))
    refused = decide((budget(spent=FIFTH),), part, reprice(0.6))
    assert isinstance(refused, Denial)
    assert refused.code is DenialCode.PRICE_OUTDATED
    assert carried_out((budget(spent=FIFTH),), part, reprice(0.3, events=PART)).budget.spent == (round(0.3 * NANO),)


def test_resolutions_are_dated_and_reasons_are_kept() -> None:
    committed = carried_out((budget(started=HALF),), reservation("started"), Commit())
    assert (after(committed).resolved_at, committed.reason) == (NOW, None)
    assert after(committed).status is ReservationStatus.COMMITTED
    corrected = carried_out((budget(spent=HALF),), reservation("committed"), reprice(0.6, "why"))
    assert (corrected.kind, corrected.reason, corrected.engine_version) == (EntryKind.CORRECT, "why", "quoted")

"""Giving up the rest of a reservation: once, for ever, where there is room for the failure, at all levels of a tree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from accounting.events import Event, Gaussian, Poisson
from accounting.filters import ApproximateGaussianDpFilter, ZcdpFilter
from accounting.units import SATURATED, Amounts
from app.entries.kinds import EntryKind
from app.entries.records import EntryRecord
from app.ledger.commands import Commit, Correct, Extend, GivenUp, Quote, Start, Void
from app.ledger.denials import Denial, DenialCode
from app.ledger.rebuild import BrokenChain, History, replay
from app.ledger.states import BudgetState, Path, ReservationState
from app.tables.states import ReservationStatus
from tests.app.ledger.machine import NOW, RELATION, after, carried_out, decide, reservation

EVENTS = (Event(Gaussian(4.69), Poisson(0.05), 600),)
HALF = (Event(Gaussian(4.69), Poisson(0.05), 300),)
LIMIT = ApproximateGaussianDpFilter(1.0, 1e-5)
COST: Amounts = (60_000_000, 800_000_000_000, SATURATED)
BACK: Amounts = (25_000_000, -10_000_000_000, 0)
NET: Amounts = (35_000_000, 810_000_000_000, SATURATED)
GIVE_UP = Commit(HALF, given_up=GivenUp(COST, BACK, "found"))


def held(state: str = "started") -> ReservationState:
    return replace(reservation(state), events=EVENTS, cost=COST)


def path(*, failures: int = 0, levels: int = 2) -> Path:
    """Budgets that hold the cost, and of which the topmost has spent failures besides."""
    zero = LIMIT.zero
    spent = [zero] * (levels - 1) + [(0, failures, 0)]
    return tuple(BudgetState(f"bud_{i}", LIMIT, RELATION, each, COST, zero) for i, each in enumerate(spent))


def test_every_level_gets_the_same_back() -> None:
    result = carried_out(path(levels=3), held(), GIVE_UP)
    assert (result.amounts, result.given_back, result.events, result.engine_version) == (NET, BACK, HALF, "found")
    assert [(level.spent, level.started) for level in result.path] == [(NET, LIMIT.zero)] * 3
    done = after(result)
    assert (done.status, done.charged, done.charged_events, done.cost) == ("committed", NET, HALF, COST)
    assert done.exposed_events == EVENTS, "a report counts the whole: which part happened was chosen by looking"


def test_it_is_once_and_for_ever() -> None:
    result = carried_out(path(), held(), GIVE_UP)
    for command in (GIVE_UP, Commit(), Commit(EVENTS), Start(), Void(), Extend(NOW)):
        outcome = decide(result.path, after(result), command)
        assert isinstance(outcome, Denial)
        assert outcome.code is DenialCode.ALREADY_RESOLVED
    # Whoever took the rest after all is charged for it by a correction.
    corrected = carried_out(result.path, after(result), Correct(Quote(COST, "e"), "it was run", EVENTS, may_lower=True))
    assert corrected.path[0].spent == COST


def test_there_must_be_room_for_the_failure_at_every_level() -> None:
    room = LIMIT.caps[1] - NET[1]
    assert carried_out(path(failures=room), held(), GIVE_UP).given_back == BACK
    outcome = decide(path(failures=room + 1), held(), GIVE_UP)
    assert outcome == Denial(DenialCode.TAIL_NOT_GIVEN_BACK, ReservationStatus.STARTED, "bud_1")
    assert carried_out(path(failures=room + 1), held(), Commit(HALF)).amounts == COST, "it is charged in full then"


@pytest.mark.parametrize(
    ("cost", "given_up"),
    [
        ((COST[0] + 1, *COST[1:]), GIVE_UP.given_up),
        ((*COST[:2], 10**9), GivenUp((*COST[:2], 10**9), BACK, "found")),
        (COST, GivenUp(COST, (COST[0] + 1, *BACK[1:]), "found")),
        (COST, GivenUp(COST, (0, *BACK[1:]), "found")),
        (COST, GivenUp(COST, (BACK[0], 1, 0), "found")),
        (COST, GivenUp(COST, (*BACK[:2], 1), "found")),
    ],
    ids=["corrected meanwhile", "a pure price", "more than was held", "nothing", "a failure back", "a pure epsilon"],
)
def test_what_the_filter_never_gives_back_is_refused(cost: Amounts, given_up: GivenUp) -> None:
    outcome = decide(path(), replace(held(), cost=cost), Commit(HALF, given_up=given_up))
    assert isinstance(outcome, Denial)
    assert outcome.code is DenialCode.TAIL_NOT_GIVEN_BACK


def test_another_filter_gives_nothing_back() -> None:
    state = BudgetState("bud_1", ZcdpFilter(1.0), RELATION, (0,), (10**8,), (0,))
    about = replace(held(), cost=(10**8,))
    outcome = decide((state,), about, Commit(HALF, given_up=GivenUp((10**8,), (10**7,), "found")))
    assert isinstance(outcome, Denial)
    assert outcome.code is DenialCode.TAIL_NOT_GIVEN_BACK


def test_what_is_no_prefix_is_refused_before() -> None:
    outcome = decide(path(), held(), replace(GIVE_UP, events=(*EVENTS, *EVENTS)))
    assert isinstance(outcome, Denial)
    assert outcome.code is DenialCode.NOT_A_PREFIX


def replayed(*changes: dict[str, object]) -> Amounts:
    """Return what is spent after a reservation, its start and a commit that gives back, with changes of the last."""
    zero = LIMIT.zero
    record = EntryRecord(
        id="ent",
        budget_id="bud_1",
        sequence=2,
        kind=EntryKind.RESERVE,
        principal_id="key_1",
        recorded_at=NOW,
        engine_version="e",
        amounts=COST,
        events=EVENTS,
        reservation_id="res_1",
        purpose="p",
        details={"run_id": None, "plan_hash": None, "warnings": [], "expires_at": NOW.isoformat()},
    )
    history = History(record, None, LIMIT, RELATION, zero, zero, zero)
    replay(history, record, "a" * 64)
    later = replace(record, refers_to="a" * 64, details={})
    replay(history, replace(later, kind=EntryKind.START, events=()), "b" * 64)
    commit = replace(later, kind=EntryKind.COMMIT, amounts=NET, events=HALF, tail=BACK)
    replay(history, replace(commit, **changes[0]) if changes else commit, "c" * 64)
    return history.spent


@pytest.mark.parametrize(
    "change",
    [
        {"amounts": (NET[0] - 1, *NET[1:])},
        {"tail": (BACK[0] + 1, *BACK[1:])},
        {"amounts": COST, "tail": (0, 0, 0)},
        {"events": EVENTS},
        {"events": (*EVENTS, *EVENTS)},
        {"tail": None},
        {"kind": EntryKind.EXTEND, "amounts": COST, "events": (), "details": {"expires_at": NOW.isoformat()}},
        {"failure": 1},
    ],
    ids=["less charged", "more back", "nothing back", "all taken", "more taken", "no word", "no commit", "beside"],
)
def test_an_entry_that_gives_back_what_the_ledger_would_not_have_is_refused(change: dict[str, object]) -> None:
    assert replayed() == NET
    with pytest.raises(BrokenChain):
        replayed(change)

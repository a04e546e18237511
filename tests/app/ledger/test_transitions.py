"""The transition machine, by tables: every command about a reservation in every state, and which denial comes first."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import combinations

import pytest

from accounting.events import Event, FullBatch, Gaussian, Poisson
from accounting.filters import ZcdpFilter
from app.ledger.commands import ChangeLimit, Commit, Correct, Expire, Extend, GivenUp, Reserve, Resolution, Start, Void
from app.ledger.denials import Denial, DenialCode
from app.ledger.states import ReservationState, is_prefix
from app.ledger.transitions import Transition
from app.tables.states import ReservationStatus
from tests.app.ledger.machine import (
    COST,
    EVENTS,
    NANO,
    NOW,
    OTHER,
    PART,
    after,
    budget,
    budget_of,
    decide,
    quote,
    reprice,
    reservation,
)

COMMANDS: dict[str, Resolution] = {
    "start": Start(),
    "extend": Extend(until=NOW + timedelta(hours=1)),
    "commit": Commit(),
    "commit part": Commit(PART, quote(0.2)),
    "commit other": Commit(OTHER),
    "void": Void(),
    "expire": Expire(),
    "reprice": reprice(0.6, "a later engine"),
    "correct up": Correct(quote(0.6), "more happened", EVENTS + OTHER),
    "correct down": Correct(quote(0.2), "less happened", PART),
    "lower": Correct(quote(0.2), "less happened", PART, may_lower=True),
}
#: The commands that a run's reservation takes from its run alone.
OF_THE_RUN = ("start", "extend", "commit", "commit part", "commit other", "void")

# late: the time to start is over. "any": the outcome is the same in time and late.
TABLE = """
state       late  command       outcome
pending     no    start         -> started
pending     no    extend        -> pending
pending     no    commit        -> committed
pending     no    commit part   -> committed
pending     no    commit other  422 not_a_prefix
pending     no    void          -> voided
pending     no    expire        409 not_expired
pending     yes   start         409 expired
pending     yes   extend        409 expired
pending     yes   commit        409 expired
pending     yes   commit part   409 expired
pending     yes   commit other  409 expired
pending     yes   void          -> voided
pending     yes   expire        -> expired
pending     any   reprice       -> pending
pending     any   correct up    409 not_committed
pending     any   correct down  409 not_committed
pending     any   lower         409 not_committed
started     any   start         409 already_started
started     any   extend        -> started
started     any   commit        -> committed
started     any   commit part   -> committed
started     any   commit other  422 not_a_prefix
started     any   void          409 already_started
started     any   expire        409 already_started
started     any   reprice       -> started
started     any   correct up    409 not_committed
started     any   correct down  409 not_committed
started     any   lower         409 not_committed
committed   any   start         409 already_resolved
committed   any   extend        409 already_resolved
committed   any   commit        409 already_resolved
committed   any   commit part   409 already_resolved
committed   any   commit other  409 already_resolved
committed   any   void          409 already_resolved
committed   any   expire        409 already_resolved
committed   any   reprice       -> committed
committed   any   correct up    -> committed
committed   any   correct down  403 correction_lowers
committed   any   lower         -> committed
voided      any   start         409 already_resolved
voided      any   extend        409 already_resolved
voided      any   commit        409 already_resolved
voided      any   commit part   409 already_resolved
voided      any   commit other  409 already_resolved
voided      any   void          409 already_resolved
voided      any   expire        409 already_resolved
voided      any   reprice       409 not_committed
voided      any   correct up    409 not_committed
voided      any   correct down  409 not_committed
voided      any   lower         409 not_committed
expired     any   start         409 expired
expired     any   extend        409 expired
expired     any   commit        409 expired
expired     any   commit part   409 expired
expired     any   commit other  409 expired
expired     any   void          409 expired
expired     any   expire        409 expired
expired     any   reprice       409 not_committed
expired     any   correct up    409 not_committed
expired     any   correct down  409 not_committed
expired     any   lower         409 not_committed
"""


def _rows() -> list[tuple[str, bool, str, str]]:
    rows = []
    for line in TABLE.strip().splitlines()[1:]:
        state, late, command, outcome = (part.strip() for part in (line[:12], line[12:18], line[18:32], line[32:]))
        rows += [(state, each == "yes", command, outcome) for each in (("no", "yes") if late == "any" else (late,))]
    return rows


ROWS = _rows()
every_pair = pytest.mark.parametrize(("state", "late", "command", "outcome"), ROWS)


def _outcome(about: ReservationState, command: Resolution) -> str:
    result = decide((budget_of(about),), about, command)
    if isinstance(result, Denial):
        assert result.state is about.status
        return f"{result.status} {result.code}"
    return f"-> {after(result).status}"


@every_pair
def test_every_command_in_every_state(state: str, late: bool, command: str, outcome: str) -> None:
    assert _outcome(reservation(state, late=late), COMMANDS[command]) == outcome


def test_the_table_is_complete() -> None:
    cases = {(state, late, command) for state, late, command, _ in ROWS}
    assert len(cases) == len(ROWS) == len(ReservationStatus) * 2 * len(COMMANDS)


@every_pair
def test_of_a_runs_reservation_others_may_correct_the_charge_and_nothing_else(
    state: str, late: bool, command: str, outcome: str
) -> None:
    expected = "409 owned_by_run" if command in OF_THE_RUN else outcome
    assert _outcome(reservation(state, late=late, run_id="run_1"), COMMANDS[command]) == expected


@every_pair
def test_the_run_itself_is_answered_as_if_its_reservation_had_no_owner(
    state: str, late: bool, command: str, outcome: str
) -> None:
    given = COMMANDS[command]
    by_run = replace(given, by_run=True) if isinstance(given, Start | Extend | Commit | Void) else given
    owned = decide((budget_of(reservation(state)),), reservation(state, late=late, run_id="run_1"), by_run)
    free = decide((budget_of(reservation(state)),), reservation(state, late=late), given)
    if isinstance(owned, Transition) and isinstance(free, Transition):
        assert replace(after(owned), run_id=None) == after(free)
        assert owned.path == free.path
    else:
        assert owned == free


# Two faults at once: the earlier one is told. Without it, the later one is.
PRECEDENCE = """
earlier           later              command       reservation         without the earlier fault
owned_by_run      already_resolved   start         committed, a run's  committed
owned_by_run      expired            extend        late, a run's       late
owned_by_run      already_started    void          started, a run's    started
owned_by_run      not_a_prefix       commit other  pending, a run's    pending
already_resolved  not_expired        expire        voided              pending
already_resolved  not_a_prefix       commit other  committed           pending
expired           not_expired        expire        expired             pending
expired           not_a_prefix       commit other  late                pending
already_started   not_expired        expire        started             pending
not_committed     correction_lowers  correct down  started             committed
"""


def _precedence() -> list[tuple[str, str, str, str, str]]:
    lines = PRECEDENCE.strip().splitlines()[1:]
    return [
        (line[:18].strip(), line[18:37].strip(), line[37:51].strip(), line[51:71].strip(), line[71:].strip())
        for line in lines
    ]


def _described(words: str) -> ReservationState:
    state, _, owner = words.partition(", ")
    run_id = "run_1" if owner else None
    return reservation("pending" if state == "late" else state, late=state == "late", run_id=run_id)


@pytest.mark.parametrize(("earlier", "later", "command", "both", "one"), _precedence())
def test_of_two_faults_the_earlier_in_the_list_is_told(
    earlier: str, later: str, command: str, both: str, one: str
) -> None:
    order = list(DenialCode)
    assert order.index(DenialCode(earlier)) < order.index(DenialCode(later))
    assert _outcome(_described(both), COMMANDS[command]).endswith(f" {earlier}")
    assert _outcome(_described(one), COMMANDS[command]).endswith(f" {later}")


def test_every_two_faults_that_one_command_can_have_are_in_the_table() -> None:
    # A reservation is in one state, so these three exclude each other.
    of_states = {"already_resolved", "expired", "already_started"}
    possible = set()
    for name in COMMANDS:
        codes = {outcome[4:] for _, _, command, outcome in ROWS if command == name and outcome[0] != "-"}
        codes |= {"owned_by_run"} if name in OF_THE_RUN else set()
        possible |= {frozenset(pair) for pair in combinations(codes, 2) if not of_states.issuperset(pair)}
    # Which correction is made decides whether it can lower: `correct up` cannot, `lower` may.
    assert {frozenset(row[:2]) for row in _precedence()} == possible


#: Reached by the table of `test_limit_request_transitions`.
OF_LIMIT_REQUESTS = {
    DenialCode.NOT_YOUR_REQUEST,
    DenialCode.REQUEST_DECIDED,
    DenialCode.OWN_REQUEST,
    DenialCode.APPROVED_BY_YOU,
    DenialCode.TOO_MANY_OPEN_REQUESTS,
    DenialCode.LIMIT_CHANGED,
    DenialCode.LIMIT_ABOVE_PARENT,
}


def test_every_denial_code_is_reached() -> None:
    outcomes = [
        *(decide((budget_of(reservation(s)),), reservation(s, late=late), COMMANDS[c]) for s, late, c, _ in ROWS),
        decide((budget(),), reservation(run_id="run_1"), Start()),
        decide((budget(spent=NANO),), reservation("committed"), reprice(0.6, events=PART)),
        decide((budget(),), reservation("started"), Commit(PART, given_up=GivenUp(COST, (1,), "later"))),
        decide((budget(spent=NANO),), None, Reserve("res_2", EVENTS, quote(0.5), NOW)),
        decide((budget(spent=NANO),), None, ChangeLimit(ZcdpFilter(0.5), "less")),
    ]
    reached = {outcome.code for outcome in outcomes if isinstance(outcome, Denial)}
    assert reached | OF_LIMIT_REQUESTS == set(DenialCode)


@pytest.mark.parametrize("code", list(DenialCode))
def test_a_denial_says_what_is_wrong_and_is_remembered_unless_the_request_itself_is(code: DenialCode) -> None:
    denial = Denial(code)
    assert len(denial.detail) > 20
    statuses = {
        DenialCode.NOT_A_PREFIX: 422,
        DenialCode.CORRECTION_LOWERS: 403,
        DenialCode.NOT_YOUR_REQUEST: 403,
        DenialCode.OWN_REQUEST: 403,
    }
    assert denial.status == statuses.get(code, 409)


A, B = Event(Gaussian(1.0), count=5), Event(Gaussian(2.0), Poisson(0.1), count=5)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ((), True),
        ((A, B), True),
        ((A,), True),
        ((replace(A, count=2),), True),
        ((A, replace(B, count=1)), True),
        ((replace(A, count=2), replace(B, count=3)), True),
        ((replace(A, count=6),), False),
        ((B,), False),
        ((B, A), False),
        ((A, B, B), False),
        ((A, replace(B, sampling=FullBatch())), False),
        ((A, replace(B, mechanism=Gaussian(2.5))), False),
    ],
)
def test_a_prefix_is_the_same_list_with_counts_reduced_and_later_events_dropped(
    part: tuple[Event, ...], expected: bool
) -> None:
    assert is_prefix(part, (A, B)) is expected

"""The machine's part for requests for another limit, by a table: who decides what, in which order it is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from accounting.filters import ZcdpFilter
from app.entries.kinds import EntryKind
from app.ledger.commands import ApproveLimit, AskLimit, LimitRequestCommand, RefuseLimit, WithdrawLimit
from app.ledger.denials import Denial
from app.ledger.limit_requests import MOST_OPEN, decide_limit_request
from app.ledger.states import Approval, LimitRequestState
from app.ledger.transitions import Transition
from app.tables.states import LimitRequestStatus
from tests.app.ledger.machine import NANO, NOW, budget

ASKED = LimitRequestState(
    id="lim_1",
    budget_id="bud_1",
    status=LimitRequestStatus.OPEN,
    filter=ZcdpFilter(2.0),
    filter_before=ZcdpFilter(1.0),
    reason="more",
    principal_id="asker",
    approvals_needed=1,
    created_at=NOW,
)
BY_A = (Approval("a", "yes", NOW),)
REQUESTS: dict[str, LimitRequestState] = {
    "asked": ASKED,
    "two": replace(ASKED, approvals_needed=2),
    "one of two": replace(ASKED, approvals_needed=2, approvals=BY_A),
    "below use": replace(ASKED, filter=ZcdpFilter(0.4)),
    "changed": replace(ASKED, filter_before=ZcdpFilter(1.5)),
    "above": replace(ASKED, filter=ZcdpFilter(5.000000001)),
    "as above": replace(ASKED, filter=ZcdpFilter(5.0)),
    "approved": replace(ASKED, status=LimitRequestStatus.APPROVED),
    "refused": replace(ASKED, status=LimitRequestStatus.REFUSED),
    "withdrawn": replace(ASKED, status=LimitRequestStatus.WITHDRAWN),
    # What several reasons forbid: the first in the order of the codes is told.
    "approved, changed": replace(ASKED, status=LimitRequestStatus.APPROVED, filter_before=ZcdpFilter(1.5)),
    "by a, changed": replace(ASKED, approvals_needed=2, approvals=BY_A, filter_before=ZcdpFilter(1.5)),
    "changed, above": replace(ASKED, filter=ZcdpFilter(6.0), filter_before=ZcdpFilter(1.5)),
    "changed, below use": replace(ASKED, filter=ZcdpFilter(0.4), filter_before=ZcdpFilter(1.5)),
}
COMMANDS: dict[str, LimitRequestCommand] = {
    "approve": ApproveLimit("yes", 1),
    "approve by two": ApproveLimit("yes", 2),
    "refuse": RefuseLimit("no"),
    "withdraw": WithdrawLimit(),
}
#: The budget has a limit of 1 and uses 0.5; the one above it has a limit of 5.
PATH = (budget(spent=NANO // 2), replace(budget(), id="bud_0", filter=ZcdpFilter(5.0)))

CASES = """
request             command         who    outcome
asked               approve         a      limit approved
asked               approve by two  a      approve open
asked               approve         asker  403 own_request
two                 approve         a      approve open
one of two          approve         b      limit approved
one of two          approve         a      409 approved_by_you
one of two          approve         asker  403 own_request
one of two          refuse          a      refuse refused
one of two          withdraw        asker  withdraw withdrawn
asked               refuse          a      refuse refused
asked               refuse          asker  refuse refused
asked               withdraw        asker  withdraw withdrawn
asked               withdraw        a      403 not_your_request
below use           approve         a      409 limit_below_use
below use           approve by two  a      409 limit_below_use
below use           refuse          a      refuse refused
changed             approve         a      409 limit_changed
changed             refuse          a      refuse refused
above               approve         a      409 limit_above_parent
as above            approve         a      limit approved
approved            approve         a      409 request_decided
approved            refuse          a      409 request_decided
approved            withdraw        asker  409 request_decided
refused             approve         a      409 request_decided
withdrawn           approve         a      409 request_decided
withdrawn           withdraw        a      403 not_your_request
approved            approve         asker  409 request_decided
approved, changed   approve         a      409 request_decided
by a, changed       approve         asker  403 own_request
by a, changed       approve         a      409 approved_by_you
changed, above      approve         a      409 limit_changed
changed, below use  approve         a      409 limit_changed
"""


def _rows() -> list[list[str]]:
    header, *lines = CASES.strip().splitlines()
    starts = [header.index(name) for name in header.split()]
    ends = [*starts[1:], None]
    return [[line[start:end].strip() for start, end in zip(starts, ends, strict=True)] for line in lines]


@pytest.mark.parametrize(("request_name", "command", "who", "expected"), _rows())
def test_each_decision_is_made_or_refused_as_documented(
    request_name: str, command: str, who: str, expected: str
) -> None:
    outcome = decide_limit_request(PATH, REQUESTS[request_name], COMMANDS[command], who, NOW, "1")
    if isinstance(outcome, Denial):
        assert f"{outcome.status} {outcome.code}" == expected
        return
    assert outcome.limit_request is not None
    assert f"{outcome.kind} {outcome.limit_request.status}" == expected
    sets_limit = outcome.kind is EntryKind.LIMIT
    assert outcome.budget.filter == (REQUESTS[request_name].filter if sets_limit else ZcdpFilter(1.0))
    assert outcome.amounts == (outcome.budget.filter.caps if sets_limit else (0,))
    assert outcome.budget.used == PATH[0].used


@pytest.mark.parametrize(("open_requests", "is_denied"), [(0, False), (MOST_OPEN - 1, False), (MOST_OPEN, True)])
def test_only_so_many_may_be_open(open_requests: int, is_denied: bool) -> None:
    command = AskLimit("lim_2", ZcdpFilter(3.0), "more", 2)
    outcome = decide_limit_request(PATH, None, command, "asker", NOW, "1", open_requests=open_requests)
    if is_denied:
        assert isinstance(outcome, Denial)
        assert (outcome.status, outcome.code) == (409, "too_many_open_requests")
        return
    assert isinstance(outcome, Transition)
    made = outcome.limit_request
    assert made == replace(ASKED, id="lim_2", filter=ZcdpFilter(3.0), approvals_needed=2)
    assert (outcome.kind, outcome.amounts, outcome.path) == (EntryKind.ASK, (0,), PATH)

"""A reservation resolves at most once: of any two attempts the first that may, wins, and nothing moves twice."""

from __future__ import annotations

from typing import Any

import pytest

from app.auth.principal import Scope
from app.context import Context
from app.reservations import holders, service
from tests.app.budgets.conftest import Api, ApiOf, Clock, made, zcdp
from tests.app.problem_assertions import assert_problem

# Each of commit, void and expire (the sweeper, after the time to start is over) on a reservation of rho 0.01, and then
# each again: the answer of both, the state after both, and what was spent of it.
TABLE = """
from     first   second  first answer         second answer        state      spent
pending  commit  commit  200                  409 already_resolved  committed  yes
pending  commit  void    200                  409 already_resolved  committed  yes
pending  commit  expire  200                  0 released            committed  yes
pending  void    commit  200                  409 already_resolved  voided     no
pending  void    void    200                  409 already_resolved  voided     no
pending  void    expire  200                  0 released            voided     no
pending  expire  commit  1 released           409 expired           expired    no
pending  expire  void    1 released           409 expired           expired    no
pending  expire  expire  1 released           0 released            expired    no
started  commit  commit  200                  409 already_resolved  committed  yes
started  commit  void    200                  409 already_resolved  committed  yes
started  commit  expire  200                  0 released            committed  yes
started  void    commit  409 already_started  200                   committed  yes
started  void    void    409 already_started  409 already_started   started    held
started  void    expire  409 already_started  0 released            started    held
started  expire  commit  0 released           200                   committed  yes
started  expire  void    0 released           409 already_started   started    held
started  expire  expire  0 released           0 released            started    held
"""


def test_of_any_two_resolutions_the_first_wins_and_nothing_moves_twice(
    api: Api, clock: Clock, context: Context
) -> None:
    budget_id = api.budget()["id"]

    def attempt(held: dict[str, Any], action: str) -> str:
        if action == "expire":
            clock.advance(3600)
            return f"{service.release_due_holds(context, budget_id)} released"
        answer = api.resolve(held, action)
        return "200" if answer.status_code == 200 else f"{answer.status_code} {answer.json()['code']}"

    spent = reserved = 0
    lines = TABLE.strip().splitlines()[1:]
    for line in lines:
        before, first, second = line[:9].strip(), line[9:17].strip(), line[17:25].strip()
        held = api.hold(budget_id, [zcdp(0.01)])
        if before == "started":
            made(api.resolve(held, "start"))
        answers = attempt(held, first), attempt(held, second)
        assert answers == (line[25:46].strip(), line[46:68].strip()), line
        assert api.state(held) == line[68:79].strip(), line
        spent, reserved = spent + (line[79:] == "yes"), reserved + (line[79:] == "held")
        amounts = api.read(budget_id)["amounts"]
        assert (amounts["spent"], amounts["reserved"]) == ({"rho": spent / 100}, {"rho": reserved / 100}), line
        of_this = [entry for entry in api.entries(budget_id) if entry["reservation_id"] == held["id"]]
        resolutions = [entry["kind"] for entry in of_this if entry["kind"] in ("commit", "void", "expire")]
        assert len(resolutions) == (api.state(held) != "started"), line
    assert len({line[:25] for line in lines}) == len(lines) == 2 * 3 * 3


PART = {"events": [zcdp(0.01)]}


@pytest.mark.parametrize("is_remembered", [True, False])
def test_whoever_reserved_acts_on_it_or_an_owner(
    api_of: ApiOf, monkeypatch: pytest.MonkeyPatch, is_remembered: bool
) -> None:
    """What was released of a hold is not for another analyst to say, nor to make it stand by starting it."""
    if not is_remembered:  # as in another process
        monkeypatch.setattr(holders, "remember", lambda *_: None)
    owner = api_of(Scope.OWNER)
    first, second, third = api_of(Scope.ANALYST), api_of(Scope.ANALYST), api_of(Scope.ANALYST, Scope.LIMITS)
    budget = owner.budget()
    mine, theirs, full = (first.hold(budget["id"], [zcdp(0.01, 10)]) for _ in range(3))
    for held in (mine, theirs, full):
        for other in (second, third):
            for command, body in (
                ("start", None),
                ("extend", None),
                ("commit", None),
                ("commit", PART),
                ("void", None),
            ):
                assert_problem(other.resolve(held, command, body), 403, "not_your_reservation")
        made(first.resolve(held, "extend"))
        made(first.resolve(held, "start"))
        assert_problem(second.resolve(held, "commit"), 403, "not_your_reservation")
    assert owner.rho(budget["id"]) == (0, 0.3, 0.7)
    assert second.state(mine) == "started", "who reads budgets reads reservations"
    made(first.resolve(mine, "commit", PART))
    made(owner.resolve(theirs, "commit", PART))
    made(owner.resolve(full, "commit"))
    assert owner.rho(budget["id"]) == (0.12, 0, 0.88)
    for nothing in ("start", "commit"):
        assert_problem(second.post(f"/v1/reservations/res_{'a' * 24}/{nothing}"), 404, "not_found")


def test_an_owners_command_and_its_repetition_have_one_answer(api_of: ApiOf) -> None:
    """Where somebody may act is found before anything is decided, and a repetition is answered all the same."""
    owner, analyst = api_of(Scope.OWNER), api_of(Scope.ANALYST)
    held = analyst.hold(owner.budget()["id"], [zcdp(0.01)])
    first = analyst.resolve(held, "start", key="once")
    owner.resolve(held, "commit")
    again = analyst.resolve(held, "start", key="once")
    assert (again.json(), again.headers["idempotency-replayed"]) == (first.json(), "true")

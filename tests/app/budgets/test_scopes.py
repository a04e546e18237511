"""Who may make which call of the ledger."""

from __future__ import annotations

from typing import Any

import pytest

from app.auth.principal import Scope
from tests.app.budgets.conftest import Api, ApiOf, zcdp
from tests.app.problem_assertions import assert_problem

# Each call with a key of one scope alone: whether it is let through.
SCOPES = """
call                owner  analyst  auditor  limits  corrections  refunds  metrics  admin
create_budget       yes    -        -        -       -            -        -        yes
list_budgets        yes    yes      yes      -       -            -        -        yes
get_budget          yes    yes      yes      -       -            -        -        yes
change_limit        -      -        -        yes     -            -        -        yes
correct_charge      yes    -        -        -       yes          -        -        yes
create_reservation  yes    yes      -        -       -            -        -        yes
dry run             yes    yes      -        -       -            -        -        yes
list_reservations   yes    yes      yes      -       -            -        -        yes
get_reservation     yes    yes      yes      -       -            -        -        yes
get_certificate     yes    yes      yes      -       -            -        -        yes
start               yes    yes      -        -       -            -        -        yes
extend              yes    yes      -        -       -            -        -        yes
commit              yes    yes      -        -       -            -        -        yes
void                yes    yes      -        -       -            -        -        yes
list_entries        yes    yes      yes      -       -            -        -        yes
"""


def _calls(api: Api) -> dict[str, Any]:
    """Each call about something that does not exist, but for the first."""
    reservation = {"id": "res_nope"}
    path = "/v1/budgets/bud_nope"
    body = {"events": [zcdp(0.1)], "purpose": "p"}
    return {
        "create_budget": api.ask_budget,
        "list_budgets": lambda: api.get("/v1/budgets"),
        "get_budget": lambda: api.get(path),
        "change_limit": lambda: api.change_limit("bud_nope", {"kind": "zcdp", "rho": 1}),
        "correct_charge": lambda: api.correct("bud_nope", events=[zcdp(0.1)]),
        "create_reservation": lambda: api.post(f"{path}/reservations", body),
        "dry run": lambda: api.post(f"{path}/reservations", body, dry_run="true"),
        "list_reservations": lambda: api.get(f"{path}/reservations"),
        "get_reservation": lambda: api.get("/v1/reservations/res_nope"),
        "get_certificate": lambda: api.get("/v1/reservations/res_nope/certificate"),
        **{name: lambda name=name: api.resolve(reservation, name) for name in ("start", "extend", "commit", "void")},
        "list_entries": lambda: api.get(f"{path}/entries"),
    }


def test_each_call_takes_its_scopes(api_of: ApiOf) -> None:
    header, *lines = (line.split() for line in SCOPES.replace("dry run ", "dry_run ").strip().splitlines())
    assert header[1:] == [str(scope) for scope in Scope]
    calls = [_calls(api_of(scope)) for scope in Scope]
    assert [line[0].replace("dry_run", "dry run") for line in lines] == list(calls[0])
    for name, *allowed in lines:
        for scope, call, may in zip(Scope, calls, allowed, strict=True):
            answer = call[name.replace("dry_run", "dry run")]()
            if may == "yes":
                assert answer.status_code in (200, 201, 404), (name, scope)
            else:
                assert_problem(answer, 403, "forbidden")


@pytest.mark.parametrize(("authorization", "code"), [(None, "unauthenticated"), ("Bearer no", "invalid_key")])
def test_without_a_key_nothing_is_answered(api_of: ApiOf, authorization: str | None, code: str) -> None:
    api = api_of(Scope.ADMIN)
    if authorization is None:
        del api.client.headers["authorization"]
    else:
        api.client.headers["authorization"] = authorization
    for call in _calls(api).values():
        assert_problem(call(), 401, code)

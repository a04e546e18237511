"""Who has done something is told by name, to whoever may read that it was done."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from starlette.testclient import TestClient

from app.auth import service
from app.auth.names import names_of
from app.auth.principal import Scope
from app.context import Context
from app.dashboard.limit_requests import meaning_of
from app.dashboard.pages import page
from tests.app.auth.test_sessions import BASE_URL, ORIGIN, sign_in
from tests.app.conftest import ConnectAs
from tests.app.dashboard.documents import Document
from tests.app.dashboard.requests import a_request
from tests.databases import on_one_engine

ZCDP = {"kind": "zcdp", "rho": 1.0}
EVENTS = [{"mechanism": {"kind": "zcdp", "rho": 0.25}, "count": 1}]


def key_of(context: Context, name: str, *scopes: Scope) -> tuple[str, str]:
    created = service.create_key(context, name, scopes)
    assert created is not None
    return created.id, created.token


def test_a_name_is_found_for_every_key_that_ever_was(context: Context) -> None:
    living, ended = key_of(context, "notebook", Scope.ANALYST)[0], key_of(context, "laptop", Scope.OWNER)[0]
    service.revoke_key(context, ended)
    with context.database.read() as session:
        found = names_of(session, [living, ended, "loopback", "service", "key_nobody", None])
    assert found == {living: "notebook", ended: "laptop", "loopback": "this machine", "service": "the service"}


@on_one_engine
def test_who_has_spent_and_asked_is_named_without_the_scope_admin(connect: ConnectAs, context: Context) -> None:
    owner_id, owner = key_of(context, "Ola", Scope.OWNER)
    anna_id, anna = key_of(context, "notebook of <b>Anna</b>", Scope.ANALYST)

    def post(token: str, path: str, body: dict[str, Any]) -> Any:
        client = connect(base_url=BASE_URL, headers={"Authorization": f"Bearer {token}"})
        answer = client.post(path, json=body, headers={"Idempotency-Key": f"{path} {token[-4:]}"})
        assert answer.is_success, answer.text
        return answer.json()

    def get(token: str, path: str) -> Any:
        client: TestClient = connect(base_url=BASE_URL, headers={"Authorization": f"Bearer {token}"})
        return client.get(path).json()

    request = {"name": "visits", "neighboring_relation": "replace_one", "filter": ZCDP}
    budget = post(owner, "/v1/budgets", request)
    at = f"/v1/budgets/{budget['id']}"
    held = {"events": EVENTS, "purpose": "mean", "expires_in": 60}
    reservation = post(anna, f"{at}/reservations", held)
    for step in ("start", "commit"):
        post(anna, f"/v1/reservations/{reservation['id']}/{step}", {})
    asked = post(anna, f"{at}/limit-requests", {"filter": {"kind": "zcdp", "rho": 2.0}, "reason": "more people"})
    assert asked["names"] == {anna_id: "notebook of <b>Anna</b>"}
    decided = post(owner, f"/v1/limit-requests/{asked['id']}/approve", {"reason": "agreed"})
    assert decided["names"] == {anna_id: "notebook of <b>Anna</b>", owner_id: "Ola"}

    (spent,) = get(owner, f"{at}/spending?group_by=principal")["items"]
    assert (spent["key"], spent["name"]) == (anna_id, "notebook of <b>Anna</b>")
    assert {spent["name"] for spent in get(owner, f"{at}/spending?group_by=purpose")["items"]} == {None}
    entries = get(anna, f"{at}/entries")["items"]
    assert {(each["principal_id"], each["principal_name"]) for each in entries} == {
        (anna_id, "notebook of <b>Anna</b>"),
        (owner_id, "Ola"),
    }
    anna_again, _ = key_of(context, "notebook of <b>Anna</b>", Scope.ANALYST)

    def made_by(**asked: str) -> set[str]:
        return {each["principal_id"] for each in get(owner, f"{at}/entries?{urlencode(asked)}")["items"]}

    assert made_by(made_by="notebook of <b>Anna</b>") == made_by(made_by=anna_id) == {anna_id}
    assert made_by(made_by="Ola") == made_by(made_by="Ola", principal_id=owner_id) == {owner_id}
    assert (
        made_by(made_by="nobody")
        == made_by(made_by=anna_again)
        == made_by(made_by="Ola", principal_id=anna_id)
        == set()
    )
    assert made_by(made_by="this machine") == set()
    registered = get(owner, "/v1/ledger/register")["items"]
    assert {each["principal_name"] for each in registered} == {"the service"}
    assert get(anna, "/v1/keys/self")["name"] == "notebook of <b>Anna</b>"
    answers = post(owner, f"{at}/deployment", {"curator": "the clinic"})
    assert (answers["principal_name"], get(anna, f"{at}/deployment")["principal_name"]) == ("Ola", "Ola")

    browser = connect(base_url=BASE_URL, peer=("10.0.0.1", 1), headers=ORIGIN)
    sign_in(browser, owner)
    pages = f"/dashboard/budgets/{budget['id']}"
    shown = {
        "spending": browser.get(f"{pages}/spending?group_by=principal").text,
        "requests": browser.get("/dashboard/limit-requests?state=approved").text,
        "ledger": browser.get(f"/dashboard/ledger/entries?budget_id={budget['id']}").text,
        "deployment": browser.get(f"{pages}/deployment").text,
        "bar": browser.get("/dashboard/budgets").text,
    }
    for part, name in (("spending", "Anna"), ("requests", "Anna"), ("ledger", "Anna"), ("ledger", "Ola")):
        assert name in shown[part], part
    assert all("Ola" in shown[part] for part in ("requests", "deployment", "bar"))
    assert not [part for part, text in shown.items() if "<b>Anna</b>" in text]
    assert all(Document(shown[part]).faults == [] for part in ("requests", "deployment", "bar"))


def test_where_nobody_knows_a_name_the_id_stands_alone() -> None:
    said = {
        "id": "lim_1",
        "budget_id": "bud_1",
        "state": "approved",
        "wanted": {"rho": 2.0},
        "before": {"rho": 1.0},
        "reason": "more",
        "principal_id": "key_lost",
        "approvals": [{"principal_id": "key_gone", "reason": "yes"}],
        "decided_by": "key_away",
        "decision_reason": None,
        "created_at": "2026-01-01T00:00:00Z",
        "decided_at": "2026-01-01T00:00:00Z",
        "names": {},
    }
    budget = {"id": "bud_1", "name": "visits", "filter": {"kind": "zcdp", "rho": 1.0}}
    budgets, states = {"bud_1": budget}, ("approved",)
    shown = page(
        a_request(),
        "limit_requests.html",
        items=[said],
        budgets=budgets,
        keys={"lim_1": "k"},
        listed=True,
        state="approved",
        states=states,
        next_cursor=None,
        meaning=meaning_of,
        reasons={},
        decided=None,
        refusal=None,
    )
    text = bytes(shown.body).decode()
    assert all(f"<code>{each}</code>" in text for each in ("key_lost", "key_gone", "key_away"))

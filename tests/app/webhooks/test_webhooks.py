"""Webhooks: what they are told, once it is committed and not before; signed, repeated, bounded."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from app.context import Context
from app.ledger.commands import Commit, Start
from app.ledger.journal import Instruction, carry_out
from app.outbox import writing
from app.outbox.writing import Message
from app.runs.supervisor import Supervisor
from app.settings import Settings
from app.tables.states import WebhookEvent
from app.webhooks import delivery, repository
from app.webhooks.delivery import Deliverer
from app.webhooks.overdue import tell_of_overdue
from tests.app.budgets.conftest import made, zcdp
from tests.app.problem_assertions import assert_problem
from tests.app.webhooks.conftest import Told
from tests.databases import on_one_engine, on_postgresql


def test_shares_of_the_limit_are_told_once_each(told: Told) -> None:
    webhook = told.webhook("spending_threshold", fractions=[0.5, 0.8, 1.0])
    budget_id = told.budget["id"]
    told.api.spend(budget_id, [zcdp(0.4)])
    held = told.api.hold(budget_id, [zcdp(0.45)])
    assert told.delivered() == [], "what is pending may be given up"
    made(told.api.resolve(held, "start"))
    half, most = sorted(told.delivered(), key=lambda said: float(said["data"]["fraction"]))
    assert half == {
        "type": "spending_threshold",
        "timestamp": "2026-05-01T00:00:00Z",
        "data": {
            "budget_id": budget_id,
            "fraction": 0.5,
            "limit": {"rho": 1.0},
            "spent": {"rho": 0.4},
            "started": {"rho": 0.45},
        },
    }
    assert most["data"]["fraction"] == 0.8
    made(told.api.resolve(held, "commit"))
    assert told.delivered() == []
    told.api.spend(budget_id, [zcdp(0.15)])
    assert [said["data"]["fraction"] for said in told.delivered()] == [1.0]
    states = {each["state"] for each in told.deliveries(webhook)}
    assert states == {"delivered"}


def test_a_budget_above_is_told_of_what_is_charged_below_it_and_not_the_other_way(told: Told) -> None:
    child = told.api.child(told.budget, {"kind": "zcdp", "rho": "1"})
    above = told.webhook("spending_threshold", fractions=[0.5])
    below = told.webhook("spending_threshold", fractions=[0.5], budget_id=child["id"])
    told.api.spend(told.budget["id"], [zcdp(0.3)])
    told.api.spend(child["id"], [zcdp(0.3)])
    (said,) = told.delivered()
    assert said["data"]["budget_id"] == told.budget["id"]
    assert len(told.deliveries(above)) == 1
    assert told.deliveries(below) == []


@pytest.mark.thorough
def test_a_flood_of_denials_makes_one_message_a_minute(told: Told) -> None:
    webhook = told.webhook("denied")
    budget_id = told.budget["id"]

    def deny(times: int) -> None:
        for _ in range(times):
            assert_problem(told.api.reserve(budget_id, [zcdp(1.5)]), 409, "budget_exceeded")

    deny(20)
    (first,) = told.delivered()
    assert first["data"] == {"budget_id": budget_id, "code": "budget_exceeded", "count": 20}
    told.clock.advance(10)
    deny(30)
    assert told.delivered() == [], "the next message waits for a minute"
    told.clock.advance(60)
    deny(2)
    (second,) = told.delivered()
    assert second["data"]["count"] == 32
    assert len(told.deliveries(webhook)) == 2
    told.clock.advance(600)
    deny(1)
    assert [said["data"]["count"] for said in told.delivered()] == [1]


def test_a_denial_that_is_replayed_is_told_once(told: Told) -> None:
    told.webhook("denied")
    for _ in range(3):
        assert_problem(told.api.reserve(told.budget["id"], [zcdp(1.5)], key="same"), 409, "budget_exceeded")
    assert [said["data"]["count"] for said in told.delivered()] == [1]


def test_a_denial_for_want_of_room_above_names_the_budget_that_was_asked_alone(told: Told) -> None:
    child = told.api.child(told.budget, {"kind": "zcdp", "rho": "5"})
    told.webhook("denied", budget_id=child["id"])
    told.webhook("denied")
    assert_problem(told.api.reserve(child["id"], [zcdp(1.5)]), 409, "budget_exceeded")
    assert [said["data"]["budget_id"] for said in told.delivered()] == [child["id"]] * 2


def test_a_start_that_is_overdue_is_told_once_and_again_where_it_was_extended(told: Told, context: Context) -> None:
    child = told.api.child(told.budget)
    webhook = told.webhook("start_overdue")
    started = told.api.hold(child["id"], [zcdp(0.1)], expires_in=60)
    made(told.api.resolve(started, "start"))
    told.api.hold(child["id"], [zcdp(0.1)], expires_in=60)
    tell_of_overdue(context)
    assert told.delivered() == []
    told.clock.advance(60)
    for _ in range(3):
        Supervisor(context, 0)._tell_of_overdue()
    (said,) = told.delivered()
    assert said["data"] == {
        "budget_id": child["id"],
        "reservation_id": started["id"],
        "expires_at": "2026-05-01T00:01:00Z",
    }
    made(told.api.resolve(started, "extend", {"expires_in": 60}))
    told.clock.advance(61)
    tell_of_overdue(context)
    assert [each["data"]["expires_at"] for each in told.delivered()] == ["2026-05-01T00:02:00Z"]
    made(told.api.resolve(started, "commit"))
    tell_of_overdue(context)
    assert told.delivered() == []
    assert len(told.deliveries(webhook)) == 2


def test_requests_for_limits_are_told(told: Told) -> None:
    told.webhook("limit_requested", "limit_decided")
    path = f"/v1/budgets/{told.budget['id']}/limit-requests"
    body = {"filter": {"kind": "zcdp", "rho": 2}, "reason": "a secret reason"}
    asked = made(told.api.post(path, body))
    made(told.api.post(f"/v1/limit-requests/{asked['id']}/withdraw"))
    decided, requested = sorted(told.delivered(), key=lambda said: str(said["type"]))
    about = {"budget_id": told.budget["id"], "limit_request_id": asked["id"]}
    assert (requested["type"], requested["data"]) == ("limit_requested", {**about, "state": "open"})
    assert (decided["type"], decided["data"]) == ("limit_decided", {**about, "state": "withdrawn"})
    assert "secret" not in str(told.receiver.received)


def test_what_is_rolled_back_is_not_told(told: Told, context: Context) -> None:
    webhook = told.webhook("spending_threshold", fractions=[0.5])
    held = told.api.hold(told.budget["id"], [zcdp(0.9)])
    steps = [Instruction(command, "loopback", held["id"]) for command in (Start(), Commit())]
    with context.database.write() as session:
        carry_out(session, context.database, steps, context.clock())
        (waiting,) = session.connection().execute(writing.MESSAGES.select()).all()
        assert waiting.webhook_id == webhook["id"]
        session.rollback()
    assert told.deliveries(webhook) == []
    assert told.delivered() == []
    with context.database.write() as session:
        carry_out(session, context.database, steps, context.clock())
    assert len(told.delivered()) == 1


def test_a_message_is_signed_and_says_when_it_was_sent(told: Told) -> None:
    webhook = told.webhook("limit_requested")
    body = {"filter": {"kind": "zcdp", "rho": 2}, "reason": "r"}
    made(told.api.post(f"/v1/budgets/{told.budget['id']}/limit-requests", body))
    told.clock.advance(5)
    told.receiver.answer = b"HTTP/1.1 503 Later\r\n\r\n"
    told.delivered()
    told.clock.advance(10)
    told.receiver.answer = b"HTTP/1.1 200 OK\r\n\r\n"
    rotated = made(told.api.post(f"/v1/webhooks/{webhook['id']}/rotate"))
    assert rotated["secret"] != webhook["secret"]
    told.delivered()
    first, second = told.receiver.received
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body
    for received, secret, seconds in ((first, webhook["secret"], 5), (second, rotated["secret"], 15)):
        assert int(received.headers["webhook-timestamp"]) == 1777593600 + seconds
        key = base64.b64decode(secret.removeprefix("whsec_"))
        signed = f"{received.headers['webhook-id']}.{received.headers['webhook-timestamp']}.".encode() + received.body
        expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        assert received.headers["webhook-signature"] == f"v1,{expected}"


def test_the_secret_is_shown_once_and_stored_nowhere(told: Told, context: Context) -> None:
    body = {"url": told.receiver.url, "events": ["denied"]}
    path = f"/v1/budgets/{told.budget['id']}/webhooks"
    first, again = (told.api.post(path, body, key="once") for _ in range(2))
    assert first.json()["secret"].startswith("whsec_")
    assert again.json() == {**first.json(), "secret": None}
    assert "secret" not in told.api.get(f"/v1/webhooks/{first.json()['id']}").json()
    with context.database.read() as session:
        rows = [str(row) for row in session.connection().execute(writing.WEBHOOKS.select())]
    assert first.json()["secret"].removeprefix("whsec_") not in "".join(rows)


FAILURES: dict[str, tuple[bytes | None, str, int | None]] = {
    "refused": (b"HTTP/1.1 500 No\r\n\r\n", "refused", 500),
    "redirected": (b"HTTP/1.1 302 There\r\nLocation: http://127.0.0.1/\r\n\r\n", "redirect_not_followed", 302),
    "closed": (None, "no_answer", None),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.one_in(3)
def test_what_fails_is_tried_again_later_and_later_and_given_up_after_a_day(told: Told, failure: str) -> None:
    answer, error, status = FAILURES[failure]
    told.receiver.answer = answer
    webhook = told.webhook("denied")
    assert_problem(told.api.reserve(told.budget["id"], [zcdp(1.5)]), 409, "budget_exceeded")
    waits, last = [], told.clock.now
    while True:
        told.delivered()
        (message,) = told.deliveries(webhook)
        assert (message["last_error"], message["last_status"]) == (error, status)
        if message["state"] != "pending":
            break
        told.clock.advance(1)
        assert told.delivered() == [], "not before its time"
        due = type(last).fromisoformat(message["due_at"])
        waits.append((due - last).total_seconds())
        told.clock.now = last = due
    assert message["state"] == "given_up"
    assert waits[:4] == [10, 20, 40, 80]
    assert max(waits) == 7200
    assert 75_000 < sum(waits) <= 86_400
    assert message["attempts"] == len(told.receiver.received) == len(waits) + 1
    told.receiver.answer = b"HTTP/1.1 200 OK\r\n\r\n"
    told.clock.advance(86_400)
    assert told.delivered() == []


def test_a_receiver_that_fails_is_not_asked_for_each_message(told: Told) -> None:
    webhook = told.webhook("spending_threshold", fractions=[0.1, 0.2, 0.3, 0.4])
    told.receiver.answer = None
    told.api.spend(told.budget["id"], [zcdp(0.5)])
    told.delivered()
    assert len(told.receiver.received) == 1
    told.receiver.answer = b"HTTP/1.1 200 OK\r\n\r\n"
    told.clock.advance(10)
    assert len(told.delivered()) == 4
    assert {each["state"] for each in told.deliveries(webhook)} == {"delivered"}


@pytest.mark.thorough
def test_a_receiver_that_fails_is_asked_ever_more_rarely_whatever_else_happens(told: Told) -> None:
    told.webhook("spending_threshold", fractions=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    told.receiver.answer = None
    asked_at = []
    for step in range(32):
        if step % 3 == 0 and step < 27:
            told.api.spend(told.budget["id"], [zcdp(0.11)])
        before = len(told.receiver.received)
        told.delivered()
        asked_at += [10 * step] * (len(told.receiver.received) - before)
        told.clock.advance(10)
    assert asked_at == [0, 10, 30, 70, 150, 310]
    told.receiver.answer = b"HTTP/1.1 200 OK\r\n\r\n"
    told.clock.advance(320)
    assert len({said["data"]["fraction"] for said in told.delivered()}) == 9


def test_a_webhook_with_many_messages_keeps_no_other_waiting(told: Told, context: Context) -> None:
    busy, quiet = told.webhook("denied"), told.webhook("denied")
    data = {"budget_id": told.budget["id"], "code": "budget_exceeded"}
    with context.database.write() as session:
        for webhook, count in ((busy, 3), (quiet, 1)):
            messages = [Message(webhook["id"], WebhookEvent.DENIED, data) for _ in range(count)]
            writing.write(session.connection(), messages, told.clock.now)
    now = told.clock.now
    with context.database.write() as session:
        taken = repository.claim(session, now, now + delivery.LEASE, limit=2)
        assert {webhook.id for _, webhook in taken} == {busy["id"], quiet["id"]}
    with context.database.write() as session:
        [(_, webhook)] = repository.claim(session, now, now + delivery.LEASE, limit=2)
        assert webhook.id == busy["id"]


def test_two_processes_that_deliver_at_once_send_each_message_once(told: Told, context: Context) -> None:
    for _ in range(5):
        told.webhook("spending_threshold", fractions=[0.5])
    told.api.spend(told.budget["id"], [zcdp(0.5)])
    others = [Deliverer(context) for _ in range(3)]
    with ThreadPoolExecutor(3) as threads:
        attempts = list(threads.map(lambda each: each.deliver(), others))
    assert sum(attempts) == 5
    ids = [received.headers["webhook-id"] for received in told.receiver.received]
    assert len(set(ids)) == len(ids) == 5


def test_what_a_dead_process_had_taken_is_sent_by_another(told: Told, context: Context) -> None:
    told.webhook("denied")
    assert_problem(told.api.reserve(told.budget["id"], [zcdp(1.5)]), 409, "budget_exceeded")

    class Dies(Exception):
        pass

    def die(*_: Any, **__: Any) -> Any:
        raise Dies

    with pytest.raises(Dies):
        Deliverer(context, resolve=die).deliver()
    assert told.delivered() == [], "it is another's for a minute"
    assert_problem(told.api.reserve(told.budget["id"], [zcdp(1.5)]), 409, "budget_exceeded")
    told.clock.advance(61)
    assert [said["data"]["count"] for said in told.delivered()] == [1, 1], "what may have been sent is not changed"


def test_a_webhook_that_is_disabled_hears_nothing_and_a_deleted_one_is_gone(told: Told) -> None:
    webhook = told.webhook("spending_threshold", fractions=[0.2, 0.4, 0.6])
    path, budget_id = f"/v1/webhooks/{webhook['id']}", told.budget["id"]
    told.api.spend(budget_id, [zcdp(0.3)])
    assert made(told.api.post(f"{path}/disable"))["state"] == "disabled"
    told.api.spend(budget_id, [zcdp(0.2)])
    assert told.delivered() == []
    assert made(told.api.get(path))["waiting"] == 1
    assert made(told.api.post(f"{path}/enable"))["state"] == "active"
    assert [said["data"]["fraction"] for said in told.delivered()] == [0.2]
    told.api.spend(budget_id, [zcdp(0.2)])
    assert told.api.client.delete(path).status_code == 204
    assert told.delivered() == []
    assert_problem(told.api.get(path), 404, "not_found")
    assert_problem(told.api.get(f"{path}/deliveries"), 404, "not_found")


@on_postgresql  # on SQLite nobody deletes anything while another writes
def test_a_webhook_that_is_deleted_at_this_moment_lets_the_ledger_go_on(
    told: Told, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    webhook, other = told.webhook("spending_threshold"), told.webhook("spending_threshold")
    subscriptions, deleted = writing.subscriptions, []

    def then_deleted(*arguments: Any) -> Any:
        found = subscriptions(*arguments)
        if found and not deleted:
            deleted.append(told.api.client.delete(f"/v1/webhooks/{webhook['id']}").status_code)
        return found

    held = told.api.hold(told.budget["id"], [zcdp(0.9)])
    monkeypatch.setattr(writing, "subscriptions", then_deleted)
    # As a worker does it, which does not try again.
    with context.database.write() as session:
        carry_out(session, context.database, [Instruction(Start(), "service", held["id"])], context.clock())
    assert deleted == [204]
    assert {each["event"] for each in told.deliveries(other)} == {"spending_threshold"}


@on_one_engine
def test_only_so_many_messages_wait(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MOST_WAITING", 2)
    webhook = told.webhook("spending_threshold", fractions=[0.1, 0.2, 0.3, 0.4])
    told.api.spend(told.budget["id"], [zcdp(0.5)])
    found = made(told.api.get(f"/v1/webhooks/{webhook['id']}"))
    assert (found["waiting"], found["dropped"]) == (2, 2)


@on_one_engine
def test_ended_messages_are_forgotten_after_a_month(told: Told) -> None:
    webhook = told.webhook("denied")
    assert_problem(told.api.reserve(told.budget["id"], [zcdp(1.5)]), 409, "budget_exceeded")
    told.delivered()
    told.clock.advance(29 * 86_400)
    told.deliverer.forget()
    assert len(told.deliveries(webhook)) == 1
    told.clock.advance(2 * 86_400)
    told.deliverer.forget()
    assert told.deliveries(webhook) == []


@on_one_engine
@pytest.mark.parametrize(
    "url",
    [
        "https://elsewhere.example/",
        "http://hooks.example/",
        "http://127.0.0.1:1/",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/",
        "http://2130706433/",
        "http://0x7f.1/",
        "https://hooks.example@127.0.0.1/",
        "gopher://hooks.example/",
    ],
)
def test_an_address_that_the_operator_has_not_allowed_is_refused(told: Told, url: str) -> None:
    body = {"url": url, "events": ["denied"]}
    answer = told.api.post(f"/v1/budgets/{told.budget['id']}/webhooks", body)
    assert_problem(answer, 422, "address_not_allowed", "/url")


@on_one_engine
def test_an_address_that_is_no_longer_allowed_is_not_asked(told: Told, context: Context, settings: Settings) -> None:
    webhook = told.webhook("denied")
    assert_problem(told.api.reserve(told.budget["id"], [zcdp(1.5)]), 409, "budget_exceeded")
    narrower = settings.model_copy(update={"webhook_addresses": "https://hooks.example/"})
    object.__setattr__(context, "settings", narrower)
    assert told.delivered() == []
    (message,) = told.deliveries(webhook)
    assert message["last_error"] == "address_not_allowed"


@on_one_engine
def test_a_budget_has_so_many_webhooks(told: Told) -> None:
    for _ in range(10):
        told.webhook("denied")
    body = {"url": told.receiver.url, "events": ["denied"]}
    path = f"/v1/budgets/{told.budget['id']}/webhooks"
    assert_problem(told.api.post(path, body), 409, "too_many_webhooks")
    assert len(made(told.api.get(path))["items"]) == 10
    assert_problem(told.api.post(path, {**body, "fractions": [0.5]}), 422, "contradiction", "/fractions")
    assert_problem(told.api.post(path, {**body, "events": []}), 422, "invalid_request", "/events")
    assert_problem(told.api.post(path, {**body, "events": ["everything"]}), 422, "invalid_request")


def test_no_log_line_holds_an_address_or_a_secret(
    told: Told, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    webhook = told.webhook("denied", url=f"{told.receiver.url}?token=hidden")
    assert_problem(told.api.reserve(told.budget["id"], [zcdp(1.5)]), 409, "budget_exceeded")
    told.receiver.answer = None
    told.delivered()
    printed = "".join(capsys.readouterr()) + caplog.text
    assert webhook["id"] in printed
    assert "hidden" not in printed
    assert webhook["secret"] not in printed
    assert str(told.receiver.port) not in printed


SNIPPET = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGE = Path(__file__).parents[3] / "docs" / "operating" / "webhooks.md"


@on_one_engine
def test_what_the_page_verifies_messages_with_works(told: Told) -> None:
    (source,) = SNIPPET.findall(PAGE.read_text())
    scope: dict[str, Any] = {}
    exec(compile(source, str(PAGE), "exec"), scope)
    webhook = told.webhook("denied")
    assert_problem(told.api.reserve(told.budget["id"], [zcdp(1.5)]), 409, "budget_exceeded")
    told.delivered()
    (received,) = told.receiver.received
    now = told.clock.now.timestamp()

    def is_genuine(secret: str, body: bytes, now: float, **headers: str) -> bool:
        return bool(scope["is_genuine"](secret, {**received.headers, **headers}, body, now))

    assert is_genuine(webhook["secret"], received.body, now)
    assert not is_genuine(webhook["secret"], received.body, now + 301)
    assert not is_genuine(webhook["secret"], received.body + b" ", now)
    assert not is_genuine(webhook["secret"], received.body, now, **{"webhook-id": "msg_other"})
    other = told.webhook("denied")
    assert not is_genuine(other["secret"], received.body, now)


@on_one_engine
def test_the_page_of_a_budget_shows_who_is_told(told: Told) -> None:
    page = f"/dashboard/budgets/{told.budget['id']}/webhooks"
    assert "No address is told" in told.api.client.get(page).text
    webhook = told.webhook("denied", "spending_threshold", fractions=[0.5])
    assert_problem(told.api.reserve(told.budget["id"], [zcdp(1.5)]), 409, "budget_exceeded")
    told.receiver.answer = None
    told.delivered()
    shown = told.api.client.get(page).text
    assert webhook["id"] in shown
    assert "spending threshold at 0.5" in shown
    assert "denied: pending (no answer)" in shown
    assert webhook["secret"] not in shown

"""Addresses and keys; what is sent again, and what never is."""

from __future__ import annotations

import logging
import math

import httpx2
import numpy as np
import pytest
from epsilond_client import (
    Budget,
    Client,
    ProblemError,
    RateLimited,
    Retries,
    Unavailable,
)
from epsilond_client.budgets import Reservations
from epsilond_client.events import gaussian
from epsilond_client.transport import plain

from tests.clients.python.conftest import Waits
from tests.clients.python.proxy import LOSE, Answer, Proxy

KEY = "epsilond_not_a_real_key"
EVENTS = [gaussian(10.0, count=10)]


@pytest.mark.parametrize("url", ["http://db.example", "http://10.0.0.7:8000", "http://127.0.0.1.example:8000"])
def test_a_key_never_travels_in_clear_to_another_machine(url: str) -> None:
    with pytest.raises(ValueError, match="in clear"):
        Client(url, KEY)
    Client(url).close()  # without a key there is nothing to lose
    Client(url, KEY, allow_insecure=True).close()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1", "https://db.example"])
def test_a_key_goes_to_this_machine_and_over_tls(url: str) -> None:
    with Client(url, KEY) as client:
        assert repr(client) == f"Client({url!r})"


def test_no_proxy_sees_what_is_meant_for_this_machine(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with Client(url, retries=Retries(seconds=0)) as client:
        assert client.health.live().status


def test_nobody_is_led_elsewhere_with_the_key(behind_proxy: Client, proxy: Proxy) -> None:
    proxy.script = [Answer(307, location="/v1/keys/self")]
    with pytest.raises(ProblemError) as caught:
        behind_proxy.health.live()
    assert caught.value.status == 307
    assert len(proxy.seen) == 1


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8000",
        "ftp://db",
        "http://user:secret@db",
        "http://",
        "https://db?key=1",
        "https://db#key",
        "http://db:port",
        "http://db:99999",
        "http://[::1",
        "http://a..b",
        "http://" + "a" * 64,
        "http://db\n",
        "http://d b",
    ],
)
def test_what_is_no_address_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ValueError, match="base_url must be http") as caught:
        Client(url)
    assert "secret" not in str(caught.value)


def test_address_and_key_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPSILOND_URL", "http://db.example")
    monkeypatch.setenv("EPSILOND_API_KEY", KEY)
    with pytest.raises(ValueError, match=r"db\.example in clear"):
        Client()
    monkeypatch.delenv("EPSILOND_API_KEY")
    with Client() as client:
        assert repr(client) == "Client('http://db.example')"


def test_a_key_is_in_no_repr_no_error_and_no_log(
    proxy: Proxy, url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    sent: list[str | None] = []
    send = httpx2.Client.send

    def record(self: httpx2.Client, request: httpx2.Request, **options: object) -> httpx2.Response:
        sent.append(request.headers.get("Authorization"))
        return send(self, request, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(httpx2.Client, "send", record)
    told = []
    for address in (url, "http://127.0.0.1:1"):
        with Client(address, KEY, retries=Retries(seconds=0)) as client:
            told.append(repr(client) + str(vars(client)))
            try:
                told.append(repr(client.keys.own()))
            except ProblemError as problem:
                told += [str(problem), repr(problem), repr(problem.__cause__), str(vars(problem))]
    assert sent == [f"Bearer {KEY}"] * 2, "the key was sent, so that something could have shown it"
    assert KEY not in "".join(told) + caplog.text


def test_a_key_that_is_none_is_refused_without_showing_it() -> None:
    for key in ("with space", "with\nline", "schlüssel"):
        with pytest.raises(ValueError, match="api_key") as caught:
            Client("http://127.0.0.1:1", key)
        assert key not in str(caught.value)


def test_a_command_whose_answer_is_lost_happens_once(behind_proxy: Client, proxy: Proxy, budget: Budget) -> None:
    proxy.script = [LOSE, LOSE]
    reservation = behind_proxy.reservations.create(budget, EVENTS, purpose="lost answers")
    assert len(proxy.seen) == 3
    assert len({key for _, _, key in proxy.seen}) == 1, "every attempt carries the same key"
    assert [found.id for found in behind_proxy.reservations.list(budget)] == [reservation.id]


def test_two_commands_have_two_keys(behind_proxy: Client, proxy: Proxy, budget: Budget) -> None:
    for _ in range(2):
        behind_proxy.reservations.create(budget, EVENTS[:1], purpose="same words")
    assert len({key for _, _, key in proxy.seen}) == 2
    assert len(list(behind_proxy.reservations.list(budget))) == 2


def test_the_caller_s_own_key_is_sent_and_replays(behind_proxy: Client, proxy: Proxy, budget: Budget) -> None:
    ids = {
        behind_proxy.reservations.create(budget, EVENTS, purpose="p", idempotency_key=f"own {budget.id}").id
        for _ in range(2)
    }
    assert len(ids) == 1
    assert {key for _, _, key in proxy.seen} == {f"own {budget.id}"}


@pytest.mark.parametrize(
    "answer", [Answer(502), Answer(503, "database_busy", 1), Answer(504), Answer(507, "disk_full")]
)
def test_later_means_again(behind_proxy: Client, proxy: Proxy, waits: Waits, answer: Answer) -> None:
    proxy.script = [answer, answer]
    assert behind_proxy.account(EVENTS, delta=1e-5).epsilon.upper > 0
    assert len(proxy.seen) == 3
    assert len(waits.waited) == 2
    assert min(waits.waited) >= (answer.retry_after or 0.1)


def test_retry_after_is_kept(behind_proxy: Client, proxy: Proxy, waits: Waits) -> None:
    proxy.script = [Answer(429, "too_many_requests", 7)]
    behind_proxy.account(EVENTS, delta=1e-5)
    assert 7.0 <= waits.waited[0] <= 8.0


def test_a_wait_beyond_the_deadline_is_not_begun(behind_proxy: Client, proxy: Proxy, waits: Waits) -> None:
    proxy.script = [Answer(429, "queue_full", 60)]
    with pytest.raises(RateLimited) as caught:
        behind_proxy.account(EVENTS, delta=1e-5)
    assert caught.value.code == "queue_full"
    assert waits.waited == []


def test_attempts_end_with_the_deadline(behind_proxy: Client, proxy: Proxy, waits: Waits) -> None:
    proxy.script = [Answer(503, "numerics_busy")] * 1000
    with pytest.raises(Unavailable):
        behind_proxy.account(EVENTS, delta=1e-5)
    assert 20.0 < sum(waits.waited) <= 30.0
    assert sorted(waits.waited[:4]) == waits.waited[:4], "each wait is longer than the one before"
    assert waits.waited[0] < 0.3


def test_what_is_asked_again_soon_anyhow_is_asked_once(behind_proxy: Client, proxy: Proxy, waits: Waits) -> None:
    proxy.script = [Answer(503, "database_busy")] * 2
    with pytest.raises(Unavailable):
        Reservations(behind_proxy._http.in_haste(5.0)).extend("res_1")
    assert (len(proxy.seen), waits.waited) == (1, [])


def test_a_request_that_is_still_running_is_waited_for(behind_proxy: Client, proxy: Proxy, budget: Budget) -> None:
    proxy.script = [LOSE, Answer(409, "request_in_progress")]
    behind_proxy.reservations.create(budget, EVENTS, purpose="still running")
    assert len(proxy.seen) == 3
    assert len(list(behind_proxy.reservations.list(budget))) == 1


@pytest.mark.parametrize(
    "answer", [Answer(500, "internal_error"), Answer(409, "already_resolved"), Answer(408, "slow")]
)
def test_what_is_decided_is_not_asked_again(behind_proxy: Client, proxy: Proxy, budget: Budget, answer: Answer) -> None:
    proxy.script = [answer] * 3
    with pytest.raises(ProblemError):
        behind_proxy.reservations.create(budget, EVENTS, purpose="decided")
    assert len(proxy.seen) == 1


def test_what_has_no_key_and_may_have_happened_is_not_sent_again(
    behind_proxy: Client, proxy: Proxy, client: Client
) -> None:
    dataset = client.datasets.generate(name="to be deleted", features=2, rows=10, seed=1)
    for trouble in (LOSE, Answer(502), Answer(503, "database_busy")):
        proxy.script = [trouble, trouble]
        proxy.seen.clear()
        with pytest.raises(Unavailable) as caught:
            behind_proxy.datasets.delete(dataset)
        assert len(proxy.seen) == 1
        assert caught.value.idempotency_key is None


def test_a_connection_that_was_never_made_is_tried_again(waits: Waits) -> None:
    with (
        Client("http://127.0.0.1:1", retries=Retries(seconds=5.0), clock=waits.clock) as client,
        pytest.raises(Unavailable) as caught,
    ):
        client.datasets.delete("ds_1")
    assert len(waits.waited) > 3
    assert (caught.value.status, caught.value.code) == (0, "no_answer")
    assert "http://127.0.0.1:1" in caught.value.detail


@pytest.mark.parametrize("trouble", [LOSE, Answer(503, "database_busy"), Answer(504)])
def test_an_unanswered_command_says_its_key(
    behind_proxy: Client, proxy: Proxy, budget: Budget, trouble: str | Answer
) -> None:
    proxy.script = [trouble] * 1000
    with pytest.raises(Unavailable) as caught:
        behind_proxy.reservations.create(budget, EVENTS, purpose="no answer")
    key = caught.value.idempotency_key
    assert key == proxy.seen[0][2]
    assert f"idempotency_key={key!r}" in str(caught.value)
    proxy.script = []
    again = behind_proxy.reservations.create(budget, EVENTS, purpose="no answer", idempotency_key=key)
    assert [found.id for found in behind_proxy.reservations.list(budget)] == [again.id]


def test_an_upload_is_sent_from_its_beginning_again(behind_proxy: Client, proxy: Proxy) -> None:
    proxy.script = [Answer(503, "readers_busy"), LOSE]
    columns = [{"name": name, "type": "number", "lower": 0.0, "upper": 9.0} for name in ("x", "y")]
    dataset = behind_proxy.datasets.upload(
        b"x,y\n1,2\n3,4\n", name="again", filename="rows.csv", declared_size=2, columns=columns, label="y", public=True
    )
    assert dataset.declared_size == 2
    assert len(proxy.seen) == 3


def test_a_proxy_s_page_is_an_error_too(behind_proxy: Client, proxy: Proxy) -> None:
    proxy.script = [Answer(502)] * 1000
    with pytest.raises(Unavailable) as caught:
        behind_proxy.health.live()
    assert (caught.value.status, caught.value.code) == (502, "http_502")


def test_requests_hold_numpy_numbers_and_answers(client: Client, budget: Budget) -> None:
    event = gaussian(float(np.float64(10.0)), sampling_probability=np.float64(0.1), count=np.int64(5))  # type: ignore[arg-type]
    reservation = client.reservations.create(budget, [event], purpose="numpy")
    assert reservation.events[0]["count"] == 5
    again = client.account(reservation.events, delta=np.float32(1e-5))
    assert again.epsilon.upper > 0


def test_what_is_no_json_is_refused_before_it_is_sent(behind_proxy: Client, proxy: Proxy) -> None:
    with pytest.raises(ValueError, match="JSON"):
        behind_proxy.account([gaussian(math.nan)], delta=1e-5)
    with pytest.raises(TypeError, match="not set"):
        plain({"events": {1, 2}})
    assert proxy.seen == []


def test_an_id_cannot_lead_elsewhere(behind_proxy: Client, proxy: Proxy) -> None:
    with pytest.raises(ProblemError):
        behind_proxy.runs.get("../keys?x=1")
    assert proxy.seen == [("GET", "/v1/runs/..%2Fkeys%3Fx%3D1", None)]

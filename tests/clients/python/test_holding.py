"""A reservation around a block: what is charged, whatever becomes of the block."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import epsilond_client
import pytest
from epsilond_client import (
    Budget,
    BudgetExceeded,
    Client,
    Conflict,
    EpsilondError,
    Event,
    HeldReservation,
    Reservation,
    StepsExhausted,
    Unavailable,
    holding,
)
from epsilond_client.events import gaussian

from tests.clients.python.conftest import MakeBudget
from tests.clients.python.proxy import LOSE, Answer, Proxy

#: Ten steps of rho 0.05 each in a budget of rho 1.
EVENTS = [gaussian(10.0**0.5, count=10)]
STEPS = {"noise_multiplier": 10.0**0.5, "sampling": {"kind": "full_batch"}, "steps": 10}
SOURCES = Path(epsilond_client.__file__).parents[1]


def charged_steps(client: Client, held: HeldReservation) -> int:
    """How many steps the ledger has charged; fails unless it has resolved the reservation."""
    found = client.reservations.get(held.id)
    assert found.state == "committed", found
    assert found.charged_events is not None
    return sum(int(event["count"]) for event in found.charged_events)


def kinds(client: Client, budget: Budget) -> list[str]:
    return [entry.kind for entry in client.budgets.entries(budget)][1:]


def test_noise_may_be_drawn_in_the_block_and_all_is_charged_after_it(client: Client, budget: Budget) -> None:
    with client.reserve(budget, EVENTS, purpose="block") as held:
        assert client.reservations.get(held.id).state == "started"
        assert held.is_started
    assert charged_steps(client, held) == 10
    assert client.budgets.get(budget).rho.spent == pytest.approx(0.5)
    assert kinds(client, budget) == ["reserve", "start", "commit"]


def test_a_certificate_is_kept_with_the_charge_of_a_block(client: Client, make_budget: MakeBudget) -> None:
    budget = make_budget(kind="approximate_dp", epsilon=30.0, delta=1e-5)
    for asked in (True, False):
        with client.reserve(budget, EVENTS, purpose="block", charge_delta=1e-6, certificate=asked) as held:
            pass
        assert (client.reservations.get(held.id).certificate is not None) == asked
    full = {"kind": "full_batch"}
    with client.guard(
        budget, noise_multiplier=10.0, steps=2, sampling=full, charge_delta=1e-6, certificate=True
    ) as guard:
        guard.take()
    assert client.reservations.get(guard.id).certificate is not None


def test_what_does_not_fit_raises_before_anything_of_the_block_has_run(client: Client, budget: Budget) -> None:
    with pytest.raises(BudgetExceeded) as caught, client.reserve(budget, [EVENTS[0] | {"count": 30}], purpose="much"):
        raise AssertionError("the block has run")
    assert caught.value.cost["rho"] == pytest.approx(1.5)
    assert caught.value.remaining["rho"] == pytest.approx(1.0)
    assert caught.value.largest_count_that_fits == 20
    assert "largest_count_that_fits: 20" in str(caught.value)
    assert list(client.reservations.list(budget)) == []


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_block_that_fails_has_perhaps_drawn_noise_so_all_is_charged(
    client: Client, budget: Budget, kind: type[BaseException]
) -> None:
    with pytest.raises(kind, match="mine") as caught, client.reserve(budget, EVENTS, purpose="fails") as held:
        raise kind("mine")
    assert charged_steps(client, held) == 10
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_a_block_that_fails_before_it_starts_costs_nothing(
    client: Client, budget: Budget, kind: type[BaseException]
) -> None:
    with pytest.raises(kind), client.reserve(budget, EVENTS, purpose="fails early", start=False) as held:
        raise kind
    assert client.reservations.get(held.id).state == "voided"
    assert client.budgets.get(budget).rho.reserved == 0


def test_the_first_step_starts_and_the_steps_that_were_taken_are_charged(client: Client, budget: Budget) -> None:
    taken = []
    with client.guard(budget, **STEPS) as guard:
        assert client.reservations.get(guard.id).state == "pending"
        for batch in guard.steps(range(100)):
            assert client.reservations.get(guard.id).state == "started"
            taken.append(batch)
            if batch == 3:
                break
    assert charged_steps(client, guard) == 4
    assert client.budgets.get(budget).rho.spent == pytest.approx(0.2)


def test_the_step_beyond_is_not_handed_out(client: Client, budget: Budget) -> None:
    taken = []
    with (
        pytest.raises(StepsExhausted, match="10 of the 10 reserved steps"),
        client.guard(budget, **STEPS) as guard,
    ):
        taken.extend(guard.steps(range(11)))
    assert taken == list(range(10))
    assert charged_steps(client, guard) == 10


def test_as_many_steps_as_reserved_over_several_epochs_are_no_error(client: Client, budget: Budget) -> None:
    with client.guard(budget, **STEPS) as guard:
        taken = [batch for _ in range(2) for batch in guard.steps(range(5))]
        assert guard.steps_left == 0
    assert len(taken) == guard.steps_taken == charged_steps(client, guard) == 10


def test_a_step_that_fails_counts_because_it_began(client: Client, budget: Budget) -> None:
    with pytest.raises(ZeroDivisionError), client.guard(budget, **STEPS) as guard:
        assert [1 / (2 - batch) for batch in guard.steps(range(10))]
    assert charged_steps(client, guard) == 3


def test_a_refused_group_of_steps_is_not_counted(client: Client, budget: Budget) -> None:
    with client.guard(budget, **STEPS) as guard:
        guard.take(8)
        with pytest.raises(StepsExhausted):
            guard.take(3)
        guard.take(2)
    assert charged_steps(client, guard) == 10


def test_a_guard_that_saw_no_step_charges_all_and_says_so(client: Client, budget: Budget) -> None:
    with pytest.warns(RuntimeWarning, match="all of it is charged"), client.guard(budget, **STEPS) as guard:
        pass
    assert charged_steps(client, guard) == 10


def test_where_warnings_are_errors_it_is_charged_all_the_same(client: Client, budget: Budget) -> None:
    with pytest.raises(RuntimeWarning, match="all of it is charged"), client.guard(budget, **STEPS) as guard:
        pass
    assert charged_steps(client, guard) == 10


def test_steps_are_whole_and_at_least_one(client: Client, budget: Budget) -> None:
    with client.guard(budget, **STEPS) as guard:
        for steps, error in ((0, ValueError), (-1, ValueError), (0.5, TypeError)):
            with pytest.raises(error):
                guard.take(steps)  # type: ignore[arg-type]
        guard.void()


def test_nothing_was_drawn_is_said_with_void(client: Client, budget: Budget) -> None:
    with client.guard(budget, **STEPS) as guard:
        guard.void()
        with pytest.raises(EpsilondError, match="no more noise may be drawn"):
            guard.take()
    assert client.reservations.get(guard.id).state == "voided"


def test_a_part_is_named_in_the_block(client: Client, budget: Budget) -> None:
    both = [gaussian(10.0, count=10), gaussian(20.0, count=10)]
    with client.reserve(budget, both, purpose="two queries a step") as held:
        with pytest.raises(ValueError, match=r"commit\(events"):
            held.take()
        held.commit(events=[event | {"count": 4} for event in both])
    assert charged_steps(client, held) == 8
    assert kinds(client, budget) == ["reserve", "start", "commit"]


def test_a_budget_whose_prefixes_have_no_price_of_their_own_charges_all(
    client: Client, make_budget: MakeBudget
) -> None:
    budget = make_budget(kind="approximate_dp", epsilon=10.0, delta=1e-5)
    with client.guard(budget, **STEPS, charge_delta=1e-6) as guard:
        for batch in guard.steps(range(10)):
            if batch == 2:
                break
    assert charged_steps(client, guard) == 3, "what happened"
    found = client.reservations.get(guard.id)
    assert found.charged == found.cost, "what it costs"


def test_a_guard_does_not_guess_how_batches_are_drawn(client: Client, budget: Budget) -> None:
    with pytest.raises(ValueError, match="say how batches are drawn"):
        client.guard(budget, noise_multiplier=1.0, steps=10)
    with pytest.raises(ValueError, match="say how batches are drawn"):
        client.guard(budget, **STEPS, sampling_probability=0.1)


def test_a_lost_answer_to_the_start_lets_nothing_run_and_costs_one_step(
    behind_proxy: Client, proxy: Proxy, client: Client, budget: Budget
) -> None:
    """The service may have started it, so it can only be committed; nothing was drawn, so one step is enough."""
    proxy.rules = {"/start": LOSE}
    held = behind_proxy.reserve(budget, EVENTS, purpose="lost start")
    with pytest.raises(Unavailable), held:
        raise AssertionError("the block has run")
    assert charged_steps(client, held) == 1


def test_an_interrupt_while_it_starts_costs_one_step(
    client: Client, budget: Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = client.reservations.start

    def interrupted(reservation: Reservation, *, idempotency_key: str) -> Reservation:
        start(reservation, idempotency_key=idempotency_key)
        raise KeyboardInterrupt

    monkeypatch.setattr(client.reservations, "start", interrupted)
    with pytest.raises(KeyboardInterrupt), client.guard(budget, **STEPS) as guard:
        guard.take()
    assert charged_steps(client, guard) == 1


def test_a_start_whose_answer_was_lost_can_be_asked_for_again(
    behind_proxy: Client, proxy: Proxy, client: Client, budget: Budget
) -> None:
    with behind_proxy.guard(budget, **STEPS) as guard:
        proxy.rules = {"/start": LOSE}
        with pytest.raises(Unavailable):
            guard.take()
        proxy.rules = {}
        guard.take(3)
    assert charged_steps(client, guard) == 3
    assert kinds(client, budget) == ["reserve", "start", "commit"]


def test_what_somebody_else_has_started_is_not_charged_by_who_got_no_answer(
    behind_proxy: Client, proxy: Proxy, client: Client, budget: Budget
) -> None:
    """Two processes with one idempotency_key: this one's start never arrived, and the other one draws noise."""
    proxy.rules = {"/start": Answer(503, "database_busy")}
    guard = behind_proxy.guard(budget, **STEPS, idempotency_key=f"two {budget.id}")

    def train() -> None:
        try:
            guard.take()
        finally:
            client.reservations.start(guard.id)
            proxy.rules = {}

    with pytest.raises(Unavailable) as caught, guard:
        train()
    assert "may have drawn noise" in caught.value.__notes__[0]
    assert client.reservations.get(guard.id).state == "started", "held in full for the other one"


def test_a_start_that_was_not_made_through_the_guard_is_left_standing(client: Client, budget: Budget) -> None:
    """Whoever made it may have drawn noise, in steps that nobody has counted."""
    guard = client.guard(budget, **STEPS)

    def train() -> None:
        client.reservations.start(guard.id)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught, guard:
        train()
    assert client.reservations.get(guard.id).state == "started"
    assert "is started and stays held in full" in caught.value.__notes__[0]


def test_a_start_that_never_arrived_costs_nothing(
    behind_proxy: Client, proxy: Proxy, client: Client, budget: Budget
) -> None:
    proxy.rules = {"/start": Answer(503, "database_busy")}
    held = behind_proxy.reserve(budget, EVENTS, purpose="never started")
    with pytest.raises(Unavailable), held:
        raise AssertionError("the block has run")
    assert client.reservations.get(held.id).state == "voided"


def test_a_commit_that_cannot_be_made_says_what_stands(
    behind_proxy: Client, proxy: Proxy, client: Client, budget: Budget
) -> None:
    with pytest.raises(Unavailable) as caught, behind_proxy.reserve(budget, EVENTS, purpose="no commit") as held:
        proxy.rules = {"/commit": Answer(503, "database_unavailable")}
    assert f"client.reservations.commit({held.id!r})" in caught.value.__notes__[0]
    assert client.reservations.get(held.id).state == "started"
    assert client.budgets.get(budget).rho.started == pytest.approx(0.5), "held in full"


def test_no_step_is_taken_once_a_commit_was_asked_for(
    behind_proxy: Client, proxy: Proxy, client: Client, budget: Budget
) -> None:
    """Its answer may be lost, and then the ledger has charged what was counted until then."""
    guard = behind_proxy.guard(budget, **STEPS)

    def train() -> None:
        guard.take(4)
        proxy.rules = {"/commit": LOSE}
        with pytest.raises(Unavailable):
            guard.commit()
        proxy.rules = {}
        with pytest.raises(EpsilondError, match="no more noise may be drawn"):
            guard.take()

    with pytest.raises(Conflict, match="already_resolved") as caught, guard:
        train()
    assert "says what is charged" in caught.value.__notes__[0]
    assert charged_steps(client, guard) == guard.steps_taken == 4


def test_a_step_that_is_being_taken_is_counted_by_a_commit_of_another_thread(
    client: Client, budget: Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, asked = client.reservations.commit, threading.Event()

    def recorded(reservation: Reservation, *, events: list[Event] | None, give_up_tail: bool) -> Reservation:
        asked.set()
        return commit(reservation, events=events, give_up_tail=give_up_tail)

    def interrupted() -> Reservation:
        """Commit in another thread between the answer to the start and the count."""
        started = start()
        other.start()
        # In vain, since the commit waits for this step; one that did not would be asked for at once.
        asked.wait(0.1)
        return started

    monkeypatch.setattr(client.reservations, "commit", recorded)
    with client.guard(budget, **STEPS) as guard:
        guard.take(4)
        start, other = guard.start, threading.Thread(target=guard.commit)
        monkeypatch.setattr(guard, "start", interrupted)
        guard.take()
        other.join()
    assert charged_steps(client, guard) == guard.steps_taken == 5


def test_a_lost_start_that_cannot_be_committed_says_what_stands(
    behind_proxy: Client, proxy: Proxy, client: Client, budget: Budget
) -> None:
    proxy.rules = {"/start": LOSE, "/commit": Answer(503, "database_unavailable")}
    held = behind_proxy.reserve(budget, EVENTS, purpose="neither")
    with pytest.raises(Unavailable) as caught, held:
        raise AssertionError("the block has run")
    assert f"client.reservations.commit({held.id!r})" in caught.value.__notes__[0]
    assert client.reservations.get(held.id).state == "started"


def test_the_block_s_own_error_is_raised_also_where_it_cannot_be_committed(
    behind_proxy: Client, proxy: Proxy, budget: Budget
) -> None:
    proxy.rules = {"/commit": Answer(503, "database_unavailable")}
    with pytest.raises(ZeroDivisionError) as caught, behind_proxy.reserve(budget, EVENTS, purpose="both fail"):
        raise ZeroDivisionError
    assert "stays held in full" in caught.value.__notes__[0]


def test_who_is_killed_in_the_block_leaves_a_started_hold_that_the_next_process_finds(
    client: Client, url: str, budget: Budget
) -> None:
    program = f"""
        import os, signal
        from epsilond_client import Client
        with Client({url!r}).reserve({budget.id!r}, {EVENTS!r}, purpose="killed", idempotency_key="job 7 {budget.id}"):
            os.kill(os.getpid(), signal.SIGKILL)
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], env=os.environ | {"PYTHONPATH": str(SOURCES)}, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    [left] = client.reservations.list(budget)
    assert left.state == "started"
    again = client.reserve(budget, EVENTS, purpose="killed", idempotency_key=f"job 7 {budget.id}")
    with pytest.raises(Conflict) as caught, again:
        raise AssertionError("noise was drawn a second time")
    assert caught.value.code == "already_started"
    assert "may have drawn noise" in caught.value.__notes__[0]
    assert client.reservations.get(left).state == "started", "not given back, and not charged by who drew nothing"
    assert [found.id for found in client.reservations.list(budget)] == [left.id]


def test_a_fork_takes_no_step_and_resolves_nothing(client: Client, url: str, budget: Budget) -> None:
    program = f"""
        import os
        from epsilond_client import Client
        with Client({url!r}).guard({budget.id!r}, **{STEPS!r}) as guard:
            guard.take()
            child = os.fork()
            guard.take()  # in the fork an error, which leaves the block there
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    """
    environment = os.environ | {"PYTHONPATH": str(SOURCES)}
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], env=environment, check=False, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    assert "is a fork of the process that holds the reservation" in ended.stderr
    [found] = client.reservations.list(budget)
    assert found.charged_events is not None
    assert found.charged_events[0]["count"] == 2
    assert kinds(client, budget) == ["reserve", "start", "commit"]


@pytest.fixture
def often_extended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times a second, also where a hold lasts for a minute: so a slow machine loses none."""
    monkeypatch.setattr(holding, "_EXTENSIONS", 1000)


@pytest.mark.usefixtures("often_extended")
def test_a_hold_is_extended_while_the_block_runs(client: Client, budget: Budget) -> None:
    with client.reserve(budget, EVENTS, purpose="long", expires_in=60, start=False) as held:
        first, deadline = held.reservation.expires_at, time.monotonic() + 30
        while client.reservations.get(held.id).expires_at <= first:
            assert time.monotonic() < deadline, "never extended"
            time.sleep(0.05)
        held.void()


@pytest.mark.usefixtures("often_extended")
@pytest.mark.parametrize("trouble", [Answer(503, "database_busy"), Answer(429, "too_many_requests")])
def test_a_failing_extension_is_told_and_does_not_end_the_block(
    behind_proxy: Client,
    proxy: Proxy,
    client: Client,
    budget: Budget,
    caplog: pytest.LogCaptureFixture,
    trouble: Answer,
) -> None:
    proxy.rules = {"/extend": trouble}
    with behind_proxy.reserve(budget, EVENTS, purpose="not extended", expires_in=60) as held:
        deadline = time.monotonic() + 30
        while len([path for _, path, _ in proxy.seen if path.endswith("/extend")]) < 2:
            assert time.monotonic() < deadline, "not tried again"
            time.sleep(0.02)
    assert charged_steps(client, held) == 10
    warned = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert held.id in warned[0].getMessage()
    assert str(trouble.code) in warned[0].getMessage()


def test_no_thread_is_left_behind(client: Client, budget: Budget) -> None:
    with client.reserve(budget, EVENTS, purpose="thread"):
        assert any(thread.name == "epsilond-extend" for thread in threading.enumerate())
    deadline = time.monotonic() + 30
    while any(thread.name == "epsilond-extend" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_reservation_is_for_one_block(client: Client, budget: Budget) -> None:
    with client.guard(budget, **STEPS) as guard:
        steps = guard.steps(range(10))
        next(steps)
    with pytest.raises(EpsilondError, match="its block has ended"):
        next(steps)
    with pytest.raises(EpsilondError, match="one block"), guard:
        pass
    assert charged_steps(client, guard) == 1


def test_steps_are_counted_once_each_from_many_threads(client: Client, budget: Budget) -> None:
    refused = []

    def work() -> None:
        for _ in range(3):
            try:
                guard.take()
            except StepsExhausted:
                refused.append(1)

    with client.guard(budget, **STEPS) as guard:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (guard.steps_taken, len(refused)) == (10, 14)
    assert kinds(client, budget) == ["reserve", "start", "commit"], "started once"

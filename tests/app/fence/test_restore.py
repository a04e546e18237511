"""A restored backup: what the service does when its database has forgotten what it had acknowledged."""

from __future__ import annotations

import json
import shutil

import pytest
from sqlalchemy import select

from app.db.database import Database
from app.fence import file_store, repository, service
from app.fence.file_store import FileStore
from app.fence.marks import Reason
from app.fence.watching import fence_of
from app.ledger import transparency
from app.runs import loss as losses
from app.settings import environment_of
from app.tables.ledger import Entry
from tests.app.budgets.conftest import Api, audit_all, made, zcdp
from tests.app.cli.calls import done, refused
from tests.app.fence.conftest import Place
from tests.app.problem_assertions import assert_problem

pytestmark = pytest.mark.usefixtures("compared_each_time")


def released_after_backup(place: Place) -> tuple[str, dict[str, str], str]:
    """A budget of rho 1; a reservation that was held when the backup was made, and committed after it; the backup."""
    with place.server() as api:
        budget = api.budget()
        held = api.hold(budget["id"], [zcdp(0.6)])
    backup = place.backup()
    with place.server() as api:
        made(api.resolve(held, "start"))
        made(api.resolve(held, "commit"))
        api.spend(budget["id"], [zcdp(0.4)])
        assert api.rho(budget["id"]) == (1.0, 0.0, 0.0)
    return budget["id"], held, backup


def assert_nothing_is_served(api: Api, budget_id: str, missing: int, of: int) -> None:
    answers = [
        api.get(f"/v1/budgets/{budget_id}"),
        api.ask_budget(),
        api.reserve(budget_id, [zcdp(0.1)]),
        api.post("/v1/account", {}),
        api.get("/docs"),
        api.get("/dashboard"),
    ]
    for answer in answers:
        problem = assert_problem(answer, 503, "database_behind_fence")
        assert (problem["missing_entries"], problem["acknowledged_entries"]) == (missing, of)
        assert "epsilond ledger acknowledge-loss" in problem["detail"]
    assert api.get("/health/live").status_code == 200
    ready = assert_problem(api.get("/health/ready"), 503, "database_behind_fence")
    assert ready["checks"]["fence"] == "failing"
    assert "epsilond_fence_behind 1.0" in api.get("/metrics").text


def test_a_restored_backup_serves_nothing(place: Place) -> None:
    budget_id, held, backup = released_after_backup(place)
    place.url = backup
    with place.server() as api:
        # The budget was made and held: 2 entries; start, commit, reserve, start and commit are missing.
        assert_nothing_is_served(api, budget_id, missing=5, of=7)
        assert_problem(api.resolve(held, "void"), 503, "database_behind_fence")


def test_without_its_fence_a_restored_backup_spends_the_budget_again(place: Place) -> None:
    """What the fence is for, and what it cannot notice: a fence that is restored with the database."""
    with place.server() as api:
        budget = api.budget()
        held = api.hold(budget["id"], [zcdp(0.6)])
    backup = place.backup()
    fence = place.file.read_bytes()
    with place.server() as api:
        made(api.resolve(held, "start"))
        made(api.resolve(held, "commit"))
        api.spend(budget["id"], [zcdp(0.4)])
    place.url = backup
    place.file.write_bytes(fence)
    with place.server() as api:
        assert api.rho(budget["id"]) == (0.0, 0.6, 0.4)
        made(api.resolve(held, "void"))
        api.spend(budget["id"], [zcdp(1.0)])


def test_a_restore_under_a_running_server(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    budget_id, held, backup = released_after_backup(place)
    with place.server() as api:
        assert api.rho(budget_id) == (1.0, 0.0, 0.0)
        swap(place, api, backup)
        # Nobody has compared since; the command itself finds out, and nothing of it stays.
        monkeypatch.setattr(service, "BELIEVED_S", 3600.0)
        assert_problem(api.resolve(held, "void"), 503, "database_behind_fence")
        assert_nothing_is_served(api, budget_id, missing=5, of=7)
    with place.context() as context, context.database.read() as session:
        assert session.scalars(select(Entry.kind).order_by(Entry.leaf_index)).all() == ["create", "reserve"]


def swap(place: Place, api: Api, backup: str) -> None:
    """Let the running server's database be another one, as a restore under it does."""
    context = api.client.app.state.context  # type: ignore[attr-defined]
    database = context.database
    database.engine.dispose()
    other = type(database)(backup)
    database.engine, place.url = other.engine, backup
    fence_of(context)


def test_an_acknowledged_loss_is_entered_and_what_may_have_started_is_held(place: Place) -> None:
    budget_id, held, backup = released_after_backup(place)
    place.url = backup
    with place.server() as api:
        with place.context() as context:
            done = losses.acknowledge(context, "the disk failed")
        assert (done.loss.reason, done.loss.entries, done.life, done.started) == (Reason.BEHIND, 5, 2, 1)
        # The running server goes on by itself.
        assert api.rho(budget_id) == (0.0, 0.6, 0.4)
        assert_problem(api.resolve(held, "void"), 409, "already_started")
        made(api.resolve(held, "commit"))
        assert api.kinds(budget_id) == ["create", "reserve", "start", "loss", "commit"]
        entry = api.entries(budget_id)[3]
        assert (entry["reason"], entry["amount"], entry["events"]) == ("the disk failed", {"rho": 0.0}, [])
        assert api.get("/health/ready").status_code == 200
        context = api.client.app.state.context  # type: ignore[attr-defined]
        audit_all(context)
        assert transparency.verified(context).valid
        with pytest.raises(losses.NothingToAcknowledge):
            losses.acknowledge(context, "again")


def test_a_hold_that_ran_out_meanwhile_counts_as_started_too(place: Place) -> None:
    budget_id, held, backup = released_after_backup(place)
    place.url = backup
    place.clock.advance(10 * 24 * 3600)
    with place.context() as context:
        assert losses.acknowledge(context, "the disk failed").started == 1
    with place.server() as api:
        assert api.state(held) == "started"
        assert api.rho(budget_id) == (0.0, 0.6, 0.4)


def test_budgets_that_lost_nothing_keep_their_holds(place: Place) -> None:
    with place.server() as api:
        whole = api.budget()
        untouched = api.hold(whole["id"], [zcdp(0.5)])
    _, held, backup = released_after_backup(place)
    place.url = backup
    with place.context() as context:
        done = losses.acknowledge(context, "the disk failed")
        assert {each.budget_id for each in done.loss.missing} == {held["budget_id"]}
    with place.server() as api:
        assert api.state(untouched) == "pending"
        assert api.kinds(whole["id"])[-1] == "loss", "every tree says that it has happened"


def test_a_backup_from_before_an_acknowledged_loss_is_of_another_life(place: Place) -> None:
    budget_id, _, backup = released_after_backup(place)
    older = place.databases.copy_of(backup)
    place.url = backup
    with place.context() as context:
        losses.acknowledge(context, "the disk failed")
    place.url = older
    with place.context() as context:
        loss = fence_of(context).check()
        assert loss is not None
        assert loss.reason is Reason.OTHER_LIFE
    with place.server() as api:
        assert_problem(api.get(f"/v1/budgets/{budget_id}"), 503, "database_behind_fence")


def test_the_command_shows_a_loss_and_enters_it_when_it_is_told_why(place: Place) -> None:
    budget_id, _, backup = released_after_backup(place)
    env = environment_of(place.settings())
    shown = ("ledger", "acknowledge-loss")
    assert done(*shown, env=env) == "The database has everything that was acknowledged.\n"
    assert "Give --reason: why" in refused(*shown, "--yes", env=env)
    assert refused(*shown, "--yes", "--reason", "no loss", env=env)
    place.url = backup
    env = environment_of(place.settings())
    found = json.loads(done(*shown, "--json", env=env))
    assert (found["reason"], found["missing_entries"], found["acknowledged_entries"]) == ("behind", 5, 7)
    assert [each["budget_id"] for each in found["missing"]] == [budget_id]
    text = done(*shown, env=env)
    assert budget_id in text
    assert "Nothing was changed." in text
    with place.context() as context:
        assert fence_of(context).check() is not None, "it was only shown"
    text = done(*shown, "--yes", "--reason", "the disk failed", env=env)
    assert "life 2 of the ledger has begun" in text
    assert "1 reservation(s) that may have been started" in text
    with place.server() as api:
        assert api.entries(budget_id)[-1]["reason"] == "the disk failed"


def test_a_fence_that_is_gone_is_missed(place: Place) -> None:
    budget_id, _, backup = released_after_backup(place)
    place.url = backup
    place.file.unlink()
    with place.server() as api:
        problem = assert_problem(api.get(f"/v1/budgets/{budget_id}"), 503, "database_behind_fence")
        assert problem["reason"] == "no_fence"
        assert problem["missing_entries"] is None
    with place.context() as context:
        done = losses.acknowledge(context, "moved without its fence")
        # Nobody knows which budgets lost entries, so every hold may have been started.
        assert done.started == 1
    with place.server() as api:
        assert api.kinds(budget_id)[-2:] == ["start", "loss"]


def test_a_fence_of_another_ledger_is_not_acknowledged(place: Place) -> None:
    with place.server() as api:
        budget = api.budget()
    text = place.file.read_bytes().split(b"\n")[0].split(b" ")
    place.file.write_bytes(file_store._record([text[0].decode(), "another", text[2].decode()]))
    with place.context() as context, pytest.raises(losses.NothingToAcknowledge, match="belongs to another ledger"):
        losses.acknowledge(context, "no matter")
    with place.server() as api:
        assert_problem(api.get(f"/v1/budgets/{budget['id']}"), 503, "database_behind_fence")


def test_a_database_that_never_had_a_fence_gets_one(place: Place) -> None:
    with place.context() as context:
        assert fence_of(context).check() is None
    assert place.file.stat().st_mode & 0o777 == 0o600
    before = place.file.read_bytes()
    with place.context() as context:
        assert fence_of(context).check() is None
    assert place.file.read_bytes() == before


def test_a_copied_older_fence_is_caught_up_with(place: Place) -> None:
    """The database is ahead: that is what a crash between the two writes leaves, and no loss."""
    with place.server() as api:
        budget = api.budget()
    older = place.file.read_bytes()
    with place.server() as api:
        api.spend(budget["id"], [zcdp(0.4)])
    place.file.write_bytes(older)
    with place.server() as api:
        assert api.rho(budget["id"]) == (0.4, 0.0, 0.6)
    backup = place.backup()
    with place.server() as api:
        api.spend(budget["id"], [zcdp(0.4)])
    shutil.copyfile(place.file, place.file.with_suffix(".kept"))
    place.url = backup
    with place.context() as context:
        assert fence_of(context).check() is not None, "and it notices again"


@pytest.mark.parametrize("command", ["start", "correction", "budget"])
def test_an_answer_that_another_server_gives_again_is_fenced_first(
    place: Place, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """The first server has committed and was killed before it told the fence; nobody has compared since."""
    monkeypatch.setattr(service, "BELIEVED_S", 3600.0)
    with place.server() as api:
        budget = api.budget()
        held = api.hold(budget["id"], [zcdp(0.6)])

    def send(to: Api) -> object:
        if command == "start":
            return made(to.resolve(held, "start", key="again"))
        if command == "budget":
            return made(to.post("/v1/budgets", {**TERMS, "name": "another"}, key="again"))
        charge = {"events": [zcdp(0.1)], "reason": "told late"}
        return made(to.post(f"/v1/budgets/{budget['id']}/corrections", charge, key="again"))

    with place.server() as first, place.server() as second:
        monkeypatch.setattr(fence_of(first.client.app.state.context), "after_commit", lambda _: None)  # type: ignore[attr-defined]
        answer = send(first)
        assert not is_fenced(place)
        assert send(second) == answer
        assert is_fenced(place)


TERMS = {"neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": "1"}}


def is_fenced(place: Place) -> bool:
    """Return whether the fence has the last entries of all chains."""
    store = FileStore(place.file)
    kept = store.read()
    store.close()
    assert kept is not None
    database = Database(place.url)
    with database.read() as session:
        heads = repository.heads(session.connection())
    database.dispose()
    return dict(kept.heads) == heads

"""`epsilond ledger`: verify, export, checkpoint, rebuild, reprice."""

from __future__ import annotations

import json
import stat
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.orm import Session
from starlette.testclient import TestClient
from typer.testing import CliRunner, Result

from accounting import ENGINE_VERSION
from accounting.events import ApproximateDp, Event, Gaussian, Poisson, ZcDp
from app.cli import ledger as commands
from app.cli.main import cli
from app.context import Context
from app.kit.ids import new_id
from app.ledger import transparency
from app.ledger.certificate_verification import verify_certificates
from app.ledger.commands import Commit, Quote, Reserve, Start
from app.ledger.journal import Instruction, carry_out
from app.ledger.verdicts import CertificateReport, Past
from app.reservations import repricing
from app.settings import Settings, environment_of
from app.tables.states import Amounts
from tests.app.budgets.conftest import Api, Clock, audit_all, zcdp
from tests.app.ledger import attacks


def run(settings: Settings, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["ledger", *arguments], env=environment_of(settings))


def ok(settings: Settings, *arguments: str) -> str:
    result = run(settings, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(settings: Settings, *arguments: str) -> str:
    """Return the one line that a failing command prints, with status 1."""
    result = run(settings, *arguments)
    assert (result.exit_code, result.output.count("\n")) == (1, 1), result.output
    return result.output


def test_books_are_verified_in_one_line(root: dict[str, Any], context: Context) -> None:
    assert ok(context.settings, "verify").startswith(f"valid: {len(attacks.entries(context.database))} entries of 3 ")
    attacks.run(context.database, f"UPDATE budgets SET spent = '[1]' WHERE id = '{root['id']}'")
    line = refused(context.settings, "verify")
    assert (
        line == f"not valid: budget {root['id']}: the column spent of the row differs from what the entries add up to\n"
    )


def test_certificates_are_verified_with_the_books(api: Api, context: Context, tmp_path: Path) -> None:
    budget = api.budget({"kind": "approximate_dp", "epsilon": 1, "delta": "1e-4"})
    gaussian = {"mechanism": {"kind": "gaussian", "noise_multiplier": 9.0}}
    held = api.hold(budget["id"], [gaussian], charge={"delta": 1e-5}, certificate=True)
    assert ok(context.settings, "verify", "--proofs").endswith("; 1 certificates of 1 reservations are verified\n")
    body = json.loads(ok(context.settings, "verify", "--proofs", "--json"))
    assert body["certificates"] == {"reservations": 1, "certificates": 1}
    assert "certificates" not in json.loads(ok(context.settings, "verify", "--json"))
    attacks.run(context.database, "DELETE FROM certificates")
    said = refused(context.settings, "verify", "--proofs")
    assert said == f"not valid: budget {budget['id']}, entry 2: the certificate {held['certificate']} is missing\n"
    said = refused(context.settings, "verify", "--proofs", "--export", str(tmp_path / "none"))
    assert "An export has no certificates" in said


def test_certificates_are_those_of_the_books_that_were_verified(api: Api, context: Context) -> None:
    """A charge of the meantime is in neither."""
    budget = api.budget({"kind": "approximate_dp", "epsilon": 1, "delta": "1e-4"})
    gaussian = {"mechanism": {"kind": "gaussian", "noise_multiplier": 9.0}}
    fields = {"charge": {"delta": 1e-5}, "certificate": True}
    api.hold(budget["id"], [gaussian], **fields)

    def prove(session: Session) -> CertificateReport:
        api.hold(budget["id"], [gaussian], **fields)
        return verify_certificates(session)

    verdict = transparency.verified(context, prove=prove)
    assert (verdict.entries, verdict.certificates) == (2, CertificateReport(1, 1, None))
    after = transparency.verified(context, prove=verify_certificates)
    assert (after.entries, after.certificates) == (3, CertificateReport(2, 1, None))


def test_an_export_is_its_owners_alone_and_verified_without_a_database(
    root: dict[str, Any], context: Context, tmp_path: Path
) -> None:
    path = tmp_path / "kept.ndjson"
    printed = ok(context.settings, "export", "--output", str(path))
    count = len(attacks.entries(context.database))
    assert printed == f"{count} entries were written to {path}.\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    nowhere = Settings(data_dir=tmp_path / "none", database_url="postgresql://user:password@127.0.0.1:1/name")
    assert ok(nowhere, "verify", "--export", str(path)) == ok(context.settings, "verify")
    assert not (tmp_path / "none").exists()
    assert "Cannot write to" in refused(context.settings, "export", "--output", str(path))
    table = tmp_path / "kept.csv"
    ok(context.settings, "export", "--format", "csv", "--output", str(table))
    assert len(table.read_bytes().splitlines()) == count + 1
    assert "the line is not a complete JSON object" in refused(nowhere, "verify", "--export", str(table))
    assert "Cannot read" in refused(nowhere, "verify", "--export", str(tmp_path / "missing"))


def test_an_older_export_tells_books_that_were_rolled_back(
    root: dict[str, Any], client: TestClient, context: Context, tmp_path: Path
) -> None:
    api = Api(client)
    early, late = tmp_path / "early.ndjson", tmp_path / "late.ndjson"
    ok(context.settings, "export", "--output", str(early))
    api.spend(root["id"], [zcdp(0.1)])
    ok(context.settings, "export", "--output", str(late))
    for arguments in (("--since", early), ("--since", late), ("--export", late, "--since", early)):
        ok(context.settings, "verify", *map(str, arguments))
    line = refused(context.settings, "verify", "--export", str(early), "--since", str(late))
    assert line.startswith(f"not valid: budget {root['id']}, entry ")
    assert line.endswith(": the entry is missing, although the older export has it\n")
    late.write_bytes(late.read_bytes()[:-20])
    line = refused(context.settings, "verify", "--since", str(late))
    assert "The older export cannot be used for the comparison: not valid: line" in line


def test_json_says_what_the_endpoints_say(
    root: dict[str, Any], client: TestClient, context: Context, tmp_path: Path
) -> None:
    def told(*arguments: str, status: int = 0) -> Any:
        result = run(context.settings, *arguments, "--json")
        assert (result.exit_code, result.stderr) == (status, ""), result.output
        return json.loads(result.stdout)

    entries = len(attacks.entries(context.database))
    verdict = told("verify")
    assert (verdict["valid"], verdict["entries"]) == (True, entries)
    assert verdict == client.post("/v1/ledger/verify").json()
    for name in ("export", "checkpoint"):
        assert told(name, "--output", str(tmp_path / name))["output"] == str(tmp_path / name)
    assert told("export", "--output", str(tmp_path / "x"))["entries"] == entries
    note = told("checkpoint")
    assert (note["size"], note["output"]) == (entries, None)
    assert note["note"] == (tmp_path / "checkpoint").read_text() == ok(context.settings, "checkpoint")
    assert told("public-key")["public_key"] == ok(context.settings, "public-key").strip()
    assert told("rebuild") == {"entries": entries, "budgets": 0, "reservations": 0, "limit_requests": 0, "exposed": 0}
    assert told("reprice") == {"charges": [], "raised": 0, "failed": 0}
    attacks.run(context.database, f"UPDATE budgets SET spent = '[1]' WHERE id = '{root['id']}'")
    bad = told("verify", status=1)
    assert bad["first_bad"]["budget_id"] == root["id"]
    assert bad == client.post("/v1/ledger/verify").json()


def test_a_bar_hears_of_every_entry_that_is_verified(
    root: dict[str, Any], context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "_SEEN_AT_ONCE", 1)
    heard: list[int] = []
    watched = commands.Watched(None, lambda done, of: heard.append(done))
    assert transparency.verified(context, past=watched).valid
    assert heard == list(range(1, len(attacks.entries(context.database)) + 1))
    past = Past()
    past.add(SimpleNamespace(budget_id=root["id"], hash="0" * 64))
    verdict = transparency.verified(context, past=commands.Watched(past, lambda done, of: None))
    assert "the older export has another entry in this place" in verdict.in_words()


def test_lost_state_is_written_anew(root: dict[str, Any], context: Context) -> None:
    before = attacks.dump(context.database)
    count = len(attacks.entries(context.database))
    nothing = "Rebuilt: 0 budgets, 0 reservations, 0 limit requests, the exposed steps of 0 budgets.\n"
    assert ok(context.settings, "rebuild") == f"{count} entries were read. {nothing}"
    attacks.run(context.database, "DELETE FROM exposed_steps", "UPDATE budgets SET spent = '[0]'")
    refused(context.settings, "verify")
    printed = ok(context.settings, "rebuild")
    assert "Rebuilt: 3 budgets, 0 reservations, 0 limit requests, the exposed steps of 3 budgets." in printed
    assert attacks.dump(context.database) == before
    ok(context.settings, "verify")
    attacks.rewrite_entries(context.database, lambda rows: rows[:-1])
    attacks.run(context.database, "DELETE FROM reservations WHERE purpose = 'large'")
    line = refused(context.settings, "rebuild")
    assert line.startswith("epsilond: Nothing was changed: budget ")
    assert ": the entry is missing: the budget's row says that entry " in line
    assert line.endswith(" is the last one. Restore a backup.\n")


def charge(
    context: Context,
    budget_id: str,
    events: tuple[Event, ...],
    amounts: Amounts,
    version: str,
    steps: Sequence[Any] = (Start(), Commit()),
    charge_delta: float | None = None,
) -> str:
    """A reservation as an engine of some version would have priced it; its id."""
    reservation_id, now = new_id("res"), context.clock()
    quote = Quote(amounts, version)
    reserve = Reserve(reservation_id, events, quote, now + timedelta(days=1), charge_delta=charge_delta)
    for command in (reserve, *steps):
        target = budget_id if command is reserve else reservation_id
        with context.database.write() as session:
            carry_out(session, context.database, [Instruction(command, "loopback", target)], now)
    return reservation_id


NANO = 10**9
STEP = (Event(ZcDp(0.1), count=3),)
PRICE = (3 * NANO // 10,)


def test_charges_of_older_engines_are_raised_and_never_lowered(api: Api, context: Context, clock: Clock) -> None:
    budget = api.budget({"kind": "zcdp", "rho": "2"})["id"]
    too_low = charge(context, budget, STEP, (NANO // 10,), "1")
    too_high = charge(context, budget, STEP, (NANO // 2,), "1")
    right = charge(context, budget, STEP, PRICE, "1")
    held = charge(context, budget, STEP, (NANO // 10,), "1", steps=())
    started = charge(context, budget, STEP, (NANO // 10,), "1", steps=(Start(),))
    gone = charge(context, budget, STEP, (NANO // 10,), "1", steps=())
    api.post(f"/v1/reservations/{gone}/void")
    own = charge(context, budget, STEP, (NANO // 10,), ENGINE_VERSION)
    before = {name: api.get(f"/v1/reservations/{name}").json() for name in (too_high, right, gone, own)}
    printed = ok(context.settings, "reprice").splitlines()
    assert printed[-1] == "5 charges of older engines: 3 raised, 0 without a price; the others are high enough."
    assert sorted(line.split()[0] for line in printed[:-1]) == sorted([too_low, held, started])
    assert all("{'rho': 0.1} is raised to {'rho': 0.3}" in line for line in printed[:-1])
    for name, body in before.items():
        after = api.get(f"/v1/reservations/{name}").json()
        assert {**after, "remaining": None} == {**body, "remaining": None}
    assert api.get(f"/v1/reservations/{too_low}").json()["charged"] == {"rho": 0.3}
    assert api.get(f"/v1/reservations/{started}").json()["cost"] == {"rho": 0.3}
    assert api.rho(budget) == (pytest.approx(0.3 + 0.5 + 0.3 + 0.1), pytest.approx(0.6), pytest.approx(0.2))
    corrections = [entry for entry in api.entries(budget) if entry["kind"] == "correct"]
    assert {entry["reason"] for entry in corrections} == {
        f"priced again: engine {ENGINE_VERSION} finds a higher price than engine 1 did"
    }
    assert {entry["principal_id"] for entry in corrections} == {"service"}
    again = ok(context.settings, "reprice")
    assert again.endswith(": 0 raised, 0 without a price; the others are high enough.\n")
    assert len(again.splitlines()) == 1
    ok(context.settings, "verify")


def test_a_raise_passes_the_limit_where_it_must(api: Api, context: Context) -> None:
    parent = api.budget({"kind": "zcdp", "rho": "0.2"})
    child = api.child(parent, {"kind": "zcdp", "rho": "5"})
    charge(context, child["id"], STEP, (NANO // 10,), "1")
    ok(context.settings, "reprice")
    body = api.read(parent["id"])
    assert (body["amounts"]["spent"], body["overdrawn"]) == ({"rho": 0.3}, True)


def test_a_part_is_priced_as_a_part_where_parts_add_up(api: Api, context: Context) -> None:
    budget = api.budget({"kind": "zcdp", "rho": "2"})["id"]
    part = Commit((Event(ZcDp(0.1), count=1),), Quote((NANO // 100,), "1"))
    charge(context, budget, STEP, (NANO // 10,), "1", steps=(Start(), part))
    ok(context.settings, "reprice")
    assert api.rho(budget)[0] == 0.1


def test_a_part_that_is_committed_meanwhile_is_priced_as_a_part(
    api: Api, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old engine held too little; while the present one prices the whole, a part is committed at its old price."""
    budget = api.budget({"kind": "zcdp", "rho": "2"})["id"]
    held = charge(context, budget, STEP, (NANO // 10,), "1", steps=(Start(),))
    part, quote, is_committed = (Event(ZcDp(0.1), count=1),), repricing.quote_again, False

    def overtaken(*arguments: Any, **options: Any) -> Quote:
        nonlocal is_committed
        found = quote(*arguments, **options)
        if not is_committed:
            is_committed = True
            with context.database.write() as session:
                commit = Commit(part, Quote((NANO // 100,), "1"))
                carry_out(session, context.database, [Instruction(commit, "loopback", held)], context.clock())
        return found

    monkeypatch.setattr(repricing, "quote_again", overtaken)
    ok(context.settings, "reprice")
    assert is_committed
    assert api.rho(budget) == (0.1, 0, 1.9)
    audit_all(context)


def test_a_part_that_paid_for_the_whole_is_priced_as_the_whole(api: Api, context: Context) -> None:
    """This is an approximate_dp budget, in which a part that was chosen after looking does not cost its own price."""
    budget = api.budget({"kind": "approximate_dp", "epsilon": 20, "delta": 1e-4})["id"]
    whole = (Event(Gaussian(1.0), Poisson(0.1), count=100),)
    part = Commit((Event(Gaussian(1.0), Poisson(0.1), count=1),))
    charge(context, budget, whole, (NANO // 100, 10**12), "1", steps=(Start(), part), charge_delta=1e-6)
    ok(context.settings, "reprice")
    dry = api.post(
        f"/v1/budgets/{budget}/reservations",
        {
            "events": [
                {
                    "mechanism": {"kind": "gaussian", "noise_multiplier": 1.0},
                    "sampling": {"kind": "poisson", "sampling_probability": 0.1},
                    "count": 100,
                }
            ],
            "purpose": "the price",
            "charge": {"delta": 1e-6},
        },
        dry_run=True,
    ).json()
    assert api.read(budget)["amounts"]["spent"] == dry["cost"]
    assert dry["cost"]["epsilon"] > 1


def test_a_charge_that_has_no_price_any_more_is_told(api: Api, context: Context) -> None:
    budget = api.budget({"kind": "zcdp", "rho": "2"})["id"]
    unpriced = charge(context, budget, (Event(ApproximateDp(0.1, 1e-6)),), (NANO // 10,), "1")
    priced = charge(context, budget, STEP, (NANO // 10,), "1")
    result = run(context.settings, "reprice")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert any(line.startswith(f"{unpriced} of {budget} has no price: ") for line in lines)
    assert any(line.startswith(f"{priced} of {budget}: ") for line in lines)
    assert lines[-1] == "2 charges of older engines: 1 raised, 1 without a price; the others are high enough."
    audit_all(context)


def test_the_commands_ask_for_the_newest_schema(context: Context, tmp_path: Path) -> None:
    attacks.run(context.database, "UPDATE alembic_version SET version_num = '0001'")
    writing = (("export", "--output", str(tmp_path / "x")), ("checkpoint", "--output", str(tmp_path / "x")))
    for command in (("verify",), *writing, ("public-key",), ("rebuild",), ("reprice",)):
        assert "epsilond migrate" in refused(context.settings, *command)
    assert not (tmp_path / "x").exists()

"""`epsilond keys`: rights, ends and rotation; and the commands of the page about keys."""

from __future__ import annotations

import json
import re
import shlex
from datetime import timedelta
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner, Result

from app.auth import service
from app.auth.principal import Scope
from app.cli.main import cli
from app.context import Context
from app.settings import environment_of
from tests.app.datasets.uploads import create_budget
from tests.databases import on_one_engine

PAGE = Path(__file__).parents[3] / "docs" / "operating" / "keys.md"


def run(context: Context, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["keys", *arguments], env=environment_of(context.settings))


def test_a_key_of_some_budgets_that_ends_is_made_and_listed(context: Context, client: TestClient) -> None:
    root = create_budget(context)
    child = create_budget(context, parent_id=root)
    arguments = ("create", "--name", "ci", "--scope", "analyst", "--budget", child, "--expires-in", "2h")
    made = run(context, *arguments)
    assert made.exit_code == 0, made.output
    principal = service.authenticate(context, made.stdout.strip())
    assert principal is not None
    assert principal.budgets == (f"{root}/{child}",)
    assert principal.valid_until is not None
    assert timedelta(minutes=119) < principal.valid_until - context.clock() <= timedelta(hours=2)
    listed = run(context, "list").stdout
    header, line = listed.splitlines()
    assert header.split() == ["id", "state", "created", "last", "used", "until", "budgets", "scopes", "name"]
    assert line.split("  ")[:2] == [principal.id, "active"]
    for part in ("never used", f"{principal.valid_until:%Y-%m-%dT%H:%M:%SZ}", f"{child}  analyst  ci"):
        assert part in line
    assert root not in listed
    (told,) = json.loads(run(context, "list", "--json").stdout)["items"]
    admin = service.create_key(context, "boss", [Scope.ADMIN])
    assert admin is not None
    served = client.get("/v1/keys", headers={"Authorization": f"Bearer {admin.token}"}).json()["items"]
    assert told in served


@on_one_engine
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("create", "--name", "x", "--scope", "analyst", "--budget", "bud_nothing"), "there is no budget"),
        (("create", "--name", "x", "--scope", "admin", "--budget", "bud_nothing"), "cannot be held to some budgets"),
        (("create", "--name", "x", "--scope", "analyst", "--expires-in", "soon"), "such as 90d"),
        (("create", "--name", "x", "--scope", "analyst", "--expires-in", "0"), "must be more than 0"),
        (("create", "--name", "x", "--scope", "analyst", "--expires-in", "9999d"), "at most 3660d"),
        (("rotate", "key_nothing"), "There is no key"),
        (("rotate", "key_nothing", "--overlap", "8d"), "7d at most"),
    ],
)
def test_what_makes_no_sense_is_one_line_and_makes_nothing(
    context: Context, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    file = tmp_path / "key"
    refused = run(context, *arguments, "--output", str(file))
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    assert said in refused.stderr
    assert not file.exists()
    assert not service.keys_exist(context)


def test_a_key_is_rotated_into_a_file_of_its_own(context: Context, tmp_path: Path) -> None:
    created = service.create_key(context, "ci", [Scope.ANALYST])
    assert created is not None
    rotated = run(context, "rotate", created.id, "--overlap", "30m", "--output", str(tmp_path / "key"))
    assert rotated.exit_code == 0, rotated.output
    new = (tmp_path / "key").read_text().strip()
    assert new not in rotated.output
    for token in (created.token, new):
        assert service.authenticate(context, token) is not None
    assert "good until" in run(context, "rotate", created.id).stderr
    last = run(context, "rotate", created.id, "--overlap", "0").stdout.strip()
    assert [service.authenticate(context, token) is None for token in (created.token, new, last)] == [True, True, False]


@on_one_engine
def test_json_has_the_token_once_or_the_file_that_holds_it(context: Context, tmp_path: Path) -> None:
    def told(*arguments: str) -> dict[str, str | None]:
        result = run(context, *arguments, "--json")
        assert (result.exit_code, result.stderr) == (0, ""), result.output
        document: dict[str, str | None] = json.loads(result.stdout)
        return document

    made = told("create", "--name", "ci", "--scope", "admin")
    assert made["id"] is not None
    assert made["token"] is not None
    assert service.authenticate(context, made["token"]) is not None
    kept = told("rotate", made["id"], "--output", str(tmp_path / "key"))
    assert kept == {"id": made["id"], "output": str(tmp_path / "key")}
    assert service.authenticate(context, (tmp_path / "key").read_text().strip()) is not None
    assert told("create", "--name", "ci", "--scope", "admin", "--if-none") == {"id": None}
    assert told("revoke", made["id"]) == {"id": made["id"], "state": "revoked"}


def test_a_name_that_is_taken_is_told_and_the_id_stands_beside_the_token(context: Context) -> None:
    first = run(context, "create", "--name", "ops", "--scope", "admin")
    (made,) = service.list_keys(context)
    assert first.stderr == f"{made.id} is the id of the key. Its token is shown this once:\n"
    assert service.authenticate(context, first.stdout.strip()) is not None
    second = run(context, "create", "--name", "ops", "--scope", "admin")
    assert f"warning: An active key has the name ops already: {made.id}." in second.stderr
    for each in service.list_keys(context):
        service.revoke_key(context, each.id)
    assert "warning" not in run(context, "create", "--name", "ops", "--scope", "admin").stderr


@on_one_engine
def test_the_commands_of_the_page_do_what_it_says(context: Context, client: TestClient) -> None:
    text = PAGE.read_text().replace("\\\n", "")
    admin = ""
    for line in re.findall(r"^    epsilond keys (.+)$", text, re.MULTILINE):
        result = run(context, *shlex.split(line))
        assert result.exit_code == 0, result.output
        admin = admin or result.stdout.strip()
    calls = re.findall(r"^    curl -X (\w+) http://127.0.0.1:8000(\S+) (.+)$", text, re.MULTILINE)
    assert len(calls) == 3
    for method, path, options in calls:
        flags = shlex.split(options.replace("$ADMIN", admin))
        pairs = list(zip(flags[::2], flags[1::2], strict=True))
        headers = dict(value.split(": ") for flag, value in pairs if flag == "-H")
        body = next((value for flag, value in pairs if flag == "-d"), None)
        headers |= {"Content-Type": "application/json"} if body else {}
        answer = client.request(method, path, headers=headers, content=body)
        assert answer.status_code in (200, 201), answer.text
    for overlap in re.findall(r"`epsilond keys rotate KEY (.+?)`", text):
        key_id = service.list_keys(context)[1].id
        assert run(context, "rotate", key_id, *shlex.split(overlap)).exit_code == 0

"""What the documents say is so: snippets and commands run, methods and terms are explained."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.canonical import sha256_hex
from accounting.composition.intersection import EVALUATORS
from accounting.events import Event, Gaussian, Laplace, Poisson, PureDp, WithoutReplacement, ZcDp
from accounting.relations import NeighboringRelation
from app.context import Context
from app.db.database import Database
from app.fence.watching import fenced_context
from app.main import create_app
from app.settings import Settings
from tests.contract.documents import BASE_URL, DOCS, FENCE, PAGES, ROOT, name_of
from tests.databases import DatabaseFactory
from tests.local_access import local_client

ENDPOINT = re.compile(r"`POST (/v1/[a-z/-]+)`")
COMMAND = re.compile(r"^    (curl .+?)(?<!\\)(?=\n(?!      )|\Z)", re.MULTILINE | re.DOTALL)


def snippets(language: str) -> list[Any]:
    """Each fenced block of a language, with the text of its page before it."""
    found = []
    for page in PAGES:
        text = page.read_text()
        blocks = [block for block in FENCE.finditer(text) if block[1] == language]
        for number, block in enumerate(blocks):
            found.append(pytest.param(block[2], text[: block.start()], id=f"{name_of(page)}:{number}"))
    return found


def commands(page: Path) -> list[list[str]]:
    return [shlex.split(command.replace("\\\n", ""), comments=True) for command in COMMAND.findall(page.read_text())]


@pytest.fixture(scope="module")
def service(sqlite_databases: DatabaseFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    url = sqlite_databases.migrated()
    settings = Settings(data_dir=tmp_path_factory.mktemp("data"), database_url=url, workers=0)
    database = Database(url)
    context = fenced_context(settings, database)
    context.processes.seconds = 60.0  # on a busy machine what takes a few seconds may take 20
    app = create_app(context)
    with local_client(app) as client:
        yield client
    database.dispose()


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("source", "before"), snippets("python"))
def test_python_snippets_run(source: str, before: str) -> None:
    """A snippet asserts what it shows, or defines what a reader copies; a name that is gone raises."""
    exec(compile(source, "snippet", "exec"), {"__name__": "snippet"})
    assert "assert " in source or "def " in source, "say with an assertion what the snippet gives"


@pytest.mark.one_in(6)
@pytest.mark.parametrize(("source", "before"), snippets("json"))
def test_json_snippets_are_requests_that_are_answered(source: str, before: str, service: TestClient) -> None:
    endpoint = ENDPOINT.findall(before)[-1]
    answer = service.post(endpoint, json=json.loads(source), headers={"Idempotency-Key": sha256_hex(source.encode())})
    assert answer.status_code in {200, 201, 202}, answer.text


def header(given: str, service: TestClient) -> list[str]:
    """A header as it is given, or the line of the file that it names: the data folder stands for `var`."""
    if given.startswith("@var/"):
        context: Context = service.app.state.context  # type: ignore[attr-defined]
        given = (context.settings.data_dir / given.removeprefix("@var/")).read_text().strip()
    return given.split(": ")


def test_the_commands_of_the_readme_are_answered(service: TestClient) -> None:
    """In their order; an answer's id stands for the placeholder of the next."""
    asked = commands(ROOT / "README.md")
    assert [command[2].removeprefix(BASE_URL) for command in asked] == [
        "/v1/calibrate", "/v1/runs", "/v1/budgets", "/v1/budgets", "/v1/budgets/{id}/reservations",
        "/v1/ledger/checkpoint",
    ]  # fmt: skip
    last, denied = "", []
    for _, _, url, *options in asked:
        flags = list(zip(options[::2], options[1::2], strict=True))
        headers = dict(header(value, service) for flag, value in flags if flag == "-H")
        bodies = [value for flag, value in flags if flag == "-d"]
        if bodies:
            answer = service.post(url.replace("{id}", last), content=bodies[0], headers=headers, auth=None)
        else:
            answer = service.get(url.replace("{id}", last), headers=headers, auth=None)
        if answer.status_code == 409:
            denied.append(answer.json())
            continue
        assert answer.status_code in {200, 201, 202}, answer.text
        last = answer.json().get("id", last)
    [refusal] = denied
    assert refusal["code"] == "budget_exceeded"
    assert re.match(
        r"these events would add 3\.28\d* to the epsilon that is used, and 1\.6 is left: ", refusal["detail"]
    )


@pytest.mark.parametrize(
    ("events", "relation"),
    [
        ([Event(Gaussian(2.0), count=3)], NeighboringRelation.ADD_OR_REMOVE_ONE),
        ([Event(Gaussian(4.0), Poisson(0.01), 1000)], NeighboringRelation.REPLACE_ONE),
        ([Event(Gaussian(0.5), Poisson(1e-3), 10)], NeighboringRelation.ADD_OR_REMOVE_ONE),
        ([Event(Gaussian(1.0), Poisson(0.01))], NeighboringRelation.ADD_OR_REMOVE_ONE),
        ([Event(Laplace(5.0), count=20), Event(PureDp(0.1))], NeighboringRelation.ADD_OR_REMOVE_ONE),
        ([Event(Gaussian(5.0), WithoutReplacement(10, 1000), 50)], NeighboringRelation.REPLACE_ONE),
        ([Event(ZcDp(0.1)), Event(Gaussian(5.0))], NeighboringRelation.ADD_OR_REMOVE_ONE),
    ],
)
@pytest.mark.one_in(9)
def test_methods_and_error_terms_are_explained(events: list[Event], relation: NeighboringRelation) -> None:
    page = (DOCS / "concepts" / "accounting.md").read_text()
    methods = {evaluator.name for evaluator in EVALUATORS}
    for answer in (epsilon_for_delta(events, relation, 1e-6), delta_for_epsilon(events, relation, 1.0)):
        for name in {answer.method, *answer.error_budget, *methods}:
            assert f"`{name}`" in page, name

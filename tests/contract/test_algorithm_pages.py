"""The pages of algorithms say what the modules do, their examples run, and their formulas render."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from app.db.database import Database
from app.kit.context import Context
from app.main import create_app
from app.settings import Settings
from calibrators.registry import ALGORITHMS
from docs.algorithms import generate
from docs.algorithms.pages import number
from tests.conformance.examples import EXAMPLES
from tests.conformance.latex import page_faults
from tests.databases import DatabaseFactory

DOCS = generate.HERE.parent
EVERY_PAGE = sorted(DOCS.rglob("*.md"))

every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)


@pytest.fixture(scope="module")
def service(sqlite_databases: DatabaseFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    url = sqlite_databases.migrated()
    database = Database(url)
    app = create_app(Context(Settings(data_dir=tmp_path_factory.mktemp("data"), database_url=url, workers=0), database))
    with TestClient(app, base_url="http://127.0.0.1:8000", client=("127.0.0.1", 50000)) as client:
        yield client
    database.dispose()


@pytest.mark.parametrize("page", generate.PAGES)
def test_a_generated_page_is_the_committed_one(page: str) -> None:
    assert (generate.HERE / page).read_text() == generate.PAGES[page](), "run: make docs"


@pytest.mark.parametrize("page", EVERY_PAGE, ids=lambda page: str(page.relative_to(DOCS)))
def test_the_formulas_of_a_page_render(page: Path) -> None:
    assert page_faults(page.read_text()) == []


@every_algorithm
def test_the_example_of_a_page_is_answered_with_the_numbers_that_it_shows(name: str, service: TestClient) -> None:
    page = (generate.HERE / f"{name}.md").read_text()
    [request] = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    answer = service.post("/v1/calibrate", json=json.loads(request))
    assert answer.status_code == 200, answer.text
    body = answer.json()
    shown = dict(re.findall(r"^\| `(\w+)` \| ([^|]*?)(?:, vacuous)? \|", page, re.MULTILINE))
    for item in (*body["hyperparameters"], *body["utility"]):
        value = item["value"]
        assert shown[item["name"]] == number(tuple(value) if isinstance(value, list) else value)
    assert f"In the example it is **{body['literal']['verdict']}**." in page
    assert f"epsilon {body['achieved']['epsilon']['upper']:.6g} at delta" in page


@every_algorithm
def test_a_page_names_every_assumption_sampling_relation_and_erratum(name: str) -> None:
    page, algorithm = (generate.HERE / f"{name}.md").read_text(), ALGORITHMS[name]
    for assumption in algorithm.assumptions:
        assert f"| `{assumption.name}` |" in page
    for kind in (*(scheme.kind for scheme in algorithm.samplings), *map(str, algorithm.relations)):
        assert f"`{kind}`" in page
    errata = page[page.index("## Errata") : page.index("## Theory")]
    assert errata.count("\n- ") == len(algorithm.errata)


def test_the_index_has_every_algorithm_and_every_algorithm_an_example() -> None:
    index = (generate.HERE / "README.md").read_text()
    assert set(EXAMPLES) == set(ALGORITHMS)
    for name in ALGORITHMS:
        assert f"[{name}]({name}.md)" in index

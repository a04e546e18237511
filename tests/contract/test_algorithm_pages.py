"""The pages of algorithms say what the modules do, their examples run, and their formulas render."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from app.db.database import Database
from app.fence.watching import fenced_context
from app.main import create_app
from app.settings import Settings
from calibrators.registry import ALGORITHMS
from docs.algorithms import generate
from docs.algorithms.pages import number
from tests.conformance.latex import page_faults
from tests.contract.documents import DOCS_PAGES, anchors_in, links_in, name_of
from tests.databases import DatabaseFactory
from tests.local_access import local_client

every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)


@pytest.fixture(scope="module")
def service(sqlite_databases: DatabaseFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    url = sqlite_databases.migrated()
    database = Database(url)
    app = create_app(
        fenced_context(Settings(data_dir=tmp_path_factory.mktemp("data"), database_url=url, workers=0), database)
    )
    with local_client(app) as client:
        yield client
    database.dispose()


@cache
def page_of(name: str) -> str:
    """The page as `make docs` writes it."""
    return generate.PAGES[f"{name}.md"]()


def test_the_committed_index_is_the_generated_one() -> None:
    assert (generate.HERE / "README.md").read_text() == generate.PAGES["README.md"](), "run: make docs"


@pytest.mark.parametrize("page", DOCS_PAGES, ids=name_of)
def test_the_formulas_of_a_page_render(page: Path) -> None:
    assert page_faults(page.read_text()) == []


@pytest.mark.one_in(9)
@every_algorithm
def test_the_formulas_of_an_algorithms_page_render(name: str) -> None:
    assert page_faults(page_of(name)) == []


@every_algorithm
def test_the_links_of_an_algorithms_page_lead_somewhere(name: str) -> None:
    page = generate.HERE / f"{name}.md"
    found = [link for link in links_in(page_of(name)) if not link.startswith("https:")]
    assert found
    for link in found:
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target == page or target.name in generate.PAGES or target.exists(), link
        if target == page and fragment:
            assert fragment in anchors_in(page_of(name)), link


@pytest.mark.one_in(8)
@every_algorithm
def test_the_example_of_a_page_is_answered_with_the_numbers_that_it_shows(name: str, service: TestClient) -> None:
    page = page_of(name)
    [request] = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    answer = service.post("/v1/calibrate", json=json.loads(request) | {"judge_literal": True})
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
    page, algorithm = page_of(name), ALGORITHMS[name]
    for assumption in algorithm.assumptions:
        assert f"| `{assumption.name}` |" in page
    for kind in (*(scheme.kind for scheme in algorithm.samplings), *map(str, algorithm.relations)):
        assert f"`{kind}`" in page
    errata = page[page.index("## Errata") : page.index("## Theory")]
    assert errata.count("\n- ") == len(algorithm.errata)


def test_the_index_has_every_algorithm_and_every_algorithm_an_example() -> None:
    index = (generate.HERE / "README.md").read_text()
    for name in ALGORITHMS:
        assert re.search(rf"\[{name}\]\(../../calibrators/\w+/{name}.py\)", index)

"""Cases made of the OpenAPI document: none is answered 5xx, or otherwise than the document says.

There are 1000 in `make test-all`, a few sequences in `make test`, and 50000 in `make soak`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.schemas import APIOperation

from app.openapi.links import LINKS
from tests.contract.openapi_cases import Campaign, campaign
from tests.databases import DatabaseFactory

#: In all, and of operations by themselves, which are dealt out to so many tests that may run side by side.
CASES, SINGLE_CASES, SHARES = 1000, 600, 2
#: In sequences, in `make test`.
FEW_CASES = 20

ROOT = Path(__file__).parents[2]


def try_operations(found: Campaign, operations: Sequence[APIOperation], each: int) -> None:
    """So many cases that the schemas allow, and as many that they forbid, of each operation by itself."""
    found.make_examples()
    for operation in operations:
        found.try_operation(operation, GenerationMode.POSITIVE, each)
        # Of some operations no request can be wrong: what a path names is any text.
        with suppress(Unsatisfiable):
            found.try_operation(operation, GenerationMode.NEGATIVE, each)


@pytest.mark.thorough
@pytest.mark.parametrize("share", range(SHARES))
def test_every_answer_to_an_operation_is_documented(
    sqlite_databases: DatabaseFactory, tmp_path: Path, share: int
) -> None:
    with campaign(sqlite_databases.migrated(), tmp_path, number=share) as found:
        try_operations(found, found.operations[share::SHARES], each=6)
    assert not found.faults, "\n".join(found.faults.values())
    assert found.answers.total() >= SINGLE_CASES / SHARES


@pytest.mark.parametrize("cases", [FEW_CASES, pytest.param(CASES - SINGLE_CASES, marks=pytest.mark.thorough)])
def test_every_answer_to_a_sequence_is_documented(
    sqlite_databases: DatabaseFactory, tmp_path: Path, cases: int
) -> None:
    with campaign(sqlite_databases.migrated(), tmp_path, number=SHARES) as found:
        found.try_sequences(cases)
    assert not found.faults, "\n".join(found.faults.values())
    assert found.answers.total() >= cases


def test_links_lead_to_every_operation_that_is_about_something() -> None:
    document = json.loads((ROOT / "openapi.json").read_text())
    operations = {
        operation["operationId"]: path for path, methods in document["paths"].items() for operation in methods.values()
    }
    targets = {link.target for links in LINKS.values() for link in links}
    assert {source for source, _ in LINKS} | targets <= set(operations)
    assert {name for name, path in operations.items() if "{" in path} <= targets
    assert all(len({link.target for link in links}) == len(links) for links in LINKS.values())

"""`GET /v1/algorithms/compare`: the papers' tables at the caller's sizes."""

from __future__ import annotations

import pytest

from calibrators.registry import ALGORITHMS
from calibrators.tables import TABLES

PATH = "/v1/algorithms/compare"


def test_every_table_is_there_with_its_numbers(reader):
    body = reader.get(PATH, params={"dataset_size": 10_000, "dimension": 100, "epsilon": 1, "delta": 1e-6}).json()
    assert [table["name"] for table in body["tables"]] == list(TABLES)
    lp = next(table for table in body["tables"] if table["name"] == "lp_population")
    assert lp["lower_bound"]["value"] == pytest.approx(0.01)
    assert lp["rows"][0]["utility"]["value"] == pytest.approx(0.0161421356237)
    assert all(row["utility"]["kind"] == "order" for table in body["tables"] for row in table["rows"])
    assert body["warnings"]


def test_one_table_by_its_name_and_defaults_are_filled_in(reader):
    body = reader.get(PATH, params={"table": "convex_erm", "epsilon": 2}).json()
    [table] = body["tables"]
    assert table["name"] == "convex_erm"
    assert (body["setting"]["epsilon"], body["setting"]["dataset_size"]) == (2, 10_000)


def test_methods_that_are_here_are_named(reader):
    for table in reader.get(PATH).json()["tables"]:
        for row in table["rows"]:
            assert row["algorithm"] is None or row["algorithm"] in ALGORITHMS
    names = {row["algorithm"] for table in reader.get(PATH).json()["tables"] for row in table["rows"]}
    assert {"dp_sgd", "dp_nsgd", "dp_sgd_gradient", "clipped_sgd_strongly_convex", "tree_sfw_l1"} <= names


@pytest.mark.parametrize(
    ("params", "pointer"),
    [
        ({"epsilon": 0}, "/query/epsilon"),
        ({"delta": 1}, "/query/delta"),
        ({"norm_order": 3}, "/query/norm_order"),
        ({"dataset_size": "many"}, "/query/dataset_size"),
        ({"table": "table_4"}, "/query/table"),
        ({"surprise": 1}, "/query/surprise"),
    ],
)
def test_faults_are_pointed_at(reader, params, pointer):
    answer = reader.get(PATH, params=params)
    assert answer.status_code == 422
    problem = answer.json()
    assert pointer in {error["pointer"] for error in problem["errors"]}

"""`epsilond dataset`, against a server on a socket: what is typed is declared, and the file is sent as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.app.cli.calls import done, refused
from tests.app.cli.conftest import Live
from tests.app.cli.test_budget import opened
from tests.app.cli.test_run import OPTIONS, facts
from tests.app.runs.conftest import COLUMNS, ROWS

LINES = ("a: 0 to 10", "b: -1 to 1", "color: red, green", "y: no, yes")


def arguments(file: Path, *more: str) -> list[str]:
    return ["dataset", "upload", str(file), "--rows", "1000", "--label", "y", *more]


def as_options(lines: tuple[str, ...] = LINES) -> list[str]:
    return [each for line in lines for each in ("--column", line)]


def test_a_file_is_uploaded_with_what_is_declared(live: Live, tmp_path: Path) -> None:
    file, columns = tmp_path / "visits.csv", tmp_path / "columns.txt"
    file.write_text(ROWS + "99,0,red,no\n")
    columns.write_text("\n".join(LINES))
    budget = opened(live, "--rho", "1", "--unit", "person", name="clinic of the uploads")
    shown = facts(done(*arguments(file, *as_options(), "--budget", budget["name"]), env=live.env))
    assert (shown["rows in the file"].strip(), shown["values clipped"].strip()) == ("5", "1")
    dataset: dict[str, Any] = json.loads(done("dataset", "show", shown["id"].strip(), "--json", env=live.env))
    assert (dataset["name"], dataset["privacy_unit"], dataset["columns"]) == ("visits", "person", COLUMNS)
    assert (dataset["budget_id"], dataset["public"], dataset["declared_size"]) == (budget["id"], False, 1000)
    file.write_text(ROWS + "98,0,red,no\n")
    again = arguments(file, "--columns", str(columns), "--public", "--name", "open", "--capacity", "1200", "--json")
    other = json.loads(done(*again, env=live.env))
    assert (other["public"], other["capacity"], other["owner_report"]["rows"]) == (True, 1200, 5)
    listed = done("dataset", "list", env=live.env)
    for each in (dataset["id"], other["id"], "ds_digits"):
        assert each in listed


def test_a_data_set_is_named_by_its_name_wherever_it_is_by_its_id(live: Live, tmp_path: Path) -> None:
    file = tmp_path / "named.csv"
    file.write_text(ROWS)
    made = json.loads(done(*arguments(file, *as_options(), "--public", "--json"), env=live.env))
    assert done("dataset", "show", "named", env=live.env) == done("dataset", "show", made["id"], env=live.env)
    words = [each if each != "ds_breast_cancer" else "named" for each in OPTIONS]
    assert "named" in words
    run = json.loads(done(*words, "--test-dataset", "named", "--json", env=live.env))
    assert run["dataset_id"] == made["id"]
    again = json.loads(done(*arguments(file, *as_options(), "--public", "--json"), env=live.env))
    line = refused("dataset", "show", "named", env=live.env)
    assert "2 data sets have the name 'named': " in line
    assert made["id"] in line
    assert again["id"] in line
    assert "There is no data set with the name 'name'. `epsilond dataset list`" in refused(
        "dataset", "show", "name", env=live.env
    )


def test_a_fault_names_the_option_and_nothing_is_stored(live: Live, tmp_path: Path) -> None:
    file = tmp_path / "visits.csv"
    file.write_text(ROWS)
    before = done("dataset", "list", "--json", env=live.env)
    assert "--label" in refused(*arguments(file, *as_options(LINES[:3]), "--public"), env=live.env)
    assert "--columns" in refused(*arguments(file, "--public"), status=2, env=live.env)
    assert "--columns" in refused(*arguments(file, *as_options(("a: 9 to 1", *LINES[1:])), "--public"), env=live.env)
    unread = refused(*arguments(file, *as_options(("a 0-10", *LINES[1:])), "--public"), status=2, env=live.env)
    assert "a 0-10' names no values" in " ".join(unread.replace("│", " ").split())
    assert "budget" in refused(*arguments(file, *as_options()), env=live.env)
    assert done("dataset", "list", "--json", env=live.env) == before


def test_the_same_key_uploads_once(live: Live, tmp_path: Path) -> None:
    file = tmp_path / "twice.csv"
    file.write_text(ROWS)
    sent = [*arguments(file, *as_options(), "--public", "--json"), "--idempotency-key", "upload of a test"]
    assert json.loads(done(*sent, env=live.env))["id"] == json.loads(done(*sent, env=live.env))["id"]

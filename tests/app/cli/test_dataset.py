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


def test_ignored_columns_are_not_uploaded(live: Live, tmp_path: Path) -> None:
    file, wide = tmp_path / "narrow.csv", tmp_path / "wide.csv"
    file.write_text(ROWS)
    lines = ROWS.splitlines()
    # A name with a comma and quotes, and one with a line break: they are cells like others.
    cells = ["name", '"Ann, ""A"""', '"Ben\nB"', *("" for _ in lines[3:])]
    wide.write_text(
        "".join(f"{index},{line},{cell}\n" for index, (line, cell) in enumerate(zip(lines, cells, strict=True)))
    )
    wide.write_text(wide.read_text().replace("0,", "\ufeffid,", 1))
    declared = [
        *as_options(),
        "--public",
        "--name",
        "the same",
        "--idempotency-key",
        "upload without columns",
        "--json",
    ]
    made = done(*arguments(file, *declared), env=live.env)
    again = done(*arguments(wide, *declared, "--ignore-columns", "id, name"), env=live.env)
    assert json.loads(made)["id"] == json.loads(again)["id"], "the same request: not a byte differs"
    twice = ["--ignore-columns", "id", "--ignore-columns", "name"]
    assert json.loads(done(*arguments(wide, *declared, *twice), env=live.env))["id"] == json.loads(made)["id"]

    def wrong(at: Path, names: str) -> str:
        line = refused(*arguments(at, *as_options(), "--public", "--ignore-columns", names), status=2, env=live.env)
        return " ".join(line.replace("│", " ").split())

    assert "wide.csv has no column age, size" in wrong(wide, "size,id,age")
    wide.write_text("id,a,b,color,y\n1,2,3\n")
    assert "row 2 of wide.csv has 3 cells, but the header has 5" in wrong(wide, "id")
    wide.write_bytes(b"id,a\n\xff,1\n")
    assert "wide.csv is not CSV in UTF-8" in wrong(wide, "id")
    assert "CSV files only" in wrong(wide.rename(tmp_path / "wide.npz"), "id")


def test_a_header_is_compared_with_the_declared_columns_before_anything_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"

    def wrong(header: str, *more: str) -> str:
        file.write_text(f"{header}\n1,2,red,no\n")
        # Nothing listens there.
        env = {"EPSILOND_URL": "http://127.0.0.1:9"}
        return refused(*arguments(file, *as_options(), "--public", *more), status=2, env=env)

    assert "rows.csv has columns that are not declared: id, given name. " in wrong("id,a,b,color,given name,y")
    assert "--ignore-columns 'id,given name'" in wrong("id,a,b,color,given name,y", "--ignore-columns", "id")
    assert "rows.csv has no column color. Did you mean colour?" in wrong("a,b,colour,y")
    assert "these columns are declared, so they cannot be ignored: color" in wrong(
        "a,b,color,y", "--ignore-columns", "color"
    )
    assert "and not ';'" in wrong("a;b;color;y")
    first_record = wrong("34,0.5,red,no")
    assert "must name the declared columns" in first_record
    assert "34" not in first_record


def test_a_run_on_private_rows_says_why_it_has_no_score(live: Live, tmp_path: Path) -> None:
    file = tmp_path / "private.csv"
    file.write_text(ROWS + "97,0,red,no\n")
    budget = opened(live, "--rho", "100", "--unit", "person")["id"]
    private = json.loads(done(*arguments(file, *as_options(), "--budget", budget, "--json"), env=live.env))["id"]
    words = [private if each == "ds_breast_cancer" else each for each in OPTIONS[:-2]]  # without the seed
    for options, has_score in (((*words, "--budget", budget), False), (OPTIONS, True)):
        run = json.loads(done(*options, "--json", env=live.env))
        live.work()
        shown = facts(done("run", "show", run["id"], env=live.env))
        assert ("none: a score on private rows" in shown.get("score", "")) is not has_score


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


def test_the_budget_of_the_data_pays_for_a_run_that_names_none(live: Live, tmp_path: Path) -> None:
    file = tmp_path / "paid.csv"
    file.write_text(ROWS + "4,0.25,green,no\n")
    budget = opened(live, "--rho", "1", "--unit", "person", name="pays for its data")
    done(*arguments(file, *as_options(), "--budget", budget["name"], "--name", "paid by its own"), env=live.env)
    run = ["run", "create", "dp_gd", "--model", "logistic-regression", "--iterations", "3", "--rho", "0.1", "--json"]
    run += ["--step-size", "0.5", "--max-grad-norm", "1"]
    private = json.loads(done(*run, "--dataset", "paid by its own", env=live.env))
    assert private["budget_id"] == budget["id"]
    public = json.loads(done(*run, "--dataset", "ds_breast_cancer", env=live.env))
    assert public["budget_id"] is None

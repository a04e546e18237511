"""`epsilond run`, against a server on a socket."""

from __future__ import annotations

import csv
import json
import stat
import threading
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

from tests.app.cli.calls import call, done, problem, refused
from tests.app.cli.conftest import Live
from tests.local_access import LocalAccess

#: Full batches are calibrated in closed form, so a request takes milliseconds.
CREATE = (
    "run create dp_sgd --dataset ds_breast_cancer --model logistic-regression --iterations 5 --sampling full-batch "
    "--max-grad-norm 1 --epsilon 1 --delta 1e-5 --step-size 0.5 --seed 1"
)
OPTIONS = tuple(CREATE.split())


def queued(live: Live, *more: str) -> dict[str, Any]:
    run: dict[str, Any] = json.loads(done(*OPTIONS, *more, "--json", env=live.env))
    return run


def trained(live: Live) -> dict[str, Any]:
    run = queued(live)
    live.work()
    return run


def facts(table: str) -> dict[str, str]:
    return dict(line.split("  ", 1) for line in table.splitlines())


def test_options_make_the_request_of_a_file(live: Live, tmp_path: Path) -> None:
    request = {
        "algorithm": "dp_sgd",
        "dataset_id": "ds_breast_cancer",
        "model": {"kind": "logistic_regression"},
        "iterations": 5,
        "sampling": "full_batch",
        "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
        "target": {"kind": "approximate_dp", "epsilon": 1.0, "delta": 1e-5},
        "hyperparameters": {"step_size": 0.5},
        "seed": 1,
    }
    (tmp_path / "run.json").write_text(json.dumps(request))
    made = json.loads(done("run", "create", "--request", tmp_path / "run.json", "--json", env=live.env))
    assert made["plan_hash"] == queued(live)["plan_hash"]
    table = facts(done(*OPTIONS, "--plan-hash", made["plan_hash"], env=live.env))
    assert (table["state"].strip(), table["progress"].strip()) == ("queued", "0 of 5")
    assert table["dtype"].strip() == "float32"


def test_the_numeric_type_is_an_option(live: Live) -> None:
    wide = queued(live, "--dtype", "float64")
    assert (wide["dtype"], queued(live)["dtype"]) == ("float64", "float32")
    assert "--dtype" in refused(*OPTIONS, "--dtype", "float16", env=live.env)


def test_a_certificate_of_the_charge_is_an_option(live: Live) -> None:
    """Public data are charged to no budget, so that there is nothing to prove: the service says so."""
    line = refused(*OPTIONS, "--certificate", env=live.env)
    assert "certificate" in line


def test_a_run_is_made_once_under_its_idempotency_key(live: Live) -> None:
    first = queued(live, "--idempotency-key", "mine")
    assert queued(live, "--idempotency-key", "mine") == first
    line = refused(*OPTIONS[:-1], "2", "--idempotency-key", "mine", env=live.env)
    assert "Idempotency-Key" in line


def test_runs_are_listed_shown_and_cancelled(live: Live) -> None:
    first, second = queued(live), queued(live)
    header, *lines = done("run", "list", env=live.env).splitlines()
    assert header.split() == ["id", "state", "algorithm", "progress", "budget", "created"]
    newest = [line.split()[0] for line in lines]
    assert {second["id"], first["id"]} <= set(newest)
    page = call("run", "list", "--limit", "1", env=live.env)
    assert [line.split() for line in page.stdout.splitlines()[1:]] == [lines[0].split()]
    cursor = page.stderr.removeprefix("There are more items: --cursor ").strip()
    assert newest[1] in done("run", "list", "--limit", "1", "--cursor", cursor, env=live.env)
    assert json.loads(done("run", "show", first["id"], "--json", env=live.env)) == first
    assert facts(done("run", "cancel", first["id"], env=live.env))["state"].strip() == "cancelled"
    assert "can no longer be cancelled" in refused("run", "cancel", first["id"], env=live.env)


def test_a_run_is_followed_to_its_end(live: Live) -> None:
    run = queued(live)
    worker = threading.Timer(0.2, live.work)
    worker.start()
    result = call("run", "follow", run["id"], env=live.env)
    worker.join()
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    assert facts(result.stdout)["state"].strip() == "succeeded"
    assert json.loads(done("run", "follow", run["id"], "--json", env=live.env))["state"] == "succeeded"


def test_a_run_that_does_not_succeed_ends_its_follower_with_status_1(live: Live) -> None:
    run = queued(live)
    done("run", "cancel", run["id"], env=live.env)
    result = call("run", "follow", run["id"], env=live.env)
    assert result.exit_code == 1
    assert facts(result.stdout)["state"].strip() == "cancelled"


def test_a_model_and_a_card_are_printed_or_written_for_their_owner_alone(live: Live, tmp_path: Path) -> None:
    run = trained(live)["id"]
    model = json.loads(done("run", "model", run, env=live.env))
    file = tmp_path / "model.npz"
    result = call("run", "model", run, "--format", "npz", "--output", file, env=live.env)
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"bytes were written to {file}." in result.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with np.load(file) as arrays:
        assert {name: arrays[name].tolist() for name in model["parameters"]} == model["parameters"]
    assert "must be a new file" in refused("run", "model", run, "--output", file, env=live.env)
    assert "npz is a binary format: name a file with --output" in refused(
        "run", "model", run, "--format", "npz", status=2
    )
    assert done("run", "card", run, env=live.env).startswith("# ")
    assert done("run", "card", run, "--format", "html", env=live.env).startswith("<!DOCTYPE html>")
    assert json.loads(done("run", "card", run, "--json", env=live.env))["run_id"] == run
    assert "there is no model" in refused("run", "model", queued(live)["id"], env=live.env)


def rows_for(model: dict[str, Any], folder: Path, *rows: list[object]) -> Path:
    """A CSV file with the model's columns, the last one first."""
    file = folder / "rows.csv"
    lines = [[column["name"] for column in model["features"]], *rows]
    file.write_text("".join(",".join(map(str, [line[-1], *line[:-1]])) + "\n" for line in lines))
    return file


def test_a_file_of_rows_is_predicted_by_a_run_and_by_its_file_as_the_server_does(live: Live, tmp_path: Path) -> None:
    run = trained(live)["id"]
    model = json.loads(done("run", "model", run, env=live.env))
    cells = [[column[end] for column in model["features"]] for end in ("lower", "upper")]
    given = [*cells, [2 * upper for upper in cells[1]]]
    rows, file = rows_for(model, tmp_path, *given), tmp_path / "model.npz"
    call("run", "model", run, "--format", "npz", "--output", file, env=live.env)
    found = json.loads(done("run", "predict", run, "--rows", rows, "--json", env=live.env))
    with httpx2.Client(base_url=live.url, auth=LocalAccess(live.context)) as client:
        assert found == client.post(f"/v1/runs/{run}/predictions", json={"rows": given}).json()
    nowhere = {"EPSILOND_URL": "http://127.0.0.1:1"}
    assert json.loads(done("run", "predict", file, "--rows", rows, "--json", env=nowhere)) == found
    assert found["predictions"][1] == found["predictions"][2]
    wanted = [model["label"]["name"], *found["predictions"]]
    assert done("run", "predict", file, "--rows", rows, env=nowhere).splitlines() == wanted
    written = tmp_path / "predictions.csv"
    done("run", "predict", file, "--rows", rows, "--probabilities", "--output", written, env=nowhere)
    with written.open(newline="") as opened:
        header, *lines = csv.reader(opened)
    assert header == [wanted[0], *(f"probability of {name}" for name in model["classes"])]
    assert [line[0] for line in lines] == found["predictions"]
    assert [[float(cell) for cell in line[1:]] for line in lines] == found["probabilities"]


def test_rows_and_models_that_do_not_fit_are_one_line_without_a_cell(live: Live, tmp_path: Path) -> None:
    run = trained(live)["id"]
    model = json.loads(done("run", "model", run, env=live.env))
    low = [column["lower"] for column in model["features"]]
    predict = ("run", "predict", run, "--rows")
    rows = rows_for(model, tmp_path, low, ["secret", *low[1:]])
    line = refused(*predict, rows, env=live.env)
    assert f"{rows}: In row 3, column {model['features'][0]['name']!r}, the cell is not a number" in line
    assert "secret" not in line
    assert "lacks" in refused(*predict, rows_for(model | {"features": model["features"][1:]}, tmp_path), env=live.env)
    assert "Cannot read" in refused(*predict, tmp_path / "none.csv", env=live.env)
    assert done(*predict, rows_for(model, tmp_path), env=live.env).splitlines() == [model["label"]["name"]]
    assert "There is no run" in refused("run", "predict", "run_nothing", "--rows", rows, env=live.env)
    assert "Cannot read" in refused("run", "predict", tmp_path / "none.npz", "--rows", rows)
    file, whole = tmp_path / "model.npz", tmp_path / "whole.npz"
    call("run", "model", run, "--format", "npz", "--output", whole, env=live.env)
    with np.load(whole) as stored:
        arrays = dict(stored)
    for content in (b"", b"PK\x03\x04", rows.read_bytes(), whole.read_bytes()[:-100]):
        file.write_bytes(content)
        assert "is not a model file" in refused("run", "predict", file, "--rows", rows)
    for changed in ({"weights": arrays["weights"][1:]}, {"document": np.array(b"{}")}, {"other": np.zeros(2)}):
        np.savez(file, **(arrays | changed))
        assert "is not a model file" in refused("run", "predict", file, "--rows", rows)


def test_what_the_server_refuses_is_told_of_the_option_and_is_its_problem(live: Live) -> None:
    assert "epsilond: --model: " in refused(*OPTIONS, "--model", "oracle", env=live.env)
    assert "epsilond: --dataset: " in refused(*CREATE.replace("--dataset ds_breast_cancer", "").split(), env=live.env)
    document = problem(*OPTIONS, "--model", "oracle", env=live.env)
    assert (document["status"], document["errors"][0]["pointer"]) == (422, "/model/kind")
    assert document["request_id"]


@pytest.mark.parametrize("name", ["run_nothing", "../keys", "run?x=1", "a b", "\x1b[2J"])
def test_an_id_that_names_nothing_is_one_line(live: Live, name: str) -> None:
    assert "There is no" in refused("run", "show", name, env=live.env)

"""`epsilond calibrate`, `sweep` and `advise`: the bytes that the endpoints answer, without a server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from epsilond_verifier import check
from starlette.testclient import TestClient

from accounting.canonical import sha256_hex
from app.algorithms.advice import ADVISE_EXAMPLES
from app.sweeps.examples import SWEEP_EXAMPLES
from tests.app.cli.calls import call, done, problem, refused

DP_SGD = {
    "algorithm": "dp_sgd",
    "dataset_size": 50000,
    "batch_size": 1000,
    "iterations": 500,
    "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
    "target": {"kind": "approximate_dp", "epsilon": 8.0, "delta": 1e-5},
}
OPTIONS = (
    "calibrate dp_sgd --dataset-size 50000 --batch-size 1000 --iterations 500 --max-grad-norm 1 "
    "--epsilon 8 --delta 1e-5"
)
FULL_BATCH = "calibrate dp_sgd --dataset-size 1000 --sampling full-batch --max-grad-norm 1"


def without(body: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in names}


@pytest.mark.parametrize(
    ("options", "body"),
    [
        (f"{OPTIONS} --sampling poisson", DP_SGD | {"sampling": "poisson"}),
        (
            f"{FULL_BATCH} --relation add-or-remove-one --iterations 100 --rho 0.5",
            without(DP_SGD, "batch_size")
            | {
                "dataset_size": 1000,
                "sampling": "full_batch",
                "iterations": 100,
                "neighboring_relation": "add_or_remove_one",
                "target": {"kind": "zcdp", "rho": 0.5},
            },
        ),
        (
            f"{FULL_BATCH} --mu 1 --noise-multiplier 30 --solve-for iterations",
            without(DP_SGD, "batch_size", "iterations")
            | {
                "dataset_size": 1000,
                "sampling": "full_batch",
                "target": {"kind": "gaussian_dp", "mu": 1.0},
                "noise_multiplier": 30,
                "solve_for": "iterations",
            },
        ),
        (
            "calibrate dp_nsgd --dataset-size 1000 --dimension 10 --sampling full_batch --iterations 50 "
            "--regularizer 1 --epsilon 1 --delta 1e-6 --step-size 0.1 --assumption initial-gap=2",
            {
                "algorithm": "dp_nsgd",
                "dataset_size": 1000,
                "dimension": 10,
                "sampling": "full_batch",
                "iterations": 50,
                "gradient_bound": {"kind": "normalize", "regularizer": 1.0},
                "target": {"kind": "approximate_dp", "epsilon": 1.0, "delta": 1e-6},
                "hyperparameters": {"step_size": 0.1},
                "assumptions": {"initial_gap": 2.0},
            },
        ),
        (
            f"{FULL_BATCH} --iterations 100 --epsilon 1 --delta 1e-6 --dtype float64 --judge-literal",
            {
                "algorithm": "dp_sgd",
                "dataset_size": 1000,
                "sampling": "full_batch",
                "iterations": 100,
                "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
                "target": {"kind": "approximate_dp", "epsilon": 1.0, "delta": 1e-6},
                "dtype": "float64",
                "judge_literal": True,
            },
        ),
    ],
)
def test_a_calibration_is_byte_for_byte_the_endpoints(reader: TestClient, options: str, body: dict[str, Any]) -> None:
    answer = reader.post("/v1/calibrate", json=body)
    assert answer.status_code == 200, answer.text
    assert done(*options.split(), "--json").encode() == answer.content + b"\n"


def test_a_sweep_and_advice_are_byte_for_byte_the_endpoints(reader: TestClient) -> None:
    for name, body in (
        ("sweep", SWEEP_EXAMPLES["noise_over_epsilon"]["value"]),
        ("advise", ADVISE_EXAMPLES["convex"]["value"]),
    ):
        answer = reader.post(f"/v1/{name}", json=body)
        assert answer.status_code == 200, answer.text
        assert done(name, "--json", "--request", "-", given=json.dumps(body)).encode() == answer.content + b"\n"


def test_the_papers_own_calibration_is_told_where_one_asks() -> None:
    asked = f"{FULL_BATCH} --iterations 100 --epsilon 1 --delta 1e-6 --judge-literal".split()
    found = json.loads(done(*asked, "--json"))["literal"]
    assert f"formula_printed_in_the_paper  {found['verdict']} (it is not used)" in re.sub(" {2,}", "  ", done(*asked))
    dp_gd = "calibrate dp_gd --dataset-size 1000 --iterations 10 --max-grad-norm 1 --epsilon 1 --delta 1e-6"
    assert "formula_printed" not in done(*dp_gd.split())
    assert "formula_printed" in done(*dp_gd.split(), "--judge-literal")


def test_the_table_has_the_very_number_that_is_certified() -> None:
    arguments = f"{FULL_BATCH} --iterations 100 --epsilon 1 --delta 1e-6".split()
    found = json.loads(done(*arguments, "--json"))
    table, _, _ = done(*arguments).partition("\n\n")
    facts = dict(line.split(None, 1) for line in table.splitlines())
    assert facts["noise_multiplier"] == str(found["solution"]["noise_multiplier"])
    assert facts["plan_hash"] == found["plan_hash"]
    assert found["achieved"]["epsilon"]["upper"] <= float(facts["epsilon_upper"]) <= 1 + 1e-9


def test_a_sweep_is_a_row_for_each_value_and_says_where_there_is_no_answer() -> None:
    body = json.dumps(SWEEP_EXAMPLES["iterations_over_noise"]["value"])
    header, *lines = done("sweep", "--request", "-", given=body).splitlines()
    assert header.split() == ["noise_multiplier", "iterations", "epochs", "problem"]
    rows = json.loads(done("sweep", "--json", "--request", "-", given=body))["rows"]
    assert [line.split()[1] for line in lines[1:]] == [str(row["solution"]["iterations"]) for row in rows[1:]]
    assert rows[0]["problem"]["detail"] in lines[0]


def test_advice_is_a_ranking_and_why_the_others_do_not_apply() -> None:
    body = json.dumps(ADVISE_EXAMPLES["convex"]["value"])
    found = json.loads(done("advise", "--json", "--request", "-", given=body))
    table = done("advise", "--request", "-", given=body)
    ranked = [each["algorithm"] for group in found["measures"] for each in group["ranked"]]
    assert [line.split()[1] for line in table.splitlines()[1 : len(ranked) + 1]] == ranked
    assert all(each["algorithm"] in table for each in found["others"])


def test_a_simulation_stands_beside_the_bounds_and_is_called_one() -> None:
    body = json.dumps(
        {
            "dataset_size": 1000,
            "dimension": 4,
            "problem": {"shape": "convex"},
            "target": {"kind": "approximate_dp", "epsilon": 2, "delta": 1e-5},
            "assumptions": {"lipschitz": 1, "smoothness": 0.5, "radius": 2, "diameter": 4, "initial_gap": 1},
            "algorithms": ["dp_adam", "clipped_acsa", "dp_fw"],
        }
    )
    found = json.loads(done("advise", "--simulate", "--json", "--request", "-", given=body))["simulation"]
    table = done("advise", "--simulate", "--request", "-", given=body)
    assert found["label"] in table
    _, _, ranking = table.partition(found["label"])
    names = [line.split()[1] for line in ranking.splitlines() if line[:2] in ("1 ", "2 ")]
    assert names == [each["algorithm"] for each in found["ranked"]]
    assert len(names) == 2
    assert "simulation" not in json.loads(done("advise", "--json", "--request", "-", given=body))


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("calibrate --dataset-size 9", "--epsilon: This field is required."),
        ("calibrate nothing --dataset-size 10 --iterations 1 --rho 1", "ALGORITHM: "),
        (OPTIONS.replace("--max-grad-norm 1", ""), "--max-grad-norm: "),
        (OPTIONS.replace("--delta 1e-5", ""), "--delta: this target needs delta."),
        (f"{OPTIONS} --sampling sometimes", "--sampling: "),
        (f"{OPTIONS} --assumption smooth=1", "--assumption: "),
        (f"{OPTIONS} --solve-for iterations", "--noise-multiplier: "),
    ],
)
def test_what_is_wrong_is_told_of_the_option(options: str, line: str) -> None:
    assert f"epsilond: {line}" in refused(*options.split())


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (f"{OPTIONS} --regularizer 1", "--max-grad-norm or --regularizer: these options exclude each other."),
        (f"{OPTIONS} --rho 1", "--epsilon and --delta, --rho, or --mu: these options exclude each other."),
        (
            f"{OPTIONS} --assumption smoothness",
            "--assumption: the option takes a name and a number, such as smoothness=2.",
        ),
        ("sweep", "Missing option '--request'."),
    ],
)
def test_options_that_make_no_request_are_a_fault_of_the_command_line(options: str, line: str) -> None:
    assert line in refused(*options.split(), status=2)


def test_a_wrong_request_is_the_endpoints_problem(reader: TestClient) -> None:
    served = reader.post("/v1/calibrate", json=DP_SGD | {"sampling": "sometimes"}).json()
    del served["request_id"]
    assert problem(*OPTIONS.split(), "--sampling", "sometimes") == served


@pytest.mark.parametrize("command", ["calibrate", "sweep"])
@pytest.mark.parametrize(
    "named", [{"budget_id": "bud_a"}, {"target": {"kind": "budget", "budget_id": "bud_a"}}], ids=["cost", "target"]
)
def test_what_a_budget_has_left_is_for_its_server_to_say(command: str, named: dict[str, Any]) -> None:
    body = DP_SGD | named | ({"iterations": [1, 2]} if command == "sweep" else {})
    line = refused(command, "--request", "-", given=json.dumps(body))
    assert f"send the request to the server's POST /v1/{command}." in line


def test_nothing_is_written_or_read_but_the_request(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting has a part in it: a wrong one is not even noticed, and no data folder is made."""
    monkeypatch.chdir(tmp_path)
    result = call("convert", "--from", "zcdp", "--rho", "1", "--to", "pure-dp", env={"EPSILOND_PORT": "x"})
    assert (result.exit_code, list(tmp_path.iterdir())) == (1, [])
    assert "EPSILOND_PORT" not in result.stderr
    result = call("account", "--noise-multiplier", "1", "--delta", "1e-5", env={"EPSILOND_DATABASE_URL": "password1"})
    assert (result.exit_code, list(tmp_path.iterdir())) == (0, [])


def test_a_certificate_of_what_a_plan_achieves_is_written_and_named(tmp_path: Path) -> None:
    target = tmp_path / "certificate.json"
    shown = done(*f"{FULL_BATCH} --iterations 100 --epsilon 1 --delta 1e-6".split(), "--certificate", target)
    assert check(target.read_bytes()).verdict == "verified"
    assert sha256_hex(target.read_bytes()) in shown

"""In which numeric type runs are carried out: what a request says, what its answers say, and plans from before."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from accounting import ENGINE_VERSION
from app.tables.runs import Run
from tests.app.entries.found import forget_register
from tests.app.problem_assertions import assert_problem
from tests.app.runs.conftest import REQUEST
from tests.databases import on_one_engine

PUBLIC: dict[str, Any] = {"dataset_id": "ds_breast_cancer", "iterations": 3, "seed": 3}
#: A plan that was queued before requests named a type, its hash, and the model that it led to then.
OLD_PLAN = (
    b'{"algorithm":"dp_sgd","dataset_size":"569","engine":"2","neighboring_relation":"add_or_remove_one","phases":'
    b'[{"divisor":"569","event":{"count":"3","mechanism":{"kind":"gaussian","noise_multiplier":"6.461643536001552"},'
    b'"sampling":{"kind":"full_batch"}},"gradient_bound":{"kind":"clip","max_grad_norm":"1"},"step_size":"0.5"}],'
    b'"v":"1"}'
)
ENGINE = f'"engine":"{ENGINE_VERSION}"'.encode()
NOISE = re.compile(rb'"noise_multiplier":"([^"]*)"')
OLD_HASH = "0b563489be63151a01911fb37f78b964d14ee67f3abbb9216f2e9da8929867a5"
OLD_BIAS, OLD_WEIGHTS = 0.05953250922301951, [-0.09835900656996796, -0.06936743577880056, -0.13339915101683203]


def numbers(service: Any, run: dict[str, Any]) -> np.ndarray:
    parameters = service.model(run)["parameters"]
    return np.array([parameters["bias"], *parameters["weights"]])


def calibrated(service: Any, **changes: Any) -> dict[str, Any]:
    body = {name: value for name, value in REQUEST.items() if name != "model"}
    answer = service.post("/v1/calibrate", body | {"dataset_size": 569, "iterations": 3} | changes)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@on_one_engine
def test_a_plan_that_was_queued_without_a_type_keeps_its_hash_and_its_model(service: Any) -> None:
    run = service.queued(**PUBLIC)
    with service.context.database.write() as session:
        stored = session.get_one(Run, run["id"])
        stored.plan, stored.plan_hash = OLD_PLAN, OLD_HASH
    forget_register(service.context)
    service.work()
    done = service.get(f"/v1/runs/{run['id']}")
    assert (done["state"], done["plan_hash"], done["dtype"]) == ("succeeded", OLD_HASH, "float64")
    assert "dtype" not in done["plan"]
    np.testing.assert_allclose(numbers(service, done)[:4], [OLD_BIAS, *OLD_WEIGHTS], rtol=1e-12)
    report = service.report(done)
    assert (report["dtype"], report["dtype_reason"], report["plan_hash"]) == ("float64", None, OLD_HASH)
    # Today's request for float64 makes the very same plan, but for the engine and for the last digits of its noise.
    again = service.trained(**PUBLIC, dtype="float64")
    new, old = bytes(service.stored(again).plan), OLD_PLAN.replace(b'"engine":"2"', ENGINE)
    (noise, old_noise) = (float(NOISE.search(plan)[1]) for plan in (new, old))
    assert NOISE.sub(b"", new) == NOISE.sub(b"", old)
    assert noise == pytest.approx(old_noise, rel=1e-12)
    np.testing.assert_allclose(numbers(service, again), numbers(service, done), rtol=1e-9)


@on_one_engine
def test_a_run_takes_float32_unless_it_is_told_otherwise(service: Any) -> None:
    left_out, narrow, wide = (service.trained(**PUBLIC, **more) for more in ({}, *map(named, ("float32", "float64"))))
    assert left_out["plan_hash"] == narrow["plan_hash"] != wide["plan_hash"]
    assert [each["dtype"] for each in (left_out, narrow, wide)] == ["float32", "float32", "float64"]
    assert [each["dtype_reason"] for each in (left_out, narrow, wide)] == [None] * 3
    assert left_out["plan"] == wide["plan"] | {"dtype": "float32"}
    assert numbers(service, left_out).tolist() == numbers(service, narrow).tolist()
    # With equal noise they differ by what the margins of the two types do, and by no more.
    apart = np.abs(numbers(service, left_out) - numbers(service, wide)).max()
    assert 1e-6 < apart < 2.0**-7 * 0.5 * 3


def named(dtype: str) -> dict[str, str]:
    return {"dtype": dtype}


@on_one_engine
def test_a_calibration_makes_the_plan_of_the_run_in_each_type(service: Any) -> None:
    for more in ({}, named("float32"), named("float64")):
        found = calibrated(service, **more)
        run = service.queued(**PUBLIC, **more, expected_plan_hash=found["plan_hash"])
        assert (run["plan_hash"], run["dtype"]) == (found["plan_hash"], found["dtype"])
    expected = calibrated(service, dtype="float64")["plan_hash"]
    assert_problem(service.run(**PUBLIC, expected_plan_hash=expected), 422, "plan_hash_mismatch", "/expected_plan_hash")


@on_one_engine
def test_where_float32_would_do_no_good_float64_is_taken_and_the_answer_says_why(service: Any) -> None:
    mean = {**dict.fromkeys(REQUEST, ...), "algorithm": "clipped_mean", "dataset_id": "ds_breast_cancer"}
    mean |= {"model": {"kind": "mean"}, "target": {"kind": "zcdp", "rho": 0.5}}
    for request, why in (
        (mean, "every record once"),
        (PUBLIC | {"gradient_bound": {"kind": "clip", "max_grad_norm": 1e-13}}, "1e-12"),
    ):
        run = service.trained(**request)
        assert run["dtype"] == "float64"
        assert why in run["dtype_reason"]
        report = service.report(run)
        assert (report["dtype"], report["dtype_reason"]) == ("float64", run["dtype_reason"])
        page = service.client.get(f"/v1/runs/{run['id']}/report", params={"format": "markdown"}).text
        assert run["dtype_reason"][:40] in page
        # Asked for, it needs no reason.
        assert service.queued(**request, dtype="float64")["dtype_reason"] is None
    assert service.queued(**mean, dtype="float32")["dtype"] == "float32", "sound, if of little use"
    small = PUBLIC | {"gradient_bound": {"kind": "clip", "max_grad_norm": 1e-13}, "dtype": "float32"}
    problem = assert_problem(service.run(**small), 422, "invalid_value", "/gradient_bound/max_grad_norm")
    assert "leave dtype out" in problem["detail"]


@on_one_engine
@pytest.mark.parametrize("dtype", ["float16", "", 32, ["float32"], True])
def test_another_type_is_refused(service: Any, dtype: object) -> None:
    problem = assert_problem(service.run(**PUBLIC, dtype=dtype), 422, "invalid_request", "/dtype")
    assert "float32" in problem["detail"]


@on_one_engine
def test_a_sweep_of_runs_may_try_both_types_and_its_dry_run_says_which_each_cell_takes(service: Any) -> None:
    request = {name: value for name, value in (REQUEST | PUBLIC).items() if name != "seed"} | {"select": "all"}
    quote = service.client.post("/v1/run-sweeps?dry_run=true", json=request | {"dtype": ["float32", "float64"]})
    assert quote.status_code == 200, quote.text
    cells = quote.json()["cells"]
    assert [(cell["values"], cell["dtype"], cell["dtype_reason"]) for cell in cells] == [
        (["float32"], "float32", None),
        (["float64"], "float64", None),
    ]
    assert len({cell["plan_hash"] for cell in cells}) == 2


@on_one_engine
def test_a_sweep_of_calibrations_and_advice_name_the_plans_of_runs(service: Any) -> None:
    body = {name: value for name, value in REQUEST.items() if name != "model"} | {"dataset_size": 569}
    rows = service.post("/v1/sweep", body | {"iterations": [3, 4]}).json()["rows"]
    assert [row["dtype"] for row in rows] == ["float32"] * 2
    assert rows[0]["plan_hash"] == calibrated(service)["plan_hash"]
    problem = {"shape": "convex", "smooth": True, "heavy_tailed": False}
    constants = {"lipschitz": 1, "smoothness": 0.5, "radius": 1, "diameter": 2}
    target = {"kind": "zcdp", "rho": 0.1}
    advice = {"problem": problem, "dataset_size": 5000, "dimension": 20, "target": target, "assumptions": constants}
    found = service.post("/v1/advise", advice).json()
    ranked = [each for group in found["measures"] for each in group["ranked"]]
    assert ranked
    for each in ranked[:3]:
        assert service.post("/v1/calibrate", each["request"]).json()["plan_hash"] == each["plan_hash"]


@on_one_engine
@pytest.mark.thorough
def test_an_audit_attacks_the_type_that_a_calibration_names(service: Any) -> None:
    body = {name: value for name, value in REQUEST.items() if name != "model"} | {"dataset_size": 50, "iterations": 2}
    hashes = set()
    for more in ({}, named("float64")):
        answer = service.post("/v1/audits", {"calibration": body | more, "trials": 10, "seed": 1})
        assert answer.status_code == 201, answer.text
        assert answer.json()["verdict"] == "consistent"
        hashes.add(answer.json()["plan_hash"])
        assert calibrated(service, dataset_size=50, iterations=2, **more)["plan_hash"] in hashes
    assert len(hashes) == 2

"""`/v1/audits` over the whole application: real attacks of a few trials, in the process that they run in."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import select
from starlette.testclient import TestClient

from accounting.canonical import sha256_hex
from app.audits import service as audits
from app.audits.examples import AUDIT_EXAMPLES
from app.audits.schemas import MAX_TRIALS, AuditRequest
from app.auth.principal import LOOPBACK, Scope
from app.auth.service import create_key
from app.context import Context
from app.datasets import service as datasets
from app.db.database import Database
from app.fence.watching import fenced_context
from app.kit.process_pool import ProcessPool
from app.main import create_app
from app.settings import Settings
from app.tables.runs import Audit, Run
from calibrators.plan import plan_from_canonical
from tests.app.problem_assertions import assert_problem
from tests.app.runs.conftest import Service
from tests.databases import DatabaseFactory, on_one_engine
from tests.local_access import local_client
from tests.warm_processes import WarmProcesses
from trainer.audit.audit import AuditCancelled
from trainer.audit.held_out import TWO_CLASSES

CALIBRATION: dict[str, Any] = {
    "algorithm": "dp_sgd",
    "dataset_size": 100,
    "iterations": 2,
    "sampling": "full_batch",
    "neighboring_relation": "add_or_remove_one",
    "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
    "target": {"kind": "approximate_dp", "epsilon": 2, "delta": 1e-5},
    "hyperparameters": {"step_size": 0.1},
}
POISSON = CALIBRATION | {"sampling": "poisson", "batch_size": 10}
AUDIT: dict[str, Any] = {"calibration": CALIBRATION, "trials": 200, "seed": 5}


@pytest.fixture(scope="module")
def auditor(
    sqlite_databases: DatabaseFactory, tmp_path_factory: pytest.TempPathFactory, warm_processes: WarmProcesses
) -> Iterator[Service]:
    """One service for the whole module, whose process for audits is started once."""
    url = sqlite_databases.migrated()
    settings = Settings(data_dir=tmp_path_factory.mktemp("data"), database_url=url, workers=0)
    context = fenced_context(settings, Database(url), **warm_processes.pools())
    with local_client(create_app(context)) as client:
        yield Service(client, context)
    context.database.dispose()


@pytest.fixture
def service(client: TestClient, context: Context) -> Service:
    return Service(client, context)


def audited(service: Service, **changes: Any) -> dict[str, Any]:
    answer = post(service, **changes)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def post(service: Service, key: str | None = None, **changes: Any) -> Any:
    body = {name: value for name, value in (AUDIT | changes).items() if value is not ...}
    return service.post("/v1/audits", body, key)


@pytest.mark.parametrize("name", AUDIT_EXAMPLES)
def test_every_example_is_answered_with_fewer_trials(auditor, name):
    body = AUDIT_EXAMPLES[name]["value"] | {"trials": 60}
    answer = auditor.post("/v1/audits", body)
    assert answer.status_code == 201, answer.text
    found = answer.json()
    assert found["trials"] == 60
    assert found["method"] == body.get("method", "guesses")
    assert found["verdict"] == "consistent"


@on_one_engine
def test_an_audit_is_made_stored_and_found_again_beside_its_claim(service):
    calibrated = service.post("/v1/calibrate", CALIBRATION).json()
    answer = post(service)
    assert answer.status_code == 201, answer.text
    found = answer.json()
    assert answer.headers["Location"] == f"/v1/audits/{found['id']}"
    assert found["id"].startswith("aud_")
    assert (found["run_id"], found["algorithm"]) == (None, "dp_sgd")
    assert (found["plan_hash"], found["events"]) == (calibrated["plan_hash"], calibrated["events"])
    assert found["convention"] == calibrated["convention"]
    assert found["verdict"] == "consistent"
    assert 0.0 <= found["finding"]["epsilon_lower"] <= found["finding"]["claim"]["upper"] <= 2.0
    assert found["finding"]["delta"] == 1e-5
    assert found["strongest"]["delta"] > 1e-5
    assert (found["trials"], found["confidence"]) == (200, 0.95)
    assert found["largest_provable_epsilon"] > 1.0
    assert service.get(f"/v1/audits/{found['id']}") == found
    assert service.get("/v1/audits") == {"items": [found], "next_cursor": None}
    with service.context.database.read() as session:
        stored = session.scalars(select(Audit)).one()
        assert stored.claim == found["finding"]["claim"]
        assert stored.request["calibration"]["target"] == CALIBRATION["target"]
        assert sha256_hex(stored.plan) == stored.plan_hash
        assert plan_from_canonical(stored.plan, stored.plan_hash).iterations == 2


def test_the_claim_is_what_the_accountant_certifies_at_the_asked_delta(auditor):
    found = audited(auditor, delta=1e-3)
    account = {"events": found["events"], "neighboring_relation": "add_or_remove_one", "delta": 1e-3}
    certified = auditor.post("/v1/account", account).json()["epsilon"]
    assert found["finding"]["claim"] == certified
    assert found["finding"]["delta"] == 1e-3


def test_enough_trials_prove_much_of_a_loose_budget(auditor):
    """mu = 6: a canary shows, and the bound is far above zero; an attack that were not made would prove nothing."""
    loose = CALIBRATION | {"target": {"kind": "gaussian_dp", "mu": 6}, "iterations": 1}
    found = audited(auditor, calibration=loose, trials=2000, delta=1e-2)
    assert 2.0 < found["finding"]["epsilon_lower"] < found["finding"]["claim"]["lower"]
    assert found["finding"]["hits"] > 100
    assert found["verdict"] == "consistent"


def test_a_seed_makes_an_audit_repeat(auditor):
    ones = [audited(auditor, seed=seed) for seed in (5, 5, 6)]
    for each in ones:
        del each["id"], each["created_at"]
    assert ones[0] == ones[1] != ones[2]


def test_the_same_key_replays_and_attacks_once(auditor, monkeypatch):
    calls: list[int] = []
    run = ProcessPool.run
    monkeypatch.setattr(ProcessPool, "run", lambda *args: calls.append(1) or run(*args))
    key = secrets.token_hex(8)
    first, again = (post(auditor, key=key, seed=...) for _ in range(2))
    assert first.json() == again.json()
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.headers["Location"] == first.headers["Location"]
    assert len(calls) == 1
    assert_problem(post(auditor, key=key, seed=1), 422, "idempotency_key_reused")


def test_an_audit_needs_a_key(auditor):
    assert_problem(auditor.client.post("/v1/audits", json=AUDIT), 400, "idempotency_key_missing")


@pytest.mark.parametrize("method", ["guesses", "clopper_pearson", "one_run", "gaussian_dp"])
def test_every_method_is_reached(auditor, method):
    found = audited(auditor, method=method, trials=100)
    assert found["method"] == method
    assert (found["strongest"] is None) == (method in ("one_run", "gaussian_dp"))
    assert found["finding"]["guesses"] >= found["finding"]["correct"] >= 0


@pytest.mark.parametrize("design", ["orthogonal", "opposed"])
def test_every_design_is_reached(auditor, design):
    found = audited(auditor, design=design, trials=20)
    assert found["design"] == design
    assert found["canaries_per_run"] == (20 if design == "orthogonal" else 1)
    assert any("One canary in each run" in note for note in found["notes"]) == (design == "opposed")


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": "dp_nsgd", "gradient_bound": {"kind": "normalize", "regularizer": 0.5}},
        {"algorithm": "dp_gd", "sampling": ..., "neighboring_relation": "replace_one"},
        {"domain": {"kind": "l2_ball", "radius": 1}},
        {
            "algorithm": "tree_sfw_l1",
            "iterations": 2,
            "dimension": 4,
            "target": {"kind": "pure_dp", "epsilon": 2},
            "assumptions": {"radius": 1, "lipschitz": 1, "smoothness": 1},
            **dict.fromkeys(("sampling", "neighboring_relation", "gradient_bound", "hyperparameters"), ...),
        },
        {
            "algorithm": "clipped_sgd_strongly_convex",
            **dict.fromkeys(("sampling", "neighboring_relation"), ...),
        },
        {
            "algorithm": "dp_sgd_gradient",
            "neighboring_relation": "replace_special",
            "assumptions": {"radius": 1},
        },
    ],
)
def test_plans_of_every_algorithm_are_attacked_as_they_are(auditor, changes):
    calibration = {name: value for name, value in (CALIBRATION | changes).items() if value is not ...}
    calibrated = auditor.post("/v1/calibrate", calibration).json()
    found = audited(auditor, calibration=calibration, trials=20)
    assert found["plan_hash"] == calibrated["plan_hash"]
    assert found["verdict"] == "consistent"
    assert found["runs"] >= 2


@on_one_engine
def test_the_audits_of_a_run_are_listed_beside_each_other(service):
    run = service.queued(dataset_id="ds_breast_cancer")
    other = service.queued(dataset_id="ds_breast_cancer", iterations=3)
    of_run = [audited(service, calibration=..., run_id=run["id"], trials=20) for _ in range(2)]
    of_other = audited(service, calibration=..., run_id=other["id"], trials=20)
    assert {found["run_id"] for found in of_run} == {run["id"]}
    assert {found["plan_hash"] for found in of_run} == {run["plan_hash"]}
    assert of_run[0]["events"] == [phase["event"] for phase in run["plan"]["phases"]]
    listed = service.get(f"/v1/audits?run_id={run['id']}")["items"]
    assert sorted(found["id"] for found in listed) == sorted(found["id"] for found in of_run)
    assert service.get(f"/v1/audits?run_id={other['id']}")["items"] == [of_other]
    assert service.get("/v1/audits?run_id=run_nothing")["items"] == []
    pages, cursor = [], ""
    while cursor is not None:
        page = service.get(f"/v1/audits?limit=2{cursor and '&cursor=' + cursor}")
        pages.append([found["id"] for found in page["items"]])
        cursor = page["next_cursor"]
    assert [len(page) for page in pages] == [2, 1]
    assert len({identifier for page in pages for identifier in page}) == 3


@on_one_engine
def test_an_audit_touches_no_data_set_and_no_budget(service):
    """The rows of the run's data set are gone before the attack begins, and it attacks all the same."""
    budget, run = service.private()
    service.work()
    datasets.delete(service.context, run["dataset_id"])
    before = service.get(f"/v1/budgets/{budget['id']}"), service.get(f"/v1/budgets/{budget['id']}/entries")
    found = audited(service, calibration=..., run_id=run["id"], trials=20)
    assert found["plan_hash"] == run["plan_hash"]
    after = service.get(f"/v1/budgets/{budget['id']}"), service.get(f"/v1/budgets/{budget['id']}/entries")
    assert after == before


@on_one_engine
def test_an_audit_of_an_altered_plan_is_refused(service):
    run = service.queued(dataset_id="ds_breast_cancer")
    with service.context.database.write() as session:
        stored = session.get_one(Run, run["id"])
        stored.plan = stored.plan.replace(b'"noise_multiplier":"', b'"noise_multiplier":"9')
    assert_problem(post(service, calibration=..., run_id=run["id"]), 500, "stored_plan_altered")
    assert service.get("/v1/audits")["items"] == []


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("changes", "status", "code", "pointer"),
    [
        ({"calibration": ...}, 422, "missing", "/calibration"),
        ({"run_id": "run_nothing"}, 422, "missing", "/calibration"),
        ({"run_id": "run_nothing", "calibration": ...}, 404, "not_found", None),
        (
            {"calibration": {name: value for name, value in CALIBRATION.items() if name != "hyperparameters"}},
            422,
            "missing",
            "/calibration/hyperparameters/step_size",
        ),
        ({"calibration": CALIBRATION | {"algorithm": "adam"}}, 422, "unknown_algorithm", "/calibration/algorithm"),
        ({"calibration": CALIBRATION | {"iterations": 0}}, 422, "invalid_request", "/calibration/iterations"),
        (
            {"calibration": CALIBRATION | {"target": {"kind": "budget", "budget_id": "bud_no"}}},
            422,
            "unknown_budget",
            "/calibration/target/budget_id",
        ),
        (
            {"calibration": CALIBRATION | {"target": {"kind": "pure_dp", "epsilon": 1}}},
            422,
            "no_cost_in_filter",
            "/calibration/target/kind",
        ),
        ({"trials": 9}, 422, "invalid_request", "/trials"),
        ({"trials": MAX_TRIALS + 1}, 422, "invalid_request", "/trials"),
        ({"trials": True}, 422, "invalid_request", "/trials"),
        ({"trials": 5000, "method": "one_run"}, 422, "invalid_value", "/trials"),
        ({"method": "gaussian_dp", "calibration": POISSON}, 422, "unsupported", "/method"),
        ({"method": "one_run", "design": "opposed"}, 422, "invalid_value", "/design"),
        ({"design": "lucky"}, 422, "invalid_request", "/design"),
        ({"method": "luck"}, 422, "invalid_request", "/method"),
        ({"confidence": 1}, 422, "invalid_request", "/confidence"),
        ({"confidence": 0}, 422, "invalid_request", "/confidence"),
        ({"delta": 0}, 422, "invalid_request", "/delta"),
        ({"seed": -1}, 422, "invalid_request", "/seed"),
        ({"dataset_id": "ds_digits"}, 422, "invalid_request", "/dataset_id"),
    ],
)
def test_what_cannot_be_attacked_is_pointed_at_and_not_stored(auditor, changes, status, code, pointer):
    before = auditor.get("/v1/audits?limit=1")["items"]
    assert_problem(post(auditor, **changes), status, code, pointer)
    assert auditor.get("/v1/audits?limit=1")["items"] == before


def test_an_attack_that_takes_too_long_says_what_would_help(auditor, monkeypatch):
    monkeypatch.setattr(audits, "SHARE_OF_TIME", 0.0)
    problem = assert_problem(post(auditor), 422, "too_much_work", "/trials")
    assert "fewer trials" in problem["detail"]


@on_one_engine
def test_a_process_that_breaks_its_limits_says_the_same(settings, database):
    context = fenced_context(settings, database, audit_processes=ProcessPool(size=1, seconds=0.01, memory_bytes=2**30))
    with local_client(create_app(context)) as client:
        assert_problem(post(Service(client, context)), 422, "too_much_work", "/trials")


def test_the_deadline_is_asked_before_every_run(auditor):
    request = AuditRequest.model_validate(AUDIT)
    plan = audits.carry_out(auditor.context, request, LOOPBACK).plan.canonical()
    with pytest.raises(AuditCancelled):
        audits.attack(plan, TWO_CLASSES, request.model_dump(), seconds=-1.0)


def test_what_is_not_there_is_404(auditor):
    assert_problem(auditor.client.get("/v1/audits/aud_nothing"), 404, "not_found")
    assert_problem(auditor.client.get("/v1/audits?run=run_1"), 422, "invalid_request", "/query/run")


#: Who may audit, and read audits.
ADMITTED = {Scope.OWNER, Scope.ANALYST, Scope.AUDITOR, Scope.ADMIN}


@on_one_engine
def test_audits_take_their_scopes(connect, context):
    refused: dict[str, Any] = {"calibration": CALIBRATION | {"algorithm": "adam"}}
    for scope in Scope:
        created = create_key(context, str(scope), [scope])
        assert created is not None
        client = connect(headers={"Authorization": f"Bearer {created.token}"})
        answers = [
            client.post("/v1/audits", json=refused, headers={"Idempotency-Key": str(scope)}),
            client.get("/v1/audits"),
            client.get("/v1/audits/aud_nothing"),
        ]
        if scope in ADMITTED:
            assert [answer.status_code for answer in answers] == [422, 200, 404], scope
        else:
            for answer in answers:
                assert_problem(answer, 403, "forbidden")
    for path in ("/v1/audits", "/v1/audits/aud_nothing"):
        assert_problem(connect().get(path), 401, "unauthenticated")

"""Two versions on one database: this one serves and trains while the next one migrates, and the next one goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from app.db.migrate import head_revision
from tests.e2e.server import ROOT, Api, serving

#: Some tens of seconds on a busy machine.
STEPS = 40_000
PATIENCE_S = 300
BUDGET = {"name": "b", "neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": 1000}}
HELD = {"events": [{"mechanism": {"kind": "zcdp", "rho": 0.5}}], "purpose": "an upgrade"}
RUN = {
    "dataset_id": "ds_breast_cancer",
    "algorithm": "dp_sgd",
    "model": {"kind": "logistic_regression"},
    "iterations": STEPS,
    "sampling": "full_batch",
    "neighboring_relation": "add_or_remove_one",
    "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
    "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-5},
    "hyperparameters": {"step_size": 0.5},
    "seed": 1,
}
NEXT = """
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "{next}", "{head}", None, None


def upgrade() -> None:
    op.create_table("of_the_next_version", sa.Column("id", sa.Integer, primary_key=True))
    op.add_column("budgets", sa.Column("of_the_next_version", sa.Integer))
"""


def next_version(folder: Path) -> Path:
    """A checkout of a version that has one migration more; all else is this one's, and so is the trainer."""
    folder.mkdir()
    for name in ("app", "migrations"):
        shutil.copytree(ROOT / name, folder / name)
    for name in ("accounting", "calibrators", "trainer", "openapi.json", "pyproject.toml"):
        (folder / name).symlink_to(ROOT / name)
    head = head_revision()
    number = f"{int(head) + 1:04d}"
    (folder / "migrations/versions" / f"{number}_next.py").write_text(NEXT.format(next=number, head=head))
    return folder


def hold(api: Api, budget_id: str, key: str) -> Any:
    return api.post(f"/v1/budgets/{budget_id}/reservations", HELD, headers={"Idempotency-Key": key})


@pytest.mark.thorough  # tests/app/fence/test_schema.py has the shorter one
def test_the_old_version_stops_writing_and_the_next_one_ends_its_run(tmp_path: Path) -> None:
    """Nothing that the old one acknowledged is lost, and the run that it had started is charged once."""
    newer = next_version(tmp_path / "newer")
    environment = {"EPSILOND_DATA_DIR": str(tmp_path / "data"), "EPSILOND_WORKERS": "1"}
    environment["EPSILOND_CHECKPOINT_INTERVAL_S"] = "0.5"
    with serving(environment) as old:
        budget = old.post("/v1/budgets", BUDGET).json()["id"]
        held = hold(old, budget, "before").json()["id"]
        run = old.post("/v1/runs", RUN | {"budget_id": budget}).json()["id"]
        deadline = time.monotonic() + PATIENCE_S
        while old.get(f"/v1/runs/{run}").json()["state"] != "running":
            assert time.monotonic() < deadline
            time.sleep(0.1)

        clean = {name: value for name, value in os.environ.items() if not name.startswith("EPSILOND_")}
        migrate = [sys.executable, "-m", "app", "migrate"]
        subprocess.run(migrate, cwd=newer, env=clean | environment, check=True, capture_output=True)

        refused = hold(old, budget, "after")
        assert (refused.status_code, refused.json()["code"]) == (503, "database_unavailable")
        assert old.get(f"/v1/budgets/{budget}").status_code == 503
        ready = old.get("/health/ready")
        assert (ready.status_code, ready.json()["checks"]["schema"]) == (503, "failing")
        assert old.get("/health/live").status_code == 200

    with serving(environment, cwd=newer) as new:
        again = hold(new, budget, "before")
        assert (again.json()["id"], again.headers["Idempotency-Replayed"]) == (held, "true")
        assert hold(new, budget, "after").status_code == 201
        deadline = time.monotonic() + PATIENCE_S
        while (ended := new.get(f"/v1/runs/{run}").json())["state"] in ("queued", "running"):
            assert time.monotonic() < deadline, ended
            time.sleep(0.2)
        assert ended["state"] == "succeeded", ended
        kinds = [entry["kind"] for entry in new.get(f"/v1/budgets/{budget}/entries?limit=50").json()["items"]]
        assert sorted(kinds) == ["commit", "create", "reserve", "reserve", "reserve", "start"]
        assert new.post("/v1/ledger/verify", {}).json()["valid"]

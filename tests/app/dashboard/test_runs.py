"""The pages of runs and sweeps: progress that ends, commands that are done once, documents as they are elsewhere."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.app.dashboard.documents import Document
from tests.app.run_sweeps.conftest import Sweeps
from tests.app.runs.conftest import quick as runs_quick
from tests.app.runs.test_models import NUMBER_LABEL, TWO, inline

__all__ = ["runs_quick"]

HERE = {"Origin": "http://127.0.0.1:8000"}


@pytest.fixture(scope="module")
def quick(runs_quick: Any) -> Sweeps:
    return Sweeps(runs_quick.client, runs_quick.context)


def key_of(page: str) -> str:
    (key,) = re.findall(r'name="key" value="([^"]+)"', page)
    return str(key)


def test_a_run_is_followed_until_it_is_over(quick: Sweeps) -> None:
    budget, run = quick.charged()
    at = f"/dashboard/runs/{run['id']}"
    assert f"<code>{run['id']}</code>" in quick.client.get("/dashboard/runs").text
    waiting = quick.client.get(f"{at}/progress")
    assert 'hx-trigger="every 1s"' in waiting.text
    assert "hx-refresh" not in waiting.headers
    while quick.get(f"/v1/runs/{run['id']}")["state"] == "queued":
        quick.work()
    over = quick.client.get(f"{at}/progress")
    assert "hx-trigger" not in over.text
    assert over.headers["hx-refresh"] == "true"
    page = quick.client.get(at).text
    assert f"/dashboard/budgets/{budget['id']}" in page
    assert "20 × Gaussian" in page
    assert run["plan_hash"] in page
    assert "Cancel" not in page


def test_a_released_model_is_told_downloaded_and_tried(quick: Sweeps) -> None:
    run = quick.trained(dataset_id="ds_breast_cancer", test_dataset_id="ds_breast_cancer", iterations=2)
    at = f"/dashboard/runs/{run['id']}"
    page = quick.client.get(at).text
    assert quick.report(run)["statement"] in page
    link = '<a href="/dashboard/datasets/ds_breast_cancer">Breast cancer Wisconsin (diagnostic)</a>'
    assert f"{run['algorithm']} on {link}" in page
    assert link in quick.client.get("/dashboard/runs").text
    assert "There is no score" not in page
    assert "<h3>569 test rows of ds_breast_cancer</h3>" in page
    assert "<h3>569 training rows of ds_breast_cancer</h3>" in page
    for name in ("Accuracy", "Balanced accuracy", "Log loss", "AUC", "Calibration error"):
        assert f"<dt>{name}</dt>" in page
    [metric, _] = run["result"]["metrics"]
    assert f"<dd>{metric['auc']:.4f}</dd>" in page
    assert re.search(r'<th scope="row">malignant</th><td>\d+</td><td>\d+</td>', page)
    downloaded = quick.client.get(f"{at}/model")
    assert downloaded.content == quick.client.get(f"/v1/runs/{run['id']}/model?format=npz").content
    assert downloaded.headers["content-disposition"] == f'attachment; filename="{run["id"]}.npz"'

    # The form begins with a row that has a prediction.
    fields = dict(re.findall(r'name="(feature-\d+)" value="([^"]*)"', page))
    assert len(fields) == 30
    tried = quick.client.post(f"{at}/try", data=fields, headers=HERE)
    row = [float(fields[f"feature-{place}"]) for place in range(30)]
    expected = quick.client.post(f"/v1/runs/{run['id']}/predictions", json={"rows": [row]}).json()
    assert f"<strong>{expected['predictions'][0]}</strong>" in tried.text
    assert f"<dd>{expected['probabilities'][0][0]:.3f}</dd>" in tried.text

    wrong = quick.client.post(f"{at}/try", data=fields | {"feature-3": "many"}, headers=HERE)
    assert wrong.status_code == 422
    assert 'value="many"' in wrong.text
    assert "must be a number" in wrong.text
    assert wrong.text.count('aria-invalid="true"') == 1


def test_a_run_on_private_rows_says_why_it_has_no_score(quick: Sweeps) -> None:
    budget = quick.budget()
    run = quick.trained(dataset_id=quick.dataset(budget_id=budget["id"])["id"], budget_id=budget["id"])
    assert run["result"]["metrics"] == []
    page = quick.client.get(f"/dashboard/runs/{run['id']}").text
    assert "There is no score: the rows are private" in page
    assert Document(page).faults == []


def test_a_regression_and_a_category_are_tried(quick: Sweeps) -> None:
    for label in (NUMBER_LABEL, TWO):
        kind = "logistic_regression" if label is TWO else "linear_regression"
        run = quick.trained(dataset=inline(label), model={"kind": kind})
        at = f"/dashboard/runs/{run['id']}"
        page = quick.client.get(at).text
        assert "<h3>60 training rows of the request</h3>" in page
        assert ("<dt>R²</dt>" in page) == (label is NUMBER_LABEL)
        assert '<option value="green">green</option>' in page
        data = {"feature-0": "2", "feature-1": "green", "feature-2": "0.5"}
        tried = quick.client.post(f"{at}/try", data=data, headers=HERE).text
        request = {"rows": [[2, "green", 0.5]]}
        [expected] = quick.client.post(f"/v1/runs/{run['id']}/predictions", json=request).json()["predictions"]
        shown = expected if label is TWO else f"{expected:.6g}"
        assert f"<strong>{shown}</strong>" in tried
        assert '<option value="green" selected>green</option>' in tried


def test_a_model_with_many_features_is_not_tried_in_a_form(quick: Sweeps) -> None:
    run = quick.trained(dataset_id="ds_digits", model={"kind": "softmax_regression"}, iterations=2)
    at = f"/dashboard/runs/{run['id']}"
    page = quick.client.get(at).text
    assert 'id="try"' not in page
    assert "epsilond_client.load(" in page
    sent = quick.client.post(f"{at}/try", data={"feature-0": "1"}, headers=HERE, follow_redirects=False)
    assert (sent.status_code, sent.headers["location"]) == (303, at)


def test_a_run_is_cancelled_once_however_often_the_form_is_sent(quick: Sweeps) -> None:
    _, run = quick.charged()
    at = f"/dashboard/runs/{run['id']}"
    key = key_of(quick.client.get(at).text)
    assert key != key_of(quick.client.get(at).text), "every form that is shown has a key of its own"
    for _ in range(2):
        answer = quick.client.post(f"{at}/cancel", data={"key": key}, headers=HERE, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, at)
    assert quick.get(f"/v1/runs/{run['id']}")["state"] == "cancelled"
    assert "Cancel</button>" not in quick.client.get(at).text
    late = quick.client.post(f"{at}/cancel", data={"key": "another"}, headers=HERE, follow_redirects=False)
    assert late.status_code == 409
    assert 'role="alert"' in late.text


def test_the_card_is_the_interface_s_page_with_its_own_policy(quick: Sweeps) -> None:
    run = quick.trained(dataset_id="ds_breast_cancer", iterations=2)
    ours, theirs = (
        quick.client.get(f"/dashboard/runs/{run['id']}/card"),
        quick.client.get(f"/v1/runs/{run['id']}/report?format=html"),
    )
    assert ours.text == theirs.text
    assert ours.headers["content-security-policy"] == theirs.headers["content-security-policy"]
    assert quick.client.get("/dashboard/runs/run_none/card").status_code == 404


def test_a_run_leads_to_the_certificate_of_its_charge(quick: Sweeps) -> None:
    budget = quick.budget(filter={"kind": "renyi_dp", "epsilon": 20, "delta": 1e-5})
    run = quick.trained(budget_id=budget["id"], dataset_id="ds_breast_cancer", certificate=True)
    at = f"/dashboard/ledger/reservations/{run['reservation_id']}/certificate"
    assert f'href="{at}"' in quick.client.get(f"/dashboard/runs/{run['id']}").text
    assert "verified" in quick.client.get(at).text
    _, other = quick.charged()
    assert "/certificate" not in quick.client.get(f"/dashboard/runs/{other['id']}").text


def test_a_failed_run_says_why(quick: Sweeps) -> None:
    _, run = quick.charged()
    with quick.context.database.write() as session:
        session.connection().exec_driver_sql("UPDATE runs SET plan_hash = ? WHERE id = ?", ("0" * 64, run["id"]))
    while quick.get(f"/v1/runs/{run['id']}")["state"] == "queued":
        quick.work()
    problem = quick.get(f"/v1/runs/{run['id']}")["problem"]
    page = quick.client.get(f"/dashboard/runs/{run['id']}").text
    assert problem["code"] in page
    assert 'role="alert"' in page


def test_a_sweep_is_a_table_and_a_map(quick: Sweeps) -> None:
    sweep = quick.swept()
    at = f"/dashboard/run-sweeps/{sweep['id']}"
    assert sweep["id"] in quick.client.get("/dashboard/run-sweeps").text
    begun = quick.client.get(at).text
    assert "heat-map" not in begun
    assert 'hx-trigger="every 2s"' in begun
    while quick.get(f"/v1/run-sweeps/{sweep['id']}")["state"] in ("queued", "running"):
        quick.work()
    over = quick.client.get(f"{at}/cells")
    assert over.headers["hx-refresh"] == "true"
    cells = quick.get(f"/v1/run-sweeps/{sweep['id']}")["cells"]
    shown = re.findall(r"<td>([\d.]+)</td>\s*<td><span[^>]*>succeeded</span></td>\s*<td>([\d.]+) </td>", over.text)
    assert shown == [(str(c["values"][0]), f"{c['metrics'][0]['accuracy']:.4f}") for c in cells]
    assert f'src="{at}/heat-map.svg"' in quick.client.get(at).text
    picture = quick.client.get(f"{at}/heat-map.svg")
    assert picture.headers["content-type"].startswith("image/svg+xml")
    assert picture.text == quick.client.get(f"/v1/run-sweeps/{sweep['id']}/heat-map").text


def test_a_sweep_is_cancelled_by_its_form(quick: Sweeps) -> None:
    sweep = quick.swept()
    at = f"/dashboard/run-sweeps/{sweep['id']}"
    key = key_of(quick.client.get(at).text)
    answer = quick.client.post(f"{at}/cancel", data={"key": key}, headers=HERE, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, at)
    assert quick.get(f"/v1/run-sweeps/{sweep['id']}")["state"] in ("cancelling", "cancelled")
    assert quick.client.get("/dashboard/run-sweeps/swp_none").status_code == 404

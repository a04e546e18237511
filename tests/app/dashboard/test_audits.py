"""The pages of audits: started from a run, listed, and shown beside the claim."""

from __future__ import annotations

import re

from tests.app.dashboard.documents import Document
from tests.app.runs.conftest import Service, quick

__all__ = ["quick"]

HERE = {"Origin": "http://127.0.0.1:8000"}


def test_a_run_is_attacked_from_its_page_and_what_was_found_is_shown(quick: Service) -> None:
    run = quick.trained(dataset_id="ds_breast_cancer", iterations=2)
    page = quick.client.get(f"/dashboard/runs/{run['id']}").text
    assert Document(page).faults == []
    assert 'action="/dashboard/audits"' in page
    (key,) = set(re.findall(r'name="key" value="([^"]+)"', page))
    for _ in range(2):
        data = {"key": key, "run_id": run["id"]}
        answer = quick.client.post("/dashboard/audits", data=data, headers=HERE, follow_redirects=False)
        assert answer.status_code == 303, answer.text
    (audit,) = quick.get(f"/v1/audits?run_id={run['id']}")["items"]
    assert answer.headers["location"] == f"/dashboard/audits/{audit['id']}"
    shown = quick.client.get(answer.headers["location"]).text
    assert Document(shown).faults == []
    assert audit["plan_hash"] in shown
    assert "found nothing against the claim" in shown
    listed = quick.client.get(f"/dashboard/audits?run_id={run['id']}").text
    assert Document(listed).faults == []
    assert audit["id"] in listed


def test_an_attack_on_no_run_is_refused_in_words(quick: Service) -> None:
    data = {"key": "page-of-nobody-000000", "run_id": "run_none"}
    answer = quick.client.post("/dashboard/audits", data=data, headers=HERE)
    assert answer.status_code in (404, 422)
    assert Document(answer.text).faults == []

"""The pace at which public rows are scored: measured on dummy rows, for as many as are declared."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from app.runs.executors import paces
from app.runs.work import Work
from tests.app.runs.test_work import work_of
from tests.trainer.plans import correlated_of
from trainer import models


@pytest.fixture
def work() -> Work:
    return replace(work_of(correlated_of(0.75, 0.5)), test_size=10**6)


@pytest.mark.parametrize(
    ("model", "rows"),
    [
        (models.logistic_regression(4), paces.SAMPLED_ROWS),
        (models.build(4, kind="linear_regression"), paces.SAMPLED_ROWS),
        (models.softmax_regression(4096, 3), 512),
    ],
)
def test_the_time_grows_with_the_public_rows(work, model, rows, monkeypatch):
    monkeypatch.setattr(paces, "time", SimpleNamespace(perf_counter=iter([1.0, 3.0]).__next__))
    assert paces._public_scoring_s(replace(work, model=model)) == 10**6 * 2.0 / rows


def test_what_is_not_scored_takes_no_time(work):
    assert paces._public_scoring_s(replace(work, test_size=0)) == 0.0
    assert paces._public_scoring_s(replace(work, model=models.MeanModel(4))) == 0.0


def test_the_pace_of_a_run_has_the_time_of_its_public_scores(work, monkeypatch):
    monkeypatch.setattr(paces, "_public_scoring_s", lambda _: 1000.0)
    assert 1000.0 < paces.MeasuredPaces().of(work).scoring_s < 1100.0

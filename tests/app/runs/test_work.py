"""What the time of a private run may depend on: two runs of one shape take the same time."""

from __future__ import annotations

from dataclasses import replace

from app.algorithms.binding import DataDescription
from app.runs.work import Work
from calibrators.plan import CorrelatedSteps
from tests.app.runs.conftest import COLUMNS
from tests.trainer.plans import correlated_of, plan_of
from trainer.models import logistic_regression


def work_of(phase: CorrelatedSteps) -> Work:
    declared = {"declared_size": 8, "privacy_unit": "record", "features": COLUMNS[:-1], "label": COLUMNS[-1]}
    description = DataDescription.model_validate(declared)
    return Work(plan_of("dp_bandmf", phase), logistic_regression(4), "", description, 16, 0, has_score=False)


def test_noise_over_more_bands_is_another_shape_and_other_coefficients_are_not() -> None:
    sampling = correlated_of(0.75, 0.5, 0.25).event.sampling
    three = correlated_of(0.75, 0.5, 0.25, sampling=sampling)
    assert work_of(three).shape == work_of(correlated_of(0.5, 0.5, 0.125, sampling=sampling)).shape
    assert work_of(three).shape == work_of(replace(three, momentum=0.25, step_size=0.1)).shape
    assert work_of(three).shape != work_of(correlated_of(0.75, 0.5, sampling=sampling)).shape

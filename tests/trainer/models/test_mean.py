"""The mean as a model: its loss, what a run of the clipped mean releases, and that labels are not looked at."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from accounting.errors import InvalidValue, Unsupported
from accounting.events import Event, FullBatch, Gaussian
from accounting.relations import NeighboringRelation
from calibrators.plan import Clip, Phase, Plan
from tests.trainer.given import GivenStreams
from tests.transcriptions.clipped_mean import mean_oracle_1
from trainer.clipping import margin
from trainer.models import MeanModel
from trainer.records import prepare
from trainer.run import run
from trainer.streams import random_streams


def plan_of(records: int, clip: float, noise_multiplier: float = 0.5) -> Plan:
    phase = Phase(Event(Gaussian(noise_multiplier), FullBatch(), 1), Clip(clip), records, 1.0)
    return Plan("clipped_mean", records, NeighboringRelation.REPLACE_ONE, (phase,))


def test_gradients_are_the_losses_derivative() -> None:
    rng = np.random.default_rng(1)
    model, rows, point = MeanModel(3), rng.normal(size=(5, 3)), rng.normal(size=3)
    records = prepare(model, rows, np.zeros(5), "float64", 5, random_streams(0).slots)
    block = records.block(records.positions)
    for axis in np.eye(3):
        quotient = (model.losses(point + 1e-6 * axis, block) - model.losses(point - 1e-6 * axis, block)) / 2e-6
        np.testing.assert_allclose(model.gradients(point, block).rows @ axis, quotient, atol=1e-8)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_run_is_the_papers_oracle_on_the_records(dtype: str) -> None:
    rng = np.random.default_rng(2)
    rows, noise, clip = rng.standard_t(3.0, size=(300, 4)), rng.normal(size=4), 1.5
    plan = replace(plan_of(300, clip), dtype=dtype)
    found = run(plan, MeanModel(4), rows, np.zeros(300), streams=GivenStreams([-noise]))
    threshold = clip * (1.0 - margin(dtype))
    expected = mean_oracle_1(list(rows), noise, C=threshold, sigma=0.5 * clip / 300)
    # The sum and the noise are rounded to the grid, and then divided by 300.
    within = (1e-5 if dtype == "float64" else 2e-3) / 300
    np.testing.assert_allclose(found.parameters["mean"], expected, rtol=0, atol=within)
    lengths = np.linalg.norm(rows, axis=1)
    assert lengths.min() < clip < lengths.max()


def test_labels_are_not_looked_at_and_unusable_records_count_as_zero() -> None:
    rows = np.random.default_rng(3).normal(size=(50, 2))
    one, other = (run(plan_of(50, 9.0), MeanModel(2), rows, labels, seed=1) for labels in (np.zeros(50), np.arange(50)))
    assert np.array_equal(one.parameters["mean"], other.parameters["mean"])
    zero, broken = rows.copy(), rows.copy()
    zero[7], broken[7] = 0.0, np.nan
    one, other = (run(plan_of(50, 9.0), MeanModel(2), some, np.zeros(50), seed=1) for some in (zero, broken))
    np.testing.assert_allclose(one.parameters["mean"], other.parameters["mean"], rtol=1e-12)


def test_a_mean_predicts_nothing() -> None:
    with pytest.raises(Unsupported, match="predicts no label"):
        MeanModel(2).predict({"mean": np.zeros(2)}, np.zeros((1, 2)))
    with pytest.raises(InvalidValue):
        MeanModel(0)

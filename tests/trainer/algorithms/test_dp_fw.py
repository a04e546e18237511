"""Full-batch Frank-Wolfe: each step equal to a transcription of the pseudocode, no gradient mean more sensitive."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import array_api_strict
import numpy as np
import numpy.typing as npt
import pytest

from accounting.errors import InvalidValue, Unsupported
from accounting.events import Event, ZcDp
from accounting.relations import NeighboringRelation
from calibrators.geometry import L1Ball, L2Ball
from calibrators.phases.vertex_steps import VertexSteps
from calibrators.plan import Plan
from tests.conformance.trainers.streams import RecordingStreams
from tests.trainer.given import in_slots, trainer_of
from tests.transcriptions.dp_fw import trajectory
from trainer.arrays import Namespace, silent, to_host
from trainer.clipped_sums import ClippedSums, Term
from trainer.clipping import MARGINS
from trainer.losses import Squared
from trainer.models import LinearModel, MultilayerPerceptron, build
from trainer.run import run

Floats = npt.NDArray[np.float64]
MODEL = LinearModel(Squared(), 3, fit_intercept=False)


def plan_of(steps: int, records: int, scale: float = 0.3, lipschitz: float = 0.5) -> Plan:
    phase = VertexSteps(Event(ZcDp(0.1), count=steps), records, scale, lipschitz)
    return Plan("dp_fw", records, NeighboringRelation.REPLACE_ONE, (phase,), domain=L1Ball(0.7))


def data(count: int, seed: int = 1) -> tuple[Floats, Floats]:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(count, 3)), generator.uniform(-1.0, 1.0, size=count)


@pytest.mark.parametrize("xp", [np, array_api_strict], ids=["numpy", "strict"])
@pytest.mark.parametrize("lipschitz", [0.5, 100.0])
def test_every_step_is_that_of_the_transcription(xp: Namespace, lipschitz: float) -> None:
    features, labels = data(9)
    gumbel = np.random.default_rng(2).gumbel(size=(8, 6))
    draws = iter(gumbel)
    expected = trajectory(
        np.zeros(3),
        lambda x, i: features[i] * (features[i] @ x - labels[i]),
        lambda scores: int(np.argmin(scores - 0.3 * next(draws))),
        n=9,
        T=8,
        D=0.7,
        L0=lipschitz * (1.0 - MARGINS["float64"]),
    )
    streams = RecordingStreams(3, gumbel=list(gumbel))
    plan = plan_of(8, 9, lipschitz=lipschitz)
    trainer = trainer_of(plan, MODEL, xp.asarray(features), xp.asarray(labels), streams)
    for _, point in expected:
        trainer.step()
        np.testing.assert_allclose(to_host(trainer.released()), point, rtol=1e-12, atol=1e-15)
        assert np.sum(np.abs(to_host(trainer.released()))) <= 0.7 * (1.0 + 1e-12)


def test_a_record_moves_the_mean_by_its_bound_over_the_declared_size_and_no_more() -> None:
    """Turned around: by 2 L_0/n. Gone: by L_0/n, since the divisor stays. Whatever else the rows hold."""
    features, labels = np.tile(np.eye(3), (700, 1)) * 50.0, np.ones(2100)
    size, bound = labels.size, 0.5

    def steps_of(rows: Floats, targets: Floats) -> list[int]:
        records = in_slots(plan_of(1, size), MODEL, rows, targets, RecordingStreams(1))
        sums = ClippedSums(records, MODEL, "dp_fw")
        with silent():
            total = sums.of(slice(0, records.capacity), sums.grid(0.0), bound, Term(np.full(3, 1e-3), bound))
            mean = sums.mean(slice(0, records.capacity), size, Term(np.full(3, 1e-3), bound))
        np.testing.assert_array_equal(mean, total * (sums.grid(0.0).step * (bound / size)))
        assert np.all(total == np.rint(total))
        return [int(value) for value in total]

    def moved_by(rows: Floats, targets: Floats) -> int:
        return max(abs(one - other) for one, other in zip(steps_of(rows, targets), whole, strict=True))

    whole = steps_of(features, labels)
    # The record that goes is the last one: others stay in their places.
    unit = int(
        ClippedSums(in_slots(plan_of(1, size), MODEL, features, labels, RecordingStreams(1)), MODEL, "")
        .grid(0.0)
        .steps_per_unit
    )
    turned = labels.copy()
    turned[5] = -1.0
    assert 0.9999 * 2 * unit < moved_by(features, turned) <= 2 * unit
    assert 0.9999 * unit < moved_by(features[:-1], labels[:-1]) <= unit
    for value in (np.nan, np.inf, 1.7e308, -1e-320):
        odd = features.copy()
        odd[5] = value
        assert moved_by(odd, labels) <= 2 * unit


def test_records_that_are_not_there_leave_the_divisor() -> None:
    features, labels = data(6)
    results = [
        run(plan_of(4, 12), MODEL, rows, targets, seed=3).parameters["weights"]
        for rows, targets in (
            (features, labels),
            (np.vstack([features, np.full((6, 3), np.nan)]), np.append(labels, np.zeros(6))),
        )
    ]
    np.testing.assert_array_equal(*results)


def test_with_little_noise_least_squares_is_solved() -> None:
    features = np.random.default_rng(1).uniform(-1.0, 1.0, size=(400, 3))
    target = np.array([0.5, -0.1, 0.0])
    result = run(plan_of(400, 400, scale=1e-6, lipschitz=100.0), MODEL, features, features @ target, seed=1)
    np.testing.assert_allclose(result.parameters["weights"], target, atol=0.01)


@pytest.mark.parametrize(
    ("changes", "phase", "pointer"),
    [
        ({"domain": None}, {}, ("phases",)),
        ({"domain": L2Ball(1.0)}, {}, ("phases",)),
        ({}, {"lipschitz": 1e-200}, ("phases", 0, "lipschitz")),
    ],
)
def test_a_plan_that_cannot_be_kept_is_refused(
    changes: dict[str, Any], phase: dict[str, Any], pointer: tuple[object, ...]
) -> None:
    plan = plan_of(2, 9)
    [own] = plan.phases
    assert isinstance(own, VertexSteps)
    plan = replace(plan, phases=(replace(own, **phase),), **changes)
    with pytest.raises(InvalidValue) as refused:
        run(plan, MODEL, *data(9), seed=1)
    assert refused.value.pointer == pointer
    with pytest.raises(InvalidValue):
        run(replace(plan_of(2, 9), phases=(own, own)), MODEL, *data(9), seed=1)


def test_a_network_is_refused() -> None:
    network = build(3, kind="mlp", hidden=[2], num_classes=2)
    assert isinstance(network, MultilayerPerceptron)
    with pytest.raises(Unsupported) as refused:
        run(plan_of(2, 9), network, data(9)[0], np.zeros(9), seed=1)
    assert refused.value.pointer == ("model", "kind")

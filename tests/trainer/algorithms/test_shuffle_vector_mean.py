"""The mean from shuffled bits: the protocol itself on real messages, its law, what one record moves, refusals."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from accounting.errors import InvalidValue
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.phases.shuffled_counts import ShuffledCounts
from calibrators.plan import Clip, Plan
from calibrators.registry import calibrate
from calibrators.spec import OpenEpsilon, Spec, Unknown
from tests.conformance.trainers.streams import RecordingStreams
from tests.transcriptions.shuffle_vector_mean import p_1d
from trainer.models import MeanModel
from trainer.run import run
from trainer.shuffle import BitProtocol, Coins
from trainer.shuffle.bits import shuffled
from trainer.shuffle.messages import MAX_MESSAGE_BITS
from trainer.streams import random_streams

USERS, DIMENSION, BOUND = 30, 3, 2.0


def plan_of(relation: NeighboringRelation = NeighboringRelation.REPLACE_ONE, noise_multiplier: float = 4.0) -> Plan:
    spec = Spec(
        USERS,
        OpenEpsilon(1e-5),
        Unknown.EPSILON,
        noise_multiplier=noise_multiplier,
        dimension=DIMENSION,
        gradient_bound=Clip(BOUND),
        neighboring_relation=relation,
    )
    return calibrate("shuffle_vector_mean", spec).plan


def phase_of(plan: Plan) -> ShuffledCounts:
    [phase] = plan.phases
    assert isinstance(phase, ShuffledCounts)
    return phase


def mean_of(plan: Plan, records: np.ndarray, streams: object) -> np.ndarray:
    found = run(plan, MeanModel(DIMENSION), records, np.zeros(len(records)), streams=streams)  # type: ignore[arg-type]
    return found.parameters["mean"]


def test_the_worked_example_of_one_coordinate():
    assert p_1d([0.3, 1.7], tau=2.0, g=4, b=20, p=0.3, up=[True, False], noise_ones=5 + 7) == pytest.approx(2.0)
    # The same integers beside fair coins, of numbers that are 1 less: 16 - 0.3 * 20 * 2 = 24 - 0.5 * 20 * 2.
    protocol = BitProtocol(1.0, 4, 20)
    integers = protocol.rounded(np, np.array([[-0.7], [0.7]]), np.array([[0.5], [0.5]]))
    assert integers.ravel().tolist() == [1, 3]
    assert protocol.sums(np.array([24]), users=2).tolist() == [0.0]


def test_the_shuffled_messages_say_the_same_as_the_count():
    """With the same coins: what is computed in bulk is what the protocol's own bits add up to."""
    protocol = BitProtocol(BOUND, 7, 50)
    integers = np.array([0, 7, 3, 5, 2])
    bits = protocol.messages(integers, random_streams(3).coins())
    assert bits.shape == (5, 57)
    assert set(np.unique(bits).tolist()) == {0, 1}
    assert bits[:, :7].sum(axis=1).tolist() == integers.tolist()
    let_through = shuffled(bits, random_streams(4).sampling)
    assert let_through.tolist() != bits.ravel().tolist()
    ones = integers.sum() + random_streams(3).coins().heads(5 * 50, 1)
    assert let_through.sum() == ones[0]
    assert protocol.sums(ones, users=5) == pytest.approx(2.0 * BOUND / 7 * (ones - 125) - 5 * BOUND)


@pytest.mark.parametrize("tosses", [1, 63, 64, 1000])
def test_heads_are_binomial(tosses):
    found = random_streams(5).coins().heads(tosses, 4000)
    edges = np.unique(stats.binom.ppf(np.linspace(0.1, 0.9, 9), tosses, 0.5))
    cells = np.searchsorted(edges, found)
    chances = np.diff(stats.binom.cdf(np.concatenate([[-1], edges, [tosses]]), tosses, 0.5))
    expected = 4000 * chances[chances > 0]
    assert stats.chisquare(np.bincount(cells, minlength=chances.size)[chances > 0], expected).pvalue > 1e-3


def test_coins_go_on_from_a_state_and_are_counted_by_blocks():
    coins = random_streams(1).coins()
    coins.heads(65, 1)
    state = coins.state()
    many = 64 * (1 << 18) + 70
    first = coins.heads(many, 1)
    again = Coins(random_streams(2).noise)
    again.restore(state)
    tosses = again.tosses(many)
    assert first[0] == tosses.sum()


def test_rounding_is_unbiased_and_within_a_level():
    protocol = BitProtocol(BOUND, 6, 1)
    rows = np.linspace(-1.2 * BOUND, 1.2 * BOUND, 41)[:, None]
    uniforms = (np.arange(2048) + 0.5) / 2048
    integers = np.hstack([protocol.rounded(np, rows, np.full_like(rows, u)) for u in uniforms])
    exact = (np.clip(rows, -BOUND, BOUND) + BOUND) * 6 / (2 * BOUND)
    assert np.abs(integers - exact).max() < 1.0
    np.testing.assert_allclose(integers.mean(axis=1), exact.ravel(), atol=1.0 / 2048)
    assert integers.min() == 0
    assert integers.max() == 6


def test_runs_err_by_the_variance_that_is_promised():
    plan = plan_of()
    phase = phase_of(plan)
    records = np.random.default_rng(1).normal(size=(USERS, DIMENSION))
    records[0] *= 100.0
    lengths = np.linalg.norm(records, axis=1, keepdims=True)
    clipped = (records * np.minimum(1.0, BOUND * (1.0 - 1e-5) / lengths)).mean(axis=0)
    runs = 400
    errors = np.array([mean_of(plan, records, random_streams(seed)) for seed in range(runs)]) - clipped
    most = (BOUND * phase.counts.multiplier_with_rounding / USERS) ** 2
    least = phase.noise_stddev_on_mean**2
    # A mean square of 1200 nearly normal numbers has a relative standard deviation of sqrt(2 / 1200).
    assert 0.85 * least < np.mean(errors**2) < 1.15 * most
    assert np.abs(errors.mean(axis=0)).max() < 4.0 * math.sqrt(most / runs)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("relation", [NeighboringRelation.REPLACE_ONE, NeighboringRelation.REPLACE_SPECIAL])
def test_one_record_moves_the_counts_by_what_was_charged(relation, dtype):
    plan = replace(plan_of(relation), dtype=dtype)
    phase = phase_of(plan)
    others = np.random.default_rng(2).normal(size=(USERS - 1, DIMENSION))
    null = np.full(DIMENSION, np.nan)
    sizes = (1e-300, 0.3, BOUND, 1e9, 1e60, 1.7e308)
    directions = [np.eye(DIMENSION)[0], np.ones(DIMENSION), np.linspace(0.5, 1.0, DIMENSION)]
    records = [size * direction for size in sizes for direction in directions]
    largest = 0.0
    for seed in range(3):
        for record in records:
            pair = (record, null if relation is NeighboringRelation.REPLACE_SPECIAL else -record)
            some = [mean_of(plan, np.vstack([others, one]), quiet(seed)) for one in pair]
            moved = (some[0] - some[1]) * USERS * phase.levels / (2.0 * BOUND)
            np.testing.assert_allclose(moved, np.round(moved), atol=1e-9)
            reach = float(np.linalg.norm(moved)) / phase.levels
            assert reach <= phase.reach
            largest = max(largest, reach)
    assert largest >= 0.5 * phase.change * 0.99


def quiet(seed: int) -> RecordingStreams:
    """Rounding as drawn, coins that cancel."""
    return RecordingStreams(seed, noise_factor=0.0)


def test_plans_that_do_not_fit_are_refused():
    plan = plan_of()
    records = np.zeros((USERS, DIMENSION))
    null = plan_of(NeighboringRelation.REPLACE_SPECIAL)
    many = calibrate(
        "shuffle_vector_mean",
        Spec(USERS, ApproximateDpTarget(1e-4, 1e-6), dimension=DIMENSION, gradient_bound=Clip(BOUND)),
    ).plan
    assert phase_of(many).message_bits > MAX_MESSAGE_BITS
    for other, words in (
        (replace(null, neighboring_relation=NeighboringRelation.REPLACE_ONE), "smaller changes"),
        (replace(plan, neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE), "n is public"),
        (replace(plan, dataset_size=USERS + 1), "every declared record"),
        (replace(plan, phases=(phase_of(plan), phase_of(plan))), "one phase"),
        (replace(plan, phases=(replace(phase_of(plan), max_grad_norm=1e-101),)), "rescale"),
        (many, r"a run draws at most"),
    ):
        with pytest.raises(InvalidValue, match=words):
            mean_of(other, records, random_streams(1))

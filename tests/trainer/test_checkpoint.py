"""Checkpoints: whole states as bytes, refused by whatever they do not belong to, and resumed bit by bit."""

from __future__ import annotations

import io
import pickle
import zipfile
from dataclasses import replace
from typing import Any

import array_api_strict
import numpy as np
import pytest

from accounting.errors import InvalidValue
from accounting.events import DisjointBatches, Event, FullBatch, Gaussian, Poisson, Sampling, WithoutReplacement
from accounting.relations import NeighboringRelation
from calibrators.geometry import L2Ball, L2Penalty
from calibrators.plan import Clip, Phase, Plan
from calibrators.release import LAST_ITERATE, AverageIterate, RandomIterate, Release, WeightedAverage
from tests.trainer.plans import phase_of, plan_of
from trainer.checkpoint import Binding, Checkpoints, pack, unpack
from trainer.models import Model, MultilayerPerceptron, softmax_regression
from trainer.run import RunCancelled, first_checkpoint, run, steps_in
from trainer.streams import random_streams

BINDING = Binding("hash", "tag", "version")
STEPS = 9


def test_states_come_back_as_they_were() -> None:
    stream = random_streams(1).noise
    stream.words(5)
    state = {
        "point": np.array([1.0, np.nan, -0.0, 5e-324]),
        "count": 7,
        "ratio": 0.1,
        "name": "x",
        "flag": True,
        "nothing": None,
        "inner": {"order": np.arange(3), "stream": stream.state, "width": np.int64(4)},
    }
    back = unpack(BINDING, pack(BINDING, state))
    np.testing.assert_array_equal(back["point"], state["point"])
    assert {name: back[name] for name in ("count", "ratio", "name", "flag", "nothing")} == {
        name: state[name] for name in ("count", "ratio", "name", "flag", "nothing")
    }
    other = random_streams(2).noise
    other.state = back["inner"]["stream"]
    assert other.word() == stream.word()
    assert back["inner"]["width"] == 4


@pytest.mark.parametrize(
    "other", [Binding("else", "tag", "version"), Binding("hash", "else", "version"), Binding("hash", "tag", "else")]
)
def test_checkpoints_of_something_else_are_refused(other: Binding) -> None:
    with pytest.raises(InvalidValue, match="belongs to another") as refusal:
        unpack(other, pack(BINDING, {"a": 1}))
    assert refusal.value.code == "checkpoint_refused"


def written(name: str, value: Any) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive, archive.open(f"{name}.npy", "w") as entry:
        np.lib.format.write_array(entry, np.asarray(value), allow_pickle=True)
    return file.getvalue()


class Trap:
    """Sets a flag when it is unpickled."""

    sprung = False

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return setattr, (Trap, "sprung", True)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK\x03\x04nonsense",
        pickle.dumps(Trap()),
        written("text", np.array([Trap()], dtype=object)),
        written("text", "no json"),
        written("text", "[]"),
        written("other", 1),
        pack(BINDING, {"a": np.ones(100)})[:-40],
    ],
)
def test_bytes_that_are_no_checkpoint_are_refused_and_never_unpickled(data: bytes) -> None:
    with pytest.raises(InvalidValue, match="not the bytes of a checkpoint"):
        unpack(BINDING, data)
    assert not Trap.sprung


def plan_with(sampling: Sampling, release: Release, algorithm: str = "dp_sgd") -> Plan:
    first = Phase(Event(Gaussian(0.7), sampling, count=5), Clip(1.0), 6, (0.5, 0.4, 0.3, 0.2, 0.1))
    second = phase_of(Clip(0.5), probability=0.3, steps=STEPS - 5)
    relation = NeighboringRelation.REPLACE_ONE
    return Plan(algorithm, 40, relation, (first, second), L2Ball(1.0), L2Penalty(0.01), release)


def data(rows: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    return rng.normal(size=(rows, 3)), rng.integers(0, 3, rows)


def values(model: Model, plan: Plan, **options: Any) -> np.ndarray:
    found: np.ndarray = np.concatenate([v.ravel() for v in run(plan, model, *data(), **options).parameters.values()])
    return found


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "sampling",
    [
        FullBatch(),
        Poisson(0.3),
        WithoutReplacement(6, 40),
        DisjointBatches("by_position"),
        DisjointBatches("independent"),
    ],
)
@pytest.mark.parametrize(
    "release", [LAST_ITERATE, AverageIterate(), RandomIterate(), WeightedAverage((0.0,) * 8 + (1.0,))]
)
@pytest.mark.one_in(16)
def test_resumed_runs_go_on_bit_by_bit(sampling: Sampling, release: Release, dtype: str) -> None:
    """From every step at which the run may have died, with a seed that has nothing to do with it."""
    model, plan = MultilayerPerceptron(3, 3, hidden=(4,)), replace(plan_with(sampling, release), dtype=dtype)
    saved: list[bytes] = []
    keep = Checkpoints(saved.append, lambda _: True, "tag", "1.0")
    whole = values(model, plan, seed=4, checkpoint=keep)
    assert len(saved) == STEPS
    for done in (1, 4, 5, 6, STEPS):
        resumed = Checkpoints(saved.append, lambda _: False, "tag", "1.0", resume=saved[done - 1])
        told: list[int] = []
        again = values(model, plan, seed=99, checkpoint=resumed, on_progress=lambda at, _, told=told: told.append(at))
        np.testing.assert_array_equal(again, whole)
        assert told == list(range(done, STEPS + 1))
    assert len(saved) == STEPS


def test_resumed_runs_have_their_rows_in_the_slots_where_they_were() -> None:
    """A thousand rows are in several pieces, and other slots would round their sums otherwise."""
    model, plan = softmax_regression(3, 3), plan_of("dp_sgd", phase_of(Clip(1.0), steps=2), size=1000)
    plan = replace(plan, dtype="float32")
    saved: list[bytes] = []
    keep = Checkpoints(saved.append, lambda _: True, "tag", "1.0")
    whole, other = (
        run(plan, model, *data(1000), streams=streams, checkpoint=some).parameters["weights"]
        for streams, some in (
            (random_streams(4), keep),
            (replace(random_streams(4), slots=random_streams(5).slots), None),
        )
    )
    again = run(
        plan,
        model,
        *data(1000),
        checkpoint=Checkpoints(saved.append, lambda _: False, "tag", "1.0", resume=saved[0]),
    )
    np.testing.assert_array_equal(again.parameters["weights"], whole)
    assert not np.array_equal(other, whole)


def test_a_first_checkpoint_holds_the_streams_of_its_seed_and_no_step() -> None:
    model, plan = MultilayerPerceptron(3, 3, hidden=(4,)), plan_with(Poisson(0.3), RandomIterate())
    binding = Binding(plan.plan_hash, "tag", "1.0")
    first = first_checkpoint(binding, seed=4)
    saved: list[bytes] = []
    keep = Checkpoints(saved.append, lambda done: done == 2, "tag", "1.0", resume=first)
    np.testing.assert_array_equal(values(model, plan, checkpoint=keep), values(model, plan, seed=4))
    assert [steps_in(binding, data) for data in (first, *saved)] == [0, 2]
    assert first_checkpoint(binding) != first_checkpoint(binding)
    with pytest.raises(InvalidValue, match="belongs to another"):
        steps_in(replace(binding, data_tag="other"), first)


def test_a_run_that_was_resumed_can_be_resumed_again() -> None:
    model, plan = softmax_regression(3, 3), plan_with(Poisson(0.3), AverageIterate())
    saved: list[bytes] = []
    whole = values(model, plan, seed=4)
    stop = iter([False] * 3 + [True])
    with pytest.raises(RunCancelled):
        values(
            model,
            plan,
            seed=4,
            checkpoint=Checkpoints(saved.append, lambda done: done == 2, "tag", "1.0"),
            is_cancelled=lambda: next(stop),
        )
    stop = iter([False] * 3 + [True])
    with pytest.raises(RunCancelled) as stopped:
        values(
            model,
            plan,
            checkpoint=Checkpoints(saved.append, lambda done: done == 4, "tag", "1.0", resume=saved[-1]),
            is_cancelled=lambda: next(stop),
        )
    assert (len(saved), stopped.value.steps) == (2, 5)
    again = values(model, plan, checkpoint=Checkpoints(saved.append, lambda _: False, "tag", "1.0", resume=saved[-1]))
    np.testing.assert_array_equal(again, whole)


def test_checkpoints_of_any_array_library_are_the_same_bytes_of_state() -> None:
    model, plan = softmax_regression(3, 3), plan_of("dp_sgd", phase_of(Clip(1.0), probability=0.4), size=40)
    states = []
    for strict in (False, True):
        saved: list[bytes] = []
        features, labels = data()
        rows: tuple[Any, Any] = (features, labels)
        if strict:
            rows = (array_api_strict.asarray(features), array_api_strict.asarray(labels))
        run(plan, model, *rows, seed=4, checkpoint=Checkpoints(saved.append, lambda _: True, "tag", "1.0"))
        states.append(unpack(Binding(plan.plan_hash, "tag", "1.0"), saved[1])["trainer"])
        resume = Checkpoints(saved.append, lambda _: False, "tag", "1.0", resume=saved[1])
        assert run(plan, model, *rows, checkpoint=resume).steps == 3
    np.testing.assert_allclose(states[0]["point"], states[1]["point"], rtol=1e-13)
    assert states[0]["noise"]["used"] == states[1]["noise"]["used"]


@pytest.mark.parametrize("change", ["plan", "tag", "version"])
def test_a_run_refuses_the_checkpoint_of_another(change: str) -> None:
    model, plan = softmax_regression(3, 3), plan_with(FullBatch(), LAST_ITERATE)
    saved: list[bytes] = []
    values(model, plan, seed=4, checkpoint=Checkpoints(saved.append, lambda _: True, "tag", "1.0"))
    other = plan_with(FullBatch(), AverageIterate()) if change == "plan" else plan
    resumed = Checkpoints(
        saved.append,
        lambda _: False,
        "other" if change == "tag" else "tag",
        "1.1" if change == "version" else "1.0",
        resume=saved[0],
    )
    with pytest.raises(InvalidValue, match="belongs to another"):
        values(model, other, checkpoint=resumed)

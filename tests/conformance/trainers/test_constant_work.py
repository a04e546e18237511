"""The work of a run is a function of public numbers: neighbours do the same to arrays of the same shapes, call by call.

What arithmetic costs must not depend on values either: no number that is multiplied or added is subnormal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from calibrators.plan import Plan
from tests.conformance.trainers.examples import FEATURES, every_dtype, every_own_plan, model, plan_of, records_of
from tests.conformance.trainers.traces import Call, traced
from trainer import recursive_gradients
from trainer.algorithms import dp_fw, tree_sfw_l1
from trainer.grid import Grid
from trainer.models import Model, MultilayerPerceptron, build, logistic_regression, softmax_regression
from trainer.run import run
from trainer.shuffle.bits import BitProtocol

Data = tuple[np.ndarray, np.ndarray]


class Releases:
    """What noisy sums and selections are answered: by a run itself, and then the same to its neighbours' runs.

    What leads from releases to the next point may branch on them.
    """

    def __init__(self) -> None:
        self._answers: list[Any] = []

    @contextmanager
    def shared(self) -> Iterator[None]:
        given = iter(self._answers) if self._answers else None

        def answered(own: Callable[..., Any]) -> Callable[..., Any]:
            def answer(*args: Any, **kwargs: Any) -> Any:
                made = own(*args, **kwargs)
                if given is None:
                    self._answers.append(made if not isinstance(made, np.ndarray) else np.array(made))
                    return made
                told = next(given)
                if not isinstance(made, np.ndarray):
                    return told
                made[...] = told
                return made

            return answer

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Grid, "noised", answered(Grid.noised))
            patched.setattr(BitProtocol, "sums", answered(BitProtocol.sums))
            for module in (dp_fw, recursive_gradients, tree_sfw_l1):
                patched.setattr(module, "noisy_vertex", answered(module.noisy_vertex))
            yield


def trace_of(plan: Plan, some: Data, model: Model, releases: Releases) -> list[Call]:
    """What a run does with arrays, but for looking at the rows that it was given."""
    with traced() as trace, releases.shared():
        features, labels = trace.watched(some[0]), trace.watched(some[1])
        run(plan, model, features, labels, seed=7, capacity=2 * plan.dataset_size)
    return [call for call in trace.calls if call[0] != "asarray"]


def neighbours(features: np.ndarray, labels: np.ndarray) -> Iterator[Data]:
    """One record comes, goes or is another; then every record is."""
    yield features[1:], labels[1:]
    yield features[:-1], labels[:-1]
    yield np.vstack([features, features[:1]]), np.append(labels, labels[:1])
    for value in (np.nan, np.inf, 1e300, 1e-310, 1e-39, 0.0):
        one = features.copy()
        one[2] = value
        yield one, labels
    for label in (np.nan, -1e300, 1e-310):
        other = labels.astype(np.float64)
        other[2] = label
        yield features, other
    yield np.full_like(features, np.nan), labels
    yield features[:0], labels[:0]


@every_dtype
@every_own_plan
@pytest.mark.one_in(24)
def test_neighbours_are_worked_on_alike(name: str, plan: Plan, dtype: str) -> None:
    plan = replace(plan, dtype=dtype)
    own, releases = records_of(plan), Releases()
    expected = trace_of(plan, own, model(), releases)
    assert len(expected) > plan.iterations
    for some in neighbours(*own):
        assert trace_of(plan, some, model(), releases) == expected


@every_dtype
@pytest.mark.parametrize("number", range(9))
@pytest.mark.one_in(12)
def test_neighbours_are_worked_on_alike_by_every_model(number: int, dtype: str) -> None:
    some, releases = MODELS[number], Releases()
    plan = replace(plan_of("dp_sgd"), dtype=dtype)
    features, _ = records_of(plan)
    labels = (np.arange(len(features)) % max(some.num_classes, 2)).astype(np.float64)
    expected = trace_of(plan, (features, labels), some, releases)
    for data in neighbours(features, labels):
        assert trace_of(plan, data, some, releases) == expected


@every_dtype
@pytest.mark.parametrize("number", range(9))
@pytest.mark.parametrize("size", [1e-310, 1e-160, 1e-39, 1e-20, 1e-12, 1e17])
@pytest.mark.one_in(4)
def test_no_number_is_subnormal(size: float, number: int, dtype: str) -> None:
    """Whatever the rows hold, and whatever the point has become: in clipped and in normalised steps."""
    some = MODELS[number]
    for name, step_size in (("dp_sgd", 1e-3), ("dp_nsgd", 1e-30), ("dp_nsgd", 3.0)):
        plan = plan_of(name, step_size=step_size)
        features, labels = records_of(plan)
        features = size * np.where(np.arange(len(features))[:, None] % 2, features, features**5)
        with traced() as trace:
            run(
                replace(plan, dtype=dtype),
                some,
                trace.watched(features),
                trace.watched(np.abs(labels) * size),
                seed=7,
            )
        assert trace.subnormal <= {"abs", "asarray", "astype", "clip", "empty", "round", "take", "where"}, name


MODELS: list[Model] = [
    logistic_regression(FEATURES),
    softmax_regression(FEATURES, 4),
    MultilayerPerceptron(FEATURES, 3, hidden=(5, 4), activation="relu"),
    MultilayerPerceptron(FEATURES, 3, hidden=(5,), activation="tanh"),
    *[build(FEATURES, kind=kind) for kind in ("linear_regression", "huber_regression", "quantile_regression")],
    *[build(FEATURES, kind=kind) for kind in ("q_norm_regression", "q_norm_hinge")],
]

"""Models by their kinds, as requests name them."""

from __future__ import annotations

from typing import Any

import pytest

from accounting.errors import InvalidValue
from trainer.models import MODELS, TASKS, Task, build

OPTIONS: dict[str, dict[str, Any]] = {
    "softmax_regression": {"num_classes": 4},
    "huber_regression": {"threshold": 2.0},
    "quantile_regression": {"quantile": 0.9},
    "q_norm_regression": {"q": 1.25},
    "q_norm_hinge": {"q": 1.75},
    "mlp": {"num_classes": 4, "hidden": [8, 4], "activation": "tanh"},
}


@pytest.mark.parametrize("kind", MODELS)
def test_every_kind_builds_the_model_of_its_name(kind: str) -> None:
    model = build(5, kind=kind, **OPTIONS.get(kind, {}))
    assert (model.kind, model.num_features) == (kind, 5)
    expected = {Task.BINARY: 2, Task.CLASSIFICATION: 4, Task.REGRESSION: 0, Task.MEAN: 0}[TASKS[kind]]
    assert model.num_classes == expected
    described = repr(model)
    for value in OPTIONS.get(kind, {}).values():
        assert str(tuple(value) if isinstance(value, list) else value) in described


@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind not in ("mlp", "mean")])
def test_linear_kinds_may_go_without_an_intercept(kind: str) -> None:
    with_one, without = (build(5, kind=kind, num_classes=3, fit_intercept=fit) for fit in (True, False))
    assert with_one.num_parameters - without.num_parameters == (3 if kind == "softmax_regression" else 1)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"kind": "svm"}, "kind must be"),
        ({"kind": "linear_regression", "q": 1.5}, "has no q"),
        ({"kind": "mlp", "num_classes": 2, "q": 1.5}, "has no q"),
        ({"kind": "softmax_regression", "num_classes": 2, "threshold": 1.5}, "has no threshold"),
        ({"kind": "softmax_regression"}, "num_classes"),
    ],
)
def test_what_a_kind_does_not_have_is_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidValue, match=complaint):
        build(5, **options)

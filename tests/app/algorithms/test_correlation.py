"""Correlated noise in `/v1/calibrate`: the chosen bands beside others, and what is refused where it stands."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from app.algorithms.examples import CALIBRATE_EXAMPLES

STAGE = {"iterations": 5, "batch_size": 5}
REQUEST: dict[str, Any] = dict(CALIBRATE_EXAMPLES["dp_bandmf_chosen_bands"]["value"])


def ask(reader: TestClient, **changes: Any) -> Any:
    body = {name: value for name, value in (REQUEST | changes).items() if value is not ...}
    return reader.post("/v1/calibrate", json=body)


def test_the_best_number_of_bands_stands_beside_the_others(reader: TestClient) -> None:
    body = ask(reader).json()
    rows = body["alternatives"]
    assert [row["bands"] for row in rows] == [1, 2, 4, 8, 16, 32, 64]
    assert [row["bands"] for row in rows if row["is_chosen"]] == [8]
    assert rows[0]["ratio"] == 1.0
    assert rows[3]["ratio"] == pytest.approx(0.8626, abs=6e-5)
    assert rows[3]["memory"] == 4 * 7 * 7850
    assert rows[3]["noise_multiplier"] == body["solution"]["noise_multiplier"]
    [phase] = body["plan"]["phases"]
    assert (phase["kind"], phase["momentum"]) == ("correlated_steps", 0.0)
    assert len(phase["event"]["mechanism"]["coefficients"]) == 8
    assert phase["event"]["sampling"] == {
        "kind": "cyclic_poisson",
        "sampling_probability": 0.08,
        "cycle_length": 8,
        "assignment": "independent",
    }
    named = {each["name"]: each for each in (*body["hyperparameters"], *body["utility"])}
    assert named["coefficients"]["value"] == phase["event"]["mechanism"]["coefficients"]
    assert named["error_over_independent_noise"]["value"] == rows[3]["ratio"]
    assert named["noise_over_coefficient_norm"]["source"].endswith("Theorem 4")
    assert named["memory_bytes"]["value"] == rows[3]["memory"]


def test_a_number_of_bands_and_momentum_are_as_they_were_given(reader: TestClient) -> None:
    body = ask(reader, correlation={"bands": 16.0, "objective": "max"}, hyperparameters={"momentum": 0.9}).json()
    [phase] = body["plan"]["phases"]
    assert (len(phase["event"]["mechanism"]["coefficients"]), phase["momentum"]) == (16, 0.9)
    assert [(row["bands"], row["is_chosen"]) for row in body["alternatives"]] == [(1, False), (16, True)]
    left_out = ask(reader, correlation=...).json()
    assert left_out["plan_hash"] == ask(reader).json()["plan_hash"]


def test_step_sizes_fall_as_they_were_asked_to(reader: TestClient) -> None:
    falling = {"step_size": 0.5, "momentum": 0.9, "step_size_schedule": {"kind": "linear", "cooldown": 0.5}}
    short = {"iterations": 200, "correlation": {"bands": 8}}
    body = ask(reader, hyperparameters=falling, **short).json()
    [phase] = body["plan"]["phases"]
    assert phase["step_size"][:101] == [0.5] * 101
    assert phase["step_size"][150] == pytest.approx(0.25)
    assert phase["step_size"][-1] == pytest.approx(0.005)
    shorthand = ask(reader, hyperparameters={"step_size_schedule": "cosine"}, **short).json()
    assert shorthand["plan"]["phases"][0]["step_size"] is None
    ratios = [
        next(row["ratio"] for row in answer["alternatives"] if row["is_chosen"])
        for answer in (body, shorthand, ask(reader, **short).json())
    ]
    assert len(set(ratios)) == 3, "the coefficients are made for the step sizes"
    rows = reader.post(
        "/v1/sweep",
        json=REQUEST | short | {"hyperparameters": {"step_size_schedule": ["constant", "linear", "cosine"]}},
    ).json()["rows"]
    assert [row["value"] for row in rows] == ["constant", "linear", "cosine"]


def test_what_not_sampling_loses_stands_beside_it(reader: TestClient) -> None:
    body = ask(reader, sampling="fixed_order_epochs", neighboring_relation="replace_special").json()
    best = {kind: min(row["error"] for row in body["alternatives"] if row["sampling"] == kind) for kind in (
        "fixed_order_epochs", "cyclic_poisson"
    )}  # fmt: skip
    assert best["fixed_order_epochs"] > best["cyclic_poisson"]
    assert [row["sampling"] for row in body["alternatives"] if row["is_chosen"]] == ["fixed_order_epochs"]


def test_answers_of_independent_noise_have_no_alternatives(reader: TestClient) -> None:
    body = reader.post("/v1/calibrate", json=CALIBRATE_EXAMPLES["dp_sgd_poisson"]["value"]).json()
    assert "alternatives" not in body
    given = ask(
        reader,
        correlation={"bands": 8},
        noise_multiplier=3.0,
        solve_for="epsilon",
        target={"kind": "approximate_dp", "delta": 1e-5},
    ).json()
    assert "alternatives" not in given
    assert given["solution"]["epsilon"] < 2.0


@pytest.mark.parametrize(
    ("changes", "code", "pointer"),
    [
        ({"correlation": {"bands": 101, "max_bands": 200}}, "invalid_value", "/correlation/bands"),
        ({"correlation": {"bands": 65}}, "invalid_value", "/correlation/bands"),
        ({"correlation": {"bands": 0}}, "out_of_range", "/correlation/bands"),
        ({"correlation": {"bands": "many"}}, "wrong_type", "/correlation/bands"),
        ({"correlation": {"max_bands": 1025}}, "out_of_range", "/correlation/max_bands"),
        ({"correlation": {"objective": "median"}}, "unknown_value", "/correlation/objective"),
        ({"hyperparameters": {"momentum": 1.0}}, "out_of_range", "/hyperparameters/momentum"),
        ({"sampling": "poisson"}, "unsupported_sampling", "/sampling"),
        (
            {"hyperparameters": {"step_size_schedule": "steep"}},
            "unknown_value",
            "/hyperparameters/step_size_schedule",
        ),
        (
            {"hyperparameters": {"step_size_schedule": {"kind": "linear", "cooldown": 0}}},
            "out_of_range",
            "/hyperparameters/step_size_schedule/cooldown",
        ),
        (
            {"hyperparameters": {"step_size_schedule": "linear"}, "iterations": 5000},
            "unsupported",
            "/hyperparameters/step_size_schedule",
        ),
        (
            {
                "hyperparameters": {"step_size_schedule": "linear"},
                "iterations": 100,
                "correlation": {"bands": 2, "objective": "max"},
            },
            "unsupported",
            "/correlation/objective",
        ),
        (
            {"algorithm": "dp_sgd", "correlation": ..., "hyperparameters": {"step_size_schedule": "linear"}},
            "unsupported",
            "/hyperparameters/step_size_schedule",
        ),
        (
            {"sampling": "fixed_order_epochs", "neighboring_relation": "add_or_remove_one"},
            "unsupported_relation",
            "/sampling",
        ),
        (
            {"solve_for": "epsilon", "noise_multiplier": 3.0, "target": {"kind": "approximate_dp", "delta": 1e-5}},
            "unsupported",
            "/solve_for",
        ),
        ({"schedule": {"stages": [STAGE]}, "batch_size": ..., "iterations": ...}, "unsupported", "/schedule/stages"),
        ({"algorithm": "dp_sgd", "correlation": {"bands": 8}}, "unsupported", "/correlation"),
        (
            {"algorithm": "dp_sgd", "correlation": ..., "hyperparameters": {"momentum": 0.9}},
            "unsupported",
            "/hyperparameters/momentum",
        ),
    ],
)
def test_what_is_not_covered_is_refused_where_it_stands(
    reader: TestClient, changes: dict[str, Any], code: str, pointer: str
) -> None:
    answer = ask(reader, **changes)
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert (error["code"], error["pointer"]) == (code, pointer)


def test_a_sweep_goes_over_bands(reader: TestClient) -> None:
    found = reader.post("/v1/sweep", json=REQUEST | {"correlation": {"bands": [1, 4, 8]}}).json()
    assert [row["value"] for row in found["rows"]] == [1, 4, 8]
    assert [row["solution"]["noise_multiplier"] for row in found["rows"]] == pytest.approx(
        [1.149332, 1.981190, 2.708087], abs=2e-6
    )


def test_an_algorithm_says_that_it_correlates(reader: TestClient) -> None:
    items = {each["name"]: each for each in reader.get("/v1/algorithms").json()["items"]}
    assert [name for name, each in items.items() if each["correlates"]] == ["dp_bandmf"]
    assert items["dp_bandmf"]["samplings"] == ["cyclic_poisson", "fixed_order_epochs"]


def test_what_takes_too_long_says_what_would_be_quicker_here(
    reader: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Poisson batches and full ones are not for noise that is correlated."""
    monkeypatch.setattr(reader.app.state.context.processes, "seconds", 0.0)  # type: ignore[attr-defined]
    problem = ask(reader, dataset_size=49_999, correlation={"bands": "auto", "max_bands": 1024}).json()
    assert (problem["code"], problem["errors"][0]["pointer"]) == ("too_much_work", "/correlation")
    assert "poisson" not in problem["detail"]

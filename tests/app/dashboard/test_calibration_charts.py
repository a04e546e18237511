"""Charts of a calibration have the ends of intervals that promise less, each number at its place, for one relation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from fastapi import Request

from app.dashboard import calibration_charts
from app.dashboard.asking import Answer
from app.dashboard.calibration_charts import Drawn, epsilon_over_steps, solution_over_target, trade_off
from app.dashboard.charts import Chart
from tests.app.dashboard.requests import a_request

EVENT = {"mechanism": {"kind": "gaussian", "noise_multiplier": 3.0}, "count": 3}
TARGET = {"kind": "approximate_dp", "epsilon": 2.0, "delta": 1e-6}
ANSWER: dict[str, Any] = {
    "events": [EVENT],
    "achieved": {"epsilon": {"lower": 1.9, "upper": 2.0}, "delta": 1e-6},
    "convention": {"neighboring_relation": "replace_one"},
    "solution": {"noise_multiplier": 3.0},
}


@dataclass
class Service:
    """What stands in the place of the service: what it was asked, and what it answers."""

    answers: Callable[[dict[str, Any]], dict[str, Any]]
    bodies: list[dict[str, Any]] = field(default_factory=list)

    async def ask(self, request: Request, method: str, path: str, *, body: dict[str, Any]) -> Answer:
        self.bodies.append(body)
        return Answer(200, self.answers(body))


def interval(lower: float) -> dict[str, float]:
    """One whose ends nobody takes for each other."""
    return {"lower": lower, "upper": 2 * lower}


def drawn(
    monkeypatch: pytest.MonkeyPatch, draw: Any, service: Service, answer: Mapping[str, Any] = ANSWER
) -> tuple[Chart, Drawn]:
    monkeypatch.setattr(calibration_charts, "ask", service.ask)
    found: Drawn = asyncio.run(draw(a_request(), {"target": TARGET}, answer))
    assert found.chart is not None, found.reason
    return found.chart, found


def test_each_number_of_steps_has_the_upper_end_of_what_it_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(lambda body: {"epsilon": interval(body["events"][0]["count"])})
    chart, _ = drawn(monkeypatch, epsilon_over_steps, service)
    assert chart.rows == (("0", "0"), ("1", "2"), ("2", "4"), ("3", "6"))
    assert "costs at most 6" in chart.description
    assert {(body["neighboring_relation"], body["delta"]) for body in service.bodies} == {("replace_one", 1e-6)}
    assert [level.text for level in chart.levels] == ["target 2"]


def test_an_attacker_is_left_with_at_least_the_lower_end(monkeypatch: pytest.MonkeyPatch) -> None:
    risk = {
        "advantage": interval(0.125),
        "true_positive_rates": [{"tpr": interval(0.03)}],
        "bayes_risks": [{"success_probability": interval(0.3)}],
    }
    rates = [{"false_positive_rate": rate, "false_negative_rate": interval(0.25 - rate / 4)} for rate in (0.0, 0.5)]
    service = Service(lambda body: {"curve": {"trade_off": rates}, "attack_risk": risk})
    chart, found = drawn(monkeypatch, trade_off, service)
    assert [row[:2] for row in chart.rows] == [("0", "0.25"), ("0.5", "0.125"), ("1", "")]
    assert [value for _, value in found.facts] == ["at most 0.25", "at most 6 %", "at most 60 %"]
    assert service.bodies[0]["neighboring_relation"] == "replace_one"


def test_other_targets_have_what_was_found_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several scales of noise the largest; and the mark is on the line, where the reader is."""

    def swept(body: dict[str, Any]) -> dict[str, Any]:
        rows = [{"value": value, "solution": {"noise": [1.0, 6.0 / value]}} for value in body["target"]["epsilon"]]
        return {"rows": [*rows[:-1], rows[-1] | {"solution": None}]}

    answer = ANSWER | {"solution": {"noise": [1.0, 3.0]}}
    chart, _ = drawn(monkeypatch, solution_over_target, Service(swept), answer)
    assert chart.rows == (("0.5", "12"), ("1", "6"), ("2", "3"), ("4", "1.5"), ("8", ""))
    [mark] = chart.marks
    here = next(marker for marker in chart.lines[0].markers if marker.tip.startswith("epsilon at delta 1e-6 2:"))
    assert (mark.x, mark.y) == (here.x, here.y)

"""The figures of docs/measured.md are those of the committed results, which say what was measured, and on what."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import report, table
from benchmarks.accounting import allocations, widths
from benchmarks.accounting.goals import goals
from benchmarks.accounting.markdown import accounting_section
from benchmarks.accounting.peers import DISTRIBUTIONS, PEERS, PLD

FIGURES = report.read("accounting")


def test_the_page_is_the_one_that_the_results_make() -> None:
    assert table.PAGE.read_text() == table.measured_page(), "run: python -m benchmarks.table"


def test_every_committed_result_is_in_the_page_and_nothing_else_is() -> None:
    assert {path.stem for path in report.FOLDER.glob("*.json")} == set(table.SECTIONS)


def test_the_results_say_when_where_and_with_what_they_were_measured() -> None:
    assert FIGURES["quick"] is False, "run: make bench-accounting"
    assert FIGURES["command"] == "make bench-accounting"
    assert re.fullmatch(r"[0-9a-f]{40}", FIGURES["commit"])
    assert re.fullmatch(r"[0-9a-f]{64}", FIGURES["source_sha256"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", FIGURES["date"])
    assert set(FIGURES["versions"]) == {"python", *DISTRIBUTIONS}
    assert FIGURES["machine"]["cores"] >= 1
    assert FIGURES["machine"]["cpu"]


def test_both_sides_are_there_for_every_epsilon() -> None:
    rows = [*FIGURES["epsilon_calibrated"], *FIGURES["epsilon_trainings"]]
    assert len(rows) > 3
    for row in rows:
        assert row["ours"]["lower"] <= row["ours"]["upper"]
        assert set(row["peers"]) == {peer.name for peer in PEERS}
        for found in row["peers"].values():
            assert_timed_or_failed(found)


def test_both_sides_are_there_for_every_calibration() -> None:
    assert len(FIGURES["calibration"]) == 3
    for row in FIGURES["calibration"]:
        assert row["ours"]["noise_multiplier"] > 0.0
        assert set(row["peers"]) == {peer.name for peer in PEERS if peer.noise is not None}
        for found in row["peers"].values():
            assert_timed_or_failed(found)


def test_our_intervals_contain_the_references() -> None:
    """Also a regression test of the engine that was measured: each reference was made with 30 digits."""
    assert all(row["ours"]["contains_reference"] for row in FIGURES["epsilon_trainings"])


def test_no_calibration_of_ours_misses() -> None:
    assert FIGURES["targets"]["missed"] == 0
    assert all(row["ours"]["unused_epsilon"] >= 0.0 for row in FIGURES["calibration"])


def test_goals_are_those_that_the_figures_give() -> None:
    assert FIGURES["goals"] == goals(FIGURES)


def test_allocations_are_all_there_and_both_sides_overlap() -> None:
    figures = report.read("allocations")
    assert figures["goals"] == allocations.goals(figures["rows"])
    assert [allocations.Allocation(**row["case"]) for row in figures["rows"]] == list(allocations.CASES)
    for row in figures["rows"]:
        own, other = row["ours"], row["theirs"]
        assert own["lower"] <= own["upper"]
        assert "error" in other or max(own["lower"], other["lower"]) <= min(own["upper"], other["upper"])


def test_goals_of_allocations_can_be_missed() -> None:
    row = {
        "case": {"chosen": 1},
        "ours": {"lower": 1.0, "upper": 1.0},
        "our_seconds": 0.1,
        "theirs": {"lower": 0.9, "upper": 1.1},
    }
    assert all(goal["met"] for goal in allocations.goals([row]))
    wide = row | {"ours": {"lower": 1.0, "upper": 1.2}, "our_seconds": 2.0}
    assert not any(goal["met"] for goal in allocations.goals([wide]))


def test_widths_are_all_there_and_none_grew() -> None:
    figures = report.read("widths")
    assert figures["goals"] == widths.goals(figures["rows"])
    assert [(row["scheme"], row["case"]) for row in figures["rows"]] == [
        (case.scheme, case.name) for case in widths.CASES
    ]
    for row in figures["rows"]:
        first, now = row["first"], row["now"]
        assert now["lower"] <= now["upper"] <= first["upper"] * (1.0 + 1e-6)
        # Both contain the same number.
        assert max(first["lower"], now["lower"]) <= min(first["upper"], now["upper"]) * (1.0 + 1e-9)


def test_goals_of_widths_can_be_missed() -> None:
    narrow = {"lower": 0.999, "upper": 1.0}
    assert all(goal["met"] for goal in widths.goals([{"first": narrow, "now": narrow}]))
    wide = {"lower": 0.9, "upper": 1.1}
    assert not any(goal["met"] for goal in widths.goals([{"first": narrow, "now": wide}]))


def test_what_is_not_narrow_is_listed() -> None:
    width = FIGURES["width"]
    assert width["narrow"] + len(width["missed"]) + len(width["exceptions"]) == width["specs"]


def test_every_goal_can_be_met_and_can_be_missed() -> None:
    assert all(goal["met"] for goal in goals(perfect()))
    rows: dict[str, Callable[[dict[str, Any]], None]] = {
        "calibrated runs": lambda figures: figures["epsilon_calibrated"][0]["peers"][PLD.name].update(ratio=49.9),
        "training runs": lambda figures: figures["epsilon_trainings"][0]["peers"][PLD.name].update(ratio=49.9),
        "noise multiplier": lambda figures: figures["calibration"][0]["peers"][PLD.name].update(ratio=99.9),
        "cost flat": lambda figures: figures["flatness"][0].update(ratio=1.51),
        "few participations": lambda figures: figures["few_participations"].update(median_epsilon_milliseconds=50.1),
        "width at most": lambda figures: figures["width"].update(finite=figures["width"]["specs"] - 1),
        "wide random": lambda figures: figures["width"].update(narrow=0.97 * figures["width"]["specs"]),
        "random runs": lambda figures: figures["width"].update(exceptions=[{}]),
        "fixed-size": lambda figures: figures["fixed_size"][0].update(epsilon_over_ours=1.59),
        "calibration,": lambda figures: figures["targets"].update(missed=1),
        "targets: missed": lambda figures: figures["calibration"][0]["ours"].update(unused_epsilon=-1e-12),
        "left unused": lambda figures: figures["targets"].update(largest_unused_epsilon=1.1e-4),
    }
    for words, spoil in rows.items():
        spoilt = perfect()
        spoil(spoilt)
        (missed,) = [goal for goal in goals(spoilt) if not goal["met"]]
        assert words in missed["what"]


def test_an_infinite_answer_is_no_answer() -> None:
    spoilt = copy.deepcopy(FIGURES)
    for row in spoilt["calibration"]:
        row["peers"][PLD.name] |= {"value": "inf", "ratio": 1e9}
    (calibration,) = [goal for goal in goals(spoilt) if "calibrated noise multiplier" in goal["what"]]
    assert calibration["measured"] == "no answer to compare"
    assert not calibration["met"]


def test_a_figure_that_changes_changes_the_table() -> None:
    section = accounting_section(FIGURES)
    for path in (
        ("commit",),
        ("versions", "dp-accounting"),
        ("machine", "cpu"),
        ("goals", 0, "measured"),
        ("width", "narrow"),
    ):
        changed = copy.deepcopy(FIGURES)
        *parents, last = path
        target: Any = changed
        for key in parents:
            target = target[key]
        target[last] = 7 if isinstance(target[last], int) else "something else"
        assert accounting_section(changed) != section, path


def test_a_peer_below_the_certified_lower_end_is_marked() -> None:
    changed = copy.deepcopy(FIGURES)
    for row in changed["epsilon_trainings"]:
        row["peers"]["autodp RDP"] |= {"value": 0.125, "ratio": 1.0, "verdict": "below"}
    rows = [line for line in accounting_section(changed) if "0.125 ⚠" in line]
    assert len(rows) == len(FIGURES["epsilon_trainings"])


def test_every_number_is_one_that_json_has() -> None:
    for value in leaves(FIGURES):
        assert not isinstance(value, float) or math.isfinite(value)


def perfect() -> dict[str, Any]:
    """The committed results with every goal's figure just good enough."""
    figures = copy.deepcopy(FIGURES)
    for section, ratio in (("epsilon_calibrated", 50.0), ("epsilon_trainings", 50.0), ("calibration", 100.0)):
        for row in figures[section]:
            row["peers"][PLD.name] |= {"value": 1.0, "ratio": ratio}
    for row in figures["calibration"]:
        row["ours"]["unused_epsilon"] = 1e-4
    for row in figures["flatness"]:
        row["ratio"] = 1.5
    for row in figures["fixed_size"]:
        row["epsilon_over_ours"] = 1.6
    figures["few_participations"]["median_epsilon_milliseconds"] = 50.0
    specs = figures["width"]["specs"]
    figures["width"] |= {"narrow": 0.98 * specs, "finite": specs, "exceptions": []}
    figures["targets"] |= {"missed": 0, "largest_unused_epsilon": 1e-4}
    return figures


def assert_timed_or_failed(found: dict[str, Any]) -> None:
    if "error" in found:
        assert found["error"]
    else:
        assert found["ratio"] > 0.0
        assert found["ours_milliseconds"] > 0.0
        assert found["peer_milliseconds"] > 0.0
        assert found["rounds"] >= 1


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from leaves(item)
    else:
        yield value

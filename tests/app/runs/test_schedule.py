"""The schedule of private runs: arithmetic on public numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.runs.executors.paces import Pace
from app.runs.pacing import MARGIN, READING_MARGIN, schedule_of
from app.runs.schedule import Schedule, longest, next_multiple, seconds_to_release

SCHEDULE = Schedule(steps=100, loading_s=0.5, step_s=0.25, ending_s=0.4, interval_s=1.0, checkpoint_steps=8)


def test_the_bound_is_a_multiple_of_the_interval_and_holds_all_parts():
    assert SCHEDULE.bound_s() == 26.0
    assert SCHEDULE.bound_s(first=100) == 1.0
    assert replace(SCHEDULE, interval_s=0.1).bound_s() == pytest.approx(25.9)


def test_a_multiple_stays_itself_whatever_rounding_did_to_it():
    assert next_multiple(0.1 + 0.2, 0.1) == pytest.approx(0.3)
    assert next_multiple(0.0, 0.5) == 0.5
    assert next_multiple(7.01, 0.5) == 7.5


def test_steps_are_shown_after_loading_one_by_one_and_never_beyond_the_last():
    shown = [SCHEDULE.steps_at(seconds) for seconds in (0.0, 0.5, 0.74, 0.75, 5.5, 1e9)]
    assert shown == [0, 0, 0, 1, 20, 100]
    assert SCHEDULE.steps_at(0.1, first=30) == 30


def test_a_late_run_ends_at_a_twentieth_of_its_time_and_no_oftener_than_the_interval():
    assert SCHEDULE.late_interval_s == 2.0
    assert replace(SCHEDULE, steps=10).late_interval_s == 1.0


def test_the_next_claim_begins_before_what_was_shown_by_as_much_as_a_loss_may_cost():
    assert SCHEDULE.first_step(50) == 42
    assert SCHEDULE.first_step(3) == 0


@pytest.mark.parametrize(
    ("planned", "expected"),
    [(None, 10.0), (12.0, 12.0), (9.0, 11.0), (-30.5, 11.5), (10.0, 10.0), (1e9 + 0.5, 10.5)],
)
def test_a_later_claim_keeps_to_the_times_of_the_first(planned, expected):
    assert seconds_to_release(10.0, 2.0, planned, longest_s=26.0) == expected


def test_trials_share_what_is_longest_in_any_of_them():
    other = replace(SCHEDULE, steps=10, loading_s=2.0)
    assert longest([SCHEDULE, other]) == replace(SCHEDULE, loading_s=2.0)


def test_a_schedule_is_stored_whole():
    assert Schedule.from_json(SCHEDULE.to_json()) == SCHEDULE


def test_what_was_measured_is_taken_with_a_margin(context, monkeypatch):
    class Plan:
        iterations = 40

    class Work:
        plan = Plan()

    made = schedule_of(Work(), Pace(reading_s=1.0, preparing_s=2.0, step_s=0.1, scoring_s=4.0), context.settings)
    assert made.steps == 40
    assert made.step_s == pytest.approx(MARGIN * 0.1)
    assert made.loading_s > READING_MARGIN > MARGIN
    assert made.ending_s > 6.0 * MARGIN
    assert made.checkpoint_steps * made.step_s >= context.settings.checkpoint_interval_s

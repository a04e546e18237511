"""Schedules of step sizes: their shares, their ends, and what is refused."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import InvalidValue
from calibrators.step_sizes import Course, StepSizeSchedule


def test_a_line_over_the_whole_run_is_one_minus_the_share_of_the_run() -> None:
    assert StepSizeSchedule(Course.LINEAR).shares(200) == pytest.approx([1.0 - t / 200 for t in range(200)], abs=1e-15)


def test_a_cosine_over_the_last_quarter() -> None:
    found = StepSizeSchedule(Course.COSINE, 0.25, 0.1).shares(400)
    assert found[:301] == (1.0,) * 301
    assert found[350] == pytest.approx(0.55)
    assert found[375] == pytest.approx(0.1 + 0.45 * (1.0 + math.cos(0.75 * math.pi)))


@given(
    kind=st.sampled_from(Course),
    cooldown=st.floats(1e-6, 1.0),
    final_share=st.floats(0.0, 1.0),
    steps=st.integers(1, 300),
)
def test_step_sizes_never_rise_and_never_end(kind: Course, cooldown: float, final_share: float, steps: int) -> None:
    schedule = StepSizeSchedule(kind, cooldown, final_share)
    found = schedule.shares(steps)
    assert len(found) == steps
    assert found[0] == 1.0
    assert all(0.0 < later <= earlier for earlier, later in pairwise(found))
    assert found[-1] >= final_share
    if schedule.is_constant:
        assert set(found) == {1.0}


@pytest.mark.parametrize(
    ("name", "value"),
    [("cooldown", 0.0), ("cooldown", 1.5), ("cooldown", math.nan), ("final_share", -0.1), ("final_share", 1.5)],
)
def test_what_is_no_share_is_refused(name: str, value: float) -> None:
    with pytest.raises(InvalidValue) as caught:
        StepSizeSchedule(Course.LINEAR, **{name: value})
    assert caught.value.pointer == (name,)

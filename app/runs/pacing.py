"""Make the schedule of a private run from public numbers and from this machine's speed on dummy rows.

The margin is a compromise: with a smaller one, runs are late if the machine is a little slower than when it was
measured; with a larger one, everybody waits.
"""

from __future__ import annotations

import math

from app.context import Context
from app.datasets import repository as datasets
from app.runs import declarations
from app.runs import sweep_repository as sweeps
from app.runs.executors.interface import Executor
from app.runs.executors.paces import Pace
from app.runs.schedule import Schedule, longest
from app.runs.work import Work, work_of
from app.settings import Settings
from app.tables.runs import Run

#: The safety factor by which measured times are multiplied.
MARGIN = 1.25
#: The factor for reading. It is larger, since reading is the only part whose time grows with the number of rows, and it
#: should hardly ever be late.
READING_MARGIN = 2.0
#: The seconds that are added for transactions and files: when a claim begins, and when it ends.
LOADING_ALLOWANCE_S, ENDING_ALLOWANCE_S = 0.25, 0.2


def schedule_for(context: Context, run: Run, executor: Executor) -> Schedule | None:
    """Return the schedule of a claimed run. This is the schedule that the run already has, or a new one. None if its
    data are public.

    All trials of a sweep that releases the best one have the same schedule, which is as long as the longest cell needs.
    """
    if run.dataset_id is None:
        return None
    with declarations.checked(context, run) as session:
        dataset = datasets.find(session, run.dataset_id)
        assert dataset is not None, "data sets are marked deleted, and stay"
        if dataset.is_public:
            return None
        stored = run.schedule
        if stored is None and run.is_withheld and run.sweep_id is not None:
            stored = sweeps.schedule_of_trials(session, run.sweep_id)
        if stored is not None:
            return Schedule.from_json(stored)
        cells = sweeps.drafts(session, run.sweep_id) if run.is_withheld and run.sweep_id is not None else []
        same = [Run(**{**draft, "plan": draft["plan"].encode()}) for draft in cells] or [run]
        works = [work_of(session, each) for each in same]
    # Cells that differ only in step sizes or noise take the same time.
    distinct = {(work.shape, work.plan.iterations): work for work in works}
    return longest(schedule_of(work, executor.pace(work), context.settings) for work in distinct.values())


def schedule_of(work: Work, pace: Pace, settings: Settings) -> Schedule:
    """Return the schedule of a run: a function of its arguments, all of which are public."""
    step_s = MARGIN * pace.step_s
    return Schedule(
        steps=work.plan.iterations,
        loading_s=READING_MARGIN * pace.reading_s + LOADING_ALLOWANCE_S,
        step_s=step_s,
        ending_s=MARGIN * (pace.preparing_s + pace.scoring_s) + ENDING_ALLOWANCE_S,
        interval_s=settings.release_interval_s,
        checkpoint_steps=math.ceil(settings.checkpoint_interval_s / step_s) + 1,
    )

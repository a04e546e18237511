"""A warm process is handed on idle and whole, and its pool is otherwise like any other."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from app.context import Context
from app.fence.watching import fenced_context
from app.kit.process_pool import JobFailed
from tests.databases import on_one_engine
from tests.warm_processes import MOST_KEPT, WarmProcesses


@pytest.fixture
def warm() -> Iterator[WarmProcesses]:
    warm = WarmProcesses()
    yield warm
    warm.close()


def test_a_process_is_handed_on_when_its_pool_is_closed_and_ended_with_the_stock(warm: WarmProcesses) -> None:
    first, second = warm.pools()["processes"], warm.pools()["processes"]
    served = first.run(os.getpid)
    first.close()
    with pytest.raises(JobFailed):
        first.run(os.getpid)
    assert second.run(os.getpid) == served
    second.close()
    warm.close()
    with pytest.raises(ProcessLookupError):
        os.kill(served, 0)


def test_none_is_handed_on_that_ended_or_has_other_limits(warm: WarmProcesses) -> None:
    numerics, audits = warm.pools().values()
    ended = numerics.run(os.getpid)
    with pytest.raises(JobFailed):
        numerics.run(os.abort)
    killed, other = numerics.run(os.getpid), audits.run(os.getpid)
    numerics.close()
    audits.close()
    os.kill(killed, signal.SIGKILL)
    os.waitid(os.P_PID, killed, os.WEXITED | os.WNOWAIT)
    again = warm.pools()["processes"]
    assert again.run(os.getpid) not in (ended, killed, other)
    again.close()


@on_one_engine
def test_its_pools_are_those_of_a_context(context: Context) -> None:
    plain = fenced_context(context.settings, context.database)
    for name in ("processes", "audit_processes"):
        ours, theirs = getattr(context, name), getattr(plain, name)
        assert type(ours) is not type(theirs)
        assert (ours.seconds, ours.memory_bytes, ours.gate.places) == (
            theirs.seconds,
            theirs.memory_bytes,
            theirs.gate.places,
        )
        assert ours.gate.places <= MOST_KEPT

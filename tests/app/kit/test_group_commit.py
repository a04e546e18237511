"""Group commit: nobody waits for company, nobody is forgotten, and who fails with others is tried alone."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest

from app.kit.group_commit import LARGEST_GROUP, GroupCommit
from tests.app.kit.waiting_line import PATIENCE_S, refuse, start, wait_for, waiting

Commits = GroupCommit[int, int]


@dataclass
class Work:
    """What is done in groups: ten times each number. It can be held up, once, and refuses groups with a -1."""

    groups: list[list[int]] = field(default_factory=list)
    is_held_up: bool = False
    begun: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    at_work: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, items: Sequence[int]) -> list[int]:
        assert self.at_work.acquire(blocking=False), "two groups at once"
        try:
            self.groups.append(list(items))
            if self.is_held_up:
                self.is_held_up = False
                self.begun.set()
                assert self.released.wait(PATIENCE_S)
            if -1 in items:
                raise ValueError("refused")
            return [10 * item for item in items]
        finally:
            self.at_work.release()


@dataclass
class Line:
    """Those who submit, each behind the one before."""

    commits: Commits = field(default_factory=GroupCommit)
    work: Work = field(default_factory=Work)

    def submit(self, item: int) -> Future[int]:
        return self.commits.submit(item, self.work, refuse)

    def hold_up(self, item: int) -> Future[int]:
        """Let someone begin, and not get ahead until `Work.released`."""
        self.work.is_held_up = True
        held_up = self.submit(item)
        assert self.work.begun.wait(PATIENCE_S)
        return held_up


@pytest.fixture
def line() -> Line:
    return Line()


def results(futures: Sequence[Future[int]]) -> list[int]:
    return [each.result(PATIENCE_S) for each in futures]


def test_who_comes_alone_is_done_at_once(line: Line) -> None:
    assert [line.submit(item).result(PATIENCE_S) for item in (1, 2)] == [10, 20]
    assert line.work.groups == [[1], [2]]


def test_those_who_come_meanwhile_are_done_together_in_the_order_in_which_they_came(line: Line) -> None:
    first = line.hold_up(0)
    others = [line.submit(item) for item in (5, 3, 4, 1, 2)]
    assert not first.done()
    line.work.released.set()
    assert results([first, *others]) == [0, 50, 30, 40, 10, 20]
    assert line.work.groups == [[0], [5, 3, 4, 1, 2]]


def test_a_group_has_a_largest_size_and_the_rest_is_the_next_group(line: Line) -> None:
    first = line.hold_up(0)
    others = [line.submit(item) for item in range(1, LARGEST_GROUP + 10)]
    line.work.released.set()
    assert results([first, *others]) == [10 * item for item in range(LARGEST_GROUP + 10)]
    assert line.work.groups == [
        [0],
        list(range(1, LARGEST_GROUP + 1)),
        list(range(LARGEST_GROUP + 1, LARGEST_GROUP + 10)),
    ]


def test_an_error_reaches_everyone_of_the_group_and_nobody_else(line: Line) -> None:
    first = line.hold_up(0)
    others = [line.submit(item) for item in (1, -1, 2)]
    line.work.released.set()
    assert first.result(PATIENCE_S) == 0
    for each in others:
        with pytest.raises(ValueError, match="refused"):
            each.result(PATIENCE_S)
    assert line.submit(3).result(PATIENCE_S) == 30
    assert line.work.groups == [[0], [1, -1, 2], [3]]


def test_an_error_of_the_first_group_does_not_keep_the_next_from_its_turn(line: Line) -> None:
    first = line.hold_up(-1)
    others = [line.submit(item) for item in (1, 2)]
    line.work.released.set()
    with pytest.raises(ValueError, match="refused"):
        first.result(PATIENCE_S)
    assert results(others) == [10, 20]


def test_everyone_whose_group_failed_is_tried_alone_while_the_next_group_is_done(line: Line) -> None:
    come, failures = threading.Barrier(4), list[str]()

    def rescue(item: int, error: BaseException) -> int:
        failures.append(str(error))
        come.wait(PATIENCE_S)  # all three are at it at once, and so is whoever waits for them
        if item == -1:
            raise KeyError("its own fault")
        return 100 * item

    first = line.hold_up(0)
    others = [line.commits.submit(item, line.work, rescue) for item in (1, -1, 2)]
    line.work.released.set()
    assert first.result(PATIENCE_S) == 0
    wait_for(lambda: len(failures) == 3)
    assert line.submit(3).result(PATIENCE_S) == 30
    come.wait(PATIENCE_S)
    assert results([others[0], others[2]]) == [100, 200]
    with pytest.raises(KeyError, match="its own fault"):
        others[1].result(PATIENCE_S)
    assert failures == ["refused"] * 3


def test_work_that_answers_for_some_alone_is_an_error_for_all(line: Line) -> None:
    first = line.hold_up(0)
    others = [line.commits.submit(item, lambda items: [1], refuse) for item in (1, 2)]
    line.work.released.set()
    assert first.result(PATIENCE_S) == 0
    for each in others:
        with pytest.raises(ValueError, match="zip"):
            each.result(PATIENCE_S)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def patiently() -> None:
        await asyncio.wait_for(main(), PATIENCE_S)

    asyncio.run(patiently())


def test_coroutines_and_threads_wait_in_one_line(line: Line) -> None:
    async def main() -> None:
        first = line.hold_up(0)
        some = [asyncio.wrap_future(line.submit(item)) for item in (1, 2)]
        thread = start(lambda: line.submit(3).result(PATIENCE_S))
        while waiting(line.commits) < 3:  # the loop goes on while others wait
            await asyncio.sleep(0.001)
        more = asyncio.wrap_future(line.submit(4))
        line.work.released.set()
        assert await asyncio.gather(*some, more) == [10, 20, 40]
        assert results([first, thread]) == [0, 30]

    run(main)
    assert line.work.groups == [[0], [1, 2, 3, 4]]


def test_who_gives_up_waiting_is_not_done(line: Line) -> None:
    async def main() -> None:
        first = line.hold_up(0)
        tasks = [asyncio.ensure_future(asyncio.wrap_future(line.submit(item))) for item in (1, 2, 3)]
        tasks[1].cancel()
        await asyncio.wait([tasks[1]])
        line.work.released.set()
        assert [await tasks[0], await tasks[2], first.result(PATIENCE_S)] == [10, 30, 0]

    run(main)
    assert line.work.groups == [[0], [1, 3]]


def test_a_group_that_has_given_up_altogether_keeps_nobody_waiting(line: Line) -> None:
    first = line.hold_up(0)
    gone = [line.submit(item) for item in range(1, LARGEST_GROUP + 1)]
    assert all(each.cancel() for each in gone)
    last = line.submit(1000)
    line.work.released.set()
    assert results([first, last]) == [0, 10_000]
    assert line.work.groups == [[0], [1000]]


def test_who_gives_up_while_it_is_done_is_done_with_the_others(line: Line) -> None:
    async def main() -> None:
        first = asyncio.ensure_future(asyncio.wrap_future(line.hold_up(1)))
        await asyncio.sleep(0)
        first.cancel()
        others = [asyncio.wrap_future(line.submit(item)) for item in (2, 3)]
        line.work.released.set()
        assert await asyncio.gather(*others) == [20, 30]
        assert (await asyncio.gather(first, return_exceptions=True))[0].__class__ is asyncio.CancelledError

    run(main)
    assert line.work.groups == [[1], [2, 3]]


def test_sixty_four_threads_and_as_many_coroutines_are_each_answered_once(line: Line) -> None:
    """One group at a time, none too large, everyone in one group, and no end but the last answer."""
    times = 30

    def thread(number: int) -> list[int]:
        return [line.submit(1000 * number + turn).result(PATIENCE_S) for turn in range(times)]

    async def coroutine(number: int) -> list[int]:
        return [await asyncio.wrap_future(line.submit(1000 * number + turn)) for turn in range(times)]

    async def main() -> None:
        in_threads = [start(thread, number) for number in range(64)]
        found = await asyncio.gather(*(coroutine(number) for number in range(64, 128)))
        answers = [await asyncio.wrap_future(each) for each in in_threads] + list(found)
        assert answers == [[10 * (1000 * number + turn) for turn in range(times)] for number in range(128)]

    run(main)
    items = Counter(item for group in line.work.groups for item in group)
    assert set(items.values()) == {1}
    assert len(items) == 128 * times
    assert 1 < max(map(len, line.work.groups)) <= LARGEST_GROUP

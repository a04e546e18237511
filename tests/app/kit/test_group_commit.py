"""Group commit: nobody waits for company, nobody is forgotten, and who leads does its own work with the others'."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.concurrency import run_in_threadpool

from app.kit.group_commit import LARGEST_GROUP, GroupCommit
from tests.app.kit.waiting_line import PATIENCE_S, start, wait_until_waiting, waiting

Commits = GroupCommit[int, int]


@dataclass
class Work:
    """What is done in groups: ten times each number. It can be held up, once, and refuses groups with a -1."""

    groups: list[list[int]] = field(default_factory=list)
    leaders: list[int] = field(default_factory=list)
    is_held_up: bool = False
    begun: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    at_work: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, items: Sequence[int]) -> list[int]:
        assert self.at_work.acquire(blocking=False), "two groups at once"
        try:
            self.groups.append(list(items))
            self.leaders.append(threading.get_ident())
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
class Threads:
    """Threads that submit, each when the one before is waiting."""

    commits: Commits = field(default_factory=GroupCommit)
    work: Work = field(default_factory=Work)

    def submit(self, item: int) -> Future[int]:
        return start(self.commits.submit, item, self.work)

    def hold_up(self, item: int) -> Future[int]:
        """Let someone begin, and not get ahead until `Work.released`."""
        self.work.is_held_up = True
        held_up = self.submit(item)
        assert self.work.begun.wait(PATIENCE_S)
        return held_up

    def line_up(self, items: Sequence[int]) -> list[Future[int]]:
        """Let others come, one behind the other."""
        came, already = [], waiting(self.commits)
        for item in items:
            came.append(self.submit(item))
            wait_until_waiting(self.commits, already + len(came))
        return came


@pytest.fixture
def threads() -> Threads:
    return Threads()


def test_who_comes_alone_does_its_own_work_at_once() -> None:
    commits, work = Commits(), Work()
    assert [commits.submit(item, work) for item in (1, 2)] == [10, 20]
    assert (work.groups, set(work.leaders)) == ([[1], [2]], {threading.get_ident()})


def test_those_who_come_meanwhile_are_done_together_in_the_order_in_which_they_came(threads: Threads) -> None:
    first = threads.hold_up(0)
    others = threads.line_up([5, 3, 4, 1, 2])
    assert not first.done()
    threads.work.released.set()
    assert [each.result(PATIENCE_S) for each in (first, *others)] == [0, 50, 30, 40, 10, 20]
    assert threads.work.groups == [[0], [5, 3, 4, 1, 2]]


def test_a_group_has_a_largest_size_and_the_rest_is_the_next_group(threads: Threads) -> None:
    first = threads.hold_up(0)
    others = threads.line_up(range(1, LARGEST_GROUP + 10))
    threads.work.released.set()
    assert [each.result(PATIENCE_S) for each in (first, *others)] == [10 * item for item in range(LARGEST_GROUP + 10)]
    assert threads.work.groups == [
        [0],
        list(range(1, LARGEST_GROUP + 1)),
        list(range(LARGEST_GROUP + 1, LARGEST_GROUP + 10)),
    ]


def test_the_first_of_those_who_wait_leads_and_has_its_own_answer_then(threads: Threads) -> None:
    """Who led the group before has gone home with its answer, and serves nobody else."""
    idents: dict[int, int] = {}

    def submit(item: int) -> int:
        idents[item] = threading.get_ident()
        return threads.commits.submit(item, threads.work)

    first = threads.hold_up(0)
    came = []
    for item in range(1, LARGEST_GROUP + 3):
        came.append(start(submit, item))
        wait_until_waiting(threads.commits, item)
    threads.work.released.set()
    for each in (first, *came):
        each.result(PATIENCE_S)
    assert threads.work.leaders[1:] == [idents[group[0]] for group in threads.work.groups[1:]]
    assert len(threads.work.leaders) == 3


def test_an_error_reaches_everyone_of_the_group_and_nobody_else(threads: Threads) -> None:
    first = threads.hold_up(0)
    others = threads.line_up([1, -1, 2])
    threads.work.released.set()
    assert first.result(PATIENCE_S) == 0
    for each in others:
        with pytest.raises(ValueError, match="refused"):
            each.result(PATIENCE_S)
    assert threads.submit(3).result(PATIENCE_S) == 30
    assert threads.work.groups == [[0], [1, -1, 2], [3]]


def test_an_error_of_the_first_group_does_not_keep_the_next_from_its_turn(threads: Threads) -> None:
    first = threads.hold_up(-1)
    others = threads.line_up([1, 2])
    threads.work.released.set()
    with pytest.raises(ValueError, match="refused"):
        first.result(PATIENCE_S)
    assert [each.result(PATIENCE_S) for each in others] == [10, 20]


def test_work_that_answers_for_some_alone_is_an_error_for_all(threads: Threads) -> None:
    first = threads.hold_up(0)
    others = [start(threads.commits.submit, item, lambda items: [1]) for item in (1, 2)]
    wait_until_waiting(threads.commits, 2)
    threads.work.released.set()
    assert first.result(PATIENCE_S) == 0
    for each in others:
        with pytest.raises(ValueError, match="zip"):
            each.result(PATIENCE_S)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def patiently() -> None:
        await asyncio.wait_for(main(), PATIENCE_S)

    asyncio.run(patiently())


async def come(commits: Commits, work: Work, items: Sequence[int]) -> list[asyncio.Task[int]]:
    """Coroutines that submit, each behind the one before."""
    tasks = []
    for item in items:
        tasks.append(asyncio.create_task(commits.submit_soon(item, work)))
        await asyncio.sleep(0)
    return tasks


def test_coroutines_and_threads_wait_in_one_line(threads: Threads) -> None:
    async def main() -> None:
        first = threads.hold_up(0)
        some = await come(threads.commits, threads.work, [1, 2])
        others = threads.line_up([3])
        more = await come(threads.commits, threads.work, [4])
        threads.work.released.set()
        assert await asyncio.gather(*some, *more) == [10, 20, 40]
        assert [each.result(PATIENCE_S) for each in (first, *others)] == [0, 30]

    run(main)
    assert threads.work.groups == [[0], [1, 2, 3, 4]]


def test_a_coroutine_that_comes_alone_does_not_stop_the_others_of_its_loop() -> None:
    commits, work = Commits(), Work(is_held_up=True)

    async def main() -> None:
        first = asyncio.create_task(commits.submit_soon(1, work))
        while not work.begun.is_set():  # only where the loop goes on
            await asyncio.sleep(0.001)
        work.released.set()
        assert await first == 10

    run(main)


def test_a_coroutine_that_is_to_lead_needs_none_of_the_threads_that_wait_for_it(threads: Threads) -> None:
    """Requests that need numerics take the server's threads; all of them may be waiting for a coroutine's turn."""
    a_full_pool = 40

    async def main() -> None:
        first = threads.hold_up(-2)
        (leader,) = await come(threads.commits, threads.work, [0])
        others = [
            asyncio.create_task(run_in_threadpool(threads.commits.submit, item, threads.work))
            for item in range(1, a_full_pool + 1)
        ]
        while waiting(threads.commits) < 1 + a_full_pool:
            await asyncio.sleep(0.001)
        threads.work.released.set()
        assert await asyncio.gather(leader, *others) == [10 * item for item in range(a_full_pool + 1)]
        assert first.result(PATIENCE_S) == -20

    run(main)


def test_who_gives_up_waiting_is_not_done(threads: Threads) -> None:
    async def main() -> None:
        first = threads.hold_up(0)
        tasks = await come(threads.commits, threads.work, [1, 2, 3])
        tasks[1].cancel()
        await asyncio.wait([tasks[1]])
        threads.work.released.set()
        assert [await tasks[0], await tasks[2], first.result(PATIENCE_S)] == [10, 30, 0]

    run(main)
    assert threads.work.groups == [[0], [1, 3]]


def test_who_gives_up_when_it_is_its_turn_lets_the_next_lead(threads: Threads) -> None:
    async def main() -> None:
        first = threads.hold_up(0)
        tasks = await come(threads.commits, threads.work, [1, 2])
        threads.work.released.set()
        # The loop stands still until the turn has come; then the coroutine is told both at once.
        first.result(PATIENCE_S)
        tasks[0].cancel()
        assert await tasks[1] == 20
        assert tasks[0].cancelled()

    run(main)
    assert threads.work.groups == [[0], [2]]


@pytest.mark.parametrize("turns", range(4))
def test_who_gives_up_while_it_leads_is_done_with_the_others(threads: Threads, turns: int) -> None:
    """However far the coroutine is on its way to the thread that does the work."""

    async def main() -> None:
        commits, work = threads.commits, threads.work
        work.is_held_up = True
        (leader,) = await come(commits, work, [1])
        for _ in range(turns):
            await asyncio.sleep(0)
        leader.cancel()
        others = await come(commits, work, [2, 3])
        work.released.set()
        assert await asyncio.gather(*others) == [20, 30]
        assert (await asyncio.gather(leader, return_exceptions=True))[0].__class__ is asyncio.CancelledError

    run(main)
    assert sorted(item for group in threads.work.groups for item in group) == [1, 2, 3]


def test_sixty_four_threads_and_as_many_coroutines_are_each_answered_once(threads: Threads) -> None:
    """One group at a time, none too large, everyone in one group, and no end but the last answer."""
    times = 30

    def thread(number: int) -> list[int]:
        return [threads.commits.submit(1000 * number + turn, threads.work) for turn in range(times)]

    async def coroutine(number: int) -> list[int]:
        return [await threads.commits.submit_soon(1000 * number + turn, threads.work) for turn in range(times)]

    async def main() -> None:
        in_threads = [start(thread, number) for number in range(64)]
        found = await asyncio.gather(*(coroutine(number) for number in range(64, 128)))
        answers = [await asyncio.wrap_future(each) for each in in_threads] + list(found)
        assert answers == [[10 * (1000 * number + turn) for turn in range(times)] for number in range(128)]

    run(main)
    items = Counter(item for group in threads.work.groups for item in group)
    assert set(items.values()) == {1}
    assert len(items) == 128 * times
    assert 1 < max(map(len, threads.work.groups)) <= LARGEST_GROUP

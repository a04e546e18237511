"""Compute the prices that a verification needs: several at once, in processes with limits of time and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from os import cpu_count
from time import monotonic

from accounting.errors import AccountingError, NoCostInFilter
from app.kit.process_pool import JobFailed, ProcessPool
from app.ledger.price_verification import Ends, Priced, Unpayable
from app.ledger.pricing import price
from app.ledger.states import minus
from app.problems import Problem

#: The limits for one price at a terminal. The service has the limits of its own numerics.
_SECONDS, _MEMORY_BYTES = 120.0, 2 * 2**30
#: The most prices that are found over HTTP, and the seconds for all of them; further prices are undecided.
MOST_OVER_HTTP, SECONDS_OVER_HTTP = 500, 60.0

#: The code of the refusal to price events without a delta.
MISSING_DELTA = "missing_charge_delta"

#: This is called with the number of prices that were found, and with the number of all of them.
Reached = Callable[[int, int | None], None]


def ends_of(priced: Priced) -> Ends:
    """Return both ends of today's price.

    Raises:
        AccountingError: there is no price; as in `app.ledger.pricing.price`.
    """
    budget_filter, events, relation, charge_delta, kept, failure = priced
    most = price(budget_filter, events, relation, charge_delta).amounts
    least = budget_filter.least_cost(events, relation, charge_delta)
    if kept is None:
        return Ends(least, most)
    back = budget_filter.given_back(most, events, kept, relation, failure)
    return Ends(least, most) if back is None else Ends(minus(least, back.most), minus(most, back.amounts))


class PriceSearch:
    """Compute prices in the processes of a pool (`app.ledger.price_verification.FindPrices`).

    Args:
        pool: A pool whose processes have limits of time and memory; beyond these there is no price.
        at_once: How many prices are computed at once; at most as many as the pool has places.
        most, seconds: Limits on the number of prices and on the time for all of them; None for no limit.

    Attributes:
        reached: Called with the number of prices found so far, and the number of all.
    """

    reached: Reached | None = None

    def __init__(
        self, pool: ProcessPool, at_once: int = 1, most: int | None = None, seconds: float | None = None
    ) -> None:
        self._pool, self._at_once = pool, at_once
        self._most, self._end = most, None if seconds is None else monotonic() + seconds
        self._asked, self._limits = count(1), f"{most} prices and {seconds} seconds"

    def __call__(self, asked: Sequence[Priced]) -> Iterator[Ends | Unpayable | str]:
        """Return both ends of each price, in the order of the requests, or the reason why a price is missing or
        unknown."""
        executor = ThreadPoolExecutor(self._at_once)
        try:
            found = [executor.submit(self._find, priced) for priced in asked]
            for number, future in enumerate(found, start=1):
                yield future.result()
                if self.reached is not None:
                    self.reached(number, len(found))
        finally:
            # An interruption does not wait for prices that are being computed: closing the pool ends them.
            executor.shutdown(wait=False, cancel_futures=True)

    def _find(self, priced: Priced) -> Ends | Unpayable | str:
        is_late = self._end is not None and monotonic() > self._end
        if is_late or (self._most is not None and next(self._asked) > self._most):
            return f"it was not computed: the limit here is {self._limits}; `epsilond ledger verify --prices` has none"
        try:
            return self._pool.run(ends_of, priced)
        except JobFailed as failure:
            return f"it was given up: {failure}"
        except AccountingError as refused:
            lacks_delta = refused.code == MISSING_DELTA
            if lacks_delta or isinstance(refused, NoCostInFilter):
                return Unpayable(refused.detail, lacks_delta)
            return f"today's engine refuses it: {refused.detail}"
        except Problem:
            raise
        except Exception as error:  # a price that cannot be computed counts as undecided, and never as right
            return f"today's engine fails at it ({type(error).__name__})"


@contextmanager
def on_all_cores() -> Iterator[PriceSearch]:
    """Make a search with processes of its own, one for each core, which end with the block."""
    cores = cpu_count() or 1
    pool = ProcessPool(cores, _SECONDS, _MEMORY_BYTES)
    try:
        yield PriceSearch(pool, cores)
    finally:
        pool.close()

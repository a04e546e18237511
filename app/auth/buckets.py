"""Token buckets: they admit a number of events at once, and a number of further events each second."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class TokenBucket:
    """A bucket that is full at first. Time is the caller's, so that it may be any monotonic clock.

    Attributes:
        rate: The number of tokens added each second.
        capacity: The largest number of tokens that it holds; at least one, so that every rate lets something through.
    """

    rate: float
    capacity: float
    now: float
    _tokens: float = math.nan

    def __post_init__(self) -> None:
        self._tokens = self.capacity

    def take(self, now: float) -> bool:
        """Take a token, if there is one."""
        self.refill(now)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def left(self) -> int:
        """Return the number of whole tokens at the last refill."""
        return int(self._tokens)

    def seconds_until(self, tokens: float) -> int:
        """Return the seconds, rounded up, from the last refill until the bucket holds this many tokens.

        >>> bucket = TokenBucket(rate=0.5, capacity=1.0, now=0.0)
        >>> bucket.take(0.0), bucket.take(1.0), bucket.seconds_until(1.0), bucket.take(2.0)
        (True, False, 1, True)
        """
        return math.ceil(max(0.0, tokens - self._tokens) / self.rate)

    def is_full(self, now: float) -> bool:
        """Return whether the bucket is full again."""
        self.refill(now)
        return self._tokens >= self.capacity

    def refill(self, now: float) -> None:
        """Add the tokens that are due since the last refill."""
        self._tokens = min(self.capacity, self._tokens + (now - self.now) * self.rate)
        self.now = now

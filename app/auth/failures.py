"""Count failed attempts to authenticate for each address. A key has 256 random bits, so nobody guesses one. The limit
only bounds the work that attempts cause.

Attempts from an address never lock out a valid key, because behind a proxy everybody has the same address. Beyond the
limit, keys are still checked, but only a few at a time, and an invalid one is answered 429 instead of 401.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

from app.auth.buckets import TokenBucket
from app.problems import Problem

#: The most addresses that are remembered; beyond that, the address with the oldest failure is forgotten.
MOST_PEERS = 10_000
#: IPv6 addresses are counted by a prefix of this length, since one customer has any number of addresses below it.
_IPV6_PREFIX = 64


class FailedAttempts:
    """Counts of recent failed attempts by address.

    Args:
        per_minute: How many attempts may fail, at once or spread over a minute; 0 for no limit.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute, self._clock = per_minute, clock
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def is_suspect(self, client: tuple[str, int] | None) -> bool:
        """Return whether so many attempts from an address failed that the next failure will be answered 429."""
        bucket = self._buckets.get(place_of(client))
        if bucket is None:
            return False
        bucket.refill(self._clock())
        return bucket.left() < 1

    def count(self, client: tuple[str, int] | None, refusal: Problem) -> Problem:
        """Count a refused attempt, and return the refusal, or 429 if there were too many."""
        if not self._per_minute:
            return refusal
        place, now = place_of(client), self._clock()
        bucket = self._buckets.pop(place, None)
        if bucket is None:
            if len(self._buckets) >= MOST_PEERS:
                self._buckets.popitem(last=False)
            bucket = TokenBucket(self._per_minute / 60.0, float(self._per_minute), now)
        self._buckets[place] = bucket
        if bucket.take(now):
            return refusal
        detail = (
            "Too many attempts without a valid key came from this address. A valid key is still accepted; wait before "
            "you try another key."
        )
        return Problem(429, "too_many_requests", detail, headers={"Retry-After": str(bucket.seconds_until(1.0))})


def place_of(client: tuple[str, int] | None) -> str:
    """Return the unit by which attempts are counted: an IPv4 address, or the network of an IPv6 address.

    >>> place_of(("::ffff:192.0.2.7", 1)), place_of(("2001:db8:1:2:3::4", 1)), place_of(None)
    ('192.0.2.7', '2001:db8:1:2::', '')
    """
    host = client[0] if client else ""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host[:64]
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, _IPV6_PREFIX), strict=False).network_address)

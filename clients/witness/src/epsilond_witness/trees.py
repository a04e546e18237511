"""Verifies proofs that a Merkle tree begins with a smaller one (RFC 6962, section 2.1; RFC 9162, section 2.1.4)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

EMPTY_ROOT = hashlib.sha256(b"").digest()


def begins_with(small: tuple[int, bytes], large: tuple[int, bytes], path: Sequence[bytes]) -> bool:
    """Return whether a path proves that the large tree, given by its size and root, begins with the small tree.

    >>> leaf, other = bytes(32), bytes([1]) * 32
    >>> both = hashlib.sha256(b"\\1" + leaf + other).digest()
    >>> begins_with((1, leaf), (2, both), [other]), begins_with((1, other), (2, both), [other])
    (True, False)
    """
    (first, first_root), (second, second_root) = small, large
    if not 0 <= first <= second:
        return False
    if first == 0:
        return not path and first_root == EMPTY_ROOT and (second > 0 or second_root == EMPTY_ROOT)
    if first == second:
        return not path and first_root == second_root
    # If the smaller tree is complete, its root is the first node itself.
    nodes = [first_root, *path] if first & (first - 1) == 0 else list(path)
    if not nodes:
        return False
    place, last = first - 1, second - 1
    while place % 2:
        place, last = place // 2, last // 2
    left = right = nodes[0]
    for node in nodes[1:]:
        if last == 0:
            return False
        if place % 2 or place == last:
            left, right = _above(node, left), _above(node, right)
            while place and not place % 2:
                place, last = place // 2, last // 2
        else:
            right = _above(right, node)
        place, last = place // 2, last // 2
    return last == 0 and (left, right) == (first_root, second_root)


def _above(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()

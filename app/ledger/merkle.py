"""The Merkle tree of RFC 9162, section 2.1, with SHA-256: roots and paths, and their verification.

This module is pure, and never holds the whole tree. Appending needs only the frontier. A root or path of any size needs
leaves and the nodes at every eighth height, at most 256 neighbours of one height at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

#: The number of bytes of a hash.
WIDTH = 32
#: The root of the tree without leaves.
EMPTY_ROOT = hashlib.sha256(b"").digest()
#: Nodes are stored at heights that are multiples of this: the roots of subtrees of 1, 256, 65536... leaves. Each such
#: height is a level.
_HEIGHTS = 8
_TILE = 1 << _HEIGHTS

#: Reads nodes of complete, aligned subtrees. The arguments are the level, the index of the first node, and the count.
Read = Callable[[int, int, int], Sequence[bytes]]


@dataclass(frozen=True)
class Node:
    """The root of a complete subtree of 256**level leaves; index 0 is the leftmost."""

    level: int
    index: int
    hash: bytes


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf.

    >>> leaf_hash(b"").hex()[:16]
    '6e340b9cffb37a98'
    """
    return sha256(b"\0" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of the node above two others."""
    return sha256(b"\1" + left + right).digest()


class Frontier:
    """A tree for appending: its size and the roots of its complete subtrees, the largest first.

    >>> tree = Frontier()
    >>> tree.root() == EMPTY_ROOT
    True
    >>> completed = tree.extend([leaf_hash(b""), leaf_hash(bytes(1))])
    >>> tree.size, tree.root().hex()[:16], completed
    (2, 'fac54203e7cc696c', [])
    """

    def __init__(self, size: int = 0, hashes: bytes = b"") -> None:
        if size < 0 or len(hashes) != WIDTH * size.bit_count():
            raise ValueError(f"the frontier of a tree of {size} leaves must have {size.bit_count()} hashes")
        self.size = size
        self._hashes = [hashes[start : start + WIDTH] for start in range(0, len(hashes), WIDTH)]

    def extend(self, leaves: Iterable[bytes]) -> list[Node]:
        """Append the leaves with these hashes, and return the nodes above level 0 that are now complete."""
        size, hashes = self.size, self._hashes
        completed = []
        for leaf in leaves:
            node, height = leaf, 0
            while size >> height & 1:
                node = sha256(b"\1" + hashes.pop() + node).digest()
                height += 1
                if not height % _HEIGHTS:
                    completed.append(Node(height // _HEIGHTS, size >> height, node))
            hashes.append(node)
            size += 1
        self.size = size
        return completed

    def root(self) -> bytes:
        """Return the root of the tree as it is now."""
        if not self._hashes:
            return EMPTY_ROOT
        *larger, root = self._hashes
        for subtree in reversed(larger):
            root = node_hash(subtree, root)
        return root

    def hashes(self) -> bytes:
        """Return the hashes from which the tree can be made again."""
        return b"".join(self._hashes)


class Tiles:
    """A `Read` that asks for 256 neighbours at a time, and for each group only once.

    Args:
        fetch: Read the tile with an index at a level: 256 nodes, or fewer at the end.
    """

    def __init__(self, fetch: Callable[[int, int], Sequence[bytes]]) -> None:
        self._fetch = fetch
        self._tiles: dict[tuple[int, int], Sequence[bytes]] = {}

    def __call__(self, level: int, first: int, count: int) -> Sequence[bytes]:
        index, start = divmod(first, _TILE)
        if (level, index) not in self._tiles:
            self._tiles[level, index] = self._fetch(level, index)
        return self._tiles[level, index][start : start + count]

    @staticmethod
    def nodes_of(index: int) -> range:
        """Return the indices of the nodes in a tile."""
        return range(index * _TILE, (index + 1) * _TILE)


def root(read: Read, size: int) -> bytes:
    """Return the root of the first ``size`` leaves."""
    return _root(read, 0, size) if size else EMPTY_ROOT


def inclusion_path(read: Read, index: int, size: int) -> list[bytes]:
    """Return PATH(index, D_size) of section 2.1.3.1: the hashes that lead from a leaf to the root of the first ``size``
    leaves."""
    if not 0 <= index < size:
        raise ValueError(f"the first {size} leaves include no leaf with the index {index}")
    path: list[bytes] = []
    start, end = 0, size
    while end - start > 1:
        middle = start + _left(end - start)
        if index < middle:
            path.append(_root(read, middle, end))
            end = middle
        else:
            path.append(_root(read, start, middle))
            start = middle
    return path[::-1]


def consistency_path(read: Read, first: int, second: int) -> list[bytes]:
    """Return PROOF(first, D_second) of section 2.1.4.1; it is empty if either tree is empty or both are equal."""
    if not 0 <= first <= second:
        raise ValueError(f"a tree of {second} leaves does not begin with one of {first}")
    path: list[bytes] = []
    start, end, was_a_subtree = 0, second, True
    while first and start + first != end:
        middle = start + _left(end - start)
        if start + first <= middle:
            path.append(_root(read, middle, end))
            end = middle
        else:
            path.append(_root(read, start, middle))
            first -= middle - start
            start, was_a_subtree = middle, False
    if first and not was_a_subtree:
        path.append(_root(read, start, end))
    return path[::-1]


def verify_inclusion(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> bool:
    """Return whether the leaf with this hash has this place in the tree with this root (section 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    place, last, found = index, size - 1, leaf
    for sibling in path:
        if last == 0:
            return False
        if place & 1 or place == last:
            found = node_hash(sibling, found)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            found = node_hash(found, sibling)
        place, last = place >> 1, last >> 1
    return last == 0 and found == root


def verify_consistency(first: int, second: int, first_root: bytes, second_root: bytes, path: Sequence[bytes]) -> bool:
    """Return whether the tree with the second root begins with the tree that has the first root (section 2.1.4.2)."""
    if not 0 <= first <= second:
        return False
    if first in (0, second):
        # The empty tree is the beginning of every tree, and a tree is the beginning of itself: there is nothing to
        # prove.
        return not path and first_root == (second_root if first else EMPTY_ROOT)
    hashes = [first_root, *path] if first.bit_count() == 1 else list(path)
    if not hashes:
        return False
    place, last = first - 1, second - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    of_first = of_second = hashes[0]
    for sibling in hashes[1:]:
        if last == 0:
            return False
        if place & 1 or place == last:
            of_first, of_second = node_hash(sibling, of_first), node_hash(sibling, of_second)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            of_second = node_hash(of_second, sibling)
        place, last = place >> 1, last >> 1
    return last == 0 and (of_first, of_second) == (first_root, second_root)


def _root(read: Read, start: int, end: int) -> bytes:
    """Return the root of a range of leaves that arises when the tree is divided."""
    count = end - start
    if count & (count - 1):
        middle = start + _left(count)
        return node_hash(_root(read, start, middle), _root(read, middle, end))
    level, height = divmod(count.bit_length() - 1, _HEIGHTS)
    hashes = read(level, start >> level * _HEIGHTS, 1 << height)
    if len(hashes) != 1 << height:
        raise LookupError(f"nodes of level {level} are missing")
    while len(hashes) > 1:
        hashes = [node_hash(hashes[place], hashes[place + 1]) for place in range(0, len(hashes), 2)]
    return hashes[0]


def _left(count: int) -> int:
    """Return the largest power of two below ``count``: this many leaves go to the left subtree."""
    return 1 << (count - 1).bit_length() - 1

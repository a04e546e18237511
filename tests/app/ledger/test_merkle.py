"""The Merkle tree against RFC 9162 written down once more, for every size and place, and against known vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache

import pytest

from app.ledger.merkle import (
    EMPTY_ROOT,
    Frontier,
    Tiles,
    consistency_path,
    inclusion_path,
    leaf_hash,
    node_hash,
    root,
    verify_consistency,
    verify_inclusion,
)

#: All sizes up to here, and some around the sizes at which nodes of another level are kept.
SIZES = [*range(67), 127, 128, 129, 130, 255, 256, 257, 511, 512, 700]
DATA = [hashlib.sha256(str(number).encode()).digest() for number in range(700)]
LEAVES = [leaf_hash(data) for data in DATA]

# The leaves and roots that implementations of certificate transparency are tested with.
KNOWN_DATA = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
KNOWN_ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
#: (index, size), or (first, second): the nodes of the path by their level and place among the eight leaves.
KNOWN_LEVELS = [
    [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "0298d122906dcfc10892cb53a73992fc5b9f493ea4c9badb27b791b4127a7fe7",
        "07506a85fd9dd2f120eb694f86011e5bb4662e5c415a62917033d4a9624487e7",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "4271a26be0d8a84f0bd54c8c302e7cb3a3b5d1fa6780a40bcce2873477dab658",
        "b08693ec2e721597130641e8211e7eedccb4c26413963eee6c1e2ed16ffb1a5f",
        "46f6ffadd3d06a09ff3c5860d2755c8b9819db7df44251788c7d8e3180de8eb1",
    ],
    [
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
    ],
    [
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
]
KNOWN_INCLUSION = {
    (0, 8): [(0, 1), (1, 1), (2, 1)],
    (5, 8): [(0, 4), (1, 3), (2, 0)],
    (2, 3): [(1, 0)],
    (1, 5): [(0, 0), (1, 1), (0, 4)],
}
KNOWN_CONSISTENCY: dict[tuple[int, int], list[tuple[int, int]]] = {
    (1, 1): [],
    (1, 8): [(0, 1), (1, 1), (2, 1)],
    (6, 8): [(1, 2), (1, 3), (2, 0)],
    (2, 5): [(1, 1), (0, 4)],
}


def naive_root(data: Sequence[bytes]) -> bytes:
    """MTH of section 2.1.1."""
    if len(data) < 2:
        return hashlib.sha256(b"\0" + data[0] if data else b"").digest()
    k = naive_split(len(data))
    return hashlib.sha256(b"\1" + naive_root(data[:k]) + naive_root(data[k:])).digest()


def naive_split(n: int) -> int:
    k = 1
    while 2 * k < n:
        k *= 2
    return k


@cache
def naive_range(start: int, end: int) -> bytes:
    """MTH of some of `DATA`; remembered, because the same subtrees come in thousands of paths."""
    return naive_root(DATA[start:end])


def naive_path(m: int, start: int, end: int) -> list[bytes]:
    """PATH of section 2.1.3.1, for the leaf ``m`` behind the start."""
    if end - start == 1:
        return []
    k = naive_split(end - start)
    if m < k:
        return [*naive_path(m, start, start + k), naive_range(start + k, end)]
    return [*naive_path(m - k, start + k, end), naive_range(start, start + k)]


def naive_subproof(m: int, start: int, end: int, b: bool) -> list[bytes]:
    """SUBPROOF of section 2.1.4.1."""
    if m == end - start:
        return [] if b else [naive_range(start, end)]
    k = naive_split(end - start)
    if m <= k:
        return [*naive_subproof(m, start, start + k, b), naive_range(start + k, end)]
    return [*naive_subproof(m - k, start + k, end, False), naive_range(start, start + k)]


class Kept:
    """Return the stored nodes of a tree: the leaves, and the nodes of the levels above."""

    def __init__(self, leaves: Sequence[bytes]) -> None:
        self.tree = Frontier()
        self.nodes = {(0, index): leaf for index, leaf in enumerate(leaves)}
        self.nodes |= {(node.level, node.index): node.hash for node in self.tree.extend(leaves)}

    def read(self, level: int, first: int, count: int) -> list[bytes]:
        return [self.nodes[level, index] for index in range(first, first + count) if (level, index) in self.nodes]

    def tiles(self) -> Tiles:
        return Tiles(lambda level, index: self.read(level, Tiles.nodes_of(index).start, len(Tiles.nodes_of(index))))


KEPT = Kept(LEAVES)


@pytest.fixture(scope="module")
def roots() -> dict[int, bytes]:
    return {size: naive_range(0, size) for size in SIZES}


def test_roots_are_those_of_the_rfc(roots: dict[int, bytes]) -> None:
    tree = Frontier()
    for size in SIZES:
        tree.extend(LEAVES[tree.size : size])
        assert tree.root() == roots[size] == root(KEPT.tiles(), size)
        assert Frontier(size, tree.hashes()).root() == roots[size]
    assert naive_root([]) == EMPTY_ROOT


def test_a_tree_goes_on_from_its_frontier() -> None:
    for size in (1, 7, 255, 300):
        tree = Frontier()
        completed = tree.extend(LEAVES[:size])
        again = Frontier(size, tree.hashes())
        completed += again.extend(LEAVES[size:])
        assert again.root() == KEPT.tree.root()
        assert {(node.level, node.index): node.hash for node in completed}.items() <= KEPT.nodes.items()
        assert [node.index for node in completed] == [0, 1]
    with pytest.raises(ValueError, match="the frontier of a tree of 3 leaves must have 2 hashes"):
        Frontier(3, bytes(32))


def test_levels_are_of_256_leaves_and_of_65536() -> None:
    leaves = [leaf_hash(bytes([number & 255])) for number in range(65_536)]
    completed = Frontier().extend(leaves)
    assert [(node.level, node.index) for node in completed] == [*((1, index) for index in range(256)), (2, 0)]
    assert {node.hash for node in completed[:-1]} == {naive_root([bytes([number]) for number in range(256)])}
    level = [node.hash for node in completed[:256]]
    while len(level) > 1:
        level = [node_hash(*pair) for pair in zip(level[::2], level[1::2], strict=True)]
    assert completed[-1].hash == level[0]


def test_inclusion_paths_are_those_of_the_rfc_and_verify(roots: dict[int, bytes]) -> None:
    read = KEPT.tiles()
    for size in SIZES:
        places = (
            range(size) if size <= 130 else sorted({0, 1, 127, 128, 254, 255 % size, 256 % size, size // 2, size - 1})
        )
        for index in places:
            path = inclusion_path(read, index, size)
            assert path == naive_path(index, 0, size)
            assert verify_inclusion(LEAVES[index], index, size, path, roots[size])


def test_consistency_paths_are_those_of_the_rfc_and_verify(roots: dict[int, bytes]) -> None:
    read = KEPT.tiles()
    for second in SIZES:
        for first in (size for size in SIZES if size <= second):
            if second > 130 and first % 5:
                continue
            path = consistency_path(read, first, second)
            assert path == (naive_subproof(first, 0, second, True) if first else [])
            assert verify_consistency(first, second, roots[first], roots[second], path)


def test_a_changed_proof_of_inclusion_does_not_verify(roots: dict[int, bytes]) -> None:
    read = KEPT.tiles()
    for size in range(1, 20):
        for index in range(size):
            leaf, path = LEAVES[index], inclusion_path(read, index, size)
            others = [[*path[:place], bytes(32), *path[place + 1 :]] for place in range(len(path))]
            for other in [*others, [*path, bytes(32)], path[:-1] if path else [bytes(32)], [*path[::-1], leaf]]:
                assert not verify_inclusion(leaf, index, size, other, roots[size])
            for place in {*range(-1, size + 2)} - {index}:
                assert not verify_inclusion(leaf, place, size, path, roots[size])
            assert not verify_inclusion(LEAVES[index + 1], index, size, path, roots[size])
            assert not verify_inclusion(leaf, index, size, path, roots[size + 1])


def test_a_changed_proof_of_consistency_does_not_verify(roots: dict[int, bytes]) -> None:
    read = KEPT.tiles()
    for second in range(20):
        for first in range(second + 1):
            path = consistency_path(read, first, second)
            others = [[*path[:place], bytes(32), *path[place + 1 :]] for place in range(len(path))]
            for other in [*others, [*path, bytes(32)], path[:-1] if path else [bytes(32)]]:
                assert not verify_consistency(first, second, roots[first], roots[second], other)
            assert not verify_consistency(first, second, roots[first + 1], roots[second], path)
            assert first == 0 or not verify_consistency(first, second, roots[first], roots[second + 1], path)
            assert first == second or not verify_consistency(second, first, roots[second], roots[first], path)
            assert not verify_consistency(-1, second, roots[first], roots[second], path)


def test_a_proof_that_ends_below_the_root_shows_nothing(roots: dict[int, bytes]) -> None:
    """It leads to the root of the left half alone, whatever the right one has."""
    read = KEPT.tiles()
    for second in (2, 4, 8):
        for first in range(1, second):
            path = consistency_path(read, first, second)
            for larger in range(second + 1, 2 * second + 1):
                assert not verify_consistency(first, larger, roots[first], roots[second], path)


def test_a_proof_that_goes_on_above_the_root_shows_nothing(roots: dict[int, bytes]) -> None:
    """It leads to a root that somebody has made of the tree's and of something else."""
    read, beside = KEPT.tiles(), bytes(32)
    for size in range(1, 10):
        above = node_hash(beside, roots[size])
        for index in range(size):
            path = [*inclusion_path(read, index, size), beside]
            assert not verify_inclusion(LEAVES[index], index, size, path, above)
        for first in range(1, size):
            path = [*consistency_path(read, first, size), beside]
            assert not verify_consistency(first, size, node_hash(beside, roots[first]), above, path)


def test_known_roots_and_paths() -> None:
    leaves = [leaf_hash(bytes.fromhex(data)) for data in KNOWN_DATA]
    kept = Kept(leaves)
    for size, known in enumerate(KNOWN_ROOTS):
        assert root(kept.read, size).hex() == known
    for (index, size), nodes in KNOWN_INCLUSION.items():
        path = [KNOWN_LEVELS[level][place] for level, place in nodes]
        assert [node.hex() for node in inclusion_path(kept.read, index, size)] == path
    for (first, second), nodes in KNOWN_CONSISTENCY.items():
        path = [KNOWN_LEVELS[level][place] for level, place in nodes]
        assert [node.hex() for node in consistency_path(kept.read, first, second)] == path


@pytest.mark.parametrize(("index", "size"), [(0, 0), (1, 1), (-1, 3), (3, 2)])
def test_there_is_no_path_to_a_leaf_that_is_not_there(index: int, size: int) -> None:
    with pytest.raises(ValueError, match="include no leaf with the index"):
        inclusion_path(KEPT.read, index, size)


@pytest.mark.parametrize(("first", "second"), [(2, 1), (-1, 3)])
def test_a_tree_does_not_begin_with_a_larger_one(first: int, second: int) -> None:
    with pytest.raises(ValueError, match="does not begin with"):
        consistency_path(KEPT.read, first, second)


def test_nodes_that_are_missing_are_no_root() -> None:
    with pytest.raises(LookupError, match="nodes of level 0 are missing"):
        root(KEPT.read, 701)

"""A chain that is longer in the database follows from the end that the fence has, entry by entry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.fence.marks import Head, Kept, Loss, Missing, Reason, compare
from app.kit.hash_chain import chain_hash

CONTENT = [b"create", b"reserve", b"start", b"commit", b"reserve again"]


def chain(content: list[bytes]) -> list[tuple[object, object]]:
    """The hashes and the bytes of the entries, from the first on."""
    rows: list[tuple[object, object]] = []
    last = ""
    for each in content:
        last = chain_hash(last, each)
        rows.append((last, each))
    return rows


ROWS = chain(CONTENT)
MARK, HEAD = Head(2, str(ROWS[1][0])), Head(5, str(ROWS[4][0]))


def loss_of(rows: list[tuple[object, object]], head: Head = HEAD) -> Loss | None:
    def between(budget_id: str, first: int, last: int) -> Iterator[tuple[object, object]]:
        assert budget_id == "bud"
        yield from rows[first - 1 : last]

    return compare(Kept("ledger", "life", {"bud": MARK}), "ledger", "life", {"bud": head}, between)


def test_a_longer_chain_is_no_loss() -> None:
    assert loss_of(ROWS) is None
    assert loss_of(ROWS[:3], Head(3, str(ROWS[2][0]))) is None


@pytest.mark.parametrize(
    "rows",
    [
        [*ROWS[:1], ("f" * 64, b"reserve"), *ROWS[2:]],
        [*ROWS[:3], (ROWS[3][0], b"void"), *ROWS[4:]],
        [*ROWS[:3], *ROWS[4:]],
        [*ROWS[:3], (ROWS[3][0], None), *ROWS[4:]],
        ROWS[:1],
    ],
    ids=["the mark's own", "one after it", "one is gone", "no bytes", "none is there"],
)
def test_an_end_that_does_not_follow_is_a_loss(rows: list[tuple[object, object]]) -> None:
    """Also where the end itself and the hashes beside the entries are as they were."""
    assert loss_of(rows) == Loss(Reason.BEHIND, 2, (Missing("bud", 2, 5, is_rewritten=True),))


def test_another_history_of_the_same_length_is_a_loss() -> None:
    loss = loss_of(ROWS[:2], Head(2, "f" * 64))
    assert loss is not None
    assert loss.missing == (Missing("bud", 2, 2, is_rewritten=True),)
    other = chain([*CONTENT[:1], b"other", *CONTENT[2:]])
    assert loss_of(other, Head(5, str(other[4][0]))) is not None

"""Keys: the operating system's, or a seed's for public data; one for each purpose."""

from __future__ import annotations

import pytest

from accounting.errors import InvalidValue
from trainer.streams import RandomStreams, random_streams


def words(streams: RandomStreams) -> list[int]:
    return [stream.word() for stream in vars(streams).values()]


def test_unseeded_streams_differ() -> None:
    assert len({word for _ in range(50) for word in words(random_streams())}) == 50 * 5


def test_seeded_streams_repeat_and_are_unrelated() -> None:
    assert words(random_streams(7)) == words(random_streams(7))
    assert len({word for seed in (7, 8) for word in words(random_streams(seed))}) == 2 * 5


@pytest.mark.parametrize("seed", [-1, 1.5, "1", True, 2**128])
def test_seeds_that_are_none_are_refused(seed: object) -> None:
    with pytest.raises(InvalidValue, match="seed"):
        random_streams(seed)  # type: ignore[arg-type]  # on purpose

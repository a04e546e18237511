"""This module makes the random bits of every run: AES-128 in counter mode."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from randomgen import AESCounter

from trainer.exact.loops import Words, count_on

#: Blocks that are encrypted at a time, few enough to stay in a cache.
_AT_ONCE = 1 << 13
_HALF = 1 << 64
_WORD_BYTES, _BLOCK_BYTES = 8, 16


class Keystream:
    """AES-128 of the numbers 0, 1, 2, ...: each of these blocks of 128 bits has two words.

    OpenSSL encrypts the blocks. Once a NumPy generator has read from the stream, randomgen's `AESCounter` encrypts
    them: it makes the same words, at less than half the speed.

    Args:
        key: 128 bits.

    Guarantees:
        - words_are_those_of_the_counter: wherever a draw begins, and whatever was drawn before.

    >>> stream = Keystream(key=7)
    >>> stream.words(2).dtype
    dtype('uint64')
    >>> int(stream.generator().integers(1))
    0
    """

    def __init__(self, key: int) -> None:
        self._key = key.to_bytes(_BLOCK_BYTES, "little")
        self._place: int | None = 0
        self._followed = 0

    # Made when they are first used: a short run draws from few of its streams, and an audit makes a thousand runs.

    @cached_property
    def _counter(self) -> AESCounter:
        return AESCounter(key=int.from_bytes(self._key, "little"))

    @cached_property
    def _encrypt(self) -> Callable[..., int]:
        # Each block is a counter, and no counter comes twice: this is counter mode.
        return Cipher(algorithms.AES(self._key), modes.ECB()).encryptor().update_into  # noqa: S305

    @cached_property
    def _counters(self) -> Words:
        return np.zeros((_AT_ONCE, 2), dtype="<u8")

    def _follow(self, counter: AESCounter) -> None:
        """Continue to read at the position of a counter."""
        state = counter.state["s"]
        low, high = (int(half) for half in state["counter"][:2])  # the number of the next block to encrypt
        waiting = (state["state"].size - state["offset"]) // _WORD_BYTES  # words of earlier blocks
        self._key = state["seed"][:2].astype("<u8").tobytes()  # the first round key is the key
        self.__dict__.pop("_encrypt", None)  # the state belongs to another key
        self._counter, self._followed = counter, 0
        self._place = 2 * (high * _HALF + low) - waiting

    def words(self, count: int) -> Words:
        """Return the next words: shape (count,)."""
        if self._place is None:
            drawn: Words = self._counter.random_raw(count)
            return drawn
        first, skipped = divmod(self._place, 2)
        blocks = -(-(skipped + count) // 2)
        words = np.empty(2 * blocks + 2, dtype="<u8")  # OpenSSL asks for room for one block more
        written = words.data.cast("B")
        for start in range(0, blocks, _AT_ONCE):
            # The low half does not overflow within a draw: a stream is never read that far.
            high, low = divmod(first + start, _HALF)
            counters = self._counters[: blocks - start]
            count_on(counters, np.uint64(low), np.uint64(high))
            self._encrypt(counters.data.cast("B"), written[_BLOCK_BYTES * start :])
        self._place += count
        self._followed += count
        return words[skipped : skipped + count]

    def word(self) -> int:
        """Return the next word."""
        return int(self.words(1)[0])

    def generator(self) -> np.random.Generator:
        """Return NumPy's generator, which reads on from here."""
        self._catch_up()
        self._place = None
        return np.random.Generator(self._counter)

    def jumped(self, parts: int = 1) -> Keystream:
        """Return the stream that begins this many times 2^64 words further, more than is ever read."""
        self._catch_up()
        jumped = object.__new__(Keystream)
        jumped._follow(self._counter.jumped(parts))
        return jumped

    @property
    def state(self) -> dict[str, Any]:
        """Everything that is needed to go on from here; it can be set."""
        self._catch_up()
        state: dict[str, Any] = self._counter.state
        return state

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._counter.state = state
        if self._place is not None:
            self._follow(self._counter)

    def _catch_up(self) -> None:
        """Move the counter to OpenSSL's position."""
        if self._followed:
            self._counter.advance(self._followed)
            self._followed = 0

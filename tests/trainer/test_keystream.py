"""The words of a stream are AES-128 of a counter, whoever encrypts it."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from randomgen import AESCounter

from trainer.keystream import Keystream

KEY = 0x000102030405060708090A0B0C0D0E0F


def reference(key: int, count: int) -> np.ndarray:
    """Counter by counter: nothing of NumPy's or randomgen's."""
    encrypt = Cipher(algorithms.AES(key.to_bytes(16, "little")), modes.ECB()).encryptor()
    blocks = b"".join(encrypt.update(number.to_bytes(16, "little")) for number in range(-(-count // 2)))
    return np.frombuffer(blocks, dtype="<u8")[:count]


def test_words_are_those_of_the_counter() -> None:
    expected = reference(KEY, 20_003)
    assert np.array_equal(Keystream(KEY).words(20_003), expected)
    assert np.array_equal(AESCounter(key=KEY).random_raw(20_003), expected)


@pytest.mark.parametrize("seed", range(40))
def test_words_are_those_of_the_counter_wherever_a_draw_begins(seed: int) -> None:
    draw = np.random.default_rng(seed)
    one, other = Keystream(KEY + seed), AESCounter(key=KEY + seed)
    if parts := int(draw.integers(4)):
        one, other = one.jumped(parts), other.jumped(parts)
    with_generator = draw.random() < 0.5
    for turn in range(12):
        count = int(draw.integers(12) if draw.random() < 0.5 else draw.integers(8100, 9000))
        assert np.array_equal(one.words(count), other.random_raw(count))
        if draw.random() < 0.3:
            later = Keystream(1)
            if draw.random() < 0.5:
                later.words(3)
            later.state = one.state
            one = later
        if with_generator and turn >= 6:
            assert np.array_equal(one.generator().permutation(9), np.random.Generator(other).permutation(9))


def test_a_kept_generator_and_words_share_no_bit() -> None:
    one, other = Keystream(KEY), AESCounter(key=KEY)
    generator = one.generator()
    for _ in range(3):
        assert generator.bytes(8) == np.random.Generator(other).bytes(8)
        assert np.array_equal(one.words(5), other.random_raw(5))


def test_jumped_streams_begin_beyond_all_that_is_read() -> None:
    first = Keystream(KEY)
    first.words(3)
    jumped = first.jumped(2)
    assert jumped.state["s"]["counter"][1] - first.state["s"]["counter"][1] == 1  # 2 x 2^64 words are 2^64 blocks
    assert not set(first.words(1000).tolist()) & set(jumped.words(1000).tolist())

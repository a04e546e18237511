"""Rounded normal noise: exactly its law, against the law itself, an independent sampler and high precision."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import stats

from trainer.exact import gaussian, layers
from trainer.exact.gaussian import RoundedGaussian, rounded_normals
from trainer.streams import random_streams

SCALES = [0.5, 1.0, 3.7, 50.25]


def sources(seed: int) -> Any:
    stream = random_streams(seed).noise
    return gaussian._Sources(stream, stream.jumped(1), stream.jumped(2))


def probability(scale: float, whole: np.ndarray) -> np.ndarray:
    """P(R = k), by high precision."""
    found = [mpmath.ncdf((k + 0.5) / scale) - mpmath.ncdf((k - 0.5) / scale) for k in whole.tolist()]
    return np.array([float(p) for p in found])


def law_p_value(drawn: np.ndarray, scale: float) -> float:
    whole = np.arange(-math.ceil(6 * scale) - 2, math.ceil(6 * scale) + 3)
    expected = probability(scale, whole) * drawn.size
    common = expected >= 8
    counts = np.array([np.count_nonzero(drawn == k) for k in whole[common]])
    counts, expected = np.append(counts, drawn.size - counts.sum()), np.append(expected[common], 0.0)
    expected[-1] = drawn.size - expected[:-1].sum()
    return float(stats.chisquare(counts, expected).pvalue)


def test_probabilities_are_those_of_the_worked_numbers() -> None:
    """From an independent computation at 200 bits."""
    for scale, whole, expected in (
        (1.0, 0, 0.38292492254802621),
        (1.0, 3, 0.0059770362467406101),
        (3.7, 5, 0.043376039634510592),
        (50.25, 100, 0.001096042581616293),
    ):
        assert probability(scale, np.array([whole]))[0] == pytest.approx(expected, rel=1e-13)


def test_the_layers_are_those_of_their_definition() -> None:
    with mpmath.workprec(300):
        one = mpmath.mpf(2) ** 64
        r = mpmath.mpf(layers.TAIL_START) / 2**50

        def under(x: Any) -> Any:
            return mpmath.exp(-x * x / 2)

        heights = [int(mpmath.ceil(under(r) * one))]
        tail = mpmath.ceil(under(r) * (1 + mpmath.mpf(2) ** -50) * one) / one
        area = int(mpmath.ceil((r * heights[0] / one + tail / r) * one))
        for _ in range(255):
            inverse = mpmath.sqrt(-2 * mpmath.log(heights[-1] / one))
            heights.append(int(mpmath.floor((heights[-1] / one + area / one / inverse) * one)))
        assert (area, tuple(heights)) == (layers.AREA, layers.HEIGHTS)
        assert heights[-1] >= 2**64 > heights[-2]
        for layer, (certain, width) in enumerate(zip(layers.CERTAIN, gaussian._WIDTHS, strict=True)):
            half = mpmath.mpf(width.numerator) / width.denominator
            top = heights[layer] / one
            inverse = mpmath.sqrt(-2 * mpmath.log(top)) if top < 1 else mpmath.mpf(0)
            assert certain == int(mpmath.floor(2**52 * inverse / half))
            assert layer == 0 or under(half) <= heights[layer - 1] / one, "the layers cover the region"
        envelope = gaussian._TAIL_HEIGHT
        assert mpmath.mpf(envelope.numerator) / envelope.denominator >= under(r)
    assert (layers.CERTAIN[0], layers.CERTAIN[1], layers.CERTAIN[255]) == (4190024306449568, 4250484793070643, 0)


@pytest.mark.parametrize("scale", SCALES)
def test_noise_has_the_law_of_a_rounded_normal(scale: float) -> None:
    assert law_p_value(rounded_normals(sources(11), 1 << 19, scale), scale) > 1e-3


@pytest.mark.parametrize("scale", [1.0, 3.7])
def test_the_exact_path_has_the_law_alone(monkeypatch: pytest.MonkeyPatch, scale: float) -> None:
    """With slack so wide that every height of a wedge or of the tail is compared in exact numbers."""
    monkeypatch.setattr(gaussian, "_HEIGHT_SLACK", 2.0)
    assert law_p_value(rounded_normals(sources(12), 1 << 17, scale), scale) > 1e-3


def test_exact_and_fast_paths_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the same bits: the slack decides which of the two answers, never what the answer is."""
    fast = rounded_normals(sources(13), 1 << 16, 1000.5)
    monkeypatch.setattr(gaussian, "_HEIGHT_SLACK", 2.0)
    np.testing.assert_array_equal(rounded_normals(sources(13), 1 << 16, 1000.5), fast)


@pytest.mark.parametrize("exponent", [30, 36])
def test_low_bits_are_uniform_and_large_numbers_are_normal(exponent: int) -> None:
    scale = 0.9 * 2.0**exponent
    drawn = rounded_normals(sources(14), 1 << 18, scale)
    assert np.all(drawn == np.rint(drawn))
    assert stats.kstest(drawn / scale, "norm").pvalue > 1e-3
    for bits in (1, 5, 12):
        counts = np.bincount(np.mod(drawn, 2.0**bits).astype(np.int64), minlength=1 << bits)
        assert stats.chisquare(counts).pvalue > 1e-3


def test_the_tail_is_that_of_the_normal_law() -> None:
    """Beyond the ziggurat's layers, where an exponential envelope is rejected from."""
    scale = 2.0**20
    sizes = np.abs(rounded_normals(sources(15), 1 << 21, scale)) / scale
    beyond = sizes[sizes > 3.7]
    share = 2.0 * stats.norm.sf(3.7)
    assert abs(beyond.size - share * sizes.size) < 4.0 * math.sqrt(share * sizes.size)
    assert stats.kstest(beyond, lambda x: 1.0 - stats.norm.sf(x) / stats.norm.sf(3.7)).pvalue > 1e-3


class GivenWords:
    """A stream of chosen 64-bit words."""

    def __init__(self, *words: int) -> None:
        self.words = list(words)

    def random_raw(self, size: int) -> np.ndarray:
        drawn, self.words = self.words[:size], self.words[size:]
        return np.array(drawn + [0] * (size - len(drawn)), dtype=np.uint64)


def test_what_is_near_a_tie_is_decided_by_more_bits() -> None:
    """A place whose first bits leave the rounding open: the next words say which, and are read until they do."""
    scale = Fraction(2**36)
    width = gaussian._WIDTHS[40]
    # s such that K s X 2^-52 is just below a half: then a small W leaves it below, a large one does not.
    step = scale * width / 2**52
    signed = next(s for s in range(2**40, 2**40 + 10**6) if (s * step) % 1 < Fraction(1, 2) < ((s + 1) * step) % 1)
    whole = math.floor(signed * step)
    for words, expected in (([0], whole), ([2**64 - 1], whole + 1)):
        stream = GivenWords(*words)
        trial = gaussian._Trial(40, signed, (0, 0))
        assert trial.outcome(scale, stream) == (True, expected)
    threshold = (whole + Fraction(1, 2)) / step - signed
    first, rest = divmod(math.floor(threshold * 2**128), 2**64)
    stream = GivenWords(first, 0, 0, rest + 2, 0, 0)
    assert gaussian._Trial(40, signed, (0, 0)).outcome(scale, stream) == (True, whole + 1)
    assert not stream.words, "both words were read"


def test_numpys_exp_and_log_are_as_accurate_as_the_slack_assumes() -> None:
    rng = np.random.default_rng(5)
    exponents = -rng.uniform(0.0, 60.0, 4000)
    numbers = np.concatenate([rng.uniform(2.0**-20, 1.0, 2000), 2.0 ** -rng.uniform(0.0, 20.0, 2000)])
    with mpmath.workprec(120):
        for given, found, exact in (
            (exponents, np.exp(exponents), mpmath.exp),
            (numbers, np.log(numbers), mpmath.log),
        ):
            errors = [
                abs(mpmath.mpf(f) - exact(mpmath.mpf(x))) for x, f in zip(given.tolist(), found.tolist(), strict=True)
            ]
            assert max(errors) < mpmath.mpf(2) ** -45


@pytest.mark.parametrize("size", [1, 7, 7850])
def test_restored_noise_goes_on(size: int) -> None:
    """From every place of a chunk, after a change of scale too, and while the next chunk is drawn ahead."""
    noise = RoundedGaussian(random_streams(3).noise)
    for scale in (5.0, 1e6):
        for _ in range(5):
            noise.rounded(size, scale)
            state = noise.state()
            expected = [noise.rounded(size, scale) for _ in range(4)]
            again = RoundedGaussian(random_streams(99).noise)
            again.restore(state)
            for drawn in expected:
                np.testing.assert_array_equal(again.rounded(size, scale), drawn)
            again.close()
    noise.close()


def test_work_is_public() -> None:
    """How far each stream goes depends on what was asked for, and not on the key, but for refinement."""
    went = set()
    for seed in range(5):
        counted = {}
        given = sources(seed)
        for name in ("candidates", "places"):
            counted[name] = Counted(getattr(given, name))
        rounded_normals(gaussian._Sources(**counted, more=given.more), 5000, 12345.6)
        went.add(tuple(counter.words for counter in counted.values()))
    assert len(went) == 1


class Counted:
    """A stream that counts the words that are drawn from it."""

    def __init__(self, stream: Any) -> None:
        self._stream, self.words = stream, 0

    def random_raw(self, size: int) -> np.ndarray:
        self.words += size
        found: np.ndarray = self._stream.random_raw(size)
        return found


def test_draws_of_different_sizes_and_scales_follow_one_another() -> None:
    noise = RoundedGaussian(random_streams(4).noise)
    parts = [noise.rounded(size, scale) for size, scale in ((3, 9.0), (1000, 9.0), (20, 1.0), (3, 9.0), (5, 0.0))]
    assert [part.size for part in parts] == [3, 1000, 20, 3, 5]
    assert not parts[-1].any()
    assert len({float(part.sum()) for part in parts[:4]}) == 4
    noise.close()

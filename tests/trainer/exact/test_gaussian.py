"""Rounded normal noise: exactly its law, against the law itself, an independent sampler and high precision."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import stats

from trainer.exact import normal_layers, ziggurat
from trainer.exact.gaussian import NORMAL, RoundedGaussian, rounded_normals
from trainer.exact.ziggurat import Known, Sources, Tables, Trial
from trainer.streams import random_streams

SCALES = [0.5, 1.0, 3.7, 50.25]


def sources(seed: int) -> Any:
    return Sources.of(random_streams(seed).noise)


def tables_of(scale: float) -> Any:
    return Tables.of(NORMAL, Known(Fraction(scale)))


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
        r = mpmath.mpf(normal_layers.TAIL_START) / 2**50

        def under(x: Any) -> Any:
            return mpmath.exp(-x * x / 2)

        heights = [int(mpmath.ceil(under(r) * one))]
        tail = mpmath.ceil(under(r) * (1 + mpmath.mpf(2) ** -50) * one) / one
        area = int(mpmath.ceil((r * heights[0] / one + tail / r) * one))
        for _ in range(255):
            inverse = mpmath.sqrt(-2 * mpmath.log(heights[-1] / one))
            heights.append(int(mpmath.floor((heights[-1] / one + area / one / inverse) * one)))
        assert (area, tuple(heights)) == (normal_layers.AREA, normal_layers.HEIGHTS)
        assert heights[-1] >= 2**64 > heights[-2]
        for layer, (certain, width) in enumerate(zip(normal_layers.CERTAIN, NORMAL.widths, strict=True)):
            half = mpmath.mpf(width.numerator) / width.denominator
            top = heights[layer] / one
            inverse = mpmath.sqrt(-2 * mpmath.log(top)) if top < 1 else mpmath.mpf(0)
            assert certain == int(mpmath.floor(2**52 * inverse / half))
            assert layer == 0 or under(half) <= heights[layer - 1] / one, "the layers cover the region"
        envelope = NORMAL.tail_height
        assert mpmath.mpf(envelope.numerator) / envelope.denominator >= under(r)
    places = normal_layers.CERTAIN
    assert (places[0], places[1], places[255]) == (4190024306449568, 4250484793070643, 0)


@pytest.mark.parametrize("scale", SCALES)
def test_noise_has_the_law_of_a_rounded_normal(scale: float) -> None:
    assert law_p_value(rounded_normals(sources(11), 1 << 19, scale), scale) > 1e-3


@pytest.mark.parametrize("scale", [1.0, 3.7])
def test_the_exact_path_has_the_law_alone(monkeypatch: pytest.MonkeyPatch, scale: float) -> None:
    """With slack so wide that every height of a wedge or of the tail is compared in exact numbers."""
    monkeypatch.setattr(ziggurat, "_HEIGHT_SLACK", 2.0)
    assert law_p_value(rounded_normals(sources(12), 1 << 17, scale), scale) > 1e-3


def test_exact_and_fast_paths_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the same bits: the slack decides which of the two answers, never what the answer is."""
    fast = rounded_normals(sources(13), 1 << 16, 1000.5)
    monkeypatch.setattr(ziggurat, "_HEIGHT_SLACK", 2.0)
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
        self.left = list(words)

    def words(self, size: int) -> np.ndarray:
        drawn, self.left = self.left[:size], self.left[size:]
        return np.array(drawn + [0] * (size - len(drawn)), dtype=np.uint64)


def test_what_is_near_a_tie_is_decided_by_more_bits() -> None:
    """A place whose first bits leave the rounding open: the next words say which, and are read until they do."""
    scale, signed, whole, threshold = near_tie()
    for word, expected in ((0, whole), (2**64 - 1, whole + 1)):
        assert Trial(NORMAL, 40, signed, (word, 0, 0)).outcome(Known(scale), GivenWords()) == (True, expected)
    first, rest = divmod(math.floor(threshold * 2**128), 2**64)
    for last, expected in ((rest - 2, whole), (rest + 2, whole + 1)):
        stream = GivenWords(last % 2**64, 0, 0)
        assert Trial(NORMAL, 40, signed, (first, 0, 0)).outcome(Known(scale), stream) == (True, expected)
        assert not stream.left, "the second word was read"


def near_tie() -> tuple[Fraction, int, int, Fraction]:
    """A scale, s of a word of layer 40 whose W decides the rounding, what it is rounded to below, and where W does."""
    scale = Fraction(2**36)
    step = scale * NORMAL.widths[40] / 2**52
    signed = next(s for s in range(2**40, 2**40 + 10**6) if (s * step) % 1 < Fraction(1, 2) < ((s + 1) * step) % 1)
    whole = math.floor(signed * step)
    return scale, signed, whole, (whole + Fraction(1, 2)) / step - signed


def one_place(scale: float, word: int, own: tuple[int, int, int], more: GivenWords) -> tuple[float, bool]:
    """What one candidate becomes whose place has these words, and whether it is accepted."""
    counted = Counted(GivenWords())
    sure = Sources(GivenWords(0), counted, GivenWords())  # type: ignore[arg-type]
    ziggurat._candidates(tables_of(scale), sure, 1, scale)
    room = counted.read // 3
    places = GivenWords(*(part for one in own for part in (one, *[0] * (room - 1))))
    given = Sources(GivenWords(word), places, more)  # type: ignore[arg-type]
    made, rejected = ziggurat._candidates(tables_of(scale), given, 1, scale)
    return float(made[0]), rejected.size == 0


def test_near_a_tie_the_first_word_decides_in_floating_point() -> None:
    """Two numbers carry K x far enough for that; only what is nearer than their slack reads more."""
    scale, signed, whole, threshold = near_tie()
    word, at = (signed << 11) + 40, math.floor(threshold * 2**64)
    for first, expected in ((0, whole), (at - 2**30, whole), (at + 2**30, whole + 1), (2**64 - 1, whole + 1)):
        more = GivenWords(*[7] * 3)
        assert one_place(float(scale), word, (first, 0, 0), more) == (expected, True)
        assert len(more.left) == 3, "no more bits were read"
    more = GivenWords(0, 0, 0)
    assert one_place(float(scale), word, (at, 0, 0), more) == (whole, True)
    assert not more.left


@pytest.mark.one_in(3)
@pytest.mark.parametrize("scale", [0.3, 3.7, 2.0**33, 0.9 * 2.0**36])
def test_what_is_decided_fast_holds_for_every_continuation(monkeypatch: pytest.MonkeyPatch, scale: float) -> None:
    """Each place is given the least W, and then the largest, and decided by exact numbers alone."""
    tables, undecided = tables_of(scale), []
    decide = ziggurat._decide

    def noted(*given: Any) -> Any:
        undecided.append(given[3])
        return decide(*given)

    count = 1 << 11
    monkeypatch.setattr(ziggurat, "_decide", noted)
    fast, _ = ziggurat._candidates(tables, sources(16), count, scale)
    decided = np.setdiff1d(np.arange(count), undecided[0])
    assert decided.size > 0.9 * count
    monkeypatch.setattr(ziggurat, "_TIE_SLACK", 1.0)
    for word in (0, 2**64 - 1):
        given = replace(sources(16), places=Constant(word))
        exact, rejected = ziggurat._candidates(replace(tables, surely=-1.0), given, count, scale)
        assert not np.isin(decided, rejected).any()
        np.testing.assert_array_equal(exact[decided], fast[decided])


class Constant:
    """A stream of one word."""

    def __init__(self, word: int) -> None:
        self._word = word

    def words(self, size: int) -> np.ndarray:
        return np.full(size, self._word, dtype=np.uint64)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("scale", [0.4, 50.25, 2.0**30, 2.0**36])
def test_two_numbers_round_as_exact_ones_do(monkeypatch: pytest.MonkeyPatch, scale: float) -> None:
    """On the same bits, where every place is undecided."""
    tables, count = replace(tables_of(scale), surely=-1.0), 1 << 12
    fast, rejected = ziggurat._candidates(tables, sources(17), count, scale)
    monkeypatch.setattr(ziggurat, "_TIE_SLACK", 1.0)
    exact, rejected_exactly = ziggurat._candidates(tables, sources(17), count, scale)
    np.testing.assert_array_equal(rejected, rejected_exactly)
    kept = np.setdiff1d(np.arange(count), rejected)
    np.testing.assert_array_equal(fast[kept], exact[kept])


@pytest.mark.parametrize("scale", [3.7, 0.9 * 2.0**36])
def test_the_tail_is_rounded_as_exact_numbers_are(scale: float) -> None:
    """From every place of the tail that floating point decides, far out too."""
    rng, signed = np.random.default_rng(18), 2**52 - 1
    room = 1 << 10
    tails = [int(2.0**exponent) for exponent in rng.uniform(44.0, 64.0, room)]
    words = np.full(room, signed << 11, dtype=np.uint64)
    own = np.zeros((3, 2 * room), dtype=np.uint64)  # room for more than are needed
    own[2, :room] = tails

    class Places:
        def words(self, size: int) -> np.ndarray:
            return np.concatenate([own[i, : size // 3] for i in range(3)])

    made = np.empty(room)
    given = Sources(GivenWords(), Places(), GivenWords())  # type: ignore[arg-type]
    rejected = ziggurat._decide(tables_of(scale), given, words, np.arange(room), room, made)
    assert rejected.size == 0, "a height of 0 is under the curve"
    exact = Known(Fraction(scale))
    expected = [Trial(NORMAL, 0, signed, (0, 0, tail)).outcome(exact, GivenWords())[1] for tail in tails]
    assert made.tolist() == expected


@pytest.mark.parametrize("tail", [2**44 + 5, 2**44 + 2000, 2**50 + 1, 2**63, 2**64 - 1])
def test_every_bit_of_a_tails_word_counts(tail: int) -> None:
    """Two words that differ in their last 11 bits are two steps apart, far out at the largest scale."""
    scale, signed = 2.0**36, 2**52 - 1
    accepted, whole = Trial(NORMAL, 0, signed, (1, 0, tail)).outcome(Known(Fraction(scale)), GivenWords())
    assert one_place(scale, signed << 11, (1, 0, tail), GivenWords()) == (whole, accepted)


def test_shares_of_words_are_no_less_than_the_true_ones() -> None:
    """Else chunks would often need more words, or more places, than are planned: that shows in the time."""
    accepted = math.sqrt(math.pi / 2.0) / (256.0 * normal_layers.AREA * 2.0**-64)
    at_once = sum(normal_layers.CERTAIN) / 256.0 * 2.0**-52
    assert 1.0 - accepted < NORMAL.rejected < 1.01 * (1.0 - accepted)
    assert 1.0 - at_once < NORMAL.undecided < 1.01 * (1.0 - at_once)


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


def test_restored_noise_goes_on_after_the_scale_or_the_size_changes() -> None:
    """A phase ends after the checkpoint: the chunk that was drawn ahead is discarded whether a run resumed or not."""
    for size in (300, 20_000):
        for following in ([(size, 7.0)] * 3, [(70, 5.0), (size, 5.0), (3 * size, 5.0), (90_000, 5.0), (size, 8.0)]):
            noise = RoundedGaussian(random_streams(3).noise)
            for _ in range(20):
                noise.rounded(size, 5.0)
            again = RoundedGaussian(random_streams(99).noise)
            again.restore(noise.state())
            for count, scale in following:
                np.testing.assert_array_equal(again.rounded(count, scale), noise.rounded(count, scale))
            again.close()
            noise.close()


@pytest.mark.parametrize("exponent", [-20, -19, -16, -13, -9, -1])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.one_in(16)
def test_the_far_tail_is_rounded_exactly(exponent: int, sign: int) -> None:
    """The fast path and the exact one on the same words, so far out that the rounding needs all bits of a word."""
    scale, rng = 0.9 * 2.0**36, np.random.default_rng(29)
    signed, places = sign * (2**52 - 1000), 300
    words = np.full(places, (signed << 11) & (2**64 - 1), dtype=np.uint64)
    tails = [int(2.0 ** (64 + exponent) * (1.0 + share)) for share in rng.random(places)]
    # No height, so that every place is accepted.
    given: Any = Sources(GivenWords(), GivenWords(*[0] * (2 * places), *tails), sources(1).more)  # type: ignore[arg-type]
    made = np.zeros(places)
    rejected = ziggurat._decide(tables_of(scale), given, words, np.arange(places), places, made)
    assert not rejected.size
    exact = Known(Fraction(scale))
    trials = [Trial(NORMAL, 0, signed, (0, 0, tail)).outcome(exact, sources(1).more) for tail in tails]
    assert [(True, int(whole)) for whole in made] == trials


def test_work_is_public() -> None:
    """How far each stream goes depends on what was asked for, and not on the key, but for refinement."""
    went = set()
    for seed in range(5):
        counted = {}
        given = sources(seed)
        for name in ("candidates", "places"):
            counted[name] = Counted(getattr(given, name))
        rounded_normals(Sources(**counted, more=given.more), 5000, 12345.6)
        went.add(tuple(counter.read for counter in counted.values()))
    assert len(went) == 1


class Counted:
    """A stream that counts the words that are drawn from it."""

    def __init__(self, stream: Any) -> None:
        self._stream, self.read = stream, 0

    def words(self, size: int) -> np.ndarray:
        self.read += size
        found: np.ndarray = self._stream.words(size)
        return found


def test_draws_of_different_sizes_and_scales_follow_one_another() -> None:
    noise = RoundedGaussian(random_streams(4).noise)
    parts = [noise.rounded(size, scale) for size, scale in ((3, 9.0), (1000, 9.0), (20, 1.0), (3, 9.0), (5, 0.0))]
    assert [part.size for part in parts] == [3, 1000, 20, 3, 5]
    assert not parts[-1].any()
    assert len({float(part.sum()) for part in parts[:4]}) == 4
    noise.close()

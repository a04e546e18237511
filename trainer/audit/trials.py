"""Trials, and rules for guessing about them: which canaries are called members, which non-members, and which are
skipped."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainer.audit.scores import Floats

#: The number of different counts of guesses of one kind that are considered, from one to all.
_LEVELS = 28


@dataclass(frozen=True)
class Trials:
    """Canaries with fair coins, in the order in which they were run.

    Attributes:
        scores: The scores by name, each of shape (n,).
        members: Whether each canary took part, shape (n,).
    """

    scores: Mapping[str, Floats]
    members: npt.NDArray[np.bool_]

    @property
    def count(self) -> int:
        return self.members.size

    @staticmethod
    def join(parts: Sequence[Trials]) -> Trials:
        names = parts[0].scores
        return Trials(
            {name: np.concatenate([part.scores[name] for part in parts]) for name in names},
            np.concatenate([part.members for part in parts]),
        )


@dataclass(frozen=True, slots=True)
class Counts:
    """The outcome of the guesses of one rule.

    Attributes:
        trials: The number of canaries.
        members: The number of canaries that took part.
        hits: The number of members that were taken for members.
        alarms: The number of others that were taken for members.
        rejections: The number of others that were taken for others.
        misses: The number of members that were taken for others.
        kinds: The number of kinds of guesses that the rule may make.
    """

    trials: int
    members: int
    hits: int
    alarms: int
    rejections: int
    misses: int
    kinds: int

    @property
    def guesses(self) -> int:
        return self.hits + self.alarms + self.rejections + self.misses

    @property
    def correct(self) -> int:
        return self.hits + self.rejections


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Scores above one threshold are guessed members, those below the other non-members; the rest is skipped."""

    score: str
    above: float
    below: float

    def count(self, trials: Trials) -> Counts:
        values = trials.scores[self.score]
        kinds = (self.above < math.inf) + (self.below > -math.inf)
        return _counts(trials, values > self.above, values < self.below, kinds)


@dataclass(frozen=True, slots=True)
class Ranks:
    """A fixed number of the highest scores are called members, and a fixed number of the lowest non-members."""

    score: str
    top: int
    bottom: int

    def count(self, trials: Trials) -> Counts:
        ranks = np.argsort(np.argsort(trials.scores[self.score], kind="stable"), kind="stable")
        kinds = (self.top > 0) + (self.bottom > 0)
        return _counts(trials, ranks >= trials.count - self.top, ranks < self.bottom, kinds)


Rule = Thresholds | Ranks


def _counts(trials: Trials, said: npt.NDArray[np.bool_], denied: npt.NDArray[np.bool_], kinds: int) -> Counts:
    members = trials.members
    hits, misses = int(np.count_nonzero(said & members)), int(np.count_nonzero(denied & members))
    return Counts(
        trials=trials.count,
        members=int(np.count_nonzero(members)),
        hits=hits,
        alarms=int(np.count_nonzero(said)) - hits,
        rejections=int(np.count_nonzero(denied)) - misses,
        misses=misses,
        kinds=kinds,
    )


def levels(count: int) -> list[int]:
    """Return numbers from 1 to ``count``, a constant factor apart.

    >>> levels(5)
    [1, 2, 3, 4, 5]
    """
    if count < 1:
        return []
    return sorted({round(float(level)) for level in np.geomspace(1, count, _LEVELS)})


def thresholds(trials: Trials, *, both: bool) -> Iterator[tuple[Thresholds, Counts]]:
    """Yield rules at quantiles of the scores, with their counts on these trials.

    Args:
        both: Whether to consider rules with guesses of both kinds; otherwise only of the first kind.
    """
    for name, values in trials.scores.items():
        ordered = np.sort(values)
        steps = levels(trials.count - 1)
        tops = [(math.inf, 0)] + [(float(ordered[-1 - k]), k) for k in steps]
        bottoms = [(-math.inf, 0)] + ([(float(ordered[k]), k) for k in steps] if both else [])
        said = [(Thresholds(name, above, -math.inf).count(trials), above) for above, _ in tops]
        denied = [(Thresholds(name, math.inf, below).count(trials), below) for below, _ in bottoms]
        for up, above in said:
            for down, below in denied:
                if below <= above and up.kinds + down.kinds > 0:
                    yield (
                        Thresholds(name, above, below),
                        Counts(
                            up.trials,
                            up.members,
                            up.hits,
                            up.alarms,
                            down.rejections,
                            down.misses,
                            up.kinds + down.kinds,
                        ),
                    )


def ranks(trials: Trials) -> Iterator[tuple[Ranks, Counts]]:
    """Yield rules with fixed numbers of guesses, with their counts on these trials."""
    for name in trials.scores:
        for level in levels(trials.count)[::2]:
            half = level // 2
            for rule in (Ranks(name, level, 0), Ranks(name, 0, level), Ranks(name, level - half, half)):
                yield rule, rule.count(trials)

"""The trials of a sweep for the best follow from its id and a secret: as good as drawn, and told by nothing else."""

from __future__ import annotations

import hashlib
import hmac
import math
from collections import Counter

from accounting.tuning.drawing import most_trials
from accounting.tuning.trials import PoissonTrials, RandomTrials, TruncatedNegativeBinomial
from app.runs.sweep_trials import Trials

POISSON = PoissonTrials(2.0)
SWEEPS = 4000


def trials(name: str, law: RandomTrials = POISSON, secret: bytes = b"one", cells: int = 3, spare: int = 1) -> Trials:
    def keyed_hash(label: str, data: bytes) -> str:
        return hmac.new(secret, label.encode() + b"\0" + data, hashlib.sha256).hexdigest()

    return Trials(keyed_hash, name, law, cells, spare)


def is_as_expected(found: Counter[int], expected: dict[int, float]) -> bool:
    """Pearson's statistic over what is expected ten times at least, below a value that it passes once in 10^6."""
    bins = {number: many for number, many in expected.items() if many >= 10}
    statistic = sum((found[number] - many) ** 2 / many for number, many in bins.items())
    return statistic < len(bins) + 5 * math.sqrt(2 * len(bins)) + 14


def test_their_number_has_its_law_over_sweeps() -> None:
    found = Counter(trials(f"swp_{number}").drawn for number in range(SWEEPS))
    poisson = {k: SWEEPS * math.exp(-2.0) * 2.0**k / math.factorial(k) for k in range(20)}
    assert is_as_expected(found, poisson)
    assert not is_as_expected(Counter({k: round(many) for k, many in poisson.items()}), dict.fromkeys(range(6), 700.0))
    geometric = TruncatedNegativeBinomial(1.0, 0.25)
    found = Counter(trials(f"swp_{number}", geometric).drawn for number in range(SWEEPS))
    assert is_as_expected(found, {k: SWEEPS * 0.25 * 0.75 ** (k - 1) for k in range(1, 60)})


def test_each_cell_is_equally_likely_in_each_trial() -> None:
    many = [trials(f"swp_{number}", cells=7) for number in range(700)]
    for number in range(3):
        assert is_as_expected(Counter(each.cell_of(number) for each in many), dict.fromkeys(range(7), 100.0))
    pairs = Counter(each.cell_of(0) * 7 + each.cell_of(1) for each in many)
    assert is_as_expected(pairs, dict.fromkeys(range(49), 700 / 49))


def test_another_secret_makes_other_trials() -> None:
    one, other = trials("swp_a"), trials("swp_a", secret=b"other")
    assert one.id_of(0) != other.id_of(0)
    assert len({trials("swp_a", secret=bytes([number])).drawn for number in range(50)}) > 2


def test_a_run_is_a_trial_of_the_one_sweep_that_makes_it() -> None:
    one = trials("swp_a", spare=6)
    assert one.most >= 6
    assert [one.number_of(one.id_of(number)) for number in range(one.most)] == list(range(one.most))
    assert one.number_of(one.id_of(one.most)) is None
    assert one.number_of(trials("swp_b").id_of(0)) is None
    assert [one.counts(one.id_of(number)) for number in range(one.most)] == [
        number < one.drawn for number in range(one.most)
    ]


def test_the_next_trial_is_the_first_that_is_missing() -> None:
    one = trials("swp_a", spare=6)
    assert one.next([]) == 0
    # What somebody has put among them is none of them, and a trial that is gone is made again.
    assert one.next([one.id_of(0), "run_forged", one.id_of(2)]) == 1


def test_no_more_are_made_than_the_law_has() -> None:
    most = most_trials(POISSON)
    assert all(trials(f"swp_{number}").drawn <= most for number in range(200))

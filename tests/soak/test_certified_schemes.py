"""A thousand answers of each kind of events that certificates cover, at both ends, and prices: none is refuted."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from multiprocessing import get_context
from typing import Any

import flint
import numpy as np
import pytest

from accounting.certificates import AT_MOST, MORE_THAN, Certificate, NoCertificate, certify, certify_price, check_again
from accounting.events import (
    CorrelatedGaussian,
    CyclicPoisson,
    Event,
    FixedOrderEpochs,
    FullBatch,
    PureDp,
    SquareRootGaussian,
)
from accounting.filters import ApproximateGaussianDpFilter
from accounting.groups import group_epsilon_for_delta
from tests.accounting.campaign import SCHEMES
from tests.accounting.campaign.spec import ADD_REMOVE, REPLACE, Spec, random_delta, random_steps, uniform_in_log
from tests.accounting.certificates.requests import drawn
from tests.soak.report import write_report

ANSWERS, SEED = 1000, 23
#: By this much an epsilon may be widened where the engine's own end leaves too little room.
WIDENED = 1e-6
BUDGET = ApproximateGaussianDpFilter(8.0, 1e-5)


def _draw_pure(rng: np.random.Generator) -> Spec:
    steps = random_steps(rng, 300)
    return Spec(
        Event(PureDp(uniform_in_log(rng, 0.1, 6.0) / math.sqrt(steps)), count=steps), REPLACE, random_delta(rng)
    )


def _draw_correlated(rng: np.random.Generator) -> Spec:
    steps, bands = random_steps(rng, 2000), int(rng.integers(1, 30))
    falling = tuple(sorted((float(c) for c in rng.uniform(0.1, 1.0, bands)), reverse=True))
    noise = uniform_in_log(rng, 0.5, 20.0)
    mechanism = (CorrelatedGaussian(noise, falling), SquareRootGaussian(noise, bands))[int(rng.integers(2))]
    cyclic = CyclicPoisson(uniform_in_log(rng, 1e-3, 0.5), int(rng.integers(bands, 60)), "independent")
    sampling, relation = (
        (FullBatch(), ADD_REMOVE),
        (cyclic, ADD_REMOVE),
        (FixedOrderEpochs(int(rng.integers(1, 60))), REPLACE),
    )[int(rng.integers(3))]
    return Spec(Event(mechanism, sampling, steps), relation, random_delta(rng))


COVERED = (
    "gaussian_full_batch",
    "gaussian_shuffled_epochs",
    "gaussian_poisson",
    "gaussian_poisson_replace_one",
    "gaussian_without_replacement",
    "gaussian_with_replacement",
    "gaussian_mixture",
    "gaussian_random_truncation",
    "gaussian_random_truncation_replace_one",
    "group_gaussian",
    "group_poisson",
    "laplace_full_batch",
    "randomized_response",
    "discrete_noise",
)
DRAWS: dict[str, Callable[[np.random.Generator], Spec]] = {
    **{name: SCHEMES[name].draw for name in COVERED},
    "pure_dp": _draw_pure,
    "correlated_gaussian": _draw_correlated,
}


@dataclass
class Judged:
    """What came of one answer, or of one price."""

    verdicts: list[str] = field(default_factory=list)
    refuted: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def has(self, what: str, find: Callable[[], Certificate]) -> bool:
        """Return whether there is a certificate, and verify it once more for its time."""
        try:
            data = find().data
        except NoCertificate as reason:
            (self.refuted if "says refuted" in str(reason) else self.reasons).append(f"{what}: {reason}"[:200])
            return False
        start = time.process_time()
        assert check_again(data).verdict == "verified"
        self.seconds.append(time.process_time() - start)
        self.sizes.append(len(data))
        return True


def judge(kind: str, number: int) -> Judged:
    """Certify both ends of one answer, as the engine states them or a millionth wider; or one price."""
    found = Judged()
    if kind == "price":
        request = drawn(number)
        amounts = BUDGET.cost(request.events, request.relation).amounts
        rate = Fraction(str(BUDGET.delta_per_mu_squared))
        price = partial(certify_price, request.events, request.relation, amounts, rate)
        found.verdicts.append("verified" if found.has(f"price {number}", price) else "no certificate")
        return found
    if kind == "list":
        request = drawn(5 * number + 2)
        events, relation, delta, size = request.events, request.relation, request.delta, 1
        ends = [(AT_MOST, request.upper, WIDENED), (MORE_THAN, request.lower, -WIDENED)]
    else:
        spec = DRAWS[kind](np.random.default_rng([SEED, number, *kind.encode()]))
        events, relation, delta, size = (spec.event,), spec.relation, spec.delta, spec.group_size
        value = group_epsilon_for_delta(events, relation, delta, size).value
        ends = [(AT_MOST, value.upper, WIDENED), (MORE_THAN, value.lower, -WIDENED)]
    for claim, end, widened in ends:
        if not 0.0 < end < math.inf:
            found.verdicts.append("no end")
            continue
        for how, epsilon in (("verified", end), ("verified when widened", end * (1.0 + widened))):
            if found.has(f"{number} {claim}", partial(certify, claim, events, relation, epsilon, delta, size)):
                found.verdicts.append(how)
                break
        else:
            found.verdicts.append("no certificate")
    return found


KINDS = (*DRAWS, "list", "price")


def report(judged: Mapping[str, Sequence[Judged]], command: str) -> None:
    """Write the report on what was judged of each kind."""
    kinds: dict[str, dict[str, Any]] = {}
    total: Counter[str] = Counter()
    for kind, found in judged.items():
        verdicts = Counter(verdict for one in found for verdict in one.verdicts)
        seconds = sorted(each for one in found for each in one.seconds)
        kinds[kind] = {
            "answers": len(found),
            **dict(sorted(verdicts.items())),
            "refuted": sum(len(one.refuted) for one in found),
            "cpu_seconds_95": round(seconds[math.ceil(0.95 * len(seconds)) - 1], 4),
            "bytes_largest": max(each for one in found for each in one.sizes),
            "reasons": dict(
                Counter(reason.partition(": ")[2] for one in found for reason in one.reasons).most_common(3)
            ),
        }
        total += verdicts
    write_report(
        "certified_schemes",
        command,
        {
            "flint": flint.__FLINT_VERSION__,
            "answers": sum(each["answers"] for each in kinds.values()),
            "fewest_of_a_kind": min(each["answers"] for each in kinds.values()),
            "certificates": total["verified"] + total["verified when widened"],
            "without": total["no certificate"],
            "refuted": sum(each["refuted"] for each in kinds.values()),
            "kinds": kinds,
        },
    )


@pytest.mark.soak
def test_no_answer_of_a_certified_scheme_is_refuted() -> None:
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        judged = {kind: list(pool.map(judge, [kind] * ANSWERS, range(ANSWERS), chunksize=4)) for kind in KINDS}
    report(judged, "make soak")
    assert [each for found in judged.values() for one in found for each in one.refuted] == []

"""Certificates of 300 random answers at the engine's own ends, and of thousands of false statements."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context

import flint
import pytest
from epsilond_verifier import check

from accounting.canonical import number_to_string
from accounting.certificates import AT_MOST, MORE_THAN, NoCertificate
from accounting.certificates.certificate import Statement
from accounting.certificates.prover import witnesses
from tests.accounting.certificates.requests import drawn
from tests.clients.verifier.cases import changed, mutated, numbers
from tests.soak.report import write_report

REQUESTS, FALSE_OF_EACH = 300, 16
#: By this much an epsilon may be widened where the engine's own end leaves too little room.
WIDENED = 1e-6


@dataclass
class Found:
    """What came of one request."""

    number: int
    kind: str
    verdicts: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    prover_seconds: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    false: Counter[str] = field(default_factory=Counter)
    reasons: list[str] = field(default_factory=list)


def judge(number: int) -> Found:
    """Certify both ends of one answer, and try to have false statements verified with what was proved."""
    request, found, rng = drawn(number), Found(number, ""), random.Random(number)
    found.kind = request.kind
    for claim, end in ((AT_MOST, request.upper), (MORE_THAN, request.lower)):
        outward = WIDENED if claim == AT_MOST else -WIDENED
        for how, epsilon in (("verified", end), ("verified when widened", end * (1 + outward))):
            data = _prove(Statement(claim, request.events, request.relation, epsilon, request.delta), found)
            if data is not None:
                found.verdicts.append(f"{claim} {how}")
                break
        else:
            found.verdicts.append(f"{claim} cannot check")
            continue
        # Both ends enclose the truth, so that beyond the other end the statement is false.
        beyond = request.lower * (1 - 1e-5) if claim == AT_MOST else request.upper * (1 + 1e-5)
        false = changed(data, ["statement", "epsilon"], number_to_string(beyond))
        places = numbers(false)
        for _ in range(FALSE_OF_EACH // 2):
            found.false[check(false).verdict] += 1
            false = changed(data, ["statement", "epsilon"], number_to_string(beyond))
            for where, text in rng.sample(places, min(len(places), rng.randint(1, 3))):
                false = changed(false, where, mutated(text, rng))
    return found


def _prove(stated: Statement, found: Found) -> bytes | None:
    start = time.process_time()
    try:
        for data in witnesses(stated):
            made = time.process_time()
            verdict = check(data)
            start, last = time.process_time(), made - start
            if verdict.verdict == "refuted":
                found.reasons.append(f"REFUTED {stated}")
            if verdict.verdict == "verified":
                found.seconds.append(start - made)
                found.prover_seconds.append(last)
                found.sizes.append(len(data))
                return data
            found.reasons.append(verdict.reason)
    except NoCertificate as error:
        found.reasons.append(str(error))
    return None


def report(found: list[Found]) -> None:
    """Write the report on all requests."""
    verdicts = Counter(verdict for each in found for verdict in each.verdicts)
    false = sum((each.false for each in found), Counter())
    by_kind = {
        kind: dict(Counter(verdict for each in found if each.kind == kind for verdict in each.verdicts))
        for kind in sorted({each.kind for each in found})
    }
    seconds = sorted(second for each in found for second in each.seconds)
    sizes = sorted(size for each in found for size in each.sizes)
    write_report(
        "certificates",
        "make soak",
        {
            "flint": flint.__FLINT_VERSION__,
            "requests": REQUESTS,
            "verdicts": dict(verdicts),
            "verdicts_by_kind": by_kind,
            "false_statements": sum(false.values()),
            "false_statements_verified": false["verified"],
            "false_statements_refuted": false["refuted"],
            "true_statements_refuted": sum("REFUTED" in reason for each in found for reason in each.reasons),
            "cpu_seconds": _quantiles(seconds),
            "cpu_seconds_of_the_prover": _quantiles(sorted(s for each in found for s in each.prover_seconds)),
            "bytes": _quantiles([float(size) for size in sizes]),
            "not_checked": [each.number for each in found if any("cannot check" in v for v in each.verdicts)],
        },
    )


@pytest.mark.soak
def test_answers_are_verified_and_what_is_false_is_not() -> None:
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        found = list(pool.map(judge, range(REQUESTS), chunksize=4))
    report(found)
    verdicts = Counter(verdict for each in found for verdict in each.verdicts)
    assert not sum((each.false for each in found), Counter())["verified"]
    assert not any("REFUTED" in reason for each in found for reason in each.reasons)
    assert verdicts["at_most cannot check"] + verdicts["more_than cannot check"] <= 0.01 * 2 * REQUESTS
    assert max(size for each in found for size in each.sizes) <= 4096


def _quantiles(values: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 4),
        "95": round(values[math.ceil(0.95 * len(values)) - 1], 4),
        "largest": round(values[-1], 4),
    }

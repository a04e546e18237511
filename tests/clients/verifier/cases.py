"""Statements with known answers, and certificates of them that are put together by hand."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from epsilond_verifier import Verdict, check
from epsilond_verifier.laws import Law, Sampled
from epsilond_verifier.reading import Reader
from epsilond_verifier.rules import AboveCut, read_place
from flint import arb

from accounting.canonical import canonical_text, number_to_string
from accounting.certificates.certificate import NoCertificate, Statement
from accounting.certificates.prover import witnesses
from accounting.events import Event, FullBatch, Gaussian, Poisson, WithoutReplacement
from accounting.relations import NeighboringRelation


def sampled(s: float, q: float, count: int) -> Event:
    return Event(Gaussian(s), Poisson(q) if q < 1.0 else FullBatch(), count)


def fixed(s: float, batch: int, dataset: int, count: int) -> Event:
    return Event(Gaussian(s), WithoutReplacement(batch, dataset), count)


def fresh(stated: Statement) -> str:
    """Return the verdict of the likeliest witness, if there is one."""
    try:
        return check(next(witnesses(stated))).verdict
    except NoCertificate:
        return "no witness"


@dataclass(frozen=True)
class Known:
    """The larger direction's delta at epsilon lies in [low, high], by two witnesses of another verifier each."""

    events: tuple[Event, ...]
    relation: NeighboringRelation
    epsilon: float
    low: float
    high: float
    slack: float = 1e-9


ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
NULL = NeighboringRelation.REPLACE_SPECIAL
KNOWN = {
    "P1": Known((sampled(1, 0.02, 5000),), ADD, 9.4, 1.0039287035454e-05, 1.0039287035455e-05),
    "P2": Known((sampled(4, 0.01, 10000),), REPLACE, 1.993, 1.0010019086105e-05, 1.001001908611e-05),
    "F1": Known((fixed(8, 1024, 50000, 10000),), REPLACE, 2.29778, 1.0000318431078e-05, 1.0000318431083e-05),
    "F2": Known((fixed(5, 10, 1000, 50),), REPLACE, 0.1067, 1.0000069914707e-05, 1.0000069914709e-05),
    "L1": Known(
        (sampled(1, 0.02, 500), sampled(2, 0.005, 20000), sampled(10, 1.0, 20)),
        ADD,
        5.0,
        2.1677369124733e-08,
        2.1677369124745e-08,
    ),
    "D1": Known((sampled(2, 0.1, 1000),), ADD, 80.0, 2.3813553488056e-273, 2.3813553488057e-273),
    "S1": Known((sampled(0.3, 0.01, 1000),), ADD, 60.0, 0.00012668139316799, 0.00012668139316811),
    "W1": Known((sampled(0.6, 1e-05, 100000),), ADD, 0.2638, 9.8932632423868e-09, 9.8932632423912e-09),
    "M1": Known((sampled(4, 0.01, 1000), fixed(6, 50, 5000, 2000)), NULL, 1.2, 7.607097549732e-12, 7.6070975497346e-12),
    "B1": Known((sampled(0.5, 0.001, 10),), ADD, 2.1, 1.0010325237175e-06, 1.0010325277006e-06, 5e-9),
}


def statement(claim: str, known: Known, delta: float) -> Statement:
    return Statement(claim, known.events, known.relation, known.epsilon, delta)


def best(stated: Statement) -> tuple[bytes, Verdict]:
    """Return the first witness that decides the statement, or the last one."""
    found = None
    for data in witnesses(stated):
        found = data, check(data)
        if found[1].verdict != "cannot check":
            break
    assert found is not None
    return found


def certificate(
    claim: str,
    events: Sequence[dict[str, Any]],
    relation: str,
    epsilon: float,
    delta: float,
    directions: dict[str, Any],
    precision: int = 128,
) -> bytes:
    """Return a certificate with these parts, in canonical bytes."""
    stated = {"claim": claim, "delta": delta, "epsilon": epsilon, "events": list(events), "relation": relation}
    witness = {"precision": precision, "directions": directions}
    return canonical_text({"format": "epsilon-certificate/1", "statement": stated, "witness": witness}).encode()


def strings(value: object) -> Any:
    """Return JSON with all its numbers as the strings of a certificate."""
    if isinstance(value, dict):
        return {key: strings(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [strings(inner) for inner in value]
    return value if isinstance(value, str) else number_to_string(value)


def line(angle: float, spacing: float, low: int, high: int) -> dict[str, Any]:
    return {"angle": angle, "spacing": spacing, "low": low, "high": high}


def panels(
    angle: float, end: float, level: int, order: int, depth: int, steep: int, last: int | None = None
) -> dict[str, Any]:
    found = {"angle": angle, "end": end, "panels": level, "order": order, "depth": depth, "steep": steep}
    return found if last is None else {**found, "last": last}


def transform(law: Law, direction: str, tilt: float, place: dict[str, Any]) -> Any:
    """Return the transform of a law, from nodes as a certificate has them."""
    reader = Reader(strings(place), "place")
    found = read_place(reader, law, direction).at(arb(tilt))
    reader.close()
    return found


def above(law: Sampled, nodes: dict[str, Any], place: float, width: float) -> AboveCut:
    """Return the share of a law above a cut."""
    reader = Reader(strings({**nodes, "place": place, "width": width}), "above")
    return AboveCut.read(reader, reader, law)


def changed(data: bytes, path: Sequence[str | int], value: object) -> bytes:
    """Return the certificate with one value in another one's place, or without it where it is None."""
    whole = json.loads(data)
    at = whole
    for key in path[:-1]:
        at = at[key]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def numbers(data: bytes) -> list[tuple[list[str | int], str]]:
    """Return where the numbers of the witness are, with their texts."""
    found: list[tuple[list[str | int], str]] = []

    def walk(value: Any, path: list[str | int]) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(inner, [*path, key])
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                walk(inner, [*path, index])
        elif path[-1] != "form":
            found.append((path, value))

    walk(json.loads(data)["witness"], ["witness"])
    return found


def mutated(text: str, rng: random.Random) -> str:
    """Return another number in its place, near it or far away."""
    number = float(text)
    if rng.random() < 0.2:
        return rng.choice(["0", "1", "-1", "1e-300", "1000000", text])
    moved = number * rng.choice([0.5, 0.9, 0.999, 1.001, 1.1, 2.0])
    return str(round(moved)) if number.is_integer() and rng.random() < 0.8 else number_to_string(moved)

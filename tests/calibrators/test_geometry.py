"""Domains and penalties: what they hold, what they refuse, and that they travel."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from accounting.canonical import canonical_bytes
from accounting.errors import InvalidValue
from calibrators.geometry import (
    DOMAINS,
    PENALTIES,
    Box,
    Domain,
    L1Ball,
    L1Penalty,
    L2Ball,
    L2Penalty,
    LpBall,
    Penalty,
    Simplex,
    diameter,
    domain_from_json,
    largest_norm,
    penalty_from_json,
)

EVERY_DOMAIN: list[Domain] = [L2Ball(1.5), L1Ball(0.1), LpBall(1.25, 2.0), LpBall(4.0, 2.0), Simplex(3.0), Box(-1.0, 2)]
EVERY_PENALTY: list[Penalty] = [L2Penalty(0.3), L1Penalty(1e-4)]


@pytest.mark.parametrize("domain", EVERY_DOMAIN, ids=str)
def test_a_domain_reads_back_from_its_json_and_from_its_canonical_bytes(domain: Domain) -> None:
    assert domain_from_json(domain.to_json()) == domain
    assert domain_from_json(json.loads(canonical_bytes({"domain": domain.to_json()}))["domain"]) == domain


@pytest.mark.parametrize("penalty", EVERY_PENALTY, ids=str)
def test_a_penalty_reads_back_from_its_json_and_from_its_canonical_bytes(penalty: Penalty) -> None:
    assert penalty_from_json(penalty.to_json()) == penalty
    assert penalty_from_json(json.loads(canonical_bytes({"penalty": penalty.to_json()}))["penalty"]) == penalty


def test_every_kind_is_among_the_examples_here() -> None:
    assert {domain.kind for domain in EVERY_DOMAIN} == set(DOMAINS)
    assert {penalty.kind for penalty in EVERY_PENALTY} == set(PENALTIES)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), True, 1e13])
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (L2Ball, "radius"),
        (L1Ball, "radius"),
        (lambda radius: LpBall(2.0, radius), "radius"),
        (Simplex, "scale"),
        (L2Penalty, "strength"),
        (L1Penalty, "strength"),
    ],
)
def test_a_size_is_a_finite_number_above_zero(make: Callable[[Any], object], name: str, value: Any) -> None:
    with pytest.raises(InvalidValue, match=name) as caught:
        make(value)
    assert caught.value.pointer == (name,)


@pytest.mark.parametrize("order", [1.0, 0.5, float("inf"), 1e4])
def test_the_order_of_an_lp_ball_is_above_one_and_finite(order: float) -> None:
    with pytest.raises(InvalidValue, match="norm_order") as caught:
        LpBall(order, 1.0)
    assert caught.value.pointer == ("norm_order",)


def test_a_box_is_not_upside_down() -> None:
    with pytest.raises(InvalidValue, match="below lower") as caught:
        Box(1.0, 0.5)
    assert caught.value.pointer == ("upper",)
    assert Box(1.0, 1.0).to_json() == {"kind": "box", "lower": 1.0, "upper": 1.0}


@pytest.mark.parametrize("value", [{}, {"kind": "cube", "radius": 1.0}, {"kind": 3}, {"kind": None}])
def test_a_kind_that_there_is_not_is_refused_with_those_there_are(value: dict[str, object]) -> None:
    with pytest.raises(InvalidValue, match="l2_ball, l1_ball") as caught:
        domain_from_json(value)
    assert caught.value.pointer == ("kind",)
    with pytest.raises(InvalidValue, match="l2 or l1"):
        penalty_from_json(value)


@pytest.mark.parametrize("domain", EVERY_DOMAIN, ids=str)
@pytest.mark.parametrize("dimension", [1, 2, 7])
@pytest.mark.parametrize("order", [1.0, 1.5, 2.0])
def test_no_point_of_a_domain_is_longer_than_its_largest_norm_and_one_is_as_long(
    domain: Domain, dimension: int, order: float
) -> None:
    """Directions with every number of equal entries, which hold the longest point of each of these bodies."""
    longest = 0.0
    for entries in range(1, dimension + 1):
        point = np.zeros(dimension)
        point[:entries] = 1.0
        match domain:
            case Box():
                corner = np.full(dimension, domain.lower)
                corner[:entries] = domain.upper
                candidates = [corner, np.full(dimension, domain.lower)]
            case Simplex():
                candidates = [domain.scale * point / entries]
            case L1Ball():
                candidates = [domain.radius * point / entries]
            case L2Ball():
                candidates = [domain.radius * point / np.linalg.norm(point)]
            case LpBall():
                candidates = [domain.radius * point / np.linalg.norm(point, domain.norm_order)]
        longest = max(longest, *(float(np.linalg.norm(candidate, order)) for candidate in candidates))
    assert largest_norm(domain, dimension, order) == pytest.approx(longest, rel=1e-12)


@pytest.mark.parametrize("order", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("domain", EVERY_DOMAIN, ids=str)
def test_no_two_points_are_farther_apart_than_the_diameter_and_two_are_as_far(domain: Domain, order: float) -> None:
    """Corners and edges: among signs of axes and of the diagonal are the two points that are farthest apart."""
    d = 3
    if isinstance(domain, Box):
        some = [np.full(d, domain.lower), np.full(d, domain.upper)]
    elif isinstance(domain, Simplex):
        some = [domain.scale * axis for axis in np.eye(d)]
    else:
        own = {L1Ball: 1.0, L2Ball: 2.0}.get(type(domain)) or getattr(domain, "norm_order", 2.0)
        random = np.random.default_rng(3).normal(size=(30, d))
        directions = [*np.eye(d), np.ones(d), *random]
        some = [sign * domain.radius * v / np.linalg.norm(v, ord=own) for v in directions for sign in (1.0, -1.0)]
    apart = [float(np.linalg.norm(one - other, ord=order)) for one in some for other in some]
    assert max(apart) == pytest.approx(diameter(domain, d, order))

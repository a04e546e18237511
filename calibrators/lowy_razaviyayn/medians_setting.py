"""This module reads and checks the spec of coordinate-wise medians of means, with the number of groups and the
radius.
"""

from __future__ import annotations

from dataclasses import replace

from accounting.errors import InvalidValue
from calibrators.algorithm import Assumption, Given
from calibrators.lowy_razaviyayn.median_of_means import MedianOfMeans, balanced_radius
from calibrators.lowy_razaviyayn.moments import LARGEST, MOMENT_BOUND, MOMENT_ORDER, ORDER_CONSTANT, SMALLEST
from calibrators.phases.median_of_means import MAX_GROUPS
from calibrators.provenance import GRADIENT, PURE
from calibrators.spec import Spec

TRUNCATION_RADIUS = Assumption(
    "truncation_radius",
    r"\tau",
    GRADIENT,
    "the radius tau: every coordinate of a record is clamped to [-tau, tau]. If left out, tau is computed from "
    "the moments",
    lower=SMALLEST,
    upper=LARGEST,
    required=False,
)
NUM_GROUPS = Assumption(
    "num_groups",
    "m",
    PURE,
    "the number of groups of records; if left out, ceil(ln(2 d / zeta) / 0.4802)",
    lower=1.0,
    upper=float(MAX_GROUPS),
    required=False,
)
MEAN_BOUND = Assumption(
    "mean_bound",
    "L",
    GRADIENT,
    "upper bound on the l2 norm of the mean of the records' distribution",
    lower=SMALLEST,
    upper=LARGEST,
)
COORDINATE_MOMENT_BOUND = replace(
    MOMENT_BOUND,
    name="coordinate_moment_bound",
    symbol=r"\gamma^{1/k}",
    meaning="the bound on the k-th central moment of each coordinate: E[|x_j - nu_j|^k]^(1/k) <= gamma^(1/k)",
)
FAILURE_PROBABILITY = Assumption(
    "failure_probability",
    r"\zeta",
    PURE,
    "the probability with which the error may be larger than its bound",
    lower=1e-12,
    upper=0.5,
    required=False,
    default=0.01,
)
ASSUMPTIONS = (
    TRUNCATION_RADIUS,
    NUM_GROUPS,
    replace(MOMENT_ORDER, meaning="the order k of the bounded central moment of each coordinate; a real number"),
    COORDINATE_MOMENT_BOUND,
    MEAN_BOUND,
    FAILURE_PROBABILITY,
    ORDER_CONSTANT,
)


def read_groups(spec: Spec, known: Given, sufficient: int) -> int:
    """Return the number m of groups: the caller's number, or one that suffices.

    Raises:
        InvalidValue: If the number of groups is not a whole number, or if there are fewer records than groups.
    """
    stated = known.get("num_groups")
    groups = sufficient if stated is None else int(stated)
    if stated is not None and stated != groups:
        raise InvalidValue(f"num_groups must be a whole number, got {stated!r}", pointer=("assumptions", "num_groups"))
    if groups > spec.dataset_size:
        words = "are needed for this failure_probability" if stated is None else "were asked for"
        raise InvalidValue(
            f"num_groups is too large: {groups} groups {words}, but there are only {spec.dataset_size} records. "
            "Take fewer groups",
            pointer=("assumptions", "num_groups"),
        )
    return groups


def read_radius(known: Given, preset: float | None) -> float:
    """Return the radius tau: the caller's number, or the preset.

    Raises:
        InvalidValue: If it is not given and no preset can choose it.
    """
    radius = known.get("truncation_radius") or preset
    if radius is None:
        raise InvalidValue(
            f"truncation_radius is needed, because {', '.join(known.missing)}, from which it could be computed, "
            "are missing",
            code="missing",
            pointer=("assumptions", "truncation_radius"),
        )
    return radius


def medians_of(known: Given, dimension: int, groups: int, group_size: int, radius: float) -> MedianOfMeans:
    """Return the medians before any noise, of records with the known moments."""
    k, g, zeta = (known[name] for name in ("moment_order", "coordinate_moment_bound", "failure_probability"))
    return MedianOfMeans(radius, groups, group_size, dimension, k, g, zeta)


def best_radius(known: Given, dimension: int, noise_per_radius: float) -> float:
    """Return the tau that minimises the sum of bias and noise.

    Args:
        noise_per_radius: The length of the noise that is added to the medians, per unit of tau.
    """
    k, g, mean_bound = (known[name] for name in ("moment_order", "coordinate_moment_bound", "mean_bound"))
    return min(LARGEST, balanced_radius(dimension, k, g, noise_per_radius, mean_bound))


def warnings_of(radius: float, mean_bound: float) -> tuple[str, ...]:
    """Return a warning if the radius is too small for the theorem, so that bounds are left out."""
    if radius >= 2.0 * mean_bound:
        return ()
    return (
        f"truncation_radius is {radius:g}, but the theorem needs at least 2 L = {2.0 * mean_bound:g}. The "
        "bounds on the error are left out.",
    )

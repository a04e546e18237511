"""The spec of coordinate-wise medians of means, with their groups and radius, read and checked."""

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
    "every coordinate of a record is clamped to [-tau, tau]; from the moments where it is left out",
    lower=SMALLEST,
    upper=LARGEST,
    required=False,
)
NUM_GROUPS = Assumption(
    "num_groups",
    "m",
    PURE,
    "how many groups of records have a mean of their own; ceil(ln(2 d / zeta) / 0.4802) where it is left out",
    lower=1.0,
    upper=float(MAX_GROUPS),
    required=False,
)
MEAN_BOUND = Assumption(
    "mean_bound",
    "L",
    GRADIENT,
    "the mean of the records' distribution is no longer than this",
    lower=SMALLEST,
    upper=LARGEST,
)
COORDINATE_MOMENT_BOUND = replace(
    MOMENT_BOUND,
    name="coordinate_moment_bound",
    symbol=r"\gamma^{1/k}",
    meaning="of each coordinate about its mean: E[|x_j - nu_j|^k]^(1/k) <= gamma^(1/k)",
)
FAILURE_PROBABILITY = Assumption(
    "failure_probability",
    r"\zeta",
    PURE,
    "with what probability the error may be larger than its bound",
    lower=1e-12,
    upper=0.5,
    required=False,
    default=0.01,
)
ASSUMPTIONS = (
    TRUNCATION_RADIUS,
    NUM_GROUPS,
    replace(MOMENT_ORDER, meaning="how many central moments of each coordinate are bounded; a real number"),
    COORDINATE_MOMENT_BOUND,
    MEAN_BOUND,
    FAILURE_PROBABILITY,
    ORDER_CONSTANT,
)


def read_groups(spec: Spec, known: Given, sufficient: int) -> int:
    """Return m: the caller's, or one that suffices.

    Raises:
        InvalidValue: If the number of groups is no whole number, or there are fewer records than groups.
    """
    stated = known.get("num_groups")
    groups = sufficient if stated is None else int(stated)
    if stated is not None and stated != groups:
        raise InvalidValue(f"num_groups must be a whole number, got {stated!r}", pointer=("assumptions", "num_groups"))
    if groups > spec.dataset_size:
        words = "suffice at this failure_probability" if stated is None else "were asked for"
        raise InvalidValue(
            f"{groups} groups {words}, and there are {spec.dataset_size} records: take fewer groups",
            pointer=("assumptions", "num_groups"),
        )
    return groups


def read_radius(known: Given, preset: float | None) -> float:
    """Return tau: the caller's, or the preset.

    Raises:
        InvalidValue: If it is not given and no preset can choose it.
    """
    radius = known.get("truncation_radius") or preset
    if radius is None:
        raise InvalidValue(
            f"truncation_radius is needed: it follows from {', '.join(known.missing)}, which are missing",
            code="missing",
            pointer=("assumptions", "truncation_radius"),
        )
    return radius


def medians_of(known: Given, dimension: int, groups: int, group_size: int, radius: float) -> MedianOfMeans:
    """Return the medians before any noise, of records with the known moments."""
    k, g, zeta = (known[name] for name in ("moment_order", "coordinate_moment_bound", "failure_probability"))
    return MedianOfMeans(radius, groups, group_size, dimension, k, g, zeta)


def best_radius(known: Given, dimension: int, noise_per_radius: float) -> float:
    """Return tau at which bias and noise together are least.

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
        f"the theorem needs a truncation_radius of at least 2 L = {2.0 * mean_bound:g}, and this one is {radius:g}. "
        "The bounds on the error are left out.",
    )

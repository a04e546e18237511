"""What is referenced: events in the contract's JSON, the relation, where to look, and how smooth delta is there."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath as mp

from tests.high_precision.contour import Problem
from tests.high_precision.loss_quadrature import FixedSizeGaussian, PoissonGaussian, PoissonLaplace, Step

ADD_REMOVE, REPLACE = "add_or_remove_one", "replace_one"


@dataclass(frozen=True)
class Reference:
    """One spec.

    Attributes:
        smooth_within: Distance in epsilon within which delta is smooth; None where the integrand decays by itself.
        goal: Whether the accounting goal for interval widths applies.
        digits: Digits asked for; corners that cancel heavily get fewer.
    """

    id: str
    events: tuple[dict[str, Any], ...]
    relation: str
    epsilon: float
    smooth_within: float | None = None
    goal: bool = True
    digits: int = 30


def gaussian(noise: float, count: int, probability: float | None = None) -> dict[str, Any]:
    return _event("gaussian", noise, count, probability)


def laplace(noise: float, count: int, probability: float | None = None) -> dict[str, Any]:
    return _event("laplace", noise, count, probability)


def fixed_size(noise: float, batch: int, size: int, count: int) -> dict[str, Any]:
    event = _event("gaussian", noise, count, None)
    return event | {"sampling": {"kind": "without_replacement", "batch_size": batch, "dataset_size": size}}


def _event(kind: str, noise: float, count: int, probability: float | None) -> dict[str, Any]:
    sampling: dict[str, Any] = {"kind": "full_batch"}
    if probability is not None:
        sampling = {"kind": "poisson", "sampling_probability": probability}
    return {"mechanism": {"kind": kind, "noise_multiplier": noise}, "sampling": sampling, "count": count}


def problems(reference: Reference) -> dict[str, Problem]:
    """The compositions whose largest delta is the truth, by direction; a symmetric list has one."""
    found: dict[str, Problem] = {}
    for direction in ("remove", "add"):
        steps: list[tuple[Step, int]] = []
        mu_squared = Fraction(0)
        symmetric = True
        for event in reference.events:
            step = _step(event, reference.relation, direction)
            if step is None:
                sensitivity = 2 if reference.relation == REPLACE else 1
                noise = Fraction(event["mechanism"]["noise_multiplier"])
                mu_squared += event["count"] * Fraction(sensitivity) ** 2 / noise**2
            else:
                steps.append((step, event["count"]))
                symmetric = symmetric and _is_symmetric(step)
        with mp.workdps(120):
            squared = mp.mpf(mu_squared.numerator) / mu_squared.denominator
        found[direction] = Problem(tuple(steps), squared, reference.epsilon, reference.smooth_within)
        if symmetric:
            break
    return found


def _is_symmetric(step: Step) -> bool:
    """Whether both directions have one profile."""
    if isinstance(step, PoissonGaussian):
        return step.direction == "replace"
    return isinstance(step, FixedSizeGaussian) or (isinstance(step, PoissonLaplace) and step.q == 1.0)


def _step(event: dict[str, Any], relation: str, direction: str) -> Step | None:
    """The pair of one step; None for a full-batch Gaussian, which enters by its mu^2."""
    mechanism, sampling = event["mechanism"], event["sampling"]
    noise, kind = mechanism["noise_multiplier"], sampling["kind"]
    if mechanism["kind"] == "laplace":
        if relation == REPLACE and kind != "full_batch":
            raise ValueError("no pair is written here for sampled Laplace noise under replace_one")
        scale = noise / (2.0 if relation == REPLACE else 1.0)
        return PoissonLaplace(scale, sampling.get("sampling_probability", 1.0), direction)
    if kind == "poisson":
        return PoissonGaussian(noise, sampling["sampling_probability"], "replace" if relation == REPLACE else direction)
    if kind == "without_replacement":
        return FixedSizeGaussian(noise, sampling["batch_size"], sampling["dataset_size"])
    return None


def _poisson(
    name: str,
    noise: float,
    probability: float,
    count: int,
    epsilon: float,
    smooth_within: float | None = None,
    *,
    relation: str = ADD_REMOVE,
    goal: bool = True,
    digits: int | None = None,
) -> Reference:
    events = (gaussian(noise, count, probability),)
    digits = digits or (30 if smooth_within is None else 20)
    return Reference(name, events, relation, epsilon, smooth_within, goal, digits)


#: The table of test vectors that was published with the method, in its order.
TABLE = (
    _poisson("table-1", 1.0, 0.02, 5000, 9.4),
    _poisson("table-2", 4.0, 0.01, 10_000, 0.9468668),
    _poisson("table-3", 0.7, 0.001, 20_000, 2.02),
    _poisson("table-4", 20.0, 0.3, 2000, 3.126),
    _poisson("table-5", 0.6, 1e-5, 100_000, 0.2638, 0.35),
    _poisson("table-6", 0.5, 0.001, 10, 0.1, 0.17, digits=16),
    _poisson("table-7", 0.5, 0.001, 10, 2.1, 3.0),
    _poisson("table-8", 4.0, 0.0001, 10**8, 0.8),
    _poisson("table-9", 1.0, 0.01, 1, 0.5, 0.7),
    _poisson("table-10", 0.5, 0.01, 1, 1.0, 1.5),
    _poisson("table-11", 50.0, 0.5, 10**6, 90.0),
    _poisson("table-12", 4.0, 0.01, 1000, 0.8357),
    _poisson("table-13", 1.0, 1e-6, 10**8, 0.05, 0.07),
    _poisson("table-14", 0.5, 0.2, 3, 1.0, 1.8),
    _poisson("table-15", 0.3, 0.05, 2, 3.0, 4.5),
    _poisson("table-16", 10.0, 0.9, 300, 5.0),
    _poisson("table-17", 2.0, 0.005, 50_000, 1.5),
    _poisson("table-18", 1.0, 0.001, 1000, 0.2, 0.3),
    _poisson("table-19", 1000.0, 0.1, 10**8, 4.0),
    _poisson("table-20", 0.4, 0.0001, 50, 4.0, 6.0),
)
POISSON = (
    _poisson("poisson-small-noise", 0.1, 0.0001, 1000, 40.0, 40.0, goal=False, digits=14),
    _poisson("poisson-noise-0.2", 0.2, 0.1, 100, 215.9, 25.0, goal=False),
    _poisson("poisson-noise-0.3", 0.3, 0.001, 1000, 21.72, 12.0),
    _poisson("poisson-million", 0.8, 0.001, 10**6, 13.95),
    _poisson("poisson-tiny-delta", 2.0, 0.1, 10_000, 56.29),
    _poisson("poisson-hundred-million", 100.0, 0.001, 10**8, 0.3974),
    _poisson("poisson-half", 1000.0, 0.5, 10**6, 0.02082),
    _poisson("poisson-delta-1e-30", 1.5, 0.25, 50, 21.86),
    _poisson("poisson-nearly-full", 5.0, 0.9, 1000, 68.58),
    _poisson("poisson-large-delta", 0.7, 0.02, 30, 0.09, 0.1),
    _poisson("poisson-three-steps", 3.0, 0.03, 3, 0.11, 0.12),
    _poisson("poisson-few-participations", 1.0, 0.0001, 100_000, 0.15, 0.2),
    _poisson("poisson-epsilon-190", 10.0, 0.05, 10**7, 190.0),
    _poisson("poisson-rare-hundred-million", 0.5, 1e-8, 10**8, 1.0, 1.2),
    _poisson("poisson-small-epsilon", 20.0, 1e-5, 10**8, 0.008),
    _poisson("poisson-epsilon-zero", 2.0, 0.01, 100, 0.0),
    _poisson("poisson-one-step-rare", 0.7, 1e-4, 1, 1.5, 2.0),
)
GAPS = (
    _poisson("gap-1", 0.58, 1.6e-8, 7005, 2.47, 1.8, goal=False, digits=14),
    _poisson("gap-not-a-number", 4.000833, 4.842986e-4, 93, 0.0362506, 0.0115, goal=False, digits=12),
)
POISSON_REPLACE = (
    _poisson("replace-1", 1.0, 0.02, 5000, 16.66, relation=REPLACE),
    _poisson("replace-2", 2.0, 0.1, 500, 14.46, relation=REPLACE),
    _poisson("replace-3", 0.6, 0.001, 20_000, 4.35, relation=REPLACE),
    _poisson("replace-4", 50.0, 0.5, 100_000, 49.3, relation=REPLACE),
    _poisson("replace-5", 4.0, 0.01, 10_000, 4.596, relation=REPLACE),
    _poisson("replace-6", 0.3, 0.05, 5, 13.09, 18.0, relation=REPLACE),
    _poisson("replace-7", 10.0, 0.001, 10**7, 0.45, relation=REPLACE),
    _poisson("replace-8", 1000.0, 0.1, 10**8, 10.0, relation=REPLACE),
    _poisson("replace-one-step", 0.8, 0.05, 1, 1.0, 1.4, relation=REPLACE),
    _poisson("replace-two-steps", 0.8, 0.05, 2, 1.0, 1.4, relation=REPLACE),
)


def _fixed(
    name: str, noise: float, batch: int, size: int, count: int, epsilon: float, within: float | None = None
) -> Reference:
    digits = 30 if within is None else 16
    return Reference(name, (fixed_size(noise, batch, size, count),), REPLACE, epsilon, within, False, digits)


FIXED_SIZE = (
    _fixed("fixed-one-step", 1.0, 5, 100, 1, 0.5, 0.7),
    _fixed("fixed-two-steps", 1.0, 5, 100, 2, 1.0, 1.4),
    _fixed("fixed-cifar", 8.0, 1024, 50_000, 10_000, 2.2977843),
    _fixed("fixed-1000", 2.0, 100, 10_000, 1000, 2.2),
    _fixed("fixed-20", 1.0, 5, 100, 20, 8.3, 12.0),
    _fixed("fixed-100000", 4.0, 10, 10_000, 100_000, 0.9),
    _fixed("fixed-large-batch", 20.0, 600, 1000, 3000, 20.5),
    _fixed("fixed-hundred-million", 100.0, 1, 100, 10**8, 10.0),
    _fixed("fixed-tiny-delta", 3.0, 1, 50, 200, 1.8, 1.3),
)


def _laplace(
    name: str,
    noise: float,
    count: int,
    epsilon: float,
    within: float | None = None,
    *,
    probability: float | None = None,
    relation: str = ADD_REMOVE,
) -> Reference:
    events = (laplace(noise, count, probability),)
    return Reference(name, events, relation, epsilon, within, False, 30 if within is None else 13)


#: The windows keep away from the atoms, where delta has kinks.
LAPLACE = (
    _laplace("laplace-one-step", 1.0, 1, 0.4),
    _laplace("laplace-one-step-replace", 3.0, 1, 0.4, relation=REPLACE),
    _laplace("laplace-two-steps", 1.5, 2, 0.9),
    _laplace("laplace-three-steps", 2.0, 3, 0.75, 0.3),
    _laplace("laplace-ten-steps", 5.0, 10, 1.3, 0.13),
    _laplace("laplace-30-steps", 10.0, 30, 2.55),
    _laplace("laplace-near-the-end", 10.0, 12, 1.15),
    _laplace("sampled-laplace-one-step", 1.0, 1, 0.08, 0.12, probability=0.1),
    _laplace("sampled-laplace-two-steps", 1.0, 2, 0.2, 0.12, probability=0.1),
    _laplace("sampled-laplace-10", 0.5, 10, 0.56, 0.4, probability=0.1),
    _laplace("sampled-laplace-400", 1.0, 400, 1.0, probability=0.02),
    _laplace("sampled-laplace-10000", 2.0, 10_000, 1.2, probability=0.005),
)
LISTS = (
    Reference("list-gaussian-poisson", (gaussian(5.0, 2), gaussian(1.0, 1000, 0.01)), ADD_REMOVE, 2.5),
    Reference("list-two-poisson", (gaussian(1.2, 3000, 0.01), gaussian(3.0, 500, 0.1)), ADD_REMOVE, 5.0),
    Reference("list-two-poisson-replace", (gaussian(1.2, 3000, 0.01), gaussian(3.0, 500, 0.1)), REPLACE, 9.0),
    Reference("list-laplace-gaussian", (laplace(4.0, 3), gaussian(3.0, 4)), ADD_REMOVE, 2.5, None, False),
    Reference("list-laplace-gaussian-replace", (laplace(4.0, 3), gaussian(3.0, 4)), REPLACE, 6.0, None, False),
    Reference(
        "list-sampled-laplace", (laplace(1.0, 100, 0.05), gaussian(2.0, 300, 0.02)), ADD_REMOVE, 2.0, None, False
    ),
    Reference("list-fixed-gaussian", (fixed_size(2.0, 50, 1000, 100), gaussian(10.0, 3)), REPLACE, 4.0, None, False),
    Reference("list-rare-and-often", (gaussian(0.6, 50, 1e-4), gaussian(4.0, 2000, 0.05)), ADD_REMOVE, 2.5),
)
FULL_BATCH = (
    Reference("full-batch-1", (gaussian(1.0, 1),), ADD_REMOVE, 4.3771780957),
    Reference("full-batch-list", (gaussian(30.0, 100), gaussian(7.0, 3)), ADD_REMOVE, 1.5),
    Reference("full-batch-replace", (gaussian(4.0, 20),), REPLACE, 12.0),
    Reference("full-batch-tiny-delta", (gaussian(1000.0, 10**6),), ADD_REMOVE, 11.6),
    Reference("full-batch-small-noise", (gaussian(0.06, 1),), ADD_REMOVE, 180.0),
)
REFERENCES = (*TABLE, *POISSON, *GAPS, *POISSON_REPLACE, *FIXED_SIZE, *LAPLACE, *LISTS, *FULL_BATCH)

"""This module holds the algorithms by name, and calibrates a spec by one of them.

The existence of a file registers its algorithm: `ALGORITHMS` holds the ``ALGORITHM`` of every module in a paper's
folder that defines one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules

import calibrators
from accounting.errors import InvalidValue, Unsupported, one_of
from accounting.events import SAMPLINGS
from accounting.events.samplings import Sampling
from accounting.near_names import suggestion
from accounting.relations import NeighboringRelation
from calibrators.algorithm import Algorithm
from calibrators.correlation import Correlation
from calibrators.spec import Calibration, Spec

#: Lists begin with this algorithm, because it is the best-known one.
FIRST = "dp_sgd"


def _records() -> Iterator[Algorithm]:
    """Yield the ``ALGORITHM`` of each module of each paper, if the module defines one."""
    for paper in iter_modules(calibrators.__path__, "calibrators."):
        if not paper.ispkg:
            continue
        for module in iter_modules(import_module(paper.name).__path__, f"{paper.name}."):
            record = getattr(import_module(module.name), "ALGORITHM", None)
            if isinstance(record, Algorithm):
                own_name = module.name.rpartition(".")[2]
                if record.name != own_name:
                    raise ValueError(f"the ALGORITHM of {module.name} is named {record.name!r}: name it {own_name!r}")
                yield record


def _by_name(records: list[Algorithm]) -> dict[str, Algorithm]:
    """Return the records in the order in which lists show them: the best-known algorithm first, then the others by
    name.
    """
    names = [record.name for record in records]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"algorithms of several papers are named {one_of(twice)}: give each algorithm a different name"
        )
    return {record.name: record for record in sorted(records, key=lambda each: (each.name != FIRST, each.name))}


ALGORITHMS: dict[str, Algorithm] = _by_name(list(_records()))


def find_algorithm(name: str) -> Algorithm:
    """Return the algorithm of that name.

    Raises:
        InvalidValue: If no algorithm has this name. The detail lists the names that exist.
    """
    if name not in ALGORITHMS:
        raise InvalidValue(
            f"there is no algorithm {name!r}; the algorithms are "
            f"{one_of(list(ALGORITHMS))}.{suggestion(name, ALGORITHMS)}",
            code="unknown_algorithm",
            pointer=("algorithm",),
        )
    return ALGORITHMS[name]


def calibrate(name: str, spec: Spec) -> Calibration:
    """Return the calibration of a spec by the algorithm of that name. The algorithm fills in the values that the spec
    leaves to it.

    Raises:
        InvalidValue: If there is no such algorithm, a number is outside its range or missing, or the algorithm does not
            bound gradients in this way.
        Unsupported: If the algorithm's events are not accounted under this sampling or relation.
        Unreachable: If nothing meets the target.
    """
    algorithm = find_algorithm(name)
    try:
        return algorithm.calibrate(with_defaults(algorithm, spec))
    except ArithmeticError:
        raise InvalidValue(
            "with these numbers, a formula overflows or underflows in floating point; use other units for the "
            "loss or the parameters, so that the constants are closer to 1",
            pointer=("assumptions",),
        ) from None


def with_defaults(algorithm: Algorithm, spec: Spec) -> Spec:
    """Check the spec, and fill in the algorithm's default sampling, relation and variant if the spec gives none."""
    sampling = default_sampling(algorithm, spec.neighboring_relation) if spec.sampling is None else spec.sampling
    _check_sampling(algorithm, sampling)
    filled = replace(
        spec,
        sampling=sampling,
        neighboring_relation=spec.neighboring_relation or _relation(algorithm, SAMPLINGS[sampling]),
        variant=_variant(algorithm, spec.variant),
        correlation=spec.correlation or (Correlation() if algorithm.correlates else None),
    )
    if filled.neighboring_relation not in algorithm.relations:
        raise Unsupported(
            f"{algorithm.name} is not accounted under {filled.neighboring_relation}; use "
            f"{one_of([str(relation) for relation in algorithm.relations])}",
            code="unsupported_relation",
            pointer=("neighboring_relation",),
        )
    _check_gradient_bound(algorithm, spec)
    if spec.stages and not algorithm.in_stages:
        able = one_of([each.name for each in ALGORITHMS.values() if each.in_stages])
        raise Unsupported(
            f"{algorithm.name} cannot be run in stages; leave stages out, or use {able}", pointer=("stages",)
        )
    if spec.averaged_share is not None and algorithm.step_rule is None:
        able = one_of([each.name for each in ALGORITHMS.values() if each.step_rule is not None])
        detail = (
            f"{algorithm.name} releases the point that its theorem is about, so averaged_share cannot be chosen; "
            f"leave it out, or use {able}"
        )
        raise Unsupported(detail, pointer=("averaged_share",))
    if not algorithm.correlates:
        _check_nothing_is_correlated(algorithm, spec)
    return filled


def _check_nothing_is_correlated(algorithm: Algorithm, spec: Spec) -> None:
    able = one_of([each.name for each in ALGORITHMS.values() if each.correlates])
    for name, has in (
        ("correlation", "draws the noise of each step anew"),
        ("momentum", "has no momentum"),
        ("step_size_schedule", "takes no schedule of step sizes"),
    ):
        if getattr(spec, name) is not None:
            raise Unsupported(f"{algorithm.name} {has}; leave {name} out, or use {able}", pointer=(name,))


def default_sampling(algorithm: Algorithm, relation: NeighboringRelation | None) -> str:
    """Return the kind of the algorithm's first sampling that is accounted under the relation. Without a relation,
    return the first sampling.

    >>> algorithm = ALGORITHMS["dp_sgd_gradient"]
    >>> [default_sampling(algorithm, relation) for relation in (None, NeighboringRelation.ADD_OR_REMOVE_ONE)]
    ['without_replacement', 'poisson']
    """
    schemes = algorithm.samplings
    found = (scheme for scheme in schemes if relation is None or relation in _accounted(algorithm, scheme))
    return next(found, schemes[0]).kind


def _relation(algorithm: Algorithm, sampling: type[Sampling]) -> NeighboringRelation:
    """Return the algorithm's first relation under which the sampling is accounted, as far as this follows from the kind
    of sampling.
    """
    accounted = _accounted(algorithm, sampling)
    return next((each for each in algorithm.relations if each in accounted), algorithm.relations[0])


def _accounted(algorithm: Algorithm, sampling: type[Sampling]) -> tuple[NeighboringRelation, ...]:
    relations: object = sampling.relations  # `relations` is a property if the relations depend on the sampling's fields
    return relations if isinstance(relations, tuple) else algorithm.relations


def _variant(algorithm: Algorithm, name: str | None) -> str | None:
    if name is None:
        return algorithm.variants[0] if algorithm.variants else None
    if name not in algorithm.variants:
        has = f"use {one_of(algorithm.variants)}" if algorithm.variants else "it has only one form; leave variant out"
        raise InvalidValue(f"{algorithm.name} has no variant {name!r}; {has}", pointer=("variant",))
    return name


def _check_sampling(algorithm: Algorithm, kind: str) -> None:
    kinds = [scheme.kind for scheme in algorithm.samplings]
    if kind not in kinds:
        # A name that is an existing sampling scheme is not a typing error, so no similar name is suggested.
        meant = "" if kind in SAMPLINGS else suggestion(kind, kinds)
        raise Unsupported(
            f"{algorithm.name} is not available with the sampling {kind!r}; use {one_of(kinds)}.{meant}",
            code="unsupported_sampling",
            pointer=("sampling",),
        )


def _check_gradient_bound(algorithm: Algorithm, spec: Spec) -> None:
    kinds = [bound.kind for bound in algorithm.gradient_bounds]
    if spec.gradient_bound is None:
        if algorithm.gradient_bound_required:
            raise InvalidValue(
                f"{algorithm.name} needs a gradient_bound of kind {one_of(kinds)}",
                code="missing",
                pointer=("gradient_bound",),
            )
    elif not kinds:
        raise InvalidValue(
            f"the gradient bound of {algorithm.name} follows from the assumptions; leave gradient_bound out",
            code="unsupported_gradient_bound",
            pointer=("gradient_bound",),
        )
    elif spec.gradient_bound.kind not in kinds:
        raise InvalidValue(
            f"{algorithm.name} takes gradient_bound.kind {' or '.join(kinds)}, not {spec.gradient_bound.kind}",
            code="unsupported_gradient_bound",
            pointer=("gradient_bound", "kind"),
        )

"""This module ranks the algorithms that apply to a problem by the promises of their theorems. It also says why the
other algorithms do not apply.

Every algorithm that could apply is calibrated with the known facts, so the advice agrees with the answer of a
calibration. A rate, which is known only up to a constant, never ranks above a bound. A vacuous bound never ranks above
a bound that is not vacuous.

Constants of the problem are given in the problem's norm, and are converted if an algorithm needs another norm. An
algorithm that clips in l2 clips at the longest gradient in l2. An algorithm that needs moments of gradients gets a
bound on the gradients' norm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from accounting.errors import AccountingError, InvalidValue
from accounting.events import FixedOrderEpochs, FullBatch
from accounting.relations import NeighboringRelation
from accounting.targets import Target
from calibrators.algorithm import Algorithm
from calibrators.draft import Draft
from calibrators.loaders import Loader, LoaderAdvice, advice_of, scheme_of
from calibrators.plan import Clip, GradientBound
from calibrators.presets import UNKNOWN_OBJECTIVE, Preset
from calibrators.provenance import Provenance, ProvenanceKind
from calibrators.registry import ALGORITHMS, FIRST, calibrate, find_algorithm
from calibrators.scopes import Measure, Problem, Scope, Shape
from calibrators.spec import Calibration, Spec

#: Names in a calibration's utility. The first name with a finite value counts.
_BOUNDS = ("excess_risk_bound", "gradient_norm_bound", "mean_squared_error_bound", "error_bound")
_RATES = ("excess_risk_rate", "gradient_norm_rate", "variance_rate")
#: The words for each bounded quantity in the sentences of `why`.
_OF_WHAT = {
    "excess_risk_bound": "a mean excess risk",
    "gradient_norm_bound": "a mean gradient norm",
    "mean_squared_error_bound": "a mean squared error",
    "error_bound": "an error (except with a small probability)",
}
#: The order k of the moment that a theorem gets if the norm of gradients is bounded, so that all moments are. With k =
#: 10^6 instead, the theorem's bound would be at most 16 % smaller, and sometimes larger.
_MANY_MOMENTS = 64.0
_RISKS = (Measure.POPULATION_RISK, Measure.EMPIRICAL_RISK)


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about the data and the purpose of the run.

    Attributes:
        dataset_size, dimension: Public sizes.
        target: The target for the run's privacy loss.
        neighboring_relation: The neighbouring relation; None leaves it to each algorithm.
        gradient_bound: The bound on gradients. With None, an algorithm that clips uses the longest l2 gradient that
            ``lipschitz`` allows, if ``lipschitz`` is given.
        batch_size, iterations: The sizes for algorithms whose theorem leaves them open, or asks for more steps than a
            plan may have. None takes the practical defaults.
        loader: The loader that makes the batches; None makes them as each algorithm asks.
        assumptions: Constants of the problem, in the problem's norm. Each algorithm uses the constants that it has.
    """

    dataset_size: int
    dimension: int
    target: Target
    neighboring_relation: NeighboringRelation | None = None
    gradient_bound: GradientBound | None = None
    batch_size: int | None = None
    iterations: int | None = None
    loader: Loader | None = None
    assumptions: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason why an algorithm does not apply, or why there is no bound for it.

    Attributes:
        detail: The reason, in a sentence.
        pointer: The member of the request that is the reason; empty if it is the problem itself.
    """

    detail: str
    pointer: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice about one algorithm.

    Attributes:
        algorithm: The algorithm's name.
        measure: The quantity that the bound or rate limits; without either, the quantity that the theorem limits. None
            if there is no theorem.
        spec: The spec of the calibration; None if the algorithm does not apply.
        calibration: The calibration; None if the algorithm does not apply or refused the spec.
        bound: The bound that the theorem promises, with all constants; None if it promises nothing for these facts. A
            bound that is not below ``known`` counts as vacuous.
        rate: The bound that the theorem promises, if it is known only up to a constant.
        reasons: Why the algorithm does not apply, why it refused the spec, or why there is no bound.
        known: The bound on the excess risk before training. None if no such bound is known, or if ``measure`` is not an
            excess risk.
    """

    algorithm: str
    measure: Measure | None
    spec: Spec | None = None
    calibration: Calibration | None = None
    bound: Provenance | None = None
    rate: Provenance | None = None
    reasons: tuple[Reason, ...] = ()
    known: float | None = None

    @property
    def why(self) -> str:
        """Return a sentence that explains the algorithm's place in the list."""
        if self.bound is not None:
            return self._why_of_bound(self.bound)
        if self.rate is not None:
            return (
                "Its theorem gives only a rate: how the error grows with the sizes, but not how large the error "
                "is. Rates are listed after bounds."
            )
        if self.measure is None:
            return "No theorem bounds the error of this algorithm, so it cannot be ranked."
        return "Its theorem gives no bound for the given facts."

    def _why_of_bound(self, bound: Provenance) -> str:
        promised = f"Its theorem promises {_OF_WHAT[bound.name]} of at most {_number(bound):.3g}"
        if bound.vacuous and self.known is not None and _number(bound) >= self.known:
            return f"{promised}. This bound is vacuous: before training the risk is already at most {self.known:.3g}."
        if bound.vacuous:
            return f"{promised}. This bound is vacuous: the same is known before training."
        if self.known is not None:
            return f"{promised}; before training the risk is at most {self.known:.3g}."
        return f"{promised}."

    @property
    def rank(self) -> tuple[int, float]:
        """The rank; a smaller one is better. Bounds that are not vacuous come first, then vacuous bounds, then rates,
        then algorithms without either.
        """
        if self.bound is not None:
            return (1 if self.bound.vacuous else 0), _number(self.bound)
        return (2, _number(self.rate)) if self.rate is not None else (3, 0.0)


def advise(problem: Problem, facts: Facts, names: Sequence[str] | None = None) -> tuple[Advice, ...]:
    """Return advice on every algorithm. Algorithms with a calibration come first, the best first within each measure;
    then the others.

    Args:
        problem: The objective.
        facts: The facts about it.
        names: The algorithms to consider; None considers all.

    Guarantees:
        - bounds_come_first: within a measure, no rate ranks above a bound, and no vacuous bound above one that is not
          vacuous.
        - nothing_is_left_out: every algorithm of the registry is listed once.

    Raises:
        InvalidValue: If no algorithm has one of the given constants, because a misspelt name must not be ignored
            silently; or if an algorithm is unknown.
    """
    _check_names(facts.assumptions)
    found = [_advice(each, problem, facts) for each in _algorithms(names)]
    order = list(Measure)
    answered = [item for item in found if item.calibration is not None]
    answered.sort(key=lambda item: (len(order) if item.measure is None else order.index(item.measure), item.rank))
    return (*answered, *(item for item in found if item.calibration is None))


def advise_on_batches(facts: Facts) -> LoaderAdvice | None:
    """Compare the loader's batches with other ways of making batches. Return None if no loader or no number of steps is
    given.

    Raises:
        AccountingError: If the target cannot be met under this relation.
    """
    if facts.loader is None or facts.batch_size is None or facts.iterations is None:
        return None
    correlating = next(each for each in ALGORITHMS.values() if each.correlates)
    spec = Spec(
        dataset_size=facts.dataset_size,
        target=facts.target,
        batch_size=facts.batch_size,
        iterations=facts.iterations,
        sampling=FixedOrderEpochs.kind,
        neighboring_relation=facts.neighboring_relation,
        gradient_bound=_gradient_bound(correlating, Problem(Shape.NONCONVEX), facts) or Clip(1.0),
        judge_published=False,
    )
    return advice_of(facts.loader, calibrate(correlating.name, spec).alternatives, correlating.name, FIRST)


def risk_before_training(given: Mapping[str, float]) -> float | None:
    """Return how far the risk can be above the minimum before any step, in loss units; None if no constant bounds it.

    This is the smaller of two numbers: `initial_gap`, and the Lipschitz constant times the largest distance from the
    start to a point of the domain. Training starts at the centre of the domain, so this distance is the radius.

    >>> risk_before_training({"lipschitz": 2.0, "diameter": 3.0, "initial_gap": 10.0})
    3.0
    """
    distances = [given["radius"]] if "radius" in given else []
    distances += [given["diameter"] / 2.0] if "diameter" in given else []
    found = [given["initial_gap"]] if "initial_gap" in given else []
    found += [given["lipschitz"] * min(distances)] if "lipschitz" in given and distances else []
    return min(found, default=None)


def longest_in_l2(lipschitz: float, norm_order: float, dimension: int) -> float:
    r"""Return a bound on gradients in l2. It follows from a bound in the dual of the parameters' norm.

    Args:
        lipschitz: The number L, a bound on :math:`\|g\|_q` with 1/p + 1/q = 1.
        norm_order: The p of the norm of parameters, in [1, 2].
        dimension: The dimension d, the number of parameters.

    :math:`\|g\|_2 \le d^{1/2 - 1/q} \|g\|_q` for q >= 2 (Hoelder), with equality where all entries are equally large.

    >>> longest_in_l2(1.0, 1.0, 100), longest_in_l2(1.0, 2.0, 100)
    (10.0, 1.0)
    """
    return float(lipschitz * dimension ** (1.0 / norm_order - 0.5))


def _algorithms(names: Sequence[str] | None) -> list[Algorithm]:
    if names is None:
        return list(ALGORITHMS.values())
    found: dict[str, Algorithm] = {}
    for place, name in enumerate(names):
        try:
            found[name] = find_algorithm(name)
        except InvalidValue as error:
            error.pointer = ("algorithms", place)
            raise
    return list(found.values())


def _check_names(given: Mapping[str, float]) -> None:
    known = {assumption.name for algorithm in ALGORITHMS.values() for assumption in algorithm.assumptions}
    for name in given:
        if name not in known:
            raise InvalidValue(
                f"no algorithm has an assumption {name!r}; the assumptions are {', '.join(sorted(known))}",
                code="unknown_assumption",
                pointer=("assumptions", name),
            )


def _advice(algorithm: Algorithm, problem: Problem, facts: Facts) -> Advice:
    scope = algorithm.scope
    reasons = tuple(Reason(text) for text in scope.conflicts(problem))
    if facts.loader is not None and scheme_of(facts.loader, algorithm.samplings) is None:
        kinds = " or ".join(each.kind for each in algorithm.samplings)
        reasons += (Reason(f"it needs batches of kind {kinds}, and the loader cannot make them", ("loader",)),)
    if reasons:
        return Advice(algorithm.name, scope.measure, reasons=reasons)
    try:
        spec, calibration = _calibrated(algorithm, _spec(algorithm, scope, problem, facts), facts)
    except AccountingError as error:
        return Advice(algorithm.name, scope.measure, reasons=(Reason(error.detail, tuple(error.pointer)),))
    bound, rate = _first(calibration, _BOUNDS, is_order=False), _first(calibration, _RATES, is_order=True)
    named = bound or rate
    measure = scope.measure if named is None else _measure_of(named, scope)
    known = risk_before_training(facts.assumptions) if measure in _RISKS else None
    if bound is not None and known is not None and _number(bound) >= known:
        bound = replace(bound, vacuous=True)
    return Advice(
        algorithm.name, measure, spec, calibration, bound, rate, tuple(_why_no_bound(calibration, bound)), known
    )


def _calibrated(algorithm: Algorithm, spec: Spec, facts: Facts) -> tuple[Spec, Calibration]:
    """Calibrate with the theorem's own batch size and number of steps. If the theorem has none, use the given sizes, or
    else the usual ones.
    """
    try:
        return spec, calibrate(algorithm.name, spec)
    except InvalidValue as error:
        takes_too_many = tuple(error.pointer) == ("iterations",) and facts.iterations is not None
        if error.code != "missing" and not takes_too_many:
            raise
    full = (spec.sampling or algorithm.samplings[0].kind) == FullBatch.kind
    spec = replace(spec, iterations=facts.iterations, batch_size=None if full else facts.batch_size)
    if algorithm.step_rule is not None and facts.batch_size is not None and facts.iterations is not None:
        return spec, calibrate(algorithm.name, spec)
    return Draft(algorithm.name, spec, Preset.THEOREM, UNKNOWN_OBJECTIVE).calibrate_sizes()


def _measure_of(item: Provenance, scope: Scope) -> Measure | None:
    """Return the quantity that a number bounds. Some theorems bound the risk for some objectives and the gradient for
    others.
    """
    if scope.shape is Shape.MEAN:
        return scope.measure
    if item.name.startswith("gradient_norm"):
        return Measure.STATIONARITY
    return Measure.EMPIRICAL_RISK if scope.measure is Measure.STATIONARITY else scope.measure


def _why_no_bound(calibration: Calibration, bound: Provenance | None) -> list[Reason]:
    if bound is not None:
        return []
    if calibration.missing_assumptions:
        return [
            Reason(f"its bound needs {name}", (name,) if name == "dimension" else ("assumptions", name))
            for name in calibration.missing_assumptions
        ]
    return [Reason(warning) for warning in calibration.warnings]


def _spec(algorithm: Algorithm, scope: Scope, problem: Problem, facts: Facts) -> Spec:
    known = {assumption.name for assumption in algorithm.assumptions}
    constants = _converted(problem, problem.constants(facts.assumptions))
    given = {name: value for name, value in constants.items() if name in known}
    if "norm_order" in known and scope.norms is not None:
        given.setdefault("norm_order", problem.norm_order)
    scheme = None if facts.loader is None else scheme_of(facts.loader, algorithm.samplings)
    return Spec(
        dataset_size=facts.dataset_size,
        target=facts.target,
        sampling=None if scheme is None else scheme.kind,
        neighboring_relation=facts.neighboring_relation,
        gradient_bound=_gradient_bound(algorithm, problem, facts),
        dimension=facts.dimension,
        assumptions=given,
        judge_published=False,
    )


def _converted(problem: Problem, given: Mapping[str, float]) -> dict[str, float]:
    """Return the given constants, and the constants in l2 that follow from them.

    A bound L on all gradients also bounds all their moments: E[|g|^k]^(1/k) <= L for every k. A smooth loss is Hoelder
    smooth with the exponent 1.
    """
    found = dict(given)
    if problem.norm_order != 2.0 or problem.shape is Shape.MEAN:
        return found
    if "lipschitz" in given and "moment_bound" not in given and not problem.is_heavy_tailed:
        bound = given["lipschitz"]
        found = {"moment_order": _MANY_MOMENTS, "moment_bound_2k": bound, **given, "moment_bound": bound}
    if problem.is_smooth and "smoothness" in given and not given.keys() & {"holder_exponent", "holder_constant"}:
        found |= {"holder_exponent": 1.0, "holder_constant": given["smoothness"]}
    return found


def _gradient_bound(algorithm: Algorithm, problem: Problem, facts: Facts) -> GradientBound | None:
    kinds, given = algorithm.gradient_bounds, facts.gradient_bound
    if given is not None and isinstance(given, kinds):
        return given
    lipschitz = facts.assumptions.get("lipschitz")
    if lipschitz is not None and lipschitz > 0.0 and Clip in kinds and algorithm.gradient_bound_required:
        return Clip(longest_in_l2(lipschitz, problem.norm_order, facts.dimension))
    return None


def _first(calibration: Calibration, names: tuple[str, ...], *, is_order: bool) -> Provenance | None:
    for item in calibration.utility:
        if item.name in names and isinstance(item.value, float) and (item.kind is ProvenanceKind.ORDER) == is_order:
            return item
    return None


def _number(item: Provenance) -> float:
    assert isinstance(item.value, float), "such were chosen"
    return item.value

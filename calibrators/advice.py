"""The algorithms that apply to a problem, ranked by the promises of their theorems, and the reasons why others do not
apply.

Every algorithm that could apply is calibrated with the known facts, so the advice agrees with what a calibration would
answer. A number that is known up to a constant never ranks above a bound, nor a vacuous bound above another.

A constant of the problem is in the problem's norm. It is converted if an algorithm needs another norm: an algorithm
that clips in l2 clips at the longest gradient in l2, and an algorithm that needs moments of gradients gets a bound of
their norm.
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
#: The words by which `why` names the bounded quantity.
_OF_WHAT = {
    "excess_risk_bound": "a mean excess risk",
    "gradient_norm_bound": "a mean gradient norm",
    "mean_squared_error_bound": "a mean squared error",
    "error_bound": "an error, but for the small probability,",
}
#: The order of the moment that a theorem is given if gradients have a bounded norm, which bounds all moments. The
#: millionth moment would promise at most 16 % less, and sometimes more.
_MANY_MOMENTS = 64.0
_RISKS = (Measure.POPULATION_RISK, Measure.EMPIRICAL_RISK)


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about the data and the purpose of the run.

    Attributes:
        dataset_size, dimension: Public sizes.
        target: The target of the run's privacy loss.
        neighboring_relation: The neighbouring relation; None leaves it to each algorithm.
        gradient_bound: The bound on gradients. None clips at the longest gradient in l2 that ``lipschitz`` allows, if
            that is given and the algorithm clips.
        batch_size, iterations: For algorithms whose theorems leave them open, or ask for more steps than a plan may
            have; None takes the practical defaults.
        loader: The way in which batches are made; None makes them as each algorithm asks.
        assumptions: Constants of the problem, in its norm. Each algorithm uses those that it knows.
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
    """A reason why an algorithm does not apply, or has no number.

    Attributes:
        detail: The reason, in a sentence.
        pointer: The place in the facts; empty for the problem itself.
    """

    detail: str
    pointer: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice about one algorithm.

    Attributes:
        algorithm: Its name.
        measure: The quantity that its bound or rate limits, or that of its theorem; None if it has none.
        spec: The spec of its calibration; None if it does not apply.
        calibration: The answer; None if it does not apply or refused.
        bound: The bound that its theorem promises, with all constants; None if it promises nothing for these facts. A
            bound that is not below ``known`` is vacuous, too.
        rate: The same bound, known only up to a constant.
        reasons: Why it does not apply, refused, or has no bound.
        known: The bound on the excess risk before training; None if there is none, or the bound is of another measure.
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
        """Return a sentence that explains its place in the list."""
        if self.bound is not None:
            return self._why_of_bound(self.bound)
        if self.rate is not None:
            return "Its theorem says how its error grows with the sizes, and not how large it is: rates follow bounds."
        if self.measure is None:
            return "No theorem says what it attains, so that nothing ranks it."
        return "Its theorem promises nothing at these facts."

    def _why_of_bound(self, bound: Provenance) -> str:
        promised = f"Its theorem promises {_OF_WHAT[bound.name]} of at most {_number(bound):.3g}"
        if bound.vacuous and self.known is not None and _number(bound) >= self.known:
            return f"{promised}, which says nothing: it is at most {self.known:.3g} before training."
        if bound.vacuous:
            return f"{promised}, which says nothing: as much is known before training."
        if self.known is not None:
            return f"{promised}; before training it is at most {self.known:.3g}."
        return f"{promised}."

    @property
    def rank(self) -> tuple[int, float]:
        """The rank, smaller is better: useful bounds first, then vacuous ones, rates, and nothing."""
        if self.bound is not None:
            return (1 if self.bound.vacuous else 0), _number(self.bound)
        return (2, _number(self.rate)) if self.rate is not None else (3, 0.0)


def advise(problem: Problem, facts: Facts, names: Sequence[str] | None = None) -> tuple[Advice, ...]:
    """Return advice on every algorithm: those that calibrate, best first within each measure, then the others.

    Args:
        problem: The objective.
        facts: The facts about it.
        names: The algorithms to consider; None considers all.

    Guarantees:
        - bounds_come_first: within a measure, no rate is above a bound, no vacuous bound above another.
        - nothing_is_left_out: every algorithm of the registry is there once.

    Raises:
        InvalidValue: If no algorithm knows a constant, since a misspelt one would be ignored silently; or if an
            algorithm is unknown.
    """
    _check_names(facts.assumptions)
    found = [_advice(each, problem, facts) for each in _algorithms(names)]
    order = list(Measure)
    answered = [item for item in found if item.calibration is not None]
    answered.sort(key=lambda item: (len(order) if item.measure is None else order.index(item.measure), item.rank))
    return (*answered, *(item for item in found if item.calibration is None))


def advise_on_batches(facts: Facts) -> LoaderAdvice | None:
    """Compare the loader's batches with others; return None if no loader or no number of steps is given.

    Raises:
        AccountingError: If the target cannot be met, or cannot be met under this relation.
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

    It is `initial_gap`, or the Lipschitz constant times the distance of the start from the farthest point of the
    domain, whichever is smaller. Training starts at the centre, so this distance is the radius.

    >>> risk_before_training({"lipschitz": 2.0, "diameter": 3.0, "initial_gap": 10.0})
    3.0
    """
    distances = [given["radius"]] if "radius" in given else []
    distances += [given["diameter"] / 2.0] if "diameter" in given else []
    found = [given["initial_gap"]] if "initial_gap" in given else []
    found += [given["lipschitz"] * min(distances)] if "lipschitz" in given and distances else []
    return min(found, default=None)


def longest_in_l2(lipschitz: float, norm_order: float, dimension: int) -> float:
    r"""Return a bound of gradients in l2 from one in the dual of the norm of parameters.

    Args:
        lipschitz: The number L, a bound of :math:`\|g\|_q` with 1/p + 1/q = 1.
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
                f"no algorithm has an assumption {name!r}; there are {', '.join(sorted(known))}",
                code="unknown_assumption",
                pointer=("assumptions", name),
            )


def _advice(algorithm: Algorithm, problem: Problem, facts: Facts) -> Advice:
    scope = algorithm.scope
    reasons = tuple(Reason(text) for text in scope.conflicts(problem))
    if facts.loader is not None and scheme_of(facts.loader, algorithm.samplings) is None:
        kinds = " or ".join(each.kind for each in algorithm.samplings)
        reasons += (Reason(f"it takes {kinds}, which the loader does not make", ("loader",)),)
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
    """Calibrate with the theorem's own batch size and number of steps; if it has none, with the given ones, or the
    usual ones."""
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
    """Return the measure. Some theorems bound the risk for some objectives and the gradient for others."""
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
    """Return the given constants, with those that follow from others in l2.

    A bound of all gradients is one of all their moments: E[|g|^k]^(1/k) <= L for every k. A smooth loss is Hoelder
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

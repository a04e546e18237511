"""`POST /v1/assumptions`: the constants that follow from a model and declared bounds, and why they hold."""

from __future__ import annotations

from typing import Annotated

from fastapi.openapi.models import Example
from pydantic import Field

from app.algorithms.binding import DataDescription, build_model
from app.algorithms.constants import Constant, derive, input_bound
from app.algorithms.geometry import DomainBody, PenaltyBody, to_domain, to_penalty
from app.algorithms.model_choice import ModelChoice
from app.algorithms.schemas import AssumptionBody
from app.algorithms.trainable import check_model
from app.algorithms.underivable import underivable
from app.auth import reach
from app.auth.principal import Principal
from app.context import Context
from app.datasets import service as datasets
from app.datasets import versions
from app.datasets.columns import Columns, Label, split_label
from app.kit.fields import Identifier, Schema
from app.problems import refused_at, unprocessable
from calibrators.algorithm import Algorithm
from calibrators.geometry import Domain, L1Ball, L2Ball, LpBall, diameter
from calibrators.lowy_razaviyayn.moments import moment_bound_of_coordinates
from calibrators.provenance import GRADIENT, PARAMETER
from calibrators.registry import ALGORITHMS, find_algorithm

#: Constants from which this module derives others. A request may give them even if the algorithm does not use them.
_READ_HERE = {"radius", "diameter", "moment_order", "coordinate_moment_bound"}


class AssumptionsRequest(Schema):
    """A model on declared columns. No row is read, and none can be sent."""

    model: ModelChoice
    dataset_id: Identifier | None = Field(
        None,
        description="The data set that declares the columns; no row is read. Or give `columns` and `label`.",
    )
    columns: Columns | None = Field(None, description="Declared columns in place of a data set, with `label`.")
    label: Label | None = Field(None, description="Name of the column that a model predicts.")
    algorithm: str | None = Field(
        None,
        max_length=64,
        description="If given, the answer has the constants that this algorithm takes, and those that are still "
        "missing.",
    )
    norm_order: float | None = Field(
        None,
        ge=1,
        le=2,
        description="p of the l_p norm of parameters. If left out, the algorithm's own, or 2 without an algorithm.",
    )
    domain: DomainBody | None = Field(None, description="The set to which parameters are confined; it bounds logits.")
    penalty: PenaltyBody | None = Field(None, description="Added to the mean loss.")
    assumptions: dict[Annotated[str, Field(max_length=64)], float] = Field(
        default={},
        max_length=32,
        description="What you know already, as in a run: a `radius` or `diameter` bounds logits, and a "
        "`coordinate_moment_bound` becomes a `moment_bound`.",
    )


class ConstantBody(Schema):
    """A constant that holds for every row within the declared bounds."""

    name: str = Field(description="Inside `assumptions` of a calibration or a run.")
    value: float
    unit: str = Field(description="The unit, in units of the loss and of the parameters.")
    formula: str = Field(
        description="LaTeX. B bounds an input, and r is the derivative of the loss with respect to the logits."
    )
    reason: str = Field(description="Why it holds.")
    source: str = Field(description="The paper and the place in it, if it is from a paper.")


class NotDerivableBody(Schema):
    """A constant that no declared bound implies."""

    name: str
    reason: str = Field(description="Why the constant cannot be derived, and what to do instead.")


class AssumptionsAnswer(Schema):
    dimension: int = Field(description="Number of parameters of the model.")
    norm_order: float
    feature_bound: float = Field(
        description="B: the largest norm of an input with its constant, in the norm in which gradients are measured."
    )
    assumptions: dict[str, float] = Field(description="The constants by name, as a calibration or a run takes them.")
    constants: list[ConstantBody]
    missing: list[AssumptionBody] = Field(
        description="What else the algorithm's theorem needs; empty if no algorithm was named."
    )
    not_derivable: list[NotDerivableBody]


ASSUMPTIONS_EXAMPLES: dict[str, Example] = {
    "logistic": {
        "summary": "Logistic regression on the bundled data, for one algorithm",
        "value": {
            "model": {"kind": "logistic_regression"},
            "dataset_id": "ds_breast_cancer",
            "algorithm": "clipped_sgd_strongly_convex",
            "domain": {"kind": "l2_ball", "radius": 2},
            "penalty": {"kind": "l2", "strength": 0.5},
        },
    },
    "columns": {
        "summary": "Least squares on declared columns, for any algorithm",
        "value": {
            "model": {"kind": "linear_regression"},
            "columns": [
                {"name": "age", "type": "number", "lower": 0, "upper": 120},
                {"name": "smoker", "type": "category", "categories": ["no", "yes"]},
                {"name": "cost", "type": "number", "lower": 0, "upper": 10000},
            ],
            "label": "cost",
            "domain": {"kind": "l2_ball", "radius": 1},
        },
    },
    "heavy_tails": {
        "summary": "A moment bound from moments of single coordinates, which you know (Lemma 21)",
        "value": {
            "model": {"kind": "linear_regression"},
            "dataset_id": "ds_diabetes",
            "assumptions": {"moment_order": 4, "coordinate_moment_bound": 0.25},
        },
    },
}


def answer(context: Context, request: AssumptionsRequest, principal: Principal) -> AssumptionsAnswer:
    """Return the constants that a run with this model would derive, each with its reason. The answer also has the
    domain's diameter and radius, and a bound on moments that follows from moments of coordinates.

    Raises:
        Problem: 422 with a pointer to the field that is malformed or does not fit; 404 for an unknown data set.
    """
    data = _describe(context, request, principal)
    model = build_model(request.model, data)
    algorithm = _algorithm(request)
    given = request.assumptions
    _check_names(given, algorithm)
    with refused_at():
        domain, penalty = to_domain(request.domain), to_penalty(request.penalty)
    order = _norm_order(request, domain, algorithm)
    found = {
        constant.name: constant
        for constant in derive(model, data.scaled_columns, given, order, domain=domain, penalty=penalty)
    }
    found |= _of_domain(domain, model.num_parameters, order, algorithm)
    found |= _of_coordinates(given, found, model.num_parameters)
    names = None if algorithm is None else [assumption.name for assumption in algorithm.assumptions]
    kept = [constant for name, constant in found.items() if name not in given and (names is None or name in names)]
    known = {*given, *(constant.name for constant in kept)}
    return AssumptionsAnswer(
        dimension=model.num_parameters,
        norm_order=order,
        feature_bound=input_bound(model, data.scaled_columns, order),
        assumptions={constant.name: constant.value for constant in kept},
        constants=[_body(constant) for constant in kept],
        missing=[
            AssumptionBody.of(assumption)
            for assumption in (() if algorithm is None else algorithm.assumptions)
            if assumption.required and assumption.default is None and assumption.name not in known
        ],
        not_derivable=[
            NotDerivableBody(name=name, reason=reason)
            for name, reason in underivable(model, domain, [constant.name for constant in kept], given)
            if names is None or name in names
        ],
    )


def _describe(context: Context, request: AssumptionsRequest, principal: Principal) -> DataDescription:
    if (request.dataset_id is None) == (request.columns is None):
        detail = "give either dataset_id, or columns with label"
        raise unprocessable("missing", detail, "dataset_id")
    if request.columns is not None:
        if request.label is None:
            raise unprocessable("missing", "columns need a label: the name of the column to predict", "label")
        features, label = split_label(request.columns, request.label)
        # No constant depends on the number of records.
        return DataDescription.of_columns(features, label)
    if request.label is not None:
        raise unprocessable("overdetermined", "the data set declares its own label: leave label out", "label")
    assert request.dataset_id is not None
    with context.database.read() as session:
        reach.check(session, principal, "dataset_id", request.dataset_id)
        dataset = datasets.get(session, request.dataset_id)
        return DataDescription.of(dataset, versions.newest(session, dataset))


def _algorithm(request: AssumptionsRequest) -> Algorithm | None:
    if request.algorithm is None:
        return None
    with refused_at():
        algorithm = find_algorithm(request.algorithm)
    check_model(algorithm.name, request.model.kind)
    return algorithm


def _norm_order(request: AssumptionsRequest, domain: Domain | None, algorithm: Algorithm | None) -> float:
    """Return p of the l_p norm in which a run of the algorithm measures parameters. Gradients are measured in the dual
    norm."""
    asked, given = request.norm_order, request.assumptions
    if algorithm is None:
        return 2.0 if asked is None else asked
    takes_any = any(assumption.name == "norm_order" for assumption in algorithm.assumptions)
    if asked not in (None, algorithm.norm_order) and not takes_any:
        detail = f"{algorithm.name} measures parameters in the l_{algorithm.norm_order:g} norm: leave norm_order out"
        raise unprocessable("overdetermined", detail, "norm_order")
    return algorithm.order_of_norm(given, domain) if asked is None else asked


def _check_names(given: dict[str, float], algorithm: Algorithm | None) -> None:
    """Refuse constants that the algorithm does not use. If the request names no algorithm, refuse constants that no
    algorithm uses."""
    algorithms = ALGORITHMS.values() if algorithm is None else (algorithm,)
    known = {assumption.name for each in algorithms for assumption in each.assumptions} | _READ_HERE
    for name in given:
        if name not in known:
            detail = f"no algorithm takes this assumption; the known assumptions are {', '.join(sorted(known))}"
            raise unprocessable("unknown_assumption", detail, "assumptions", name)


def _of_domain(
    domain: Domain | None, dimension: int, norm_order: float, algorithm: Algorithm | None
) -> dict[str, Constant]:
    """Return the domain's diameter, and its radius for algorithms that take no diameter."""
    if domain is None:
        return {}
    found = [
        Constant(
            "diameter",
            diameter(domain, dimension, norm_order),
            PARAMETER,
            r"D = \max \|w - w'\|",
            f"The largest distance between two points of the {domain.kind}, in the norm of parameters.",
        )
    ]
    takes_diameter = algorithm is not None and any(each.name == "diameter" for each in algorithm.assumptions)
    own = {L1Ball.kind: 1.0, L2Ball.kind: 2.0}.get(domain.kind, getattr(domain, "norm_order", None))
    if isinstance(domain, L1Ball | L2Ball | LpBall) and own == norm_order and not takes_diameter:
        found.append(Constant("radius", domain.radius, PARAMETER, r"R", f"The {domain.kind} is centred at 0."))
    return {constant.name: constant for constant in found}


def _of_coordinates(given: dict[str, float], found: dict[str, Constant], dimension: int) -> dict[str, Constant]:
    """Return the bound on the moment of the gradient's norm that follows from the given moment of its coordinates. The
    source is Lemma 21 of Lowy and Razaviyayn 2023. If a bound that was found before is at least as small, return
    nothing."""
    bound, order = given.get("coordinate_moment_bound"), given.get("moment_order")
    if bound is None or order is None or "moment_bound" in given:
        return {}
    if not (bound > 0.0 and order >= 2.0):
        raise unprocessable(
            "invalid_value",
            ("the moment of a coordinate must be positive, and its order must be at least 2"),
            "assumptions",
        )
    value = moment_bound_of_coordinates(bound, order, dimension)
    if "moment_bound" in found and found["moment_bound"].value <= value:
        return {}
    reason = (
        "Minkowski's inequality separates the mean gradient, whose length must be at most sqrt(d) gamma^(1/k), and "
        "|v|^k <= d^(k/2) times the mean of |v_j|^k. It holds where every coordinate of the gradients that are clipped "
        f"has such a central moment at every point of the domain. The paper's constant is 4: {2.0 * value:.10g}."
    )
    return {
        "moment_bound": Constant(
            "moment_bound",
            value,
            GRADIENT,
            r"r_k = 2 \sqrt d\, \gamma^{1/k}",
            reason,
            "Lowy & Razaviyayn 2023, Lemma 21 (with 2 for 4: derived)",
        )
    }


def _body(constant: Constant) -> ConstantBody:
    return ConstantBody(
        name=constant.name,
        value=constant.value,
        unit=str(constant.units),
        formula=constant.formula,
        reason=constant.reason,
        source=constant.source,
    )

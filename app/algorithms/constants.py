"""Constants of a training objective, as far as they follow from its model and the declared bounds alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calibrators.geometry import Box, Domain, L2Penalty, Penalty, Simplex, largest_norm
from calibrators.provenance import GRADIENT, LOSS, PURE, SMOOTHNESS, Units
from trainer import scaling
from trainer.losses.loss import Loss
from trainer.models import LinearModel, MeanModel, Model

#: Bounded gradients have moments of every order. At this order, a threshold that is computed from moments lies within a
#: few per cent of the bound; at order 2 it can be many times as large, without any benefit.
MOMENT_ORDER = 64.0

_MOMENTS = "Lowy & Razaviyayn 2023, Assumption 2"
_HOLDER = Units(loss=1, parameter=-1, holder=-1)
_ANY_ORDER = "A bound on every record also bounds the moments of every order; this order is a choice."


@dataclass(frozen=True, slots=True)
class Constant:
    """A number that holds for every row within the declared bounds.

    Attributes:
        name: The name in the HTTP interface.
        value: The number.
        units: How the value scales with the units of losses and parameters.
        formula: The formula in LaTeX. B bounds an input's dual norm, r is the derivative of the loss with respect to
            the logits, and s is a penalty's strength.
        reason: Why the value holds, in sentences.
        source: The paper and the place in it, if a paper states the constant.
    """

    name: str
    value: float
    units: Units
    formula: str
    reason: str
    source: str = ""


def constants(
    model: Model,
    columns: Sequence[scaling.Column],
    given: Mapping[str, float],
    norm_order: float,
    *,
    domain: Domain | None = None,
    penalty: Penalty | None = None,
) -> dict[str, float]:
    """Return the values of the constants that `derive` returns, by name."""
    found = derive(model, columns, given, norm_order, domain=domain, penalty=penalty)
    return {constant.name: constant.value for constant in found}


@dataclass(frozen=True)
class Derivation:
    """A callable form of `constants` for one model. It can be sent to a process that does not import the service."""

    model: Model
    columns: tuple[scaling.Column, ...]
    domain: Domain | None
    penalty: Penalty | None

    def __call__(self, norm_order: float, given: Mapping[str, float]) -> Mapping[str, float]:
        """Return the derived constants by their names."""
        return constants(self.model, self.columns, given, norm_order, domain=self.domain, penalty=self.penalty)


def derive(
    model: Model,
    columns: Sequence[scaling.Column],
    given: Mapping[str, float],
    norm_order: float,
    *,
    domain: Domain | None = None,
    penalty: Penalty | None = None,
) -> tuple[Constant, ...]:
    """Derive constants, with the reasons why they hold; none for a model that is neither linear nor a mean.

    Let r(z) be the derivative of the loss with respect to the logits, and x an input of dual norm at most B. Then a
    record's gradient is x r(x.w). So its norm is at most B max|r|, and its Hoelder constant is at most B^(1 + alpha)
    times that of r. At zero parameters, the gap between the loss and its minimum is at most the loss, since no loss is
    negative. A bound on every record's gradient also bounds every moment of its norm: ``moment_bound`` at any
    ``moment_order``, and ``moment_bound_2k`` at twice that order.

    An l2 penalty of strength s makes the objective, whose loss is convex, s-strongly convex, and adds s to its
    smoothness. The penalty is not clipped, so bounds on gradients and moments do not include it.

    Some constants have a meaning only in pairs: a Hoelder constant and its exponent, the bound on a moment and its
    order, and the Lipschitz constants in the logit and in the parameters, whose ratio bounds features. If the request
    gives one of a pair, it must give the other, too.

    For a mean, the records themselves are clipped, and no record's norm is larger than the features' bound.

    Args:
        model: The model that is trained, starting from zero parameters.
        columns: How values become features.
        given: The constants in the request. A radius or a diameter bounds logits, and therefore r.
        norm_order: p of the norm of parameters, in [1, 2]; features and gradients are measured in its dual.
        domain: The domain to which the request restricts parameters; it bounds logits, too.
        penalty: The penalty that the request adds to the loss.

    Guarantees:
        - no_row_is_looked_at: equal declarations give equal constants.
        - constants_hold_for_every_row: within the declared bounds, at every point within the radius.
    """
    if isinstance(model, MeanModel):
        return _of_a_mean(scaling.feature_norm_bound(columns), given)
    if not isinstance(model, LinearModel):
        return ()
    loss, bound = model.loss, input_bound(model, columns, norm_order)
    found = [*_at_zero(loss, bound, norm_order, domain), *_of_changes(loss, bound, norm_order, given)]
    strength = penalty.strength if isinstance(penalty, L2Penalty) else 0.0
    if loss.holder_exponent == 1.0:
        found += _smoothness(loss.largest_change(norm_order) * bound**2 + strength)
    if strength > 0.0:
        found.append(
            Constant(
                "strong_convexity",
                strength * math.pow(model.num_parameters, 1.0 - 2.0 / norm_order),
                SMOOTHNESS,
                r"\mu = s\, d^{1 - 2/p}",
                "The loss is convex in the parameters, and the l2 penalty is strongly convex with its strength in the "
                "l2 norm; the l_p norm is at most d^(1/p - 1/2) times that.",
            )
        )
    slope = loss.steepest(bound * _radius(model, given, norm_order, domain), norm_order)
    return (*found, *_of_bounded_gradients(slope, bound, given)) if math.isfinite(bound * slope) else tuple(found)


def input_bound(model: Model, columns: Sequence[scaling.Column], norm_order: float) -> float:
    """Return B, the bound on a model's input: features in [-1, 1], and the constant 1 if the model has an intercept.
    The bound is in the dual of the parameters' norm."""
    if norm_order == 1.0:
        return 1.0
    dual = norm_order / (norm_order - 1.0)
    bound = scaling.feature_norm_bound(columns, dual)
    if not (isinstance(model, LinearModel) and model.fit_intercept):
        return bound
    return math.hypot(bound, 1.0) if dual == 2.0 else math.pow(math.pow(bound, dual) + 1.0, 1.0 / dual)


def _of_a_mean(longest: float, given: Mapping[str, float]) -> tuple[Constant, ...]:
    """Return bounds for a mean: on the norm of the mean, on moments of the records' norm, and on central moments of
    their coordinates."""
    words = "The records themselves are clipped. Each declared column adds at most 1 to the square of a scaled row."
    found = [
        Constant(
            "mean_bound",
            longest,
            GRADIENT,
            "L = B",
            f"{words} The mean of the rows is no longer than the longest of them.",
        )
    ]
    if not given.keys() & {"moment_bound", "coordinate_moment_bound"}:
        found += [
            _moment_order(),
            Constant("moment_bound", longest, GRADIENT, "r_k = B", f"{words} {_ANY_ORDER}", _MOMENTS),
            Constant(
                "coordinate_moment_bound",
                2.0,
                GRADIENT,
                r"\gamma^{1/k} = 2",
                f"A scaled value and its mean are both in [-1, 1]. {_ANY_ORDER}",
                "Lowy & Razaviyayn 2023, Assumption 3",
            ),
        ]
    return tuple(found)


def _at_zero(loss: Loss, bound: float, norm_order: float, domain: Domain | None) -> list[Constant]:
    found = [
        Constant(
            "loss_at_zero",
            loss.value_at_zero,
            LOSS,
            r"\max_y \ell(0, y)",
            "At zero parameters every logit is 0, and no label makes the loss larger there.",
        ),
        Constant(
            "gradient_at_zero",
            loss.steepest(0.0, norm_order) * bound,
            GRADIENT,
            r"B \max_y \|r(0, y)\|",
            "A record's gradient is its input times the loss's derivative in the logits, which are 0 there.",
        ),
    ]
    if _holds_zero(domain):
        found.append(
            Constant(
                "initial_gap",
                loss.value_at_zero,
                LOSS,
                r"F(0) - \inf F \le \max_y \ell(0, y)",
                "The run starts from zero, where a penalty is 0, and no loss or penalty is negative.",
            )
        )
    return found


def _of_changes(loss: Loss, bound: float, norm_order: float, given: Mapping[str, float]) -> list[Constant]:
    if given.keys() & {"holder_exponent", "holder_constant"}:
        return []
    exponent = loss.holder_exponent
    return [
        Constant(
            "holder_exponent",
            exponent,
            PURE,
            r"\alpha",
            f"The exponent of the loss {loss.kind} as a function of its logits: 0 if its slope jumps, 1 if it is "
            f"smooth.",
        ),
        Constant(
            "holder_constant",
            loss.largest_change(norm_order) * bound ** (1.0 + exponent),
            _HOLDER,
            r"B^{1 + \alpha} H,\; \|r(z) - r(z')\| \le H \|z - z'\|^\alpha",
            "A logit changes by at most B times the change of the parameters, and the gradient by at most B times the "
            "change of the derivative in the logits.",
        ),
    ]


def _smoothness(value: float) -> list[Constant]:
    formula = r"B^2 c + s,\; \|\ell''(z)\| \le c"
    words = (
        "A record's second derivative in the parameters is the one in the logits, multiplied by its input on both "
        "sides; an l2 penalty adds its strength."
    )
    return [
        Constant("smoothness", value, SMOOTHNESS, formula, words),
        Constant(
            "generalized_smoothness_l0",
            value,
            SMOOTHNESS,
            formula,
            f"{words} With L_1 = 0, generalised smoothness is smoothness.",
            "Yang, Zhang, Chen & Liu 2022, Definition 2.2",
        ),
    ]


def _of_bounded_gradients(slope: float, bound: float, given: Mapping[str, float]) -> list[Constant]:
    longest, found = bound * slope, []
    formula = r"G = B \max \|r(z)\|"
    words = (
        "A record's gradient is its input times the loss's derivative in the logits, which has a bound: everywhere, or "
        "at the logits that the radius of the parameters admits."
    )
    if "link_lipschitz" not in given:
        found.append(Constant("lipschitz", longest, GRADIENT, formula, words))
        if "lipschitz" not in given:
            found.append(
                Constant(
                    "link_lipschitz",
                    slope,
                    LOSS,
                    r"\max \|r(z)\|",
                    "The loss's derivative in the logits has this bound: everywhere, or at the logits that the radius "
                    "of the parameters admits.",
                )
            )
    found.append(
        Constant(
            "deviation_tau0",
            2.0 * longest,
            GRADIENT,
            "2 G",
            "Two gradients of at most G differ by at most twice that, whatever the mean's length: tau_1 = 0.",
            "Yang, Zhang, Chen & Liu 2022, Assumption 2.2",
        )
    )
    if not given.keys() & {"moment_bound", "moment_bound_2k"}:
        found += [
            _moment_order(),
            Constant("moment_bound", longest, GRADIENT, rf"r_k = {formula}", f"{words} {_ANY_ORDER}", _MOMENTS),
            Constant(
                "moment_bound_2k",
                longest,
                GRADIENT,
                rf"\tilde r_{{2k}} = {formula}",
                f"{words} The bound is the same at all points of the domain.",
                "Lowy & Razaviyayn 2023, Assumption 1",
            ),
        ]
    return found


def _moment_order() -> Constant:
    words = (
        "Bounded gradients have moments of every order; at this order, a threshold computed from moments is within a "
        "few per cent of the bound. The order and the moment's bound belong together."
    )
    return Constant("moment_order", MOMENT_ORDER, PURE, "k = 64", words)


def _holds_zero(domain: Domain | None) -> bool:
    """Return whether zero is in the domain. If it is, a run starts from zero, where every penalty is zero; otherwise
    the starting point is projected into the domain."""
    match domain:
        case Box():
            return domain.lower <= 0.0 <= domain.upper
        case Simplex():
            return False
    return True


def _radius(model: LinearModel, given: Mapping[str, float], norm_order: float, domain: Domain | None) -> float:
    """Return a bound on the distance of every point from zero, in the norm of parameters. It is infinite if neither the
    request nor the domain gives a bound."""
    stated = [given[name] / width for name, width in (("radius", 1.0), ("diameter", 2.0)) if name in given]
    if domain is not None:
        stated.append(largest_norm(domain, model.num_parameters, norm_order))
    # Values that are not lengths are skipped here. The code that checks the request refuses them.
    return min((length for length in stated if length > 0.0), default=math.inf)

"""Constants of a run's training objective, as far as they follow from its model and the declared bounds alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from calibrators.geometry import Box, Domain, L1Ball, L2Penalty, Penalty, Simplex, l2_radius
from trainer import scaling
from trainer.losses.loss import Loss
from trainer.models import LinearModel, MeanModel, Model

#: Gradients with a bound have moments of every order. At this one a threshold that is made of moments lies within a few
#: per cent of the bound; at order 2 it can be many times as long, for nothing.
MOMENT_ORDER = 64.0


def constants(
    model: Model,
    columns: Sequence[scaling.Column],
    given: Mapping[str, float],
    norm_order: float,
    *,
    domain: Domain | None = None,
    penalty: Penalty | None = None,
) -> dict[str, float]:
    """Constants by their names in the HTTP contract; none for a model that is neither linear nor a mean.

    With residuals r(z) by the logits and an input x of dual norm at most B, a record's gradient is x r(x.w): so its
    norm is at most B max|r|, and its change B^(1 + alpha) times the residual's Hoelder constant. At zero parameters the
    gap is at most the loss, since no loss is negative. Where every record's gradient has a bound, so has every moment
    of its norm, the same one: ``moment_bound`` at any ``moment_order``, and ``moment_bound_2k`` at twice it.

    An l2 penalty of strength s makes the objective, whose loss is convex, s-strongly convex, and adds s to its
    smoothness. It is no part of what is clipped, hence of no bound on gradients or moments.

    Constants that mean something together come together: a Hoelder constant belongs to its exponent, a moment's bound
    to its order. Where the request gives the one, the other is the request's to give.

    Of a mean the records themselves are what is clipped, and a record is no longer than the features' bound.

    Args:
        model: What is trained, from zero parameters.
        columns: How values become features.
        given: The request's own constants: a radius or a diameter bounds logits, hence residuals.
        norm_order: p of the norm of parameters, 1 or 2; features are measured in its dual.
        domain: Where the request keeps parameters; bounds logits, too.
        penalty: What the request adds to the loss.

    Guarantees:
        - no_row_is_looked_at: equal declarations give equal constants.
        - constants_hold_for_every_row: within the declared bounds, at every point that the radius admits.
    """
    if isinstance(model, MeanModel):
        longest = scaling.feature_norm_bound(columns)
        return {} if "moment_bound" in given else {"moment_order": MOMENT_ORDER, "moment_bound": longest}
    if not isinstance(model, LinearModel):
        return {}
    loss, bound = model.loss, _input_bound(model, columns, norm_order)
    found = {
        "loss_at_zero": loss.value_at_zero,
        "gradient_at_zero": loss.slope_at_zero * bound,
    }
    if _holds_zero(domain):
        found["initial_gap"] = loss.value_at_zero
    if not given.keys() & {"holder_exponent", "holder_constant"}:
        found["holder_exponent"] = loss.holder_exponent
        found["holder_constant"] = loss.holder_constant * bound ** (1.0 + loss.holder_exponent)
    strength = penalty.strength if isinstance(penalty, L2Penalty) else 0.0
    if loss.curvature is not None:
        found["smoothness"] = found["generalized_smoothness_l0"] = loss.curvature * bound**2 + strength
    if strength > 0.0:
        found["strong_convexity"] = strength
    longest = bound * _steepest(loss, bound * _radius(model, given, norm_order, domain))
    if math.isfinite(longest):
        found["lipschitz"] = longest
        found["deviation_tau0"] = 2.0 * longest
        if not given.keys() & {"moment_bound", "moment_bound_2k"}:
            found |= {"moment_order": MOMENT_ORDER, "moment_bound": longest, "moment_bound_2k": longest}
    return found


def _holds_zero(domain: Domain | None) -> bool:
    """Whether a run starts from zero: its first point is projected, and no penalty counts at zero."""
    match domain:
        case Box():
            return domain.lower <= 0.0 <= domain.upper
        case Simplex():
            return False
    return True


def _input_bound(model: LinearModel, columns: Sequence[scaling.Column], norm_order: float) -> float:
    """Of the input with its constant: every scaled value is in [-1, 1]."""
    if norm_order == 1.0:
        return 1.0
    bound = scaling.feature_norm_bound(columns)
    return math.hypot(bound, 1.0) if model.fit_intercept else bound


def _radius(model: LinearModel, given: Mapping[str, float], norm_order: float, domain: Domain | None) -> float:
    """No point is farther from zero, in the norm of parameters; infinite where nothing says so."""
    stated = [given[name] / width for name, width in (("radius", 1.0), ("diameter", 2.0)) if name in given]
    if isinstance(domain, L1Ball):
        stated.append(domain.radius)
    elif domain is not None and norm_order == 2.0:
        stated.append(l2_radius(domain, model.num_parameters))
    # What is no length is refused by whoever reads it.
    return min((length for length in stated if length > 0.0), default=math.inf)


def _steepest(loss: Loss, largest_logit: float) -> float:
    """Largest residual: everywhere, or at logits of at most this norm; infinite where there is none."""
    everywhere = math.inf if loss.lipschitz is None else loss.lipschitz
    if not math.isfinite(largest_logit):
        return everywhere
    return min(everywhere, loss.slope_at_zero + loss.holder_constant * math.pow(largest_logit, loss.holder_exponent))

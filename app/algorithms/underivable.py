"""Constants that no declared bound implies, each with the reason and with what to do instead."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from calibrators.geometry import Domain
from trainer.models import LinearModel, MeanModel, Model

_NOT_ESTIMATED = "An estimate from private records would be another release, which has to be paid for."
_GROWS = (
    "The loss's derivative grows with the logits, and nothing bounds them: give a domain, or a radius or a diameter "
    "among the assumptions. Where gradients are clipped, the clip is a bound of your choice."
)
_NETWORK = (
    "No declared bound limits the gradients of a network, or how fast they change, for all of its parameters. Clip "
    f"them: gradient_bound is then a bound of your choice. {_NOT_ESTIMATED}"
)
_KINK = (
    "The loss's slope jumps, or its second derivative has no bound; holder_exponent and holder_constant say how fast "
    "gradients change. logistic_regression, softmax_regression, linear_regression and huber_regression are smooth."
)
_FLAT = (
    "Without a penalty the loss is flat along directions in which no record may lie: add an l2 penalty, whose strength "
    "is its strong convexity."
)
_POLYAK = (
    "No declared bound implies the Polyak-Lojasiewicz inequality. A smooth objective that is strongly convex on all of "
    "R^d has it with the same constant: an l2 penalty's strength, where the penalty is part of the loss."
)
_ANYWHERE = "Nothing bounds the parameters: give a domain. Its size is a choice, and not a fact about the records."
_COORDINATES = (
    "No declared bound is about single coordinates of the gradients. If a bound on them is public knowledge, give it "
    "here with its moment_order: Lemma 21 of Lowy & Razaviyayn turns it into a moment_bound."
)
_LOWER_MOMENT = (
    "The declared bounds imply no smaller number for it than for the next higher moment, whose bound is used if this "
    f"one is left out. A smaller number must be public knowledge. {_NOT_ESTIMATED}"
)
_AWAY = "The domain does not contain zero, so a run starts elsewhere; lipschitz times diameter is a bound."
_MINIMISER = "The minimiser depends on the records; the diameter of a domain bounds how far it is from the start."
_RANDOM_START = "A network starts from random parameters, at which no declared bound bounds the loss or its gradient."

#: The constants that a bound on all gradients implies.
_OF_GRADIENTS = ("lipschitz", "link_lipschitz", "deviation_tau0", "moment_bound", "moment_bound_2k")
_OF_CHANGES = ("smoothness", "generalized_smoothness_l0", "holder_exponent", "holder_constant")
#: Groups of constants that have a meaning only together. If the request gives one of a group, it must give the others
#: too.
_TOGETHER = (
    frozenset({"lipschitz", "link_lipschitz"}),
    frozenset({"moment_bound", "moment_bound_2k"}),
    frozenset({"holder_exponent", "holder_constant"}),
)


def underivable(
    model: Model, domain: Domain | None, derived: Collection[str], given: Collection[str]
) -> tuple[tuple[str, str], ...]:
    """Return the names of constants that are neither derived nor given, with the reasons.

    Args:
        model: The model that is trained.
        domain: The domain to which parameters are restricted.
        derived: Names of constants that follow from the declared bounds.
        given: Names of constants that the request gives.
    """
    found = []
    for name, reason in _reasons(model, domain):
        if name not in derived and name not in given:
            partners = {other for group in _TOGETHER if name in group for other in group & set(given)}
            together = f"The request gives {', '.join(sorted(partners))}, which belongs together with it: give both."
            found.append((name, together if partners else reason))
    return tuple(found)


def _reasons(model: Model, domain: Domain | None) -> Iterator[tuple[str, str]]:
    """Yield each constant that may be missing for this model and domain, with the reason."""
    if isinstance(model, MeanModel):
        yield from _of_a_mean()
    elif isinstance(model, LinearModel):
        yield from ((name, _GROWS) for name in _OF_GRADIENTS)
        yield from ((name, _KINK) for name in _OF_CHANGES)
        yield "strong_convexity", _FLAT
        yield "weak_convexity", "The loss is convex, so that any number above 0 is right: it is a choice."
        yield "initial_gap", _AWAY
    else:
        yield from ((name, _NETWORK) for name in (*_OF_GRADIENTS, *_OF_CHANGES, "weak_convexity"))
        yield "strong_convexity", "A network's loss is not convex, with or without a penalty."
        yield from ((name, _RANDOM_START) for name in ("initial_gap", "loss_at_zero", "gradient_at_zero"))
    if not isinstance(model, MeanModel):
        yield "pl_constant", _POLYAK
        yield "initial_distance", _MINIMISER
        yield "coordinate_moment_bound", f"{_COORDINATES} {_NOT_ESTIMATED}"
        if domain is None:
            yield from ((name, _ANYWHERE) for name in ("diameter", "radius"))
    yield from ((name, _LOWER_MOMENT) for name in ("moment_bound_1", "moment_bound_2"))


def _of_a_mean() -> Iterator[tuple[str, str]]:
    """Yield constants that only the request can leave open, since bounded records have them all."""
    words = "The request gives the bound of another moment. Both have the same order: give this one at that order."
    yield from ((name, words) for name in ("moment_bound", "coordinate_moment_bound"))

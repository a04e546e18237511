"""What the Fourier evaluator answers for steps of one kind."""

from __future__ import annotations

import numpy as np

from accounting.composition.composition import Composition, compose
from accounting.composition.fourier import FourierInversion
from accounting.events import Event, Gaussian, Poisson
from accounting.intervals import Bounds
from accounting.relations import NeighboringRelation

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE


def poisson(s: float, q: float, count: int) -> list[Event]:
    return [Event(Gaussian(s), Poisson(q), count)]


def composition_of(s: float, q: float, count: int, relation: NeighboringRelation = ADD_REMOVE) -> Composition:
    return compose(poisson(s, q, count), relation)


def delta_of(composition: Composition, epsilon: float) -> Bounds:
    with np.errstate(all="ignore"):
        bounds = FourierInversion().delta(composition, epsilon)
    assert bounds is not None
    assert bounds.is_sound
    return bounds


def epsilon_of(composition: Composition, delta: float) -> Bounds:
    with np.errstate(all="ignore"):
        bounds = FourierInversion().epsilon(composition, delta)
    assert bounds is not None
    assert bounds.is_sound
    return bounds

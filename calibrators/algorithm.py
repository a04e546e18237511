"""What every algorithm's calibrator file offers: a description of itself and `calibrate`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from accounting.events import Sampling
from accounting.relations import NeighboringRelation
from calibrators.plan import GradientBound
from calibrators.spec import Calibration, Spec


@dataclass(frozen=True, slots=True)
class Assumption:
    """A constant of the problem that a theorem needs.

    Attributes:
        name: Name inside ``assumptions`` in the HTTP contract.
        symbol: The paper's letter, LaTeX.
        unit: Its unit, in words.
        meaning: What it bounds.
    """

    name: str
    symbol: str
    unit: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A private algorithm of one of the papers.

    Attributes:
        name: Name in the HTTP contract, the same as of its file here and among the trainers.
        summary: One sentence.
        source: Paper, algorithm, theorem.
        update: One step, LaTeX.
        samplings: Schemes under which its events are accounted.
        relations: Neighbouring relations under which they are.
        gradient_bounds: Kinds of gradient bound it takes.
        assumptions: What its theorem needs.
        guarantee: What is promised of the released model.
        gradient_complexity: Number of per-record gradients, LaTeX.
        errata: Where the paper is wrong or ambiguous, and what is done here.
        calibrate: Spec in, Calibration out.
    """

    name: str
    summary: str
    source: str
    update: str
    samplings: tuple[type[Sampling], ...]
    relations: tuple[NeighboringRelation, ...]
    gradient_bounds: tuple[type[GradientBound], ...]
    assumptions: tuple[Assumption, ...]
    guarantee: str
    gradient_complexity: str
    errata: tuple[str, ...]
    calibrate: Callable[[Spec], Calibration]

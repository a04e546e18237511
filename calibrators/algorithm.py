"""What every algorithm's calibrator file offers: a description of itself and `calibrate`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from accounting.events import Sampling
from accounting.relations import NeighboringRelation
from calibrators.plan import GradientBound
from calibrators.spec import Calibration, Spec
from calibrators.units import Units


@dataclass(frozen=True, slots=True)
class Assumption:
    """A constant of the problem that a theorem needs, or may use.

    Attributes:
        name: Name inside ``assumptions`` in the HTTP contract.
        symbol: The paper's letter, LaTeX.
        units: How it scales with the units of losses and parameters.
        meaning: What it bounds.
        lower, upper: Its range; ``open_lower`` excludes the lower end.
        required: Whether the theorem cannot do without it. One that is not required and has no default is used where it
            is given.
        default: Its value where it is not given.
    """

    name: str
    symbol: str
    units: Units
    meaning: str
    lower: float = 0.0
    upper: float = 1e30
    open_lower: bool = False
    required: bool = True
    default: float | None = None


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A private algorithm of one of the papers.

    Attributes:
        name: Name in the HTTP contract, the same as of its file here and among the trainers.
        summary: One sentence.
        source: Paper, algorithm, theorem.
        update: One step, LaTeX.
        samplings: Schemes under which its events are accounted; the first is the paper's own, and the default.
        relations: Neighbouring relations under which they are; the first is the paper's own, and the default.
        gradient_bounds: Kinds of gradient bound it takes; empty where the bound follows from the assumptions alone.
        gradient_bound_required: Whether a request must give one.
        assumptions: What its theorem needs.
        guarantee: What is promised of the released model.
        gradient_complexity: Number of per-record gradients, LaTeX.
        verdict: On the paper's own calibration, in a sentence.
        errata: Where the paper is wrong or ambiguous, and what is done here.
        norm_order: p of the l_p norm in which parameters are measured; gradients in its dual.
        variants: Its forms by name, the default first; none where there is but one.
        calibrate: Spec in, Calibration out; the spec's defaults are filled in (`calibrators.registry.calibrate`).
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
    verdict: str
    errata: tuple[str, ...]
    calibrate: Callable[[Spec], Calibration]
    gradient_bound_required: bool = True
    norm_order: float = 2.0
    variants: tuple[str, ...] = ()

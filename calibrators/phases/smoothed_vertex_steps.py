"""Phases of Frank-Wolfe steps on all records, for losses whose links are smoothed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from calibrators.phases.structured import Positive
from calibrators.phases.vertex_steps import VertexSteps
from calibrators.provenance import GRADIENT, LOSS


@dataclass(frozen=True, slots=True)
class SmoothedVertexSteps(VertexSteps):
    """Full-batch Frank-Wolfe on Moreau envelopes: `VertexSteps`, with each record's link replaced by the link's
    envelope.

    The link l is a record's loss as a function of the record's logit. The envelope at m is the minimum of l(u) +
    smoothing (u - m)^2 / 2 over u.

    Attributes:
        smoothing: The factor beta of the envelopes' quadratic term, in losses per squared logit.
    """

    kind = "smoothed_vertex_steps"
    units: ClassVar = {"gumbel_scale": LOSS, "lipschitz": GRADIENT, "smoothing": LOSS}
    smoothing: Positive

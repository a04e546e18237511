"""Trace spans of the phases of one claim of a run. They have their own trace, with a link to the request that created
the run.

Spans are recorded after the claim has ended, from times that were noted before. For a private run, these are its public
times (`app.runs.timetable`) in whole seconds, like all its stored times. It has the same phases whatever happened in
them. So neither the spans nor the time of sending them depend on a private row.
"""

from __future__ import annotations

import time

from app.kit import spans
from app.tables.runs import Run

#: OpenTelemetry's clock counts nanoseconds; this is their number in a second.
NANOSECONDS = 10**9


class Phases:
    """Note when each phase of a claim ends; `record` makes spans of the phases.

    Attributes:
        is_private: Whether the run has public times; until this is known, it counts as private.
    """

    def __init__(self, claimed: Run) -> None:
        self.is_private = True
        self._claimed = claimed
        self._began = time.time_ns()
        self._ends: list[tuple[str, int]] = []

    def end(self, name: str) -> None:
        """End the phase ``name`` and begin the next one now. For a private run, now must be a public time."""
        self._ends.append((name, time.time_ns()))

    def record(self, outcome: str) -> None:
        """Record the claim and its phases, if the process records spans.

        Args:
            outcome: The state that the run is in now, or ``handed_back``.
        """
        tracer = spans.tracer()
        if tracer is None:
            return
        from opentelemetry.context import Context as NoContext  # noqa: PLC0415
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415

        begins = self._shown(self._began)
        about = {"epsilond.run.id": self._claimed.id, "epsilond.run.outcome": outcome}
        links = spans.links_to(self._claimed.trace_parent)
        whole = tracer.start_span("run", NoContext(), attributes=about, links=links, start_time=begins)
        inside = set_span_in_context(whole, NoContext())
        for name, moment in self._ends:
            ends = self._shown(moment)
            tracer.start_span(f"run {name}", inside, start_time=begins).end(ends)
            begins = ends
        whole.end(begins)

    def _shown(self, moment: int) -> int:
        return moment // NANOSECONDS * NANOSECONDS if self.is_private else moment

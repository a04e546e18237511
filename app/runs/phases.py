"""The phases of one claim of a run, as spans of a trace of their own, with a link to the request that began the run.

They are recorded when the claim has ended, of moments that were noted on the way. What is noted of a private run are
its public times (`app.runs.timetable`) in whole seconds, like every other time that is kept of it, and it has the same
phases whatever came of them: neither the spans nor when they are sent follow a private row.
"""

from __future__ import annotations

import time

from app.kit import spans
from app.tables.runs import Run

#: In OpenTelemetry's clock.
NANOSECONDS = 10**9


class Phases:
    """Notes when each phase of a claim ends; `record` makes spans of them.

    Attributes:
        is_private: Whether the run has public times: until that is known, it is taken for one that has.
    """

    def __init__(self, claimed: Run) -> None:
        self.is_private = True
        self._claimed = claimed
        self._began = time.time_ns()
        self._ends: list[tuple[str, int]] = []

    def end(self, name: str) -> None:
        """The phase ``name`` ends now, and the next one begins. For a private run now has to be a public time."""
        self._ends.append((name, time.time_ns()))

    def record(self, outcome: str) -> None:
        """Record the claim and its phases, where the process records spans.

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

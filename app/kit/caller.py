"""The caller for whom the present work is done. Gates that let callers take turns read it here, because no function
passes them a principal.
"""

from __future__ import annotations

from contextvars import ContextVar

#: A principal's id. The guard sets it for the request, and the threads that work for the request inherit it.
CALLER: ContextVar[str] = ContextVar("caller", default="service")

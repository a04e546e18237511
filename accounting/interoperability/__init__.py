"""Re-accounting of other libraries' records, with the reasons why the numbers differ."""

from __future__ import annotations

from accounting.interoperability.batches import Batches
from accounting.interoperability.difference import Difference, Imported, Reported
from accounting.interoperability.dp_event_import import import_dp_event
from accounting.interoperability.opacus import OpacusHistory, import_opacus

__all__ = [
    "Batches",
    "Difference",
    "Imported",
    "OpacusHistory",
    "Reported",
    "import_dp_event",
    "import_opacus",
]

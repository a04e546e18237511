"""Every table of the service, imported in one place so that migrations see them all."""

from __future__ import annotations

import app.audits.models
import app.auth.models
import app.budgets.models
import app.datasets.models
import app.kit.idempotency_records
import app.ledger.models
import app.run_sweeps.models
import app.runs.models
import app.secrets.models  # noqa: F401
from app.db.base import Base

metadata = Base.metadata

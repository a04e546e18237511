"""The metadata of every table, with which migrations compare a database."""

from __future__ import annotations

from app.tables import access, datasets, deployments, idempotency, ledger, runs, webhooks  # noqa: F401
from app.tables.base import Base

metadata = Base.metadata

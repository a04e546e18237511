"""The metadata of all tables. Migrations compare a database with it."""

from __future__ import annotations

from app.tables import access, datasets, deployments, idempotency, ledger, runs, webhooks  # noqa: F401
from app.tables.base import Base

metadata = Base.metadata

"""Alembic's entry point: it runs the revisions on the connection, and in the transaction, that app.db.migrate opened.

Logging is left alone: the process that migrates has configured it already.
"""

from __future__ import annotations

from alembic import context

from app.tables.schema import metadata

connection = context.config.attributes["connection"]
if connection is None:
    raise RuntimeError("run migrations through app.db.migrate, which opens the connection")

context.configure(connection=connection, target_metadata=metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()

"""The whole ledger: trees of budgets, started amounts, corrections, exposed steps, and entries without repetitions.

Revision ID: 0005
Revises: 0004

Amounts, events and filters are now stored as plain text, which the code parses into its own objects. Columns of entries
that only repeated parts of the hashed bytes are dropped, because the service now returns those bytes.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

import sqlalchemy as sa
from alembic import op

from accounting.canonical import canonical_text, sha256_hex
from accounting.events import Event, event_from_json
from accounting.events.schedules import resolve_schedules
from accounting.relations import NeighboringRelation

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_JSON_TEXTS = {
    "budgets": ("filter", "spent", "reserved"),
    "reservations": ("events", "charged_events", "cost", "charged"),
}
_RELATIONS = "neighboring_relation IN ('add_or_remove_one', 'replace_one', 'replace_special')"
_STATES = "state IN ('pending', 'started', 'committed', 'voided', 'expired')"
_CHARGED = "(state = 'committed') = (charged IS NOT NULL)"
_RESOLVED = "(state IN ('pending', 'started')) = (resolved_at IS NULL)"


def upgrade() -> None:
    connection = op.get_bind()
    is_sqlite = connection.dialect.name == "sqlite"
    _drop_triggers(is_sqlite)
    if is_sqlite:
        _remake_tables_on_sqlite()
    else:
        _alter_tables_on_postgresql()
    op.create_index(op.f("ix_budgets_parent_id"), "budgets", ["parent_id"])
    op.create_index(op.f("ix_budgets_path"), "budgets", ["path"])
    _partial_index("ix_reservations_expiry", ["budget_id", "state", "expires_at"], "resolved_at IS NULL")
    _partial_index("ix_reservations_resolved_at", ["budget_id", "resolved_at"], "charged IS NOT NULL")
    op.create_table(
        "exposed_steps",
        sa.Column("budget_id", sa.String(64), nullable=False),
        sa.Column("step_hash", sa.String(64), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("budget_id", "step_hash", name=op.f("pk_exposed_steps")),
        sa.ForeignKeyConstraint(["budget_id"], ["budgets.id"], name=op.f("fk_exposed_steps_budget_id_budgets")),
        sa.CheckConstraint("count >= 0", name=op.f("ck_exposed_steps_count")),
    )
    op.add_column("entries", sa.Column("mechanisms", sa.String(500), nullable=False, server_default=sa.text("''")))
    _fill(connection)
    for column in ("amounts", "events", "engine_version"):
        op.drop_column("entries", column)
    op.create_index("ix_entries_budget_purpose", "entries", ["budget_id", "purpose", "sequence"])
    _create_triggers(is_sqlite)


def _partial_index(name: str, columns: list[str], where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, "reservations", columns, postgresql_where=condition, sqlite_where=condition)


def _alter_tables_on_postgresql() -> None:
    op.drop_index("ix_reservations_expiry", "reservations")
    op.drop_index(op.f("ix_reservations_run_id"), "reservations")
    for table, columns in _JSON_TEXTS.items():
        for column in columns:
            op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} TYPE TEXT USING {column}::text")
    op.add_column("budgets", sa.Column("parent_id", sa.String(64), nullable=True))
    op.add_column("budgets", sa.Column("path", sa.String(600), nullable=True))
    op.add_column("budgets", sa.Column("started", sa.Text(), nullable=True))
    op.add_column("budgets", sa.Column("overdrawn", sa.Boolean(), nullable=True))
    op.execute("UPDATE budgets SET path = id, started = '[]', overdrawn = false")
    for column in ("path", "started", "overdrawn"):
        op.alter_column("budgets", column, nullable=False)
    op.alter_column("budgets", "reserved", new_column_name="pending")
    op.drop_column("budgets", "filter_kind")
    op.drop_constraint(op.f("ck_budgets_within_limit"), "budgets")
    op.create_check_constraint(op.f("ck_budgets_within_limit"), "budgets", "headroom >= 0 OR overdrawn")
    op.create_foreign_key(op.f("fk_budgets_parent_id_budgets"), "budgets", "budgets", ["parent_id"], ["id"])
    op.add_column("reservations", sa.Column("mechanisms", sa.String(500), nullable=True))
    op.add_column("reservations", sa.Column("charge_delta", sa.Double(), nullable=True))
    op.add_column("reservations", sa.Column("corrected", sa.Boolean(), nullable=True))
    op.execute("UPDATE reservations SET mechanisms = '', corrected = false")
    for column in ("mechanisms", "corrected"):
        op.alter_column("reservations", column, nullable=False)


def _remake_tables_on_sqlite() -> None:
    """Move the rows to new tables, which then take the names, since SQLite cannot change constraints of a table."""
    op.create_table(
        "new_budgets",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("neighboring_relation", sa.String(32), nullable=False),
        sa.Column("privacy_unit", sa.String(200), nullable=False),
        sa.Column("filter", sa.Text(), nullable=False),
        sa.Column("report_delta", sa.String(64), nullable=True),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("principal_id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("parent_id", sa.String(64), nullable=True),
        sa.Column("path", sa.String(600), nullable=False),
        sa.Column("spent", sa.Text(), nullable=False),
        sa.Column("started", sa.Text(), nullable=False),
        sa.Column("pending", sa.Text(), nullable=False),
        sa.Column("overdrawn", sa.Boolean(), nullable=False),
        sa.Column("headroom", sa.BigInteger(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("head_hash", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_budgets")),
        sa.ForeignKeyConstraint(["parent_id"], ["budgets.id"], name=op.f("fk_budgets_parent_id_budgets")),
        sa.CheckConstraint("headroom >= 0 OR overdrawn", name=op.f("ck_budgets_within_limit")),
        sa.CheckConstraint("sequence >= 0", name=op.f("ck_budgets_sequence")),
        sa.CheckConstraint(_RELATIONS, name=op.f("ck_budgets_neighboring_relation")),
    )
    op.create_table(
        "new_reservations",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("budget_id", sa.String(64), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("events", sa.Text(), nullable=False),
        sa.Column("charged_events", sa.Text(), nullable=True),
        sa.Column("mechanisms", sa.String(500), nullable=False),
        sa.Column("purpose", sa.String(200), nullable=False),
        sa.Column("cost", sa.Text(), nullable=False),
        sa.Column("charged", sa.Text(), nullable=True),
        sa.Column("charge_delta", sa.Double(), nullable=True),
        sa.Column("corrected", sa.Boolean(), nullable=False),
        sa.Column("warnings", sa.JSON(), nullable=False),
        sa.Column("engine_version", sa.String(16), nullable=False),
        sa.Column("principal_id", sa.String(64), nullable=False),
        sa.Column("run_id", sa.String(64), nullable=True),
        sa.Column("plan_hash", sa.String(64), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("resolved_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reservations")),
        sa.ForeignKeyConstraint(["budget_id"], ["budgets.id"], name=op.f("fk_reservations_budget_id_budgets")),
        sa.UniqueConstraint("budget_id", "sequence", name=op.f("uq_reservations_budget_id")),
        sa.CheckConstraint(_STATES, name=op.f("ck_reservations_state")),
        sa.CheckConstraint(_CHARGED, name=op.f("ck_reservations_charged_when_committed")),
        sa.CheckConstraint(_RESOLVED, name=op.f("ck_reservations_resolved_at")),
    )
    kept = "id, name, neighboring_relation, privacy_unit, filter, report_delta, labels, principal_id, created_at"
    amounts = "headroom, sequence, head_hash, spent"
    op.execute(
        f"INSERT INTO new_budgets ({kept}, {amounts}, path, started, pending, overdrawn) "  # noqa: S608
        f"SELECT {kept}, {amounts}, id, '[]', reserved, 0 FROM budgets"
    )
    kept = (
        "id, budget_id, sequence, state, events, charged_events, purpose, cost, charged, warnings, engine_version, "
        "principal_id, run_id, plan_hash, created_at, expires_at, resolved_at"
    )
    op.execute(
        f"INSERT INTO new_reservations ({kept}, mechanisms, corrected) "  # noqa: S608
        f"SELECT {kept}, '', 0 FROM reservations"
    )
    for table in ("budgets", "reservations"):
        op.drop_table(table)
        op.rename_table(f"new_{table}", table)
    op.create_index(op.f("ix_budgets_created_at"), "budgets", ["created_at"])


def _fill(connection: sa.Connection) -> None:
    """Fill the new columns and the new table from the existing rows."""
    relations = {
        row.id: row.neighboring_relation
        for row in connection.execute(sa.text("SELECT id, neighboring_relation FROM budgets"))
    }
    started: dict[str, list[list[int]]] = defaultdict(list)
    exposed: dict[str, Counter[Event]] = defaultdict(Counter)
    rows = connection.execute(sa.text("SELECT id, budget_id, state, events, cost FROM reservations")).all()
    for reservation_id, budget_id, state, text, cost in rows:
        events = [event_from_json(event) for event in json.loads(text)]
        connection.execute(
            sa.text("UPDATE reservations SET mechanisms = :mechanisms WHERE id = :id"),
            {"id": reservation_id, "mechanisms": _mechanisms(json.loads(text))},
        )
        if state == "started":
            started[budget_id].append(json.loads(cost))
        if state in ("started", "committed"):
            for event in resolve_schedules(events, NeighboringRelation(relations[budget_id])):
                exposed[budget_id][Event(event.mechanism, event.sampling)] += event.count
    for budget_id, costs in started.items():
        _split_reserved(connection, budget_id, [sum(order) for order in zip(*costs, strict=True)])
    for budget_id, counts in exposed.items():
        for step, count in counts.items():
            connection.execute(
                sa.text("INSERT INTO exposed_steps (budget_id, step_hash, step, count) VALUES (:b, :h, :s, :c)"),
                {
                    "b": budget_id,
                    "h": sha256_hex(canonical_text(step.to_json()).encode()),
                    "s": json.dumps([step.to_json()]),
                    "c": count,
                },
            )
    zero_started = sa.text("SELECT id, spent FROM budgets WHERE started = '[]'")
    for budget_id, spent in connection.execute(zero_started).all():
        connection.execute(
            sa.text("UPDATE budgets SET started = :started WHERE id = :id"),
            {"id": budget_id, "started": json.dumps([0] * len(json.loads(spent)))},
        )
    for index, text in connection.execute(sa.text("SELECT leaf_index, events FROM entries")).all():
        events_json = json.loads(text) if isinstance(text, str) else text
        if events_json:
            connection.execute(
                sa.text("UPDATE entries SET mechanisms = :mechanisms WHERE leaf_index = :index"),
                {"index": index, "mechanisms": _mechanisms(events_json)},
            )


def _split_reserved(connection: sa.Connection, budget_id: str, started: list[int]) -> None:
    pending = connection.execute(sa.text("SELECT pending FROM budgets WHERE id = :id"), {"id": budget_id}).scalar_one()
    connection.execute(
        sa.text("UPDATE budgets SET started = :started, pending = :pending WHERE id = :id"),
        {
            "id": budget_id,
            "started": json.dumps(started),
            "pending": json.dumps([a - b for a, b in zip(json.loads(pending), started, strict=True)]),
        },
    )


def _mechanisms(events: list[dict[str, Any]]) -> str:
    kinds = sorted({event["mechanism"]["kind"] for event in events})
    return f",{','.join(kinds)},"


def _drop_triggers(is_sqlite: bool) -> None:
    if is_sqlite:
        for name in ("update", "delete", "replace"):
            op.execute(f"DROP TRIGGER entries_refuse_{name}")
        return
    for name in ("change", "truncate"):
        op.execute(f"DROP TRIGGER entries_refuse_{name} ON entries")


def _create_triggers(is_sqlite: bool) -> None:
    """Create the triggers as in revision 0001."""
    if is_sqlite:
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER entries_refuse_{verb.lower()} BEFORE {verb} ON entries "
                "BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END"
            )
        op.execute(
            "CREATE TRIGGER entries_refuse_replace BEFORE INSERT ON entries "
            "WHEN EXISTS (SELECT 1 FROM entries WHERE leaf_index = NEW.leaf_index OR id = NEW.id "
            "OR (budget_id = NEW.budget_id AND sequence = NEW.sequence)) "
            "BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END"
        )
        return
    for name, when in (("change", "UPDATE OR DELETE ON entries FOR EACH ROW"), ("truncate", "TRUNCATE ON entries")):
        op.execute(f"CREATE TRIGGER entries_refuse_{name} BEFORE {when} EXECUTE FUNCTION entries_refuse_change()")


def downgrade() -> None:
    """Refuse, because an older version knows neither trees nor corrections, and would count less than was charged."""
    raise RuntimeError("the ledger does not go back before revision 0005; restore a backup instead")

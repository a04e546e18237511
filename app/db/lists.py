"""Lists as one parameter of a statement: an array on PostgreSQL, a JSON text on SQLite."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, String, any_, bindparam, func, select
from sqlalchemy.dialects.postgresql import ARRAY


def among(dialect: str, column: ColumnElement[str], parameter: str) -> ColumnElement[bool]:
    """Return the condition that a text column is in the list that is given as ``parameter`` (`as_list`)."""
    if dialect == "sqlite":
        return column.in_(select(func.json_each(bindparam(parameter)).table_valued("value").c.value))
    return column == any_(bindparam(parameter, type_=ARRAY(String)))


def as_list(dialect: str, values: Sequence[str]) -> Any:
    """Return the value of such a parameter."""
    return json.dumps(values) if dialect == "sqlite" else list(values)

"""This module holds the comparison tables of all papers by name."""

from __future__ import annotations

import calibrators.bassily_guzman.tables as bassily_guzman
import calibrators.lowy_razaviyayn.tables as lowy_razaviyayn
import calibrators.wang_erm.tables as wang_erm
import calibrators.wang_nonsmooth.tables as wang_nonsmooth
import calibrators.yang_nsgd.tables as yang_nsgd
from accounting.errors import InvalidValue, one_of
from calibrators.comparison import Table

PAPERS = (yang_nsgd, wang_erm, wang_nonsmooth, lowy_razaviyayn, bassily_guzman)

TABLES: dict[str, Table] = {table.name: table for paper in PAPERS for table in paper.TABLES}


def find_table(name: str) -> Table:
    """Return the table of that name.

    Raises:
        InvalidValue: If no table has this name. The detail lists the names that exist.
    """
    if name not in TABLES:
        raise InvalidValue(f"there is no table {name!r}; the tables are {one_of(list(TABLES))}", pointer=("table",))
    return TABLES[name]

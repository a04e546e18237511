"""Refusals of files that contradict their declaration. A refusal names rows and columns, but never a value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from app.datasets.file_kinds import FileKind
from app.datasets.table import CellFault
from app.problems import Problem, ProblemItem

MAX_NAMED_FAULTS = 20

_REFUSED = {
    FileKind.CSV: ("invalid_csv", "The CSV file does not hold what was declared"),
    FileKind.PARQUET: ("invalid_parquet", "The Parquet file does not hold what was declared"),
    FileKind.NPZ: ("invalid_npz", "The NPZ archive does not hold what was declared"),
}


def refusal(kind: FileKind, *faults: tuple[str, str]) -> Problem:
    """Return a problem with status 422, with a code and a reason for each fault."""
    items = [
        ProblemItem(pointer="/file", code=code, detail=f"{why[0].upper()}{why[1:]}.")
        for code, why in faults[:MAX_NAMED_FAULTS]
    ]
    problem_code, what = _REFUSED[kind]
    return Problem(422, problem_code, f"{what}; nothing of the file was kept. `errors` says where.", errors=items)


def cell_refusal(kind: FileKind, faults: Sequence[CellFault], columns: Sequence[str]) -> Problem:
    """Return a problem with status 422 for cells that their columns do not allow."""
    return refusal(
        kind,
        *(
            (fault.code, f"in row {fault.row}, column {columns[fault.column]!r}, {fault.why}")
            for fault in faults[:MAX_NAMED_FAULTS]
        ),
    )


def column_order(kind: FileKind, header: Sequence[str], columns: Sequence[str], beside: str | None = None) -> list[int]:
    """Return the position of each declared column in the file.

    Undeclared names are reported by their position, because in a CSV file without a header row they are somebody's
    record.

    Args:
        kind: The format of the file.
        header: The names of the file's columns, in their order.
        columns: The names of the declared columns.
        beside: The name of a column that may also be there.

    Raises:
        Problem: 422 unless the file has the declared columns, each once, and no others.
    """
    positions = {name: index for index, name in enumerate(header)}
    occurrences = Counter(header)
    declared = {*columns, beside}
    missing = [repr(name) for name in columns if name not in positions]
    repeated = [repr(name) for name in columns if occurrences[name] > 1]
    undeclared = [str(index) for index, name in enumerate(header, start=1) if name not in declared]
    where, cells = ("in row 1, the header", "cells") if kind is FileKind.CSV else ("the file", "columns")
    faults = []
    if missing:
        faults.append(("column_missing", f"{where} lacks {_listed(missing)}"))
    if repeated:
        faults.append(("column_repeated", f"{where} repeats {_listed(repeated)}"))
    if undeclared:
        faults.append(
            ("column_undeclared", f"{where} has {cells} that are not declared, at the positions {_listed(undeclared)}")
        )
    if faults:
        raise refusal(kind, *faults)
    return [positions[name] for name in columns]


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMED_FAULTS
    return ", ".join([*names[:MAX_NAMED_FAULTS], *([f"{more} more"] if more > 0 else [])])

"""Checks CSV files before their upload.

The header is compared with the declared columns, and columns that are left out never leave this machine."""

from __future__ import annotations

import csv
import shlex
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

from accounting.near_names import suggestion

_OPTION = "--ignore-columns"


def check_header(file: Path, declared: Collection[str], ignored: Collection[str]) -> None:
    """Compare the first row of a CSV file with the declared columns, before anything is sent.

    The server does not repeat names that are not declared, because without a header the first row is somebody's record.
    Here the undeclared names are shown if the row has at least one declared name. The server judges files that are not
    CSV.

    Args:
        file: The file on this machine.
        declared: The names of the declared columns.
        ignored: The names of the columns that are left out.

    Raises:
        typer.BadParameter: the names differ from those of the file.
    """
    if both := sorted({*declared} & {*ignored}):
        raise typer.BadParameter(
            (f"these columns are declared, so they cannot be ignored: {', '.join(both)}"), param_hint=_OPTION
        )
    if file.suffix.lower() != ".csv":
        return
    try:
        with file.open(encoding="utf-8-sig", newline="") as opened:
            header = next(csv.reader(opened, strict=True), [])
    except (csv.Error, UnicodeDecodeError):
        return
    if not {*header} & {*declared}:
        raise typer.BadParameter(_not_a_header(file, header), param_hint="FILE")
    missing = [f"{name}.{suggestion(name, header)}" for name in declared if name not in header]
    if missing:
        raise typer.BadParameter(f"{file.name} has no column {missing[0]}", param_hint="--column")
    if unknown := sorted({*ignored} - {*header}):
        raise typer.BadParameter(f"{file.name} has no column {', '.join(unknown)}", param_hint=_OPTION)
    others = [name for name in header if name not in declared and name not in ignored]
    if others:
        raise typer.BadParameter(
            f"{file.name} has columns that are not declared: {', '.join(others)}. Declare them, or leave them out with "
            f"{_OPTION} {shlex.quote(','.join([*ignored, *others]))}",
            param_hint="--column",
        )


def _not_a_header(file: Path, header: Sequence[str]) -> str:
    """Say what is wrong with a first row that has no declared name, without repeating it."""
    needed = f"the first row of {file.name} must name the declared columns"
    between = next((each for each in (";", "\t", "|") if len(header) == 1 and each in header[0]), None)
    if between is None:
        return needed
    return f"{needed}, with commas between them and not {'tabs' if between == chr(9) else between!r}"


@contextmanager
def without_columns(file: Path, names: Sequence[str]) -> Iterator[Path]:
    """Yield a copy of a CSV file without these columns. Only the user can read the copy, and it is deleted when the
    block ends. If there are no such columns, the file itself is yielded.

    Args:
        file: CSV in UTF-8 whose first row names the columns.
        names: The columns that are left out, of those that the file has.

    Raises:
        typer.BadParameter: the file is not CSV in UTF-8.
    """
    if not names:
        yield file
        return
    if file.suffix.lower() != ".csv":
        raise typer.BadParameter(
            f"columns can be left out of CSV files only, and {file.name} is not one", param_hint=_OPTION
        )
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / file.name
        try:
            _write_without(file, copy, set(names))
        except (csv.Error, UnicodeDecodeError):
            hint = f"{file.name} is not CSV in UTF-8, so its columns cannot be told apart"
            raise typer.BadParameter(hint, param_hint=_OPTION) from None
        yield copy


def _write_without(file: Path, copy: Path, names: set[str]) -> None:
    with file.open(encoding="utf-8-sig", newline="") as given, copy.open("w", encoding="utf-8", newline="") as kept:
        rows, written = csv.reader(given, strict=True), csv.writer(kept, lineterminator="\n")
        header = next(rows, [])
        stays = [index for index, name in enumerate(header) if name not in names]
        written.writerow([header[index] for index in stays])
        for number, row in enumerate(rows, start=2):
            if row and len(row) != len(header):
                hint = f"row {number} of {file.name} has {len(row)} cells, but the header has {len(header)}"
                raise typer.BadParameter(hint, param_hint=_OPTION)
            written.writerow([row[index] for index in stays] if row else [])

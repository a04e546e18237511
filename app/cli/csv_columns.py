"""CSV files without some of their columns, which then never leave this machine."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

_OPTION = "--ignore-columns"


@contextmanager
def without_columns(file: Path, names: Sequence[str]) -> Iterator[Path]:
    """Yield a copy of a CSV file without these columns. Only the user can read the copy, and it is deleted when the
    block ends. If there are no such columns, the file itself is yielded.

    Args:
        file: CSV in UTF-8 whose first row names the columns.
        names: The columns that are left out.

    Raises:
        typer.BadParameter: the file is not CSV in UTF-8, or lacks one of the columns.
    """
    if not names:
        yield file
        return
    if file.suffix.lower() != ".csv":
        raise typer.BadParameter(
            f"only CSV files can be uploaded without some columns, not {file.name}", param_hint=_OPTION
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
        missing = sorted(names - set(header))
        if missing:
            raise typer.BadParameter(f"{file.name} has no column {', '.join(missing)}", param_hint=_OPTION)
        stays = [index for index, name in enumerate(header) if name not in names]
        written.writerow([header[index] for index in stays])
        for number, row in enumerate(rows, start=2):
            if row and len(row) != len(header):
                hint = f"row {number} of {file.name} has {len(row)} cells, and its header has {len(header)}"
                raise typer.BadParameter(hint, param_hint=_OPTION)
            written.writerow([row[index] for index in stays] if row else [])

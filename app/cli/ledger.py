"""`python -m app ledger`: the books of all budgets."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from app import VERSION
from app.cli.setting_up import fail, new_private_file, open_context, require_schema
from app.ledger import exports
from app.ledger.books import BadPlace
from app.ledger.export_verification import read_past, verify_export
from app.ledger.exports import ExportFormat
from app.ledger.recovery import rebuild_tables
from app.ledger.verdicts import Past, describe
from app.ledger.verification import verify
from app.reservations.repricing import reprice

T = TypeVar("T")

ledger = typer.Typer(help="The books of all budgets: verify, export, mend.", no_args_is_help=True)


@ledger.command("verify")
def verify_ledger(
    export: Annotated[Path | None, typer.Option(help="Verify this export; no database is needed.")] = None,
    since: Annotated[
        Path | None, typer.Option(help="An older export, kept elsewhere: nothing of it may have changed since.")
    ] = None,
) -> None:
    """Whether the books are what the ledger wrote; status 1, and the first bad place, where they are not."""
    past = None if since is None else _read_past(since)
    if export is not None:
        verdict = _of_file(export, lambda: verify_export(export, past))
    else:
        with open_context() as context:
            require_schema(context)
            with context.database.read() as session:
                verdict = verify(session, past=past)
    print(verdict.in_words())
    if not verdict.valid:
        raise typer.Exit(1)


@ledger.command("export")
def export_ledger(
    output: Annotated[Path, typer.Option(help="Write to this new file, for its owner alone.")],
    file_format: Annotated[
        ExportFormat, typer.Option("--format", help="ndjson can be verified by itself; csv is a table for people.")
    ] = ExportFormat.NDJSON,
) -> None:
    """Write all entries to a file. Keep it elsewhere, for `ledger verify --since`."""
    with open_context() as context:
        require_schema(context)
        export = exports.export(context)
        with open(new_private_file(output), "wb") as file:
            for part in export.parts(file_format, VERSION):
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        print(f"{sum(head.sequence for head in export.heads.values())} entries were written to {output}.")


@ledger.command("rebuild")
def rebuild_ledger() -> None:
    """Write budgets and reservations anew from the entries, where they differ. Stop the service before."""
    with open_context() as context:
        require_schema(context)
        try:
            with context.database.write() as session:
                rebuilt = rebuild_tables(session)
        except BadPlace as bad:
            fail(f"Nothing was changed: {describe(bad)}. Restore a backup.")
        print(
            f"{rebuilt.entries} entries were read. Written anew: {rebuilt.budgets} budgets, {rebuilt.reservations} "
            f"reservations, the exposed steps of {rebuilt.exposed} budgets."
        )


@ledger.command("reprice")
def reprice_ledger() -> None:
    """Price again what older engines have priced, and raise what was charged too low. Nothing is lowered."""
    looked_at, raised, failed = 0, 0, 0
    with open_context() as context:
        require_schema(context)
        for charge in reprice(context):
            looked_at += 1
            if charge.after is not None:
                raised += 1
                print(f"{charge.reservation_id} of {charge.budget_id}: {charge.before} is raised to {charge.after}")
            if charge.failure is not None:
                failed += 1
                print(f"{charge.reservation_id} of {charge.budget_id} has no price: {charge.failure}")
    print(f"{looked_at} charges of older engines: {raised} raised, {failed} without a price, the others are enough.")
    if failed:
        raise typer.Exit(1)


def _read_past(path: Path) -> Past:
    past, verdict = _of_file(path, lambda: read_past(path))
    if not verdict.valid:
        fail(f"The older export cannot be compared with: {verdict.in_words()}.")
    return past


def _of_file(path: Path, read: Callable[[], T]) -> T:
    try:
        return read()
    except OSError as error:
        fail(f"Cannot read {path}: {error.strerror}.")

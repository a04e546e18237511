"""`python -m app ledger`: the books of all budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from app import VERSION
from app.cli.setting_up import fail, open_context, require_schema, whole_file
from app.ledger import exports, transparency
from app.ledger.books import BadPlace
from app.ledger.checkpoints import Checkpoint, InvalidNote, VerifierKey, open_note, read_note
from app.ledger.export_verification import read_past, verify_export
from app.ledger.exports import ExportFormat
from app.ledger.integration import integrate
from app.ledger.proofs import InvalidProof, check_proof
from app.ledger.recovery import rebuild_tables
from app.ledger.verdicts import Past, describe
from app.ledger.verification import verify
from app.problems import Problem
from app.reservations.repricing import reprice

T = TypeVar("T")

ledger = typer.Typer(help="The books of all budgets: verify, export, mend.", no_args_is_help=True)


@ledger.command("verify")
def verify_ledger(
    export: Annotated[Path | None, typer.Option(help="Verify this export; no database is needed.")] = None,
    since: Annotated[
        Path | None, typer.Option(help="An older export, kept elsewhere: nothing of it may have changed since.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="A checkpoint, kept elsewhere: the entries begin with those it was made of.")
    ] = None,
    public_key: Annotated[
        str | None, typer.Option(help="What verifies the checkpoint; an export with a checkpoint needs it.")
    ] = None,
) -> None:
    """Whether the books are what the ledger wrote; status 1, and the first bad place, where they are not."""
    if export is not None and checkpoint is not None and public_key is None:
        fail("A checkpoint is verified with --public-key, which was kept with it (`ledger public-key` prints it).")
    past = None if since is None else _read_past(since)
    kept = None if checkpoint is None else _read_checkpoint(checkpoint, public_key)
    if export is not None:
        verdict = _of_file(export, lambda: verify_export(export, past, kept))
    else:
        with open_context() as context:
            require_schema(context)
            integrate(context.database)
            with context.database.read() as session:
                verdict = verify(session, past=past, kept=kept)
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
        with whole_file(output) as file:
            for part in export.parts(file_format, VERSION):
                file.write(part)
        print(f"{sum(head.sequence for head in export.heads.values())} entries were written to {output}.")


@ledger.command("checkpoint")
def sign_checkpoint(
    output: Annotated[Path | None, typer.Option(help="Write to this new file, for its owner alone.")] = None,
) -> None:
    """Sign all entries so far in one note. Keep it elsewhere, for `ledger verify --checkpoint`."""
    with open_context() as context:
        require_schema(context)
        with _refusals_in_one_line():
            signed = transparency.checkpoint(context)
    if output is None:
        print(signed.note, end="")
        return
    with whole_file(output) as file:
        file.write(signed.note.encode())
    print(f"The checkpoint of {signed.checkpoint.size} entries was written to {output}.")


@ledger.command("public-key")
def print_public_key() -> None:
    """Print what verifies the checkpoints of this ledger. Keep it with them."""
    with open_context() as context:
        require_schema(context)
        with _refusals_in_one_line():
            print(transparency.verifier_key(context))


@ledger.command("prove")
def check_proof_file(
    proof: Annotated[Path, typer.Option(help="The JSON of a proof of inclusion or consistency.")],
    public_key: Annotated[str, typer.Option(help="What verifies the checkpoints of the ledger.")],
    checkpoint: Annotated[
        Path | None, typer.Option(help="A checkpoint of one of the proof's sizes, kept elsewhere.")
    ] = None,
) -> None:
    """Whether a proof shows what it says; status 1 where it does not. No database is needed."""
    kept = None if checkpoint is None else _read_checkpoint(checkpoint, public_key)
    try:
        shown = check_proof(_read_text(proof), _public_key(public_key), kept)
    except InvalidProof as error:
        fail(f"Not proved: {error}.")
    print(f"proved: {shown}")


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


def _read_checkpoint(path: Path, public_key: str | None) -> Checkpoint:
    note = _read_text(path)
    try:
        return read_note(note)[0] if public_key is None else open_note(note, _public_key(public_key))
    except InvalidNote as error:
        fail(f"The checkpoint {path} is refused: {error}.")


def _public_key(text: str) -> VerifierKey:
    try:
        return VerifierKey.parse(text)
    except InvalidNote as error:
        fail(f"--public-key is refused: {error}.")


def _read_text(path: Path) -> str:
    try:
        return _of_file(path, path.read_bytes).decode()
    except UnicodeDecodeError:
        fail(f"Cannot read {path}: it is not a text in UTF-8.")


@contextmanager
def _refusals_in_one_line() -> Iterator[None]:
    try:
        yield
    except Problem as problem:
        fail(problem.detail)
    except (OSError, ValueError):
        fail("The key that signs checkpoints cannot be read, or is damaged. Restore checkpoint.key from the backup.")


def _of_file(path: Path, read: Callable[[], T]) -> T:
    try:
        return read()
    except OSError as error:
        fail(f"Cannot read {path}: {error.strerror}.")

"""The command line: `python -m app COMMAND`."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, NoReturn, TypeVar

import typer
from alembic.util import CommandError
from pydantic import ValidationError

from app import VERSION
from app.auth import service as auth
from app.auth.principal import Scope
from app.db import migrate as migrations
from app.db.database import Database
from app.db.failures import DATABASE_FAILURES
from app.kit.context import Context
from app.kit.private_files import make_private_folder
from app.ledger import exports
from app.ledger.books import BadPlace
from app.ledger.export_verification import read_past, verify_export
from app.ledger.exports import ExportFormat
from app.ledger.recovery import rebuild_tables
from app.ledger.verdicts import Past, describe
from app.ledger.verification import verify
from app.observability.logs import configure_logging
from app.reservations.repricing import reprice
from app.settings import MIN_SECRET_LENGTH, Settings, settings_faults

T = TypeVar("T")

cli = typer.Typer(
    help="epsilond, the privacy-accounting daemon. Settings come from the environment: EPSILOND_HOST and others.",
    no_args_is_help=True,
    add_completion=False,
    # Local variables in a traceback would show keys and data.
    pretty_exceptions_enable=False,
)
keys = typer.Typer(help="API keys. With none created, the server answers its own machine alone.", no_args_is_help=True)
cli.add_typer(keys, name="keys")
ledger = typer.Typer(help="The books of all budgets: verify, export, mend.", no_args_is_help=True)
cli.add_typer(ledger, name="ledger")


def main() -> None:
    """Run the command line; a fault of the operator's is one line and status 1."""
    cli(prog_name="python -m app")


@cli.command()
def serve(
    migrate: Annotated[bool, typer.Option("--migrate", help="Bring the database to the newest schema first.")] = False,
) -> None:
    """Answer HTTP requests, and run queued trainings in worker processes."""
    # Imported here, as below: the whole service takes a second to load, and most commands need a part of it.
    from app import server  # noqa: PLC0415
    from app.main import create_app  # noqa: PLC0415

    with _until_stopped(), _context() as context:
        configure_logging(context.settings.log_level, context.settings.log_format)
        _require_data_folder(context.settings)
        _require_data_key(context.settings)
        if migrate:
            _migrate(context.settings)
        _require_schema(context)
        try:
            listening = server.listen(context.settings.host, context.settings.port)
        except server.CannotListen as error:
            _fail(str(error))
        app = create_app(context)
        print(server.banner(context, listening), flush=True)
        server.serve(app, context, listening)


@cli.command()
def worker(
    count: Annotated[int, typer.Option(min=1, max=64, help="How many trainings run at once.")] = 1,
) -> None:
    """Execute queued trainings in processes of their own, until stopped."""
    from app import server  # noqa: PLC0415
    from app.runs.supervisor import Supervisor  # noqa: PLC0415

    with _until_stopped(), _context() as context:
        configure_logging(context.settings.log_level, context.settings.log_format)
        _require_data_folder(context.settings)
        _require_data_key(context.settings)
        _require_schema(context)
        supervisor = Supervisor(context, count)
        supervisor.start()
        try:
            print(f"epsilond worker: {count} run(s) at once. Stop with Ctrl+C.", flush=True)
            supervisor.wait()
        finally:
            deadline = server.end_within(server.STOP_S)
            supervisor.stop()
            deadline.cancel()


@cli.command()
def migrate() -> None:
    """Bring the database named by EPSILOND_DATABASE_URL to the newest schema."""
    with _context() as context:
        _migrate(context.settings)
        print(f"The database is at revision {migrations.head_revision()}, the newest.")


@cli.command("openapi")
def print_openapi() -> None:
    """Print the OpenAPI document: the same bytes for the same code."""
    from app import openapi  # noqa: PLC0415
    from app.main import create_app  # noqa: PLC0415

    # The document depends on no setting; an empty database in memory is never opened.
    app = create_app(Context(Settings.model_construct(), Database("sqlite://")))
    print(openapi.render(app.openapi()), end="")


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Option(help="What the key is for.")],
    scope: Annotated[list[Scope], typer.Option(help="What it allows; may be repeated. admin implies all others.")],
    if_none: Annotated[bool, typer.Option("--if-none", help="Only if no key was ever created.")] = False,
    output: Annotated[Path | None, typer.Option(help="Write the key to this new file, for its owner alone.")] = None,
) -> None:
    """Create a key. It is shown or written this once: only a keyed hash of it is stored."""
    if not 1 <= len(name) <= 200 or not name.isprintable():
        _fail("--name takes 1 to 200 printable characters.")
    with _context() as context:
        _require_data_folder(context.settings)
        _require_schema(context)
        if if_none and auth.keys_exist(context):
            print("There is a key already; none was created.")
            return
        # Opened before the key exists: a file that cannot be written must not cost a key.
        target = _new_private_file(output) if output else None
        created = auth.create_key(context, name, scope, if_none=if_none)
        if created is None:
            if target is not None and output is not None:
                os.close(target)
                output.unlink()
            print("There is a key already; none was created.")
            return
        if target is None:
            print(created.token)
            return
        with open(target, "w") as file:
            file.write(created.token + "\n")
        print(f"{created.id} was written to {output}.")


@keys.command("list")
def list_keys() -> None:
    """List the keys, without what authenticates."""
    with _context() as context:
        _require_schema(context)
        for key in auth.list_keys(context):
            state = "revoked" if key.is_revoked else "active"
            print(f"{key.id}  {state:7}  {key.created_at:%Y-%m-%d}  {','.join(key.scopes)}  {key.name}")


@keys.command("revoke")
def revoke_key(key_id: Annotated[str, typer.Argument(help="The id, as `keys list` shows it.")]) -> None:
    """Revoke a key for ever. With the last one gone the server answers nobody until another is created."""
    with _context() as context:
        _require_schema(context)
        if not auth.revoke_key(context, key_id):
            _fail(f"There is no active key {key_id}; see `python -m app keys list`.")
        print(f"{key_id} is revoked.")


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
        with _context() as context:
            _require_schema(context)
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
    with _context() as context:
        _require_schema(context)
        export = exports.export(context)
        with open(_new_private_file(output), "wb") as file:
            for part in export.parts(file_format, VERSION):
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        print(f"{sum(head.sequence for head in export.heads.values())} entries were written to {output}.")


@ledger.command("rebuild")
def rebuild_ledger() -> None:
    """Write budgets and reservations anew from the entries, where they differ. Stop the service before."""
    with _context() as context:
        _require_schema(context)
        try:
            with context.database.write() as session:
                rebuilt = rebuild_tables(session)
        except BadPlace as bad:
            _fail(f"Nothing was changed: {describe(bad)}. Restore a backup.")
        print(
            f"{rebuilt.entries} entries were read. Written anew: {rebuilt.budgets} budgets, {rebuilt.reservations} "
            f"reservations, the exposed steps of {rebuilt.exposed} budgets."
        )


@ledger.command("reprice")
def reprice_ledger() -> None:
    """Price again what older engines have priced, and raise what was charged too low. Nothing is lowered."""
    looked_at, raised, failed = 0, 0, 0
    with _context() as context:
        _require_schema(context)
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
        _fail(f"The older export cannot be compared with: {verdict.in_words()}.")
    return past


def _of_file(path: Path, read: Callable[[], T]) -> T:
    try:
        return read()
    except OSError as error:
        _fail(f"Cannot read {path}: {error.strerror}.")


@contextmanager
def _until_stopped() -> Iterator[None]:
    """Let SIGTERM and Ctrl+C end the block in the same way, whenever they come, and the command with status 0."""
    # A shell starts what runs in its background with SIGINT ignored, and so it would stay.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        yield


@contextmanager
def _context() -> Iterator[Context]:
    try:
        settings = Settings()
    except ValidationError as error:
        _fail(settings_faults(error))
    try:
        database = Database(settings.sqlalchemy_url)
    except OSError as error:
        _fail(f"The folder of the SQLite file cannot be made: {_reason(error)}.")
    try:
        yield Context(settings, database)
    except DATABASE_FAILURES as error:
        # Its own words would quote the address, which may hold a password.
        question = "May this user write its file and folder?" if database.is_sqlite else "Is it running?"
        _fail(f"The database named by EPSILOND_DATABASE_URL failed ({type(error).__name__}). {question}")
    finally:
        database.dispose()


def _migrate(settings: Settings) -> None:
    try:
        migrations.upgrade(settings.sqlalchemy_url)
    except CommandError:
        _fail("The database is at a revision that this version does not know. Run the version that brought it there.")


def _require_data_folder(settings: Settings) -> None:
    """Find out now, and not when the first upload or model is to be written."""
    try:
        with tempfile.TemporaryFile(dir=make_private_folder(settings.data_dir)):
            is_whole = len(settings.secret) >= MIN_SECRET_LENGTH
    except OSError as error:
        _fail(f"The data folder cannot be written to: {_reason(error)}. EPSILOND_DATA_DIR names another.")
    if not is_whole:
        _fail("The file secret.key in the data folder is damaged. Restore it from the backup.")


#: Where files lie that are encrypted if a data key is set.
_ENCRYPTED_FOLDERS = ("datasets", "checkpoints")


def _require_data_key(settings: Settings) -> None:
    """Find out now that a key is not the one of the files there are, and not when a run needs them."""
    foreign = sum(settings.encryption.foreign_files(settings.data_dir / name) for name in _ENCRYPTED_FOLDERS)
    if foreign:
        why = "under another key than this data key" if settings.encryption.is_on else "and no data key is set"
        _fail(
            f"In the data folder, {foreign} file(s) are encrypted {why}. Set EPSILOND_DATA_KEY or "
            "EPSILOND_DATA_KEY_FILE to the key that they were written with."
        )


def _reason(error: OSError) -> str:
    return f"{error.strerror or type(error).__name__}, {error.filename}"


def _require_schema(context: Context) -> None:
    if not migrations.is_at_head(context.database):
        _fail("The database's schema is not the newest. Run `python -m app migrate`, or `serve --migrate`.")


def _new_private_file(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        _fail(f"Cannot write to {path}: {error.strerror}. It must be a new file in a folder that exists.")


def _fail(message: str) -> NoReturn:
    typer.echo(f"epsilond: {message}", err=True)
    raise typer.Exit(1)

"""The commands that run the service, and the groups of all others."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated

import typer
from alembic.util import CommandError

from app.cli.keys import keys
from app.cli.ledger import ledger
from app.cli.setting_up import fail, open_context, require_data_folder, require_data_key, require_schema
from app.db import migrate as migrations
from app.db.database import Database
from app.kit.context import Context
from app.observability.logs import configure_logging
from app.settings import Settings

cli = typer.Typer(
    help="epsilond, the privacy-accounting daemon. Settings come from the environment: EPSILOND_HOST and others.",
    no_args_is_help=True,
    add_completion=False,
    # Local variables in a traceback would show keys and data.
    pretty_exceptions_enable=False,
)
cli.add_typer(keys, name="keys")
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

    with _until_stopped(), open_context() as context:
        configure_logging(context.settings.log_level, context.settings.log_format)
        require_data_folder(context.settings)
        require_data_key(context.settings)
        if migrate:
            _migrate(context.settings)
        require_schema(context)
        try:
            listening = server.listen(context.settings.host, context.settings.port)
        except server.CannotListen as error:
            fail(str(error))
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

    with _until_stopped(), open_context() as context:
        configure_logging(context.settings.log_level, context.settings.log_format)
        require_data_folder(context.settings)
        require_data_key(context.settings)
        require_schema(context)
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
    with open_context() as context:
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


@contextmanager
def _until_stopped() -> Iterator[None]:
    """Let SIGTERM and Ctrl+C end the block in the same way, whenever they come, and the command with status 0."""
    # A shell starts what runs in its background with SIGINT ignored, and so it would stay.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        yield


def _migrate(settings: Settings) -> None:
    try:
        migrations.upgrade(settings.sqlalchemy_url)
    except CommandError:
        fail("The database is at a revision that this version does not know. Run the version that brought it there.")

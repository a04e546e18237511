"""The commands that run the service, and prepare it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated

import typer

from app.auth import local_token, sessions, sign_in_codes
from app.auth import service as keys
from app.cli.output import AsJson, example, print_json, print_text
from app.cli.refusals import fail
from app.cli.server import DEFAULT_URL, Url
from app.cli.setting_up import (
    compiling_in_background,
    open_context,
    require_data_folder,
    require_data_key,
    require_local_token,
    require_provider_file,
    require_schema,
    require_secrets,
    warn_of_open_database,
    warn_of_unknown_variables,
)
from app.db import migrate as migrations
from app.observability.logs import configure_logging
from app.observability.tracing import tracing
from app.settings import Settings

commands = typer.Typer(rich_markup_mode=None)


@commands.command(epilog=example("epsilond serve --migrate"))
def serve(
    migrate: Annotated[bool, typer.Option("--migrate", help="Bring the database to the newest schema first.")] = False,
) -> None:
    """Answer HTTP requests, and run queued trainings.

    The address is EPSILOND_HOST and EPSILOND_PORT, by default 127.0.0.1 and 8000. Trainings run in worker processes;
    EPSILOND_WORKERS is their number.
    """
    # Imported here, as below, because loading the whole service takes a second, and most commands need only part of it.
    from app import server
    from app.main import create_app

    with until_stopped(), open_context(makes_database=migrate) as context:
        configure_logging(context.settings.log_level, context.settings.log_format)
        warn_of_unknown_variables()
        require_data_folder(context.settings)
        require_data_key(context.settings)
        require_provider_file(context.settings)
        if migrate:
            _migrate(context.settings)
        require_schema(context)
        require_secrets(context)
        is_keyless = require_local_token(context)
        try:
            listening = server.listen(context.settings.host, context.settings.port)
        except server.CannotListen as error:
            fail(str(error))
        app = create_app(context)
        code = sign_in_codes.issue(context) if is_keyless else None
        warn_of_open_database(context.settings)
        print(server.banner(context, listening, code), flush=True)
        with compiling_in_background(), tracing(context.settings, "server"):
            server.serve(app, context, listening)


@commands.command("sign-in", epilog=example("epsilond sign-in"))
def sign_in(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Print an address that signs a browser in, while there is no key.

    The address works once, for five minutes, at a server on this machine with the same data folder. Once there are
    keys, sign in with a key.
    """
    with open_context() as context:
        require_schema(context)
        if keys.keys_exist(context):
            fail("The server has keys: sign in with one of them, at /dashboard/sign-in.")
        if local_token.read(context.settings) is None:
            fail("The data folder has no local token: start the server first with `epsilond serve`.")
        address = sessions.address_with_code(url, sign_in_codes.issue(context))
    if as_json:
        print_json({"url": address})
    else:
        print_text(address)


@commands.command(epilog=example("epsilond worker --count 1"))
def worker(
    count: Annotated[int, typer.Option(min=1, max=64, help="How many trainings run at once.")] = 1,
) -> None:
    """Execute queued trainings until stopped.

    They run in processes apart from the server's, on this machine or on another one.
    """
    from app import server
    from app.runs.supervisor import Supervisor

    with until_stopped(), open_context() as context:
        configure_logging(context.settings.log_level, context.settings.log_format)
        warn_of_unknown_variables()
        require_data_folder(context.settings)
        require_data_key(context.settings)
        require_schema(context)
        require_secrets(context)
        warn_of_open_database(context.settings)
        supervisor = Supervisor(context, count)
        supervisor.start()
        try:
            print(f"epsilond worker: {count} run(s) at once. Stop with Ctrl+C.", flush=True)
            supervisor.wait()
        finally:
            deadline = server.end_within(server.STOP_S)
            supervisor.stop()
            deadline.cancel()


@commands.command(epilog=example("epsilond migrate"))
def migrate(as_json: AsJson = False) -> None:
    """Bring the database to the newest schema.

    The database is the one that EPSILOND_DATABASE_URL names, or else a file in the data folder, which is created.
    """
    with open_context(makes_database=True) as context:
        _migrate(context.settings)
    revision = migrations.head_revision()
    if as_json:
        print_json({"revision": revision})
    else:
        print_text(f"The database is at revision {revision}, the newest.")


@commands.command("openapi", epilog=example("epsilond openapi"))
def print_openapi() -> None:
    """Print the OpenAPI document.

    A server answers with the same document at /openapi.json.
    """
    from app.web.docs import DOCUMENT

    typer.echo(DOCUMENT.read_text(encoding="utf-8"), nl=False)


@contextmanager
def until_stopped() -> Iterator[None]:
    """Let SIGTERM and Ctrl+C end the block in the same way at any time. The command then ends with status 0."""
    # A shell starts background jobs with SIGINT ignored; without these handlers it would stay ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        yield


def _migrate(settings: Settings) -> None:
    try:
        migrations.upgrade(settings.sqlalchemy_url)
    except migrations.UnknownRevision:
        fail("The database is at a revision that this version does not know. Run the version that brought it there.")

"""This module sets up every command: it reads settings, opens the database, and names what is missing in one line."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from app.auth import local_token
from app.auth.database_secrets import SecretRefused, admit
from app.cli.output import print_error
from app.cli.refusals import fail
from app.context import Context
from app.db import migrate as migrations
from app.db.database import Database, sqlite_file
from app.db.failures import DATABASE_FAILURES, Unfenced, why_not_connected
from app.fence.watching import fenced_context
from app.kit import collector
from app.kit.private_files import make_private_folder
from app.kit.process_pool import PROJECT_ROOT
from app.secrets.material import SecretUnavailable
from app.settings import Settings, settings_faults, unknown_variables


def read_settings() -> Settings:
    """Read the settings of a command. Each fault in them is reported in a line."""
    collector.resume()
    try:
        return Settings()
    except ValidationError as error:
        fail(settings_faults(error))


@contextmanager
def open_context(*, makes_database: bool = False, restores: bool = False) -> Iterator[Context]:
    """Open the settings and the database of a command. Failures of the database inside the block are reported in one
    line.

    Args:
        makes_database: Whether a missing SQLite file is created. Otherwise, a command that is called outside of the
            server's folder would leave an empty database there.
        restores: Whether the command continues an interrupted restore. Every other command is refused until the restore
            is finished.
    """
    settings = read_settings()
    if settings.witnesses or settings.witness_quorum:
        _require_witnesses(settings)
    if not restores and settings.unfinished_restore_file.exists():
        fail(
            f"A restore into {settings.data_dir} is in progress or was interrupted. Run `epsilond restore` again with "
            "the same archive; until then nothing is served."
        )
    if not makes_database:
        _require_database(settings)
    try:
        database = Database(settings.sqlalchemy_url)
    except OSError as error:
        fail(f"The folder of the SQLite file cannot be made: {_reason(error)}.")
    try:
        yield fenced_context(settings, database)
    except Unfenced as refused:
        fail(refused.detail)
    except DATABASE_FAILURES as error:
        # The driver's own message would quote the address, which may contain a password.
        if database.is_sqlite:
            hint = "Check that this user may write to the file and to its folder."
        else:
            hint = why_not_connected(error) or "Is it running?"
        fail(f"The database named by EPSILOND_DATABASE_URL failed ({type(error).__name__}). {hint}")
    finally:
        database.dispose()


def require_data_folder(settings: Settings) -> None:
    """Check the data folder now, rather than when the first upload or model is written."""
    try:
        with tempfile.TemporaryFile(dir=make_private_folder(settings.data_dir)):
            pass
    except OSError as error:
        fail(f"The data folder cannot be written to: {_reason(error)}. EPSILOND_DATA_DIR names another.")


def require_secrets(context: Context) -> None:
    """Refuse early if the secrets do not belong to the database. A database without secrets adopts them."""
    try:
        admit(context)
    except SecretRefused as error:
        fail(str(error))
    except SecretUnavailable as error:
        fail(error.detail)
    except OSError as error:
        fail(f"A secret cannot be written: {_reason(error)}.")


def require_provider_file(settings: Settings) -> None:
    """Check the file of the provider of accounts now, rather than when somebody signs in."""
    from app.auth.oidc.configuration import Wrong, configuration_of

    try:
        configuration_of(settings)
    except Wrong as error:
        fail(str(error))


def _require_witnesses(settings: Settings) -> None:
    """Check that the keys and the quorum of witnesses in the settings are valid."""
    from app.ledger.witnesses import WrongWitnesses, witnesses_of

    try:
        witnesses_of(settings)
    except WrongWitnesses as error:
        fail(str(error))


@contextmanager
def compiling_in_background() -> Iterator[None]:
    """Compile the inner loops in the background during the block, if the installation did not.

    A calibration may take only a few seconds. Compiling may take longer, and then no request could finish.
    """
    from accounting.compiled import is_complete

    if is_complete():
        yield
        return
    print_error("Compiling the inner loops, once: calibrations take longer for the next minute.")
    command = [sys.executable, "-m", "trainer.warm_up"]
    process = subprocess.Popen(command, cwd=PROJECT_ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)  # noqa: S603
    try:
        yield
    finally:
        process.kill()
        process.wait()


def require_local_token(context: Context) -> bool:
    """Make sure that the token of a server without keys is in the data folder. Return whether the token gives
    access."""
    try:
        return local_token.settle(context)
    except local_token.NotPrivate as error:
        fail(str(error))
    except OSError as error:
        fail(f"The file local-token cannot be written: {_reason(error)}.")


def warn_of_open_database(settings: Settings) -> None:
    """Warn if an existing SQLite file can be read by other users. A new file is private to this user."""
    file = sqlite_file(settings.sqlalchemy_url)
    if file is not None and file.exists() and file.stat().st_mode & 0o077:
        print_error(
            f"warning: other users of this machine may open the database, {file}. Unless that is meant: "
            f"chmod 600 {shlex.quote(str(file))}*"
        )


def warn_of_unknown_variables() -> None:
    """Warn of environment variables that look like settings but are not."""
    for sentence in unknown_variables(os.environ):
        print_error(f"warning: {sentence}")


def require_data_key(settings: Settings) -> None:
    """Check now that the data key fits the existing files, rather than when a run needs them."""
    from app.runs.files_at_rest import count_foreign

    foreign = count_foreign(settings)
    if foreign:
        why = "under a key that is not among the data keys" if settings.encryption.is_on else "and no data key is set"
        fail(
            f"In the data folder, {foreign} file(s) are encrypted {why}. EPSILOND_DATA_KEY or EPSILOND_DATA_KEY_FILE "
            "must have the key that they were written with, behind newer ones; `epsilond data-key list` shows which."
        )


def _reason(error: OSError) -> str:
    return f"{error.strerror or type(error).__name__}, {error.filename}"


def _require_database(settings: Settings) -> None:
    file = sqlite_file(settings.sqlalchemy_url)
    if file is not None and not file.exists():
        fail(
            f"There is no database at {file.absolute()}. `epsilond migrate`, or `serve --migrate`, makes a new "
            "one. To use another database, set EPSILOND_DATA_DIR or EPSILOND_DATABASE_URL."
        )


def require_schema(context: Context) -> None:
    if not migrations.is_at_head(context.database):
        # A command in another folder than the server's finds an empty database. Migrating that one would make a second,
        # empty ledger.
        where = "" if context.settings.database_url else f" The database is in {context.settings.data_dir.resolve()}."
        fail(
            f"The database's schema is not the newest.{where} If this is the right database, run `epsilond "
            "migrate`, or `serve --migrate`. If not, set EPSILOND_DATA_DIR or EPSILOND_DATABASE_URL."
        )

"""`epsilond data-key`: manage the keys that encrypt files at rest. It needs only the rights of the machine's user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated

import typer

from app.cli.output import AsJson, example, print_json, print_table, print_text, print_warnings
from app.cli.progress import progress_bar
from app.cli.refusals import Status, fail
from app.cli.setting_up import open_context, read_settings, require_data_key, require_schema, require_secrets
from app.kit.data_keys import KeyFile, NotRotated, shown
from app.kit.encryption import Holding
from app.runs import files_at_rest
from app.settings import Settings

commands = typer.Typer(
    name="data-key",
    help="Rotate the keys that encrypt files, and encrypt files again.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@commands.command("list", epilog=example("epsilond data-key list"))
def list_keys(as_json: AsJson = False) -> None:
    """List the data keys, and how many files each of them encrypts. No key is shown.

    The newest key encrypts, and older keys only decrypt. If a key is missing, nobody can read its files.
    """
    rows = _rows(read_settings())
    if as_json:
        print_json({"items": rows})
    else:
        columns = ("key", "use", "files", "bytes")
        print_table(columns, [[row[name] or "" if name == "key" else row[name] for name in columns] for row in rows])
    if any(row["use"] == "missing" for row in rows):
        raise typer.Exit(Status.REFUSED)


@commands.command("rotate", epilog=example("epsilond data-key rotate"))
def rotate(as_json: AsJson = False) -> None:
    """Draw a new data key, which encrypts from now on. Older keys only decrypt. Servers may keep running.

    The new key becomes the first one in the file that EPSILOND_DATA_KEY_FILE names.
    """
    settings = read_settings()
    require_data_key(settings)
    keys = _key_file(settings)
    with _refusals_in_one_line():
        identity = shown(keys.rotate())
    if as_json:
        print_json({"key": identity, "file": str(keys.path)})
    else:
        print_text(f"The data key {identity} encrypts from now on. It is in {keys.path}: keep a copy elsewhere.")


@commands.command("re-encrypt", epilog=example("epsilond data-key re-encrypt"))
def re_encrypt(as_json: AsJson = False) -> None:
    """Encrypt files of older keys, and files in the clear, with the newest key.

    You may stop this command and run it again. Servers may keep running. Status 1 means that files are left.
    """
    with open_context() as context, _refusals_in_one_line():
        require_schema(context)
        require_secrets(context)
        if not context.settings.encryption.is_on:
            fail("No data key is set: EPSILOND_DATA_KEY_FILE names a file that holds one.")
        with progress_bar("files") as reached:
            outcome = files_at_rest.encrypt_anew(context, reached)
    if as_json:
        print_json(
            {"done": outcome.done, "left": outcome.left, "unreadable": [str(each) for each in outcome.unreadable]}
        )
    else:
        print_text(f"{outcome.done} file(s) were encrypted with the newest data key.")
        if outcome.left:
            print_text(
                f"{outcome.left} file(s) of runs or uploads in progress are left. Run this again after their end."
            )
    if outcome.unreadable:
        print_warnings(
            f"{path} cannot be decrypted. Restore it from a backup, set the key that is missing, or delete its "
            "data set."
            for path in outcome.unreadable
        )
    if outcome.left or outcome.unreadable:
        raise typer.Exit(Status.REFUSED)


@commands.command("drop", epilog=example("epsilond data-key drop OLD_KEY"))
def drop(
    key: Annotated[str, typer.Argument(metavar="KEY", help="An older key, as `data-key list` shows it.")],
    as_json: AsJson = False,
) -> None:
    """Take an older data key out of the key file. This is refused while any file is encrypted with that key.

    Older backups still need the key: keep it with them.
    """
    settings = read_settings()
    keys = _key_file(settings)
    with _refusals_in_one_line():
        keys.drop(key, partial(files_at_rest.count_held, settings))
    if as_json:
        print_json({"key": key, "file": str(keys.path)})
    else:
        print_text(f"The data key {key} is no longer in {keys.path}. Keep it with the backups that were made under it.")


def _rows(settings: Settings) -> list[dict[str, str | int | None]]:
    """Return a row for each key that is set, the newest first; then for missing keys; then for files in the clear."""
    held = files_at_rest.held_by_keys(settings)
    own = settings.encryption.keys.ids()
    uses: dict[bytes | None, str] = dict.fromkeys(own, "decrypts")
    uses |= dict.fromkeys(own[:1], "encrypts")
    uses |= {identity: "missing" for identity in held if identity not in uses and identity is not None}
    uses |= {None: "not encrypted"} if None in held else {}
    return [
        {
            "key": None if identity is None else shown(identity),
            "use": use,
            "files": held.get(identity, Holding()).files,
            "bytes": held.get(identity, Holding()).bytes,
        }
        for identity, use in uses.items()
    ]


def _key_file(settings: Settings) -> KeyFile:
    keys = settings.encryption.keys
    if isinstance(keys, KeyFile):
        return keys
    if settings.encryption.is_on:
        fail(
            "EPSILOND_DATA_KEY holds the keys themselves, which no command can change. Name a file that holds "
            "them in EPSILOND_DATA_KEY_FILE; or restart all processes with the new key behind the others, restart "
            "them with the new key in front, re-encrypt, and remove the old key."
        )
    fail("No data key is set: EPSILOND_DATA_KEY_FILE names a file that holds one.")


@contextmanager
def _refusals_in_one_line() -> Iterator[None]:
    try:
        yield
    except NotRotated as error:
        fail(str(error))
    except OSError as error:
        fail(f"The file {error.filename} cannot be written: {error.strerror}.")

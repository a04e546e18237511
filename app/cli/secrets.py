"""`epsilond secrets`: versions of the secrets of the database, for users of the machine."""

from __future__ import annotations

import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO, Annotated

import typer

from app.auth import database_secrets as service
from app.auth.database_secrets import SecretRefused
from app.cli.output import AsJson, example, print_json, print_table, print_text, print_warnings
from app.cli.refusals import fail
from app.cli.setting_up import open_context, require_data_folder, require_schema, require_secrets
from app.kit.private_files import write_new_private
from app.kit.timestamps import format_moment
from app.problems import Problem
from app.secrets.material import Purpose

commands = typer.Typer(
    name="secrets",
    help="Show and rotate the secrets of the database.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Which = Annotated[
    Purpose, typer.Argument(metavar="SECRET", help="keys or signatures; the content secret is never rotated.")
]


@commands.command("list", epilog=example("epsilond secrets list"))
def list_secrets(as_json: AsJson = False) -> None:
    """List the versions with the values that identify them, but no secret.

    The value of a key for signatures is its public key.
    """
    with open_context() as context:
        require_schema(context)
        rows = [
            {
                "secret": row.purpose,
                "version": row.version,
                "check_value": row.check_value,
                "created_at": format_moment(row.created_at),
                "retired_at": None if row.retired_at is None else format_moment(row.retired_at),
            }
            for row in service.listed(context)
        ]
    if as_json:
        print_json({"items": rows})
        return
    columns = ("secret", "version", "created_at", "retired_at", "check_value")
    print_table([name.replace("_", " ") for name in columns], [[row[name] or "" for name in columns] for row in rows])


@commands.command("save", epilog=example("epsilond secrets save secrets.tar"))
def save_secrets(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Write to this new file, which only its owner may read.")
    ],
    as_json: AsJson = False,
) -> None:
    """Write all versions of the secrets to one new file, a tar archive. Keep it apart from the backups.

    The archive has the file names of a data folder: `tar --extract --file FILE --directory FOLDER` puts them into
    another folder. It contains neither the data key nor tokens.
    """
    with open_context() as context, _refusals_in_one_line():
        require_schema(context)
        found = service.kept(context)
        write_new_private(file, lambda target: _write_archive(target, found))
        is_encrypted = context.settings.encryption.is_on
    if as_json:
        print_json({"file": str(file), "secrets": sorted(found)})
    else:
        print_text(f"{', '.join(sorted(found))}: in {file}, readable only by its owner. Keep it away from backups.")
    if is_encrypted:
        print_warnings(
            [("The data key (EPSILOND_DATA_KEY or EPSILOND_DATA_KEY_FILE) is not in this file: keep it yourself.")]
        )


@commands.command("rotate", epilog=example("epsilond secrets rotate keys"))
def rotate_secret(secret: Which, as_json: AsJson = False) -> None:
    """Begin a new version of a secret. Older versions verify until they are retired. Servers may keep running."""
    with open_context() as context, _refusals_in_one_line():
        require_data_folder(context.settings)
        require_schema(context)
        require_secrets(context)
        version = service.rotate(context, secret)
        place = context.secrets.place(secret, version)
    if as_json:
        print_json({"secret": secret, "version": version, "file": place})
    else:
        print_text(
            f"The {secret.words} is at version {version}, in {place}. Every server of this database must find "
            "this file."
        )


@commands.command("retire", epilog=example("epsilond secrets retire keys 1"))
def retire_version(
    secret: Which,
    version: Annotated[
        int, typer.Argument(metavar="VERSION", min=1, help="An older version; `secrets list` shows all versions.")
    ],
    revoke_keys: Annotated[
        bool, typer.Option("--revoke-keys", help="Revoke the API keys that were not used since the rotation.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """End an older version of a secret: nothing verifies under it any more."""
    with open_context() as context, _refusals_in_one_line():
        require_schema(context)
        retired = service.retire(context, secret, version, revokes_keys=revoke_keys)
    if as_json:
        print_json({"secret": secret, "version": version, "revoked": retired.revoked})
    else:
        revoked = f" Revoked with it: {', '.join(retired.revoked)}." if retired.revoked else ""
        print_text(f"Version {version} of the {secret.words} is retired.{revoked}")


def _write_archive(target: IO[bytes], files: dict[str, bytes]) -> None:
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
            archive.addfile(entry, BytesIO(content))


@contextmanager
def _refusals_in_one_line() -> Iterator[None]:
    try:
        yield
    except SecretRefused as error:
        fail(str(error))
    except Problem as problem:
        fail(problem.detail)
    except FileExistsError as error:
        fail(f"{error.filename} exists already and is not overwritten. Name a new file.")
    except OSError as error:
        fail(f"The secret cannot be written to {error.filename}: {error.strerror}.")

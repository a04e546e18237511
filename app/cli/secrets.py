"""`epsilond secrets`: versions of the secrets of the database, by whoever may use the machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from app.auth import database_secrets as service
from app.auth.database_secrets import SecretRefused
from app.cli.output import AsJson, example, print_json, print_table, print_text
from app.cli.refusals import fail
from app.cli.setting_up import open_context, require_data_folder, require_schema, require_secrets
from app.kit.timestamps import format_moment
from app.problems import Problem
from app.secrets.material import Purpose

commands = typer.Typer(
    name="secrets",
    help="The secrets of the database: versions, rotation.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Which = Annotated[Purpose, typer.Argument(metavar="SECRET", help="keys or signatures; content is never rotated.")]


@commands.command("list", epilog=example("epsilond secrets list"))
def list_secrets(as_json: AsJson = False) -> None:
    """List the versions with what recognises them: of signatures, the public keys. No secret is shown."""
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


@commands.command("rotate", epilog=example("epsilond secrets rotate keys"))
def rotate_secret(secret: Which, as_json: AsJson = False) -> None:
    """Begin a new version of a secret; older ones verify until they are retired. Servers may serve meanwhile."""
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
    version: Annotated[int, typer.Argument(metavar="VERSION", min=1, help="An older one; `secrets list` shows them.")],
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


@contextmanager
def _refusals_in_one_line() -> Iterator[None]:
    try:
        yield
    except SecretRefused as error:
        fail(str(error))
    except Problem as problem:
        fail(problem.detail)
    except OSError as error:
        fail(f"The secret cannot be written: {error.strerror}, {error.filename}.")

"""`python -m app keys`: API keys, by whoever may use the machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from app.auth import service as auth
from app.auth.principal import Scope
from app.cli.setting_up import fail, new_private_file, open_context, require_data_folder, require_schema

keys = typer.Typer(help="API keys. With none created, the server answers its own machine alone.", no_args_is_help=True)


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Option(help="What the key is for.")],
    scope: Annotated[list[Scope], typer.Option(help="What it allows; may be repeated. admin implies all others.")],
    if_none: Annotated[bool, typer.Option("--if-none", help="Only if no key was ever created.")] = False,
    output: Annotated[Path | None, typer.Option(help="Write the key to this new file, for its owner alone.")] = None,
) -> None:
    """Create a key. It is shown or written this once: only a keyed hash of it is stored."""
    if not 1 <= len(name) <= 200 or not name.isprintable():
        fail("--name takes 1 to 200 printable characters.")
    with open_context() as context:
        require_data_folder(context.settings)
        require_schema(context)
        if if_none and auth.keys_exist(context):
            print("There is a key already; none was created.")
            return
        # Opened before the key exists: a file that cannot be written must not cost a key.
        target = new_private_file(output) if output else None
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
    with open_context() as context:
        require_schema(context)
        for key in auth.list_keys(context):
            state = "revoked" if key.is_revoked else "active"
            print(f"{key.id}  {state:7}  {key.created_at:%Y-%m-%d}  {','.join(key.scopes)}  {key.name}")


@keys.command("revoke")
def revoke_key(key_id: Annotated[str, typer.Argument(help="The id, as `keys list` shows it.")]) -> None:
    """Revoke a key for ever. With the last one gone the server answers nobody until another is created."""
    with open_context() as context:
        require_schema(context)
        if not auth.revoke_key(context, key_id):
            fail(f"There is no active key {key_id}; see `python -m app keys list`.")
        print(f"{key_id} is revoked.")

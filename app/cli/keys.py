"""`python -m app keys`: API keys, by whoever may use the machine."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from app.auth import service as auth
from app.auth.principal import Scope
from app.cli.setting_up import fail, new_private_file, open_context, require_data_folder, require_schema
from app.kit.moments import format_moment
from app.problems import Problem

keys = typer.Typer(help="API keys. With none created, the server answers its own machine alone.", no_args_is_help=True)

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_MOST_DAYS = 3660

Output = Annotated[Path | None, typer.Option(help="Write the key to this new file, for its owner alone.")]


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Option(help="What the key is for.")],
    scope: Annotated[list[Scope], typer.Option(help="What it allows; may be repeated. admin implies all others.")],
    budget: Annotated[
        list[str] | None, typer.Option(help="Id of a budget that it reaches, with all below; may be repeated.")
    ] = None,
    expires_in: Annotated[
        str | None, typer.Option(help="When it ends: 90d, 12h, 30m or seconds. Without this it does not end.")
    ] = None,
    if_none: Annotated[bool, typer.Option("--if-none", help="Only if no key was ever created.")] = False,
    output: Output = None,
) -> None:
    """Create a key. It is shown or written this once: only a keyed hash of it is stored."""
    if not 1 <= len(name) <= 200 or not name.isprintable():
        fail("--name takes 1 to 200 printable characters.")
    if budget and len(budget) > auth.MAX_BUDGETS:
        fail(f"--budget is given {auth.MAX_BUDGETS} times at most.")
    lifetime = None if expires_in is None else _duration("--expires-in", expires_in)
    if lifetime == timedelta(0):
        fail("--expires-in 0 makes a key that has ended.")
    with open_context() as context:
        require_data_folder(context.settings)
        require_schema(context)
        if if_none and auth.keys_exist(context):
            print("There is a key already; none was created.")
            return
        # Opened before the key exists: a file that cannot be written must not cost a key.
        target = new_private_file(output) if output else None
        try:
            created = auth.create_key(
                context,
                name,
                scope,
                budgets=budget or None,
                expires_at=None if lifetime is None else context.clock() + lifetime,
                if_none=if_none,
            )
        except Problem as problem:
            _give_up(target, output)
            fail(f"{problem.detail}.")
        if created is None:
            _give_up(target, output)
            print("There is a key already; none was created.")
            return
        _hand_out(created.id, created.token, target, output)


@keys.command("rotate")
def rotate_key(
    key_id: Annotated[str, typer.Argument(help="The id, as `keys list` shows it.")],
    overlap: Annotated[
        str, typer.Option(help="So long the old token is good, too: 7d at most. 0 ends every older one now.")
    ] = "1h",
    output: Output = None,
) -> None:
    """Give a key another token, and show or write it this once."""
    both_are_good = _duration("--overlap", overlap)
    if both_are_good > timedelta(seconds=auth.MAX_OVERLAP_S):
        fail("--overlap takes 7d at most.")
    with open_context() as context:
        require_data_folder(context.settings)
        require_schema(context)
        target = new_private_file(output) if output else None
        try:
            with context.database.write() as session:
                _, token = auth.rotate_key(session, context, key_id, both_are_good)
        except Problem as problem:
            _give_up(target, output)
            fail(problem.detail)
        _hand_out(key_id, token, target, output)


@keys.command("list")
def list_keys() -> None:
    """List the keys, without what authenticates. Last use is written every ten minutes or so."""
    with open_context() as context:
        require_schema(context)
        now = context.clock()
        for key in auth.list_keys(context):
            ends = "" if key.expires_at is None else f"  until {format_moment(key.expires_at)}"
            used = "never used" if key.last_used_at is None else f"used {key.last_used_at:%Y-%m-%d %H:%M}"
            reached = auth.budget_ids(key.budgets)
            budgets = "" if reached is None else f"  budgets {','.join(reached)}"
            print(
                f"{key.id}  {auth.state_of(key, now):7}  {key.created_at:%Y-%m-%d}  {used}{ends}{budgets}  "
                f"{','.join(key.scopes)}  {key.name}"
            )


@keys.command("revoke")
def revoke_key(key_id: Annotated[str, typer.Argument(help="The id, as `keys list` shows it.")]) -> None:
    """Revoke a key for ever. With the last one gone the server answers nobody until another is created."""
    with open_context() as context:
        require_schema(context)
        if not auth.revoke_key(context, key_id):
            fail(f"There is no active key {key_id}; see `python -m app keys list`.")
        print(f"{key_id} is revoked.")


def _duration(option: str, text: str) -> timedelta:
    """The seconds of a text such as 90d, 12h, 30m, 45s or 45."""
    found = re.fullmatch(r"([0-9]{1,9})([smhd]?)", text)
    duration = None if found is None else timedelta(seconds=int(found[1]) * _SECONDS[found[2] or "s"])
    if duration is None or duration > timedelta(days=_MOST_DAYS):
        fail(f"{option} takes a number with s, m, h or d behind it, such as 90d, and {_MOST_DAYS}d at most.")
    return duration


def _hand_out(key_id: str, token: str, target: int | None, output: Path | None) -> None:
    if target is None:
        print(token)
        return
    with open(target, "w") as file:
        file.write(token + "\n")
    print(f"{key_id} was written to {output}.")


def _give_up(target: int | None, output: Path | None) -> None:
    """Take the file away that was opened for a token that there is not."""
    if target is not None and output is not None:
        os.close(target)
        output.unlink()

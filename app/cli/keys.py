"""`epsilond keys`: manage API keys. It needs only the rights of the machine's user."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from app.auth import service as auth
from app.auth.principal import Scope
from app.auth.schemas import KeyBody
from app.cli.files import new_private_file
from app.cli.output import AsJson, example, print_error, print_json, print_table, print_text, print_warnings
from app.cli.refusals import fail
from app.cli.setting_up import open_context, require_data_folder, require_schema, require_secrets
from app.kit.timestamps import format_moment
from app.problems import Problem

commands = typer.Typer(
    name="keys",
    help="API keys of the server on this machine.\n\nUntil a key is created, the server answers only this machine.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_MOST_DAYS = 3660

KeyId = Annotated[str, typer.Argument(metavar="KEY", help="The id, as `keys list` shows it.")]
KeyOutput = Annotated[Path | None, typer.Option(help="Write the key to this new file, which only its owner can read.")]


@commands.command("create", epilog=example("epsilond keys create --name notebook --scope analyst --expires-in 90d"))
def create_key(
    name: Annotated[str, typer.Option(help="What the key is for.")],
    scope: Annotated[list[Scope], typer.Option(help="What the key allows; may be repeated. admin implies all others.")],
    budget: Annotated[
        list[str] | None,
        typer.Option(help="Id of a budget that the key reaches, with all budgets below it; may be repeated."),
    ] = None,
    expires_in: Annotated[
        str | None,
        typer.Option(help="How long the key is valid: 90d, 12h, 30m or seconds. By default it never expires."),
    ] = None,
    if_none: Annotated[bool, typer.Option("--if-none", help="Create a key only if no key was ever created.")] = False,
    output: KeyOutput = None,
    as_json: AsJson = False,
) -> None:
    """Create a key. It is shown or written only once, because only a keyed hash of it is stored."""
    if not 1 <= len(name) <= 200 or not name.isprintable():
        fail("--name takes 1 to 200 printable characters.")
    if budget and len(budget) > auth.MAX_BUDGETS:
        fail(f"--budget may be given at most {auth.MAX_BUDGETS} times.")
    lifetime = None if expires_in is None else _duration("--expires-in", expires_in)
    if lifetime == timedelta(0):
        fail("--expires-in 0 would make a key that has already ended.")
    with open_context() as context:
        require_data_folder(context.settings)
        require_schema(context)
        require_secrets(context)
        if if_none and auth.any_key_was_made(context):
            _tell_of_none(as_json)
            return
        twins = [key.id for key in auth.list_keys(context) if key.name == name and not key.has_ended(context.clock())]
        # The file is opened before the key is made, so that a file that cannot be written does not cost a key.
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
        except BaseException as error:
            _give_up(target, output)
            if isinstance(error, Problem):
                fail(f"{error.detail}.")
            raise
        if created is None:
            _give_up(target, output)
            _tell_of_none(as_json)
            return
        if twins:
            print_warnings(
                [f"An active key has the name {name} already: {', '.join(twins)}. The ledger shows ids, too."]
            )
        _hand_out(created.id, created.token, target, output, as_json=as_json)


@commands.command("rotate", epilog=example("epsilond keys rotate KEY --overlap 1h"))
def rotate_key(
    key_id: KeyId,
    overlap: Annotated[
        str, typer.Option(help="How long the old token stays valid: at most 7d. 0 ends every older token now.")
    ] = "1h",
    output: KeyOutput = None,
    as_json: AsJson = False,
) -> None:
    """Give a key a new token, and show or write it once."""
    both_are_good = _duration("--overlap", overlap)
    if both_are_good > timedelta(seconds=auth.MAX_OVERLAP_S):
        fail("--overlap takes 7d at most.")
    with open_context() as context:
        require_data_folder(context.settings)
        require_schema(context)
        require_secrets(context)
        target = new_private_file(output) if output else None
        try:
            with context.database.write() as session:
                _, token = auth.rotate_key(session, context, key_id, both_are_good)
        except BaseException as error:
            _give_up(target, output)
            if isinstance(error, Problem):
                fail(error.detail)
            raise
        _hand_out(key_id, token, target, output, as_json=as_json)


@commands.command("list", epilog=example("epsilond keys list"))
def list_keys(as_json: AsJson = False) -> None:
    """List the keys, without their tokens. The last use is written about every ten minutes."""
    with open_context() as context:
        require_schema(context)
        now = context.clock()
        found = [KeyBody.of(key, now) for key in auth.list_keys(context)]
    if as_json:
        print_json({"items": [key.model_dump(mode="json") for key in found]})
        return
    print_table(
        ("id", "state", "created", "last used", "until", "budgets", "scopes", "name"),
        [
            (
                key.id,
                key.state,
                f"{key.created_at:%Y-%m-%d}",
                "never used" if key.last_used_at is None else f"{key.last_used_at:%Y-%m-%d %H:%M}",
                "" if key.expires_at is None else format_moment(key.expires_at),
                _shown(key.budgets, key, "all"),
                _shown(key.scopes, key, ""),
                key.name,
            )
            for key in found
        ],
    )


def _shown(names: Sequence[str] | None, key: KeyBody, everything: str) -> str:
    """Return the rights of a key. An account of a sign-in provider has no rights of its own."""
    if key.issuer is not None:
        return "by its groups"
    return everything if names is None else ",".join(names)


@commands.command("revoke", epilog=example("epsilond keys revoke KEY"))
def revoke_key(key_id: KeyId, as_json: AsJson = False) -> None:
    """Revoke a key for ever. Once the last key is revoked, the server answers nobody until another key is created."""
    with open_context() as context:
        require_schema(context)
        if not auth.revoke_key(context, key_id):
            fail(f"There is no active key {key_id}; see `epsilond keys list`.")
        now = context.clock()
        is_administered = any(Scope.ADMIN in key.scopes and not key.has_ended(now) for key in auth.list_keys(context))
    if as_json:
        print_json({"id": key_id, "state": "revoked"})
    else:
        hint = (
            "" if is_administered else " No key with the scope admin is left; create one with `epsilond keys create`."
        )
        print_text(f"{key_id} is revoked.{hint}")


def _duration(option: str, text: str) -> timedelta:
    """Return the number of seconds in a text such as 90d, 12h, 30m, 45s or 45."""
    found = re.fullmatch(r"([0-9]{1,9})([smhd]?)", text)
    duration = None if found is None else timedelta(seconds=int(found[1]) * _SECONDS[found[2] or "s"])
    if duration is None or duration > timedelta(days=_MOST_DAYS):
        fail(f"{option} takes a number followed by s, m, h or d, such as 90d; the most is {_MOST_DAYS}d.")
    return duration


def _hand_out(key_id: str, token: str, target: int | None, output: Path | None, *, as_json: bool) -> None:
    if target is not None and output is not None:
        try:
            with open(target, "w") as file:
                file.write(token + "\n")
        except OSError as error:
            output.unlink()
            fail(
                f"The key {key_id} was made, but its token could not be written to {output}: {error.strerror}. "
                f"`epsilond keys rotate {key_id}` gives it another."
            )
    if target is None and not as_json:
        print_error(f"{key_id} is the id of the key. Its token is shown this once:")
    if as_json:
        where = {"token": token} if target is None else {"output": str(output)}
        print_json({"id": key_id, **where})
    else:
        print_text(token if target is None else f"{key_id} was written to {output}.")


def _tell_of_none(as_json: bool) -> None:
    if as_json:
        print_json({"id": None})
    else:
        print_text("A key exists already, so no key was created.")


def _give_up(target: int | None, output: Path | None) -> None:
    """Delete the file that was opened for a token, because there is no token."""
    if target is not None and output is not None:
        os.close(target)
        output.unlink()

"""The token of a server without keys: a file in the data folder that only the service's user can read.

A request from this machine may come from any of its users, or through a proxy that adds no header. Somebody who can
read the file counts as the operator. Its one line is a header, so `curl -H @var/local-token` sends it. The first start
makes it, and all server processes of the data folder share it. The first key ends it for ever, because keys are revoked
but never deleted.

The file is read for each request with a token. So the token does not stay in memory, and removing the file ends it at
once.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import secrets
import stat
from contextlib import suppress

from app.auth import repository
from app.context import Context
from app.kit.private_files import remove_private, write_private_once
from app.problems import Problem
from app.settings import Settings

PREFIX = "epsilond_local_"
_LINE = re.compile(rf"Authorization: Bearer ({PREFIX}[a-z2-7]{{52}})\n?")
#: The most bytes that are read, which is more than the line has. So a large file that others put there is not read as a
#: whole.
_MOST_BYTES = 200


class NotPrivate(Exception):
    """The file cannot be used as the token; the message says what to do."""


def settle(context: Context) -> bool:
    """Make the file if the server has never had a key; otherwise remove it.

    Returns:
        Whether the token is valid.

    Raises:
        NotPrivate: there is a file of that name that others can access.
    """
    if _keys_exist(context):
        remove(context)
        return False
    if read(context.settings) is None:
        line = f"Authorization: Bearer {PREFIX}{_random_text()}\n"
        write_private_once(context.settings.local_token_file, line.encode())
        if read(context.settings) is None:
            raise NotPrivate(
                "The file local-token in the data folder must be a plain file with the token, owned by this user, "
                "with the mode 0600, which closes it to all others. This file is not. Remove it, and start again. "
                "If files cannot have the mode 0600 here, create a key: `epsilond keys create --name NAME --scope "
                "admin`."
            )
    if _keys_exist(context):  # another process made one since the first look, and found no file to remove
        remove(context)
        return False
    return True


def remove(context: Context) -> None:
    """Remove the file once there is a key. The token is refused even if the file cannot be removed."""
    with suppress(OSError):
        remove_private(context.settings.local_token_file)


def read(settings: Settings) -> str | None:
    """Return the token; None if there is no such file, or if others could have written or read it."""
    # Every request comes here, so no file object is made. Symbolic links are not followed, and pipes are not waited
    # for.
    try:
        descriptor = os.open(settings.local_token_file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            return None
        text = os.read(descriptor, _MOST_BYTES).decode("ascii", "replace")
    except OSError:
        return None
    finally:
        os.close(descriptor)
    line = _LINE.fullmatch(text)
    return None if line is None else line[1]


def is_right(settings: Settings, shown: str) -> bool:
    """Return whether this is the token. Comparing hashes in constant time hides the token's length, too."""
    token = read(settings)
    return token is not None and hmac.compare_digest(_digest(token), _digest(shown))


def needed() -> Problem:
    """Return the answer to requests without a token that ask for more than a calculation."""
    return _refusal(
        "unauthenticated",
        "This server has no key yet. From this machine, calculations that name no budget and no data set need no "
        "token. Everything else needs the token in the file `local-token`, which the server wrote into its data "
        "folder when it started (`var`, unless EPSILOND_DATA_DIR says otherwise). Only the service's user can "
        "read the file. Its one line is the header to send: `curl -H @var/local-token ...`.",
    )


def wrong() -> Problem:
    """Return the answer to requests with a wrong token."""
    return _refusal(
        "invalid_key",
        "This server has no key yet, and what was sent is not its token. The token is in the file `local-token` in the "
        "server's data folder (`var`, unless EPSILOND_DATA_DIR says otherwise); its one line is the header to send: "
        "`curl -H @var/local-token ...`.",
    )


def ended() -> Problem:
    """Return the answer to requests with the local token to a server with keys."""
    return _refusal(
        "invalid_key",
        "This is the token of a server without keys. It became invalid when the first key was made, and it stays "
        "invalid even if all keys are revoked. Send a key: `Authorization: Bearer epsilond_...`; on the machine "
        "itself `epsilond keys create` makes one.",
    )


def _keys_exist(context: Context) -> bool:
    if context.settings.oidc_file is not None:
        return True
    with context.database.read() as session:
        return repository.any_key(session)


def _refusal(code: str, detail: str) -> Problem:
    error = "" if code == "unauthenticated" else ', error="invalid_token"'
    return Problem(401, code, detail, headers={"WWW-Authenticate": f'Bearer realm="epsilond"{error}'})


def _random_text() -> str:
    return base64.b32encode(secrets.token_bytes(32)).decode().rstrip("=").lower()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()

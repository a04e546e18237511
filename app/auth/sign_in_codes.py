"""Codes that sign a browser in once, on a server without keys: `make serve` and `epsilond sign-in` print one each.

A code is part of an address, and so it appears in the browser's history and in a terminal. Hence it works only once and
for five minutes, and the token itself never appears there. A code is a file in the data folder whose name is the hash
of the code. Anybody who may write to the folder can issue codes, and any server process of the folder accepts them.
Accepting a code removes its file, so only one attempt can succeed.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import IO

from app.context import Context
from app.kit.private_files import write_private

LIFETIME = timedelta(minutes=5)
_CODE = re.compile(r"[A-Za-z0-9_-]{43}")


def issue(context: Context) -> str:
    """Make a code, and remove old ones that nobody used."""
    now = context.clock()
    _remove_old(context, now.timestamp())
    code, end = secrets.token_urlsafe(32), int((now + LIFETIME).timestamp())
    write_private(_file(context, code), lambda file: _write(file, end))
    return code


def redeem(context: Context, code: str) -> bool:
    """Use up a code, and return whether it was valid."""
    if _CODE.fullmatch(code) is None:
        return False
    path = _file(context, code)
    end = _end(path)
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return context.clock().timestamp() < end


def _remove_old(context: Context, now: float) -> None:
    folder = _folder(context)
    if folder.is_dir():
        for path in folder.iterdir():
            if _end(path) <= now:
                path.unlink(missing_ok=True)


def _end(path: Path) -> int:
    """Return when a code expires, in seconds since 1970; 0 if it cannot be read."""
    with suppress(OSError, ValueError):
        return int(path.read_bytes())
    return 0


def _file(context: Context, code: str) -> Path:
    return _folder(context) / hashlib.sha256(code.encode()).hexdigest()


def _folder(context: Context) -> Path:
    return context.settings.data_dir / "sign-in-codes"


def _write(file: IO[bytes], end: int) -> None:
    file.write(str(end).encode())

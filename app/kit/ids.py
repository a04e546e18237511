"""Identifiers with a type prefix: `bud_`, `res_`, `run_`, `ds_`, `key_`, `ent_`, `aud_`."""

from __future__ import annotations

import base64
import os

_BYTES = 15
#: The number of identifiers whose random bytes are fetched at once, since each call to the system releases the
#: interpreter's lock.
_AT_ONCE = 256
_drawn: list[bytes] = []
# A forked process must not use identifiers that its parent will use.
os.register_at_fork(after_in_child=_drawn.clear)


def new_id(prefix: str) -> str:
    """Return an unguessable identifier: the prefix and 120 random bits in lower-case base 32.

    >>> new_id("bud")[:4], len(new_id("bud"))
    ('bud_', 28)
    """
    return id_of(prefix, _random_bytes())


def id_of(prefix: str, data: bytes) -> str:
    """Return an identifier of the same form, made from the first bytes of ``data``, which must be as good as random.

    >>> id_of("run", bytes(32))
    'run_aaaaaaaaaaaaaaaaaaaaaaaa'
    """
    return f"{prefix}_{base64.b32encode(data[:_BYTES]).decode().lower()}"


def _random_bytes() -> bytes:
    while True:
        try:
            return _drawn.pop()  # a single operation of the interpreter, so that no two threads get the same
        except IndexError:
            many = os.urandom(_BYTES * _AT_ONCE)
            _drawn.extend(many[start : start + _BYTES] for start in range(0, len(many), _BYTES))

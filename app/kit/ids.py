"""Identifiers with a type prefix: `bud_`, `res_`, `run_`, `ds_`, `key_`, `ent_`."""

from __future__ import annotations

import base64
import secrets


def new_id(prefix: str) -> str:
    """An unguessable identifier: the prefix and 120 random bits in lower-case base 32.

    >>> new_id("bud")[:4], len(new_id("bud"))
    ('bud_', 28)
    """
    return f"{prefix}_{base64.b32encode(secrets.token_bytes(15)).decode().lower()}"

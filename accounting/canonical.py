"""Canonical bytes of a description, so that its hash means the same in every process and for ever."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]

FORMAT_VERSION = 1


def canonical_bytes(value: Mapping[str, Json]) -> bytes:
    """Return UTF-8 JSON with sorted keys, no white space, and every number as its shortest round-trip string.

    ``"v"`` names the format and is added at the top level. A float with an integral value is written like the
    integer, so that 1 and 1.0, which mean the same number, give the same bytes.

    Raises:
        ValueError: If a number is not finite, or ``value`` already has a key ``"v"``.

    >>> canonical_bytes({"noise_multiplier": 1.0, "count": 3})
    b'{"count":"3","noise_multiplier":"1","v":"1"}'
    """
    if "v" in value:
        raise ValueError('the key "v" is reserved for the format version')
    return canonical_text({**value, "v": FORMAT_VERSION}).encode()


def canonical_text(value: Json) -> str:
    """Return a part of a description as `canonical_bytes` writes it, for those who put the same parts together often.

    >>> canonical_text([1.0, {"b": None, "a": True}])
    '["1",{"a":true,"b":null}]'
    """
    return json.dumps(_numbers_as_strings(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 in lower-case hexadecimal, 64 characters."""
    return hashlib.sha256(data).hexdigest()


def number_to_string(number: int | float) -> str:
    """Return the shortest decimal string that reads back as the same number.

    >>> [number_to_string(x) for x in (3, 3.0, 0.1, 1e-30, 1e22)]
    ['3', '3', '0.1', '1e-30', '10000000000000000000000']
    """
    if isinstance(number, int):
        return str(number)
    if not math.isfinite(number):
        raise ValueError("only finite numbers have canonical bytes")
    return str(int(number)) if number.is_integer() else repr(number)


def _numbers_as_strings(value: Json) -> Json:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return number_to_string(value)
    if isinstance(value, Mapping):
        return {key: _numbers_as_strings(item) for key, item in value.items()}
    return [_numbers_as_strings(item) for item in value]

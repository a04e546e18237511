"""Strict reading: a certificate has only one spelling, and each of its numbers has a range."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from epsilond_verifier.bounds import CannotCheck, refuse_unless

N = TypeVar("N", int, float)
MOST_BYTES, _LONGEST_NUMBER = 2**20, 320


def parse(data: bytes) -> Reader:
    """Read canonical bytes: UTF-8 JSON with sorted keys, no white space, and strings in place of numbers."""
    refuse_unless(len(data) <= MOST_BYTES, f"the certificate has {len(data)} bytes; it may have {MOST_BYTES}")
    try:
        value = json.loads(
            data.decode(), object_pairs_hook=_unique, parse_int=_bare, parse_float=_bare, parse_constant=_bare
        )
        spelled = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise CannotCheck(f"the certificate is not JSON: {error}") from None
    refuse_unless(spelled == data, "the JSON must be canonical: sorted keys, no white space, no escapes")
    return Reader(value, "certificate")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    refuse_unless(len(found) == len(pairs), f"an object repeats a key: {sorted(key for key, _ in pairs)}")
    return found


def _bare(text: str) -> NoReturn:
    raise CannotCheck(f"the number {text[:40]} must be written as a string")


def shortest(number: float) -> str:
    """Return the only spelling of a finite number: the shortest that reads back, integers in full."""
    return str(int(number)) if number.is_integer() else repr(number)


class Reader:
    """An object of the certificate. `close` refuses keys that were not read, in this object and in the objects inside
    it."""

    def __init__(self, value: Any, where: str) -> None:
        refuse_unless(isinstance(value, dict), f"{where} must be an object")
        self._left, self._read, self.where = dict(value), list[Reader](), where

    def close(self) -> None:
        """Refuse keys that were not read."""
        for reader in self._read:
            reader.close()
        refuse_unless(not self._left, f"{self.where} has unknown keys: {str(sorted(self._left))[:200]}")

    def has(self, key: str) -> bool:
        """Return whether the object has this key and it was not read yet."""
        return key in self._left

    def inside(self, key: str) -> Reader:
        """Read the object under a key."""
        return self._object(self._take(key), key)

    def objects(self, key: str, most: int, least: int = 1) -> list[Reader]:
        """Read a list of ``least`` to ``most`` objects."""
        return [self._object(value, f"{key}[{i}]") for i, value in enumerate(self._list(key, most, least))]

    def word(self, key: str, *allowed: str) -> str:
        """Read a word, which must be one of ``allowed``."""
        value = str(self._take(key))
        refuse_unless(value in allowed, f"{self.where}.{key} must be one of {', '.join(allowed)}, got {value[:60]!r}")
        return value

    def real(self, key: str, low: float, high: float) -> float:
        """Read a number within [low, high]: exactly the binary64 number that is written."""
        return self._number(self._take(key), key, float, shortest, low, high)

    def reals(self, key: str, most: int, low: float, high: float, least: int = 1) -> list[float]:
        """Read a list of ``least`` to ``most`` numbers."""
        return [self._number(value, key, float, shortest, low, high) for value in self._list(key, most, least)]

    def whole(self, key: str, low: int, high: int) -> int:
        """Read an integer within [low, high]."""
        return self._number(self._take(key), key, int, str, low, high)

    def wholes(self, key: str, number: int, low: int, high: int) -> list[int]:
        """Read a list of ``number`` integers."""
        return [self._number(value, key, int, str, low, high) for value in self._list(key, number, number)]

    def _number(self, text: Any, key: str, read: type[N], spell: Callable[[N], str], low: N, high: N) -> N:
        try:
            number = read(text) if isinstance(text, str) and len(text) <= _LONGEST_NUMBER else None
        except ValueError:
            number = None
        if number is None or not low <= number <= high or text != spell(number):
            expected = "an integer" if spell is str else "a number in its shortest spelling"
            raise CannotCheck(f"{self.where}.{key} must be {expected}, in a string, from {low} to {high}: {text!r:.60}")
        return number

    def _object(self, value: Any, key: str) -> Reader:
        self._read.append(Reader(value, f"{self.where}.{key}"))
        return self._read[-1]

    def _list(self, key: str, most: int, least: int) -> list[Any]:
        values = self._take(key)
        proper = isinstance(values, list) and least <= len(values) <= most
        refuse_unless(proper, f"{self.where}.{key} must be a list of length {f'{least} to ' * (least < most)}{most}")
        return list(values)

    def _take(self, key: str) -> Any:
        refuse_unless(key in self._left, f"{self.where} lacks {key}")
        return self._left.pop(key)

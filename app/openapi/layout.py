"""How the document is written: in few bytes, and in lines that reviewers can compare."""

from __future__ import annotations

import json
from typing import Any

#: The most characters of a part on one line; a longer part has a line for each of its members.
_WIDTH = 300


def compact(part: Any) -> str:
    """Write a part of the document on one line, without any blanks."""
    return json.dumps(part, ensure_ascii=False, separators=(",", ":"))


def render(document: dict[str, Any]) -> str:
    """Write the document as it is committed.

    Nothing is indented: most parts are many levels deep, so that it would add a tenth to the size.
    """
    return _lines(document) + "\n"


def _lines(part: Any) -> str:
    text = compact(part)
    if len(text) <= _WIDTH:
        return text
    match part:
        case dict():
            members = (f"{compact(name)}:{_lines(value)}" for name, value in part.items())
            return "{\n" + ",\n".join(members) + "\n}"
        case list():
            return "[\n" + ",\n".join(map(_lines, part)) + "\n]"
        case _:
            return text

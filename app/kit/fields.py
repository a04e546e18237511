"""Field types of the HTTP contract: strict, finite, bounded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError


class Schema(BaseModel):
    """Base of every request and answer: unknown fields are refused, booleans and strings are not numbers."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def _integral_float_is_an_integer(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


#: Accepts an integral float such as 1000.0 as an integer. It is listed after the bounds; before them, pydantic would
#: name the bounds by words that JSON Schema does not have.
INTEGRAL = BeforeValidator(_integral_float_is_an_integer)
#: An integer. Always bound it with `Field(ge=..., le=...)` as the field's value, or use `INTEGRAL`.
Integer = Annotated[int, INTEGRAL]
#: An integer that may be left out; bound it in the same way.
OptionalInteger = Annotated[int | None, INTEGRAL]

#: Text without control characters, which no database column and no log line takes well.
PRINTABLE = r"^[^\x00-\x1f\x7f]*$"
_PRINTABLE_NAME = r"^[^\x00-\x1f\x7f]+$"
_IDENTIFIER = r"^[a-z]+_[a-z0-9_]+$"
_SHA256 = "^[0-9a-f]{64}$"
#: What each form requires, for the reader of a fault.
FORMS: Mapping[str, str] = {
    PRINTABLE: "Control characters, such as tabs and line breaks, are not allowed here.",
    _PRINTABLE_NAME: "Control characters, such as tabs and line breaks, are not allowed here.",
    _IDENTIFIER: "Input should be an id, such as bud_7k2m: small letters, an underscore, small letters and digits.",
    _SHA256: "Input should be a SHA-256 hash: 64 digits from 0 to 9 and from a to f.",
}
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=_PRINTABLE_NAME)]
#: A SHA-256 hash, in hexadecimal digits.
Sha256 = Annotated[str, Field(pattern=_SHA256)]


def _said_why(value: Any) -> Any:
    if value == "":
        raise PydanticCustomError("too_short", "Say why: owners and later readers of the ledger see it.")
    return value


#: The reason that somebody gives for an action that the ledger records.
Reason = Annotated[Name, BeforeValidator(_said_why)]
Identifier = Annotated[str, Field(min_length=1, max_length=64, pattern=_IDENTIFIER)]


class EmptyRequest(Schema):
    """No fields."""

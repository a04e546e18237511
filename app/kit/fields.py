"""Field types of the HTTP contract: strict, finite, bounded."""

from __future__ import annotations

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
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]


def _said_why(value: Any) -> Any:
    if value == "":
        raise PydanticCustomError("too_short", "Say why: owners and later readers of the ledger see it.")
    return value


#: The reason that somebody gives for an action that the ledger records.
Reason = Annotated[Name, BeforeValidator(_said_why)]
Identifier = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-z]+_[a-z0-9_]+$")]


class EmptyRequest(Schema):
    """No fields."""

"""Field types of the HTTP contract: strict, finite, bounded."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Schema(BaseModel):
    """Base of every request and answer: unknown fields are refused, booleans and strings are not numbers."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def _integral_float_is_an_integer(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


#: An integer; an integral float such as 1000.0 is one too. Always bound it with `Field(ge=..., le=...)`.
Integer = Annotated[int, BeforeValidator(_integral_float_is_an_integer)]

#: Text without control characters, which no database column and no log line takes well.
PRINTABLE = r"^[^\x00-\x1f\x7f]*$"
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Identifier = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-z]+_[a-z0-9_]+$")]

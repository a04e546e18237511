"""Budget amounts on the wire: exact decimals in, the filter's own fields out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import ROUND_FLOOR, Decimal
from typing import Annotated, Any, LiteralString

from pydantic import BeforeValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

#: One nano-unit, the grain of every amount.
MIN_AMOUNT = Decimal("1e-9")
_DECIMAL = r"^[0-9]{1,7}(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,2})?$"
# Pydantic's own names of the two faults, for which the contract has its words.
_WRONG_TYPE, _WRONG_FORM = "decimal_type", "string_pattern_mismatch"
_WHAT_IS_RIGHT: LiteralString = 'Input should be a number, or a decimal string such as "0.25"'


def _exact(value: Any) -> Any:
    """A number as the decimal that was written: 0.1 is one tenth, not the nearest binary fraction."""
    if isinstance(value, Decimal):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Decimal(repr(value))
    if isinstance(value, str) and len(value) <= 60 and re.fullmatch(_DECIMAL, value):
        return Decimal(value)
    raise PydanticCustomError(_WRONG_FORM if isinstance(value, str) else _WRONG_TYPE, _WHAT_IS_RIGHT)


#: A decimal, from a JSON number or a decimal string. Always bound it with `Field(gt=..., le=...)`.
Amount = Annotated[
    Decimal,
    BeforeValidator(_exact),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string", "pattern": _DECIMAL}]}, mode="validation"),
    WithJsonSchema({"type": "number"}, mode="serialization"),
]


def whole_nano_units(amount: Decimal) -> float:
    """A limit rounded down to whole nano-units, as the float whose shortest decimal is just that.

    Requires: at most 1e6, so that the decimal has at most 15 significant digits.

    >>> whole_nano_units(Decimal("0.1000000009999"))
    0.1
    """
    return float(amount.quantize(MIN_AMOUNT, ROUND_FLOOR))


def numbers(amounts: Mapping[str, Any]) -> dict[str, Any]:
    """The filter's fields with its exact decimal strings as JSON numbers, at the top level and in lists."""
    return {key: value if key == "kind" else _number(value) for key, value in amounts.items()}


def _number(value: Any) -> Any:
    if isinstance(value, str | Decimal):
        return float(value)
    if isinstance(value, list | tuple):
        return [_number(item) for item in value]
    return value

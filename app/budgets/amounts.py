"""Budget amounts of requests: exact decimals."""

from __future__ import annotations

import re
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Annotated, Any, LiteralString

from pydantic import BeforeValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

#: One nano-unit; every amount is a multiple of it.
MIN_AMOUNT = Decimal("1e-9")
#: One atto-unit; where deltas add up, each is a multiple of it.
MIN_DELTA = Decimal("1e-18")
#: More digits than an amount can have, so that reading an amount never rounds it.
_ALL_DIGITS = Context(prec=60)
_DECIMAL = r"^[0-9]{1,7}(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,2})?$"
# Pydantic's names of the two faults for which the contract has words of its own.
_WRONG_TYPE, _WRONG_FORM = "decimal_type", "string_pattern_mismatch"
_WHAT_IS_RIGHT: LiteralString = 'Input should be a number, or a decimal string such as "0.25"'


def _exact(value: Any) -> Any:
    """Return a number as the decimal that was written: 0.1 is one tenth, not the nearest binary fraction.

    Equal amounts become equal decimals, so that 1 and "1.0" are the same request.
    """
    if isinstance(value, Decimal):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Decimal(repr(value)).normalize(_ALL_DIGITS)
    if isinstance(value, str) and len(value) <= 60 and re.fullmatch(_DECIMAL, value):
        return Decimal(value).normalize(_ALL_DIGITS)
    raise PydanticCustomError(_WRONG_FORM if isinstance(value, str) else _WRONG_TYPE, _WHAT_IS_RIGHT)


#: A decimal, from a JSON number or a decimal string. Always bound it with `Field(gt=..., le=...)`.
Amount = Annotated[
    Decimal,
    BeforeValidator(_exact),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string", "pattern": _DECIMAL}]}, mode="validation"),
    WithJsonSchema({"type": "number"}, mode="serialization"),
]


def whole_nano_units(amount: Decimal) -> float:
    """Return a limit rounded down to whole nano-units, as the float whose shortest decimal is exactly that number.

    Requires: at most 1e6, so that the decimal has at most 15 significant digits.

    >>> whole_nano_units(Decimal("0.1000000009999"))
    0.1
    """
    return float(amount.quantize(MIN_AMOUNT, ROUND_FLOOR))


def rounded_down(amount: Decimal) -> float:
    """Return the float whose shortest decimal is the amount, cut to 15 significant digits.

    >>> rounded_down(Decimal("0.09999999999999999999")), rounded_down(Decimal("1e-5"))
    (0.0999999999999999, 1e-05)
    """
    return float(Context(prec=15, rounding=ROUND_FLOOR).create_decimal(amount))

"""Faults that the schemas find, in the form of the HTTP contract: a code, a pointer and a sentence, without values from
the request."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from accounting.near_names import hint, suggestion
from app.kit import limits
from app.kit.fields import FORMS
from app.kit.schema_names import names_at
from app.problems import Problem, ProblemItem, json_pointer

#: Pydantic's names of faults, and the contract's codes. Any other fault gets the code `invalid`.
CODES: Mapping[str, str] = {
    "missing": "missing",
    "extra_forbidden": "unknown_field",
    "finite_number": "not_finite",
    "greater_than": "out_of_range",
    "greater_than_equal": "out_of_range",
    "less_than": "out_of_range",
    "less_than_equal": "out_of_range",
    "multiple_of": "out_of_range",
    "int_from_float": "wrong_type",
    "int_parsing": "wrong_type",
    "int_parsing_size": "out_of_range",
    "float_parsing": "wrong_type",
    "bool_parsing": "wrong_type",
    "too_long": "too_long",
    "too_short": "too_short",
    "string_too_long": "too_long",
    "string_too_short": "too_short",
    "string_pattern_mismatch": "wrong_form",
    "literal_error": "unknown_value",
    "enum": "unknown_value",
    "datetime_from_date_parsing": "wrong_form",
    "datetime_parsing": "wrong_form",
    "timezone_aware": "wrong_form",
    "union_tag_invalid": "unknown_value",
    "union_tag_not_found": "missing",
    "model_attributes_type": "wrong_type",
    "dict_type": "wrong_type",
    "none_required": "wrong_type",
}

# Sentences that replace pydantic's own where these would quote the request or mention Python.
_MOMENT = "Input should be a moment with its time zone, such as 2026-01-31T00:00:00Z."

_DETAILS: Mapping[str, str] = {
    "missing": "This field is required.",
    "extra_forbidden": "There is no field of this name here.",
    "model_attributes_type": "Input should be an object.",
    "dict_type": "Input should be an object.",
    "datetime_from_date_parsing": _MOMENT,
    "datetime_parsing": _MOMENT,
    "timezone_aware": _MOMENT,
    "list_type": "Input should be an array.",
    "tuple_type": "Input should be an array.",
    "union_tag_not_found": "The object needs a {discriminator} that says which kind it is.",
    "union_tag_invalid": "The {discriminator} should be one of {expected_tags}.",
    "int_from_float": "Input should be a whole number.",
    "bool_parsing": "Input should be true or false.",
}

# A number in quotes is a common slip, and for "8" the sentence "not a number" would not say what is wrong.
_NUMBERS: Mapping[str, str] = {"float_type": "number", "int_type": "integer"}

# Faults for which pydantic's sentence contains nothing but the schema. For all others only the code is given.
_QUOTABLE = frozenset(CODES) | {
    "int_type",
    "float_type",
    "bool_type",
    "string_type",
    "list_type",
    "tuple_type",
    "decimal_type",
    "value_error",
}


def from_model(error: ValidationError, schema: type[BaseModel], body: Any, *place: str | int) -> Problem:
    """Return a 422 with every fault that a schema found.

    Args:
        error: The exception that the schema raised.
        schema: The schema that found the faults.
        body: The request body, which pointers start from.
        place: The place in the body that was read.
    """
    faults = [{**fault, "loc": ("body", *place, *fault["loc"])} for fault in error.errors(include_url=False)]
    return from_validation(faults, body, schema, place)


def from_validation(
    faults: Sequence[Mapping[str, Any]], body: Any, schema: Any = None, place: Sequence[str | int] = ()
) -> Problem:
    """Return a 422 with every fault that the schemas found.

    Args:
        faults: The faults from `RequestValidationError.errors()`.
        body: The parsed request body, to tell its fields from the names of alternatives in a fault's location.
        schema: The type that the body, or its part at ``place``, was read as; None if there is no body.
        place: The place in the body that was read.
    """
    listed = faults[: limits.LISTED_FAULTS]
    items = [_item(fault, body, _known_names(fault, schema, place)) for fault in listed]
    items = _of_the_alternative_meant(items + [_item(fault, body) for fault in faults[len(listed) :]])
    items = items[: limits.LISTED_FAULTS]
    places = len({item.pointer for item in items})
    detail = (
        items[0].detail if len(items) == 1 else f"The request has faults in {places} place(s); `errors` lists them."
    )
    return Problem(422, "invalid_request", detail, errors=items)


def _of_the_alternative_meant(items: Sequence[ProblemItem]) -> list[ProblemItem]:
    """Drop the faults of the wrong alternatives of a union, and keep each other fault once.

    A field that takes a number or a list has faults of both alternatives. If the value's type fits one alternative,
    only the faults of that alternative are kept.
    """
    kept: dict[tuple[str, str, str], ProblemItem] = {}
    for item in items:
        inside = f"{item.pointer}/"
        meant_otherwise = item.code == "wrong_type" and any(
            (other.pointer == item.pointer and other.code != "wrong_type") or other.pointer.startswith(inside)
            for other in items[: limits.LISTED_FAULTS]
        )
        if not meant_otherwise:
            kept.setdefault((item.pointer, item.code, item.detail), item)
    return list(kept.values())


def _known_names(fault: Mapping[str, Any], schema: Any, place: Sequence[str | int]) -> frozenset[str]:
    """Return the known fields at the place of an unknown one."""
    source, *path = fault["loc"] or ("body",)
    if fault["type"] != "extra_forbidden" or schema is None or source != "body":
        return frozenset()
    return frozenset(names_at(schema, path[len(place) : -1]))


def _item(fault: Mapping[str, Any], body: Any, known: frozenset[str] = frozenset()) -> ProblemItem:
    kind = str(fault["type"])
    place, *path = fault["loc"] or ("body",)
    if place == "body":
        pointer = json_pointer(_path_in(body, path, is_missing=kind == "missing"))
        if kind.startswith("union_tag"):
            pointer += "/" + _discriminator(fault)
    else:
        pointer = json_pointer((place, *path))
    code = CODES.get(kind) or ("wrong_type" if kind.endswith("_type") else "invalid")
    detail = _detail(kind, fault) + (hint(str(path[-1]), known) if known else "") + _meant_value(fault)
    return ProblemItem(pointer=pointer[: limits.POINTER_LENGTH], code=code, detail=detail)


def _detail(kind: str, fault: Mapping[str, Any]) -> str:
    if kind in _DETAILS:
        context = {**fault.get("ctx", {}), "discriminator": _discriminator(fault)}
        return _DETAILS[kind].format_map(context)
    if kind in _NUMBERS and isinstance(fault.get("input"), str):
        return f"Input should be a valid {_NUMBERS[kind]}, not a text."
    context = fault.get("ctx", {})
    if kind == "string_pattern_mismatch" and context.get("pattern") in FORMS:
        return FORMS[context["pattern"]]
    if kind == "string_too_short" and context["min_length"] == 1:
        return "This field must not be empty."
    if kind in _QUOTABLE:
        message = str(fault["msg"]).removeprefix("Value error, ")
        return message if message.endswith(".") else message + "."
    return "Input is not valid here."


def _meant_value(fault: Mapping[str, Any]) -> str:
    """Return the value that was probably meant, if only some values are allowed."""
    context = fault.get("ctx", {})
    given = context.get("tag", fault.get("input"))
    # Pydantic puts each of the values in quotes.
    known = re.findall(r"'([^']*)'", str(context.get("expected_tags", context.get("expected", ""))))
    return (
        suggestion(given, known) if CODES.get(str(fault["type"])) == "unknown_value" and isinstance(given, str) else ""
    )


def _discriminator(fault: Mapping[str, Any]) -> str:
    return str(fault.get("ctx", {}).get("discriminator", "kind")).strip("'")


def _path_in(body: Any, path: Sequence[str | int], *, is_missing: bool) -> tuple[str | int, ...]:
    """Return the part of ``path`` that exists in ``body``: pydantic inserts the names of a union's alternatives."""
    found: list[str | int] = []
    current = body
    for depth, step in enumerate(path):
        if _has(current, step):
            current = current[step]
            found.append(step)
        elif is_missing and depth == len(path) - 1:
            found.append(step)
    return tuple(found)


def _has(container: Any, step: str | int) -> bool:
    if isinstance(container, dict):
        return step in container
    return isinstance(container, list) and isinstance(step, int) and 0 <= step < len(container)

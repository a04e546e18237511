"""Schemas that are made from described records, with the same fields, ranges and descriptions.

A mechanism, sampling, domain or penalty is described once, in the engine (`accounting.described`). Its schema is made
from this description. So a new one is accepted over HTTP and listed in the OpenAPI document without more code.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args

from pydantic import Field, create_model

from accounting.described import Described, Range, Real, Reals, Whole, Word
from app.kit.fields import Integer, Schema

D = TypeVar("D", bound=Described)
#: The sections of a docstring that concern callers in Python only.
_SECTION = re.compile(r"\n+(?:[A-Z][a-z]+: *\S*|>>> ).*", re.DOTALL)


def field_of(annotation: Any) -> Any:
    """Return the type of a schema's field for a record's annotation, such as ``Annotated[float, Real(0.0, 1.0)]``."""
    return Annotated[_field(get_args(annotation)[1], {})]


class DescribedSchema(Schema):
    """The schema of a record."""

    kind: str


def schema_of(
    described: type[Described], suffix: str, narrowed: Mapping[Real, Real] = MappingProxyType({})
) -> type[DescribedSchema]:
    """Return the schema of one kind of record.

    Args:
        suffix: A suffix that turns the class's name into the schema's.
        narrowed: Ranges of requests that replace the engine's.
    """
    kind: Any = (Literal[described.kind], ...)
    values: dict[str, Any] = {
        field.name: _field(described.ranges[field.name], narrowed, field.default) for field in fields(described)
    }
    return create_model(
        f"{described.__name__}{suffix}", __base__=DescribedSchema, __doc__=_description(described), kind=kind, **values
    )


def schema_of_any(known: Mapping[str, type[D]], suffix: str, title: str | None = None) -> Any:
    """Return the type of a field that accepts a record of any of these kinds."""
    return Annotated[
        Union[(*(schema_of(each, suffix) for each in known.values()),)],
        Field(discriminator="kind", title=title),
    ]


def record_of(schema: DescribedSchema, known: Mapping[str, type[D]]) -> D:
    """Return the record that a schema describes.

    Raises:
        AccountingError: The numbers contradict each other; the pointer is inside the schema.
    """
    return known[schema.kind](**{name: value for name, value in vars(schema).items() if name != "kind"})


def _field(within: Range, narrowed: Mapping[Real, Real], default: Any = MISSING) -> tuple[Any, Any]:
    """Return the type and the constraints of a schema's field."""
    told = within.meaning or None
    if default is MISSING:
        default = ...
    match within:
        case Real():
            within = narrowed.get(within, within)
            above, least = (within.lower, None) if within.open_lower else (None, within.lower)
            return float, Field(default, gt=above, ge=least, le=within.upper, description=told)
        case Whole():
            return Integer, Field(default, ge=within.lower, le=within.upper, description=told)
        case Word():
            return Literal[tuple(within.meanings)], Field(default, description=told)
        case Reals():
            numbers = list[Annotated[_field(within.each, narrowed)]]  # type: ignore[misc, valid-type]  # computed
            return numbers, Field(default, min_length=1, max_length=within.most, description=told)


def _description(described: type[Described]) -> str:
    """Return the docstring's paragraphs before its first section, as Markdown."""
    return _SECTION.sub("", inspect.cleandoc(described.__doc__ or "")).replace("``", "`")

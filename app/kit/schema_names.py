"""The fields that are allowed at the place where a request has an unknown field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter


def names_at(schema: Any, path: Sequence[str | int]) -> set[str]:
    """Return the fields that an object of a request may have.

    Args:
        schema: The request's type.
        path: The path to the object in pydantic's form, with names of a union's alternatives between the fields.

    Returns:
        The fields of all alternatives that the path leaves open.
    """
    document = _document(schema)
    places = list(_alternatives(document, document))
    for step in path:
        # If a step leads nowhere, it is the name of an alternative that has no tag.
        places = [child for place in places for child in _below(place, step, document)] or places
    return {name for place in places for name in place.get("properties", ())}


@lru_cache(maxsize=64)
def _document(schema: Any) -> Mapping[str, Any]:
    """Return the type's JSON schema, with the names that requests use."""
    return TypeAdapter(schema).json_schema(mode="validation")


def _alternatives(place: Mapping[str, Any], document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and all its alternatives."""
    if "$ref" in place:
        yield from _alternatives(document["$defs"][place["$ref"].rpartition("/")[2]], document)
        return
    yield place
    for kind in ("anyOf", "oneOf", "allOf"):
        for each in place.get(kind, ()):
            yield from _alternatives(each, document)


def _below(place: Mapping[str, Any], step: str | int, document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if isinstance(step, int):
        found = [*place.get("prefixItems", ())][step : step + 1] or [place.get("items")]
    else:
        tagged = place.get("discriminator", {}).get("mapping", {}).get(step)
        found = [place.get("properties", {}).get(step), tagged and {"$ref": tagged}]
    for each in found:
        if isinstance(each, Mapping):
            yield from _alternatives(each, document)

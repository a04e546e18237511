"""What the values of an enumeration mean: written once, beside the value, and told wherever the document lists it.

A member of an enumeration is explained by the text under it, a kind of a union by the docstring of its schema.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from typing import Any

from accounting.dp_events import NoiseOver
from accounting.interoperability.batches import Batches
from accounting.relations import NeighboringRelation
from app.auth.principal import Scope
from app.budgets.spending import GroupBy
from app.ledger.exports import ExportFormat
from app.ledger.states import EntryKind, ReservationStatus
from app.run_sweeps.models import Select, SweepState
from app.runs.models import RunState
from app.runs.report_schemas import Layer
from calibrators.literal import Verdict
from calibrators.provenance import ProvenanceKind
from calibrators.scopes import Measure, Shape
from calibrators.spec import Unknown

#: Enumerations with a schema of their name.
_NAMED: Mapping[str, type[StrEnum]] = {
    each.__name__: each
    for each in (
        Batches,
        EntryKind,
        ExportFormat,
        GroupBy,
        Layer,
        Measure,
        NeighboringRelation,
        NoiseOver,
        ProvenanceKind,
        ReservationStatus,
        RunState,
        Scope,
        Shape,
        SweepState,
        Verdict,
    )
}

#: Those that a schema writes as plain texts, by their values.
_PLAIN: Mapping[frozenset[str], type[StrEnum]] = {frozenset(each): each for each in (Unknown, Select)}


def explain_values(document: dict[str, Any]) -> None:
    """Append to the description of each enumeration and of each union what its values mean."""
    schemas = document["components"]["schemas"]
    for name, enumeration in _NAMED.items():
        _append(schemas[name], meanings(enumeration))
    for node in _nodes(document):
        values = node.get("enum")
        if isinstance(values, list) and frozenset(values) in _PLAIN:
            _append(node, meanings(_PLAIN[frozenset(values)]))
        mapping = node.get("discriminator", {}).get("mapping")
        if mapping:
            field = node["discriminator"]["propertyName"]
            kinds = {value: schemas[target.rpartition("/")[2]] for value, target in mapping.items()}
            _append(node, {value: _of_kind(schema, field, value) for value, schema in kinds.items()})


@cache
def meanings(enumeration: type[StrEnum]) -> Mapping[str, str]:
    """The text under each member, which Python itself forgets.

    >>> from accounting.relations import NeighboringRelation
    >>> meanings(NeighboringRelation)["add_or_remove_one"]
    'One record comes or goes; the number of records is private. Distance of the sums: C.'
    """
    tree = ast.parse(textwrap.dedent(inspect.getsource(enumeration))).body[0]
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for member, text in zip(tree.body, tree.body[1:], strict=False):
        match member, text:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str(meaning))):
                found[enumeration[name].value] = " ".join(meaning.split())
    return found


def told(text: str) -> dict[str, str]:
    """What a description says of each value.

    >>> told("The form. `json`: A document. `npz`: An archive.")
    {'json': 'A document.', 'npz': 'An archive.'}
    """
    parts = re.split(r"`(\w+)`: ", text)
    return {value: meaning.strip(" \n-") for value, meaning in zip(parts[1::2], parts[2::2], strict=True)}


def _of_kind(schema: dict[str, Any], field: str, value: str) -> str:
    """The first paragraph about a kind; where one schema has several kinds, what its field says of this one."""
    of_field = told(schema["properties"][field].get("description", ""))
    paragraph = of_field.get(value) or schema.get("description", "").partition("\n\n")[0]
    return " ".join(paragraph.split())


def _append(node: dict[str, Any], explained: Mapping[str, str]) -> None:
    lines = "\n".join(f"- `{value}`: {meaning}" for value, meaning in explained.items())
    node["description"] = "\n\n".join(part for part in (node.get("description"), lines) if part)


def _nodes(part: Any) -> Iterator[dict[str, Any]]:
    """Every object of the document that may be a schema; examples are none."""
    if isinstance(part, dict):
        yield part
        for name, value in part.items():
            if name not in ("example", "examples", "default", "links"):
                yield from _nodes(value)
    elif isinstance(part, list):
        for value in part:
            yield from _nodes(value)

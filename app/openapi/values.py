"""Meanings of the values of enumerations, taken from the text under each member and added to the document.

The kinds of a union need no such text. The docstring of each model explains its kind, and describes its schema.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Any

from accounting.dp_events import NoiseOver
from accounting.interoperability.batches import Batches
from accounting.relations import NeighboringRelation
from app.algorithms.schemas import NumericType
from app.auth.principal import Scope
from app.budgets.spending import GroupBy
from app.entries.kinds import EntryKind
from app.entries.quotas import Quota
from app.entries.subjects import Subject
from app.ledger.exports import ExportFormat
from app.ledger.price_verification import PriceClass
from app.openapi.sharing import nodes
from app.runs.report_schemas import Layer
from app.tables.states import (
    Change,
    DeliveryState,
    LimitRequestStatus,
    ReservationStatus,
    RunState,
    Select,
    SweepState,
    WebhookEvent,
    WebhookState,
)
from calibrators.as_published import Verdict
from calibrators.correlation import Objective
from calibrators.loaders import Loader
from calibrators.presets import Preset
from calibrators.provenance import ProvenanceKind
from calibrators.scopes import Measure, Shape
from calibrators.spec import Unknown
from calibrators.step_sizes import Course

#: The enumerations with a schema of their own, by its name.
_NAMED: Mapping[str, type[StrEnum]] = {
    each.__name__: each
    for each in (
        Batches,
        DeliveryState,
        EntryKind,
        Preset,
        PriceClass,
        Subject,
        Quota,
        Change,
        Course,
        ExportFormat,
        GroupBy,
        Layer,
        LimitRequestStatus,
        Loader,
        Measure,
        NeighboringRelation,
        NoiseOver,
        Objective,
        ProvenanceKind,
        ReservationStatus,
        RunState,
        Scope,
        Shape,
        SweepState,
        Verdict,
        WebhookEvent,
        WebhookState,
    )
}

#: The enumerations whose values a schema writes as plain strings, by these values.
_PLAIN: Mapping[frozenset[str], type[StrEnum]] = {frozenset(each): each for each in (NumericType, Unknown, Select)}


def explain_values(document: dict[str, Any]) -> None:
    """Append to the description of each enumeration what its values mean."""
    schemas = document["components"]["schemas"]
    for name, enumeration in _NAMED.items():
        _append(schemas[name], meanings(enumeration))
    for node in nodes(document):
        values = node.get("enum")
        if isinstance(values, list) and frozenset(values) in _PLAIN:
            _append(node, meanings(_PLAIN[frozenset(values)]))


@cache
def meanings(enumeration: type[StrEnum]) -> Mapping[str, str]:
    """Return the text under each member, which Python does not keep.

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


def _append(node: dict[str, Any], explained: Mapping[str, str]) -> None:
    lines = "\n".join(f"- `{value}`: {meaning}" for value, meaning in explained.items())
    node["description"] = "\n\n".join(part for part in (node.get("description"), lines) if part)

"""Shared parts of the document. Each appears once, under `components`, and its other places refer to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any

from app.openapi.layout import compact

#: Schemas that occur in several models and have none of their own: the name that each gets, and a place where it
#: occurs.
_SCHEMAS: Mapping[str, str] = {
    "Achieved": "CalibrateAnswer/properties/achieved",
    "AnyAchieved": "NextBody/properties/achieved",
    "Amount": "ApproximateDpLimit/properties/epsilon",
    "BudgetFilter": "BudgetRequest/properties/filter",
    "Column": "DatasetBody/properties/columns/items",
    "Domain": "CalibrateRequest/properties/domain/anyOf/0",
    "ErrorBudget": "AchievedBody/properties/error_budget",
    "GradientBound": "CalibrateRequest/properties/gradient_bound/anyOf/0",
    "Id": "AuditBody/properties/id",
    "Label": "BudgetRequest/properties/name",
    "Model": "RunRequest/properties/model",
    "NextCursor": "Page_RunBody_/properties/next_cursor",
    "NoiseMultiplier": "GaussianSchema/properties/noise_multiplier",
    "NumericType": "CalibrateRequest/properties/dtype/anyOf/0",
    "Penalty": "CalibrateRequest/properties/penalty/anyOf/0",
    "RunSweepAxis": "RunSweepRequest/properties/batch_size/anyOf/1",
    "RunTarget": "RunRequest/properties/target",
    "Score": "RunSweepRequest/properties/score/anyOf/0",
    "SweepAxis": "SweepRequest/properties/batch_size/anyOf/1",
}
#: Members that may stand beside a reference, because they describe its place and not what it refers to.
_OF_THE_PLACE = ("description", "default", "examples")
#: Members of a schema or an operation that contain values and no schemas.
_VALUES = ("example", "examples", "default", "const", "enum", "links", "mapping")


def drop_repetitions(document: dict[str, Any]) -> None:
    """Drop titles, which repeat the names of fields and schemas, and descriptions of parameters in their schemas."""
    for part in ("paths", "components"):
        for node in nodes(document[part]):
            if isinstance(node.get("title"), str):
                del node["title"]
            if {"in", "schema", "description"} <= node.keys() and isinstance(node["schema"], dict):
                node["schema"].pop("description", None)


def share_schemas(document: dict[str, Any]) -> None:
    """Make a component of each schema that several models have, and sort the components by their names."""
    schemas = document["components"]["schemas"]
    shared = {}
    for name, place in _SCHEMAS.items():
        assert name not in schemas, f"two schemas are named {name}"
        found: Any = schemas
        for step in place.split("/"):
            found = found[int(step) if isinstance(found, list) else step]
        shared[name] = {member: value for member, value in found.items() if member not in ("default", "examples")}
        wanted = compact(shared[name])
        for holder, key, node in list(_places(document)):
            if holder is not schemas and compact(_without_place(node, shared[name])) == wanted:
                beside = {
                    member: node[member] for member in _OF_THE_PLACE if member in node.keys() - shared[name].keys()
                }
                holder[key] = {"$ref": f"#/components/schemas/{name}", **beside}
        schemas[name] = shared[name]
    document["components"]["schemas"] = dict(sorted(schemas.items()))


def share_errors(operations: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Replace each error answer by a reference, and return the answers by the names in the references.

    An answer is named for its status and for the first operation that gives it, so that a new operation renames none.
    """
    names: dict[str, str] = {}
    shared: dict[str, Any] = {}
    for operation in operations:
        responses = operation["responses"]
        for status in (status for status in responses if status >= "400"):
            name = names.setdefault(responses[status]["description"], f"{status}_{operation['operationId']}")
            shared.setdefault(name, responses[status])
            responses[status] = {"$ref": f"#/components/responses/{name}"}
    return dict(sorted(shared.items()))


def share_parameters(operations: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Replace each parameter that several operations have by a reference, and return those parameters by their names.

    A second parameter of one name is named for the first operation that has it, too.
    """
    holders = [operation["parameters"] for operation in operations if "parameters" in operation]
    counts = Counter(compact(parameter) for parameters in holders for parameter in parameters)
    names: dict[str, str] = {}
    shared: dict[str, Any] = {}
    for operation in operations:
        parameters = operation.get("parameters", [])
        for index, parameter in enumerate(parameters):
            text = compact(parameter)
            if counts[text] > 1:
                if text not in names:
                    name = parameter["name"]
                    names[text] = f"{name}_{operation['operationId']}" if name in shared else name
                    shared[names[text]] = parameter
                parameters[index] = {"$ref": f"#/components/parameters/{names[text]}"}
    return dict(sorted(shared.items()))


def resolved(document: Mapping[str, Any], part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a part of the document; a reference is resolved."""
    if "$ref" not in part:
        return part
    found: Any = document
    for step in part["$ref"].removeprefix("#/").split("/"):
        found = found[step]
    assert isinstance(found, Mapping)
    return found


def nodes(part: Any) -> Iterator[dict[str, Any]]:
    """Return every object in a part of the document that may be a schema, but no values and examples."""
    if isinstance(part, dict):
        yield part
    for _, _, node in _places(part):
        yield node


def _places(part: Any) -> Iterator[tuple[MutableMapping[Any, Any], Any, dict[str, Any]]]:
    """Yield every object within a part of the document, with its parent and its key there."""
    members = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, value in list(members):
        if key not in _VALUES:
            if isinstance(value, dict):
                yield part, key, value
            yield from _places(value)


def _without_place(node: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without the members that describe its place, unless the shared schema has them, too."""
    return {member: value for member, value in node.items() if member in shared or member not in _OF_THE_PLACE}

"""Request and answer of `/v1/sweep`."""

from __future__ import annotations

from typing import Any

from pydantic import Field, GetJsonSchemaHandler, RootModel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from app.algorithms.calibrate import CalibrateRequest, SolutionBody
from app.algorithms.plans import NoiseBody
from app.algorithms.schemas import DtypeName
from app.algorithms.targets import AnyAchievedBody
from app.kit.fields import Schema
from app.problems import ProblemItem
from app.wire.answers import ConventionBody

MAX_CELLS = 10_000

_REQUEST = "#/components/schemas/CalibrateRequest"
#: The fields of a request that are objects. The swept field may be inside one of them.
OBJECTS = (
    "schedule", "sampling", "gradient_bound", "target", "hyperparameters", "correlation", "assumptions", "domain",
    "penalty",
)  # fmt: skip


def list_of_values(most: int) -> dict[str, Any]:
    """Return the JSON schema of a list that takes the place of a value."""
    items = {"anyOf": [{"type": "number"}, {"type": "string"}]}
    return {"type": "array", "minItems": 1, "maxItems": most, "items": items}


class SweepRequest(RootModel[dict[str, Any]]):
    """A calibrate request in which exactly one field, also one inside `target` or another object, takes a list.

    Each of its cells is checked as a calibrate request.
    """

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        properties: dict[str, Any] = {}
        for name in CalibrateRequest.model_fields:
            choices: list[dict[str, Any]] = [{"$ref": f"{_REQUEST}/properties/{name}"}, list_of_values(MAX_CELLS)]
            if name in OBJECTS:
                choices.append({"type": "object", "description": "With a list in one of its fields."})
            properties[name] = {"anyOf": choices}
        return {
            "type": "object",
            "description": cls.__doc__,
            "properties": properties,
            "additionalProperties": False,
            "required": [name for name, field in CalibrateRequest.model_fields.items() if field.is_required()],
        }


class RowProblem(Schema):
    """The reason why a cell has no answer: the problem that `/v1/calibrate` would return."""

    code: str
    detail: str
    errors: list[ProblemItem]


class RowBody(Schema):
    """One cell: its solution, or its problem."""

    value: float | int | str = Field(description="Value of the swept field.")
    solution: SolutionBody | None = None
    achieved: AnyAchievedBody | None = None
    noise: NoiseBody | None = None
    hyperparameters: dict[str, float | list[float] | None] = Field({}, description="Recommended numbers by name.")
    utility: dict[str, float | list[float] | None] = Field(
        {}, description="Bounds by name; null if a theorem's conditions fail."
    )
    dtype: DtypeName | None = Field(None, description="The numeric type in which a run carries the plan out.")
    dtype_reason: str | None = Field(None, description="Why it is float64 although the request names no type.")
    plan_hash: str | None = None
    fits_budget: bool | None = Field(None, description="Given if the request names a budget.")
    warnings: list[str] = Field([], description="Sentences to read beside the numbers.")
    problem: RowProblem | None = None


class SweepAnswer(Schema):
    """A table with one row for each value, in their order."""

    field: str = Field(description="The swept field, as a path with dots.")
    values: list[float | int | str]
    rows: list[RowBody]
    conventions: dict[str, ConventionBody] = Field(description="Conventions by the neighbouring relations of the rows.")
    citations: list[str]

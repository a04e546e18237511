"""The request bodies of uploads, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from app.datasets.schemas import DatasetMetadata, PersonsDeletion, VersionMetadata
from app.datasets.synthetic import SyntheticRequest
from app.kit.fields import Schema


def _schema(model: type[Schema]) -> dict[str, Any]:
    """Return a model's JSON schema without the definitions of columns. Answers use these, so the document already has
    them."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    return {name: value for name, value in schema.items() if name != "$defs"}


#: Example metadata for a file with the columns age, smoker and outcome.
METADATA_EXAMPLE: dict[str, Any] = {
    "name": "clinic, 2026",
    "declared_size": 1000,
    "columns": [
        {"name": "age", "type": "number", "lower": 0, "upper": 120},
        {"name": "smoker", "type": "category", "categories": ["no", "yes"]},
        {"name": "outcome", "type": "category", "categories": ["well", "ill"]},
    ],
    "label": "outcome",
    "public": True,
}

VERSION_EXAMPLE: dict[str, Any] = {
    "change": "deleted",
    "reason": "withdrawals of the month",
    "erase_earlier": True,
}


def _multipart(metadata: type[Schema], example: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": {
            "type": "object",
            "required": ["file", "metadata"],
            "additionalProperties": False,
            "properties": {
                "file": {
                    "type": "string",
                    "format": "binary",
                    "description": "CSV (UTF-8, with a header row), Parquet or NPZ.",
                },
                "metadata": {**_schema(metadata), "example": example},
            },
        },
        "encoding": {
            "file": {"contentType": "text/csv, application/vnd.apache.parquet, application/octet-stream"},
            "metadata": {"contentType": "application/json"},
        },
    }


#: Uploads are read as a stream, so this body is described here and not by the parameters of the endpoint.
REQUEST_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "multipart/form-data": _multipart(DatasetMetadata, METADATA_EXAMPLE),
        "application/json": {"schema": _schema(SyntheticRequest)},
    },
}
VERSION_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "multipart/form-data": _multipart(VersionMetadata, VERSION_EXAMPLE),
        "application/json": {"schema": _schema(PersonsDeletion)},
    },
}

"""Requests and answers of `/v1/datasets`, and data that travel inside a request for a run."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from app.datasets.columns import Column, Columns, check_distinct_names, check_is_a_column
from app.kit.fields import Identifier, Integer, Name, Schema

MAX_DECLARED_SIZE = 10**9
MAX_INLINE_ROWS = 100_000
MAX_CELL_LENGTH = 200

LABEL = "Name of the column that a model predicts."


class DatasetMetadata(Schema):
    """What the owner declares. All of it is public: choose it without looking at any single record."""

    name: Name
    public: bool = Field(False, description="True only where every row may be published. Private otherwise.")
    declared_size: Integer = Field(
        ge=1,
        le=MAX_DECLARED_SIZE,
        description="A public number of records, near the true one. Sampling probabilities, divisors and plans use it "
        "and nothing else.",
    )
    privacy_unit: Name = Field(
        "record", description="What one row belongs to; for private data the budget's own privacy unit."
    )
    columns: Columns
    label: Name = Field(description=LABEL)
    budget_id: Identifier | None = Field(
        None, description="For private data: the root budget that every run on them is charged to, for ever."
    )

    @field_validator("columns")
    @classmethod
    def _names_are_distinct(cls, columns: list[Column]) -> list[Column]:
        check_distinct_names(columns)
        return columns

    @field_validator("label")
    @classmethod
    def _label_is_a_column(cls, label: str, info: ValidationInfo) -> str:
        check_is_a_column(label, info.data.get("columns"))
        return label


class DatasetBody(Schema):
    """A data set as everyone may see it: what was declared, and nothing that was counted or computed."""

    id: Identifier
    name: str
    public: bool
    bundled: bool = Field(description="Comes with the service; always public, never deleted.")
    declared_size: int
    privacy_unit: str
    columns: list[Column]
    label: str
    budget_id: str | None = Field(
        description="The root budget of a private data set; null also for a key that reaches a part of its tree alone."
    )
    created_at: datetime


class OwnerReport(Schema):
    """What was found in the file. For the owner's eyes: it is answered once, to the upload, and kept nowhere."""

    rows: int = Field(description="True number of rows.")
    values_clipped: int = Field(
        description="Numbers outside their declared bounds, each replaced by the bound it passed."
    )


class UploadedDataset(DatasetBody):
    """The answer to an upload."""

    owner_report: OwnerReport


InlineCell = Annotated[str, Field(max_length=MAX_CELL_LENGTH)] | float


class InlineDataset(Schema):
    """Public data inside the request itself."""

    public: Literal[True] = Field(description="Must be true: rows in a request are kept with the run, unprotected.")
    columns: Columns
    label: Name = Field(description=LABEL)
    rows: list[list[InlineCell]] = Field(
        min_length=1,
        max_length=MAX_INLINE_ROWS,
        description="One list per row, one cell per column in their order: numbers, and texts for categories.",
    )

    @field_validator("columns")
    @classmethod
    def _names_are_distinct(cls, columns: list[Column]) -> list[Column]:
        check_distinct_names(columns)
        return columns

    @field_validator("label")
    @classmethod
    def _label_is_a_column(cls, label: str, info: ValidationInfo) -> str:
        check_is_a_column(label, info.data.get("columns"))
        return label

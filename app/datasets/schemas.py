"""Requests and answers of `/v1/datasets`, and data that travel inside a request for a run."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from app.datasets.columns import Column, Columns, Label
from app.kit.fields import Identifier, Integer, Name, OptionalInteger, Schema
from trainer.records import default_capacity

MAX_DECLARED_SIZE = 10**9
MAX_CAPACITY = 2 * MAX_DECLARED_SIZE
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
    capacity: OptionalInteger = Field(
        None,
        ge=1,
        le=MAX_CAPACITY,
        description="A public number of rows that the data set has room for, at least `declared_size`. Every run keeps "
        "that many slots, filled or not, so that its work does not tell how many rows there are. A file with more rows "
        "is refused. By default an eighth more than `declared_size`, and at least 8 more; for public data as many as "
        "there are rows, and at least `declared_size`.",
    )
    privacy_unit: Name = Field(
        "record", description="What one row belongs to; for private data the budget's own privacy unit."
    )
    columns: Columns
    label: Label = Field(description=LABEL)
    budget_id: Identifier | None = Field(
        None, description="The root budget that every run on private data is charged to, for ever."
    )

    @field_validator("capacity")
    @classmethod
    def _capacity_holds_the_declared_size(cls, capacity: int | None, info: ValidationInfo) -> int | None:
        declared_size = info.data.get("declared_size", 0)
        if capacity is not None and capacity < declared_size:
            raise ValueError(f"The capacity must be at least declared_size, which is {declared_size}.")
        return capacity

    def capacity_for(self, rows: int) -> int:
        """Return the slots of a data set that is declared so; of private data they do not depend on the rows."""
        if self.capacity is not None:
            return self.capacity
        return max(self.declared_size, rows) if self.public else default_capacity(self.declared_size)


class DatasetWarning(Schema):
    """What the owner of a data set has to know about it."""

    code: str
    detail: str


class DatasetBody(Schema):
    """A data set as everyone may see it: what was declared, and nothing that was counted or computed."""

    id: Identifier
    name: str
    public: bool
    bundled: bool = Field(description="Comes with the service; always public, never deleted.")
    declared_size: int
    capacity: int = Field(description="Slots that every run on the data set keeps, and the most rows that it may have.")
    privacy_unit: str
    columns: list[Column]
    label: str
    budget_id: str | None = Field(
        description="The root budget of a private data set; null also for a key that reaches a part of its tree alone."
    )
    created_at: datetime
    warnings: list[DatasetWarning] = Field(
        [], description="Given to keys with the scope owner that reach the root budget; empty for everybody else."
    )


class SharedContent(Schema):
    """Rows that are private under more than one root budget: what the budgets pay for them adds up."""

    root_budget_ids: list[Identifier]
    dataset_ids: list[Identifier] = Field(description="Ids of all data sets with these rows, deleted ones included.")


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
    label: Label = Field(description=LABEL)
    rows: list[list[InlineCell]] = Field(
        min_length=1,
        max_length=MAX_INLINE_ROWS,
        description="One list per row, one cell per column in their order: numbers, and texts for categories.",
    )

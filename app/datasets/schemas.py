"""Requests and answers of `/v1/datasets`, and data that travel inside a request for a run."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from app.datasets.columns import MAX_COLUMNS, Column, Columns, Label
from app.datasets.held_out import LARGEST_SHARE, LEAST_SHARE
from app.datasets.persons import MAX_ID_LENGTH, fault_of
from app.datasets.versions import Version
from app.kit.fields import Identifier, Integer, Name, OptionalInteger, Schema
from app.tables.states import Change
from calibrators.spec import default_capacity

MAX_DECLARED_SIZE = 10**9
MAX_CAPACITY = 2 * MAX_DECLARED_SIZE
MAX_INLINE_ROWS = 100_000
MAX_CELL_LENGTH = 200
MAX_ROWS_PER_PERSON = 10**6
MAX_NAMED_PERSONS = 10_000

LABEL = "Name of the column that a model predicts."


def _as_in_a_file(text: str) -> str:
    fault = fault_of(text)
    if fault is not None:
        raise ValueError(f"{fault[1][0].upper()}{fault[1][1:]}.")
    return text


PersonId = Annotated[str, Field(min_length=1, max_length=MAX_ID_LENGTH), AfterValidator(_as_in_a_file)]


class DatasetMetadata(Schema):
    """What the owner declares. All of it is public: choose it without looking at any single record."""

    name: Name
    public: bool = Field(False, description="True only if every row may be published; otherwise the data are private.")
    declared_size: Integer = Field(
        ge=1,
        le=MAX_DECLARED_SIZE,
        description="A public number of records, near the true one. Sampling probabilities, divisors and plans use "
        "only this number.",
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
    person_column: Name | None = Field(
        None,
        description="Name of a further column of the file, in which each row has the id of its person: a text or an "
        "integer. Models never see the ids, and nobody is shown them; their keyed hashes are kept with the rows, so "
        "that `rows_per_person` is checked and the service can delete a person. Later versions must have the column, "
        "too. Only for private data.",
    )
    rows_per_person: OptionalInteger = Field(
        None,
        ge=1,
        le=MAX_ROWS_PER_PERSON,
        validate_default=True,
        description="The largest number of rows that one person may have, a public number; 1 if only `person_column` "
        "is given. A file with more rows of a person is refused.",
    )
    # This field is left out of stored requests that do not give it, so that requests from before it existed stay the
    # same.
    held_out_share: float | None = Field(
        None,
        ge=LEAST_SHARE,
        le=LARGEST_SHARE,
        exclude_if=lambda share: share is None,
        description="The probability with which a row is held out: a secret coin is tossed for each row when it is "
        "stored, or for each person if the file has ids. No run trains on rows that are held out; a run with "
        "`evaluation` releases about them only what it pays for. Only for private data.",
    )
    budget_id: Identifier | None = Field(
        None, description="The root budget that every run on private data is charged to, for ever."
    )

    @field_validator("held_out_share")
    @classmethod
    def _is_held_out_of_private_data(cls, share: float | None, info: ValidationInfo) -> float | None:
        if share is not None and info.data.get("public"):
            raise ValueError(
                "A run on public data is scored on public rows, as often as you like: leave held_out_share out."
            )
        return share

    @field_validator("capacity")
    @classmethod
    def _capacity_holds_the_declared_size(cls, capacity: int | None, info: ValidationInfo) -> int | None:
        declared_size = info.data.get("declared_size", 0)
        if capacity is not None and capacity < declared_size:
            raise ValueError(f"The capacity must be at least declared_size, which is {declared_size}.")
        return capacity

    @field_validator("person_column")
    @classmethod
    def _is_a_further_column_of_private_data(cls, name: str | None, info: ValidationInfo) -> str | None:
        columns = info.data.get("columns", ())
        if name is None:
            return None
        if info.data.get("public"):
            raise ValueError("Ids of persons are for private data; leave person_column out.")
        if name in {column.name for column in columns}:
            raise ValueError(
                "The column with ids of persons must not be one of the declared columns, because models learn "
                "from those."
            )
        if len(columns) == MAX_COLUMNS:
            raise ValueError(f"A file may have at most {MAX_COLUMNS} columns, including the one with ids of persons.")
        return name

    @field_validator("rows_per_person")
    @classmethod
    def _is_checked_by_ids(cls, most: int | None, info: ValidationInfo) -> int | None:
        has_ids = info.data.get("person_column", "") is not None
        if most is not None and not has_ids:
            raise ValueError(
                "rows_per_person needs person_column, the column with the person of each row: give it, too."
            )
        return 1 if has_ids and most is None else most

    def capacity_for(self, rows: int) -> int:
        """Return the slots of a data set with this declaration; for private data they do not depend on the rows."""
        if self.capacity is not None:
            return self.capacity
        return max(self.declared_size, rows) if self.public else default_capacity(self.declared_size)


class VersionMetadata(Schema):
    """A new version, as its owner declares it. All of it is public: choose it without looking at any single record."""

    change: Change = Field(
        description="How the version differs from the one before: `appended`, `deleted`, `corrected`, or `replaced`, "
        "which leaves it open. Everybody who sees the data set sees it, and nobody checks it.",
        strict=False,
    )
    reason: Name = Field(description="The reason, for every later reader. It must not name a person.")
    declared_size: OptionalInteger = Field(
        None,
        ge=1,
        le=MAX_DECLARED_SIZE,
        description="A public number of records; by default that of the version before.",
    )
    capacity: OptionalInteger = Field(
        None,
        ge=1,
        le=MAX_CAPACITY,
        description="Slots of every run on this version, at least `declared_size`. By default those of the version "
        "before; if `declared_size` is given, an eighth more than that, and at least 8 more.",
    )
    erase_earlier: bool = Field(
        False,
        description="True removes the rows of all earlier versions for good. This is needed if a person was deleted. "
        "Runs that wait for one of them fail without a charge.",
    )

    def sizes_after(self, before: Version) -> tuple[int, int]:
        """Return the declared size and the capacity of a version that follows another one."""
        if self.capacity is not None:
            return self.declared_size or before.declared_size, self.capacity
        if self.declared_size is not None:
            return self.declared_size, default_capacity(self.declared_size)
        return before.declared_size, before.capacity


class PersonsDeletion(Schema):
    """A version without some persons, which the service makes itself. All fields except the ids are public."""

    persons: list[PersonId] = Field(
        max_length=MAX_NAMED_PERSONS,
        description="Ids as written in the file. All rows of these persons are left out. They are not kept, and the "
        "answer is the same whether or not they are there; the list may be empty.",
    )
    change: Literal["deleted", "replaced"] = Field(
        "deleted",
        description="What everybody who sees the data set is told. `deleted`: rows were removed. `replaced`: the "
        "change is left open.",
    )
    reason: Name = Field(description="The reason, for every later reader. It must not name a person.")
    erase_earlier: bool = Field(
        True,
        description="Whether the rows of all earlier versions are removed for good. If not, the persons are still in "
        "those versions.",
    )


class VersionBody(Schema):
    """A version of a data set as everyone who reaches the data set may see it."""

    id: Identifier = Field(
        description="The id of the register's entry about it; the first version has that of its data set."
    )
    dataset_id: Identifier
    version: int
    change: Change | None = Field(description="What the owner says about it; null for the first version.")
    reason: str | None
    declared_size: int
    capacity: int
    erased: bool = Field(description="Its rows were removed when a later version came.")
    created_at: datetime


class DatasetWarning(Schema):
    """A warning for the owner of a data set."""

    code: str
    detail: str


class DatasetBody(Schema):
    """A data set as everyone may see it: only what was declared, nothing counted or computed."""

    id: Identifier
    name: str
    public: bool
    bundled: bool = Field(description="Comes with the service; always public, never deleted.")
    version: int = Field(description="The newest version: a run that names none trains on it. 1 for public data.")
    declared_size: int = Field(
        description="The declared size of the newest version; `capacity` is also that of the newest version."
    )
    capacity: int = Field(description="Slots that every run on the data set keeps, and the most rows that it may have.")
    run_memory_bytes: int = Field(
        description="The most memory that the rows of a run on the newest version take in a worker: as stored, "
        "scaled, and in their slots in float64. It follows from what is declared. The program itself, the batches of "
        "a step and the model come on top."
    )
    privacy_unit: str
    columns: list[Column]
    label: str
    person_column: str | None = Field(
        description="The column of its files that holds ids of persons, if they have one."
    )
    rows_per_person: int | None = Field(
        description="No person has more rows in any version, by the ids that the owner gave. `/v1/account` with this "
        "`group_size` says what a run guarantees to a person with that many rows."
    )
    held_out_share: float | None = Field(
        description="The probability with which a row of any version was held out; null if none was. Runs train on "
        "the other rows, and nothing else is known about which these are."
    )
    budget_id: str | None = Field(
        description="The root budget of a private data set; also null for a key that reaches only a part of its tree."
    )
    created_at: datetime
    warnings: list[DatasetWarning] = Field(
        [], description="Given to keys with the scope owner that reach the root budget; empty for everybody else."
    )


class SharedContent(Schema):
    """Rows that are private under more than one root budget; the losses that these budgets allow add up."""

    root_budget_ids: list[Identifier]
    dataset_ids: list[Identifier] = Field(description="Ids of all data sets with these rows, including deleted ones.")


class OwnerReport(Schema):
    """What was found in the file. Only the owner sees it: it is in the answer to the upload, and is stored nowhere."""

    rows: int = Field(description="True number of rows.")
    values_clipped: int = Field(
        description="Numbers outside their declared bounds, each replaced by the bound it passed."
    )


class UploadedDataset(DatasetBody):
    """The answer to an upload."""

    owner_report: OwnerReport


class VersionAnswer(VersionBody):
    """The answer to the upload of a version."""

    owner_report: OwnerReport | None = Field(
        description="What was found in the file; null for a version that the service made without some persons."
    )


InlineCell = Annotated[str, Field(max_length=MAX_CELL_LENGTH)] | float


class InlineDataset(Schema):
    """Public data inside the request itself."""

    public: Literal[True] = Field(
        description="Must be true, because rows in a request are kept with the run, unprotected."
    )
    columns: Columns
    label: Label = Field(description=LABEL)
    rows: list[list[InlineCell]] = Field(
        min_length=1,
        max_length=MAX_INLINE_ROWS,
        description="One list per row, one cell per column in their order: numbers, and texts for categories.",
    )

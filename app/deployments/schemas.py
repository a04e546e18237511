"""Requests and answers of `/v1/budgets/{id}/deployment`: the questions that only the operator can answer."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from app.auth.schemas import PRINCIPAL_NAME
from app.kit.fields import PRINTABLE, Schema
from app.tables.deployments import Deployment

Answer = Annotated[str, Field(min_length=1, max_length=1000, pattern=PRINTABLE)] | None


class DeploymentAnswers(Schema):
    """Answers that only the operator of the service can give. A field may stay open; the privacy cards say so."""

    description: Answer = Field(None, description="What the data are about, and what they are used for.")
    intended_use: Answer = Field(None, description="What the released models are for.")
    curator: Answer = Field(None, description="Who holds the data and is responsible for them.")
    actors: Answer = Field(None, description="Who else has a part: analysts, processors, those who use the models.")
    region: Answer = Field(None, description="The region where the people in the data live.")
    sector: Answer = Field(None, description="The sector, such as health or education.")
    privacy_units: Answer = Field(None, description="How many units are protected, as a public figure.")
    operator: Answer = Field(None, description="Who operates the service, and why they are trusted with the rows.")
    key_holders: Answer = Field(None, description="Who holds keys, and with which scopes.")
    machine_security: Answer = Field(None, description="How the machine, its network and its backups are secured.")
    access: Answer = Field(None, description="How models are handed out, and to whom.")
    data_collection: Answer = Field(
        None, description="How the rows were collected, and who saw them before they came here."
    )
    retention: Answer = Field(None, description="How long the raw data are kept, and how they are deleted.")
    other_releases: Answer = Field(None, description="What else was released from the same data elsewhere.")
    systemic_bias: Answer = Field(None, description="Groups of people whom the data leave out or misrepresent.")
    human_bias: Answer = Field(None, description="Human decisions about the data that may bias a model.")
    justification: Answer = Field(None, description="Why this epsilon, and this method, were chosen.")
    authors: Answer = Field(None, description="Who wrote these answers.")


class DeploymentBody(Schema):
    """The operator's latest answers, and who gave them."""

    inherited: bool = Field(
        description="True if the answers were given for the nearest budget above this one that has any."
    )
    answers: DeploymentAnswers
    principal_id: str
    principal_name: str | None = Field(description=PRINCIPAL_NAME)
    stated_at: datetime

    @classmethod
    def of(cls, said: Deployment, budget_id: str, name: str | None) -> DeploymentBody:
        """Return the stored answers as the interface shows them for a budget, with the name of the person who gave
        them."""
        return cls(
            inherited=said.budget_id != budget_id,
            answers=DeploymentAnswers.model_validate(said.answers),
            principal_id=said.principal_id,
            principal_name=name,
            stated_at=said.stated_at,
        )

"""Requests and answers of `/v1/budgets/{id}/deployment`: the questions that no service can answer by itself."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from app.kit.fields import PRINTABLE, Schema
from app.tables.deployments import Deployment

Answer = Annotated[str, Field(min_length=1, max_length=1000, pattern=PRINTABLE)] | None


class DeploymentAnswers(Schema):
    """What only whoever operates the service can say. Every field may be left open; the privacy cards say so then."""

    description: Answer = Field(None, description="What the data are about, and what is made of them.")
    intended_use: Answer = Field(None, description="What the released models are for.")
    curator: Answer = Field(None, description="Who holds the data, and answers for them.")
    actors: Answer = Field(None, description="Who else has a part: analysts, processors, those who use the models.")
    region: Answer = Field(None, description="The region in which the people live whose data they are.")
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
    other_releases: Answer = Field(None, description="What else was released of the same data, elsewhere.")
    systemic_bias: Answer = Field(None, description="Whom the data leave out, or show in a wrong light.")
    human_bias: Answer = Field(None, description="What people decided about the data that may bias a model.")
    justification: Answer = Field(None, description="Why this epsilon, and this method, were chosen.")
    authors: Answer = Field(None, description="Who wrote these answers.")


class DeploymentBody(Schema):
    """What was said last, and by whom."""

    inherited: bool = Field(description="It was said of a budget above this one, the nearest of which anything was.")
    answers: DeploymentAnswers
    principal_id: str
    stated_at: datetime

    @classmethod
    def of(cls, said: Deployment, budget_id: str) -> DeploymentBody:
        """What was kept, as it is answered for a budget."""
        return cls(
            inherited=said.budget_id != budget_id,
            answers=DeploymentAnswers.model_validate(said.answers),
            principal_id=said.principal_id,
            stated_at=said.stated_at,
        )

"""What is known about a run, arranged as two public forms ask for it: the points of NIST SP 800-226, and the fields of
the public registry of deployments.

Each answer is something that the service did, or a fact of the privacy card. Facts that only the operator can know come
from the operator's answers for the budget (`app/deployments`). If there is no answer, the field is None and is listed
as open. Nothing is guessed.
"""

from __future__ import annotations

from typing import Any

from app.deployments.schemas import DeploymentAnswers
from app.runs.guarantee import bounds_of
from app.runs.report_schemas import CardFacts, EvaluationPoint, Layer, RegistryField

_VARIANTS = {
    "approximate_dp": "Approximate DP",
    "pure_dp": "Pure DP",
    "zcdp": "Zero-concentrated DP",
    "gaussian_dp": "Gaussian DP",
    "attack_risk": "A bound on membership attacks",
}
#: The words that the registry's format has for privacy definitions without a name there.
_CUSTOM = {"gaussian_dp": "Custom", "attack_risk": "Custom"}
_SEEDED = "None: the run was seeded, and protects nobody."

_TRUST = (
    "Central: this service and the operators of its machine see the rows. Analysts see declarations, plans, counters "
    "of steps and released models."
)
_FLOATS = (
    "Noise and samples come from a cryptographic generator seeded by the operating system. Sums and noise are whole "
    "numbers on a public grid, and the noise is drawn exactly, so the guarantee covers every bit of the model. Models "
    "of earlier releases had noise in floating point: the proof does not cover somebody who sees their exact bits."
)
_SIDE_CHANNELS = (
    "A private run starts, shows progress and ends at times that public numbers fix, or on a late machine whole "
    "intervals later; errors of a run are constant sentences; logs, progress and answers never depend on a record."
)


def evaluation(facts: CardFacts) -> list[EvaluationPoint]:
    """Return the points of NIST SP 800-226, from the top of its pyramid to the bottom."""
    paid, said = facts.budget is not None, _said(facts)
    findings: list[tuple[Layer, str, str, str | None]] = [
        (Layer.GUARANTEE, "2.2", "Privacy parameters", _parameters_in_words(facts)),
        (Layer.GUARANTEE, "2.3", "Variant of differential privacy", _SEEDED if facts.seeded else _variant(facts)),
        (Layer.GUARANTEE, "2.4", "Unit of privacy", f"{facts.privacy_unit}: {facts.neighbors}"),
        (
            Layer.GUARANTEE,
            "2.6",
            "Other releases of the same data, by this service",
            "They are all charged to one root budget, whose report composes them."
            if paid and not facts.data.public
            else "The rows are public, so nothing limits other releases about them.",
        ),
        (Layer.GUARANTEE, "2.6", "Other releases of the same data, elsewhere", said.other_releases),
        (Layer.ALGORITHM, "3.1", "Mechanism and its proof", f"{facts.algorithm}: {facts.source}"),
        (
            Layer.ALGORITHM,
            "3.1",
            "Evidence that the run did what was proved",
            "The worker executes the plan with the hash of this card, and refuses another. Attacks on it: "
            + (f"{len(facts.audits)}, in this card." if facts.audits else "none was made yet."),
        ),
        (
            Layer.ALGORITHM,
            "3.2",
            "Utility",
            ", ".join(dict.fromkeys(item.name for item in facts.utility))
            or f"No bound follows from the assumptions that were given; {_scores(facts)}.",
        ),
        (Layer.ALGORITHM, "3.3.3", "Statistical bias", "Values are clipped to declared bounds, contributions to C."),
        (Layer.ALGORITHM, "3.3.1", "Systemic bias", said.systemic_bias),
        (Layer.ALGORITHM, "3.3.2", "Human bias", said.human_bias),
        (Layer.ALGORITHM, "3.5", "Machine learning", f"{facts.model.kind}, trained by {facts.algorithm}"),
        (
            Layer.DEPLOYMENT,
            "4.1",
            "Query model",
            f"One release of {_released(facts)}; the plan was fixed before a row was read.",
        ),
        (Layer.DEPLOYMENT, "4.2", "Trust model", _TRUST),
        (Layer.DEPLOYMENT, "4.2", "Who operates the service, and why they are trusted", said.operator),
        (Layer.DEPLOYMENT, "4.3", "Randomness and floating point", _FLOATS),
        (Layer.DEPLOYMENT, "4.3", "Side channels", _SIDE_CHANNELS),
        (
            Layer.DEPLOYMENT,
            "4.4",
            "Access control",
            "Keys with scopes, stored as keyed hashes. No call returns rows; a model is served once it is paid for.",
        ),
        (Layer.DEPLOYMENT, "4.4", "Who holds keys", said.key_holders),
        (
            Layer.DEPLOYMENT,
            "4.4",
            "Data security",
            "Only the service's own user can read the files.",
        ),
        (Layer.DEPLOYMENT, "4.4", "Security of the machine, its network and its backups", said.machine_security),
        (Layer.DEPLOYMENT, "4.5", "Data collection exposure", said.data_collection),
        (Layer.DEPLOYMENT, "4.5", "Retention and deletion of the raw data", said.retention),
    ]
    return [
        EvaluationPoint(layer=layer, section=section, point=point, finding=finding)
        for layer, section, point, finding in findings
    ]


def _scores(facts: CardFacts) -> str:
    if facts.plan.evaluation is None:
        return "scores are computed only on public rows"
    return "scores are computed on held-out rows, from one noisy vector that is charged with the run"


def _released(facts: CardFacts) -> str:
    if facts.plan.evaluation is None:
        return "one model"
    return "one model and of one noisy vector of its scores on held-out rows"


def _chosen(facts: CardFacts) -> str:
    """Return who chose the hyperparameters, and from which information."""
    names = ", ".join(dict.fromkeys(choice.name for choice in facts.choices))
    own = f"The service chose from public numbers alone: {names}. " if names else ""
    return f"{own}How hyperparameters of the request were chosen is not known to the service."


def registry(facts: CardFacts) -> list[RegistryField]:
    """Return the fields of an entry of the registry, in its order."""
    parameters, said = _parameters(facts), _said(facts)
    values: dict[str, str | float | None] = {
        "basic.name": None,
        "basic.data_curators": said.curator,
        "basic.description": said.description,
        "basic.intended_use": said.intended_use,
        "basic.data_product_type": "Summary statistics" if facts.model.kind == "mean" else "Machine learning model",
        "basic.data_product_region": said.region,
        "basic.data_product_sector": said.sector,
        "basic.publication_date": None,
        "dp_variant.variant_name": None if facts.seeded else _CUSTOM.get(facts.target.kind, _variant(facts)),
        "dp_variant.data_domain": f"Tables with the declared columns and bounds of {_data_name(facts)}",
        "dp_variant.unprotected_quantities": "The declared size, columns, bounds and categories, which the owner chose "
        "as public; by how many whole intervals the machine was late.",
        "privacy_loss.privacy_unit": facts.privacy_unit,
        "privacy_loss.privacy_unit_details": f"Two data sets are neighbours where {facts.neighbors}.",
        "privacy_loss.number_of_privacy_units": said.privacy_units,
        "privacy_loss.privacy_parameters.epsilon": parameters.get("epsilon"),
        "privacy_loss.privacy_parameters.delta": parameters.get("delta"),
        "privacy_loss.privacy_parameters.rho": parameters.get("rho"),
        "privacy_loss.privacy_parameters_details": _parameters_in_words(facts),
        "deployment_model.model_name": "Central",
        "deployment_model.model_name_details": _TRUST,
        "deployment_model.trust_assumptions": said.operator,
        "deployment_model.actors": said.actors,
        "deployment_model.release_type": "One release",
        "deployment_model.release_type_details": "This card is of one run. Others on the same data have cards of their "
        "own, and are charged to the same root budget.",
        "deployment_model.data_source_type": "Static",
        "deployment_model.data_source_type_details": "The rows are those of one upload; they do not change.",
        "deployment_model.access_type": "Non-interactive",
        "deployment_model.access_type_details": said.access,
        "implementation.preprocessing_and_hyperparameter_tuning": "Features are scaled by declared bounds; nothing is "
        f"fitted to the rows. {_chosen(facts)}",
        "implementation.mechanisms": _mechanisms(facts),
        "implementation.composition": f"The events of the plan are composed by: {facts.achieved.method}.",
        "implementation.post_processing": "None by the service.",
        "implementation.justification": said.justification,
        "implementation.utility": ", ".join(dict.fromkeys(item.name for item in facts.utility)) or None,
        "implementation.additional_information": f"Plan {facts.plan_hash}",
        "administrative.evidence_sources": facts.source,
        "administrative.status": None,
        "administrative.registry_authors": said.authors,
        "administrative.tier": None,
    }
    return [RegistryField(field=field, value=value) for field, value in values.items()]


def _said(facts: CardFacts) -> DeploymentAnswers:
    """Return the operator's answers; all questions are open if none were answered."""
    return DeploymentAnswers() if facts.deployment is None else facts.deployment.answers


def _variant(facts: CardFacts) -> str:
    return _VARIANTS[facts.target.kind]


def _parameters(facts: CardFacts) -> dict[str, float | None]:
    """Return the numbers of the guarantee, all of them proved bounds. A run that protects nobody has none."""
    return {} if facts.seeded else {each.name: each.value for each in bounds_of(facts.achieved)}


def _parameters_in_words(facts: CardFacts) -> str:
    if facts.seeded:
        return _SEEDED
    numbers = ", ".join(
        f"{name} {'unbounded' if value is None else repr(value)}" for name, value in _parameters(facts).items()
    )
    return f"{numbers}: proved bounds, by {facts.achieved.method}"


def _data_name(facts: CardFacts) -> str:
    return "the rows of the request" if facts.data.dataset_id is None else facts.data.dataset_id


def _mechanisms(facts: CardFacts) -> str:
    kinds = dict.fromkeys((event.mechanism.kind, event.sampling.kind) for event in facts.events)
    steps: Any = "; ".join(f"{mechanism} with {sampling} sampling" for mechanism, sampling in kinds)
    return f"{steps}, as {facts.algorithm} carries them out"

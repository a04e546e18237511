"""The privacy card as sections of tables. Its Markdown and its page are both made from these sections.

`card_summary.py` makes the first page, for decision makers; this module makes the appendix.

The appendix has every value of the card in words. The Markdown and the page only escape these words. Long lists are
shortened to their length and their first and last numbers; the JSON has all numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from app.ledger.transparency_schemas import InclusionBody
from app.runs.card_parts import NONE, Card, Cell, Section, Table, fact_table, show
from app.runs.card_summary import summary
from app.runs.report_schemas import CertificateSummary, PrivacyReport
from app.runs.schemas import EstimateBody, MetricBody
from app.wire.answers import ProvenanceBody

LAYERS = {
    "guarantee": "The guarantee (top of the pyramid)",
    "algorithm": "The algorithm (middle)",
    "deployment": "The deployment (what the rest stands on)",
}


#: The position of the first score in `MetricBody`. The fields before it say which rows were scored, and how many.
_FIRST_SCORE = list(MetricBody.model_fields).index("records") + 1
_SCORED = (
    "Computed from the released model and from rows that are public: they cost no privacy, and tell no more of private "
    "rows than the model does."
)
_EVALUATED = (
    "Computed from one noisy vector about rows that the data set holds out of training. It is one of the events, and "
    "was charged before it was drawn. Each interval, taken alone, allows for the noise: it holds the value of the "
    "metric on these rows."
)


def card_of(report: PrivacyReport) -> Card:
    """Return the card of a report."""
    appendix = (
        _guarantee(report),
        _mechanism(report),
        _parameters(report),
        _data(report),
        _run(report),
        *_scores(report),
        *_held_out(report),
        *_sweep(report),
        _books(report),
        _audits(report),
        Section("Caveats", points=tuple(report.caveats)),
        _evaluation(report),
        _registry(report),
    )
    return Card(f"Privacy card of {report.run_id}", report.statement, summary(report), appendix)


def _run(report: PrivacyReport) -> Section:
    facts: list[tuple[str, object]] = [
        ("run", report.run_id),
        ("state", report.state),
        ("asked for", report.created_at),
        ("ended", report.finished_at),
        ("seeded", report.seeded),
        ("algorithm", report.algorithm),
        ("model", report.model),
        ("plan hash", report.plan_hash),
        ("card version", report.card_version),
    ]
    if report.problem is not None:
        facts.insert(2, ("why it did not succeed", f"{report.problem.code}: {report.problem.detail}"))
    tables = [fact_table("The run", facts, codes=("run", "algorithm", "plan hash"))]
    if report.versions is not None:
        tables.append(fact_table("What trained", [("device", report.device), *report.versions.items()]))
    return Section("Run", tables=tuple(tables))


def _scores(report: PrivacyReport) -> list[Section]:
    if not report.scores:
        return []
    tables = [
        fact_table(
            f"On {score.records} {score.rows or 'public'} rows of {score.dataset_id or 'the request'}",
            [(name, value) for name, value in list(score)[_FIRST_SCORE:] if value is not None],
        )
        for score in report.scores
    ]
    return [Section("Scores on public rows", paragraphs=(_SCORED,), tables=tuple(tables))]


def _held_out(report: PrivacyReport) -> list[Section]:
    found = report.held_out
    if found is None:
        return []
    estimates = [(name, value) for name, value in found if isinstance(value, EstimateBody)]
    rows = tuple(
        (Cell(name), Cell(show(each.estimate)), Cell(show(each.lower)), Cell(show(each.upper)))
        for name, each in estimates
    )
    others = [(name, value) for name, value in found if value is not None and not isinstance(value, EstimateBody)]
    tables = (
        Table("Metrics", ("metric", "estimate", "lower end", "upper end"), rows),
        fact_table("The noisy vector", others),
    )
    return [Section("Metrics on held-out rows", paragraphs=(_EVALUATED,), tables=tables)]


def _sweep(report: PrivacyReport) -> list[Section]:
    if report.sweep is None:
        return []
    facts = [(name, value) for name, value in dict(report.sweep).items() if name != "theorem"]
    table = fact_table("The sweep that the run belongs to", facts, codes=("id", "sweep_hash"))
    return [Section("Sweep", paragraphs=(report.sweep.theorem,), tables=(table,))]


def _guarantee(report: PrivacyReport) -> Section:
    return Section(
        "Guarantee",
        tables=(
            fact_table(
                "What is guaranteed",
                [
                    ("asked for", report.target),
                    *((f"achieved {name}", value) for name, value in _amounts_first(dict(report.achieved))),
                    ("unit of privacy", report.privacy_unit),
                    ("neighbours", report.neighbors),
                ],
            ),
            fact_table("What the numbers mean", dict(report.convention).items()),
        ),
    )


def _amounts_first(achieved: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the guaranteed amounts, followed by how they were computed."""
    return sorted(achieved.items(), key=lambda item: item[0] in ("method", "error_budget"))


def _mechanism(report: PrivacyReport) -> Section:
    rows = tuple(
        (Cell(f"{number}"), Cell(show(event.mechanism)), Cell(show(event.sampling)), Cell(show(event.count)))
        for number, event in enumerate(report.events, 1)
    )
    return Section(
        "Mechanism and sampler",
        paragraphs=(f"The theorem: {report.source}",),
        tables=(
            Table("Events, as they are charged", ("event", "mechanism", "sampling", "steps"), rows),
            fact_table("Noise of the first phase", dict(report.noise).items()),
        ),
    )


def _parameters(report: PrivacyReport) -> Section:
    tables = [
        *_plan(report),
        _choices(report),
        _provenance("Hyperparameters and their theorems", report.hyperparameters),
        _provenance("Utility", report.utility),
    ]
    if report.assumptions:
        tables.append(fact_table("Constants of the theory", report.assumptions.items()))
    if report.literal is not None:
        literal = dict(report.literal).items()
        tables.append(fact_table("The paper's own calibration, which was not executed", literal, codes=("formula",)))
    said = () if report.theorem_note is None else (report.theorem_note,)
    return Section("Parameters", paragraphs=said, tables=tuple(table for table in tables if table.rows))


def _plan(report: PrivacyReport) -> list[Table]:
    """Return the tables of what the plan executes; its events have a table of their own."""
    plan = report.plan.model_dump(mode="json")
    phases = plan.pop("phases")
    rows = [
        (Cell(str(number)), Cell(show({name: value for name, value in phase.items() if name != "event"})))
        for number, phase in enumerate(phases, 1)
    ]
    facts = plan | {"dtype": report.dtype}
    if report.dtype_reason is not None:
        facts["why this dtype"] = report.dtype_reason
    return [fact_table("The plan", facts.items()), Table("Its phases", ("phase", "what is done"), tuple(rows))]


def _choices(report: PrivacyReport) -> Table:
    """Return the table of choices for what the request left out, with the theorem's value for each."""
    rows = tuple(
        (
            Cell(item.name.rpartition(".")[2]),
            Cell(show(item.value)),
            Cell(": ".join(part for part in (show(item.theorem), item.theorem_reason) if part)),
            Cell(item.reason),
            Cell(item.source),
        )
        for item in report.choices
    )
    header = ("name", "value", "theorem's value", "reason", "source")
    return Table("Chosen from public numbers, since the request left it out", header, rows)


def _provenance(caption: str, items: list[ProvenanceBody]) -> Table:
    header = ("name", "value", "unit", "formula", "source", "kind", "assumptions", "vacuous")
    rows = tuple(
        (
            Cell(item.name),
            Cell(show(item.value)),
            Cell(item.unit or NONE),
            Cell(item.formula, is_code=True),
            Cell(item.source),
            Cell(show(item.kind)),
            Cell("; ".join(item.assumptions) or NONE),
            Cell(show(item.vacuous)),
        )
        for item in items
    )
    return Table(caption, header, rows)


def _data(report: PrivacyReport) -> Section:
    facts = [
        ("data set", report.data.dataset_id),
        ("name", report.data.name),
        ("public", report.data.public),
        ("version", report.data.version),
        ("declared size", report.data.declared_size),
        *([] if report.data.held_out_size is None else [("held out", report.data.held_out_size)]),
        ("capacity", report.data.capacity),
    ]
    return Section("Data", tables=(fact_table("What was declared", facts, codes=("data set",)),))


def _books(report: PrivacyReport) -> Section:
    if report.ledger is None or report.budget is None:
        return Section("Ledger", paragraphs=("The run has no budget: nothing was charged.",))
    charge: list[tuple[str, object]] = [
        ("budget", report.budget.id),
        ("name of the budget", report.budget.name),
        ("relation of the budget", report.budget.neighboring_relation),
        ("unit of the budget", report.budget.privacy_unit),
        ("limit of the budget", report.budget.limit),
        ("reservation", report.reservation_id),
        ("state of the reservation", report.ledger.reservation_state),
        ("purpose", report.ledger.purpose),
        ("charge", report.charge),
        ("certificate", _certificate(report.ledger.certificate)),
    ]
    header = ("entry", "kind", "sequence", "leaf", "recorded", "hash", "previous hash")
    entries = tuple(
        (
            Cell(entry.id, is_code=True),
            Cell(entry.kind),
            Cell(show(entry.sequence)),
            Cell(show(entry.leaf_index)),
            Cell(show(entry.recorded_at)),
            Cell(entry.hash, is_code=True),
            Cell(entry.previous_hash, is_code=True),
        )
        for entry in report.ledger.entries
    )
    return Section(
        "Ledger",
        tables=(
            fact_table("The charge", charge, codes=("budget", "reservation")),
            Table("Entries of the ledger", header, entries),
            _proof(report.ledger.proof),
        ),
    )


def _certificate(found: CertificateSummary | None) -> str:
    if found is None:
        return "none was asked for"
    return (
        f"epsilon <= {show(found.epsilon)} at delta {show(found.delta)} for the dominating pairs of the events that "
        f"are charged: proved, GET {found.path}, sha256 {found.sha256}; epsilond-verify checks it without the service"
    )


def _proof(proof: InclusionBody | None) -> Table:
    caption = "Proof that the last entry is in the tree of all entries"
    if proof is None:
        return fact_table(caption, [("proof", "none: the ledger does not begin with the entries that were signed")])
    return fact_table(caption, dict(proof).items(), codes=("entry_hash", "leaf_hash", "root_hash"))


def _audits(report: PrivacyReport) -> Section:
    if not report.audits:
        return Section("Audits", paragraphs=("No attack on this run's plan was made yet.",))
    header = (
        "audit",
        "design",
        "method",
        "trials",
        "epsilon is at least",
        "claimed at most",
        "at delta",
        "confidence",
        "verdict",
        "made",
    )
    rows = tuple(
        (
            Cell(audit.id, is_code=True),
            Cell(audit.design),
            Cell(audit.method),
            Cell(show(audit.trials)),
            Cell(show(audit.epsilon_lower)),
            Cell(show(audit.claimed)),
            Cell(show(audit.delta)),
            Cell(show(audit.confidence)),
            Cell(audit.verdict),
            Cell(show(audit.created_at)),
        )
        for audit in report.audits
    )
    return Section("Audits", tables=(Table("Attacks on the plan", header, rows),))


def _evaluation(report: PrivacyReport) -> Section:
    tables = tuple(
        Table(
            LAYERS[layer],
            ("point", "section", "finding"),
            tuple((Cell(item.point), Cell(item.section), Cell(item.finding)) for item in points if item.finding),
        )
        for layer, points in groupby(report.evaluation, lambda item: str(item.layer))
    )
    return Section(
        "Evaluation after NIST SP 800-226",
        paragraphs=("Each layer rests on those below it.", *_said_by(report)),
        tables=tables,
        points=_open(f"{item.point} ({item.section})" for item in report.evaluation if item.finding is None),
    )


def _registry(report: PrivacyReport) -> Section:
    rows = tuple(
        (Cell(item.field, is_code=True), Cell(show(item.value))) for item in report.registry if item.value is not None
    )
    return Section(
        "Entry for the registry of deployments",
        tables=(Table("Fields", ("field", "value"), rows),),
        points=_open(item.field for item in report.registry if item.value is None),
    )


def _said_by(report: PrivacyReport) -> tuple[str, ...]:
    """Return a sentence about who answered the operator's questions, if anybody did."""
    said = report.deployment
    if said is None:
        return ()
    of = "for a budget above this run's" if said.inherited else "for the budget"
    return (f"Facts that no service can know were stated {of} by {said.principal_id} at {show(said.stated_at)}.",)


def _open(names: Iterable[str]) -> tuple[str, ...]:
    """Return a sentence that lists the points which the operator has not answered, if there are any."""
    found = ", ".join(names)
    return (f"The operator of the service has not said: {found}.",) if found else ()

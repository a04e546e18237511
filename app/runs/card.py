"""The privacy card as sections of tables: what Markdown and the page have in common, made from the one object.

Every value of the object is in it, in words that both renderings only escape. Long lists of numbers alone are told by
their length and ends: all of their numbers are in the JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any

from pydantic import BaseModel

from app.kit.timestamps import format_moment
from app.ledger.transparency_schemas import InclusionBody
from app.runs.report_schemas import CertificateSummary, PrivacyReport
from app.runs.schemas import EstimateBody, MetricBody
from app.wire.answers import ProvenanceBody

NOT_STATED = "not stated; the operator's to say"
NONE = "none"
#: Longer lists of numbers are told by their ends.
LISTED_NUMBERS = 12

LAYERS = {
    "guarantee": "The guarantee (top of the pyramid)",
    "algorithm": "The algorithm (middle)",
    "deployment": "The deployment (what the rest stands on)",
}


#: Which rows were scored, and how many, comes before.
_FIRST_SCORE = list(MetricBody.model_fields).index("records") + 1
_SCORED = (
    "Computed from the released model and from rows that are public: they cost no privacy, and tell no more of private "
    "rows than the model does."
)
_EVALUATED = (
    "Computed from one noisy vector about rows that the data set holds out of training. It is one of the events, and "
    "was charged before it was drawn. Each interval is about the noise, and holds what these rows say by itself."
)


@dataclass(frozen=True)
class Cell:
    """A text; `is_code` for what is copied rather than read: ids, hashes, formulas."""

    text: str
    is_code: bool = False


@dataclass(frozen=True)
class Table:
    """The first cell of a row is its head."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Section:
    title: str
    paragraphs: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    points: tuple[str, ...] = ()


@dataclass(frozen=True)
class Card:
    title: str
    statement: str
    sections: tuple[Section, ...] = field(default=())


def card_of(report: PrivacyReport) -> Card:
    """The card of a report."""
    sections = (
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
    return Card(f"Privacy card of {report.run_id}", report.statement, sections)


def show(value: object) -> str:
    """A value of the object in words.

    >>> show({"kind": "poisson", "sampling_probability": 0.02}), show([1.0, 2.0]), show(None), show(True)
    ('poisson: sampling_probability 0.02', '1.0, 2.0', 'none', 'yes')
    """
    if isinstance(value, BaseModel):
        value = dict(value)
    if isinstance(value, Mapping):
        parts = [f"{name} {show(item)}" for name, item in value.items() if name != "kind"]
        return ": ".join(part for part in (str(value.get("kind", "")), ", ".join(parts)) if part) or NONE
    if isinstance(value, list | tuple):
        return _show_list(list(value))
    return _show_one(value)


def _show_one(value: object) -> str:
    match value:
        case None:
            return NONE
        case bool():
            return "yes" if value else "no"
        case float():
            return repr(value)
        case datetime():
            return format_moment(value)
    return str(value)


def _show_list(values: list[object]) -> str:
    numbers = [value for value in values if isinstance(value, int | float)]
    if len(numbers) == len(values) > LISTED_NUMBERS:
        return (
            f"{len(values)} numbers, from {show(values[0])} to {show(values[-1])}, the least {show(min(numbers))} and "
            f"the greatest {show(max(numbers))}"
        )
    return ", ".join(map(show, values)) or NONE


def _facts(caption: str, facts: Iterable[tuple[str, object]], *, codes: Iterable[str] = ()) -> Table:
    named = set(codes)
    rows = tuple(
        (Cell(name.replace("_", " ")), Cell(show(value), name in named and value is not None)) for name, value in facts
    )
    return Table(caption, ("what", "is"), rows)


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
    tables = [_facts("The run", facts, codes=("run", "algorithm", "plan hash"))]
    if report.versions is not None:
        tables.append(_facts("What trained", [("device", report.device), *report.versions.items()]))
    return Section("Run", tables=tuple(tables))


def _scores(report: PrivacyReport) -> list[Section]:
    if not report.scores:
        return []
    tables = [
        _facts(
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
        _facts("The noisy vector", others),
    )
    return [Section("Metrics on held-out rows", paragraphs=(_EVALUATED,), tables=tables)]


def _sweep(report: PrivacyReport) -> list[Section]:
    if report.sweep is None:
        return []
    facts = [(name, value) for name, value in dict(report.sweep).items() if name != "theorem"]
    table = _facts("The sweep that the run belongs to", facts, codes=("id", "sweep_hash"))
    return [Section("Sweep", paragraphs=(report.sweep.theorem,), tables=(table,))]


def _guarantee(report: PrivacyReport) -> Section:
    return Section(
        "Guarantee",
        tables=(
            _facts(
                "What is guaranteed",
                [
                    ("asked for", report.target),
                    *((f"achieved {name}", value) for name, value in _amounts_first(dict(report.achieved))),
                    ("unit of privacy", report.privacy_unit),
                    ("neighbours", report.neighbors),
                ],
            ),
            _facts("What the numbers mean", dict(report.convention).items()),
        ),
    )


def _amounts_first(achieved: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return what is guaranteed, and then how it was found."""
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
            _facts("Noise of the first phase", dict(report.noise).items()),
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
        tables.append(_facts("Constants of the theory", report.assumptions.items()))
    if report.literal is not None:
        literal = dict(report.literal).items()
        tables.append(_facts("The paper's own calibration, which was not executed", literal, codes=("formula",)))
    return Section("Parameters", tables=tuple(table for table in tables if table.rows))


def _plan(report: PrivacyReport) -> list[Table]:
    """Return what the plan executes; its events are a table of their own."""
    plan = report.plan.model_dump(mode="json")
    phases = plan.pop("phases")
    rows = [
        (Cell(str(number)), Cell(show({name: value for name, value in phase.items() if name != "event"})))
        for number, phase in enumerate(phases, 1)
    ]
    facts = plan | {"dtype": report.dtype}
    if report.dtype_reason is not None:
        facts["why this dtype"] = report.dtype_reason
    return [_facts("The plan", facts.items()), Table("Its phases", ("phase", "what is done"), tuple(rows))]


def _choices(report: PrivacyReport) -> Table:
    """Return the table of what the request left out, with the theorem's value beside each choice."""
    rows = tuple(
        (Cell(item.name), Cell(show(item.value)), Cell(show(item.theorem)), Cell(item.reason), Cell(item.source))
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
    return Section("Data", tables=(_facts("What was declared", facts, codes=("data set",)),))


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
            _facts("The charge", charge, codes=("budget", "reservation")),
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
        return _facts(caption, [("proof", "none: the ledger does not begin with what was signed of it")])
    return _facts(caption, dict(proof).items(), codes=("entry_hash", "leaf_hash", "root_hash"))


def _audits(report: PrivacyReport) -> Section:
    if not report.audits:
        return Section("Audits", paragraphs=("No attack on this run's plan was made yet.",))
    header = ("audit", "method", "trials", "epsilon is at least", "at delta", "confidence", "verdict", "made")
    rows = tuple(
        (
            Cell(audit.id, is_code=True),
            Cell(audit.method),
            Cell(show(audit.trials)),
            Cell(show(audit.epsilon_lower)),
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
            tuple((Cell(item.point), Cell(item.section), _open(item.finding)) for item in points),
        )
        for layer, points in groupby(report.evaluation, lambda item: str(item.layer))
    )
    return Section(
        "Evaluation after NIST SP 800-226",
        paragraphs=("Each layer rests on those below it. What is open is for whoever operates the service to say.",),
        tables=tables,
    )


def _registry(report: PrivacyReport) -> Section:
    rows = tuple((Cell(item.field, is_code=True), _open(item.value)) for item in report.registry)
    return Section("Entry for the registry of deployments", tables=(Table("Fields", ("field", "value"), rows),))


def _open(value: str | float | None) -> Cell:
    return Cell(NOT_STATED if value is None else show(value))

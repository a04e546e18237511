"""`epsilond calibrate`, `sweep` and `advise`: computed here, without a server or a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from app.cli import choices
from app.cli.certificates import CertificateFile, certificate_facts, write_certificate
from app.cli.output import AsJson, example, interval, print_answer, print_facts, print_table, print_text, print_warnings
from app.cli.refusals import fail
from app.cli.requests import NeededFile, RequestFile, asked, words

commands = typer.Typer(rich_markup_mode=None)

#: The most entries of a list that tables show; JSON has all of them.
_SHOWN = 4


@commands.command(
    epilog=example(
        "epsilond calibrate dp_sgd --dataset-size 50000 --batch-size 1000 --iterations 5000 --max-grad-norm 1 \\\n"
        "    --epsilon 8 --delta 1e-5"
    )
)
def calibrate(
    algorithm: Annotated[
        str | None,
        typer.Argument(
            metavar="ALGORITHM", help="The name of an algorithm, such as dp_sgd; `advise` says which apply."
        ),
    ] = None,
    dataset_size: Annotated[int | None, typer.Option(help="A public number of records.")] = None,
    batch_size: choices.BatchSize = None,
    iterations: choices.Iterations = None,
    epochs: choices.Epochs = None,
    sampling: choices.Sampling = None,
    relation: choices.Relation = None,
    max_grad_norm: choices.MaxGradNorm = None,
    regularizer: choices.Regularizer = None,
    epsilon: choices.Epsilon = None,
    delta: choices.Delta = None,
    group_size: choices.GroupSize = None,
    rho: choices.Rho = None,
    mu: choices.Mu = None,
    preset: choices.Preset = None,
    step_size: choices.StepSize = None,
    step_sizes: choices.StepSizes = None,
    cooldown: choices.Cooldown = None,
    averaged_share: choices.AveragedShare = None,
    momentum: choices.Momentum = None,
    bands: choices.Bands = None,
    dtype: choices.Dtype = None,
    assumptions: choices.Assumption = None,
    dimension: Annotated[int | None, typer.Option(help="Number of parameters; the utility bound needs it.")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise multiplier, if something else is solved for.")
    ] = None,
    solve_for: Annotated[
        str | None,
        typer.Option(
            help="What is left out: noise-multiplier, iterations, batch-size, epsilon or delta.",
            show_default="noise-multiplier",
        ),
    ] = None,
    judge_literal: Annotated[
        bool, typer.Option("--judge-literal", help="Judge whether the paper's own calibration meets the target.")
    ] = False,
    certificate: CertificateFile = None,
    request: RequestFile = None,
    as_json: AsJson = False,
) -> None:
    """Find the noise, steps, batch size or privacy for a target.

    The privacy that this very value achieves is certified. Domains, penalties, other targets, and lists of events
    without an algorithm need --request.
    """
    fields = choices.fields_of(
        algorithm,
        batch_size=batch_size,
        iterations=iterations,
        epochs=epochs,
        sampling=sampling,
        relation=relation,
        max_grad_norm=max_grad_norm,
        regularizer=regularizer,
        epsilon=epsilon,
        delta=delta,
        group_size=group_size,
        rho=rho,
        mu=mu,
        preset=preset,
        step_size=step_size,
        step_sizes=step_sizes,
        cooldown=cooldown,
        averaged_share=averaged_share,
        momentum=momentum,
        bands=bands,
        dtype=dtype,
        assumptions=assumptions,
    )
    fields += [
        ("--dataset-size", "/dataset_size", dataset_size),
        ("--dimension", "/dimension", dimension),
        ("--noise-multiplier", "/noise_multiplier", noise_multiplier),
        ("--solve-for", "/solve_for", words(solve_for)),
        ("--judge-literal", "/judge_literal", judge_literal or None),
        ("--certificate", "/certificate", None if certificate is None else True),
    ]
    question = asked(request, fields)
    # Imported here, as below, because `--help` does not need it.
    from app.algorithms import service
    from app.algorithms.calibrate import CalibrateAnswer, CalibrateRequest
    from app.algorithms.questions import names_a_budget
    from app.auth.principal import SERVICE
    from app.cli.in_process import answer
    from app.context import Context

    if isinstance(question.body, Mapping) and "events" in question.body:
        from app.algorithms.open_events import CalibrateEventsRequest
        from app.algorithms.open_events import answer as answer_events

        print_answer(answer(CalibrateEventsRequest, question, answer_events), as_json, _print_events)
        return

    def respond(context: Context, asked_for: CalibrateRequest) -> CalibrateAnswer:
        _refuse_budgets(names_a_budget(asked_for), "/v1/calibrate")
        return service.answer(context, asked_for, SERVICE)

    found = answer(CalibrateRequest, question, respond)
    write_certificate(certificate, found)
    print_answer(found, as_json, _print_calibration)


@commands.command(epilog=example("epsilond sweep --request sweep.json"))
def sweep(request: NeededFile, as_json: AsJson = False) -> None:
    """Calibrate once for each value of one field.

    The request is one of `calibrate` in which exactly one field takes a list.
    """
    question = asked(request, [])
    from app.auth.principal import SERVICE
    from app.cli.in_process import answer
    from app.context import Context
    from app.sweeps import service
    from app.sweeps.schemas import SweepAnswer, SweepRequest

    def respond(context: Context, asked_for: SweepRequest) -> SweepAnswer:
        _refuse_budgets(service.names_a_budget(asked_for), "/v1/sweep")
        return service.sweep(context, asked_for, SERVICE)

    print_answer(answer(SweepRequest, question, respond), as_json, _print_sweep)


@commands.command(epilog=example("epsilond advise --request problem.json --simulate"))
def advise(
    request: NeededFile,
    simulate: Annotated[
        bool,
        typer.Option(
            "--simulate", help="Run the applicable algorithms on synthetic rows, too, and rank them by their results."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say which algorithms apply to a problem, and why others do not.

    They are ranked by what their theorems promise, and with --simulate by what they attain on synthetic rows, too.
    """
    question = asked(request, [])
    if simulate and isinstance(question.body, dict):
        question.body.setdefault("simulation", {})
    from app.algorithms import advice
    from app.cli.in_process import answer
    from app.cli.progress import progress_bar
    from app.context import Context

    with progress_bar("advice") as reached:

        def respond(context: Context, asked_for: advice.AdviseRequest) -> advice.AdviseAnswer:
            return advice.answer(context, asked_for, reached)

        found = answer(advice.AdviseRequest, question, respond)
    print_answer(found, as_json, _print_advice)


def _refuse_budgets(named: bool, path: str) -> None:
    if named:
        fail(
            "This command asks no server, and only the server of a budget knows what is left: send this request to "
            f"POST {path} of that server."
        )


def _print_calibration(found: Mapping[str, Any]) -> None:
    print_facts(
        {
            **_chosen(found),
            **found["solution"],
            **_ends(found["achieved"]),
            **{f"noise_{name}": value for name, value in found["noise"].items()},
            "relation": found["convention"]["neighboring_relation"],
            "sampling": list(dict.fromkeys(event["sampling"]["kind"] for event in found["events"])),
            "sampling_probability": found["convention"]["sampling_probability"],
            "dtype": found["dtype"],
            "why_this_dtype": found["dtype_reason"],
            "the theorem's choices": found.get("theorem_note"),
            "plan_hash": found["plan_hash"],
            "still_missing": ", ".join(found["missing_assumptions"]),
            **_of_the_paper(found["literal"]),
            **dict(certificate_facts(found)),
        }
    )
    rows = [(each["name"], _brief(each["value"]), each["kind"], each["source"]) for each in _numbers(found)]
    if rows:
        print_text("")
        print_table(("name", "value", "kind", "source"), rows)
    if others := found.get("alternatives"):
        print_text("")
        columns = ("sampling", "bands", "noise_multiplier", "error", "ratio", "memory", "is_chosen", "is_allowed")
        print_table(columns, [tuple(each[name] for name in columns) for each in others])
    print_warnings(found["warnings"])


def _chosen(found: Mapping[str, Any]) -> Mapping[str, object]:
    """Return the properties of the training loop that were chosen because the request left them out. Another loop would
    need other noise."""
    chosen = {choice["name"]: choice["value"] for choice in found.get("choices", ())}
    facts = {}
    for name in ("algorithm", "gradient_bound"):
        if name in chosen:
            value = chosen[name]
            words = " ".join(map(str, value.values())) if isinstance(value, dict) else value
            facts[name] = f"{words} (chosen because the request names none)"
    return facts


def _print_events(found: Mapping[str, Any]) -> None:
    print_facts(
        {
            found["solve_for"]: found["value"],
            **_ends(found["achieved"]),
            "relation": found["convention"]["neighboring_relation"],
            "proved_extreme": found["is_extreme"],
        }
    )
    print_warnings(found["warnings"])


def _of_the_paper(literal: Mapping[str, Any] | None) -> Mapping[str, object]:
    """Return the verdict on the calibration that the paper prescribes, if it was judged."""
    if literal is None or literal["verdict"] is None:
        return {}
    return {"formula_printed_in_the_paper": f"{literal['verdict']} (it is not used)", "why": literal["why"]}


def _numbers(found: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return [*found["hyperparameters"], *found["utility"]]


def _ends(achieved: Mapping[str, Any]) -> Mapping[str, object]:
    """Return the achieved numbers; an interval is returned as its two ends."""
    ends: dict[str, object] = {}
    for name, value in achieved.items():
        if name == "error_budget":
            continue
        if isinstance(value, dict):
            ends[f"{name}_lower"], ends[f"{name}_upper"] = interval(value)
        else:
            ends[name] = value
    return ends


def _print_sweep(found: Mapping[str, Any]) -> None:
    solved = [row for row in found["rows"] if row["problem"] is None]
    names = list(solved[0]["solution"]) if solved else []
    rows = [
        (
            row["value"],
            *(_brief((row["solution"] or {}).get(name)) for name in names),
            (row["problem"] or {}).get("detail", ""),
        )
        for row in found["rows"]
    ]
    print_table((found["field"], *names, "problem"), rows)


def _print_advice(found: Mapping[str, Any]) -> None:
    rows = [
        (place, each["algorithm"], group["measure"], _brief((each["bound"] or {}).get("value")), each["why"])
        for group in found["measures"]
        for place, each in enumerate(group["ranked"], 1)
    ]
    print_table(("rank", "algorithm", "measure", "bound", "why"), rows)
    print_text("")
    print_table(
        ("does not apply", "because"), [(each["algorithm"], each["reasons"][0]["detail"]) for each in found["others"]]
    )
    if simulation := found.get("simulation"):
        _print_simulation(simulation)
    if batches := found.get("batches"):
        print_text("")
        print_text(batches["detail"])
        columns = ("algorithm", "sampling", "bands", "noise_multiplier", "error", "ratio", "is_possible")
        print_table(columns, [tuple(each[name] for name in columns) for each in batches["ranked"]])
    print_warnings(found["warnings"])


def _print_simulation(found: Mapping[str, Any]) -> None:
    print_text("")
    print_text(found["label"])
    for detail in found["details"]:
        print_text(detail)
    print_text(
        f"{found['dataset_size']} rows, {found['repetitions']} runs each, seed {found['seed']}; {found['unit']}:"
    )
    columns = ("algorithm", "excess", "standard_error", "iterations", "why")
    rows = enumerate(found["ranked"], 1)
    print_table(("rank", *columns), [(place, *(each[name] for name in columns)) for place, each in rows])
    if found["others"]:
        print_table(
            ("not simulated", "because"),
            [(each["algorithm"], each["reasons"][0]["detail"]) for each in found["others"]],
        )


def _brief(value: object) -> object:
    if isinstance(value, list) and len(value) > _SHOWN:
        return f"{', '.join(map(str, value[:_SHOWN]))}, ... ({len(value)} in all)"
    return value

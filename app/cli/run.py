"""`epsilond run`: private training, by a server."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli import choices
from app.cli.files import Output, whole_file
from app.cli.output import (
    AsJson,
    amounts,
    clean,
    example,
    price_in_words,
    print_error,
    print_facts,
    print_page,
    print_text,
    print_warnings,
)
from app.cli.prediction import as_csv, predictions
from app.cli.progress import progress_bar
from app.cli.refusals import Status
from app.cli.requests import RequestFile, asked, words
from app.cli.server import DEFAULT_URL, Cursor, IdempotencyKey, Limit, Server, Url, segment

commands = typer.Typer(name="run", help="Private training on a server.", no_args_is_help=True, rich_markup_mode=None)

RunId = Annotated[str, typer.Argument(metavar="RUN", help="The id, as `run list` shows it.")]


class ModelFormat(StrEnum):
    """The format of a model's file."""

    JSON = "json"
    NPZ = "npz"


class CardFormat(StrEnum):
    """The format of a privacy card."""

    MARKDOWN = "markdown"
    HTML = "html"
    JSON = "json"


@commands.command(
    epilog=example("epsilond run create --dataset ds_digits --model softmax-regression --epsilon 3 --delta 1e-5 --wait")
)
def create(
    algorithm: Annotated[
        str | None,
        typer.Argument(
            metavar="[ALGORITHM]", help="An algorithm, such as dp_sgd; `advise` says which apply. May be omitted."
        ),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Id or name of the data set, such as ds_digits.")] = None,
    dataset_version: Annotated[
        int | None, typer.Option(help="A version of private data; by default the newest one.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The kind of the model, such as softmax-regression.")] = None,
    class_priors: choices.ClassPrior = None,
    budget: Annotated[
        str | None, typer.Option(help="Id or name of the budget that pays; by default the data set's own.")
    ] = None,
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
    test_dataset: Annotated[
        str | None, typer.Option(help="Id or name of a public data set that scores the model.")
    ] = None,
    evaluate: Annotated[
        bool, typer.Option("--evaluate", help="Evaluate the model on held-out rows, as a part of its target.")
    ] = False,
    evaluation_noise: Annotated[
        float | None,
        typer.Option(
            help="Noise multiplier of the evaluation on held-out rows; by default it takes a tenth of the target."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Makes the run repeatable; only for public data.")] = None,
    plan_hash: Annotated[
        str | None, typer.Option(help="Run only the plan with this hash, which `calibrate` shows.")
    ] = None,
    certificate: Annotated[
        bool, typer.Option("--certificate", help="Keep a proof of the charge with it, for epsilond-verify.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the run to its end.")] = False,
    request: RequestFile = None,
    idempotency_key: IdempotencyKey = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Calibrate, charge and queue a run.

    Data, model and target are enough. Omitted values are chosen from public numbers, and shown with the reasons.
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
    server = Server(url)
    dataset_id = server.dataset_id(dataset) if dataset else None
    fields += [
        ("--dataset", "/dataset_id", dataset_id),
        ("--dataset-version", "/dataset_version", dataset_version),
        ("--model", "/model", None),
        ("--model", "/model/kind", words(model)),
        ("--class-prior", "/model/class_priors", choices.priors_of(class_priors)),
        ("--budget", "/budget_id", server.budget_id(budget) if budget else _own_budget(server, dataset_id)),
        ("--test-dataset", "/test_dataset_id", test_dataset and server.dataset_id(test_dataset)),
        ("--evaluate", "/evaluation", {} if evaluate else None),
        ("--evaluation-noise", "/evaluation/noise_multiplier", evaluation_noise),
        ("--seed", "/seed", seed),
        ("--plan-hash", "/expected_plan_hash", plan_hash),
        ("--certificate", "/certificate", certificate or None),
    ]
    text = server.post("/v1/runs", asked(request, fields), idempotency_key)
    if wait:
        _follow(server, server.field(text, "id"), as_json)
    else:
        server.tell(text, as_json, _print_run)


def _own_budget(server: Server, dataset_id: str | None) -> str | None:
    """Return the budget that the data set is bound to; None for public data."""
    if dataset_id is None:
        return None
    dataset = server.get(f"/v1/datasets/{segment(dataset_id)}")
    return None if server.field(dataset, "public") == "True" else server.field(dataset, "budget_id")


@commands.command("list", epilog=example("epsilond run list"))
def list_runs(limit: Limit = None, cursor: Cursor = None, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """List the runs, newest first."""
    server = Server(url)
    text = server.get("/v1/runs", {"limit": limit, "cursor": cursor})
    server.tell(text, as_json, _print_runs)


@commands.command(epilog=example("epsilond run show RUN"))
def show(run_id: RunId, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Show one run: its state, progress, charge and result."""
    server = Server(url)
    server.tell(server.get(f"/v1/runs/{segment(run_id)}"), as_json, _print_run)


@commands.command(epilog=example("epsilond run follow RUN"))
def follow(run_id: RunId, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Watch a run to its end. The status is 1 if the run did not succeed. Ctrl+C leaves the run running."""
    _follow(Server(url), run_id, as_json)


@commands.command(epilog=example("epsilond run cancel RUN"))
def cancel(
    run_id: RunId, idempotency_key: IdempotencyKey = None, url: Url = DEFAULT_URL, as_json: AsJson = False
) -> None:
    """Cancel a run. Once it has started, it is charged for the noise that it may have drawn."""
    server = Server(url)
    text = server.post(f"/v1/runs/{segment(run_id)}/cancel", None, idempotency_key)
    server.tell(text, as_json, _print_run)


@commands.command(epilog=example("epsilond run model RUN --format npz --output model.npz"))
def model(
    run_id: RunId,
    file_format: Annotated[ModelFormat, typer.Option("--format", help="npz is NumPy's format.")] = ModelFormat.JSON,
    output: Output = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Show the released model of a run.

    This shows its parameters, the features they belong to, and the classes.
    """
    if file_format is ModelFormat.NPZ and output is None:
        raise typer.BadParameter("npz is a binary format: name a file with --output", param_hint="--format")
    _write(Server(url).get(f"/v1/runs/{segment(run_id)}/model", {"format": file_format}, accept="*/*"), output)


@commands.command(epilog=example("epsilond run predict RUN --rows new.csv"))
def predict(
    model: Annotated[
        str,
        typer.Argument(metavar="RUN|FILE", help="The id of a run, or a file of `run model --format npz`."),
    ],
    rows: Annotated[
        Path, typer.Option(metavar="CSV", help="Rows with the columns of the model's features, in any order.")
    ],
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Print the probability of each class, too.")
    ] = False,
    output: Output = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Predict the rows of a CSV file with a released model.

    This costs no privacy. The model is fetched and the rows stay here; with a file, no server is asked.
    """
    label, found = predictions(model, rows, url)
    if as_json:
        _write(found.model_dump_json().encode(), output)
    else:
        _write(as_csv(label, found, with_probabilities=probabilities), output)


@commands.command(epilog=example("epsilond run card RUN"))
def card(
    run_id: RunId,
    file_format: Annotated[CardFormat, typer.Option("--format", help="html is a page.")] = CardFormat.MARKDOWN,
    output: Output = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show the privacy card of a run.

    The card has the guarantee, the parameters with their theorems, the charge and its entries in the ledger, and
    caveats.
    """
    wanted = CardFormat.JSON if as_json else file_format
    _write(Server(url).get(f"/v1/runs/{segment(run_id)}/report", {"format": wanted}, accept="*/*"), output)


def _follow(server: Server, run_id: str, as_json: bool) -> None:
    try:
        with progress_bar(run_id) as reached:
            for event in server.progress(f"/v1/runs/{segment(run_id)}/events"):
                reached(event.done, event.total)
        text = server.get(f"/v1/runs/{segment(run_id)}")
    except KeyboardInterrupt:
        print_error(f"The run goes on. `epsilond run follow {run_id}` watches it again, `run cancel` ends it.")
        raise typer.Exit(Status.INTERRUPTED) from None
    server.tell(text, as_json, _print_run)
    if server.field(text, "state") != "succeeded":
        raise typer.Exit(Status.REFUSED)


def _write(content: bytes, output: Path | None) -> None:
    if output is not None:
        with whole_file(output) as file:
            file.write(content)
        print_error(f"{len(content)} bytes were written to {output}.")
    else:
        for line in content.decode().splitlines():
            print_text(clean(line))


def _print_runs(page: Mapping[str, Any]) -> None:
    print_page(
        page,
        ("id", "state", "algorithm", "progress", "budget", "created"),
        lambda run: (
            run["id"],
            run["state"],
            run["algorithm"],
            _progress(run),
            run["budget_id"],
            run["created_at"],
        ),
    )


_SCORES = ("metrics", "held_out", "noisy_score")
#: Runs on public rows always have a score, so a run without a score used private rows.
_NO_SCORE = (
    "none: a score on private rows would be a release of its own. Score the next run on public rows with "
    "--test-dataset, or on held-out rows with --evaluate"
)


def _print_run(run: Mapping[str, Any]) -> None:
    result = run["result"] or {}
    print_facts(
        {
            "id": run["id"],
            "state": run["state"],
            "problem": run["problem"] and run["problem"]["detail"],
            "algorithm": run["algorithm"],
            "progress": _progress(run),
            "dataset": run["dataset_id"],
            "dataset_version": run["dataset_version"],
            "budget": run["budget_id"],
            "charge": amounts(run["charge"] or {}),
            "given back": run["given_back"] and amounts(run["given_back"]),
            "price": price_in_words(run["price"]),
            "dtype": run["dtype"],
            "why_this_dtype": run["dtype_reason"],
            "chosen": ", ".join(f"{each['name']} {_chosen(each['value'])}" for each in run["choices"]) or None,
            "the theorem's choices": run.get("theorem_note") if run["choices"] else None,
            "plan_hash": run["plan_hash"],
            "device": result.get("device"),
            **{f"score on {each['dataset_id'] or 'rows'}": _score(each) for each in result.get("metrics", ())},
            **_held_out(result.get("held_out") or {}),
            "noisy score": result.get("noisy_score"),
            "score": _NO_SCORE if result and not any(result[each] for each in _SCORES) else None,
            "finished": run["finished_at"],
            # A private run is shown as running until this moment, even if it has trained.
            "end is told at": None if run["finished_at"] else run["release_at"],
        }
    )
    print_warnings(run["warnings"])


def _progress(run: Mapping[str, Any]) -> str:
    return f"{run['progress']['done']} of {run['progress']['total']}"


def _score(metric: Mapping[str, Any]) -> str:
    name = "accuracy" if metric["accuracy"] is not None else "mean_absolute_error"
    return f"{name} {metric[name]} ({metric['records']} rows)"


def _held_out(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the metrics on held-out rows as texts, each with its interval."""
    estimates = {name: each for name, each in found.items() if isinstance(each, Mapping)}
    return {f"held-out {name}": _estimate(each) for name, each in estimates.items()}


def _estimate(found: Mapping[str, Any]) -> str:
    estimate, lower, upper = (
        "unknown" if found[name] is None else f"{found[name]:.4g}" for name in ("estimate", "lower", "upper")
    )
    return f"{estimate} (from {lower} to {upper})"


def _chosen(value: object) -> str:
    """Describe a chosen value in a word or two. For a gradient bound, these are its kind and its number."""
    if isinstance(value, Mapping):
        return " ".join(_chosen(each) for each in value.values())
    return f"{value:.4g}" if isinstance(value, float) else str(value)

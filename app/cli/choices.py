"""The options that calibrations and runs share. They describe an algorithm and its target, as fields of a request."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.requests import words

Field = tuple[str, str, object]

BatchSize = Annotated[int | None, typer.Option(help="Nominal batch size: sampling probability times data set size.")]
Iterations = Annotated[int | None, typer.Option(help="Number of steps.")]
Epochs = Annotated[float | None, typer.Option(help="Passes over the data, in place of --iterations.")]
Sampling = Annotated[
    str | None,
    typer.Option(help="How batches are drawn, such as poisson or full-batch.", show_default="the algorithm's own"),
]
Relation = Annotated[
    str | None,
    typer.Option(
        "--relation", help="What differs between neighbours: add-or-remove-one, replace-one, replace-special."
    ),
]
MaxGradNorm = Annotated[float | None, typer.Option(help="Clip each record's gradient to this norm.")]
Regularizer = Annotated[
    float | None, typer.Option(help="Normalise each record's gradient with this constant, in place of clipping.")
]
Epsilon = Annotated[float | None, typer.Option(help="epsilon of the target, beside --delta.")]
Delta = Annotated[float | None, typer.Option(help="delta of the target, beside --epsilon.")]
GroupSize = Annotated[
    int | None, typer.Option(help="Records of one owner that --epsilon and --delta protect together.")
]
Rho = Annotated[float | None, typer.Option(help="A target in zCDP.")]
Mu = Annotated[float | None, typer.Option(help="A target in Gaussian DP.")]
Preset = Annotated[
    str | None,
    typer.Option(
        help="How to choose omitted values from public numbers alone: practical or theorem.", show_default=False
    ),
]
StepSize = Annotated[float | None, typer.Option(help="A step size of your own, in place of the theorem's.")]
AveragedShare = Annotated[
    float | None, typer.Option(help="Share of the steps, at the end, whose points are averaged; needs --step-size.")
]
Momentum = Annotated[float | None, typer.Option(help="Share of the last step in the next one, with correlated noise.")]
StepSizes = Annotated[
    str | None,
    typer.Option(
        "--step-sizes",
        help="How step sizes change, with correlated noise: constant, linear or cosine.",
        show_default="constant",
    ),
]
Cooldown = Annotated[float | None, typer.Option(help="Share of the steps, at the end, in which step sizes fall to 0.")]
Bands = Annotated[
    str | None, typer.Option(help="Bands of correlated noise: a number, or auto, the default.", show_default=False)
]
Dtype = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        help="The numeric type of a run: float32 or float64.",
        show_default="float32, or float64 where the plan needs it",
    ),
]
Assumption = Annotated[
    list[str] | None,
    typer.Option("--assumption", metavar="NAME=VALUE", help="A constant of the problem; may be repeated."),
]
ClassPrior = Annotated[
    list[str] | None,
    typer.Option(
        "--class-prior",
        metavar="CLASS=SHARE",
        help="The public share of a class; give one for each class, so that all classes weigh the same.",
    ),
]


def fields_of(
    algorithm: str | None,
    *,
    batch_size: int | None,
    iterations: int | None,
    epochs: float | None,
    sampling: str | None,
    relation: str | None,
    max_grad_norm: float | None,
    regularizer: float | None,
    epsilon: float | None,
    delta: float | None,
    group_size: int | None,
    rho: float | None,
    mu: float | None,
    preset: str | None,
    step_size: float | None,
    step_sizes: str | None,
    cooldown: float | None,
    averaged_share: float | None,
    momentum: float | None,
    bands: str | None,
    dtype: str | None,
    assumptions: list[str] | None,
) -> list[Field]:
    """Return the fields that the options give.

    Raises:
        typer.BadParameter: options that exclude each other are given, or an assumption is not a number.
    """
    bounds = {"clip": max_grad_norm, "normalize": regularizer}
    targets = {"approximate_dp": epsilon if epsilon is not None else delta, "zcdp": rho, "gaussian_dp": mu}
    return [
        ("ALGORITHM", "/algorithm", algorithm),
        ("--preset", "/preset", preset),
        ("--batch-size", "/batch_size", batch_size),
        ("--iterations", "/iterations", iterations),
        ("--epochs", "/epochs", epochs),
        ("--sampling", "/sampling", words(sampling)),
        ("--relation", "/neighboring_relation", words(relation)),
        ("--max-grad-norm", "/gradient_bound", None),
        ("--max-grad-norm", "/gradient_bound/kind", _only_one(bounds, "--max-grad-norm or --regularizer")),
        ("--max-grad-norm", "/gradient_bound/max_grad_norm", max_grad_norm),
        ("--regularizer", "/gradient_bound/regularizer", regularizer),
        ("--epsilon", "/target", None),
        ("--epsilon", "/target/kind", _only_one(targets, "--epsilon and --delta, --rho, or --mu")),
        ("--epsilon", "/target/epsilon", epsilon),
        ("--delta", "/target/delta", delta),
        ("--group-size", "/target/group_size", group_size),
        ("--rho", "/target/rho", rho),
        ("--mu", "/target/mu", mu),
        ("--step-size", "/hyperparameters/step_size", step_size),
        ("--step-sizes", "/hyperparameters/step_size_schedule", None),
        ("--step-sizes", "/hyperparameters/step_size_schedule/kind", words(step_sizes)),
        ("--cooldown", "/hyperparameters/step_size_schedule/cooldown", cooldown),
        ("--averaged-share", "/hyperparameters/averaged_share", averaged_share),
        ("--momentum", "/hyperparameters/momentum", momentum),
        ("--bands", "/correlation/bands", int(bands) if bands is not None and bands.isdecimal() else bands),
        ("--dtype", "/dtype", dtype),
        *(("--assumption", f"/assumptions/{name}", value) for name, value in map(_assumption, assumptions or ())),
        ("--assumption", "/assumptions", None),
    ]


def _only_one(kinds: dict[str, float | None], options: str) -> str | None:
    given = [kind for kind, value in kinds.items() if value is not None]
    if len(given) > 1:
        raise typer.BadParameter("these options exclude each other", param_hint=options)
    return given[0] if given else None


def priors_of(given: list[str] | None) -> dict[str, float] | None:
    """Return the share of each class as given by the options; None if no option gives one.

    Raises:
        typer.BadParameter: an option is not a name and a number.
    """
    return dict(_named_number(text, "--class-prior", "benign=0.63") for text in given) if given else None


def _assumption(text: str) -> tuple[str, float]:
    name, value = _named_number(text, "--assumption", "smoothness=2")
    return words(name) or "", value


def _named_number(text: str, option: str, example: str) -> tuple[str, float]:
    name, _, value = text.rpartition("=")
    try:
        return name, float(value)
    except ValueError:
        raise typer.BadParameter(
            f"the option takes a name and a number, such as {example}", param_hint=option
        ) from None

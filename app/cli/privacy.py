"""`epsilond account` and `epsilond convert`: computed here, without a server or a database."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import partial
from typing import Annotated, Any

import typer

from app.cli import choices
from app.cli.certificates import CertificateFile, certificate_facts, write_certificate
from app.cli.output import AsJson, example, interval, print_answer, print_facts, print_table, print_text, print_warnings
from app.cli.requests import RequestFile, asked, words

commands = typer.Typer(rich_markup_mode=None)


def _rate(option: str, text: str) -> float:
    """Read a probability, written as a decimal or as the quotient of two whole numbers. It is rounded up, so that the
    cost is never too small.

    >>> [_rate("--sample-rate", text) for text in ("0.01", "1/4")], _rate("--sample-rate", "1/3") > 1 / 3
    ([0.01, 0.25], True)
    """
    try:
        if "/" not in text:
            return float(text)
        exact = Fraction(text.replace(" ", ""))
        nearest = float(exact)
    except (ValueError, ArithmeticError):
        hint = "give a number such as 0.01, or a quotient such as 256/32561"
        raise typer.BadParameter(hint, param_hint=option) from None
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)


def _steps(steps: int | None, epochs: int | None, per_epoch: int | None) -> int:
    """Return the number of steps from the options."""
    if epochs is None:
        return 1 if steps is None else steps
    if steps is not None:
        raise typer.BadParameter("give the number of epochs or the number of steps, not both", param_hint="--epochs")
    if per_epoch is None:
        raise typer.BadParameter(
            "epochs need a --sample-rate, --steps-per-epoch, or --batch-size with --dataset-size, which give their "
            "number of steps",
            param_hint="--epochs",
        )
    if epochs < 1:
        raise typer.BadParameter("must be 1 or more", param_hint="--epochs")
    return epochs * per_epoch


def _steps_per_epoch(
    rate: float | None, steps_per_epoch: int | None, batch_size: int | None, dataset_size: int | None
) -> int | None:
    """Return the number of steps in a pass over the data; None if no option gives it.

    >>> _steps_per_epoch(256 / 32561, None, None, None), _steps_per_epoch(None, None, 256, 32561)
    (128, 128)
    """
    if rate is not None:
        # A quotient this close above a whole number counts as that number, since 1 / rate is rarely exact. The service
        # refuses a rate outside (0, 1], so no number follows from one.
        return math.ceil((1 - 1e-9) / rate) if 0 < rate <= 1 else 1
    if steps_per_epoch is not None or batch_size is None or dataset_size is None:
        return steps_per_epoch
    return -(-dataset_size // max(batch_size, 1))


@commands.command(
    epilog=example("epsilond account --noise-multiplier 1.1 --sampling-probability 0.01 --steps 10000 --delta 1e-5")
)
def account(
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise on the sum, divided by one record's contribution bound.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="The number of steps.", show_default="1")] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help="Passes over the data in place of --steps; each has 1 / sample rate steps, rounded up."),
    ] = None,
    delta: Annotated[list[float] | None, typer.Option(help="Give the epsilon at this delta; may be repeated.")] = None,
    epsilon: Annotated[
        list[float] | None, typer.Option(help="Give the delta at this epsilon; may be repeated.")
    ] = None,
    mechanism: Annotated[str, typer.Option(help="gaussian or laplace; others need --request.")] = "gaussian",
    sampling: Annotated[
        str | None,
        typer.Option(
            help="How a step's batch is drawn: full-batch, poisson, without-replacement, with-replacement, "
            "shuffled-epochs.",
            show_default="poisson where its probability is given, else full-batch",
        ),
    ] = None,
    sampling_probability: Annotated[
        str | None,
        typer.Option(metavar="FLOAT", help="Probability that a record is in a step, such as 0.01 or 256/32561."),
    ] = None,
    sample_rate: Annotated[
        str | None, typer.Option(metavar="FLOAT", help="The name that Opacus uses for --sampling-probability.")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Size of the batches, if all have the same size.")] = None,
    dataset_size: Annotated[int | None, typer.Option(help="Number of records; needed with --batch-size.")] = None,
    steps_per_epoch: Annotated[int | None, typer.Option(help="Steps of a shuffled epoch.")] = None,
    relation: choices.Relation = None,
    group_size: Annotated[int | None, typer.Option(help="Records of one owner that are protected together.")] = None,
    effort: Annotated[
        int | None, typer.Option(help="How many operations each number may take; a billion by default.")
    ] = None,
    certify: Annotated[bool, typer.Option("--certify", help="Ask dp-accounting, too, which takes seconds.")] = False,
    certificate: CertificateFile = None,
    request: RequestFile = None,
    as_json: AsJson = False,
) -> None:
    """Certify epsilon at a delta, or delta at an epsilon.

    This is about steps that are fixed in advance. The truth lies between `lower` and `upper`; state the upper end,
    which a ledger would charge.
    """
    if sampling_probability is not None and sample_rate is not None:
        raise typer.BadParameter("both options mean the same: leave one of them out", param_hint="--sample-rate")
    named, typed = "--sampling-probability", sampling_probability
    if sample_rate is not None:
        named, typed = "--sample-rate", sample_rate
    if batch_size is not None and sampling is None:
        poisson = f"--sample-rate {batch_size}/{'ROWS' if dataset_size is None else dataset_size}"
        raise typer.BadParameter(
            f"say how batches are drawn: use {poisson} instead if each record is drawn by itself, as with Opacus; add "
            "--sampling shuffled-epochs if a loader shuffles, or --sampling without-replacement if every batch is "
            "drawn anew",
            param_hint="--batch-size",
        )
    given = noise_multiplier is not None or sampling is not None or typed is not None
    kind = words(sampling) or ("full_batch" if typed is None else "poisson")
    rate = None if typed is None else _rate(named, typed)
    per_epoch = _steps_per_epoch(rate, steps_per_epoch, batch_size, dataset_size)
    if kind == "shuffled_epochs" and steps_per_epoch is None and per_epoch is not None:
        batch_size, dataset_size, steps_per_epoch = None, None, per_epoch
    fields: list[tuple[str, str, object]] = [
        ("--mechanism", "/events/0/mechanism/kind", words(mechanism) if given else None),
        ("--noise-multiplier", "/events/0/mechanism/noise_multiplier", noise_multiplier),
        ("--sampling", "/events/0/sampling/kind", kind if given else None),
        (named, "/events/0/sampling/sampling_probability", rate),
        ("--batch-size", "/events/0/sampling/batch_size", batch_size),
        ("--dataset-size", "/events/0/sampling/dataset_size", dataset_size),
        ("--steps-per-epoch", "/events/0/sampling/steps_per_epoch", steps_per_epoch),
        ("--steps", "/events/0/count", _steps(steps, epochs, per_epoch) if given else None),
        ("--relation", "/neighboring_relation", words(relation)),
        ("--delta", "/delta", _one_or_many(delta)),
        ("--epsilon", "/epsilon", _one_or_many(epsilon)),
        ("--group-size", "/group_size", group_size),
        ("--effort", "/effort", effort),
        ("--certify", "/certify", certify or None),
        ("--certificate", "/certificate", None if certificate is None else True),
        ("--noise-multiplier", "/events", None),
    ]
    question = asked(request, fields)
    # Imported here, because `--help` does not need it.
    from app.cli.in_process import answer
    from app.privacy.account import AccountRequest
    from app.privacy.service import account as respond

    found = answer(AccountRequest, question, respond, exclude_unset=True)
    write_certificate(certificate, found)
    assumed = " (assumed: a loader that shuffles costs more)" if sampling is None and rate is not None else ""
    print_answer(found, as_json, partial(_print_account, events=question.body.get("events"), assumed=assumed))


@commands.command(
    epilog=example("epsilond convert --from zcdp --rho 0.1 --to approximate_dp --delta 1e-5"),
)
def convert(
    stated: Annotated[
        str | None,
        typer.Option(
            "--from", help="The kind of guarantee that holds: pure-dp, approximate-dp, zcdp, gaussian-dp, attack-risk."
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", help="The kind of guarantee that you want: pure-dp, approximate-dp, zcdp, gaussian-dp, attack-risk."
        ),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="epsilon of the guarantee that holds.")] = None,
    from_delta: Annotated[
        float | None, typer.Option(help="delta of the given guarantee, if that is approximate-dp.")
    ] = None,
    rho: Annotated[float | None, typer.Option(help="rho of the guarantee that holds.")] = None,
    mu: Annotated[float | None, typer.Option(help="mu of the guarantee that holds.")] = None,
    advantage: Annotated[float | None, typer.Option(help="Advantage of the guarantee that holds.")] = None,
    delta: Annotated[float | None, typer.Option(help="The delta at which you want the epsilon.")] = None,
    fpr: Annotated[
        float | None, typer.Option(help="False positive rate at which you want the true positive rate.")
    ] = None,
    prior: Annotated[float | None, typer.Option(help="Prior at which you want the Bayes risk.")] = None,
    request: RequestFile = None,
    as_json: AsJson = False,
) -> None:
    """Say what one privacy guarantee implies about another.

    The answer is that of the best known theorem, with the textbooks' beside it. Renyi and truncated guarantees need
    --request.
    """
    question = asked(
        request,
        [
            ("--from", "/from/kind", words(stated)),
            ("--epsilon", "/from/epsilon", epsilon),
            ("--from-delta", "/from/delta", from_delta),
            ("--rho", "/from/rho", rho),
            ("--mu", "/from/mu", mu),
            ("--advantage", "/from/advantage", advantage),
            ("--to", "/to/kind", words(to)),
            ("--delta", "/to/delta", delta),
            ("--fpr", "/to/fpr", fpr),
            ("--prior", "/to/prior", prior),
            ("--from", "/from", None),
            ("--to", "/to", None),
        ],
    )
    # Imported here, because `--help` does not need it.
    from app.cli.in_process import answer
    from app.privacy.convert import ConvertRequest, answer_conversion

    print_answer(answer(ConvertRequest, question, answer_conversion, exclude_none=True), as_json, _print_conversion)


def _one_or_many(values: list[float] | None) -> float | list[float] | None:
    return values[0] if values and len(values) == 1 else values


def _print_account(found: Mapping[str, Any], *, events: Any, assumed: str) -> None:
    points: list[Mapping[str, Any]] = found.get("points") or [found]
    wanted = "epsilon" if isinstance(points[0]["epsilon"], dict) else "delta"
    given = "delta" if wanted == "epsilon" else "epsilon"
    columns = (given, f"{wanted}_lower", f"{wanted}_upper", "method")
    print_table(columns, [(point[given], *interval(point[wanted]), point["method"]) for point in points])
    print_text("")
    print_facts({**dict(_asked(events, assumed)), **dict(_beside(found))})
    print_warnings(found["warnings"])


def _asked(events: Any, assumed: str) -> Iterator[tuple[str, object]]:
    """Yield a description of the events behind the number, if they are steps of one kind."""
    match events:
        case [{"sampling": {"kind": kind, **details}, **event}]:
            said = ", ".join(f"{name} {value}" for name, value in details.items())
            yield "sampling", f"{kind}{said and ': '}{said}{assumed}"
            yield "steps", event.get("count", 1)


def _beside(found: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield what was requested in addition to the number."""
    yield "relation", found["convention"]["neighboring_relation"]
    yield "group_size", found.get("group_size")
    if "certification" in found:
        yield "second opinion", found["certification"]["note"]
    yield from certificate_facts(found)
    risk = found.get("attack_risk")
    if risk is not None:
        yield "advantage at most", interval(risk["advantage"])[1]
    if found.get("gaussian_dp") is not None or found.get("curve") is not None:
        yield "more", "--json shows curves and other summaries"


def _print_conversion(found: Mapping[str, Any]) -> None:
    guarantees = [(found["method"], found["guarantee"])]
    guarantees += [(other["method"], other["guarantee"]) for other in found["alternatives"]]
    rows = [
        (method, guarantee["kind"], ", ".join(f"{name} {value}" for name, value in guarantee.items() if name != "kind"))
        for method, guarantee in guarantees
    ]
    print_table(("method", "guarantee", "amount"), rows)
    print_text("")
    print_facts({"source": found["source"], "tight": found["tight"]})

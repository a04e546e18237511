"""`epsilond import`: compute the true cost of a call of another library, without a server or a database."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli import choices
from app.cli.output import AsJson, example, interval, print_answer, print_facts, print_table, print_text, print_warnings
from app.cli.refusals import fail
from app.cli.requests import RequestFile, asked, words

commands = typer.Typer(rich_markup_mode=None)

#: One character more than is accepted, so that a longer text is noticed.
_MOST_CHARACTERS = 2**16


@commands.command(
    "import",
    epilog=example("epsilond import call.py --dataset-size 60000 --batch-size 600 --epochs 10 --delta 1e-5"),
)
def import_call(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="A file with the call and the assignments of its numbers, which are read and never run; - is standard "
            "input.",
        ),
    ] = None,
    dataset_size: Annotated[int | None, typer.Option(help="A public number of records.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Records of a batch.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Passes over the data.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps, in place of epochs.")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="The noise that the library found, if the call lets it search for the noise.")
    ] = None,
    batches: Annotated[
        str | None,
        typer.Option(help="What the loader really does: poisson or shuffled.", show_default="what the call says"),
    ] = None,
    relation: choices.Relation = None,
    delta: Annotated[float | None, typer.Option(help="Needed if the call does not give a delta.")] = None,
    request: RequestFile = None,
    as_json: AsJson = False,
) -> None:
    """Say what a call of Opacus, JAX Privacy and others truly costs.

    The other libraries are TensorFlow Privacy and dp-accounting. The answer also has the number that the library would
    claim, and lists the assumptions that the call does not state.
    """
    if file is None and request is None:
        raise typer.BadParameter("give a file with the call, or - to paste it", param_hint="FILE")
    fields: list[tuple[str, str, object]] = [
        ("FILE", "/source/kind", None if file is None else "call"),
        ("FILE", "/source/code", None if file is None else _text_of(file)),
        ("--dataset-size", "/source/dataset_size", dataset_size),
        ("--batch-size", "/source/batch_size", batch_size),
        ("--epochs", "/source/epochs", epochs),
        ("--steps", "/source/steps", steps),
        ("--noise-multiplier", "/source/noise_multiplier", noise_multiplier),
        ("--batches", "/source/batches", words(batches)),
        ("--relation", "/neighboring_relation", words(relation)),
        ("--delta", "/delta", delta),
        ("FILE", "/source", None),
    ]
    question = asked(request, fields)
    # Imported here, because `--help` does not need it.
    from app.cli.in_process import answer
    from app.privacy.imports import ImportRequest, answer_import

    print_answer(answer(ImportRequest, question, answer_import), as_json, _print)


def _text_of(file: Path) -> str:
    try:
        if str(file) == "-":
            return sys.stdin.read(_MOST_CHARACTERS)
        with file.open(encoding="utf-8") as opened:
            return opened.read(_MOST_CHARACTERS)
    except OSError as error:
        fail(f"Cannot read {file}: {error.strerror}.")
    except UnicodeDecodeError:
        fail(f"Cannot read {file}: it is not text in UTF-8.")


def _print(found: Mapping[str, Any]) -> None:
    print_facts(dict(_facts(found)))
    call = found["call"]
    if call is not None and call["assumed"]:
        print_text("\nThe numbers rest on these assumptions, which the call does not state:")
        print_table(
            ("assumed", "value", "why"), [(each["name"], each["value"], each["reason"]) for each in call["assumed"]]
        )
    if unsound := [each["detail"] for each in found["differences"] if each["unsound"]]:
        print_text("\nThe library may report too small a loss:")
        for detail in unsound:
            print_text(f"- {detail}")
    print_warnings(found["warnings"])


def _facts(found: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    lower, upper = interval(found["epsilon"])
    yield "epsilon", f"{lower} .. {upper}"
    yield "delta", found["delta"]
    yield "relation", found["convention"]["neighboring_relation"]
    reported = found["reported"]
    claimed = "no number" if reported["epsilon"] is None else f"{reported['epsilon']:.6g}"
    where = "" if reported["position"] is None else f", {reported['position']} the interval"
    yield f"{reported['library']} ({reported['accountant']}) says", f"{claimed}{where}"
    if found["call"] is not None and found["call"]["target_epsilon"] is not None:
        yield "the call asks for", found["call"]["target_epsilon"]

"""The command `epsilond`. This module says where each of its commands is, and ends them with one line of error.

A command's module is imported only when the command is called. Importing all of them would load the whole service,
which takes a second.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer._click.exceptions import NoArgsIsHelpError, NoSuchOption, UsageError
from typer.core import TyperGroup
from typer.main import get_group

from accounting.near_names import hint
from app import VERSION
from app.cli.output import print_text
from app.cli.refusals import Refusal, Status, show
from app.kit import collector

#: The commands, in the order of the help: for each name its module and the first sentence of its own help.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "account": ("privacy", "Certify epsilon at a delta, or delta at an epsilon."),
    "import": ("imports", "Say what a call of Opacus, JAX Privacy and others truly costs."),
    "convert": ("privacy", "Say what one privacy guarantee implies about another."),
    "calibrate": ("calibration", "Find the noise, steps, batch size or privacy for a target."),
    "sweep": ("calibration", "Calibrate once for each value of one field."),
    "advise": ("calibration", "Say which algorithms apply to a problem, and why others do not."),
    "run": ("run", "Private training on a server."),
    "dataset": ("dataset", "Rows that runs train on: declared in public, never shown."),
    "budget": ("budget", "Budgets of a server, and what was charged to them."),
    "serve": ("service", "Answer HTTP requests, and run queued trainings."),
    "sign-in": ("service", "Print an address that signs a browser in, while there is no key."),
    "worker": ("service", "Execute queued trainings until stopped."),
    "migrate": ("service", "Bring the database to the newest schema."),
    "keys": ("keys", "API keys of the server on this machine."),
    "secrets": ("secrets", "Show and rotate the secrets of the database."),
    "data-key": ("data_key", "Rotate the keys that encrypt files, and encrypt files again."),
    "ledger": ("ledger", "Verify, export and mend the books of all budgets."),
    "backup": ("backup", "Write the database and the files of the service to one file."),
    "check-backup": ("backup", "Verify a backup, and show its contents."),
    "restore": ("backup", "Restore a backup into an empty database and data folder."),
    "openapi": ("service", "Print the OpenAPI document."),
}


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _Imported(Mapping[str, Any]):
    """The commands by their names, each imported when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        module = import_module(f"app.cli.{COMMANDS[name][0]}")
        group = get_group(module.commands)
        # A module has either a group with this name, or the command itself.
        return group if module.commands.info.name == name else group.commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Epsilond(TyperGroup):
    """The group of all commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Any = _Imported()

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence) for name, (_, sentence) in COMMANDS.items()])

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        """Run a command. A mistake of the user is reported in one line, never as a traceback."""
        given = sys.argv[1:] if args is None else list(args)
        try:
            status = super().main(given, *rest, **{**options, "standalone_mode": False})
        except NoArgsIsHelpError as error:
            error.show()
            sys.exit(error.exit_code)
        except UsageError as error:
            where = "" if error.ctx is None else f" See `{error.ctx.command_path} --help`."
            message = " ".join(_in_words(error).split()).rstrip(".")
            message += ("" if message.endswith("?") else ".") + where
            status = show(Refusal(message, Status.USAGE, {"detail": message}), as_json="--json" in given)
        except typer.TyperException as error:
            status = show(error, as_json="--json" in given)
        except typer.Abort:
            status = Status.REFUSED
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            message = f"The answer cannot be written: {error.strerror}."
            status = show(Refusal(message, Status.REFUSED, {"detail": message}), as_json="--json" in given)
        sys.exit(status if isinstance(status, int) else Status.DONE)


cli = typer.Typer(
    cls=_Epsilond,
    no_args_is_help=True,
    add_completion=False,
    # Plain help can be piped, and errors take one line.
    rich_markup_mode=None,
    # Local variables in a traceback would show keys and data.
    pretty_exceptions_enable=False,
)


#: The names that other libraries and papers give to options, with ours. The first that a command has is suggested.
_OPTIONS_ELSEWHERE: Mapping[str, Sequence[str]] = {
    "--sigma": ("--noise-multiplier",),
    "--clip": ("--max-grad-norm",),
    "--clip-norm": ("--max-grad-norm",),
    "--l2-norm-clip": ("--max-grad-norm",),
    "--clipping-norm": ("--max-grad-norm",),
    "--lr": ("--step-size",),
    "--learning-rate": ("--step-size",),
    "--n": ("--dataset-size", "--rows"),
    "--num-samples": ("--dataset-size", "--rows"),
    "--eps": ("--epsilon",),
    "--target-epsilon": ("--epsilon",),
    "--target-delta": ("--delta",),
    "--sample-rate": ("--batch-size",),
    "--q": ("--sample-rate", "--batch-size"),
    "--steps": ("--iterations",),
    "--max-steps": ("--steps", "--iterations"),
    "--target": ("--label",),
    "--data": ("--dataset",),
}


def _in_words(error: UsageError) -> str:
    """Describe what is wrong with a command; for an unknown option, suggest the one that was probably meant."""
    if not isinstance(error, NoSuchOption) or error.ctx is None:
        return error.format_message().replace("Value error, ", "")
    known = [each for taken in error.ctx.command.params for each in taken.opts]
    ours = next((each for each in _OPTIONS_ELSEWHERE.get(error.option_name, ()) if each in known), None)
    if ours is not None:
        return f"{error.message}. Did you mean {ours}?"
    return f"{error.message}.{hint(error.option_name, known)}"


def _print_version(asked: bool) -> None:
    if asked:
        print_text(f"epsilond {VERSION}")
        raise typer.Exit


@cli.callback()
def epsilond(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """epsilond, the privacy-accounting daemon: noise calibration, private training, and a ledger of what was spent.

    account, import, convert, calibrate, sweep and advise are computed here. run and budget ask a server: EPSILOND_URL
    names it, EPSILOND_API_KEY is the key; without one, a server of this machine that has no keys is shown the token in
    EPSILOND_DATA_DIR. The others work on the database and the data folder that the service's settings name.
    """


def main() -> None:
    """Run the command line."""
    collector.pause()
    cli(prog_name="epsilond")

"""Progress bars for long work. They appear on standard error, only on a terminal, and vanish at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: This is called with the number of steps that are done, and with the number of all steps once it is known.
Reached = Callable[[int, int | None], None]


@contextmanager
def progress_bar(what: str, total: Callable[[], int] | None = None) -> Iterator[Reached]:
    """Show a bar while the block runs; nothing if standard error is not a terminal.

    Args:
        what: The work, in words.
        total: Returns the number of steps. It may take a while, so it is called only for a bar. None if the number is
            not known yet.
    """
    if not sys.stderr.isatty():
        yield _nobody_watches
        return
    # Imported here, because commands that show no progress need not load it.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=None if total is None else total())

        def reached(done: int, of: int | None) -> None:
            shown.update(task, completed=done, total=of)

        yield reached


def _nobody_watches(_done: int, _of: int | None) -> None:
    pass

"""The folder has one file per algorithm, with its update and its record ``EXECUTION``. Each such file is registered.

A file is named after its algorithm, as in plans, and so is the file of the algorithm's calibrator.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from trainer.execution import Execution


def _execution(name: str) -> Execution:
    """Return the record of the file of that name."""
    record = getattr(import_module(f"{__name__}.{name}"), "EXECUTION", None)
    if not isinstance(record, Execution):
        raise TypeError(
            f"{__name__}.{name} needs EXECUTION, an Execution: every file in this folder belongs to an algorithm"
        )
    return record


EXECUTIONS: dict[str, Execution] = {
    name: _execution(name) for name in sorted(module.name for module in iter_modules(__path__))
}

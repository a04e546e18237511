"""This package defines the phases of plans, by kind. Equal noisy gradient steps have no file here; they are
`calibrators.plan.Phase`.

The existence of a file registers its kind: `PHASES` holds the phase of every module in this folder.
"""

from __future__ import annotations

from importlib import import_module
from inspect import isabstract
from pkgutil import iter_modules

from calibrators.phases.structured import StructuredPhase


def _by_kind() -> dict[str, type[StructuredPhase]]:
    """Return the phases that the modules of this folder define.

    Raises:
        ValueError: If two phases have the same kind.
    """
    found: dict[str, type[StructuredPhase]] = {}
    for module in iter_modules(__path__, f"{__name__}."):
        for value in vars(import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, StructuredPhase) and value.__module__ == module.name:
                if isabstract(value):
                    continue  # an abstract phase is shared code of several kinds
                if value.kind in found:
                    raise ValueError(f"two phases have the same kind, {value.kind!r}: {found[value.kind]} and {value}")
                found[value.kind] = value
    return found


PHASES: dict[str, type[StructuredPhase]] = _by_kind()

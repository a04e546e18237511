"""Settings of Python's garbage collector, so that it does not look at the modules that a process has loaded.

Modules are never garbage. Looking at them takes a sixth of the start of a process, and more time at every later
collection of all objects.
"""

from __future__ import annotations

import gc


def pause() -> None:
    """Stop collecting while modules are loaded. Our processes call this first."""
    gc.disable()


def resume() -> None:
    """Collect again, but never look at the objects that exist now. This does nothing if collection was not paused."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()

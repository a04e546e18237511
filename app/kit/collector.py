"""Python's garbage collector, kept from looking at what a process has loaded.

Nothing of that is garbage, and a process of the service spends a sixth of its start on looking all the same, and more
later, whenever all objects are looked at.
"""

from __future__ import annotations

import gc


def pause() -> None:
    """Collect nothing while modules are loaded: the first that a process of ours does."""
    gc.disable()


def resume() -> None:
    """Collect again, but never look at what there is now; nothing happens where collection was not paused."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()

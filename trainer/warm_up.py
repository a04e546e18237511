"""This module compiles all inner loops, so that no request and no run waits for a compiler: ``python -m
trainer.warm_up``.

Setup runs it once, and so does the build of an image. The compiled code is kept on disk (`accounting.compiled`).
"""

from __future__ import annotations

import sys
import time

from accounting import warm_up as engine
from accounting.compiled import compiled_functions, note_complete
from trainer.exact.gaussian import load_noise


def warm_up() -> int:
    """Call every compiled loop with every type of argument, and return how many loops there are."""
    engine.warm_up()
    load_noise()
    note_complete()
    return len(compiled_functions())


if __name__ == "__main__":
    sys.stdout.write("== compiling the inner loops (once, and again after a change of their sources)\n")
    began = time.monotonic()
    loops = warm_up()
    sys.stdout.write(f"== {loops} loops in {time.monotonic() - began:.0f} s\n")

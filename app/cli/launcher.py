"""Writes the program `epsilond` into a virtual environment: `python -m app.cli.launcher`.

The packages are those of this checkout and are installed nowhere: their names are generic. The program finds them from
any working directory. It needs nothing but Python, so that it can be written before anything is installed.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# The first three lines are a shell script that starts Python with this file, and to Python they are a string that it
# ignores. A path after `#!` may neither be long nor contain a space.
_PROGRAM = """\
#!/bin/sh
'''exec' {python} "$0" "$@"
' '''
import sys

sys.path[0] = {root!r}
from app.cli.main import main

main()
"""


def write_launcher(folder: Path, python: Path) -> Path:
    """Write the program.

    Args:
        folder: The folder of programs.
        python: The interpreter of an environment that has the packages which the checkout needs.
    """
    program = folder / "epsilond"
    program.write_text(_PROGRAM.format(python=shlex.quote(str(python)), root=str(ROOT)))
    program.chmod(0o755)
    return program


if __name__ == "__main__":
    binaries = Path(sys.prefix) / "bin"
    write_launcher(binaries, binaries / "python")

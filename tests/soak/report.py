"""Reports of the long campaigns: what was run, what came out, on which versions; committed beside the tests."""

from __future__ import annotations

import json
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import scipy

FOLDER = Path(__file__).with_name("reports")


def write_report(name: str, command: str, figures: dict[str, Any]) -> None:
    """Write ``reports/<name>.json``; ``command`` repeats the campaign."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    report = {
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        **figures,
    }
    (FOLDER / f"{name}.json").write_text(json.dumps(report, indent=2) + "\n")

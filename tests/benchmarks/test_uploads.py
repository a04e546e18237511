"""Uploads that are measured hold the same rows in both formats, and are judged by their figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.http.uploads import goals, uploads_section, write_files


def measured(npz: tuple[float, float]) -> dict[str, Any]:
    files = {
        "npz": {"bytes": 47_000_000, "seconds": npz[0], "cpu_seconds": npz[1]},
        "csv": {"bytes": 110_000_000, "seconds": 40.0, "cpu_seconds": 30.0},
    }
    return {
        "rows": 60000,
        "features": 784,
        "rounds": 3,
        "files": files,
        "versions": {"numpy": "2.4"},
        "commit": "0123456789abcdef",
        "uncommitted_changes": False,
        "date": "2026-01-02",
        "load_average_before": 2.0,
        "machine": {"cores": 2},
    }


def test_both_files_hold_the_same_rows(tmp_path: Path) -> None:
    files = write_files(tmp_path, 20)
    arrays = np.load(files["npz"])
    rows = np.loadtxt(files["csv"], delimiter=",", skiprows=1)
    assert np.array_equal(rows, np.column_stack([arrays["features"], arrays["label"]]))
    assert arrays["features"].dtype == np.uint8
    assert files["csv"].read_text().splitlines()[0].split(",")[-2:] == ["p783", "label"]


@pytest.mark.parametrize(
    ("npz", "met"), [((4.0, 3.0), [True, True]), ((4.1, 3.0), [False, True]), ((4.0, 3.1), [True, False])]
)
def test_a_tenth_of_the_time_is_asked(npz: tuple[float, float], met: list[bool]) -> None:
    figures = measured(npz)
    assert [goal["met"] for goal in goals(figures)] == met
    lines = "\n".join(uploads_section({**figures, "goals": goals(figures)}))
    assert lines.count("**missed**") == met.count(False)
    assert "| csv | 110 MB | 40.00 | 30.00 |" in lines

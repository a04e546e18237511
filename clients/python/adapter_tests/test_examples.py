"""The examples run against a real server, with the libraries that they train with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from epsilond_client import Client

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
#: The options of examples that do not train for two epochs of twenty steps.
OPTIONS = {"flower_digits": ["--rounds", "3", "--noise", "2.5"]}


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_an_example_trains_under_its_budget(client: Client, url: str, script: Path) -> None:
    ended = subprocess.run(
        [sys.executable, script, *OPTIONS.get(script.stem, ["--epochs", "2"])],
        env=os.environ | {"EPSILOND_URL": url, "PYTHONPATH": str(script.parents[1] / "src")},
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    said = dict(line.split(maxsplit=1) for line in ended.stdout.splitlines() if not line.startswith(" "))
    if script.stem == "flower_digits":
        assert said["trained"].startswith("2 rounds")
        assert said["denied"].startswith("the last round, before a client was asked")
    else:
        assert said["trained"].startswith("40 steps")
    if script.stem == "opacus_digits":
        assert said["denied"].startswith("another epoch, before its first noise")
    if script.stem == "pytorch_correlated":
        assert said["went"] == "on     after 21 steps, 19 left"
        bands = int(said["calibrated"].split()[0])
        assert int(said["kept"].split()[0]) == 4 * (bands - 1) * 2410 == int(said["memory"].split()[0]) // 2
    upper = float(said["certified"].split(", ")[1].split("]")[0])
    assert upper < 3.0
    budget = client.budgets.get(said["budget"].split(":")[0], delta=1e-5)
    assert budget.report is not None
    assert budget.report.epsilon.upper == pytest.approx(upper, abs=1e-6), "what was charged is what was done"

"""The memory that is stated for the rows of a run is what they take."""

from __future__ import annotations

import subprocess
import sys

from trainer.scaling import NumberColumn, memory_of_rows

ROWS, COLUMNS = 100_000, 100
#: A process of its own: the most memory that another one ever had would be that of its other tests. The system's own
#: count of that (`ru_maxrss`) begins with the parent's.
PROGRAM = f"""
import resource
import numpy as np
from trainer.models import logistic_regression
from trainer.records import prepare
from trainer.scaling import NumberColumn, scale_features
from trainer.streams import random_streams

def keep(rows):
    given, labels = np.full((rows, {COLUMNS}), 0.5), np.zeros(rows)
    scaled = scale_features([NumberColumn(0.0, 1.0)] * {COLUMNS}, list(given.T))
    model, stream = logistic_regression({COLUMNS}), random_streams(0).slots
    return given, scaled, prepare(model, scaled, labels, "float64", rows, stream)

keep(5000)
with open("/proc/self/statm") as file:
    before = int(file.read().split()[1]) * resource.getpagesize()
kept = keep({ROWS})
with open("/proc/self/status") as file:
    (most,) = [int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:")]
print(most - before)
"""


def test_rows_take_as_much_memory_as_is_stated() -> None:
    took = int(subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout)
    stated = memory_of_rows([NumberColumn(0.0, 1.0)] * COLUMNS, ROWS)
    assert 0.8 * stated < took < 1.1 * stated

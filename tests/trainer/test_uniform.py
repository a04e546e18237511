"""Products in which all places treat a row alike, with the kernels of this processor and of others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from trainer.gradients import by_pieces
from trainer.uniform import uniform_rows

ROOT = Path(__file__).resolve().parents[2]

#: One row in every place; a place that rounds otherwise shows.
SCRIPT = """
import numpy as np
from trainer.gradients import by_pieces

rng = np.random.default_rng(5)
for dtype in ("float32", "float64"):
    for inputs, outputs in ((784, 10), (784, 256), (784, 300), (30, 1), (7, 33)):
        matrix = rng.normal(size=(inputs, outputs)).astype(dtype)
        for _ in range(20):
            rows = np.repeat(rng.normal(size=(1, inputs)).astype(dtype), 128, axis=0)
            made = by_pieces(np, rows, matrix, 128)
            assert np.array_equal(made, np.repeat(made[:1], 128, axis=0)), (dtype, inputs, outputs)
"""


#: Those of a processor with instructions that this one has not got would end the process.
KERNELS = ["", "Haswell", "Zen", *(["SkylakeX"] if "avx512vl" in Path("/proc/cpuinfo").read_text() else [])]


@pytest.mark.parametrize("kernels", KERNELS)
def test_places_are_alike(kernels: str) -> None:
    """Whichever kernels the library takes; a variable of OpenBLAS's chooses, and other libraries ignore it."""
    environment = os.environ | ({"OPENBLAS_CORETYPE": kernels} if kernels else {})
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_shape_whose_places_differ_is_cut_until_they_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def only_small_ones(*question: object) -> bool:
        asked.append(question[-1])
        return question[-1] in (16, 8)

    monkeypatch.setattr("trainer.uniform._is_uniform", only_small_ones)
    matrix = np.zeros((61, 67))  # a shape that nobody else asks about: answers are remembered
    assert uniform_rows(np, matrix, 128) == 16
    assert asked == [128, 64, 32, 16]
    assert uniform_rows(np, matrix, 17 * 8) == 8  # whose half of a half is 34


def test_pieces_give_the_product() -> None:
    rng = np.random.default_rng(7)
    rows, matrix = rng.normal(size=(256, 40)), rng.normal(size=(3, 40)).T
    np.testing.assert_allclose(by_pieces(np, rows, matrix, 64), rows @ matrix, rtol=1e-12, atol=1e-12)

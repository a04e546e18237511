"""Every committed input of the fuzz targets, good ones and those that crashed a reader once, and changes of them."""

from __future__ import annotations

import pytest

from tests.fuzz.mutation import mutate
from tests.fuzz.seeds import FOLDER, inputs_of
from tests.fuzz.targets import TARGETS

#: Changes of each JSON text: as many as take no time.
CHANGES = 20


def test_every_folder_of_inputs_is_a_targets() -> None:
    assert {path.name for path in FOLDER.iterdir()} <= set(TARGETS)


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_are_read_or_refused_as_is_documented(name: str) -> None:
    target, inputs = TARGETS[name], inputs_of(name)
    assert inputs, "fuzzing begins with something"
    for data in inputs:
        target(data)
        target(data[: len(data) // 2])
        for seed in range(CHANGES if target.is_json else 0):
            changed = mutate(data, seed)
            if changed is not None:
                target(changed)

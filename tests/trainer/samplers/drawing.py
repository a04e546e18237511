"""Samplers to draw from, of slots with nothing in them."""

from __future__ import annotations

import numpy as np

from accounting.events import (
    Sampling,
    TruncatedPoisson,
)
from trainer.records import Block, Records
from trainer.samplers import (
    Sampler,
    sampler_for,
)
from trainer.streams import random_streams

CUT = TruncatedPoisson(0.2, 12, 50, truncation="random")
SLOTS = TruncatedPoisson(0.2, 12, 60, truncation="random_slots")


def sampler(
    sampling: Sampling, *, rows: int = 60, steps: int = 4, divisor: int = 10, size: int = 50, seed: int = 1
) -> Sampler:
    return sampler_for(sampling, steps, divisor, size, slots_of(np.arange(rows)), random_streams(seed).sampling)


def slots_of(positions: np.ndarray) -> Records:
    """As many slots, with nothing in them."""
    none = np.empty(0)
    return Records(Block(np, none, none, none, none), positions)


def steps_of(sampling: Sampling, *, rows: int, steps: int, seed: int = 1) -> np.ndarray:
    """Which slots take part in which steps: booleans of shape (steps, rows)."""
    drawing = sampler(sampling, rows=rows, steps=steps, size=rows, seed=seed)
    taken = np.zeros((steps, rows + 1), dtype=bool)
    for step in taken:
        step[drawing.draw()] = True
    return taken[:, :rows]

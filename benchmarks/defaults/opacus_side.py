"""This module trains the same kinds of models with Opacus and the same budget, with the setting of Opacus' MNIST
example and with a small grid of settings.

Opacus' `PrivacyEngine.make_private` samples Poisson batches and clips each record's gradient, as its documentation
says. The noise is the least that our engine certifies for the target, at Opacus' own sampling rate and number of steps.
Opacus' own accountant would ask for 0.5 percent more noise, and takes seconds for each answer. Parameters start from
torch's default values. A batch is gathered by indexing the array once instead of once for each row, which changes only
the time.

Torch is imported by name, since our type checks run without it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

import numpy as np

from accounting.events import Event, Gaussian, Poisson
from accounting.relations import NeighboringRelation
from accounting.solve import solve_noise_multiplier
from benchmarks.defaults.protocol import DELTA, SEEDS, Split

MAX_GRAD_NORM = 1.0


@dataclass(frozen=True, slots=True)
class OpacusSetting:
    """A setting with which Opacus trains. The last point is released.

    Attributes:
        optimizer: "SGD", without momentum, or "Adam".
        step_size: The step size of every step.
        batch_size: The expected number of records of a batch; None means an eighth of all records.
        epochs: The expected number of times that a record is drawn.
    """

    optimizer: str
    step_size: float
    batch_size: int | None
    epochs: int


#: The default setting of Opacus' MNIST example; its clip threshold is `MAX_GRAD_NORM`.
EXAMPLE = OpacusSetting("SGD", 0.1, 64, 10)
#: The grid, which was chosen before any setting was tried. Our own grid has its clip thresholds and batch sizes, too.
OPACUS_GRID = (
    EXAMPLE,
    OpacusSetting("Adam", 0.01, 64, 10),
    OpacusSetting("SGD", 0.3, None, 20),
    OpacusSetting("SGD", 1.0, None, 20),
    OpacusSetting("Adam", 0.01, None, 20),
    OpacusSetting("Adam", 0.03, None, 20),
)


def opacus_at(split: Split, epsilon: float, say: Callable[[str], object]) -> dict[str, Any]:
    """Return the scores with all seeds of two settings: that of Opacus' example, and the best one of the grid.

    As with our own grid, the best setting is chosen with one seed on the scored rows themselves. This favours the grid.
    """
    tried = {setting: _score(split, setting, epsilon, SEEDS[0]) for setting in OPACUS_GRID}
    best = max(OPACUS_GRID, key=lambda setting: tried[setting]["score"])
    found = {
        name: {
            "setting": asdict(setting),
            "noise_multiplier": tried[setting]["noise_multiplier"],
            "steps": tried[setting]["steps"],
            "scores": [
                tried[setting]["score"],
                *(_score(split, setting, epsilon, seed)["score"] for seed in SEEDS[1:]),
            ],
        }
        for name, setting in (("example", EXAMPLE), ("best", best))
    }
    say(f"  epsilon {epsilon:g}: {[float(np.mean(each['scores'])) for each in found.values()]} by {best}\n")
    return {**found, "screened": [each["score"] for each in tried.values()]}


def _score(split: Split, setting: OpacusSetting, epsilon: float, seed: int) -> dict[str, Any]:
    """Train with one seed, and return the score on the held-out rows, the noise and the number of steps."""
    torch: Any = import_module("torch")
    torch.manual_seed(seed)
    module = torch.nn.Linear(split.features.shape[1], split.num_classes if split.num_classes > 2 else 1)
    optimizer = getattr(torch.optim, setting.optimizer)(module.parameters(), lr=setting.step_size)
    batch_size = setting.batch_size or round(len(split.labels) / 8)
    loader = torch.utils.data.DataLoader(_rows(torch, split), batch_size, collate_fn=lambda rows: rows)
    steps = setting.epochs * len(loader)
    noise_multiplier = _least_noise(1.0 / len(loader), steps, epsilon)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opacus warns, for example, that the random generator is not cryptographic
        module, optimizer, loader = (
            import_module("opacus")
            .PrivacyEngine()
            .make_private(
                module=module,
                optimizer=optimizer,
                data_loader=loader,
                noise_multiplier=noise_multiplier,
                max_grad_norm=MAX_GRAD_NORM,
            )
        )
        loss_of = _loss(torch, split)
        for _ in range(setting.epochs):
            for inputs, labels in loader:
                optimizer.zero_grad()
                loss_of(module(inputs), labels).backward()
                optimizer.step()
    with torch.no_grad():
        outputs = module(torch.from_numpy(split.test_features).float()).numpy().astype(np.float64)
    return {
        "score": split.score(outputs if split.num_classes > 2 else outputs[:, 0]),
        "noise_multiplier": noise_multiplier,
        "steps": steps,
    }


def _least_noise(probability: float, steps: int, epsilon: float) -> float:
    found = solve_noise_multiplier(
        lambda noise_multiplier: [Event(Gaussian(noise_multiplier), Poisson(probability), steps)],
        NeighboringRelation.ADD_OR_REMOVE_ONE,
        epsilon=epsilon,
        delta=DELTA,
    )
    return found.noise_multiplier


def _loss(torch: Any, split: Split) -> Any:
    if split.num_classes > 2:
        return torch.nn.CrossEntropyLoss()
    return torch.nn.BCEWithLogitsLoss() if split.num_classes else torch.nn.MSELoss()


def _rows(torch: Any, split: Split) -> Any:
    """Return a data set that can be indexed by many indices at once."""
    features = torch.from_numpy(split.features).float()
    labels = torch.from_numpy(split.labels)
    if split.num_classes <= 2:
        labels = labels.float()[:, None]

    class Rows(torch.utils.data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return len(labels)

        def __getitem__(self, index: int) -> Any:
            return features[index], labels[index]

        def __getitems__(self, indices: list[int]) -> Any:
            chosen = torch.tensor(indices, dtype=torch.int64)
            return features[chosen], labels[chosen]

    return Rows()

"""This module has plain torch SGD and Opacus' two ways of clipping, each with the fastest options that a user can
choose.

The rows of a batch are gathered by one `index_select` of the array. The data loaders of torch and of Opacus gather them
one by one, which takes many times as long. Opacus has its own sampling rule and no accountant. Its random generator is
its default, a statistical one, since the cryptographic one needs a package that is no longer built.

Torch is imported by name, since our type checks and the tests of the table run without it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks.trainer.pace import Pace
from benchmarks.trainer.work import (
    CLASSES,
    FEATURES,
    HIDDEN,
    MAX_GRAD_NORM,
    NOISE_MULTIPLIER,
    STEP_SIZE,
    Features,
    Labels,
    Task,
)

Step = Callable[[], None]


def prepare(side: str, task: Task) -> Callable[[Features, Labels, Pace], None]:
    """Import what the side needs, and return a function that trains on data until it is told to stop."""
    torch: Any = import_module("torch")
    module, optimizer, criterion, draw = SIDES[side](torch, task)

    def train(features: Features, labels: Labels, pace: Pace) -> None:
        inputs, classes = torch.from_numpy(features), torch.from_numpy(labels)
        pace()
        while not pace.over:
            rows = draw(inputs.shape[0])
            batch, targets = inputs.index_select(0, rows), classes.index_select(0, rows)
            optimizer.zero_grad()
            criterion(module(batch), targets).backward()
            optimizer.step()
            pace()

    return train


def _plain(torch: Any, task: Task) -> tuple[Any, Any, Any, Callable[[int], Any]]:
    """Return plain training on batches of exactly the given size. They are drawn with replacement, which is
    cheapest."""
    module = _module(torch, task)
    return (
        module,
        _sgd(torch, module),
        torch.nn.CrossEntropyLoss(),
        lambda rows: torch.randint(rows, (task.batch_size,)),
    )


def _hooks(torch: Any, task: Task) -> tuple[Any, Any, Any, Callable[[int], Any]]:
    """Return training with Opacus' default way of clipping: it computes each row's gradient and norm, and a weighted
    sum."""
    module = import_module("opacus.grad_sample").GradSampleModule(_module(torch, task))
    optimizer = import_module("opacus.optimizers").DPOptimizer(_sgd(torch, module), **_privacy(task))
    return module, optimizer, torch.nn.CrossEntropyLoss(), _poisson(torch, task)


def _ghost(torch: Any, task: Task) -> tuple[Any, Any, Any, Callable[[int], Any]]:
    """Return training with Opacus' ghost clipping: it computes norms by factorisation, and then a second backward pass
    of a weighted loss."""
    wrap = import_module("opacus.grad_sample").GradSampleModuleFastGradientClipping
    module = wrap(_module(torch, task), max_grad_norm=MAX_GRAD_NORM)
    make = import_module("opacus.optimizers").DPOptimizerFastGradientClipping
    optimizer = make(_sgd(torch, module), **_privacy(task))
    clipped = import_module("opacus.utils.fast_gradient_clipping_utils").DPLossFastGradientClipping
    return module, optimizer, clipped(module, optimizer, torch.nn.CrossEntropyLoss()), _poisson(torch, task)


SIDES: dict[str, Callable[[Any, Task], tuple[Any, Any, Any, Callable[[int], Any]]]] = {
    "torch": _plain,
    "hooks": _hooks,
    "ghost": _ghost,
}


def _module(torch: Any, task: Task) -> Any:
    nn = torch.nn
    if task.model == "softmax":
        return nn.Linear(FEATURES, CLASSES)
    return nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))


def _sgd(torch: Any, module: Any) -> Any:
    return torch.optim.SGD(module.parameters(), lr=STEP_SIZE)


def _privacy(task: Task) -> dict[str, Any]:
    return {
        "noise_multiplier": NOISE_MULTIPLIER,
        "max_grad_norm": MAX_GRAD_NORM,
        "expected_batch_size": task.batch_size,
    }


def _poisson(torch: Any, task: Task) -> Callable[[int], Any]:
    """Draw a batch by the rule of Opacus' `UniformWithReplacementSampler`, but as a tensor and not as a Python list."""
    return lambda rows: (torch.rand(rows) < task.sampling_probability).nonzero().reshape(-1)

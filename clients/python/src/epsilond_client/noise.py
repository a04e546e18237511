"""Correlated noise, step by step, for your own training loops in PyTorch, JAX or NumPy (needs NumPy).

    plan = client.calibrate(algorithm="dp_bandmf", ...)["plan"]
    noise = correlated_noise(plan, size=number_of_parameters)
    sampler = samplers.for_event(plan["phases"][0]["event"], dataset_size=50_000)
    for indices in sampler:                      # an empty batch has noise like others
        total = ...                              # clip each record's gradient, and sum
        mean = (total + noise.draw()) / noise.divisor
        ...                                      # m = momentum m + mean, and a step along m

Step t adds x_t = (z_t - sum over j >= 1 of c_j x_(t-j)) / c_0, with independent normal numbers z_t. So the loop
releases a function of C applied to the sums, plus z, which is what was charged. All steps are one stream: no step may
be left out, and an epoch does not begin a new stream. A loop that ended early, and was charged for its steps, is over.
To continue under another reservation, use other noise and another sampler.

This is not exact. Sums, noise and coefficients are combined in floating point, so the last bits of the released numbers
depend on the records in a way that is not accounted for; the service's own runs use whole numbers. Normal numbers are
made by Box and Muller's formula from 53 bits, and end at 8.6 standard deviations. If you draw them with another
library, they have the faults of that library and its generator. The error that a device's sums add to a record's
contribution is not bounded either.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

KEY_BYTES = 32
_KIND = "correlated_steps"

#: Maps a seed to standard normal numbers that depend on nothing else: shape (size,), in an array of the user's library.
Draw = Callable[[int], Any]


class CorrelatedNoise:
    """The noise of the steps, one after the other.

    Args:
        coefficients: c_0, c_1, ... of C.
        stddev: Standard deviation of the normal numbers z_t: the noise multiplier times the bound on a record's
            contribution.
        size: The number of parameters.
        steps: The number of steps of the whole training.
        divisor: The public constant by which a noisy sum is divided.
        momentum: The momentum that the plan was made for; the loop applies it.
        key: The key of the noise that this continues; None makes a new one.
        draw: The source of normal numbers. For PyTorch, for example, ``lambda seed: torch.randn(size,
            generator=torch.Generator("cuda").manual_seed(seed), device="cuda")``, and for JAX ``lambda seed:
            jax.random.normal(jax.random.key(seed), (size,))``. If left out, float64 numbers from SHAKE-256.

    Attributes:
        divisor, momentum: The given values.
        memory: The largest number of bytes of noise that are kept from earlier steps, in float64.

    Raises:
        ValueError: a number is outside its range.

    >>> noise = CorrelatedNoise((0.8, 0.6), 1.0, 1, steps=3, draw=lambda seed: np.ones(1))
    >>> [round(float(noise.draw()[0]), 6) for _ in range(3)]
    [1.25, 0.3125, 1.015625]
    """

    def __init__(
        self,
        coefficients: Sequence[float],
        stddev: float,
        size: int,
        *,
        steps: int,
        divisor: float = 1.0,
        momentum: float = 0.0,
        key: bytes | None = None,
        draw: Draw | None = None,
    ) -> None:
        self._coefficients = tuple(float(value) for value in coefficients)
        if not self._coefficients or not 0.0 < self._coefficients[0] < math.inf:
            raise ValueError("the first coefficient must be positive and finite")
        pairs = zip(self._coefficients, self._coefficients[1:], strict=False)
        if any(not 0.0 <= after <= before for before, after in pairs):
            raise ValueError("coefficients must not be negative and must not increase: others cannot be charged")
        if not 0.0 < stddev < math.inf or size < 1 or steps < 1:
            raise ValueError(f"stddev, size and steps must be positive, got {stddev!r}, {size!r} and {steps!r}")
        if key is not None and len(key) != KEY_BYTES:
            raise ValueError(f"the key must have {KEY_BYTES} bytes: leave it out, or restore it by load_state_dict")
        self._stddev, self._size, self._steps = float(stddev), int(size), int(steps)
        self.divisor, self.momentum = divisor, momentum
        self._key = secrets.token_bytes(KEY_BYTES) if key is None else bytes(key)
        self._draw = draw or self._normals
        self._earlier: deque[Any] = deque(maxlen=len(self._coefficients) - 1)
        self._done = 0

    @property
    def memory(self) -> int:
        return 8 * self._size * (len(self._coefficients) - 1)

    @property
    def steps_left(self) -> int:
        """Return how many steps have no noise yet."""
        return self._steps - self._done

    def draw(self) -> Any:
        """Return the noise on the next step's sum, shape (size,), in a new array.

        Call it once for each step, even after an empty batch, because later noise depends on earlier noise.

        Raises:
            ValueError: all steps have their noise, or `draw` returned another shape.
        """
        if not self.steps_left:
            raise ValueError(
                f"all {self._steps} steps have their noise: further ones would be another run, and a charge of its own"
            )
        found = self._draw(self.seed(self._done))
        if tuple(found.shape) != (self._size,):
            raise ValueError(f"normal numbers must have the shape ({self._size},), got {tuple(found.shape)}")
        for coefficient, earlier in zip(self._coefficients[1:], reversed(self._earlier), strict=False):
            found = found - coefficient * earlier
        found = found / self._coefficients[0]
        self._earlier.append(found)
        self._done += 1
        return found * self._stddev

    def seed(self, step: int) -> int:
        """Return the seed of a step's normal numbers, of 63 bits, which depends only on the key and the step."""
        return int.from_bytes(self._digest(b"seed", step, 8), "little") >> 1

    def state_dict(self) -> dict[str, Any]:
        """Return everything that is needed to go on, including the noise of earlier steps. It is as secret as the
        records."""
        return self._declared() | {"key": self._key.hex(), "step": self._done, "earlier": list(self._earlier)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state.

        Without the noise of earlier steps, the next step would belong to another C, which was not charged.

        Raises:
            ValueError: the state belongs to other noise, or is incomplete.
        """
        for name, own in self._declared().items():
            if state.get(name) != own:
                raise ValueError(f"the state is of other noise: {name} is {state.get(name)!r} there and {own!r} here")
        step, earlier = int(state["step"]), list(state["earlier"])
        needed = min(step, len(self._coefficients) - 1)
        if not 0 <= step <= self._steps or len(earlier) != needed:
            raise ValueError(
                f"after {step} steps a state must have the noise of {needed} earlier steps, not of {len(earlier)}"
            )
        if any(tuple(each.shape) != (self._size,) for each in earlier):
            raise ValueError(f"the noise of a step must have the shape ({self._size},)")
        key = bytes.fromhex(state["key"])
        if len(key) != KEY_BYTES:
            raise ValueError(f"the key in a state must have {KEY_BYTES} bytes, not {len(key)}")
        self._key, self._done = key, step
        self._earlier = deque(earlier, maxlen=len(self._coefficients) - 1)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__}: {len(self._coefficients)} bands, {self.steps_left} of {self._steps} steps left>"
        )

    def _declared(self) -> dict[str, Any]:
        return {
            "coefficients": list(self._coefficients),
            "stddev": self._stddev,
            "size": self._size,
            "steps": self._steps,
        }

    def _digest(self, purpose: bytes, step: int, size: int) -> bytes:
        return hashlib.shake_256(self._key + purpose.ljust(8, b"\0") + struct.pack("<Q", step)).digest(size)

    def _normals(self, _seed: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the step's normal numbers, which follow from the key and the step."""
        return _normals_of(self._digest(b"normal", self._done, _bytes_for(self._size)), self._size)


def fresh_normals(size: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return standard normal numbers from the operating system's cryptographic generator, shape (size,).

    >>> fresh_normals(3).shape
    (3,)
    """
    return _normals_of(secrets.token_bytes(_bytes_for(size)), size)


def _bytes_for(size: int) -> int:
    return 16 * -(-size // 2)


def _normals_of(random: bytes, size: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return normal numbers by Box and Muller: two from two words of 64 uniform bits."""
    words = np.frombuffer(random, dtype="<u8") >> np.uint64(11)
    half = len(words) // 2
    radius = np.sqrt(-2.0 * np.log((words[:half] + 1.0) * 2.0**-53))
    angle = (2.0 * math.pi * 2.0**-53) * words[half:]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:size]


def correlated_noise(plan: Mapping[str, Any], size: int, *, draw: Draw | None = None) -> CorrelatedNoise:
    """Return the noise of a plan from an answer of `/v1/calibrate`.

    Args:
        plan: The plan of one phase with correlated noise.
        size: The number of trained parameters.
        draw: As in `CorrelatedNoise`.

    Raises:
        ValueError: the plan has other steps.

    >>> mechanism = {"kind": "correlated_gaussian", "noise_multiplier": 2.0, "coefficients": [0.75, 0.5]}
    >>> phase = {"kind": "correlated_steps", "event": {"mechanism": mechanism, "count": 9}, "divisor": 50}
    >>> phase |= {"gradient_bound": {"kind": "clip", "max_grad_norm": 1.5}, "momentum": 0.9}
    >>> correlated_noise({"phases": [phase]}, size=4)
    <CorrelatedNoise: 2 bands, 9 of 9 steps left>
    """
    phases = plan["phases"]
    if len(phases) != 1 or phases[0].get("kind") != _KIND:
        raise ValueError(
            f"this is not a plan with correlated noise, which has one phase of the kind {_KIND}: ask /v1/calibrate "
            "for one"
        )
    [phase] = phases
    mechanism, bound = phase["event"]["mechanism"], phase["gradient_bound"]
    return CorrelatedNoise(
        mechanism["coefficients"],
        mechanism["noise_multiplier"] * bound["max_grad_norm"],
        size,
        steps=phase["event"]["count"],
        divisor=phase["divisor"],
        momentum=phase["momentum"],
        draw=draw,
    )

"""Runs on devices: the same sums as on the host, integer for integer where they must be, and no GPU that is unsound."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from accounting.events import Event, FullBatch, Gaussian, Poisson
from accounting.relations import NeighboringRelation
from calibrators.plan import Clip, Phase, Plan
from tests.conformance.trainers.examples import every_dtype, model, plans, records_of
from tests.trainer.devices import cuda, device_of, every_device
from trainer import devices
from trainer.arithmetic import faults_of
from trainer.arrays import silent, to_host
from trainer.checkpoint import Checkpoints
from trainer.devices import ENVIRONMENT, HOST, CudaDevice, Device, DeviceFull, DeviceUnusable, cuda_device
from trainer.grid import grid_for
from trainer.models import Model, MultilayerPerceptron, logistic_regression, softmax_regression
from trainer.pace import measure
from trainer.records import Selection, prepare
from trainer.run import RunResult, run
from trainer.streams import random_streams
from trainer.sums import BoundedSum

Data = tuple[np.ndarray, np.ndarray]
#: More slots than a block has on any device, and no whole number of pieces.
ROWS = 5003


def plan_of(rows: int, dtype: str, steps: int = 3, probability: float | None = 0.5, clip: float = 1.0) -> Plan:
    sampling = FullBatch() if probability is None else Poisson(probability)
    phase = Phase(Event(Gaussian(1.0), sampling, steps), Clip(clip), divisor=rows // 2, step_size=0.5)
    return Plan("dp_sgd", rows, NeighboringRelation.ADD_OR_REMOVE_ONE, (phase,), dtype=dtype)


def data(rows: int, features: int, classes: int = 2) -> Data:
    draw = np.random.default_rng(rows)
    return draw.uniform(-1.0, 1.0, (rows, features)), draw.integers(0, classes, rows)


def whole_data(rows: int, features: int) -> Data:
    """Rows whose norms, logits at 0 and sums need no rounding in either type."""
    draw = np.random.default_rng(rows)
    return draw.choice([-0.5, 0.5], (rows, features)), draw.integers(0, 2, rows)


def on(device: Device, plan: Plan, model: Model, rows: Data, **given: Any) -> RunResult:
    return run(plan, model, *map(device.holding, rows), **given)


def flat(result: RunResult) -> np.ndarray:
    return np.concatenate([value.ravel() for value in result.parameters.values()])


@every_device
@every_dtype
@pytest.mark.parametrize("size", [4, 64])
def test_sums_that_need_no_rounding_are_the_hosts_bit_by_bit(device: str, dtype: str, size: int) -> None:
    """Gradients at 0 are shorter than the bound, a power of two; noise is added as whole numbers."""
    plan = plan_of(ROWS, dtype, steps=1, probability=None, clip=size**0.5)
    some = logistic_regression(size, fit_intercept=False)
    rows = whole_data(ROWS, size)
    expected, found = (flat(on(each, plan, some, rows, seed=3)) for each in (HOST, device_of(device)))
    np.testing.assert_array_equal(found, expected)


@every_device
@every_dtype
@pytest.mark.parametrize(
    "some",
    [logistic_regression(30), softmax_regression(30, 7), MultilayerPerceptron(30, 7, hidden=(33,), activation="relu")],
    ids=["logistic", "softmax", "perceptron"],
)
def test_a_run_is_the_hosts_but_for_rounding_and_repeats_bit_by_bit(device: str, dtype: str, some: Model) -> None:
    plan, rows = plan_of(ROWS, dtype), data(ROWS, 30, some.num_classes)
    there = device_of(device)
    expected = flat(on(HOST, plan, some, rows, seed=3))
    found = [flat(on(there, plan, some, rows, seed=3)) for _ in range(2)]
    # The most that float32 rounds off a sum of so many contributions, over the divisor.
    np.testing.assert_allclose(found[0], expected, rtol=1e-11 if dtype == "float64" else 1e-3, atol=1e-5)
    np.testing.assert_array_equal(*found)


@pytest.mark.gpu
@every_dtype
def test_every_algorithm_runs_on_a_gpu(dtype: str) -> None:
    """This is as with any array library (`tests.conformance.trainers.test_repetition`)."""
    there = cuda()
    for name, plan in (case.values for case in plans()):
        own, (features, labels) = replace(plan, dtype=dtype), records_of(plan)
        features[2] = np.nan
        expected, found = (flat(on(each, own, model(), (features, labels), seed=2)) for each in (HOST, there))
        tolerance = 1e-9 if dtype == "float64" else 1e-3
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=1e-5, err_msg=name)


@every_device
@every_dtype
def test_a_run_goes_on_from_a_checkpoint_bit_by_bit(device: str, dtype: str) -> None:
    plan, some, rows, there = plan_of(300, dtype), softmax_regression(5, 3), data(300, 5, 3), device_of(device)
    saved: list[bytes] = []

    def checkpoints(kept: list[bytes], resume: bytes | None = None) -> Checkpoints:
        return Checkpoints(kept.append, lambda done: True, data_tag="tag", code_version="1", resume=resume)

    whole = flat(on(there, plan, some, rows, checkpoint=checkpoints(saved)))
    for state in saved:
        np.testing.assert_array_equal(flat(on(there, plan, some, rows, checkpoint=checkpoints([], state))), whole)


def sums_of(device: Device, some: Model, rows: Data, dtype: str, slots: Selection, point: np.ndarray) -> list[int]:
    """The sum of these slots' clipped gradients, in whole steps."""
    records = prepare(some, *map(device.holding, rows), dtype, len(rows[0]), random_streams(5).slots)
    grid = grid_for(1.0, some.num_parameters, dtype, 10**6)
    with silent():
        total = BoundedSum(some, records, dtype).at(device.holding(point), slots, Clip(1.0), grid)
    host = to_host(total)
    assert np.all(host == np.rint(host)), "only whole steps of the grid leave the records"
    return [int(number) for number in host]


@every_device
@every_dtype
@pytest.mark.parametrize("some", [softmax_regression(20, 3), MultilayerPerceptron(20, 3, hidden=(9,))], ids=repr)
def test_one_record_moves_a_sum_by_at_most_its_bound_and_by_nothing_where_it_is_not_drawn(
    device: str, dtype: str, some: Model
) -> None:
    there, rows = device_of(device), data(ROWS, 20, 3)
    point = some.initial(random_streams(3).initialisation) + 0.01
    positions = prepare(some, *rows, dtype, ROWS, random_streams(5).slots).positions
    drawn = np.sort(positions[:4001])
    others = positions[1:4001]
    step = Fraction(grid_for(1.0, some.num_parameters, dtype, 10**6).step)
    changed = [rows]
    for value in (0.0, 1.0, 1e9, 1e17, 1e60, np.nan, np.inf):
        features = rows[0].copy()
        features[0] = value * np.linspace(0.5, 1.0, 20)
        changed.append((features, rows[1]))
    moved = [sums_of(there, some, each, dtype, drawn, point) for each in changed]
    unmoved = [sums_of(there, some, each, dtype, others, point) for each in changed]
    assert all(sums == unmoved[0] for sums in unmoved), "amplification by sampling rests on it"
    allowed = math.floor((2 / step) ** 2)
    distances = [sum((a - b) ** 2 for a, b in zip(each, moved[0], strict=True)) for each in moved]
    assert max(distances) <= allowed
    assert max(distances) > 0.1 * allowed, "so that the test has power"


@every_device
def test_the_pace_is_measured_where_steps_are_taken(device: str) -> None:
    pace = measure(plan_of(300, "float32"), softmax_regression(5, 3), 400, device=device_of(device))
    assert 0.0 < pace.step_s < 10.0
    assert 0.0 < pace.preparing_s < 10.0


@pytest.mark.gpu
def test_a_gpu_with_too_little_memory_says_so() -> None:
    there = cuda()
    with pytest.raises(DeviceFull), there.used():
        there.xp.empty(2**46)


FEWER_DIGITS = """
import cupy
from trainer.arithmetic import faults_of
print(faults_of(cupy))
"""


@pytest.mark.gpu
def test_a_gpu_that_takes_fewer_digits_is_noticed() -> None:
    """The test runs in a process in which CUDA's libraries have other settings."""
    cuda()
    told = {"NVIDIA_TF32_OVERRIDE": "1", "CUPY_TF32": "1"}
    command = [sys.executable, "-c", FEWER_DIGITS]
    found = subprocess.run(command, env=os.environ | told, capture_output=True, text=True, check=True).stdout
    assert "TF32" in found, found


@pytest.mark.gpu
def test_fewer_digits_are_not_to_be_had_even_where_they_are_asked_for() -> None:
    cuda()
    core: Any = sys.modules["cupy._core"]
    kinds: Any = sys.modules["cupy._core._routines_linalg"]
    asked = core.get_compute_type(np.float32)
    core.set_compute_type(np.float32, kinds.COMPUTE_TYPE_TF32)
    try:
        assert faults_of(sys.modules["cupy"]) == ()
    finally:
        core.set_compute_type(np.float32, asked)
    assert asked == kinds.COMPUTE_TYPE_PEDANTIC
    assert core.get_reduction_accelerators() == core.get_routine_accelerators() == []


class Stub(SimpleNamespace):
    """A stand-in with the part of CuPy that is used before any arithmetic."""


def absent() -> Any:
    raise ImportError("No module named 'cupy'")


def without_driver() -> Any:
    def count() -> int:
        raise RuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")

    return Stub(cuda=Stub(runtime=Stub(getDeviceCount=count)))


def without_cards() -> Any:
    return Stub(cuda=Stub(runtime=Stub(getDeviceCount=lambda: 0)))


@pytest.mark.parametrize(
    ("library", "words"),
    [
        (absent, "install the package for"),
        (without_driver, "check nvidia-smi"),
        (without_cards, "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_a_device_that_is_not_there_is_refused_with_what_would_be_right(
    monkeypatch: pytest.MonkeyPatch, library: Callable[[], Any], words: str
) -> None:
    monkeypatch.setattr(devices, "import_module", lambda _name: library())
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)  # and put back after the test
    with pytest.raises(DeviceUnusable, match=words):
        cuda_device()


class WithCard:
    """NumPy's functions, or worse ones, as a library that finds a card; and what it was told before it was loaded."""

    def __init__(self, arithmetic: Any) -> None:
        runtime = Stub(
            getDeviceCount=lambda: 1,
            getDeviceProperties=lambda _index: {"name": b"A card"},
            runtimeGetVersion=lambda: 12090,
            driverGetVersion=lambda: 13000,
        )
        self._arithmetic, self.__version__ = arithmetic, "14.0"
        self.cuda = Stub(runtime=runtime, Device=lambda: Stub(id=0), device=Stub(get_cublas_handle=lambda: 1))
        self.environment: dict[str, str] = {}
        self.told: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._arithmetic, name)

    def load(self, name: str) -> Any:
        if name == "cupy":
            self.environment = dict(os.environ)
        settings = {
            f"set_{kind}_accelerators": lambda names, kind=kind: self.told.update({kind: names})
            for kind in ("reduction", "routine", "elementwise")
        }
        return {
            "cupy": self,
            "cupy._core": Stub(**settings, set_compute_type=lambda dtype, kind: self.told.update({dtype: kind})),
            "cupy._core._routines_linalg": Stub(COMPUTE_TYPE_PEDANTIC="pedantic"),
            "cupy_backends.cuda.libs.cublas": Stub(getVersion=lambda _handle: 120900),
        }[name]


def made_of(arithmetic: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[WithCard, Callable[[], Device]]:
    library = WithCard(arithmetic)
    monkeypatch.setattr(devices, "import_module", library.load)
    for name in ENVIRONMENT:
        monkeypatch.setenv(name, "1")  # and put back after the test
    return library, cuda_device


def test_a_card_is_told_to_keep_its_digits_before_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    library, make = made_of(np, monkeypatch)
    found = make()
    assert (found.name, found.versions["cublas"], found.versions["cuda_driver"]) == ("cuda: A card", "120900", "13.0")
    wanted = {
        "CUPY_ACCELERATORS": "",
        "CUPY_TF32": "0",
        "NVIDIA_TF32_OVERRIDE": "0",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "CUBLAS_EMULATE_SINGLE_PRECISION": "0",
        "CUBLAS_EMULATE_DOUBLE_PRECISION": "0",
    }
    assert {name: library.environment[name] for name in wanted} == wanted, "whatever the operator has set"
    kinds: dict[Any, Any] = {np.float32: "pedantic", np.float64: "pedantic"}
    assert library.told == kinds | {"reduction": [], "routine": [], "elementwise": []}


def test_a_card_whose_arithmetic_is_unsound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    worse = Stub(**{name: getattr(np, name) for name in dir(np) if not name.startswith("_")})
    worse.round = lambda array: np.floor(array + 0.5)
    _, make = made_of(worse, monkeypatch)
    with pytest.raises(DeviceUnusable, match=r"not what private runs need\. Whole numbers"):
        make()


def test_a_full_device_says_so_and_frees_what_it_took() -> None:
    freed: list[bool] = []
    pool = Stub(free_all_blocks=lambda: freed.append(True))
    memory = Stub(OutOfMemoryError=MemoryError)
    library: Any = Stub(cuda=Stub(memory=memory), get_default_memory_pool=lambda: pool)
    device = CudaDevice("cuda: A card", library)
    with pytest.raises(DeviceFull), device.used():
        raise MemoryError
    with device.used():
        assert freed == [True]
    assert freed == [True, True]

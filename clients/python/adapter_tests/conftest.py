"""A real server, a small training with the real Opacus, and the report of `make test-adapters`."""

from __future__ import annotations

import json
import platform
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "clients" / "python" / "src")]

import torch  # noqa: E402
from opacus import PrivacyEngine  # noqa: E402

from epsilond_client import Client  # noqa: E402
from tests.e2e.server import serving  # noqa: E402

NOISE, BATCH, RECORDS = 4.0, 20, 100


@dataclass
class Training:
    """The objects that `make_private` returned, and a loop over them."""

    engine: Any
    model: Any
    optimizer: Any
    loader: Any

    def step(self, batch: Any, *, zero_grad: bool = True) -> None:
        features, labels = batch
        if zero_grad:
            self.optimizer.zero_grad()
        torch.nn.functional.cross_entropy(self.model(features), labels).backward()
        self.optimizer.step()

    def epoch(self) -> None:
        for batch in self.loader:
            self.step(batch)

    @property
    def history(self) -> list[tuple[float, float, int]]:
        history: list[tuple[float, float, int]] = self.engine.accountant.history
        return history

    def parameters(self) -> list[Any]:
        return [parameter.detach().clone() for parameter in self.model.parameters()]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--report", type=Path, help="where to write the report of what was tested")


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    """Write the report if all tests passed."""
    path: Path | None = config.getoption("--report")
    if path is None or exitstatus != pytest.ExitCode.OK:
        return
    passed = sorted(report.nodeid.partition("::")[2] for report in terminalreporter.stats["passed"])
    names = "opacus torch grain onnx onnxruntime pandas polars dp-accounting httpx2 numpy transformers accelerate "
    names += "jax-privacy jax optax flwr mlflow-skinny"
    libraries = names.split()
    report = {
        "command": "make test-adapters",
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in libraries},
        "passed": passed,
    }
    path.write_text(json.dumps(report, indent=1) + "\n")


MakeTraining = Callable[..., Training]


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    environment = {
        "EPSILOND_DATABASE_URL": f"sqlite:///{folder / 'ledger.sqlite3'}",
        "EPSILOND_DATA_DIR": str(folder / "var"),
        "EPSILOND_WORKERS": "1",
    }
    with serving(environment) as api, pytest.MonkeyPatch.context() as patched:
        # While a server has no keys, clients find its token in its data folder, as on an operator's machine.
        patched.setenv("EPSILOND_DATA_DIR", environment["EPSILOND_DATA_DIR"])
        patched.delenv("EPSILOND_API_KEY", raising=False)
        yield str(api.client.base_url)


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


@pytest.fixture
def make_training() -> MakeTraining:
    def make(accountant: str = "rdp", noise: float = NOISE, **options: Any) -> Training:
        torch.manual_seed(7)
        data = torch.utils.data.TensorDataset(torch.randn(RECORDS, 5), torch.randint(0, 2, (RECORDS,)))
        model = torch.nn.Linear(5, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = torch.utils.data.DataLoader(data, batch_size=BATCH)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            engine = PrivacyEngine(accountant=accountant)
            made = engine.make_private(
                module=model,
                optimizer=optimizer,
                data_loader=loader,
                noise_multiplier=noise,
                max_grad_norm=options.pop("max_grad_norm", 1.0),
                **options,
            )
        return Training(engine, made[0], made[1], made[-1])

    return make

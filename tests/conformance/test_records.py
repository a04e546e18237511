"""Two records of one name say all there is of an algorithm, and a record that its name does not lead to is refused."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from importlib import invalidate_caches
from pathlib import Path

import pytest

import calibrators
import trainer.algorithms
from accounting.events import Event, ZcDp
from app.algorithms.examples import CALIBRATE_EXAMPLES, examples_of
from app.runs.examples import RUN_EXAMPLES
from calibrators import phases, registry
from calibrators.registry import ALGORITHMS
from trainer.algorithms import EXECUTIONS

ROOT = Path(calibrators.__file__).parents[1]
#: Modules that may name an algorithm: tables of papers, which cite them, examples, and what newcomers are shown first.
MAY_NAME = ("tables.py", "examples.py", "calibration_fields.py", "registry.py")
#: An example of a request whose other fields are of this algorithm.
MAY_NAME_ONE = {"app/algorithms/assumptions.py": {"clipped_sgd_strongly_convex"}}


def test_every_algorithm_has_both_records() -> None:
    assert set(ALGORITHMS) == set(EXECUTIONS)
    assert next(iter(ALGORITHMS)) == registry.FIRST


def test_no_other_module_treats_an_algorithm_differently_by_its_name() -> None:
    found: dict[str, set[str]] = {}
    for package in ("accounting", "app", "calibrators", "trainer"):
        for path in (ROOT / package).rglob("*.py"):
            if path.name in MAY_NAME:
                continue
            source = path.read_text()
            # Most modules name none, and need not be parsed.
            if not any(name in source for name in ALGORITHMS):
                continue
            texts = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
            where = str(path.relative_to(ROOT))
            if named := (texts & set(ALGORITHMS)) - {path.stem} - MAY_NAME_ONE.get(where, set()):
                found[where] = named
    assert found == {}, "say it in the algorithm's record, and read it there"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose packages and modules are those of `calibrators` and of `trainer.algorithms`, too."""
    monkeypatch.setattr(calibrators, "__path__", [*calibrators.__path__, str(tmp_path)])
    monkeypatch.setattr(trainer.algorithms, "__path__", [*trainer.algorithms.__path__, str(tmp_path)])
    invalidate_caches()
    yield tmp_path
    invalidate_caches()


def test_a_record_under_another_name_than_its_files_is_refused(folder: Path) -> None:
    (folder / "doe_2026").mkdir()
    (folder / "doe_2026" / "__init__.py").write_text("")
    (folder / "doe_2026" / "misnamed.py").write_text("from calibrators.yang_nsgd.dp_sgd import ALGORITHM\n")
    with pytest.raises(ValueError, match=r"doe_2026\.misnamed is named 'dp_sgd': name it 'misnamed'"):
        list(registry._records())


def test_one_name_for_two_algorithms_is_refused() -> None:
    with pytest.raises(ValueError, match="are named dp_fw: give each algorithm a different name"):
        registry._by_name([ALGORITHMS["dp_fw"], ALGORITHMS["dp_gd"], ALGORITHMS["dp_fw"]])


def test_a_trainers_file_without_a_record_is_refused(folder: Path) -> None:
    (folder / "forgotten.py").write_text("")
    with pytest.raises(TypeError, match=r"trainer\.algorithms\.forgotten needs EXECUTION"):
        trainer.algorithms._execution("forgotten")


def test_one_name_for_two_example_requests_is_refused() -> None:
    one = ALGORITHMS["dp_gd"]
    records = {"dp_gd": one, "dp_fw": replace(ALGORITHMS["dp_fw"], requests=one.requests)}
    with pytest.raises(ValueError, match="example request 'dp_gd_theorem': give that of dp_fw another name"):
        examples_of(records, "dp_gd_theorem")


def test_every_algorithm_has_example_requests_and_the_first_is_what_newcomers_are_shown() -> None:
    for examples, first in ((CALIBRATE_EXAMPLES, "dp_sgd_poisson"), (RUN_EXAMPLES, "shortest")):
        named = {example["value"].get("algorithm") for example in examples.values()} - {None}
        assert named == set(ALGORITHMS)
        assert next(iter(examples)) == first


def test_every_kind_of_phase_is_found_and_says_what_its_noise_is() -> None:
    kinds = {path.stem for path in Path(phases.__file__).parent.glob("*.py")} - {"__init__", "structured", "trees"}
    assert set(phases.PHASES) == kinds
    found = phases.PHASES["vertex_steps"](Event(ZcDp(0.5)), 4, 0.01, lipschitz=1.0)
    assert found.noise(ALGORITHMS["dp_fw"].relations[0]).noise_scale == found.noise_scale

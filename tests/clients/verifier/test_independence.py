"""The verifier is a program of its own: short, on one dependency, with nothing of the engine."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import epsilond_verifier
import flint

from tests.clients.verifier.test_verdicts import CLOSED

SOURCE = Path(epsilond_verifier.__file__).parent
ALLOWED = sys.stdlib_module_names | {"flint", "epsilond_verifier"}


def _imports(source: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found.add(str(node.module).partition(".")[0])
    return found


def test_it_imports_the_standard_library_and_flint_alone() -> None:
    files = list(SOURCE.glob("*.py"))
    assert len(files) >= 5
    for path in files:
        assert _imports(path.read_text()) <= ALLOWED, path.name
        assert "import_module" not in path.read_text()
    assert _imports("from accounting.events import Event\nimport numpy.linalg") == {"accounting", "numpy"}


def test_it_runs_where_nothing_else_is(tmp_path: Path) -> None:
    """It runs from a folder with itself and FLINT alone."""
    for package in (SOURCE, Path(flint.__file__).parent, Path(flint.__file__).parent.parent / "python_flint.libs"):
        if package.exists():
            (tmp_path / package.name).symlink_to(package)
    (tmp_path / "certificate.json").write_bytes(CLOSED)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from epsilond_verifier.__main__ import main\n"
        "status = main(['certificate.json'])\n"
        "ours = {'accounting', 'calibrators', 'trainer', 'app', 'numpy', 'scipy'} & set(sys.modules)\n"
        "sys.exit(f'loaded {ours}' if ours else status)"
    )
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "certificate.json: verified: epsilon <= 4.377178096 at delta 1e-05" in run.stdout
    assert "assumed: " in run.stdout


def test_the_reading_names_what_there_is() -> None:
    """Each function of the table in docs/concepts/verifier_reading.md is one of the program."""
    defined = {
        node.name
        for path in SOURCE.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    } | {"times"}  # A field.
    page = (Path(__file__).parents[3] / "docs/concepts/verifier_reading.md").read_text()
    table = page.partition("## From function to theorem")[2].partition("\n## ")[0]
    named = [name for line in table.splitlines() for name in line.split("|")[1:2] for name in name.split("`")[1::2]]
    assert len(named) > 50
    assert {name.rpartition(".")[2] for name in named} <= defined


def test_it_is_read_in_an_afternoon() -> None:
    """At most 1149 lines hold code: blank lines, comments and docstrings are left out."""
    assert sum(_lines_of_code(path.read_text()) for path in SOURCE.glob("*.py")) <= 1149


def _lines_of_code(source: str) -> int:
    tree = ast.parse(source)
    told: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            told |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = enumerate(source.splitlines(), start=1)
    return sum(1 for number, line in lines if line.strip() and line.strip()[0] != "#" and number not in told)


def test_the_command_says_what_it_found(tmp_path: Path, capsys) -> None:
    from epsilond_verifier.__main__ import main

    good, bad, none = tmp_path / "good.json", tmp_path / "bad.json", tmp_path / "none.json"
    good.write_bytes(CLOSED)
    bad.write_bytes(CLOSED.replace(b"4.377178096", b"4.377"))
    none.write_bytes(b"{}")
    assert main([str(good)]) == 0
    assert main([str(good), str(bad)]) == 1
    assert main([str(good), str(none)]) == 2
    assert main([]) == 2
    assert main(["--help"]) == 2
    shown = capsys.readouterr().out
    assert "refuted" in shown
    assert "because certificate lacks format" in shown

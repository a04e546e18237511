"""The compiled loops: the same numbers without a compiler, kept on disk, and nothing left to compile for a request."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from accounting import compiled

_ROOT = Path(__file__).parents[2]
_ASK = """
import json, sys
from accounting.accountant import epsilon_for_delta
from accounting.events import Event, Gaussian, Laplace, Poisson, WithoutReplacement
from accounting.relations import NeighboringRelation as Relation

ADD, REPLACE = Relation.ADD_OR_REMOVE_ONE, Relation.REPLACE_ONE
LISTS = [
    ([Event(Gaussian(1.0), Poisson(0.02), 500)], ADD, 1e-5),
    ([Event(Gaussian(2.0), Poisson(0.01), 1000)], REPLACE, 1e-6),
    ([Event(Gaussian(0.5), Poisson(1e-3), 10)], ADD, 1e-6),
    ([Event(Gaussian(0.5), Poisson(1e-3), 10)], REPLACE, 1e-6),
    ([Event(Gaussian(4.0), WithoutReplacement(10, 1000), 50)], REPLACE, 1e-5),
    ([Event(Laplace(2.0), Poisson(0.1), 30), Event(Gaussian(3.0), Poisson(0.1), 30)], ADD, 1e-5),
]
"""


def run(script: str, **environment: str) -> Any:
    """Return what a script prints as JSON, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _ASK + script],
        cwd=_ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_uncompiled_loops_give_the_same_ends() -> None:
    """But for a last digit of a function that the compiler takes from another library."""
    script = """
found = [epsilon_for_delta(*each).value for each in LISTS[:2]]
json.dump([[value.lower, value.upper] for value in found], sys.stdout)
"""
    compiled, plain = run(script), run(script, NUMBA_DISABLE_JIT="1")
    for one, other in zip(compiled, plain, strict=True):
        assert one == pytest.approx(other, rel=1e-12)


def test_uncompiled_loops_draw_the_same_noise() -> None:
    script = """
from trainer.exact.gaussian import rounded_normals
from trainer.exact.ziggurat import Sources
from trainer.streams import random_streams

json.dump(rounded_normals(Sources.of(random_streams(3).noise), 5000, 2.0**34).tolist(), sys.stdout)
"""
    assert run(script) == run(script, NUMBA_DISABLE_JIT="1")


@pytest.mark.thorough
def test_warming_up_leaves_nothing_to_compile(tmp_path: Path) -> None:
    script = """
from accounting.compiled import compiled_functions
from trainer.exact.gaussian import rounded_normals
from trainer.exact.ziggurat import Sources
from trainer.streams import random_streams
from trainer.warm_up import warm_up

def misses():
    return {f"{f.__module__}.{f.__name__}": sum(f.stats.cache_misses.values()) for f in compiled_functions()}

warm_up()
before = misses()
for each in LISTS:
    epsilon_for_delta(*each)
rounded_normals(Sources.of(random_streams().noise), 40_000, 2.0**34)
json.dump([name for name, count in misses().items() if count != before[name]], sys.stdout)
"""
    assert run(script, NUMBA_CACHE_DIR=str(tmp_path)) == []
    assert any(tmp_path.rglob("*.nbi"))


def test_no_worker_loads_the_compiler_before_it_needs_it() -> None:
    """Nor does a server (tests/app/cli/test_launcher.py)."""
    assert run('import app.runs.worker; json.dump("numba" in sys.modules, sys.stdout)') is False


@pytest.mark.one_in(3)
@pytest.mark.parametrize("home", ["writable", "missing"])
def test_an_installation_that_cannot_be_written_takes_what_was_compiled_with_it(tmp_path: Path, home: str) -> None:
    """It is copied to the user's cache once, or to a folder of the process."""
    script = """
import accounting.compiled as compiled
writable = compiled._is_writable
compiled._is_writable = lambda folder: "__pycache__" not in folder.parts and writable(folder)
functions = compiled.compiled_functions()
epsilon_for_delta(*LISTS[0])
misses = sum(sum(f.stats.cache_misses.values()) for f in functions)
hits = sum(sum(f.stats.cache_hits.values()) for f in functions)
json.dump([misses, hits], sys.stdout)
"""
    run("epsilon_for_delta(*LISTS[0]); json.dump(0, sys.stdout)")  # Now there is something beside the sources.
    cache = tmp_path if home == "writable" else tmp_path / "file" / "cache"
    (tmp_path / "file").write_text("")
    misses, hits = run(script, XDG_CACHE_HOME=str(cache))
    assert (misses, hits > 5) == (0, True)
    assert any(tmp_path.glob("epsilond/*/*/*.nbi")) == (home == "writable")


def test_it_is_known_whether_everything_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_cache_folder", lambda sources: str(tmp_path / sources.name))
    for folder in compiled.FOLDERS:
        (tmp_path / folder.name).mkdir()
    assert not compiled.is_complete()
    compiled.note_complete()
    assert compiled.is_complete()
    (tmp_path / compiled.FOLDERS[-1].name / "complete").unlink()
    assert not compiled.is_complete()


def test_the_folders_with_compiled_functions_are_those_that_are_named() -> None:
    script = """
from pathlib import Path
import trainer.warm_up
from accounting.compiled import FOLDERS, compiled_functions

found = {str(Path(sys.modules[f.__module__].__file__).parent) for f in compiled_functions()}
json.dump([sorted(found), sorted(map(str, FOLDERS))], sys.stdout)
"""
    found, named = run(script)
    assert found == named


def test_what_is_kept_goes_by_all_sources_of_a_folder(tmp_path: Path) -> None:
    """A caller is compiled with what it calls in it, and numba looks at the caller's own file alone."""
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        for name in ("caller.py", "called.py"):
            (tmp_path / folder / name).write_text(f"# {folder}")
    kept = compiled._cache_folder.__wrapped__(tmp_path / "one")
    assert kept == compiled._cache_folder.__wrapped__(tmp_path / "one")
    assert Path(kept).parents[2] == tmp_path / "one"
    (tmp_path / "other" / "called.py").write_text("# changed")
    assert compiled._cache_folder.__wrapped__(tmp_path / "one") == kept
    (tmp_path / "one" / "called.py").write_text("# changed")
    assert compiled._cache_folder.__wrapped__(tmp_path / "one") != kept


def test_compiled_functions_call_each_other_within_a_folder_alone() -> None:
    """What is kept of a caller goes by the sources of its own folder, so it must contain nothing of another."""
    script = """
import accounting.fourier.choice, accounting.fourier.pairs, accounting.fourier.tails, trainer.exact.ziggurat
from accounting.compiled import _functions

folders, calls = {}, []
for each in _functions:
    function = each.function
    folder = function.__module__.rpartition(".")[0]
    folders[folder] = folders.get(folder, 0) + 1
    for name in function.__code__.co_names:
        called = function.__globals__.get(name)
        if called in _functions:
            calls.append([folder, called.function.__module__.rpartition(".")[0]])
json.dump([folders, calls], sys.stdout)
"""
    folders, calls = run(script)
    assert folders["accounting.fourier"] > 30
    assert folders["trainer.exact"] == 6
    assert len(calls) > 10
    assert all(caller == called for caller, called in calls)

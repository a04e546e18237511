"""docs/releasing.md: what a machine can decide about a release, and whether the list names what there is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from alembic.script import ScriptDirectory
from packaging.requirements import Requirement
from packaging.version import Version

from app import VERSION
from app.db.migrate import MIGRATIONS, head_revision
from tests.contract.documents import DOCS, ROOT

PAGE = DOCS / "releasing.md"
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"
REPORTS = sorted((ROOT / "tests" / "soak" / "reports").glob("*.json"))
SECTIONS = ("Reporting", "Supported versions")
#: What the benchmarks compare with has limits of its own.
LOCKS = [ROOT / "requirements" / f"{name}.lock" for name in ("runtime", "dask", "dev")]

#: What a campaign counts that must be nothing, by the names of its figures.
NOTHING = re.compile(
    r"faults|crashes|beyond_noise|false_statements_verified|true_statements_refuted|"
    r"lower_bounds_above_the_referee|upper_bounds_below_an_attained_pair"
)
#: Campaigns that are judged by something else.
JUDGED: dict[str, Callable[[dict[str, Any]], bool]] = {
    "load": lambda found: found["errors"] == {} and found["ledger_valid"],
    "lattice": lambda found: found["largest_epsilon_shown"] <= found["epsilon_charged"],
    "prices": lambda found: found["largest_excess_over_its_lower_end"] < 1e-3,
    "private_accuracy": lambda found: found["share_at_or_below_0.90"] <= 0.01,
    "run_times": lambda found: found["smallest_p_times_comparisons"] >= found["alpha"] > found["p_of_control"],
    "certified_schemes": lambda found: found["certificates"] > 0,
}


def project(path: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / path).read_text())


def locked(lock: Path) -> dict[str, set[str]]:
    """The versions of each package in a lock: more than one where they differ by the version of Python."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\\n]+)", lock.read_text(), re.MULTILINE):
        found.setdefault(name.lower().replace("_", "-"), set()).add(version)
    return found


def test_there_is_one_version() -> None:
    assert project("pyproject.toml")["project"]["version"] == VERSION
    assert project("clients/python/pyproject.toml")["project"]["version"] == VERSION
    assert json.loads((ROOT / "openapi.json").read_text())["info"]["version"] == VERSION
    named = {
        version
        for page in (ROOT / "README.md", *DOCS.rglob("*.md"))
        for version in re.findall(r"epsilond-([0-9][0-9a-z.]*)-py3|--sign v([0-9.]+[0-9])", page.read_text())
    }
    assert {version for pair in named for version in pair if version} == {VERSION}


def test_the_changelog_is_in_order() -> None:
    """What is not released comes first, and every other section has a version and a day."""
    titles = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    released = [title for title in titles if title != "Unreleased"]
    assert titles in (released, ["Unreleased", *released])
    versions = [re.fullmatch(r"\[?([0-9.]+)\]? - \d{4}-\d\d-\d\d", title) for title in released]
    numbers = [Version(found[1]) for found in versions if found is not None]
    assert len(numbers) == len(released), released
    assert numbers == sorted(numbers, reverse=True)


def test_migrations_are_one_chain_in_the_order_of_their_names() -> None:
    """A server compares its database with the newest name; Alembic follows what the files say."""
    from app.db.migrate import _config

    scripts = ScriptDirectory.from_config(_config())
    assert scripts.get_heads() == [head_revision()]
    chain = [script.revision for script in scripts.walk_revisions()][::-1]
    names = sorted(path.name for path in (MIGRATIONS / "versions").glob("[0-9]*_*.py"))
    assert chain == [name.partition("_")[0] for name in names]


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.stem)
def test_no_campaign_has_found_a_violation(report: Path) -> None:
    found = json.loads(report.read_text())
    assert re.fullmatch(r"[0-9a-f]{40}", found["commit"])
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", found["date"])
    judge = JUDGED.get(report.stem)
    if judge is not None:
        assert judge(found)
        return
    counted = {name: value for name, value in found.items() if NOTHING.fullmatch(name)}
    assert counted, f"nothing in {report.name} says whether it found a violation"
    assert set(counted.values()) == {0}, counted


def test_the_locks_are_in_step() -> None:
    """Each has what `pyproject.toml` asks for, and a package that several have is of one version in all of them."""
    wanted = [Requirement(each) for each in project("pyproject.toml")["project"]["dependencies"]]
    versions = {lock.name: locked(lock) for lock in LOCKS}
    for name, found in versions.items():
        for each in wanted:
            assert each.name in found, (name, each)
            assert all(each.specifier.contains(version) for version in found[each.name]), (name, each)
    runtime = versions["runtime.lock"]
    for other in ("dask.lock", "dev.lock"):
        assert {name: versions[other].get(name) for name in runtime} == runtime, other


def test_the_list_names_what_there_is() -> None:
    text = PAGE.read_text()
    rows = re.findall(r"^\| \d+ \| .+? \| `([^`]+)` \|$", text, re.MULTILINE)
    assert len(rows) >= 10
    for row in rows:
        file, _, test = row.partition("::")
        assert (ROOT / file).exists(), row
        assert not test or f"def {test}(" in (ROOT / file).read_text(), row
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = re.findall(r"make ([a-z-]+)", text + WORKFLOW.read_text())
    assert called
    assert set(called) <= targets


def test_the_workflow_uses_nobody_elses_actions_and_has_the_least_rights() -> None:
    text = WORKFLOW.read_text()
    assert not re.search(r"^\s*-?\s*uses:", text, re.MULTILINE), "it would have to be pinned"
    assert "\npermissions: {}\n" in text
    assert re.findall(r"^ {6}([a-z-]+: write)", text, re.MULTILINE) == ["contents: write", "id-token: write"]
    tools = [Requirement(each).name for each in project("pyproject.toml")["dependency-groups"]["release"]]
    assert set(tools) <= locked(ROOT / "requirements" / "release.lock").keys()
    for tool in ("cyclonedx-py", "sigstore"):
        assert tool in text
    assert "--require-hashes -r requirements/release.lock" in text


@dataclass(frozen=True)
class Checkout:
    """A folder with what `.ci/pin-images` works on, and a stand-in for the registry's client: tests have no network."""

    folder: Path

    def answer(self, script: str) -> None:
        program = self.folder / "bin" / "docker"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def pin(self, *options: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        command = [self.folder / ".ci" / "pin-images", *options]
        return subprocess.run(command, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False)

    def images(self) -> set[str]:
        text = "".join((self.folder / name).read_text() for name in IMAGES_IN)
        return set(re.findall(r"^(?:FROM| +image:) +(\S+)", text, re.MULTILINE))


IMAGES_IN = ("Dockerfile", "docker-compose.yml")
#: Prints a digest that depends on the tag.
DIGEST = 'test "$1 $2 $3" = "buildx imagetools inspect" && echo "sha256:$(printf %s "$4 NOW" | sha256sum | cut -c1-64)"'


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    for name in (*IMAGES_IN, ".ci/pin-images"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return Checkout(tmp_path)


def test_images_of_others_are_pinned_by_their_digests(checkout: Checkout) -> None:
    tags = {image.partition("@")[0] for image in checkout.images()}
    for moment in ("1", "2"):
        checkout.answer(DIGEST.replace("NOW", moment))
        assert checkout.pin().returncode == 0
        expected = {tag: f"{tag}@sha256:{sha256(f'{tag} {moment}'.encode()).hexdigest()}" for tag in tags}
        own = {tag for tag in tags if tag.startswith("epsilond:")}
        assert len(own) == 1
        assert checkout.images() == {tag if tag in own else expected[tag] for tag in tags}
        assert checkout.pin("--check").returncode == 0
    assert "AS build" in (checkout.folder / "Dockerfile").read_text()


@pytest.mark.parametrize("script", ["exit 1", "echo manifest unknown", "echo sha256:12"])
def test_a_registry_that_does_not_answer_pins_nothing(checkout: Checkout, script: str) -> None:
    text = (checkout.folder / "Dockerfile").read_text()
    (checkout.folder / "Dockerfile").write_text(re.sub(r"@sha256:\w+", "", text))
    before = checkout.images()
    checkout.answer(script)
    assert checkout.pin().returncode == 1
    assert checkout.images() == before
    refused = checkout.pin("--check")
    assert (refused.returncode, "python:3.13-slim-trixie" in refused.stderr) == (1, True)


def test_a_tag_is_not_released_with_images_that_are_not_pinned() -> None:
    page, release, images = (path.read_text() for path in (PAGE, WORKFLOW, WORKFLOW.with_name("images.yml")))
    assert release.index(".ci/pin-images --check") < release.index("pip wheel")
    assert "run: .ci/pin-images\n" in images
    assert not re.search(r"^\s*-?\s*uses:", images, re.MULTILINE), "it would have to be pinned"
    assert re.findall(r"^ {6}([a-z-]+: write)", images, re.MULTILINE) == ["contents: write", "pull-requests: write"]
    assert ".ci/pin-images --check" in page


def test_the_security_policy_has_a_way_a_time_and_the_version() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    reporting, supported = (text.partition(f"## {title}\n")[2].partition("\n## ")[0] for title in SECTIONS)
    assert "security advisories" in reporting
    assert "three working days" in reporting
    assert f"| {VERSION.rpartition('.')[0]} | yes |" in supported

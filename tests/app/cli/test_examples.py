"""Every command's help says what it does in a sentence, and ends with an example that runs as it stands."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from typer.main import get_group

from app.algorithms.advice import ADVISE_EXAMPLES
from app.cli.launcher import write_launcher
from app.cli.main import COMMANDS, cli
from app.db.database import Database
from app.deployments.examples import DEPLOYMENT_EXAMPLES
from app.fence.watching import fenced_context
from app.kit.ids import new_id
from app.ledger import proving
from app.ledger.commands import AskLimit
from app.ledger.journal import Instruction, carry_out
from app.ledger.transparency_schemas import InclusionBody
from app.settings import Settings, environment_of
from app.sweeps.examples import SWEEP_EXAMPLES
from app.tables.ledger import Entry, LimitRequest
from tests.app.cli.calls import done
from tests.app.cli.test_run import CREATE

#: What cannot be done twice, or prints no answer; how it is told as JSON, other tests say.
ONCE = {
    "run create", "run cancel", "run model", "budget create", "budget approve", "budget refuse",
    "budget withdraw", "keys create", "keys rotate", "keys revoke",
    "secrets retire", "secrets save", "data-key drop",
    "ledger export", "ledger checkpoint", "openapi", "backup", "restore",
}  # fmt: skip


def leaves(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        for name, each in command.commands.items():
            yield from leaves(f"{path} {name}".strip(), each)
    else:
        yield path, command


ALL = dict(leaves("", get_group(cli)))


def example(path: str) -> list[str]:
    """The words of the example at the end of a command's help."""
    marker, title, *lines = ALL[path].epilog.splitlines()
    assert (marker, title) == ("\b", "Example:")
    words = shlex.split(" ".join(line.removesuffix("\\") for line in lines))
    assert words[0] == "epsilond"
    assert " ".join(words[1:]).startswith(path)
    return words[1:]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("path", ALL)
def test_every_command_says_what_it_does_and_what_its_options_are(path: str) -> None:
    command = ALL[path]
    first = command.help.partition(".")[0]
    assert len(first) < 80, first
    assert command.help.rstrip().endswith(".")
    if path in COMMANDS:
        assert f"{first}." == COMMANDS[path][1]
    for parameter in command.params:
        assert parameter.help.endswith((".", "app.", "8000.")), parameter.name
    shown = done(*path.split(), "--help")
    assert " ".join(example(path)[:3]) in " ".join(shown.split())


def test_the_list_of_all_commands_is_that_of_the_modules() -> None:
    shown = done("--help")
    for name, (_, sentence) in COMMANDS.items():
        assert f"  {name} " in shown
        assert sentence in shown
        assert get_group(cli).commands[name].help.startswith(sentence)


@contextmanager
def running(program: Path, words: list[str], environment: dict[str, str], until: str) -> Iterator[list[str]]:
    """A command that does not end by itself: what it printed up to the line that begins with ``until``."""
    command, folder = [program, *words], Path(environment["EPSILOND_DATA_DIR"]).parent
    with (folder / words[0]).open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        printed = []
        for line in process.stdout:
            printed.append(line)
            if line.startswith(until):
                break
        yield printed
    finally:
        process.send_signal(signal.SIGTERM)
        process.stdout.close()
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()


@pytest.mark.thorough
def test_every_example_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sweep.json").write_text(json.dumps(SWEEP_EXAMPLES["noise_over_epsilon"]["value"]))
    Path("problem.json").write_text(json.dumps(ADVISE_EXAMPLES["convex"]["value"]))
    Path("call.py").write_text("engine.make_private(noise_multiplier=1.1, poisson_sampling=False)\n")
    Path("visits.csv").write_text("age,ill\n30,no\n70,yes\n")
    Path("answers.json").write_text(json.dumps(DEPLOYMENT_EXAMPLES["clinic"]["value"]))
    allowed = "https://hooks.example/"
    data_key = tmp_path / "data.key"
    data_key.write_text(secrets.token_hex(32))
    settings = Settings(
        data_dir=tmp_path / "data", port=0, workers=0, webhook_addresses=allowed, data_key_file=data_key
    )
    program = write_launcher(tmp_path, Path(sys.executable))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("EPSILOND_")}
    environment = {**inherited, **environment_of(settings)}
    with (
        running(program, example("serve"), environment, "  stop") as banner,
        running(program, example("worker"), environment, "epsilond worker: 1 run(s)"),
    ):
        env = {**environment_of(settings), "EPSILOND_URL": banner[0].split()[1], "EPSILOND_API_KEY": ""}
        for path, command in ALL.items():
            if path in ("serve", "worker"):
                continue
            words = [placeholder(word, path, settings, env) for word in example(path)]
            done(*words, env=env_of_an_empty_place(settings, env) if path == "restore" else env)
            if path not in ONCE:
                assert "--json" in {option for parameter in command.params for option in parameter.opts}
                json.loads(done(*words, "--json", env=env))


def env_of_an_empty_place(settings: Settings, env: dict[str, str]) -> dict[str, str]:
    """What a backup is restored into: the secret is there, and nothing else."""
    folder = settings.data_dir.with_name("empty")
    folder.mkdir(mode=0o700)
    shutil.copy(settings.secret_file, folder)
    return {**env, "EPSILOND_DATA_DIR": str(folder)}


def placeholder(word: str, path: str, settings: Settings, env: dict[str, str]) -> str:
    """Return the text that stands for a word in capitals."""
    match word:
        case "RUN" if path == "run cancel":
            long = CREATE.replace("--iterations 5", "--iterations 1000000")
            return str(json.loads(done(*long.split(), "--json", env=env))["id"])
        case "RUN":
            runs = json.loads(done("run", "list", "--json", env=env))["items"]
            return str(next(run["id"] for run in runs if run["state"] == "succeeded"))
        case "new.csv":
            model = json.loads(done("run", "model", placeholder("RUN", path, settings, env), env=env))
            names, cells = zip(*((each["name"], str(each["lower"])) for each in model["features"]), strict=True)
            Path(word).write_text(f"{','.join(names)}\n{','.join(cells)}\n")
        case "BUDGET":
            return str(json.loads(done("budget", "list", "--json", env=env))["items"][0]["id"])
        case "WEBHOOK":
            budget = placeholder("BUDGET", path, settings, env)
            return str(json.loads(done("budget", "webhooks", budget, "--json", env=env))["items"][0]["id"])
        case "REQUEST":
            if path == "budget approve":
                asked_by_somebody_else(settings)
            text = done("budget", "requests", "--state", "open", "--json", env=env)
            return str(json.loads(text)["items"][0]["id"])
        case "KEY":
            return str(json.loads(done("keys", "list", "--json", env=env))["items"][0]["id"])
        case "OLD_KEY":
            keys = json.loads(done("data-key", "list", "--json", env=env))["items"]
            return next(str(each["key"]) for each in keys if each["use"] == "decrypts")
        case "PUBLIC_KEY":
            return done("ledger", "public-key", env=env).strip()
        case "proof.json":
            database = Database(settings.sqlalchemy_url)
            with database.read() as session:
                entry_id = session.scalars(select(Entry.id)).first()
            assert entry_id is not None
            proof = proving.inclusion(fenced_context(settings, database), entry_id)
            database.dispose()
            Path(word).write_text(InclusionBody.of(proof).model_dump_json())
    return word


def asked_by_somebody_else(settings: Settings) -> None:
    """Let another key ask for what was asked for last: nobody approves a request of their own."""
    database = Database(settings.sqlalchemy_url)
    context = fenced_context(settings, database)
    with database.write() as session:
        (asked,) = session.scalars(select(LimitRequest).order_by(LimitRequest.created_at.desc()).limit(1))
        command = AskLimit(new_id("lim"), asked.filter, "more", 1)
        # Newer than the other one, so that it is listed first.
        later = context.clock() + timedelta(seconds=5)
        carry_out(session, database, [Instruction(command, "service", asked.budget_id)], later)
    database.dispose()

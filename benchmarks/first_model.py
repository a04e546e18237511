"""`python -m benchmarks.first_model`: time the way from a fresh clone to a first answer and to a first charged model.

The benchmark sets up a clone of the last commit and starts it with `make serve`. It then carries out the first command
of README.md, and the commands of docs/how-to/csv_to_predictions.md up to the trained model, as they are printed there.
The packages come from the registry, or from pip's cache if it has them. A person's time is the time of the commands
plus the time to type them.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.http_servers import HOST, cpu_seconds

README, GUIDE = "README.md", "docs/how-to/csv_to_predictions.md"
#: The steps of the guide from an existing file to a model. The step `FILE` only makes a file to practise with.
FILE, STEPS = "1", ("2", "3", "4", "5", "6")
#: The beginning of a command that keeps the id of the run for later steps. Such commands are not carried out here.
_KEEPS_AN_ID = "RUN="
ANSWER_S, MODEL_S = 45.0, 180.0
#: The characters that a person types in a second, at 40 words of five letters in a minute.
TYPED_PER_S = 40 * 5 / 60
_PATIENCE_S = 600.0
_STEP = re.compile(r"^\*\*(\d+)\. (.*?)\*\*(.*?)(?=^\*\*\d+\. |\Z)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FIRST_COMMAND = re.compile(r"^    (curl .*?\}\}')$", re.MULTILINE | re.DOTALL)


def main() -> None:
    """Measure, write the figures, and print which goals are met."""
    output, is_quick = report.asked("first_model", __doc__)
    started = time.perf_counter()
    figures = report.header("first_model", "make bench-first-model", is_quick, (), ["app"])
    with tempfile.TemporaryDirectory(prefix="epsilond-bench-") as folder:
        clone = Path(folder) / "epsilond"
        subprocess.run(["git", "clone", "--quiet", report.ROOT, clone], check=True)
        figures |= measure(clone)
    report.conclude(output, report.plain(figures), goals(figures), time.perf_counter() - started)


def measure(clone: Path) -> dict[str, Any]:
    """Return the seconds of each stage in the clone, and the number of characters that a person types for the model."""
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    started = time.perf_counter()
    with _served(clone, port) as server:
        _await_ready(port)
        ready = time.perf_counter() - started
        command = first_command((clone / README).read_text()).replace("127.0.0.1:8000", f"{HOST}:{port}")
        subprocess.run(["bash", "-c", command], check=True, capture_output=True)
        answered = time.perf_counter() - started
        used = cpu_seconds(server.pid)
        steps = _carry_out(clone, f"http://{HOST}:{port}")
    typed = sum(each["typed"] for each in steps)
    return {"ready_s": ready, "answer_s": answered, "answer_cpu_s": used, "steps": steps, "typed": typed}


def first_command(readme: str) -> str:
    """Return the first command of the README that sends a request to the server.

    >>> first_command("text\\n\\n    curl -s http://a -d '{\\n      \\"b\\": {\\"c\\": 1}}'\\n")
    'curl -s http://a -d \\'{\\n      "b": {"c": 1}}\\''
    """
    found = _FIRST_COMMAND.search(readme)
    assert found is not None, "the README shows a first calibration"
    return found[1]


def steps_of(guide: str) -> dict[str, tuple[str, str]]:
    """Return the title and the commands of each step of the guide, by its number.

    >>> steps_of("**1. One.** Do it:\\n\\n```sh\\nls\\n```\\n\\n**2. Two** is done.\\n")
    {'1': ('One.', 'ls\\n'), '2': ('Two', '')}
    """
    blocks = ((number, title, _BLOCK.findall(text)) for number, title, text in _STEP.findall(guide))
    return {
        number: (title, "".join(each for each in found if not each.startswith(_KEEPS_AN_ID)))
        for number, title, found in blocks
    }


def _carry_out(clone: Path, url: str) -> list[dict[str, Any]]:
    steps = steps_of((clone / GUIDE).read_text())
    path = os.pathsep.join((str(clone / ".venv" / "bin"), os.environ["PATH"]))
    shell = subprocess.Popen(
        ["bash"],
        cwd=clone,
        env={**os.environ, "PATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    rows = []
    with shell:
        for number in (FILE, *STEPS):
            title, commands = steps[number]
            began = time.perf_counter()
            _carry_out_in(shell, commands.replace("http://127.0.0.1:8000", url))
            row = {"step": title.rstrip("."), "seconds": time.perf_counter() - began, "typed": len(commands)}
            rows.append(row)
        assert shell.stdin is not None
        shell.stdin.close()
    return rows[1:]


def _carry_out_in(shell: subprocess.Popen[str], commands: str) -> None:
    """Carry out commands in a shell, and wait until they have ended.

    Raises:
        RuntimeError: If the last command fails.
    """
    assert shell.stdin is not None
    assert shell.stdout is not None
    shell.stdin.write(f"{commands}\necho ended $?\n")
    shell.stdin.flush()
    lines: list[str] = []
    for line in shell.stdout:
        if line.startswith("ended "):
            if line.strip() != "ended 0":
                raise RuntimeError(f"{commands}\n{''.join(lines)}")
            return
        lines.append(line)
    raise RuntimeError("the shell ended")


@contextmanager
def _served(clone: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run `make serve` in the clone without the settings and the programs of this project, and stop the server at the
    end."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("EPSILOND_", "VIRTUAL_ENV"))}
    path = os.pathsep.join(
        part for part in os.environ["PATH"].split(os.pathsep) if not part.startswith(str(report.ROOT))
    )
    process = subprocess.Popen(
        ["make", "serve", f"PORT={port}"],
        cwd=clone,
        env=inherited | {"PATH": path},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def _await_ready(port: int) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{port}/health/ready"):
                return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"the server was not ready after {_PATIENCE_S:g} s")


def persons_seconds(figures: Mapping[str, Any]) -> float:
    """Return the seconds that a person needs for the model while the server runs, for typing and for waiting."""
    return float(figures["typed"] / TYPED_PER_S + sum(each["seconds"] for each in figures["steps"]))


def goals(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a mapping with "what", "goal", "measured" and "met" for the first answer and the first model."""
    asked = (
        ("From a clone to the first answer", figures["answer_s"], ANSWER_S),
        ("A person's time from there to a charged private model", persons_seconds(figures), MODEL_S),
    )
    return [
        {"what": what, "goal": f"at most {most:g} s", "measured": f"{found:.0f} s", "met": found <= most}
        for what, found, most in asked
    ]


def first_model_section(figures: Mapping[str, Any]) -> list[str]:
    """Return the lines of the part of docs/measured.md about the way from a clone to a model."""
    rows = [
        ["`make serve`: packages, compilation, start", f"{figures['ready_s']:.0f}", "10"],
        ["the README's first calibration", f"{figures['answer_s'] - figures['ready_s']:.1f}", "pasted"],
        *([each["step"], f"{each['seconds']:.1f}", f"{each['typed']}"] for each in figures["steps"]),
    ]
    return [
        f"The benchmark makes a fresh clone and carries out the commands of README.md and of {GUIDE} "
        f"(`{figures['command']}`,",
        f"{figures['date']}, {report.commit_of(figures)}; {figures['machine']['cores']} cores; load average "
        f"{figures['load_average_before']:.1f} before).",
        f"Until the first answer, the set-up and the server used {figures['answer_cpu_s']:.0f} s of CPU time. A person "
        "is assumed to type 40 words in a minute and to wait for each command.",
        "",
        *report.goals_table(figures["goals"]),
        "",
        *report.markdown_table(["step", "seconds", "characters typed"], rows),
    ]


if __name__ == "__main__":
    main()

"""Coverage-guided fuzzing of everything that reads bytes of somebody else: `make fuzz`.

Each target has a process and a share of the time; it begins with good inputs, keeps what reaches new code, and
stops at its first crash. The report says what was done. An input that crashed belongs into `inputs/<target>`, where
`make test` reads it for ever.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import atheris

# What is imported here tells the fuzzer which of its branches an input takes; NumPy and others are not ours.
with atheris.instrument_imports(include=["app", "accounting", "calibrators", "trainer"]):
    from tests.fuzz.mutation import mutate
    from tests.fuzz.seeds import inputs_of
    from tests.fuzz.targets import TARGETS, Target
    from tests.soak.report import write_report

#: Longest input, since longer ones say no more; seconds of one; memory of the process; where chance begins.
OPTIONS = ("-max_len=4096", "-timeout=20", "-rss_limit_mb=4096", "-seed=1")
PROGRESS = re.compile(r"#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)")
DONE = re.compile(r"Done (\d+) runs? in (\d+) second")


def fuzz(target: Target, options: list[str]) -> NoReturn:
    """Fuzz one target in this process, which ends with it.

    Args:
        target: What reads the inputs.
        options: What libFuzzer takes.
    """

    def change(data: bytes, max_size: int, seed: int) -> bytes:
        changed = mutate(data, seed) if seed % 4 else None
        return atheris.Mutate(data, max_size) if changed is None or len(changed) > max_size else changed

    mutator: dict[str, Any] = {"custom_mutator": change} if target.is_json else {}
    atheris.Setup([sys.argv[0], *options], target, **mutator)
    atheris.Fuzz()
    raise AssertionError("libFuzzer ends the process")


def fuzz_all(targets: Mapping[str, Target], seconds: int) -> dict[str, Any]:
    """Each target for its share of the seconds, one after the other, each in a copy of this process."""
    share = max(1, seconds // len(targets))
    found: dict[str, Any] = {}
    for name, target in targets.items():
        with tempfile.TemporaryDirectory() as folder:
            corpus, log = Path(folder, "corpus"), Path(folder, "log")
            corpus.mkdir()
            for number, data in enumerate(inputs_of(name)):
                (corpus / f"seed-{number}").write_bytes(data)
            child = os.fork()
            if child == 0:
                for stream in (1, 2):
                    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), stream)
                fuzz(target, [f"-max_total_time={share}", *OPTIONS, f"-artifact_prefix={folder}/crash-", str(corpus)])
            _, status = os.waitpid(child, 0)
            found[name] = _figures(log.read_text(errors="replace"), status)
            sys.stderr.write(f"{name} {found[name]}\n")
            if status:
                inputs = [path.read_bytes() for path in Path(folder).glob("crash-*")]
                sys.stderr.write(f"{log.read_text(errors='replace')[-6000:]}\nInputs that crash {name}: {inputs!r}\n")
    return found


def _figures(output: str, status: int) -> dict[str, int]:
    last = PROGRESS.findall(output)[-1]
    # One that crashed does not say how it ended.
    done = (DONE.findall(output) or [("0", "0")])[-1]
    return {
        "seconds": int(done[1]),
        "executions": int(done[0]),
        "covered_branches": int(last[1]),
        "features": int(last[2]),
        "inputs_kept": int(last[3]),
        "crashes": int(bool(status)),
    }


def main() -> None:
    """Fuzz every target, and write the report if none crashed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=650, help="in all")
    parser.add_argument("--target", choices=sorted(TARGETS), help="this one alone, without a report")
    chosen = parser.parse_args()
    if chosen.target is not None:
        fuzz_all({chosen.target: TARGETS[chosen.target]}, chosen.seconds)
        return
    targets = fuzz_all(TARGETS, chosen.seconds)
    if any(figures["crashes"] for figures in targets.values()):
        sys.exit("there were crashes: no report is written")
    total = {key: sum(figures[key] for figures in targets.values()) for key in ("seconds", "executions", "crashes")}
    write_report("fuzz", "make fuzz", {**total, "targets": targets})


if __name__ == "__main__":
    main()

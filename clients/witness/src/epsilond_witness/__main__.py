"""`epsilond-witness`: make a witness, run it, list what it refused, or follow the ledger of a service.

The exit status is 0 if nothing is wrong, 1 if a ledger is not as it should be, and 2 if the command cannot be carried
out.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from epsilond_witness.asking import Refused, Unreachable, ask
from epsilond_witness.cosigning import Witness
from epsilond_witness.monitor import Look, Monitor
from epsilond_witness.notes import Key, Kind, Malformed
from epsilond_witness.serving import Server
from epsilond_witness.state import Unusable, make, open_folder

_HOOK_S = 60


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return its exit status."""
    given = _parser().parse_args(arguments)
    try:
        status: int = given.command(given)
    except (Malformed, Unusable, ValueError, OSError) as error:
        print(f"epsilond-witness: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("epsilond-witness", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    init = commands.add_parser("init", help="make the key and the state of a new witness; print its public key")
    init.add_argument("folder", type=Path)
    init.add_argument("--name", required=True, help="name of the witness, such as witness.example/ledgers")
    init.set_defaults(command=_init)

    key = commands.add_parser("public-key", help="print the public key of a witness")
    key.add_argument("folder", type=Path)
    key.set_defaults(command=_public_key)

    serve = commands.add_parser("serve", help="cosign checkpoints of logs, over HTTP")
    serve.add_argument("folder", type=Path)
    serve.add_argument(
        "--log", action="append", required=True, metavar="KEY", help="public key of a log; may be repeated"
    )
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    serve.add_argument("--port", type=int, default=8010, help="port to listen on; 0 takes a free one (8010)")
    serve.set_defaults(command=_serve)

    conflicts = commands.add_parser(
        "conflicts", help="print checkpoints that contradict each other; the status is 1 if there are any"
    )
    conflicts.add_argument("folder", type=Path)
    conflicts.set_defaults(command=_conflicts)

    monitor = commands.add_parser("monitor", help="follow the ledger of a service, and alert")
    monitor.add_argument("folder", type=Path, help="folder for the newest checkpoint and for contradictions")
    monitor.add_argument("--url", required=True, help="address of the service")
    monitor.add_argument("--log", action="append", required=True, metavar="KEY", help="public key of the ledger")
    monitor.add_argument("--token-file", type=Path, help="file with a key of the service that has the scope auditor")
    monitor.add_argument("--witness", action="append", default=[], metavar="KEY", help="public key of a witness")
    monitor.add_argument("--quorum", type=int, help="number of witnesses that must have cosigned a checkpoint (all)")
    monitor.add_argument(
        "--max-age",
        type=int,
        default=600,
        metavar="SECONDS",
        help="alert if the witnesses' cosignatures are older than this (600)",
    )
    monitor.add_argument(
        "--interval", type=float, default=60.0, metavar="SECONDS", help="time between two checks of the ledger (60)"
    )
    monitor.add_argument(
        "--once", action="store_true", help="check the ledger once; the status is 1 if something is wrong"
    )
    monitor.add_argument(
        "--hook",
        metavar="COMMAND",
        help="command to run when the alerts change; it gets the findings as JSON on its input",
    )
    monitor.add_argument("--webhook", metavar="URL", help="address to post the findings to when the alerts change")
    monitor.set_defaults(command=_monitor)
    return parser


def _init(given: argparse.Namespace) -> int:
    print(make(given.folder, given.name))
    return 0


def _public_key(given: argparse.Namespace) -> int:
    _, key, _ = open_folder(given.folder)
    print(key)
    return 0


def _serve(given: argparse.Namespace) -> int:
    private, key, state = open_folder(given.folder)
    witness = Witness(private, key, state, [Key.parse(log, Kind.LOG) for log in given.log])
    with Server((given.host, given.port), witness) as server:
        host, port = server.server_address[:2]
        _say({"serving": f"http://{_in_a_url(str(host))}:{port}", "public_key": str(key)})
        server.serve_forever()
    return 0


def _in_a_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _conflicts(given: argparse.Namespace) -> int:
    _, _, state = open_folder(given.folder)
    with state.reading() as records:
        found = records.conflicts()
    for each in found:
        _say(vars(each))
    return 1 if found else 0


def _monitor(given: argparse.Namespace) -> int:
    witnesses = tuple(Key.parse(text, Kind.COSIGNER) for text in given.witness)
    monitor = Monitor(
        given.folder,
        given.url,
        tuple(Key.parse(text, Kind.LOG) for text in given.log),
        given.token_file.read_text().strip() if given.token_file else "",
        witnesses,
        len(witnesses) if given.quorum is None else given.quorum,
        given.max_age,
    )
    known: set[str] = set()
    while True:
        look = monitor.look()
        _say(look.body())
        alerts = {str(alert) for alert in look.alerts}
        if alerts != known:
            _tell(look, given.hook, given.webhook)
            known = alerts
        if given.once:
            return 1 if alerts else 0
        time.sleep(given.interval)


def _say(said: dict[str, Any]) -> None:
    """Print a line of JSON."""
    print(json.dumps(said), flush=True)


def _tell(look: Look, hook: str | None, webhook: str | None) -> None:
    """Tell the hook and the webhook that the alerts have changed, and print a line for each of them that fails."""
    body = json.dumps(look.body()).encode()
    if hook is not None:
        try:
            subprocess.run(shlex.split(hook), input=body, timeout=_HOOK_S, check=True)  # noqa: S603  # the user's own
        except (OSError, subprocess.SubprocessError) as error:
            _say({"error": f"the hook failed ({type(error).__name__})"})
    if webhook is not None:
        try:
            ask(webhook, {"Content-Type": "application/json"}, body)
        except (Refused, Unreachable) as error:
            _say({"error": f"the webhook failed: {error}"})


if __name__ == "__main__":
    sys.exit(main())

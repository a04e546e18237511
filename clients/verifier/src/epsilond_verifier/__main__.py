"""``epsilond-verify certificate.json ...``: check certificates. The exit status is 0 if all of them are verified, 1 if
at least one is refuted, and 2 otherwise."""

from __future__ import annotations

import sys
from pathlib import Path

from epsilond_verifier.verdicts import Verdict, check

_USAGE = "usage: epsilond-verify CERTIFICATE.json ...   (- reads one certificate from standard input)"


def main(arguments: list[str] | None = None) -> int:
    """Check the certificates in files, print what was proved and what was assumed, and return the exit status."""
    names = sys.argv[1:] if arguments is None else arguments
    if not names or any(name.startswith("-") and name != "-" for name in names):
        print(_USAGE, file=sys.stderr)
        return 2
    verdicts = []
    for name in names:
        try:
            found = check(sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes())
        except OSError as error:
            found = Verdict("cannot check", "", (), f"the certificate cannot be read: {error}", "unknown")
        verdicts.append(found.verdict)
        print(f"{name}: {found.verdict}: {found.statement or 'no statement was read'}")
        if found.reason:
            print(f"  because {found.reason}")
        for theorem in found.assumed:
            print(f"  assumed: {theorem}")
        print(f"  sha256 {found.sha256}, {found.checked_with}")
    return 1 if "refuted" in verdicts else 0 if set(verdicts) == {"verified"} else 2


if __name__ == "__main__":
    sys.exit(main())

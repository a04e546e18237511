"""The option `--certificate FILE` of the commands whose answers may contain a certificate."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

CertificateFile = Annotated[
    Path | None, typer.Option(help="Write a certificate of the upper end to this file, for epsilond-verify.")
]


def write_certificate(file: Path | None, answer: str) -> None:
    """Write the certificate of the upper end to a file, if the answer has one."""
    if file is not None and (upper := json.loads(answer)["certificates"]["upper"]):
        file.write_bytes(upper["certificate"].encode())


def certificate_facts(found: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield what an answer says about its certificates. Yield nothing if no certificates were requested."""
    if "certificates" in found:
        upper = found["certificates"]["upper"]
        yield "certificate", f"sha256 {upper['sha256']}, {upper['checked_with']}" if upper else "none"
        yield "about certificates", " ".join(found["certificates"]["notes"]) or None

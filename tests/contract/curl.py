"""What stands for curl where pages are tried: `make test` needs no program beside Python, and sees each status.

It takes the options that the pages use and no others. Each status is appended to the file that STATUSES names.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener


def main(arguments: Sequence[str]) -> None:
    """Ask, and print the answer as it comes, whatever its status."""
    options = _options(arguments)
    request = Request(options.url, method=options.request)
    if options.json is not None:
        request.add_header("Content-Type", "application/json")
        request.add_header("Accept", "application/json")
        request.data = _body(options.json)
    elif options.form:
        boundary = secrets.token_hex(16)
        request.add_header("Content-Type", f"multipart/form-data; boundary={boundary}")
        request.data = b"".join(_part(part, boundary) for part in options.form) + f"--{boundary}--\r\n".encode()
    for header in _headers(options.header):
        name, _, value = header.partition(": ")
        request.add_header(name, value)
    # No proxy of the machine's has a part in it.
    opener = build_opener(ProxyHandler({}))
    try:
        answer = opener.open(request, timeout=120)
    except HTTPError as refusal:
        answer = refusal
    with open(os.environ["STATUSES"], "a") as statuses:
        statuses.write(f"{answer.status}\n")
    body = answer.read()
    if options.output is None:
        sys.stdout.buffer.write(body)
    else:
        Path(options.output).write_bytes(body)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="curl", allow_abbrev=False)
    parser.add_argument("url")
    parser.add_argument("-s", "--silent", action="store_true")
    parser.add_argument("-N", "--no-buffer", action="store_true")
    parser.add_argument("-X", "--request")
    parser.add_argument("-H", "--header", action="append", default=[])
    parser.add_argument("-o", "--output")
    bodies = parser.add_mutually_exclusive_group()
    bodies.add_argument("--json")
    bodies.add_argument("-F", "--form", action="append")
    return parser.parse_args(arguments)


def _headers(given: Sequence[str]) -> list[str]:
    """Headers as they are given, or the lines of the file that one names."""
    found: list[str] = []
    for each in given:
        found += Path(each[1:]).read_text().splitlines() if each.startswith("@") else [each]
    return found


def _body(given: str) -> bytes:
    if given == "@-":
        return sys.stdin.buffer.read()
    return Path(given[1:]).read_bytes() if given.startswith("@") else given.encode()


def _part(given: str, boundary: str) -> bytes:
    """A part of a form: `name=text`, `name=@file` (with the file's name), or `name=<file` (its text alone)."""
    name, _, value = given.partition("=")
    disposition = f'form-data; name="{name}"'
    content = value.encode()
    if value[:1] in ("@", "<"):
        path = Path(value[1:])
        content = path.read_bytes()
        if value.startswith("@"):
            disposition += f'; filename="{path.name}"'
    return f"--{boundary}\r\nContent-Disposition: {disposition}\r\n\r\n".encode() + content + b"\r\n"


if __name__ == "__main__":
    main(sys.argv[1:])

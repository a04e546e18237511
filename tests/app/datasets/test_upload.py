from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from app.context import Context
from app.datasets.upload import receive_upload
from app.db.database import Database
from app.fence.watching import fenced_context
from app.kit import limits
from app.problems import Problem
from app.settings import Settings

FILE = (b"file", b"text/csv", b"age,outcome\r\n--x\r\n8675309,no\r\n")
METADATA = (b"metadata", b"application/json", b'{"name": "study"}')
MULTIPART = "multipart/form-data; boundary=boundary"
Part = tuple[bytes, bytes, bytes]


def multipart(*parts: Part, end: bytes = b"--boundary--\r\n") -> bytes:
    body = b""
    for name, media_type, content in parts:
        body += b'--boundary\r\nContent-Disposition: form-data; name="' + name + b'"; filename="x"\r\n'
        if media_type:
            body += b"Content-Type: " + media_type + b"\r\n"
        body += b"\r\n" + content + b"\r\n"
    return body + end


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    """A context that needs no tables: nothing here touches the database."""
    database = Database(f"sqlite:///{tmp_path / 'empty.sqlite3'}")
    yield fenced_context(Settings(data_dir=tmp_path / "data"), database)
    database.dispose()


def receive(
    context: Context,
    chunks: Iterable[bytes],
    content_type: str = MULTIPART,
    breaks_off: bool = False,
) -> tuple[bytes, bytes, bytes]:
    """File, its digest and metadata, as received from these chunks."""
    messages: list[Message] = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    messages.append({"type": "http.disconnect"} if breaks_off else {"type": "http.request", "body": b""})

    async def next_message() -> Message:
        return messages.pop(0)

    async def run() -> tuple[bytes, bytes, bytes]:
        headers = [(b"content-type", content_type.encode())]
        request = Request({"type": "http", "method": "POST", "path": "/", "headers": headers}, next_message)
        async with asynccontextmanager(receive_upload)(request, context) as upload:
            return upload.file.open().read(), upload.file_digest, upload.metadata

    return asyncio.run(run())


def refusal(context: Context, body: bytes, content_type: str = MULTIPART) -> Problem:
    with pytest.raises(Problem) as caught:
        receive(context, [body], content_type)
    assert "8675309" not in repr(caught.value.body("id"))
    assert list((context.settings.data_dir / "datasets").glob("*")) == []
    return caught.value


@pytest.mark.parametrize("size", [1, 2, 7, 64, 10_000])
def test_parts_arrive_whole_however_the_body_is_cut(context: Context, size: int) -> None:
    for parts in ((FILE, METADATA), (METADATA, FILE)):
        body = multipart(*parts)
        chunks = [body[start : start + size] for start in range(0, len(body), size)]
        file, digest, metadata = receive(context, chunks)
        assert file == FILE[2]
        assert digest == hashlib.sha256(FILE[2]).digest()
        assert metadata == METADATA[2]


def test_a_file_longer_than_the_buffer_is_the_same_file(context: Context) -> None:
    content = bytes(range(256)) * 20_000
    body = multipart(METADATA, (b"file", b"text/csv", content))
    file, digest, _ = receive(context, [body[start : start + 65_536] for start in range(0, len(body), 65_536)])
    assert file == content
    assert digest == hashlib.sha256(content).digest()


@pytest.mark.parametrize(
    "media_type",
    [b"", b"text/csv; charset=utf-8", b"TEXT/CSV", b"application/octet-stream", b"application/vnd.ms-excel"],
)
def test_a_file_may_have_the_types_that_systems_give_it(context: Context, media_type: bytes) -> None:
    assert receive(context, [multipart((b"file", media_type, b"a"), METADATA)])[0] == b"a"


def test_metadata_may_come_without_a_type(context: Context) -> None:
    assert receive(context, [multipart(FILE, (b"metadata", b"", b"{}"))])[2] == b"{}"


@pytest.mark.parametrize(
    ("content_type", "code"),
    [
        ("", "unsupported_media_type"),
        ("application/json", "unsupported_media_type"),
        ("text/csv", "unsupported_media_type"),
        ("multipart/mixed; boundary=boundary", "unsupported_media_type"),
        ("multipart/form-data", "malformed_multipart"),
        ("multipart/form-data; boundary=" + "x" * 300, "malformed_multipart"),
        ("multipart/form-data; boundary=other", "malformed_multipart"),
    ],
)
def test_content_types_are_checked(context: Context, content_type: str, code: str) -> None:
    problem = refusal(context, multipart(FILE, METADATA), content_type=content_type)
    assert problem.code == code
    assert problem.status == (415 if code == "unsupported_media_type" else 422)


BODIES = [
    ("empty", b"", "malformed_multipart", ""),
    ("not_multipart", b"8675309", "malformed_multipart", ""),
    ("no_end", multipart(FILE, METADATA, end=b""), "malformed_multipart", ""),
    ("cut_in_the_file", multipart(METADATA, FILE)[:-30], "malformed_multipart", ""),
    ("no_parts", multipart(), "missing", "/file"),
    ("no_file", multipart(METADATA), "missing", "/file"),
    ("no_metadata", multipart(FILE), "missing", "/metadata"),
    ("two_files", multipart(FILE, METADATA, FILE), "duplicate_part", "/file"),
    ("two_metadata", multipart(METADATA, METADATA, FILE), "duplicate_part", "/metadata"),
    ("another_part", multipart(FILE, METADATA, (b"8675309", b"", b"")), "unknown_field", ""),
    ("nameless_part", b"--boundary\r\nContent-Type: text/csv\r\n\r\n8675309\r\n", "unknown_field", ""),
    ("file_is_json", multipart((b"file", b"application/json", b"{}"), METADATA), "unsupported_part_type", "/file"),
    ("file_is_png", multipart((b"file", b"image/png", b""), METADATA), "unsupported_part_type", "/file"),
    (
        "file_is_no_parquet",
        multipart((b"file", b"application/vnd.apache.parquet", b"8675309"), METADATA),
        "unsupported_file",
        "/file",
    ),
    ("metadata_is_csv", multipart(FILE, (b"metadata", b"text/csv", b"{}")), "unsupported_part_type", "/metadata"),
    ("base64", b"--boundary\r\nContent-Transfer-Encoding: base64\r\n\r\n", "malformed_multipart", ""),
    ("long_header", b"--boundary\r\nContent-Type: " + b"8675309" * 10_000, "malformed_multipart", ""),
    ("many_headers", b"--boundary\r\n" + b"X: 8675309\r\n" * 1000, "malformed_multipart", ""),
    ("header_bytes", b"--boundary\r\nX\xff: 8675309\r\n\r\n", "malformed_multipart", ""),
]


@pytest.mark.parametrize(("body", "code", "pointer"), [case[1:] for case in BODIES], ids=[case[0] for case in BODIES])
def test_broken_bodies_are_refused(context: Context, body: bytes, code: str, pointer: str) -> None:
    problem = refusal(context, body)
    assert (problem.status, problem.code) == (422, code)
    assert [item.pointer for item in problem.errors] == [pointer]


def test_metadata_are_limited_like_every_json_body(context: Context) -> None:
    limit = limits.JSON_BODY_BYTES
    assert len(receive(context, [multipart(FILE, (b"metadata", b"", b" " * limit))])[2]) == limit
    problem = refusal(context, multipart(FILE, (b"metadata", b"", b" " * (limit + 1))))
    assert (problem.status, problem.code) == (413, "body_too_large")


def test_a_client_that_goes_away_leaves_nothing(context: Context) -> None:
    with pytest.raises(ClientDisconnect):
        receive(context, [multipart(FILE)[:-20]], breaks_off=True)
    assert list((context.settings.data_dir / "datasets").glob("*")) == []


def test_the_parser_logs_nothing_of_a_broken_body(context: Context, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        refusal(context, b"--boundary\r\nX\xff: 8675309\r\n\r\n")
        refusal(context, b"--boundary8675309")
    assert [record for record in caplog.records if record.name.startswith("python_multipart")] == []

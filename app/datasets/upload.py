"""Receive the body of a new data set. A multipart body is streamed: the file goes to the private disk, the metadata to
memory."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from fastapi import Depends, Request
from pydantic import ValidationError
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.concurrency import run_in_threadpool

from accounting.errors import one_of
from app.context import Context, CurrentContext
from app.datasets.file_kinds import FILE_TYPES, HEAD_BYTES, FileKind, file_kind
from app.datasets.files import DatasetFiles, IncomingFile
from app.datasets.schemas import PersonsDeletion
from app.datasets.synthetic import SyntheticRequest
from app.kit import limits
from app.kit.fields import Schema
from app.kit.json_body import read_json
from app.kit.validation import from_model
from app.problems import Problem, unprocessable

Document = TypeVar("Document", bound=Schema)

METADATA_TYPES = ("application/json",)

_WRITE_BYTES = 2**20

# The parser's warnings quote bytes of the body, and no log may contain a byte of anybody's data.
logging.getLogger("python_multipart.multipart").setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class Upload:
    """One received upload.

    Attributes:
        file: The file; it disappears with the request.
        kind: The format of the file.
        file_digest: The SHA-256 of the file's bytes. It is secret, and only used in keyed hashes.
        metadata: The bytes of the metadata, which are not parsed yet.
    """

    file: IncomingFile
    kind: FileKind
    file_digest: bytes
    metadata: bytes


async def receive(request: Request, context: CurrentContext) -> AsyncIterator[Upload | SyntheticRequest]:
    """Receive the body of a new data set: a file and its metadata, or the parameters of synthetic data."""
    async with asynccontextmanager(_receive)(request, context, SyntheticRequest) as received:
        yield received


async def receive_version(request: Request, context: CurrentContext) -> AsyncIterator[Upload | PersonsDeletion]:
    """Receive the body of a new version: a file and its metadata, or the persons to remove."""
    async with asynccontextmanager(_receive)(request, context, PersonsDeletion) as received:
        yield received


async def _receive(request: Request, context: Context, kind: type[Document]) -> AsyncIterator[Upload | Document]:
    if parse_options_header(request.headers.get("Content-Type", ""))[0] == b"application/json":
        yield await run_in_threadpool(_read_document, await request.body(), kind)
        return
    async with asynccontextmanager(receive_upload)(request, context) as upload:
        yield upload


async def receive_upload(request: Request, context: Context) -> AsyncIterator[Upload]:
    """Read the body part by part. The gate before every route limits its length (`app.web.body_gate`)."""
    boundary = _boundary(request.headers.get("Content-Type", ""))
    with ExitStack() as stack:
        files = DatasetFiles(context.settings.data_dir, context.settings.encryption)
        file = stack.enter_context(await run_in_threadpool(files.open_incoming))
        form = _Form(boundary)
        digest = hashlib.sha256()
        async for chunk in request.stream():
            form.feed(chunk)
            if len(form.file_bytes) >= _WRITE_BYTES:
                await run_in_threadpool(_flush, form, file, digest)
        form.finish()
        await run_in_threadpool(_flush, form, file, digest)
        await run_in_threadpool(file.finish)
        kind = file_kind(form.head, form.file_name, form.file_type)
        yield Upload(file, kind, digest.digest(), bytes(form.metadata))


Received = Annotated[Upload | SyntheticRequest, Depends(receive)]


ReceivedVersion = Annotated[Upload | PersonsDeletion, Depends(receive_version)]


def _read_document(document: bytes, kind: type[Document]) -> Document:
    value = read_json(document)
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise from_model(error, kind, value) from None


def _flush(form: _Form, file: IncomingFile, digest: hashlib._Hash) -> None:
    file.write(form.file_bytes)
    digest.update(form.file_bytes)
    form.file_bytes.clear()


@dataclass
class _Part:
    """A part whose headers are being read."""

    name: str = ""
    file_name: str = ""
    media_type: str = ""
    header: bytearray = field(default_factory=bytearray)
    value: bytearray = field(default_factory=bytearray)


class _Form:
    """The two parts `file` and `metadata`, each exactly once, in either order."""

    def __init__(self, boundary: bytes) -> None:
        self.file_bytes = bytearray()
        self.file_name = ""
        self.file_type = ""
        self.head = b""
        self.metadata = bytearray()
        self._seen: set[str] = set()
        self._part = _Part()
        self._is_complete = False
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin_part,
                    "on_header_field": self._take_header_field,
                    "on_header_value": self._take_header_value,
                    "on_header_end": self._end_header,
                    "on_headers_finished": self._end_headers,
                    "on_part_data": self._take_data,
                    "on_end": self._end,
                },
            )
        except FormParserError:
            raise _malformed() from None

    def feed(self, chunk: bytes) -> None:
        try:
            self._parser.write(chunk)
        except FormParserError:
            raise _malformed() from None

    def finish(self) -> None:
        """Refuse a body that ended early, or lacks a part."""
        if not self._is_complete:
            raise _malformed()
        for name in ("file", "metadata"):
            if name not in self._seen:
                raise unprocessable("missing", f"The multipart body needs a part named {name}.", name)

    def _begin_part(self) -> None:
        self._part = _Part()

    def _take_header_field(self, data: bytes, start: int, end: int) -> None:
        self._part.header += data[start:end]

    def _take_header_value(self, data: bytes, start: int, end: int) -> None:
        self._part.value += data[start:end]

    def _end_header(self) -> None:
        part = self._part
        header = bytes(part.header).lower()
        if header == b"content-disposition":
            options = parse_options_header(bytes(part.value))[1]
            part.name = options.get(b"name", b"").decode("latin-1")
            part.file_name = options.get(b"filename", b"").decode("latin-1")
        elif header == b"content-type":
            part.media_type = parse_options_header(bytes(part.value))[0].decode("latin-1").lower()
        elif header == b"content-transfer-encoding" and bytes(part.value).lower() not in (b"binary", b"8bit", b"7bit"):
            raise _malformed()
        part.header.clear()
        part.value.clear()

    def _end_headers(self) -> None:
        name, media_type = self._part.name, self._part.media_type
        if name not in ("file", "metadata"):
            detail = "An upload has two parts, file and metadata; this request has a part with another name."
            raise unprocessable("unknown_field", detail)
        if name in self._seen:
            raise unprocessable("duplicate_part", f"The part {name} may occur only once.", name)
        self._seen.add(name)
        types = tuple(FILE_TYPES) if name == "file" else METADATA_TYPES
        if media_type and media_type not in types:
            detail = f"The part {name} must be {one_of(types)}."
            raise unprocessable("unsupported_part_type", detail, name)
        if name == "file":
            self.file_name, self.file_type = self._part.file_name, media_type

    def _take_data(self, data: bytes, start: int, end: int) -> None:
        if self._part.name == "file":
            self.file_bytes += data[start:end]
            if len(self.head) < HEAD_BYTES:
                self.head = (self.head + data[start:end])[:HEAD_BYTES]
        else:
            self.metadata += data[start:end]
            if len(self.metadata) > limits.JSON_BODY_BYTES:
                detail = f"The metadata are larger than {limits.JSON_BODY_BYTES} bytes."
                raise Problem(413, "body_too_large", detail)

    def _end(self) -> None:
        self._is_complete = True


def _boundary(content_type: str) -> bytes:
    media_type, options = parse_options_header(content_type)
    if media_type != b"multipart/form-data":
        detail = (
            "An upload is multipart/form-data with the parts file (CSV, Parquet or NPZ) and metadata (JSON). "
            "A new synthetic data set, and a version without some persons, are described in application/json."
        )
        raise Problem(415, "unsupported_media_type", detail)
    if not options.get(b"boundary"):
        raise _malformed()
    return options[b"boundary"]


def _malformed() -> Problem:
    return unprocessable(
        "malformed_multipart", "The body is not complete multipart/form-data with two short-headed parts."
    )

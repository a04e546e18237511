"""The OpenAPI document, and Swagger UI at /docs. This server serves all its assets, under a strict content policy."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, FastAPI
from starlette.responses import FileResponse
from starlette.staticfiles import StaticFiles

STATIC = Path(__file__).parent / "static"
#: The committed file, which `make openapi` writes. It is read quickly, and a test compares it with the routes.
DOCUMENT = Path(__file__).parents[2] / "openapi.json"

# Swagger UI uses data: addresses for icons, and style attributes; its scripts are files.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)

router = APIRouter(include_in_schema=False)


@router.get("/docs")
def documentation() -> FileResponse:
    """Return the page; its assets come from the mount below."""
    return FileResponse(STATIC / "docs.html", headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY})


@router.get("/openapi.json")
def openapi_document() -> FileResponse:
    """Return the document, byte for byte as committed."""
    return FileResponse(DOCUMENT, media_type="application/json")


def add_documentation(app: FastAPI) -> None:
    """Add the routes of the document, the page and its assets."""
    app.include_router(router)
    app.mount("/docs/assets", StaticFiles(directory=STATIC), name="assets")

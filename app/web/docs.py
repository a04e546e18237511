"""The interactive documentation at /docs: Swagger UI with its assets, served by us, under a strict content policy."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, FastAPI
from starlette.responses import FileResponse
from starlette.staticfiles import StaticFiles

STATIC = Path(__file__).parent / "static"

# Swagger UI draws its icons from data: addresses and sets styles in attributes; its scripts are files.
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
    """The page; its assets come from the mount below."""
    return FileResponse(STATIC / "docs.html", headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY})


def add_documentation(app: FastAPI) -> None:
    """Serve the page and its assets."""
    app.include_router(router)
    app.mount("/docs/assets", StaticFiles(directory=STATIC), name="assets")

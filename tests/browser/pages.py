"""A page in Chromium that is watched: for faults in its console, for requests to other machines, for accessibility."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Page, Request

#: Where `WatchedPage.screenshot` writes; without it, it does nothing.
SCREENSHOTS = "EPSILOND_SCREENSHOTS"
WIDTHS = {"narrow": 390, "wide": 1280}
SCHEMES = ("light", "dark")
#: For what a page does on a busy machine.
PATIENCE_S = 120
SERIOUS = ("serious", "critical")
#: Addresses that lead to no machine.
WITHIN = ("data:", "blob:", "about:")


class WatchedPage:
    """One page, opened at an address; everything is asked of ``page``, Playwright's own.

    Attributes:
        page: The page.
        faults: Errors in its console (breaches of the content policy among them), errors of its scripts, and requests
            to other machines.
    """

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.faults: list[str] = []
        parts = urlsplit(url)
        self._origin = f"{parts.scheme}://{parts.netloc}/"
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        page.on("request", self._on_request)
        page.on("websocket", lambda socket: self.faults.append(f"websocket: {socket.url}"))
        page.goto(url)

    def expect_fault(self, pattern: str) -> None:
        """One fault is what the test wants, such as the browser's line about an answer of 404; waits until it is there.

        Raises:
            AssertionError: none came in time.
        """
        deadline = time.monotonic() + PATIENCE_S
        while (found := next((fault for fault in self.faults if re.search(pattern, fault)), None)) is None:
            assert time.monotonic() < deadline, f"no fault like {pattern!r} among {self.faults}"
            self.page.wait_for_timeout(10)
        self.faults.remove(found)

    def check(self) -> None:
        """Fail for every fault that was not expected."""
        # What the page has already done is told before this is answered.
        self.page.evaluate("() => new Promise(done => setTimeout(done))")
        assert not self.faults, "\n".join(self.faults)

    def screenshot(self, name: str) -> None:
        """The whole page, light and dark, narrow and wide, into the folder that the environment names."""
        folder = os.environ.get(SCREENSHOTS)
        if not folder:
            return
        before = self.page.viewport_size
        assert before is not None
        for scheme in SCHEMES:
            self.page.emulate_media(color_scheme=scheme)
            for word, width in WIDTHS.items():
                self.page.set_viewport_size({"width": width, "height": before["height"]})
                self.page.screenshot(path=Path(folder) / f"{name}-{scheme}-{word}.png", full_page=True)
        self.page.set_viewport_size(before)
        self.page.emulate_media(color_scheme="null")

    def check_accessibility(self, known: Mapping[str, str] | None = None, *, within: str = "body") -> None:
        """No finding of axe that is serious or critical, light or dark, at the page's width.

        Args:
            known: Findings that stay: by axe's rule, a regular expression that each of its places matches.
            within: The part of the page that is looked at.
        """
        found = []
        for scheme in SCHEMES:
            self.page.emulate_media(color_scheme=scheme)
            self.page.evaluate(_axe())
            results: dict[str, Any] = self.page.evaluate("part => axe.run(part)", within)
            for violation in results["violations"]:
                if violation["impact"] in SERIOUS:
                    pattern = (known or {}).get(violation["id"])
                    places = [str(node["target"]) for node in violation["nodes"]]
                    found += [
                        f"{scheme}: {violation['id']} ({violation['help']}) at {place}"
                        for place in places
                        if pattern is None or not re.search(pattern, place)
                    ]
        self.page.emulate_media(color_scheme="null")
        assert not found, "\n".join(found)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.faults.append(f"console: {message.text} ({message.location['url']})")

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self._origin, *WITHIN)):
            self.faults.append(f"request to another machine: {request.url}")


@cache
def _axe() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")

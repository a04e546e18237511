"""The watch over pages sees what it is there for: each kind of fault is made once, on a page of the service."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.conftest import OpenPage
from tests.browser.pages import SCREENSHOTS, WatchedPage

pytestmark = pytest.mark.thorough


@pytest.fixture
def watched(open_page: OpenPage, server: str) -> WatchedPage:
    return open_page(server + "/docs")


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("() => console.error('spoken')", "console: spoken"),
        ("() => { setTimeout(() => { throw new Error('thrown') }) }", "script: .*thrown"),
        ("() => fetch('/dashboard/runs/run_none')", "console: .*404"),
        ("() => fetch('http://127.0.0.2:9/').catch(() => {})", "console: .*Content Security Policy"),
        (
            "() => { const added = document.createElement('script'); added.text = '1'; document.body.append(added) }",
            "console: .*Content Security Policy",
        ),
    ],
    ids=["console", "script", "answer", "elsewhere", "inline"],
)
def test_a_fault_is_seen(watched: WatchedPage, script: str, fault: str) -> None:
    watched.check()
    watched.page.evaluate(script)
    watched.expect_fault(fault)
    watched.page.evaluate(script)
    with pytest.raises(AssertionError, match=fault.removeprefix("console: ")):
        watched.check()
    # One breach may be told by two lines.
    watched.faults.clear()


def test_a_request_to_another_machine_is_a_fault_and_has_no_address(open_page: OpenPage, server: str) -> None:
    # Every page's policy would stop it before it is a request.
    watched = open_page(server + "/docs", bypass_csp=True)
    watched.page.evaluate("() => fetch('http://example.org/').catch(() => {})")
    watched.expect_fault("request to another machine: http://example.org/")
    watched.expect_fault("ERR_NAME_NOT_RESOLVED")


def test_an_inaccessible_part_is_found_light_and_dark(open_page: OpenPage, server: str) -> None:
    watched = open_page(server + "/health/live")
    watched.page.set_content("<main><h1>Title</h1><p id=pale>Hardly to be read</p><button id=bare></button></main>")
    # The page's policy allows no style in a text.
    watched.page.locator("#pale").evaluate("each => { each.style.color = '#eee'; each.style.background = '#fff' }")
    with pytest.raises(AssertionError) as found:
        watched.check_accessibility()
    assert {line.partition(" (")[0] for line in str(found.value).splitlines() if ": " in line} >= {
        f"{scheme}: {rule}" for scheme in ("light", "dark") for rule in ("button-name", "color-contrast")
    }
    watched.check_accessibility({"button-name": "#bare", "color-contrast": "#pale"})


def test_screenshots_are_written_where_the_environment_says_and_else_nowhere(
    open_page: OpenPage, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = open_page(server + "/health/live")
    monkeypatch.delenv(SCREENSHOTS, raising=False)
    watched.screenshot("page")
    monkeypatch.setenv(SCREENSHOTS, str(tmp_path))
    watched.screenshot("page")
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {f"page-{scheme}-{width}.png" for scheme in ("light", "dark") for width in ("narrow", "wide")}
    assert watched.page.viewport_size == {"width": 1280, "height": 900}

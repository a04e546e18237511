"""`python -m benchmarks.screens`: compare the dashboard's screens in Chromium with a plain file from the same server.

On the first visit, the server has just loaded its numerical code and the browser's cache is empty. On later visits,
both are warm. Charts load after the screen, and the benchmark does not wait for them. The server's work is measured in
CPU time, which hardly depends on other load. The browser's times are reported beside those of a plain file, which is
read in the same minute.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.http_servers import HOST, Server, migrated, service

#: The measured screens and their paths, which are open without a key.
SCREENS = {
    "calibrate": "/",
    "events": "/dashboard/calibrate/events",
    "paste a call": "/dashboard/import",
    "compare": "/dashboard/compare",
    "algorithms": "/dashboard/algorithms",
    "an algorithm": "/dashboard/algorithms/dp_sgd",
    "a plain file": "/dashboard/assets/icon.svg",
}
FIRST, PLAIN = "calibrate", "a plain file"
WARM_MS, COLD_MS = 100.0, 1000.0
#: The longest wait in seconds until the server has loaded its numerical code, and the time without CPU use after which
#: the code counts as loaded.
_PATIENCE_S, _QUIET_S = 120.0, 3.0
_TIMES = """() => {
  const seen = performance.getEntriesByType("navigation")[0];
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  return {answered: seen.responseEnd, painted: paint ? paint.startTime : seen.responseEnd};
}"""


def main() -> None:
    """Measure, write the figures, and print which goals are met."""
    output, is_quick = report.asked("screens", __doc__)
    started = time.perf_counter()
    figures = report.header("screens", "make bench-screens", is_quick, ("fastapi", "jinja2", "playwright"), ["app"])
    with tempfile.TemporaryDirectory(prefix="epsilond-bench-") as temporary:
        folder = Path(temporary)
        url = migrated(f"sqlite:///{folder / 'screens.sqlite3'}")
        figures["screens"] = measure(url, folder, visits=3 if is_quick else 10)
    report.conclude(output, report.plain(figures), goals(figures), time.perf_counter() - started)


def measure(url: str, folder: Path, visits: int) -> list[dict[str, Any]]:
    """Visit each screen once on a server that has just started, and then the given number of times."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 -- a driver of browsers, which tests need alone

    rows = []
    with service(url, folder, EPSILOND_WARM_UP="yes") as server, sync_playwright() as playwright:
        _await_numerics(server)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), chromium_sandbox=False)
        for name, path in SCREENS.items():
            page = browser.new_page()
            # The script htmx requests the charts after the screen has loaded. Without it, only the screen's own work
            # is counted.
            page.route("**/htmx.min.js", lambda route: route.abort())
            seen = [_visit(server, page, path) for _ in range(visits + 1)]
            warm = {key: statistics.median(each[key] for each in seen[1:]) for key in seen[0]}
            rows.append({"name": name, "path": path, "first": seen[0], "next": warm})
            page.close()
        browser.close()
    return rows


def _visit(server: Server, page: Any, path: str) -> dict[str, float]:
    before = server.cpu_seconds()
    page.goto(f"http://{HOST}:{server.port}{path}", wait_until="load")
    seen: dict[str, float] = page.evaluate(_TIMES)
    return {**seen, "cpu": 1000.0 * (server.cpu_seconds() - before)}


def _await_numerics(server: Server) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    used = -1.0
    while server.cpu_seconds() > used + 0.05 and time.monotonic() < deadline:
        used = server.cpu_seconds()
        time.sleep(_QUIET_S)


def goals(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a mapping with "what", "goal", "measured" and "met" for the first screen, on the first visit and on later
    ones."""
    first = next(row for row in figures["screens"] if row["name"] == FIRST)
    asked = (("on the first visit", "first", COLD_MS), ("on later visits", "next", WARM_MS))
    return [
        {
            "what": f"CPU time of the server for the first screen, {when}",
            "goal": f"at most {most:g} ms",
            "measured": f"{first[key]['cpu']:.0f} ms",
            "met": first[key]["cpu"] <= most,
        }
        for when, key, most in asked
    ]


def screens_section(figures: Mapping[str, Any]) -> list[str]:
    """Return the lines of the part of docs/measured.md about screens."""
    header = ["screen", "first visit: CPU ms", "painted ms", "next visits: CPU ms", "answered ms", "painted ms"]
    rows = [
        [
            f"{row['name']} (`{row['path']}`)",
            f"{row['first']['cpu']:.0f}",
            f"{row['first']['painted']:.0f}",
            f"{row['next']['cpu']:.0f}",
            f"{row['next']['answered']:.0f}",
            f"{row['next']['painted']:.0f}",
        ]
        for row in figures["screens"]
    ]
    return [
        f"The table has the dashboard's screens in Chromium (`{figures['command']}`, {figures['date']}, "
        f"{report.commit_of(figures)}; {figures['machine']['cores']} cores; load average "
        f"{figures['load_average_before']:.1f} before). Other processes lengthen the browser's times (*answered* and "
        "*painted*), but not the CPU times of the server.",
        "So compare a browser's time with that of the plain file, which was read in the same minute. Charts load after "
        "the screen and are not counted.",
        "",
        *report.goals_table(figures["goals"]),
        "",
        *report.markdown_table(header, rows),
    ]


if __name__ == "__main__":
    main()

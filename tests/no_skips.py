"""In CI a skipped test is a failed one: what did not run has shown nothing. GPU tests alone are excepted."""

from __future__ import annotations

import os

import pytest

VARIABLE = "TESTS_FAIL_ON_SKIP"


class SkipWatch:
    """Counts skipped tests and fails the session for those that may not be skipped."""

    def __init__(self) -> None:
        self.excepted: list[str] = []
        self.forbidden: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            (self.excepted if "gpu" in report.keywords else self.forbidden).append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.forbidden.append(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.forbidden and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for node in self.excepted:
            terminalreporter.write_line(f"GPU test not run here: {node}")
        for node in self.forbidden:
            terminalreporter.write_line(f"skipped, which fails CI: {node}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get(VARIABLE):
        config.pluginmanager.register(SkipWatch(), "skip-watch")

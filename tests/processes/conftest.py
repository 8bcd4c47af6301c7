"""The crash model's figures, told at the end: summed here, where also those of other worker processes arrive."""

from __future__ import annotations

import pytest

CRASH_MODEL = "crash points, states, recoveries"
TOTALS = pytest.StashKey[list[int]]()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Figures(config), "crash-model-figures")


class Figures:
    """Adds up what the tests of the crash model report."""

    def __init__(self, config: pytest.Config) -> None:
        self.totals = config.stash.setdefault(TOTALS, [0, 0, 0])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "teardown":
            return
        for name, value in report.user_properties:
            if name == CRASH_MODEL:
                self.totals[:] = [total + int(part) for total, part in zip(self.totals, str(value).split())]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if any(self.totals):
            points, states, recovered = self.totals
            terminalreporter.write_line(
                f"crash model: {points} crash points, {states} states of the disk, {recovered} of them different "
                "and recovered from"
            )

"""The figures of what was looked at, told at the end of a test run."""

from __future__ import annotations

import os

import pytest

from tests.processes.crash_model.exploring import Counted, Depth, depth_of

COUNTED = pytest.StashKey[list[Counted]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash.setdefault(COUNTED, [])


@pytest.fixture(scope="session")
def depth() -> Depth:
    """How deep to look, by the environment."""
    return depth_of(os.environ)


@pytest.fixture
def counted(request: pytest.FixtureRequest) -> list[Counted]:
    """Put what was looked at here: it is told at the end."""
    return request.config.stash.setdefault(COUNTED, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    found = config.stash.get(COUNTED, [])
    if found:
        points, states, recovered = (
            sum(getattr(one, name) for one in found) for name in ("points", "states", "recoveries")
        )
        terminalreporter.write_line(
            f"crash model: {points} crash points, {states} states of the disk, {recovered} of them different "
            "and recovered from"
        )

"""How deep the crash model looks, and the figures of what was looked at."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.processes.conftest import CRASH_MODEL
from tests.processes.crash_model.exploring import Counted, Depth, depth_of


@pytest.fixture(scope="session")
def depth() -> Depth:
    """How deep to look, by the environment."""
    return depth_of(os.environ)


@pytest.fixture
def counted(request: pytest.FixtureRequest) -> Iterator[list[Counted]]:
    """Put what was looked at here: it stands in the JUnit file, and the sum is told at the end."""
    found: list[Counted] = []
    yield found
    figures = [sum(getattr(one, name) for one in found) for name in ("points", "states", "recoveries")]
    request.node.user_properties.append((CRASH_MODEL, " ".join(map(str, figures))))

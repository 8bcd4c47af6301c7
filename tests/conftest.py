"""What all tiers share: a test never touches a person's own cluster, Pulumi login or caches by accident."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# The pack stands alone: its modules import each other from its own folder, as when the engine runs it.
sys.path.insert(0, str(ROOT / "policies"))

# Of the shell that started the tests; each test sets what it needs.
FOREIGN = (
    "KUBECONFIG",
    "PULUMI_STACK",
    "PULUMI_BACKEND_URL",
    "PULUMI_ACCESS_TOKEN",
    "PULUMI_OPTION_POLICY_PACK",
)


@pytest.fixture(autouse=True)
def _no_foreign_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """The current context and the current backend belong to the person, not to the tests."""
    for name in FOREIGN:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def checkout() -> Path:
    """The project's folder."""
    return ROOT


@pytest.fixture(scope="session", autouse=True)
def _plain_output() -> None:
    """Help and tables are compared as text: no colours, and one width on every machine."""
    os.environ.setdefault("COLUMNS", "120")
    os.environ["NO_COLOR"] = "1"


def pytest_collection_finish() -> None:
    """What was imported stays to the end: looking through it for garbage again and again is a tenth of the quick tiers."""
    gc.collect()
    gc.freeze()

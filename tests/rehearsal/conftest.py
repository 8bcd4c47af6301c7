"""The rehearsal tier: a real cluster, a real engine, real Pods. `./holdfast test --tier rehearsal` brings the cluster up."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rehearsal import cluster, toolchain
from rehearsal.progress import Progress
from tests.rehearsal.helpers import ROOT, Project

def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.rehearsal)


@pytest.fixture(scope="session", autouse=True)
def running_cluster() -> None:
    cluster.up(Progress())


@pytest.fixture(scope="session")
def shell() -> dict[str, str]:
    """The environment of a person who has run `eval "$(./holdfast env)"`."""
    toolchain.link(toolchain.ensure(["kubectl"], Progress()))
    return {**os.environ, **cluster.environment()}


@pytest.fixture(scope="session")
def holdfast(shell: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs ./holdfast as a person does."""

    def run(*arguments: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([ROOT / "holdfast", *arguments], env=shell, capture_output=True, text=True, cwd="/")
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done

    return run


@pytest.fixture(scope="session")
def kubectl(shell: dict[str, str]) -> Callable[..., str]:
    def run(*arguments: str) -> str:
        done = subprocess.run(["kubectl", *arguments], env=shell, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def project(tmp_path: Path, shell: dict[str, str]) -> Project:
    return Project(tmp_path, shell)

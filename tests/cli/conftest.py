"""The real engine on a local backend: no cluster, no account, nothing of the person's own Pulumi."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from rehearsal import toolchain
from rehearsal.progress import Progress
from tests.cli.engine import ROOT, Engine, write_project

DIGEST = "sha256:" + "0" * 64
MATRIX = "row of the ownership table"
PROJECT = ("__main__.py", "components", "policies", "rehearsal", "requirements.txt")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(OwnershipMatrix(), "ownership-matrix")


class OwnershipMatrix:
    """Rows x checks, told at the end: gathered here, where also those of other worker processes arrive."""

    def __init__(self) -> None:
        self.rows: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self.rows += [str(value) for name, value in report.user_properties if name == MATRIX]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.rows:
            terminalreporter.section("ownership table, rows x checks")
            for row in sorted(self.rows):
                terminalreporter.write_line(row)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.cli)


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """The toolchain's engine and Kubernetes provider; the first time ever they are fetched or built."""
    toolchain.link(toolchain.ensure(toolchain.PULUMI_PROGRAMS, Progress()))
    home, backend = tmp_path_factory.mktemp("pulumi-home"), tmp_path_factory.mktemp("backend")
    foreign = {name for name in os.environ if name.startswith(("PULUMI_", "KUBECONFIG", "HOLDFAST_"))}
    clean = {name: value for name, value in os.environ.items() if name not in foreign}
    return Engine({**clean, **toolchain.tool_environment(home, backend)})


@pytest.fixture(scope="session")
def yaml_engine(engine: Engine) -> Engine:
    """The same engine, which can run programs in YAML too."""
    toolchain.link(toolchain.ensure(toolchain.BUNDLED, Progress()))
    return engine


@pytest.fixture
def project(engine: Engine, tmp_path: Path) -> Callable[[str], Path]:
    """A folder with our program and a stack file of the test's own, with its stack made in the backend."""

    def make(stack_file: str) -> Path:
        for name in PROJECT:
            (tmp_path / name).symlink_to(ROOT / name)
        write_project(tmp_path)
        if not engine.has_stack("holdfast", "dev"):
            made = engine.run(tmp_path, "stack", "init", "dev")
            assert made.code == 0, made.text
        (tmp_path / "Pulumi.dev.yaml").write_text(stack_file)
        return tmp_path

    return make


@pytest.fixture(scope="session")
def rehearsal_values() -> Mapping[str, str]:
    """What `./holdfast env` gives, for a preview that never gets as far as a cluster."""
    return {
        "HOLDFAST_KUBECONFIG": "/nowhere/kubeconfig",
        "HOLDFAST_TRAINER_IMAGE": f"docker.io/holdfast/trainer@{DIGEST}",
        "HOLDFAST_OPERATOR_IMAGE": f"docker.io/holdfast/rehearsal-gpu-operator@{DIGEST}",
        "HOLDFAST_JOBSET_CHART": "./tests/unit/components/data/jobset-chart",
        "HOLDFAST_JOBSET_DIGEST": "0" * 64,
    }

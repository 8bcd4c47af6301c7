"""The environment that the entry script makes: when it is trusted, and how the script finds its way there."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
REQUIREMENTS = """\
typer==1.0 \\
    --hash=sha256:aa
PyYAML==6.0 ; python_version > '3' \\
    --hash=sha256:bb
only-elsewhere==2 \\
    --hash=sha256:cc
"""


@pytest.fixture
def bootstrap() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap_under_test", ROOT / "ops" / "bootstrap.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def project(tmp_path: Path, bootstrap: ModuleType) -> Path:
    """A checkout with a finished environment of empty packages, and an `ops` that shows its arguments."""
    (tmp_path / "ops").mkdir()
    shutil.copy(ROOT / "holdfast", tmp_path / "holdfast")
    shutil.copy(ROOT / "ops" / "bootstrap.py", tmp_path / "ops" / "bootstrap.py")
    (tmp_path / "ops" / "__main__.py").write_text("import os, sys; print(os.getcwd(), sys.argv[1:])\n")
    (tmp_path / "requirements.txt").write_text(REQUIREMENTS)
    site = tmp_path / ".venv" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    for name in ("typer-1.0.dist-info", "pyyaml-6.0.dist-info", "extra-3.dist-info"):
        (site / name).mkdir(parents=True)
    (tmp_path / ".venv" / "bin").mkdir()
    (tmp_path / ".venv" / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    bootstrap._write_stamp(tmp_path / ".venv", tmp_path / "requirements.txt", "requirements")
    return tmp_path


def whole(bootstrap: ModuleType, project: Path) -> bool:
    return bool(bootstrap.is_whole(project / ".venv", project / "requirements.txt"))


def test_a_finished_environment_is_whole(bootstrap: ModuleType, project: Path) -> None:
    assert whole(bootstrap, project)


def test_an_environment_without_its_stamp_is_not_whole(bootstrap: ModuleType, project: Path) -> None:
    (project / ".venv" / "holdfast-requirements.json").unlink()
    assert not whole(bootstrap, project)


def test_a_changed_requirements_file_makes_the_environment_stale(
    bootstrap: ModuleType, project: Path
) -> None:
    with (project / "requirements.txt").open("a") as stream:
        stream.write("another==1 --hash=sha256:dd\n")
    assert not whole(bootstrap, project)


def test_a_package_that_went_missing_is_noticed(bootstrap: ModuleType, project: Path) -> None:
    shutil.rmtree(next(project.glob(".venv/lib/*/site-packages/typer-1.0.dist-info")))
    assert not whole(bootstrap, project)


def test_a_python_that_was_removed_is_noticed(bootstrap: ModuleType, project: Path) -> None:
    python = project / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/nowhere/python3.11")
    assert not whole(bootstrap, project)


def test_a_garbled_stamp_is_not_trusted(bootstrap: ModuleType, project: Path) -> None:
    (project / ".venv" / "holdfast-requirements.json").write_text("{")
    assert not whole(bootstrap, project)


def test_pins_are_read_from_lines_with_markers_and_hashes(bootstrap: ModuleType, project: Path) -> None:
    pins = bootstrap.pins(project / "requirements.txt")
    assert pins == {"typer": "1.0", "pyyaml": "6.0", "only-elsewhere": "2"}


def test_the_projects_own_requirements_are_all_pinned_with_hashes(bootstrap: ModuleType) -> None:
    text = (ROOT / "requirements.txt").read_text()
    assert text.count("--hash=sha256:") >= len(bootstrap.pins(ROOT / "requirements.txt")) > 50


def test_every_direct_requirement_is_in_the_compiled_file(bootstrap: ModuleType) -> None:
    lines = (ROOT / "requirements.in").read_text().splitlines()
    wanted = {
        bootstrap._normal(line.split("==")[0].split("[")[0]) for line in lines if line and line[0] != "#"
    }
    assert wanted <= set(bootstrap.pins(ROOT / "requirements.txt"))


def run(
    script: Path, *arguments: str, cwd: Path, path: str | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": path if path is not None else os.environ["PATH"]}
    environment.pop("HOLDFAST_PYTHON", None)
    return subprocess.run(
        ["/bin/sh", str(script), *arguments], cwd=cwd, env=environment, capture_output=True, text=True
    )


def test_the_entry_works_from_any_folder_and_keeps_it(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    answer = run(project / "holdfast", "logs", "run 001", cwd=elsewhere)
    assert (answer.stdout.strip(), answer.returncode) == (f"{elsewhere} ['logs', 'run 001']", 0)


def test_the_entry_works_through_a_chain_of_links(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("bin")
    (folder / "first").symlink_to(project / "holdfast")
    (folder / "second").symlink_to("first")
    assert run(folder / "second", "status", cwd=folder).stdout.strip() == f"{folder} ['status']"


def test_a_module_of_the_current_folder_never_shadows_ours(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("trap")
    (folder / "json.py").write_text("raise SystemExit('the wrong json')\n")
    (project / "ops" / "__main__.py").write_text("import json; print(json.dumps(1))\n")
    assert run(project / "holdfast", cwd=folder).stdout == "1\n"


def test_a_machine_without_python_gets_a_sentence(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bare = tmp_path_factory.mktemp("bare")
    for program in ("dirname", "readlink", "env"):
        (bare / program).symlink_to(shutil.which(program) or "")
    answer = run(project / "holdfast", "up", cwd=project, path=str(bare))
    assert answer.returncode == 4
    assert answer.stderr.startswith("holdfast needs Python 3.11 or newer, and found none on PATH.")


def test_an_old_python_is_passed_over(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("old")
    for program in ("dirname", "readlink", "env"):
        (folder / program).symlink_to(shutil.which(program) or "")
    old = folder / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")  # as Python 3.9 answers the question for 3.11
    old.chmod(0o755)
    (folder / "python3.11").symlink_to(os.path.realpath(sys.executable))
    assert run(project / "holdfast", "x", cwd=folder, path=str(folder)).stdout.strip() == f"{folder} ['x']"


def test_bytecode_that_may_not_lie_beside_the_sources_goes_to_the_cache(
    bootstrap: ModuleType, tmp_path: Path
) -> None:
    environ = {"PYTHONDONTWRITEBYTECODE": "1", "HOLDFAST_CACHE": str(tmp_path)}
    bootstrap.keep_bytecode(environ)
    assert environ == {"HOLDFAST_CACHE": str(tmp_path), "PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode")}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, {}),
        ({"PYTHONDONTWRITEBYTECODE": ""}, {}),
        ({"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": "/x"}, {"PYTHONPYCACHEPREFIX": "/x"}),
    ],
)
def test_a_persons_own_choice_of_bytecode_stays(
    bootstrap: ModuleType, given: dict[str, str], kept: dict[str, str]
) -> None:
    bootstrap.keep_bytecode(given)
    assert given == kept

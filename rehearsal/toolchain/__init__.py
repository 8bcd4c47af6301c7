"""The third-party programs: found on PATH, taken from an official release, or built from pinned Go modules."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rehearsal.progress import Progress
from rehearsal.state import cache_dir, write_atomically
from rehearsal.toolchain import build, find, release
from rehearsal.toolchain.programs import PROGRAMS, PULUMI, Program

__all__ = ["CLI_TEST_PROGRAMS", "PULUMI_PROGRAMS", "bin_dir", "chart", "ensure", "tool_environment"]

PULUMI_PROGRAMS = ("pulumi", "pulumi-resource-kubernetes")
# Language hosts that pulumi looks for beside itself; on PATH it would warn of them at each command.
BUNDLED = ("pulumi-language-yaml",)
CLI_TEST_PROGRAMS = (*PULUMI_PROGRAMS, *BUNDLED)
"""What the tests with the real engine need: programs in YAML meet the policy pack too."""
SHIMS = Path(__file__).with_name("shims")


def cached(program: Program) -> Path:
    return cache_dir() / "toolchain" / f"{program.module}-{program.version}" / program.name


def ensure(programs: Sequence[str], progress: Progress) -> dict[str, Path]:
    """The path of each named program, made available if it is not yet. A finished program enters the cache at once.

    Raises RehearsalError when a program is in none of the three places.
    """
    found = {}
    for name in programs:
        program = PROGRAMS[name]
        target = cached(program)
        if target.exists():
            found[name] = target
        elif on_path := find.on_path(program):
            found[name] = on_path
        elif release.fetch(program, target, progress):
            found[name] = target
        else:
            build.build(program, target, progress)
            found[name] = target
    return found


def chart(name: str) -> Path:
    """The folder of the Helm chart that is published in a program's own module."""
    return cached(PROGRAMS[name]).with_name(f"{name}-chart")


def bin_dir() -> Path:
    """A folder of links to pulumi, its plugins and kubectl, for the front of PATH. One per Python environment."""
    key = hashlib.sha256(f"{sys.executable} {PULUMI}".encode()).hexdigest()[:8]
    return cache_dir() / "bin" / key


def link(found: dict[str, Path], folder: Path | None = None) -> Path:
    """Fill `bin_dir()` with the given programs, and with the Python plugins where a source build of pulumi lacks them."""
    folder = folder or bin_dir()
    folder.mkdir(parents=True, exist_ok=True)
    for name, target in found.items():
        if name == "pulumi":
            _place_pulumi(folder, target)
        elif name in BUNDLED:
            (folder / "bundle").mkdir(exist_ok=True)
            _relink(folder / "bundle" / name, target)
        elif name != "pulumi-resource-kubernetes":  # that one is not on PATH: see _install_provider
            _relink(folder / name, target)
    return folder


def _place_pulumi(folder: Path, target: Path) -> None:
    """pulumi takes the plugins beside its own real path as its bundle; plugins on PATH make it warn at each command."""
    bundle = folder / "bundle"
    bundle.mkdir(exist_ok=True)
    official = target.with_name("pulumi-language-python")
    if official.exists():
        real = target
    else:
        real = bundle / "pulumi"
        if not (real.exists() and real.samefile(target)):
            real.unlink(missing_ok=True)
            _link_or_copy(real, target)
        _write_shims(bundle)
    command = SHIMS / "pulumi_command.py"
    _write_script(folder / "pulumi", f'exec "{sys.executable}" -I -S "{command}" "{real}" "$@"')


def _link_or_copy(path: Path, target: Path) -> None:
    try:
        path.hardlink_to(target)
    except OSError:  # another file system
        shutil.copy2(target, path)


def _relink(path: Path, target: Path) -> None:
    if path.is_symlink() and path.readlink() == target:
        return
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _write_script(path: Path, line: str) -> None:
    text = f"#!/bin/sh\n{line}\n"
    if not path.exists() or path.read_text() != text:
        write_atomically(path, text, mode=0o755)


def _write_shims(bundle: Path) -> None:
    """The language host and the dynamic-provider plugin, which Pulumi publishes only inside its release archive."""
    host = SHIMS / "language_host.py"
    executor = cached(PROGRAMS["pulumi"]).with_name("pulumi-language-python-exec")
    _relink(bundle / executor.name, executor)
    _write_script(
        bundle / "pulumi-language-python", f'exec "{sys.executable}" -u "{host}" --executor="{executor}" "$@"'
    )
    # The engine runs it in the program's folder, so that the program's own modules can be imported.
    provider = SHIMS / "dynamic_provider.py"
    _write_script(bundle / "pulumi-resource-pulumi-python", f'exec "{sys.executable}" -u "{provider}" "$@"')


def _install_provider(pulumi_home: Path) -> None:
    provider = PROGRAMS["pulumi-resource-kubernetes"]
    folder = pulumi_home / "plugins" / f"resource-kubernetes-{provider.version}"
    if cached(provider).exists():
        folder.mkdir(parents=True, exist_ok=True)
        _relink(folder / provider.name, cached(provider))


def with_front(folder: Path, path: str) -> str:
    """`path` with `folder` as its first entry, once, however often a shell takes this environment."""
    return ":".join([str(folder), *(entry for entry in path.split(":") if entry != str(folder))])


def tool_environment(pulumi_home: Path, backend: Path) -> dict[str, str]:
    """What a shell needs so that plain `pulumi` works on a local backend, without touching the user's own Pulumi.

    `pulumi_home` and `backend` are folders of the caller's choice; the provider is linked into the former, as if
    `pulumi plugin install` had put it there.
    """
    _install_provider(pulumi_home)
    backend.mkdir(parents=True, exist_ok=True)
    return {
        "PATH": with_front(bin_dir(), os.environ["PATH"]),
        "PULUMI_HOME": str(pulumi_home),
        # For the policy pack, which names no virtual environment: its packages are in ours.
        "PULUMI_PYTHON_CMD": sys.executable,
        "PULUMI_BACKEND_URL": f"file://{backend}",
        # The rehearsal's secrets protect nothing: its state dies with it. Real environments name a secrets provider.
        "PULUMI_CONFIG_PASSPHRASE": "rehearsal",
        # The stack's own state knows its secrets provider, so that no salt is written into the tracked stack file.
        "PULUMI_FALLBACK_TO_STATE_SECRETS_MANAGER": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }

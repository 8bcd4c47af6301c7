"""A chart in a folder or archive of the project: where it is, and what is in it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pulumi
import yaml

IGNORED = frozenset({"__pycache__", ".git", ".DS_Store"})


def local_chart(chart: str) -> Path | None:
    """The chart's folder or archive; None for a name in a repository or an OCI reference."""
    return Path(chart) if chart.startswith(("./", "../", "/")) else None


def fingerprint(path: Path, version: str, setting: str = "gpuOperator") -> str:
    """Hash of the chart's files, names included: 16 hex digits. `setting`: the section that names the chart.

    Raises RunError if there is no chart at `path`, or if it has another version than `version`.
    """
    if path.is_file():
        return _digest({path.name: path})
    manifest = path / "Chart.yaml"
    if not manifest.is_file():
        raise pulumi.RunError(
            f"holdfast:{setting}.chart.path = {path}: there is no Helm chart (no Chart.yaml). "
            "Write the folder of the chart, relative to the project, or a packed chart (.tgz)."
        )
    # Helm ignores the wanted version of a folder: the state would tell another one than the configuration.
    found = str(yaml.safe_load(manifest.read_text(encoding="utf-8")).get("version"))
    if found != version:
        raise pulumi.RunError(
            f"holdfast:{setting}.chart.version = {version}: the chart in {path} has version {found}. "
            f"Write version: {found}, or the folder of version {version}."
        )
    files = (file for file in path.rglob("*") if file.is_file() and not IGNORED & set(file.parts))
    return _digest({file.relative_to(path).as_posix(): file for file in files})


def _digest(files: dict[str, Path]) -> str:
    digest = hashlib.sha256()
    for name, file in sorted(files.items()):
        digest.update(f"{name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]

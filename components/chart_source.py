"""A chart in a folder or archive of the project: where it is, and what is in it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pulumi

IGNORED = frozenset({"__pycache__", ".git", ".DS_Store"})


def local_chart(chart: str) -> Path | None:
    """The chart's folder or archive if it is a path of the project; None for a name in a repository or an OCI reference."""
    return Path(chart) if chart.startswith(("./", "../", "/")) else None


def fingerprint(path: Path) -> str:
    """Hash of the chart's files, names included: 16 hex digits. Raises RunError if there is no chart at `path`."""
    if path.is_file():
        files = [path]
    elif (path / "Chart.yaml").is_file():
        files = sorted(file for file in path.rglob("*") if file.is_file() and not IGNORED & set(file.parts))
    else:
        raise pulumi.RunError(
            f"holdfast:gpuOperator.chart.path = {path}: there is no Helm chart (no Chart.yaml). "
            "Write the folder of the chart, relative to the project, or a packed chart (.tgz)."
        )
    digest = hashlib.sha256()
    for file in files:
        name = file.name if file == path else file.relative_to(path).as_posix()
        digest.update(f"{name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]
